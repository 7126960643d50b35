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
///
/// A file that is only read is said to be eligible where it is aligned: whether this kernel collapses
/// it depends on how it was built, and only the call tells.
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
    left_alone(segment, kind)?;
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

pub fn is_watched(segment: &Segment) -> bool {
    ["um", "uw", "ui"]
        .iter()
        .any(|flag| segment.flags.has(flag))
}

/// What the kernel refuses for some pages of a mapping and takes for others, without telling which:
/// all of it is left alone. Also the main stack, which comes and goes.
fn left_alone(segment: &Segment, kind: Kind) -> Result<(), Reason> {
    // KSM merges anonymous pages only, so a flag on a file means nothing.
    let merged = segment.flags.has("mg") || !segment.merged.is_zero();
    if is_watched(segment) {
        Err(Reason::Userfaultfd)
    } else if kind == Kind::Private && merged {
        Err(Reason::Merged)
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

fn file(host: &Host, segment: &Segment, huge: PageSize) -> Result<(), Reason> {
    let writable = segment.permissions[1];
    if writable && !segment.shared {
        return Err(Reason::PrivateFile);
    }
    if !segment.is_aligned_to(huge) {
        return Err(Reason::FileMisaligned);
    }
    // Kernels that collapse such files say so (Linux 7.2).
    if writable && segment.thp_eligible.get() != Some(true) {
        return Err(Reason::WritableFile);
    }
    match is_on_tmpfs(segment) {
        true => shmem_allows(host, segment),
        false => Ok(()),
    }
}

/// Whether a block of an eligible mapping may be moved: enough of it is in memory, and nobody else has
/// it. Of shared memory `tally` is what all that map it have together. `needs` is how much must be in
/// memory; less than all of it grows the process.
pub fn block(kind: Kind, tally: &Tally, needs: Bytes) -> Result<(), Reason> {
    if kind == Kind::Private && !tally.file.is_zero() {
        return Err(Reason::PrivateFile);
    }
    if kind == Kind::Private && tally.exclusive != tally.present {
        return Err(Reason::CopyOnWrite);
    }
    if tally.present >= needs {
        return Ok(());
    }
    Err(match (tally.swapped.is_zero(), kind) {
        (false, _) => Reason::Swapped,
        (true, Kind::Private) => Reason::PartlyResident,
        (true, _) => Reason::PartlyMapped,
    })
}

#[cfg(test)]
mod tests;
