//! Cells: typed values that a renderer writes.

use std::fmt;

use hugeleaf_host::{Fact, Pid};
use hugeleaf_units::{Bytes, PageKind, PageSize, Pages, Range, time};

use super::number::{self, short};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cell {
    pub value: CellValue,
    pub mark: StatusMark,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub enum CellValue {
    /// Absent on this host, or not applicable.
    #[default]
    Absent,
    Unreadable,
    Text(String),
    Bytes(Bytes),
    Count(u64),
    /// A measured number, written with about four significant digits.
    Number(f64),
    /// A measured number with a fixed number of decimals.
    Decimal(f64, usize),
    Ratio(f64),
    /// A share of a whole, 0 to 1.
    Percent(f64),
    /// A share of a whole, 0 to 1, written to a tenth of a percent for comparisons.
    Share(f64),
    Duration(f64),
    /// A measured time in seconds, written with three digits.
    Time(f64),
    /// Bytes a second, in units of a million bytes, as drives are specified.
    Flow(f64),
    PageSize(PageSize),
    Range(Range),
}

/// The meaning of a value. It is never the only sign, so output without colour is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatusMark {
    #[default]
    Plain,
    Good,
    Warn,
    Bad,
    Dim,
}

impl Cell {
    /// Creates an empty cell, without a dash.
    pub fn empty() -> Cell {
        Cell::from("")
    }

    /// Creates a share of a whole, 0 to 1; absent without a whole.
    pub fn percent(part: Option<f64>) -> Cell {
        part.map(CellValue::Percent).into()
    }

    pub fn seconds(seconds: f64) -> Cell {
        CellValue::Duration(seconds).into()
    }

    pub fn ratio(ratio: Option<f64>) -> Cell {
        ratio.map(CellValue::Ratio).into()
    }

    pub fn number(number: Option<f64>) -> Cell {
        number.map(CellValue::Number).into()
    }

    pub fn decimal(number: Option<f64>, digits: usize) -> Cell {
        number
            .map(|number| CellValue::Decimal(number, digits))
            .into()
    }

    /// Creates an amount, with a dash for zero to keep nonzero values visible.
    pub fn some_bytes(bytes: Bytes) -> Cell {
        (!bytes.is_zero()).then_some(bytes).into()
    }

    /// Creates a range from first to last; one value if both read the same, an empty cell without values.
    pub fn span(all: impl IntoIterator<Item = Cell>) -> Cell {
        let mut all = all.into_iter();
        let Some(first) = all.next() else {
            return Cell::empty();
        };
        match all.last() {
            Some(last) if last.to_string() != first.to_string() => format!("{first}-{last}").into(),
            _ => first,
        }
    }

    #[must_use]
    pub fn marked(mut self, mark: StatusMark) -> Cell {
        self.mark = mark;
        self
    }

    /// True if nothing is written, not even a dash.
    pub fn is_empty(&self) -> bool {
        matches!(&self.value, CellValue::Text(text) if text.is_empty())
    }

    /// True if the cell shows nothing or zero.
    pub fn is_nothing(&self) -> bool {
        self.is_empty() || matches!(self.to_string().as_str(), "-" | "0" | "0.0 %")
    }
}

/// Formats values identically for all renderers. Text is unescaped: a renderer escapes the characters that
/// its reader would interpret.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl fmt::Display for CellValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CellValue::Absent => f.write_str("-"),
            CellValue::Unreadable => f.write_str("?"),
            CellValue::Text(text) => f.write_str(text),
            CellValue::Bytes(bytes) => write!(f, "{bytes}"),
            CellValue::Count(count) => write!(f, "{count}"),
            CellValue::Number(n)
            | CellValue::Decimal(n, _)
            | CellValue::Ratio(n)
            | CellValue::Share(n)
            | CellValue::Time(n)
            | CellValue::Flow(n)
                if !n.is_finite() =>
            {
                f.write_str("-")
            }
            CellValue::Number(number) => f.write_str(&number::number(*number)),
            CellValue::Decimal(number, digits) => write!(f, "{number:.digits$}"),
            CellValue::Ratio(ratio) => write!(f, "×{}", number::ratio(*ratio)),
            CellValue::Percent(part) => f.write_str(&percent(*part)),
            CellValue::Share(part) => write!(f, "{:.1} %", part * 100.0),
            CellValue::Duration(seconds) => f.write_str(&time::coarse(*seconds)),
            CellValue::Time(seconds) => f.write_str(&time::measured(*seconds)),
            CellValue::Flow(bytes) => write!(f, "{} MB/s", short(bytes / 1e6)),
            CellValue::PageSize(size) => write!(f, "{size}"),
            CellValue::Range(range) => write!(f, "{range}"),
        }
    }
}

/// Formats a share, such as `98 %` or `0.3 %`. Less than the whole is never shown as 100 %.
fn percent(part: f64) -> String {
    match part {
        p if !p.is_finite() => "-".to_owned(),
        p if p > 0.0 && p < 0.01 => format!("{:.1} %", p * 100.0),
        // For example, 99.96 % is shown as 99.9 %.
        p if p < 1.0 && p > 0.99 => format!("{:.1} %", (p * 1000.0).floor() / 10.0),
        p => format!("{:.0} %", p * 100.0),
    }
}

impl From<CellValue> for Cell {
    fn from(value: CellValue) -> Cell {
        Cell {
            value,
            mark: StatusMark::Plain,
        }
    }
}

macro_rules! cells {
    ($($from:ty => $cell:expr),* $(,)?) => {$(
        impl From<$from> for Cell {
            fn from(value: $from) -> Cell {
                let cell: fn($from) -> CellValue = $cell;
                Cell::from(cell(value))
            }
        }
    )*};
}

cells! {
    String => CellValue::Text,
    &str => |text| CellValue::Text(text.to_owned()),
    &String => |text| CellValue::Text(text.clone()),
    Bytes => CellValue::Bytes,
    Pages => |pages| CellValue::Count(pages.get()),
    u64 => CellValue::Count,
    u32 => |n| CellValue::Count(n.into()),
    u8 => |n| CellValue::Count(n.into()),
    usize => |n| CellValue::Count(u64::try_from(n).unwrap_or(u64::MAX)),
    Pid => |pid| CellValue::Text(pid.to_string()),
    PageSize => CellValue::PageSize,
    PageKind => |kind| CellValue::Text(kind.name().to_owned()),
    Range => CellValue::Range,
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or_else(Cell::default, Into::into)
    }
}

impl<T: Into<Cell>> From<Fact<T>> for Cell {
    fn from(fact: Fact<T>) -> Cell {
        match fact {
            Fact::Known(value) => value.into(),
            Fact::Absent => Cell::default(),
            Fact::Unreadable(_) => CellValue::Unreadable.into(),
        }
    }
}

impl<T: Clone + Into<Cell>> From<&Fact<T>> for Cell {
    fn from(fact: &Fact<T>) -> Cell {
        fact.clone().into()
    }
}
