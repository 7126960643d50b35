//! Why memory is not on a larger page, and the one thing to do about it.
//!
//! [`account`] judges a process segment by segment. Every resident byte of a segment ends in one
//! of three places: on large pages already, too small for any large page of this host, or in
//! exactly one [`Verdict`]. A range may have several obstacles; its verdict names the one that
//! decides: the first at which the kernel would stop, unless a later one makes the earlier
//! pointless (a range that holds no large page gains nothing from a changed setting).
//!
//! What the kernel does was tried, and is written down in docs/internals/kernel-notes.md:
//! MADV_COLLAPSE, which `promote` uses, goes by neither `enabled` nor khugepaged's limits, so for
//! whole, private memory a setting is why it is not large *yet*, and promotion the remedy. It does
//! refuse `nh`, a process that switched THP off, special and misaligned mappings, pages that are
//! pinned or merged, and holes under userfaultfd.

mod hugetlb;
mod obstacle;
mod pages;
mod segment;
mod setting;
mod words;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use hugeleaf_host::{Host, Process, Role, Segment};
use hugeleaf_units::{Bytes, PageSize, Range};

pub use hugetlb::to_be_had;
pub use obstacle::{Obstacle, Way};
pub(crate) use words::restart;

/// Why a range of a process is not on a larger page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The obstacle that decides; its name is the `id` in JSON.
    pub id: Obstacle,
    /// What the memory is for.
    pub role: Role,
    /// Name of the mapping as in `maps`; empty for plain anonymous memory.
    pub name: String,
    /// Where. Ranges of one process do not overlap, with one exception: where pinned pages lie
    /// cannot be read, so [`Obstacle::Pinned`] names the range that most likely holds them.
    pub range: Range,
    /// Resident bytes on base pages that it speaks of.
    pub bytes: Bytes,
    /// The reason in a sentence, with the values met.
    pub text: String,
    /// The one thing to do next. It can be pasted into a shell: where it is no command, or where
    /// nothing needs doing, it is a comment that begins with `#`.
    pub command: String,
}

/// Where the resident bytes of one segment are: `resident = large + small + verdicts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The segment's range.
    pub range: Range,
    /// Resident bytes: by the page map where it was read, by the counters otherwise.
    pub resident: Bytes,
    /// Of those on pages larger than the base page.
    pub large: Bytes,
    /// Of those in a stretch that holds no large page of any size that this host has.
    pub small: Bytes,
    /// The rest, in order of address.
    pub verdicts: Vec<Verdict>,
}

/// What the judges look at.
pub(crate) struct Case<'a> {
    pub host: &'a Host,
    pub process: &'a Process,
    /// How the process is named in commands.
    pub target: &'a str,
    /// The size that `promote` makes, where known.
    pub pmd: Option<PageSize>,
    /// The smallest large page of any kind.
    pub smallest: Option<PageSize>,
}

/// Judges every segment of a process that was read page by page; one account a segment, in the
/// same order. `target` is how commands name the process, as in `1234` or `tree:1234`.
pub fn account(host: &Host, process: &Process, target: &str) -> Vec<Account> {
    let case = Case {
        host,
        process,
        target,
        pmd: host.pmd_page.get(),
        smallest: smallest_large_page(host),
    };
    let mut found: Vec<segment::Found> = process
        .segments
        .iter()
        .map(|s| segment::examine(&case, s))
        .collect();
    segment::place_pinned(&case, &mut found);
    segment::check_free_blocks(&case, &mut found);
    found
        .into_iter()
        .zip(&process.segments)
        .map(|(found, segment)| words::put(&case, segment, found))
        .collect()
}

/// The verdicts of a process, in order of address.
pub fn judge(host: &Host, process: &Process) -> Vec<Verdict> {
    account(host, process, &process.pid.to_string())
        .into_iter()
        .flat_map(|a| a.verdicts)
        .collect()
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

/// All verdicts of one id, of one process or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The obstacle.
    pub id: Obstacle,
    /// Bytes it holds back.
    pub bytes: Bytes,
    /// How many ranges.
    pub ranges: usize,
    /// Sentence of the largest of them.
    pub text: String,
    /// Command of the largest of them.
    pub command: String,
}

