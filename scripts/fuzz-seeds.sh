#!/usr/bin/env bash
# Gives every fuzz target something true to start from: the captured hosts under fixtures/ and the
# files of this host. What is already in fuzz/corpus stays.
set -euo pipefail
cd "$(dirname "$0")/.."

# Copies files, as many as are there, into the corpus of a target.
seed() { # TARGET FILE…
    local target=$1 file name
    shift
    mkdir -p "fuzz/corpus/$target"
    for file in "$@"; do
        name=$(printf '%s' "$file" | tr '/ ' '__' | tail -c 120)
        # Reading a file of a process that has just ended fails: that is no seed.
        head -c 65536 "$file" >"fuzz/corpus/$target/$name" 2>/dev/null || rm -f "fuzz/corpus/$target/$name"
    done
}

line() { # TARGET TEXT…
    local target=$1 text
    shift
    mkdir -p "fuzz/corpus/$target"
    for text in "$@"; do
        printf '%b' "$text" >"fuzz/corpus/$target/text-$(printf '%s' "$text" | cksum | cut -d' ' -f1)"
    done
}

shopt -s nullglob globstar
seed maps fixtures/**/maps /proc/self/maps /proc/1/maps
seed smaps fixtures/**/smaps fixtures/**/smaps_rollup /proc/self/smaps /proc/self/smaps_rollup
seed parse_plan crates/plan/src/expected/*.toml crates/cli/tests/plan/*.toml
seed guard_rules docs/guide/guard.md
line guard_rules 'schema = 1\ndefault.action = "promote"\n' 'schema = 1\n[[rule]]\nname = "redis*"\nhours = ["22:00-06:00"]\nmetric = "cpi"\nprove = { pairs = 12, every = "7d" }\n'
line guard_request '\x01GET / HTTP/1.1\r\nHost: 127.0.0.1:9646\r\n\r\n' '\x00POST /pause HTTP/1.1\r\n\r\n'
line guard_state '{"tracks":[],"remembered":[],"paused_since":null,"fragmented":{"failures":0,"until":{"secs":0,"nanos":0}},"short_until":{"secs":0,"nanos":0},"counts":{}}'
line balance_server '\x00$45\r\nused_memory:100\r\nkeyspace_hits:1\r\nprocess_id:9\r\n\r\n*2\r\n$9\r\nmaxmemory\r\n$9\r\n100000000\r\n+OK\r\n' \
    '\x01STAT pid 9\r\nSTAT limit_maxbytes 67108864\r\nSTAT bytes 10\r\nSTAT get_hits 1\r\nSTAT get_misses 1\r\nEND\r\nSTAT 1:chunk_size 96\r\nSTAT 1:total_pages 2\r\nEND\r\nOK\r\n' \
    '\x02\x4a\x00\x00\x00\x0a5.5.5-10.11.6-MariaDB\x00\x09\x00\x00\x00abcdefgh\x00\xfe\xf7\x2d\x02\x00\xff\x81\x15' '\x03R\x00\x00\x00\x08\x00\x00\x00\x00Z\x00\x00\x00\x05I'
seed run_settings fixtures/run/*/proc/1000/environ
seed parse_elf /bin/true
seed numa_maps fixtures/**/numa_maps /proc/self/numa_maps
seed process_status fixtures/**/proc/*/stat fixtures/**/status /proc/self/stat /proc/self/status /proc/2/stat /proc/2/status
seed limits fixtures/**/limits /proc/self/limits
seed cgroup fixtures/**/proc/*/cgroup fixtures/**/hugetlb.* /proc/self/cgroup /proc/1/cgroup
seed mounts fixtures/**/mounts fixtures/**/mountinfo /proc/self/mounts /proc/self/mountinfo
seed meminfo fixtures/**/meminfo /proc/meminfo /sys/devices/system/node/node*/meminfo
seed buddyinfo fixtures/**/buddyinfo /proc/buddyinfo
seed kernel_log fixtures/**/dmesg
seed sysctl fixtures/**/sysctl.conf fixtures/**/sysctl.d/* /etc/sysctl.conf /etc/sysctl.d/*
seed virtual_machine fixtures/**/cmdline fixtures/**/cpuinfo fixtures/**/features /proc/cpuinfo
seed auxv fixtures/**/auxv /proc/self/auxv
seed pages fixtures/**/pages
seed trace_file bench/runs/**/*.trace fixtures/**/*.trace crates/**/*.trace
seed result bench/runs/**/{prove,chase,pin,mover-streams,oltp}*.json crates/proof/tests/**/*.json
seed prometheus fixtures/**/*.prom
seed metric_text fixtures/**/redis-info*

line virtual_machine '-m\0size=4194304k,slots=16\0-object\0{"qom-type":"memory-backend-memfd","id":"pc.ram","size":1073741824}\0' \
    '-m\0128M\0-machine\0pc,memory-backend=a\0-object\0memory-backend-ram,id=a,size=1G\0-numa\0node,memdev=a\0'
