//! Converts bytes to pages: the choice of sizes, and the lines that show the sum.

use hugeleaf_host::demand::{EqualMappings, PageSource};
use hugeleaf_units::{Bytes, PageSize, Pages};

use super::model::{DemandPlan, PageCount, Plan, PoolPlan};

/// Maximum waste of a larger page size: one part in 50 of the mapping (2 %).
const WASTE: u64 = 50;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PageSizePolicy {
    /// This size regardless of waste, because it is configured, or the program supports no other.
    Only(PageSize),
    /// One size for the whole mapping: the largest with little waste, otherwise the last.
    OneOf(Vec<PageSize>),
    /// Several sizes for one mapping, as `hugeleaf run` places them: the larger sizes as far as
    /// they fit, the rest on the last.
    Mix(Vec<PageSize>),
}

impl PageSizePolicy {
    /// Returns the pages of one mapping, largest size first.
    pub fn pages(&self, mapping: Bytes) -> Vec<PageCount> {
        let all = |page: PageSize| PageCount::new(page, page.pages_for(mapping));
        match self {
            PageSizePolicy::Only(size) => vec![all(*size)],
            PageSizePolicy::OneOf(sizes) => {
                let fits = sizes.iter().find(|size| wastes_little(mapping, **size));
                let chosen = fits.or(sizes.last());
                chosen.map(|size| all(*size)).into_iter().collect()
            }
            PageSizePolicy::Mix(sizes) => mix(mapping, sizes),
        }
    }
}

/// True if rounding a mapping up to pages of this size wastes at most 2 % of it.
pub(super) fn wastes_little(mapping: Bytes, size: PageSize) -> bool {
    let waste = size.pages_for(mapping).in_bytes(size) - mapping;
    waste * WASTE <= mapping
}

fn mix(mapping: Bytes, sizes: &[PageSize]) -> Vec<PageCount> {
    let mut left = mapping;
    let mut found = Vec::new();
    for (i, size) in sizes.iter().enumerate() {
        let is_last = i + 1 == sizes.len();
        let whole = Pages(left.get() / size.bytes().get());
        let pages = if is_last { size.pages_for(left) } else { whole };
        left = left - pages.in_bytes(*size);
        if pages.get() > 0 {
            found.push(PageCount::new(*size, pages));
        }
    }
    found
}

/// Adds pages to a list with one entry per size, largest first.
pub(super) fn add(to: &mut Vec<PageCount>, more: PageCount) {
    if more.pages.get() == 0 {
        return;
    }
    match to.iter_mut().find(|p| p.page == more.page) {
        Some(entry) => entry.pages += more.pages,
        None => {
            to.push(more);
            to.sort_by_key(|p| std::cmp::Reverse(p.page));
        }
    }
}

/// Sums pages by size over several lists, largest first.
pub fn sum_pages(all: impl IntoIterator<Item = PageCount>) -> Vec<PageCount> {
    let mut sum = Vec::new();
    for pages in all {
        add(&mut sum, pages);
    }
    sum
}

/// Returns the pages of all mappings, each rounded up separately.
pub(super) fn pages_of_all(mappings: &[EqualMappings], takes: &PageSizePolicy) -> Vec<PageCount> {
    let each = mappings.iter().flat_map(|mapping| {
        let pages = takes.pages(mapping.bytes).into_iter();
        pages.map(|one| one.times(mapping.count))
    });
    sum_pages(each)
}

pub fn bytes_of(mappings: &[EqualMappings]) -> Bytes {
    mappings.iter().map(|p| p.bytes * p.count).sum()
}

/// Formats `4163 pages of 2M`.
pub fn pages_text(pages: PageCount) -> String {
    let word = if pages.pages == Pages(1) {
        "page"
    } else {
        "pages"
    };
    format!("{} {word} of {}", pages.pages, pages.page)
}

/// Formats several sizes: `8 pages of 1G + 65 pages of 2M`, or `no pages`.
pub fn all_pages_text(pages: &[PageCount]) -> String {
    let each: Vec<String> = pages.iter().map(|p| pages_text(*p)).collect();
    match each.is_empty() {
        true => "no pages".to_owned(),
        false => each.join(" + "),
    }
}

/// Shows the sum of a demand, with one line per group of equal mappings.
pub fn demand(demand: &DemandPlan) -> Vec<String> {
    if demand.from == PageSource::Thp {
        let bytes = bytes_of(&demand.mappings);
        return vec![format!(
            "{bytes} on transparent huge pages, without a reservation"
        )];
    }
    let mut lines: Vec<String> = match demand.pages.as_slice() {
        // With one page size, the sum can be shown line by line.
        [one] => demand.mappings.iter().map(|p| line(*p, one.page)).collect(),
        _ => Vec::new(),
    };
    let planned = all_pages_text(&demand.pages);
    if lines.len() != 1 {
        let bytes = bytes_of(&demand.mappings);
        lines.push(format!("together {bytes:#} bytes ({bytes}) = {planned}"));
    }
    if !demand.missing.is_empty() {
        let missing = all_pages_text(&demand.missing);
        lines.push(format!("planned: {planned}; missing: {missing}"));
    }
    lines
}

