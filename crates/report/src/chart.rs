//! Draws a [`Chart`] as SVG for a page or a file, and as text for a terminal.
//!
//! The SVG needs no other file. Ink and series colours have a light and a dark set, chosen by the reader's
//! colour scheme. Shape or name identifies a series as well as colour.

mod bars;
mod primitives;
mod text;
mod xy;

use maud::{Markup, PreEscaped, html};

use crate::document::{Chart, ChartKind};

pub(crate) use primitives::STYLE;
pub use text::text;

/// Returns the chart as one `<svg>` element, usable in a page or as a file. `None` if no point can be drawn.
pub fn svg(chart: &Chart) -> Option<String> {
    let drawn = match chart.kind {
        ChartKind::Bars | ChartKind::Stacks => bars::draw(chart)?,
        ChartKind::Curves | ChartKind::Dots | ChartKind::Layers => xy::draw(chart)?,
    };
    Some(drawn.into_string())
}

/// Returns the chart for a page, or a message if it cannot be drawn.
pub(crate) fn drawn(chart: &Chart) -> Markup {
    match svg(chart) {
        Some(svg) => PreEscaped(svg),
        None => html! { p { "This chart could not be drawn: no points" } },
    }
}

#[cfg(test)]
mod tests;
