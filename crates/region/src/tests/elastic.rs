//! Elastic memory: taking, returning, transferring, and the reports on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{
    Bytes, Component, Elastic, ElasticError, ElasticOptions, Extent, FallbackReason, Granule,
    MemoryError, NodePolicy, PageKind, PageSize,
};
use hugeleaf_sys::{Errno, MemoryCall, MemorySyscalls, SyscallGate};
use hugeleaf_units::Pages;

use super::support::{HostGuard, host, huge, pages, pool, undisturbed};

pub fn asked(max: Bytes, ladder: &str) -> ElasticOptions {
    ElasticOptions::new(max, ladder.parse().unwrap())
}

/// Shared, with one page per granule, and only on the pool.
pub fn pooled(size: PageSize, granules: u64) -> Elastic {
    let options = asked(pages(size, granules), &format!("hugetlb:{size}!")).shared();
    Elastic::new(&options).unwrap()
}

/// Returns the first word of every base page of a granule.
fn words(elastic: &Elastic, granule: Granule) -> impl Iterator<Item = *mut u64> {
    let start = elastic.address(granule).unwrap();
    let step = usize::try_from(host().base_page.bytes().get()).unwrap();
    let length = usize::try_from(elastic.granule().bytes().get()).unwrap();
    (0..length).step_by(step).map(move |offset| {
        // SAFETY: inside the granule.
        unsafe { start.add(offset).cast() }
    })
}

pub fn write_all(elastic: &Elastic, granule: Granule, seed: u64) {
    for (i, at) in words(elastic, granule).enumerate() {
        // SAFETY: populated, aligned, and no other code uses it here.
        unsafe { at.write_volatile(i as u64 ^ seed) };
    }
}

pub fn assert_written(elastic: &Elastic, granule: Granule, seed: u64) {
    for (i, at) in words(elastic, granule).enumerate() {
        // SAFETY: as above.
        assert_eq!(unsafe { at.read_volatile() }, i as u64 ^ seed, "{granule}");
    }
}

pub fn assert_zeroed(elastic: &Elastic, granule: Granule) {
    for at in words(elastic, granule) {
        // SAFETY: as above.
        assert_eq!(unsafe { at.read_volatile() }, 0, "{granule}");
    }
}

/// Returns the number of pages that a pool has given out.
pub fn in_use(size: PageSize) -> u64 {
    pool(size).total - pool(size).free
}

/// Returns the bytes of extents on pages of a kind.
pub fn on(extents: &[Extent], kind: PageKind) -> Bytes {
    let of_kind = extents.iter().filter(|e| e.kind == kind);
    of_kind.map(|e| e.range.len()).sum()
}

#[test]
fn what_is_given_back_goes_to_the_pool_at_once_and_is_had_again() {
    let test = "what_is_given_back_goes_to_the_pool_at_once_and_is_had_again";
    let Some((_guard, size)) = HostGuard::with_pool(test, 8) else {
        return;
    };
    let before = pool(size);
    let elastic = pooled(size, 12);
    assert_eq!(pool(size), before, "nothing is taken at first");
    let cache = elastic.component("cache", true).unwrap();
    let taken = elastic.take_many(cache, 6).unwrap();
    assert!(
        taken
            .windows(2)
            .all(|pair| pair[0].index() + 1 == pair[1].index())
    );
    for granule in &taken {
        assert_zeroed(&elastic, *granule);
        write_all(&elastic, *granule, granule.to_number());
    }
    assert_eq!((in_use(size), elastic.held()), (6, pages(size, 6)));
    elastic.give_back(cache, &taken[1..4]).unwrap();
    assert_eq!((in_use(size), elastic.held()), (3, pages(size, 3)));
    for granule in [taken[0], taken[4], taken[5]] {
        assert_written(&elastic, granule, granule.to_number());
    }
    let again = elastic.take_many(cache, 3).unwrap();
    let where_they_were: Vec<u32> = taken[1..4].iter().map(|g| g.index()).collect();
    let where_they_are: Vec<u32> = again.iter().map(|g| g.index()).collect();
    assert_eq!(where_they_are, where_they_were);
    assert!(again.iter().all(|granule| !taken.contains(granule)));
    again.iter().for_each(|g| assert_zeroed(&elastic, *g));
    let extents = elastic.extents().unwrap();
    assert_eq!(extents.len(), 1, "{extents:#?}");
    assert_eq!(
        (extents[0].kind, &extents[0].why),
        (PageKind::Hugetlb, &None)
    );
    drop(elastic);
    assert_eq!(pool(size), before);
}

