//! A trace as one page that needs nothing beside it: no network, no script.

use hugeleaf_trace::Trace;
use hugeleaf_trace::tables::Of;
use hugeleaf_trace::tables::measured::{Collection, not_measured};
use hugeleaf_trace::tables::work;
use hugeleaf_verdict::findings::Severity;
use hugeleaf_verdict::trace::TraceFinding;
use maud::{Markup, PreEscaped, html as markup};

use super::charts;
use super::flame::flame_graph;
use super::parts::{Part, Section, cpu, parts, work_line};
use super::words::{ending, host, when, who};
use super::{Shown, lock};
use crate::chart::drawn;
use crate::page::{Page, command, document};
use crate::table::Align;

/// Bars and rows of a page; a page of thousands of rows helps nobody.
const BARS: usize = 12;
const ROWS: usize = 60;

/// The page.
pub fn html(shown: &Shown<'_>) -> String {
    let trace = shown.trace;
    let title = format!("{}, {:.1} s, {}", who(trace), trace.seconds, when(trace));
    let body = markup! {
        (findings(shown))
        (unavailable(trace))
        h2 { "CPU time" }
        (table(&cpu(trace)))
        (time(trace))
        h2 { "CPU profile" }
        (profile(trace))
        (locks(trace))
        (page_sizes(trace))
        @if let Some(work) = work::work(trace).filter(work::Work::moves_data) {
            h2 { "Data moved" }
            p { (work_line(trace, &work)) }
        }
        (all_parts(trace))
    };
    page(&title, &subtitle(trace), &body, &trace.command)
}

/// What this trace does not have, and what else is to be known.
fn unavailable(trace: &Trace) -> Markup {
    let missing = hugeleaf_trace::tables::measured::all_not_measured(trace);
    markup! {
        @if !missing.is_empty() {
            h2 { "Not measured" }
            ul { @for (what, why) in &missing { li { (what.name()) ": " (why) } } }
        }
        @for note in &trace.notes { p { (note) } }
    }
}

fn subtitle(trace: &Trace) -> String {
    let mut text = host(trace);
    if let Some(why) = ending(trace) {
        text += &format!(
            ". Shorter than the {:.1} s asked for: {why}",
            trace.asked_seconds
        );
    }
    if let Some(note) = &trace.clock_note {
        text += &format!(". {note}");
    }
    text
}

/// A page around a body.
pub(super) fn page(title: &str, subtitle: &str, body: &Markup, words: &[String]) -> String {
    let body = markup! {
        (body)
        @if !words.is_empty() { h2 { "Command" } (command(words)) }
    };
    document(&Page::new(title, subtitle), &body)
}

/// What was found; the page of a comparison shows those of both sides.
pub(super) fn findings(shown: &Shown<'_>) -> Markup {
    markup! {
        @if shown.findings.is_empty() { p { (super::screen::no_findings(shown.trace)) } }
        @for finding in shown.findings { (finding_box(shown, finding)) }
    }
}

fn finding_box(shown: &Shown<'_>, finding: &TraceFinding) -> Markup {
    let class = match finding.severity {
        Severity::Problem => "note bad",
        Severity::Warning => "note warn",
        Severity::Note => "note",
    };
    markup! {
        div class=(class) {
            p { b { (finding.severity.name()) ": " } (finding.text) }
            ul { @for line in &finding.evidence { li { (line) } } }
            @for effect in &finding.effects {
                p { "Effect: " b { (effect.name()) } ", " (effect.meaning()) "." }
            }
            p { "Next: " code { (shown.command(finding)) } }
        }
    }
}

/// A part as a table.
pub(super) fn table(part: &Part) -> Markup {
    let class = |align: Align| match align {
        Align::Left => None,
        Align::Right => Some("r"),
    };
    markup! {
        @if part.rows.is_empty() {
            p { (part.empty) "." }
        } @else {
            div.scroll { table {
                thead { tr { @for (head, align) in &part.heads {
                    th class=[class(*align)] { (head.to_lowercase()) }
                } } }
                tbody { @for row in &part.rows { tr {
                    @for (cell, (_, align)) in row.iter().zip(&part.heads) {
                        td class=[class(*align)] { (cell) }
                    }
                } } }
            } }
        }
        @if part.more > 0 { p { "… and " (part.more) " more in the trace." } }
        @for note in &part.notes { p { (note) } }
    }
}

