//! Horizontal bars, one below the other. The bars of a step are adjacent or stacked end to end.

use maud::{Markup, html};

use super::primitives::{
    AxisRange, LINE, WIDTH, colour, legend, line, px, rectangle, room, whole, words,
};
use crate::document::{Axis, AxisScale, AxisUnit, Chart, ChartKind, Point};
use crate::terminal_escape::cut;

const BAR: f64 = 15.0;
/// Gap between two bars of a step, and around a step, in pixels.
const GAP: f64 = 3.0;
const SAMPLES: f64 = 10.0;
const LABEL_CHARACTERS: usize = 40;
const NOTE_CHARACTERS: usize = 34;
const MARKS: usize = 9;

/// The points of a step, each with the index of its series.
struct BarGroup<'a> {
    name: &'a str,
    points: Vec<(usize, &'a Point)>,
}

/// The horizontal extent of bars in pixels, and the values it covers.
struct BarExtent {
    left: f64,
    right: f64,
    span: AxisRange,
    /// Value at which bars begin: 0, or 1 for ratios, which have no 0.
    from: f64,
}

impl BarExtent {
    /// Clamps values beyond the axis to its ends.
    fn at(&self, value: f64) -> Option<f64> {
        let part = self.span.part(value)?.clamp(0.0, 1.0);
        Some(self.left + part * (self.right - self.left))
    }
}

pub(super) fn draw(chart: &Chart) -> Option<Markup> {
    let steps = steps(chart);
    let stacks = chart.kind == ChartKind::Stacks;
    let from = if chart.y.unit == AxisUnit::Ratio {
        1.0
    } else {
        0.0
    };
    // A linear axis keeps bar lengths proportional to values; levels and marks stay as they are.
    let axis = Axis {
        scale: AxisScale::Linear,
        level: Some(chart.y.level.unwrap_or(from)),
        ..chart.y.clone()
    };
    let reach = steps.iter().flat_map(|step| reach(step, stacks));
    let mut reach = reach.filter(|v| v.is_finite()).peekable();
    reach.peek()?;
    let reach = reach.chain([from]).chain(chart.y.level);
    let from_level = Axis {
        level: Some(from),
        ..axis.clone()
    };
    let labels = steps.iter().map(|s| cut(s.name, LABEL_CHARACTERS));
    let points = steps.iter().flat_map(|s| &s.points);
    let notes = points.map(|(_, p)| cut(&p.note, NOTE_CHARACTERS));
    let frame = BarExtent {
        left: room(labels) + 16.0,
        right: WIDTH - room(notes) - 24.0,
        span: AxisRange::padded(reach, &from_level)?,
        from,
    };
    let headings = headings(chart, &steps);
    let legend = legend(chart, 10.0, |_, (x, y)| {
        rectangle((x - 6.0, y - 6.0), (x + 6.0, y + 6.0), 0.85)
    });
    let legend = legend.filter(|_| headings.is_empty());
    let top = if legend.is_some() { LINE + 8.0 } else { 4.0 };
    let heights = steps.iter().map(|s| height(s, stacks)).sum::<f64>();
    let bottom = top + heights + room_for(headings.len());
    let has_axis = !chart.y.name.is_empty();
    let mut y = top;
    let body = html! {
        @if let Some(legend) = legend { (legend) }
        @if has_axis { (axis_below(&axis, &frame, (top, bottom))) }
        @if let Some(x) = frame.at(chart.y.level.unwrap_or(from)) { (line((x, top), (x, bottom), 1.0, 0.7)) }
        @for (place, step) in steps.iter().enumerate() {
            @if let Some((_, title)) = headings.iter().find(|(first, _)| *first == place) {
                (words(title, (4.0, y + LINE / 2.0 + 3.0), "start"))
                @let () = y += room_for(1);
            }
            (draw_step(step, &frame, y, stacks))
            @let () = y += height(step, stacks);
        }
    };
    Some(whole(
        chart,
        bottom + if has_axis { 44.0 } else { 6.0 },
        &body,
    ))
}

/// Returns the steps in axis order; values without a name follow those with one.
fn steps(chart: &Chart) -> Vec<BarGroup<'_>> {
    let at = |value: f64| {
        let each = chart.series.iter().enumerate();
        each.flat_map(|(n, s)| s.points.iter().map(move |p| (n, p)))
            .filter(move |(_, p)| p.x == value)
            .collect::<Vec<_>>()
    };
    let steps = chart.x.steps.iter().map(|(value, name)| BarGroup {
        name,
        points: at(*value),
    });
    steps.filter(|step| !step.points.is_empty()).collect()
}

/// Returns the headings of series that have steps of their own: the index of their first step, and the name of
/// the series.
fn headings<'a>(chart: &'a Chart, steps: &[BarGroup<'_>]) -> Vec<(usize, &'a str)> {
    let own = |step: &BarGroup<'_>| match step.points[..] {
        [(series, _)] => Some(series),
        _ => None,
    };
    let Some(own) = steps.iter().map(own).collect::<Option<Vec<usize>>>() else {
        return Vec::new();
    };
    let is_whole = own.is_sorted() && chart.kind == ChartKind::Bars && own.first() != own.last();
    (0..own.len())
        .filter(|at| is_whole && (*at == 0 || own[*at] != own[at - 1]))
        .map(|at| (at, chart.series[own[at]].name.as_str()))
        .collect()
}

