//! Memory: faults, page sizes, segments, and what the memory management did.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{Held, Sample};
use hugeleaf_trace::tables::memory::{SizeRow, Whose, newest, segments as rows_of, sizes};
use hugeleaf_trace::tables::{intervals, share};
use hugeleaf_units::Bytes;
use std::collections::BTreeMap;

use super::super::words::{bytes, count, nanos, page, part, rate, who};
use super::{Collection, Part, missing_or, not_measured};
use crate::table::Align::{Left, Right};

pub(super) fn faults(trace: &Trace, most: usize) -> Vec<Part> {
    let sizes = intervals::faults_by_size(trace);
    let all: u64 = sizes.iter().map(|s| s.count).sum();
    let counted = not_measured(trace, Collection::Vmstat).is_none();
    let heads = [
        ("PAGES OF", Left),
        ("FAULTS", Right),
        ("A SECOND", Right),
        ("SHARE", Right),
    ];
    let by_size = Part::new("Page faults by size", &heads)
        .or_empty(missing_or(trace, Collection::Vmstat, "no page faults"))
        .fill(sizes.iter().filter(|_| counted), usize::MAX, |size| {
            vec![
                Bytes(size.page_bytes).to_string(),
                count(size.count),
                rate(size.count, trace.seconds),
                part(share(size.count, all)),
            ]
        })
        .note("Faults on hugetlb pages are counted nowhere by the kernel, and stand under the base page.");
    let sampled: u64 = trace.faults.iter().map(|f| f.count).sum();
    let group = |name: &dyn Fn(&Sample) -> String| {
        let mut rows: BTreeMap<String, u64> = BTreeMap::new();
        for fault in &trace.faults {
            *rows.entry(name(fault)).or_default() += fault.count;
        }
        let mut rows: Vec<(String, u64)> = rows.into_iter().collect();
        rows.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        rows
    };
    let table = |title: &str, head: &'static str, rows: Vec<(String, u64)>| {
        Part::new(title, &[("FAULTS", Right), ("SHARE", Right), (head, Left)])
            .or_empty(missing_or(
                trace,
                Collection::FaultSamples,
                "none were sampled",
            ))
            .fill(rows, most, |(name, n)| {
                vec![count(n), part(share(n, sampled)), name]
            })
    };
    let process = |fault: &Sample| trace.processes[fault.process as usize].name.clone();
    // The first function of the program: where it touched the page.
    let function = |fault: &Sample| {
        let frames = &trace.stacks[fault.stack as usize].frames;
        let symbols: Vec<_> = frames.iter().map(|f| &trace.symbols[*f as usize]).collect();
        let own = symbols.iter().find(|s| !s.kernel).or(symbols.first());
        own.map_or("?".to_owned(), |s| s.name.clone())
    };
    vec![
        by_size,
        table("Page faults by process", "PROCESS", group(&process)),
        table("Page faults by function", "FUNCTION", group(&function)),
    ]
}

fn size_part(title: String, rows: Vec<SizeRow>) -> Part {
    let sum = |of: fn(&SizeRow) -> Option<u64>| -> u64 { rows.iter().filter_map(of).sum() };
    let (before, after) = (sum(|r| r.before), sum(|r| r.after));
    let heads = [
        ("PAGES OF", Left),
        ("BEFORE", Right),
        ("SHARE", Right),
        ("AFTER", Right),
        ("SHARE", Right),
    ];
    Part::new(title, &heads)
        .or_empty("not read")
        .fill(rows, usize::MAX, |row| {
            vec![
                page(row.page_bytes, &row.kind),
                bytes(row.before),
                part(row.before.and_then(|b| share(b, before))),
                bytes(row.after),
                part(row.after.and_then(|b| share(b, after))),
            ]
        })
}

pub(super) fn pages(trace: &Trace) -> Vec<Part> {
    let mut parts = Vec::new();
    if trace.target.is_some() {
        let title = format!("Memory of {} by page size", who(trace));
        let target = size_part(title, sizes(trace, Whose::Target));
        parts.push(target.note("Memory that its processes share counts once a process."));
    }
    let mut host = size_part(
        "Memory of the host by page size".to_owned(),
        sizes(trace, Whose::Host),
    );
    let tables = |state: &Option<hugeleaf_trace::model::MemoryState>| {
        state.as_ref().and_then(|m| m.page_tables_bytes)
    };
    let (before, after) = (tables(&trace.memory_before), tables(&trace.memory_after));
    if before.or(after).is_some() {
        host = host.note(format!(
            "Page tables: {} before, {} after.",
            bytes(before),
            bytes(after)
        ));
    }
    parts.push(host);
    parts
}

