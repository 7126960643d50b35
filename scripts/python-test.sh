#!/usr/bin/env bash
# Builds the Python wheel as a user would, installs it into a fresh environment and tests it there: python/tests with pytest, NumPy's own
# tests on our arrays, and the sizes of module and wheel. Prints "not run" where Python or its packages are missing.
#
# usage: scripts/python-test.sh [PYTEST-ARGUMENT…]
#
# PYTHON: the interpreter, python3 if not set. PROGRAM: the program for the wheel; by default the newest one in the target folder, and
# compiled if there is none.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
python=${PYTHON:-python3}
tools=$target/python-tools

not_run() { # REASON
    echo "not run: python: $1"
    exit 0
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log

"$python" -c "" 2>/dev/null || not_run "$python is not installed"
"$python" -c "import sys; sys.exit(sys.version_info < (3, 11))" || not_run "needs Python 3.11, this is $("$python" --version)"
"$python" -m venv "$work/venv" >"$log" 2>&1 || not_run "$python cannot make a virtual environment (on Debian: apt install python3-venv)"

install() { # PIP…
    "$@" </dev/null >"$log" 2>&1 && return
    if grep -qiE 'no matching distribution|connection|timed out|max retries|name resolution|unreachable' "$log"; then
        not_run "pip cannot fetch packages: $(grep -m 1 '^ERROR' "$log" || tail -n 1 "$log")"
    fi
    cat "$log"
    exit 1
}

# The tools that build and test are kept between runs. The wheel and its environment are new each time.
requirements=python/tests/requirements.txt
if ! cmp -s "$requirements" "$tools/installed" || ! "$tools/bin/python" -c "" 2>/dev/null; then
    rm -rf "$tools"
    "$python" -m venv "$tools"
    install "$tools/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --requirement "$requirements"
    cp "$requirements" "$tools/installed"
fi

settings=()
program=${PROGRAM:-}
if [ -z "$program" ]; then
    for profile in dist release guest debug; do
        compiled=$target/$profile/hugeleaf
        [ ! -x "$compiled" ] || [ ! "$compiled" -nt "$program" ] || program=$compiled
    done
fi
if [ -n "$program" ]; then
    # Packages contain the program without symbols.
    if command -v strip >/dev/null; then strip -o "$work/hugeleaf" "$program"; else cp "$program" "$work/hugeleaf"; fi
    settings=(--config-settings "program=$work/hugeleaf")
fi
# cargo's results stay, so that only changes are compiled. Without isolation pip uses the tools above.
CARGO_TARGET_DIR=$target/python PATH=$tools/bin:$PATH "$tools/bin/pip" wheel --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --wheel-dir "$work/dist" "${settings[@]}" ./python </dev/null
wheel=$(echo "$work"/dist/hugeleaf-*.whl)
case $wheel in
*-cp311-abi3-*linux_*) ;;
*) echo "$(basename "$wheel") is not for all Python versions from 3.11"; exit 1 ;;
esac
size=$(stat -c %s "$wheel")
echo "wheel: $(basename "$wheel"), $((size / 1000)) kB"
[ "$size" -le 25000000 ] || { echo "the wheel has more than 25 MB"; exit 1; }

install "$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "$wheel"
"$work/venv/bin/hugeleaf" --version
# The tests find their tools beside the installed package.
version=$("$python" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}")')
echo "$tools/lib/$version/site-packages" >"$work/venv/lib/$version/site-packages/tools.pth"
cp -r python/tests "$work/tests"
# Outside the repository, so that Python imports the installed package and not the sources.
export HUGELEAF_REPOSITORY=$PWD HUGELEAF_WHEEL=$wheel
cd "$work"
"$work/venv/bin/python" -m pytest -q -rs -p no:cacheprovider "$work/tests" "$@" </dev/null

# PyTorch for processors only, as in Debian's python3-torch: the wheels of PyPI need CUDA.
if /usr/bin/python3 -c "import torch, sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
    mkdir "$work/unpacked"
    "$tools/bin/python" -m zipfile -e "$wheel" "$work/unpacked"
    PYTHONPATH=$work/unpacked /usr/bin/python3 "$work/tests/torch_shares_memory.py"
else
    echo "not run: python: DLPack with PyTorch: needs Python 3.11 with CPU PyTorch (Debian: apt install python3-torch)"
fi
