//! Drawing into SVG that stands in a page: its ink is the colour of the page's text.

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::prelude::*;

/// Drawn as `currentColor`, so that axes and words follow the page from light to dark.
pub(crate) const INK: RGBColor = RGBColor(1, 2, 3);
pub(crate) const INK_IN_SVG: &str = "#010203";

/// Width and height of a chart with axes, in pixels of its own; a page stretches it to its width. Wider, its
/// words could not be read on a narrow screen.
pub(crate) const SIZE: (u32, u32) = (720, 320);

/// Height of words, as the library counts it: a fifth less in pixels.
pub(crate) const FONT: u32 = 16;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws on an area of a size, and hands the SVG back.
///
/// # Errors
/// Those of `chart`, in words.
pub(crate) fn draw(
    size: (u32, u32),
    chart: impl FnOnce(&Area<'_>) -> Result<(), String>,
) -> Result<String, String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        chart(&area)?;
        area.present().map_err(|e| e.to_string())?;
    }
    Ok(svg)
}

/// A chart that cannot be drawn says so instead of spoiling the page.
pub(crate) fn drawn(chart: Result<String, String>) -> Markup {
    match chart {
        Ok(svg) => html! { (PreEscaped(svg.replace(INK_IN_SVG, "currentColor"))) },
        Err(e) => html! { p { "This chart could not be drawn: " (e) } },
    }
}

/// A position in pixels; what is no number stands at 0.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn pixel(at: f64) -> i32 {
    if at.is_finite() { at.round() as i32 } else { 0 }
}
