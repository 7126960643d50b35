#!/bin/bash
# Runs in a guest of scripts/dist-guest.sh: bash inside.sh VERSION
# Upgrades, removes and purges the package while its guard promotes a server, on a systemd that really runs.
set -euo pipefail

version=$1
files=/payload/bin
# Without the folder of the guest's files: it has a hugeleaf that is not the package's.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
new=$files/hugeleaf_$version-1_amd64.deb
old=$files/hugeleaf_0.0.9-1_amd64.deb
unit=hugeleaf-guard.service
said=/tmp/said
megabytes=128

say() { printf '== %s (%d s)\n' "$*" "$SECONDS"; }
failed() {
    printf 'FAILED: %s\n' "$*"
    systemctl --no-pager --lines 0 status $unit victim.service || true
    journalctl --no-pager --lines 40 --unit $unit --unit victim.service || true
    exit 1
}
quietly() { "$@" >$said 2>&1 || failed "$*: $(cat $said)"; }
# Waits until a command succeeds. The guest is emulated, on a machine that may be busy.
until_true() { # COMMAND…
    local deadline=$((SECONDS + 900))
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || failed "not within 900 s: $*"
        sleep 1
    done
}
finished() { echo "$1: $((SECONDS - $2)) s"; }

installed() { # VERSION
    local got
    got=$(dpkg-query --show --showformat '${Version} ${db:Status-Status}' hugeleaf)
    [ "$got" = "$1 installed" ] || failed "the package is $got, expected $1 installed"
}
guard_pid() { systemctl show --property MainPID --value $unit; }
guard_runs() { [ "$(systemctl is-active $unit)" = active ]; }
# The guard runs the installed program, not one that was replaced.
guard_is_current() { guard_runs && [ "$(readlink "/proc/$(guard_pid)/exe")" = /usr/bin/hugeleaf ]; }

start_victim() {
    rm -f /run/victim
    systemctl reset-failed victim.service 2>/dev/null || true
    quietly systemd-run --unit victim.service python3 $files/victim.py $megabytes /run/victim
    until_true test -s /run/victim
    victim=$(systemctl show --property MainPID --value victim.service)
}
huge_kib() { awk '/^AnonHugePages:/ { print $2 }' "/proc/$victim/smaps_rollup"; }
has_huge() { [ "$(huge_kib)" -ge "$1" ]; } # KIB
most=$((megabytes * 1024 * 95 / 100))
# Half an upgrade is not seen by the server: it has read all its bytes again, and they are the same.
victim_is_well() {
    local before now
    systemctl is-active --quiet victim.service || failed "the server has ended"
    before=$(cat /run/victim)
    read_again() { now=$(cat /run/victim); [ "$now" -ge $((before + 2)) ]; }
    until_true read_again
}

rules() { # BUDGET
    printf '%s\n' 'every = "2s"' '[[rule]]' 'unit = "victim.service"' 'action = "promote"' \
        "budget = \"$1\"" 'scans = 1' 'min_bytes = "16M"' | sed '1i schema = 1' >/etc/hugeleaf/guard.d/victim.toml
}

# Starts a server and a slow guard, and returns when the guard has promoted a part of it.
begin_promotion() {
    rules 2%
    systemctl restart $unit
    start_victim
    until_true has_huge 4096
    ! has_huge $most || failed "the guard has promoted everything before the upgrade: $(huge_kib) KiB"
}
end_promotion() {
    rules 90%
    quietly systemctl reload $unit
    until_true has_huge $most
    victim_is_well
    systemctl stop victim.service
}

change_with() { # WHAT VERSION COMMAND…
    local before start=$SECONDS share
    begin_promotion
    before=$(guard_pid)
    share=$(huge_kib)
    quietly "${@:3}"
    installed "$2"
    until_true guard_is_current
    [ "$(guard_pid)" != "$before" ] || failed "$1: the old guard still runs"
    systemctl is-active --quiet victim.service || failed "$1: the server has ended"
    echo "$1 at $((share / 1024)) of $megabytes MiB; $(huge_kib) KiB after it"
    end_promotion
    finished "$1" "$start"
}

first_installation() {
    local start
    say "install"
    quietly dpkg --install $old
    installed 0.0.9-1
    ! guard_runs || failed "the installation starts the guard"
    [ "$(systemctl is-enabled $unit || true)" = disabled ] || failed "the installation enables the guard"
    getent group hugeleaf >/dev/null || failed "no group"
    start=$(date +%s%N)
    hugeleaf status >$said 2>&1 || [ $? = 1 ] || failed "status: $(cat $said)"
    echo "status in $((($(date +%s%N) - start) / 1000000)) ms"
    echo "# mine" >>/etc/hugeleaf/guard.toml
    quietly systemctl enable --now $unit
    guard_is_current || failed "the guard does not start"
    hugeleaf guard status >$said 2>&1 || failed "guard status: $(cat $said)"
}

