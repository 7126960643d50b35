#!/usr/bin/env bash
# Tests the Ansible collection of contrib/ansible after installing it: lint, unit tests, and the role on temporary hosts.
# Leaves everything outside of target/ansible as it was.
#
# usage: scripts/ansible-test.sh [lint|unit|host|pools|systemd]…
#
# lint:    ansible-lint --profile production, and the documents of modules and role.
# unit:    the modules, with a stub of the program.
# host:    molecule: the role on a copy of this machine, with simulated pools.
# pools:   the same with the pools of this machine. Takes the lock of the tests, and checks that no change remains.
# systemd: molecule: the role on a Debian with systemd, with deb and rpm packages and the guard.
#
# Prints "not run: REASON" for a part that cannot run here.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python-packages.sh

[ $# != 0 ] || set -- lint unit host pools systemd
for part in "$@"; do
    case $part in
    lint | unit | host | pools | systemd) ;;
    *) echo "usage: $0 [lint|unit|host|pools|systemd]…" >&2; exit 2 ;;
    esac
done

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/ansible
venv=$work/venv
version=$(sed -n 's/^version: //p' contrib/ansible/galaxy.yml)
mkdir -p "$work"
exec 8>"$work/lock"
flock --nonblock 8 || {
    printf 'another %s works in %s\n  next: wait until it ends\n' "$0" "$work" >&2
    exit 3
}
log=$(mktemp)
declare -A pages_before=()
# Stops the hosts of the scenarios and restores the pools of this machine, also after a failure.
clean_up() {
    local name
    for name in default systemd; do
        contrib/ansible/extensions/molecule/host.sh stop "$work/molecule-$name/host" 2>/dev/null || true
    done
    restore_pools
    rm -f "$log"
}
restore_pools() {
    local pool
    for pool in "${!pages_before[@]}"; do
        [ "$(cat "$pool")" = "${pages_before[$pool]}" ] || echo "${pages_before[$pool]}" >"$pool"
    done
    pages_before=()
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

not_run() { printf 'not run: ansible%s: %s\n' "${1:+ $1}" "$2"; }
step() { printf -- '-- %s (%d s)\n' "$1" "$SECONDS"; }

# The collection as `ansible-galaxy collection install` leaves it.
install_collection() {
    rm -rf "$work/collections" "$work/build"
    ansible-galaxy collection build --output-path "$work/build" contrib/ansible >"$log" 2>&1 || { cat "$log"; exit 1; }
    ansible-galaxy collection install --force --offline --collections-path "$work/collections" \
        "$work/build/hugeleaf-hugeleaf-$version.tar.gz" >"$log" 2>&1 || { cat "$log"; exit 1; }
}

# Packages and archives in the form of a release: 0.1.0 with the program of this checkout, 0.0.9 to upgrade from.
make_packages() {
    local program=${HUGELEAF:-$target/debug/hugeleaf} packages=$work/packages
    [ -n "${HUGELEAF:-}" ] || cargo build --quiet --locked --package hugeleaf-cli
    if [ "$packages/done" -nt "$program" ] && [ "$packages/done" -nt scripts/ansible-test.sh ]; then
        return
    fi
    rm -rf "$packages"
    local one name root
    for one in 0.0.9 0.1.0; do
        name=hugeleaf-$one-linux-x86-64
        root=$packages/$name
        mkdir -p "$root/bin" "$root/lib/systemd/system"
        case $one in
        0.1.0) strip --strip-all -o "$root/bin/hugeleaf" "$program" ;;
        *) printf '#!/bin/sh\necho hugeleaf %s\n' "$one" >"$root/bin/hugeleaf" && chmod 755 "$root/bin/hugeleaf" ;;
        esac
        cp contrib/systemd/hugeleaf-guard.service "$root/lib/systemd/system/"
        tar --create --owner=0 --group=0 --directory "$packages" "$name" | gzip -1 >"$packages/$name.tar.gz"
        cat >"$packages/nfpm.yaml" <<END
name: hugeleaf
arch: amd64
version: $one
maintainer: The hugeleaf developers <hugeleaf@localhost>
description: huge pages for running servers
contents:
  - {src: $root/bin/hugeleaf, dst: /usr/bin/hugeleaf, file_info: {mode: 0755}}
  - {src: contrib/systemd/hugeleaf-guard.service, dst: /usr/lib/systemd/system/hugeleaf-guard.service}
deb: {compression: none}
rpm: {compression: "gzip:1"}
END
        nfpm package --config "$packages/nfpm.yaml" --packager deb --target "$packages/hugeleaf_${one}_amd64.deb" >/dev/null
        nfpm package --config "$packages/nfpm.yaml" --packager rpm --target "$packages/hugeleaf-$one.x86_64.rpm" >/dev/null
        rm -r "$root"
    done
    (cd "$packages" && sha256sum -- *.tar.gz *.deb *.rpm >SHA256SUMS)
    touch "$packages/done"
}

