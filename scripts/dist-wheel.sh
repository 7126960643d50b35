#!/usr/bin/env bash
# Makes the Python wheel of a release: scripts/dist-wheel.sh ARCHITECTURE STAGE FOLDER
# FOLDER gets a wheel with the static program in STAGE (scripts/dist.sh), its manual pages and licences, and the module
# for Python 3.11 and newer with glibc 2.17 and newer. It is checked for its name, sizes and required libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/dist-tools.sh
. scripts/python-packages.sh

if [ $# != 3 ] || ! name_architecture "$1"; then
    echo "usage: $0 x86-64|arm64 STAGE FOLDER" >&2
    exit 2
fi
stage=$(cd "$2" && pwd)
out=$(cd "$3" && pwd)
version=$(workspace_version)
glibc=2.17
: "${SOURCE_DATE_EPOCH:=$(source_date)}"
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build_wheel() {
    local target=$cpu-unknown-linux-gnu tools=$target_dir/tools/wheel reason names
    reason=$(python_packages "$tools" scripts/wheel-requirements.txt)
    [ -z "$reason" ] || fail "maturin and zig cannot be installed: $reason" "connect to PyPI, or set PIP_INDEX_URL to a mirror of it"
    add_target "$target"
    cargo fetch --locked --quiet --manifest-path python/Cargo.toml
    mapfile -t names < <(fixed_names)
    CARGO_ENCODED_RUSTFLAGS=$(rust_flags "${names[@]}")
    export CARGO_ENCODED_RUSTFLAGS
    CARGO_TARGET_DIR=$target_dir/python-wheel PATH=$tools/bin:$PATH "$tools/bin/pip" wheel --quiet \
        --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$work/wheel" \
        --config-settings "program=$stage/program/bin/hugeleaf" --config-settings "share=$stage/program/share" \
        --config-settings "build-args=--locked --target $target --zig --compatibility manylinux_${glibc/./_}" \
        ./python </dev/null
}

at_most() { # BYTES FILE NAME
    local size
    size=$(stat -c %s "$2")
    [ "$size" -le "$1" ] || fail "the $3 has $size bytes, more than $1" "look for a dependency that has grown"
}

check_wheel() {
    local wheel module newest libraries
    wheel=$(echo "$work"/wheel/*)
    case ${wheel##*/} in
    hugeleaf-"$version"-cp311-abi3-*manylinux_"${glibc/./_}"_"$cpu".*whl) ;;
    *) fail "the wheel has the name ${wheel##*/}" "it has to be for Python 3.11 (abi3) and glibc $glibc" ;;
    esac
    at_most 25000000 "$wheel" wheel
    python3 -m zipfile -e "$wheel" "$work/unpacked"
    module=$(echo "$work"/unpacked/hugeleaf/_native*.so)
    at_most 1000000 "$module" module
    readelf --file-header "$module" | grep -qi "machine:.*${cpu/_/.}" || fail "the module is not for $cpu" "check --target"
    newest=$(readelf --wide --dyn-syms "$module" | sed -n 's/.*@GLIBC_\([0-9.]*\).*/\1/p' | sort --version-sort --unique | tail -n 1)
    [ "$(printf '%s\n' "$glibc" "$newest" | sort --version-sort | tail -n 1)" = "$glibc" ] ||
        fail "the module needs glibc $newest" "link it with zig for $glibc"
    libraries=$(readelf --dynamic "$module" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^\(lib[a-z]*\.so\.[0-9]*\|ld-linux-.*\)$' || true)
    [ -z "$libraries" ] || fail "the module needs $libraries" "it may need the C library only"
}

need readelf binutils
need python3 python3-venv
build_wheel
check_wheel
touch --date="@$SOURCE_DATE_EPOCH" "$work"/wheel/*
mv "$work"/wheel/* "$out"
