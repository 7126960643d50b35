#!/usr/bin/env bash
# Packs what fuzz-all.sh needs on another machine: the built targets without symbols, the corpus
# and the script itself. There:
#
#     tar xf fuzz-pack.tar.gz && scripts/fuzz-all.sh 600
#
# usage: scripts/fuzz-pack.sh [FILE]      default: fuzz/target/fuzz-pack.tar.gz
set -euo pipefail
cd "$(dirname "$0")/.."

file=${1:-fuzz/target/fuzz-pack.tar.gz}
bin=$(ls -d fuzz/target/*-linux-*/release 2>/dev/null | head -1)
if [ -z "$bin" ]; then
    echo "hugeleaf: no fuzz targets are built" >&2
    echo "  next: scripts/fuzz-build.sh" >&2
    exit 3
fi
pack=$(mktemp -d)
trap 'rm -rf "$pack"' EXIT
mkdir -p "$pack/$bin"
for target in $(sed -n 's|^path = "fuzz_targets/\(.*\)\.rs"|\1|p' fuzz/Cargo.toml); do
    strip -o "$pack/$bin/$target" "$bin/$target"
done
tar -czf "$file" -C "$pack" fuzz -C "$PWD" scripts/fuzz-all.sh fuzz/Cargo.toml fuzz/corpus
ls -l "$file" | awk -v name="$file" '{ printf "written: %s, %d bytes\n", name, $5 }'
