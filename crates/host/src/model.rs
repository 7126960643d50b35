//! The facts of a host and its processes at one time. Plain data, no I/O.
//!
//! Each field's comment names the file that the value was read from, so a number on the screen can be traced to its
//! source. In JSON a field has the name given by its serde attribute, or its own (docs/reference/json.md).

use std::borrow::Borrow;
use std::path::Path;
use std::time::Duration;

use hugeleaf_sys::{PageMap, Pid};
use hugeleaf_units::{Bytes, PageKind, PageSize, Pages, Range};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::fact::Fact;
use crate::process::proc_parsers::units_in;
use crate::setting_requirements::SettingRequirement;
#[cfg(feature = "full")]
use crate::system::virtual_machine::VirtualMachine;

/// Facts of the host as a whole.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// Release of the kernel (`/proc/sys/kernel/osrelease`).
    pub kernel: Fact<String>,
    /// Architecture as uname(2) names it (`/proc/sys/kernel/arch`).
    pub arch: Fact<String>,
    #[serde(rename = "base_page_bytes")]
    pub base_page: PageSize,
    /// Size mapped by one entry of a page middle directory. It is the size of a full THP and of MADV_COLLAPSE
    /// (`transparent_hugepage/hpage_pmd_size`). Absent without THP.
    #[serde(rename = "pmd_page_bytes")]
    pub pmd_page: Fact<PageSize>,
    /// `/proc/meminfo`.
    #[serde(flatten)]
    pub memory: Memory,
    /// Every page size of every kind that this kernel has, smallest first.
    pub page_sizes: Vec<PageSizeInfo>,
    /// hugetlb pools: one entry per size and node, and one per size with `node: None` for the total.
    pub pools: Vec<Pool>,
    /// Transparent huge pages. Absent if the kernel was built without them.
    pub thp: Fact<Thp>,
    /// Free contiguous blocks (`/proc/buddyinfo`).
    #[serde(rename = "free_blocks")]
    pub buddy: Fact<Buddy>,
    /// Limits and settings outside THP that affect huge pages.
    pub limits: KernelLimits,
    /// All cgroups that limit hugetlb pages. Those that bind a process are in its own limits.
    pub cgroups: Fact<Vec<HugetlbCgroup>>,
    /// True if this host is seen from inside a container.
    #[serde(skip)]
    pub is_in_container: bool,
    /// Sizes whose pools hugeleaf has changed since the kubelet of this host started. Filled by commands that read the journal.
    #[serde(skip)]
    pub unseen_by_kubelet: Vec<PageSize>,
    /// cgroups that limit memory. Filled by `status` only.
    #[serde(skip)]
    pub memory_limits: Vec<MemoryLimit>,
    /// Processes that use most hugetlb pages and page tables. Filled by `status` only.
    #[serde(skip)]
    pub owners: Vec<ProcessMemoryUse>,
    /// Settings that running programs want. Filled by commands that advise settings.
    #[serde(skip)]
    pub wants: Vec<SettingRequirement>,
    /// Pool pages that no running process holds. Absent if they were not searched for.
    pub leftovers: Fact<Vec<OrphanedHugetlb>>,
    /// Lines of the kernel log on pools or failed allocations.
    pub kernel_log: Fact<Vec<String>>,
    /// Allocations that waited for compaction. Filled by [`crate::read_host`] only.
    #[serde(flatten)]
    pub compaction: CompactionStalls,
    /// The hypervisor below this host. Filled by [`crate::read_host`] only.
    #[cfg(feature = "full")]
    pub virtual_machine: VirtualMachine,
    /// Nodes that have memory, as in `/sys/devices/system/node/node0`. `[0]` if there is no such folder.
    pub nodes: Vec<u32>,
}

impl Host {
    /// Returns the pools over all nodes, one per size.
    pub fn totals(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(|pool| pool.node.is_none())
    }

    /// Returns the size of all pools together.
    pub fn in_pools(&self) -> Bytes {
        (self.totals())
            .map(|pool| pool.all().in_bytes(pool.size))
            .sum()
    }

    /// Returns the pool pages of a size that no running process holds.
    pub fn leftover_pages(&self, size: PageSize) -> Pages {
        let of_size = self
            .leftovers
            .entries()
            .iter()
            .filter(|one| one.size == size);
        of_size.map(|one| size.pages_for(one.bytes)).sum()
    }

    /// Returns the pool of one size over all nodes.
    pub fn pool(&self, size: PageSize) -> Option<&Pool> {
        self.totals().find(|pool| pool.size == size)
    }

    /// Returns the settings of the PMD-sized THP. `None` if there is none.
    pub fn full_thp(&self) -> Option<&ThpSizeSettings> {
        self.thp.known()?.order(self.pmd_page.get()?)
    }

    /// Returns the setting in force of the PMD-sized THP, and its file. On kernels without one per size, that for all
    /// sizes.
    pub fn thp_setting(&self, of: ThpMemoryKind) -> (String, &Fact<String>) {
        const ABSENT: &Fact<String> = &Fact::Absent;
        let thp = self.thp.known();
        let own = self
            .full_thp()
            .filter(|order| !order.own_setting(of).is_absent());
        match thp.zip(own) {
            Some((thp, order)) => (order.effective_file(of), order.setting(thp, of)),
            None => (of.file(), thp.map_or(ABSENT, |thp| thp.global_setting(of))),
        }
    }
}

