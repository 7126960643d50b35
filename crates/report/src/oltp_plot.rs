//! Bars from 0 with the interval of each and its samples, in groups on one scale.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::svg::{Area, FONT, INK, draw, pixel};
use crate::table::cut;

/// What a bar is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Measured here.
    Sure,
    /// Measured here, and to be doubted: hollow.
    Doubtful,
    /// Of somebody else: grey.
    Published,
}

/// A bar, and what belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Left of it.
    pub(crate) label: String,
    /// Its length; without one there is no bar.
    pub(crate) value: Option<f64>,
    /// The ends of its interval.
    pub(crate) ends: Option<(f64, f64)>,
    /// Samples, below it.
    pub(crate) dots: Vec<f64>,
    /// Right of all bars.
    pub(crate) note: String,
    pub(crate) look: Look,
}

/// Bars under a title.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
}

// As in the other charts: told apart from white and from black, and from each other in lightness.
const OURS: RGBColor = RGBColor(59, 130, 246);
const THEIRS: RGBColor = RGBColor(140, 140, 140);

const WIDTH: u32 = 720;
const TITLE: i32 = 24;
/// Height of a row of ours: the bar, and its samples below; of one without samples the bar alone.
const ROW: i32 = 34;
const BARE_ROW: i32 = 24;
const BAR: i32 = 16;
const AXIS: i32 = 44;
/// Pixels that a character takes at most, and the most room for words on either side.
const A_CHARACTER: usize = 8;
const MOST_LABEL: usize = 20;
const MOST_NOTE: usize = 26;

/// Where bars begin and end, and what their scale is.
struct Frame {
    from: i32,
    to: i32,
    top: f64,
}

impl Frame {
    fn at(&self, value: f64) -> i32 {
        let part = (value / self.top).clamp(0.0, 1.0);
        self.from + pixel(part * f64::from(self.to - self.from))
    }
}

/// Draws; `level` has a line through all bars (100 of ratios), `axis` stands below.
///
/// # Errors
/// Where there is nothing to draw, in words.
pub(crate) fn bars(groups: &[Group], axis: &str, level: f64) -> Result<String, String> {
    let rows = || groups.iter().flat_map(|g| &g.rows);
    if rows().all(|row| row.look == Look::Published || row.value.is_none()) {
        return Err("nothing was measured that could be held against the first arm".to_owned());
    }
    let highest = rows()
        .flat_map(|row| {
            let ends = row.ends.map(|(_, high)| high);
            row.value.into_iter().chain(ends).chain(row.dots.clone())
        })
        .filter(|v| v.is_finite())
        .fold(level, f64::max);
    let (step, top) = scale(highest);
    let frame = Frame {
        from: room(rows().map(|row| row.label.as_str()), MOST_LABEL),
        to: i32::try_from(WIDTH).unwrap_or(i32::MAX)
            - room(rows().map(|row| row.note.as_str()), MOST_NOTE),
        top,
    };
    let bottom: i32 = groups.iter().map(height).sum();
    let height = u32::try_from(bottom + AXIS).unwrap_or(WIDTH);
    draw((WIDTH, height), |area| {
        grid(area, &frame, bottom, step, axis)?;
        let mut y = 0;
        for group in groups {
            write(area, &group.title, (4, y + TITLE / 2), HPos::Left)?;
            y += TITLE;
            for row in &group.rows {
                bar(area, &frame, row, y)?;
                y += row_height(row);
            }
        }
        let at = frame.at(level);
        let line = PathElement::new(vec![(at, TITLE / 2), (at, bottom)], INK.stroke_width(1));
        area.draw(&line).map_err(|e| e.to_string())
    })
}

fn row_height(row: &Row) -> i32 {
    if row.dots.is_empty() { BARE_ROW } else { ROW }
}

fn height(group: &Group) -> i32 {
    TITLE + group.rows.iter().map(row_height).sum::<i32>()
}

/// Room for the longest of some words.
fn room<'a>(words: impl Iterator<Item = &'a str>, most: usize) -> i32 {
    let longest = words.map(|w| w.chars().count()).max().unwrap_or(0);
    i32::try_from(longest.min(most) * A_CHARACTER + 16).unwrap_or(200)
}

/// A round step, and a round end at or above the highest value.
fn scale(highest: f64) -> (f64, f64) {
    let highest = highest.max(f64::MIN_POSITIVE);
    let decade = 10f64.powf((highest / 8.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * decade);
    let step = steps.into_iter().find(|step| highest / step <= 8.0);
    let step = step.unwrap_or(10.0 * decade);
    (step, (highest / step * 1.01).ceil() * step)
}

fn write(area: &Area<'_>, text: &str, at: (i32, i32), side: HPos) -> Result<(), String> {
    let style = ("sans-serif", FONT).into_font().color(&INK);
    let style = style.pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))
        .map_err(|e| e.to_string())
}

