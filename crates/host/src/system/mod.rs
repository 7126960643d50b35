//! Readers of what a host has as a whole: one module a source, its parser beside its reader.
//!
//! Nothing here judges. Where one file cannot be read or parsed, only the facts that come from it
//! are unreadable; the rest of the host is still told.

pub mod auxv;
pub mod boot_time;
pub mod buddy;
pub mod cgroups;
mod identity;
pub mod kernel_log;
mod limits;
pub mod meminfo;
mod memory_limits;
mod owners;
pub mod pam_limits;
mod pools;
pub mod settings;
mod sizes;
pub mod sysctl;
mod thp;
pub mod unit_files;

use std::path::Path;

use hugeleaf_sys::Kernel;
use hugeleaf_units::{Bytes, PageSize};

use crate::fact::{Fact, ReadError};
use crate::model::{Cgroup, Host};
use crate::root::Root;

pub use identity::{Identity, identity};
pub use memory_limits::{memory_limits_of, memory_room, read_memory_limits};
pub use owners::read_owners;
pub use sizes::at_most;

/// Reads the host below `root`, without [`Host::owners`] (see [`read_owners`]: it looks at every
/// process) and [`Host::memory_limits`] (see [`read_memory_limits`]: every cgroup). `kernel` answers for what only a system call tells, and only where `root` is live.
///
/// # Errors
/// Where not even the size of a base page can be told; everything else is a [`crate::Fact`].
pub fn read_host(root: &Root, kernel: &dyn Kernel) -> Result<Host, ReadError> {
    let mut host = read_memory_facts(root, kernel)?;
    host.kernel_log = kernel_log::read(root);
    Ok(host)
}

/// Memory that could be had without pushing anything out (`MemAvailable`).
pub fn available(root: &Root) -> Fact<Bytes> {
    meminfo::read(root).available
}

/// The same as [`read_host`] without the kernel's log, which takes longest and is of no use to
/// those who only want to know what memory there is.
///
/// # Errors
/// As [`read_host`].
pub fn read_memory_facts(root: &Root, kernel: &dyn Kernel) -> Result<Host, ReadError> {
    read_facts(root, kernel, cgroups::read(root))
}

/// The same again, of cgroups only those that this process is in: what a program that it starts
/// can have, told without a look at everybody else's limits.
///
/// # Errors
/// As [`read_host`].
pub fn read_start_facts(root: &Root, kernel: &dyn Kernel) -> Result<Host, ReadError> {
    read_facts(root, kernel, cgroups::read_own(root))
}

fn read_facts(
    root: &Root,
    kernel: &dyn Kernel,
    cgroups: Fact<Vec<Cgroup>>,
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
        limits: limits::read(root),
        cgroups,
        owners: Vec::new(),
        memory_limits: Vec::new(),
        kernel_log: Fact::Absent,
        nodes,
    };
    let own_cgroups = cgroups::own(root);
    host.page_sizes = sizes::page_sizes(&host, &own_cgroups);
    Ok(host)
}

/// A file of one line, without its end.
fn line(root: &Root, path: impl AsRef<Path>) -> Fact<String> {
    root.read(path).map(|text| text.trim_end().to_owned())
}

/// A file of one number.
fn number(root: &Root, path: impl AsRef<Path>) -> Fact<u64> {
    root.parse(path, crate::parse::number)
}

/// The architecture; `/proc/sys/kernel/arch` is there since Linux 6.1, uname(2) always.
fn arch(root: &Root) -> Fact<String> {
    match line(root, "proc/sys/kernel/arch") {
        Fact::Absent if root.is_live() => Fact::Known(hugeleaf_sys::machine()),
        fact => fact,
    }
}

/// The size that a folder such as `hugepages-2048kB` is named for.
fn size_of_folder(name: &str) -> Option<PageSize> {
    let kib: u64 = name
        .strip_prefix("hugepages-")?
        .strip_suffix("kB")?
        .parse()
        .ok()?;
    PageSize::new(Bytes::from_kib(kib)).ok()
}

/// The sizes that `folder` has a subfolder for, smallest first, with the subfolder's path.
fn sizes_in(root: &Root, folder: &str) -> Fact<Vec<(PageSize, String)>> {
    root.list(folder).map(|names| {
        let mut sizes: Vec<(PageSize, String)> = names
            .iter()
            .filter_map(|name| Some((size_of_folder(name)?, format!("{folder}/{name}"))))
            .collect();
        sizes.sort();
        sizes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_name_sizes() {
        let size = |name| size_of_folder(name).map(|s| s.to_string());
        assert_eq!(size("hugepages-2048kB").as_deref(), Some("2M"));
        assert_eq!(size("hugepages-16777216kB").as_deref(), Some("16G"));
        for name in [
            "hugepages-kB",
            "hugepages-3kB",
            "hugepages-2048",
            "khugepaged",
            "",
        ] {
            assert_eq!(size(name), None, "{name}");
        }
        // 2^64 KiB saturates to a number that is no power of two.
        assert_eq!(size("hugepages-18446744073709551615kB"), None);
    }
}
