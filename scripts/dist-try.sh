#!/usr/bin/env bash
# Checks and uses each package that scripts/dist.sh made: scripts/dist-try.sh [FOLDER]
#
# In roots of Debian 12 and 13, without anything of the build: the package for Debian and the archive by install.sh are
# installed, used, upgraded from an older version, downgraded, removed and purged. The package for rpm is installed by rpm
# and dnf. The archive runs in an empty root, the image under runc, the wheel in an environment of Python. The C library
# compiles and runs a program.
# lintian and rpmlint find no errors, and packing again gives the same bytes.
# Requires root. Prints "not run" for parts whose tools are missing. Programs for another architecture run under qemu-user.
# ROOTS='bookworm' names the releases of Debian. Their roots are kept in target/dist-try.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/dist-tools.sh

dist=${1:-${DIST:-$target_dir/dist-packages}}
[ -f "$dist/SHA256SUMS" ] || fail "$dist has no packages" "make dist"
dist=$(cd "$dist" && pwd)
[ "$(id -u)" = 0 ] || fail "roots can be made only by root" "sudo scripts/dist-try.sh"
version=$(workspace_version)
own=$(dpkg --print-architecture)
work=$(mktemp -d)
roots=()
clean() {
    local root
    for root in "${roots[@]}"; do
        # A kill in the middle leaves no mount behind.
        umount -q "$root/proc" "$root/dev/null" 2>/dev/null || true
    done
    rm -rf --one-file-system "$work"
}
trap clean EXIT
trap 'exit 143' TERM INT HUP

failed() { echo "FAILED: $*" >&2; exit 1; }
not_run() { echo "not run: $1: $2"; }
# Prints the time since a start, which is $(date +%s%N).
since() { echo "$((($(date +%s%N) - $1) / 1000000)) ms"; }
has() { command -v "$1" >/dev/null; }
# Prints the output of a command only if it fails.
quietly() { "$@" >"$work/said" 2>&1 || failed "$*: $(cat "$work/said")"; }

# Makes an empty root usable, and remembers it.
enter_root() { # ROOT
    mkdir -p "$1/proc" "$1/dev"
    mount -t proc proc "$1/proc"
    roots+=("$1")
    [ -e "$1/dev/null" ] || mknod -m 666 "$1/dev/null" c 1 3
}
leave_root() { # ROOT
    umount "$1/proc"
    rm -rf --one-file-system "$1"
}

# Unpacks a root of Debian's essential packages.
debian_root() { # RELEASE FOLDER
    local kept=$target_dir/dist-try/$1.tar
    has mmdebstrap || { not_run "$1" "needs mmdebstrap"; return 1; }
    if [ ! -s "$kept" ]; then
        mkdir -p "$target_dir/dist-try"
        if ! mmdebstrap --quiet --mode=root --variant=minbase "$1" "$target_dir/dist-try/new.tar" >"$work/said" 2>&1; then
            not_run "$1" "mmdebstrap failed: $(tail -n 1 "$work/said")"
            rm -f "$target_dir/dist-try/new.tar"
            return 1
        fi
        mv "$target_dir/dist-try/new.tar" "$kept"
    fi
    mkdir "$2"
    quietly tar --extract --file "$kept" --directory "$2" --exclude './dev/*'
    enter_root "$2"
}

# Replaces systemd's commands with scripts that log their calls.
stand_in_for_systemd() { # ROOT
    local command
    mkdir -p "$1/run/systemd/system" "$1/usr/local/bin"
    # The root has no systemctl, and rpm does not look into /usr/local.
    for command in /usr/bin/systemctl /usr/local/bin/deb-systemd-invoke; do
        printf '#!/bin/sh\necho "%s $*" >>/calls\n' "${command##*/}" >"$1$command"
        chmod 755 "$1$command"
    done
    touch "$1/calls"
}
# Checks the calls of systemd's commands since the last check: one has these words. Without words: none starts, stops or
# enables a unit.
called() { # ROOT [WORDS]
    if [ $# = 1 ]; then
        ! grep -qwE 'start|restart|try-restart|stop|enable|disable' "$1/calls" || failed "calls of systemd: $(cat "$1/calls")"
    else
        grep -qF -- "$2" "$1/calls" || failed "no call '$2' of systemd, but: $(cat "$1/calls")"
    fi
    : >"$1/calls"
}

emulator() { # DEBIAN-ARCHITECTURE
    local cpu=$1
    case $1 in arm64) cpu=aarch64 ;; amd64) cpu=x86_64 ;; esac
    command -v "qemu-$cpu-static" || command -v "qemu-$cpu"
}

