#!/usr/bin/env bash
# The tests of the library, of the cache of SQLite and of the policy of memory targets under AddressSanitizer and
# ThreadSanitizer. Needs a nightly compiler; ThreadSanitizer also its component rust-src, because the standard library has
# to be built with it (without that, every lock of the standard library looks like a race).
#
# usage: scripts/sanitize.sh
set -euo pipefail
cd "$(dirname "$0")/.."

if ! rustc +nightly --version >/dev/null 2>&1; then
    echo "not run: sanitizers: no nightly compiler"
    exit 0
fi
host=$(rustc -vV | sed -n 's/^host: //p')

# The cache's lock keeps its kernel barrier (membarrier): data passes by the acquire and release of its two words, which
# ThreadSanitizer sees. The barrier only orders a store and a load, and is no less in force here.
packages=(--package hugeleaf --package hugeleaf-sqlite --package hugeleaf-balance)

run() { # NAME FLAGS…
    local name=$1
    shift
    echo "== $name"
    # Left to the ordinary runs: a child that is to end by SIGSEGV or within a limit on memory (the
    # sanitizer takes the signal, and terabytes of addresses), and mlock, which it makes do nothing.
    HUGELEAF_SANITIZED=1 RUSTFLAGS="-Zsanitizer=$name" CARGO_TARGET_DIR="target/$name" \
        ASAN_OPTIONS=handle_segv=0:handle_sigbus=0 TSAN_OPTIONS=handle_segv=0:handle_sigbus=0 \
        cargo +nightly test --locked "${packages[@]}" --lib --target "$host" "$@" \
        -- --skip a_limit_on_ --skip without_threads_ --skip children_change_ </dev/null
}

run address
if [ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]; then
    run thread -Zbuild-std
else
    echo "not run: ThreadSanitizer: the component rust-src is not installed (rustup component add rust-src --toolchain nightly)"
fi
