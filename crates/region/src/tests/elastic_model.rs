//! Elastic memory against a simple model: the granules of each component, their contents, and the
//! pool's own counters.

use std::collections::BTreeMap;

use crate::{Bytes, Component, Elastic, ElasticError, Granule, PageKind, PageSize};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::elastic::{asked, in_use, on, pooled};
use super::support::{HostGuard, pages, pool};

#[derive(Debug, Clone)]
enum Step {
    Take {
        to: usize,
        count: usize,
    },
    GiveBack {
        from: usize,
        skip: usize,
        count: usize,
    },
    Transfer {
        from: usize,
        skip: usize,
        count: usize,
    },
    SetTarget {
        granules: u64,
    },
}

const GRANULES: u64 = 10;

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..2, 0usize..5).prop_map(|(to, count)| Step::Take { to, count }),
        3 => (0usize..2, 0usize..6, 0usize..5)
            .prop_map(|(from, skip, count)| Step::GiveBack { from, skip, count }),
        2 => (0usize..2, 0usize..6, 0usize..4)
            .prop_map(|(from, skip, count)| Step::Transfer { from, skip, count }),
        1 => (0u64..=GRANULES).prop_map(|granules| Step::SetTarget { granules }),
    ]
}

/// The expected state.
struct Model<'a> {
    elastic: &'a Elastic,
    size: PageSize,
    components: [Component; 2],
    /// Owner of each granule and the value of its first word.
    held: BTreeMap<Granule, (usize, u64)>,
    target: u64,
    next: u64,
    mandatory: bool,
}

impl Model<'_> {
    fn new(elastic: &Elastic, size: PageSize, mandatory: bool) -> Model<'_> {
        let make = |name| elastic.component(name, true).unwrap();
        Model {
            elastic,
            size,
            components: [make("one"), make("two")],
            held: BTreeMap::new(),
            target: GRANULES,
            next: 1,
            mandatory,
        }
    }

    fn word(&self, granule: Granule) -> *mut u64 {
        self.elastic.address(granule).unwrap().cast()
    }

    fn do_one(&mut self, step: &Step) {
        match *step {
            Step::Take { to, count } => self.take(to, count),
            Step::GiveBack { from, skip, count } => {
                let given = self.some(from, skip, count);
                let component = self.components[from];
                self.elastic.give_back(component, &given).unwrap();
                for granule in &given {
                    self.held.remove(granule);
                    assert!(self.elastic.address(*granule).is_err());
                    let again = self.elastic.give_back(component, &[*granule]);
                    assert!(matches!(again, Err(ElasticError::NotHeld { .. })));
                }
            }
            Step::Transfer { from, skip, count } => {
                let given = self.some(from, skip, count);
                let (from, to) = (self.components[from], 1 - from);
                let renamed = self.elastic.transfer(from, self.components[to], &given);
                for (old, new) in given.iter().zip(renamed.unwrap()) {
                    let (_, value) = self.held.remove(old).unwrap();
                    self.held.insert(new, (to, value));
                }
            }
            Step::SetTarget { granules } => {
                let above = self.elastic.set_target(pages(self.size, granules)).unwrap();
                let expected = (self.held.len() as u64).saturating_sub(granules);
                assert_eq!(above, pages(self.size, expected));
                self.target = granules;
            }
        }
    }

    fn take(&mut self, to: usize, count: usize) {
        let held = self.held.len() as u64;
        let free_pages = pool(self.size).free;
        let used = in_use(self.size);
        let outcome = self.elastic.take_many(self.components[to], count);
        let wanted = count as u64;
        if wanted > GRANULES - held {
            assert!(
                matches!(outcome, Err(ElasticError::Full { .. })),
                "{outcome:?}"
            );
        } else if wanted > 0 && held + wanted > self.target {
            let over = matches!(outcome, Err(ElasticError::OverTarget { .. }));
            assert!(over, "{outcome:?}");
        } else if self.mandatory && wanted > free_pages {
            assert!(
                matches!(outcome, Err(ElasticError::Memory(_))),
                "{outcome:?}"
            );
        } else {
            let taken = outcome.unwrap();
            assert_eq!(taken.len(), count);
            for granule in taken {
                let at = self.word(granule);
                // SAFETY: only this test holds it.
                unsafe {
                    assert_eq!(at.read_volatile(), 0);
                    at.write_volatile(self.next);
                }
                let before = self.held.insert(granule, (to, self.next));
                assert!(before.is_none(), "{granule} twice");
                self.next += 1;
            }
            assert_eq!(in_use(self.size), used + wanted.min(free_pages));
            return;
        }
        assert_eq!(in_use(self.size), used);
    }

    fn some(&self, of: usize, skip: usize, count: usize) -> Vec<Granule> {
        let its = self.held.iter().filter(|(_, (holder, _))| *holder == of);
        its.map(|(g, _)| *g).skip(skip).take(count).collect()
    }

    /// Checks that all reports are true and all written values are present.
    fn check(&self) {
        let info = self.elastic.info().unwrap();
        let held = pages(self.size, self.held.len() as u64);
        assert_eq!((info.held, info.unclean), (held, Bytes::ZERO));
        for (i, listed) in info.components.iter().enumerate() {
            let its = self.held.values().filter(|(holder, _)| *holder == i);
            assert_eq!(listed.bytes, pages(self.size, its.count() as u64));
            let by_page: Bytes = listed.by_page.iter().map(|share| share.bytes).sum();
            assert_eq!(by_page, listed.bytes);
        }
        let extents = self.elastic.extents().unwrap();
        let all: Bytes = extents.iter().map(|e| e.range.len()).sum();
        assert_eq!(all, held, "{extents:#?}");
        let on_pool = on(&extents, PageKind::Hugetlb);
        assert_eq!(on_pool, pages(self.size, in_use(self.size)));
        for extent in &extents {
            assert_eq!(extent.resident, extent.range.len(), "{extent:#?}");
            let is_asked = extent.page == extent.requested.size;
            assert_eq!(extent.why.is_none(), is_asked, "{extent:#?}");
        }
        for (granule, (_, value)) in &self.held {
            // SAFETY: only this test holds it.
            assert_eq!(unsafe { self.word(*granule).read_volatile() }, *value);
        }
    }
}

