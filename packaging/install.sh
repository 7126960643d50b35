#!/bin/sh
# Installs hugeleaf from a release's archive, and removes it again: sh install.sh --help
set -eu
umask 022

# Address of the release's files. scripts/dist.sh sets it from RELEASE_URL.
release_address=

usage() {
    cat <<'END'
Install hugeleaf from an archive of a release

Usage: sh install.sh [OPTIONS]

Options:
      --from PLACE      Folder or https address with SHA256SUMS and the archives
                        (default: the folder of install.sh)
      --version VERSION Version to install, if PLACE has several
      --prefix FOLDER   Where to install (default: /usr/local as root, else ~/.local)
      --remove          Remove what install.sh installed below the prefix
      --dry-run         Print the files; change nothing
  -h, --help            Print help

The checksum of the archive is verified before it is unpacked. Configuration that exists is kept.

Exit status: 0 done; 2 wrong usage; 3 a precondition is missing, or a step failed.
END
}

fail() { # FAILURE NEXT-STEP
    printf 'install.sh: %s\n  next: %s\n' "$1" "$2" >&2
    exit 3
}
wrong() {
    printf 'install.sh: %s\n  next: sh install.sh --help\n' "$1" >&2
    exit 2
}

from='' version='' prefix='' remove='' dry=''
while [ $# -gt 0 ]; do
    case $1 in
    --from | --version | --prefix)
        [ $# -ge 2 ] && [ -n "$2" ] || wrong "$1 needs a value"
        case $1 in --from) from=$2 ;; --version) version=$2 ;; --prefix) prefix=$2 ;; esac
        shift
        ;;
    --remove) remove=1 ;;
    --dry-run) dry=1 ;;
    -h | --help) usage && exit ;;
    *) wrong "unknown option $1" ;;
    esac
    shift
done

is_root=
[ "$(id -u)" != 0 ] || is_root=1
if [ -z "$prefix" ]; then
    if [ -n "$is_root" ]; then
        prefix=/usr/local
    else
        [ -n "${HOME:-}" ] || fail "HOME is not set" "name a folder: --prefix FOLDER"
        prefix=$HOME/.local
    fi
