//! The limit of the pools: all memory except the current base-page use and a margin, and less under strict overcommit. The
//! one rule of advice, of plans and of the guard.

use std::fmt;
use std::str::FromStr;

use hugeleaf_host::{Fact, Host, Pool};
use hugeleaf_units::{Bytes, Failure, PageSize, Pages};

use crate::commit_limit::{self, NEARLY_ALL, NEARLY_ALL_LATER};

pub use crate::commit_limit::commit_bound;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Margin {
    /// A percentage of all memory.
    Percent(f64),
    Bytes(Bytes),
}

/// The default margin: this percentage of all memory, but at least [`LEAST`].
const PART: f64 = 10.0;
const LEAST: Bytes = Bytes::from_mib(1024);

impl Margin {
    #[allow(clippy::cast_possible_truncation)]
    pub fn resolve(self, total: Bytes) -> Bytes {
        match self {
            Margin::Bytes(bytes) => bytes,
            Margin::Percent(percent) => Bytes((total.as_f64() * percent / 100.0) as u64),
        }
    }

    pub fn usual(total: Bytes) -> Bytes {
        Margin::Percent(PART).resolve(total).max(LEAST)
    }

    /// Returns the minimum that a forced plan leaves free. A kernel without free pages kills programs.
    pub fn forced_minimum(total: Bytes) -> Bytes {
        const FORCED_PART: f64 = 2.0;
        Margin::Percent(FORCED_PART).resolve(total)
    }

    /// Returns the memory that is never reserved, regardless of use and reason. The kernel, its page tables and
    /// buffers, a shell, and `hugeleaf undo` need it. It is a percentage of memory, because page tables and buffers
    /// grow with it. The minimum is what a small system needs to start, but at most a quarter of memory.
    pub fn floor(total: Bytes) -> Bytes {
        const FLOOR_PART: f64 = 5.0;
        const SMALL_SYSTEM: Bytes = Bytes::from_mib(512);
        let least = SMALL_SYSTEM.min(Bytes(total.get() / 4));
        Margin::Percent(FLOOR_PART).resolve(total).max(least)
    }
}