#[test]
fn private_memory_is_on_transparent_huge_pages_and_goes_back() {
    let Some(huge) = huge("private_memory_is_on_transparent_huge_pages_and_goes_back") else {
        return;
    };
    let _host = undisturbed();
    let elastic = Elastic::new(&asked(pages(huge, 16), &huge.to_string())).unwrap();
    let sort = elastic.component("sort", true).unwrap();
    let taken = elastic.take_many(sort, 5).unwrap();
    taken.iter().for_each(|g| write_all(&elastic, *g, 3));
    let extents = elastic.extents().unwrap();
    assert_eq!(on(&extents, PageKind::Thp), pages(huge, 5), "{extents:#?}");
    elastic.give_back(sort, &taken[..4]).unwrap();
    assert_written(&elastic, taken[4], 3);
    assert_eq!(elastic.extents().unwrap().len(), 1);
    let again = elastic.take(sort).unwrap();
    assert_zeroed(&elastic, again);
    assert!(matches!(
        elastic.handle(),
        Err(ElasticError::Memory(MemoryError::NotShared))
    ));
}

#[test]
fn shared_memory_is_on_transparent_huge_pages_or_says_why() {
    let Some(huge) = huge("shared_memory_is_on_transparent_huge_pages_or_says_why") else {
        return;
    };
    let _host = undisturbed();
    let wanted = asked(pages(huge, 16), &format!("thp:{huge}")).shared();
    let elastic = Elastic::new(&wanted).unwrap();
    let cache = elastic.component("cache", true).unwrap();
    let taken = elastic.take_many(cache, 5).unwrap();
    taken.iter().for_each(|g| write_all(&elastic, *g, 3));
    let extents = elastic.extents().unwrap();
    for extent in &extents {
        assert_eq!(
            extent.kind == PageKind::Thp,
            extent.why.is_none(),
            "{extent:#?}"
        );
        assert_eq!(extent.resident, extent.range.len());
    }
    let other = Elastic::attach(&elastic.handle().unwrap()).unwrap();
    for (here, there) in extents.iter().zip(other.extents().unwrap()) {
        assert_eq!((here.kind, here.resident), (there.kind, there.resident));
    }
    taken.iter().for_each(|g| assert_written(&other, *g, 3));
    elastic.give_back(cache, &taken[1..]).unwrap();
    assert!(other.address(taken[1]).is_err());
    let again = other.take_many(cache, 4).unwrap();
    again.iter().for_each(|g| assert_zeroed(&elastic, *g));
}

