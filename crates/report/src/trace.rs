//! `hugeleaf trace`: a trace as a page, and two traces side by side.
//!
//! Terminal and browser show the same tables (`sections`). No code here reads the host, so a trace looks the same on
//! any machine.

mod charts;
mod diff;
mod diff_json;
mod format;
mod json;
mod lock_and_callers;
mod sections;

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::SourceState;
use hugeleaf_trace::tables::io_and_pins::{self, IoTotals};
use hugeleaf_trace::tables::not_measured::all_not_measured;
use hugeleaf_verdict::findings::shell_word;
use hugeleaf_verdict::trace_findings::TraceFinding;

use crate::document::{CommandHint, ContentBlock, Document, Note, Section};
use crate::status::severity_word;
use format::{ending, host, when, who};
use sections::intervals_and_io::{cpu, work_line};
use sections::{FINDINGS, memory};

pub use charts::flames;
pub use diff::TraceDiff;
pub use diff_json::diff_json;
pub use json::{callers_json, json};
pub use lock_and_callers::{callers_page, lock_page};
pub use sections::{PARTS, TraceSection};

/// Rows of each part on one screen. Pins have none if nothing is pinned.
const SCREEN: [(&str, usize); 4] = [
    ("processes", 4),
    ("target-functions", 7),
    ("locks", 3),
    ("pins", 3),
];
const ROWS: usize = 30;

#[derive(Debug, Clone, Copy)]
pub struct TraceView<'a> {
    pub trace: &'a Trace,
    pub findings: &'a [TraceFinding],
    /// The trace's file as typed; commands name it.
    pub file: &'a str,
}

impl TraceView<'_> {
    /// Returns one screen: target, time, page sizes and findings. Findings come last, because the end of the output
    /// stays visible.
    pub fn screen(&self) -> Document {
        let trace = self.trace;
        let mut page = self.head();
        let is_shown = |(name, _): &(&str, usize)| *name != "pins" || !trace.pins.is_empty();
        for (name, rows) in SCREEN.into_iter().filter(is_shown) {
            let all = format!("hugeleaf trace show {} --section {name}", self.file);
            let tables = TraceSection::parse(name).map(|part| (part.tables)(trace));
            for table in tables.into_iter().flatten() {
                page.add(table.limited_to(rows, &all));
            }
        }
        // Only the target's table, if there is a target: the host's is a section of its own.
        for part in memory::pages(trace).into_iter().take(1) {
            page.add(part);
        }
        if let Some(work) = io_and_pins::work(trace).filter(IoTotals::moves_data) {
            page.section("", vec![work_line(trace, &work).into()]);
        }
        page.section("", vec![self.unavailable().into()]);
        page.add(self.found("Findings"));
        page
    }

    pub fn sections(&self, wanted: impl IntoIterator<Item = &'static TraceSection>) -> Document {
        let mut page = self.head();
        for part in wanted {
            if part.name == FINDINGS {
                page.add(self.found("Findings"));
            }
            let all = format!("--section {} --all", part.name);
            for table in (part.tables)(self.trace) {
                page.add(table.limited_to(ROWS, &all));
            }
        }
        page
    }

    /// Returns the whole trace for a browser: findings, then charts, then tables.
    pub fn whole(&self) -> Document {
        let trace = self.trace;
        let mut page = self.head();
        page.add(self.found("Findings"));
        page.section("", vec![self.unavailable().into()]);
        // Without a target, the table of its functions equals that of all functions.
        let twice = |part: &&TraceSection| part.name == "functions" && trace.target.is_none();
        let wanted = PARTS.iter().filter(|part| !twice(part));
        let mut all: Vec<Section> = wanted.flat_map(|part| (part.tables)(trace)).collect();
        let is_drawn = |part: &Section| matches!(part.blocks.first(), Some(ContentBlock::Chart(_)));
        all.sort_by_key(|part| !is_drawn(part));
        for part in all {
            page.add(part);
        }
        page.section("Command", vec![command(&trace.command)]);
        page
    }

    fn head(&self) -> Document {
        let trace = self.trace;
        let mut first = format!("{}, {:.1} s", who(trace), trace.seconds);
        if let Some(why) = ending(trace) {
            first += &format!(" of {:.1} s: {why}", trace.asked_seconds);
        }
        let mut page = Document::new("", first);
        page.add(format!("{}, {}", host(trace), when(trace)));
        page.add(trace.clock_note.clone().unwrap_or_default());
        page.add(cpu(trace));
        page
    }

    /// Returns notes on missing sources and other remarks.
    fn unavailable(&self) -> Vec<Note> {
        let missing = self.trace.sources.iter().filter_map(|source| {
            let name = &source.name;
            let why = match &source.state {
                SourceState::Used | SourceState::Off => return None,
                SourceState::NotHere { reason } => format!("{name}: not on this host: {reason}"),
                SourceState::Refused { reason, remedy } => {
                    format!("{name}: refused: {reason}; {remedy}")
                }
            };
            Some(Note::new("unavailable", why))
        });
        missing
            .chain(Note::each("note", &self.trace.notes))
            .collect()
    }

    fn found(&self, title: &str) -> Section {
        let found: ContentBlock = match self.findings.is_empty() {
            true => no_findings(self.trace).into(),
            false => self.notes().into(),
        };
        Section::new(title, vec![found])
    }

    fn notes(&self) -> Vec<Note> {
        let note = |finding: &TraceFinding| {
            let word = severity_word(finding.severity);
            let mut note = Note::new(word, &finding.text).run("run", self.command(finding));
            note.evidence.clone_from(&finding.evidence);
            note.evidence.extend(match finding.effects[..] {
                [] => None,
                [effect] => Some(format!("effect: {}: {}", effect.name(), effect.meaning())),
                ref all => {
                    let names: Vec<&str> = all.iter().map(|effect| effect.name()).collect();
                    Some(format!("effects: {}", names.join(", ")))
                }
            });
            note
        };
        self.findings.iter().map(note).collect()
    }

    /// Returns a finding's command with the file of this trace.
    fn command(&self, finding: &TraceFinding) -> String {
        let words = finding.command.split(' ').map(|word| match word {
            "FILE" => shell_word(self.file),
            word => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

fn command(words: &[String]) -> ContentBlock {
    let known = (!words.is_empty()).then(|| CommandHint::new("", words.join(" ")));
    Vec::from_iter(known).into()
}

/// Returns the text shown without findings, which names what was not measured.
fn no_findings(trace: &Trace) -> String {
    let missing = all_not_measured(trace);
    let names: Vec<&str> = missing.iter().map(|(what, _)| what.name()).collect();
    match names.is_empty() {
        true => "No findings.".to_owned(),
        false => format!(
            "No findings from what was measured; not measured: {}.",
            names.join(", ")
        ),
    }
}

#[cfg(test)]
pub(crate) mod tests;
