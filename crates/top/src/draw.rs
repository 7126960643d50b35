//! Draws the view on a screen of cells. Pure: the drawing depends on the view alone.
//!
//! Names are untrusted, so each passes through [`clean`] before or in this module. Colour is never the only sign.

mod host;
mod pane;
mod styled_text;

use hugeleaf_report::document::{StatusMark, bar_of};
use hugeleaf_report::terminal_escape::{clean, cut, width};
use hugeleaf_units::time::coarse;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Position;
use ratatui::style::Style;

use crate::app::{App, AppMode, LEAST};
use crate::history::spark;
use crate::model::{OperationProgress, TreeSample};
use crate::table::{Column, PlacedColumn};
use styled_text::{BAR, BOLD, DrawOptions, fill, keys, put, put_right};

pub fn draw(app: &App, frame: &mut Frame<'_>) {
    let theme = DrawOptions {
        colour: app.config.colour,
        width: usize::from(app.size.0),
    };
    let area = frame.area();
    // The terminal may have changed its size between two events.
    if area.width < app.size.0 || area.height < app.size.1 || app.is_too_small() {
        return too_small(app, theme, frame.buffer_mut());
    }
    let buffer = frame.buffer_mut();
    match &app.mode {
        AppMode::Pane(pane) => pane::draw(app, pane, theme, buffer),
        AppMode::List | AppMode::Filter(_) => {
            host::draw(app, theme, buffer);
            table(app, theme, buffer);
            moves(app, theme, buffer);
            let end = bottom(app, theme, buffer);
            if let AppMode::Filter(_) = app.mode {
                let last = app.size.1.saturating_sub(1);
                frame.set_cursor_position(Position::new(end, last));
            }
        }
    }
}

fn too_small(app: &App, theme: DrawOptions, buffer: &mut Buffer) {
    let (columns, rows) = app.size;
    let lines = [
        format!("hugeleaf top needs {} columns", LEAST.0),
        format!("and {} rows; here are {columns}", LEAST.1),
        format!("and {rows}. q quits."),
    ];
    for (y, line) in lines.iter().enumerate() {
        put(buffer, 0, y, line, theme.mark(StatusMark::Warn));
    }
}

fn table(app: &App, theme: DrawOptions, buffer: &mut Buffer) {
    let layout = app.layout();
    let placed = app.columns();
    heads(app, &placed, layout.host, buffer);
    let first = layout.host + 1;
    let dim = theme.mark(StatusMark::Dim);
    let Some(sample) = &app.sample else {
        put(buffer, 2, first, "The first scan is running…", dim);
        return;
    };
    if app.rows.is_empty() {
        let text = match app.filter.is_empty() {
            true => "There are no processes.".to_owned(),
            false => format!(
                "No match for '{}' in name, unit, user or PID. Esc shows all.",
                clean(&app.filter)
            ),
        };
        put(buffer, 2, first, &text, dim);
    }
    let selected = app.selected_row();
    for (y, row) in app.in_sight().enumerate() {
        let Some(program) = app.program_at(row) else {
            continue;
        };
        let is_selected = selected == Some(row);
        if is_selected {
            fill(buffer, first + y, BAR);
            put(buffer, 0, first + y, ">", BAR);
        }
        let (at, now) = ((first + y, is_selected), sample.since_boot_seconds);
        for one in &placed {
            cell(app, theme, one, program, at, now, buffer);
        }
    }
}

fn heads(app: &App, placed: &[PlacedColumn], y: usize, buffer: &mut Buffer) {
    fill(buffer, y, BAR);
    for one in placed {
        let head = one.column.name();
        let x = match one.column.is_left() {
            true => one.x,
            false => one.x + one.width - width(head),
        };
        put(buffer, x, y, head, BAR);
        if app.sort.column == one.column {
            let sign = if app.sort.descending { "▼" } else { "▲" };
            let at = match one.column.is_left() {
                true => x + width(head),
                false => x.saturating_sub(1),
            };
            put(buffer, at, y, sign, BAR);
        }
    }
}

