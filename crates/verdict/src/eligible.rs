//! What the kernel will and will not put on a huge page, and why: known here and nowhere else. `why`
//! explains it; `promote`, `demote` and `prove` act on it. Pure.
//!
//! Two questions. What a mapping is ([`mapping`]): its flags, its address, what it maps, and what
//! process and host allow. And what a block of it needs ([`block`]), a block being as long as a huge
//! page and aligned to it: all of it in memory, and the process's own. Most of that is the kernel's
//! rule; some the kernel would do, and the process would grow ([`Reason::decided_by`]).
//!
//! What the kernel does was tried, and is written down in docs/internals/kernel-notes.md. Errno tells
//! next to nothing (EINVAL for nearly all of it), so the reason has to be known before the call.

mod pages;
mod reason;

use hugeleaf_host::{Advised, Fact, Host, Process, Role, Segment};
use hugeleaf_units::{Bytes, PageSize};

pub use pages::{Part, Slot, Tally, cut, is_resident, parts};
pub use reason::{Reason, Remedy};

/// What a mapping holds, as far as the kernel's rules differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Private,
    /// Shared memory: anonymous, memfd, SysV, or a file of a tmpfs.
    Shared,
    File,
}

impl Kind {
    pub fn of(segment: &Segment) -> Kind {
        let anonymous = segment.object == (0, 0, 0);
        match segment.shared {
            false if anonymous => Kind::Private,
            true if anonymous || segment.role == Role::Shm || is_on_tmpfs(segment) => Kind::Shared,
            _ => Kind::File,
        }
    }
}

fn is_on_tmpfs(segment: &Segment) -> bool {
    segment.file_system.as_deref() == Some("tmpfs")
}

/// Whether `MADV_COLLAPSE` may move blocks of a mapping, and as what; the checks are in the order in
/// which the kernel makes them, but for size: where no huge page fits nothing else matters.
pub fn mapping(host: &Host, process: &Process, segment: &Segment) -> Result<Kind, Reason> {
    if is_on_pool(segment) {
        return Err(Reason::Hugetlb);
    }
    if is_special(segment) {
        return Err(Reason::Special);
    }
    let Some(huge) = huge_page(host) else {
        return Err(no_thp(host));
    };
    if !may_fit(segment, huge) {
        return Err(Reason::TooSmall);
    }
    if segment.flags.has("nh") {
        return Err(match segment.role {
            Role::ThreadStack => Reason::ThreadStack,
            _ => Reason::NoHugeAdvised,
        });
    }
    if process.thp_disabled == Fact::Known(true) {
        return Err(Reason::ProcessDisabled);
    }
    let kind = Kind::of(segment);
    left_alone(segment)?;
    match kind {
        Kind::Private => Ok(kind),
        Kind::Shared if !segment.is_aligned_to(huge) => Err(Reason::Misaligned),
        Kind::Shared => shmem_allows(host, segment).map(|()| kind),
        Kind::File => file(host, segment, huge).map(|()| kind),
    }
}

pub fn huge_page(host: &Host) -> Option<PageSize> {
    host.thp.known().and(host.pmd_page.get())
}

fn no_thp(host: &Host) -> Reason {
    match host.thp.error().or(host.pmd_page.error()) {
        Some(_) => Reason::Unknown,
        None => Reason::NoThp,
    }
}

pub fn is_on_pool(segment: &Segment) -> bool {
    segment.asked.hugetlb.is_some() || segment.flags.has("ht")
}

/// Mappings that the kernel never collapses (VM_NO_KHUGEPAGED, include/linux/mm.h): of devices, of page
/// frames without a struct page, or not to be expanded. Secret memory is in nobody's direct map.
fn is_special(segment: &Segment) -> bool {
    segment.role == Role::Vdso
        || segment.name.starts_with("/secretmem")
        || ["io", "pf", "mm", "de"]
            .iter()
            .any(|f| segment.flags.has(f))
}

/// Whether a huge page could be in it, here or at an address that fits its offset.
fn may_fit(segment: &Segment, huge: PageSize) -> bool {
    let fits = segment.range.aligned_inside(huge).is_some();
    segment.range.len() >= huge.bytes() && (fits || !segment.is_aligned_to(huge))
}

fn is_watched(segment: &Segment) -> bool {
    ["um", "uw", "ui"]
        .iter()
        .any(|flag| segment.flags.has(flag))
}

/// What the kernel refuses for some pages of a mapping and takes for others, without telling which:
/// all of it is left alone. Also the main stack, which comes and goes.
fn left_alone(segment: &Segment) -> Result<(), Reason> {
    if is_watched(segment) {
        Err(Reason::Userfaultfd)
    } else if segment.role == Role::Stack {
        Err(Reason::MainStack)
    } else {
        Ok(())
    }
}

