//! Charts of traces: layers stacked over time, and bars. All sizes in pixels, shares from 0 to 1.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::svg::{INK, draw, pixel};
use crate::table::cut;

/// What a surface stands for. Colours are told apart also by people who do not see red or green, and differ
/// in lightness, so that they are told apart on paper too; each is named beside the chart as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    User,
    System,
    Faint,
    /// The pages of a size: the first is the base page.
    Rung(usize),
}

const USER: RGBColor = RGBColor(240, 170, 40);
const SYSTEM: RGBColor = RGBColor(37, 99, 205);
const FAINT: RGBColor = RGBColor(140, 140, 140);
const RUNGS: [RGBColor; 6] = [
    RGBColor(217, 119, 6),
    RGBColor(120, 180, 240),
    RGBColor(59, 130, 246),
    RGBColor(0, 158, 115),
    RGBColor(204, 105, 167),
    RGBColor(125, 125, 125),
];

impl Fill {
    pub(crate) const fn colour(self) -> RGBColor {
        match self {
            Fill::User => USER,
            Fill::System => SYSTEM,
            Fill::Faint => FAINT,
            Fill::Rung(n) => RUNGS[n % RUNGS.len()],
        }
    }

    /// As a style sheet writes it.
    pub(crate) fn css(self) -> String {
        let RGBColor(r, g, b) = self.colour();
        format!("#{r:02x}{g:02x}{b:02x}")
    }
}

/// A layer of a stacked chart: one share an interval.
pub(crate) struct Layer {
    pub(crate) fill: Fill,
    pub(crate) values: Vec<f64>,
}

/// Layers over time.
pub(crate) struct Stack {
    /// The starts and ends of the intervals, in seconds.
    pub(crate) spans: Vec<(f64, f64)>,
    /// The lowest first.
    pub(crate) layers: Vec<Layer>,
}

impl Stack {
    /// The highest the layers reach together.
    pub(crate) fn highest(&self) -> f64 {
        let sum = |i: usize| -> f64 { self.layers.iter().map(|l| value(l, i)).sum() };
        (0..self.spans.len()).map(sum).fold(0.0, f64::max)
    }
}

fn value(layer: &Layer, at: usize) -> f64 {
    let value = layer.values.get(at).copied().unwrap_or(0.0);
    if value.is_finite() {
        value.max(0.0)
    } else {
        0.0
    }
}

/// A scale that ends at a round number at or above the highest value: two charts with one scale can be compared.
pub(crate) fn scale(highest: f64) -> f64 {
    let steps = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0];
    let fits = steps.iter().copied().find(|s| highest <= s * 0.98);
    fits.unwrap_or(1.0)
}

/// Draws layers, each interval as wide as it was long. `until` and `top` are the ends of the two axes.
///
/// # Errors
/// Where there is nothing to draw, in words.
pub(crate) fn stacked(
    stack: &Stack,
    until: f64,
    top: f64,
    (width, height): (u32, u32),
) -> Result<String, String> {
    if stack.spans.is_empty() {
        return Err("no intervals".to_owned());
    }
    let until = if until > 0.0 { until } else { 1.0 };
    draw((width, height), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..until, 0.0..top)
            .map_err(|e| e.to_string())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.15))
            .axis_style(INK)
            .label_style(("sans-serif", 13).into_font().color(&INK))
            .x_desc("seconds")
            .y_labels(6)
            .x_labels(labels(until))
            .x_label_formatter(&|x| format!("{}", (x * 10.0).round() / 10.0))
            .y_label_formatter(&|y| format!("{:.0} %", y * 100.0))
            .draw()
            .map_err(|e| e.to_string())?;
        let mut floor = vec![0.0; stack.spans.len()];
        for layer in &stack.layers {
            let roof: Vec<f64> = (floor.iter().enumerate())
                .map(|(i, low)| (low + value(layer, i)).min(top))
                .collect();
            let outline = outline(&stack.spans, &floor, &roof);
            chart
                .draw_series([Polygon::new(outline, layer.fill.colour().filled())])
                .map_err(|e| e.to_string())?;
            floor = roof;
        }
        Ok(())
    })
}

/// So many that two neighbours are whole seconds apart, where there are that many seconds.
fn labels(until: f64) -> usize {
    (2..=11)
        .rev()
        .find(|n| f64::from(*n) <= until + 1.0)
        .map_or(3, |n: u32| n as usize)
}

/// Along the roof from left to right, and back along the floor.
fn outline(spans: &[(f64, f64)], floor: &[f64], roof: &[f64]) -> Vec<(f64, f64)> {
    let along = |heights: &[f64]| -> Vec<(f64, f64)> {
        let both = spans.iter().zip(heights);
        both.flat_map(|(&(start, end), &height)| [(start, height), (end, height)])
            .collect()
    };
    let mut points = along(roof);
    points.extend(along(floor).into_iter().rev());
    points
}

/// A part of a bar.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) fill: Fill,
    pub(crate) value: f64,
}

/// A bar and the words beside it.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    /// Left of it; empty where it belongs to the bar above.
    pub(crate) label: String,
    /// Right of its end.
    pub(crate) note: String,
    pub(crate) parts: Vec<Part>,
}

