//! Draws a [`Chart`]: as SVG for a page or a file, and in letters for a terminal.
//!
//! The SVG needs no other file and follows the reader's scheme: ink and the colours of the series are one
//! set in light and one in dark. A series is known by its shape or its name as well as by its colour.

mod bars;
mod draw;
mod plane;
mod text;

use maud::{Markup, PreEscaped, html};

use crate::page::{Chart, ChartKind};

pub(crate) use draw::STYLE;
pub use text::text;

/// The chart as SVG: one `<svg>` element, to stand in a page or in a file by itself. `None` where no point of it
/// can be drawn.
pub fn svg(chart: &Chart) -> Option<String> {
    let drawn = match chart.kind {
        ChartKind::Bars | ChartKind::Stacks => bars::draw(chart)?,
        ChartKind::Curves | ChartKind::Dots | ChartKind::Layers => plane::draw(chart)?,
    };
    Some(drawn.into_string())
}

/// The chart in a page; one that cannot be drawn says so instead of spoiling the page.
pub(crate) fn drawn(chart: &Chart) -> Markup {
    match svg(chart) {
        Some(svg) => PreEscaped(svg),
        None => html! { p { "This chart could not be drawn: no points" } },
    }
}

#[cfg(test)]
mod tests;
