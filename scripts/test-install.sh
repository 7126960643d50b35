#!/usr/bin/env bash
# Tests packaging/install.sh with small releases made here: as a user and as root, from a folder and from a server on
# loopback, and with what can go wrong. As root it runs in a mount namespace with an /etc and /usr/local of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" != --inside ]; then
    work=$(mktemp -d)
    trap 'rm -rf --one-file-system "$work"' EXIT
    if [ "$(id -u)" != 0 ]; then
        echo "not run: install as root: needs root"
        "$0" --inside "$work"
    elif unshare --mount true 2>/dev/null; then
        unshare --mount "$0" --inside "$work"
    else
        echo "not run: install.sh: needs a mount namespace"
    fi
    exit
fi
work=$2
chmod 755 "$work"
installer=$work/1.0.0/install.sh
fail() { printf 'FAILED: %s\n%s\n' "$*" "${said:-}" >&2; exit 1; }

# A release whose program is a script that prints its version. $2 is a file that only this version has.
release() { # VERSION FILE
    local name=hugeleaf-$1-linux-$architecture folder=$work/$1
    local root=$folder/$name
    mkdir -p "$root"/{bin,share/man/man1,share/doc/hugeleaf,etc/hugeleaf,lib/systemd/system,lib/systemd/user,lib/sysusers.d}
    printf '#!/bin/sh\n[ "$1" != undo ] || { cat "${0%%/*}/../in-force" 2>/dev/null; exit; }\necho hugeleaf %s\n' "$1" >"$root/bin/hugeleaf"
    chmod 755 "$root/bin/hugeleaf"
    echo page >"$root/share/man/man1/$2"
    cp packaging/guard.toml "$root/etc/hugeleaf/"
    cp contrib/systemd/hugeleaf-guard.service "$root/lib/systemd/system/"
    cp contrib/systemd/user/hugeleaf-guard.service "$root/lib/systemd/user/"
    cp contrib/sysusers.d/hugeleaf.conf "$root/lib/sysusers.d/"
    cp packaging/install.sh "$folder/"
    pack "$folder" "$name"
}
# Makes the archive of a release from its unpacked folder, which it removes, and the checksums.
pack() { # FOLDER NAME
    tar -C "$1" -czf "$1/$2.tar.gz" "$2"
    rm -r "${1:?}/$2"
    (cd "$1" && sha256sum -- *.tar.gz >SHA256SUMS)
}
case $(uname -m) in x86_64) architecture=x86-64 ;; aarch64) architecture=arm64 ;; *) echo "not run: install.sh: no archive for $(uname -m)"; exit ;; esac
release 1.0.0 first.1
release 1.1.0 second.1

user=()
[ "$(id -u)" != 0 ] || user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
# Runs the installer as an ordinary user with a home of its own.
as_user() { # COMMAND…
    said=$(env -u XDG_CONFIG_HOME -u XDG_STATE_HOME HOME="$home" "${user[@]}" "$@" 2>&1)
}
expect() { # STATUS WORDS COMMAND…
    local status=0
    "${@:3}" || status=$?
    [ "$status" = "$1" ] || fail "${*:3}: status $status instead of $1"
    [[ $said == *"$2"* ]] || fail "${*:3}: does not say: $2"
    # An error says what to do.
    [ "$1" = 0 ] || [[ $said == *"next: "* ]] || fail "${*:3}: no next step"
}
new_home() {
    home=$work/home-$((++homes))
    mkdir "$home"
    [ "$(id -u)" != 0 ] || chown 65534:65534 "$home"
}
homes=0
files() { find "$home" ! -type d | sort; }

echo "== a user: install, upgrade, remove"
new_home
expect 0 "installed hugeleaf 1.0.0" as_user sh "$installer"
expect 0 "is not in PATH" as_user sh "$installer"
[ "$("$home/.local/bin/hugeleaf" --version)" = "hugeleaf 1.0.0" ] || fail "the program does not run"
grep -qx "ExecReload=$home/.local/bin/hugeleaf guard reload" "$home/.local/share/systemd/user/hugeleaf-guard.service" ||
    fail "the reload of the unit does not fit the place"
