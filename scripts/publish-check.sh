#!/usr/bin/env bash
# Whether the library can be published: packs hugeleaf and the crates that it uses, and builds them from the
# packages alone, without uploading anything. Says "not run" where the registry cannot be reached.
set -euo pipefail
cd "$(dirname "$0")/.."

# Several packages that depend on each other, before any of them is published: from cargo 1.90 on.
minor=$(cargo --version | sed -E 's/^cargo 1\.([0-9]+).*/\1/')
if [ "$minor" -lt 90 ]; then
    echo "not run: publish: needs cargo 1.90, this is $(cargo --version)"
    exit 0
fi
log=$(mktemp)
# A folder that is new: cargo keeps what it unpacked and compiled by name, version and the folder of the registry
# that it makes for this, and would take it again whatever the packages hold by now.
built=$(mktemp -d)
packages=(hugeleaf-units hugeleaf-balance hugeleaf-sys hugeleaf-host hugeleaf)
clean() {
    rm -rf "$log" "$built"
    for package in "${packages[@]}"; do
        # A local registry has no host in its folder's name.
        rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/src/-*/"$package"-[0-9]*
    done
}
trap clean EXIT
# --allow-dirty: what is checked is what lies here, committed or not.
if CARGO_TARGET_DIR=$built cargo publish --dry-run --locked --allow-dirty "${packages[@]/#/--package=}" </dev/null >"$log" 2>&1; then
    grep -E '^ *(Packaged|Verifying|warning)' "$log" || true
    exit 0
fi
if grep -qiE 'could not resolve|could not connect|failed to connect|connection (refused|reset)|timed out|spurious network|network (is )?unreachable|--offline|download of config.json failed' "$log"; then
    echo "not run: publish: the registry cannot be reached"
    exit 0
fi
cat "$log"
exit 1
