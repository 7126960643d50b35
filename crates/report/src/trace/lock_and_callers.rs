//! One lock: its waiters, and its events, which show threads taking turns. Also the callers of a function.

use std::collections::BTreeMap;

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{Lock, LockAction, LockEvent};
use hugeleaf_trace::tables::not_measured::TraceDataKind;
use hugeleaf_trace::tables::profile::Callers;
use hugeleaf_trace::tables::{locks, profile};

use super::format::{count, float, missing_or, nanos, part_of, table};
use super::sections::profile_and_locks::{lock_callers, lock_threads, turns_line};
use crate::document::{Cell, ColumnShrink, Document, Section, Table};
use crate::terminal_escape::cut;

/// Initial number of locks of a function, and of events, threads and callers of each.
const LOCKS: usize = 3;
const EVENTS: usize = 40;
const ROWS: usize = 10;
/// Maximum number of threads with a column of their own in the list of events.
const LANES: usize = 5;
/// Width of a thread's name in columns.
const NAME: usize = 15;

/// Returns locks with their threads, callers and events; `all` lifts the limits.
pub fn lock_page(trace: &Trace, found: &[&Lock], all: bool) -> Document {
    let shown = if all { found.len() } else { LOCKS };
    let mut page = Document::default();
    for lock in found.iter().take(shown) {
        let mut blocks: Vec<_> = about(trace, lock).into_iter().map(Into::into).collect();
        let tables = [
            lock_threads(trace, Some(lock)),
            lock_callers(trace, Some(lock)),
        ];
        blocks.extend(tables.map(|table| table.limited_to(ROWS, "--all").into()));
        blocks.push(events(trace, lock, all).into());
        page.section("", blocks);
    }
    if found.len() > shown {
        let more = found.len() - shown;
        let more = format!("… and {more} more locks of that function: --all");
        page.section("", vec![more.into()]);
    }
    page
}

fn about(trace: &Trace, lock: &Lock) -> Vec<String> {
    let totals = lock.totals;
    // A lock without a name is identified by its address.
    let at = match lock.name {
        Some(_) => format!(" at {:#x}", lock.address),
        None => String::new(),
    };
    let taken = locks::function(trace, lock).map(|f| format!(", taken by {f}"));
    let mut lines = vec![
        format!(
            "{}{at}, {}{}",
            locks::label(lock),
            lock.kind.name(),
            taken.unwrap_or_default()
        ),
        format!(
            "{} waits, {} in all, {} on average, {} the longest, {} of all waiting for locks",
            count(totals.contentions),
            nanos(totals.waited_nanos),
            Cell::from(totals.mean_nanos().map(nanos)),
            nanos(totals.longest_nanos),
            part_of(totals.waited_nanos, locks::table(trace).all.waited_nanos)
        ),
    ];
    if lock.failed > 0 {
        lines.push(format!(
            "{} waits ended without the lock",
            count(lock.failed)
        ));
    }
    lines
}

/// Returns a line for each event, with a column for each of the busiest threads, so turns form a zigzag.
fn events(trace: &Trace, lock: &Lock, all: bool) -> Section {
    let most = if all { usize::MAX } else { EVENTS };
    // Show the newest events.
    let hidden = lock.events.len().saturating_sub(most);
    let shown = &lock.events[hidden..];
    let lanes = lanes(shown);
    let has_others = shown.iter().any(|event| !lanes.contains(&thread(event)));
    let rows = Table::from_items(shown)
        .right("AT", |event| {
            Cell::decimal(Some(float(event.at_nanos) / 1e9), 6)
        })
        .columns_for(&lanes, |rows, lane| {
            rows.left(lane.1.to_string(), |event| match thread(event) == *lane {
                true => mark(event),
                false => "",
            })
        })
        .when(has_others, |rows| {
            rows.left("OTHERS", |event| match lanes.contains(&thread(event)) {
                true => String::new(),
                false => format!("{} {}", event.tid, mark(event)),
            })
        })
        .left("NAME", |event| {
            cut(profile::thread_name(trace, event.process, event.tid), NAME)
        })
        .right("CPU", |event| event.cpu)
        .left("FUNCTION OR WAIT", |event| {
            match (event.what, event.function) {
                (LockAction::Waits, Some(at)) => trace.symbols[at as usize].name.as_str().into(),
                (LockAction::Waits, None) => Cell::empty(),
                (LockAction::Got | LockAction::GaveUp, _) => nanos(event.waited_nanos),
            }
        });
    let older = count(lock.events_left_out);
    let (is_empty, left_out) = (lock.events.is_empty(), lock.events_left_out);
    let none = match left_out {
        0 => missing_or(trace, TraceDataKind::Locks, "none were kept"),
        _ => format!("{older} events, none of them in the trace"),
    };
    let mut notes = Vec::from_iter((!is_empty).then(|| turns_line(lock)));
    if hidden > 0 {
        notes.push(format!("… and {} before these: --all", Cell::from(hidden)));
    }
    if left_out > 0 && !is_empty {
        notes.push(format!("{older} older events are not in the trace."));
    }
    table("Events", rows, none).noted(notes)
}

