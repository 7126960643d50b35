//! The CPU profile, locks, and calls that pin.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::Lock;
use hugeleaf_trace::tables::profile::{self, Modes, SymbolRow};
use hugeleaf_trace::tables::{Of, intervals, locks, share, work};
use hugeleaf_units::Bytes;

use super::super::words::{bytes, count, nanos, part, who};
use super::{Collection, Part, missing_or, not_measured};
use crate::table::Align::{Left, Right};

/// How far ways to a lock are shown.
const WAY: usize = 5;

fn no_samples(trace: &Trace) -> String {
    missing_or(trace, Collection::CpuSamples, "no samples")
}

fn total(trace: &Trace, of: Of) -> u64 {
    profile::modes(trace, of).total()
}

impl Part {
    /// How many samples there were, where any were taken.
    fn of_busy(self, trace: &Trace) -> Part {
        let counted = profile::counted(trace);
        if not_measured(trace, Collection::CpuSamples).is_some() {
            return self;
        }
        self.note(format!(
            "Shares are of the {} samples that found a CPU busy; {} found one idle.",
            count(counted.busy),
            count(counted.idle)
        ))
    }
}

/// As tprof shows it: kernel, user and other by process.
pub(super) fn processes(trace: &Trace, most: usize) -> Part {
    let all = total(trace, Of::Host);
    let modes = |m: &Modes| [m.total(), m.kernel, m.user, m.other].map(|n| part(share(n, all)));
    let heads = [
        ("PROCESS", Left),
        ("NUMBER", Right),
        ("TOTAL", Right),
        ("KERNEL", Right),
        ("USER", Right),
        ("OTHER", Right),
        ("SAMPLES", Right),
        ("", Left),
    ];
    Part::new("CPU profile by process", &heads)
        .or_empty(no_samples(trace))
        .fill(profile::by_process(trace), most, |row| {
            let mut cells = vec![row.name.clone(), row.processes.to_string()];
            cells.extend(modes(&row.modes));
            cells.push(count(row.modes.total()));
            cells.push(if row.in_target { "target" } else { "" }.to_owned());
            cells
        })
        .of_busy(trace)
}

pub(super) fn threads(trace: &Trace, most: usize) -> Part {
    let all = total(trace, Of::Host);
    let heads = [
        ("THREAD", Right),
        ("PROCESS", Right),
        ("TOTAL", Right),
        ("KERNEL", Right),
        ("USER", Right),
        ("NAME", Left),
    ];
    Part::new("CPU profile by thread", &heads)
        .or_empty(no_samples(trace))
        .fill(profile::by_thread(trace, Of::Host), most, |row| {
            let m = row.modes;
            let [all, kernel, user] = [m.total(), m.kernel, m.user].map(|n| part(share(n, all)));
            vec![
                row.tid.to_string(),
                row.pid.to_string(),
                all,
                kernel,
                user,
                row.name,
            ]
        })
}

const FUNCTION_HEADS: [(&str, crate::table::Align); 5] = [
    ("SELF", Right),
    ("WITH CALLEES", Right),
    ("WHERE", Left),
    ("FUNCTION", Left),
    ("MODULE", Left),
];

fn function(row: &SymbolRow, all: u64) -> Vec<String> {
    vec![
        part(share(row.samples, all)),
        part(share(row.with_callees, all)),
        if row.kernel { "kernel" } else { "user" }.to_owned(),
        row.name.clone(),
        module(&row.module).to_owned(),
    ]
}

/// The last part of a path: programs are known by it.
pub(in super::super) fn module(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    if name.is_empty() { path } else { name }
}

pub(super) fn functions(trace: &Trace, most: usize) -> Part {
    let all = total(trace, Of::Host);
    let rows = profile::by_symbol(trace, Of::Host);
    let leaves = rows.into_iter().filter(|row| row.samples > 0);
    Part::new("CPU profile by function", &FUNCTION_HEADS)
        .or_empty(no_samples(trace))
        .fill(leaves, most, |row| function(&row, all))
        .of_busy(trace)
}

pub(super) fn target_functions(trace: &Trace, most: usize) -> Part {
    let all = total(trace, Of::Target);
    let rows = profile::by_symbol(trace, Of::Target);
    let leaves = rows.into_iter().filter(|row| row.samples > 0);
    let title = match &trace.target {
        Some(_) => format!("CPU profile of {} by function", who(trace)),
        None => "CPU profile by function".to_owned(),
    };
    Part::new(title, &FUNCTION_HEADS)
        .or_empty(missing_or(
            trace,
            Collection::CpuSamples,
            "no samples of it",
        ))
        .fill(leaves, most, |row| function(&row, all))
}

fn no_locks(trace: &Trace) -> String {
    missing_or(trace, Collection::Locks, "no thread waited for a lock")
}

/// As splat shows it, with what Linux tells: waits, not acquisitions.
pub(super) fn locks(trace: &Trace, most: usize) -> Part {
    let table = locks::table(trace);
    let heads = [
        ("LOCK", Left),
        ("KIND", Left),
        ("WAITS", Right),
        ("WAITED", Right),
        ("MEAN", Right),
        ("LONGEST", Right),
        ("SHARE", Right),
        ("TAKEN BY", Left),
    ];
    let mut part_ = Part::new("Lock contention", &heads)
        .or_empty(no_locks(trace))
        .fill(&table.rows, most, |row| {
            let totals = row.lock.totals;
            vec![
                locks::label(row.lock),
                row.lock.kind.name().to_owned(),
                count(totals.contentions),
                nanos(totals.waited_nanos),
                totals.mean_nanos().map_or("-".to_owned(), nanos),
                nanos(totals.longest_nanos),
                part(row.share),
                row.function.unwrap_or("?").to_owned(),
            ]
        });
    if table.others_count > 0 {
        part_ = part_.note(format!(
            "{} more locks were waited for {} times, {} in all, and are not listed by themselves.",
            count(table.others_count),
            count(table.others.contentions),
            nanos(table.others.waited_nanos)
        ));
    }
    match table.all.contentions {
        0 => part_,
        waits => part_.note(format!(
            "{} waits, {} in all threads together. A lock that is free when it is taken leaves no trace.",
            count(waits),
            nanos(table.all.waited_nanos)
        )),
    }
}

