//! Readers of host-wide facts: one module per source, its parser next to its reader.
//!
//! Nothing here judges. If a file cannot be read or parsed, only the facts from it are unreadable, and the rest of the host is still
//! reported.

pub mod auxv;
#[cfg(feature = "full")]
pub mod boot_time;
pub mod buddy;
#[cfg(feature = "full")]
pub mod counters;
pub(crate) mod file_readers;
#[cfg(feature = "full")]
pub mod hugetlbfs_mounts;
#[cfg(feature = "full")]
mod identity;
mod kernel_limits;
#[cfg(feature = "full")]
pub mod kernel_log;
#[cfg(feature = "full")]
pub mod kubelet;
pub mod meminfo;
#[cfg(feature = "full")]
pub mod orphaned_hugetlb;
mod page_sizes;
#[cfg(feature = "full")]
pub mod pam_limits;
mod pools;
#[cfg(feature = "full")]
mod process_memory_use;
#[cfg(feature = "full")]
pub mod running_programs;
#[cfg(feature = "full")]
pub mod settings_files;
pub mod sysctl_files;
#[cfg(feature = "full")]
pub mod system_config;
mod thp;
#[cfg(feature = "full")]
pub mod unit_files;
#[cfg(feature = "full")]
pub mod virtual_machine;

use hugeleaf_sys::Kernel;
use hugeleaf_units::Bytes;

use crate::fact::{Fact, ReadError};
use crate::limits;
use crate::model::{CompactionStalls, Host, HugetlbCgroup, ProcessMemoryLimits};
use crate::root::Root;
use file_readers::line;

#[cfg(feature = "full")]
pub use hugetlbfs_mounts::read_hugetlbfs_mounts;
#[cfg(feature = "full")]
pub use identity::{HostIdentity, identity};
#[cfg(feature = "full")]
pub use orphaned_hugetlb::read_leftovers;
pub use pools::{node_cpus, parse_nodes, read as read_pools};
#[cfg(feature = "full")]
pub use process_memory_use::read_owners;

/// Reads the host below `root`. Leaves out [`Host::owners`] (see [`read_owners`], which reads every process) and
/// [`Host::memory_limits`] (see [`limits::all_memory`], which reads every cgroup). `kernel` makes system calls,
/// only if `root` is live.
///
/// # Errors
/// If the base page size is unknown. Every other value is a [`crate::Fact`].
#[cfg(feature = "full")]
pub fn read_host(root: &Root, kernel: &Kernel) -> Result<Host, ReadError> {
    let mut host = read_memory_facts(root, kernel)?;
    host.kernel_log = kernel_log::read(root);
    host.compaction = counters::read_compaction(root);
    host.virtual_machine = virtual_machine::read(root);
    Ok(host)
}

/// Returns the memory available without swapping (`MemAvailable`).
pub fn available(root: &Root) -> Fact<Bytes> {
    meminfo::read(root).available
}

/// Reads the same as [`read_host`] without the kernel's log, which takes longest and is not needed for facts about memory.
///
/// # Errors
/// As [`read_host`].
pub fn read_memory_facts(root: &Root, kernel: &Kernel) -> Result<Host, ReadError> {
    read_facts(
        root,
        kernel,
        limits::read_limits(root, "self"),
        limits::all_hugetlb(root),
    )
}

/// Reads the same as [`read_memory_facts`], with only the cgroups of this process. They decide the memory of a program that it starts, and
/// all others need not be read.
///
/// # Errors
/// As [`read_host`].
pub fn read_start_facts(root: &Root, kernel: &Kernel) -> Result<Host, ReadError> {
    read_start_facts_within(root, kernel, limits::read_limits(root, "self"))
}

/// Reads the same as [`read_start_facts`], given the limits of this process.
///
/// # Errors
/// As [`read_host`].
pub fn read_start_facts_within(
    root: &Root,
    kernel: &Kernel,
    own: ProcessMemoryLimits,
) -> Result<Host, ReadError> {
    let cgroups = Fact::Known(own.hugetlb.clone());
    read_facts(root, kernel, own, cgroups)
}

fn read_facts(
    root: &Root,
    kernel: &Kernel,
    own: ProcessMemoryLimits,
    cgroups: Fact<Vec<HugetlbCgroup>>,
) -> Result<Host, ReadError> {
    let base_page = if root.is_live() {
        kernel.base_page()
    } else {
        auxv::captured_base_page(root)?
    };
    let nodes = pools::nodes(root);
    let pmd_page = thp::pmd_page(root);
    let memory = meminfo::read(root);
    let mut host = Host {
        kernel: line(root, "proc/sys/kernel/osrelease"),
        arch: arch(root),
        base_page,
        thp: thp::read(root, pmd_page.get()),
        pmd_page,
        pools: pools::read(root, memory.default_hugetlb_page.get()),
        memory,
        page_sizes: Vec::new(),
        buddy: root.parse("proc/buddyinfo", buddy::parse),
        limits: kernel_limits::read(root, own.memlock.clone()),
        cgroups,
        is_in_container: own.is_in_container,
        unseen_by_kubelet: Vec::new(),
        owners: Vec::new(),
        wants: Vec::new(),
        leftovers: Fact::Absent,
        memory_limits: Vec::new(),
        kernel_log: Fact::Absent,
        compaction: CompactionStalls::default(),
        #[cfg(feature = "full")]
        virtual_machine: virtual_machine::VirtualMachine::default(),
        nodes,
    };
    host.page_sizes = page_sizes::page_sizes(&host, &own);
    Ok(host)
}

/// Returns the architecture. `/proc/sys/kernel/arch` exists since Linux 6.1, uname(2) always.
fn arch(root: &Root) -> Fact<String> {
    match line(root, "proc/sys/kernel/arch") {
        Fact::Absent if root.is_live() => Fact::Known(hugeleaf_sys::machine()),
        fact => fact,
    }
}
