//! Curves over a logarithmic axis, each with its name at its end and the interval of each point drawn.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::svg::{Area, FONT, INK, SIZE, draw};

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The ends of its interval, where it has one.
    pub(crate) ends: Option<(f64, f64)>,
    /// Drawn filled where true, hollow where it is to be doubted.
    pub(crate) sure: bool,
}

/// A curve.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

/// At which values an axis has its marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Powers of two: bytes, processes.
    Binary,
    /// 1, 2, 5, 10 and so on: times.
    Decimal,
    /// Round steps on an axis that is not logarithmic, and that has this value, with a line across: 1 of
    /// ratios, 0 of what is shown whole.
    From(Level),
}

/// See [`Marks::From`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Zero,
    One,
}

impl Marks {
    const fn level(self) -> Option<f64> {
        match self {
            Marks::From(Level::Zero) => Some(0.0),
            Marks::From(Level::One) => Some(1.0),
            Marks::Binary | Marks::Decimal => None,
        }
    }

    /// Where a value stands on the axis: at its logarithm, or as it is.
    fn place(self, value: f64) -> f64 {
        match self.level() {
            Some(_) => value,
            None => value.log2(),
        }
    }

    /// The value that stands there.
    fn value(self, place: f64) -> f64 {
        match self.level() {
            Some(_) => place,
            None => place.exp2(),
        }
    }

    fn can_hold(self, value: f64) -> bool {
        value.is_finite() && (self.level().is_some() || value > 0.0)
    }
}

/// What stands at the axes.
pub(crate) struct Axes<'a> {
    pub(crate) x_name: &'a str,
    pub(crate) y_name: &'a str,
    /// Where the x axis has its marks; at powers of two where this is empty. With marks of its own it is of
    /// few steps, and points of one step stand beside each other.
    pub(crate) x_marks: &'a [f64],
    pub(crate) y_marks: Marks,
    pub(crate) x_label: &'a dyn Fn(f64) -> String,
    pub(crate) y_label: &'a dyn Fn(f64) -> String,
}

// After Okabe and Ito, made a little darker or lighter so that all stand off from white and from black;
// told apart also by people who do not see red or green. Shapes and names differ too.
const COLOURS: [RGBColor; 6] = [
    RGBColor(217, 119, 6),
    RGBColor(59, 130, 246),
    RGBColor(0, 158, 115),
    RGBColor(204, 105, 167),
    RGBColor(125, 125, 125),
    RGBColor(213, 80, 20),
];

/// Room for the names of curves, in pixels; each character takes about so many.
const A_CHARACTER: usize = 8;
const NAME_HEIGHT: i32 = 16;

