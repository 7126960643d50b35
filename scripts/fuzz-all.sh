#!/usr/bin/env bash
# Runs every fuzz target that is built, SECONDS each, JOBS at a time, and writes one line a target:
#
#     target  seconds  executions  edges  corpus  crashes
#
# usage: scripts/fuzz-all.sh SECONDS [JOBS]     JOBS 0 or none: one a processor
#
# The binaries need no compiler: fuzz/target/*/release, fuzz/corpus and this script may be copied
# to another machine. FUZZ_BIN names their folder, FUZZ_OUT the file of the summary.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?usage: scripts/fuzz-all.sh SECONDS [JOBS]}
jobs=${2:-0}
[ "$jobs" -gt 0 ] || jobs=$(nproc)
out=${FUZZ_OUT:-fuzz/artifacts/summary.tsv}
bin=${FUZZ_BIN:-$(ls -d fuzz/target/*-linux-*/release 2>/dev/null | head -1)}
if [ -z "$bin" ]; then
    echo "hugeleaf: no fuzz targets are built" >&2
    echo "  next: scripts/fuzz-build.sh" >&2
    exit 3
fi
# The bundled SQLite trips the check for globals defined twice; cargo-fuzz turns it off as well.
export ASAN_OPTIONS="detect_odr_violation=0:${ASAN_OPTIONS:-}"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

one() { # TARGET
    local target=$1 log="$logs/$1" artifacts="fuzz/artifacts/$1/" status=0
    mkdir -p "$artifacts" "fuzz/corpus/$target"
    local begin=$(date +%s)
    "$bin/$target" "fuzz/corpus/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="$artifacts" -print_final_stats=1 -verbosity=1 >"$log" 2>&1 || status=$?
    local took=$(($(date +%s) - begin))
    local runs edges corpus
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
    edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -1 | cut -d' ' -f2 || true)
    corpus=$(grep -oE 'corp: [0-9]+' "$log" | tail -1 | cut -d' ' -f2 || true)
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$target" "$took" "${runs:-?}" "${edges:-?}" "${corpus:-?}" \
        "$([ "$status" = 0 ] && echo 0 || echo "1 (status $status)")" >"$logs/$target.line"
    cat "$logs/$target.line"
    if [ "$status" != 0 ]; then
        tail -25 "$log" >"${artifacts}last.log"
        grep -E 'panicked|ERROR|SUMMARY|Test unit written' "$log" | sed 's/^/    /' || true
    fi
}

targets=$(sed -n 's|^path = "fuzz_targets/\(.*\)\.rs"|\1|p' fuzz/Cargo.toml)
for target in $targets; do
    if [ ! -x "$bin/$target" ]; then
        echo "hugeleaf: $bin/$target is not built" >&2
        echo "  next: scripts/fuzz-build.sh" >&2
        exit 3
    fi
done
for target in $targets; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    one "$target" &
done
wait

mkdir -p "$(dirname "$out")"
{
    printf 'target\tseconds\texecutions\tedges\tcorpus\tcrashes\n'
    for target in $targets; do cat "$logs/$target.line"; done
} >"$out"
echo "written: $out"
! grep -qE '1 \(status' "$out"
