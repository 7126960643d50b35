//! Elements common to all kinds of charts: colours, text, lines, surfaces and the range of an axis.

use hugeleaf_units::{Bytes, time::measured};
use maud::{Markup, PreEscaped, html};

use crate::document::{Axis, AxisScale, AxisUnit, Chart, ChartKind, number};
use crate::terminal_escape::clean;

/// The style sheet. Colours contrast with white, black and each other, also for readers with red-green colour
/// blindness (after Okabe and Ito). Elements are drawn in `currentColor`, which a group's class sets.
pub(crate) const STYLE: &str = "
.chart{color:#1f2328;font:13px system-ui,sans-serif;width:100%;height:auto}
.chart .c0{color:#c2610c}.chart .c1{color:#2563eb}.chart .c2{color:#00805d}
.chart .c3{color:#b0478a}.chart .c4{color:#6b7280}.chart .c5{color:#9f2d12}
@media(prefers-color-scheme:dark){.chart{color:#e6edf3}
.chart .c0{color:#f0a52e}.chart .c1{color:#6ea8fe}.chart .c2{color:#34c99a}
.chart .c3{color:#eea0d2}.chart .c4{color:#a3abb8}.chart .c5{color:#ff8a66}}
";
pub(super) const COLOURS: usize = 6;

/// Width of a drawing in its own pixels; a page scales it to its own width. In a wider drawing, text would be
/// unreadable on a narrow screen.
pub(super) const WIDTH: f64 = 720.0;
/// Width of a character and height of a line of text, in pixels.
pub(super) const CHARACTER: f64 = 7.6;
pub(super) const LINE: f64 = 18.0;

pub(super) fn whole(chart: &Chart, height: f64, body: &Markup) -> Markup {
    html! {
        svg.chart xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {}", px(height)))
            role="img" aria-label=(clean(&chart.title)) {
            style { (PreEscaped(STYLE)) }
            (body)
        }
    }
}

/// Formats a position in pixels. The position is finite.
pub(super) fn px(at: f64) -> String {
    format!("{}", (at * 10.0).round() / 10.0)
}

pub(super) fn colour(series: usize) -> String {
    format!("c{}", series % COLOURS)
}

/// Draws text at a position; `anchor` is `start`, `middle` or `end`.
pub(super) fn words(text: &str, (x, y): (f64, f64), anchor: &str) -> Markup {
    html! {
        text x=(px(x)) y=(px(y)) text-anchor=(anchor) dy="0.35em" fill="currentColor" {
            (clean(text))
        }
    }
}

/// Draws a straight line; `opacity` is from 0 to 1.
pub(super) fn line(from: (f64, f64), to: (f64, f64), width: f64, opacity: f64) -> Markup {
    html! {
        line x1=(px(from.0)) y1=(px(from.1)) x2=(px(to.0)) y2=(px(to.1)) stroke="currentColor"
            stroke-width=(width) stroke-opacity=(opacity) {}
    }
}

/// Draws a surface between two corners. A doubtful one is hollow.
pub(super) fn rectangle(from: (f64, f64), to: (f64, f64), opacity: f64) -> Markup {
    let (x, y) = (from.0.min(to.0), from.1.min(to.1));
    html! {
        rect x=(px(x)) y=(px(y)) width=(px((to.0 - from.0).abs())) height=(px((to.1 - from.1).abs()))
            fill="currentColor" fill-opacity=(opacity) {}
    }
}

pub(super) fn room(texts: impl IntoIterator<Item = impl AsRef<str>>) -> f64 {
    let longest = texts.into_iter().map(|t| t.as_ref().chars().count()).max();
    let longest = longest.unwrap_or(0) as f64;
    longest * CHARACTER
}

/// Draws the legend: a sample and a name for each series. `None` if there is only one series or each has its name
/// elsewhere.
pub(super) fn legend(
    chart: &Chart,
    y: f64,
    sample: impl Fn(usize, (f64, f64)) -> Markup,
) -> Option<Markup> {
    let named = chart.series.iter().enumerate();
    let named: Vec<_> = named
        .filter(|(_, s)| !s.points.is_empty() && !s.name.is_empty())
        .collect();
    // A stacked part is named even if it is the only one.
    if named.is_empty() || (named.len() < 2 && chart.kind != ChartKind::Stacks) {
        return None;
    }
    let mut x = 12.0;
    Some(html! {
        @for (number, series) in named {
            @let at = x;
            g class=(colour(number)) { (sample(number, (at, y))) }
            (words(&series.name, (at + 12.0, y), "start"))
            @let () = x += room([&series.name]) + 34.0;
        }
    })
}

/// The range of an axis from lowest to highest, in axis units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AxisRange {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) scale: AxisScale,
}

impl AxisRange {
    /// Returns the range of the values that fit the axis, with its level and its end. `None` without values.
    pub(super) fn tight(values: impl Iterator<Item = f64>, axis: &Axis) -> Option<AxisRange> {
        let on = AxisRange {
            from: f64::INFINITY,
            to: f64::NEG_INFINITY,
            scale: axis.scale,
        };
        let place = |value: f64| on.place(value);
        let hold = |span: AxisRange, place: f64| AxisRange {
            from: span.from.min(place),
            to: span.to.max(place),
            ..span
        };
        let span = values.filter_map(place).fold(on, hold);
        if span.from > span.to {
            return None;
        }
        let (level, end) = (axis.level.and_then(place), axis.end.and_then(place));
        Some(level.into_iter().chain(end).fold(span, hold))
    }

    /// Returns the range with a margin at both ends.
    pub(super) fn padded(values: impl Iterator<Item = f64>, axis: &Axis) -> Option<AxisRange> {
        let mut span = AxisRange::tight(values, axis)?;
        let least = match axis.scale {
            AxisScale::Linear => (span.to.abs() * 1e-3).max(1e-9),
            AxisScale::Binary | AxisScale::Decimal => 0.1,
        };
        let room = ((span.to - span.from) * 0.05).max(least);
        let end = axis.end.and_then(|v| span.place(v));
        // An axis from level 0 begins at 0, and an axis with a fixed end stops there, both without a margin.
        if (axis.level, span.from) != (Some(0.0), 0.0) {
            span.from -= room;
        }
        if end != Some(span.to) {
            span.to += room;
        }
        Some(span)
    }

    /// Returns the position of a value in units of the axis. `None` if a logarithm does not exist.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            AxisScale::Linear => value,
            AxisScale::Binary | AxisScale::Decimal if value > 0.0 => value.log2(),
            AxisScale::Binary | AxisScale::Decimal => return None,
        };
        place.is_finite().then_some(place)
    }

    /// Returns the position of a value, from 0 at the beginning to 1 at the end of the axis.
    pub(super) fn part(&self, value: f64) -> Option<f64> {
        Some((self.place(value)? - self.from) / (self.to - self.from))
    }

    /// Returns at most `most` values to mark, each with its label.
    pub(super) fn marks(&self, axis: &Axis, most: usize) -> Vec<(f64, String)> {
        let is_part = |part: f64| (-1e-9..=1.0 + 1e-9).contains(&part);
        let inside = |v: &f64| self.part(*v).is_some_and(is_part);
        let steps = axis.steps.iter().filter(|(v, _)| inside(v));
        let steps: Vec<_> = steps.cloned().collect();
        if (1..=most).contains(&steps.len()) {
            return steps;
        }
        let (values, step) = match self.scale {
            AxisScale::Linear => self.round(most, axis.unit),
            AxisScale::Binary => (self.powers(most), None),
            AxisScale::Decimal => (self.decimals(most), None),
        };
        let values = values.into_iter().filter(inside);
        values.map(|v| (v, label(v, step, axis.unit))).collect()
    }

    /// Returns multiples of a round step, and the step. Steps of bytes are powers of two.
    #[allow(clippy::cast_possible_truncation)]
    fn round(&self, most: usize, unit: AxisUnit) -> (Vec<f64>, Option<f64>) {
        /// Maximum number of steps that are counted exactly; smaller steps would give far too many marks.
        const COUNTED: f64 = 1e15;
        let steps: Vec<f64> = match unit {
            AxisUnit::Bytes => (0..60).map(|n| 2f64.powi(n)).collect(),
            _ => (-12..16)
                .flat_map(|n| [1.0, 2.0, 5.0].map(|v| v * 10f64.powi(n)))
                .collect(),
        };
        let largest = self.from.abs().max(self.to.abs());
        let steps = steps.into_iter().filter(|step| largest / step < COUNTED);
        let values = |step: f64| -> Vec<f64> {
            let first = (self.from / step - 1e-9).ceil() as i64;
            let all = (first..).map(|n| n as f64 * step).take(most + 1);
            all.take_while(|v| *v <= self.to + step * 1e-9).collect()
        };
        for step in steps {
            let values = values(step);
            if values.len() <= most {
                return (values, Some(step));
            }
        }
        (Vec::new(), None)
    }

    #[allow(clippy::cast_possible_truncation)]
    fn powers(&self, most: usize) -> Vec<f64> {
        let (first, last) = (self.from.ceil() as i32, self.to.floor() as i32);
        let each = |step: &i32| (first..=last).filter(|n| n.rem_euclid(*step) == 0).count();
        let step = (1..1024).find(|step| each(step) <= most).unwrap_or(1024);
        let all = (first..=last).filter(|n| n.rem_euclid(step) == 0);
        all.map(|n| 2f64.powi(n)).collect()
    }

    /// Returns 1, 2, 5, 10 and so on, as dense as `most` allows.
    fn decimals(&self, most: usize) -> Vec<f64> {
        let inside = |v: &f64| (self.from..=self.to).contains(&v.log2());
        let all = |of: &[f64]| -> Vec<f64> {
            let all = (-12..16).flat_map(|n| of.iter().map(move |v| v * 10f64.powi(n)));
            all.filter(inside).collect()
        };
        let kinds = [
            &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0][..],
            &[1.0, 2.0, 5.0],
            &[1.0],
        ];
        let mut kinds = kinds.into_iter().map(all);
        kinds.find(|v| v.len() <= most).unwrap_or_default()
    }
}

/// Returns the label of a mark; `step` is the distance between marks if it is constant.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn label(value: f64, step: Option<f64>, unit: AxisUnit) -> String {
    // Labels have the decimals of the step, so that no two marks read the same.
    let digits = |factor: f64| {
        let step = step.map_or(1.0, |step| step * factor);
        (-(step * 1.0001).log10().floor()).clamp(0.0, 12.0) as usize
    };
    let even = |value: f64| match step {
        Some(_) if digits(1.0) > 0 => format!("{value:.*}", digits(1.0)),
        _ => number(value),
    };
    match unit {
        AxisUnit::Number => even(value),
        AxisUnit::Bytes => Bytes(value.round().max(0.0) as u64).to_string(),
        AxisUnit::Percent if step.is_some() => format!("{:.*} %", digits(100.0), value * 100.0),
        AxisUnit::Percent => format!("{} %", number(value * 100.0)),
        AxisUnit::Ratio => format!("×{}", even(value)),
        AxisUnit::Seconds if value == 0.0 => "0 s".to_owned(),
        AxisUnit::Seconds => {
            let text = measured(value);
            match text.split_once(' ') {
                Some((number, unit)) if number.contains('.') => {
                    let number = number.trim_end_matches('0').trim_end_matches('.');
                    format!("{number} {unit}")
                }
                _ => text,
            }
        }
    }
}
