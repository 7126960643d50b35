//! A result as one page that needs nothing beside it: no network, no script, readable in light
//! and in dark.

use hugeleaf_proof::result::ResultFile;
use hugeleaf_proof::stats::Verdict;
use hugeleaf_proof::{Arm, Design};
use maud::{Markup, html};

use crate::chart::drawn;
use crate::page::{
    Axis, Chart, ChartKind, Mark, Page, Point, Series, Unit, circumstances, document, notes, table,
};
use crate::prove::{
    beside_rows, beside_the_effect, headline, how, meaning, next, number, page_size_rows,
};

/// The page.
pub fn html(result: &ResultFile) -> String {
    let title = format!("{}: {}", result.experiment.target, headline(result));
    let body = html! {
        p { (how(result)) "." }
        @for line in beside_the_effect(result) { p { (line) "." } }
        @if let Some(next) = next(result) { p { "Next: " code { (next) } } }
        (charts(result))
        h2 { "What else moved" }
        (table(&["", "base", "large"], &beside_rows(result)))
        h2 { "Memory by page size" }
        (table(&["pages of", "before", "base", "large", "after"], &page_size_rows(result)))
        (caveats(result))
        (settings(result))
    };
    let mut top = Page::new(title, meaning(result));
    top.mark = match result.verdict {
        Verdict::Faster => Mark::Good,
        Verdict::Slower => Mark::Bad,
        Verdict::Same => Mark::Plain,
        Verdict::Unclear => Mark::Warn,
    };
    document(&top, &body)
}

fn charts(result: &ResultFile) -> Markup {
    let pairs = match result.experiment.design {
        Design::RandomPairs => "Large over base, pair by pair",
        Design::BeforeAfter => "Large over base, sample by sample (not pairs in time)",
    };
    html! {
        @if !result.pairs.is_empty() {
            h2 { (pairs) }
            (drawn(&ratios(result)))
            p { "The band is the interval, the line in it the estimate of Hodges and Lehmann; 1 is no difference." }
        }
        @if result.arms.iter().any(|a| !a.samples.is_empty()) {
            h2 { "Samples over time, " (result.experiment.unit) }
            (drawn(&samples(result)))
        }
    }
}

/// Pair by pair, and the effect as a band over all of them.
fn ratios(result: &ResultFile) -> Chart {
    let points = result
        .pairs
        .iter()
        .zip(1u32..)
        .map(|(pair, n)| point(f64::from(n), pair.ratio));
    let points: Vec<Point> = points.collect();
    let last = points.last().map_or(0.0, |p| p.x);
    let band = result.effect.as_ref().map(|e| Point {
        width: last,
        interval: Some((e.low, e.high)),
        ..point(0.5, e.ratio)
    });
    Chart {
        kind: ChartKind::Dots,
        x: axis("pair"),
        y: Axis {
            unit: Unit::Ratio,
            level: Some(1.0),
            ..Axis::default()
        },
        series: vec![
            series("a pair", points),
            series("estimate and interval", band.into_iter().collect()),
        ],
        ..Chart::default()
    }
}

fn samples(result: &ResultFile) -> Chart {
    let arm = |label: Arm, name: &str| {
        let of = result.arms.iter().filter(|arm| arm.label == label);
        let points = of.flat_map(|arm| arm.at_seconds.iter().zip(&arm.samples));
        series(name, points.map(|(at, value)| point(*at, *value)).collect())
    };
    Chart {
        kind: ChartKind::Dots,
        x: axis("seconds"),
        series: vec![arm(Arm::Base, "base pages"), arm(Arm::Large, "large pages")],
        ..Chart::default()
    }
}

fn axis(name: &str) -> Axis {
    Axis {
        name: name.to_owned(),
        ..Axis::default()
    }
}

fn point(x: f64, y: f64) -> Point {
    Point {
        x,
        y,
        ..Point::default()
    }
}

fn series(name: &str, points: Vec<Point>) -> Series {
    Series {
        name: name.to_owned(),
        points,
    }
}

fn caveats(result: &ResultFile) -> Markup {
    html! {
        (notes(&result.caveats))
        @if result.verdict == Verdict::Unclear {
            p { "Unclear is a result: with this noise and this many pairs nothing more can be \
                 said." }
        }
        @if !result.rejected.is_empty() {
            h2 { "Thrown away" }
            ul { @for r in &result.rejected {
                li { "at " (number(r.at_seconds)) " s: " (r.reason) }
            } }
        }
    }
}

fn settings(result: &ResultFile) -> Markup {
    let (s, e) = (&result.settings, &result.experiment);
    let rows = [
        ("when", e.started.clone()),
        ("interval", format!("{} s", number(s.interval_seconds))),
        (
            "discarded after a move",
            format!("{} s", number(s.settle_seconds)),
        ),
        (
            "ends at",
            format!(
                "±{} % or {} s",
                number(s.until * 100.0),
                number(s.for_seconds)
            ),
        ),
        ("counts as equal", format!("±{} %", number(s.equal * 100.0))),
        ("seed", s.seed.to_string()),
        ("hugeleaf", s.version.clone()),
    ];
    let rows = rows.map(|(name, value)| [name.to_owned(), value]);
    circumstances(&result.host, &s.knobs, &rows, &result.command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::needs_nothing;
    use crate::prove::example;

    #[test]
    fn one_page_that_needs_nothing_else() {
        let page = html(&example());
        for part in [
            "faster  ×1.12 [1.07, 1.17]  95 %  3 pairs",
            "Before you believe it",
            "hugeleaf promote redis-server",
            "6.18.0",
            "madvise",
            "--metric redis:localhost:6379",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        needs_nothing(&page);
    }

    #[test]
    fn what_a_server_says_stays_text() {
        let mut result = example();
        result.experiment.name = "<script>alert(1)</script>".into();
        let page = html(&result);
        assert!(!page.contains("<script>"));
        assert!(page.contains("coverage was &lt;high&gt;"));
    }

    #[test]
    fn an_empty_result_is_a_page_too() {
        let mut result = example();
        result.pairs.clear();
        result.effect = None;
        for arm in &mut result.arms {
            arm.samples.clear();
            arm.at_seconds.clear();
        }
        result.beside.clear();
        result.page_sizes = Default::default();
        let page = html(&result);
        assert_eq!(page.matches("<svg").count(), 0);
        assert!(!page.contains("could not be drawn"));
    }

    #[test]
    fn equal_and_odd_values_are_drawn() {
        let mut result = example();
        for pair in &mut result.pairs {
            pair.ratio = 1.0;
        }
        for arm in &mut result.arms {
            arm.samples.fill(5.0);
            arm.at_seconds.fill(1.0);
        }
        result.effect = None;
        assert!(!html(&result).contains("could not be drawn"));
        result.pairs[0].ratio = f64::NAN;
        result.pairs[1].ratio = f64::INFINITY;
        assert!(!html(&result).contains("NaN"));
    }
}