reload() {
    local before
    say "reload"
    before=$(guard_pid)
    rules 2%
    quietly systemctl reload $unit
    reloaded() { grep -q reload <<<"$(hugeleaf guard log --lines 20)"; }
    until_true reloaded
    # Wrong rules are refused, and the guard continues.
    echo 'action = nonsense' >>/etc/hugeleaf/guard.d/victim.toml
    systemctl reload $unit >/dev/null 2>&1 || true
    refused() { grep -q 'stay in force' <<<"$(hugeleaf guard status 2>&1)"; }
    until_true refused
    rules 2%
    quietly systemctl reload $unit
    accepted() { ! refused; }
    until_true accepted
    [ "$(guard_pid)" = "$before" ] || failed "a reload restarts the guard"
}

# dpkg unpacks, and its script is killed in the middle of the configuration.
half_configured() {
    local start=$SECONDS dpkg
    say "half-configured"
    begin_promotion
    mkdir -p /tmp/slow
    printf '#!/bin/sh\ntouch /tmp/slow/reached\nsleep 600\n' >/tmp/slow/systemd-sysusers
    chmod 755 /tmp/slow/systemd-sysusers
    quietly dpkg --unpack $new
    hugeleaf --version >$said 2>&1 || failed "the unpacked program: $(cat $said)"
    guard_runs || failed "unpacking stops the guard"
    PATH=/tmp/slow:$PATH setsid dpkg --configure hugeleaf >/dev/null 2>&1 &
    dpkg=$!
    until_true test -e /tmp/slow/reached
    kill -KILL -- -$dpkg
    wait $dpkg 2>/dev/null || true
    [ "$(dpkg-query --show --showformat '${db:Status-Status}' hugeleaf)" = half-configured ] ||
        failed "the package is $(dpkg-query --show --showformat '${db:Status-Status}' hugeleaf)"
    guard_runs || failed "the guard has ended"
    quietly dpkg --configure --pending
    installed "$version-1"
    until_true guard_is_current
    end_promotion
    rm -r /tmp/slow
    finished "half-configured" "$start"
}

# dpkg is killed at several moments of an installation; the same command then repairs the package.
killed() {
    local pause dpkg start=$SECONDS state states=
    say "killed in the middle"
    for pause in 0.1 0.4 0.8 1.5 3; do
        setsid dpkg --install $old >/dev/null 2>&1 &
        dpkg=$!
        # Each time at another moment of the installation.
        sleep $pause
        kill -KILL -- -$dpkg 2>/dev/null || true
        wait $dpkg 2>/dev/null || true
        state=$(dpkg-query --show --showformat '${db:Status-Status}' hugeleaf)
        states+=" $state"
        guard_runs || failed "killed after $pause s, $state: the guard has ended"
        quietly dpkg --install $new
        installed "$version-1"
    done
    until_true guard_is_current
    [ -z "$(find / -xdev -name '*.dpkg-new' -o -xdev -name '*.dpkg-tmp' | head -n 1)" ] || failed "dpkg leaves files"
    echo "killed in the states:$states"
    finished "killed" "$start"
}

# A state file of a later version, as after a downgrade, is moved aside and reported.
newer_state() {
    say "state of a later version"
    systemctl stop $unit
    echo '{"schema": 99, "boot": "", "state": {}}' >/var/lib/hugeleaf/guard.json
    quietly systemctl start $unit
    journal_says() { grep -q 'guard.json: .*renamed to .bad' <<<"$(journalctl --unit $unit)"; }
    until_true journal_says
    guard_runs || failed "the guard does not run"
    [ -e /var/lib/hugeleaf/guard.json.bad ] || failed "the file is gone"
}

# The state folder on a full and on a read-only file system: the guard says so and continues.
faulty_file_systems() {
    say "read-only /usr, full state folder"
    mount --bind /usr /usr
    mount -o remount,bind,ro /usr
    ! dpkg --install $old >$said 2>&1 || failed "dpkg installs on a read-only /usr"
    grep -qi 'read-only' $said || failed "dpkg does not say why: $(cat $said)"
    guard_runs || failed "the guard has ended"
    umount --lazy /usr
    quietly dpkg --install $new
    installed "$version-1"

    systemctl stop $unit
    mount -t tmpfs -o size=64k,mode=755 full /var/lib/hugeleaf
    head -c 100000 /dev/zero >/var/lib/hugeleaf/ballast 2>/dev/null || true
    quietly systemctl start $unit
    begin_promotion
    grep -qi 'space\|state' <<<"$(hugeleaf guard status)" || failed "the guard does not report the full folder: $(hugeleaf guard status)"
    end_promotion
    systemctl stop $unit
    umount /var/lib/hugeleaf
    systemctl start $unit
}

