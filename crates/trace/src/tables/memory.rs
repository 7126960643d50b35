//! Memory by page size, before and after.

use serde::Serialize;

use super::TableScope;
use crate::model::{MemoryState, PageSizeUsage, SegmentMemory, Trace};

/// A page size with its memory. `None` if that state was not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PageSizeRow {
    pub page_bytes: u64,
    /// `base`, `thp` or `hugetlb`.
    pub kind: String,
    #[serde(rename = "before_bytes")]
    pub before: Option<u64>,
    #[serde(rename = "after_bytes")]
    pub after: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SegmentRow<'a> {
    pub pid: u32,
    #[serde(skip)]
    pub process: &'a str,
    #[serde(flatten)]
    pub segment: &'a SegmentMemory,
}

/// Returns memory by page size and kind, smallest first.
pub fn sizes(trace: &Trace, whose: TableScope) -> Vec<PageSizeRow> {
    let before = trace.memory_before.as_ref().and_then(|m| held(m, whose));
    let after = trace.memory_after.as_ref().and_then(|m| held(m, whose));
    let bytes = |held: &Option<Vec<PageSizeUsage>>, of: &PageSizeUsage| {
        let held = held.as_ref()?;
        let same = |h: &&PageSizeUsage| h.page_bytes == of.page_bytes && h.kind == of.kind;
        Some(held.iter().find(same).map_or(0, |h| h.bytes))
    };
    let mut rows: Vec<PageSizeRow> = Vec::new();
    for size in before.iter().chain(&after).flatten() {
        let row = PageSizeRow {
            page_bytes: size.page_bytes,
            kind: size.kind.clone(),
            before: bytes(&before, size),
            after: bytes(&after, size),
        };
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows.sort_by_key(|row| (row.page_bytes, rank(&row.kind)));
    rows
}

fn rank(kind: &str) -> usize {
    let kinds = ["base", "thp", "hugetlb"];
    let at = kinds.iter().position(|k| *k == kind);
    at.unwrap_or(kinds.len())
}

/// Returns memory by page size at one time; `None` if unknown. A shared page counts once for the host, but once per
/// process for the target. Without a target there is no memory of [`TableScope::Target`]: see [`super::memory_scope`].
pub fn held(state: &MemoryState, whose: TableScope) -> Option<Vec<PageSizeUsage>> {
    if whose == TableScope::Host {
        return (!state.by_page_size.is_empty()).then(|| state.by_page_size.clone());
    }
    let members = state.processes.iter().filter(|p| p.in_target);
    let tables = members.filter_map(|p| p.by_page_size.as_ref());
    let mut sum: Option<Vec<PageSizeUsage>> = None;
    for table in tables {
        let sum = sum.get_or_insert_default();
        table.iter().for_each(|held| add(sum, held));
    }
    sum
}

fn add(table: &mut Vec<PageSizeUsage>, more: &PageSizeUsage) {
    let same = |h: &&mut PageSizeUsage| h.page_bytes == more.page_bytes && h.kind == more.kind;
    match table.iter_mut().find(same) {
        Some(known) => known.bytes += more.bytes,
        None => table.push(more.clone()),
    }
}

pub fn total(table: &[PageSizeUsage]) -> u64 {
    table.iter().map(|h| h.bytes).sum()
}

/// Returns the share of memory on huge pages; `None` without memory.
pub fn coverage(table: &[PageSizeUsage]) -> Option<f64> {
    let large = table.iter().filter(|h| h.kind != "base");
    super::share(large.map(|h| h.bytes).sum(), total(table))
}

pub fn newest(trace: &Trace) -> Option<&MemoryState> {
    trace.memory_after.as_ref().or(trace.memory_before.as_ref())
}

/// Returns the target's segments at the end, the largest first.
pub fn segments(state: &MemoryState) -> Vec<SegmentRow<'_>> {
    let members = state.processes.iter().filter(|p| p.in_target);
    let rows = members.flat_map(|p| {
        p.segments.iter().map(|segment| SegmentRow {
            pid: p.pid,
            process: &p.name,
            segment,
        })
    });
    let mut rows: Vec<SegmentRow<'_>> = rows.collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.segment.resident_bytes));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ProcessMemory;

    fn on(page_bytes: u64, kind: &str, bytes: u64) -> PageSizeUsage {
        PageSizeUsage {
            page_bytes,
            kind: kind.to_owned(),
            bytes,
        }
    }

    fn state(tables: &[Option<Vec<PageSizeUsage>>]) -> MemoryState {
        let process = |table: &Option<Vec<PageSizeUsage>>| ProcessMemory {
            in_target: true,
            by_page_size: table.clone(),
            ..ProcessMemory::default()
        };
        MemoryState {
            processes: tables.iter().map(process).collect(),
            ..MemoryState::default()
        }
    }

    #[test]
    fn a_size_that_is_new_was_zero_and_a_state_that_was_not_read_is_unknown() {
        let base = on(1, "base", 10);
        let trace = Trace {
            memory_before: Some(state(&[Some(vec![base.clone()]), Some(vec![base])])),
            memory_after: Some(state(&[Some(vec![on(8, "hugetlb", 16), on(8, "thp", 8)])])),
            ..Trace::default()
        };
        let rows = sizes(&trace, TableScope::Target);
        let row = |i: usize| (rows[i].kind.as_str(), rows[i].before, rows[i].after);
        assert_eq!(row(0), ("base", Some(20), Some(0)));
        assert_eq!(row(1), ("thp", Some(0), Some(8)));
        assert_eq!((row(2), rows.len()), (("hugetlb", Some(0), Some(16)), 3));
        assert!(sizes(&trace, TableScope::Host).is_empty());
        let hidden = Trace {
            memory_after: Some(state(&[None])),
            memory_before: trace.memory_before.clone(),
            ..Trace::default()
        };
        assert_eq!(sizes(&hidden, TableScope::Target)[0].after, None);
    }

    #[test]
    fn coverage_is_of_what_is_there() {
        let table = [on(1, "base", 25), on(8, "thp", 75)];
        assert_eq!(coverage(&table), Some(0.75));
        assert_eq!(coverage(&[]), None);
    }
}
