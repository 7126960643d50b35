//! Two traces as one page: the case study, with charts on one scale each.

use hugeleaf_trace::tables::locks;
use hugeleaf_trace::tables::measured::{Collection, not_measured};
use maud::{Markup, html};

use super::charts::{self, highest, last_sizes, side, size_bars};
use super::diff::{Compared, describe};
use super::html::{findings, page, table};
use super::plot::{Bar, Fill, Part, Stack, bars, scale, stacked};
use super::words::{float, part};
use super::{Shown, words};
use crate::bench::duration;
use crate::svg::drawn;

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

/// User and system time stacked, one scale for both.
fn time(compared: &Compared<'_>) -> Markup {
    let [a, b] = [&compared.before, &compared.after].map(|s| charts::host_stack(s.trace));
    let top = scale(a.highest().max(b.highest()));
    let own = [&compared.before, &compared.after].map(|s| charts::target_stack(s.trace));
    let until = charts::until(compared.before.trace).max(charts::until(compared.after.trace));
    let chart = |name: &str, shown: &Shown<'_>, stack: &Stack| {
        html! { div {
            p { b { (name) } ": " (words::who(shown.trace)) }
            @match not_measured(shown.trace, Collection::CpuTime) {
                Some(why) => p { "Not measured: " (why) "." },
                None => (drawn(stacked(stack, until, top, (480, 260)))),
            }
        } }
    };
    html! {
        h2 { "User and system time" }
        (charts::time_legend())
        p { "The host" }
        div.side {
            (chart("Before", &compared.before, &a))
            (chart("After", &compared.after, &b))
        }
        @if let (Some(a), Some(b)) = (&own[0], &own[1]) {
            p { "The target alone" }
            div.side {
                (chart("Before", &compared.before, a))
                (chart("After", &compared.after, b))
            }
        }
        p { "Of all CPUs of the host. User time is the work of programs." }
    }
}

/// Two bars a row: before above, after below and fainter in words only.
fn pairs(rows: impl Iterator<Item = (String, [(f64, String); 2], Fill)>) -> Vec<Bar> {
    rows.flat_map(|(label, [before, after], fill)| {
        let bar = |label, (value, note): (f64, String), name: &str| Bar {
            label,
            note: format!("{name} {note}"),
            parts: vec![Part { fill, value }],
        };
        [
            bar(label, before, "before"),
            bar(String::new(), after, "after"),
        ]
    })
    .collect()
}

fn functions(compared: &Compared<'_>) -> Markup {
    let sampled = compared.measured(Collection::CpuSamples);
    let rows = compared.hot().into_iter().take(BARS).map(|hot| {
        let cell = |at: usize| match sampled[at] {
            true => (hot.shares[at], part(Some(hot.shares[at]))),
            false => (0.0, "not measured".to_owned()),
        };
        let cells = [cell(0), cell(1)];
        (hot.name, cells, side(hot.kernel))
    });
    let all = pairs(rows);
    html! {
        h2 { "Hot functions" }
        @if let Some(why) = compared.not_measured(Collection::CpuSamples) { p { (why) "." } }
        @if all.is_empty() && sampled == [true; 2] { p { "No samples." } } @else if !all.is_empty() {
            (charts::legend(&[(Fill::System, "kernel".to_owned()), (Fill::User, "user".to_owned())]))
            (drawn(bars(&all, highest(&all))))
        }
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
        (function.clone(), [cell(0), cell(1)], Fill::System)
    });
    let all = pairs(rows);
    let any = |shown: &Shown<'_>| locks::table(shown.trace).all.contentions > 0;
    html! {
        h2 { "Time waited for locks, by the function that takes them" }
        @if let Some(why) = compared.not_measured(Collection::Locks) { p { (why) "." } }
        @if all.is_empty() || !(any(&compared.before) || any(&compared.after)) {
            @if measured == [true; 2] { p { "No thread waited for a lock in either." } }
        } @else {
            (drawn(bars(&all, highest(&all))))
        }
    }
}

fn sizes(compared: &Compared<'_>) -> Markup {
    let state = |name: &str, shown: &Shown<'_>| (name.to_owned(), last_sizes(shown.trace));
    let states = [
        state("before", &compared.before),
        state("after", &compared.after),
    ];
    let read = states.into_iter().filter(|(_, rows)| !rows.is_empty());
    let drawn_sizes = size_bars(&read.collect::<Vec<_>>());
    html! {
        h2 { "Memory by page size, at the end of each" }
        @if let Some(why) = compared.not_measured(Collection::Memory) { p { (why) "." } }
        @if drawn_sizes.legend.is_empty() { p { "Not read." } } @else {
            (charts::legend(&drawn_sizes.legend))
            (drawn(bars(&drawn_sizes.bars, drawn_sizes.top)))
        }
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