/// Draws; what is not above 0 cannot stand on a logarithmic axis and is left out.
///
/// # Errors
/// Where there is nothing to draw, in words.
pub(crate) fn curves(curves: &[Curve], axes: &Axes<'_>) -> Result<String, String> {
    let curves: Vec<Curve> = curves.iter().map(|c| placed(c, axes.y_marks)).collect();
    let all = || curves.iter().flat_map(|c| &c.points);
    let x = span(all().map(|p| p.x), None).ok_or("no points")?;
    let ends = |p: &Point| p.ends.map_or([p.y; 2], |(low, high)| [low, high]);
    let y = all().flat_map(|p| [[p.y; 2], ends(p)].concat());
    let y = span(y, axes.y_marks.level()).ok_or("no points")?;
    let longest = curves.iter().map(|c| c.name.chars().count()).max();
    let room = longest.unwrap_or(0) * A_CHARACTER + 24;
    draw(SIZE, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(u32::try_from(room).unwrap_or(120))
            .x_label_area_size(48)
            .y_label_area_size(84)
            .build_cartesian_2d(Axis::of_x(&x, axes), Axis::new(&y, axes.y_marks))
            .map_err(|e| e.to_string())?;
        // Where a point stands is not what it is worth: labels say that.
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .axis_style(INK)
            .label_style(("sans-serif", FONT).into_font().color(&INK))
            .x_desc(axes.x_name)
            .y_desc(axes.y_name)
            .x_label_formatter(&|x| (axes.x_label)(x.exp2()))
            .y_label_formatter(&|y| (axes.y_label)(axes.y_marks.value(*y)))
            .draw()
            .map_err(|e| e.to_string())?;
        if let Some(level) = axes.y_marks.level() {
            let across = [(x.start, level), (x.end, level)];
            chart
                .draw_series(LineSeries::new(across, INK.stroke_width(1)))
                .map_err(|e| e.to_string())?;
        }
        let mut names = Vec::new();
        for (number, curve) in curves.iter().enumerate() {
            let aside = match axes.x_marks {
                [] => 0.0,
                _ => aside(number, curves.len()) * (x.end - x.start),
            };
            names.extend(one(area, &mut chart, curve, number, aside)?);
        }
        let edge = chart.plotting_area().get_pixel_range().0.end;
        name(area, names, edge)
    })
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// Draws a curve with the intervals and marks of its points, so much aside of where they stand.
fn one(
    area: &Area<'_>,
    chart: &mut Chart<'_, '_>,
    curve: &Curve,
    number: usize,
    aside: f64,
) -> Result<Option<Name>, String> {
    let colour = COLOURS[number % COLOURS.len()];
    let at = |p: &Point| (p.x + aside, p.y);
    let line = LineSeries::new(curve.points.iter().map(at), colour.stroke_width(2));
    chart.draw_series(line).map_err(|e| e.to_string())?;
    let bars = curve.points.iter().filter_map(|p| {
        let (low, high) = p.ends?;
        let x = p.x + aside;
        let path = vec![(x, low), (x, high)];
        Some(PathElement::new(path, colour.stroke_width(2)))
    });
    chart.draw_series(bars).map_err(|e| e.to_string())?;
    for point in &curve.points {
        mark(
            area,
            chart.backend_coord(&at(point)),
            number,
            colour,
            point.sure,
        )?;
    }
    let end = curve.points.last().map(|p| chart.backend_coord(&at(p)));
    Ok(end.map(|end| (end, curve.name.clone(), colour)))
}

/// How far beside its step a curve's points stand, as a part of the axis, so that the intervals of several can
/// be told apart.
fn aside(number: usize, of: usize) -> f64 {
    /// About two marks.
    const STEP: f64 = 0.014;
    let place = |n: usize| f64::from(u32::try_from(n).unwrap_or(0));
    (place(number) - place(of.saturating_sub(1)) / 2.0) * STEP
}

/// A mark of a shape of its own for each curve; hollow where the point is to be doubted.
fn mark(
    area: &Area<'_>,
    (x, y): (i32, i32),
    number: usize,
    colour: RGBColor,
    sure: bool,
) -> Result<(), String> {
    // Pixels of the whole area, not of the chart in it.
    let style: ShapeStyle = match sure {
        true => colour.filled(),
        false => colour.stroke_width(2),
    };
    let polygon = |corners: &[(i32, i32)]| -> Vec<(i32, i32)> {
        let all = corners.iter().chain(corners.first());
        all.map(|(dx, dy)| (x + dx, y + dy)).collect()
    };
    let corners: &[(i32, i32)] = match number % 4 {
        0 => {
            return area
                .draw(&Circle::new((x, y), 4, style))
                .map_err(|e| e.to_string());
        }
        1 => &[(0, -6), (5, 4), (-5, 4)],
        2 => &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
        _ => &[(0, -6), (6, 0), (0, 6), (-6, 0)],
    };
    let points = polygon(corners);
    match sure {
        true => area.draw(&Polygon::new(points, style)),
        false => area.draw(&PathElement::new(points, style)),
    }
    .map_err(|e| e.to_string())
}

/// The end of a curve, its name, its colour.
type Name = ((i32, i32), String, RGBColor);

