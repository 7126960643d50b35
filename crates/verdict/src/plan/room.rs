//! What the pools may take: all memory but what base pages have been using and a margin. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use hugeleaf_host::{Fact, Host, Pool};
use hugeleaf_units::{Bytes, Failure, PageSize, Pages};

use super::layout::{NodeNow, OnNode, Wants, place};
use super::model::PagesOf;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Margin {
    /// A part of all memory, in per cent.
    Percent(f64),
    Bytes(Bytes),
}

/// The margin where nobody named one: so much of all memory, but at least [`LEAST`].
const PART: f64 = 10.0;
const LEAST: Bytes = Bytes::from_mib(1024);

impl Margin {
    #[allow(clippy::cast_possible_truncation)]
    pub fn of(self, total: Bytes) -> Bytes {
        match self {
            Margin::Bytes(bytes) => bytes,
            Margin::Percent(percent) => Bytes((total.as_f64() * percent / 100.0) as u64),
        }
    }

    pub fn usual(total: Bytes) -> Bytes {
        Margin::Percent(PART).of(total).max(LEAST)
    }

    /// What stays free whatever reason there is: a kernel without free pages ends programs.
    pub(super) fn even_forced(total: Bytes) -> Bytes {
        const FORCED_PART: f64 = 2.0;
        Margin::Percent(FORCED_PART).of(total)
    }

    /// What is never reserved, whatever is used and whatever reason there is: the kernel, its page
    /// tables and buffers, a shell, and the `hugeleaf undo` that takes it back have to live there.
    /// A part of memory, because page tables and buffers grow with it; and as much as a small
    /// system needs to start, of a small host a quarter.
    pub(super) fn floor(total: Bytes) -> Bytes {
        const FLOOR_PART: f64 = 5.0;
        const SMALL_SYSTEM: Bytes = Bytes::from_mib(512);
        let least = SMALL_SYSTEM.min(Bytes(total.get() / 4));
        Margin::Percent(FLOOR_PART).of(total).max(least)
    }
}

impl FromStr for Margin {
    type Err = String;
    fn from_str(text: &str) -> Result<Margin, String> {
        let error = || format!("'{text}' is no margin; write 10% or 2G");
        match text.strip_suffix('%') {
            Some(number) => {
                let percent: f64 = number.trim().parse().map_err(|_| error())?;
                (0.0..100.0)
                    .contains(&percent)
                    .then_some(Margin::Percent(percent))
                    .ok_or_else(error)
            }
            None => text.parse().map(Margin::Bytes).map_err(|_| error()),
        }
    }
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Margin::Percent(percent) => write!(f, "{percent}%"),
            Margin::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PoolNow {
    pub total: u64,
    /// Those of them that stay: pages beyond (surplus) go when their user lets go.
    pub lasting: u64,
    pub taken: u64,
}

/// The sizes that can be reserved, largest first.
pub(super) fn sizes(host: &Host) -> Vec<PageSize> {
    let mut sizes: Vec<PageSize> = host.totals().map(|pool| pool.size).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// The pools as they are.
///
/// # Errors
/// Where a count could not be read: what others hold would be guessed.
pub(super) fn pools_now(host: &Host) -> Result<BTreeMap<PageSize, PoolNow>, Failure> {
    let mut found = BTreeMap::new();
    for pool in host.totals() {
        for fact in [&pool.total, &pool.free, &pool.reserved, &pool.surplus] {
            if let Some(error) = fact.error() {
                return Err(Failure::new(
                    error.to_string(),
                    "run as root: hugeleaf plan must know who holds pages of the pool",
                ));
            }
        }
        let taken = pool.used() + pool.reserved.get().unwrap_or_default();
        let now = PoolNow {
            total: pool.all().get(),
            lasting: pool.lasting().get(),
            taken: taken.min(pool.all()).get(),
        };
        found.insert(pool.size, now);
    }
    Ok(found)
}

/// Memory outside the pools that is in use: neither available nor in a pool. Page cache that could
/// be given up counts as available, as the kernel estimates it; what a working set needs of it the
/// margin has to cover.
pub(super) fn used(host: &Host) -> Result<(Bytes, Bytes), Failure> {
    let known = |name: &str, fact: &Fact<Bytes>| {
        let why = || {
            fact.error()
                .map_or("no such line".to_owned(), ToString::to_string)
        };
        fact.get().ok_or_else(|| {
            Failure::new(
                format!("{name} in /proc/meminfo: {}", why()),
                "look at it: cat /proc/meminfo    # a plan rests on what base pages use",
            )
        })
    };
    let total = known("MemTotal", &host.memory.total)?;
    let available = known("MemAvailable", &host.memory.available)?;
    let in_pools: Bytes = host.totals().map(|pool| pool.all().of(pool.size)).sum();
    Ok((total, total - available - in_pools))
}

/// The one rule for the size of pools: the most that all of them together may take of memory of which base pages use a
/// part, so that a margin and, whatever is used, [`Margin::floor`] stay free.
fn most_in_pools(total: Bytes, used: Bytes, margin: Bytes) -> Bytes {
    (total - used - margin).min(total - Margin::floor(total))
}

/// The most pages that a pool may have, of one node or over all, while the others stay as they are; never fewer than it
/// has.
///
/// # Errors
/// The host's memory is not known.
pub(crate) fn most_pages(host: &Host, size: PageSize, node: Option<u32>) -> Result<Pages, Failure> {
    let (total, used) = used(host)?;
    let in_pools = host.totals().map(|pool| pool.all().of(pool.size));
    let in_pools: Bytes = in_pools.sum();
    let mut own = host.pools.iter();
    let own = own.find(|pool| pool.size == size && pool.node == node);
    let own = own.map_or(Pages(0), Pool::all);
    let most = most_in_pools(total, used, Margin::usual(total)) - (in_pools - own.of(size));
    Ok(Pages(most.get() / size.bytes().get()).max(own))
}

/// Checks the size of a pool by the rule that plans go by.
///
/// # Errors
/// The reason, in a sentence without its end.
pub(crate) fn fits(
    host: &Host,
    size: PageSize,
    node: Option<u32>,
    pages: Pages,
) -> Result<(), String> {
    let most = most_pages(host, size, node).map_err(|failure| failure.to_string())?;
    if pages <= most {
        return Ok(());
    }
    let total = host.memory.total.get().unwrap_or_default();
    Err(format!(
        "{pages} pages of {size} are {}, and of {total} of memory at most {most} pages ({}) leave enough to the rest of the host",
        pages.of(size),
        most.of(size)
    ))
}

#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    pub now: PoolNow,
    pub nodes: Vec<NodeNow>,
    pub others: u64,
    /// Pages that no running process holds: they stay until the file or segment is removed.
    pub left_over: u64,
    pub promised: u64,
    /// Pages that files which are not ours ask for at boot.
    pub configured: u64,
    pub planned: u64,
    /// Those of the planned and the promised ones that are bound to a node, by node.
    pub bound: BTreeMap<u32, u64>,
    pub held: BTreeMap<u32, u64>,
}

impl Book {
    pub fn wants(&self) -> Wants {
        let all = [self.others, self.left_over, self.promised, self.planned];
        let all = all.into_iter().fold(0, u64::saturating_add);
        Wants {
            free: self
                .bound
                .values()
                .fold(all, |left, n| left.saturating_sub(*n)),
            held: self.held.clone(),
            bound: self.bound.clone(),
        }
    }

