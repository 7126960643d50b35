//! Draws the pane that covers the table.

use hugeleaf_report::document::{Cell, StatusMark, listed};
use hugeleaf_report::terminal_escape::{clean, width};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Sparkline, Widget};

use hugeleaf_units::Bytes;

use super::styled_text::{BAR, BOLD, DrawOptions, fill, keys, put, put_right};
use crate::app::App;
use crate::history::{HistorySeries, spark};
use crate::model::TreeSample;
use crate::pane::{Pane, PaneContent};

pub(super) fn draw(app: &App, pane: &Pane, theme: DrawOptions, buffer: &mut Buffer) {
    fill(buffer, 0, BAR);
    let title = match (&pane.about, &pane.body) {
        (Some(program), _) => {
            let unit = listed("  ", program.unit.as_deref().map(clean));
            format!(" {} ({}){unit}", clean(&program.name), program.pid)
        }
        (None, _) => " hugeleaf top".to_owned(),
    };
    put(buffer, 0, 0, &title, BAR);
    let mut y = 1;
    if let Some(program) = &pane.about {
        head(app, program, app.pane_head(pane), theme, buffer);
        y += app.pane_head(pane);
    }
    let (lines, height) = (app.pane_lines(pane), app.pane_height(pane));
    let from = pane.scroll.min(lines.len().saturating_sub(height));
    for (n, line) in lines[from..].iter().take(height).enumerate() {
        let mut x = 1;
        for (text, paint) in line {
            x = put(buffer, x, y + n, text, theme.paint(*paint));
        }
    }
    let last = usize::from(app.size.1).saturating_sub(1);
    if let (PaneContent::Ask(ask), Some(program)) = (&pane.body, &pane.about) {
        let [what, how] = ask.question(program);
        put(buffer, 1, last - 2, &clean(&what), BOLD);
        put(buffer, 1, last - 1, &clean(&how), Style::new());
    }
    let seen = (from + height).min(lines.len());
    let more = match lines.len() > height {
        true => format!("  lines {}-{seen} of {}", from + 1, lines.len()),
        false => String::new(),
    };
    let room = theme.width.saturating_sub(width(&more));
    match &app.note {
        Some(note) => {
            put(buffer, 0, last, &clean(note), theme.mark(StatusMark::Warn));
        }
        None => {
            keys(buffer, last, &pane_keys(app, pane), room);
            put_right(buffer, theme, last, &more, Style::new());
        }
    }
}

fn pane_keys(app: &App, pane: &Pane) -> Vec<(&'static str, &'static str)> {
    match &pane.body {
        PaneContent::Ask(ask) if ask.is_something() => {
            vec![
                ("y", "yes"),
                ("n", "no"),
                ("+ -", "budget"),
                ("↑ ↓", "scroll"),
            ]
        }
        _ if pane.about.is_some() && app.config.can_move => vec![
            ("Esc", "back"),
            ("↑ ↓", "scroll"),
            ("w", "why"),
            ("p", "promote"),
            ("d", "demote"),
        ],
        _ => vec![("Esc", "back"), ("↑ ↓", "scroll")],
    }
}

fn head(app: &App, about: &TreeSample, height: usize, theme: DrawOptions, buffer: &mut Buffer) {
    let programs = app.sample.iter().flat_map(|sample| &sample.programs);
    let now = programs.into_iter().find(|p| p.id() == about.id());
    let Some(program) = now else {
        put(buffer, 1, 1, "It has ended.", theme.mark(StatusMark::Warn));
        return;
    };
    let facts = match program.held {
        Some(held) => format!(
            "base {}, huge {}, coverage {}, page tables {}, resident {}, CPU {}",
            held.base_bytes,
            held.huge_bytes,
            Cell::percent(program.coverage()),
            held.page_tables_bytes,
            program.resident_bytes,
            Cell::percent(program.cpu)
        ),
        None => match &program.unreadable {
            Some(why) => clean(why),
            None => format!(
                "resident {}, CPU {}",
                program.resident_bytes,
                Cell::percent(program.cpu)
            ),
        },
    };
    put(buffer, 1, 1, &facts, Style::new());
    let Some(history) = app.history.of_program(program.id()) else {
        return;
    };
    let mut y = 2;
    if height >= LEAST_FOR_USE {
        #[allow(clippy::cast_possible_truncation)] // it was made of bytes
        let most = Bytes(history.resident.max() as u64).to_string();
        let cpu = Cell::percent(Some(history.cpu.max())).to_string();
        usage(("CPU", &history.cpu), &cpu, y, theme, buffer);
        usage(("resident", &history.resident), &most, y + 1, theme, buffer);
        y += 2;
    }
    let rows = height.saturating_sub(y);
    chart(&history.coverage, y, rows, theme, buffer);
}

/// Rows of the head from which it shows CPU and memory over time, above coverage.
const LEAST_FOR_USE: usize = 8;

/// Draws usage over time in one row, as a part of its maximum, which ends the row.
fn usage(
    (name, series): (&str, &HistorySeries),
    most: &str,
    y: usize,
    theme: DrawOptions,
    buffer: &mut Buffer,
) {
    const LABEL: usize = 10;
    let most = format!("  at most {most}");
    let room = theme.width.saturating_sub(LABEL + 1 + width(&most));
    put(buffer, 1, y, name, theme.mark(StatusMark::Dim));
    let spark = spark(series, series.max(), room);
    let end = put(buffer, LABEL, y, &spark, Style::new());
    put(buffer, end, y, &most, theme.mark(StatusMark::Dim));
}

/// Draws coverage over time from row `y` on, in `rows` rows.
fn chart(coverage: &HistorySeries, y: usize, rows: usize, theme: DrawOptions, buffer: &mut Buffer) {
    const LABEL: usize = 7;
    if rows < 2 {
        return;
    }
    put(buffer, 1, y, "100 %", theme.mark(StatusMark::Dim));
    put(
        buffer,
        1,
        y + rows - 1,
        "  0 %",
        theme.mark(StatusMark::Dim),
    );
    let points = coverage.fitted(theme.width.saturating_sub(LABEL + 1));
    let size = |n: usize| u16::try_from(n).unwrap_or(0);
    let area = Rect::new(size(LABEL), size(y), size(points.len()), size(rows));
    #[allow(clippy::cast_possible_truncation)] // 0 to 1000
    let thousandths = points.iter().map(|part| (part * 1000.0) as u64);
    Sparkline::default()
        .data(thousandths)
        .max(1000)
        .render(area.intersection(buffer.area), buffer);
}
