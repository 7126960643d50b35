//! Parses and resolves lists of working sets and of page sizes.

use std::str::FromStr;

use hugeleaf_host::{Host, ThpMemoryKind};
use hugeleaf_units::{Bytes, PageKind, PageSize};
use hugeleaf_workload::{AskedPages, PageArm};

/// Working sets in a flag's notation: `64K..half`, `1M,16M,1G`, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkingSets(Vec<WorkingSetItem>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkingSetItem {
    One(Bytes),
    /// Doubles from the first size up to the second. Without a second, the limit is half of
    /// available memory.
    Range(Bytes, Option<Bytes>),
}

impl FromStr for WorkingSets {
    type Err = String;

    fn from_str(text: &str) -> Result<WorkingSets, String> {
        let size = |text: &str| -> Result<Bytes, String> {
            let bytes: Bytes = text.parse().map_err(|e| format!("{e}"))?;
            match bytes.is_zero() {
                true => Err("a working set of 0".to_owned()),
                false => Ok(bytes),
            }
        };
        let item = |text: &str| match text.split_once("..") {
            None => Ok(WorkingSetItem::One(size(text)?)),
            Some((from, "half")) => Ok(WorkingSetItem::Range(size(from)?, None)),
            Some((from, to)) => {
                let (from, to) = (size(from)?, size(to)?);
                match from <= to {
                    true => Ok(WorkingSetItem::Range(from, Some(to))),
                    false => Err(format!(
                        "{from}..{to} descends; write the smaller size first"
                    )),
                }
            }
        };
        text.split(',')
            .map(item)
            .collect::<Result<_, _>>()
            .map(WorkingSets)
    }
}

impl WorkingSets {
    /// Returns the default sizes, doubling up to half of available memory and at most to `cap`.
    pub fn usual(from: Bytes, most: Bytes, cap: Bytes) -> WorkingSets {
        WorkingSets(vec![WorkingSetItem::Range(
            from,
            Some(most.min(cap).max(from)),
        )])
    }

    /// Returns the distinct sizes in ascending order; `most` is half of available memory.
    pub fn resolve(&self, most: Bytes) -> Vec<Bytes> {
        let mut sizes = Vec::new();
        for item in &self.0 {
            match *item {
                WorkingSetItem::One(size) => sizes.push(size),
                WorkingSetItem::Range(from, to) => {
                    let to = to.unwrap_or(most.max(from));
                    let doubled = |size: &Bytes| size.get().checked_mul(2).map(Bytes);
                    let all = std::iter::successors(Some(from), doubled);
                    sizes.extend(all.take_while(|size| *size <= to));
                }
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// Removes duplicates and keeps the order of first occurrence.
pub fn once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// Returns the distinct named page kinds of this host, base pages first.
pub fn named(asked: &[AskedPages], host: &Host) -> Vec<PageArm> {
    let mut arms = once(asked.iter().map(|asked| PageArm::resolve(*asked, host)));
    arms.sort_by_key(|arm| !arm.is_base());
    arms
}

/// Returns all page kinds of this host: base pages, full-size THP, and each pool. `smaller` adds
/// the enabled smaller THP sizes. If none is enabled, it adds the size of 16 base pages, so that
/// the result says how to enable it.
pub fn usual(host: &Host, smaller: bool) -> Vec<PageArm> {
    let arm = |size: PageSize, kind| PageArm { size, kind };
    let mut arms = vec![PageArm::base(host)];
    if smaller {
        arms.extend(
            smaller_sizes(host)
                .into_iter()
                .map(|s| arm(s, PageKind::Thp)),
        );
    }
    arms.extend(host.pmd_page.get().map(|size| arm(size, PageKind::Thp)));
    let mut pools: Vec<PageSize> = host.pools.iter().map(|pool| pool.size).collect();
    pools.sort_unstable();
    pools.dedup();
    arms.extend(pools.into_iter().map(|size| arm(size, PageKind::Hugetlb)));
    arms
}

fn smaller_sizes(host: &Host) -> Vec<PageSize> {
    /// Base pages that an arm64 processor joins in one TLB entry; x86-64 processors join at most as
    /// many.
    const JOINED: u64 = 16;
    let Some(thp) = host.thp.known() else {
        return Vec::new();
    };
    let orders = thp.orders.iter();
    let known: Vec<_> = orders
        .filter(|order| Some(order.size) != host.pmd_page.get() && !order.anon.is_absent())
        .collect();
    let on = |word: Option<&str>| word.is_some_and(|word| word != "never");
    let are_on: Vec<PageSize> = known
        .iter()
        .filter(|order| on(order.effective(thp, ThpMemoryKind::Private)))
        .map(|order| order.size)
        .collect();
    match are_on.is_empty() {
        false => are_on,
        true => known
            .iter()
            .map(|order| order.size)
            .filter(|size| size.ratio_to(host.base_page) == JOINED)
            .collect(),
    }
}

pub fn parse_rounds(text: &str) -> Result<usize, String> {
    const MOST: usize = 10_000;
    parse_count(text, "rounds", MOST)
}

pub fn parse_count(text: &str, what: &str, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=most).contains(&n) => Ok(n),
        _ => Err(format!(
            "'{text}' is not a number of {what} from 1 to {most}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::{Root, read_host};
    use hugeleaf_sys::Kernel;

    fn fixture(name: &str) -> Host {
        let path = format!("{}/../../fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
        read_host(&Root::at(path), &Kernel::new()).unwrap()
    }

    fn sizes(text: &str) -> Vec<String> {
        let sizes: WorkingSets = text.parse().unwrap();
        let all = sizes.resolve(Bytes::from_mib(1));
        all.iter().map(Bytes::to_string).collect()
    }

    #[test]
    fn working_sets() {
        assert_eq!(sizes("64K..half"), ["64K", "128K", "256K", "512K", "1M"]);
        assert_eq!(sizes("4M,1M,1M"), ["1M", "4M"]);
        assert_eq!(sizes("96K..400K,1G"), ["96K", "192K", "384K", "1G"]);
        // More than half is refused later with a reason, so parsing must keep it.
        assert_eq!(sizes("2M..half"), ["2M"]);
        for text in ["", "0", "64K..", "..1M", "1M..64K", "half", "64K,,1M", "x"] {
            assert!(text.parse::<WorkingSets>().is_err(), "{text}");
        }
        let usual = WorkingSets::usual(Bytes::from_kib(64), Bytes::from_mib(3), Bytes::from_mib(1));
        assert_eq!(
            usual.resolve(Bytes::from_mib(3)).last(),
            Some(&Bytes::from_mib(1))
        );
    }

    #[test]
    fn usual_pages_are_those_of_the_host() {
        let labels = |host: &Host, smaller| -> Vec<String> {
            usual(host, smaller)
                .iter()
                .map(PageArm::to_string)
                .collect()
        };
        let x86 = fixture("x86-4k-two-nodes");
        let all = labels(&x86, false);
        assert_eq!(all, ["base", "thp:2M", "hugetlb:2M", "hugetlb:1G"]);
        assert!(labels(&x86, true).contains(&"thp:64K".to_owned()));
        assert_eq!(labels(&fixture("neither-kind"), true), ["base"]);
    }

    #[test]
    fn named_pages_are_each_there_once() {
        let host = fixture("x86-4k-two-nodes");
        let asked = ["2M", "base", "thp:2M", "4K"].map(|text| text.parse().unwrap());
        let arms = named(&asked, &host);
        let labels: Vec<String> = arms.iter().map(PageArm::to_string).collect();
        assert_eq!(labels, ["base", "thp:2M"]);
    }
}
