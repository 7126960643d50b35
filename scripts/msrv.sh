#!/usr/bin/env bash
# Whether packages compile with the Rust that Cargo.toml promises: scripts/msrv.sh PACKAGE…
# That Rust is fetched where rustup can; says "not run" elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."

promised=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
toolchain=$promised.0
if ! command -v rustup >/dev/null 2>&1; then
    echo "not run: rust-version: there is no rustup to fetch Rust $promised"
    exit 0
fi
if ! rustup run "$toolchain" rustc --version >/dev/null 2>&1 &&
    ! rustup toolchain install "$toolchain" --profile minimal --no-self-update </dev/null; then
    echo "not run: rust-version: Rust $promised cannot be fetched"
    exit 0
fi
# A folder of its own: otherwise each of two compilers would make everything anew.
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/msrv rustup run "$toolchain" \
    cargo check --locked --quiet "${@/#/--package=}" </dev/null
echo "Rust $promised compiles $*"