#[test]
fn a_granule_comes_on_the_next_rung_and_back_on_the_first() {
    let test = "a_granule_comes_on_the_next_rung_and_back_on_the_first";
    let Some((guard, size)) = HostGuard::with_pool(test, 2) else {
        return;
    };
    let ladder = format!("hugetlb:{size}");
    for options in [
        asked(pages(size, 8), &ladder),
        asked(pages(size, 8), &ladder).shared(),
    ] {
        guard.set_pool(size, 2);
        let before = pool(size);
        let elastic = Elastic::new(&options).unwrap();
        let cache = elastic.component("cache", true).unwrap();
        let taken = elastic.take_many(cache, 4).unwrap();
        taken.iter().for_each(|g| write_all(&elastic, *g, 9));
        let extents = elastic.extents().unwrap();
        assert_eq!(on(&extents, PageKind::Hugetlb), pages(size, 2));
        let short = FallbackReason::PoolShort {
            size,
            wanted: Pages(2),
            got: Pages(0),
            limited_by: "pool".to_owned(),
        };
        assert_eq!(extents[1].why, Some(short), "{extents:#?}");
        assert_eq!(extents[1].resident, pages(size, 2));
        guard.set_pool(size, 3);
        elastic.give_back(cache, &taken[3..]).unwrap();
        let back = elastic.take(cache).unwrap();
        assert_eq!(back.index(), taken[3].index());
        assert_zeroed(&elastic, back);
        let extents = elastic.extents().unwrap();
        assert_eq!(on(&extents, PageKind::Hugetlb), pages(size, 3));
        elastic.give_back(cache, &[back]).unwrap();
        taken[..3]
            .iter()
            .for_each(|g| assert_written(&elastic, *g, 9));
        drop(elastic);
        guard.set_pool(size, 2);
        assert_eq!(pool(size), before);
    }
}

#[test]
fn a_large_granule_is_had_whole_or_on_the_next_rung() {
    let test = "a_large_granule_is_had_whole_or_on_the_next_rung";
    let Some((_guard, size)) = HostGuard::with_pool(test, 6) else {
        return;
    };
    let before = pool(size);
    let granule = PageSize::new(pages(size, 4)).unwrap();
    let options = ElasticOptions {
        granule: Some(granule),
        ..asked(pages(granule, 3), &format!("hugetlb:{size}")).shared()
    };
    let elastic = Elastic::new(&options).unwrap();
    let heap = elastic.component("heap", true).unwrap();
    let taken = elastic.take_many(heap, 2).unwrap();
    assert_eq!(in_use(size), 4, "a part of a granule was kept");
    let info = elastic.info().unwrap();
    let shares = &info.components[0].by_page;
    assert_eq!(shares[0].bytes, granule.bytes(), "{info}");
    assert_eq!((shares[0].page, shares[0].kind), (size, PageKind::Hugetlb));
    assert_eq!(info.components[0].bytes, pages(granule, 2));
    elastic.give_back(heap, &taken).unwrap();
    drop(elastic);
    assert_eq!(pool(size), before);
}

#[test]
fn a_page_of_the_largest_size_is_replaced_by_smaller_ones() {
    let test = "a_page_of_the_largest_size_is_replaced_by_smaller_ones";
    let sizes = &host().page_sizes;
    let pools = sizes.iter().filter(|info| info.kind == PageKind::Hugetlb);
    let largest = pools.map(|info| info.size).max();
    let default = host().memory.default_hugetlb_page.get();
    let (Some(largest), Some(size)) = (largest, default) else {
        println!("not run: {test}: needs hugetlb");
        return;
    };
    let count = largest.bytes().get() / size.bytes().get();
    if count < 2 {
        println!("not run: {test}: needs two sizes of hugetlb");
        return;
    }
    let Some((_guard, size)) = HostGuard::with_pool(test, count + 3) else {
        return;
    };
    let before = pool(size);
    let ladder = format!("hugetlb:{largest},hugetlb:{size}");
    let elastic = Elastic::new(&asked(pages(largest, 2), &ladder).shared()).unwrap();
    let cache = elastic.component("cache", true).unwrap();
    let taken = elastic.take(cache).unwrap();
    write_all(&elastic, taken, 1);
    assert_eq!(in_use(size), count);
    let extents = elastic.extents().unwrap();
    assert_eq!((extents.len(), extents[0].page), (1, size), "{extents:#?}");
    assert!(
        matches!(extents[0].why, Some(FallbackReason::PoolShort { size, .. }) if size == largest)
    );
    elastic.give_back(cache, &[taken]).unwrap();
    assert_eq!(pool(size), before);
}

