#!/bin/sh
# Installs the servers that the third tier of tests runs, and what the benchmarks run and compare
# with (smem, other allocators, hugectl, SQLite's shell, a JDK), and what makes and runs virtual machines
# (the fourth tier), where that is possible: as root, with apt. Then Python modules with a SQLite of their own, by pip,
# into target/sqlite-modules.
#
# usage: scripts/install-test-deps.sh [--release]      --release: also the tools that test a release's packages and charts
#
# Starts no service: the tests start servers of their own, in temporary folders.
# Harmless elsewhere: it says what is missing and ends with 0, and the tests say "not run: needs ...".
set -u

release=
if [ "${1:-}" = --release ]; then
    release='lintian rpmlint rpm dnf createrepo-c runc umoci skopeo shellcheck zstd pkg-config binutils busybox-static
        systemd-container golang-github-containers-common'
fi

say() { echo "install-test-deps: $*"; }

have() {
    case $1 in
    postgresql) ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null 2>&1 ;;
    redis-server) command -v redis-server >/dev/null 2>&1 ;;
    mariadb-server) command -v mariadbd >/dev/null 2>&1 || [ -x /usr/sbin/mariadbd ] ;;
    default-jdk-headless) command -v javac >/dev/null 2>&1 ;;
    libhugetlbfs-bin) command -v hugectl >/dev/null 2>&1 ;;
    # hugectl preloads its library by the name that only this package has.
    libhugetlbfs-dev) ls /usr/lib/*/libhugetlbfs.so >/dev/null 2>&1 ;;
    chromium-driver) command -v chromedriver >/dev/null 2>&1 ;;
    # promtool checks metrics and rules; scripts/fleet.sh runs the server too.
    prometheus) command -v promtool >/dev/null 2>&1 ;;
    libjemalloc2) ls /usr/lib/*/libjemalloc.so.2 >/dev/null 2>&1 ;;
    libmimalloc2.0) ls /usr/lib/*/libmimalloc.so.2 >/dev/null 2>&1 ;;
    qemu-system-x86) command -v qemu-system-x86_64 >/dev/null 2>&1 ;;
    qemu-system-arm) command -v qemu-system-aarch64 >/dev/null 2>&1 ;;
    gcc-aarch64-linux-gnu) command -v aarch64-linux-gnu-gcc >/dev/null 2>&1 || [ "$(uname -m)" = aarch64 ] ;;
    libc6-dev-arm64-cross) [ -d /usr/aarch64-linux-gnu/include ] || [ "$(uname -m)" = aarch64 ] ;;
    python3-venv) python3 -c 'import ensurepip, venv' >/dev/null 2>&1 ;;
    xz-utils) command -v xz >/dev/null 2>&1 ;;
    e2fsprogs) command -v mke2fs >/dev/null 2>&1 || [ -x /sbin/mke2fs ] ;;
    createrepo-c) command -v createrepo_c >/dev/null 2>&1 ;;
    runc) [ -x /usr/sbin/runc ] || command -v runc >/dev/null 2>&1 ;;
    binutils) command -v objcopy >/dev/null 2>&1 ;;
    busybox-static) command -v busybox >/dev/null 2>&1 ;;
    systemd-container) command -v systemd-nspawn >/dev/null 2>&1 ;;
    # scripts/kubernetes-test.sh runs containers with the default seccomp profile of this package.
    golang-github-containers-common) [ -r /usr/share/containers/seccomp.json ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

missing() {
    for package in postgresql redis-server mariadb-server smem sqlite3 python3 python3-venv g++ default-jdk-headless \
        libhugetlbfs-bin libhugetlbfs-dev libjemalloc2 libmimalloc2.0 chromium-driver prometheus \
        qemu-system-x86 qemu-system-arm mmdebstrap cpio xz-utils e2fsprogs \
        gcc-aarch64-linux-gnu libc6-dev-arm64-cross $release; do
        have "$package" || printf '%s ' "$package"
    done
}

# Debian's way to say that nothing may be started (policy-rc.d, exit status 101). A file that is
# there already is put back as it was.
policy=/usr/sbin/policy-rc.d
kept=

restore_policy() {
    if [ -n "$kept" ]; then
        mv -f "$kept" "$policy"
    else
        rm -f "$policy"
    fi
}

forbid_services() {
    if [ -e "$policy" ]; then
        kept="$policy.before-hugeleaf-tests"
        mv "$policy" "$kept" || return 1
    fi
    trap restore_policy EXIT
    trap 'exit 1' INT TERM HUP
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
}

# In a shell of its own, whose end restores the policy.
install_packages() (
    wanted=$(missing)
    if [ -z "$wanted" ]; then
        exit 0
    fi
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        say "not installed (needs root and apt): $wanted"
        say "the tests that need them will print 'not run'"
        exit 0
    fi

    forbid_services || { say "cannot write $policy; nothing installed, missing: $wanted"; exit 0; }
    export DEBIAN_FRONTEND=noninteractive
    say "installing $wanted"
    # Lists may be stale or absent, and one package may be unknown here: go one by one, on to the next.
    apt-get update -qq >/dev/null 2>&1 || say "apt-get update failed; trying with the lists at hand"
    for package in $wanted; do
        apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 || true
    done
    left=$(missing)
    [ -z "$left" ] || say "could not install: $left(the tests that need them will print 'not run')"
)

install_modules() {
    folder=$(dirname "$0")/..
    folder=$(cd "$folder" && realpath -m "${CARGO_TARGET_DIR:-target}")/sqlite-modules
    python=$folder/bin/python3
    for pair in pysqlite3:pysqlite3-binary sqlean:sqlean.py apsw:apsw; do
        module=${pair%%:*} package=${pair#*:}
        "$python" -c "import $module" >/dev/null 2>&1 && continue
        if [ ! -x "$python" ] && ! python3 -m venv "$folder" >/dev/null 2>&1; then
            say "no virtual environment: the tests that need pysqlite3, sqlean and apsw will print 'not run'"
            return
        fi
        "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 "$package" >/dev/null 2>&1 ||
            say "could not install $package (the test that needs it will print 'not run')"
    done
}

install_packages
install_modules
exit 0
