//! A page for a terminal.

use super::{
    Align, Cell, ChartKind, Column, ColumnShrink, CommandHint, ContentBlock, Document, Note,
    RowLimit, Section, ShareBar, StatusMark, Table, line_mark,
};

use crate::terminal_escape::{clean, cut, width};

/// Properties of the terminal, and the requested amount of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    pub width: usize,
    pub colour: bool,
    /// True if tables show all their rows (`--all`).
    pub all: bool,
}

const INDENT: usize = 2;
const GAP: &str = "  ";
/// Minimum width of a sentence in columns; a narrower one goes below its row.
const LEAST_SENTENCE: usize = 30;
/// Minimum width of a cut name in columns.
const LEAST_NAME: usize = 8;
const BAR: usize = 10;
const BELOW_BARS: usize = 8;

impl TextOptions {
    pub const fn plain(width: usize) -> TextOptions {
        TextOptions {
            width,
            colour: false,
            all: false,
        }
    }

    fn paint(self, text: &str, paint: Paint) -> String {
        match PAINTS.iter().find(|(of, _)| *of == paint) {
            Some((_, code)) if self.colour && !text.is_empty() => format!("{code}{text}{END}"),
            _ => text.to_owned(),
        }
    }

    /// Wraps the text to the screen, each line ended. The first line begins with `first` in `paint`, the
    /// others with as many blanks. Long words are not broken, so that text to copy stays whole.
    fn wrap(self, first: &str, paint: Paint, text: &str) -> String {
        let indent = width(first);
        let head = first.trim_end();
        let start = head.len() - head.trim_start().len();
        let mut out = format!(
            "{}{}{}",
            &first[..start],
            self.paint(&head[start..], paint),
            &first[head.len()..]
        );
        self.go_on(&mut out, indent, text);
        out
    }

