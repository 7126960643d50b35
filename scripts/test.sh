#!/usr/bin/env bash
# The tests that a contributor waits for: format, lints, every parser, judge, policy and error arm, the program
# as root on real processes, a server of each kind, and one real kernel in a virtual machine.
# scripts/test-all.sh has the rest.
# Installs the servers and the emulator that the tests use where it can (root and apt). A test that this machine
# lacks something for prints `not run: NAME: REASON` and counts as ignored.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    step "servers for the tests"
    scripts/install-test-deps.sh </dev/null ||
        echo "some packages could not be installed: tests that need them print 'not run'"
fi

if has_component fmt rustfmt; then
    step "format"
    cargo fmt --all --check
    for manifest in lab crates/sqlite/loaded fuzz; do
        cargo fmt --all --check --manifest-path $manifest/Cargo.toml
    done
fi

step "build and lints"
lint_while_compiling
cargo test --workspace --locked --no-run --no-fail-fast --quiet
scripts/lab.sh build --package hugeleaf-vm --quiet

# The guest has one emulated processor: it runs beside the tests. Its output follows theirs.
printed=$(mktemp) guest_printed=$(mktemp)
"$vm" test --quick "$guest" </dev/null >"$guest_printed" 2>&1 &
in_guest=$!
trap 'kill $(jobs -rp) 2>/dev/null || true; rm -f "$printed" "$guest_printed"' EXIT

# The tests of the command line mostly wait, for servers, for intervals and for each other: more of them than
# processors run at a time, beside the tests of the crates. Their output follows that of the crates.
step "tests, and a real kernel in a virtual machine"
tests() { cargo test --workspace --locked --no-fail-fast "${runner[@]}" "$@" -- --show-output </dev/null 2>&1; }
failed=0
{
    status=0
    RUST_TEST_THREADS=$((2 * $(nproc))) tests --test cli >"$printed" &
    # All test programs but `cli`, then the examples in documentation.
    tests --lib --bins --test '[!c]*' --test 'c[!l]*' || status=$?
    tests --doc || status=$?
    wait "$!" || status=$?
    cat "$printed"
    exit "$status"
} | "$vm" count || failed=$?

step "the virtual machine's output"
wait "$in_guest" || failed=$?
cat "$guest_printed"
step "done"
exit "$failed"
