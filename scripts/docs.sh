#!/usr/bin/env bash
# Builds the documentation site from docs/ and mkdocs.yml into target/docs. A broken link, a missing anchor or a page
# that the navigation lacks is an error. Installs MkDocs into target/docs-venv where it is missing. Prints "not run"
# where Python or its packages are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python-packages.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
site=$target/docs
venv=$target/docs-venv

not_run() { # REASON
    echo "not run: site: $1"
    exit 0
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

reason=$(python_packages "$venv" scripts/docs-requirements.txt)
[ -z "$reason" ] || not_run "$reason"

# Material for MkDocs prints an advertisement with each build.
export NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1
# Not --quiet: that hides warnings from --strict too.
"$venv/bin/mkdocs" build --strict --site-dir "$site" >"$log" 2>&1 || {
    grep -v '^INFO' "$log"
    exit 1
}
echo "the site: ${site#"$PWD/"}; to read it: python3 -m http.server --bind 127.0.0.1 --directory ${site#"$PWD/"}"
