#!/usr/bin/env bash
# Other people's tests, bare and under `hugeleaf run`: what passes bare must pass under it.
#
# usage: scripts/suites.sh [--out FOLDER] [NAME…]
#
# Names: cpython mtr stress-ng libhugetlbfs; none means all. Each needs what it tests to be installed (Debian: python3 with its
# tests, mariadb-test, stress-ng); libhugetlbfs needs LIBHUGETLBFS=FOLDER, its sources as `make` left them there, and root.
# HUGELEAF is the program (target/release/hugeleaf), SUITE_TESTS a pattern of mtr's tests, CPYTHON_TESTS the names of CPython's.
# In FOLDER: one line a test, its name and what it came to, in NAME.bare and NAME.run; and the suites' own output.
# A test that differs is run twice more on both sides, alone; what differs in all of them fails this script.
# What FOLDER has of a side already is not run again. A suite takes 5 to 30 minutes a side. Nothing of the host is changed but, for libhugetlbfs, a pool that is put back.
set -euo pipefail
cd "$(dirname "$0")/.."

out=
if [ "${1:-}" = --out ]; then
    out=$2
    shift 2
fi
out=${out:-$(mktemp -d)}
mkdir -p "$out"
out=$(cd "$out" && pwd)
hugeleaf=${HUGELEAF:-$PWD/target/release/hugeleaf}
all='cpython mtr stress-ng libhugetlbfs'
names=${*:-$all}
[ -x "$hugeleaf" ] || {
    echo "no program at $hugeleaf: run make build, or set HUGELEAF" >&2
    exit 2
}

# Runs a command bare, or under run: the first word says which.
on() { # bare|run COMMAND…
    local side=$1
    shift
    if [ "$side" = run ]; then
        "$hugeleaf" run -- "$@"
    else
        "$@"
    fi
}

# Each of these runs the tests named, or all of its suite's, prints `NAME RESULT` lines, and keeps the suite's own output.
cpython() { # SIDE LOG [TEST…]
    local side=$1 log=$2
    shift 2
    local tests=("$@")
    if [ ${#tests[@]} -eq 0 ]; then
        # Tests of the network, of debuggers and of the build tree are not about memory.
        read -ra tests <<<"${CPYTHON_TESTS:--x test_gdb test_socket test_ssl test_asyncio test_tools test_peg_generator}"
    fi
    (cd "$work" && on "$side" python3 -m test -j "$(nproc)" --timeout 600 "${tests[@]}") >"$log" 2>&1 || true
    sed -nE 's/^[0-9:. ]*(load avg: [0-9.]* )?\[ *[0-9/]*\] (test[_a-zA-Z0-9.]*) (passed|failed|skipped|crashed).*/\2 \3/p; s/^[0-9:. ]*(load avg: [0-9.]* )?\[ *[0-9]+\/[0-9]+\/[0-9]+\] (test[_a-zA-Z0-9.]*) (passed|failed|skipped|crashed).*/\2 \3/p' "$log"
}

mtr() { # SIDE LOG [TEST…]
    local side=$1 log=$2
    shift 2
    local tests=("$@")
    [ ${#tests[@]} -gt 0 ] || tests=(--suite=main --do-test="${SUITE_TESTS:-(alter|blob|bulk|create|ctype_u|func|group|innodb|insert|join|mem|order|ps|select|sp|stat|sub|temp|union|view)}")
    (cd "$(dirname "$mtr_program")" && on "$side" ./mariadb-test-run.pl --force --max-test-fail=0 --parallel="$(nproc)" --retry=0 \
        --testcase-timeout=10 --vardir="$work/var" "${tests[@]}") >"$log" 2>&1 || true
    sed -nE "s/^([a-zA-Z0-9_]+\.[a-zA-Z0-9_-]+)( '[^']*')? .*\[ (pass|fail|skipped|disabled) \].*/\1\2 \3/p" "$log" | sed -E "s/ '([^']*)'/:\1/"
}

# The stressors of memory that stress-ng can verify, each alone.
stressors='bad-altstack bigheap brk fork madvise malloc memcpy memfd mincore mlock mmap mmapaddr mmapfixed mmapfork mmaphuge mmapmany
    mprotect mremap msync munmap pageswap physpage remap resources rlimit shm shm-sysv sigsegv stack stackmmap tmpfs userfaultfd
    vfork vm vm-addr vm-rw vm-segv vm-splice vma zero zlib matrix qsort tree malloc'
stress_ng() { # SIDE LOG [STRESSOR…]
    local side=$1 log=$2 each status
    shift 2
    : >"$log"
    for each in ${*:-$stressors}; do
        status=0
        (cd "$work" && on "$side" stress-ng --"$each" 2 --timeout 3s --verify --vm-bytes 256M --bigheap-growth 1M --temp-path "$work") >>"$log" 2>&1 || status=$?
        # The limit on memory ends programs that only grow; stress-ng starts them again.
        echo "$each $status"
    done
}

libhugetlbfs() { # SIDE LOG [TEST…]: its driver runs all of them, whichever are asked for.
    local side=$1 log=$2
    # Where a limit cannot be raised (containers), a test runs under the limit that there is.
    local driver='
import resource, runpy
raised = resource.setrlimit
def setrlimit(which, limits):
    try:
        raised(which, limits)
    except (ValueError, PermissionError):
        pass
resource.setrlimit = setrlimit
runpy.run_path("run_tests.py", run_name="__main__")'
    (cd "$LIBHUGETLBFS/tests" && on "$side" python3 -c "$driver" -t func -b 64) >"$log" 2>&1 || true
    # `NAME (2M: 64): RESULT`; a name comes several times, with and without variables before it.
    sed -nE 's/^(.+) \([0-9]+[KMG]: *64\):\s*(\S.*)$/\1\x01\2/p' "$log" | tr ' \t' '__' | tr '\001' ' ' | awk '{ n[$1]++; print $1 "#" n[$1], $2 }'
}

mtr_program=/usr/share/mysql/mysql-test/mariadb-test-run.pl
# Why a suite cannot be run here; nothing where it can.
missing() { # NAME
    case $1 in
    cpython) python3 -c 'import test.regrtest' 2>/dev/null || echo "python3 has no module test" ;;
    mtr) [ -e "$mtr_program" ] || echo "mariadb-test is not installed" ;;
    stress-ng) command -v stress-ng >/dev/null || echo "stress-ng is not installed" ;;
    libhugetlbfs)
        if [ "$(id -u)" != 0 ]; then
            echo "needs root"
        elif [ ! -e "${LIBHUGETLBFS:-}/tests/obj64" ]; then
            echo "LIBHUGETLBFS names no folder with its tests built"
        fi
        ;;
    *) echo "no suite has that name" ;;
    esac
}