const WIDTH: u32 = 860;
const LINE: i32 = 24;
/// Room for labels at the left and notes at the right.
const LABELS: i32 = 300;
const NOTES: i32 = 190;
const LABEL_CHARACTERS: usize = 40;

/// Draws bars, one below the other, on one scale that ends at `top`.
///
/// # Errors
/// Where there is nothing to draw, in words.
pub(crate) fn bars(bars: &[Bar], top: f64) -> Result<String, String> {
    if bars.is_empty() {
        return Err("nothing to show".to_owned());
    }
    let height = u32::try_from(bars.len()).unwrap_or(1) * LINE.unsigned_abs() + 12;
    let top = if top > 0.0 { top } else { 1.0 };
    let full = f64::from(WIDTH) - f64::from(LABELS + NOTES);
    draw((WIDTH, height), |area| {
        let font = ("sans-serif", 14).into_font().color(&INK);
        for (number, bar) in bars.iter().enumerate() {
            // A bar without a label belongs to the one above, and stands close to it.
            let lift = if bar.label.is_empty() { 4 } else { 0 };
            let y = 6 + i32::try_from(number).unwrap_or(0) * LINE - lift;
            let middle = y + LINE / 2;
            let right = font.pos(Pos::new(HPos::Right, VPos::Center));
            let label = cut(&bar.label, LABEL_CHARACTERS);
            area.draw(&Text::new(label, (LABELS - 10, middle), right))
                .map_err(|e| e.to_string())?;
            let mut sum = 0.0;
            let mut from = LABELS;
            for part in &bar.parts {
                sum += part.value.max(0.0);
                let to = LABELS + pixel(full * (sum / top).min(1.0));
                let corners = [(from, y + 3), (to, y + LINE - 3)];
                if to > from {
                    area.draw(&Rectangle::new(corners, part.fill.colour().filled()))
                        .map_err(|e| e.to_string())?;
                }
                from = to;
            }
            let left = font.pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(bar.note.clone(), (from + 8, middle), left))
                .map_err(|e| e.to_string())?;
        }
        let line = PathElement::new(
            vec![
                (LABELS, 4),
                (LABELS, i32::try_from(height).unwrap_or(0) - 4),
            ],
            INK.mix(0.4),
        );
        area.draw(&line).map_err(|e| e.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(user: &[f64], system: &[f64]) -> Stack {
        #[allow(clippy::cast_precision_loss)]
        let spans = (0..user.len()).map(|i| (i as f64, i as f64 + 1.0));
        let layer = |fill, values: &[f64]| Layer {
            fill,
            values: values.to_vec(),
        };
        Stack {
            spans: spans.collect(),
            layers: vec![layer(Fill::User, user), layer(Fill::System, system)],
        }
    }

    #[test]
    fn no_two_marks_of_the_time_read_the_same() {
        for seconds in [0.4, 1.0, 2.5, 5.0, 7.0, 30.0, 600.0] {
            let svg = stacked(&stack(&[0.1], &[0.1]), seconds, 0.2, (400, 200)).unwrap();
            let words = svg.lines().map(str::trim).filter(|l| !l.starts_with('<'));
            let mut marks: Vec<&str> = words.filter(|l| l.parse::<f64>().is_ok()).collect();
            let all = marks.len();
            marks.sort_unstable();
            marks.dedup();
            assert!(
                all >= 2 && marks.len() == all,
                "{seconds}: {marks:?} of {all}"
            );
        }
    }

    #[test]
    fn layers_stand_on_each_other() {
        let stack = stack(&[0.1, 0.2], &[0.5, 0.4]);
        assert!((stack.highest() - 0.6).abs() < 1e-9);
        let svg = stacked(&stack, 2.0, scale(0.6), (400, 200)).unwrap();
        assert_eq!(svg.matches("<polygon").count(), 2);
        let along = outline(&[(0.0, 1.0)], &[0.1], &[0.6]);
        assert_eq!(along, [(0.0, 0.6), (1.0, 0.6), (1.0, 0.1), (0.0, 0.1)]);
    }

    #[test]
    fn scales_are_round_and_hold_the_highest() {
        assert!((scale(0.0) - 0.05).abs() < 1e-9);
        assert!((scale(0.55) - 0.6).abs() < 1e-9);
        assert!((scale(7.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn odd_values_and_nothing_draw_no_nonsense() {
        assert!(stacked(&stack(&[], &[]), 1.0, 1.0, (400, 200)).is_err());
        let svg = stacked(&stack(&[f64::NAN], &[-1.0]), 0.0, 1.0, (400, 200)).unwrap();
        assert!(!svg.contains("NaN"));
        assert!(bars(&[], 1.0).is_err());
        let bar = Bar {
            label: "a".repeat(99),
            note: "1 %".to_owned(),
            parts: vec![Part {
                fill: Fill::System,
                value: f64::INFINITY,
            }],
        };
        let svg = bars(&[bar], 0.0).unwrap();
        assert!(svg.contains('…') && !svg.contains("inf"));
    }
}
