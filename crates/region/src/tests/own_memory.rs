//! Page sizes of memory that is not a region's.

use crate::{Bytes, PageKind, Range, Region, extents_of};
use hugeleaf_sys::{OwnMapping, Sharing};

use super::support::{HostGuard, host, huge, options, pages, undisturbed, use_all};

#[test]
fn memory_of_others_is_told_like_a_region() {
    let Some(huge) = huge("memory_of_others_is_told_like_a_region") else {
        return;
    };
    let _host = undisturbed();
    let base = host().base_page;
    let length = pages(huge, 3) + pages(base, 5);
    let region = Region::new(&options(length, &huge.to_string())).unwrap();
    use_all(&region);
    let found = extents_of(region.range()).unwrap();
    let expected = region.extents().unwrap();
    let of = |extents: &[crate::Extent]| -> Vec<_> {
        let parts = extents
            .iter()
            .map(|e| (e.range, e.page, e.kind, e.resident));
        parts.collect()
    };
    assert_eq!(of(&found), of(&expected));
    assert!(
        found
            .iter()
            .all(|e| e.why.is_none() && e.requested.size == base)
    );
}

#[test]
fn a_part_ends_at_whole_base_pages() {
    let _host = undisturbed();
    let base = host().base_page;
    let memory = OwnMapping::anonymous(pages(base, 8), Sharing::Private).unwrap();
    let start = memory.range().start();
    let part = Range::new(start + 1, start + base.bytes().get() + 1).unwrap();
    let found = extents_of(part).unwrap();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        found[0].range,
        Range::new(start, start + 2 * base.bytes().get()).unwrap()
    );
    assert_eq!(found[0].resident, Bytes::ZERO);
    memory.touch(base.bytes()).unwrap();
    assert_eq!(extents_of(part).unwrap()[0].resident, pages(base, 2));
}

#[test]
fn pages_of_a_pool_are_told_from_transparent_ones() {
    let test = "pages_of_a_pool_are_told_from_transparent_ones";
    let Some((_guard, size)) = HostGuard::with_pool(test, 4) else {
        return;
    };
    let length = pages(size, 4) + pages(host().base_page, 1);
    let region = Region::new(&options(length, &format!("hugetlb:{size}"))).unwrap();
    use_all(&region);
    let found = extents_of(region.range()).unwrap();
    let told: Vec<_> = found.iter().map(|e| (e.kind, e.page, e.resident)).collect();
    let base = host().base_page;
    assert_eq!(
        told,
        [
            (PageKind::Hugetlb, size, pages(size, 4)),
            (PageKind::Base, base, base.bytes()),
        ]
    );
}

#[test]
fn addresses_without_memory_are_not_resident() {
    let _host = undisturbed();
    let base = host().base_page;
    let memory = OwnMapping::anonymous(pages(base, 4), Sharing::Private).unwrap();
    let range = memory.range();
    drop(memory);
    // Other threads may map memory there meanwhile, so only its length is known.
    let length: Bytes = extents_of(range)
        .unwrap()
        .iter()
        .map(|e| e.range.len())
        .sum();
    assert_eq!(length, range.len());
}
