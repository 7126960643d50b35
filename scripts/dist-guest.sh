#!/usr/bin/env bash
# Installs and upgrades the packages of scripts/dist.sh on real systemd hosts: scripts/dist-guest.sh [HOST…]
#
# In guests of Debian 12 and 13 (lab/README.md), with kernel, systemd and cgroup 2 of their own: the guard promotes a
# server while the package is upgraded, downgraded, killed in the middle, removed and purged; the unit is reloaded; the
# guard of an ordinary user runs; the OCI image runs under runc and crun. scripts/dist-guest/inside.sh is what runs there.
# Requires root, and what `make vm` requires. The packages and target/dist-stage must exist.
# DIST names the folder of the packages, LIMIT the seconds of a guest (2400).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/dist-tools.sh

dist=${DIST:-$target_dir/dist-packages}
[ $# -gt 0 ] || set -- debian-12 debian-13
version=$(workspace_version)
architecture=x86-64
name_architecture "$architecture"
if [ "$(uname -m)" != "$cpu" ]; then
    echo "not run: packages in guests: the hosts of Debian 12 and 13 are for x86-64"
    exit
fi
stage=$target_dir/dist-stage/$architecture
deb=hugeleaf_$version-1_$debian.deb
[ -f "$dist/$deb" ] && [ -d "$stage" ] || fail "$dist has no package for this machine" "scripts/dist.sh $architecture"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
files=("$dist/$deb" "$dist"/{install.sh,SHA256SUMS,hugeleaf-"$version-linux-$architecture".tar.gz} scripts/dist-guest/*)
PACK='deb rpm' scripts/dist-pack.sh 0.0.9 "$architecture" "$stage" "$work/older"
files+=("$work/older/hugeleaf_0.0.9-1_$debian.deb")
if command -v skopeo >/dev/null && command -v umoci >/dev/null; then
    unpack_image "$dist/hugeleaf-$version-oci-$architecture.tar" "$work/bundle"
    tar --create --file "$work/image-bundle.tar" --directory "$work/bundle" config.json rootfs
    files+=("$work/image-bundle.tar")
else
    echo "not run: the image in guests: apt-get install skopeo umoci"
fi

for host in "$@"; do
    say "packages in $host"
    adds=()
    for file in "${files[@]}"; do adds+=(--add "$file"); done
    scripts/lab.sh run --quiet --package hugeleaf-vm --bin hugeleaf-vm -- run "$host" --userland "${host/debian/packages}" \
        --limit "${LIMIT:-2400}" --files "$target_dir/dist-guest/$host" "${adds[@]}" -- \
        bash /payload/bin/inside.sh "$version" || {
        status=$?
        # hugeleaf-vm: a precondition is missing.
        [ "$status" = 3 ] || exit "$status"
        echo "not run: packages in $host: see the line above"
    }
done
say "all packages work in guests"
