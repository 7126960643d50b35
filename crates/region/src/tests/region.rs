//! The pages of a region, and the host's memory after its end.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::{Bytes, Extent, FallbackReason, Handle, MemoryError, PageKind, PageSize, Region};
use hugeleaf_sys::{Advice, HugetlbReservation, MemoryFile, MemorySyscalls, duplicate_raw};
use hugeleaf_units::Pages;

use super::support::{
    HostGuard, assert_whole, host, huge, options, pages, pool, undisturbed, use_all,
};

#[test]
fn private_memory_is_on_transparent_huge_pages() {
    let Some(huge) = huge("private_memory_is_on_transparent_huge_pages") else {
        return;
    };
    let _host = undisturbed();
    let region = Region::new(&options(pages(huge, 8), &huge.to_string())).unwrap();
    use_all(&region);
    let extents = region.extents().unwrap();
    assert_eq!(extents.len(), 1, "{extents:#?}");
    assert_eq!((extents[0].page, extents[0].kind), (huge, PageKind::Thp));
    assert_whole(&region);
}

#[test]
fn the_rest_of_an_odd_length_is_on_base_pages() {
    let Some(huge) = huge("the_rest_of_an_odd_length_is_on_base_pages") else {
        return;
    };
    let _host = undisturbed();
    let base = host().base_page;
    let length = pages(huge, 3) + pages(base, 5);
    let region = Region::new(&options(length, &huge.to_string())).unwrap();
    use_all(&region);
    let extents = region.extents().unwrap();
    assert_eq!(extents.len(), 2, "{extents:#?}");
    assert_eq!(extents[1].page, base);
    assert_eq!(
        extents[1].why,
        Some(FallbackReason::Remainder { size: huge })
    );
    assert_whole(&region);
    let mandatory = options(length, &format!("{huge}!"));
    assert!(matches!(
        Region::new(&mandatory),
        Err(MemoryError::NotAMultiple { .. })
    ));
}

#[test]
fn a_pool_that_has_it_all_gives_a_uniform_region() {
    let test = "a_pool_that_has_it_all_gives_a_uniform_region";
    let Some((_guard, size)) = HostGuard::with_pool(test, 16) else {
        return;
    };
    let before = pool(size);
    let region = Region::new(&options(pages(size, 16), &format!("{size}!")).shared()).unwrap();
    use_all(&region);
    let extents = region.extents().unwrap();
    assert_eq!(extents.len(), 1);
    assert_eq!(extents[0].kind, PageKind::Hugetlb);
    assert_eq!((pool(size).free, pool(size).reserved), (0, 0));
    assert_whole(&region);
    drop(region);
    assert_eq!(pool(size), before);
}

#[test]
fn a_pool_that_is_short_gives_a_mosaic() {
    let test = "a_pool_that_is_short_gives_a_mosaic";
    let Some((guard, size)) = HostGuard::with_pool(test, 5) else {
        return;
    };
    let before = pool(size);
    let wanted = options(pages(size, 12), &format!("hugetlb:{size}"));
    for wanted in [wanted.clone(), wanted.clone().shared()] {
        let region = Region::new(&wanted).unwrap();
        use_all(&region);
        let extents = region.extents().unwrap();
        assert_eq!(extents[0].range.len(), pages(size, 5), "{extents:#?}");
        assert_eq!(extents[0].kind, PageKind::Hugetlb);
        let short = FallbackReason::PoolShort {
            size,
            wanted: Pages(12),
            got: Pages(5),
            limited_by: "pool".to_owned(),
        };
        assert_eq!(extents[1].why, Some(short), "{extents:#?}");
        assert_whole(&region);
        drop(region);
        assert_eq!(pool(size), before);
    }
    let mandatory = options(pages(size, 12), &format!("hugetlb:{size}!"));
    let error = Region::new(&mandatory).unwrap_err();
    assert!(error.to_string().contains("7 missing"), "{error}");
    assert_eq!(
        pool(size),
        before,
        "a region that fails leaves nothing behind"
    );
    guard.do_next(&error.next(), size);
    Region::new(&mandatory).unwrap();
}

