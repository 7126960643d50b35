//! Why memory is not on a larger page, and the one thing to do about it.
//!
//! [`account`] judges a process segment by segment. Every resident byte of a segment ends in one
//! of three places: on large pages already, too small for any large page of this host, or in
//! exactly one [`Verdict`]. A range may have several reasons; its verdict names the one that
//! decides: the first at which the kernel would stop, unless a later one makes the earlier
//! pointless (a range that holds no large page gains nothing from a changed setting).
//!
//! What the kernel does was tried, and is written down in docs/internals/kernel-notes.md:
//! MADV_COLLAPSE, which `promote` uses, goes by neither `enabled` nor khugepaged's limits, so for
//! whole, private memory a setting is why it is not large *yet*, and promotion the remedy. It does
//! refuse `nh`, a process that switched THP off, special and misaligned mappings, pages that are
//! pinned or merged, and holes under userfaultfd.

mod hugetlb;
mod segment;
mod setting;
mod summary;
mod sums;
mod words;

#[cfg(test)]
pub(crate) mod tests;

use hugeleaf_host::{Host, Process, Role};
use hugeleaf_units::{Bytes, PageSize, Range};
use serde::Serialize;

use crate::eligible::{Reason, Remedy};
use crate::growth::Holes;

pub use hugetlb::available;
pub use summary::{Line, Summary, counted, summarise};
pub(crate) use words::restart;
pub use words::{account, judge};

/// Why a range of a process is not on a larger page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The reason that decides; its name is the `id` in JSON.
    pub id: Reason,
    pub role: Role,
    /// Name of the mapping as in `maps`; empty for plain anonymous memory.
    pub name: String,
    /// Where. Ranges of one process do not overlap, with one exception: where pinned pages are
    /// cannot be read, so [`Reason::Pinned`] names the range that most likely holds them.
    #[serde(flatten)]
    pub range: Range,
    /// Resident bytes on base pages that it speaks of.
    pub bytes: Bytes,
    pub text: String,
    /// The one thing to do next. It can be pasted into a shell: where it is no command, or where
    /// nothing needs doing, it is a comment that begins with `#`.
    pub command: String,
    /// What the text says in numbers, so that several ranges can be summed up.
    #[serde(skip)]
    pub figures: Figures,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Figures {
    /// Bytes of the range that are neither in memory nor in swap: what promotion would add.
    pub missing: Bytes,
    /// Bytes of the range in swap.
    pub swapped: Bytes,
    /// The blocks of the range that are in memory in part.
    pub holes: Holes,
    pub is_host_wide: bool,
    /// The name of the process in commands.
    pub target: String,
    /// Who shares the pages, of those that are shared copy-on-write.
    pub sharer: String,
    pub room: Option<Room>,
    /// THP sizes that are off on this host: how many of the bytes would fit on whole pages of each.
    pub off_sizes: Vec<OffSize>,
}

/// The memory limit that stops a process first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    pub cgroup: String,
    pub file: String,
    pub limit: Bytes,
    /// What may still be taken, all page cache of the cgroup given up.
    pub left: Bytes,
    pub page: Bytes,
    /// Whoever started the container sets it.
    pub is_in_container: bool,
}

/// A THP size below the PMD's that is off for some memory, which it would fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffSize {
    pub size: PageSize,
    pub knob: String,
    /// The command that sets it to `always`.
    pub turn_on: String,
    /// Whether it is the size that this host's processor translates as one.
    pub is_translated_as_one: bool,
    /// Resident bytes that are in whole pages of the size.
    pub bytes: Bytes,
}

/// Where the resident bytes of one segment are: `resident = large + small + verdicts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub range: Range,
    /// Resident bytes: by the page map where it was read, by the counters otherwise.
    pub resident: Bytes,
    /// Of those on pages larger than the base page.
    pub large: Bytes,
    /// Of those in a range that holds no large page of any size that this host has.
    pub small: Bytes,
    /// The rest, in order of address.
    pub verdicts: Vec<Verdict>,
}

pub(crate) struct Case<'a> {
    pub host: &'a Host,
    pub process: &'a Process,
    pub target: &'a str,
    /// The size that `promote` makes, where known.
    pub pmd: Option<PageSize>,
    /// The smallest large page of any kind.
    pub smallest: Option<PageSize>,
}

/// The smallest page of any kind that is larger than the base page; `None` where there is none.
pub fn smallest_large_page(host: &Host) -> Option<PageSize> {
    let thp = host.thp.known().into_iter().flat_map(|t| &t.orders);
    host.page_sizes
        .iter()
        .map(|p| p.size)
        .chain(thp.map(|o| o.size))
        .chain(host.pools.iter().map(|p| p.size))
        .chain(host.pmd_page.get())
        .filter(|size| *size > host.base_page)
        .min()
}
