//! Shared helpers of this crate's tests: the host lock, pools that are restored, regions that are
//! written to the last page, and resource counts.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::{Bytes, PageKind, PageSize, Region, RegionOptions};
use hugeleaf_host::model::PageSizeInfo;
use hugeleaf_host::{Fact, Host, Root, read_host};
use hugeleaf_sys::Kernel;
use hugeleaf_testkit::host_lock::{ExclusiveHost, SharedHost, alone_as_root};

/// Returns the host as first read. The tests use only facts that do not change.
pub fn host() -> Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    let read = || read_host(&Root::live(), &Kernel::new()).unwrap();
    HOST.get_or_init(read).clone()
}

/// Returns the PMD size. If there is none, prints that the test was not run and returns `None`.
pub fn huge(test: &str) -> Option<PageSize> {
    let huge = host().pmd_page.get();
    if huge.is_none() {
        println!("not run: {test}: needs transparent huge pages");
    }
    huge
}

/// While this is held, no other test changes the host's use of huge pages.
pub fn undisturbed() -> SharedHost {
    hugeleaf_testkit::host_lock::shared()
}

/// Holds the host lock exclusively, and restores all changes.
pub struct HostGuard(ExclusiveHost);

impl HostGuard {
    /// Takes the lock; prints the reason and returns `None` if the test cannot run.
    pub fn lock(test: &str) -> Option<HostGuard> {
        let host = alone_as_root(test)?;
        // With THP set to always, no request could get base pages.
        let enabled = PathBuf::from("/sys/kernel/mm/transparent_hugepage/enabled");
        if std::fs::read_to_string(&enabled).is_ok_and(|text| text.contains("[always]")) {
            host.set(enabled, "madvise");
        }
        Some(HostGuard(host))
    }

    /// As `lock`, with a pool of this many pages of the host's default size.
    pub fn with_pool(test: &str, pages: u64) -> Option<(HostGuard, PageSize)> {
        let Some(size) = host().memory.default_hugetlb_page.get() else {
            println!("not run: {test}: needs hugetlb");
            return None;
        };
        let guard = HostGuard::lock(test)?;
        let before = pool(size);
        if before.free != before.total {
            // Setting and restoring the pool would make surplus pages permanent.
            println!("not run: {test}: somebody else uses pages of {size} of the pool");
            return None;
        }
        guard.set_pool(size, pages);
        if pool(size).total != pages {
            println!("not run: {test}: needs {pages} pages of {size} of contiguous memory");
            return None;
        }
        Some((guard, size))
    }

    /// Sets a pool.
    pub fn set_pool(&self, size: PageSize, pages: u64) {
        self.0.set_pool(size.bytes().get(), pages);
    }

    /// Enlarges a pool as the plan in an error's command would.
    pub fn do_next(&self, command: &str, size: PageSize) {
        let wanted = command.strip_prefix("hugeleaf plan --bytes ");
        let wanted = wanted.and_then(|rest| rest.strip_suffix(&format!(" --sizes {size}")));
        let wanted: Bytes = wanted
            .unwrap_or_else(|| panic!("{command}"))
            .parse()
            .unwrap();
        let pool = pool(size);
        let pages = pool.total - pool.free + wanted.get() / size.bytes().get();
        self.set_pool(size, pages);
    }

    /// Sets a knob.
    pub fn set(&self, path: PathBuf, value: &str) {
        self.0.set(path, value);
    }
}

fn folder(size: PageSize) -> PathBuf {
    hugeleaf_testkit::host_lock::pool(size.bytes().get())
}

/// The pool's own counters, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    pub total: u64,
    pub free: u64,
    pub reserved: u64,
    pub surplus: u64,
}

pub fn pool(size: PageSize) -> Pool {
    let number = |name: &str| -> u64 {
        let text = std::fs::read_to_string(folder(size).join(name)).unwrap();
        text.trim().parse().unwrap()
    };
    Pool {
        total: number("nr_hugepages"),
        free: number("free_hugepages"),
        reserved: number("resv_hugepages"),
        surplus: number("surplus_hugepages"),
    }
}

/// Returns the length of `n` pages.
pub fn pages(size: PageSize, n: u64) -> Bytes {
    Bytes(size.bytes().get() * n)
}

/// Returns options for a ladder.
pub fn options(length: Bytes, ladder: &str) -> RegionOptions {
    RegionOptions::new(length, ladder.parse().unwrap())
}

/// Returns the first word of every base page.
pub fn words(region: &Region) -> impl Iterator<Item = *mut u64> + use<> {
    let step = usize::try_from(host().base_page.bytes().get()).unwrap();
    let start = region.as_ptr() as u64;
    (0..region.len().get())
        .step_by(step)
        .map(move |offset| (start + offset) as *mut u64)
}

/// Writes a pattern to every base page; it does not depend on the region's address.
pub fn write_all(region: &Region, seed: u64) {
    for at in words(region) {
        let value = (at as u64 - region.as_ptr() as u64) ^ seed;
        // SAFETY: inside the region, which is populated, aligned, and used by no other code here.
        unsafe { at.write_volatile(value) };
    }
}

/// Reads back what [`write_all`] wrote.
pub fn assert_written(region: &Region, seed: u64) {
    for at in words(region) {
        let value = (at as u64 - region.as_ptr() as u64) ^ seed;
        // SAFETY: as above.
        assert_eq!(unsafe { at.read_volatile() }, value);
    }
}

/// Writes a pattern to every base page and reads it back.
pub fn use_all(region: &Region) {
    write_all(region, 0x5555);
    assert_written(region, 0x5555);
}

/// Checks that extents are adjacent and fill the region, and that each one that differs from the
/// request has a reason.
pub fn assert_whole(region: &Region) {
    let extents = region.extents().unwrap();
    let mut at = region.range().start();
    for extent in &extents {
        assert_eq!(extent.range.start(), at, "{extents:#?}");
        at = extent.range.end();
        let asked = extent.requested;
        let is_kind = asked.kind.is_none_or(|kind| kind == extent.kind);
        let is_asked = extent.page == asked.size && is_kind;
        assert_eq!(extent.why.is_none(), is_asked, "{extent:#?}");
        assert_eq!(extent.resident, extent.range.len(), "{extent:#?}");
    }
    assert_eq!(at, region.range().end());
}

/// Resources that a process may leak: descriptors, mappings of memory files, all mappings, threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holdings {
    pub descriptors: usize,
    pub files: usize,
    pub mappings: usize,
    pub threads: usize,
}

impl Holdings {
    pub fn now() -> Holdings {
        let count = |path: &str| std::fs::read_dir(path).unwrap().count();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Holdings {
            descriptors: count("/proc/self/fd"),
            files: maps.matches("memfd:hugeleaf").count(),
            // A sanitizer creates mappings of its own.
            mappings: match std::env::var_os("HUGELEAF_SANITIZED") {
                None => maps.lines().count(),
                Some(_) => 0,
            },
            threads: count("/proc/self/task"),
        }
    }
}

/// Returns a host with only these page sizes.
pub(crate) fn host_with(sizes: &[(&str, PageKind)]) -> Host {
    let fixture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/x86-4k-two-nodes"
    );
    let root = Root::at(fixture);
    let mut host = hugeleaf_host::read_host(&root, &Kernel::new()).unwrap();
    host.page_sizes = sizes
        .iter()
        .map(|(size, kind)| PageSizeInfo {
            size: size.parse().unwrap(),
            kind: *kind,
            enabled: true,
            how: String::new(),
            available: Fact::Absent,
            if_defragmented: Fact::Absent,
            sysv_without_privilege: None,
        })
        .collect();
    host
}
