#!/usr/bin/env bash
# Builds every fuzz target into fuzz/target and gathers seeds. Needs a nightly compiler and
# cargo-fuzz: `rustup toolchain install nightly --profile minimal && cargo install cargo-fuzz`.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "hugeleaf: no nightly compiler, or no cargo-fuzz" >&2
    echo "  next: rustup toolchain install nightly --profile minimal && cargo install cargo-fuzz" >&2
    exit 3
fi
cargo +nightly fuzz build --release
scripts/fuzz-seeds.sh
