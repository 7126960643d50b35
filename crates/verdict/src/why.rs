//! Explains why memory is not on a huge page, and gives one remedy.
//!
//! [`account`] judges a process segment by segment. Every resident byte of a segment ends in one of
//! three places: already on huge pages, in a range too small for any huge page of this host, or in
//! exactly one [`RangeVerdict`]. A range may have several reasons, and its verdict names the deciding
//! one. That is the first reason at which the kernel would stop, unless a later one makes it
//! pointless (a changed setting does not help a range that cannot hold a huge page).
//!
//! The kernel's behaviour was tested, see docs/internals/kernel-notes.md. MADV_COLLAPSE, which
//! `promote` uses, ignores `enabled` and the limits of khugepaged. For fully resident private
//! memory a setting therefore only explains why it is not huge *yet*, and promotion is the remedy.
//! MADV_COLLAPSE refuses `nh`, a process that disabled THP, special and misaligned mappings, pinned
//! or merged pages, and holes under userfaultfd.

mod group_text;
mod hugetlb;
mod process_verdicts;
mod segment_obstacles;
mod summary;
mod thp_settings;

#[cfg(test)]
pub(crate) mod tests;

use hugeleaf_host::{Host, MappingRole, Process};
use hugeleaf_units::{Bytes, PageSize, Range};
use serde::Serialize;

use crate::advice::{AdvisedCommand, FeasibleChange};
use crate::eligible::{Reason, Remedy};
use crate::partial_blocks::PartialBlocks;

pub use hugetlb::available;
pub(crate) use process_verdicts::restart;
pub use process_verdicts::{account, judge};
pub use summary::{Summary, SummaryLine, counted, summarise};

/// The reason why a range of a process is not on a huge page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RangeVerdict {
    /// The deciding reason; its name is the `id` in JSON.
    pub id: Reason,
    pub role: MappingRole,
    /// Name of the mapping as in `maps`, or `guest RAM` and the id of its memory backend; empty for other unnamed anonymous
    /// memory.
    pub name: String,
    /// The address range. Ranges of one process do not overlap, with one exception. The location of
    /// pinned pages cannot be read, so [`Reason::Pinned`] names the range that most likely holds
    /// them.
    #[serde(flatten)]
    pub range: Range,
    /// Resident bytes on base pages that the verdict covers.
    pub bytes: Bytes,
    pub text: String,
    /// The next step, ready to paste into a shell. Without a command, it is a shell comment that
    /// begins with `#`.
    pub command: String,
    /// The changes of the host that the command makes.
    #[serde(skip)]
    pub changes: Vec<FeasibleChange>,
    /// The numbers of the text, so that several ranges can be summed.
    #[serde(skip)]
    pub figures: VerdictFigures,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerdictFigures {
    /// Bytes of the range that are neither in memory nor in swap, which promotion would add.
    pub missing: Bytes,
    /// Bytes of the range in swap.
    pub swapped: Bytes,
    /// The partly resident blocks of the range.
    pub holes: PartialBlocks,
    pub is_host_wide: bool,
    /// The name of the process in commands.
    pub target: String,
    /// The processes that share the copy-on-write pages.
    pub sharer: String,
    pub tightest_limit: Option<TightestMemoryLimit>,
    /// Disabled THP sizes, each with the bytes that would fit on its whole pages.
    pub off_sizes: Vec<DisabledThpSize>,
}

/// The tightest memory limit of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TightestMemoryLimit {
    pub cgroup: String,
    pub file: String,
    pub limit: Bytes,
    /// The bytes still available, if all page cache of the cgroup is reclaimed.
    pub left: Bytes,
    pub page: Bytes,
    /// True if the container's creator sets the limit.
    pub is_in_container: bool,
}

/// A THP size below the PMD size that would fit some memory but is disabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisabledThpSize {
    pub size: PageSize,
    pub knob: String,
    /// The command that sets the size to `always`.
    pub turn_on: AdvisedCommand,
    /// True if the processor translates this size with one TLB entry.
    pub is_translated_as_one: bool,
    /// Resident bytes in whole pages of the size.
    pub bytes: Bytes,
}

/// The resident bytes of one segment: `resident = large + small + verdicts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentAccount {
    pub range: Range,
    /// Resident bytes, from the page map if it was read, otherwise from the counters.
    pub resident: Bytes,
    /// Resident bytes on huge pages.
    pub huge: Bytes,
    /// Resident bytes in a range that cannot hold a huge page of any size of this host.
    pub too_small: Bytes,
    /// Verdicts for the other bytes, in address order.
    pub verdicts: Vec<RangeVerdict>,
}

pub(crate) struct ProcessContext<'a> {
    pub host: &'a Host,
    pub process: &'a Process,
    pub target: &'a str,
    /// The page size that `promote` creates, if known.
    pub pmd: Option<PageSize>,
    /// The smallest huge page of any kind.
    pub smallest: Option<PageSize>,
}

/// Returns the smallest huge page of any kind, or `None` if the host has no huge pages.
pub fn smallest_huge_page(host: &Host) -> Option<PageSize> {
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