lint() {
    (cd "$work/collections/ansible_collections/hugeleaf/hugeleaf" && ansible-lint --offline --strict --profile production)
    local kind name
    for kind in module:apply module:plan module:undo module:verify role:hugeleaf; do
        name=hugeleaf.hugeleaf.${kind#*:}
        ansible-doc --type "${kind%:*}" "$name" | grep -q . || { echo "$name has no documents"; return 1; }
    done
}

unit() {
    PYTHONPATH=$work/collections "$venv/bin/python" -m unittest discover --start-directory contrib/ansible/tests/unit
}

can_make_hosts() { # PART
    if [ "$(id -u)" != 0 ]; then
        not_run "$1" "needs root, for a host with mounts of its own"
    elif [ "$(uname -m)" != x86_64 ]; then
        not_run "$1" "needs x86-64"
    elif ! unshare --mount true 2>/dev/null || ! grep -qw overlay /proc/filesystems; then
        not_run "$1" "needs mount namespaces and overlayfs"
    else
        return 0
    fi
    return 1
}

# Runs a scenario in a copy of the collection, because molecule writes next to its scenarios.
scenario() { # NAME [VARIABLE=VALUE…]
    local name=$1
    shift
    rm -rf "$work/run"
    mkdir -p "$work/run"
    cp -r contrib/ansible "$work/run/hugeleaf"
    (
        cd "$work/run/hugeleaf"
        export HUGELEAF_TEST_PACKAGES=$work/packages HUGELEAF_TEST_ROOT=$work/root
        env "$@" MOLECULE_EPHEMERAL_DIRECTORY="$work/molecule-$name" molecule test --scenario-name "$name"
    ) >"$log" 2>&1 || { cat "$log"; return 1; }
    grep -E '^(host|localhost) +: ' "$log" | sed 's/^/   /'
}

host() {
    can_make_hosts host || return 0
    make_packages
    scenario default
}

# Prints pools and settings that the role changes, and the files that it writes.
state_of_this_machine() {
    head -n 1 /sys/kernel/mm/hugepages/*/nr_hugepages /proc/sys/vm/hugetlb_shm_group
    # shellcheck disable=SC2012  # known names
    ls -d /etc/hugeleaf /etc/sysctl.d/60-hugeleaf.conf /opt/hugeleaf /usr/local/bin/hugeleaf \
        /var/cache/hugeleaf-ansible 2>&1 | sort
    ls /var/lib/hugeleaf/journal 2>&1
}

pools() {
    can_make_hosts pools || return 0
    if [ -d /sys/devices/system/node/node1 ]; then
        not_run pools "needs a machine with one node"
        return 0
    fi
    make_packages
    local lock=/run/lock/hugeleaf.lock before after pool status=0
    exec 9>>"$lock"
    if ! flock --exclusive --wait "${HUGELEAF_LOCK_WAIT:-900}" 9; then
        not_run pools "another test holds this machine ($lock)"
        return 0
    fi
    for pool in /sys/kernel/mm/hugepages/*/nr_hugepages; do pages_before[$pool]=$(cat "$pool"); done
    before=$(state_of_this_machine)
    scenario default POOLS=host || status=1
    after=$(state_of_this_machine)
    restore_pools
    exec 9>&-
    if [ "$before" != "$after" ]; then
        printf 'the machine was changed:\n%s\n' "$(diff <(echo "$before") <(echo "$after"))"
        status=1
    fi
    return "$status"
}

systemd() {
    can_make_hosts systemd || return 0
    local program codename
    for program in systemd-nspawn:systemd-container mmdebstrap:mmdebstrap nsenter:util-linux; do
        command -v "${program%:*}" >/dev/null || {
            not_run systemd "needs ${program%:*} (on Debian: apt install ${program#*:})"
            return 0
        }
    done
    # shellcheck disable=SC1091
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    if [ ! -e "$work/root/made" ]; then
        rm -rf --one-file-system "$work/root"
        mmdebstrap --quiet --variant=minbase "$codename" "$work/root" \
            --include=systemd,systemd-sysv,dbus,python3,python3-apt,dnf,python3-dnf,rpm >"$log" 2>&1 || {
            not_run systemd "mmdebstrap cannot make a root of $codename: $(tail -n 1 "$log")"
            return 0
        }
        touch "$work/root/made"
    fi
    make_packages
    scenario systemd
}

reason=$(python_packages "$venv" scripts/ansible-requirements.txt)
if [ -n "$reason" ]; then
    not_run "" "$reason"
    exit 0
fi
export PATH=$venv/bin:$PATH ANSIBLE_HOME=$work/home ANSIBLE_COLLECTIONS_PATH=$work/collections
export ANSIBLE_PIPELINING=1 ANSIBLE_NOCOLOR=1 NO_COLOR=1 PYTHONDONTWRITEBYTECODE=1 ANSIBLE_LOCALHOST_WARNING=false
step "the collection"
install_collection
for part in "$@"; do
    step "$part"
    "$part"
done
step "done"
