//! Usage of a server's processes: page tables, the pages of their shared memory, and processor time.

use std::fs::File;

use hugeleaf_host::process::maps::read_maps;
use hugeleaf_host::{Host, PageUsage, ReadDetail, Root, read_process};
use hugeleaf_sys::{Kernel, PageMap, PageScanDetail, PageState, Pid, ticks_per_second};
use hugeleaf_units::{Bytes, PageKind, Range};

/// Returns the children of a process's first thread; `None` if they cannot be read.
pub fn children(root: &Root, pid: u32) -> Option<Vec<u32>> {
    let text = root.read(format!("proc/{pid}/task/{pid}/children"));
    let words = text.known()?.split_ascii_whitespace();
    Some(words.filter_map(|word| word.parse().ok()).collect())
}

/// Returns a process and its running children.
pub fn tree(root: &Root, pid: u32) -> Vec<u32> {
    let children = children(root, pid).unwrap_or_default();
    std::iter::once(pid).chain(children).collect()
}

/// Returns the cache of a server by page size; `None` if it cannot be determined. A shared cache is the longest
/// shared mapping of the first process. The others were forked by it and have it at the same addresses; memory that
/// is resident in any of them counts once. A private cache is the mapping of the first process with the most resident
/// memory.
pub fn cache_pages(
    root: &Root,
    kernel: &Kernel,
    host: &Host,
    pids: &[u32],
    shared: bool,
) -> Option<Vec<PageUsage>> {
    let first = *pids.first()?;
    let maps = root.parse_lines(format!("proc/{first}/maps"), read_maps);
    // A server may reserve addresses that it cannot touch yet for a cache that may grow.
    let maps = maps.known()?.iter();
    let ranges = maps
        .filter(|map| map.shared == shared && map.permissions[1])
        .map(|map| map.range);
    let held_in = |range: Range, pids: &[u32]| -> Option<(Range, Bytes, Bytes)> {
        let maps = page_maps(root, kernel, range, pids)?;
        let (small, huge) = in_memory(&maps);
        Some((range, small, huge))
    };
    let (range, small, huge) = match shared {
        true => held_in(ranges.max_by_key(|range| range.len())?, pids)?,
        false => {
            let held = ranges.filter_map(|range| held_in(range, &pids[..1]));
            held.max_by_key(|(_, small, huge)| *small + *huge)?
        }
    };
    let mut table = Vec::new();
    if let Some(size) = pool_page(root, kernel, host, first, range) {
        PageUsage::add(&mut table, size, PageKind::Hugetlb, small + huge);
        return Some(table);
    }
    PageUsage::add(&mut table, host.base_page, PageKind::Base, small);
    match host.pmd_page.get() {
        Some(pmd) => PageUsage::add(&mut table, pmd, PageKind::Thp, huge),
        None if huge.is_zero() => {}
        None => return None,
    }
    Some(table)
}

/// Returns the page maps of a range in these processes; `None` if unreadable or without page sizes.
fn page_maps(root: &Root, kernel: &Kernel, range: Range, pids: &[u32]) -> Option<Vec<PageMap>> {
    let map_of = |pid: &u32| -> Option<PageMap> {
        let pagemap = File::open(root.path(format!("proc/{pid}/pagemap"))).ok()?;
        kernel.page_map(&pagemap, range, PageScanDetail::Sizes).ok()
    };
    let maps: Vec<PageMap> = pids.iter().filter_map(map_of).collect();
    let is_known = !maps.is_empty() && maps.iter().all(|map| map.huge_known);
    is_known.then_some(maps)
}

/// Returns the page size of a mapping that is on the pool; `None` if it is not.
fn pool_page(
    root: &Root,
    kernel: &Kernel,
    host: &Host,
    pid: u32,
    range: Range,
) -> Option<hugeleaf_units::PageSize> {
    let process = read_process(root, kernel, host, Pid(pid), ReadDetail::Segments).ok()?;
    let segment = process.segments.iter().find(|s| s.range == range)?;
    let mut held = segment.by_page_size.iter();
    held.find(|held| held.kind == PageKind::Hugetlb)
        .map(|held| held.size)
}

/// Returns the bytes resident in any of these maps: mapped by base entries only, and by a huge entry in at least one.
fn in_memory(maps: &[PageMap]) -> (Bytes, Bytes) {
    let runs = |huge: bool| {
        let all = maps.iter().flat_map(|map| &map.runs);
        let all = all.filter(|run| {
            run.state.has(PageState::PRESENT)
                && !run.state.has(PageState::ZERO)
                && (!huge || run.state.has(PageState::HUGE))
        });
        covered(all.map(|run| run.range).collect())
    };
    let (all, huge) = (runs(false), runs(true));
    (all - huge, huge)
}

