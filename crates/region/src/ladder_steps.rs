//! Resolves a ladder into the steps to try, in order. Pure.

use hugeleaf_host::Host;
use hugeleaf_sys::Sharing;
use hugeleaf_units::{Ladder, PageKind, PageSize};

use crate::error::MemoryError;
use crate::extent::FallbackReason;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LadderStep {
    pub(crate) size: PageSize,
    pub(crate) kind: PageKind,
    /// True if the ladder names the step; false for the base pages that end a ladder.
    pub(crate) named: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LadderSteps {
    /// Steps to try, in this order. Base pages come last unless `mandatory`.
    pub(crate) list: Vec<LadderStep>,
    /// Rungs that this host cannot provide, with the reason.
    pub(crate) dropped: Vec<FallbackReason>,
    pub(crate) mandatory: bool,
}

impl LadderSteps {
    /// Returns the steps of a ladder for this sharing. A size without a kind means THP for private
    /// memory. For shared memory it means the pool first, then THP of that size.
    ///
    /// # Errors
    /// [`MemoryError::Unordered`] if the sizes of the ladder grow. [`MemoryError::NoSuchSize`] if
    /// the ladder is mandatory and this host has none of its sizes.
    pub(crate) fn of(
        ladder: &Ladder,
        sharing: Sharing,
        host: &Host,
    ) -> Result<LadderSteps, MemoryError> {
        let rungs = ladder.rungs();
        if rungs.windows(2).any(|pair| pair[0].size < pair[1].size) {
            return Err(MemoryError::Unordered(ladder.clone()));
        }
        let mut steps = LadderSteps {
            list: Vec::new(),
            dropped: Vec::new(),
            mandatory: ladder.is_mandatory(),
        };
        for rung in rungs {
            let kinds: &[PageKind] = match (rung.kind, sharing) {
                (Some(PageKind::Hugetlb), _) => &[PageKind::Hugetlb],
                (Some(PageKind::Thp), _) | (None, Sharing::Private) => &[PageKind::Thp],
                (Some(PageKind::Base), _) => &[PageKind::Base],
                (None, Sharing::Shared) => &[PageKind::Hugetlb, PageKind::Thp],
            };
            steps.add(rung.size, kinds, host);
        }
        if steps.mandatory && steps.list.is_empty() {
            return Err(MemoryError::NoSuchSize(ladder.clone()));
        }
        let base = LadderStep {
            size: host.base_page,
            kind: PageKind::Base,
            named: false,
        };
        let ends = steps.list.last().is_some_and(|s| s.kind == base.kind);
        if !steps.mandatory && !ends {
            steps.list.push(base);
        }
        Ok(steps)
    }

    fn add(&mut self, size: PageSize, kinds: &[PageKind], host: &Host) {
        if size <= host.base_page {
            self.list.push(LadderStep {
                size: host.base_page,
                kind: PageKind::Base,
                named: true,
            });
            return;
        }
        let has = |kind| {
            host.page_sizes
                .iter()
                .any(|known| known.size == size && known.kind == kind)
        };
        let before = self.list.len();
        let had = kinds.iter().filter(|kind| has(**kind));
        self.list.extend(had.map(|kind| LadderStep {
            size,
            kind: *kind,
            named: true,
        }));
        if self.list.len() == before {
            self.dropped.push(FallbackReason::NoSuchSize { size });
        }
    }

    /// True if a step takes pages from a pool, by its name or by the sharing.
    pub(crate) fn uses_pool(&self) -> bool {
        self.list.iter().any(|step| step.kind == PageKind::Hugetlb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::support::host_with;

    fn steps(ladder: &str, sharing: Sharing) -> Result<Vec<String>, MemoryError> {
        let host = host_with(&[
            ("4K", PageKind::Base),
            ("64K", PageKind::Thp),
            ("2M", PageKind::Thp),
            ("2M", PageKind::Hugetlb),
            ("1G", PageKind::Hugetlb),
        ]);
        let steps = LadderSteps::of(&ladder.parse().unwrap(), sharing, &host)?;
        let list = steps.list.iter();
        Ok(list.map(|s| format!("{}:{}", s.kind, s.size)).collect())
    }

    #[test]
    fn a_size_means_what_the_use_makes_of_it() {
        let shared = |ladder| steps(ladder, Sharing::Shared).unwrap();
        let private = |ladder| steps(ladder, Sharing::Private).unwrap();
        assert_eq!(shared("2M"), ["hugetlb:2M", "thp:2M", "base:4K"]);
        assert_eq!(private("2M"), ["thp:2M", "base:4K"]);
        assert_eq!(private("hugetlb:2M!"), ["hugetlb:2M"]);
        assert_eq!(
            shared("1G,2M"),
            ["hugetlb:1G", "hugetlb:2M", "thp:2M", "base:4K"]
        );
        assert_eq!(shared("4K"), ["base:4K"]);
        assert_eq!(private("1G,64K"), ["thp:64K", "base:4K"]);
    }

    #[test]
    fn sizes_that_grow_or_are_not_there_are_told() {
        assert!(matches!(
            steps("2M,1G", Sharing::Shared),
            Err(MemoryError::Unordered(_))
        ));
        assert!(matches!(
            steps("32M!", Sharing::Shared),
            Err(MemoryError::NoSuchSize(_))
        ));
        assert_eq!(steps("32M", Sharing::Shared).unwrap(), ["base:4K"]);
    }
}
