#!/usr/bin/env bash
# Line coverage of the product's crates by all tests, one line a crate: CRATE LINES COVERED PERCENT.
#   scripts/coverage.sh [FOLDER] [-- ARGUMENT…]
# FOLDER is another checkout, as of an older commit; ARGUMENTs go to each test program, as in: -- --skip mariadb.
# Needs cargo-llvm-cov and the component llvm-tools. Builds into target/llvm-cov-target of the folder. Code of tests (files
# tests.rs and testing.rs, folders tests) and of crates that only tests use is not counted. A test that fails is reported
# and does not end the run: its coverage counts.
set -euo pipefail
folder=$(dirname "$0")/..
if [ "$#" -gt 0 ] && [ "$1" != -- ]; then
    folder=$1
    shift
fi
[ "${1:-}" != -- ] || shift
cd "$folder"

if ! cargo llvm-cov --version >/dev/null 2>&1; then
    echo "coverage: cargo-llvm-cov is missing" >&2
    echo "  next: cargo install --locked cargo-llvm-cov && rustup component add llvm-tools" >&2
    exit 3
fi
summary=${HUGELEAF_COVERAGE:-target/coverage.json}
mkdir -p "$(dirname "$summary")"
CARGO_INCREMENTAL=0 cargo llvm-cov --workspace --locked --ignore-run-fail --json --summary-only \
    --output-path "$summary" -- "$@" </dev/null >&2

table='
    [.data[0].files[]
     | select(.filename | test("/crates/[^/]+/src/"))
     | select(.filename | test("/(tests|testing|testkit|vm)(/|\\.rs$)|_tests\\.rs$") | not)
     | {crate: (.filename | capture("/crates/(?<crate>[^/]+)/src/").crate), lines: .summary.lines}]
    | (group_by(.crate)[] | {crate: .[0].crate, count: (map(.lines.count) | add), covered: (map(.lines.covered) | add)}),
      {crate: "all", count: (map(.lines.count) | add), covered: (map(.lines.covered) | add)}
    | "\(.crate)\t\(.count)\t\(.covered)\t\(if .count == 0 then 100 else .covered * 1000 / .count | round / 10 end)"'
jq -r "$table" "$summary"