grep -qx "ExecStart=$home/.local/bin/hugeleaf guard --config %E/hugeleaf/guard.toml" "$home/.local/share/systemd/user/hugeleaf-guard.service" ||
    fail "the unit does not fit the place"
[ -f "$home/.local/share/man/man1/first.1" ] || fail "no manual page"
echo "# mine" >>"$home/.config/hugeleaf/guard.toml"
expect 0 "installed hugeleaf 1.1.0" as_user sh "$work/1.1.0/install.sh"
[ ! -e "$home/.local/share/man/man1/first.1" ] || fail "a file of the old version is left"
[ -f "$home/.local/share/man/man1/second.1" ] || fail "no file of the new version"
grep -q '^# mine' "$home/.config/hugeleaf/guard.toml" || fail "the configuration was replaced"
expect 0 "installed hugeleaf 1.0.0" as_user sh "$installer"
[ ! -e "$home/.local/share/man/man1/second.1" ] || fail "a downgrade leaves a file"
expect 0 "would remove $home/.local/bin/hugeleaf" as_user sh "$installer" --remove --dry-run
expect 0 "kept configuration" as_user sh "$installer" --remove
[ "$(files)" = "$home/.config/hugeleaf/guard.toml" ] || fail "left behind: $(files)"
[ ! -e "$home/.local" ] || [ -z "$(ls -A "$home/.local")" ] || fail "folders are left: $(find "$home/.local")"
expect 3 "has installed nothing" as_user sh "$installer" --remove

echo "== dry run, choices, wrong usage"
new_home
expect 0 "would install $home/.local/bin/hugeleaf" as_user sh "$installer" --dry-run
[ -z "$(ls -A "$home")" ] || fail "a dry run wrote $(find "$home")"
mkdir "$work/both"
cp "$work"/1.*/*.tar.gz "$work/both"
cat "$work"/1.*/SHA256SUMS >"$work/both/SHA256SUMS"
expect 3 "several versions" as_user sh "$installer" --from "$work/both"
expect 0 "installed hugeleaf 1.1.0" as_user sh "$installer" --from "$work/both" --version 1.1.0
expect 3 "no archive of version 2.0.0" as_user sh "$installer" --version 2.0.0
expect 2 "unknown option" as_user sh "$installer" --unknown
expect 2 "needs a value" as_user sh "$installer" --prefix
expect 2 "not an absolute" as_user sh "$installer" --prefix relative
expect 2 "characters" as_user sh "$installer" --prefix "$home/a|b"
expect 3 "is not an https address" as_user sh "$installer" --from http://192.0.2.1/
expect 3 "no archives next to" as_user sh -s <"$installer"
expect 0 "$home/other/bin/hugeleaf" as_user sh "$installer" --prefix "$home/other/"

echo "== two releases side by side"
new_home
expect 0 "installed hugeleaf 1.0.0" as_user sh "$installer" --prefix "$home/one"
expect 0 "now starts this one" as_user sh "$work/1.1.0/install.sh" --prefix "$home/two"
[ "$("$home/one/bin/hugeleaf" --version) $("$home/two/bin/hugeleaf" --version)" = "hugeleaf 1.0.0 hugeleaf 1.1.0" ] ||
    fail "one release replaced the other"
expect 0 "kept $home/.config/systemd/user/hugeleaf-guard.service" as_user sh "$installer" --remove --prefix "$home/one"
[ ! -e "$home/one" ] || fail "left behind: $(find "$home/one")"
grep -qx "ExecStart=$home/two/bin/hugeleaf guard --config %E/hugeleaf/guard.toml" "$home/.config/systemd/user/hugeleaf-guard.service" ||
    fail "the unit of the other release is gone"