/// Of one lock, or of all.
pub(in super::super) fn lock_threads(trace: &Trace, only: Option<&Lock>, most: usize) -> Part {
    let heads = [
        ("THREAD", Right),
        ("PROCESS", Right),
        ("WAITS", Right),
        ("WAITED", Right),
        ("MEAN", Right),
        ("LONGEST", Right),
        ("SHARE", Right),
        ("NAME", Left),
    ];
    Part::new("Lock contention by thread", &heads)
        .or_empty(no_locks(trace))
        .fill(locks::by_thread(trace, only), most, |row| {
            vec![
                row.tid.to_string(),
                row.pid.to_string(),
                count(row.totals.contentions),
                nanos(row.totals.waited_nanos),
                row.totals.mean_nanos().map_or("-".to_owned(), nanos),
                nanos(row.totals.longest_nanos),
                part(row.share),
                row.name,
            ]
        })
}

/// Of one lock, or of all.
pub(in super::super) fn lock_callers(trace: &Trace, only: Option<&Lock>, most: usize) -> Part {
    let heads = [
        ("WAITS", Right),
        ("WAITED", Right),
        ("MEAN", Right),
        ("SHARE", Right),
        ("KIND", Left),
        ("FUNCTION, AND WHO CALLED IT", Left),
    ];
    let mut chosen = locks::chosen(trace, only).into_iter();
    let estimated = chosen.any(|lock| lock.callers_estimated);
    let part = Part::new("Lock contention by caller", &heads)
        .or_empty(no_locks(trace))
        .fill(locks::by_caller(trace, only, WAY), most, |row| {
            let way = match row.path.is_empty() {
                true => row.function,
                false => row.path.join(" < "),
            };
            vec![
                count(row.totals.contentions),
                nanos(row.totals.waited_nanos),
                row.totals.mean_nanos().map_or("-".to_owned(), nanos),
                part(row.share),
                row.kind.name().to_owned(),
                way,
            ]
        });
    match estimated {
        true => part.note(
            "The callers of some waits were looked at and stand for those of all; all waits were \
             counted and timed.",
        ),
        false => part,
    }
}

impl Part {
    /// Names what was not measured of all that a table is made of. Where that is everything, the table says
    /// nothing else; else it is a note below what was.
    pub(super) fn without(mut self, trace: &Trace, parts: &[Collection]) -> Part {
        let missing: Vec<String> = parts
            .iter()
            .filter_map(|what| Some(format!("{}: {}", what.name(), not_measured(trace, *what)?)))
            .collect();
        if missing.is_empty() {
            return self;
        }
        let said = format!("not measured: {}", missing.join("; "));
        match missing.len() == parts.len() {
            true => self.empty = said,
            false => self.notes.push(format!("N{}.", &said[1..])),
        }
        self
    }
}

pub(super) fn pins(trace: &Trace, most: usize) -> Part {
    let rows = work::pins(trace);
    let estimated = rows.iter().any(|row| row.estimated);
    let base = trace.host.base_page_bytes;
    let large = trace.host.pmd_page_bytes.unwrap_or(0);
    let heads = [
        ("CALL", Left),
        ("CALLS", Right),
        ("A SECOND", Right),
        ("BYTES", Right),
        ("EACH", Right),
        ("BASE PAGES EACH", Right),
        ("LARGE PAGES EACH", Right),
        ("FAILED", Right),
        ("THREADS", Right),
    ];
    let pages = |each: Option<u64>, size: u64| match each {
        // What is scaled up is a little off: to the nearest whole number.
        Some(each) if size > 0 => count(((each + size / 2) / size).max(1)),
        _ => "-".to_owned(),
    };
    let part = Part::new("Calls that pin or lock memory", &heads)
        .or_empty("no such calls")
        .fill(rows, most, |row| {
            let each = row.bytes.and_then(|b| b.checked_div(row.calls));
            vec![
                row.call.clone(),
                count(row.calls),
                super::super::words::rate(row.calls, trace.seconds),
                bytes(row.bytes),
                bytes(each),
                pages(each, base),
                pages(each, large),
                row.failed.map_or("-".to_owned(), count),
                row.threads.to_string(),
            ]
        });
    let part = part.without(trace, &Collection::PINS);
    let part = match intervals::held_in_place(trace) {
        (0, 0) => part,
        (locked, pinned) => part.note(format!(
            "The target held at most {} locked and {} pinned (io_uring, devices).",
            Bytes(locked),
            Bytes(pinned)
        )),
    };
    match (estimated, large) {
        (true, _) => part.note("Counted in a part of the time, and scaled up."),
        (false, large) if large > 0 && !part.rows.is_empty() => part.note(format!(
            "Large pages are of {}: how many units a call handles, were its memory on them.",
            Bytes(large)
        )),
        _ => part,
    }
}
