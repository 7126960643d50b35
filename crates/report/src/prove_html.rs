//! A result as one page that needs nothing beside it: no network, no script, readable in light
//! and in dark.

use hugeleaf_proof::result::ResultFile;
use hugeleaf_proof::stats::Verdict;
use hugeleaf_proof::{Arm, Design};
use hugeleaf_units::Bytes;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::prove::{beside_rows, headline, how, meaning, next, number, page_size_rows, ratio};

const SIZE: (u32, u32) = (860, 320);
/// Drawn as `currentColor`, so that axes and words follow the page from light to dark.
pub(crate) const INK: RGBColor = RGBColor(1, 2, 3);
const INK_IN_SVG: &str = "#010203";
// Both are told apart from white and from black, and by people who do not see red or green; the
// shapes differ too.
const BASE: RGBColor = RGBColor(217, 119, 6);
const LARGE: RGBColor = RGBColor(59, 130, 246);

pub(crate) const STYLE: &str = "
:root { color-scheme: light dark; --line: #8885; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2rem auto; padding: 0 1rem;
  background: Canvas; color: CanvasText; }
h1 { font-size: 1.9rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.lead { font-size: 1.1rem; margin-top: .25rem; }
.faster { border-left: .5rem solid #16a34a; } .slower { border-left: .5rem solid #dc2626; }
.same { border-left: .5rem solid #6b7280; } .unclear { border-left: .5rem solid #d97706; }
header { padding-left: 1rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .9rem .2rem 0; text-align: right;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
td:first-child, th:first-child { text-align: left; }
svg { width: 100%; height: auto; } code, pre { background: var(--soft); padding: .1rem .3rem;
  overflow-wrap: anywhere; white-space: pre-wrap; }
";

/// The page.
pub fn html(result: &ResultFile) -> String {
    let title = format!("{}: {}", result.experiment.target, headline(result));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header class=(result.verdict) {
                    h1 { (headline(result)) }
                    p.lead { (meaning(result)) }
                }
                p { (how(result)) "." }
                @if let Some(next) = next(result) { p { "Next: " code { (next) } } }
                (charts(result))
                h2 { "What else moved" }
                (table(&["", "base", "large"], &beside_rows(result)))
                h2 { "Memory by page size" }
                (table(&["pages of", "before", "base", "large", "after"], &page_size_rows(result)))
                (caveats(result))
                (circumstances(result))
            }
        }
    }
    .into_string()
}

pub(crate) fn table<const N: usize>(head: &[&str], rows: &[[String; N]]) -> Markup {
    html! {
        table {
            thead { tr { @for h in head { th { (h) } } } }
            tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
        }
    }
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
            p { "A dot is a pair. The band is the interval, the line in it the estimate; \
                 1 is no difference." }
        }
        @if result.arms.iter().any(|a| !a.samples.is_empty()) {
            h2 { "Samples over time, " (result.experiment.unit) }
            (drawn(samples(result)))
            p { "Circles: base pages. Triangles: large pages." }
        }
    }
}

/// A chart that cannot be drawn says so instead of spoiling the page.
pub(crate) fn drawn(chart: Result<String, String>) -> Markup {
    match chart {
        Ok(svg) => html! { (PreEscaped(svg.replace(INK_IN_SVG, "currentColor"))) },
        Err(e) => html! { p { "This chart could not be drawn: " (e) } },
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

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn ratios(result: &ResultFile) -> Result<String, String> {
    draw(|area| {
        let effect = result.effect.as_ref();
        let ends = effect.into_iter().flat_map(|e| [e.low, e.high]);
        let dots = result.pairs.iter().map(|p| p.ratio);
        let y = span(dots.chain(ends).chain([1.0])).ok_or("no pairs")?;
        #[allow(clippy::cast_precision_loss)]
        let last = result.pairs.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..last + 1.0, y)
            .map_err(|e| e.to_string())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .axis_style(INK)
            .label_style(("sans-serif", 13).into_font().color(&INK))
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
    draw(|area| {
        let all = || result.arms.iter();
        let y = span(all().flat_map(|a| a.samples.iter().copied())).ok_or("no samples")?;
        let x = span(all().flat_map(|a| a.at_seconds.iter().copied())).ok_or("no samples")?;
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(72)
            .build_cartesian_2d(x, y)
            .map_err(|e| e.to_string())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .axis_style(INK)
            .label_style(("sans-serif", 13).into_font().color(&INK))
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

pub(crate) fn draw(chart: impl FnOnce(&Area<'_>) -> Result<(), String>) -> Result<String, String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        chart(&area)?;
        area.present().map_err(|e| e.to_string())?;
    }
    Ok(svg)
}

fn caveats(result: &ResultFile) -> Markup {
    html! {
        @if !result.caveats.is_empty() {
            h2 { "Before you believe it" }
            ul { @for c in &result.caveats { li { (c) } } }
        }
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

fn circumstances(result: &ResultFile) -> Markup {
    let (h, s, e) = (&result.host, &result.settings, &result.experiment);
    let unknown = || "?".to_owned();
    let bytes = |b: Option<u64>| b.map_or_else(unknown, |b| Bytes(b).to_string());
    let mut rows = vec![
        ["when".to_owned(), e.started.clone()],
        [
            "kernel".to_owned(),
            h.kernel.clone().unwrap_or_else(unknown),
        ],
        [
            "architecture".to_owned(),
            h.arch.clone().unwrap_or_else(unknown),
        ],
        [
            "processor".to_owned(),
            h.processor.clone().unwrap_or_else(unknown),
        ],
        ["processors".to_owned(), h.cpus.to_string()],
        [
            "virtual".to_owned(),
            h.is_virtual.map_or_else(unknown, |v| v.to_string()),
        ],
        ["nodes".to_owned(), h.nodes.to_string()],
        ["memory".to_owned(), bytes(h.memory_bytes)],
        ["base page".to_owned(), bytes(Some(h.base_page_bytes))],
        ["large page".to_owned(), bytes(h.large_page_bytes)],
        [
            "interval".to_owned(),
            format!("{} s", number(s.interval_seconds)),
        ],
        [
            "discarded after a move".to_owned(),
            format!("{} s", number(s.settle_seconds)),
        ],
        [
            "ends at".to_owned(),
            format!(
                "±{} % or {} s",
                number(s.until * 100.0),
                number(s.for_seconds)
            ),
        ],
        [
            "counts as equal".to_owned(),
            format!("±{} %", number(s.equal * 100.0)),
        ],
        ["seed".to_owned(), s.seed.to_string()],
        ["hugeleaf".to_owned(), s.version.clone()],
    ];
    rows.extend(s.knobs.iter().map(|k| [k.name.clone(), k.value.clone()]));
    html! {
        h2 { "Host, settings, command" }
        (table(&["", ""], &rows))
        @if !result.command.is_empty() { pre { (result.command.join(" ")) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::example;

    #[test]
    fn one_page_that_needs_nothing_else() {
        let page = html(&example());
        assert!(page.starts_with("<!DOCTYPE html>"));
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
        // Nothing is loaded from anywhere; the name space of SVG is a name, not an address.
        let rest = page.replace("http://www.w3.org/2000/svg", "");
        for sign in [
            "http://", "https://", "src=", "href=", "@import", "url(", "<script",
        ] {
            assert!(!rest.contains(sign), "{sign}");
        }
        // Axes and words follow the page's colour.
        assert!(page.contains("currentColor") && !page.contains(INK_IN_SVG));
        assert!(page.contains("color-scheme: light dark"));
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