/// The lines of `/proc/meminfo` that concern page sizes.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Memory {
    /// `MemTotal`.
    #[serde(rename = "memory_bytes")]
    pub total: Fact<Bytes>,
    /// `MemFree`.
    #[serde(rename = "free_bytes")]
    pub free: Fact<Bytes>,
    /// `MemAvailable`.
    #[serde(rename = "available_bytes")]
    pub available: Fact<Bytes>,
    /// `PageTables`: all page tables of user processes.
    #[serde(rename = "page_tables_bytes")]
    pub page_tables: Fact<Bytes>,
    /// `AnonPages`.
    #[serde(rename = "private_bytes")]
    pub anon: Fact<Bytes>,
    /// `Mapped`: pages of files and shared memory that processes map, each once.
    #[serde(skip)]
    pub mapped: Fact<Bytes>,
    /// `AnonHugePages`: private anonymous memory on PMD-mapped THP.
    #[serde(rename = "private_huge_bytes")]
    pub anon_huge: Fact<Bytes>,
    /// `Shmem`.
    #[serde(rename = "shared_bytes")]
    pub shmem: Fact<Bytes>,
    /// `ShmemHugePages`: shared memory on huge folios, mapped or not.
    #[serde(rename = "shared_huge_bytes")]
    pub shmem_huge: Fact<Bytes>,
    /// `ShmemPmdMapped`.
    #[serde(rename = "shared_pmd_mapped_bytes")]
    pub shmem_pmd_mapped: Fact<Bytes>,
    /// `FileHugePages`: page cache on PMD-sized folios.
    #[serde(rename = "page_cache_huge_bytes")]
    pub file_huge: Fact<Bytes>,
    /// `FilePmdMapped`.
    #[serde(rename = "page_cache_pmd_mapped_bytes")]
    pub file_pmd_mapped: Fact<Bytes>,
    /// `Mlocked`.
    #[serde(rename = "locked_bytes")]
    pub locked: Fact<Bytes>,
    /// `Unevictable`.
    #[serde(rename = "unevictable_bytes")]
    pub unevictable: Fact<Bytes>,
    /// `Cached`.
    #[serde(rename = "page_cache_bytes")]
    pub cached: Fact<Bytes>,
    /// `Hugetlb`: all memory in hugetlb pools, of all sizes.
    #[serde(rename = "hugetlb_bytes")]
    pub hugetlb: Fact<Bytes>,
    /// `Hugepagesize`: the default hugetlb page size.
    #[serde(rename = "default_hugetlb_page_bytes")]
    pub default_hugetlb_page: Fact<PageSize>,
    /// `SwapTotal`.
    #[serde(rename = "swap_bytes")]
    pub swap_total: Fact<Bytes>,
    /// `SwapFree`.
    #[serde(rename = "swap_free_bytes")]
    pub swap_free: Fact<Bytes>,
    /// `CommitLimit`: limit of committed memory under `vm.overcommit_memory=2`, pools excluded.
    #[serde(rename = "commit_limit_bytes")]
    pub commit_limit: Fact<Bytes>,
    /// `Committed_AS`: memory committed to programs.
    #[serde(rename = "committed_bytes")]
    pub committed: Fact<Bytes>,
}

/// Stalls for memory compaction, since boot.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CompactionStalls {
    /// `compact_stall` of `/proc/vmstat`: allocations that compacted memory themselves.
    #[serde(rename = "compaction_stalls")]
    pub stalls: Fact<u64>,
    /// `compact_fail`: number of these that did not succeed.
    #[serde(rename = "compaction_failures")]
    pub failures: Fact<u64>,
    /// `/proc/uptime`.
    #[serde(rename = "uptime_seconds", serialize_with = "seconds")]
    pub uptime: Fact<Duration>,
    /// `some avg60` of `/proc/pressure/memory`: percent of the last minute in which some task stalled for memory.
    #[serde(rename = "memory_pressure_percent")]
    pub pressure: Fact<f64>,
}

fn seconds<S: Serializer>(time: &Fact<Duration>, out: S) -> Result<S::Ok, S::Error> {
    time.clone().map(|time| time.as_secs_f64()).serialize(out)
}

/// A page size that this kernel has, and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PageSizeInfo {
    #[serde(rename = "page_bytes")]
    pub size: PageSize,
    /// Kind of the pages, which names their source.
    pub kind: PageKind,
    /// True if a program could get such a page under the settings in force, if memory suffices. That needs a pool with
    /// pages or overcommit, or a THP size whose setting is not `never`.
    pub enabled: bool,
    /// The settings in words, as in `madvise; shmem never` or `pool 4096, overcommit 0`.
    pub how: String,
    /// Bytes available on this size now, and the limiting factor.
    #[serde(flatten, serialize_with = "available")]
    pub available: Fact<PageSizeAvailability>,
    /// Upper bound of the available bytes if all available memory became contiguous, by compaction, dropping page cache
    /// and, for hugetlb, growing the pool. Unmovable memory makes it less.
    #[serde(rename = "at_most_bytes")]
    pub if_defragmented: Fact<Bytes>,
    /// Maximum SysV segment on hugetlb pages without CAP_IPC_LOCK and outside the group `hugetlb_shm_group`. memlock
    /// bounds it (fs/hugetlbfs, user_shm_lock). `None` for other kinds.
    #[serde(rename = "sysv_without_privilege_bytes")]
    pub sysv_without_privilege: Option<Bytes>,
}

/// Bytes available on a page size now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSizeAvailability {
    /// Bytes on pages of this size.
    pub bytes: Bytes,
    /// The limiting factor: `memory`, `free blocks` (contiguous ones), `pool`, `cgroup NAME`. memlock limits only SysV
    /// segments on hugetlb pages without CAP_IPC_LOCK and the group `hugetlb_shm_group`, so the caller that prints this
    /// adds it.
    pub limited_by: String,
}

/// Serializes one fact as two fields. The second is missing if the first is not known.
fn available<S: Serializer>(fact: &Fact<PageSizeAvailability>, out: S) -> Result<S::Ok, S::Error> {
    let mut fields = out.serialize_struct("Available", 2)?;
    let bytes = fact.clone().map(|had| had.bytes);
    fields.serialize_field("available_bytes", &bytes)?;
    fields.serialize_field("limited_by", &fact.known().map(|had| &had.limited_by))?;
    fields.end()
}

