//! The kernel's rules for huge pages, with the reasons, in one module. `why` explains them; `promote`, `demote`
//! and `prove` act on them. Pure.
//!
//! [`mapping`] judges a mapping: its flags, its address, its object, and the permission of process and host.
//! [`block`] judges a block of it, which has the size and alignment of a huge page. A block must be fully resident
//! and exclusive to the process. Most of this is the kernel's rule; the rest the kernel would allow, but the
//! process would grow ([`Reason::decided_by`]).
//!
//! The kernel's behaviour was tested, see docs/internals/kernel-notes.md. Errno is almost useless (EINVAL in
//! nearly all cases), so the reason must be known before the call.

mod block_pages;
mod reason;

use hugeleaf_host::{Fact, Host, MappingRole, Process, ProcessMapping, ThpAdvice};
use hugeleaf_units::{Bytes, PageSize};

pub use block_pages::{BlockPageRun, MappingPart, PageStateBytes, cut, is_resident, parts};
pub use reason::{Reason, Remedy};

/// The content of a mapping, as far as the kernel's rules differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MappingKind {
    Private,
    /// Shared memory: anonymous, memfd, SysV, or a tmpfs file.
    Shared,
    File,
}

impl MappingKind {
    pub fn from_segment(segment: &ProcessMapping) -> MappingKind {
        let anonymous = segment.object == (0, 0, 0);
        match segment.shared {
            false if anonymous => MappingKind::Private,
            true if anonymous || segment.role == MappingRole::Shm || is_on_tmpfs(segment) => {
                MappingKind::Shared
            }
            _ => MappingKind::File,
        }
    }
}

fn is_on_tmpfs(segment: &ProcessMapping) -> bool {
    segment.file_system.as_deref() == Some("tmpfs")
}

/// Returns the kind if `MADV_COLLAPSE` may promote blocks of the mapping. The checks follow the kernel's order,
/// except that size comes first: if no huge page fits, the rest is irrelevant.
pub fn mapping(
    host: &Host,
    process: &Process,
    segment: &ProcessMapping,
) -> Result<MappingKind, Reason> {
    if is_on_pool(segment) {
        return Err(Reason::Hugetlb);
    }
    if is_special(segment) {
        return Err(Reason::Special);
    }
    let Some(huge) = huge_page(host) else {
        return Err(match host.thp.error().or(host.pmd_page.error()) {
            Some(_) => Reason::Unknown,
            None => Reason::NoThp,
        });
    };
    if !may_fit(segment, huge) {
        return Err(Reason::TooSmall);
    }
    if segment.flags.has("nh") {
        return Err(match segment.role {
            MappingRole::ThreadStack => Reason::ThreadStack,
            _ => Reason::NoHugeAdvised,
        });
    }
    if process.thp_disabled == Fact::Known(true) {
        return Err(Reason::ProcessDisabled);
    }
    let kind = MappingKind::from_segment(segment);
    // The kernel refuses some pages without reporting which ones.
    if ["um", "uw", "ui"].iter().any(|f| segment.flags.has(f)) {
        return Err(Reason::Userfaultfd);
    }
    // The size of the main stack varies.
    if segment.role == MappingRole::Stack {
        return Err(Reason::MainStack);
    }
    match kind {
        MappingKind::Private => Ok(kind),
        MappingKind::Shared if !segment.is_aligned_to(huge) => Err(Reason::Misaligned),
        MappingKind::Shared => shmem_allows(host, segment).map(|()| kind),
        MappingKind::File => file(host, segment, huge).map(|()| kind),
    }
}

pub fn huge_page(host: &Host) -> Option<PageSize> {
    host.thp.known().and(host.pmd_page.get())
}

pub fn is_on_pool(segment: &ProcessMapping) -> bool {
    segment.request.hugetlb.is_some() || segment.flags.has("ht")
}

/// True for mappings that the kernel never collapses (VM_NO_KHUGEPAGED, include/linux/mm.h): devices, page frames
/// without a struct page, or no expansion allowed. Secret memory is not in the direct map.
fn is_special(segment: &ProcessMapping) -> bool {
    segment.role == MappingRole::Vdso
        || segment.name.starts_with("/secretmem")
        || ["io", "pf", "mm", "de"]
            .iter()
            .any(|f| segment.flags.has(f))
}

/// True if the mapping can hold a huge page, here or at an address that matches its offset.
fn may_fit(segment: &ProcessMapping, huge: PageSize) -> bool {
    let fits = segment.range.aligned_inside(huge).is_some();
    segment.range.len() >= huge.bytes() && (fits || !segment.is_aligned_to(huge))
}

/// Applies the shmem settings. `deny` is for all shared memory. A size's own knob is for the kernel's own mount,
/// except SysV segments, and its `advise` requires the program's advice even for a collapse.
fn shmem_allows(host: &Host, segment: &ProcessMapping) -> Result<(), Reason> {
    let thp = host.thp.known();
    if thp.and_then(|thp| thp.shmem_enabled.text()) == Some("deny") {
        return Err(Reason::ShmemDeny);
    }
    if tmpfs_mount(segment).is_some() || segment.name.starts_with("/SYSV") {
        return Ok(());
    }
    let word = host.full_thp().and_then(|order| order.shmem.text());
    match (word, segment.request.advised == ThpAdvice::Huge) {
        (Some("never"), _) | (Some("advise"), false) => Err(Reason::ShmemSizeOff),
        _ => Ok(()),
    }
}