# Uses a program in a root. The host is the captured one of a fixture, so that it is the same everywhere.
use() { # ROOT PROGRAM
    local said command
    cp -r fixtures/x86-7.3-two-nodes "$1/captured"
    said=$(chroot "$1" "$2" --version)
    [[ $said == "hugeleaf "* ]] || failed "--version prints: $said"
    for command in status mem verify; do
        said=$(chroot "$1" "$2" "$command" --root /captured 2>&1) || [ $? = 1 ] || failed "$command: $said"
        [ -n "$said" ] || failed "$command prints nothing"
    done
    said=$(chroot "$1" "$2" status --root /captured --json)
    [[ $said == '{'*'"schema": '* ]] || failed "status --json: $said"
    chroot "$1" "$2" status >/dev/null || [ $? = 1 ] || failed "status of this host"
    rm -r "$1/captured"
}

# Loads the library of `run` into a program of the root.
use_run() { # ROOT PROGRAM
    chroot "$1" "$2" run -- /bin/sh -c 'grep -q hugeleaf /proc/self/maps' || failed "run does not load its library"
    # A build without the target for glibc leaves this library out.
    chroot "$1" "$2" run --sqlite 64M -- /bin/sh -c 'grep -q hugeleaf_sqlite /proc/self/maps' || failed "run --sqlite does not load its library"
    rm -rf "$1/var/cache/hugeleaf"
}

# Checks the rules and the group of the service, as a package installs them.
check_service() { # ROOT
    chroot "$1" hugeleaf guard --check >/dev/null || failed "the shipped rules"
    chroot "$1" getent group hugeleaf >/dev/null || failed "no group"
}

# Lists the files of a root, without the databases of package managers, caches, logs and temporary files.
list() { # ROOT
    (cd "$1" && find . -path ./proc -prune -o ! -path './var/lib/dpkg/*' ! -path './var/lib/rpm/*' ! -path './var/cache/*' \
        ! -path './var/log/*' ! -path './tmp/*' -print | sort)
}
nothing_left() { # ROOT LIST WAY
    local left
    left=$(list "$1" | comm -13 "$2" - | grep hugeleaf || true)
    [ -z "$left" ] || failed "$3 leaves: $left"
}

check_manifest() {
    say "checksums, manifest, bill of materials"
    (cd "$dist" && sha256sum --quiet --check SHA256SUMS) || failed "checksums"
    local file name
    for file in "$dist"/*; do
        name=${file##*/}
        case $name in SHA256SUMS* | MANIFEST.md) continue ;; esac
        grep -q "^| $name | .* | $(stat -c %s "$file") | " "$dist/MANIFEST.md" || failed "MANIFEST.md lacks $name"
    done
    check_bills_of_materials
}

check_bills_of_materials() {
    local reason folder=$target_dir/tools/bill-of-materials
    if ! compgen -G "$dist/*.cdx.json" >/dev/null; then
        not_run "bill of materials" "was not made"
        return
    fi
    reason=$(python_packages "$folder" scripts/bill-of-materials-requirements.txt)
    if [ -n "$reason" ]; then
        not_run "bill of materials" "$reason"
        return
    fi
    "$folder/bin/python" scripts/bill_of_materials.py "$version" "$dist"/*.cdx.json
}

check_lints() {
    say "lints"
    local debs=("$dist"/*.deb) rpms=("$dist"/*.rpm)
    if has lintian; then
        # Packages of a trial have no address; scripts/release.sh demands one.
        quietly lintian --allow-root --fail-on error --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog "${debs[@]}"
    else
        not_run "lintian" "apt-get install lintian"
    fi
    if has rpmlint; then
        quietly rpmlint --config packaging/rpmlint.toml "${rpms[@]}"
    else
        not_run "rpmlint" "apt-get install rpmlint"
    fi
    if has shellcheck; then
        quietly shellcheck --severity=warning --external-sources scripts/dist*.sh scripts/release.sh scripts/test-{install,release}.sh \
            packaging/install.sh packaging/deb/*
    else
        not_run "shellcheck" "apt-get install shellcheck"
    fi
}

# Packs the staged files again, at another time and from files with other times, and as an older version for upgrades.
pack_again() {
    local architecture stage file
    for architecture in x86-64 arm64; do
        stage=$target_dir/dist-stage/$architecture
        [ -d "$stage" ] && [ -e "$dist/hugeleaf-$version-linux-$architecture.tar.gz" ] || continue
        say "$architecture: pack again"
        cp -r "$stage" "$work/stage"
        scripts/dist-pack.sh "$version" "$architecture" "$work/stage" "$work/again"
        PACK='deb rpm' scripts/dist-pack.sh 0.0.9 "$architecture" "$work/stage" "$work/older"
        rm -r "$work/stage"
    done
    [ -d "$work/again" ] || { not_run "packing again, upgrades" "needs target/dist-stage of scripts/dist.sh"; return; }
    for file in "$work"/again/*; do
        cmp "$file" "$dist/${file##*/}" || failed "packing again gives other bytes"
    done
    rm -r "$work/again"
}

