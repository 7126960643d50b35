//! The parts of a trace that can be shown by themselves.

mod cost;
mod host;
mod memory;

use hugeleaf_trace::Trace;

use crate::page;

pub(super) use cost::{lock_callers, lock_threads, turns_line};
pub(super) use host::{cpu, work_line};

/// A part of a trace that can be shown by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// What was found.
    Findings,
    /// One a second, as vmstat shows them.
    Intervals,
    /// CPU profile by process.
    Processes,
    /// CPU profile by thread.
    Threads,
    /// CPU profile by function, everybody's.
    Functions,
    /// CPU profile by function, the target's.
    TargetFunctions,
    /// Lock contention by lock.
    Locks,
    /// Lock contention by thread.
    LockThreads,
    /// Lock contention by caller.
    LockCallers,
    /// Page faults by size, process and function.
    Faults,
    /// Memory by page size before and after.
    Pages,
    /// The target's segments by page size.
    Segments,
    /// What the memory management did.
    Memory,
    /// Calls that pin.
    Pins,
    /// I/O by thread.
    Io,
    /// Counters of the CPU.
    Counters,
    /// Where numbers come from, and what is unavailable.
    Sources,
}

/// All of them with their names as they are typed, in the order they are shown.
const NAMES: [(Section, &str); 17] = [
    (Section::Intervals, "intervals"),
    (Section::Processes, "processes"),
    (Section::Threads, "threads"),
    (Section::Functions, "functions"),
    (Section::TargetFunctions, "target-functions"),
    (Section::Locks, "locks"),
    (Section::LockThreads, "lock-threads"),
    (Section::LockCallers, "lock-callers"),
    (Section::Faults, "faults"),
    (Section::Pages, "pages"),
    (Section::Segments, "segments"),
    (Section::Memory, "memory"),
    (Section::Pins, "pins"),
    (Section::Io, "io"),
    (Section::Counters, "counters"),
    (Section::Sources, "sources"),
    (Section::Findings, "findings"),
];

impl Section {
    /// All of them, in the order they are shown.
    pub fn all() -> impl Iterator<Item = Section> {
        NAMES.into_iter().map(|(section, _)| section)
    }

    /// As it is typed.
    pub fn name(self) -> &'static str {
        let mut names = NAMES.into_iter();
        let found = names.find(|(section, _)| *section == self);
        found.map_or("", |(_, name)| name)
    }

    /// The section of a name.
    pub fn parse(name: &str) -> Option<Section> {
        Section::all().find(|section| section.name() == name)
    }
}

/// A section's tables. [`Section::Findings`] has none: findings are sentences.
pub(super) fn parts(trace: &Trace, section: Section) -> Vec<page::Section> {
    match section {
        Section::Findings => Vec::new(),
        Section::Intervals => vec![host::intervals(trace)],
        Section::Processes => vec![cost::processes(trace)],
        Section::Threads => vec![cost::threads(trace)],
        Section::Functions => vec![cost::functions(trace)],
        Section::TargetFunctions => vec![cost::target_functions(trace)],
        Section::Locks => vec![cost::locks(trace)],
        Section::LockThreads => vec![cost::lock_threads(trace, None)],
        Section::LockCallers => vec![cost::lock_callers(trace, None)],
        Section::Faults => memory::faults(trace),
        Section::Pages => memory::pages(trace),
        Section::Segments => vec![memory::segments(trace)],
        Section::Memory => memory::events(trace),
        Section::Pins => vec![cost::pins(trace)],
        Section::Io => vec![host::io(trace)],
        Section::Counters => vec![host::counters(trace)],
        Section::Sources => vec![host::sources(trace)],
    }
}
