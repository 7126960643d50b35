//! One lock: who waited, and its events, which show threads taking turns; and who called a function.

use std::collections::BTreeMap;

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{Lock, LockAction, LockEvent};
use hugeleaf_trace::tables::measured::Collection;
use hugeleaf_trace::tables::profile::Callers;
use hugeleaf_trace::tables::{locks, profile, share};

use super::parts::{Part, lock_callers, lock_threads, missing_or};
use super::words::{count, nanos, part};
use crate::table::Align::{Left, Right};
use crate::table::{Look, clean, cut};

/// Events, threads and callers that a screen takes.
const EVENTS: usize = 40;
const ROWS: usize = 10;
/// Threads that have a column of their own in the list of events.
const LANES: usize = 6;
/// Width of a thread's column.
const LANE: usize = 11;

/// A lock with its threads, callers and events; all of them where asked for.
pub fn lock_text(trace: &Trace, lock: &Lock, all: bool, look: Look) -> String {
    let most = |n| if all { usize::MAX } else { n };
    let (rows, events) = (most(ROWS), most(EVENTS));
    let hint = "--all";
    let totals = lock.totals;
    // A lock without a name is known by its address.
    let at = match lock.name {
        Some(_) => format!(" at {:#x}", lock.address),
        None => String::new(),
    };
    let mut text = look.wrap(
        "",
        &format!(
            "{}{at}, {}{}",
            locks::label(lock),
            lock.kind.name(),
            locks::function(trace, lock)
                .map(|f| format!(", taken by {f}"))
                .unwrap_or_default()
        ),
    );
    text += &look.wrap(
        "",
        &format!(
            "{} waits, {} in all, {} on average, {} the longest, {} of all waiting for locks",
            count(totals.contentions),
            nanos(totals.waited_nanos),
            totals.mean_nanos().map_or("-".to_owned(), nanos),
            nanos(totals.longest_nanos),
            part(share(
                totals.waited_nanos,
                locks::table(trace).all.waited_nanos
            ))
        ),
    );
    if lock.failed > 0 {
        text += &look.wrap(
            "",
            &format!("{} waits ended without the lock", count(lock.failed)),
        );
    }
    for part in [
        lock_threads(trace, Some(lock), rows),
        lock_callers(trace, Some(lock), rows),
    ] {
        text += "\n";
        text += &part.text(look, hint);
    }
    text += "\n";
    text + &event_list(trace, lock, events, look)
}

/// Events line by line, a column for each of the threads that have most of them: turns are seen as a zigzag.
fn event_list(trace: &Trace, lock: &Lock, most: usize, look: Look) -> String {
    let heading = look.paint("EVENTS", crate::table::Paint::Bold);
    if lock.events.is_empty() {
        let why = match lock.events_left_out {
            0 => missing_or(trace, Collection::Locks, "none were kept"),
            n => format!(
                "{} events, of which the trace keeps none for this lock",
                count(n)
            ),
        };
        return format!("{heading}\n{}", look.wrap("  ", &why));
    }
    // The newest: what a trace keeps is their end.
    let shown = &lock.events[lock.events.len().saturating_sub(most)..];
    let lanes = lanes(shown);
    let mut text = format!("{heading}\n  {:>12}", "AT");
    for (_, tid) in &lanes {
        text += &format!("  {tid:<LANE$}");
    }
    text.truncate(text.trim_end().len());
    text += "\n";
    for event in shown {
        text += &event_line(trace, event, &lanes);
    }
    text += &look.wrap("  ", &turns_line(lock));
    let hidden = lock.events.len() - shown.len();
    if hidden > 0 {
        text += &format!("  … and {} before these: --all\n", count(hidden as u64));
    }
    if lock.events_left_out > 0 {
        text += &look.wrap(
            "  ",
            &format!(
                "{} older events are not in the trace.",
                count(lock.events_left_out)
            ),
        );
    }
    text
}

/// The threads with most events, in the order they first appear.
fn lanes(events: &[LockEvent]) -> Vec<(u32, u32)> {
    let mut counts: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for event in events {
        *counts.entry((event.process, event.tid)).or_default() += 1;
    }
    let mut busiest: Vec<((u32, u32), usize)> = counts.into_iter().collect();
    busiest.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    busiest.truncate(LANES);
    let chosen: Vec<(u32, u32)> = busiest.into_iter().map(|(who, _)| who).collect();
    let mut ordered = Vec::new();
    for event in events {
        let who = (event.process, event.tid);
        if chosen.contains(&who) && !ordered.contains(&who) {
            ordered.push(who);
        }
    }
    ordered
}

