#!/usr/bin/env bash
# make test several times under load, to find tests that fail now and then. Prints a line a run and the tests that failed;
# the output of each run stays in target/test-repeat.
# usage: scripts/test-repeat.sh [RUNS]      20 where nothing is given; BUSY=2 is the number of busy loops beside it
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-20}
logs=$(realpath -m "${CARGO_TARGET_DIR:-target}")/test-repeat
mkdir -p "$logs"

trap 'kill $(jobs -rp) 2>/dev/null || true' EXIT
for _ in $(seq "${BUSY:-2}"); do
    (while :; do :; done) &
done

failures=0
for run in $(seq "$runs"); do
    log=$logs/$(date -u +%Y-%m-%dT%H:%M:%S).log
    before=$SECONDS status=0
    scripts/test.sh >"$log" 2>&1 </dev/null || status=$?
    printf 'run %d of %d: %s, %d s, %s\n' "$run" "$runs" \
        "$([ "$status" = 0 ] && echo passed || echo "failed ($status)")" $((SECONDS - before)) "$log"
    if [ "$status" != 0 ]; then
        failures=$((failures + 1))
        grep -E '^test .* FAILED$' "$log" | sort -u | sed 's/^/  /' || true
    fi
done
echo "$failures of $runs runs failed"
[ "$failures" = 0 ]
