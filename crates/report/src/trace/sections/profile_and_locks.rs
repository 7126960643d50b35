//! The CPU profile, locks, and calls that pin.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{Lock, LockTotals};
use hugeleaf_trace::tables::not_measured::TraceDataKind;
use hugeleaf_trace::tables::profile;
use hugeleaf_trace::tables::{TableScope, interval_totals, io_and_pins, locks, share};
use hugeleaf_units::Bytes;

use super::super::charts;
use super::super::format::{
    bytes, count, drawn_table, is_measured, missing_or, missing_sources, module, nanos, part,
    part_of, rate, side, table, who,
};
use crate::document::{Cell, ColumnShrink, ContentBlock, Section, Table, TableBuilder};

const WAY: usize = 5;

fn no_samples(trace: &Trace) -> String {
    missing_or(trace, TraceDataKind::CpuSamples, "no samples")
}

fn total(trace: &Trace, of: TableScope) -> u64 {
    profile::modes(trace, of).total()
}

/// Formats the number of samples; `None` without any.
fn of_busy(trace: &Trace) -> Option<String> {
    let counted = profile::counted(trace);
    let (busy, idle) = (count(counted.busy), count(counted.idle));
    let text =
        format!("Shares are of the {busy} samples on busy CPUs; {idle} samples found an idle CPU.");
    is_measured(trace, TraceDataKind::CpuSamples).then_some(text)
}

/// Returns kernel, user and other time by process, in the style of tprof.
pub(super) fn processes(trace: &Trace) -> Section {
    let all = total(trace, TableScope::Host);
    let rows = Table::from_items(profile::by_process(trace))
        .left("PROCESS", |row| row.name.clone())
        .right("NUMBER", |row| row.processes)
        .right("TOTAL", |row| part_of(row.modes.total(), all))
        .right("KERNEL", |row| part_of(row.modes.kernel, all))
        .right("USER", |row| part_of(row.modes.user, all))
        .right("OTHER", |row| part_of(row.modes.other, all))
        .right("SAMPLES", |row| count(row.modes.total()))
        .left("", |row| if row.in_target { "target" } else { "" });
    let drawn = vec![charts::processes(trace).into()];
    let title = "CPU profile by process";
    drawn_table(title, drawn, rows, no_samples(trace)).noted(of_busy(trace))
}

pub(super) fn threads(trace: &Trace) -> Section {
    let all = total(trace, TableScope::Host);
    let rows = Table::from_items(profile::by_thread(trace, TableScope::Host))
        .right("THREAD", |row| row.tid)
        .right("PROCESS", |row| row.pid)
        .right("TOTAL", |row| part_of(row.modes.total(), all))
        .right("KERNEL", |row| part_of(row.modes.kernel, all))
        .right("USER", |row| part_of(row.modes.user, all))
        .left("NAME", |row| row.name.clone());
    table("CPU profile by thread", rows, no_samples(trace))
}

fn by_function(trace: &Trace, of: TableScope) -> TableBuilder<profile::SymbolRow> {
    let all = total(trace, of);
    let rows = profile::by_symbol(trace, of).into_iter();
    Table::from_items(rows.filter(|row| row.samples > 0))
        .right("SELF", |row| part_of(row.samples, all))
        .right("WITH CALLEES", |row| part_of(row.with_callees, all))
        .left("MODE", |row| side(row.kernel))
        .left("FUNCTION", |row| row.name.clone())
        .narrow(ColumnShrink::Truncate)
        .left("MODULE", |row| module(&row.module).to_owned())
}

pub(super) fn functions(trace: &Trace) -> Section {
    let rows = by_function(trace, TableScope::Host);
    table("CPU profile by function", rows, no_samples(trace)).noted(of_busy(trace))
}

pub(super) fn target_functions(trace: &Trace) -> Section {
    let title = match &trace.target {
        Some(_) => format!("CPU profile of {} by function", who(trace)),
        None => "CPU profile by function".to_owned(),
    };
    let drawn: Vec<ContentBlock> = vec![
        charts::functions(trace, TableScope::Target).into(),
        charts::flames(trace).into(),
    ];
    let none = missing_or(trace, TraceDataKind::CpuSamples, "no samples of it");
    drawn_table(title, drawn, by_function(trace, TableScope::Target), none)
}

fn no_locks(trace: &Trace) -> String {
    missing_or(trace, TraceDataKind::Locks, "no thread waited for a lock")
}

fn waits<T>(table: TableBuilder<T>, totals: impl Fn(&T) -> LockTotals) -> TableBuilder<T> {
    table
        .right("WAITS", |row| count(totals(row).contentions))
        .right("WAITED", |row| nanos(totals(row).waited_nanos))
        .right("MEAN", |row| totals(row).mean_nanos().map(nanos))
        .right("LONGEST", |row| nanos(totals(row).longest_nanos))
}