/// hugetlb pages of one size, on one node or on all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pool {
    #[serde(rename = "page_bytes")]
    pub size: PageSize,
    /// The node. `None` for the sum over all (`/sys/kernel/mm/hugepages`).
    pub node: Option<u32>,
    /// `nr_hugepages`: all pages in the pool, surplus included.
    pub total: Fact<Pages>,
    /// `free_hugepages`: pages not in use, reserved ones included.
    pub free: Fact<Pages>,
    /// `resv_hugepages`: reserved for mappings, not yet touched. Absent per node.
    pub reserved: Fact<Pages>,
    /// `surplus_hugepages`: pages of `total` that overcommit added.
    pub surplus: Fact<Pages>,
    /// `nr_overcommit_hugepages`: maximum number of surplus pages. Absent per node.
    pub overcommit: Fact<Pages>,
}

/// Returns the path of a file of the pool of one size, of one node or of all.
pub fn pool_file(size: PageSize, node: Option<u32>, name: &str) -> String {
    let of = node.map_or("kernel/mm".to_owned(), |node| {
        format!("devices/system/node/node{node}")
    });
    format!("/sys/{of}/hugepages/{}/{name}", size_folder(size))
}

/// Returns the folder of one size, for its pool or its THP settings. The kernel names it in kB of 1024 bytes.
pub fn size_folder(size: PageSize) -> String {
    format!("hugepages-{}kB", size.bytes().get() / 1024)
}

/// Unknown values count as zero.
impl Pool {
    /// Returns the number of all pages in the pool.
    pub fn all(&self) -> Pages {
        self.total.get().unwrap_or_default()
    }

    /// Returns the number of persistent pages, without the surplus pages of overcommit, which are freed after use
    /// (`nr_hugepages` counts both).
    pub fn persistent(&self) -> Pages {
        self.all() - self.surplus.get().unwrap_or_default()
    }

    /// Returns the number of pages in use.
    pub fn used(&self) -> Pages {
        self.all() - self.free.get().unwrap_or_default()
    }

    /// Returns the number of pages that are free and not reserved.
    pub fn available(&self) -> Pages {
        self.free.get().unwrap_or_default() - self.reserved.get().unwrap_or_default()
    }

    /// Returns the number of pages that overcommit may still add.
    pub fn may_add(&self) -> Pages {
        self.overcommit.get().unwrap_or_default() - self.surplus.get().unwrap_or_default()
    }

    /// True if the pool has pages or may get surplus pages.
    pub fn gives_any(&self) -> bool {
        self.all() + self.overcommit.get().unwrap_or_default() > Pages(0)
    }
}

/// Transparent huge pages: `/sys/kernel/mm/transparent_hugepage`.
#[derive(Debug, Clone, Default)]
pub struct Thp {
    /// `enabled`: `always`, `madvise` or `never`.
    pub enabled: Fact<String>,
    /// `defrag`.
    pub defrag: Fact<String>,
    /// `shmem_enabled`.
    pub shmem_enabled: Fact<String>,
    /// `use_zero_page`.
    pub use_zero_page: Fact<bool>,
    /// `shrink_underused`.
    pub shrink_underused: Fact<bool>,
    pub khugepaged: Khugepaged,
    /// The sizes, smallest first (`hugepages-*kB`).
    pub orders: Vec<ThpSizeSettings>,
}

/// `/sys/kernel/mm/transparent_hugepage/khugepaged`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Khugepaged {
    /// `defrag`: true if it may compact memory.
    pub defrag: Fact<bool>,
    /// `pages_to_scan`: base pages per round.
    pub pages_to_scan: Fact<Pages>,
    /// `scan_sleep_millisecs`: pause between rounds.
    #[serde(rename = "scan_sleep_seconds", serialize_with = "in_seconds")]
    pub scan_sleep_millis: Fact<u64>,
    /// `alloc_sleep_millisecs`: pause after a failed allocation.
    #[serde(rename = "alloc_sleep_seconds", serialize_with = "in_seconds")]
    pub alloc_sleep_millis: Fact<u64>,
    /// `max_ptes_none`: maximum number of missing base pages in a huge page.
    pub max_ptes_none: Fact<Pages>,
    /// `max_ptes_swap`.
    pub max_ptes_swap: Fact<Pages>,
    /// `max_ptes_shared`.
    pub max_ptes_shared: Fact<Pages>,
    /// `pages_collapsed` since boot.
    pub pages_collapsed: Fact<u64>,
    /// `full_scans` since boot.
    pub full_scans: Fact<u64>,
    /// True if it also makes sizes below the PMD's if they are on (Linux 7.2). The kernel then counts them in
    /// `hugepages-*kB/stats/collapse_alloc`.
    #[serde(rename = "makes_smaller_sizes")]
    pub collapses_small_orders: bool,
}

fn in_seconds<S: Serializer>(millis: &Fact<u64>, out: S) -> Result<S::Ok, S::Error> {
    let seconds = millis.clone().map(|millis| millis as f64 / 1000.0);
    seconds.serialize(out)
}

/// Includes the setting in force of each size, which depends on the settings for all sizes.
impl Serialize for Thp {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ThpSizeEntry {
            page_bytes: PageSize,
            private: Fact<String>,
            shared: Fact<String>,
            private_in_force: Option<String>,
            shared_in_force: Option<String>,
        }
        let size = |order: &'_ ThpSizeSettings| ThpSizeEntry {
            page_bytes: order.size,
            private: order.anon.clone(),
            shared: order.shmem.clone(),
            private_in_force: order
                .effective(self, ThpMemoryKind::Private)
                .map(str::to_owned),
            shared_in_force: order
                .effective(self, ThpMemoryKind::Shared)
                .map(str::to_owned),
        };
        let mut fields = out.serialize_struct("Thp", 7)?;
        fields.serialize_field("enabled", &self.enabled)?;
        fields.serialize_field("shmem_enabled", &self.shmem_enabled)?;
        fields.serialize_field("defrag", &self.defrag)?;
        fields.serialize_field("use_zero_page", &self.use_zero_page)?;
        fields.serialize_field("shrink_underused", &self.shrink_underused)?;
        let sizes: Vec<ThpSizeEntry> = self.orders.iter().map(size).collect();
        fields.serialize_field("sizes", &sizes)?;
        fields.serialize_field("khugepaged", &self.khugepaged)?;
        fields.end()
    }
}

