//! Two traces as one page: the case study, with charts on one scale each.

use hugeleaf_trace::tables::locks;
use hugeleaf_trace::tables::measured::{Collection, not_measured};
use maud::{Markup, html};

use super::charts::{self, last_sizes, page_sizes};
use super::diff::{Compared, describe};
use super::html::{findings, page, table};
use super::words::{float, part};
use super::{Shown, words};
use crate::bench::duration;
use crate::chart::drawn;
use crate::page::{Chart, ChartKind};

/// Functions and locks that are drawn, and rows of a table.
const BARS: usize = 10;
const ROWS: usize = 60;

/// The page.
pub fn diff_html(compared: &Compared<'_>, command: &[String]) -> String {
    let why_not = compared.not_comparable();
    let parts = compared.parts(ROWS);
    let body = html! {
        p { "Before: " (describe(&compared.before)) }
        p { "After: " (describe(&compared.after)) }
        @if !why_not.is_empty() {
            h2 { "What cannot be compared" }
            ul { @for line in &why_not { li { (line) } } }
        }
        (table(&compared.throughput()))
        (time(compared))
        (functions(compared))
        (lock_waits(compared))
        (sizes(compared))
        h2 { "All tables" }
        @for part in &parts {
            h2 { (part.title) }
            (table(part))
        }
        h2 { "Findings before" }
        (findings(&compared.before))
        h2 { "Findings after" }
        (findings(&compared.after))
    };
    page("Before and after", &compared.headline(), &body, command)
}

/// User and system time, one scale for both.
fn time(compared: &Compared<'_>) -> Markup {
    let sides = [("Before", &compared.before), ("After", &compared.after)];
    let traces = sides.map(|(_, side)| side.trace);
    let hosts = charts::cpu_times(traces, charts::host_times);
    let own = charts::cpu_times(traces, charts::target_times);
    html! {
        h2 { "User and system time" }
        p { "The host, of all its CPUs. User time is the work of programs." }
        @for ((name, side), chart) in sides.iter().zip(&hosts) {
            p { b { (name) } ": " (words::who(side.trace)) }
            @match not_measured(side.trace, Collection::CpuTime) {
                Some(why) => p { "Not measured: " (why) "." },
                None => (drawn(chart)),
            }
        }
        @if traces.iter().all(|t| charts::has_own_times(t)) {
            p { "The target alone, of all CPUs" }
            @for ((name, side), chart) in sides.iter().zip(&own) {
                p { b { (name) } ": " (words::who(side.trace)) }
                (drawn(chart))
            }
        }
    }
}

/// Bars in pairs, before and after.
fn pairs(rows: impl Iterator<Item = (String, [(f64, String); 2])>) -> Chart {
    let bar = |(label, [(a, before), (b, after)]): (String, [(f64, String); 2])| {
        let notes = [format!("before {before}"), format!("after {after}")];
        (label, [Some(a), Some(b)], notes)
    };
    charts::bars(ChartKind::Bars, ["before", "after"], rows.map(bar))
}

fn functions(compared: &Compared<'_>) -> Markup {
    let sampled = compared.measured(Collection::CpuSamples);
    let rows = compared.hot().into_iter().take(BARS).map(|hot| {
        let cell = |at: usize| match sampled[at] {
            true => (hot.shares[at], part(Some(hot.shares[at]))),
            false => (0.0, "not measured".to_owned()),
        };
        let cells = [cell(0), cell(1)];
        let of = if hot.kernel { "kernel" } else { "user" };
        (format!("{} ({of})", hot.name), cells)
    });
    let all = pairs(rows);
    let is_empty = all.x.steps.is_empty();
    html! {
        h2 { "Hot functions" }
        @if let Some(why) = compared.not_measured(Collection::CpuSamples) { p { (why) "." } }
        @if is_empty && sampled == [true; 2] { p { "No samples." } } @else if !is_empty { (drawn(&all)) }
    }
}

fn lock_waits(compared: &Compared<'_>) -> Markup {
    let seconds = [compared.before.trace.seconds, compared.after.trace.seconds];
    let waits = compared.waits();
    let measured = compared.measured(Collection::Locks);
    let rows = waits.iter().take(BARS).map(|(function, totals)| {
        let cell = |at: usize| {
            let value = match seconds[at] > 0.0 {
                true => float(totals[at].waited_nanos) / 1e9 / seconds[at],
                false => 0.0,
            };
            let note = match totals[at].waited_nanos {
                _ if !measured[at] => "not measured".to_owned(),
                0 => "nothing".to_owned(),
                _ => format!("{} a second", duration(value)),
            };
            (value, note)
        };
        (function.clone(), [cell(0), cell(1)])
    });
    let all = pairs(rows);
    let any = |shown: &Shown<'_>| locks::table(shown.trace).all.contentions > 0;
    html! {
        h2 { "Time waited for locks, by the function that takes them" }
        @if let Some(why) = compared.not_measured(Collection::Locks) { p { (why) "." } }
        @if all.x.steps.is_empty() || !(any(&compared.before) || any(&compared.after)) {
            @if measured == [true; 2] { p { "No thread waited for a lock in either." } }
        } @else {
            (drawn(&all))
        }
    }
}

fn sizes(compared: &Compared<'_>) -> Markup {
    let sizes = page_sizes(&[
        ("before", last_sizes(compared.before.trace)),
        ("after", last_sizes(compared.after.trace)),
    ]);
    html! {
        h2 { "Memory by page size, at the end of each" }
        @if let Some(why) = compared.not_measured(Collection::Memory) { p { (why) "." } }
        @if sizes.series.is_empty() { p { "Not read." } } @else { (drawn(&sizes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use crate::page::needs_nothing;
    use hugeleaf_trace::Trace;

    fn page_of(a: &Trace, b: &Trace) -> String {
        let compared = testing::beside(a, b);
        diff_html(&compared, &["hugeleaf".to_owned(), "trace".to_owned()])
    }

    #[test]
    fn one_page_with_the_published_charts() {
        let page = page_of(&testing::pinning(), &testing::cured());
        needs_nothing(&page);
        // Two over time of the host and two of the target, functions, locks, sizes.
        assert_eq!(page.matches("<svg").count(), 7);
        for part in [
            "×2.72",
            "pages of 2M hugetlb",
            "before 66.7 %",
            "after 0.0 %",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn nothing_beside_nothing_is_a_page() {
        let empty = Trace::default();
        let page = page_of(&empty, &empty);
        assert!(!page.contains("No thread waited") && !page.contains("No samples"));
        assert!(page.contains("lock contention not measured, before: this trace has no record"));
    }
}