/// Lines at round values, with the values and the name of the axis below.
fn grid(area: &Area<'_>, frame: &Frame, bottom: i32, step: f64, axis: &str) -> Result<(), String> {
    let mut value = 0.0;
    while value <= frame.top * 1.001 {
        let x = frame.at(value);
        let line = PathElement::new(vec![(x, TITLE), (x, bottom)], INK.mix(0.15));
        area.draw(&line).map_err(|e| e.to_string())?;
        let text = crate::prove::number(value);
        write(area, &text, (x, bottom + 10), HPos::Center)?;
        value += step;
    }
    let middle = i32::midpoint(frame.from, frame.to);
    write(area, axis, (middle, bottom + 30), HPos::Center)
}

fn bar(area: &Area<'_>, frame: &Frame, row: &Row, y: i32) -> Result<(), String> {
    let (above, below) = (y + 3, y + 3 + BAR);
    let middle = i32::midpoint(above, below);
    let label = cut(&row.label, MOST_LABEL);
    write(area, &label, (frame.from - 8, middle), HPos::Right)?;
    let note = cut(&row.note, MOST_NOTE);
    write(area, &note, (frame.to + 10, middle), HPos::Left)?;
    let Some(value) = row.value.filter(|v| v.is_finite()) else {
        return Ok(());
    };
    let corners = [(frame.from, above), (frame.at(value), below)];
    let (fill, edge) = match row.look {
        Look::Sure => (Some(OURS.mix(0.45)), OURS),
        Look::Doubtful => (None, OURS),
        Look::Published => (Some(THEIRS.mix(0.45)), THEIRS),
    };
    if let Some(fill) = fill {
        area.draw(&Rectangle::new(corners, fill.filled()))
            .map_err(|e| e.to_string())?;
    }
    area.draw(&Rectangle::new(corners, edge.stroke_width(1)))
        .map_err(|e| e.to_string())?;
    if let Some((low, high)) = row.ends.filter(|(l, h)| l.is_finite() && h.is_finite()) {
        interval(area, (frame.at(low), frame.at(high)), middle)?;
    }
    for dot in row.dots.iter().filter(|v| v.is_finite()) {
        let at = (frame.at(*dot), below + 8);
        area.draw(&Circle::new(at, 2, INK.mix(0.7).filled()))
            .map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// A line from end to end with a stroke across at both.
fn interval(area: &Area<'_>, (low, high): (i32, i32), y: i32) -> Result<(), String> {
    let across = |x: i32| vec![(x, y - 5), (x, y + 5)];
    for path in [vec![(low, y), (high, y)], across(low), across(high)] {
        area.draw(&PathElement::new(path, INK.stroke_width(2)))
            .map_err(|e| e.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, value: Option<f64>, look: Look) -> Row {
        Row {
            label: label.to_owned(),
            value,
            ends: value.map(|v| (v * 0.98, v * 1.02)),
            dots: value.into_iter().collect(),
            note: value.map_or_else(|| "not had".to_owned(), |v| v.to_string()),
            look,
        }
    }

    fn drawn(rows: Vec<Row>) -> Result<String, String> {
        let title = "here".to_owned();
        bars(&[Group { title, rows }], "base = 100", 100.0)
    }

    #[test]
    fn a_bar_an_arm_with_its_interval_and_dots() {
        let svg = drawn(vec![
            row("base", Some(100.0), Look::Sure),
            row("thp:2M", Some(116.0), Look::Doubtful),
            row("hugetlb:1G", None, Look::Sure),
        ])
        .unwrap();
        // A bar filled and edged, a hollow one, none of what was not had.
        assert_eq!(svg.matches("<rect").count(), 3);
        assert_eq!(svg.matches("<circle").count(), 2);
        for part in [
            "base",
            "thp:2M",
            "hugetlb:1G",
            "not had",
            "116",
            "base = 100",
        ] {
            assert!(svg.contains(part), "{part}");
        }
    }

    #[test]
    fn odd_values_draw_no_nonsense() {
        let odd = vec![
            row("a", Some(f64::NAN), Look::Sure),
            row("b", Some(f64::INFINITY), Look::Sure),
            row("c", Some(11_600.0), Look::Sure),
        ];
        let svg = drawn(odd).unwrap();
        assert!(!svg.contains("<rect x=\"NaN") && !svg.contains("-2147"));
        // The axis goes on to where the longest bar ends.
        assert!(svg.contains("12,000"), "{svg}");
        assert!(drawn(vec![row("c", None, Look::Sure)]).is_err());
        assert!(drawn(vec![row("DB2", Some(100.0), Look::Published)]).is_err());
    }

    #[test]
    fn scales_are_round_and_hold_the_highest() {
        for (highest, expected) in [
            (100.0, 120.0),
            (126.0, 140.0),
            (1.0, 1.2),
            (11_600.0, 12_000.0),
        ] {
            let (step, top) = scale(highest);
            assert!(top >= highest && top / step <= 10.0, "{highest}");
            assert!((top - expected).abs() < 1e-9, "{highest}: {top}");
        }
    }
}