/// The kinds of memory with separate THP settings: private and shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThpMemoryKind {
    /// `enabled`.
    Private,
    /// `shmem_enabled`.
    Shared,
}

impl ThpMemoryKind {
    /// Returns the name of its setting, for all sizes and in the folder of each.
    pub const fn knob(self) -> &'static str {
        match self {
            ThpMemoryKind::Private => "enabled",
            ThpMemoryKind::Shared => "shmem_enabled",
        }
    }

    /// Returns the file of its setting for all sizes.
    pub fn file(self) -> String {
        thp_file(self.knob())
    }
}

/// True if a THP setting allows huge pages to some programs.
pub fn thp_is_on(setting: Option<&str>) -> bool {
    setting.is_some_and(|word| !matches!(word, "never" | "deny"))
}

/// Returns the path of a file in the folder of THP settings.
pub fn thp_file(name: &str) -> String {
    format!("/sys/kernel/mm/transparent_hugepage/{name}")
}

impl Thp {
    /// Returns the setting for all sizes that inherit it.
    pub const fn global_setting(&self, of: ThpMemoryKind) -> &Fact<String> {
        match of {
            ThpMemoryKind::Private => &self.enabled,
            ThpMemoryKind::Shared => &self.shmem_enabled,
        }
    }

    pub fn order(&self, size: PageSize) -> Option<&ThpSizeSettings> {
        self.orders.iter().find(|order| order.size == size)
    }

    /// Returns the sizes that khugepaged makes of private memory, smallest first. Includes sizes whose setting is not
    /// known. `pmd` is the size of a full huge page.
    pub fn khugepaged_sizes(&self, pmd: Option<PageSize>) -> Vec<PageSize> {
        let makes = |order: &&ThpSizeSettings| {
            let setting = order.effective(self, ThpMemoryKind::Private);
            let is_its = Some(order.size) == pmd || self.khugepaged.collapses_small_orders;
            is_its && !order.anon.is_absent() && setting != Some("never")
        };
        self.orders.iter().filter(makes).map(|o| o.size).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThpSizeSettings {
    pub size: PageSize,
    /// `hugepages-*kB/enabled` for anonymous memory: `always`, `madvise`, `never` or `inherit`. Absent if this size
    /// does not exist for anonymous memory.
    pub anon: Fact<String>,
    /// `hugepages-*kB/shmem_enabled`: also `within_size` and `advise`.
    pub shmem: Fact<String>,
}

impl ThpSizeSettings {
    pub const fn own_setting(&self, of: ThpMemoryKind) -> &Fact<String> {
        match of {
            ThpMemoryKind::Private => &self.anon,
            ThpMemoryKind::Shared => &self.shmem,
        }
    }

    /// Returns the file of the size's own setting.
    pub fn file(&self, of: ThpMemoryKind) -> String {
        thp_file(&format!("{}/{}", size_folder(self.size), of.knob()))
    }

    /// Returns the file of the setting in force: the size's own, or the one for all sizes if it inherits.
    pub fn effective_file(&self, of: ThpMemoryKind) -> String {
        match self.own_setting(of) {
            Fact::Known(word) if word == "inherit" => of.file(),
            Fact::Absent => of.file(),
            _ => self.file(of),
        }
    }

    /// True if some programs may get pages of the size. False if that is not known.
    pub fn is_on(&self, thp: &Thp, of: ThpMemoryKind) -> bool {
        thp_is_on(self.effective(thp, of))
    }

    /// Returns the setting in force, with `inherit` resolved. Every view and verdict uses it.
    pub fn setting<'a>(&'a self, thp: &'a Thp, of: ThpMemoryKind) -> &'a Fact<String> {
        match self.own_setting(of) {
            Fact::Known(word) if word == "inherit" => thp.global_setting(of),
            own => own,
        }
    }

    pub fn effective<'a>(&'a self, thp: &'a Thp, of: ThpMemoryKind) -> Option<&'a str> {
        self.setting(thp, of).text()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Buddy {
    pub zones: Vec<FreeBlocks>,
}

/// The free blocks of one zone (`/proc/buddyinfo`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FreeBlocks {
    pub node: u32,
    /// The zone, as in `Normal`.
    pub zone: String,
    /// `counts[n]` blocks of 2^n base pages.
    pub counts: Vec<u64>,
}

impl Buddy {
    /// Returns the number of free bytes in blocks that hold a page of `size`.
    pub fn free_for(&self, size: PageSize, base: PageSize) -> Bytes {
        let order = size.ratio_to(base).max(1).trailing_zeros() as usize;
        self.zones
            .iter()
            .flat_map(|zone| zone.counts.iter().enumerate().skip(order))
            .map(|(n, count)| {
                let shift = u32::try_from(n).unwrap_or(u32::MAX);
                let block = base.bytes().get().checked_shl(shift).unwrap_or(0);
                Bytes(count.saturating_mul(block))
            })
            .sum()
    }
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct KernelLimits {
    /// `/proc/sys/vm/hugetlb_shm_group`: the group that may use `SHM_HUGETLB` without CAP_IPC_LOCK.
    pub hugetlb_shm_group: Fact<u64>,
    /// `/proc/sys/kernel/shmmax`.
    #[serde(rename = "shmmax_bytes")]
    pub shmmax: Fact<Bytes>,
    /// `/proc/sys/kernel/shmall`, in base pages.
    #[serde(rename = "shmall_pages")]
    pub shmall: Fact<Pages>,
    /// `/proc/sys/vm/overcommit_memory`.
    pub overcommit_memory: Fact<u64>,
    /// `/proc/sys/vm/overcommit_ratio`: percentage of memory outside the pools that counts for CommitLimit. The kernel sets it
    /// to 0 if `vm.overcommit_kbytes` is used instead.
    #[serde(rename = "overcommit_ratio_percent")]
    pub overcommit_ratio: Fact<u64>,
    /// `/proc/sys/vm/min_free_kbytes`.
    #[serde(rename = "min_free_bytes")]
    pub min_free: Fact<Bytes>,
    /// `/proc/sys/vm/compaction_proactiveness`.
    pub compaction_proactiveness: Fact<u64>,
    /// `/sys/kernel/mm/ksm/run`: 1 if ksmd merges equal pages of memory under MADV_MERGEABLE, 0 if it is stopped, 2 if it
    /// is stopped and what was merged is separate again. Absent without CONFIG_KSM.
    pub ksm_run: Fact<u64>,
    /// Soft memlock limit of this process (`/proc/self/limits`). `u64::MAX` is unlimited.
    #[serde(rename = "memlock_bytes", serialize_with = "limit")]
    pub memlock: Fact<Bytes>,
    /// Kernel command line (`/proc/cmdline`).
    pub boot: Fact<String>,
    /// Huge-page settings in the folders `sysctl.d`, in the order in which they are applied. Of two with one key, the
    /// later wins.
    pub sysctl: Fact<Vec<SysctlLine>>,
}

/// Leaves out an unlimited value.
fn limit<S: Serializer>(limit: &Fact<Bytes>, out: S) -> Result<S::Ok, S::Error> {
    let set = |limit: Bytes| Fact::from((limit.get() != u64::MAX).then_some(limit));
    limit.clone().and_then(set).serialize(out)
}

/// One setting in a file. The value in force may differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SysctlLine {
    pub path: String,
    /// The key with dots, as in `vm.nr_hugepages`.
    pub key: String,
    pub value: String,
}

/// A cgroup that limits hugetlb pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HugetlbCgroup {
    /// Version of the hierarchy, 1 or 2.
    pub version: u8,
    /// Path below the hierarchy's mount, as in `/system.slice/postgresql.service`.
    pub path: String,
    /// The folder of its files, as in `/sys/fs/cgroup/system.slice/postgresql.service`.
    #[serde(skip)]
    pub folder: String,
    /// One entry per page size that it limits.
    pub hugetlb: Vec<HugetlbLimit>,
}

/// A cgroup's limits on one hugetlb page size. With a limit on faults, mmap succeeds and the process gets SIGBUS later.
/// With a limit on reservations, mmap fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HugetlbLimit {
    #[serde(rename = "page_bytes")]
    pub size: PageSize,
    /// Limit on faults (`hugetlb.2MB.max`, v1 `limit_in_bytes`). `None` is unlimited.
    #[serde(rename = "fault_limit_bytes")]
    pub fault_limit: Fact<Option<Bytes>>,
    #[serde(rename = "fault_usage_bytes")]
    pub fault_usage: Fact<Bytes>,
    /// Limit on reservations (`hugetlb.2MB.rsvd.max`). `None` is unlimited.
    #[serde(rename = "reservation_limit_bytes")]
    pub reservation_limit: Fact<Option<Bytes>>,
    #[serde(rename = "reservation_usage_bytes")]
    pub reservation_usage: Fact<Bytes>,
    /// Number of times a limit was hit (`events`, v1 `failcnt`).
    pub hits: Fact<u64>,
}

/// Returns the size as in the file names of the hugetlb controller, such as `2MB` (mm/hugetlb_cgroup.c).
pub fn name_of(size: PageSize) -> String {
    let bytes = size.bytes().get();
    let (shift, unit) = match bytes {
        n if n >= 1 << 30 => (30, "GB"),
        n if n >= 1 << 20 => (20, "MB"),
        _ => (10, "KB"),
    };
    format!("{}{unit}", bytes >> shift)
}

/// Pages counted by a limit on hugetlb pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugetlbLimitKind {
    /// Pages that are touched.
    Faults,
    /// Pages that are reserved.
    Reservations,
}