older() { # PATTERN
    local found
    found=$(compgen -G "$work/older/$1") || return 1
    echo "$found"
}

try_deb() { # RELEASE
    local root=$work/$1 deb=$dist/hugeleaf_$version-1_$own.deb before=$work/before old start
    say "$1: package for Debian"
    debian_root "$1" "$root" || return 0
    stand_in_for_systemd "$root"
    list "$root" >"$before"
    cp "$deb" "$root/hugeleaf.deb"
    start=$(date +%s%N)
    quietly chroot "$root" apt-get install --yes /hugeleaf.deb
    chroot "$root" hugeleaf status >/dev/null || [ $? = 1 ] || failed "status"
    echo "$1: from the package to status in $(since "$start")"
    called "$root"
    use "$root" hugeleaf
    use_run "$root" hugeleaf
    check_service "$root"
    [ "$(stat -c %a "$root/var/lib/hugeleaf")" = 755 ] || failed "/var/lib/hugeleaf cannot be read by ordinary users"
    local command contents
    contents=$(dpkg-deb --contents "$deb")
    for command in '' -status -mem -why -promote -prove -plan -apply -run -top -guard -metrics -trace-show -bench-chase; do
        [[ $contents == *"/man1/hugeleaf$command.1.gz"* ]] || failed "no manual page hugeleaf$command"
    done
    bash -n "$root/usr/share/bash-completion/completions/hugeleaf"

    change_rules "$root"
    if old=$(older "hugeleaf_*_$own.deb"); then
        cp "$old" "$root/old.deb"
        quietly chroot "$root" dpkg --install /old.deb
        installed "$root" 0.0.9-1
        called "$root" "deb-systemd-invoke try-restart hugeleaf-guard.service"
        quietly chroot "$root" dpkg --install /hugeleaf.deb
        installed "$root" "$version-1"
        # Unpacked and not configured, as after a kill.
        quietly chroot "$root" dpkg --unpack /old.deb
        quietly chroot "$root" dpkg --unpack /hugeleaf.deb
        use "$root" hugeleaf
        quietly chroot "$root" dpkg --configure --pending
        called "$root" "deb-systemd-invoke try-restart hugeleaf-guard.service"
        installed "$root" "$version-1"
        rm "$root/old.deb"
    fi
    rules_kept "$root" "an upgrade replaced the rules"

    # Beside a release in /usr/local.
    mkdir "$root/release"
    cp "$dist"/{install.sh,SHA256SUMS,hugeleaf-"$version"-linux-*.tar.gz} "$root/release/"
    quietly chroot "$root" sh /release/install.sh
    grep -q "this unit replaces the one of the package" "$work/said" || failed "install.sh does not name the package"
    use "$root" /usr/local/bin/hugeleaf
    use "$root" /usr/bin/hugeleaf
    quietly chroot "$root" sh /release/install.sh --remove
    use "$root" /usr/bin/hugeleaf

    touch "$root/var/lib/hugeleaf/guard.json"
    quietly chroot "$root" dpkg --remove hugeleaf
    called "$root" "deb-systemd-invoke stop hugeleaf-guard.service"
    [ ! -e "$root/usr/bin/hugeleaf" ] || failed "the program is still there"
    rules_kept "$root" "the removal took the rules"
    quietly chroot "$root" dpkg --purge hugeleaf

    say "$1: archive by install.sh"
    mkdir -m 777 "$root/home/user"
    quietly chroot --userspec 65534:65534 "$root" env HOME=/home/user sh /release/install.sh
    chroot --userspec 65534:65534 "$root" /home/user/.local/bin/hugeleaf status >/dev/null || [ $? = 1 ] || failed "status"
    [ -s "$root/home/user/.local/share/systemd/user/hugeleaf-guard.service" ] || failed "no unit for the user"
    quietly chroot --userspec 65534:65534 "$root" env HOME=/home/user sh /release/install.sh --remove
    rm -r "$root/home/user"
    start=$(date +%s%N)
    quietly chroot "$root" sh /release/install.sh
    chroot "$root" /usr/local/bin/hugeleaf status >/dev/null || [ $? = 1 ] || failed "status"
    echo "$1: from the archive to status in $(since "$start")"
    use "$root" /usr/local/bin/hugeleaf
    called "$root" "systemctl try-restart hugeleaf-guard.service"
    quietly chroot "$root" sh /release/install.sh --remove
    called "$root" "systemctl disable --now hugeleaf-guard.service"
    rm -r "$root/release" "$root/hugeleaf.deb" "$root/etc/hugeleaf"
    nothing_left "$root" "$before" "removal and purge"
    leave_root "$root"
}