#[test]
fn it_does_as_the_model_does() {
    let test = "it_does_as_the_model_does";
    let Some((_guard, size)) = HostGuard::with_pool(test, 6) else {
        return;
    };
    let before = pool(size);
    let cases = std::env::var("HUGELEAF_STEPS").map_or(40, |n| n.parse::<u32>().unwrap() / 100);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let strategy = (any::<bool>(), prop::collection::vec(steps(), 1..30));
    let outcome = runner.run(&strategy, |(shared, steps)| {
        let options = asked(pages(size, GRANULES), &format!("hugetlb:{size}"));
        let options = if shared { options.shared() } else { options };
        let elastic = Elastic::new(&options).unwrap();
        let mut model = Model::new(&elastic, size, false);
        for step in &steps {
            model.do_one(step);
            model.check();
        }
        drop(elastic);
        prop_assert_eq!(pool(size), before);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn many_random_steps_leave_no_page_unaccounted_for() {
    let test = "many_random_steps_leave_no_page_unaccounted_for";
    let Some((_guard, size)) = HostGuard::with_pool(test, 8) else {
        return;
    };
    let count: u64 = std::env::var("HUGELEAF_STEPS").map_or(10_000, |n| n.parse().unwrap());
    let before = pool(size);
    let elastic = pooled(size, GRANULES);
    let mut model = Model::new(&elastic, size, true);
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut below = |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit).unwrap()
    };
    for n in 0..count {
        let (one, skip) = (below(2), below(4));
        let step = match below(10) {
            0..=4 => Step::Take {
                to: one,
                count: 1 + below(2),
            },
            5..=7 => Step::GiveBack {
                from: one,
                skip,
                count: 1 + below(3),
            },
            8 => Step::Transfer {
                from: one,
                skip,
                count: 1 + below(2),
            },
            _ => Step::SetTarget {
                granules: 5 + below(6) as u64,
            },
        };
        model.do_one(&step);
        let held = model.held.len() as u64;
        assert_eq!(in_use(size), held, "after {n} steps");
        if n % 500 == 0 {
            model.check();
        }
    }
    model.check();
    drop(elastic);
    assert_eq!(pool(size), before);
}
