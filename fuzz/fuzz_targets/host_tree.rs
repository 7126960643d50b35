//! Reads a captured host in which one file holds the input: all readers of knobs, pools, limits, cgroups and sysctl
//! files, and the findings of `status`. Only a missing base page size may make a host unreadable. Free memory must not
//! exceed the limit of the own cgroup, and no advice may contradict another.
#![no_main]

use std::sync::LazyLock;

use hugeleaf_fuzz::Tree;
use hugeleaf_host::limits::{self, shared_limit::read_shared_limit};
use hugeleaf_host::system::read_leftovers;
use hugeleaf_host::{Root, read_host};
use hugeleaf_sys::Kernel;
use hugeleaf_verdict::findings::findings;
use libfuzzer_sys::fuzz_target;

const FILES: &[(&str, &str)] = &[
    (
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "always within_size advise [never] deny force\n",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/defrag",
        "always defer defer+madvise [madvise] never\n",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
        "2097152\n",
    ),
    ("sys/kernel/mm/transparent_hugepage/use_zero_page", "1\n"),
    (
        "sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none",
        "511\n",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
        "always inherit madvise [never]\n",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled",
        "always inherit within_size advise [never]\n",
    ),
    (
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        "4\n",
    ),
    (
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
        "2\n",
    ),
    (
        "sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
        "1\n",
    ),
    ("sys/devices/system/node/has_memory", "0\n"),
    (
        "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        "4\n",
    ),
    (
        "proc/meminfo",
        "MemTotal: 1000 kB\nMemFree: 500 kB\nHugepagesize: 2048 kB\n",
    ),
    (
        "proc/buddyinfo",
        "Node 0, zone   Normal      1      2      3      4      5      6      7      8      9     10     11\n",
    ),
    (
        "proc/self/mounts",
        "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nproc /proc proc rw,hidepid=2 0 0\n",
    ),
    ("proc/self/cgroup", "0::/a.slice\n"),
    (
        "proc/self/limits",
        "Max locked memory         8388608              8388608              bytes\n",
    ),
    ("sys/fs/cgroup/cgroup.controllers", "hugetlb memory\n"),
    ("sys/fs/cgroup/a.slice/hugetlb.2MB.max", "max\n"),
    ("sys/fs/cgroup/a.slice/hugetlb.2MB.current", "0\n"),
    ("sys/fs/cgroup/a.slice/hugetlb.2MB.rsvd.max", "4194304\n"),
    ("sys/fs/cgroup/a.slice/hugetlb.2MB.events", "max 0\n"),
    ("sys/fs/cgroup/a.slice/memory.max", "104857600\n"),
    ("sys/fs/cgroup/a.slice/memory.high", "max\n"),
    ("sys/fs/cgroup/a.slice/memory.current", "73400320\n"),
    (
        "sys/fs/cgroup/a.slice/memory.stat",
        "anon 1\ninactive_file 1048576\nactive_file 2097152\n",
    ),
    ("sys/fs/cgroup/a.slice/memory.oom.group", "1\n"),
    ("sys/fs/cgroup/a.slice/cgroup.procs", "1\n2\n"),
    (
        "proc/self/mountinfo",
        "30 1 0:26 / /mnt/huge\\040pages rw - hugetlbfs none rw,pagesize=2M\n",
    ),
    ("mnt/huge pages/left", "a file of a dead program\n"),
    (
        "proc/sysvipc/shm",
        "key shmid perms size cpid lpid nattch uid gid\n0 32 1600 8388608 4711 4711 0 26 26\n",
    ),
    ("proc/vmstat", "compact_stall 9000000\nthp_fault_alloc 1\n"),
    (
        "proc/pressure/memory",
        "some avg10=0.00 avg60=12.00 avg300=0.00 total=9\n",
    ),
    ("proc/uptime", "350735.47 234388.90\n"),
    ("proc/sys/vm/overcommit_memory", "2\n"),
    ("proc/sys/vm/overcommit_ratio", "50\n"),
    ("proc/sys/vm/swappiness", "60\n"),
    ("proc/sys/vm/hugetlb_shm_group", "0\n"),
    ("proc/sys/kernel/shmmax", "18446744073692774399\n"),
    ("etc/sysctl.d/90-pages.conf", "vm.nr_hugepages = 4\n"),
    (
        "usr/lib/sysctl.d/50-default.conf",
        "vm.nr_hugepages = 8\n-vm/swappiness=1\n",
    ),
    ("run/sysctl.d/90-pages.conf", "vm.overcommit_memory = 1\n"),
    ("etc/sysctl.conf", "vm.nr_hugepages = 100\n"),
    ("etc/os-release", "ID=debian\nVERSION_ID=\"13\"\n"),
    ("var/log/dmesg", "HugeTLB: allocating 4 failed\n"),
    (
        "proc/7/smaps",
        "1000-2000 rw-p 00000000 00:00 0 \nKernelPageSize: 4 kB\n",
    ),
    ("proc/7/status", "Name: a\nPid: 7\nVmPTE: 8 kB\n"),
];

static TREE: LazyLock<Tree> = LazyLock::new(|| Tree::new(FILES));

fuzz_target!(|data: &[u8]| {
    TREE.with(data, || {
        let root = Root::at(TREE.path());
        let host = read_host(&root, &Kernel::new());
        let touches_base_page = FILES[usize::from(data[0]) % FILES.len()].0 == "proc/7/smaps";
        assert!(host.is_ok() || touches_base_page);
        let _ = hugeleaf_host::read_owners(&root);
        for limit in limits::read_limits(&root, "self").memory {
            assert!(limit.room() <= limit.room_at_most() && limit.room_at_most() <= limit.limit);
        }
        let _ = read_shared_limit(&root);
        if let Ok(host) = host {
            let _ = read_leftovers(&root, &Kernel::new(), &host);
            let _ = findings(&host);
        }
    });
});
