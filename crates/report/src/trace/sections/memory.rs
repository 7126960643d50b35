//! Memory: faults, page sizes, segments, and events of the memory management.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{MemoryState, PageSizeUsage, StackSample};
use hugeleaf_trace::tables::memory::{PageSizeRow, newest, segments as rows_of, sizes};
use hugeleaf_trace::tables::not_measured::{TraceDataKind, not_measured};
use hugeleaf_trace::tables::{TableScope, interval_totals};
use hugeleaf_units::Bytes;

use super::super::charts;
use super::super::format::{
    bytes, count, drawn_table, missing_or, missing_sources, module, nanos, page, part_of, rate,
    table, who,
};
use crate::document::{ColumnShrink, ContentBlock, Section, Table};

pub(super) fn faults(trace: &Trace) -> Vec<Section> {
    let sizes = match not_measured(trace, TraceDataKind::Vmstat) {
        Some(_) => Vec::new(),
        None => interval_totals::faults_by_size(trace),
    };
    let all: u64 = sizes.iter().map(|size| size.count).sum();
    let rows = Table::from_items(sizes)
        .left("PAGES OF", |size| Bytes(size.page_bytes))
        .right("FAULTS", |size| count(size.count))
        .right("A SECOND", |size| rate(size.count, trace.seconds))
        .right("SHARE", |size| part_of(size.count, all));
    let note = "The kernel does not count hugetlb faults separately; they are under the base page.";
    let none = missing_or(trace, TraceDataKind::Vmstat, "no page faults");
    let title = "Page faults by size";
    let by_size = table(title, rows, none).noted([note.to_owned()]);
    let process = |fault: &StackSample| trace.processes[fault.process as usize].name.clone();
    // The first function of the process itself, which touched the page.
    let function = |fault: &StackSample| {
        let frames = &trace.stacks[fault.stack as usize].frames;
        let symbols: Vec<_> = frames.iter().map(|f| &trace.symbols[*f as usize]).collect();
        let own = symbols.iter().find(|s| !s.kernel).or(symbols.first());
        own.map_or("?".to_owned(), |s| s.name.clone())
    };
    vec![
        by_size,
        faults_by(trace, "process", process),
        faults_by(trace, "function", function),
    ]
}

fn faults_by(trace: &Trace, what: &str, name: impl Fn(&StackSample) -> String) -> Section {
    let mut rows: BTreeMap<String, u64> = BTreeMap::new();
    for fault in &trace.faults {
        *rows.entry(name(fault)).or_default() += fault.count;
    }
    let all: u64 = rows.values().sum();
    let mut rows: Vec<(String, u64)> = rows.into_iter().collect();
    rows.sort_by_key(|(_, n)| Reverse(*n));
    let rows = Table::from_items(rows)
        .right("FAULTS", |(_, n)| count(*n))
        .right("SHARE", |(_, n)| part_of(*n, all))
        .left(what.to_uppercase(), |(name, _)| name.clone());
    let none = missing_or(trace, TraceDataKind::FaultSamples, "none were sampled");
    table(format!("Page faults by {what}"), rows, none)
}

fn by_size(title: String, drawn: Vec<ContentBlock>, rows: Vec<PageSizeRow>) -> Section {
    let sum = |of: fn(&PageSizeRow) -> Option<u64>| -> u64 { rows.iter().filter_map(of).sum() };
    let (before, after) = (sum(|r| r.before), sum(|r| r.after));
    let rows = Table::from_items(rows)
        .left("PAGES OF", |row| page(row.page_bytes, &row.kind))
        .right("BEFORE", |row| bytes(row.before))
        .right("SHARE", |row| row.before.map(|n| part_of(n, before)))
        .right("AFTER", |row| bytes(row.after))
        .right("SHARE", |row| row.after.map(|n| part_of(n, after)));
    drawn_table(title, drawn, rows, "not read")
}