expect 0 "removed hugeleaf" as_user sh "$installer" --remove --prefix "$home/two"
[ "$(files)" = "$home/.config/hugeleaf/guard.toml" ] || fail "left behind: $(files)"

echo "== with BusyBox and nothing else"
if command -v busybox >/dev/null; then
    mkdir "$work/busybox"
    for applet in $(busybox --list); do ln -s "$(command -v busybox)" "$work/busybox/$applet"; done
    new_home
    in_busybox() { as_user env PATH="$work/busybox" "$work/busybox/sh" "$@"; }
    expect 0 "installed hugeleaf 1.0.0" in_busybox "$installer"
    expect 0 "installed hugeleaf 1.1.0" in_busybox "$work/1.1.0/install.sh"
    [[ $said != *"not found"* ]] || fail "it uses a command that BusyBox lacks"
    [ ! -e "$home/.local/share/man/man1/first.1" ] || fail "a file of the old version is left"
    expect 0 "removed hugeleaf" in_busybox "$installer" --remove
    [[ $said != *"not found"* ]] || fail "it uses a command that BusyBox lacks"
else
    echo "not run: install.sh with BusyBox: apt-get install busybox-static"
fi

echo "== a damaged archive, a foreign machine"
new_home
cp -r "$work/1.0.0" "$work/damaged"
printf x >>"$work/damaged/hugeleaf-1.0.0-linux-$architecture.tar.gz"
expect 3 "the checksum of" as_user sh "$work/damaged/install.sh"
rm "$work"/damaged/*.tar.gz
expect 3 "cannot read" as_user sh "$work/damaged/install.sh"
echo "0000 not a sum" >"$work/damaged/SHA256SUMS"
expect 3 "has no archive" as_user sh "$work/damaged/install.sh"
rm "$work/damaged/SHA256SUMS"
expect 3 "there are no archives" as_user sh "$work/damaged/install.sh"
mkdir "$work/fake"
printf '#!/bin/sh\n[ "$1" = -s ] && echo Linux || echo riscv64\n' >"$work/fake/uname"
chmod 755 "$work/fake/uname"
expect 3 "no archive for riscv64" as_user env PATH="$work/fake:$PATH" sh "$installer"
[ -z "$(files)" ] || fail "a failure left $(files)"

echo "== a second instance, and one that was killed"
new_home
as_user mkdir -p "$home/.local/.hugeleaf-install"
# kill -0 of the installer needs a process of the same user.
"${user[@]}" sleep 60 &
other=$!
as_user sh -c "echo $other >$home/.local/.hugeleaf-install/pid"
expect 3 "another install.sh works on" as_user sh "$installer"
kill "$other"
wait "$other" 2>/dev/null || true
expect 0 "installed" as_user sh "$installer"
[ ! -e "$home/.local/.hugeleaf-install" ] || fail "the folder for unpacking is left"

echo "== killed at each file: the next run and the removal are complete"
cat >"$work/fake/mv" <<'END'
#!/bin/sh
echo x >>"$COUNT"
[ "$(wc -l <"$COUNT")" != "$KILL_AT" ] || { kill -KILL $PPID; exit 1; }
exec /bin/mv "$@"
END
chmod 755 "$work/fake/mv"
rm "$work/fake/uname"
for at in 1 2 3 4 5 6 7; do
    new_home
    as_user sh "$installer" || fail "install"
    as_user touch "$home/count"
    ! as_user env PATH="$work/fake:$PATH" COUNT="$home/count" KILL_AT=$at sh "$work/1.1.0/install.sh" ||
        fail "killed at $at, and yet it ended well"
    rm -f "$home/count"
    if [ $((at % 2)) = 0 ]; then expect 0 "installed hugeleaf 1.1.0" as_user sh "$work/1.1.0/install.sh"; fi
    expect 0 "removed hugeleaf" as_user sh "$installer" --remove
    [ "$(files)" = "$home/.config/hugeleaf/guard.toml" ] || fail "killed at $at: left behind: $(files)"
done

echo "== a server on loopback"
if command -v python3 >/dev/null && command -v curl >/dev/null; then
    new_home
    python3 -u -m http.server --bind 127.0.0.1 --directory "$work/1.0.0" 0 >"$work/server" 2>&1 &
    server=$!
    trap 'kill "$server" 2>/dev/null || true' EXIT
    for _ in $(seq 100); do
        port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$work/server")
        [ -z "$port" ] || break
        sleep 0.1
    done
    piped() { as_user sh -s -- --from "http://127.0.0.1:$port/" <"$installer"; }
    expect 0 "installed hugeleaf 1.0.0" piped
    expect 3 "cannot download" as_user sh "$installer" --from "http://127.0.0.1:$port/none"
    kill "$server"
else
    echo "not run: install.sh from a server: needs python3 and curl"
fi

echo "== a folder that cannot be written, a full file system"
new_home
chmod 555 "$home"
expect 3 "cannot write to" as_user sh "$installer"
chmod 755 "$home"
[ "$(id -u)" = 0 ] || exit 0
mount -t tmpfs -o size=64k,mode=777 full "$home"
name=hugeleaf-1.1.0-linux-$architecture
tar -C "$work/1.1.0" -xzf "$work/1.1.0/$name.tar.gz"
head -c 100000 /dev/urandom >"$work/1.1.0/$name/bin/ballast"
pack "$work/1.1.0" "$name"
expect 0 "installed hugeleaf 1.0.0" as_user sh "$installer"
expect 3 "next: " as_user sh "$work/1.1.0/install.sh"
[ "$("$home/.local/bin/hugeleaf" --version)" = "hugeleaf 1.0.0" ] || fail "the installed version is gone"
expect 0 "removed" as_user sh "$installer" --remove
mount -o remount,ro "$home"
expect 3 "cannot write to" as_user sh "$installer"
umount "$home"

echo "== a program that does not start"
mount -t tmpfs -o noexec,mode=777 noexec "$home"
expect 3 "does not start" as_user sh "$installer"
[[ $said == *"noexec"* ]] || fail "it does not name the cause: $said"
[ -z "$(files)" ] || fail "a failure left $(files)"
umount "$home"

echo "== root: /usr/local, the unit, the group"
mkdir "$work/etc" "$work/local" "$work/opt"
cp -a /etc/. "$work/etc"
rm -rf "$work/etc/hugeleaf"
mount --bind "$work/etc" /etc
mount --bind "$work/local" /usr/local
mount --bind "$work/opt" /opt
as_root() { said=$(env HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" 2>&1); }
expect 0 "installed hugeleaf 1.0.0" as_root sh "$installer"
grep -qx "ExecStart=/usr/local/bin/hugeleaf guard" /usr/local/lib/systemd/system/hugeleaf-guard.service ||
    fail "the unit does not fit the place"
getent group hugeleaf >/dev/null || fail "no group"
[ -f /etc/hugeleaf/guard.toml ] || fail "no configuration"
echo "3  x  in force  2  plan.toml" >/usr/local/in-force
expect 3 "an applied plan is in force" as_root sh "$installer" --remove
[ -x /usr/local/bin/hugeleaf ] || fail "removed in spite of a plan"
rm /usr/local/in-force
expect 0 "rm -r /etc/hugeleaf" as_root sh "$installer" --remove
[ -z "$(find /usr/local ! -type d)" ] || fail "left behind: $(find /usr/local ! -type d)"
expect 0 "installed" as_root sh "$installer" --prefix /opt/hugeleaf-test
[ -f /etc/systemd/system/hugeleaf-guard.service ] || fail "systemd would not find the unit"
expect 0 "removed" as_root sh "$installer" --remove --prefix /opt/hugeleaf-test
[ ! -e /etc/systemd/system/hugeleaf-guard.service ] || fail "the unit is left"
[ ! -e /opt/hugeleaf-test ] || { rmdir /opt/hugeleaf-test && fail "the folder is left"; }
echo "install.sh: all passed"