    /// Appends wrapped text to `out`, whose last line takes `indent` columns, and ends the line.
    fn go_on(self, out: &mut String, indent: usize, text: &str) {
        let mut at = indent;
        for word in clean(text).split_whitespace() {
            let is_first = at == indent;
            if !is_first && at + 1 + width(word) > self.width {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                at = indent;
            } else if !is_first {
                out.push(' ');
                at += 1;
            }
            out.push_str(word);
            at += width(word);
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    Bold,
    Mark(StatusMark),
}

const PAINTS: [(Paint, &str); 5] = [
    (Paint::Bold, "\x1b[1m"),
    (Paint::Mark(StatusMark::Dim), "\x1b[2m"),
    (Paint::Mark(StatusMark::Bad), "\x1b[31m"),
    (Paint::Mark(StatusMark::Good), "\x1b[32m"),
    (Paint::Mark(StatusMark::Warn), "\x1b[33m"),
];
const END: &str = "\x1b[0m";

const PLAIN: Paint = Paint::Mark(StatusMark::Plain);

pub type PaintedLine = Vec<(String, Paint)>;

impl Document {
    /// Returns the page for a terminal, each line ended. Characters that control a terminal are escaped.
    pub fn text(&self, view: TextOptions) -> String {
        let mut parts = Vec::new();
        if !self.lead.is_empty() {
            // A lead that fits is not wrapped, which keeps its spacing.
            let plain = match clean(&self.lead) {
                short if width(&short) <= view.width => short,
                _ => view.wrap("", PLAIN, &self.lead),
            };
            let line = |line| view.paint(line, Paint::Mark(self.mark)) + "\n";
            let text = plain.lines().map(line).collect();
            parts.push(TextBlock { text, apart: false });
        }
        parts.extend(blocks(&self.blocks, 0, view));
        join(&parts)
    }

    /// Returns the same lines for a screen of cells, as parts with their paint instead of escape codes.
    pub fn painted(&self, view: TextOptions) -> Vec<PaintedLine> {
        let view = TextOptions {
            colour: true,
            ..view
        };
        // Names contain no codes, because control characters in them are escaped.
        self.text(view).lines().map(painted_parts).collect()
    }
}

fn painted_parts(line: &str) -> PaintedLine {
    let mut parts = Vec::new();
    for part in line.split_inclusive(END) {
        let (text, painted) = part.split_once('\x1b').unwrap_or((part, ""));
        parts.push((text.to_owned(), PLAIN));
        let code = |(_, code): &&(Paint, &str)| painted.starts_with(&code[1..]);
        if let Some((paint, code)) = PAINTS.iter().find(code) {
            let text = painted[code.len() - 1..].trim_end_matches(END);
            parts.push((text.to_owned(), *paint));
        }
    }
    parts.retain(|(text, _)| !text.is_empty());
    parts
}

fn blocks(blocks: &[ContentBlock], indent: usize, view: TextOptions) -> Vec<TextBlock> {
    let part = |block| part(block, indent, view);
    blocks.iter().map(part).collect()
}

/// The text of a block; `apart` is true if an empty line precedes it.
struct TextBlock {
    text: String,
    apart: bool,
}

fn join(parts: &[TextBlock]) -> String {
    let mut out = String::new();
    for part in parts.iter().filter(|part| !part.text.is_empty()) {
        if part.apart && !out.is_empty() {
            out.push('\n');
        }
        out += &part.text;
    }
    out
}

fn part(block: &ContentBlock, indent: usize, view: TextOptions) -> TextBlock {
    let blank = " ".repeat(indent);
    let text = match block {
        ContentBlock::Section(section) => self::section(section, indent, view),
        ContentBlock::Text(text) => view.wrap(&blank, PLAIN, text),
        ContentBlock::Facts(all) => facts(all, &blank, view),
        ContentBlock::Table(table) => self::table(table, indent, view),
        ContentBlock::Bars(all) => bars(all, &blank, view),
        // Only curves are readable as text.
        ContentBlock::Chart(chart) if chart.kind == ChartKind::Curves => {
            crate::chart::text(chart, view.width)
        }
        ContentBlock::Chart(_) | ContentBlock::Flames(_) => String::new(),
        ContentBlock::Notes(all) => notes(all, &blank, view),
        ContentBlock::Commands(all) => all.iter().map(|c| command(c, &blank, view)).collect(),
        ContentBlock::Lines(all) => all.iter().map(|l| painted_line(l, &blank, view)).collect(),
    };
    let apart = matches!(
        block,
        ContentBlock::Section(_) | ContentBlock::Bars(_) | ContentBlock::Chart(_)
    );
    TextBlock { text, apart }
}

fn section(section: &Section, indent: usize, view: TextOptions) -> String {
    if section.title.is_empty() {
        return join(&blocks(&section.blocks, indent, view));
    }
    let title = view.paint(&clean(&section.title), Paint::Bold);
    let below = join(&blocks(&section.blocks, indent + INDENT, view));
    format!("{}{title}\n{below}", " ".repeat(indent))
}

fn facts(facts: &[(String, Cell)], blank: &str, view: TextOptions) -> String {
    let labels = facts.iter().map(|(label, _)| clean(label));
    let labels: Vec<String> = labels.collect();
    let longest = labels.iter().map(|label| width(label)).max().unwrap_or(0);
    let line = |(label, (_, cell)): (&String, &(String, Cell))| {
        let first = format!("{blank}{}{GAP}", padded(label, longest, Align::Left));
        let text = view.wrap(&first, PLAIN, &cell.to_string());
        match cell.mark {
            StatusMark::Plain => text,
            // Wrap without colour for correct widths, then paint.
            mark => match text.split_at_checked(first.len()) {
                Some((label, value)) => {
                    let value = view.paint(value.trim_end(), Paint::Mark(mark));
                    format!("{label}{value}\n")
                }
                None => text,
            },
        }
    };
    labels.iter().zip(facts).map(line).collect()
}

fn notes(notes: &[Note], blank: &str, view: TextOptions) -> String {
    let words = notes.iter().map(|note| clean(&note.word.to_string()));
    let words: Vec<String> = words.collect();
    let longest = words.iter().map(|word| width(word)).max().unwrap_or(0);
    let mut out = String::new();
    for (note, word) in notes.iter().zip(&words) {
        let first = match longest {
            0 => blank.to_owned(),
            _ => format!("{blank}{}{GAP}", padded(word, longest, Align::Left)),
        };
        let below = " ".repeat(width(&first));
        let text = view.wrap(&first, Paint::Mark(note.word.mark), &note.text);
        let mut commands = note.commands.as_slice();
        // A note without text has its command next to its word.
        if let ([one, rest @ ..], true) = (commands, note.text.is_empty()) {
            let line = command(one, &below, view);
            out += text.trim_end();
            out += &line[width(first.trim_end())..];
            commands = rest;
        } else {
            out += &text;
        }
        for evidence in &note.evidence {
            out += &view.wrap(&format!("{below}- "), PLAIN, evidence);
        }
        for one in commands {
            out += &command(one, &below, view);
        }
    }
    out
}

/// Draws a bar of `columns` characters for a share from 0 to 1.
#[allow(clippy::cast_possible_truncation)]
pub fn bar_of(part: f64, columns: usize) -> String {
    // NaN gives an empty bar.
    let filled = (part.clamp(0.0, 1.0) * columns as f64).round() as usize;
    "█".repeat(filled) + &"·".repeat(columns - filled)
}

/// Formats a command, unwrapped so that it can be copied.
fn command(command: &CommandHint, blank: &str, view: TextOptions) -> String {
    let label = match command.label.is_empty() {
        true => String::new(),
        false => format!("{}: ", clean(&command.label)),
    };
    let mut out = format!("{blank}{label}{}\n", clean(&command.line));
    if !command.note.is_empty() {
        let below = format!("{blank}{}", " ".repeat(width(&label)));
        out += &view.wrap(&below, PLAIN, &command.note);
    }
    out
}

fn bars(bars: &[ShareBar], blank: &str, view: TextOptions) -> String {
    let values: Vec<String> = bars.iter().map(|bar| bar.value.to_string()).collect();
    let longest = values.iter().map(|v| width(v)).max().unwrap_or(0).max(6);
    let below = format!("{blank}{}", " ".repeat(BELOW_BARS));
    let mut out = String::new();
    for (n, (bar, value)) in bars.iter().zip(values).enumerate() {
        // Bars with explanations are separated by empty lines.
        if n > 0 && !bar.text.is_empty() {
            out.push('\n');
        }
        out += &format!(
            "{blank}{}{GAP}{:>6}{GAP}{}{GAP}{}\n",
            padded(&clean(&value), longest, Align::Right),
            Cell::percent(bar.part).to_string(),
            bar_of(bar.part.unwrap_or(0.0), BAR),
            view.paint(&clean(&bar.name.to_string()), Paint::Mark(bar.name.mark))
        );
        if !bar.text.is_empty() {
            out += &view.wrap(&below, PLAIN, &bar.text);
        }
        for one in &bar.commands {
            out += &command(one, &below, view);
        }
    }
    out
}

fn painted_line(line: &str, blank: &str, view: TextOptions) -> String {
    let mark = line_mark(line);
    // A tab in a file is harmless and stays.
    let line: Vec<String> = line.split('\t').map(clean).collect();
    format!(
        "{blank}{}\n",
        view.paint(&line.join("\t"), Paint::Mark(mark))
    )
}

fn padded(text: &str, columns: usize, align: Align) -> String {
    let pad = " ".repeat(columns.saturating_sub(width(text)));
    match align {
        Align::Left => format!("{text}{pad}"),
        Align::Right => format!("{pad}{text}"),
    }
}

/// A table with the columns that fit.
struct FittedTable {
    columns: Vec<(Column, usize)>,
    /// The formatted cells, one row each.
    rows: Vec<Vec<(String, StatusMark)>>,
    indent: usize,
    view: TextOptions,
}

fn table(table: &Table, indent: usize, view: TextOptions) -> String {
    let limit = table.limit.as_ref().filter(|_| !view.all);
    let limit = limit.filter(|limit| limit.rows < table.rows.len());
    let shown = limit.map_or(table.rows.len(), |limit| limit.rows);
    let cell = |row: &[Cell], at: usize| {
        let cell = row.get(at).cloned().unwrap_or_else(Cell::empty);
        (clean(&cell.to_string()), cell.mark)
    };
    let row = |row: &Vec<Cell>| (0..table.columns.len()).map(|at| cell(row, at)).collect();
    let rows: Vec<Vec<(String, StatusMark)>> = table.rows[..shown].iter().map(row).collect();
    let column = |(at, column): (usize, &Column)| {
        let name = clean(&column.name);
        let cells = rows.iter().map(|row| width(&row[at].0));
        let widest = cells.chain([width(&name)]).max().unwrap_or(0);
        (Column { name, ..*column }, widest)
    };
    let mut drawn = FittedTable {
        columns: table.columns.iter().enumerate().map(column).collect(),
        rows,
        indent,
        view,
    };
    drawn.drop_columns();
    let mut out = match drawn.wraps() {
        true => drawn.with_sentences(),
        false => {
            drawn.cut_names();
            drawn.text()
        }
    };
    if let Some(limit) = limit {
        let more = more(limit, table.rows.len() - shown);
        out += &view.wrap(&" ".repeat(indent), PLAIN, &more);
    }
    out
}

/// Formats the note on hidden rows: `… and 3 more that hold 2G between them: --all`.
fn more(limit: &RowLimit, rows: usize) -> String {
    let others = match limit.others.is_empty() {
        true => String::new(),
        false => format!(" {}", limit.others),
    };
    let all = match limit.all.is_empty() {
        true => "--all",
        false => &limit.all,
    };
    format!("… and {rows} more{others}: {all}")
}

impl FittedTable {
    fn needed(&self) -> usize {
        let gaps = GAP.len() * self.columns.len().saturating_sub(1);
        self.indent + self.columns.iter().map(|c| c.1).sum::<usize>() + gaps
    }

    fn wraps(&self) -> bool {
        let last = self.columns.last();
        last.is_some_and(|(column, _)| column.narrow == ColumnShrink::Wrap)
    }

    /// Drops optional columns, the least important first, until the rest fits with the name cut to its
    /// minimum. A last column that wraps need not fit.
    fn drop_columns(&mut self) {
        while self.needed() - self.can_save() > self.view.width {
            let all = self.columns.iter().enumerate();
            let goes = all.filter_map(|(at, (column, _))| match column.narrow {
                ColumnShrink::Drop(order) => Some((order, at)),
                ColumnShrink::Keep | ColumnShrink::Truncate | ColumnShrink::Wrap => None,
            });
            let Some((_, at)) = goes.max() else { return };
            self.columns.remove(at);
            for row in &mut self.rows {
                row.remove(at);
            }
        }
    }

    /// Returns the number of screen columns that cutting a name or a sentence can save.
    fn can_save(&self) -> usize {
        match self.columns.last() {
            Some((_, last)) if self.wraps() => last.saturating_sub(LEAST_SENTENCE),
            _ => self
                .name()
                .map_or(0, |at| self.columns[at].1 - self.least(at)),
        }
    }

    fn name(&self) -> Option<usize> {
        self.columns.iter().rposition(|c| c.0.align == Align::Left)
    }

    fn least(&self, at: usize) -> usize {
        let (column, widest) = &self.columns[at];
        width(&column.name).max(LEAST_NAME).min(*widest)
    }

    /// Cuts the last column of names, or another wider one that may be cut, until all columns fit.
    fn cut_names(&mut self) {
        let last = self.name();
        while self.needed() > self.view.width {
            let may = |at: &usize| {
                self.columns[*at].0.narrow == ColumnShrink::Truncate || Some(*at) == last
            };
            let names = (0..self.columns.len()).filter(may);
            let wider = names.filter(|at| self.columns[*at].1 > self.least(*at));
            let Some(widest) = wider.max_by_key(|at| self.columns[*at].1) else {
                return;
            };
            self.columns[widest].1 -= 1;
        }
    }

    /// Returns head and rows; without a head if no column has a name.
    fn text(&self) -> String {
        let mut out = String::new();
        let is_named = self.columns.iter().any(|c| !c.0.name.is_empty());
        if is_named {
            out += &self.view.paint(&self.head(), Paint::Bold);
            out.push('\n');
        }
        for row in &self.rows {
            out += &self.line(row, self.view);
            out.push('\n');
        }
        out
    }

    fn head(&self) -> String {
        let names = self.columns.iter();
        let names = names.map(|(column, _)| (column.name.clone(), StatusMark::Plain));
        self.line(&names.collect::<Vec<_>>(), self.view)
    }

    fn line(&self, row: &[(String, StatusMark)], view: TextOptions) -> String {
        let mut line = " ".repeat(self.indent);
        for (at, ((text, mark), (column, columns))) in row.iter().zip(&self.columns).enumerate() {
            if at > 0 {
                line += GAP;
            }
            let text = cut(text, *columns);
            let pad = " ".repeat(columns.saturating_sub(width(&text)));
            let text = view.paint(&text, Paint::Mark(*mark));
            match column.align {
                Align::Left => line.extend([text.as_str(), &pad]),
                Align::Right => line.extend([pad.as_str(), &text]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }

    /// Returns the table with the last column wrapped on lines of its own.
    fn with_sentences(mut self) -> String {
        let sentences: Vec<String> = (self.rows.iter_mut())
            .map(|row| row.pop().map(|(text, _)| text).unwrap_or_default())
            .collect();
        let column = self.columns.pop();
        self.cut_names();
        let across = self.needed() + GAP.len();
        let fits = across + LEAST_SENTENCE <= self.view.width;
        let head = match (column, fits) {
            (Some((column, _)), true) => padded(&self.head(), across, Align::Left) + &column.name,
            _ => self.head(),
        };
        let mut out = self.view.paint(head.trim_end(), Paint::Bold) + "\n";
        for (row, sentence) in self.rows.iter().zip(&sentences) {
            out += &self.line(row, self.view);
            if sentence.is_empty() {
                out.push('\n');
            } else if fits {
                let plain = self.line(row, TextOptions::plain(self.view.width));
                out += &" ".repeat(across - width(&plain));
                self.view.go_on(&mut out, across, sentence);
            } else {
                out.push('\n');
                let below = " ".repeat(self.indent + 3 * INDENT);
                out += &self.view.wrap(&below, PLAIN, sentence);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::CellValue;

    fn names() -> Table {
        let rows = [(1_u64, "short"), (1000, "a rather long name of something")];
        let table = Table::from_items(rows).right("N", |row| row.0);
        table.left("NAME", |row| row.1).done()
    }

    fn text(block: impl Into<ContentBlock>, view: TextOptions) -> String {
        let mut page = Document::default();
        page.add(block);
        page.text(view)
    }

    #[test]
    fn painted_lines_are_the_text() {
        let mut page = Document::new("", "as it should be");
        page.mark = StatusMark::Good;
        page.section("ALL \x1b[31m", vec![names().into()])
            .add(vec![Note::new(
                Cell::from("warning").marked(StatusMark::Warn),
                "one",
            )]);
        let view = TextOptions::plain(60);
        let painted = page.painted(view);
        let texts: Vec<String> = (painted.iter())
            .map(|line| line.iter().map(|(text, _)| text.as_str()).collect())
            .collect();
        assert_eq!(texts, page.text(view).lines().collect::<Vec<_>>());
        let good = Paint::Mark(StatusMark::Good);
        assert_eq!(painted[0], [("as it should be".to_owned(), good)]);
        let heading = painted
            .iter()
            .find(|line| line.first().is_some_and(|part| part.1 == Paint::Bold));
        assert_eq!(heading.unwrap()[0].0, "ALL \\u001b[31m");
        let last = painted.last().unwrap();
        assert_eq!(
            last[0],
            ("warning".to_owned(), Paint::Mark(StatusMark::Warn))
        );
        assert_eq!(last[1], ("  one".to_owned(), PLAIN));
    }

    #[test]
    fn columns_align_and_the_name_gives_way() {
        let page = |width| {
            let mut page = Document::default();
            page.section("ALL", vec![names().into()]);
            page.text(TextOptions::plain(width))
        };
        assert_eq!(
            page(100),
            "ALL\n     N  NAME\n     1  short\n  1000  a rather long name of something\n"
        );
        let narrow = page(20);
        assert!(narrow.lines().all(|l| width(l) <= 20), "{narrow}");
        assert!(narrow.contains('…'));
    }

    #[test]
    fn a_long_name_is_cut_before_a_short_last_one() {
        let rows = [["7f0000001000", "a_function_of_a_long_name", "libc.so.6"]];
        let table = Table::from_items(rows)
            .left("ADDRESS", |row| row[0])
            .left("FUNCTION", |row| row[1])
            .narrow(ColumnShrink::Truncate)
            .left("MODULE", |row| row[2]);
        assert_eq!(
            text(table, TextOptions::plain(40)).lines().last(),
            Some("7f0000001000  a_function_of_…  libc.so.6")
        );
    }

    #[test]
    fn a_column_that_says_nothing_is_left_out() {
        let table = |steal: f64| {
            let table = Table::from_items([0.0, steal]).left("HOST", |_| "a");
            text(
                table.nonzero_column("STEAL", |s| Cell::from(CellValue::Share(*s))),
                TextOptions::plain(80),
            )
        };
        assert_eq!(table(0.0), "HOST\na\na\n");
        assert_eq!(table(0.015), "HOST  STEAL\na     0.0 %\na     1.5 %\n");
    }

    #[test]
    fn measured_values_have_three_digits() {
        let cells = [
            CellValue::Share(0.5988),
            CellValue::Time(0.000_012_34),
            CellValue::Flow(1.957e9),
            CellValue::Time(f64::NAN),
        ];
        let texts = cells.map(|cell| cell.to_string());
        assert_eq!(texts, ["59.9 %", "12.3 µs", "1957 MB/s", "-"]);
    }

    #[test]
    fn what_a_note_rests_on_is_a_list_below_it() {
        let mut note = Note::new("note", "slow").run("run", "x");
        note.evidence = vec!["two words".to_owned()];
        assert_eq!(
            text(vec![note], TextOptions::plain(14)),
            "note  slow\n      - two\n        words\n      run: x\n"
        );
    }

    #[test]
    fn columns_are_as_wide_as_a_terminal_shows_them() {
        let table = |rows: &[[&'static str; 2]]| {
            let table = Table::from_items(rows.to_vec()).left("NAME", |row| row[0]);
            table.right("HELD", |row| row[1])
        };
        let mut rows = vec![["漢字", "1G"], ["abc", "20G"]];
        assert_eq!(
            text(table(&rows), TextOptions::plain(80)),
            "NAME  HELD\n漢字    1G\nabc    20G\n"
        );
        rows.push(["漢字漢字漢字漢字漢字", "1G"]);
        let narrow = text(table(&rows), TextOptions::plain(16));
        assert!(narrow.lines().all(|l| width(l) <= 16), "{narrow}");
    }

    #[test]
    fn no_name_steers_the_terminal_and_colour_is_off_unless_asked_for() {
        let rows = [Cell::from("ev\x1b[31mil\n").marked(StatusMark::Bad)];
        let table = Table::from_items(rows).left("NAME", Cell::clone).done();
        assert_eq!(
            text(table.clone(), TextOptions::plain(80)),
            "NAME\nev\\u001b[31mil\\u000a\n"
        );
        let colour = TextOptions {
            colour: true,
            ..TextOptions::plain(80)
        };
        assert_eq!(
            text(table, colour),
            "\x1b[1mNAME\x1b[0m\n\x1b[31mev\\u001b[31mil\\u000a\x1b[0m\n"
        );
    }

    /// Whatever the page contains, its output has no control characters but painting codes.
    #[test]
    #[expect(clippy::too_many_lines, reason = "every part of a page")]
    fn no_part_of_a_page_steers_the_terminal() {
        use super::super::{Axis, Chart, Point, Series};
        let evil = "e\x1b[31mv\x1b[2J\u{9b}\u{202e}il\r\n\t.";
        let shown = "e\\u001b[31mv\\u001b[2J\\u009b\\u202eil\\u000d\\u000a\\u0009.";
        let marked = || Cell::from(evil).marked(StatusMark::Bad);
        let rows = Table::from_items([evil, evil]).left(evil, |text| *text);
        let rows = rows.right(evil, |text| *text).done().limited(1, evil, "");
        let mut wraps = rows.clone().limited(1, "", evil);
        wraps.columns[1].narrow = ColumnShrink::Wrap;
        let axis = || Axis {
            name: evil.to_owned(),
            steps: vec![(1.0, evil.to_owned())],
            ..Axis::default()
        };
        let series = |x: f64| Series {
            name: evil.to_owned(),
            points: vec![Point {
                x,
                y: x,
                note: evil.to_owned(),
                ..Point::default()
            }],
        };
        let chart = Chart {
            title: evil.to_owned(),
            x: axis(),
            y: axis(),
            series: vec![series(1.0), series(2.0)],
            ..Chart::default()
        };
        let bar = ShareBar {
            value: evil.into(),
            name: marked(),
            text: evil.to_owned(),
            commands: vec![CommandHint::new(evil, evil)],
            ..ShareBar::default()
        };
        let mut note = Note::new(marked(), evil).run(evil, evil);
        note.evidence = vec![evil.to_owned()];
        note.commands[0].note = evil.to_owned();
        let all: [ContentBlock; 10] = [
            evil.into(),
            vec![(evil.to_owned(), marked())].into(),
            rows.into(),
            wraps.into(),
            vec![bar].into(),
            chart.into(),
            vec![note, Note::new(evil, "").run(evil, evil)].into(),
            vec![CommandHint::new(evil, evil)].into(),
            ContentBlock::Lines(vec![evil.replace('\t', " ")]),
            Section::new(evil, vec![evil.into()]).into(),
        ];
        for block in all {
            for colour in [false, true] {
                let mut page = Document::new(evil, evil);
                page.mark = StatusMark::Bad;
                page.add(block.clone());
                let text = page.text(TextOptions {
                    colour,
                    ..TextOptions::plain(400)
                });
                let paints = ["\x1b[0m", "\x1b[1m", "\x1b[31m"];
                let bare = match colour {
                    true => paints
                        .iter()
                        .fold(text, |text, paint| text.replace(paint, "")),
                    false => text,
                };
                let lines = bare.replace('\n', "");
                assert_eq!(clean(&lines), lines);
                assert!(
                    bare.contains(shown) || bare.contains("by e\\u001b"),
                    "{bare}"
                );
            }
        }
    }

    #[test]
    fn a_long_table_says_what_it_leaves_out() {
        let table = names().limited(1, "that hold 2G", "");
        assert_eq!(
            text(table.clone(), TextOptions::plain(80)),
            "N  NAME\n1  short\n… and 1 more that hold 2G: --all\n"
        );
        let all = TextOptions {
            all: true,
            ..TextOptions::plain(80)
        };
        assert_eq!(text(table, all), text(names(), TextOptions::plain(80)));
    }

    #[test]
    fn the_least_important_columns_go_first() {
        let table = Table::from_items([["x", "2", "1"]])
            .left("A", |row| row[0])
            .right("SECOND", |row| row[1])
            .narrow(ColumnShrink::Drop(1))
            .right("FIRST", |row| row[2])
            .narrow(ColumnShrink::Drop(2))
            .done();
        let heads = |width| {
            let text = text(table.clone(), TextOptions::plain(width));
            text.lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(
            [heads(40), heads(15), heads(5)],
            ["A  SECOND  FIRST", "A  SECOND", "A"]
        );
    }

    #[test]
    fn sentences_hang_in_their_column_or_below_it() {
        let role = Cell::from("data").marked(StatusMark::Warn);
        let why = "a reason of some words that goes on for long";
        let table = Table::from_items([(role, "12M", why), ("text".into(), "-", "")])
            .left("ROLE", |row| row.0.clone())
            .right("MISSING", |row| row.1)
            .left("WHY", |row| row.2)
            .narrow(ColumnShrink::Wrap)
            .done();
        assert_eq!(
            text(table.clone(), TextOptions::plain(50)),
            "\
ROLE  MISSING  WHY
data      12M  a reason of some words that goes on
               for long
text        -
"
        );
        let colour = TextOptions {
            colour: true,
            ..TextOptions::plain(50)
        };
        assert_eq!(
            text(table.clone(), colour)
                .replace("\x1b[1m", "")
                .replace("\x1b[33m", "")
                .replace("\x1b[0m", ""),
            text(table.clone(), TextOptions::plain(50))
        );
        let narrow = text(table, TextOptions::plain(40));
        assert!(narrow.contains("12M\n      a reason of some"), "{narrow}");
    }

    #[test]
    fn wrapped_text_hangs_under_its_first_word() {
        let view = TextOptions::plain(12);
        assert_eq!(
            view.wrap("- ", PLAIN, "one two three"),
            "- one two\n  three\n"
        );
        assert_eq!(
            view.wrap("- ", PLAIN, "averyverylongword b"),
            "- averyverylongword\n  b\n"
        );
        assert_eq!(view.wrap("- ", PLAIN, ""), "-\n");
    }

    #[test]
    fn good_news_are_green_each_line_by_itself() {
        let mut page = Document::new("", "moved all of it");
        page.mark = StatusMark::Good;
        let colour = TextOptions {
            colour: true,
            ..TextOptions::plain(10)
        };
        assert_eq!(
            page.text(colour),
            "\x1b[32mmoved all\x1b[0m\n\x1b[32mof it\x1b[0m\n"
        );
        assert_eq!(page.text(TextOptions::plain(10)), "moved all\nof it\n");
    }

    #[test]
    fn what_to_type_is_never_broken() {
        let note = Note::new("warning", "some words about it").run("run", "hugeleaf x --y --z");
        assert_eq!(
            text(vec![note], TextOptions::plain(20)),
            "warning  some words\n         about it\n         run: hugeleaf x --y --z\n"
        );
    }
}
