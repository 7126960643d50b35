//! Charts as text, for a terminal.

use super::primitives::{AxisRange, label};
use crate::document::{Chart, Point};
use crate::terminal_escape::{clean, cut};

const ROWS: usize = 14;
/// Minimum width of a point's column, which holds its label.
const LABEL: usize = 5;
const AXIS: usize = 7;

/// Returns a letter for each series: the first letter of its name that is still free.
fn letter_of(names: &[String]) -> Vec<char> {
    names.iter().fold(Vec::new(), |mut taken, name| {
        let mut own = name.chars().filter(|c| c.is_alphanumeric());
        let letter = own
            .find(|c| !taken.contains(c))
            .or_else(|| ('a'..='z').find(|c| !taken.contains(c)));
        taken.push(letter.unwrap_or('*'));
        taken
    })
}

/// Returns the curves in lines of at most `width` characters, each ended. The first line explains the letters. A
/// column is a value of x. Where two points coincide, the letter of the later series follows the earlier one.
/// Empty if no point can be drawn.
pub fn text(chart: &Chart, width: usize) -> String {
    let points = || chart.series.iter().flat_map(|s| &s.points);
    let Some(mut span) = AxisRange::tight(points().map(|p| p.y), &chart.y) else {
        return String::new();
    };
    span.to = span.to.max(span.from + 1e-9);
    let mut columns: Vec<f64> = points().map(|p| p.x).filter(|x| x.is_finite()).collect();
    columns.sort_by(f64::total_cmp);
    columns.dedup();
    let names: Vec<String> = chart.series.iter().map(|s| clean(&s.name)).collect();
    let letters = letter_of(&names);
    // One blank separates adjacent columns.
    let step = LABEL.max(chart.series.len() + 1);
    let fits = (width.saturating_sub(AXIS + 2) / step).max(2);
    // Show every second or third column if there are too many.
    let every = columns.len().div_ceil(fits).max(1);
    let shown: Vec<f64> = columns.into_iter().step_by(every).collect();
    let grid = grid(chart, &letters, &shown, (step, span));
    let value = |row: usize| {
        let place = span.from + (span.to - span.from) * row as f64 / (ROWS - 1) as f64;
        if span.place(1.0) == Some(1.0) {
            place
        } else {
            place.exp2()
        }
    };
    let mark = |row: usize| match row % 3 {
        1 => label(round(value(row)), None, chart.y.unit),
        _ => String::new(),
    };
    let below = |x: &f64| match chart.x.steps.iter().find(|(v, _)| v == x) {
        Some((_, name)) => clean(name),
        None => label(*x, None, chart.x.unit),
    };
    let keys = letters.iter().zip(&names);
    let keys: Vec<String> = keys.map(|(l, n)| format!("{l} {n}")).collect();
    let mut out = format!(
        "{} by {}: {}\n",
        clean(&chart.y.name),
        clean(&chart.x.name),
        keys.join(", ")
    );
    for (row, cells) in grid.iter().enumerate().rev() {
        let line: String = cells.iter().collect();
        out += format!("{:>AXIS$} │{line}", mark(row)).trim_end();
        out.push('\n');
    }
    out += &format!("{:>AXIS$} └{}\n", "", "─".repeat(shown.len() * step));
    let below: String = shown
        .iter()
        .map(|x| format!("{:<step$}", cut(&below(x), step - 1)))
        .collect();
    out += format!("{:>AXIS$}  {below}", "").trim_end();
    out + "\n"
}

/// Places the letters on the grid, lowest row first; `step` is the width of a column in characters.
#[allow(clippy::cast_possible_truncation)]
fn grid(
    chart: &Chart,
    letters: &[char],
    shown: &[f64],
    (step, span): (usize, AxisRange),
) -> Vec<Vec<char>> {
    let mut grid = vec![vec![' '; shown.len() * step]; ROWS];
    for (series, letter) in chart.series.iter().zip(letters) {
        for (column, x) in shown.iter().enumerate() {
            let at = |p: &&Point| p.x == *x;
            let Some(part) = series.points.iter().find(at).and_then(|p| span.part(p.y)) else {
                continue;
            };
            let row = (part * (ROWS - 1) as f64).round() as usize;
            let cells = &mut grid[row.min(ROWS - 1)][column * step..(column + 1) * step];
            if let Some(free) = cells.iter_mut().find(|c| **c == ' ') {
                *free = *letter;
            }
        }
    }
    grid
}

/// Rounds to three digits. Labels of text rows are not at round values.
fn round(value: f64) -> f64 {
    if value == 0.0 {
        return value;
    }
    let factor = 10f64.powf(2.0 - value.abs().log10().floor());
    (value * factor).round() / factor
}
