#!/bin/sh
# Makes sure that there is a C compiler: rustc links with it, and the bundled SQLite is C.
# As root on a host with apt it is installed; elsewhere this says what to install.
set -eu

if ! command -v cargo >/dev/null 2>&1; then
    echo "hugeleaf: cargo is not in PATH" >&2
    echo "  next: install Rust from https://rustup.rs, then open a new shell" >&2
    exit 3
fi
if command -v cc >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null
    apt-get install -y -qq --no-install-recommends gcc libc6-dev </dev/null
    exit 0
fi
echo "hugeleaf: no C compiler (cc): Rust links with it, and SQLite is built with it" >&2
echo "  next: sudo apt-get install gcc libc6-dev    # or: dnf install gcc" >&2
exit 3
