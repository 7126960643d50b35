#!/usr/bin/env bash
# The long versions: the same tests with larger numbers, optimised, then every fuzz target.
# A summary with date and commit goes to bench/soak/DATE-HOST.txt, to be committed.
#
# usage: scripts/soak.sh [SECONDS_EACH [JOBS]]
#
# PROPTEST_CASES (default 20000) is how many inputs each property test draws; ROUNDS (default 20)
# how often the tests that move memory of real processes are repeated.
set -euo pipefail
cd "$(dirname "$0")/.."

export PROPTEST_CASES="${PROPTEST_CASES:-20000}"
rounds=${ROUNDS:-20}
out="bench/soak/$(date +%F)-$(hostname -s).txt"
mkdir -p "$(dirname "$out")"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

scripts/lab.sh build --release --package hugeleaf-vm --bin hugeleaf-vm
# Counts tests that said "not run" as ignored.
tests() { # ARGUMENTS-OF-CARGO-TEST…
    cargo test --locked --release "$@" -- --show-output </dev/null 2>&1 |
        "${CARGO_TARGET_DIR:-target}/release/hugeleaf-vm" count | tee -a "$log"
}

tests --workspace --no-fail-fast
for round in $(seq "$rounds"); do
    echo "== round $round of $rounds"
    tests --package hugeleaf-mover --package hugeleaf-plan --package hugeleaf-workload
done
# Random steps of Elastic, a thousand times those of an ordinary test run.
HUGELEAF_STEPS="${HUGELEAF_STEPS:-1000000}" tests --package hugeleaf --lib tests::
# Elastic's lock: every interleaving with up to four switches that nobody asked for, instead of two.
HUGELEAF_SOAK=1 tests --package hugeleaf --lib elastic::lock
# An apply and an undo of the real host, killed at random calls: a new seed, and twenty times the kills.
HUGELEAF_ROUNDS="${HUGELEAF_ROUNDS:-1200}" HUGELEAF_SEED="${HUGELEAF_SEED:-$(date +%s)}" \
    tests --package hugeleaf-plan --test plan host::kills
# Programs under `hugeleaf run`: random calls on memory, ten times those of an ordinary run, on a new
# seed each round.
for round in $(seq "$((rounds / 4))"); do
    echo "== run_compat, round $round of $((rounds / 4))"
    HUGELEAF_STEPS="${HUGELEAF_STEPS:-1000000}" tests --package hugeleaf-cli --test cli run_compat::
done
# The loaded library's growth, its threads in other orders than an ordinary run draws, and more of them: an hour or so.
HUGELEAF_PROGRAMS="${HUGELEAF_PROGRAMS:-120000}" HUGELEAF_SEED="${HUGELEAF_SEED:-$(date +%s)}" \
    tests --package hugeleaf-preload --test model
# The guard takes pages again that it gave back, which it does after ten minutes.
HUGELEAF_SOAK=1 tests --package hugeleaf-cli --test cli pages_are_taken_again
# The guard, two hours with programs that come and go.
scripts/bench.sh guard-soak 2>&1 | tee -a "$log"
# The oldest Rust that is promised.
scripts/msrv.sh hugeleaf-cli 2>&1 | tee -a "$log"
# The dependencies, and the advisories known by now.
scripts/deny.sh 2>&1 | tee -a "$log"
# What is given away, compiled quickly: each package installed and used in a clean root.
PROFILE=guest make dist 2>&1 | tee -a "$log"
# The chart in a real API server, and its pods under a real kubelet.
scripts/kubernetes-programs.sh 2>&1 | tee -a "$log" || true
scripts/kubernetes-api.sh 2>&1 | tee -a "$log"
"${CARGO_TARGET_DIR:-target}/release/hugeleaf-vm" test kubelet 2>&1 | tee -a "$log"
scripts/sanitize.sh 2>&1 | tee -a "$log"
scripts/fuzz-build.sh
fuzz=0
FUZZ_OUT="$log.fuzz" scripts/fuzz-all.sh "${1:-600}" "${2:-0}" || fuzz=$?

{
    echo "date: $(date -u +%FT%TZ)"
    echo "commit: $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ', with changes')"
    echo "kernel: $(uname -sr), $(nproc) processors"
    echo "property tests: $PROPTEST_CASES inputs each; memory moved in $rounds further rounds"
    awk '/^test result: / { for (i = 1; i < NF; i++) { if ($(i + 1) ~ /^passed/) p += $i; if ($(i + 1) ~ /^failed/) f += $i; if ($(i + 1) ~ /^ignored/) k += $i } }
         END { printf "tests: %d passed, %d failed, %d ignored\n", p, f, k }' "$log"
    echo
    cat "$log.fuzz"
} >"$out"
rm -f "$log.fuzz"
echo "written: $out"
exit "$fuzz"