# Changes the shipped rules, as an administrator does.
change_rules() { # ROOT
    echo "# mine" >>"$1/etc/hugeleaf/guard.toml"
}
# Checks that the changed rules are still there.
rules_kept() { # ROOT FAILURE
    tail -n 1 "$1/etc/hugeleaf/guard.toml" | grep -qx '# mine' || failed "$2"
}

installed() { # ROOT VERSION
    local got
    got=$(chroot "$1" dpkg-query --show --showformat '${Version} ${db:Status-Status}' hugeleaf)
    [ "$got" = "$2 installed" ] || failed "the package is $got, expected $2"
}

# There is no distribution of rpm packages to install from. The root is Debian's, with a database of rpm of its own.
try_rpm() {
    local machine root=$work/rpm before=$work/before old rpm_in_root start
    machine=$(uname -m)
    local rpm=$dist/hugeleaf-$version-1.$machine.rpm
    say "package for rpm"
    if ! has rpm; then
        not_run "rpm" "apt-get install rpm dnf createrepo-c"
        return
    fi
    debian_root "${releases[0]}" "$root" || return 0
    stand_in_for_systemd "$root"
    list "$root" >"$before"
    rpm_in_root=(rpm --root "$root" --force-debian)
    start=$(date +%s%N)
    quietly "${rpm_in_root[@]}" --install "$rpm"
    chroot "$root" hugeleaf status >/dev/null || [ $? = 1 ] || failed "status"
    echo "rpm: from the package to status in $(since "$start")"
    quietly "${rpm_in_root[@]}" --erase hugeleaf
    : >"$root/calls"
    if old=$(older "hugeleaf-*.$machine.rpm"); then
        quietly "${rpm_in_root[@]}" --install "$old"
        called "$root"
        change_rules "$root"
        quietly "${rpm_in_root[@]}" --upgrade "$rpm"
        called "$root" "systemctl try-restart hugeleaf-guard.service"
        quietly "${rpm_in_root[@]}" --upgrade --oldpackage "$old"
        quietly "${rpm_in_root[@]}" --upgrade "$rpm"
        rules_kept "$root" "an upgrade replaced the rules"
    else
        quietly "${rpm_in_root[@]}" --install "$rpm"
        change_rules "$root"
    fi
    [ "$("${rpm_in_root[@]}" --query hugeleaf)" = "hugeleaf-$version-1.$machine" ] || failed "rpm --query"
    [[ $("${rpm_in_root[@]}" --query --docfiles hugeleaf) == */man1/hugeleaf-promote.1.gz* ]] || failed "no manual pages"
    [ "$("${rpm_in_root[@]}" --verify hugeleaf | grep -v 'c /etc/hugeleaf/guard.toml$')" = "" ] || failed "rpm --verify"
    use "$root" /usr/bin/hugeleaf
    use_run "$root" /usr/bin/hugeleaf
    check_service "$root"
    quietly "${rpm_in_root[@]}" --erase hugeleaf
    called "$root" "systemctl --no-reload disable --now hugeleaf-guard.service"
    grep -qx '# mine' "$root/etc/hugeleaf/guard.toml.rpmsave" || failed "the removal took the rules"
    rm -r "$root/etc/hugeleaf"
    nothing_left "$root" "$before" "the removal"

    if has dnf && has createrepo_c; then
        mkdir "$work/repository"
        cp "$rpm" "$work/repository"
        quietly createrepo_c "$work/repository"
        local dnf=(dnf --assumeyes --installroot "$root" --releasever 1 --disablerepo '*' --setopt cachedir=/var/cache/dnf
            --repofrompath "release,file://$work/repository" --enablerepo release --nogpgcheck)
        quietly "${dnf[@]}" install hugeleaf
        use "$root" /usr/bin/hugeleaf
        quietly "${dnf[@]}" remove hugeleaf
        rm -r "$work/repository"
        [ ! -e "$root/usr/bin/hugeleaf" ] || failed "dnf leaves the program"
    else
        not_run "dnf" "apt-get install dnf createrepo-c"
    fi
    leave_root "$root"
}