/// Writes each curve's name at the right edge, level with its end, moved apart where two would stand
/// in one place; a thin line leads there from the end.
fn name(area: &Area<'_>, mut names: Vec<Name>, edge: i32) -> Result<(), String> {
    names.sort_by_key(|((_, y), _, _)| *y);
    let mut levels: Vec<i32> = names.iter().map(|((_, y), _, _)| *y).collect();
    // From the top down; then up again, where that led past the bottom.
    for at in 1..levels.len() {
        levels[at] = levels[at].max(levels[at - 1] + NAME_HEIGHT);
    }
    let bottom = i32::try_from(area.dim_in_pixel().1).unwrap_or(i32::MAX);
    let mut floor = bottom - 56;
    for level in levels.iter_mut().rev() {
        *level = (*level).min(floor);
        floor = *level - NAME_HEIGHT;
    }
    for ((end, text, colour), level) in names.into_iter().zip(levels) {
        let lead = vec![end, (edge, end.1), (edge + 8, level)];
        let style = ("sans-serif", FONT)
            .into_font()
            .color(&colour)
            .pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&PathElement::new(lead, colour.mix(0.5)))
            .and_then(|()| area.draw(&Text::new(text, (edge + 12, level), style)))
            .map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The points that can be drawn, where they stand on the axes.
fn placed(curve: &Curve, y: Marks) -> Curve {
    let good = |p: &&Point| p.x.is_finite() && p.x > 0.0 && y.can_hold(p.y);
    let points = curve.points.iter().filter(good);
    let points = points.map(|p| Point {
        x: p.x.log2(),
        y: y.place(p.y),
        ends: p
            .ends
            .filter(|(low, high)| y.can_hold(*low) && y.can_hold(*high))
            .map(|(low, high)| (y.place(low), y.place(high))),
        ..*p
    });
    Curve {
        name: curve.name.clone(),
        points: points.collect(),
    }
}

/// From the lowest to the highest, with room around, but none beyond a level at which they end; `None` of
/// nothing.
fn span(values: impl Iterator<Item = f64>, level: Option<f64>) -> Option<std::ops::Range<f64>> {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for v in values {
        (low, high) = (low.min(v), high.max(v));
    }
    if low > high {
        return None;
    }
    let Some(level) = level else {
        let room = ((high - low) * 0.05).max(0.1);
        return Some(low - room..high + room);
    };
    (low, high) = (low.min(level), high.max(level));
    let room = ((high - low) * 0.05).max(0.02);
    // All of it begins at 0; a ratio may fall below 1.
    let below = if level == 0.0 && low >= 0.0 {
        0.0
    } else {
        room
    };
    Some(low - below..high + room)
}

/// An axis with its marks at chosen places.
struct Axis {
    range: std::ops::Range<f64>,
    marks: Vec<f64>,
}

impl Axis {
    fn of_x(range: &std::ops::Range<f64>, axes: &Axes<'_>) -> Axis {
        let chosen = axes.x_marks.iter().map(|x| x.log2());
        let inside: Vec<f64> = chosen.filter(|x| range.contains(x)).collect();
        match inside.len() {
            1..=MOST_MARKS => Axis {
                range: range.clone(),
                marks: inside,
            },
            _ => Axis::new(range, Marks::Binary),
        }
    }

    fn new(range: &std::ops::Range<f64>, kind: Marks) -> Axis {
        Axis {
            range: range.clone(),
            marks: marks(range, kind),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value - self.range.start) / (self.range.end - self.range.start);
        let (from, to) = (f64::from(limit.0), f64::from(limit.1));
        #[allow(clippy::cast_possible_truncation)]
        let pixel = (from + part * (to - from)).round() as i32;
        pixel
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.clone()
    }
}

/// Most marks on an axis that can be read.
const MOST_MARKS: usize = 10;

/// Where an axis has its marks.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn marks(range: &std::ops::Range<f64>, marks: Marks) -> Vec<f64> {
    let inside = |v: &f64| range.contains(v);
    let (first, last) = (range.start.floor() as i32, range.end.ceil() as i32);
    let binary = |step: i32| -> Vec<f64> {
        let all = (first..=last).filter(|n| n.rem_euclid(step) == 0);
        all.map(f64::from).filter(inside).collect()
    };
    let decimal = |of: &[f64]| -> Vec<f64> {
        let all = (-12..16).flat_map(|n| of.iter().map(move |v| (v * 10f64.powi(n)).log2()));
        all.filter(inside).collect()
    };
    let round = |step: f64| -> Vec<f64> {
        let all = ((range.start / step).ceil() as i64..).map(|n| n as f64 * step);
        all.take_while(|v| *v <= range.end)
            .take(MOST_MARKS + 1)
            .collect()
    };
    let fits = |list: &Vec<f64>| list.len() <= MOST_MARKS;
    let mut binary_steps = (1..60).map(binary);
    let found = match marks {
        Marks::Binary => binary_steps.find(fits),
        Marks::Decimal => [
            &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0][..],
            &[1.0, 2.0, 5.0],
            &[1.0],
        ]
        .into_iter()
        .map(decimal)
        .find(fits),
        Marks::From(_) => (-6..16)
            .flat_map(|n| [1.0, 2.0, 5.0].map(|v| v * 10f64.powi(n)))
            .map(round)
            .find(fits),
    };
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &str, values: &[(f64, f64)]) -> Curve {
        let points = values.iter().map(|(x, y)| Point {
            x: *x,
            y: *y,
            ends: Some((y * 0.9, y * 1.1)),
            sure: true,
        });
        Curve {
            name: name.to_owned(),
            points: points.collect(),
        }
    }

    fn drawn(all: &[Curve]) -> Result<String, String> {
        let axes = Axes {
            x_name: "x",
            y_name: "y",
            x_marks: &[],
            y_marks: Marks::Decimal,
            x_label: &|x| format!("{x:.0}"),
            y_label: &|y| format!("{y}"),
        };
        curves(all, &axes)
    }

    #[test]
    fn every_curve_has_its_name_and_its_marks() {
        let svg = drawn(&[
            curve("base", &[(1.0, 1.0), (1024.0, 300.0)]),
            curve("thp:2M", &[(1.0, 1.0), (1024.0, 299.0)]),
        ])
        .unwrap();
        assert!(svg.contains("base") && svg.contains("thp:2M"));
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("<polygon").count(), 2);
    }

    #[test]
    fn odd_values_are_left_out_and_nothing_is_told() {
        let odd = curve(
            "odd",
            &[(0.0, 1.0), (1.0, f64::NAN), (2.0, -1.0), (4.0, 7.0)],
        );
        let svg = drawn(&[odd]).unwrap();
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(!svg.contains("NaN"));
        assert!(drawn(&[curve("none", &[])]).is_err());
    }

    #[test]
    fn whole_axes_begin_at_their_level_and_steps_are_told_apart() {
        let from_zero = |values: &[(f64, f64)], level| {
            let axes = Axes {
                x_name: "x",
                y_name: "y",
                x_marks: &[3.0, 12.0],
                y_marks: Marks::From(level),
                x_label: &|x| format!("at {x:.0}"),
                y_label: &|y| format!("{y:.2}"),
            };
            curves(&[curve("a", values), curve("b", values)], &axes).unwrap()
        };
        let svg = from_zero(&[(3.0, 1000.0), (12.0, 1100.0)], Level::Zero);
        // Steps that are no powers of two have their marks.
        for part in ["at 3", "at 12", "0.00", "1200.00"] {
            assert!(svg.contains(part), "{part}");
        }
        // A ratio of 1 is on the axis, though no point is near it; a negative value is a value.
        let svg = from_zero(&[(3.0, 2.0), (12.0, 2.1)], Level::One);
        assert!(svg.contains("1.00"), "{svg}");
        assert!((span([0.0, 5.0].into_iter(), Some(0.0)).unwrap().start).abs() < 1e-9);
        assert!(aside(0, 2) < 0.0 && aside(1, 2) > 0.0 && aside(0, 1).abs() < 1e-9);
    }

    #[test]
    fn axes_have_marks_that_can_be_read() {
        assert_eq!(
            marks(&(15.9..20.1), Marks::Binary),
            [16.0, 17.0, 18.0, 19.0, 20.0]
        );
        let kinds = [Marks::Binary, Marks::Decimal, Marks::From(Level::One)];
        for (low, high) in [(0.0, 0.2), (0.0, 9.0), (3.0, 40.0), (16.0, 33.0)] {
            for kind in kinds {
                assert!(marks(&(low..high), kind).len() <= MOST_MARKS);
            }
        }
        let near_one = marks(&(0.97..1.23), Marks::From(Level::One));
        assert_eq!(near_one.len(), 5, "{near_one:?}");
    }
}
