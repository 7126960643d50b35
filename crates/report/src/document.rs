//! A screen as data, independent of its rendering.
//!
//! A command has one function from its model to a [`Document`]. Renderers receive only that: [`Document::text`]
//! draws it for a terminal, [`Document::painted`] for a screen of cells, [`Document::html`] for a browser. A value is a
//! typed [`Cell`] until a renderer writes it. Widths, colours, limits and escaping are each in one place.
//!
//! ```
//! use hugeleaf_report::document::{Document, Table, TextOptions};
//! use hugeleaf_units::Bytes;
//! let held = [("redis", Bytes(4 << 30)), ("sh", Bytes(900 << 10))];
//! let mut page = Document::default();
//! page.add(Table::from_items(&held).left("NAME", |h| h.0).right("HELD", |h| h.1));
//! assert_eq!(page.text(TextOptions::plain(80)), "NAME   HELD\nredis    4G\nsh     900K\n");
//! ```

mod cell;
mod chart;
mod html;
mod number;
mod text;

pub use cell::{Cell, CellValue, StatusMark};
pub use chart::{
    Axis, AxisScale, AxisUnit, Chart, ChartKind, FlameGraph, Point, Series, StackFrame,
};
#[cfg(test)]
pub(crate) use html::needs_nothing;
pub use number::{counted, listed};
pub(crate) use number::{number, ratio, short, thousands};
pub use text::{Paint, PaintedLine, TextOptions, bar_of};

