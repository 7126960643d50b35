# Shared by scripts that run Python packages of a list with hashes; source it in the root of the repository.
# shellcheck shell=bash

# Installs the packages into a virtual environment that is kept, with Python 3.11 or newer. Prints the reason if they
# cannot be had here. Fails if the list is wrong, for example if a package is not the one of its hash.
python_packages() { # FOLDER REQUIREMENTS
    local folder=$1 requirements=$2 said lock
    # One at a time; the caller's $(…) ends the lock.
    mkdir -p "$(dirname "$folder")"
    exec {lock}>"$folder.lock"
    flock "$lock"
    # Left by an installation that succeeded; another version of the list, or of Python, starts anew.
    if cmp -s "$requirements" "$folder/installed" && "$folder/bin/python" -c "" 2>/dev/null; then
        return
    fi
    if ! python3 -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
        echo "needs Python 3.11 or newer, this is $(python3 --version 2>&1 || true)"
        return
    fi
    rm -rf "$folder"
    if ! python3 -m venv "$folder" >/dev/null 2>&1; then
        echo "python3 cannot make a virtual environment (on Debian: apt install python3-venv)"
        return
    fi
    # Wheels only: the tools that build a source package have no hashes.
    if said=$("$folder/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
        --requirement "$requirements" </dev/null 2>&1); then
        cp "$requirements" "$folder/installed"
    elif grep -qiE 'no matching distribution|connection|timed out|max retries|name resolution|unreachable' <<<"$said" &&
        ! grep -qi 'do not match the hashes' <<<"$said"; then
        echo "pip cannot fetch $requirements: $(grep -m 1 '^ERROR' <<<"$said" || tail -n 1 <<<"$said")"
    else
        echo "$said" >&2
        return 1
    fi
}