side_by_side() {
    say "an archive beside the package"
    quietly sh $files/install.sh
    until_true guard_runs
    [ "$(readlink "/proc/$(guard_pid)/exe")" = /usr/local/bin/hugeleaf ] || failed "the guard is not the archive's"
    quietly sh $files/install.sh --remove
    ! guard_runs || failed "the removed guard still runs"
    quietly systemctl enable --now $unit
    until_true guard_is_current
}

# The guard of an ordinary user, from the archive.
user_guard() {
    local runtime user=(runuser --user tester --)
    say "a user's guard"
    useradd --create-home tester
    runtime=/run/user/$(id -u tester)
    if ! loginctl enable-linger tester 2>$said; then
        echo "not run: a user's guard: $(cat $said)"
        return
    fi
    until_true test -S "$runtime/systemd/private"
    user+=(env "XDG_RUNTIME_DIR=$runtime" HOME=/home/tester)
    quietly "${user[@]}" sh $files/install.sh
    quietly "${user[@]}" systemctl --user daemon-reload
    quietly "${user[@]}" systemctl --user enable --now $unit
    quietly "${user[@]}" /home/tester/.local/bin/hugeleaf guard status --socket "$runtime/hugeleaf/guard.sock"
    quietly "${user[@]}" systemctl --user reload $unit
    quietly "${user[@]}" sh $files/install.sh
    [ "$("${user[@]}" systemctl --user is-active $unit)" = active ] || failed "the user's guard does not survive an upgrade"
    quietly "${user[@]}" sh $files/install.sh --remove
    [ "$("${user[@]}" systemctl --user is-active $unit)" = inactive ] || failed "the user's guard survives its removal"
    loginctl disable-linger tester
}

containers() {
    local runtime text
    say "the image"
    [ -e $files/image-bundle.tar ] || { echo "not run: the image: no bundle"; return; }
    mkdir -p /tmp/bundle
    tar --extract --file $files/image-bundle.tar --directory /tmp/bundle
    for runtime in runc crun; do
        command -v $runtime >/dev/null || { echo "not run: the image under $runtime: not installed"; continue; }
        text=$($runtime run --bundle /tmp/bundle "try-$runtime" </dev/null 2>&1) || [ $? = 1 ] || failed "$runtime: $text"
        [ -n "$text" ] || failed "status under $runtime prints nothing"
        # As docs/guide/install.md starts it: the processes of the host, and the rights to read them.
        python3 $files/host-container.py /tmp/bundle/config.json mem
        text=$($runtime run --bundle /tmp/bundle "mem-$runtime" </dev/null 2>&1) || failed "mem under $runtime: $text"
        grep -q systemd <<<"$text" || failed "mem under $runtime lists no process of the host: $text"
        tar --extract --file $files/image-bundle.tar --directory /tmp/bundle config.json
        echo "$runtime: status and mem of the image work"
    done
    rm -r /tmp/bundle
}

removal() {
    local start=$SECONDS
    say "remove and purge"
    begin_promotion
    quietly dpkg --remove hugeleaf
    ! guard_runs || failed "the guard still runs"
    [ ! -e /usr/bin/hugeleaf ] || failed "the program is still there"
    tail -n 1 /etc/hugeleaf/guard.toml | grep -qx '# mine' || failed "the removal took the rules"
    victim_is_well
    systemctl stop victim.service
    # Removed and not purged: the rules are still in force after another installation.
    quietly dpkg --install $new
    until_true guard_is_current
    quietly dpkg --purge hugeleaf
    [ "$(systemctl show --property LoadState --value $unit)" = not-found ] || failed "systemd still knows the unit"
    rm -rf /etc/hugeleaf/guard.d /etc/hugeleaf/guard.toml
    rmdir /etc/hugeleaf 2>/dev/null || true
    local left
    left=$(find / -xdev \( -path /proc -o -path /sys -o -path /payload -o -path /run -o -path "$(cat /payload/repository-path)" \) -prune -o \
        -path '*hugeleaf*' ! -name 'hugeleaf-vm*' -print | grep -v '^/var/lib/dpkg/\|^/var/log/\|^/tmp/\|^/var/lib/hugeleaf-vm' || true)
    [ -z "$left" ] || failed "removal and purge leave: $left"
    finished "removal" "$start"
}

# The limits of the unit are for processors that are not emulated.
mkdir -p /run/systemd/system/$unit.d
printf '[Service]\nTimeoutStartSec=900\nWatchdogSec=900\n' >/run/systemd/system/$unit.d/emulated.conf
# Debian's kernel has THP "always"; the server is to start on base pages.
echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
first_installation
reload
say "upgrade and downgrade while the guard promotes"
change_with upgrade "$version-1" dpkg --install $new
change_with downgrade 0.0.9-1 dpkg --install $old
half_configured
killed
newer_state
faulty_file_systems
side_by_side
user_guard
containers
removal
say "all parts passed"