#[test]
fn others_attach_what_is_sent_to_them() {
    let test = "others_attach_what_is_sent_to_them";
    let Some((_guard, size)) = HostGuard::with_pool(test, 3) else {
        return;
    };
    let wanted = options(pages(size, 5), &size.to_string()).shared();
    let region = Region::new(&wanted).unwrap();
    use_all(&region);
    let (here, there) = UnixStream::pair().unwrap();
    region.handle().unwrap().send(&here).unwrap();
    let handle = Handle::receive(&there).unwrap();
    let other = Region::attach(&handle).unwrap();
    assert_ne!(other.range(), region.range());
    assert_eq!(other.len(), region.len());
    // SAFETY: both are populated and mapped for reading and writing.
    unsafe {
        region.as_ptr().write_volatile(42);
        assert_eq!(other.as_ptr().read_volatile(), 42);
    }
    let kinds = |region: &Region| -> Vec<(PageKind, Bytes)> {
        let extents = region.extents().unwrap().into_iter();
        extents.map(|e| (e.kind, e.range.len())).collect()
    };
    assert_eq!(kinds(&region)[0], (PageKind::Hugetlb, pages(size, 3)));
    assert_eq!(kinds(&other)[0], kinds(&region)[0]);
    drop(region);
    use_all(&other);
}

#[test]
fn bad_requests_are_refused_before_anything_is_taken() {
    let base = host().base_page;
    let page = base.bytes();
    assert!(matches!(
        Region::new(&options(Bytes::ZERO, "2M")),
        Err(MemoryError::Empty)
    ));
    assert!(matches!(
        Region::new(&options(Bytes(page.get() + 1), "2M")),
        Err(MemoryError::NotAMultiple { .. })
    ));
    let more_than_there_is = base.round_down(1 << 45);
    assert!(matches!(
        Region::new(&options(Bytes(more_than_there_is), "2M")),
        Err(MemoryError::TooLarge { .. })
    ));
    let more_than_addresses = base.round_down(u64::MAX);
    assert!(Region::new(&options(Bytes(more_than_addresses), "2M")).is_err());
    assert!(matches!(
        Region::new(&options(page, "2M,1G")),
        Err(MemoryError::Unordered(_))
    ));
    let private = Region::new(&options(page, "2M")).unwrap();
    assert!(matches!(private.handle(), Err(MemoryError::NotShared)));
}

/// Returns a THP size below the PMD size that private memory can have here.
fn middle(test: &str) -> Option<PageSize> {
    let host = host();
    let huge = huge(test)?;
    let orders = host.thp.known().map_or(&[][..], |thp| &thp.orders);
    let middle = orders
        .iter()
        .rfind(|order| order.size < huge && !order.anon.is_absent());
    if middle.is_none() {
        println!("not run: {test}: needs more than one size of transparent huge pages");
    }
    middle.map(|order| order.size)
}

fn knob(size: PageSize) -> PathBuf {
    let kib = size.bytes().get() / 1024;
    format!("/sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled").into()
}

#[test]
fn a_size_that_is_off_or_not_told_is_said_to_be() {
    let test = "a_size_that_is_off_or_not_told_is_said_to_be";
    let (Some(middle), Some(huge)) = (middle(test), huge(test)) else {
        return;
    };
    let Some(guard) = HostGuard::lock(test) else {
        return;
    };
    let make = |ladder: String| Region::new(&options(pages(huge, 4), &ladder));
    let whys = |of_middle: &str, of_huge: &str| {
        guard.set(knob(middle), of_middle);
        guard.set(knob(huge), of_huge);
        let region = make(middle.to_string()).unwrap();
        use_all(&region);
        let mandatory = make(format!("{middle}!")).map(|region| region.len());
        (region.extents().unwrap(), mandatory)
    };
    let one = |extents: &[Extent]| {
        assert_eq!(extents.len(), 1, "{extents:#?}");
        (extents[0].page, extents[0].why.clone())
    };
    let base = host().base_page;
    let (extents, mandatory) = whys("never", "never");
    let path = knob(middle).display().to_string();
    let off = FallbackReason::KnobOff { size: middle, path };
    assert_eq!(one(&extents), (base, Some(off)));
    assert!(matches!(mandatory, Err(MemoryError::Short { .. })));

    let (extents, mandatory) = whys("always", "never");
    let untold = FallbackReason::NotReported { size: middle };
    assert_eq!(one(&extents), (base, Some(untold)));
    let untold = mandatory.unwrap_err().to_string();
    assert!(untold.contains("does not report"), "{untold}");

    // The kernel uses the largest enabled size, so the result exceeds the request.
    let (extents, _) = whys("always", "always");
    let large = extents.iter().find(|e| e.page == huge).unwrap();
    assert_eq!((large.kind, &large.why), (PageKind::Thp, &None));
}