impl FromStr for Margin {
    type Err = String;
    fn from_str(text: &str) -> Result<Margin, String> {
        let error = || format!("'{text}' is not a margin; write 10% or 2G");
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

/// Returns the sizes that can be reserved, largest first.
pub fn sizes(host: &Host) -> Vec<PageSize> {
    let mut sizes: Vec<PageSize> = host.totals().map(|pool| pool.size).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// Returns total memory and the use outside the pools, which is neither available nor in a pool. The kernel counts
/// reclaimable page cache as available. The margin must cover the part of the cache that a working set needs.
pub fn used(host: &Host) -> Result<(Bytes, Bytes), Failure> {
    let known = |name: &str, fact: &Fact<Bytes>| {
        fact.get().ok_or_else(|| {
            let why = fact.error().map(ToString::to_string);
            let why = why.unwrap_or("no such line".to_owned());
            Failure::missing(
                format!("cannot read {name} in /proc/meminfo: {why}"),
                "cat /proc/meminfo    # a plan needs the use of base pages",
            )
        })
    };
    let total = known("MemTotal", &host.memory.total)?;
    let available = known("MemAvailable", &host.memory.available)?;
    Ok((total, total - available - host.in_pools()))
}

/// Returns the maximum size of all pools together. All checks of pool sizes use this rule. The margin, and in any case
/// [`Margin::floor`], stays free besides the base pages in use. `by_commit` is the result of [`most_by_commit`].
pub fn most_in_pools(total: Bytes, used: Bytes, margin: Bytes, by_commit: Option<Bytes>) -> Bytes {
    let by_memory = (total - used - margin).min(total - Margin::floor(total));
    by_commit.map_or(by_memory, |most| most.min(by_memory))
}

/// Returns the maximum size of all pools together with which no allocation fails under `vm.overcommit_memory=2`; `None` if
/// that mode does not bound them. Never below the current size.
///
/// # Errors
/// The mode is strict, and a figure of CommitLimit is unknown.
pub fn most_by_commit(host: &Host) -> Result<Option<Bytes>, Failure> {
    most_committed(host, NEARLY_ALL)
}

/// Returns [`most_by_commit`] for pages that were planned earlier, with half of its margin.
///
/// # Errors
/// As [`most_by_commit`].
pub fn most_by_commit_later(host: &Host) -> Result<Option<Bytes>, Failure> {
    most_committed(host, NEARLY_ALL_LATER)
}

fn most_committed(host: &Host, percent: u64) -> Result<Option<Bytes>, Failure> {
    let growth = commit_limit::pool_growth(host, percent)?;
    Ok(growth.map(|growth| host.in_pools() + growth))
}

/// Checks that pools can grow by pages that they had or were planned earlier: see [`most_by_commit_later`].
///
/// # Errors
/// The reason, without a full stop.
pub fn may_grow_again(host: &Host, growth: Bytes) -> Result<(), String> {
    match most_by_commit_later(host).map_err(|failure| failure.to_string())? {
        Some(most) if host.in_pools() + growth > most => Err(format!(
            "{growth} more in pools would let allocations fail: {}",
            commit_bound(host)
        )),
        _ => Ok(()),
    }
}

/// Returns the maximum number of pages of a pool, on one node or in total, if the others do not change. Never below its
/// current number.
///
/// # Errors
/// The host's memory is unknown, or CommitLimit where it bounds pools.
pub fn most_pages(host: &Host, size: PageSize, node: Option<u32>) -> Result<Pages, Failure> {
    most_pages_by(host, size, node, most_by_commit(host)?)
}

fn most_pages_by(
    host: &Host,
    size: PageSize,
    node: Option<u32>,
    by_commit: Option<Bytes>,
) -> Result<Pages, Failure> {
    let (total, used) = used(host)?;
    let mut own = host.pools.iter();
    let own = own.find(|pool| pool.size == size && pool.node == node);
    let own = own.map_or(Pages(0), Pool::all);
    let most = most_in_pools(total, used, Margin::usual(total), by_commit);
    let most = most - (host.in_pools() - own.in_bytes(size));
    Ok(Pages(most.get() / size.bytes().get()).max(own))
}

/// Checks the size of a pool by the rule of plans.
///
/// # Errors
/// The reason, without a full stop.
pub fn fits(host: &Host, size: PageSize, node: Option<u32>, pages: Pages) -> Result<(), String> {
    let most = most_pages(host, size, node).map_err(|failure| failure.to_string())?;
    if pages <= most {
        return Ok(());
    }
    let by_memory = most_pages_by(host, size, node, None).map_err(|failure| failure.to_string())?;
    let (takes, fit) = (pages.in_bytes(size), most.in_bytes(size));
    if most < by_memory {
        return Err(format!(
            "{pages} pages of {size} take {takes}, but at most {most} pages ({fit}) keep allocations \
             from failing: {}",
            commit_bound(host)
        ));
    }
    let total = host.memory.total.get().unwrap_or_default();
    Err(format!(
        "{pages} pages of {size} take {takes}, but of {total} of memory at most {most} pages ({fit}) \
         leave enough for the rest of the host"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins() {
        let total = Bytes(64 << 30);
        assert_eq!(
            "10%".parse::<Margin>().unwrap().resolve(Bytes(1000)),
            Bytes(100)
        );
        assert_eq!(
            "2G".parse::<Margin>().unwrap().resolve(total),
            Bytes(2 << 30)
        );
        assert_eq!(Margin::usual(Bytes(4 << 30)), Bytes(1 << 30));
        assert_eq!(Margin::usual(total), Margin::Percent(10.0).resolve(total));
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
