//! Reads a captured process in which one file holds the input: its readers, and the reader of all processes.
#![no_main]

use std::sync::LazyLock;

use hugeleaf_fuzz::Tree;
use hugeleaf_host::{ReadDetail, Root, Target, read_all_processes, read_host, read_process};
use hugeleaf_sys::{Kernel, Pid};
use libfuzzer_sys::fuzz_target;

const MAPS: &str = "\
400000-401000 r-xp 00000000 08:01 7 /usr/bin/a
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
7f0000400000-7f0000800000 rw-s 00000000 00:01 9 /dev/zero (deleted)
";

const SMAPS: &str = "\
400000-401000 r-xp 00000000 08:01 7 /usr/bin/a
Size:                  4 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                   4 kB
VmFlags: rd ex mr mw me 
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
KernelPageSize:        4 kB
Rss:                4096 kB
Anonymous:          4096 kB
AnonHugePages:      2048 kB
THPeligible:           1
VmFlags: rd wr mr mw me ac hg 
7f0000400000-7f0000800000 rw-s 00000000 00:01 9 /dev/zero (deleted)
Size:               4096 kB
KernelPageSize:        4 kB
Rss:                4096 kB
ShmemPmdMapped:     2048 kB
VmFlags: rd wr sh mr mw me ms 
";

const FILES: &[(&str, &str)] = &[
    ("proc/7/smaps", SMAPS),
    ("proc/7/maps", MAPS),
    (
        "proc/7/stat",
        "7 (a) S 1 7 7 0 -1 0 1 0 0 0 1 1 0 0 20 0 1 0 100 4096 1 18446744073709551615 1 2 3 0 0 \
         0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 5 6 7 8 0\n",
    ),
    (
        "proc/7/status",
        "Name:\ta\nState:\tS (sleeping)\nPid:\t7\nPPid:\t1\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n\
         NSpid:\t7\nVmRSS:\t8196 kB\nHugetlbPages:\t0 kB\nVmPTE:\t40 kB\nThreads:\t1\n",
    ),
    (
        "proc/7/limits",
        "Max locked memory         8388608              8388608              bytes\n",
    ),
    ("proc/7/cgroup", "0::/system.slice/a.service\n"),
    ("proc/7/comm", "a\n"),
    ("proc/7/cmdline", "/usr/bin/a\0-x\0"),
    (
        "proc/7/numa_maps",
        "7f0000000000 interleave:0-1 anon=1024\n",
    ),
    ("proc/7/pages", "7f0000000000-7f0000200000 ph\n"),
    ("proc/7/mountinfo", "22 1 8:1 / / rw - ext4 /dev/root rw\n"),
    ("proc/7/task/7/children", "8 \n"),
    (
        "proc/8/status",
        "Name:\tb\nPid:\t8\nPPid:\t7\nUid:\t0\t0\t0\t0\nVmRSS:\t4096 kB\nVmPTE:\t4 kB\n",
    ),
    (
        "proc/8/maps",
        "7f0000401000-7f0000801000 rw-s 00000000 00:01 9 /dev/zero (deleted)\n",
    ),
    ("proc/9/maps", SMAPS),
    (
        "sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
        "2097152\n",
    ),
    ("proc/self/mounts", "proc /proc proc rw 0 0\n"),
];

static TREE: LazyLock<Tree> = LazyLock::new(|| Tree::new(FILES));

fuzz_target!(|data: &[u8]| {
    TREE.with(data, || {
        let root = Root::at(TREE.path());
        let kernel = Kernel::new();
        let Ok(host) = read_host(&root, &kernel) else {
            return;
        };
        for looking in [ReadDetail::Summary, ReadDetail::Segments, ReadDetail::Pages] {
            let _ = read_process(&root, &kernel, &host, Pid(7), looking);
        }
        let _ = read_all_processes(&root, &kernel, &host);
        for target in ["tree:7", "a", "a.service", "/system.slice"] {
            if let Ok(target) = target.parse::<Target>() {
                let _ = target.resolve(&root);
            }
        }
    });
});