# Runs the program of an archive in an empty root, without a C library.
try_archive() { # FILE
    local name root=$work/empty architecture folder
    name=$(basename "$1" .tar.gz)
    case $name in *-x86-64) architecture=amd64 ;; *) architecture=arm64 ;; esac
    say "$name in an empty root"
    mkdir "$root"
    gzip -dc "$1" | tar --extract --directory "$root" --strip-components 1
    [ -z "$(find "$root" -name '*.so*')" ] || failed "it contains libraries"
    gzip -t "$root/share/man/man1/hugeleaf.1.gz"
    for folder in "$PWD" "$target_dir" "${CARGO_HOME:-$HOME/.cargo}" "$(rustc --print sysroot)"; do
        ! grep -aqF "$folder/" "$root/bin/hugeleaf" || failed "the program names a folder of the build machine: $folder"
    done
    echo "$name: program of $(($(stat -c %s "$root/bin/hugeleaf") / 1000)) kB"
    if [ "$architecture" = "$own" ]; then
        enter_root "$root"
        use "$root" /bin/hugeleaf
        umount "$root/proc"
    elif emulator "$architecture" >/dev/null; then
        "$(emulator "$architecture")" "$root/bin/hugeleaf" status --root fixtures/x86-7.3-two-nodes --json >"$work/said" ||
            failed "status --json: $(cat "$work/said")"
    else
        not_run "$name" "apt-get install qemu-user-static"
    fi
    rm -rf --one-file-system "$root"
}

try_image() { # FILE
    local bytes bundle=$work/bundle said start
    bytes=$(stat -c %s "$1")
    say "$(basename "$1"): $((bytes / 1000)) kB"
    # Only the program of a release has its final size; a trial is larger.
    [ "${PROFILE:-dist}" != dist ] || [ "$bytes" -le 8000000 ] || failed "the image has more than 8 MB"
    case $1 in *-"$(uname -m | sed 's/_/-/; s/aarch64/arm64/')".tar) ;; *) return ;; esac
    if ! has skopeo || ! has umoci || ! has runc; then
        not_run "the image" "apt-get install skopeo umoci runc"
        return
    fi
    said=$(skopeo inspect --config "oci-archive:$1") || failed "skopeo inspect"
    [[ $said == *'"/bin/hugeleaf"'* && $said == *'"MIT OR Apache-2.0"'* ]] || failed "configuration of the image: $said"
    unpack_image "$1" "$bundle"
    [ "$(find "$bundle/rootfs" -type f | wc -l)" = 2 ] || failed "the image has other files than program and licences"
    start=$(date +%s%N)
    said=$(runc --root "$work/runc" run --bundle "$bundle" "hugeleaf-try-$$" </dev/null 2>&1) || [ $? = 1 ] || failed "runc: $said"
    [ -n "$said" ] || failed "status in the image prints nothing"
    echo "image: status in $(since "$start")"
    rm -rf "$bundle"
}