/// Only addresses: more than the kernel moves in one call (mremap(2) of reserved pages fails from
/// 4G on), and beyond one page table of the largest pages.
#[test]
fn as_many_addresses_as_databases_have() {
    let sizes = &host().page_sizes;
    for info in sizes.iter().filter(|info| info.kind == PageKind::Hugetlb) {
        let size = info.size;
        for gigabytes in [1, 2, 4, 5, 8, 600] {
            let max = pages(size, ((gigabytes << 30) / size.bytes().get()).max(1));
            let elastic = Elastic::new(&asked(max, &format!("hugetlb:{size}")).shared());
            let elastic = elastic.unwrap_or_else(|error| panic!("{max} of {size}: {error}"));
            assert_eq!(elastic.max(), max);
        }
    }
}

#[test]
fn a_mandatory_ladder_takes_all_or_none() {
    let test = "a_mandatory_ladder_takes_all_or_none";
    let Some((guard, size)) = HostGuard::with_pool(test, 3) else {
        return;
    };
    let before = pool(size);
    let elastic = pooled(size, 8);
    let cache = elastic.component("cache", true).unwrap();
    let error = elastic.take_many(cache, 5).unwrap_err();
    let ElasticError::Memory(MemoryError::Short { missing, asked, .. }) = &error else {
        panic!("{error}");
    };
    assert_eq!((*missing, *asked), (pages(size, 2), pages(size, 5)));
    assert_eq!(pool(size), before);
    assert_eq!(elastic.held(), Bytes::ZERO);
    assert_eq!(elastic.take_many(cache, 3).unwrap().len(), 3);
    drop(elastic);
    assert_eq!(pool(size), before);
    guard.do_next(&error.next(), size);
    assert_eq!(pool(size).total, before.total + 2);
}

#[test]
fn a_target_is_kept() {
    let test = "a_target_is_kept";
    let Some((_guard, size)) = HostGuard::with_pool(test, 8) else {
        return;
    };
    let elastic = pooled(size, 8);
    let cache = elastic.component("cache", true).unwrap();
    assert_eq!(elastic.target(), elastic.max());
    elastic.set_target(pages(size, 4)).unwrap();
    let taken = elastic.take_many(cache, 4).unwrap();
    let over = |wanted| ElasticError::OverTarget {
        target: pages(size, 4),
        held: pages(size, 4),
        wanted,
    };
    assert_eq!(elastic.take(cache), Err(over(size.bytes())));
    let above = elastic.set_target(pages(size, 1)).unwrap();
    assert_eq!(above, pages(size, 3), "lowering takes nothing away");
    taken.iter().for_each(|g| write_all(&elastic, *g, 1));
    elastic.give_back(cache, &taken[..3]).unwrap();
    assert!(matches!(
        elastic.take(cache),
        Err(ElasticError::OverTarget { .. })
    ));
    elastic.set_target(pages(size, 8)).unwrap();
    assert_eq!(elastic.take_many(cache, 7).unwrap().len(), 7);
    assert_eq!(
        elastic.take(cache).unwrap_err(),
        ElasticError::Full {
            max: pages(size, 8),
            free: Bytes::ZERO,
            wanted: size.bytes()
        }
    );
    assert!(matches!(
        elastic.set_target(pages(size, 9)),
        Err(ElasticError::OverMax { .. })
    ));
}

#[test]
fn a_fixed_component_takes_once() {
    let test = "a_fixed_component_takes_once";
    let Some((_guard, size)) = HostGuard::with_pool(test, 8) else {
        return;
    };
    let elastic = pooled(size, 8);
    let fixed = elastic.component("fixed", false).unwrap();
    let cache = elastic.component("cache", true).unwrap();
    let taken = elastic.take_many(fixed, 2).unwrap();
    let not_resizable = ElasticError::NotResizable {
        name: "fixed".to_owned(),
    };
    assert_eq!(elastic.take(fixed), Err(not_resizable.clone()));
    assert_eq!(elastic.give_back(fixed, &taken), Err(not_resizable.clone()));
    assert_eq!(
        elastic.transfer(fixed, cache, &taken),
        Err(not_resizable.clone())
    );
    let other = elastic.take(cache).unwrap();
    assert_eq!(elastic.transfer(cache, fixed, &[other]), Err(not_resizable));
    let info = elastic.info().unwrap();
    let fixed = &info.components[0];
    assert_eq!((fixed.resizable, fixed.bytes), (false, pages(size, 2)));
}