/// Returns the directory of the tmpfs mount for a file of a mounted tmpfs (POSIX shared memory), as far as the
/// name shows it. memfd, SysV and shared anonymous memory are on a mount of the kernel.
pub fn tmpfs_mount(segment: &ProcessMapping) -> Option<&str> {
    let name = segment.name.as_str();
    let own = name.starts_with("/SYSV")
        || name.starts_with("/memfd:")
        || name.starts_with("/dev/zero")
        || !name.starts_with('/');
    if own {
        return None;
    }
    if name.starts_with("/dev/shm/") {
        return Some("/dev/shm");
    }
    // Directly below `/`: a file of an unmounted tmpfs.
    let folder = name.rsplit_once('/').map(|(folder, _)| folder);
    folder.filter(|folder| !folder.is_empty())
}

/// File systems whose page cache uses base pages on every kernel so far.
const BASE_PAGE_CACHE_ONLY: &[&str] = &[
    "ecryptfs", "exfat", "hfsplus", "iso9660", "jffs2", "minix", "msdos", "ntfs3", "squashfs",
    "ubifs", "udf", "vfat",
];

/// A file system whose THPeligible reflects its own huge-page faults (DAX), not the result of a collapse
/// (`__thp_vma_allowable_orders`, mm/huge_memory.c).
const ANSWERS_FOR_FAULTS: &str = "xfs";

fn file(host: &Host, segment: &ProcessMapping, huge: PageSize) -> Result<(), Reason> {
    if segment.permissions[1] && !segment.shared {
        return Err(Reason::PrivateFile);
    }
    if !segment.is_aligned_to(huge) {
        return Err(Reason::FileMisaligned);
    }
    if is_on_tmpfs(segment) {
        return shmem_allows(host, segment);
    }
    // A host without huge pages in its page cache has no evidence of a file system that creates them.
    let file_system = segment.file_system.as_deref().unwrap_or_default();
    let none_seen = host.memory.file_huge.get().is_none_or(Bytes::is_zero);
    let base_only = none_seen || BASE_PAGE_CACHE_ONLY.contains(&file_system);
    let newer = (host.thp.known()).is_some_and(|thp| thp.khugepaged.collapses_small_orders);
    let says_so = segment.thp_eligible == Fact::Known(true) && file_system != ANSWERS_FOR_FAULTS;
    let read_only = !segment.permissions[1];
    let collapses = match &segment.collapses {
        Fact::Known(answer) => *answer,
        // The kernel could not be asked, so promise only what is certain.
        _ => says_so || newer && !base_only && read_only,
    };
    Err(match (collapses, base_only, segment.role) {
        (true, ..) => return Ok(()),
        (false, false, _) => Reason::SmallFolios,
        (false, true, MappingRole::Text) => Reason::TextUnsupported,
        (false, true, _) => Reason::NoLargeFolios,
    })
}

/// Judges a block of an eligible mapping, which must have enough resident pages of its own. For shared memory,
/// `tally` combines all processes that map it. `needs` is the required resident part of `len`. If it is below
/// `len`, the process grows.
pub fn block(
    kind: MappingKind,
    len: Bytes,
    tally: &PageStateBytes,
    needs: Bytes,
) -> Result<(), Reason> {
    let private = kind == MappingKind::Private;
    let there = tally.present + tally.swapped;
    if !tally.guard.is_zero() {
        return Err(Reason::Guarded);
    }
    if private && !tally.file.is_zero() {
        return Err(Reason::PrivateFile);
    }
    // Even if pages are shared, promotion would add more memory than the block holds.
    if private && tally.present < needs && there < Bytes(len.get() / 2) {
        return Err(Reason::Sparse);
    }
    if private && tally.exclusive != tally.present {
        return Err(match tally.merged.is_zero() {
            true => Reason::CopyOnWrite,
            false => Reason::Merged,
        });
    }
    if tally.present >= needs {
        return Ok(());
    }
    Err(match (tally.swapped.is_zero(), private) {
        (false, _) => Reason::Swapped,
        (true, true) => Reason::PartlyResident,
        (true, false) => Reason::PartlyMapped,
    })
}

/// Judges whether a huge page may be split: only memory that can be promoted again, by the rules of [`mapping`]
/// and [`block`]. Files are not split, because MADV_COLD unmaps their huge pages.
pub fn splits(
    host: &Host,
    process: &Process,
    segment: &ProcessMapping,
    tally: &PageStateBytes,
) -> Result<MappingKind, Reason> {
    if MappingKind::from_segment(segment) == MappingKind::File {
        return Err(Reason::FileStays);
    }
    let kind = mapping(host, process, segment)?;
    match kind {
        MappingKind::Private => block(kind, tally.present, tally, tally.present)?,
        MappingKind::Shared | MappingKind::File => {}
    }
    Ok(kind)
}

#[cfg(test)]
mod tests;
