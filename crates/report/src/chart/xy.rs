//! Charts over two axes: curves, dots and layers.

use maud::{Markup, html};

use super::primitives::{
    AxisRange, LINE, WIDTH, colour, label, legend, line, px, rectangle, room, whole, words,
};
use crate::document::{Axis, AxisScale, Chart, ChartKind, Point, Series};

const HEIGHT: f64 = 320.0;
/// Height of charts of layers, which stand below each other for comparison.
const LAYERS_HEIGHT: f64 = 220.0;
/// Distance between the names of curves.
const NAME: f64 = LINE - 2.0;
/// Maximum number of readable marks on an axis.
const MARKS: usize = 10;

struct PlotArea {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: AxisRange,
    y: AxisRange,
}

impl PlotArea {
    fn x(&self, value: f64) -> Option<f64> {
        Some(self.left + self.x.part(value)? * (self.right - self.left))
    }

    /// Clamps values beyond the axis to its ends.
    fn y(&self, value: f64) -> Option<f64> {
        let part = self.y.part(value)?.clamp(0.0, 1.0);
        Some(self.bottom - part * (self.bottom - self.top))
    }

    /// Returns a value beyond the axis as text, with its direction.
    fn value_beyond(&self, axis: &Axis, value: f64) -> Option<String> {
        let part = self.y.part(value)?;
        let arrow = if part > 1.0 {
            '↑'
        } else if part < 0.0 {
            '↓'
        } else {
            return None;
        };
        Some(format!("{} {arrow}", label(value, None, axis.unit)))
    }
}

pub(super) fn draw(chart: &Chart) -> Option<Markup> {
    let points = || chart.series.iter().flat_map(|s| &s.points);
    let drawn = points().filter(|p| is_drawn(chart, p));
    let x = AxisRange::padded(drawn.flat_map(|p| [p.x, p.x + p.width]), &chart.x)?;
    let y = AxisRange::padded(heights(chart).into_iter(), &chart.y)?;
    let marks = y.marks(&chart.y, MARKS);
    let has_legend = chart.kind != ChartKind::Curves;
    let legend = legend(chart, 12.0, |number, at| sample(chart, number, at)).filter(|_| has_legend);
    let names = chart.series.iter().map(|s| &s.name);
    let height = match chart.kind {
        ChartKind::Layers => LAYERS_HEIGHT,
        // The names of many curves need a higher chart.
        ChartKind::Curves => HEIGHT.max(count(chart) * NAME + 60.0),
        _ => HEIGHT,
    };
    let plane = PlotArea {
        left: room(marks.iter().map(|(_, text)| text)) + 36.0,
        right: WIDTH - if has_legend { 14.0 } else { room(names) + 30.0 },
        top: if legend.is_some() { LINE + 10.0 } else { 10.0 },
        bottom: height - 46.0,
        x: edges(chart, x),
        y,
    };
    let body = html! {
        @if let Some(legend) = legend { (legend) }
        (axes(chart, &plane, &marks))
        @match chart.kind {
            ChartKind::Layers => (layers(chart, &plane)),
            _ => @for (number, series) in chart.series.iter().enumerate() {
                g class=(colour(number)) { (one(chart, &plane, number, series)) }
            }
        }
        @if chart.kind == ChartKind::Curves { (curve_names(chart, &plane)) }
    };
    Some(whole(chart, height, &body))
}

fn is_drawn(chart: &Chart, point: &Point) -> bool {
    let can = |value: f64, axis: &Axis| {
        value.is_finite() && (axis.scale == AxisScale::Linear || value > 0.0)
    };
    can(point.x, &chart.x) && can(point.y, &chart.y)
}

fn heights(chart: &Chart) -> Vec<f64> {
    if chart.kind == ChartKind::Layers {
        let sums = stacked(chart).into_iter().flat_map(|(_, _, to)| to);
        return sums.chain([0.0]).collect();
    }
    let points = chart.series.iter().flat_map(|s| &s.points);
    let drawn = points.filter(|p| is_drawn(chart, p));
    let values = drawn.flat_map(Point::values).collect();
    match chart.kind {
        ChartKind::Dots => without_outliers(values),
        _ => values,
    }
}

/// Removes values far outside the middle three quarters, so that one outlier does not flatten all other dots.
/// [`one`] draws it at the edge, with its value.
fn without_outliers(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    let eighth = values.len() / 8;
    if let (Some(&low), Some(&high)) = (values.get(eighth), values.iter().nth_back(eighth)) {
        let reach = 3.0 * (high - low);
        values.retain(|v| reach == 0.0 || (low - reach..=high + reach).contains(v));
    }
    values
}