/// Returns locks in the style of splat; Linux reports waits, not acquisitions.
pub(super) fn locks(trace: &Trace) -> Section {
    let all = locks::table(trace);
    let rows = Table::from_items(&all.rows)
        .left("LOCK", |row| locks::label(row.lock))
        .left("KIND", |row| row.lock.kind.name());
    let rows = waits(rows, |row| row.lock.totals)
        .right("SHARE", |row| part(row.share))
        .left("TAKEN BY", |row| row.function.unwrap_or("?").to_owned());
    let mut notes = Vec::new();
    if all.others_count > 0 {
        notes.push(format!(
            "{} more locks are not listed: {} waits, {} in all.",
            count(all.others_count),
            count(all.others.contentions),
            nanos(all.others.waited_nanos)
        ));
    }
    if all.all.contentions > 0 {
        notes.push(format!(
            "{} waits, {} in all threads together. Locks taken without a wait are not recorded.",
            count(all.all.contentions),
            nanos(all.all.waited_nanos)
        ));
    }
    let first = all.rows.first().map(|row| row.lock);
    if let Some(lock) = first.filter(|lock| !lock.events.is_empty()) {
        notes.push(format!("First lock: {}", turns_line(lock)));
    }
    let drawn = vec![charts::lock_waits(trace).into()];
    drawn_table("Lock contention", drawn, rows, no_locks(trace)).noted(notes)
}

pub(crate) fn turns_line(lock: &Lock) -> String {
    let turns = locks::turns(lock);
    let changes = share(turns.changed, turns.got.saturating_sub(1));
    match (turns.threads, changes) {
        (0 | 1, _) | (_, None) => "Too few completed waits to detect turns.".to_owned(),
        (threads, Some(changes)) if changes >= 0.5 => format!(
            "{threads} threads take turns: {} of {} times the lock went to a different thread.",
            count(turns.changed),
            count(turns.got.saturating_sub(1))
        ),
        (threads, Some(_)) => format!(
            "{threads} threads; mostly the same one gets it: {} of {} times it went to another.",
            count(turns.changed),
            count(turns.got.saturating_sub(1))
        ),
    }
}

pub(crate) fn lock_threads(trace: &Trace, only: Option<&Lock>) -> Section {
    let rows = Table::from_items(locks::by_thread(trace, only))
        .right("THREAD", |row| row.tid)
        .right("PROCESS", |row| row.pid);
    let rows = waits(rows, |row| row.totals)
        .right("SHARE", |row| part(row.share))
        .left("NAME", |row| row.name.clone());
    table("Lock contention by thread", rows, no_locks(trace))
}

pub(crate) fn lock_callers(trace: &Trace, only: Option<&Lock>) -> Section {
    let rows = Table::from_items(locks::by_caller(trace, only, WAY))
        .right("WAITS", |row| count(row.totals.contentions))
        .right("WAITED", |row| nanos(row.totals.waited_nanos))
        .right("MEAN", |row| row.totals.mean_nanos().map(nanos))
        .right("SHARE", |row| part(row.share))
        .left("KIND", |row| row.kind.name())
        .left("FUNCTION AND CALLERS", |row| match row.path.is_empty() {
            true => row.function.clone(),
            false => row.path.join(" < "),
        });
    let mut chosen = locks::chosen(trace, only).into_iter();
    let estimated = chosen.any(|lock| lock.callers_estimated).then(|| {
        "Callers are estimated from some of the waits; all waits were counted and timed.".to_owned()
    });
    table("Lock contention by caller", rows, no_locks(trace)).noted(estimated)
}

pub(super) fn pins(trace: &Trace) -> Section {
    let all = io_and_pins::pins(trace);
    let (any, estimated) = (!all.is_empty(), all.iter().any(|row| row.estimated));
    let large = trace.host.pmd_page_bytes.unwrap_or(0);
    let each = |row: &io_and_pins::PinRow| row.bytes.and_then(|bytes| bytes.checked_div(row.calls));
    // Scaled-up values are inexact, so round to the nearest whole number.
    let pages = |row: &io_and_pins::PinRow, size: u64| -> Cell {
        let each = each(row).filter(|_| size > 0);
        each.map(|each| count(((each + size / 2) / size).max(1)))
            .into()
    };
    let rows = Table::from_items(all)
        .left("CALL", |row| row.call.clone())
        .right("CALLS", |row| count(row.calls))
        .right("A SECOND", |row| rate(row.calls, trace.seconds))
        .right("BYTES", |row| bytes(row.bytes))
        .right("EACH", |row| bytes(each(row)))
        .right("BASE PAGES EACH", |row| {
            pages(row, trace.host.base_page_bytes)
        })
        .right("HUGE PAGES EACH", |row| pages(row, large))
        .right("FAILED", |row| row.failed.map(count))
        .right("THREADS", |row| row.threads);
    let (none, mut notes) = missing_sources(trace, &TraceDataKind::PINS, "no such calls");
    let (locked, pinned) = interval_totals::held_in_place(trace);
    if locked > 0 || pinned > 0 {
        notes.push(format!(
            "The target held at most {} locked and {} pinned (io_uring, devices).",
            Bytes(locked),
            Bytes(pinned)
        ));
    }
    if estimated {
        notes.push("Counted during part of the trace, and scaled up.".to_owned());
    } else if large > 0 && any {
        notes.push(format!(
            "Huge pages are of {}: the number of units for each call if its memory were on them.",
            Bytes(large)
        ));
    }
    table("Calls that pin or lock memory", rows, none).noted(notes)
}
