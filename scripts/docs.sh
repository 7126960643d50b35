#!/usr/bin/env bash
# Builds the documentation site from docs/ and mkdocs.yml into target/docs. A broken link, a missing anchor or a page
# that the navigation lacks is an error. Installs MkDocs into target/docs-venv where it is missing. Prints "not run"
# where Python or its packages are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
site=$target/docs
venv=$target/docs-venv
requirements=scripts/docs-requirements.txt

not_run() { # REASON
    echo "not run: site: $1"
    exit 0
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Left by an installation that succeeded; another version of the list, or of Python, starts anew.
if ! cmp -s "$requirements" "$venv/installed" || ! "$venv/bin/python" -c "" 2>/dev/null; then
    python3 -c "" 2>/dev/null || not_run "python3 is not installed"
    python3 -c "import sys; sys.exit(sys.version_info < (3, 11))" ||
        not_run "needs Python 3.11, this is $(python3 --version)"
    rm -rf "$venv"
    python3 -m venv "$venv" >"$log" 2>&1 || not_run "python3 cannot make a virtual environment (on Debian: apt install python3-venv)"
    # Wheels only: the tools that build a source package have no hashes.
    if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        --requirement "$requirements" </dev/null >"$log" 2>&1; then
        if grep -qiE 'no matching distribution|connection|timed out|max retries|name resolution|unreachable' "$log" &&
            ! grep -qi 'do not match the hashes' "$log"; then
            not_run "pip cannot fetch $requirements: $(grep -m 1 '^ERROR' "$log" || tail -n 1 "$log")"
        fi
        cat "$log"
        exit 1
    fi
    cp "$requirements" "$venv/installed"
fi

# Material for MkDocs prints an advertisement with each build.
export NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1
# Not --quiet: that hides warnings from --strict too.
"$venv/bin/mkdocs" build --strict --site-dir "$site" >"$log" 2>&1 || {
    grep -v '^INFO' "$log"
    exit 1
}
echo "the site: ${site#"$PWD/"}; to read it: python3 -m http.server --bind 127.0.0.1 --directory ${site#"$PWD/"}"
