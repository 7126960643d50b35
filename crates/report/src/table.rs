//! The one table that every screen uses: aligned columns, no borders, cut to the width at hand.
//!
//! ```
//! use hugeleaf_report::table::{Align, Table};
//! let mut table = Table::new(&[("NAME", Align::Left), ("HELD", Align::Right)]);
//! table.row(["redis", "4.2G"]);
//! assert_eq!(table.render(100), "NAME   HELD\nredis  4.2G\n");
//! ```

/// Where a column's text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Names and sentences.
    Left,
    /// Numbers.
    Right,
}

/// How the screen is: its width, and whether colour may be used. Colour is never the only sign of
/// anything: whoever prints without it loses nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Columns of the screen.
    pub width: usize,
    /// Whether to use colour and bold.
    pub colour: bool,
}

/// How a text is painted where colour may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Headings.
    Bold,
    /// What matters less.
    Dim,
    /// As it should be.
    Good,
    /// Worth a look.
    Warn,
    /// Wrong.
    Bad,
}

impl Look {
    /// Without colour.
    pub const fn plain(width: usize) -> Look {
        Look {
            width,
            colour: false,
        }
    }

    /// The text, painted where colour may be used.
    pub fn paint(self, text: &str, paint: Paint) -> String {
        let code = match paint {
            Paint::Bold => 1,
            Paint::Dim => 2,
            Paint::Good => 32,
            Paint::Warn => 33,
            Paint::Bad => 31,
        };
        if self.colour && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// The text in lines that fit the screen, the last one ended: the first begins with `first`,
    /// the others with as many blanks. A word longer than a line is not broken, so that what is
    /// to be copied stays whole.
    pub fn wrap(self, first: &str, text: &str) -> String {
        let indent = length(first);
        let mut out = first.to_owned();
        let mut at = indent;
        for word in clean(text).split_whitespace() {
            let is_first = at == indent;
            if !is_first && at + 1 + length(word) > self.width {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                at = indent;
            } else if !is_first {
                out.push(' ');
                at += 1;
            }
            out.push_str(word);
            at += length(word);
        }
        out.push('\n');
        out
    }
}

pub use crate::screen::clean;

/// Rows under a heading. The last left-aligned column gives way where the width is short.
#[derive(Debug, Clone)]
pub struct Table {
    heads: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

/// Between two columns.
const GAP: &str = "  ";

impl Table {
    /// An empty table with these columns.
    pub fn new<S: AsRef<str>>(columns: &[(S, Align)]) -> Table {
        let heads = columns
            .iter()
            .map(|(name, align)| (name.as_ref().to_owned(), *align));
        Table {
            heads: heads.collect(),
            rows: Vec::new(),
            indent: 0,
        }
    }

    /// The same, every line moved right by `spaces`.
    #[must_use]
    pub fn indented(mut self, spaces: usize) -> Table {
        self.indent = spaces;
        self
    }

    /// Adds a row; missing cells are empty, cells past the last column are dropped. Names come
    /// from processes and files of anybody: what could steer a terminal is written out.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| clean(&cell.into())).collect();
        row.resize(self.heads.len(), String::new());
        self.rows.push(row);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, each line ended by a line feed, none longer than `width` characters unless the
    /// columns that cannot give way need more.
    pub fn render(&self, width: usize) -> String {
        self.render_as(Look::plain(width))
    }

    /// The same, the heading in bold where colour may be used.
    pub fn render_as(&self, look: Look) -> String {
        let width = look.width;
        let mut widths: Vec<usize> = (0..self.heads.len()).map(|c| self.widest(c)).collect();
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        let needed = self.indent + widths.iter().sum::<usize>() + gaps;
        if needed > width
            && let Some(elastic) = self.heads.iter().rposition(|(_, a)| *a == Align::Left)
        {
            let least = length(&self.heads[elastic].0).max(8).min(widths[elastic]);
            widths[elastic] = widths[elastic].saturating_sub(needed - width).max(least);
        }
        let heads: Vec<String> = self.heads.iter().map(|(name, _)| name.clone()).collect();
        let mut text = look.paint(&self.line(&heads, &widths), Paint::Bold);
        text.push('\n');
        for row in &self.rows {
            text.push_str(&self.line(row, &widths));
            text.push('\n');
        }
        text
    }

