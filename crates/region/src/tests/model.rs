//! Regions of any length, ladder and pool, against a model of the expected result on a host with
//! spare memory.

use std::cell::RefCell;

use crate::{Bytes, MemoryError, PageKind, PageSize, Region, RegionOptions, Sharing};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::support::{HostGuard, assert_whole, host, huge, options, pages, pool, use_all};

#[derive(Debug, Clone)]
struct Case {
    in_pool: u64,
    large: u64,
    small: u64,
    ladder: &'static str,
    sharing: Sharing,
    threads: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    // H is the pool's size, B the base page's.
    const LADDERS: [&str; 8] = [
        "H",
        "thp:H",
        "hugetlb:H",
        "hugetlb:H,thp:H",
        "B",
        "hugetlb:H!",
        "thp:H!",
        "H!",
    ];
    let sharing = prop_oneof![Just(Sharing::Private), Just(Sharing::Shared)];
    let small = prop_oneof![Just(0u64), 0u64..20];
    (
        0u64..7,
        0u64..9,
        small,
        prop::sample::select(&LADDERS[..]),
        sharing,
        1usize..5,
    )
        .prop_map(|(in_pool, large, small, ladder, sharing, threads)| Case {
            in_pool,
            large,
            small,
            ladder,
            sharing,
            threads,
        })
}

/// Returns the expected extents in order; `None` if the request must be refused.
fn expected(case: &Case, size: PageSize, base: PageSize) -> Option<Vec<(PageKind, Bytes)>> {
    let mandatory = case.ladder.ends_with('!');
    let bare = case.ladder.trim_end_matches('!');
    let shared = case.sharing == Sharing::Shared;
    let from_pool = bare.starts_with("hugetlb") || (bare == "H" && shared);
    let from_thp = bare.contains("thp") || bare == "H";
    if case.large + case.small == 0 || (mandatory && case.small > 0) {
        return None;
    }
    let pool = if from_pool {
        case.in_pool.min(case.large)
    } else {
        0
    };
    let thp = if from_thp { case.large - pool } else { 0 };
    let rest = pages(size, case.large - pool - thp) + pages(base, case.small);
    if mandatory && !rest.is_zero() {
        return None;
    }
    let all = [
        (PageKind::Hugetlb, pages(size, pool)),
        (PageKind::Thp, pages(size, thp)),
        (PageKind::Base, rest),
    ];
    Some(all.into_iter().filter(|(_, n)| !n.is_zero()).collect())
}

fn try_one(case: &Case, size: PageSize, base: PageSize) {
    let before = pool(size);
    let ladder = case.ladder.replace('H', &size.to_string());
    let ladder = ladder.replace('B', &base.to_string());
    let length = pages(size, case.large) + pages(base, case.small);
    let made = Region::new(&RegionOptions {
        sharing: case.sharing,
        threads: Some(case.threads),
        ..options(length, &ladder)
    });
    match (made, expected(case, size, base)) {
        (Ok(region), Some(expected)) => {
            assert_whole(&region);
            use_all(&region);
            let extents = region.extents().unwrap();
            let got: Vec<_> = extents.iter().map(|e| (e.kind, e.range.len())).collect();
            assert_eq!(got, expected, "{case:?}: {extents:#?}");
            let taken = match expected[0] {
                (PageKind::Hugetlb, bytes) => bytes.get() / size.bytes().get(),
                _ => 0,
            };
            assert_eq!(pool(size).free, before.free - taken, "{case:?}");
            assert_eq!(pool(size).reserved, 0);
        }
        (Err(error), None) => assert!(
            matches!(
                error,
                MemoryError::Empty | MemoryError::NotAMultiple { .. } | MemoryError::Short { .. }
            ),
            "{case:?}: {error}"
        ),
        (Ok(region), None) => panic!("{case:?}: {:#?}", region.extents()),
        (Err(error), Some(_)) => panic!("{case:?}: {error}"),
    }
    assert_eq!(pool(size), before, "{case:?}");
}

#[test]
fn any_region_is_what_the_model_says() {
    let test = "any_region_is_what_the_model_says";
    let Some((guard, size)) = HostGuard::with_pool(test, 6) else {
        return;
    };
    if huge(test) != Some(size) {
        println!("not run: {test}: needs a pool of the size of transparent huge pages");
        return;
    }
    let base = host().base_page;
    let cases_in_all = std::env::var("HUGELEAF_CASES").map_or(150, |n| n.parse().unwrap());
    let config = Config {
        cases: cases_in_all,
        failure_persistence: None,
        ..Config::default()
    };
    let guard = RefCell::new(guard);
    TestRunner::new(config)
        .run(&cases(), |case| {
            guard.borrow_mut().set_pool(size, case.in_pool);
            try_one(&case, size, base);
            Ok(())
        })
        .unwrap();
}