# Installs the wheel into an environment of its own, without network, and removes it.
try_wheel() {
    local wheel venv=$work/venv before=$work/before start module bytes
    wheel=$(compgen -G "$dist/hugeleaf-$version-*_$(uname -m).whl") || { not_run "Python wheel" "was not built"; return; }
    bytes=$(stat -c %s "$wheel")
    say "$(basename "$wheel"): $((bytes / 1000)) kB"
    [ "${PROFILE:-dist}" != dist ] || [ "$bytes" -le 25000000 ] || failed "the wheel has more than 25 MB"
    if ! python3 -m venv "$venv" >"$work/said" 2>&1; then
        not_run "Python wheel" "apt-get install python3-venv"
        return
    fi
    (cd "$venv" && find . | sort) >"$before"
    start=$(date +%s%N)
    quietly "$venv/bin/pip" install --no-index --no-deps "$wheel"
    "$venv/bin/hugeleaf" status >/dev/null || [ $? = 1 ] || failed "status"
    echo "wheel: from the file to status in $(since "$start")"
    [ "$("$venv/bin/python" -c 'import hugeleaf; print(hugeleaf.__version__)')" = "$version" ] || failed "import hugeleaf"
    module=$(echo "$venv"/lib/python*/site-packages/hugeleaf/_native*.so)
    [ "$(stat -c %s "$module")" -le 1000000 ] || failed "the module has more than 1 MB"
    quietly "$venv/bin/pip" install --no-index --no-deps --force-reinstall "$wheel"
    quietly "$venv/bin/pip" uninstall --yes hugeleaf
    [ -z "$(cd "$venv" && find . ! -name '*.pyc' ! -name __pycache__ ! -path ./share | sort | comm -13 "$before" - | grep hugeleaf)" ] ||
        failed "the removal leaves: $(cd "$venv" && find . | sort | comm -13 "$before" -)"
    rm -r "$venv"
}

try_library() {
    local deb root=$work/library triplet prefix=$work/dev said
    deb=$(compgen -G "$dist/libhugeleaf[0-9]*_$own.deb") || { not_run "C library" "was not built"; return; }
    triplet=$(uname -m)-linux-gnu
    say "C library"
    debian_root "${releases[0]}" "$root" || return 0
    if ! has gcc || ! has pkg-config; then
        not_run "C library" "apt-get install gcc pkg-config"
        leave_root "$root"
        return
    fi
    mkdir "$prefix"
    dpkg-deb --extract "$deb" "$prefix"
    dpkg-deb --extract "$dist"/libhugeleaf-dev_*_"$own".deb "$prefix"
    read -ra said < <(PKG_CONFIG_PATH=$prefix/usr/lib/$triplet/pkgconfig PKG_CONFIG_SYSROOT_DIR=$prefix pkg-config --cflags --libs hugeleaf)
    cat >"$work/version.c" <<'END'
#include <hugeleaf.h>
#include <stdio.h>
int main(void) { return puts(hl_version()) < 0; }
END
    gcc -Werror -o "$root/version" "$work/version.c" "${said[@]}"
    cp "$deb" "$root/library.deb"
    # The header is for compiling, so the library alone is enough to run.
    quietly chroot "$root" dpkg --install /library.deb
    [ "$(chroot "$root" /version)" = "$version" ] || failed "a program does not run with the library"
    quietly chroot "$root" dpkg --purge "$(dpkg-deb --field "$deb" Package)"
    gcc -Werror -o "$root/version" -I"$prefix/usr/include" "$work/version.c" "$prefix/usr/lib/$triplet/libhugeleaf.a" -lpthread -ldl -lm
    [ "$(chroot "$root" /version)" = "$version" ] || failed "a program does not run with the static library"
    if has rpm; then
        [[ $(rpm --query --package --provides "$dist"/libhugeleaf[0-9]*."$(uname -m)".rpm) == *libhugeleaf.so.* ]] ||
            failed "the package for rpm does not provide the library"
    fi
    leave_root "$root"
}

read -ra releases <<<"${ROOTS:-bookworm trixie}"
check_manifest
check_lints
pack_again
for release in "${releases[@]}"; do try_deb "$release"; done
try_rpm
for file in "$dist"/hugeleaf-*-linux-*.tar.gz; do try_archive "$file"; done
for file in "$dist"/hugeleaf-*-oci-*.tar; do try_image "$file"; done
try_wheel
try_library
say "all packages work"