#[test]
fn what_is_not_held_cannot_be_given_back() {
    let test = "what_is_not_held_cannot_be_given_back";
    let Some((_guard, size)) = HostGuard::with_pool(test, 8) else {
        return;
    };
    let elastic = pooled(size, 8);
    let one = elastic.component("one", true).unwrap();
    let two = elastic.component("two", true).unwrap();
    let taken = elastic.take_many(one, 3).unwrap();
    let all_there = |what: &str| {
        assert_eq!(
            (elastic.held(), in_use(size)),
            (pages(size, 3), 3),
            "{what}"
        );
    };
    let twice = [taken[0], taken[1], taken[0]];
    let error = elastic.give_back(one, &twice).unwrap_err();
    assert_eq!(error, ElasticError::DuplicateGranule { granule: taken[0] });
    all_there("twice in one list");
    let error = elastic.give_back(two, &taken[..1]).unwrap_err();
    assert!(matches!(error, ElasticError::HeldByOther { holder, .. } if holder == one));
    all_there("another's");
    elastic.give_back(one, &taken[2..]).unwrap();
    let gone = taken[2];
    let not_held = ElasticError::NotHeld { granule: gone };
    assert_eq!(elastic.give_back(one, &[gone]), Err(not_held.clone()));
    assert_eq!(elastic.address(gone), Err(not_held));
    let mixed = [taken[0], gone];
    assert!(elastic.give_back(one, &mixed).is_err());
    assert_eq!(
        elastic.held(),
        pages(size, 2),
        "none of a list that is wrong"
    );
    let back = elastic.take(two).unwrap();
    assert_eq!(back.index(), gone.index());
    let stale = ElasticError::Stale { granule: gone };
    assert_eq!(elastic.give_back(one, &[gone]), Err(stale.clone()));
    assert_eq!(elastic.address(gone), Err(stale.clone()));
    assert_eq!(elastic.transfer(one, two, &[gone]), Err(stale));
    for number in [u64::MAX, 7 << 32, (8 << 32) | 1] {
        let forged = Granule::from_number(number);
        let error = elastic.give_back(one, &[forged]).unwrap_err();
        assert_eq!(error, ElasticError::NotHeld { granule: forged });
        assert!(!error.next().is_empty());
    }
    let nobody = Component::from_number(63);
    for component in [nobody, Component::from_number(u32::MAX)] {
        let error = elastic.take(component).unwrap_err();
        assert_eq!(error, ElasticError::NoSuchComponent(component));
        assert!(elastic.give_back(component, &taken[..1]).is_err());
    }
    all_there("after all of this");
    assert_eq!(elastic.give_back(one, &[]), Ok(()));
    assert_eq!(elastic.take_many(one, 0), Ok(Vec::new()));
}

#[test]
fn all_threads_take_and_give_back_at_once() {
    let test = "all_threads_take_and_give_back_at_once";
    let Some((_guard, size)) = HostGuard::with_pool(test, 5) else {
        return;
    };
    let before = pool(size);
    // On both rungs, so that mappings change while other threads use them.
    let elastic = Elastic::new(&asked(pages(size, 9), &format!("hugetlb:{size}"))).unwrap();
    let cache = elastic.component("cache", true).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let elastic = &elastic;
            scope.spawn(move || {
                for round in 0..100 {
                    let taken = elastic.take_many(cache, 1 + round % 3).unwrap();
                    taken.iter().for_each(|g| assert_zeroed(elastic, *g));
                    taken.iter().for_each(|g| write_all(elastic, *g, seed));
                    if round % 10 == 0 {
                        elastic.extents().unwrap();
                    }
                    taken.iter().for_each(|g| assert_written(elastic, *g, seed));
                    elastic.give_back(cache, &taken).unwrap();
                }
            });
        }
    });
    assert_eq!(elastic.held(), Bytes::ZERO);
    assert_eq!(pool(size), before);
}

