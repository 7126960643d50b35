//! Limits and settings that affect huge pages, outside THP and the pools.

use hugeleaf_units::{Bytes, Pages};

use super::file_readers;
use crate::fact::Fact;
use crate::model::KernelLimits;
use crate::root::Root;

/// Reads the limits of a host. `memlock` is that of this process.
pub fn read(root: &Root, memlock: Fact<Bytes>) -> KernelLimits {
    let number = |name: &str| file_readers::number(root, format!("proc/sys/{name}"));
    KernelLimits {
        hugetlb_shm_group: number("vm/hugetlb_shm_group"),
        shmmax: number("kernel/shmmax").map(Bytes),
        shmall: number("kernel/shmall").map(Pages),
        overcommit_memory: number("vm/overcommit_memory"),
        overcommit_ratio: number("vm/overcommit_ratio"),
        min_free: number("vm/min_free_kbytes").map(Bytes::from_kib),
        compaction_proactiveness: number("vm/compaction_proactiveness"),
        ksm_run: file_readers::number(root, "sys/kernel/mm/ksm/run"),
        memlock,
        boot: file_readers::line(root, "proc/cmdline"),
        sysctl: super::sysctl_files::read(root),
    }
}
