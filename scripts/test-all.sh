#!/usr/bin/env bash
# Everything that a release needs. Runs scripts/test.sh first, then the steps below, the most valuable first.
#
# usage: scripts/test-all.sh [--after-test] [STEP…]
#
# --after-test: scripts/test.sh has just passed; only run the steps.
# HUGELEAF_TEST_UNTIL: the seconds after which the run ends itself and lists the steps that it did not reach.
# A step that fails is run once more, alone: only its failed tests, where it is a step of tests. If it passes
# then, it is listed as flaky in the last lines; if not, the run fails.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh

until=${HUGELEAF_TEST_UNTIL:-0}

# A step runs in a subshell of its own; `only` holds the arguments that restrict a second run to the failed tests.
long_tests() {
    # As scripts/test.sh compiles them: nothing is compiled twice.
    lint_while_compiling
    tests cargo test --workspace --locked --no-fail-fast "${runner[@]}"
}
lab_lints() {
    scripts/lab.sh clippy --workspace --all-targets --quiet -- -D warnings
    CARGO_TARGET_DIR=$target/loaded cargo clippy --manifest-path crates/sqlite/loaded/Cargo.toml --locked --quiet -- -D warnings
    # The library as a program that links it compiles it: with the fewest features.
    cargo clippy --package hugeleaf --locked --quiet -- -D warnings
}
# Compiled alone and installed by cargo: a feature of a library that only another member of the workspace asks for is
# missing there.
program_alone() {
    rm -rf "$target/installed"
    cargo install --path crates/cli --locked --quiet --debug --no-track --root "$target/installed"
    "$target/installed/bin/hugeleaf" bench --list --json
}
# The rights of the system's units, by systemd's rating: at most 2.5 of 10. A user's unit has only the rights of its user.
units() {
    local unit
    if ! command -v systemd-analyze >/dev/null; then
        echo "not run: units: systemd-analyze is not installed"
        return
    fi
    for unit in contrib/systemd/*.service; do
        systemd-analyze security --no-pager --offline=true --threshold=25 "$unit" | tail -n 1
    done
}
lab_tests() { tests scripts/lab.sh test --workspace --no-fail-fast "${runner[@]}"; }
lab_smoke() { scripts/bench.sh --smoke; }
documents() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
    RUSTDOCFLAGS="-D warnings" scripts/lab.sh doc --workspace --no-deps --quiet
    # The examples in them.
    tests cargo test --workspace --doc --locked --no-fail-fast "${runner[@]}"
}
# A link that leads nowhere fails.
site() { scripts/docs.sh; }
# As stable code: what they check is run by scripts/fuzz-all.sh.
fuzz_targets() {
    if ! command -v c++ >/dev/null; then
        echo "not run: fuzz_targets: libFuzzer needs a C++ compiler (c++)"
        return
    fi
    CARGO_TARGET_DIR=$target/fuzz cargo check --manifest-path fuzz/Cargo.toml --locked --quiet
}
library_packages() { scripts/publish-check.sh; }
oldest_rust() { scripts/msrv.sh hugeleaf hugeleaf-capi hugeleaf-cli; }
# Models draw orders of threads: the more the better.
models() {
    HUGELEAF_PROGRAMS=1000000000 HUGELEAF_SECONDS=${HUGELEAF_MODEL_SECONDS:-120} HUGELEAF_SEED=$(($(date +%s) * 1000)) \
        tests cargo test --locked --quiet --package hugeleaf-preload --test model
}
# Interprets the unsafe code and threads of the cache of SQLite, the policy of memory targets, and the parts of the library
# that need no memory of the kernel. Miri knows neither names of threads nor all system calls.
miri() {
    if ! cargo +nightly miri --version >/dev/null 2>&1; then
        echo "not run: miri: rustup component add miri rust-src --toolchain nightly"
        return
    fi
    local -x MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-ignore-leaks"
    # A property is checked some thousand times slower than by a processor.
    local -x PROPTEST_CASES=16
    cargo +nightly miri test --locked --quiet --package hugeleaf-sqlite --lib
    # Not the long traces of keys.
    cargo +nightly miri test --locked --quiet --package hugeleaf-balance --lib -- \
        --skip hit_ratios_and_benefits_ --skip keys_that_never_repeat_ --skip its_memory_is_bounded_
    # Neither elastic::lock, whose model switches stacks in assembler, nor what reads a host.
    cargo +nightly miri test --locked --quiet --package hugeleaf --lib -- elastic::granule_entry::tests:: \
        elastic::attach::tests::nothing_panics extent::tests:: handle::tests:: populate::tests:: thp::tests::
}
# Races and invalid accesses of the library, the cache of SQLite and the policy.
sanitizers() { scripts/sanitize.sh; }
quick_hosts() { scripts/lab.sh build --package hugeleaf-vm --quiet && "$vm" test --quick; }
all_hosts() { scripts/lab.sh build --package hugeleaf-vm --quiet && "$vm" test; }
dependencies() { scripts/deny.sh; }
packages() { scripts/install-test-deps.sh --release && PROFILE=guest make dist; }
# The same packages on hosts with systemd.
packages_in_guests() { PROFILE=guest scripts/dist-guest.sh; }
# The installer and the release script, on folders of their own, without network.
release_scripts() { scripts/test-install.sh && scripts/test-release.sh; }
# The Python wheel, built and used as a user would: arrays, commands, NumPy's own tests on these arrays.
python_package() {
    CARGO_TARGET_DIR=$target/python cargo clippy --manifest-path python/Cargo.toml --locked --quiet -- -D warnings
    scripts/python-test.sh
}
# Rules and dashboards for many hosts, and a simulated fleet in a real Prometheus.
fleet() { scripts/fleet.sh; }
# The Helm chart without a cluster; its containers in runc; the objects in a real API server. A real kubelet is a host.
kubernetes() { scripts/install-test-deps.sh --release && scripts/kubernetes-test.sh && scripts/kubernetes-api.sh; }
# The Ansible collection: lints, unit tests, molecule on hosts of their own.
ansible() { scripts/install-test-deps.sh --release && scripts/ansible-test.sh; }
steps=(lab_lints program_alone units documents site library_packages fuzz_targets lab_tests long_tests quick_hosts oldest_rust lab_smoke release_scripts fleet python_package kubernetes models miri sanitizers dependencies packages packages_in_guests ansible all_hosts)

# Runs tests, counts those that said `not run` as ignored, and passes on whether they passed.
tests() { # COMMAND…
    "$@" -- --show-output "${only[@]}" </dev/null | "$vm" count
}

# The knobs that tests change and restore themselves, unless they are ended midway.
knobs=(/sys/kernel/mm/hugepages/*/nr_hugepages /sys/kernel/mm/transparent_hugepage/{enabled,defrag,shmem_enabled}
    /proc/sys/vm/overcommit_memory)
