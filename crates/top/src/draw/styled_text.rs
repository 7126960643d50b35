//! Puts styled text on a screen of cells.

use hugeleaf_report::document::{Paint, StatusMark};
use hugeleaf_report::terminal_escape::{cut, width};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

#[derive(Debug, Clone, Copy)]
pub(super) struct DrawOptions {
    pub(super) colour: bool,
    pub(super) width: usize,
}

impl DrawOptions {
    pub(super) fn mark(self, mark: StatusMark) -> Style {
        let style = Style::new();
        match (mark, self.colour) {
            (StatusMark::Plain, _) | (StatusMark::Good | StatusMark::Dim, false) => style,
            (StatusMark::Good, true) => style.fg(Color::Green),
            (StatusMark::Warn, true) => style.fg(Color::Yellow),
            (StatusMark::Bad, true) => style.fg(Color::Red),
            (StatusMark::Dim, true) => style.add_modifier(Modifier::DIM),
            (StatusMark::Warn | StatusMark::Bad, false) => style.add_modifier(Modifier::BOLD),
        }
    }

    pub(super) fn paint(self, paint: Paint) -> Style {
        match paint {
            Paint::Bold => Style::new().add_modifier(Modifier::BOLD),
            Paint::Mark(mark) => self.mark(mark),
        }
    }
}

pub(super) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const BAR: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Writes a text into a line from a column on, cut at the right end. Returns the column after it.
pub(super) fn put(buffer: &mut Buffer, x: usize, y: usize, text: &str, style: Style) -> usize {
    let room = usize::from(buffer.area.width).saturating_sub(x);
    let text = cut(text, room);
    let (Ok(at), Ok(row)) = (u16::try_from(x), u16::try_from(y)) else {
        return x;
    };
    if room == 0 || row >= buffer.area.height {
        return x;
    }
    buffer.set_string(at, row, &text, style);
    x + width(&text)
}

pub(super) fn fill(buffer: &mut Buffer, y: usize, style: Style) {
    let row = " ".repeat(buffer.area.width.into());
    put(buffer, 0, y, &row, style);
}

pub(super) fn put_right(
    buffer: &mut Buffer,
    theme: DrawOptions,
    y: usize,
    text: &str,
    style: Style,
) {
    let x = theme.width.saturating_sub(width(text));
    put(buffer, x, y, text, style);
}

/// Draws keys and their actions, until the room is used.
pub(super) fn keys(buffer: &mut Buffer, y: usize, keys: &[(&str, &str)], room: usize) {
    let mut x = 0;
    for (key, does) in keys {
        if x + width(key) + 1 + width(does) > room {
            return;
        }
        x = put(buffer, x, y, key, BOLD);
        x = put(buffer, x + 1, y, does, Style::new()) + 2;
    }
}