    /// The pages that a pool has to have for those, and never fewer than now: what stands idle may
    /// be somebody's who starts later.
    fn placed(&self) -> Vec<OnNode> {
        place(&self.nodes, &self.wants(), false)
    }

    pub fn idle(&self) -> u64 {
        self.placed().iter().map(|on| on.idle).sum()
    }

    /// What a pool comes to: one that nothing is planned for stays as it is.
    fn comes_to(&self) -> u64 {
        match self.planned {
            0 => self.now.lasting.max(self.now.taken),
            _ => self
                .placed()
                .iter()
                .fold(0, |sum, on| sum.saturating_add(on.pages)),
        }
    }

    pub fn bind(&mut self, node: u32, pages: u64) {
        let bound = self.bound.entry(node).or_default();
        *bound = bound.saturating_add(pages);
    }
}

#[derive(Debug, Clone)]
pub(super) struct Ledger {
    pub total: Bytes,
    pub used: Bytes,
    pub margin: Bytes,
    pub moves: Bytes,
    pub sizes: BTreeMap<PageSize, Book>,
    /// Whether the margin may be overstepped, down to [`Margin::even_forced`].
    pub forced: bool,
}

impl Ledger {
    fn in_pools(&self) -> Bytes {
        self.sizes
            .iter()
            .map(|(size, book)| Pages(book.comes_to()).of(*size))
            .sum()
    }

    fn fits(&self) -> bool {
        let margin = match self.forced {
            true => Margin::even_forced(self.total).min(self.margin),
            false => self.margin,
        };
        let used = self.used - self.moves;
        // A pool that is as it was takes nothing more away, whatever the margin says.
        self.in_pools() <= most_in_pools(self.total, used, margin) || self.grows_by().is_zero()
    }

    pub fn grows_by(&self) -> Bytes {
        let sizes = self.sizes.iter();
        let now = sizes.map(|(size, book)| Pages(book.now.total).of(*size));
        self.in_pools() - now.sum()
    }

    /// Plans these pages where they fit, on `node` where their user may take them from there only;
    /// `moves` is what it gives up on base pages.
    pub fn take(&mut self, pages: &[PagesOf], node: Option<u32>, moves: Bytes) -> bool {
        let before = self.clone();
        for more in pages {
            let book = self.sizes.entry(more.page).or_default();
            book.planned = book.planned.saturating_add(more.pages.get());
            if let Some(node) = node {
                book.bind(node, more.pages.get());
            }
        }
        self.moves = (self.moves + moves).min(self.used);
        let fits = self.fits();
        if !fits {
            *self = before;
        }
        fits
    }

    /// The most of `most` times these pages that fit, and plans them.
    pub fn take_most(&mut self, each: PagesOf, node: Option<u32>, most: u64) -> u64 {
        let (mut low, mut high) = (0, most);
        while low < high {
            let middle = high - (high - low) / 2;
            let fits = self.clone().take(&[each.times(middle)], node, Bytes::ZERO);
            if fits {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        self.take(&[each.times(low)], node, Bytes::ZERO);
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins() {
        let total = Bytes(64 << 30);
        assert_eq!("10%".parse::<Margin>().unwrap().of(Bytes(1000)), Bytes(100));
        assert_eq!("2G".parse::<Margin>().unwrap().of(total), Bytes(2 << 30));
        assert_eq!(Margin::usual(Bytes(4 << 30)), Bytes(1 << 30));
        assert_eq!(Margin::usual(total), Margin::Percent(10.0).of(total));
        for (memory, floor) in [
            (1 << 30, 256 << 20),
            (8 << 30, 512 << 20),
            (100 << 30, 5 << 30),
        ] {
            assert_eq!(Margin::floor(Bytes(memory)), Bytes(floor), "{memory}");
        }
        for text in ["", "%", "100%", "-1%", "NaN%", "ten", "1e400%"] {
            assert!(text.parse::<Margin>().is_err(), "{text}");
        }
    }
}