/// Counts calls.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl SyscallGate for Count {
    fn pass(&self, _: MemoryCall) -> Result<(), Errno> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_transfer_keeps_what_is_held_and_makes_no_call() {
    let test = "a_transfer_keeps_what_is_held_and_makes_no_call";
    let Some((_guard, size)) = HostGuard::with_pool(test, 8) else {
        return;
    };
    let count = Arc::new(Count::default());
    let options = ElasticOptions {
        memory: MemorySyscalls::behind(count.clone()),
        ..asked(pages(size, 8), &format!("hugetlb:{size}!")).shared()
    };
    let elastic = Elastic::new(&options).unwrap();
    let one = elastic.component("one", true).unwrap();
    let two = elastic.component("two", true).unwrap();
    let taken = elastic.take_many(one, 4).unwrap();
    taken.iter().for_each(|g| write_all(&elastic, *g, 5));
    let calls = count.0.load(Ordering::Relaxed);
    let moved = elastic.transfer(one, two, &[taken[3], taken[1]]).unwrap();
    assert_eq!(moved[0].index(), taken[3].index());
    moved.iter().for_each(|g| assert_written(&elastic, *g, 5));
    assert_eq!(count.0.load(Ordering::Relaxed), calls);
    assert!(matches!(
        elastic.give_back(one, &[taken[3]]),
        Err(ElasticError::Stale { .. })
    ));
    let info = elastic.info().unwrap();
    assert_eq!(info.components[0].bytes, info.components[1].bytes);
    elastic.give_back(two, &moved).unwrap();
    assert_eq!(in_use(size), 2);
}

#[test]
fn info_is_a_table_of_all_components() {
    let test = "info_is_a_table_of_all_components";
    let Some((_guard, size)) = HostGuard::with_pool(test, 6) else {
        return;
    };
    let options = ElasticOptions {
        target: Some(pages(size, 5)),
        ..asked(pages(size, 8), &format!("hugetlb:{size}!")).shared()
    };
    let elastic = Elastic::new(&options).unwrap();
    let cache = elastic.component("buffer cache", true).unwrap();
    let log = elastic.component("log buffer", false).unwrap();
    assert_eq!(elastic.component("buffer cache", true), Ok(cache));
    elastic.take_many(cache, 3).unwrap();
    elastic.take_many(log, 1).unwrap();
    let info = elastic.info().unwrap();
    let text = info.to_string();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_ascii_whitespace().collect())
        .collect();
    let (three, one, size) = (pages(size, 3), pages(size, 1), size.to_string());
    let (three, one) = (three.to_string(), one.to_string());
    assert_eq!(lines[0], ["COMPONENT", "BYTES", "RESIZABLE", "PAGES"]);
    assert_eq!(
        lines[1],
        [
            "buffer", "cache", &three, "yes", &three, "on", &size, "hugetlb"
        ]
    );
    assert_eq!(lines[2][..4], ["log", "buffer", &one, "no"]);
    assert_eq!(lines[3], ["free", &one]);
    assert_eq!(lines.len(), 6, "{text}");
    assert_eq!(info.processes, 1);
}