pub(crate) fn pages(trace: &Trace) -> Vec<Section> {
    let mut drawn = vec![charts::own_sizes(trace).into()];
    let mut sections = Vec::new();
    if trace.target.is_some() {
        let title = format!("Memory of {} by page size", who(trace));
        let drawn = std::mem::take(&mut drawn);
        let note =
            "Memory that several of its processes share is counted in each of them.".to_owned();
        sections.push(by_size(title, drawn, sizes(trace, TableScope::Target)).noted([note]));
    }
    let tables = |state: &Option<MemoryState>| state.as_ref().and_then(|m| m.page_tables_bytes);
    let (before, after) = (tables(&trace.memory_before), tables(&trace.memory_after));
    let note = before.or(after).map(|_| {
        let (before, after) = (bytes(before), bytes(after));
        format!("Page tables: {before} before, {after} after.")
    });
    let title = "Memory of the host by page size".to_owned();
    sections.push(by_size(title, drawn, sizes(trace, TableScope::Host)).noted(note));
    sections
}

fn on_sizes(held: &[PageSizeUsage]) -> String {
    let some = held.iter().filter(|h| h.bytes > 0);
    let words: Vec<String> = some
        .map(|h| format!("{} on {}", Bytes(h.bytes), page(h.page_bytes, &h.kind)))
        .collect();
    words.join(", ")
}

pub(super) fn segments(trace: &Trace) -> Section {
    let rows = newest(trace).map_or(Vec::new(), rows_of).into_iter();
    let rows = Table::from_items(rows.filter(|row| row.segment.resident_bytes > 0))
        .right("PROCESS", |row| row.pid)
        .left("SEGMENT", |row| match row.segment.name.as_str() {
            "" => row.segment.role.clone(),
            name => format!("{} {}", row.segment.role, module(name)),
        })
        .narrow(ColumnShrink::Truncate)
        .right("RESIDENT", |row| Bytes(row.segment.resident_bytes))
        .right("LOCKED", |row| Bytes(row.segment.locked_bytes))
        .left("ASKED", |row| row.segment.asked.clone())
        .left("GOT", |row| on_sizes(&row.segment.by_page_size));
    let none = match (newest(trace), &trace.target) {
        (None, _) => missing_or(trace, TraceDataKind::Memory, "not read"),
        (Some(_), None) => "not read: segments are recorded only for a target".to_owned(),
        (Some(_), Some(_)) => "no segment of the target could be read".to_owned(),
    };
    table("Segments by page size", rows, none)
}

/// Sums of events: number, base pages, nanoseconds.
#[derive(Default)]
struct EventTotals {
    times: u64,
    pages: Option<u64>,
    nanos: Option<u64>,
}

pub(super) fn events(trace: &Trace) -> Vec<Section> {
    let counters = trace.memory_counters.iter();
    let rows = Table::from_items(counters.filter(|counter| counter.total > 0))
        .left("COUNTER", |counter| counter.name.clone())
        .right("TOTAL", |counter| count(counter.total))
        .right("A SECOND", |counter| rate(counter.total, trace.seconds));
    let none = missing_or(trace, TraceDataKind::Vmstat, "no counter changed");
    let counters = table("Counters of the memory management", rows, none);

    // Key: event, result, and the process that caused it.
    let mut rows: BTreeMap<[&str; 3], EventTotals> = BTreeMap::new();
    for event in &trace.memory_events {
        let process = event.process.map(|p| &trace.processes[p as usize].name);
        let by = process.map_or("", String::as_str);
        let row = rows.entry([&event.name, &event.detail, by]).or_default();
        row.times += event.count;
        for (sum, more) in [(&mut row.pages, event.pages), (&mut row.nanos, event.nanos)] {
            *sum = more.map(|more| sum.unwrap_or(0) + more).or(*sum);
        }
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, sums)| Reverse(sums.times));
    let rows = Table::from_items(rows)
        .left("EVENT", |([name, ..], _)| (*name).to_owned())
        .left("DETAIL", |([_, detail, _], _)| (*detail).to_owned())
        .right("COUNT", |(_, sums)| count(sums.times))
        .right("PAGES", |(_, sums)| sums.pages.map(count))
        .right("TOOK", |(_, sums)| sums.nanos.map(nanos))
        .left("PROCESS", |([.., by], _)| (*by).to_owned());
    let sources = [TraceDataKind::MemoryEvents, TraceDataKind::TlbFlushes];
    let (none, notes) = missing_sources(trace, &sources, "none were seen");
    let events = table("Events of the memory management", rows, none).noted(notes);
    vec![counters, events]
}