fn on_sizes(held: &[Held]) -> String {
    let some = held.iter().filter(|h| h.bytes > 0);
    let words: Vec<String> = some
        .map(|h| format!("{} on {}", Bytes(h.bytes), page(h.page_bytes, &h.kind)))
        .collect();
    words.join(", ")
}

pub(super) fn segments(trace: &Trace, most: usize) -> Part {
    let heads = [
        ("PROCESS", Right),
        ("SEGMENT", Left),
        ("RESIDENT", Right),
        ("LOCKED", Right),
        ("ASKED", Left),
        ("GOT", Left),
    ];
    let rows = newest(trace).map_or(Vec::new(), rows_of);
    let resident = rows
        .into_iter()
        .filter(|row| row.segment.resident_bytes > 0);
    Part::new("Segments by page size", &heads)
        .or_empty(match (newest(trace), &trace.target) {
            (None, _) => missing_or(trace, Collection::Memory, "not read"),
            (Some(_), None) => "not read: segments are read of a target's processes".to_owned(),
            (Some(_), Some(_)) => "no segment of the target could be read".to_owned(),
        })
        .fill(resident, most, |row| {
            let segment = row.segment;
            let name = match segment.name.is_empty() {
                true => segment.role.clone(),
                false => format!("{} {}", segment.role, super::cost::module(&segment.name)),
            };
            vec![
                row.pid.to_string(),
                name,
                Bytes(segment.resident_bytes).to_string(),
                Bytes(segment.locked_bytes).to_string(),
                segment.asked.clone(),
                on_sizes(&segment.by_page_size),
            ]
        })
}

/// What happened, how it ended, and the process that made it happen.
type EventKey<'a> = (&'a str, &'a str, String);
/// How often, how many base pages, how many nanoseconds.
type EventSums = (u64, Option<u64>, Option<u64>);

pub(super) fn events(trace: &Trace, most: usize) -> Vec<Part> {
    let heads = [("COUNTER", Left), ("IN ALL", Right), ("A SECOND", Right)];
    let counters = trace.memory_counters.iter().filter(|c| c.total > 0);
    let counters = Part::new("What the memory management did", &heads)
        .or_empty(missing_or(
            trace,
            Collection::Vmstat,
            "none of its counters moved",
        ))
        .fill(counters, most, |counter| {
            vec![
                counter.name.clone(),
                count(counter.total),
                rate(counter.total, trace.seconds),
            ]
        });
    let heads = [
        ("EVENT", Left),
        ("DETAIL", Left),
        ("TIMES", Right),
        ("PAGES", Right),
        ("TOOK", Right),
        ("BY", Left),
    ];
    let mut rows: BTreeMap<EventKey<'_>, EventSums> = BTreeMap::new();
    for event in &trace.memory_events {
        let process = event
            .process
            .map(|p| trace.processes[p as usize].name.clone());
        let key = (
            event.name.as_str(),
            event.detail.as_str(),
            process.unwrap_or_default(),
        );
        let row = rows.entry(key).or_default();
        let join = |sum: Option<u64>, more: Option<u64>| match more {
            Some(more) => Some(sum.unwrap_or(0) + more),
            None => sum,
        };
        *row = (
            row.0 + event.count,
            join(row.1, event.pages),
            join(row.2, event.nanos),
        );
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, (times, ..))| std::cmp::Reverse(*times));
    let events = Part::new("Events of the memory management", &heads)
        .or_empty("none were seen")
        .fill(rows, most, |((name, detail, by), (times, pages, took))| {
            vec![
                name.to_owned(),
                detail.to_owned(),
                count(times),
                pages.map_or("-".to_owned(), count),
                took.map_or("-".to_owned(), nanos),
                by,
            ]
        });
    let sources = [Collection::MemoryEvents, Collection::TlbFlushes];
    vec![counters, events.without(trace, &sources)]
}