declare -A before
for knob in "${knobs[@]}"; do
    [ ! -w "$knob" ] || before[$knob]=$(sed 's/.*\[\(.*\)\].*/\1/' "$knob")
done
restore_knobs() {
    local knob
    for knob in "${!before[@]}"; do
        echo "${before[$knob]}" >"$knob" || echo "$knob could not be restored to ${before[$knob]}"
    done
}

# Runs one step with its output in $log, and ends it when the time is up (status 124).
run_step() { # STEP
    set -m
    (
        set -euo pipefail
        "$1"
    ) </dev/null >"$log" 2>&1 &
    job=$!
    set +m
    tail -f --pid="$job" "$log" &
    local tail=$! status=0
    while kill -0 "$job" 2>/dev/null; do
        if [ "$until" != 0 ] && [ "$SECONDS" -ge "$until" ]; then
            kill -- "-$job" 2>/dev/null || true
            wait "$job" 2>/dev/null || true
            job=
            wait "$tail" 2>/dev/null || true
            restore_knobs
            return 124
        fi
        sleep 1
    done
    wait "$job" || status=$?
    job=
    wait "$tail" 2>/dev/null || true
    return "$status"
}

failed_tests() { sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | sed 's/ - should panic$//' | sort -u; }

if [ "${1:-}" = --after-test ]; then
    shift
else
    scripts/test.sh
fi
# Not for scripts/test.sh: the step long_tests runs the long forms.
export HUGELEAF_TEST_ALL=1
[ $# = 0 ] || steps=("$@")

log=$(mktemp)
# A step runs in a process group of its own, which would outlive this script.
job=
clean_up() {
    if [ -n "$job" ]; then
        kill -- "-$job" 2>/dev/null || true
        wait "$job" 2>/dev/null || true
        restore_knobs
    fi
    rm -f "$log"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
flaky=() missed=() broken=()
for name in "${steps[@]}"; do
    if [ "$until" != 0 ] && [ "$SECONDS" -ge "$until" ]; then
        missed+=("$name")
        continue
    fi
    step "${name//_/ }"
    only=() status=0
    run_step "$name" || status=$?
    if [ "$status" = 124 ]; then
        missed+=("$name")
        continue
    fi
    [ "$status" != 0 ] || continue
    # Once more: what failed, alone.
    mapfile -t names < <(failed_tests)
    [ ${#names[@]} = 0 ] || only=(--exact "${names[@]}")
    step "${name//_/ }, once more: ${names[*]:-all of it}"
    status=0
    # A failure is judged by its second run, which may take four minutes longer than the whole is to take.
    [ "$until" = 0 ] || until=$((until + 240))
    run_step "$name" || status=$?
    [ "$until" = 0 ] || until=$((until - 240))
    case $status in
    0) flaky+=("$name: ${names[*]:-all of it}") ;;
    124) broken+=("$name (failed; no time for a second run)") ;;
    *) broken+=("$name: ${names[*]:-see above}") ;;
    esac
done

step "done"
for line in "${missed[@]}"; do echo "not reached: ${line//_/ }"; done
for line in "${flaky[@]}"; do echo "flaky: $line"; done
for line in "${broken[@]}"; do echo "failed: $line"; done
[ ${#broken[@]} = 0 ]