fn line(mapping: EqualMappings, size: PageSize) -> String {
    let each = size.pages_for(mapping.bytes);
    let bytes = mapping.bytes;
    let pages = pages_text(PageCount::new(size, each).times(mapping.count));
    match mapping.count {
        1 => format!("1 mapping of {bytes:#} bytes ({bytes}) = {pages}"),
        n => format!("{n} mappings of {bytes:#} bytes ({bytes}), {each} each = {pages}"),
    }
}

/// Shows the users of the pages of a size, over all nodes.
pub fn pool(plan: &Plan, pool: &PoolPlan) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for name in &pool.services {
        let of_name = plan.services.iter().filter(|s| s.name == *name);
        let pages: Pages = of_name.map(|s| s.pages_of(pool.page)).sum();
        parts.push(format!("{name} {pages}"));
    }
    let of_size = || plan.of_size(pool.page);
    let other: [(&str, Pages); 3] = [
        ("promised", of_size().map(|p| p.promised).sum()),
        ("others", of_size().map(|p| p.others).sum()),
        ("idle", of_size().map(|p| p.idle).sum()),
    ];
    let other = other.iter().filter(|(_, pages)| *pages > Pages(0));
    parts.extend(other.map(|(what, pages)| format!("{what} {pages}")));
    let total: Pages = of_size().map(|p| p.pages).sum();
    let nodes = match of_size().count() {
        0 | 1 => String::new(),
        n => format!(", over {n} nodes"),
    };
    match parts.is_empty() {
        true => Vec::new(),
        false => vec![format!("{} = {total} in all{nodes}", parts.join(" + "))],
    }
}

pub fn base(plan: &Plan) -> Vec<String> {
    let used = plan.base.used - plan.base.moves;
    let left = match plan.left() {
        Some(left) => format!("{left} left"),
        None => "nothing left".to_owned(),
    };
    vec![format!(
        "{} of memory = {} in pools + {used} used on base pages + {left}",
        plan.host.memory,
        plan.in_pools()
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size(text: &str) -> PageSize {
        text.parse().unwrap()
    }

    fn show(takes: &PageSizePolicy, bytes: u64) -> String {
        all_pages_text(&takes.pages(Bytes(bytes)))
    }

    #[test]
    fn one_byte_takes_a_page() {
        assert_eq!(show(&PageSizePolicy::Only(size("2M")), 1), "1 page of 2M");
        assert_eq!(show(&PageSizePolicy::Only(size("2M")), 0), "0 pages of 2M");
        assert_eq!(
            show(&PageSizePolicy::Mix(vec![size("1G"), size("2M")]), 0),
            "no pages"
        );
    }

    #[test]
    fn pieces_are_rounded_one_by_one() {
        let mappings = [
            EqualMappings {
                bytes: Bytes(1),
                count: 3,
            },
            EqualMappings {
                bytes: Bytes(3 << 20),
                count: 2,
            },
        ];
        let pages = pages_of_all(&mappings, &PageSizePolicy::Only(size("2M")));
        assert_eq!(all_pages_text(&pages), "7 pages of 2M");
    }

    #[test]
    fn the_larger_page_is_taken_where_it_wastes_little() {
        let one = PageSizePolicy::OneOf(vec![size("1G"), size("2M")]);
        let gib = 1 << 30;
        assert_eq!(show(&one, 8 * gib), "8 pages of 1G");
        // 50 G and 1 byte short of 51: 2 % of 50 G is 1 G.
        assert_eq!(show(&one, 50 * gib + 1), "51 pages of 1G");
        assert_eq!(show(&one, 49 * gib + 1), "25089 pages of 2M");
        assert_eq!(show(&one, gib / 2), "256 pages of 2M");
        // No size has little waste, so the last one is used.
        assert_eq!(show(&one, 1), "1 page of 2M");
    }

    #[test]
    fn a_mix_puts_the_rest_on_the_smaller_size() {
        let mix = PageSizePolicy::Mix(vec![size("1G"), size("2M")]);
        assert_eq!(show(&mix, (8 << 30) + 1), "8 pages of 1G + 1 page of 2M");
        assert_eq!(show(&mix, 8 << 30), "8 pages of 1G");
        assert_eq!(show(&mix, 5 << 20), "3 pages of 2M");
    }

    proptest! {
        #[test]
        fn enough_and_not_a_page_too_many(bytes in 1u64..1 << 50, shift in 12u32..31) {
            let small = PageSize::new(Bytes(1 << shift)).unwrap();
            let large = PageSize::new(Bytes(1 << (shift + 9))).unwrap();
            for takes in [
                PageSizePolicy::Only(small),
                PageSizePolicy::OneOf(vec![large, small]),
                PageSizePolicy::Mix(vec![large, small]),
            ] {
                let pages = takes.pages(Bytes(bytes));
                let got: u64 = pages.iter().map(|p| p.bytes().get()).sum();
                prop_assert!(got >= bytes);
                let over = got - bytes;
                let smallest = pages.iter().map(|p| p.page.bytes().get()).min().unwrap();
                prop_assert!(over < smallest, "{over} over with {takes:?}");
                // Two percent, or a page of the smaller size.
                prop_assert!(over <= bytes / WASTE || over < small.bytes().get());
            }
        }
    }
}