/// Shared memory is collapsed with any value of its knob, except for the one that forbids it.
#[test]
fn shared_memory_is_collapsed_where_the_knob_is_off() {
    let test = "shared_memory_is_collapsed_where_the_knob_is_off";
    let Some(huge) = huge(test) else {
        return;
    };
    let Some(guard) = HostGuard::lock(test) else {
        return;
    };
    let top: PathBuf = "/sys/kernel/mm/transparent_hugepage/shmem_enabled".into();
    if !top.exists() {
        println!("not run: {test}: needs transparent huge pages for shared memory");
        return;
    }
    for value in ["never", "advise", "within_size", "always", "deny"] {
        guard.set(top.clone(), value);
        let region = Region::new(&options(pages(huge, 4), &format!("thp:{huge}")).shared());
        let region = region.unwrap();
        use_all(&region);
        assert_whole(&region);
        let extents = region.extents().unwrap();
        match value {
            "deny" => {
                let path = top.display().to_string();
                let off = FallbackReason::KnobOff { size: huge, path };
                assert_eq!(extents[0].why, Some(off), "{extents:#?}");
            }
            _ => assert_eq!(extents[0].page, huge, "{value}: {extents:#?}"),
        }
        // An attached region has the same pages.
        let other = Region::attach(&region.handle().unwrap()).unwrap();
        assert_eq!(other.extents().unwrap()[0].page, extents[0].page, "{value}");
    }
}

/// A collapse by another mapping empties the page tables of this one.
#[test]
fn what_others_do_to_shared_pages_is_seen() {
    let test = "what_others_do_to_shared_pages_is_seen";
    let Some(huge) = huge(test) else {
        return;
    };
    let Some(guard) = HostGuard::lock(test) else {
        return;
    };
    let top: PathBuf = "/sys/kernel/mm/transparent_hugepage/shmem_enabled".into();
    guard.set(top.clone(), "deny");
    let region = Region::new(&options(pages(huge, 4), &format!("thp:{huge}")).shared()).unwrap();
    use_all(&region);
    let small = host().base_page;
    assert_eq!(region.extents().unwrap()[0].page, small);
    guard.set(top, "never");
    let file = first_file(&region);
    let space = MemorySyscalls::new()
        .reserve_addresses(region.len(), huge)
        .unwrap();
    let all = space.range();
    space
        .map_file(all, &file, 0, HugetlbReservation::All)
        .unwrap();
    space.advise(all, Advice::PopulateWrite).unwrap();
    space.advise(all, Advice::Collapse).unwrap();
    let extents = region.extents().unwrap();
    assert_eq!((extents[0].page, extents[0].resident), (huge, region.len()));
    assert_whole(&region);
}

/// Returns the descriptor that any receiver of the region has.
fn first_file(region: &Region) -> MemoryFile {
    let handle = region.handle().unwrap();
    let line = handle.inheritable().unwrap();
    let number = line.split([' ', ';']).nth(1).unwrap().parse().unwrap();
    MemoryFile::from_fd(duplicate_raw(number).unwrap())
}

#[test]
fn a_ladder_of_two_pools_goes_from_large_to_small() {
    let test = "a_ladder_of_two_pools_goes_from_large_to_small";
    let Some((guard, size)) = HostGuard::with_pool(test, 3) else {
        return;
    };
    let host = host();
    let mut pools = host
        .page_sizes
        .iter()
        .filter(|p| p.kind == PageKind::Hugetlb);
    let giant = pools.rfind(|p| p.size > size).map(|p| p.size);
    let Some(giant) = giant.filter(|giant| giant.bytes() <= Bytes::from_mib(1024)) else {
        println!("not run: {test}: needs a second pool of pages up to 1G");
        return;
    };
    guard.set_pool(giant, 1);
    if pool(giant).total != 1 {
        println!("not run: {test}: needs {giant} of contiguous memory");
        return;
    }
    let length = pages(giant, 1) + pages(size, 5);
    let region = Region::new(&options(length, &format!("{giant},{size}")).shared()).unwrap();
    assert_whole(&region);
    let extents = region.extents().unwrap();
    let got: Vec<_> = extents.iter().map(|e| (e.page, e.range.len())).collect();
    assert_eq!(got[..2], [(giant, giant.bytes()), (size, pages(size, 3))]);
    assert_eq!(
        extents[1].why,
        Some(FallbackReason::Remainder { size: giant })
    );
    let other = Region::attach(&region.handle().unwrap()).unwrap();
    assert_eq!(other.range().start() % giant.bytes().get(), 0);
    drop((region, other));
    assert_eq!((pool(giant).free, pool(size).free), (1, 3));
    // The pool has one giant page, so a second mandatory request for it fails.
    let wanted = options(pages(giant, 1), &format!("{giant}!")).shared();
    let first = Region::new(&wanted).unwrap();
    assert!(matches!(
        Region::new(&wanted),
        Err(MemoryError::Short { .. })
    ));
    drop(first);
}
