#!/usr/bin/env bash
# Installs and uses what scripts/dist.sh made, each in a clean root: scripts/dist-try.sh [FOLDER].
# The package for Debian in a root of Debian's essential packages, by dpkg; removed again, nothing of it is left. The
# archive in a root where there is nothing else, not even a C library. Programs for another architecture run under
# qemu-user. As root; says "not run" where something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

dist=${1:-${DIST:-${CARGO_TARGET_DIR:-target}/dist-packages}}
[ -d "$dist" ] || { echo "$dist: there are no packages: make dist" >&2; exit 3; }
dist=$(cd "$dist" && pwd)
own=$(dpkg --print-architecture)
work=$(mktemp -d)
# A kill in the middle leaves no mount behind.
trap 'umount -q "$work"/*/proc 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT

say() { printf '== %s\n' "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
not_run() { echo "not run: $1: $2"; }

(cd "$dist" && sha256sum --quiet --check SHA256SUMS) || fail "sums of $dist"

# A program in a root, as that root has it; of another architecture by QEMU, which looks for libraries there.
in_root() { # ROOT ARCHITECTURE COMMAND...
    local root=$1 architecture=$2
    shift 2
    if [ "$architecture" = "$own" ]; then
        chroot "$root" "$@"
    else
        local program=$1
        shift
        "$(emulator "$architecture")" -L "$root" "$root$program" "$@"
    fi
}

emulator() { # ARCHITECTURE
    local cpu=$1
    case $1 in arm64) cpu=aarch64 ;; amd64) cpu=x86_64 ;; esac
    command -v "qemu-$cpu-static" || command -v "qemu-$cpu"
}

can_run() { [ "$1" = "$own" ] || emulator "$1" >/dev/null; }

# What a user does first. The host is the captured one of a fixture, so that it is the same everywhere.
use() { # ROOT ARCHITECTURE PROGRAM
    mkdir -p "$1/captured" "$1/proc"
    # As every root has it that programs run in: what others control is opened by way of it.
    [ "$2" != "$own" ] || mount -t proc proc "$1/proc"
    cp -r fixtures/x86-7.3-two-nodes/. "$1/captured"
    local captured=/captured said
    [ "$2" = "$own" ] || captured=$1/captured
    said=$(in_root "$1" "$2" "$3" --version)
    [ "${said#hugeleaf }" != "$said" ] || fail "--version says: $said"
    for command in status mem verify; do
        said=$(in_root "$1" "$2" "$3" "$command" --root "$captured" 2>&1) || [ $? = 1 ] || fail "$command: $said"
        [ -n "$said" ] || fail "$command prints nothing"
    done
    in_root "$1" "$2" "$3" status --root "$captured" --json | grep -q '"schema": 1' || fail "status --json"
    rm -r "$1/captured"
    [ "$2" != "$own" ] || umount "$1/proc"
}