fn covered(mut ranges: Vec<Range>) -> Bytes {
    ranges.sort_by_key(|range| range.start());
    let (mut sum, mut end) = (0, 0);
    for range in ranges {
        let from = range.start().max(end);
        sum += range.end().saturating_sub(from);
        end = end.max(range.end());
    }
    Bytes(sum)
}

/// Returns the microseconds used by a process, its running children and those it has reaped, in user mode and in the
/// kernel. `None` if they cannot be read. Grandchildren count once they are reaped; a database's server has none.
pub fn tree_usage(root: &Root, pid: u32) -> Option<(u64, u64)> {
    let mut sum = of_one(root, pid, true)?;
    for child in children(root, pid)? {
        // A child that has just ended is in the parent's account.
        if let Some((user, system)) = of_one(root, child, false) {
            sum = (sum.0 + user, sum.1 + system);
        }
    }
    Some(sum)
}

fn of_one(root: &Root, pid: u32, with_buried: bool) -> Option<(u64, u64)> {
    let text = root.read(format!("proc/{pid}/stat"));
    parse_usage(text.known()?, ticks_per_second(), with_buried)
}

/// Parses fields 14 to 17 of proc_pid_stat(5): utime, stime, cutime, cstime, in ticks.
fn parse_usage(text: &str, ticks: u64, with_buried: bool) -> Option<(u64, u64)> {
    // The name, in parentheses, may contain any character.
    let rest = &text[text.rfind(')')? + 1..];
    let fields: Vec<u64> = rest
        .split_ascii_whitespace()
        .skip(11)
        .take(4)
        .map_while(|field| field.parse().ok())
        .collect();
    let [user, system, buried_user, buried_system] = fields[..] else {
        return None;
    };
    let micros = |own: u64, buried: u64| {
        let buried = if with_buried { buried } else { 0 };
        let ticked = own.checked_add(buried)?;
        ticked.checked_mul(1_000_000)?.checked_div(ticks)
    };
    Some((micros(user, buried_user)?, micros(system, buried_system)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_sys::PageRun;

    fn run(start: u64, end: u64, states: &[PageState]) -> PageRun {
        PageRun {
            range: Range::new(start, end).unwrap(),
            state: states.iter().copied().reduce(PageState::with).unwrap(),
        }
    }

    fn map(runs: Vec<PageRun>) -> PageMap {
        PageMap {
            runs,
            huge_known: true,
            exclusive_known: false,
        }
    }

    #[test]
    fn what_several_have_counts_once_and_as_the_best_of_them_has_it() {
        let (present, huge) = (PageState::PRESENT, PageState::HUGE);
        let first = map(vec![run(0, 10, &[present]), run(20, 30, &[present, huge])]);
        let second = map(vec![run(5, 15, &[present]), run(20, 25, &[present])]);
        // One range is swapped out, and one is zero pages that were never written.
        let third = map(vec![
            run(40, 50, &[PageState::SWAPPED]),
            run(60, 70, &[present, PageState::ZERO]),
        ]);
        let seen = in_memory(&[first, second, third]);
        assert_eq!(seen, (Bytes(15), Bytes(10)));
        assert_eq!(in_memory(&[]), (Bytes(0), Bytes(0)));
    }

    #[test]
    fn a_tree_has_its_root() {
        let root = Root::live();
        let own = std::process::id();
        assert!(tree(&root, own).contains(&own));
    }

    #[test]
    fn the_four_times_are_found_behind_any_name() {
        let line = "12 (a ) b) S 1 12 12 0 -1 4194560 8 7 6 5 100 50 30 20 20 0 1 0 99 8192 77";
        assert_eq!(parse_usage(line, 100, false), Some((1_000_000, 500_000)));
        assert_eq!(parse_usage(line, 100, true), Some((1_300_000, 700_000)));
        for bad in [
            "",
            "12 (a",
            "12 (a) S 1 2",
            "12 (a) S 1 2 3 4 5 6 7 8 9 10 x 1 1 1",
        ] {
            assert_eq!(parse_usage(bad, 100, true), None, "{bad}");
        }
        assert_eq!(parse_usage(line, 0, true), None);
    }

    #[test]
    fn this_process_has_used_some() {
        let mut sum = 0u64;
        for n in 0..50_000_000u64 {
            sum = std::hint::black_box(sum ^ n);
        }
        let (user, system) = tree_usage(&Root::live(), std::process::id()).unwrap();
        assert!(user + system > 0);
    }
}
