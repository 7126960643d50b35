#!/bin/sh
# Makes a temporary host for a scenario. Changes nothing outside of FOLDER, except with POOLS=host.
#
# usage: host.sh start FOLDER [ROOT]    FOLDER/sh is then a shell in that host
#        host.sh stop FOLDER
#
# Without ROOT the host is a copy of this one (an overlay in memory), with processes of its own. With ROOT, the root
# directory of a Debian, the host is that Debian, run by its systemd (systemd-nspawn). FOLDER/tmp has the same path on both
# sides.
# POOLS=host: the host has the pools of this machine instead of made ones. The caller then holds the lock of the tests.
set -eu

fail() { printf '%s\n  next: %s\n' "$1" "$2" >&2; exit 3; }

# Copies the kernel's files, with empty pools. The pool of the only node is a hard link to the pool of the host.
make_pools() { # FOLDER
    cp -r --no-preserve=all /sys/kernel/mm "$1/mm" 2>/dev/null || true
    mkdir "$1/node"
    for name in has_cpu has_memory has_normal_memory online possible; do
        echo 0 >"$1/node/$name"
    done
    cp -r --no-preserve=all /sys/devices/system/node/node0 "$1/node/node0" 2>/dev/null || true
    for pool in "$1"/mm/hugepages/*; do
        for file in "$pool"/*_hugepages; do echo 0 >"$file"; done
        ln -f "$pool/nr_hugepages" "$pool/free_hugepages"
        for file in nr free surplus; do
            file=${file}_hugepages
            ln -f "$pool/$file" "$1/node/node0/hugepages/${pool##*/}/$file"
        done
    done
}

# Mounts the files of the host, then runs until the host is stopped, or for an hour at most.
copy_of_this_host() { # FOLDER
    cd /
    mount -t tmpfs -o mode=755 none "$1/disk"
    mkdir "$1/disk/upper" "$1/disk/work"
    mount -t overlay -o "lowerdir=/,upperdir=$1/disk/upper,workdir=$1/disk/work" none "$1/root"
    mount -t proc none "$1/root/proc"
    mount --rbind /sys "$1/root/sys"
    mount --rbind /dev "$1/root/dev"
    mount -t tmpfs -o mode=755 none "$1/root/run"
    mount -t tmpfs -o mode=755 none "$1/root/var/lib/hugeleaf" 2>/dev/null || true
    mkdir -p "$1/root$1/tmp"
    mount --bind "$1/tmp" "$1/root$1/tmp"
    if [ -d "$1/made" ]; then
        mount --bind "$1/made/mm" "$1/root/sys/kernel/mm"
        mount --bind "$1/made/node" "$1/root/sys/devices/system/node"
    fi
    : >"$1/root/run/made-for-a-test"
    exec chroot "$1/root" sleep 3600
}

start() { # FOLDER [ROOT]
    [ "$(id -u)" = 0 ] || fail "a host for tests needs root: mounts" "run it as root"
    [ ! -e "$1/pid" ] || fail "$1: a host is running there" "host.sh stop $1"
    mkdir -p "$1/tmp" "$1/root" "$1/disk"
    if [ "${POOLS:-made}" = made ] && [ ! -d "$1/made" ]; then
        mkdir "$1/made"
        make_pools "$1/made"
    fi
    folder=$1
    # Redirected, because a reader of the caller's output would otherwise wait for the end of the host.
    if [ $# = 1 ]; then
        setsid unshare --mount --pid --fork --kill-child "$0" copy "$folder" >"$folder/log" 2>&1 </dev/null &
        ready='test -e /run/made-for-a-test'
    else
        root=$2
        set -- --bind="$folder/tmp"
        [ ! -d "$folder/made" ] ||
            set -- "$@" --bind="$folder/made/mm:/sys/kernel/mm" --bind="$folder/made/node:/sys/devices/system/node"
        setsid systemd-nspawn --quiet --register=no --keep-unit --volatile=overlay --directory="$root" "$@" --boot \
            >"$folder/log" 2>&1 </dev/null &
        # shellcheck disable=SC2016  # for the shell of the host
        ready='case $(systemctl is-system-running) in running | degraded) ;; *) false ;; esac'
    fi
    outer=$!
    echo "$outer" >"$folder/outer"
    # The first process of the host, which both commands start as their child.
    pid=
    tries=0
    until pid=$(pgrep --parent "$outer" | head -n 1) && [ -n "$pid" ] &&
        nsenter --target "$pid" --mount --pid --root /bin/sh -c "$ready" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" = 600 ] || ! kill -0 "$outer" 2>/dev/null; then
            fail "the host did not start: $(tail -n 3 "$folder/log")" "see $folder/log"
        fi
        sleep 0.1
    done
    echo "$pid" >"$folder/pid"
    cat >"$folder/sh" <<END
#!/bin/sh
exec nsenter --target $pid --mount --uts --ipc --pid --root /usr/bin/env --chdir=/ /bin/sh "\$@"
END
    chmod 755 "$folder/sh"
    # Modules of Ansible start the same shell again, inside of the host.
    "$folder/sh" -c "ln -sf /bin/sh '$folder/sh'"
}

# The kernel may have reused the PID.
is_ours() { # PID FOLDER
    tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -qF -- "$2"
}

stop() { # FOLDER
    outer=$(cat "$1/outer" 2>/dev/null || true)
    if [ -n "$outer" ] && is_ours "$outer" "$1"; then
        [ ! -s "$1/pid" ] || kill -KILL "$(cat "$1/pid")" 2>/dev/null || true
        kill -KILL "$outer" 2>/dev/null || true
        # The mounts of the host end with its last process.
        sleep 0.2
    fi
    for name in outer pid sh log made tmp root disk; do
        rm -rf --one-file-system "${1:?}/$name"
    done
}

case ${1:-} in
start) shift; start "$@" ;;
stop) stop "$2" ;;
copy) copy_of_this_host "$2" ;;
*) echo "usage: $0 start FOLDER [ROOT] | stop FOLDER" >&2; exit 2 ;;
esac
