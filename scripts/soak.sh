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

cargo test --workspace --locked --release --no-fail-fast -- --show-output </dev/null 2>&1 | tee "$log"
for round in $(seq "$rounds"); do
    echo "== round $round of $rounds"
    cargo test --locked --release --package hugeleaf-change --package hugeleaf-workload \
        </dev/null 2>&1 | tee -a "$log"
done
# Random steps of Elastic, a thousand times those of an ordinary test run.
HUGELEAF_STEPS="${HUGELEAF_STEPS:-1000000}" cargo test --locked --release --package hugeleaf --lib tests:: \
    </dev/null 2>&1 | tee -a "$log"
# Elastic's lock: every interleaving with up to four switches that nobody asked for, instead of two.
HUGELEAF_SOAK=1 cargo test --locked --release --package hugeleaf --lib elastic::lock \
    </dev/null 2>&1 | tee -a "$log"
# An apply and an undo of the real host, killed at random calls: a new seed, and twenty times the kills.
HUGELEAF_ROUNDS="${HUGELEAF_ROUNDS:-1200}" HUGELEAF_SEED="${HUGELEAF_SEED:-$(date +%s)}" \
    cargo test --locked --release --package hugeleaf-change --test host kills -- --show-output \
    </dev/null 2>&1 | tee -a "$log"
# Programs under `hugeleaf run`: random calls on memory, ten times those of an ordinary run, on a new
# seed each round.
for round in $(seq "$((rounds / 4))"); do
    echo "== run_compat, round $round of $((rounds / 4))"
    HUGELEAF_STEPS="${HUGELEAF_STEPS:-1000000}" cargo test --locked --release --package hugeleaf-cli \
        --test run_compat -- --show-output </dev/null 2>&1 | tee -a "$log"
done
# The loaded library's growth, its threads in other orders than an ordinary run draws, and more of them: an hour or so.
HUGELEAF_PROGRAMS="${HUGELEAF_PROGRAMS:-120000}" HUGELEAF_SEED="${HUGELEAF_SEED:-$(date +%s)}" \
    cargo test --locked --release --package hugeleaf-preload --test model </dev/null 2>&1 | tee -a "$log"
scripts/sanitize.sh 2>&1 | tee -a "$log"
scripts/fuzz-build.sh
fuzz=0
FUZZ_OUT="$log.fuzz" scripts/fuzz-all.sh "${1:-600}" "${2:-0}" || fuzz=$?

{
    echo "date: $(date -u +%FT%TZ)"
    echo "commit: $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ', with changes')"
    echo "kernel: $(uname -sr), $(nproc) processors"
    echo "property tests: $PROPTEST_CASES inputs each; memory moved in $rounds further rounds"
    awk '/^test result: / { for (i = 1; i < NF; i++) { if ($(i + 1) ~ /^passed/) p += $i; if ($(i + 1) ~ /^failed/) f += $i } }
         END { printf "tests: %d passed, %d failed\n", p, f }' "$log"
    echo
    cat "$log.fuzz"
} >"$out"
rm -f "$log.fuzz"
echo "written: $out"
exit "$fuzz"