# libhugetlbfs wants a pool and a mount of it.
prepare() { # NAME
    [ "$1" = libhugetlbfs ] || return 0
    exec 9>/run/lock/hugeleaf.lock
    flock 9
    pool_before=$(cat /proc/sys/vm/nr_hugepages)
    echo 256 >/proc/sys/vm/nr_hugepages
    mkdir -p "$work/huge"
    mount -t hugetlbfs -o pagesize=2M none "$work/huge"
}
undo() {
    if mountpoint -q "$work/huge" 2>/dev/null; then
        umount "$work/huge"
    fi
    if [ -n "${pool_before:-}" ]; then
        echo "$pool_before" >/proc/sys/vm/nr_hugepages
        pool_before=
        exec 9>&-
    fi
}

work=$(mktemp -d)
trap 'undo; rm -rf "$work"' EXIT
status=0
for name in $names; do
    why=$(missing "$name")
    if [ -n "$why" ]; then
        echo "not run: $name: $why"
        continue
    fi
    function=${name/-/_}
    prepare "$name"
    for side in bare run; do
        [ -s "$out/$name.$side" ] || "$function" "$side" "$out/$name.$side.log" | sort -u >"$out/$name.$side"
        echo "$name, $side: $(wc -l <"$out/$name.$side") results: $(awk '{ n[$NF]++ } END { for (r in n) printf "%s %d  ", r, n[r] }' "$out/$name.$side")"
    done
    [ -s "$out/$name.bare" ] || {
        echo "$name: no results, see $out/$name.bare.log"
        status=1
    }
    differ=$(diff "$out/$name.bare" "$out/$name.run" | sed -nE 's/^[<>] ([^ ]+) .*/\1/p' | sort -u || true)
    if [ -n "$differ" ] && [ "$name" != libhugetlbfs ]; then
        still=
        for test in $differ; do
            bare= under=
            for again in 1 2; do
                bare+="$("$function" bare "$out/$name.again.log" "$test" | sort -u | grep -F "$test " || true);"
                under+="$("$function" run "$out/$name.again.log" "$test" | sort -u | grep -F "$test " || true);"
            done
            echo "  $test: bare $bare under run $under"
            [ "$bare" = "$under" ] || still+=" $test"
        done
        differ=$still
    fi
    if [ -n "${differ// /}" ]; then
        echo "$name: differ under run: $differ"
        status=1
    fi
    undo
done
echo "results in $out"
exit "$status"