fn cell(
    app: &App,
    theme: DrawOptions,
    placed: &PlacedColumn,
    program: &TreeSample,
    (y, is_selected): (usize, bool),
    since_boot: f64,
    buffer: &mut Buffer,
) {
    let (text, mark) = match placed.column {
        Column::History => (
            app.history
                .of_program(program.id())
                .map(|history| spark(&history.coverage, 1.0, placed.width))
                .unwrap_or_default(),
            StatusMark::Plain,
        ),
        column => {
            let cell = column.cell(program, since_boot);
            (cut(&cell.to_string(), placed.width), cell.mark)
        }
    };
    let x = match placed.column.is_left() {
        true => placed.x,
        false => placed.x + placed.width.saturating_sub(width(&text)),
    };
    let style = if is_selected { BAR } else { theme.mark(mark) };
    put(buffer, x, y, &text, style);
}

fn moves(app: &App, theme: DrawOptions, buffer: &mut Buffer) {
    let (layout, warn) = (app.layout(), theme.mark(StatusMark::Warn));
    for (n, one) in app.moves().into_iter().take(layout.moves).enumerate() {
        let y = layout.host + 1 + layout.list + n;
        put(buffer, 0, y, "JOB", BOLD);
        let end = put(buffer, 6, y, &move_line(one), warn);
        let room = theme.width.saturating_sub(end + 2).min(40);
        let part = one.status.done_bytes.share_of(one.status.total_bytes);
        if let Some(part) = part.filter(|_| room >= 8) {
            put(buffer, end + 2, y, &bar_of(part, room), warn);
        }
    }
}

fn move_line(one: &OperationProgress) -> String {
    let whom = format!("{} {} {}", one.what, cut(&clean(&one.name), 15), one.pid);
    let by = match one.by.as_str() {
        "top" => String::new(),
        by => format!(" by the {}", clean(by)),
    };
    let going = clean(&one.status.to_string());
    let longest = match one.status.longest_stall_seconds {
        s if s > 0.0 => format!(", longest {}", coarse(s)),
        _ => String::new(),
    };
    format!(
        "{whom}{by}: {going} (budget {} %{longest})",
        one.budget_percent
    )
}

/// Draws the last line: a note, the typed filter, or keys. Returns the column of the cursor.
fn bottom(app: &App, theme: DrawOptions, buffer: &mut Buffer) -> u16 {
    let y = usize::from(app.size.1).saturating_sub(1);
    let at = match app.selected_row() {
        Some(row) => format!("{} of {}", row + 1, app.rows.len()),
        None => String::new(),
    };
    let filter = match app.filter.is_empty() {
        true => String::new(),
        false => format!("filter: {}  ", clean(&app.filter)),
    };
    let end = match (&app.mode, &app.note) {
        (AppMode::Filter(_), _) => {
            let typed = format!("filter: {}", clean(&app.filter));
            let end = put(buffer, 0, y, &typed, BOLD);
            let help = "Enter applies, Esc cancels";
            put(buffer, end + 3, y, help, theme.mark(StatusMark::Dim));
            put_right(buffer, theme, y, &format!("  {at}"), Style::new());
            end
        }
        (_, Some(note)) => put(buffer, 0, y, &clean(note), theme.mark(StatusMark::Warn)),
        _ => {
            let right = format!("  {filter}{at}");
            let room = theme.width.saturating_sub(width(&right));
            keys(buffer, y, &list_keys(app), room);
            put_right(buffer, theme, y, &right, Style::new());
            0
        }
    };
    u16::try_from(end).unwrap_or(0)
}

fn list_keys(app: &App) -> Vec<(&'static str, &'static str)> {
    let mut keys = vec![("?", "help"), ("q", "quit")];
    if app.playing.is_some() {
        keys.extend([("space", "pause"), ("← →", "step"), ("+ -", "speed")]);
    } else {
        keys.push(("w", "why"));
    }
    if app.config.can_move {
        keys.extend([("p", "promote"), ("d", "demote")]);
    }
    if app.moving.is_some() {
        keys.push(("x", "stop"));
    }
    keys.extend([("/", "filter"), ("< >", "sort"), ("r", "reverse")]);
    keys
}

#[cfg(test)]
pub(crate) mod tests;
