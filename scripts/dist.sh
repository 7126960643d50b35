#!/usr/bin/env bash
# Makes what is given away, fully optimised: scripts/dist.sh [ARCHITECTURE...], x86-64 and arm64 where none is named.
# Of each: a package for Debian with the program, its manual pages and completions; the same in an archive with a
# static program (musl), which runs on any Linux; and the symbols of both, apart. They lie in target/dist-packages
# (DIST), with their sums. scripts/dist-try.sh installs and uses each in a root of its own.
# PROFILE=guest compiles quickly, to try the packing. Needs Debian or Ubuntu (apt and dpkg), rustup, and for the other
# architecture its gcc.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${PROFILE:-dist}
target_dir=${CARGO_TARGET_DIR:-target}
dist=${DIST:-$target_dir/dist-packages}
[ $# -gt 0 ] || set -- x86-64 arm64
version=$(sed -n '/^\[workspace\.package\]/,/^\[/ s/^version = "\(.*\)"$/\1/p' Cargo.toml)
# The same sources give the same packages: nothing in them is of today.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)
export SOURCE_DATE_EPOCH

say() { printf '== %s\n' "$*"; }
fail() { printf '%s\n  next: %s\n' "$1" "$2" >&2; exit 3; }
need() { command -v "$1" >/dev/null || fail "$1 is missing" "apt-get install --no-install-recommends $2"; }

need dpkg-deb dpkg
need apt-get apt
need rustup rustup
mkdir -p "$dist"
dist=$(cd "$dist" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The headers of musl for an architecture by Debian's name, from Debian's package of them: Rust brings musl itself, and
# SQLite is C. With lists of its own: what is installed here is neither asked nor changed.
musl_headers() { # ARCHITECTURE FOLDER
    mkdir -p "$2/lists/partial" "$2/cache/archives/partial"
    : >"$2/status"
    local options=(-qq -o "APT::Architecture=$1" -o "APT::Architectures::=$1" -o "Dir::State::Lists=$2/lists"
        -o "Dir::State::status=$2/status" -o "Dir::Cache=$2/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd "$2" && apt-get "${options[@]}" download musl-dev && dpkg-deb -x musl-dev_*.deb .)
}

# The program for a target, as cargo leaves it: what else is set is for that target alone.
compile() { # TARGET
    rustup target list --installed | grep -qx "$1" || rustup target add "$1"
    cargo build --quiet --locked --profile "$profile" --package hugeleaf-cli --target "$1"
}

# The program without symbols, and the symbols in a file that debuggers find by its name.
strip_into() { # PROGRAM TOOL-PREFIX FOLDER NAME
    "$2objcopy" --only-keep-debug --compress-debug-sections "$1" "$3/$4.debug"
    "$2strip" --strip-all -o "$3/$4" "$1"
    (cd "$3" && "$2objcopy" --add-gnu-debuglink="$4.debug" "$4")
}

# Manual pages and completions are those of the program that runs here, whatever it was compiled for.
documents() { # FOLDER
    cargo build --quiet --locked --profile guest --package hugeleaf-cli
    local own=$target_dir/guest/hugeleaf
    "$own" manpages "$1/man"
    mkdir -p "$1/completions"
    for shell in bash zsh fish; do "$own" completions "$shell" >"$1/completions/$shell"; done
}

# Who holds rights in what: our licences, and those of each crate that is compiled in.
copyright() {
    echo "hugeleaf is Copyright (c) the hugeleaf developers, under MIT or Apache 2.0, at your choice."
    echo "Its program contains these libraries, each under its own licence:"
    echo
    cargo tree --locked --package hugeleaf-cli --edges normal --target all --prefix none --format '{p} ({l})' |
        sed -E 's/ \([^)]*\/crates\/[^)]*\)//; s/ \(\*\)$//' | grep -v '^hugeleaf' | sort -u
    printf '\n== MIT\n\n'; cat LICENSE-MIT
    printf '\n== Apache 2.0\n\n'; cat LICENSE-APACHE
}

# What stands in both packages, below a prefix.
common() { # ROOT
    install -d "$1/share/man/man1" "$1/share/bash-completion/completions" "$1/share/zsh/vendor-completions" \
        "$1/share/fish/vendor_completions.d" "$1/share/doc/hugeleaf"
    install -m 644 "$work"/documents/man/*.1 "$1/share/man/man1"
    gzip -9n "$1"/share/man/man1/*.1
    install -m 644 "$work/documents/completions/bash" "$1/share/bash-completion/completions/hugeleaf"
    install -m 644 "$work/documents/completions/zsh" "$1/share/zsh/vendor-completions/_hugeleaf"
    install -m 644 "$work/documents/completions/fish" "$1/share/fish/vendor_completions.d/hugeleaf.fish"
    install -m 644 "$work/copyright" README.md SECURITY.md "$1/share/doc/hugeleaf"
    gzip -9nc CHANGELOG.md >"$1/share/doc/hugeleaf/changelog.gz"
    chmod 644 "$1/share/doc/hugeleaf/changelog.gz"
}

# All times are those of the sources.
settle_times() { find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +; }

# The libraries that the program asks for, with the versions that it needs of them.
depends() { # PROGRAM TOOL-PREFIX
    local newest
    newest=$("$2objdump" -T "$1" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1)
    echo "libc6 (>= $newest), libgcc-s1"
}

deb() { # DEBIAN-ARCHITECTURE TARGET TOOL-PREFIX
    local root=$work/deb-$1 out=$work/out-$1
    mkdir -p "$root/usr/bin" "$root/DEBIAN" "$out"
    compile "$2"
    strip_into "$target_dir/$2/$profile/hugeleaf" "$3" "$out" hugeleaf
    install -m 755 "$out/hugeleaf" "$root/usr/bin/hugeleaf"
    common "$root/usr"
    # The journal of `apply`, which `undo` reads. Ordinary users read it too: `verify` and `plan` compare with it.
    install -d -m 755 "$root/var/lib/hugeleaf"
    # The guard does nothing until somebody enables it. Rules for alarms and a dashboard are documents here.
    install -D -m 644 contrib/systemd/hugeleaf-guard.service "$root/usr/lib/systemd/system/hugeleaf-guard.service"
    install -D -m 644 contrib/sysusers.d/hugeleaf.conf "$root/usr/lib/sysusers.d/hugeleaf.conf"
    install -D -m 644 contrib/prometheus/hugeleaf.rules.yml "$root/usr/share/doc/hugeleaf/prometheus/hugeleaf.rules.yml"
    install -D -m 644 contrib/grafana/hugeleaf.json "$root/usr/share/doc/hugeleaf/grafana/hugeleaf.json"
    cat >"$root/DEBIAN/control" <<END
Package: hugeleaf
Version: $version
Architecture: $1
Maintainer: The hugeleaf developers <hugeleaf@localhost>
Depends: $(depends "$out/hugeleaf" "$3")
Section: admin
Priority: optional
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
Description: huge pages for running servers
 Shows the page sizes of each process and why they are not larger, promotes
 the memory of running servers to huge pages, plans and reserves pools, starts
 programs on huge pages, and measures the effect.
END
    # `run` keeps the library that it loads there. The journal stays as long as there is something to undo; what the
    # guard knows and its log do not.
    cat >"$root/DEBIAN/postrm" <<'END'
#!/bin/sh
set -e
[ "$1" != purge ] || rm -rf /var/cache/hugeleaf /var/log/hugeleaf /var/lib/hugeleaf/guard.json
END
    chmod 755 "$root/DEBIAN/postrm"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    settle_times "$root"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$dist/hugeleaf_${version}_$1.deb" >/dev/null
    symbols "$out" hugeleaf "hugeleaf_${version}_$1-symbols"
}

archive() { # ARCHITECTURE TARGET TOOL-PREFIX DEBIAN-ARCHITECTURE
    local name=hugeleaf-$version-linux-$1 out=$work/static-$1
    local root=$work/$name musl=$work/musl-$1 gcc=${3}gcc
    mkdir -p "$root/bin" "$out"
    musl_headers "$4" "$musl"
    local headers flags variable=${2//-/_}
    headers=$(echo "$musl"/usr/include/*-linux-musl)
    # The compiler's own headers, musl's, and no others. What gcc would take of glibc and libgcc is not there.
    flags="-nostdinc -isystem $headers -isystem $("$gcc" -print-file-name=include) -U_FORTIFY_SOURCE"
    [ "$1" != arm64 ] || flags="$flags -mno-outline-atomics"
    (
        export "CC_$variable=$gcc" "AR_$variable=${3}ar" "CFLAGS_$variable=$flags"
        export "CARGO_TARGET_${variable^^}_LINKER=$gcc"
        compile "$2"
    )
    strip_into "$target_dir/$2/$profile/hugeleaf" "$3" "$out" hugeleaf
    install -m 755 "$out/hugeleaf" "$root/bin/hugeleaf"
    common "$root"
    settle_times "$root"
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --directory "$work" "$name" |
        xz -T0 -6 >"$dist/$name.tar.xz"
    symbols "$out" hugeleaf "$name-symbols"
}

symbols() { # FOLDER PROGRAM NAME
    touch --date="@$SOURCE_DATE_EPOCH" "$1/$2.debug"
    tar --create --owner=0 --group=0 --numeric-owner --directory "$1" "$2.debug" | xz -T0 -3 >"$dist/$3.tar.xz"
}

say "manual pages, completions, licences"
mkdir -p "$work/documents"
documents "$work/documents"
copyright >"$work/copyright"
own=$(uname -m)
for architecture in "$@"; do
    case $architecture in
    x86-64) cpu=x86_64 debian=amd64 ;;
    arm64) cpu=aarch64 debian=arm64 ;;
    *) echo "usage: $0 [x86-64] [arm64]" >&2; exit 2 ;;
    esac
    prefix=
    if [ "$cpu" != "$own" ]; then
        prefix=$cpu-linux-gnu-
        need "${prefix}gcc" "gcc-${prefix//_/-}"
        export "CARGO_TARGET_${cpu^^}_UNKNOWN_LINUX_GNU_LINKER=${prefix}gcc"
    fi
    say "$architecture: package for Debian"
    deb "$debian" "$cpu-unknown-linux-gnu" "$prefix"
    say "$architecture: archive with a static program"
    archive "$architecture" "$cpu-unknown-linux-musl" "$prefix" "$debian"
done
(cd "$dist" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
say "in $dist"
ls -l "$dist" | awk 'NR > 1 { printf "%8.1f MB  %s\n", $5 / 1e6, $9 }'
