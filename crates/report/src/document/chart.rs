//! Charts as data; `crate::chart` draws them.

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chart {
    /// Title; may be empty.
    pub title: String,
    pub kind: ChartKind,
    /// The axis of the independent variable: a size, a number of threads, time.
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChartKind {
    #[default]
    Curves,
    Dots,
    /// Bars from zero (lines from 1 for ratios), grouped by step of x, with a bar of each series that has a point.
    Bars,
    /// Bars with the series of a step stacked end to end.
    Stacks,
    /// Stacked layers, the first series lowest; a point is as wide as its `width`.
    Layers,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axis {
    /// Name of the axis, such as `working set`.
    pub name: String,
    pub unit: AxisUnit,
    pub scale: AxisScale,
    /// A value that is always visible, with a line across: 1 for ratios, 0 for values shown from zero.
    pub level: Option<f64>,
    /// Minimum end of the axis, so that several charts can be compared.
    pub end: Option<f64>,
    /// Named marks if only these values exist; the values may be indices of names (0, 1, 2). If empty, the renderer
    /// chooses round values.
    pub steps: Vec<(f64, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AxisUnit {
    #[default]
    Number,
    Bytes,
    Seconds,
    /// A share of a whole, 0 to 1, written in percent.
    Percent,
    /// A ratio, such as `×1.12`.
    Ratio,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AxisScale {
    #[default]
    Linear,
    /// Logarithmic, with marks at powers of two.
    Binary,
    /// Logarithmic, with marks at 1, 2, 5, 10 and so on.
    Decimal,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// The name at the end of the curve or in the legend.
    pub name: String,
    pub points: Vec<Point>,
}

/// A point. It is not drawn if it is not finite, or not positive on a logarithmic scale.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Point {
    pub x: f64,
    /// Extent along x, for layers and for dots that are a level over a part of x with their interval as a band. 0
    /// for others.
    pub width: f64,
    pub y: f64,
    /// The ends of its interval, lower first.
    pub interval: Option<(f64, f64)>,
    /// The samples behind the point, if they are to be shown.
    pub samples: Vec<f64>,
    /// True if the point is doubtful; it is then drawn hollow.
    pub doubtful: bool,
    /// A word next to it; may be empty.
    pub note: String,
}

impl Axis {
    pub fn named(name: impl Into<String>) -> Axis {
        Axis {
            name: name.into(),
            ..Axis::default()
        }
    }
}

impl Series {
    pub fn new(name: impl Into<String>, points: Vec<Point>) -> Series {
        Series {
            name: name.into(),
            points,
        }
    }
}

impl Point {
    pub fn at(x: f64, y: f64) -> Point {
        Point {
            x,
            y,
            ..Point::default()
        }
    }

    /// Returns the measured value, the ends of its interval and its samples, all of which must fit the axis.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let ends = self
            .interval
            .into_iter()
            .flat_map(|(low, high)| [low, high]);
        let samples = self.samples.iter().copied();
        [self.y].into_iter().chain(ends).chain(samples)
    }
}

/// Samples of stacks, drawn as a flame graph: each frame is as wide as its number of samples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlameGraph {
    pub title: String,
    /// Stacks from the lowest frame upward, each with its number of samples.
    pub stacks: Vec<(Vec<StackFrame>, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackFrame {
    pub name: String,
    pub kernel: bool,
}
