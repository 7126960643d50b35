//! The tables of a trace as rows of texts: what terminal and page have in common.

mod cost;
mod host;
mod memory;

use hugeleaf_trace::Trace;
use hugeleaf_trace::tables::measured::{Collection, not_measured};

use crate::table::{Align, Look, Paint, Table, cut};

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
    /// Where numbers come from, and what could not be had.
    Sources,
}

impl Section {
    /// All of them, in the order they are shown.
    pub const ALL: [Section; 17] = [
        Section::Intervals,
        Section::Processes,
        Section::Threads,
        Section::Functions,
        Section::TargetFunctions,
        Section::Locks,
        Section::LockThreads,
        Section::LockCallers,
        Section::Faults,
        Section::Pages,
        Section::Segments,
        Section::Memory,
        Section::Pins,
        Section::Io,
        Section::Counters,
        Section::Sources,
        Section::Findings,
    ];

    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Section::Findings => "findings",
            Section::Intervals => "intervals",
            Section::Processes => "processes",
            Section::Threads => "threads",
            Section::Functions => "functions",
            Section::TargetFunctions => "target-functions",
            Section::Locks => "locks",
            Section::LockThreads => "lock-threads",
            Section::LockCallers => "lock-callers",
            Section::Faults => "faults",
            Section::Pages => "pages",
            Section::Segments => "segments",
            Section::Memory => "memory",
            Section::Pins => "pins",
            Section::Io => "io",
            Section::Counters => "counters",
            Section::Sources => "sources",
        }
    }

    /// The section of a name.
    pub fn parse(name: &str) -> Option<Section> {
        Section::ALL.into_iter().find(|s| s.name() == name)
    }
}

/// A table with its heading and what is to be said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its heading.
    pub title: String,
    /// Columns.
    pub heads: Vec<(&'static str, Align)>,
    /// Rows, cut to what was asked for.
    pub rows: Vec<Vec<String>>,
    /// Rows that were cut off.
    pub more: usize,
    /// Said where there are no rows.
    pub empty: String,
    /// Sentences below it.
    pub notes: Vec<String>,
}

impl Part {
    /// An empty one, whose rows follow.
    pub(super) fn plain(title: &str, heads: &[(&'static str, Align)]) -> Part {
        Part::new(title, heads)
    }

    fn new(title: impl Into<String>, heads: &[(&'static str, Align)]) -> Part {
        Part {
            title: title.into(),
            heads: heads.to_vec(),
            rows: Vec::new(),
            more: 0,
            empty: "nothing".to_owned(),
            notes: Vec::new(),
        }
    }

    /// The first `most` of these rows.
    fn fill<T>(
        mut self,
        all: impl IntoIterator<Item = T>,
        most: usize,
        row: impl Fn(T) -> Vec<String>,
    ) -> Part {
        let mut all = all.into_iter();
        self.rows.extend(all.by_ref().take(most).map(row));
        self.more += all.count();
        self
    }

    fn or_empty(mut self, why: impl Into<String>) -> Part {
        self.empty = why.into();
        self
    }

    fn note(mut self, text: impl Into<String>) -> Part {
        self.notes.push(text.into());
        self
    }

    /// Without those of the named columns that hold nothing but zeros: a host without swap or hypervisor has them.
    fn without_zeros(mut self, names: &[&str]) -> Part {
        let nothing = |text: &str| matches!(text, "0" | "0.0 %" | "-" | "");
        for name in names {
            let Some(at) = self.heads.iter().position(|(head, _)| head == name) else {
                continue;
            };
            if self.rows.iter().all(|row| nothing(&row[at])) {
                self.heads.remove(at);
                self.rows.iter_mut().for_each(|row| {
                    row.remove(at);
                });
            }
        }
        self
    }

    /// The last column of words gives way where the screen is narrow; those before it may take half of it at most:
    /// names of functions can be longer than any screen.
    fn table(&self, look: Look) -> Table {
        let last = self.heads.iter().rposition(|(_, a)| *a == Align::Left);
        let most = (look.width / 2).max(24);
        let mut table = Table::new(&self.heads).indented(2);
        for row in &self.rows {
            let cells = row.iter().enumerate().map(|(at, cell)| match last {
                Some(last) if at < last => cut(cell, most),
                _ => cell.clone(),
            });
            table.row(cells);
        }
        table
    }

    /// As text, with `hint` as the command that shows what was cut off.
    pub(super) fn text(&self, look: Look, hint: &str) -> String {
        let mut text = look.paint(&self.title.to_uppercase(), Paint::Bold) + "\n";
        if self.rows.is_empty() {
            text += &look.wrap("  ", &self.empty);
        } else {
            text += &self.table(look).render_as(look);
        }
        if self.more > 0 {
            text += &format!("  … and {} more: {hint}\n", self.more);
        }
        for note in &self.notes {
            text += &look.wrap("  ", note);
        }
        text
    }
}

/// A section's tables, each cut to `most` rows. [`Section::Findings`] has none: findings are sentences.
pub fn parts(trace: &Trace, section: Section, most: usize) -> Vec<Part> {
    match section {
        Section::Findings => Vec::new(),
        Section::Intervals => vec![host::intervals(trace, most)],
        Section::Processes => vec![cost::processes(trace, most)],
        Section::Threads => vec![cost::threads(trace, most)],
        Section::Functions => vec![cost::functions(trace, most)],
        Section::TargetFunctions => vec![cost::target_functions(trace, most)],
        Section::Locks => vec![cost::locks(trace, most)],
        Section::LockThreads => vec![cost::lock_threads(trace, None, most)],
        Section::LockCallers => vec![cost::lock_callers(trace, None, most)],
        Section::Faults => memory::faults(trace, most),
        Section::Pages => memory::pages(trace),
        Section::Segments => vec![memory::segments(trace, most)],
        Section::Memory => memory::events(trace, most),
        Section::Pins => vec![cost::pins(trace, most)],
        Section::Io => vec![host::io(trace, most)],
        Section::Counters => vec![host::counters(trace)],
        Section::Sources => vec![host::sources(trace)],
    }
}

pub(super) use cost::{lock_callers, lock_threads, module};
pub(super) use host::{cpu, work_line};

/// Said in the place of rows: why something was not measured, or `none` where it was and there was nothing.
pub(super) fn missing_or(trace: &Trace, what: Collection, none: &str) -> String {
    match not_measured(trace, what) {
        Some(why) => format!("not measured: {why}"),
        None => none.to_owned(),
    }
}