/// Extends layers to the edges of the plane; points keep their margin.
fn edges(chart: &Chart, mut x: AxisRange) -> AxisRange {
    if chart.kind == ChartKind::Layers {
        let ends = chart.series.iter().flat_map(|s| &s.points);
        let (from, to) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), p| {
            (from.min(p.x), to.max(p.x + p.width))
        });
        (x.from, x.to) = (
            from,
            chart.x.end.map_or(to, |end| to.max(end)).max(from + 1e-9),
        );
    }
    x
}

fn axes(chart: &Chart, plane: &PlotArea, marks: &[(f64, String)]) -> Markup {
    let (left, right, top, bottom) = (plane.left, plane.right, plane.top, plane.bottom);
    let middle = f64::midpoint(top, bottom);
    // Long labels need more room, so fewer marks fit.
    let mut below = plane.x.marks(&chart.x, MARKS);
    let fit = (right - left) / (room(below.iter().map(|(_, text)| text)) + 14.0);
    #[allow(clippy::cast_possible_truncation)]
    let most = fit.max(2.0) as usize;
    if below.len() > most && chart.x.steps.is_empty() {
        below = plane.x.marks(&chart.x, most);
    }
    html! {
        @for (value, text) in marks {
            @if let Some(y) = plane.y(*value) {
                (line((left, y), (right, y), 1.0, 0.15))
                (words(text, (left - 8.0, y), "end"))
            }
        }
        @for (value, text) in &below {
            @if let Some(x) = plane.x(*value) {
                (line((x, bottom), (x, bottom + 4.0), 1.0, 1.0))
                (words(text, (x, bottom + 14.0), "middle"))
            }
        }
        (line((left, top), (left, bottom), 1.0, 1.0))
        (line((left, bottom), (right, bottom), 1.0, 1.0))
        @if let Some(y) = chart.y.level.and_then(|level| plane.y(level)) {
            (line((left, y), (right, y), 1.5, 0.8))
        }
        (words(&chart.x.name, (f64::midpoint(left, right), bottom + 34.0), "middle"))
        g transform=(format!("rotate(-90 14 {})", px(middle))) { (words(&chart.y.name, (14.0, middle), "middle")) }
    }
}

fn one(chart: &Chart, plane: &PlotArea, number: usize, series: &Series) -> Markup {
    let aside = series_offset(chart, plane, number);
    let at = |p: &Point| Some((plane.x(p.x)? + aside, plane.y(p.y)?));
    let drawn = || series.points.iter().filter_map(|p| Some((p, at(p)?)));
    let path: Vec<String> = drawn()
        .map(|(_, (x, y))| format!("{},{}", px(x), px(y)))
        .collect();
    html! {
        @if chart.kind == ChartKind::Curves {
            polyline points=(path.join(" ")) fill="none" stroke="currentColor" stroke-width="2" {}
        }
        @for (point, (x, y)) in drawn() {
            @let ends = point.interval.and_then(|(low, high)| Some((plane.y(low)?, plane.y(high)?)));
            @if let Some(to) = plane.x(point.x + point.width).filter(|_| point.width > 0.0) {
                @if let Some((low, high)) = ends { (rectangle((x, low), (to, high), 0.2)) }
                (line((x, y), (to, y), 2.0, 1.0))
            } @else {
                @if let Some((low, high)) = ends { (line((x, low), (x, high), 2.0, 1.0)) }
                @for sample in point.samples.iter().filter_map(|v| plane.y(*v)) {
                    circle cx=(px(x + 8.0)) cy=(px(sample)) r="1.5" fill="currentColor" {}
                }
                (mark(number, (x, y), point.doubtful))
                @if let Some(value) = plane.value_beyond(&chart.y, point.y) {
                    @let (aside, anchor) = if x < plane.right - 80.0 { (10.0, "start") } else { (-10.0, "end") };
                    (words(&value, (x + aside, y.min(plane.bottom - 22.0)), anchor))
                }
                @if !point.note.is_empty() { (words(&point.note, (x + 10.0, y - 10.0), "start")) }
            }
        }
    }
}

/// Returns the horizontal offset of a curve's points from their step, in pixels: about two marks, so that the
/// intervals of several curves stay visible, and less if many curves would leave the plane. 0 if x has no steps.
fn series_offset(chart: &Chart, plane: &PlotArea, number: usize) -> f64 {
    let margins = (plane.right - plane.left) * 0.09;
    let each = f64::min(8.0, margins / count(chart));
    match chart.x.steps.is_empty() {
        true => 0.0,
        false => (as_f64(number) - (count(chart) - 1.0) / 2.0) * each,
    }
}

fn count(chart: &Chart) -> f64 {
    as_f64(chart.series.len())
}

fn as_f64(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(0))
}