impl HugetlbLimit {
    /// Returns the limit. `None` is unlimited.
    pub const fn limit(&self, of: HugetlbLimitKind) -> &Fact<Option<Bytes>> {
        match of {
            HugetlbLimitKind::Faults => &self.fault_limit,
            HugetlbLimitKind::Reservations => &self.reservation_limit,
        }
    }

    pub fn usage(&self, of: HugetlbLimitKind) -> Bytes {
        let usage = match of {
            HugetlbLimitKind::Faults => self.fault_usage.get(),
            HugetlbLimitKind::Reservations => self.reservation_usage.get(),
        };
        usage.unwrap_or_default()
    }

    /// Returns the room below the limit. `None` without a limit.
    pub fn room(&self, of: HugetlbLimitKind) -> Option<Bytes> {
        Some(self.limit(of).get()?? - self.usage(of))
    }
}

impl HugetlbCgroup {
    /// Returns the path of a file of the hugetlb controller for pages of a size.
    pub fn file(&self, size: PageSize, name: &str) -> String {
        format!("{}/hugetlb.{}.{name}", self.folder, name_of(size))
    }

    /// Returns the file that sets a limit on pages of a size.
    pub fn limit_file(&self, size: PageSize, of: HugetlbLimitKind) -> String {
        let name = match self.version {
            1 => "limit_in_bytes",
            _ => "max",
        };
        match of {
            HugetlbLimitKind::Faults => self.file(size, name),
            HugetlbLimitKind::Reservations => self.file(size, &format!("rsvd.{name}")),
        }
    }
}

/// The limits that bind a process, from its own cgroup up (see [`crate::limits::read_limits`]).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessMemoryLimits {
    /// Its cgroups that limit hugetlb pages.
    pub hugetlb: Vec<HugetlbCgroup>,
    /// Its cgroups that limit memory.
    pub memory: Vec<MemoryLimit>,
    /// Soft memlock limit (`limits`). `u64::MAX` is unlimited.
    pub memlock: Fact<Bytes>,
    /// Soft limit of its address space (`limits`). `u64::MAX` is unlimited.
    pub address_space: Fact<Bytes>,
    /// True if its memory cgroups count pool pages too (mount option `memory_hugetlb_accounting`, Linux 6.7).
    pub memory_counts_pools: bool,
    /// True if its cgroup is that of a container or pod, whose manager sets the limits.
    pub is_in_container: bool,
}