const fn thread(event: &LockEvent) -> (u32, u32) {
    (event.process, event.tid)
}

const fn mark(event: &LockEvent) -> &'static str {
    match event.what {
        LockAction::Waits => "waits",
        LockAction::Got => "GOT",
        LockAction::GaveUp => "gave up",
    }
}

/// Returns the threads with most events, in order of first occurrence.
fn lanes(events: &[LockEvent]) -> Vec<(u32, u32)> {
    let mut counts: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for event in events {
        *counts.entry(thread(event)).or_default() += 1;
    }
    let mut busiest: Vec<((u32, u32), usize)> = counts.into_iter().collect();
    busiest.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    busiest.truncate(LANES);
    busiest.sort_by_key(|(who, _)| events.iter().position(|event| thread(event) == *who));
    busiest.into_iter().map(|(who, _)| who).collect()
}

pub fn callers_page(trace: &Trace, function: &str, callers: &Callers) -> Document {
    let busy = profile::counted(trace).busy;
    let all = callers.samples;
    let mut page = Document::new(
        "",
        format!(
            "{function}: {} samples with its callees, {} of all busy samples",
            count(all),
            part_of(all, busy)
        ),
    );
    let direct = Table::from_items(&callers.direct)
        .right("SHARE", |row| part_of(row.samples, all))
        .right("SAMPLES", |row| count(row.samples))
        .left("FUNCTION", |row| match row.name.as_str() {
            "" => "(the stack ends here)".to_owned(),
            name => name.to_owned(),
        })
        .narrow(ColumnShrink::Truncate)
        .left("MODULE", |row| row.module.clone());
    let paths = Table::from_items(&callers.paths)
        .right("SHARE", |path| part_of(path.samples, all))
        .right("SAMPLES", |path| count(path.samples))
        .left("CALL PATH", |path| path.names.join(" < "));
    for section in [
        table("Called by", direct, "nothing"),
        table("Call paths", paths, "nothing"),
    ] {
        page.add(section.limited_to(ROWS, "--all"));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing;
    use super::*;
    use crate::document::TextOptions;

    #[test]
    fn turns_are_seen() {
        let trace = testing::pinning();
        let text = lock_page(&trace, &[&trace.locks[0]], false).text(TextOptions::plain(120));
        for part in ["GOT", "2 threads take turns", "mlock_pte_range", "20.0 µs"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let bare = Lock::default();
        let text = lock_page(&Trace::default(), &[&bare], true).text(TextOptions::plain(80));
        assert!(text.contains("this trace has no record of it"), "{text}");
    }

    #[test]
    fn callers_are_shown_with_their_shares() {
        let trace = testing::pinning();
        let callers = profile::callers(
            &trace,
            hugeleaf_trace::tables::TableScope::Host,
            "mlock_pte_range",
        )
        .unwrap();
        let text = callers_page(&trace, "mlock_pte_range", &callers).text(TextOptions::plain(120));
        assert!(
            text.contains("100.0 %") && text.contains("walk_page_range"),
            "{text}"
        );
    }
}