fn room_for(headings: usize) -> f64 {
    f64::from(u32::try_from(headings).unwrap_or(0)) * (LINE + 6.0)
}

fn value(point: &Point) -> f64 {
    if point.y.is_finite() { point.y } else { 0.0 }
}

fn reach(step: &BarGroup<'_>, stacks: bool) -> Vec<f64> {
    if stacks {
        return vec![step.points.iter().map(|(_, p)| value(p).max(0.0)).sum()];
    }
    step.points.iter().flat_map(|(_, p)| p.values()).collect()
}

fn height(step: &BarGroup<'_>, stacks: bool) -> f64 {
    if stacks {
        return BAR + 2.0 * GAP;
    }
    let each = step.points.iter().map(|(_, p)| bar_height(p));
    each.sum::<f64>() + 2.0 * GAP
}

fn bar_height(point: &Point) -> f64 {
    match point.samples.is_empty() {
        true => BAR + GAP,
        false => BAR + GAP + SAMPLES,
    }
}

/// Draws vertical lines at round values, with labels and the axis name below.
fn axis_below(axis: &Axis, frame: &BarExtent, (top, bottom): (f64, f64)) -> Markup {
    html! {
        @for (value, text) in frame.span.marks(axis, MARKS) {
            @if let Some(x) = frame.at(value) {
                (line((x, top), (x, bottom), 1.0, 0.15))
                (words(&text, (x, bottom + 12.0), "middle"))
            }
        }
        (words(&axis.name, (f64::midpoint(frame.left, frame.right), bottom + 32.0), "middle"))
    }
}

fn draw_step(step: &BarGroup<'_>, frame: &BarExtent, y: f64, stacks: bool) -> Markup {
    let label = cut(step.name, LABEL_CHARACTERS);
    let mut top = y + GAP;
    let mut sum = 0.0;
    html! {
        (words(&label, (frame.left - 8.0, top + BAR / 2.0), "end"))
        @for (place, (number, point)) in step.points.iter().enumerate() {
            g class=(colour(*number)) {
                @if stacks {
                    (part(frame, sum, sum + value(point).max(0.0), top))
                } @else {
                    (bar(frame, point, top))
                }
            }
            @let () = sum += value(point).max(0.0);
            @let is_last = place + 1 == step.points.len();
            @let ends = if stacks { Some(sum) } else { reach_of(point) };
            @if is_last || !stacks {
                @let x = ends.and_then(|v| frame.at(v)).unwrap_or(frame.left);
                (words(&cut(&point.note, NOTE_CHARACTERS), (x + 8.0, top + BAR / 2.0), "start"))
            }
            @if !stacks { @let () = top += bar_height(point); }
        }
    }
}

fn reach_of(point: &Point) -> Option<f64> {
    point.values().filter(|v| v.is_finite()).reduce(f64::max)
}

fn part(frame: &BarExtent, from: f64, to: f64, y: f64) -> Markup {
    html! {
        @if let (Some(from), Some(to)) = (frame.at(from), frame.at(to)) && to > from {
            (rectangle((from, y), (to, y + BAR), 0.85))
        }
    }
}

/// Draws a bar with its interval, and its samples below. A doubtful bar is hollow. A ratio is a thin line with
/// a dot at its end, because the end matters more than the length from 1.
fn bar(frame: &BarExtent, point: &Point, y: f64) -> Markup {
    let middle = y + BAR / 2.0;
    let Some(at) = Some(point.y)
        .filter(|v| v.is_finite())
        .and_then(|v| frame.at(v))
    else {
        return html! {};
    };
    let from = frame.at(frame.from).unwrap_or(frame.left);
    let ends = point
        .interval
        .filter(|(low, high)| low.is_finite() && high.is_finite());
    let ends = ends.and_then(|(low, high)| Some([frame.at(low)?, frame.at(high)?]));
    let samples = point.samples.iter().filter(|v| v.is_finite());
    html! {
        @if frame.from > 0.0 {
            (line((from, middle), (at, middle), 1.5, 0.5))
            (super::xy::mark(0, (at, middle), point.doubtful))
        } @else {
            rect x=(px(from.min(at))) y=(px(y)) width=(px((at - from).abs())) height=(px(BAR))
                fill=(if point.doubtful { "none" } else { "currentColor" }) fill-opacity="0.45"
                stroke="currentColor" {}
        }
        @if let Some([low, high]) = ends {
            (line((low, middle), (high, middle), 2.0, 1.0))
            @for x in [low, high] { (line((x, middle - 5.0), (x, middle + 5.0), 2.0, 1.0)) }
        }
        @for x in samples.filter_map(|v| frame.at(*v)) {
            circle cx=(px(x)) cy=(px(y + BAR + SAMPLES / 2.0 + 1.0)) r="2" fill="currentColor" fill-opacity="0.8" {}
        }
    }
}