fn event_line(trace: &Trace, event: &LockEvent, lanes: &[(u32, u32)]) -> String {
    let mark = match event.what {
        LockAction::Waits => "waits",
        LockAction::Got => "GOT IT",
        LockAction::GaveUp => "gave up",
    };
    let who = (event.process, event.tid);
    let mut line = format!("  {:>12.6}", super::words::float(event.at_nanos) / 1e9);
    for lane in lanes {
        let cell = if *lane == who { mark } else { "" };
        line += &format!("  {cell:<LANE$}");
    }
    if !lanes.contains(&who) {
        line += &format!("  {} {mark}", event.tid);
    }
    let name = profile::thread_name(trace, event.process, event.tid);
    line += &format!("  {:<15} cpu {}", cut(&clean(name), 15), event.cpu);
    line += &match event.what {
        LockAction::Waits => event
            .function
            .map(|f| format!("  in {}", clean(&trace.symbols[f as usize].name)))
            .unwrap_or_default(),
        LockAction::Got | LockAction::GaveUp => format!("  after {}", nanos(event.waited_nanos)),
    };
    line.truncate(line.trim_end().len());
    line + "\n"
}

/// What the list shows, in a sentence.
pub(super) fn turns_line(lock: &Lock) -> String {
    let turns = locks::turns(lock);
    let changes = share(turns.changed, turns.got.saturating_sub(1));
    match (turns.threads, changes) {
        (0 | 1, _) | (_, None) => "Too few waits ended here to see turns.".to_owned(),
        (threads, Some(changes)) if changes >= 0.5 => format!(
            "{threads} threads take turns: {} of {} times the lock went to another thread than before.",
            count(turns.changed),
            count(turns.got.saturating_sub(1))
        ),
        (threads, Some(_)) => format!(
            "{threads} threads, and mostly the same one gets it again: {} of {} times it went to another.",
            count(turns.changed),
            count(turns.got.saturating_sub(1))
        ),
    }
}

/// Who called a function.
pub fn callers_text(
    trace: &Trace,
    function: &str,
    callers: &Callers,
    all: bool,
    look: Look,
) -> String {
    let most = if all { usize::MAX } else { ROWS };
    let busy = profile::counted(trace).busy;
    let mut text = look.wrap(
        "",
        &format!(
            "{function}: {} samples in it and in what it calls, {} of all busy ones",
            count(callers.samples),
            part(share(callers.samples, busy))
        ),
    );
    for part in [direct(callers, most), paths(callers, most)] {
        text += "\n";
        text += &part.text(look, "--all");
    }
    text
}

fn direct(callers: &Callers, most: usize) -> Part {
    let heads = [
        ("SHARE", Right),
        ("SAMPLES", Right),
        ("FUNCTION", Left),
        ("MODULE", Left),
    ];
    let mut table = Part::plain("Called by", &heads);
    table.more = callers.direct.len().saturating_sub(most);
    table
        .rows
        .extend(callers.direct.iter().take(most).map(|row| {
            let name = match row.name.is_empty() {
                true => "(the stack ends here)".to_owned(),
                false => row.name.clone(),
            };
            vec![
                part(share(row.samples, callers.samples)),
                count(row.samples),
                name,
                row.module.clone(),
            ]
        }));
    table
}

fn paths(callers: &Callers, most: usize) -> Part {
    let heads = [
        ("SHARE", Right),
        ("SAMPLES", Right),
        ("FROM THE FUNCTION OUTWARD", Left),
    ];
    let mut table = Part::plain("Ways there", &heads);
    table.more = callers.paths.len().saturating_sub(most);
    table
        .rows
        .extend(callers.paths.iter().take(most).map(|path| {
            vec![
                part(share(path.samples, callers.samples)),
                count(path.samples),
                path.names.join(" < "),
            ]
        }));
    table
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn turns_are_seen() {
        let trace = testing::pinning();
        let text = lock_text(&trace, &trace.locks[0], false, Look::plain(120));
        for part in [
            "GOT IT",
            "2 threads take turns",
            "mlock_pte_range",
            "after 20.0 µs",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let bare = Lock::default();
        let text = lock_text(&Trace::default(), &bare, true, Look::plain(80));
        assert!(text.contains("this trace has no record of it"), "{text}");
    }

    #[test]
    fn callers_are_shown_with_their_shares() {
        let trace = testing::pinning();
        let callers =
            profile::callers(&trace, hugeleaf_trace::tables::Of::Host, "mlock_pte_range").unwrap();
        let text = callers_text(&trace, "mlock_pte_range", &callers, false, Look::plain(120));
        assert!(
            text.contains("100.0 %") && text.contains("walk_page_range"),
            "{text}"
        );
    }
}
