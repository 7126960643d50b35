//! A chart made of letters: one column a working set, latency upwards, on a logarithmic scale.

use super::short;

/// A line of points; `None` where there is none.
pub(super) struct Series {
    /// What its points are drawn as.
    pub(super) letter: char,
    /// A value for each column.
    pub(super) values: Vec<Option<f64>>,
}

const ROWS: usize = 14;
/// Columns of text a point takes at least: its label.
const LABEL: usize = 5;

/// Draws; `labels` stand below the columns. Empty where there is nothing to draw. Where two points
/// fall together, the letter of the later series is shown, beside the earlier one.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)]
pub(super) fn draw(series: &[Series], labels: &[String], width: usize) -> String {
    let all = || series.iter().flat_map(|s| s.values.iter().flatten());
    let usable = |v: &&f64| v.is_finite() && **v > 0.0;
    let low = all().filter(usable).copied().fold(f64::INFINITY, f64::min);
    let high = all().filter(usable).copied().fold(0.0, f64::max);
    if low > high {
        return String::new();
    }
    // A tenth of room for a chart of a single value.
    let (bottom, top) = ((low * 0.95).ln(), (high * 1.05).ln());
    let row_of = |v: f64| ((v.ln() - bottom) / (top - bottom) * (ROWS - 1) as f64).round() as usize;
    let axis = 7;
    // A blank between the letters of neighbours.
    let step = LABEL.max(series.len() + 1);
    let fits = (width.saturating_sub(axis + 2) / step).max(2);
    // Too many columns: every second one, or third.
    let every = labels.len().div_ceil(fits).max(1);
    let shown: Vec<usize> = (0..labels.len()).step_by(every).collect();
    let mut grid = vec![vec![' '; shown.len() * step]; ROWS];
    for one in series {
        for (column, at) in shown.iter().enumerate() {
            let Some(value) = one.values.get(*at).copied().flatten() else {
                continue;
            };
            if !(value.is_finite() && value > 0.0) {
                continue;
            }
            let row = &mut grid[row_of(value).min(ROWS - 1)];
            let cells = &mut row[column * step..(column + 1) * step];
            if let Some(free) = cells.iter_mut().find(|c| **c == ' ') {
                *free = one.letter;
            }
        }
    }
    let mut out = String::new();
    for (row, cells) in grid.iter().enumerate().rev() {
        let value = (bottom + (top - bottom) * row as f64 / (ROWS - 1) as f64).exp();
        let label = match row % 3 {
            1 => short(value),
            _ => String::new(),
        };
        let line: String = cells.iter().collect();
        out.push_str(format!("{label:>axis$} │{line}").trim_end());
        out.push('\n');
    }
    out.push_str(&format!(
        "{:>axis$} └{}\n",
        "",
        "─".repeat(shown.len() * step)
    ));
    let below: String = shown
        .iter()
        .map(|at| format!("{:<step$}", labels[*at]))
        .collect();
    out.push_str(format!("{:>axis$}  {below}", "").trim_end());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stand_where_their_values_are() {
        let series = [
            Series {
                letter: 'b',
                values: vec![Some(1.0), Some(10.0), Some(100.0)],
            },
            Series {
                letter: 't',
                values: vec![Some(1.0), None, Some(50.0)],
            },
        ];
        let labels = ["64K", "1M", "16M"].map(str::to_owned);
        let text = draw(&series, &labels, 80);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), ROWS + 2);
        // The top row has the largest, the lowest both of the smallest, side by side.
        assert!(rows[0].ends_with("│          b"), "{text}");
        assert!(rows[ROWS - 1].ends_with("│bt"), "{text}");
        assert!(rows[ROWS + 1].contains("64K  1M   16M"), "{text}");
    }

    #[test]
    fn nothing_is_drawn_of_nothing_and_width_is_kept() {
        assert_eq!(draw(&[], &[], 80), "");
        let values = vec![Some(2.0); 40];
        let labels = vec!["1M".to_owned(); 40];
        let text = draw(
            &[Series {
                letter: 'b',
                values,
            }],
            &labels,
            60,
        );
        assert!(text.lines().all(|l| l.chars().count() <= 60), "{text}");
        let odd = vec![Some(f64::NAN), Some(-1.0), Some(0.0)];
        assert_eq!(
            draw(
                &[Series {
                    letter: 'b',
                    values: odd
                }],
                &labels,
                60
            ),
            ""
        );
    }
}