    fn widest(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| length(&row[column]));
        cells
            .chain([length(&self.heads[column].0)])
            .max()
            .unwrap_or(0)
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = " ".repeat(self.indent);
        for (i, ((cell, width), (_, align))) in row.iter().zip(widths).zip(&self.heads).enumerate()
        {
            if i > 0 {
                line.push_str(GAP);
            }
            let cell = cut(cell, *width);
            let pad = " ".repeat(width.saturating_sub(length(&cell)));
            match align {
                Align::Left => line.extend([cell.as_str(), &pad]),
                Align::Right => line.extend([pad.as_str(), &cell]),
            }
        }
        line.trim_end().to_owned()
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// The text in at most `width` characters: the end of a long one is replaced by `…`.
pub fn cut(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// A part of a whole as people write it: `98 %`, `0.3 %`, `-` where there is no whole.
pub fn percent(part: Option<f64>) -> String {
    match part {
        None => "-".into(),
        Some(p) if p > 0.0 && p < 0.01 => format!("{:.1} %", p * 100.0),
        // 99.96 % is not all of it.
        Some(p) if p < 1.0 && p > 0.99 => format!("{:.1} %", (p * 1000.0).floor() / 10.0),
        Some(p) => format!("{:.0} %", p * 100.0),
    }
}

/// A bar of at most `width` characters for a part between 0 and 1.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)]
pub fn bar(part: f64, width: usize) -> String {
    let part = if part.is_finite() {
        part.clamp(0.0, 1.0)
    } else {
        0.0
    };
    let filled = (part * width as f64).round() as usize;
    format!(
        "{}{}",
        "█".repeat(filled),
        "·".repeat(width.saturating_sub(filled))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_the_name_gives_way() {
        let mut table = Table::new(&[("N", Align::Right), ("NAME", Align::Left)]).indented(2);
        table.row(["1", "short"]);
        table.row(["1000", "a rather long name of something"]);
        assert_eq!(
            table.render(100),
            "     N  NAME\n     1  short\n  1000  a rather long name of something\n"
        );
        let narrow = table.render(20);
        assert!(narrow.lines().all(|l| l.chars().count() <= 20), "{narrow}");
        assert!(narrow.contains('…'));
    }

    #[test]
    fn no_name_steers_the_terminal_and_colour_is_off_unless_asked_for() {
        let mut table = Table::new(&[("NAME", Align::Left)]);
        table.row(["ev\x1b[31mil\n"]);
        assert_eq!(table.render(80), "NAME\nev\\u001b[31mil\\u000a\n");
        let look = Look {
            width: 80,
            colour: true,
        };
        assert_eq!(
            table.render_as(look),
            "\x1b[1mNAME\x1b[0m\nev\\u001b[31mil\\u000a\n"
        );
    }

    #[test]
    fn wrapped_text_hangs_under_its_first_word() {
        let look = Look::plain(12);
        assert_eq!(look.wrap("- ", "one two three"), "- one two\n  three\n");
        assert_eq!(
            look.wrap("- ", "averyverylongword b"),
            "- averyverylongword\n  b\n"
        );
        assert_eq!(look.wrap("- ", ""), "- \n");
    }

    #[test]
    fn parts() {
        assert_eq!(percent(None), "-");
        assert_eq!(percent(Some(0.0)), "0 %");
        assert_eq!(percent(Some(0.003)), "0.3 %");
        assert_eq!(percent(Some(0.9999)), "99.9 %");
        assert_eq!(percent(Some(1.0)), "100 %");
        assert_eq!(bar(0.5, 4), "██··");
        assert_eq!(bar(f64::NAN, 2), "··");
    }
}