fn time(trace: &Trace) -> Markup {
    let [whole] = charts::cpu_times([trace], charts::host_times);
    markup! {
        h2 { "User and system time over time" }
        @if let Some(why) = not_measured(trace, Collection::CpuTime) {
            p { "Not measured: " (why) "." }
        } @else {
            p { "The host, of all CPUs" }
            (drawn(&whole))
            @if charts::has_own_times(trace) {
                @let [own] = charts::cpu_times([trace], charts::target_times);
                p { (who(trace)) ", of all CPUs" }
                (drawn(&own))
            }
        }
    }
}

fn profile(trace: &Trace) -> Markup {
    let functions = charts::functions(trace, Of::Target, BARS);
    let of = match trace.target {
        Some(_) => format!("By function, of {}'s samples", who(trace)),
        None => "By function".to_owned(),
    };
    let skewed = trace.sampled_by == "cpu-clock" && !functions.x.steps.is_empty();
    markup! {
        @if let Some(why) = not_measured(trace, Collection::CpuSamples) {
            p { "Not measured: " (why) "." }
        } @else {
            p { "By process, of all samples that found a CPU busy" }
            (drawn(&charts::processes(trace, BARS)))
            p { (of) }
            (drawn(&functions))
            @if let Some(flames) = flame_graph(trace) {
                p { "As a flame graph: each frame as wide as the samples in it and in what it called" }
                (PreEscaped(flames))
            }
        }
        @if skewed {
            p { "Samples by the clock (cpu-clock) cannot land while interrupts are off: time that was spent so is \
                 counted where they come on again, as in " code { "_raw_spin_unlock_irqrestore" } " and "
                 code { "finish_task_switch" } "." }
        }
    }
}

fn locks(trace: &Trace) -> Markup {
    let waits = charts::lock_waits(trace, BARS);
    let busiest = hugeleaf_trace::tables::locks::table(trace)
        .rows
        .first()
        .map(|r| r.lock);
    markup! {
        h2 { "Lock contention" }
        @if waits.x.steps.is_empty() {
            @for part in parts(trace, Section::Locks, 0) { p { (part.empty) "." } }
        } @else {
            p { "Time waited, by lock" }
            (drawn(&waits))
        }
        @if let Some(busiest) = busiest.filter(|l| !l.events.is_empty()) {
            p { (lock::turns_line(busiest)) }
        }
    }
}

fn page_sizes(trace: &Trace) -> Markup {
    let sizes = charts::own_sizes(trace);
    markup! {
        h2 { "Memory by page size" }
        @if sizes.series.is_empty() { p { "Not read." } } @else { (drawn(&sizes)) }
    }
}

fn all_parts(trace: &Trace) -> Markup {
    let wanted = Section::ALL.into_iter().filter(|s| match s {
        Section::Findings => false,
        Section::TargetFunctions => trace.target.is_some(),
        _ => true,
    });
    let all: Vec<Part> = wanted.flat_map(|s| parts(trace, s, ROWS)).collect();
    markup! {
        h2 { "All tables" }
        @for part in &all {
            details {
                summary { (part.title) }
                (table(part))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use crate::page::needs_nothing;
    use hugeleaf_verdict::trace::findings as judge;

    #[test]
    fn one_page_with_its_charts() {
        let trace = testing::pinning();
        let findings = judge(&trace);
        let shown = Shown {
            trace: &trace,
            findings: &findings,
            file: "<b>.trace",
        };
        let page = html(&shown);
        needs_nothing(&page);
        // Host and target over time, processes, functions, locks and sizes; flames, in two.
        assert_eq!(page.matches("<svg").count(), 6 + 2);
        for part in [
            "unit of pinning",
            "mlock_pte_range",
            "2 threads take turns",
            "hugeleaf trace mover",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<b>.trace"));
    }

    #[test]
    fn an_empty_trace_is_a_page_too() {
        let trace = Trace::default();
        let shown = Shown {
            trace: &trace,
            findings: &[],
            file: "f",
        };
        let page = html(&shown);
        assert!(page.contains("Not measured: this trace has no record of it"));
        assert!(page.contains("No findings from what was measured"));
    }
}
