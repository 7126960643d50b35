//! Charts as data; `crate::chart` draws them.

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chart {
    /// What it shows; may be empty.
    pub title: String,
    pub kind: ChartKind,
    /// The axis of what was chosen: a size, a number of threads, time.
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChartKind {
    #[default]
    Curves,
    Dots,
    /// Bars from zero (of ratios: lines from 1), one below the other for each step of x; a step has a bar of each
    /// series that has a point there.
    Bars,
    /// The same, the series of a step end to end in one bar.
    Stacks,
    /// Layers on each other, the first series lowest; a point is as wide as it says.
    Layers,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axis {
    /// What stands at it, as in `working set`.
    pub name: String,
    pub unit: Unit,
    pub scale: Scale,
    /// A value that is always in sight, with a line across: 1 of ratios, 0 of what is shown whole.
    pub level: Option<f64>,
    /// Where it ends at least, so that several charts can be compared.
    pub end: Option<f64>,
    /// Its marks, with a name each, where only these values exist (which may be numbers of names: 0, 1, 2);
    /// empty where the renderer is to choose round ones.
    pub steps: Vec<(f64, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    #[default]
    Number,
    Bytes,
    Seconds,
    /// A part of a whole, 0 to 1, written in percent.
    Percent,
    /// How many times as much, as in `×1.12`.
    Ratio,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    #[default]
    Linear,
    /// By their logarithm, marks at powers of two.
    Binary,
    /// By their logarithm, marks at 1, 2, 5, 10 and so on.
    Decimal,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// The name at its end, or in the legend.
    pub name: String,
    pub points: Vec<Point>,
}

/// A point. What is not finite, or not above 0 on a logarithmic scale, is not drawn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Point {
    pub x: f64,
    /// How far along x it reaches: of layers, and of dots that are a level over a part of x, with their interval as
    /// a band; 0 of others.
    pub width: f64,
    pub y: f64,
    /// The ends of its interval, lower first, where it has one.
    pub interval: Option<(f64, f64)>,
    /// The samples that it was made of, where they are to be shown.
    pub samples: Vec<f64>,
    /// Whether it is to be doubted: drawn hollow.
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

    /// What was measured, the ends of its interval and its samples: all that has to fit the axis.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let ends = self
            .interval
            .into_iter()
            .flat_map(|(low, high)| [low, high]);
        let samples = self.samples.iter().copied();
        [self.y].into_iter().chain(ends).chain(samples)
    }
}

/// Samples of stacks, drawn as a flame graph: who called whom, each frame as wide as the samples in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flames {
    pub title: String,
    /// Stacks from the lowest frame upward, each with the number of its samples.
    pub stacks: Vec<(Vec<Frame>, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    pub name: String,
    pub kernel: bool,
}