/// The output of a command. Names are unescaped: a renderer escapes what its reader would interpret.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// Title of the window; a terminal does not show it.
    pub title: String,
    /// The answer in a sentence or two; empty if the blocks give it.
    pub lead: String,
    pub mark: StatusMark,
    /// The other content in reading order. The end stays visible on a terminal.
    pub blocks: Vec<ContentBlock>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ContentBlock {
    Section(Section),
    /// A paragraph of running text.
    Text(String),
    /// Labels with a value or a sentence each.
    Facts(Vec<(String, Cell)>),
    Table(Table),
    /// Parts of a whole, each with an explanation.
    Bars(Vec<ShareBar>),
    Chart(Chart),
    /// Call stacks; a terminal does not draw them.
    Flames(FlameGraph),
    Notes(Vec<Note>),
    /// Commands to type next, never wrapped.
    Commands(Vec<CommandHint>),
    /// Lines of a file or of a diff, unchanged; lines with a leading `+` or `-` are painted.
    Lines(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section {
    pub title: String,
    /// True if a browser shows only the heading until the reader unfolds it.
    pub folded: bool,
    /// Content of the section; an empty section is not shown.
    pub blocks: Vec<ContentBlock>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    pub columns: Vec<Column>,
    /// The rows; a missing cell is empty.
    pub rows: Vec<Vec<Cell>>,
    pub limit: Option<RowLimit>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct RowLimit {
    pub rows: usize,
    /// A remark on the hidden rows, such as `that hold 2G on base pages between them`; may be empty.
    pub others: String,
    /// The flag that shows them; `--all` if empty.
    pub all: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Align {
    #[default]
    Left,
    Right,
}

/// Behaviour of a column on a narrow screen. If it does not suffice, the last left-aligned column is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ColumnShrink {
    #[default]
    Keep,
    /// Cells are cut before those of the last column if they are wider, because function names can exceed any
    /// screen.
    Truncate,
    /// The column is dropped; the one with the largest number goes first.
    Drop(u8),
    /// Text wraps within the column or, if that is too narrow, below its row. Applies to the last column only.
    Wrap,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Column {
    pub name: String,
    pub align: Align,
    pub narrow: ColumnShrink,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ShareBar {
    pub value: Cell,
    /// Share of the whole, 0 to 1; `None` without a whole.
    pub part: Option<f64>,
    pub name: Cell,
    /// Explanation; may be empty.
    pub text: String,
    pub commands: Vec<CommandHint>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Note {
    /// Kind of the note, such as `warning`; may be empty.
    pub word: Cell,
    pub text: String,
    /// Evidence, one item a line.
    pub evidence: Vec<String>,
    pub commands: Vec<CommandHint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandHint {
    /// Purpose of the command, such as `next`; may be empty.
    pub label: String,
    pub line: String,
    /// Remark to read before typing the command; may be empty.
    pub note: String,
}

impl Document {
    pub fn new(title: impl Into<String>, lead: impl Into<String>) -> Document {
        Document {
            title: title.into(),
            lead: lead.into(),
            ..Document::default()
        }
    }

    /// Adds a block at the end, unless it is empty.
    pub fn add(&mut self, block: impl Into<ContentBlock>) -> &mut Document {
        push(&mut self.blocks, block.into());
        self
    }

    /// Adds blocks under a heading, unless all of them are empty.
    pub fn section(
        &mut self,
        title: impl Into<String>,
        blocks: Vec<ContentBlock>,
    ) -> &mut Document {
        self.add(Section::new(title, blocks))
    }
}

impl Section {
    /// Creates a section of the blocks that are not empty.
    pub fn new(title: impl Into<String>, blocks: Vec<ContentBlock>) -> Section {
        let mut section = Section {
            title: title.into(),
            ..Section::default()
        };
        for block in blocks {
            push(&mut section.blocks, block);
        }
        section
    }

    #[must_use]
    pub fn folded(mut self) -> Section {
        self.folded = true;
        self
    }

    #[must_use]
    pub fn noted(mut self, notes: impl IntoIterator<Item = String>) -> Section {
        for note in notes {
            push(&mut self.blocks, note.into());
        }
        self
    }

    /// Limits each table to `rows` rows at first; `all` is the flag that shows the others.
    #[must_use]
    pub fn limited_to(mut self, rows: usize, all: &str) -> Section {
        self.blocks = (self.blocks.into_iter())
            .map(|block| match block {
                ContentBlock::Table(table) => ContentBlock::Table(table.limited(rows, "", all)),
                ContentBlock::Section(section) => {
                    ContentBlock::Section(section.limited_to(rows, all))
                }
                other => other,
            })
            .collect();
        self
    }
}

fn line_mark(line: &str) -> StatusMark {
    match line.as_bytes().first() {
        Some(b'+') => StatusMark::Good,
        Some(b'-') => StatusMark::Bad,
        Some(b'@') => StatusMark::Dim,
        _ => StatusMark::Plain,
    }
}

fn push(blocks: &mut Vec<ContentBlock>, block: ContentBlock) {
    if !block.is_empty() {
        blocks.push(block);
    }
}

impl ContentBlock {
    pub fn is_empty(&self) -> bool {
        match self {
            ContentBlock::Section(section) => section.blocks.is_empty(),
            ContentBlock::Text(text) => text.is_empty(),
            ContentBlock::Facts(facts) => facts.is_empty(),
            ContentBlock::Table(table) => table.rows.is_empty(),
            ContentBlock::Bars(bars) => bars.is_empty(),
            ContentBlock::Chart(chart) => chart.series.iter().all(|s| s.points.is_empty()),
            ContentBlock::Flames(flames) => flames.stacks.is_empty(),
            ContentBlock::Notes(notes) => notes.is_empty(),
            ContentBlock::Commands(commands) => commands.is_empty(),
            ContentBlock::Lines(lines) => lines.is_empty(),
        }
    }
}

impl Table {
    /// Starts a table with one row for each of `items`; columns follow.
    pub fn from_items<T>(items: impl IntoIterator<Item = T>) -> TableBuilder<T> {
        let items: Vec<T> = items.into_iter().collect();
        let rows = vec![Vec::new(); items.len()];
        TableBuilder {
            items,
            table: Table {
                rows,
                ..Table::default()
            },
        }
    }

    #[must_use]
    pub fn limited(
        mut self,
        rows: usize,
        others: impl Into<String>,
        all: impl Into<String>,
    ) -> Table {
        self.limit = Some(RowLimit {
            rows,
            others: others.into(),
            all: all.into(),
        });
        self
    }
}

/// A table built column by column, so that a column's name and content are in one line of code.
#[derive(Debug)]
pub struct TableBuilder<T> {
    items: Vec<T>,
    table: Table,
}

impl<T> TableBuilder<T> {
    pub fn items(&self) -> &[T] {
        &self.items
    }

    #[must_use]
    pub fn left<C: Into<Cell>>(self, name: impl Into<String>, cell: impl Fn(&T) -> C) -> Self {
        self.column(name, Align::Left, cell)
    }

    #[must_use]
    pub fn right<C: Into<Cell>>(self, name: impl Into<String>, cell: impl Fn(&T) -> C) -> Self {
        self.column(name, Align::Right, cell)
    }

    /// Adds a column of numbers, unless all are zero: not every host swaps.
    #[must_use]
    pub fn nonzero_column<C: Into<Cell>>(
        self,
        name: impl Into<String>,
        cell: impl Fn(&T) -> C,
    ) -> Self {
        let cells: Vec<Cell> = self.items.iter().map(|item| cell(item).into()).collect();
        match cells.iter().all(Cell::is_nothing) {
            true => self,
            false => self.right(name, cell),
        }
    }

    fn column<C: Into<Cell>>(
        mut self,
        name: impl Into<String>,
        align: Align,
        cell: impl Fn(&T) -> C,
    ) -> Self {
        self.table.columns.push(Column {
            name: name.into(),
            align,
            narrow: ColumnShrink::Keep,
        });
        for (row, item) in self.table.rows.iter_mut().zip(&self.items) {
            row.push(cell(item).into());
        }
        self
    }

    #[must_use]
    pub fn when(self, yes: bool, more: impl FnOnce(Self) -> Self) -> Self {
        if yes { more(self) } else { self }
    }

    /// Adds one or more columns for each of `all`.
    #[must_use]
    pub fn columns_for<E>(
        self,
        all: impl IntoIterator<Item = E>,
        more: impl Fn(Self, E) -> Self,
    ) -> Self {
        all.into_iter().fold(self, more)
    }

    #[must_use]
    pub fn narrow(mut self, narrow: ColumnShrink) -> Self {
        if let Some(last) = self.table.columns.last_mut() {
            last.narrow = narrow;
        }
        self
    }

    pub fn done(self) -> Table {
        self.table
    }
}

impl Note {
    pub fn plain(text: impl Into<String>) -> Note {
        Note::new("", text)
    }

    /// Creates a note for each of the texts, all with the same word.
    pub fn each<T: Into<String>>(
        word: &str,
        texts: impl IntoIterator<Item = T>,
    ) -> impl Iterator<Item = Note> {
        texts.into_iter().map(move |text| Note::new(word, text))
    }

    pub fn marked(word: &str, mark: StatusMark, text: impl Into<String>) -> Note {
        Note::new(Cell::from(word).marked(mark), text)
    }

    pub fn new(word: impl Into<Cell>, text: impl Into<String>) -> Note {
        Note {
            word: word.into(),
            text: text.into(),
            ..Note::default()
        }
    }

    #[must_use]
    pub fn run(mut self, label: impl Into<String>, line: impl Into<String>) -> Note {
        self.commands.push(CommandHint::new(label, line));
        self
    }

    #[must_use]
    pub fn then(mut self, command: CommandHint) -> Note {
        self.commands.push(command);
        self
    }
}

impl CommandHint {
    pub fn new(label: impl Into<String>, line: impl Into<String>) -> CommandHint {
        CommandHint {
            label: label.into(),
            line: line.into(),
            note: String::new(),
        }
    }

    /// Adds the risk of the command to its note, if there is one.
    #[must_use]
    pub fn at_risk(mut self, risk: Option<String>) -> CommandHint {
        if let Some(risk) = risk {
            let end = if self.note.is_empty() { "" } else { "; " };
            self.note = format!("{}{end}risk: {risk}", self.note);
        }
        self
    }

    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> CommandHint {
        self.note = note.into();
        self
    }
}

/// Pairs a label with its value.
pub fn fact(label: impl Into<String>, value: impl Into<Cell>) -> (String, Cell) {
    (label.into(), value.into())
}

impl<T> From<TableBuilder<T>> for Table {
    fn from(table: TableBuilder<T>) -> Table {
        table.table
    }
}

impl<T> From<TableBuilder<T>> for ContentBlock {
    fn from(table: TableBuilder<T>) -> ContentBlock {
        ContentBlock::Table(table.table)
    }
}

macro_rules! blocks {
    ($($from:ty => $block:ident),* $(,)?) => {$(
        impl From<$from> for ContentBlock {
            fn from(content: $from) -> ContentBlock {
                ContentBlock::$block(content.into())
            }
        }
    )*};
}

blocks! {
    Section => Section,
    String => Text,
    &str => Text,
    Vec<(String, Cell)> => Facts,
    Table => Table,
    Vec<ShareBar> => Bars,
    Chart => Chart,
    FlameGraph => Flames,
    Vec<Note> => Notes,
    Vec<CommandHint> => Commands,
}