#[test]
fn names_of_components_fit_the_table() {
    let page = host().base_page;
    let elastic = Elastic::new(&asked(pages(page, 4), &page.to_string())).unwrap();
    let longest = "é".repeat(23) + "x";
    let first = elastic.component(&longest, true).unwrap();
    assert_eq!(elastic.info().unwrap().components[0].name, longest);
    assert!(matches!(
        elastic.component(&(longest.clone() + "x"), true),
        Err(ElasticError::NameTooLong { most: 47, .. })
    ));
    assert_eq!(elastic.component("", true), Err(ElasticError::NoName));
    assert!(matches!(
        elastic.component(&longest, false),
        Err(ElasticError::OtherKind {
            resizable: true,
            ..
        })
    ));
    assert_eq!(elastic.component(&longest, true), Ok(first));
    for i in 1..64 {
        elastic.component(&format!("component {i}"), true).unwrap();
    }
    let error = elastic.component("one more", true).unwrap_err();
    assert_eq!(error, ElasticError::TooManyComponents { most: 64 });
}

#[test]
fn a_touch_of_what_is_not_held_is_put_right() {
    let test = "a_touch_of_what_is_not_held_is_put_right";
    let Some((_guard, size)) = HostGuard::with_pool(test, 6) else {
        return;
    };
    let before = pool(size);
    let elastic = pooled(size, 6);
    let cache = elastic.component("cache", true).unwrap();
    let taken = elastic.take_many(cache, 4).unwrap();
    let gone = elastic.address(taken[2]).unwrap();
    let kept = taken[0];
    write_all(&elastic, kept, 8);
    elastic.give_back(cache, &taken[2..]).unwrap();
    // SAFETY: still mapped. This is the access error under test; it allocates a page.
    unsafe { gone.write_volatile(1) };
    assert_eq!(in_use(size), 3);
    assert_eq!(elastic.recover().unwrap().cleaned, size.bytes());
    assert_eq!(in_use(size), 2);
    // SAFETY: as above.
    unsafe { gone.write_volatile(1) };
    let again = elastic.take(cache).unwrap();
    assert_eq!(again.index(), taken[2].index());
    assert_zeroed(&elastic, again);
    assert_eq!(in_use(size), 3);
    assert_written(&elastic, kept, 8);
    drop(elastic);
    assert_eq!(pool(size), before);
}

#[test]
fn bad_options_are_refused_before_anything_is_taken() {
    let base = host().base_page;
    let page = base.bytes();
    let ladder = base.to_string();
    let new = |options: ElasticOptions| Elastic::new(&options).unwrap_err();
    let memory = |error: ElasticError| match error {
        ElasticError::Memory(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(memory(new(asked(Bytes::ZERO, &ladder))), MemoryError::Empty);
    let odd = asked(Bytes(page.get() * 3 + 1), &ladder);
    assert!(matches!(memory(new(odd)), MemoryError::NotAMultiple { .. }));
    let small = ElasticOptions {
        granule: Some(base),
        ..asked(pages(base, 1 << 20), &format!("{}", Bytes(page.get() << 9)))
    };
    assert!(matches!(
        memory(new(small)),
        MemoryError::NotAMultiple { .. }
    ));
    let grows = asked(
        pages(base, 1 << 20),
        &format!("{base},{}", Bytes(page.get() << 9)),
    );
    assert!(matches!(memory(new(grows)), MemoryError::Unordered(_)));
    let unheard_of = asked(Bytes(1 << 50), "32T!");
    assert!(matches!(
        memory(new(unheard_of)),
        MemoryError::NoSuchSize(_)
    ));
    let many = new(asked(Bytes(page.get() << 25), &ladder));
    assert!(
        matches!(many, ElasticError::TooManyGranules { .. }),
        "{many}"
    );
    let over = ElasticOptions {
        target: Some(pages(base, 5)),
        ..asked(pages(base, 4), &ladder)
    };
    assert!(matches!(new(over), ElasticError::OverMax { .. }));
    let nowhere = ElasticOptions {
        nodes: NodePolicy::Bind(vec![99]),
        ..asked(pages(base, 4), &ladder)
    };
    assert!(!new(nowhere).next().is_empty());
    let addresses = ElasticOptions {
        granule: Some(PageSize::new(Bytes(1 << 44)).unwrap()),
        ..asked(Bytes(1 << 60), &ladder)
    };
    assert!(matches!(memory(new(addresses)), MemoryError::Sys(_)));
}