/// Where the resident bytes of one process or several are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Resident, hugetlb pages included; memory that the processes share counts once.
    pub resident: Bytes,
    /// On large pages.
    pub large: Bytes,
    /// Too small for any large page.
    pub small: Bytes,
    /// In swap, which is not resident.
    pub swapped: Bytes,
    /// One line an id, most bytes first.
    pub lines: Vec<Line>,
}

impl Summary {
    /// Bytes for which this is the way.
    pub fn by_way(&self, way: Way) -> Bytes {
        let lines = self.lines.iter().filter(|l| l.id.way() == way);
        lines.map(|l| l.bytes).sum()
    }

    /// Whether nothing stands in the way: what can be on large pages without growing is.
    pub fn is_good(&self) -> bool {
        let ways = [Way::Promote, Way::Change];
        self.lines.iter().all(|l| !ways.contains(&l.id.way()))
    }
}

/// Which segments count, for each of the processes: memory that several of them share counts in
/// one only, the one that holds most of it.
pub fn counted(judged: &[(&Process, &[Account])]) -> Vec<Vec<bool>> {
    let mut holders: HashMap<(Object, u64), (Bytes, (usize, usize))> = HashMap::new();
    for (at, (process, accounts)) in judged.iter().enumerate() {
        for (n, (segment, account)) in process.segments.iter().zip(accounts.iter()).enumerate() {
            if let Some(part) = part_of_object(segment) {
                let best = holders.entry(part).or_insert((account.resident, (at, n)));
                if account.resident > best.0 {
                    *best = (account.resident, (at, n));
                }
            }
        }
    }
    let counts = |at: usize, n: usize, segment: &Segment| {
        let part = part_of_object(segment);
        part.is_none_or(|p| holders.get(&p).is_none_or(|(_, holder)| *holder == (at, n)))
    };
    let all = judged.iter().enumerate();
    all.map(|(at, (process, _))| {
        let segments = process.segments.iter().enumerate();
        segments.map(|(n, s)| counts(at, n, s)).collect()
    })
    .collect()
}

type Object = (u32, u32, u64);

/// The object that a segment's pages belong to, and where in it they begin; `None` of memory that
/// is the process's own.
pub(crate) fn part_of_object(segment: &Segment) -> Option<(Object, u64)> {
    let of_object = segment.shared || segment.anonymous.is_zero();
    (of_object && segment.object != (0, 0, 0)).then_some((segment.object, segment.offset))
}

/// Sums up judged processes. Memory that several of them share counts once (see [`counted`]).
pub fn summarise(judged: &[(&Process, &[Account])]) -> Summary {
    let mut summary = Summary::default();
    let mut largest: HashMap<Obstacle, &Verdict> = HashMap::new();
    for ((process, accounts), counts) in judged.iter().zip(counted(judged)) {
        let segments = process.segments.iter().zip(&counts);
        let counted = segments.filter(|(_, counts)| **counts);
        summary.swapped += counted.map(|(s, _)| s.swapped).sum::<Bytes>();
        for (account, _) in accounts.iter().zip(counts).filter(|(_, counts)| *counts) {
            summary.resident += account.resident;
            summary.large += account.large;
            summary.small += account.small;
            for verdict in &account.verdicts {
                add(&mut summary.lines, verdict);
                let best = largest.entry(verdict.id).or_insert(verdict);
                if verdict.bytes > best.bytes {
                    *best = verdict;
                }
            }
        }
    }
    for line in &mut summary.lines {
        if let Some(verdict) = largest.get(&line.id) {
            line.text.clone_from(&verdict.text);
            line.command.clone_from(&verdict.command);
        }
    }
    summary
        .lines
        .sort_by_key(|l| (std::cmp::Reverse(l.bytes), l.id));
    summary
}

fn add(lines: &mut Vec<Line>, verdict: &Verdict) {
    match lines.iter_mut().find(|l| l.id == verdict.id) {
        Some(line) => {
            line.bytes += verdict.bytes;
            line.ranges += 1;
        }
        None => lines.push(Line {
            id: verdict.id,
            bytes: verdict.bytes,
            ranges: 1,
            text: String::new(),
            command: String::new(),
        }),
    }
}