fi
case $prefix in
/*[!/]*) prefix=${prefix%/} ;;
*) wrong "--prefix $prefix is not an absolute folder" ;;
esac
# Other characters would need quotes in the unit and in patterns of sed.
case $prefix in *[!A-Za-z0-9/._@+-]*) wrong "--prefix $prefix contains characters other than letters, digits and / . _ @ + -" ;; esac

# The list of installed files. It exists before the first file, so that a removal after a kill is complete.
receipt=$prefix/share/hugeleaf/installed
# Folder for unpacking, on the file system of the prefix: files are renamed into place. It is also the lock.
staging=$prefix/.hugeleaf-install

if [ -n "$is_root" ]; then
    configuration=/etc/hugeleaf
    kind=system manager='systemctl' state='/var/lib/hugeleaf /var/log/hugeleaf'
    case $prefix in
    /usr/local | /usr) units=$prefix/lib/systemd/system ;;
    *) units=/etc/systemd/system ;;
    esac
else
    configuration=${XDG_CONFIG_HOME:-${HOME:-$prefix}/.config}/hugeleaf
    kind=user manager='systemctl --user' state="${XDG_STATE_HOME:-${HOME:-$prefix}/.local/state}/hugeleaf"
    if [ "$prefix" = "${HOME:-}/.local" ]; then
        units=$prefix/share/systemd/user
    else
        units=${configuration%/hugeleaf}/systemd/user
    fi
fi
unit=hugeleaf-guard.service

# True if the manager of the unit runs: the system's, or that of this user.
systemd_runs() {
    [ -d /run/systemd/system ] && command -v systemctl >/dev/null &&
        { [ -n "$is_root" ] || [ -S "${XDG_RUNTIME_DIR:-/none}/systemd/private" ]; }
}

# True unless the unit starts the program of another prefix: two prefixes can have one place for units.
unit_is_ours() { [ ! -e "$units/$unit" ] || grep -qF "=$prefix/bin/hugeleaf " "$units/$unit"; }

take_lock() {
    if [ -n "$dry" ]; then
        staging=$(mktemp -d) || fail "cannot make a temporary folder" "set TMPDIR to a writable folder"
        trap 'rm -rf "$staging"' EXIT
        return
    fi
    mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] ||
        fail "cannot write to $prefix" "run as root, or name another folder: --prefix FOLDER"
    if ! mkdir "$staging" 2>/dev/null; then
        [ -d "$staging" ] || fail "cannot make $staging" "make $prefix writable; check free space: df $prefix"
        other=$(cat "$staging/pid" 2>/dev/null || true)
        if [ -z "$other" ] || kill -0 "$other" 2>/dev/null; then
            fail "another install.sh works on $prefix (pid ${other:-unknown})" \
                "wait until it ends; if none runs: rm -r $staging"
        fi
        rm -rf "$staging"
        mkdir "$staging" 2>/dev/null || fail "another install.sh works on $prefix" "wait until it ends"
    fi
    trap 'rm -rf "$staging"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    echo $$ >"$staging/pid" || fail "cannot write to $staging" "check free space: df $prefix"
}

# Writes standard input to a file under its final name, or not at all.
replace() { # FILE
    mkdir -p "$(dirname "$1")" && cat >"$staging/new" && mv -f "$staging/new" "$1" ||
        fail "cannot write $1" "check rights and free space: df $prefix"
}

delete_files() { # standard input: files
    while IFS= read -r file; do
        rm -f "$file" || fail "cannot remove $file" "make its file system writable, then run this again"
        # Folders that are empty now, up to the prefix.
        folder=$(dirname "$file")
        while [ "$folder" != "$prefix" ] && [ "$folder" != / ] && rmdir "$folder" 2>/dev/null; do
            folder=$(dirname "$folder")
        done
    done
}

remove_all() {
    [ -f "$receipt" ] || fail "install.sh has installed nothing below $prefix" \
        "name the prefix that was used: --prefix FOLDER; a package is removed by apt or dnf"
    if [ -n "$dry" ]; then
        sed 's/^/would remove /' "$receipt"
        return
    fi
    take_lock
    if [ -n "$is_root" ] && "$prefix/bin/hugeleaf" undo --list 2>/dev/null | grep -q ' in force '; then
        fail "an applied plan is in force, and only hugeleaf can revert it" \
            "$prefix/bin/hugeleaf undo --all, then run this again"
    fi
    files=$(cat "$receipt")
    if ! unit_is_ours; then
        files=$(grep -vxF "$units/$unit" "$receipt")
        echo "kept $units/$unit: it starts the hugeleaf of another prefix"
    elif systemd_runs && grep -qxF "$units/$unit" "$receipt"; then
        $manager disable --now "$unit" >/dev/null 2>&1 || true
    fi
    printf '%s\n' "$files" | delete_files
    ! systemd_runs || $manager daemon-reload || true
    echo "removed hugeleaf from $prefix ($(printf '%s\n' "$files" | wc -l) files)"
    rm -rf "$staging"
    case $prefix in
    /usr | /usr/local | "${HOME:-}/.local") ;;
    *) rmdir "$prefix" 2>/dev/null || true ;;
    esac
    kept=
    for place in "$configuration" $state; do [ ! -e "$place" ] || kept="$kept $place"; done
    [ -z "$kept" ] || printf 'kept configuration and state:%s\n  to remove them: rm -r%s\n' "$kept" "$kept"
}

# Copies a file of the release.
get() { # NAME TARGET
    case $from in
    http://* | https://*)
        if command -v curl >/dev/null; then
            curl --fail --silent --show-error --location --retry 3 --output "$2" "$from/$1"
        elif command -v wget >/dev/null; then
            wget -q -O "$2" "$from/$1"
        else
            fail "neither curl nor wget is installed" "install one, or download the files and use: --from FOLDER"
        fi || fail "cannot download $from/$1" "check the address and the network, or use: --from FOLDER"
        ;;
    *) cp "$from/$1" "$2" 2>/dev/null || fail "cannot read $from/$1" "name the folder with the release: --from FOLDER" ;;
    esac
}

find_release() {
    if [ -z "$from" ]; then
        # Piped into a shell, the script has no folder.
        case $0 in *install.sh) from=$(dirname "$0") ;; esac
        [ -n "$from" ] && [ -f "$from/SHA256SUMS" ] || from=$release_address
        [ -n "$from" ] || fail "there are no archives next to install.sh" \
            "name the folder or address of the release: --from PLACE"
    fi
    from=${from%/}
    case $from in
    https://* | http://localhost[:/]* | http://127.0.0.1[:/]*) ;;
    *://*) fail "$from is not an https address" "use https, or download the files and use: --from FOLDER" ;;
    esac
}

# Sets `archive` and `sum` to those for this machine.
choose_archive() {
    [ "$(uname -s)" = Linux ] || fail "this is $(uname -s), and hugeleaf runs on Linux" "run this on a Linux host"
    case $(uname -m) in
    x86_64 | amd64) architecture=x86-64 ;;
    aarch64 | arm64) architecture=arm64 ;;
    *) fail "there is no archive for $(uname -m)" "build it from the source: make build" ;;
    esac
    get SHA256SUMS "$staging/sums"
    # Only names of archives as a release has them; a name cannot leave the folder.
    found=$(sed -n "s/^\([0-9a-f]\{64\}\)[ *]*\(hugeleaf-[0-9A-Za-z.+~]*-linux-$architecture\.tar\.gz\)$/\1 \2/p" "$staging/sums")
    [ -z "$version" ] || found=$(printf '%s\n' "$found" | grep -F " hugeleaf-$version-linux-" || true)
    case $(printf '%s' "$found" | grep -c '') in
    0) fail "$from has no archive${version:+ of version $version} for $architecture" \
        "choose another version or place: --version VERSION, --from PLACE" ;;
    1) ;;
    *) fail "$from has archives of several versions: $(printf '%s\n' "$found" | cut -d' ' -f2 | tr '\n' ' ')" \
        "choose one: --version VERSION" ;;
    esac
    sum=${found%% *} archive=${found#* }
}

unpack() {
    command -v sha256sum >/dev/null || fail "sha256sum is missing" "install coreutils"
    get "$archive" "$staging/archive"
    got=$(sha256sum <"$staging/archive")
    [ "${got%% *}" = "$sum" ] || fail "the checksum of $archive is ${got%% *}, expected $sum" \
        "the file is damaged or was changed; get it again, and do not use this one"
    mkdir "$staging/files"
    gzip -dc "$staging/archive" | tar -xof - -C "$staging/files" ||
        fail "cannot unpack $archive" "check free space: df $prefix"
    rm "$staging/archive"
    root=$staging/files/${archive%.tar.gz}
    said=$("$root/bin/hugeleaf" --version 2>&1) ||
        fail "the program does not start on this machine: $said" "if $prefix is mounted noexec, name another folder: --prefix FOLDER"
}

# Moves files to where they belong in the unpacked folder, and makes the unit name the program.
arrange() {
    mkdir "$staging/unit"
    sed "s|^\(Exec[A-Za-z]*\)=hugeleaf |\1=$prefix/bin/hugeleaf |" "$root/lib/systemd/$kind/$unit" >"$staging/unit/$unit"
    mv "$root/lib/sysusers.d/hugeleaf.conf" "$staging/group.conf"
    mv "$root/etc/hugeleaf/guard.toml" "$staging/guard.toml"
    rm -r "${root:?}/lib" "${root:?}/etc"
}

place_files() {
    (cd "$root" && find . -type f | sort | sed "s|^\.|$prefix|") >"$staging/list"
    printf '%s\n' "$units/$unit" "$receipt" >>"$staging/list"
    if [ -n "$dry" ]; then
        sed 's/^/would install /' "$staging/list"
        return
    fi
    touch "$staging/old"
    [ ! -f "$receipt" ] || cp "$receipt" "$staging/old"
    sort -u "$staging/old" "$staging/list" | replace "$receipt"
    (cd "$root" && find . -type f) | while IFS= read -r file; do
        target=$prefix/${file#./}
        mkdir -p "$(dirname "$target")" && mv -f "$root/$file" "$target" ||
            fail "cannot write $target" "check rights and free space (df $prefix), then run this again"
    done
    unit_is_ours || echo "note: $units/$unit started the hugeleaf of another prefix, and now starts this one"
    replace "$units/$unit" <"$staging/unit/$unit"
    # Files of the previous version that this version lacks.
    grep -vxF -f "$staging/list" "$staging/old" | delete_files
    replace "$receipt" <"$staging/list"
    [ -e "$configuration/guard.toml" ] || replace "$configuration/guard.toml" <"$staging/guard.toml"
    ! command -v restorecon >/dev/null || restorecon "$prefix/bin/hugeleaf" "$units/$unit" 2>/dev/null || true
}

# The service runs with a group, whose members may query it.
make_group() {
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers "$staging/group.conf" >/dev/null 2>&1
    elif command -v groupadd >/dev/null; then
        groupadd --system --force hugeleaf
    else
        false
    fi || echo "note: the group hugeleaf could not be created; the service needs it"
}

report() {
    echo "installed $said"
    echo "  program        $prefix/bin/hugeleaf"
    echo "  manual pages   $prefix/share/man/man1; completions of bash, zsh and fish"
    echo "  unit           $units/$unit (not started)"
    echo "  configuration  $configuration/guard.toml"
    echo "  to start the guard:  $manager daemon-reload && $manager enable --now ${unit%.service}"
    echo "  to remove:           sh install.sh --remove --prefix $prefix"
    case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) echo "note: $prefix/bin is not in PATH: export PATH=$prefix/bin:\$PATH" ;;
    esac
    first=$(command -v hugeleaf || true)
    case $first in
    '' | "$prefix/bin/hugeleaf") ;;
    *) echo "note: the shell finds another hugeleaf first: $first" ;;
    esac
    [ -z "$is_root" ] || [ "$units" = /usr/lib/systemd/system ] || [ ! -e /usr/lib/systemd/system/$unit ] ||
        echo "note: this unit replaces the one of the package, /usr/lib/systemd/system/$unit, until it is removed"
}

if [ -n "$remove" ]; then
    remove_all
    exit
fi
find_release
take_lock
choose_archive
unpack
arrange
place_files
[ -z "$dry" ] || exit 0
if [ -n "$is_root" ]; then make_group; fi
if systemd_runs; then
    $manager daemon-reload || true
    # A guard that runs continues with the new program.
    $manager try-restart "$unit" >/dev/null 2>&1 || true
fi
report