impl ProcessMemoryLimits {
    /// Returns the cgroup with the least room for pages of a size, and its limit.
    pub fn tightest(
        &self,
        size: PageSize,
        of: HugetlbLimitKind,
    ) -> Option<(&HugetlbCgroup, &HugetlbLimit)> {
        let all = self.hugetlb.iter();
        let all = all.flat_map(|group| group.hugetlb.iter().map(move |limit| (group, limit)));
        all.filter(|(_, limit)| limit.size == size && limit.room(of).is_some())
            .min_by_key(|(_, limit)| limit.room(of))
    }

    /// Returns the memory left before the kernel must reclaim pages in use. Absent if no cgroup limits it.
    pub fn memory_room(&self) -> Fact<Bytes> {
        self.memory.iter().map(MemoryLimit::room).min().into()
    }

    /// Returns the lowest hard limit of its memory cgroups: it can never have more outside the pools.
    pub fn memory_limit(&self) -> Option<Bytes> {
        let hard = self.memory.iter().filter(|limit| !limit.only_throttles);
        hard.map(|limit| limit.limit).min()
    }

    /// Returns the memory left if all page cache is reclaimed too.
    pub fn memory_room_at_most(&self) -> Option<Bytes> {
        self.memory.iter().map(MemoryLimit::room_at_most).min()
    }
}

/// A cgroup that limits memory of all page sizes, pools excepted. Beyond the limit an allocation fails, or the kernel
/// kills a process of the cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryLimit {
    /// Version of the hierarchy, 1 or 2.
    pub version: u8,
    pub path: String,
    /// The file that sets it, as in `/sys/fs/cgroup/db.slice/memory.max`.
    #[serde(skip)]
    pub file: String,
    /// The limit (`memory.max` or `memory.high`, v1 `memory.limit_in_bytes`).
    #[serde(rename = "limit_bytes")]
    pub limit: Bytes,
    /// Memory in use, page cache included (`memory.current`, v1 `memory.usage_in_bytes`).
    #[serde(rename = "usage_bytes")]
    pub usage: Bytes,
    /// Page cache not used recently (`inactive_file` of `memory.stat`).
    #[serde(rename = "inactive_cache_bytes")]
    pub inactive_cache: Bytes,
    /// Other page cache (`active_file`).
    #[serde(rename = "active_cache_bytes")]
    pub active_cache: Bytes,
    /// True for `memory.high`: beyond it the kernel reclaims memory and slows allocations, but refuses none.
    #[serde(skip)]
    pub only_throttles: bool,
}

impl MemoryLimit {
    /// Returns the memory that may be taken before pages in use must be reclaimed.
    pub fn room(&self) -> Bytes {
        self.limit - (self.usage - self.inactive_cache)
    }

    /// Returns the memory that may be taken if all page cache is reclaimed. Swap is not counted.
    pub fn room_at_most(&self) -> Bytes {
        self.limit - (self.usage - self.inactive_cache - self.active_cache)
    }
}

/// A mounted hugetlbfs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HugetlbfsMount {
    pub path: String,
    #[serde(rename = "page_bytes")]
    pub page: PageSize,
    /// Maximum size of all files together (mount option `size=`). `None` is unlimited.
    #[serde(rename = "limit_bytes")]
    pub limit: Option<Bytes>,
    /// Part of the limit that files have taken or reserved (statfs(2)). Absent without a limit, and in a capture.
    #[serde(rename = "usage_bytes")]
    pub usage: Fact<Bytes>,
}

/// Pool pages that no running process holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OrphanedHugetlb {
    #[serde(rename = "page_bytes")]
    pub size: PageSize,
    pub bytes: Bytes,
    pub uid: u32,
    /// The name of the user.
    pub owner: Option<String>,
    #[serde(flatten)]
    pub kind: OrphanKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum OrphanKind {
    /// A file in a hugetlbfs.
    File { path: String },
    /// A SysV segment without attachments.
    SysV { id: u64 },
}

/// A process as shown on a host-wide screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessMemoryUse {
    pub pid: Pid,
    pub name: String,
    /// Its page tables (`VmPTE`).
    pub page_tables: Bytes,
    /// Its hugetlb pages (`HugetlbPages`).
    pub hugetlb: Bytes,
    /// Resident memory, hugetlb included.
    pub resident: Bytes,
}

/// Memory on pages of one size and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageUsage {
    #[serde(rename = "page_bytes")]
    pub size: PageSize,
    pub kind: PageKind,
    pub bytes: Bytes,
}

impl PageUsage {
    /// Adds `bytes` on pages of this size and kind to a table sorted by size, smallest first.
    pub fn add(table: &mut Vec<PageUsage>, size: PageSize, kind: PageKind, bytes: Bytes) {
        if bytes.is_zero() {
            return;
        }
        match table.binary_search_by_key(&(size, kind), |h| (h.size, h.kind)) {
            Ok(at) => table[at].bytes += bytes,
            Err(at) => table.insert(at, PageUsage { size, kind, bytes }),
        }
    }

    /// Adds the entries of other tables to a table.
    pub fn add_all(table: &mut Vec<PageUsage>, more: impl IntoIterator<Item: Borrow<PageUsage>>) {
        for held in more {
            let held: &PageUsage = held.borrow();
            PageUsage::add(table, held.size, held.kind, held.bytes);
        }
    }

    /// Returns the share of a table on huge pages. `None` if the table is empty.
    pub fn coverage(table: &[PageUsage]) -> Option<f64> {
        let total = PageUsage::total(table);
        (total - PageUsage::on_base(table)).share_of(total)
    }

    pub fn total(table: &[PageUsage]) -> Bytes {
        table.iter().map(|h| h.bytes).sum()
    }