deb() { # FILE
    local file=$1 architecture root
    architecture=$(dpkg-deb --field "$file" Architecture)
    root=$work/deb-$architecture
    if ! command -v mmdebstrap >/dev/null || [ "$(id -u)" != 0 ]; then
        not_run "$(basename "$file")" "needs root and mmdebstrap"
        return
    fi
    if ! can_run "$architecture"; then
        not_run "$(basename "$file")" "needs qemu-user-static for $architecture"
        return
    fi
    say "$(basename "$file") in a clean root"
    # Of another architecture the packages are unpacked only: their scripts could not run. Ours has none.
    local variant=minbase
    [ "$architecture" = "$own" ] || variant=extract
    mmdebstrap --quiet --mode=root --variant="$variant" --architectures="$architecture" \
        --include=libc6,libgcc-s1,dpkg,bash,coreutils "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" 2>&1 | tail -n 3
    find "$root" -path "$root/proc" -prune -o -print | sort >"$work/before"
    cp "$file" "$root/hugeleaf.deb"
    if [ "$architecture" = "$own" ]; then
        chroot "$root" dpkg --install /hugeleaf.deb >"$work/dpkg" 2>&1 || fail "dpkg: $(cat "$work/dpkg")"
    else
        dpkg-deb --extract "$root/hugeleaf.deb" "$root"
    fi
    rm "$root/hugeleaf.deb"
    use "$root" "$architecture" /usr/bin/hugeleaf
    in_root "$root" "$architecture" /usr/bin/hugeleaf run --help >/dev/null || fail "run --help"
    for command in '' -status -mem -why -promote -prove -plan -apply -run -top -guard -metrics -trace-show -bench-chase; do
        gzip -t "$root/usr/share/man/man1/hugeleaf$command.1.gz" || fail "no manual page hugeleaf$command"
    done
    bash -n "$root/usr/share/bash-completion/completions/hugeleaf"
    [ -s "$root/usr/share/zsh/vendor-completions/_hugeleaf" ] || fail "no completions of zsh"
    [ -s "$root/usr/share/fish/vendor_completions.d/hugeleaf.fish" ] || fail "no completions of fish"
    [ -s "$root/usr/lib/systemd/system/hugeleaf-guard.service" ] || fail "no unit of the guard"
    in_root "$root" "$architecture" /usr/bin/hugeleaf guard --check >/dev/null || fail "guard --check"
    [ "$(stat -c %a "$root/var/lib/hugeleaf")" = 755 ] || fail "/var/lib/hugeleaf cannot be read by ordinary users"
    local size left
    size=$(stat -c %s "$root/usr/bin/hugeleaf")
    echo "$(basename "$file"): size of the program: $((size / 1000)) kB"
    if [ "$architecture" = "$own" ]; then
        # Loads its library into a program of that root.
        mount -t proc proc "$root/proc"
        chroot "$root" /usr/bin/hugeleaf run -- /bin/sh -c 'grep -q hugeleaf /proc/self/maps' ||
            { umount "$root/proc"; fail "run does not load its library"; }
        umount "$root/proc"
        chroot "$root" dpkg --purge hugeleaf >"$work/dpkg" 2>&1 || fail "dpkg: $(cat "$work/dpkg")"
        find "$root" -path "$root/proc" -prune -o -print | sort >"$work/after"
        # dpkg's own lists have changed; nothing of ours is left.
        left=$(comm -13 "$work/before" "$work/after" | grep hugeleaf || true)
        [ -z "$left" ] || fail "left behind: $left"
    fi
    rm -rf "$root"
}

static() { # FILE
    local file=$1 name architecture root
    name=$(basename "$file" .tar.xz)
    case $name in
    *-linux-x86-64) architecture=amd64 ;;
    *-linux-arm64) architecture=arm64 ;;
    *) fail "$file: unknown architecture" ;;
    esac
    if ! can_run "$architecture" || [ "$(id -u)" != 0 ]; then
        not_run "$name" "needs root, and qemu-user-static for $architecture"
        return
    fi
    say "$name in an empty root"
    root=$work/$name-root
    mkdir "$root"
    tar --extract --file "$file" --directory "$root" --strip-components 1
    [ -z "$(find "$root" -name 'lib*.so*')" ] || fail "it contains libraries"
    use "$root" "$architecture" /bin/hugeleaf
    gzip -t "$root/share/man/man1/hugeleaf.1.gz"
    echo "$name: size of the program: $(($(stat -c %s "$root/bin/hugeleaf") / 1000)) kB"
    if [ "$architecture" = "$own" ]; then
        # It is static; what it starts is not.
        "$root/bin/hugeleaf" run -- /bin/sh -c 'grep -q hugeleaf /proc/self/maps' || fail "run does not load its library"
    fi
    rm -rf "$root"
}

for file in "$dist"/*.deb; do deb "$file"; done
for file in "$dist"/hugeleaf-*-linux-*.tar.xz; do
    case $file in *-symbols.tar.xz) ;; *) static "$file" ;; esac
done
say "all packages work"
