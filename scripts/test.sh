#!/usr/bin/env bash
# Everything that must hold before a change goes in: format, lints, documents, tests.
# Installs the servers that the tests talk to where it can (root and apt); without them, and
# without root, those tests say "not run" with the reason, by name.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s (%d s so far)\n' "$*" "$SECONDS"; }

# Seconds after which one test program is taken to hang: it is ended, and the names it printed last
# tell the test. Several times what the longest takes.
hangs_after=${HUGELEAF_TEST_HANGS_AFTER:-1200}
runner=()
if command -v timeout >/dev/null 2>&1; then
    runner=(--config "target.'cfg(unix)'.runner=['timeout','--foreground','--verbose','--signal=ABRT','--kill-after=30','$hangs_after']")
fi

# What a minimal Rust installation lacks is fetched where rustup can, and left out aloud elsewhere.
has_component() { # COMMAND COMPONENT
    cargo "$1" --version >/dev/null 2>&1 && return 0
    command -v rustup >/dev/null 2>&1 && rustup component add "$2" </dev/null && return 0
    echo "not run: cargo $1 (component $2 is not installed)"
    return 1
}

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    step "servers for the tests"
    scripts/install-test-deps.sh </dev/null ||
        echo "not everything could be installed: the tests of what is missing say 'not run'"
fi

if has_component fmt rustfmt; then
    step "format"
    cargo fmt --all --check
    cargo fmt --all --check --manifest-path lab/Cargo.toml
fi

step "build"
cargo test --workspace --locked --no-run --quiet
scripts/lab.sh build --quiet --package hugeleaf-vm
scripts/lab.sh test --workspace --no-run --quiet

target=$(realpath "${CARGO_TARGET_DIR:-target}")
# A job of its own, with all that it starts, so that all of it can be ended.
beside() { # NAME COMMAND…
    local name=$1
    shift
    set -m
    (
        # Whoever else wants the processor or the disk has it first.
        chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 "$BASHPID" >/dev/null
        ionice --class 3 --pid "$BASHPID" 2>/dev/null || true
        "$@"
    ) </dev/null >"$output/$name" 2>&1 &
    set +m
    started=$!
}
output=$(mktemp -d)
checking='' drawing=''
ended() {
    for job in $checking $drawing; do
        kill -- "-$job" 2>/dev/null || true
    done
    rm -rf "$output"
}
trap ended EXIT

# What needs no test program goes on during the tests, on what those leave of the processors: they wait much of their
# time. It starts when they run: cargo lets one at a time into a folder to compile, and any number to run.
checks() {
    set -e
    until [ -e "$output/began" ]; do
        sleep 1
    done
    if has_component clippy clippy; then
        step "lints"
        cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
        scripts/lab.sh clippy --workspace --all-targets --quiet -- -D warnings
        # As a program that links the library compiles it: with the fewest features.
        cargo clippy --package hugeleaf --locked --quiet -- -D warnings
    fi
    step "documents"
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

    step "the library as packages"
    scripts/publish-check.sh

    step "the oldest Rust that is promised"
    # The library; the program takes minutes, and is checked by make soak.
    scripts/msrv.sh hugeleaf hugeleaf-capi
}
step "lints, documents, packages and the oldest Rust: in the background"
beside checks checks
checking=$started

# Models draw orders of threads: the more of them the better, so they go on during the other tests, on
# what those leave of the processors. Two minutes of one, with orders that no run drew before; make soak draws for longer.
step "models: more orders, in the background"
models() {
    HUGELEAF_PROGRAMS=1000000000 HUGELEAF_SECONDS=${HUGELEAF_MODEL_SECONDS:-120} HUGELEAF_SEED=$(($(date +%s) * 1000)) \
        cargo test --locked --quiet --package hugeleaf-preload --test model
}
beside models models
drawing=$started

# --show-output: what a test could not run it says on stdout. That is seen, and counted as ignored.
step "tests"
{
    cargo test --workspace --locked --no-fail-fast "${runner[@]}" -- --show-output </dev/null && failed=0 || failed=$?
    scripts/lab.sh test --workspace --no-fail-fast "${runner[@]}" -- --show-output </dev/null && exit "$failed"
} |
    {
        read -r first || true
        touch "$output/began"
        printf '%s\n' "${first-}"
        cat
    } | "$target/debug/hugeleaf-vm" count

step "lints, documents, packages and the oldest Rust"
checked=0
wait "$checking" || checked=$?
cat "$output/checks"
[ "$checked" = 0 ] || exit 1

step "models"
# They have had what the tests left of the processors; on a busy machine that is less than was meant.
for _ in $(seq 90); do
    jobs -rp | grep -q "^$drawing$" || break
    sleep 1
done
if jobs -rp | grep -q "^$drawing$"; then
    echo "the models were ended before their time was up; what they drew held"
    kill -- "-$drawing"
    wait "$drawing" || true
elif ! wait "$drawing"; then
    tail -n 60 "$output/models"
    exit 1
fi
grep '^test result' "$output/models" || true

# On three hosts; what this machine lacks for one it says itself, by name.
step "real kernels in virtual machines"
"$target/debug/hugeleaf-vm" test --quick </dev/null

step "benchmarks, smoke"
scripts/bench.sh --smoke
