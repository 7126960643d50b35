#!/usr/bin/env bash
# cargo in the lab's workspace, with the product's target folder: libraries that both need are compiled once.
#
# usage: scripts/lab.sh COMMAND [FLAG…]      as in: scripts/lab.sh test --package hugeleaf-vm
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${CARGO:-cargo}" "$1" --manifest-path lab/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}" --locked "${@:2}"