line kernel_log '<4>[    1.0] HugeTLB: allocating 100 of page size 2.00 MiB failed.  Only allocated 40 hugepages.\n'
line sysctl 'vm.nr_hugepages = 8\n# note\n-vm/hugetlb_shm_group=5\n'
line rings 'pos:\t0\nUserBufs:\t2\n    0: 0x7f1db1400000/65536\n    1: <none>\nPollList:\n'
line counters '\x00compact_stall 12\nthp_fault_alloc 3\n' '\x01some avg10=0.00 avg60=0.10 avg300=0.00 total=123456\n' '\x02250000000 19000000000 41\n' \
    '\x03cpu  1 2 3\nbtime 1700000000\n'
line file_capabilities '\x01\x00\x00\x02\x00\x00\x80\x00\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00\x00'
line units 2M 64K 1G,2M,64K 'hugetlb:2M,thp:2M!' 18446744073709551615 16E
line trace_file 'hugeleaf trace 1\n' 'hugeleaf trace 2\n' 'hugeleaf trace 99\n'
line target 1234 tree:1234 postgres postgresql.service /system.slice/redis.service
line parse_journal '{"record":"begin","step":"pool","what":"pool","path":"/p","before":{"is":"pool","pages":0,"surplus":0},"wanted":{"is":"pool","pages":5,"surplus":0}}\n' \
    '{"record":"done","step":"file","after":{"is":"file","content":{"hex":"ff00"},"mode":420,"uid":0,"gid":0},"state":"done"}\n{"record":"end","time":"2026-01-02T03:04:05Z","complete":true}\n'
line services '\x00[0.1s][info][pagesize] Heap:  min=8M max=1G base=0x0 page_size=4K size=1G\n size_t MaxHeapSize = 1073741824 {product}\n' \
    '\x01----- ---\ninnodb-buffer-pool-size  134217728\nlarge-pages  TRUE\n' "\\x02huge_pages = 'try' # note\\n" \
    '\x03key shmid perms size cpid lpid nattch uid gid\n0 32 1600 8388608 4711 4711 2 26 26\n'
line settings '\x00w /sys/kernel/mm/transparent_hugepage/enabled - - - - madvise\n' '\x01GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX hugepages=4"\n' \
    '\x02@dba - memlock unlimited\n' '\x03[Service]\nUser=a\nExecStart=/bin/a \\\\\n  %i %n\nLimitMEMLOCK=1M:infinity\n' \
    '\x04Max locked memory  8192  unlimited  bytes\n'
line pages '7f0000000000-7f0000200000 ph\n7f0000200000-7f0000201000 s\n'
line protocol '"stats"' '"quit"' '{"start":{"cache":1048576,"align":2097152,"seed":7}}' \
    '{"advise":{"advice":"collapse","ranges":[{"start":4096,"end":8192},{"start":12288,"end":16384}]}}' \
    '{"progress":{"stage":"fill","done":10,"total":100}}' '{"advised":4096}' '{"errno":11}' '{"failed":"no room"}' \
    '{"ready":{"rows":9,"segment":{"start":4096,"end":8192},"outside":0}}' \
    '{"stats":{"operations":1,"updates":1,"nanoseconds":1,"cpu_nanoseconds":1,"samples":1,"p50_nanoseconds":1,"p99_nanoseconds":1}}'
line metric_spec 'cmd:cat /tmp/n' 'gauge:lower:cmd:cat /tmp/n' 'redis:127.0.0.1:6379' 'postgres:host=/run/postgresql' \
    'mysql:mysql://root@127.0.0.1/db' 'http://127.0.0.1:9187/metrics#pg_stat_database_xact_commit'
line prometheus 'a_total{x="y"}\n# HELP a b\n# TYPE a counter\na_total{x="y",z="\\"q\\""} 12 1395066363000\n' \
    'p99(h)\n# TYPE h histogram\nh_bucket{le="0.1"} 3\nh_bucket{le="+Inf"} 5\nh_sum 1.5\nh_count 5\n'
line locks '1: FLOCK  ADVISORY  READ 1896 00:15:749440 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 7 fe:00:5 0 EOF\n'
line metric_text '# Stats\r\ntotal_commands_processed:123\r\nused_memory:100\r\n' '$30\r\ntotal_commands_processed:1\r\n\r\n'
line host_tree '\x0always [madvise] never\n' '\x0fcgroup /sys/fs/cgroup/hugetlb cgroup rw,hugetlb 0 0\n' '\x0b0-1,3\n'
line process_tree '\x0100-200 rw-p 0 00:00 0\nRss: 4 kB\n' '\x02(a) S 1\n' '\x0ca\n'
find fuzz/corpus -type f | wc -l | sed 's/$/ seeds/'
