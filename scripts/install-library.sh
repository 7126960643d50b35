#!/usr/bin/env bash
# Installs the library for C programs: scripts/install-library.sh PREFIX [FOLDER]
# Copies hugeleaf.h, libhugeleaf.so, libhugeleaf.a and hugeleaf.pc below PREFIX, and says what to do
# next. Builds the library first, unless FOLDER already holds libhugeleaf_c.so and
# libhugeleaf_c.a.
# DESTDIR goes before PREFIX, and LIBDIR is the folder of libraries below PREFIX (lib), for those who make packages.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ] || [ "${1#/}" = "$1" ]; then
    echo "usage: $0 PREFIX [FOLDER], PREFIX as in /usr/local" >&2
    exit 2
fi
prefix=${1%/}
built=${2:-}
[ -z "$built" ] || built=$(cd "$built" && pwd)
cd "$(dirname "$0")/.."
. scripts/dist-tools.sh

if [ -z "$built" ]; then
    cargo build --release --locked --package hugeleaf-capi
    built=${CARGO_TARGET_DIR:-target}/release
fi
for file in libhugeleaf_c.so libhugeleaf_c.a; do
    if [ ! -f "$built/$file" ]; then
        echo "$built has no $file" >&2
        echo "leave FOLDER out to build it" >&2
        exit 3
    fi
done
version=$(workspace_version)
major=${version%%.*}

to=${DESTDIR:-}$prefix
libdir=${LIBDIR:-lib}
mkdir -p "$to/include" "$to/$libdir/pkgconfig"
install -m 644 crates/capi/include/hugeleaf.h "$to/include/hugeleaf.h"
install -m 644 "$built/libhugeleaf_c.a" "$to/$libdir/libhugeleaf.a"
# A running program keeps the file that it has mapped: install(1) makes a new one.
install -m 755 "$built/libhugeleaf_c.so" "$to/$libdir/libhugeleaf.so.$version"
ln -sf "libhugeleaf.so.$version" "$to/$libdir/libhugeleaf.so.$major"
ln -sf "libhugeleaf.so.$major" "$to/$libdir/libhugeleaf.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@VERSION@|$version|" crates/capi/hugeleaf.pc.in \
    >"$to/$libdir/pkgconfig/hugeleaf.pc"

cat <<END
hugeleaf $version is below $to
next:
  export PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig
  cc program.c \$(pkg-config --cflags --libs hugeleaf) -Wl,-rpath,$prefix/$libdir
or, without the shared library:
  cc program.c -I$prefix/include $prefix/$libdir/libhugeleaf.a -lpthread -ldl -lm
END
if [ -z "${DESTDIR:-}" ] && [ "$prefix" = /usr/local ]; then
    echo "and, once: ldconfig"
fi
