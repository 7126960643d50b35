//! A trace on a terminal: one screen, or the parts that were asked for.

use hugeleaf_trace::tables::work;
use hugeleaf_verdict::trace::TraceFinding;

use super::Shown;
use super::parts::{Section, cpu, parts, work_line};
use super::words::{ending, host, when, who};
use crate::status::said;
use crate::table::{Look, Paint, clean};

/// Rows that one screen takes of each.
const PROCESSES: usize = 4;
const FUNCTIONS: usize = 7;
const LOCKS: usize = 3;
/// Rows of a part that is asked for by itself.
const ROWS: usize = 30;

/// The screen: what was traced, where time went, page sizes, and findings last, because the end of an answer is what
/// stays in sight.
pub fn screen(shown: &Shown<'_>, look: Look) -> String {
    let trace = shown.trace;
    let mut text = head(shown, look);
    let file = clean(shown.file);
    let hint = |name: &str| format!("hugeleaf trace show {file} --section {name}");
    let mut add = |section: Section, most: usize| {
        for part in parts(trace, section, most) {
            text += "\n";
            text += &part.text(look, &hint(section.name()));
        }
    };
    add(Section::Processes, PROCESSES);
    add(Section::TargetFunctions, FUNCTIONS);
    add(Section::Locks, LOCKS);
    if !trace.pins.is_empty() {
        add(Section::Pins, LOCKS);
    }
    // The target's alone, where there is one: the host's is a section of its own.
    if let Some(pages) = parts(trace, Section::Pages, usize::MAX).first() {
        text += "\n";
        text += &pages.text(look, "");
    }
    if let Some(work) = work::work(trace).filter(work::Work::moves_data) {
        text += "\n";
        text += &look.wrap("", &work_line(trace, &work));
    }
    text += &unavailable(shown, look);
    text += "\n";
    text += &findings(shown, look);
    text
}

fn head(shown: &Shown<'_>, look: Look) -> String {
    let trace = shown.trace;
    let mut first = format!("{}, {:.1} s", who(trace), trace.seconds);
    if let Some(why) = ending(trace) {
        first += &format!(" of {:.1} s: {why}", trace.asked_seconds);
    }
    let mut text = look.paint(&look.wrap("", &first), Paint::Bold);
    text += &look.wrap("", &format!("{}, {}", host(trace), when(trace)));
    if let Some(note) = &trace.clock_note {
        text += &look.wrap("", note);
    }
    text += "\n";
    text + &cpu(trace).text(look, "")
}

/// Said where nothing was found: what was not measured cannot have been found.
pub(super) fn no_findings(trace: &hugeleaf_trace::Trace) -> String {
    use hugeleaf_trace::tables::measured::all_not_measured;
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

/// Sources that this trace does not have, in a line each, and what else is to be known.
fn unavailable(shown: &Shown<'_>, look: Look) -> String {
    use hugeleaf_trace::model::SourceState;
    let mut text = String::new();
    for source in &shown.trace.sources {
        let why = match &source.state {
            SourceState::Used | SourceState::Off => continue,
            SourceState::NotHere { reason } => {
                format!("{}: not on this host: {reason}", source.name)
            }
            SourceState::Refused { reason, remedy } => {
                format!("{}: refused: {reason}; {remedy}", source.name)
            }
        };
        text += &look.wrap("unavailable  ", &why);
    }
    for note in &shown.trace.notes {
        text += &look.wrap("note  ", note);
    }
    match text.is_empty() {
        true => text,
        false => format!("\n{text}"),
    }
}

fn findings(shown: &Shown<'_>, look: Look) -> String {
    if shown.findings.is_empty() {
        return look.wrap("", &no_findings(shown.trace));
    }
    let mut text = look.paint("FINDINGS", Paint::Bold) + "\n";
    for finding in shown.findings {
        text += &one(shown, finding, look);
    }
    text
}

fn one(shown: &Shown<'_>, finding: &TraceFinding, look: Look) -> String {
    let mut text = said(finding.severity, &finding.text, look);
    for line in &finding.evidence {
        text += &look.wrap("           - ", line);
    }
    if let [effect] = finding.effects[..] {
        let line = format!("{}: {}", effect.name(), effect.meaning());
        text += &look.wrap("           effect: ", &line);
    } else if !finding.effects.is_empty() {
        let names: Vec<&str> = finding.effects.iter().map(|e| e.name()).collect();
        text += &look.wrap("           effects: ", &names.join(", "));
    }
    text + &format!("           run: {}\n", clean(&shown.command(finding)))
}

/// The parts that were asked for, one after the other; whole where `all`.
pub fn sections(shown: &Shown<'_>, wanted: &[Section], all: bool, look: Look) -> String {
    let most = if all { usize::MAX } else { ROWS };
    let mut text = head(shown, look);
    for section in wanted {
        text += "\n";
        if *section == Section::Findings {
            text += &findings(shown, look);
            continue;
        }
        let hint = format!("--section {} --all", section.name());
        let texts: Vec<String> = parts(shown.trace, *section, most)
            .iter()
            .map(|part| part.text(look, &hint))
            .collect();
        text += &texts.join("\n");
    }

    text
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use hugeleaf_trace::Trace;
    use hugeleaf_verdict::trace::findings as judge;

    #[test]
    fn one_screen_has_what_matters_and_findings_last() {
        let trace = testing::pinning();
        let findings = judge(&trace);
        let shown = Shown {
            trace: &trace,
            findings: &findings,
            file: "a b.trace",
        };
        let text = screen(&shown, Look::plain(110));
        for part in [
            "mover, 10.0 s",
            "×5.00",
            "mlock_pte_range",
            "pool_lock",
            "4K base",
            "64 base pages a call",
            "effect: unit of pinning",
            "run: hugeleaf why mover",
            "'a b.trace'",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let last = text.rfind("FINDINGS").unwrap();
        assert!(last > text.find("LOCK CONTENTION").unwrap());
    }

    #[test]
    fn every_section_is_shown_also_of_an_empty_trace() {
        for trace in [Trace::default(), testing::pinning()] {
            let shown = Shown {
                trace: &trace,
                findings: &[],
                file: "f",
            };
            for section in Section::ALL {
                let text = sections(&shown, &[section], true, Look::plain(100));
                assert!(text.lines().count() >= 3, "{}: {text}", section.name());
                assert_eq!(Section::parse(section.name()), Some(section));
            }
        }
        assert_eq!(Section::parse("nothing"), None);
    }
}