/// `deny` is for all shared memory. A size's own knob is for what is on the kernel's own mount, SysV
/// segments excepted, and `advise` there asks for the program's advice even in a collapse.
fn shmem_allows(host: &Host, segment: &Segment) -> Result<(), Reason> {
    let thp = host.thp.known();
    if thp.and_then(|thp| thp.shmem_enabled.text()) == Some("deny") {
        return Err(Reason::ShmemDeny);
    }
    if tmpfs_mount(segment).is_some() || segment.name.starts_with("/SYSV") {
        return Ok(());
    }
    let word = host.full_thp().and_then(|order| order.shmem.text());
    match (word, segment.asked.advised == Advised::Huge) {
        (Some("never"), _) | (Some("advise"), false) => Err(Reason::ShmemSizeOff),
        _ => Ok(()),
    }
}

/// For a file on a mounted tmpfs (POSIX shared memory): the folder it is mounted on, as far as
/// the name tells. memfd, SysV and shared anonymous memory are on a mount of the kernel's own.
pub fn tmpfs_mount(segment: &Segment) -> Option<&str> {
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
    // Directly below `/`: the file of a tmpfs that is mounted nowhere.
    let folder = name.rsplit_once('/').map(|(folder, _)| folder);
    folder.filter(|folder| !folder.is_empty())
}

/// File systems whose page cache is in base pages on every kernel so far.
const NEVER_LARGE: &[&str] = &[
    "ecryptfs", "exfat", "hfsplus", "iso9660", "jffs2", "minix", "msdos", "ntfs3", "squashfs",
    "ubifs", "udf", "vfat",
];

/// A file system of which THPeligible says that it answers faults for huge pages itself (DAX), whatever a collapse
/// would do (`__thp_vma_allowable_orders`, mm/huge_memory.c).
const ANSWERS_FOR_FAULTS: &str = "xfs";

fn file(host: &Host, segment: &Segment, huge: PageSize) -> Result<(), Reason> {
    if segment.permissions[1] && !segment.shared {
        return Err(Reason::PrivateFile);
    }
    if !segment.is_aligned_to(huge) {
        return Err(Reason::FileMisaligned);
    }
    if is_on_tmpfs(segment) {
        return shmem_allows(host, segment);
    }
    // A host that has none in its page cache has shown no file system that makes them.
    let file_system = segment.file_system.as_deref().unwrap_or_default();
    let none_seen = host.memory.file_huge.get().is_none_or(Bytes::is_zero);
    let base_only = none_seen || NEVER_LARGE.contains(&file_system);
    let newer = (host.thp.known()).is_some_and(|thp| thp.khugepaged.makes_smaller);
    let says_so = segment.thp_eligible == Fact::Known(true) && file_system != ANSWERS_FOR_FAULTS;
    let read_only = !segment.permissions[1];
    let collapses = match &segment.collapses {
        Fact::Known(answer) => *answer,
        // Nobody could ask: what is not certain is not promised.
        _ => says_so || newer && !base_only && read_only,
    };
    Err(match (collapses, base_only, segment.role) {
        (true, ..) => return Ok(()),
        (false, false, _) => Reason::SmallFolios,
        (false, true, Role::Text) => Reason::TextUnsupported,
        (false, true, _) => Reason::NoLargeFolios,
    })
}

/// Whether a block of an eligible mapping may be moved: enough of it is in memory, and nobody else has
/// it. Of shared memory `tally` is what all that map it have together. `needs` is how much of its `len` must be in
/// memory; less than all of it grows the process.
pub fn block(kind: Kind, len: Bytes, tally: &Tally, needs: Bytes) -> Result<(), Reason> {
    let private = kind == Kind::Private;
    let there = tally.present + tally.swapped;
    if !tally.guard.is_zero() {
        return Err(Reason::Guarded);
    }
    if private && !tally.file.is_zero() {
        return Err(Reason::PrivateFile);
    }
    // Whoever else has it: it would cost more than it holds.
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

/// Judges whether a huge page may be split: only memory that could come back, by the rules of [`mapping`] and
/// [`block`]. Files stay: what MADV_COLD does to those is to unmap them.
pub fn splits(
    host: &Host,
    process: &Process,
    segment: &Segment,
    tally: &Tally,
) -> Result<Kind, Reason> {
    if Kind::of(segment) == Kind::File {
        return Err(Reason::FileStays);
    }
    let kind = mapping(host, process, segment)?;
    match kind {
        Kind::Private => block(kind, tally.present, tally, tally.present)?,
        Kind::Shared | Kind::File => {}
    }
    Ok(kind)
}

#[cfg(test)]
mod tests;