    /// Returns the bytes of a table on base pages.
    pub fn on_base(table: &[PageUsage]) -> Bytes {
        table
            .iter()
            .filter(|h| h.kind == PageKind::Base)
            .map(|h| h.bytes)
            .sum()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProcessKind {
    #[default]
    User,
    /// A kernel thread, which has no memory of its own.
    Kernel,
    Zombie,
}

/// RAM of a guest in the address space of QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestRam {
    pub range: Range,
    /// The id of its memory backend. `None` if QEMU has no id for it, or if several backends fit.
    pub backend: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Process {
    /// Its id in the reader's PID namespace.
    pub pid: Pid,
    pub parent: Pid,
    /// Name of the command (`comm`).
    pub name: String,
    /// Its arguments (`cmdline`), joined by spaces. Empty for a kernel thread.
    pub command_line: String,
    pub kind: ProcessKind,
    pub uid: u32,
    /// Start time, in clock ticks since boot (`stat`, field 22). Together with `pid` it identifies one process
    /// permanently.
    pub start_ticks: u64,
    /// Addresses of the code, the stack and the environment of the current program (`stat`, fields 26 to 28 and 48).
    /// They change on execve, unlike the start time. Zeroes if not readable.
    pub image: [u64; 4],
    /// Its cgroup's path, the memory controller's or the unified one.
    pub cgroup: Option<String>,
    /// Its unit of the system's manager, derived from the cgroup.
    pub unit: Option<String>,
    pub threads: u64,
    /// `THP_enabled: 0`: the process disabled THP for itself with prctl(PR_SET_THP_DISABLE).
    pub thp_disabled: Fact<bool>,
    /// Resident memory with hugetlb pages (`VmRSS` + `HugetlbPages`, as the kernel's `VmRSS` excludes them).
    pub resident: Bytes,
    /// `RssAnon`.
    pub resident_anon: Bytes,
    /// `RssFile`.
    pub resident_file: Bytes,
    /// `RssShmem`.
    pub resident_shmem: Bytes,
    /// `HugetlbPages`.
    pub hugetlb: Bytes,
    /// `VmLck`.
    pub locked: Bytes,
    /// `VmPin`.
    pub pinned: Bytes,
    /// Buffers that io_uring instances pin (`fdinfo`). Absent unless the process was read page by page.
    pub registered: Fact<Vec<Range>>,
    /// `VmSwap`.
    pub swapped: Bytes,
    /// `VmPTE`: its page tables.
    pub page_tables: Bytes,
    /// Proportional share of resident memory. Read only if the process was read individually.
    pub pss: Fact<Bytes>,
    /// Supplementary groups and gid (`Groups`, `Gid`), which decide its rights to hugetlb pages.
    pub groups: Vec<u64>,
    /// Effective capabilities (`CapEff`).
    pub capabilities: u64,
    /// Its memory by page size. Unreadable if it is another user's and hidden.
    pub by_page_size: Fact<Vec<PageUsage>>,
    /// Its mappings. Empty unless the process was read individually.
    pub segments: Vec<ProcessMapping>,
    pub children: Vec<Pid>,
    /// Settings that `hugeleaf run` started it with (`environ`, `HUGELEAF_RUN`). Read along with segments.
    pub run: Fact<RunSettings>,
    /// The limits that bind it. Read along with segments.
    pub limits: ProcessMemoryLimits,
    /// RAM of the guest if it is QEMU (`cmdline`). Read along with segments.
    pub guest_ram: Vec<GuestRam>,
}

impl Process {
    /// True if an io_uring ring registered a part of the range.
    pub fn is_registered(&self, range: Range) -> bool {
        let mut buffers = self.registered.entries().iter();
        buffers.any(|buffer| buffer.intersect(range).is_some())
    }

    /// Returns the guest RAM that a mapping belongs to.
    pub fn guest_ram_of(&self, mapping: &ProcessMapping) -> Option<&GuestRam> {
        let mut ram = self.guest_ram.iter();
        ram.find(|ram| ram.range.intersect(mapping.range) == Some(mapping.range))
    }

    /// Returns the name of a mapping for views: as in `maps`, or `guest RAM` and the id of its memory backend.
    pub fn name_of(&self, mapping: &ProcessMapping) -> String {
        match self.guest_ram_of(mapping) {
            Some(GuestRam {
                backend: Some(id), ..
            }) => format!("guest RAM {id}"),
            Some(_) => "guest RAM".to_owned(),
            None => mapping.name.clone(),
        }
    }

    /// True if the system's manager put it in this unit, which may be a slice.
    pub fn is_in_unit(&self, unit: &str) -> bool {
        units_in(self.cgroup.as_deref().unwrap_or_default()).any(|own| own == unit)
    }

    /// True if it is in the cgroup with this path in its hierarchy, or in one below.
    pub fn is_in_cgroup(&self, path: &Path) -> bool {
        let own = self.cgroup.as_deref();
        own.is_some_and(|own| Path::new(own).starts_with(path))
    }

    /// Returns the huge-page coverage of its resident memory.
    pub fn coverage(&self) -> Option<f64> {
        PageUsage::coverage(self.by_page_size.known()?)
    }

    /// Sets the table of memory by page size, and derives the resident size from it. The size in `status` lags behind
    /// after growth by some pages per processor (Linux counts them in batches).
    pub fn set_table(&mut self, table: Fact<Vec<PageUsage>>) {
        if let Fact::Known(held) = &table
            && !held.is_empty()
        {
            self.resident = held.iter().map(|h| h.bytes).sum();
        }
        self.by_page_size = table;
    }
}

hugeleaf_units::named! {
    /// Kinds of memory that a policy of `hugeleaf run` names.
    pub enum RunMemoryKind {
        /// Data, zero data, heap and other private anonymous memory.
        Data = "data",
        /// Shared memory: SysV, POSIX, memfd, shared anonymous.
        Shm = "shm",
        /// The initial stack and those of threads.
        Stack = "stack",
        Text = "text",
    }
}

impl std::fmt::Display for RunMemoryKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A kind of huge page that the library of `hugeleaf run` can try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunPageKind {
    /// Transparent huge pages of the PMD's size.
    Thp,
    /// Pages of this size from a pool.
    Hugetlb(PageSize),
}

/// Policy of the library of `hugeleaf run` for one role.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunPolicy {
    /// The kinds to try, in this order. Empty if the role is left alone.
    pub ways: Vec<RunPageKind>,
    /// Base pages are not acceptable.
    pub mandatory: bool,
    /// The policy as it was typed: `auto`, `1G,2M!`. Empty if that was not passed on.
    pub typed: String,
}

/// Settings that `hugeleaf run` passes to the library it loads into a program. Prints as the value of
/// [`RunSettings::VARIABLE`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunSettings {
    /// The base page size, as the launcher saw it.
    pub base: Option<PageSize>,
    /// The size of a full THP. `None` if the host had none.
    pub pmd: Option<PageSize>,
    /// The policy of each role, in the order of [`RunMemoryKind::ALL`].
    pub roles: [RunPolicy; 4],
    /// Size of the process up to which private memory stays on base pages.
    pub data_after: Option<Bytes>,
    /// The smallest shared segment that is considered.
    pub shm_after: Option<Bytes>,
    /// The smallest stack of a thread that is considered.
    pub stack_after: Option<Bytes>,
    /// True if advised private memory is huge at first touch. Otherwise only collapse helps.
    pub touch: bool,
    /// The same for shared memory.
    pub shmem_touch: bool,
    /// Memory for data that was available at the start.
    pub reserve: Option<Bytes>,
    /// Base names of the executables that the settings apply to. Empty for all.
    pub only: Vec<String>,
    pub report: Option<String>,
}

