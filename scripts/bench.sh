#!/usr/bin/env bash
# hugeleaf's own benchmarks. Raw samples, with host, kernel, settings and command, go to
# bench/runs/DATE-HOST/; docs/results.md and docs/figures.md quote them from there.
#
# usage: scripts/bench.sh [--smoke] [NAME…]
#
# Names: those in `all` below; none means all.
# --smoke takes small sizes, one round and unoptimised programs, and keeps nothing: it shows that everything still runs.
# guard-soak takes two hours and runs where it is named. RUN_OPTIONS='--rounds N --only PART,… --more' goes to run-rates, run-pool, trace, sqlite and guard-*: fewer rounds or parts, added to what is there.
# At most 16 GiB are in use at a time. Leave the machine alone meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."

smoke=()
if [ "${1:-}" = --smoke ]; then
    smoke=(--smoke)
    shift
fi
all='promote latency shared servers region chase pagetables mover pin simulate run-coverage run-always run-rates run-pool trace oltp top guard-cost guard-proofs guard-kills guard-growth sqlite amm lab predict same python'
names=${*:-$all}

if [ ${#smoke[@]} -gt 0 ]; then
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    profile=(--profile dev)
    folder=debug
else
    out="bench/runs/$(date +%F)-$(hostname -s)"
    mkdir -p "$out"
    profile=(--profile dist)
    folder=dist
fi
target=${CARGO_TARGET_DIR:-target}/$folder

cargo build --locked --quiet "${profile[@]}" \
    --package hugeleaf-cli --bin hugeleaf \
    --package hugeleaf-host --example hold \
    --package hugeleaf-mover --example bench_promote
scripts/lab.sh build --quiet "${profile[@]}" --package hugeleaf-lab --bin hugeleaf-lab --example simulate --example sqlite

must_reach() {
    scripts/lab.sh bench --quiet "${profile[@]}" --package hugeleaf-lab --bench must_reach -- \
        "${smoke[@]}" --out "$PWD_OUT" "$@"
}

# Runs a command with a setting of the kernel, where there is one and it may be set; then puts it
# back, also where this script is interrupted. Of a choice, as `always [madvise] never`, the word in brackets is what it was.
with_setting() ( # FILE VALUE COMMAND…
    file=$1 value=$2 status=0
    shift 2
    if [ ! -w "$file" ]; then
        "$@"
        return
    fi
    before=$(sed -E 's/.*\[(.*)\].*/\1/' "$file")
    trap 'echo "$before" >"$file"' EXIT
    trap 'exit 130' INT TERM
    echo "$value" >"$file"
    "$@" || status=$?
    exit "$status"
)

# Runs a command under the lock that tests and benchmarks share.
with_lock() { # COMMAND…
    local lock=/run/lock/hugeleaf.lock status=0
    # One that may not write it may not change a setting either.
    if [ -e "$lock" ] && [ ! -w "$lock" ]; then
        "$@"
        return
    fi
    exec 9>"$lock"
    flock 9
    "$@" 9>&- || status=$?
    exec 9>&-
    return "$status"
}

# Runs a command with so many pages in the pool of the default size that nobody uses yet.
with_pool() { # PAGES COMMAND…
    with_lock with_free_pages "$@"
}

# The same for who has the lock: what others use is counted only then.
with_free_pages() { # PAGES COMMAND…
    local pages=$1 used
    shift
    used=$(awk '/^HugePages_Total/ { total = $2 } /^HugePages_Free/ { print total - $2 }' /proc/meminfo)
    with_setting /proc/sys/vm/nr_hugepages "$((used + pages))" "$@"
}

# The same, and pages of the other sizes: 64K transparent, and so many of 1G in their pool.
with_ladder() { # PAGES PAGES-OF-1G COMMAND…
    local pages=$1 large=$2
    shift 2
    # Those of 1G first: they want memory that is still whole.
    with_lock with_setting /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages "$large" \
        with_setting /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled madvise \
        with_free_pages "$pages" "$@"
}

# A benchmark of the lab, or a workload file. Arms that this host has not (status 1) are no failure; all else is.
bench_arms() { # KIND NAME FLAGS…
    local kind=$1 name=$2 status=0 program=("$target/hugeleaf-lab")
    shift 2
    [ "$kind" != file ] || program=("$target/hugeleaf" bench)
    "${program[@]}" "$kind" "$@" --output "$out/$name.json" || status=$?
    [ "$status" -le 1 ] || return "$status"
    [ "$status" = 0 ] || echo "  not all arms of $name were available: see $out/$name.json"
}

# The driver runs in the folder of its package.
case $out in
/*) PWD_OUT=$out ;;
*) PWD_OUT=$PWD/$out ;;
esac

# A virtual machine may tell its hypervisor which blocks of 2M are free, to have them taken away. The first
# touch of a huge page then waits for the hypervisor (14 times as long, docs/internals/kernel-notes.md), by what
# ran before and not by what is measured. So nothing is told meanwhile, and what was taken is fetched back.
reporting=/sys/module/page_reporting/parameters/page_reporting_order
if [ ${#smoke[@]} -eq 0 ] && [ -w "$reporting" ]; then
    told_from=$(cat "$reporting")
    trap 'echo "$told_from" >"$reporting"' EXIT
    # The largest that this kernel takes: at 11 nothing is told, at 10 blocks of 4M.
    for order in 11 10; do
        echo $order 2>/dev/null >"$reporting" && break
    done
    # Half of what is available, and no more than a benchmark may use.
    much=$(awk '/^MemAvailable/ { half = int($2 / 2048); print (half < 16384 ? half : 16384) "M" }' /proc/meminfo)
    "$target/examples/hold" - "$much" 0 </dev/null >/dev/null
fi

# The driver of each workload of the lab while it is measured, as its command line begins, and the program that is asked about.
driver_of() { # PROGRAM
    case $1 in
    compile) echo "g\\+\\+ -O2 -o /.*/large|cc1plus" ;;
    duckdb) echo "run.py measure|python3" ;;
    jvm) echo "Warehouses|java" ;;
    mariadb) echo "sysbench .*run|mariadbd" ;;
    memcached) echo "client.py get|memcached" ;;
    nginx) echo "wrk -t1|nginx" ;;
    node) echo "objects.js|node" ;;
    orders) echo "wrk -t1|postgres" ;;
    pgbench) echo "pgbench -S|postgres" ;;
    python) echo "objects.py|python3" ;;
    redis) echo "redis-benchmark|redis-server" ;;
    sort) echo "sort -S|sort" ;;
    sqlite) echo "keyed.py read|python3" ;;
    vectors) echo "search search|search" ;;
    esac
}

