#!/usr/bin/env bash
# Other people's tests, bare and under `hugeleaf run`: what passes bare must pass under it.
#
# usage: scripts/suites.sh [--out FOLDER] [NAME…]
#
# Names: cpython mtr stress-ng libhugetlbfs sqlite; none means all. Each needs what it tests to be installed (Debian: python3 with
# its tests, mariadb-test, stress-ng); libhugetlbfs needs LIBHUGETLBFS=FOLDER, its sources as `make` left them there, and root.
# sqlite is the tests of programs that use SQLite (CPython's module, Django, SQLAlchemy, sqlite-utils), under `run --sqlite 64M`; pip
# brings them into target/suites-sqlite.
# HUGELEAF is the program (target/release/hugeleaf), SUITE_TESTS a pattern of mtr's tests, CPYTHON_TESTS the names of CPython's,
# DJANGO_TESTS the applications of Django's tests, SQLALCHEMY_TESTS the folders and files of SQLAlchemy's.
# In FOLDER: one line a test, its name and what it came to, in NAME.bare and NAME.run; and the suites' own output.
# A test that differs is run twice more on both sides, alone; what differs in all of them fails this script.
# A side that FOLDER already has is not run again. A suite takes 5 to 30 minutes a side. Nothing of the host is changed but, for libhugetlbfs, a pool that is put back.
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
all='cpython mtr stress-ng libhugetlbfs sqlite'
names=${*:-$all}
[ -x "$hugeleaf" ] || {
    echo "no program at $hugeleaf: run make build, or set HUGELEAF" >&2
    exit 2
}

# Flags of `run` for the suite.
flags=()
# Runs a command bare, or under run: the first word says which.
on() { # bare|run COMMAND…
    local side=$1
    shift
    if [ "$side" = run ]; then
        "$hugeleaf" run "${flags[@]}" -- "$@"
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

# Installs an environment for the suite sqlite with pip, and the sources of the tested projects, because packages have no tests.
brought=$(realpath -m "${CARGO_TARGET_DIR:-target}")/suites-sqlite
bring() {
    local packages=(Django==4.2.16 SQLAlchemy==2.0.36 sqlite-utils==4.2.1) archive
    [ ! -e "$brought/complete" ] || return 0
    rm -rf "$brought"
    mkdir -p "$brought/sources" &&
        python3 -m venv "$brought/venv" &&
        "$brought/venv/bin/pip" install --quiet 'pytest<8.4' hypothesis "${packages[@]}" &&
        "$brought/venv/bin/pip" download --quiet --no-deps --no-binary Django,SQLAlchemy,sqlite-utils \
            --dest "$brought/archives" "${packages[@]}" || return 1
    for archive in "$brought"/archives/*.tar.gz; do
        tar -xzf "$archive" -C "$brought/sources" || return 1
    done
    touch "$brought/complete"
}

# The results in unittest's verbose output; a docstring may stand between name and result.
of_unittest() { # PART LOG
    awk -v part="$1" '
        /^[A-Za-z_0-9]+ \([A-Za-z_0-9.]+\)/ {
            name = substr($2, 2, length($2) - 2)
            if (name !~ ("\\." $1 "$")) name = name "." $1
        }
        name && / \.\.\. [A-Za-z]/ {
            sub(/.* \.\.\. /, "")
            print part ":" name, $1
            name = ""
        }' "$2"
}

# The results in pytest's verbose output.
of_pytest() { # PART LOG
    sed -nE "s/^([^ ].*::.*) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)( .*)?$/$1:\1\x01\2/p" "$2" | tr ' \001' '_ '
}

declare -A sqlite_tests=(
    [cpython]=test.test_sqlite3
    [django]=${DJANGO_TESTS:-aggregation annotations backends basic expressions lookup model_fields ordering queries transactions}
    [sqlalchemy]=${SQLALCHEMY_TESTS:-test/dialect/test_sqlite.py test/dialect/test_suite.py test/engine test/sql}
    [sqlite-utils]=tests
)
sqlite() { # SIDE LOG [TEST…]
    local side=$1 log=$2 python=$brought/venv/bin/python3 flags=(--sqlite 64M) part tests
    local pytest=("$python" -m pytest -v --color=no --tb=no -p no:cacheprovider)
    shift 2
    for part in cpython django sqlalchemy sqlite-utils; do
        if [ $# -gt 0 ]; then
            # A parameter is no part of what can be asked for.
            mapfile -t tests < <(printf '%s\n' "$@" | sed -nE "s/^$part:([^[]*).*/\1/p" | sort -u)
            [ ${#tests[@]} -gt 0 ] || continue
        else
            read -ra tests <<<"${sqlite_tests[$part]}"
        fi
        case $part in
        cpython)
            (cd "$work" && on "$side" "$python" -m unittest -v -b "${tests[@]}") >"$log.$part" 2>&1 || true
            of_unittest "$part" "$log.$part"
            ;;
        django)
            (cd "$brought"/sources/[Dd]jango-*/tests && on "$side" "$python" runtests.py -v 2 -b --parallel 1 "${tests[@]}") >"$log.$part" 2>&1 || true
            of_unittest "$part" "$log.$part"
            ;;
        sqlalchemy)
            (cd "$brought"/sources/[Ss][Qq][Ll][Aa]lchemy-* && on "$side" "${pytest[@]}" "${tests[@]}") >"$log.$part" 2>&1 || true
            of_pytest "$part" "$log.$part"
            ;;
        sqlite-utils)
            (cd "$brought"/sources/sqlite[-_]utils-* && on "$side" "${pytest[@]}" "${tests[@]}") >"$log.$part" 2>&1 || true
            of_pytest "$part" "$log.$part"
            ;;
        esac
    done
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
    sqlite)
        if ! python3 -c 'import venv, test.test_sqlite3' 2>/dev/null; then
            echo "python3 has no modules venv and test.test_sqlite3"
        elif ! bring >"$out/sqlite.pip.log" 2>&1; then
            echo "pip could not bring Django, SQLAlchemy and sqlite-utils: $out/sqlite.pip.log"
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