/// Draws a mark with a shape for each series, hollow if the point is doubtful.
pub(super) fn mark(number: usize, (x, y): (f64, f64), doubtful: bool) -> Markup {
    let fill = if doubtful { "none" } else { "currentColor" };
    let corners: &[(f64, f64)] = match number % 4 {
        0 => {
            return html! {
                circle cx=(px(x)) cy=(px(y)) r="4" fill=(fill) stroke="currentColor" stroke-width="2" {}
            };
        }
        1 => &[(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)],
        2 => &[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)],
        _ => &[(0.0, -5.5), (5.5, 0.0), (0.0, 5.5), (-5.5, 0.0)],
    };
    let corners = corners
        .iter()
        .map(|(dx, dy)| format!("{},{}", px(x + dx), px(y + dy)));
    html! {
        polygon points=(corners.collect::<Vec<_>>().join(" ")) fill=(fill) stroke="currentColor"
            stroke-width="1.5" {}
    }
}

fn sample(chart: &Chart, number: usize, (x, y): (f64, f64)) -> Markup {
    let is_wide = chart.series[number].points.iter().any(|p| p.width > 0.0);
    match chart.kind {
        ChartKind::Layers => rectangle((x - 6.0, y - 6.0), (x + 6.0, y + 6.0), 0.85),
        _ if is_wide => line((x - 7.0, y), (x + 7.0, y), 2.0, 1.0),
        _ => mark(number, (x, y), false),
    }
}

/// A layer: the index of its series, and its lower and upper edge with one value for each point.
type StackedLayer = (usize, Vec<f64>, Vec<f64>);

/// Stacks the layers; values that are negative or not finite count as 0.
fn stacked(chart: &Chart) -> Vec<StackedLayer> {
    let lengths = chart.series.iter().map(|s| s.points.len());
    let mut floor = vec![0.0; lengths.max().unwrap_or(0)];
    let layer = |(number, series): (usize, &Series)| {
        let values = series.points.iter().map(|p| p.y);
        let values = values.map(|y| if y.is_finite() { y.max(0.0) } else { 0.0 });
        // A shorter series adds nothing after its last point.
        let values = values.chain(std::iter::repeat(0.0));
        let roof: Vec<f64> = floor.iter().zip(values).map(|(low, y)| low + y).collect();
        let from = std::mem::replace(&mut floor, roof.clone());
        (number, from, roof)
    };
    chart.series.iter().enumerate().map(layer).collect()
}

/// Draws each layer along its upper edge from left to right and back along the lower edge.
fn layers(chart: &Chart, plane: &PlotArea) -> Markup {
    let along = |number: usize, heights: &[f64]| -> Vec<String> {
        let both = chart.series[number].points.iter().zip(heights);
        let corners = both.flat_map(|(p, height)| [(p.x, *height), (p.x + p.width, *height)]);
        corners
            .filter_map(|(x, y)| Some((plane.x(x)?, plane.y(y)?)))
            .map(|(x, y)| format!("{},{}", px(x), px(y)))
            .collect()
    };
    let outline = |(number, from, to): &StackedLayer| {
        let mut points = along(*number, to);
        points.extend(along(*number, from).into_iter().rev());
        points.join(" ")
    };
    html! {
        @for layer in stacked(chart) {
            g class=(colour(layer.0)) {
                polygon points=(outline(&layer)) fill="currentColor" fill-opacity="0.85" {}
            }
        }
    }
}

/// Draws the name of each curve at the right edge, level with its end. Overlapping names move apart, and a
/// thin line connects each to its curve.
fn curve_names(chart: &Chart, plane: &PlotArea) -> Markup {
    let end = |(number, series): (usize, &Series)| {
        let mut points = series.points.iter().rev();
        let at = points.find_map(|p| {
            Some((
                plane.x(p.x)? + series_offset(chart, plane, number),
                plane.y(p.y)?,
            ))
        })?;
        Some((number, series.name.clone(), at))
    };
    let mut ends: Vec<_> = chart.series.iter().enumerate().filter_map(end).collect();
    ends.sort_by(|a, b| a.2.1.total_cmp(&b.2.1));
    let mut levels: Vec<f64> = ends.iter().map(|(.., at)| at.1).collect();
    // Move names down from the top, then up from the bottom where they overran it.
    for at in 1..levels.len() {
        levels[at] = levels[at].max(levels[at - 1] + NAME);
    }
    let mut floor = plane.bottom;
    for level in levels.iter_mut().rev() {
        *level = level.min(floor);
        floor = *level - NAME;
    }
    html! {
        @for ((number, name, (x, y)), level) in ends.iter().zip(levels) {
            g class=(colour(*number)) {
                (line((*x, *y), (plane.right, *y), 1.0, 0.5))
                (line((plane.right, *y), (plane.right + 8.0, level), 1.0, 0.5))
                (words(name, (plane.right + 12.0, level), "start"))
            }
        }
    }
}