# The count that a workload needs more of, so that it still runs when it was watched.
longer() { # PROGRAM
    case $1 in
    node) echo "--set rows=1800000" ;;
    python) echo "--set rows=6000000" ;;
    sort) echo "--set lines=25000000" ;;
    sqlite) echo "--set reads=2500000" ;;
    vectors) echo "--set queries=250000" ;;
    esac
}

# When a program is at what is measured, in seconds after it was first seen at work: those that first make their data take longer.
measured_after() { # PROGRAM
    [ ${#smoke[@]} -eq 0 ] || set -- small
    case $1 in
    node) echo 5 ;;
    python) echo 11 ;;
    sqlite) echo 6 ;;
    duckdb | sort) echo 0.2 ;;
    *) echo 1.5 ;;
    esac
}

# How long it is watched. What is measured of sort is all that it does, and it does one thing after the other.
watched_for() { # PROGRAM
    case $1 in
    sort) echo 8s ;;
    *) echo 2500ms ;;
    esac
}

# Asks `predict` about a workload on base pages while it is measured.
predicted() { # PROGRAM
    local program=$1 bench driver name to more
    # shellcheck disable=SC2207 # words without spaces
    more=($(longer "$program"))
    driver=$(driver_of "$program") name=${driver#*|} driver=${driver%|*}
    to=$out/predict-$program.json
    [ ${#smoke[@]} -eq 0 ] || more=(--set rows=2000000) # of python
    with_lock "$target/hugeleaf" bench file "$program" --pages 4K --pairs 3 "${more[@]}" --output "$out/lab-once.tmp" >/dev/null 2>&1 &
    bench=$!
    while kill -0 "$bench" 2>/dev/null; do
        # It has to be at work for a while, and still be when it was asked about.
        if pgrep -f -- "$driver" >/dev/null && sleep "$(measured_after "$program")" && pgrep -f -- "$driver" >/dev/null; then
            "$target/hugeleaf" predict "$name" --for "$(watched_for "$program")" --json >"$to.tmp" 2>/dev/null || true
            [ ! -s "$to.tmp" ] || ! pgrep -f -- "$driver" >/dev/null || break
            rm -f "$to.tmp"
        fi
        sleep 0.2
    done
    kill -INT "$bench" 2>/dev/null || true
    wait "$bench" || true
    rm -f "$out/lab-once.tmp"
    if [ -s "$to.tmp" ]; then
        mv "$to.tmp" "$to"
        echo "  written: $to"
    else
        echo "not run: predict: $program was not seen at work"
    fi
}

# Makes a Python environment with the wheel of this repository, and sets $python to its interpreter. Prints the reason if it cannot be had.
make_python_environment() {
    local environment=${CARGO_TARGET_DIR:-target}/python-bench log status=0 as=()
    mkdir -p "$environment"
    environment=$(cd "$environment" && pwd)
    python=$environment/venv/bin/python
    log=$environment/log
    # Loads run as nobody, who may not have the interpreter of a home folder.
    [ "$(id -u)" != 0 ] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    {
        [ -x "$environment/venv/bin/pip" ] || "${PYTHON:-/usr/bin/python3}" -m venv "$environment/venv"
        rm -rf "$environment/wheel"
        "$python" -m pip install --quiet --only-binary :all: --requirement lab/python/requirements.txt &&
            CARGO_TARGET_DIR=$environment/../python "$python" -m pip wheel --quiet --no-deps --wheel-dir "$environment/wheel" \
                --config-settings program=none ./python &&
            "$python" -m pip install --quiet --no-deps --force-reinstall "$environment"/wheel/hugeleaf-*.whl &&
            "${as[@]}" "$python" -c 'import sys, hugeleaf, scipy, usearch; open(sys.argv[1])' "$PWD/lab/python/arrays.py"
    } >"$log" 2>&1 </dev/null || status=$?
    [ "$status" = 0 ] || tail -n 3 "$log"
    return "$status"
}

# Measures arrays of some gigabytes for one more round, with as many gigabytes in each pool. The host is free for tests between two rounds.
python_arrays() { # NAME GIGABYTES POOL ROUND INDEX FLAGS…
    local to=$out/python-arrays-$1.json size=$(($2 << 30)) large=$3 round=$4 index=$5 status=0
    shift 5
    local add=(--output "$to")
    [ ! -e "$to" ] || add=(--resume "$to")
    # Those of 1G first: they want memory that is still whole.
    with_lock with_setting /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages "$large" \
        with_free_pages $((large * 512)) \
        "$target/hugeleaf" bench file lab/python/arrays.toml --yes --pairs "$round" --set "python=$python" \
        --set "program=$PWD/lab/python/arrays.py" --set "index=$index" --set "size=$size" "$@" "${add[@]}" >/dev/null ||
        status=$?
    [ "$status" -le 1 ] || return "$status"
}

for name in $names; do
    echo "== $name"
    case $name in
    promote)
        if [ "$(id -u)" != 0 ]; then
            echo "not run: promote: needs root (CAP_SYS_NICE)"
        elif [ ${#smoke[@]} -gt 0 ]; then
            "$target/examples/bench_promote" --size 16M --pairs 1 --out "$out/promote.json"
        else
            "$target/examples/bench_promote" --size 2G --pairs 20 --out "$out/promote.json"
        fi
        ;;
    latency | shared | servers | region | top | guard-cost) must_reach "$name" ;;
    run-coverage | run-always)
        # Coverage and speed of whole programs under run and its alternatives.
        # shellcheck disable=SC2206 # words without spaces
        programs=(${LAB:-compile jvm pgbench python redis sqlite})
        setting=madvise small=()
        [ "$name" = run-coverage ] || setting=always
        [ ${#smoke[@]} -eq 0 ] || programs=(sort) small=(--set lines=50000 --pairs 1)
        for program in "${programs[@]}"; do
            with_lock with_setting /sys/kernel/mm/transparent_hugepage/enabled "$setting" \
                bench_arms file "$name-$program" "$program" --arm bare=env.ARM=bare --arm run=pages=run \
                --arm glibc=env.GLIBC_TUNABLES=glibc.malloc.hugetlb=1 "${small[@]}"
        done
        ;;
    run-rates | run-pool | trace | guard-proofs | guard-kills | guard-growth | sqlite | guard-soak)
        # shellcheck disable=SC2086 # words without spaces
        must_reach "$name" ${RUN_OPTIONS:-}
        ;;
    chase)
        if [ ${#smoke[@]} -gt 0 ]; then
            "$target/hugeleaf" bench chase --sizes 64K,1M --pages base --for 1s --rounds 2 --output "$out/chase.json"
        else
            with_pool 1024 "$target/hugeleaf" bench chase --pages base,thp:2M,hugetlb:2M --sizes 64K..2G --output "$out/chase.json"
        fi
        ;;
    pagetables)
        if [ ${#smoke[@]} -gt 0 ]; then
            "$target/hugeleaf-lab" pagetables --processes 2 --region 8M --pages base --output "$out/pagetables.json"
        else
            with_pool 512 "$target/hugeleaf-lab" pagetables --processes 1,16,128,1024 --region 1G \
                --pages base,thp:2M,hugetlb:2M --output "$out/pagetables.json"
        fi
        ;;
    mover)
        # All ways on a disk and on memory; then the way that locks, with 8 threads.
        pages=scattered,split,thp:2M,hugetlb:2M
        if [ ${#smoke[@]} -gt 0 ]; then
            "$target/hugeleaf-lab" mover --device "$out" --size 1M --space 4M --pages scattered --for 1s --rounds 2 \
                --output "$out/mover-read.json"
        else
            with_pool 512 bench_arms mover mover-read --device "$out" --readers 1 --writers 0 --size 256M \
                --pages $pages --for 60s --rounds 15
            with_ladder 512 1 bench_arms mover mover-read-1m --device "$out" --readers 1 --writers 0 --size 256M --block 1M \
                --pages scattered,split,64K,thp:2M,hugetlb:2M,hugetlb:1G --for 45s --rounds 12
            with_pool 512 bench_arms mover mover-read-uring --device "$out" --readers 4 --writers 0 --size 256M \
                --mode uring-registered,uring --pages $pages --for 60s --rounds 9
            with_pool 512 bench_arms mover mover --device "$out" --pages $pages --for 60s --rounds 15
            with_ladder 512 1 bench_arms mover mover-sizes --device "$out" \
                --pages scattered,64K,thp:2M,hugetlb:2M,hugetlb:1G --for 45s --rounds 12
            with_pool 512 bench_arms mover mover-lock --device memory --readers 8 --writers 0 --mode lock,direct \
                --pages $pages --for 60s --rounds 9
            with_pool 512 bench_arms mover mover-streams --device memory --mode direct,uring,uring-registered \
                --pages $pages --for 60s --rounds 9 --rate 30M
        fi
        ;;
    pin)
        if [ ${#smoke[@]} -gt 0 ]; then
            "$target/hugeleaf-lab" pin --device "$out" --space 4M --pages scattered --for 1s --rounds 2 --output "$out/pin.json"
        else
            with_pool 512 "$target/hugeleaf-lab" pin --device "$out" --pages scattered,split,thp:2M,hugetlb:2M --for 90s \
                --rounds 9 --output "$out/pin.json"
        fi
        ;;
    oltp)
        # The charts of the published studies. All data in the cache, and no waiting for a disk: it is about memory.
        bench_oltp() { # NAME FLAGS…
            local name=$1
            shift
            bench_arms oltp "oltp-$name" --durability never "$@"
        }
        if [ ${#smoke[@]} -gt 0 ]; then
            bench_oltp sqlite --database "sqlite:$out/oltp" --warehouses 2 --shrink 50 --cache 32M --for 1s --ramp-up 1s \
                --pages base,thp:2M --rounds 2 --no-translation
        else
            data=/var/tmp/hugeleaf-bench-oltp
            files=(--database "sqlite:$data" --warehouses 46 --connections 2)
            # PostgreSQL is promoted only where that stands before it starts.
            with_shared_huge=(with_setting /sys/kernel/mm/transparent_hugepage/shmem_enabled advise)
            with_ladder 2500 5 bench_oltp sqlite "${files[@]}" --cache 4608M --io cached --for 6s --ramp-up 2s \
                --pages base,locked,64K,thp:2M,hugetlb:2M,hugetlb:1G --rounds 10
            with_pool 2160 "${with_shared_huge[@]}" bench_oltp postgres --start postgres --warehouses 30 --connections 2 --cache 4G --io cached \
                --for 10s --ramp-up 2s --pages base,hugetlb:2M,run,promoted --rounds 10 --no-translation
            bench_oltp cache "${files[@]}" --by-cache 256M,1G,4G --for 4s --ramp-up 1s --pages base,thp:2M --rounds 10 \
                --no-translation
            with_lock "${with_shared_huge[@]}" bench_oltp connections --start postgres --warehouses 8 --by-connections 2,8,32 --cache 1G --for 3s --ramp-up 1s \
                --pages base,promoted --rounds 6 --no-translation
            bench_oltp noncached "${files[@]}" --io buffered --for 6s --ramp-up 2s --pages base,locked,thp:2M --rounds 10 \
                --no-translation
            bench_oltp noncached-copy "${files[@]}" --io buffered --copy-beside 1G --for 6s --ramp-up 2s \
                --pages base,locked,thp:2M --rounds 6 --no-translation
            rm -r "$data"
        fi
        ;;
    amm)
        # Oracle's question: who divides the memory, on which pages. Two hours.
        if ! command -v mariadbd >/dev/null && [ ! -x /usr/sbin/mariadbd ]; then
            echo "not run: amm: MariaDB is not installed"
        elif [ ${#smoke[@]} -gt 0 ]; then
            bench_arms amm amm --loads swap --arms manual:base,amm:base --target 64M --least 16M --for 3s --settle 1s --every 1s --rounds 1
        else
            for load in swap steady nightly flood tpcc; do
                with_pool 640 bench_arms amm "amm-$load" --loads "$load" --rounds 3
            done
        fi
        ;;
    lab)
        # Every program that comes with hugeleaf, by page size. Hours.
        # shellcheck disable=SC2206 # words without spaces
        programs=(${LAB:-compile duckdb jobs jvm mariadb memcached nginx node orders pgbench python redis sort sqlite vectors files filesystems schedulers})
        if [ ${#smoke[@]} -gt 0 ]; then
            bench_arms file lab-sort sort --set lines=50000 --pages 4K,run --pairs 1
        else
            for program in "${programs[@]}"; do
                # The last arm is what a server can be while it runs, and a program from its start.
                live=promoted
                case $program in
                compile | duckdb | jobs | jvm | node | python | sort | sqlite | vectors | files) live=run ;;
                esac
                pages=(--pages "4K,thp:2M,hugetlb:2M,$live")
                # Two pages of 1G, where there are any, hold what is one piece of memory.
                giant=0
                case $program in vectors | sqlite | python) giant=2 pages=(--pages "4K,thp:2M,hugetlb:2M,hugetlb:1G,$live") ;; esac
                case $program in filesystems | schedulers) pages=() ;; esac
                pool=1500
                # It asks for 4G at once.
                case $program in duckdb) pool=2200 ;; esac
                with_setting /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages "$giant" \
                    with_pool "$pool" with_setting /sys/kernel/mm/transparent_hugepage/shmem_enabled advise \
                    bench_arms file "lab-$program" "$program" "${pages[@]}" --pairs "${PAIRS:-6}"
            done
        fi
        ;;
    predict)
        # The prediction for each program of the lab on base pages; proven gains are in the results of `lab`.
        # shellcheck disable=SC2206 # words without spaces
        programs=(${LAB:-compile duckdb jvm mariadb memcached nginx node orders pgbench python redis sort sqlite vectors})
        if [ ${#smoke[@]} -gt 0 ]; then
            programs=(python)
        fi
        for program in "${programs[@]}"; do
            predicted "$program"
        done
        ;;
    same)
        # Whether compare says that the same is the same: programs of the lab on base pages, in two sets that take turns, a run
        # at a time; and one with a tenth more to do, which has to be slower. In a folder of its own: it is about compare, and
        # not about pages.
        # shellcheck disable=SC2206 # words without spaces
        programs=(${LAB:-python node sqlite vectors memcached redis sort})
        same=$out/same
        [ ${#smoke[@]} -gt 0 ] || same=bench/same/$(basename "$out")
        small=() slow=(--set lines=11000000)
        if [ ${#smoke[@]} -gt 0 ]; then
            programs=(sort) small=(--set lines=50000) slow=(--set lines=55000)
        fi
        mkdir -p "$same/first" "$same/second" "$same/slower"
        for program in "${programs[@]}"; do
            for pairs in $(seq "${PAIRS:-8}"); do
                # The one that goes first changes too.
                order=(first second)
                [ $((pairs % 2)) = 1 ] || order=(second first)
                [ "$program" != sort ] || order+=(slower)
                for set in "${order[@]}"; do
                    add=(--output "$same/$set/$program.json")
                    [ "$pairs" = 1 ] || add=(--resume "$same/$set/$program.json")
                    more=("${small[@]}")
                    [ "$set" != slower ] || more=("${slow[@]}")
                    with_lock "$target/hugeleaf" bench file "$program" --pages 4K --pairs "$pairs" "${more[@]}" "${add[@]}" >/dev/null
                done
            done
        done
        "$target/hugeleaf" compare "$same/first" "$same/second" | tee "$same/same.txt"
        "$target/hugeleaf" compare "$same/first" "$same/slower" | tee "$same/slower.txt"
        ;;
    python)
        # Arrays of NumPy by the pages of their memory.
        if ! make_python_environment; then
            echo "not run: python: no environment with hugeleaf and lab/python/requirements.txt (PYTHON= names another interpreter)"
            continue
        fi
        if [ ${#smoke[@]} -gt 0 ]; then
            chmod 755 "$out"
            "$python" lab/python/arrays.py index "$out/index" 3000000
            python_arrays smoke 0 0 1 "$out/index" --set size=33554432 --set seconds=0.01
        else
            # Segments of an index are as large as they are in servers of vectors.
            index=${python%/venv/*}/index-256M
            [ -e "$index" ] || "$python" lab/python/arrays.py index "$index" 268435456
            transparent=(--arm base=memory=base --arm numpy=memory=numpy --arm thp:2M=memory=thp:2M)
            pools=(--arm base=memory=base --arm hugetlb:2M=memory=hugetlb:2M --arm hugetlb:1G=memory=hugetlb:1G)
            for round in $(seq "${PAIRS:-6}"); do
                python_arrays 1G 1 1 "$round" "$index"
                # Apart, so that a pool takes no memory from THP.
                python_arrays 4G 4 0 "$round" "$index" "${transparent[@]}"
                python_arrays 4G-pool 4 4 "$round" "$index" "${pools[@]}"
            done
            # Results do not name the folder of the repository.
            sed -i "s|$PWD/||g" "$out"/python-arrays-*.json
            ls "$out"/python-arrays-*.json
        fi
        ;;
    simulate)
        # Recordings of this kind of machine, made with the example record_noise.
        experiments=5000
        noise=$(find bench -name 'noise*.json' 2>/dev/null | sort || true)
        if [ ${#smoke[@]} -gt 0 ]; then
            experiments=20
            noise=$out/noise.json
            awk 'BEGIN { srand(1); printf "{\"host\":\"made up\",\"kernel\":\"-\",\"command\":\"awk\",\"interval_seconds\":2,\"samples\":["
                         for (i = 0; i < 200; i++) printf "%s%f", i ? "," : "", 100 + rand(); print "]}" }' >"$noise"
        fi
        if [ -z "$noise" ]; then
            echo "not run: simulate: no recording bench/**/noise*.json"
        else
            # shellcheck disable=SC2086 # a list of files without spaces
            "$target/examples/simulate" --experiments "$experiments" --json $noise >"$out/simulate.json"
            echo "  written: $out/simulate.json"
            # Each recording alone: one that is easy hides one that is not.
            for one in $noise; do
                name=$(basename "$one" .json)
                "$target/examples/simulate" --experiments "$experiments" --no-power --json "$one" \
                    >"$out/simulate-${name#noise-}.json"
            done
        fi
        ;;
    *)
        echo "hugeleaf: bench.sh: no benchmark is named $name" >&2
        echo "  next: scripts/bench.sh $all" >&2
        exit 2
        ;;
    esac
done