impl RunSettings {
    pub const fn policy(&self, role: RunMemoryKind) -> &RunPolicy {
        &self.roles[role as usize]
    }
}

hugeleaf_units::named! {
    pub enum MappingRole {
        /// Code: executable file mappings.
        Text = "text",
        /// Initialised and zero data of a program or library.
        Data = "data",
        /// `[heap]`.
        Heap = "heap",
        Anon = "anon",
        Stack = "stack",
        ThreadStack = "thread stack",
        /// Shared memory: SysV, POSIX, memfd, shared anonymous.
        Shm = "shm",
        File = "file",
        Vdso = "vdso",
    }
}

/// Huge-page advice for a mapping, given with madvise(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ThpAdvice {
    /// No advice.
    #[default]
    Nothing,
    /// `MADV_HUGEPAGE` (`hg`).
    Huge,
    /// `MADV_NOHUGEPAGE` (`nh`), or MAP_STACK, which the kernel treats the same.
    NoHuge,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct MappingSettings {
    pub advised: ThpAdvice,
    #[serde(rename = "hugetlb_page_bytes")]
    pub hugetlb: Option<PageSize>,
    /// NUMA policy if it is not the default (`numa_maps`), as in `interleave:0-1`.
    pub policy: Option<String>,
}

/// The two-letter flags of a mapping (`VmFlags` in smaps; proc(5)).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VmFlags(pub Vec<[u8; 2]>);

impl VmFlags {
    /// Returns true if the flag is set, as in `has("nh")`.
    pub fn has(&self, flag: &str) -> bool {
        self.0.iter().any(|f| f == flag.as_bytes())
    }
}

#[derive(Debug, Clone)]
pub struct ProcessMapping {
    pub range: Range,
    pub role: MappingRole,
    /// Path or name as in `maps`, including `[heap]` and the like. Empty for plain anonymous memory.
    pub name: String,
    /// `r`, `w`, `x` as in `maps`.
    pub permissions: [bool; 3],
    /// `MAP_SHARED`.
    pub shared: bool,
    /// Offset into the file or object, in bytes.
    pub offset: u64,
    /// Device and inode. (0, 0, 0) for private anonymous memory, also for a private mapping of `/dev/zero`.
    pub object: (u32, u32, u64),
    pub request: MappingSettings,
    /// Flags. Empty if only `maps` was read.
    pub flags: VmFlags,
    /// `THPeligible`: true if the kernel would place a huge page here at the next fault or scan.
    pub thp_eligible: Fact<bool>,
    /// The kernel's answer if MADV_COLLAPSE accepts this mapping. Read for files only, if pages were requested too and
    /// this program may act on the process.
    pub collapses: Fact<bool>,
    /// Resident memory, hugetlb pages included.
    pub resident: Bytes,
    pub pss: Bytes,
    /// Private anonymous pages in it.
    pub anonymous: Bytes,
    /// Pages that are mapped elsewhere too (`Shared_Clean` + `Shared_Dirty` + `Shared_Hugetlb`).
    pub shared_with_others: Bytes,
    /// `Locked`.
    pub locked: Bytes,
    /// `Swap`.
    pub swapped: Bytes,
    /// `SwapPss`: proportional share of swapped memory.
    pub swapped_pss: Bytes,
    /// `KSM`: merged with equal pages.
    pub merged: Bytes,
    pub by_page_size: Vec<PageUsage>,
    /// The page map, if it was requested.
    pub pages: Fact<PageMap>,
    /// Type of the file system of a file mapping, which decides if it has large folios. `None` if it is not known.
    pub file_system: Option<String>,
    /// The `huge=` option of a file's mount (tmpfs(5)): `always`, `within_size`, `advise`. `None` without the option,
    /// which means `never`, or if the mount is not known.
    pub mount_huge: Option<String>,
}

impl ProcessMapping {
    /// True if address and offset agree modulo `size`. A shared mapping needs this for its pages of that size to be
    /// mapped whole. Always true for private anonymous memory.
    pub fn is_aligned_to(&self, size: PageSize) -> bool {
        self.object == (0, 0, 0) || size.divides(self.range.start().wrapping_sub(self.offset))
    }
}

/// A shared-memory object and the processes that attach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedMemoryObject {
    pub object: (u32, u32, u64),
    /// Name as in `maps`.
    pub name: String,
    /// Resident memory by page size, each page once, as the process with the best coverage maps it.
    pub by_page_size: Vec<PageUsage>,
    pub attached: Vec<Pid>,
    /// Attached processes whose address does not match the offset. They can never map it on huge pages.
    pub misaligned: Vec<Pid>,
    /// Attached processes with less coverage than the best one, and their memory by page size.
    pub worse: Vec<(Pid, Vec<PageUsage>)>,
}
