//! A result as one page that needs nothing beside it: no network, no script, readable in light
//! and in dark.

use hugeleaf_proof::result::ResultFile;
use hugeleaf_proof::stats::Verdict;
use hugeleaf_proof::{Arm, Design};
use maud::{Markup, html};
use plotters::prelude::*;

use crate::page::{Top, circumstances, notes, page, table};
use crate::prove::{
    beside_rows, beside_the_effect, headline, how, meaning, next, number, page_size_rows, ratio,
};
use crate::svg::{FONT, INK, SIZE, draw, drawn};

// Both are told apart from white and from black, and by people who do not see red or green; the
// shapes differ too.
const BASE: RGBColor = RGBColor(217, 119, 6);
const LARGE: RGBColor = RGBColor(59, 130, 246);

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
    let top = Top {
        title: &title,
        class: &result.verdict.to_string(),
        headline: &headline(result),
        lead: &meaning(result),
        style: "",
    };
    page(&top, &body)
}

fn charts(result: &ResultFile) -> Markup {
    let pairs = match result.experiment.design {
        Design::RandomPairs => "Large over base, pair by pair",
        Design::BeforeAfter => "Large over base, sample by sample (not pairs in time)",
    };
    html! {
        @if !result.pairs.is_empty() {
            h2 { (pairs) }
            (drawn(ratios(result)))
            p { "A dot is a pair. The band is the interval, the line in it the estimate of Hodges \
                 and Lehmann; 1 is no difference." }
        }
        @if result.arms.iter().any(|a| !a.samples.is_empty()) {
            h2 { "Samples over time, " (result.experiment.unit) }
            (drawn(samples(result)))
            p { "Circles: base pages. Triangles: large pages." }
        }
    }
}

/// From lowest to highest of the values, with room around; `None` of nothing finite.
fn span(values: impl Iterator<Item = f64>) -> Option<std::ops::Range<f64>> {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for v in values.filter(|v| v.is_finite()) {
        (low, high) = (low.min(v), high.max(v));
    }
    let room = ((high - low) * 0.08)
        .max(high.abs() * 1e-6)
        .max(f64::MIN_POSITIVE);
    (low <= high).then_some(low - room..high + room)
}

fn ratios(result: &ResultFile) -> Result<String, String> {
    draw(SIZE, |area| {
        let effect = result.effect.as_ref();
        let ends = effect.into_iter().flat_map(|e| [e.low, e.high]);
        let dots = result.pairs.iter().map(|p| p.ratio);
        let y = span(dots.chain(ends).chain([1.0])).ok_or("no pairs")?;
        #[allow(clippy::cast_precision_loss)]
        let last = result.pairs.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(44)
            .y_label_area_size(68)
            .build_cartesian_2d(0.0..last + 1.0, y)
            .map_err(|e| e.to_string())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .axis_style(INK)
            .label_style(("sans-serif", FONT).into_font().color(&INK))
            .x_desc("pair")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("×{}", ratio(*y)))
            .draw()
            .map_err(|e| e.to_string())?;
        let wide = |y: f64| [(0.0, y), (last + 1.0, y)];
        let mut add = Vec::new();
        if let Some(e) = effect {
            let corners = [(0.0, e.low), (last + 1.0, e.high)];
            chart
                .draw_series([Rectangle::new(corners, LARGE.mix(0.2).filled())])
                .map_err(|e| e.to_string())?;
            add.push((e.ratio, LARGE.stroke_width(2)));
        }
        add.push((1.0, INK.stroke_width(1)));
        for (y, style) in add {
            chart
                .draw_series(LineSeries::new(wide(y), style))
                .map_err(|e| e.to_string())?;
        }
        #[allow(clippy::cast_precision_loss)]
        let dots = (result.pairs.iter().enumerate())
            .map(|(i, p)| Circle::new((i as f64 + 1.0, p.ratio), 4, INK.filled()));
        chart.draw_series(dots).map_err(|e| e.to_string())?;
        Ok(())
    })
}

fn samples(result: &ResultFile) -> Result<String, String> {
    draw(SIZE, |area| {
        let all = || result.arms.iter();
        let y = span(all().flat_map(|a| a.samples.iter().copied())).ok_or("no samples")?;
        let x = span(all().flat_map(|a| a.at_seconds.iter().copied())).ok_or("no samples")?;
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(x, y)
            .map_err(|e| e.to_string())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .axis_style(INK)
            .label_style(("sans-serif", FONT).into_font().color(&INK))
            .x_desc("seconds")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| number(*y))
            .draw()
            .map_err(|e| e.to_string())?;
        for arm in all() {
            let points = || {
                arm.at_seconds
                    .iter()
                    .copied()
                    .zip(arm.samples.iter().copied())
            };
            let drawn = match arm.label {
                Arm::Base => chart
                    .draw_series(points().map(|p| Circle::new(p, 4, BASE.filled())))
                    .map(|_| ()),
                Arm::Large => chart
                    .draw_series(points().map(|p| TriangleMarker::new(p, 6, LARGE.filled())))
                    .map(|_| ()),
            };
            drawn.map_err(|e| e.to_string())?;
        }
        Ok(())
    })
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
        assert!(!page.contains(crate::svg::INK_IN_SVG));
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
