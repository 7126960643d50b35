//! A self-contained page of HTML: no network, no script, readable in light and in dark. Tables show all rows.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    Align, Cell, CommandHint, ContentBlock, Document, Note, Section, ShareBar, StatusMark, Table,
    line_mark,
};
use crate::chart::drawn;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8885; --soft: #8882; --dim: #59636e;
  --good: #15803d; --warn: #b45309; --bad: #dc2626; }
@media (prefers-color-scheme: dark) { :root { --dim: #9198a1; --good: #4ade80; --warn: #fbbf24; --bad: #f87171; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem;
  background: Canvas; color: CanvasText; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3, h4, caption { font-size: 1rem; font-weight: bold; margin: 1.2rem 0 .3rem; text-align: left; }
header, .note { padding-left: 1rem; border-left: .5rem solid var(--line); }
header.good, .note.good { border-color: var(--good); } header.warn, .note.warn { border-color: var(--warn); }
header.bad, .note.bad { border-color: var(--bad); }
.lead { font-size: 1.1rem; margin: .25rem 0 0; }
table { border-collapse: collapse; margin: .5rem 0; } td, th { padding: .2rem 1.2rem .2rem 0; text-align: left;
  vertical-align: top; border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; overflow-wrap: break-word; }
td:last-child { overflow-wrap: anywhere; }
th { font-size: .85rem; font-weight: 600; } th[scope=row] { font-size: 1rem; font-weight: normal; overflow-wrap: normal; }
.r { text-align: right; white-space: nowrap; }
td.good, li.good { color: var(--good); } td.warn { color: var(--warn); } td.bad { color: var(--bad); }
td.dim, pre .dim { color: var(--dim); }
.bar { width: 10rem; height: .8rem; margin-top: .35rem; background: var(--soft); }
.bar div { height: 100%; background: currentColor; opacity: .7; }
.note { margin: 1rem 0; } .note p, .note ul { margin: .2rem 0; }
.scroll { overflow-x: auto; }
.chart { min-width: 620px; } .flame { min-width: 900px; } code, pre { background: var(--soft); padding: .1rem .3rem;
  overflow-wrap: anywhere; white-space: pre-wrap; } .good, .bad { text-decoration: none; }
pre .good { color: var(--good); } pre .bad { color: var(--bad); }
time { white-space: nowrap; }
@media (max-width: 600px) { .scroll table { width: max-content; } .scroll td { max-width: 14rem; }
  th[scope=row] { max-width: 8.6rem; padding-right: .6rem; overflow-wrap: break-word; } th[scope=row] + td { padding-right: 0; } }
details > summary { cursor: pointer; margin: 1rem 0 .5rem; font-weight: bold; }
";

impl Document {
    /// Returns the page as an HTML document. Characters special to HTML are escaped, and those that control a
    /// terminal too, because the file may be printed there.
    pub fn html(&self) -> String {
        whole(
            self,
            STYLE,
            &html! { (head(self)) (blocks(&self.blocks, 2)) },
        )
    }

    /// Returns one of several served pages, with links to the others and a script that may replace the content
    /// of `main`. Without the script the page is the same.
    pub(crate) fn html_within(&self, style: &str, nav: &Markup, script: &str) -> String {
        let body = html! {
            (nav)
            main { (head(self)) (blocks(&self.blocks, 2)) }
            script { (PreEscaped(script)) }
        };
        whole(self, &format!("{STYLE}{style}"), &body)
    }
}

/// Returns the title of the page, or its lead if the title is empty.
fn title(page: &Document) -> &str {
    if page.title.is_empty() {
        &page.lead
    } else {
        &page.title
    }
}

fn head(page: &Document) -> Markup {
    // Show the lead only if it is not the title already.
    let title = title(page);
    html! {
        header class=[class(page.mark)] {
            h1 { (title) }
            @if !page.lead.is_empty() && page.lead != *title { p.lead { (page.lead) } }
        }
    }
}

fn whole(page: &Document, style: &str, body: &Markup) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title(page)) }
                style { (PreEscaped(style)) }
            }
            body { (body) }
        }
    };
    crate::terminal_escape::screen(&document.into_string()).into_owned()
}

fn class(mark: StatusMark) -> Option<&'static str> {
    match mark {
        StatusMark::Plain => None,
        StatusMark::Good => Some("good"),
        StatusMark::Warn => Some("warn"),
        StatusMark::Bad => Some("bad"),
        StatusMark::Dim => Some("dim"),
    }
}

/// Renders blocks; `level` is the level of their headings, from 2.
fn blocks(all: &[ContentBlock], level: usize) -> Markup {
    html! { @for one in all { (block(one, level)) } }
}

fn block(block: &ContentBlock, level: usize) -> Markup {
    match block {
        ContentBlock::Section(section) => self::section(section, level),
        ContentBlock::Text(text) => html! { p { (with_times(text)) } },
        ContentBlock::Facts(all) => facts(all),
        ContentBlock::Table(table) => self::table(table),
        ContentBlock::Bars(all) => bars(all),
        ContentBlock::Chart(chart) => html! {
            @if !chart.title.is_empty() { (heading(&chart.title, level.max(3))) }
            div.scroll { (drawn(chart)) }
        },
        ContentBlock::Flames(all) => html! {
            @if let Some(drawn) = crate::flame_graph::svg(all) { div.scroll { (PreEscaped(drawn)) } }
        },
        ContentBlock::Notes(all) => notes(all),
        ContentBlock::Commands(all) => html! { @for one in all { (command(one)) } },
        ContentBlock::Lines(all) => lines(all),
    }
}

fn section(section: &Section, level: usize) -> Markup {
    if section.folded {
        let title = match section.title.as_str() {
            "" => "Table",
            title => title,
        };
        return html! { details { summary { (title) } (blocks(&section.blocks, level + 1)) } };
    }
    html! {
        @if !section.title.is_empty() { (heading(&section.title, level)) }
        (blocks(&section.blocks, level + 1))
    }
}

fn heading(title: &str, level: usize) -> Markup {
    match level {
        0..=2 => html! { h2 { (title) } },
        3 => html! { h3 { (title) } },
        _ => html! { h4 { (title) } },
    }
}

fn facts(facts: &[(String, Cell)]) -> Markup {
    html! {
        table { tbody { @for (label, cell) in facts { tr {
            th scope="row" { (label) }
            td class=[class(cell.mark)] { (with_times(&cell.to_string())) }
        } } } }
    }
}

/// Marks timestamps, because browsers break lines at their hyphens.
fn with_times(text: &str) -> Markup {
    let is_time = |word: &str| {
        let mut parts = word.split('-');
        let is_year = parts.next().is_some_and(|year| year.parse::<u16>().is_ok());
        is_year && parts.count() == 2 && word.contains('T')
    };
    html! {
        @for (n, word) in text.split(' ').enumerate() {
            @if n > 0 { " " }
            @if is_time(word) { time { (word) } } @else { (word) }
        }
    }
}

/// Renders a table that scrolls sideways if it is wider than the page.
fn table(table: &Table) -> Markup {
    let side = |align| (align == Align::Right).then_some("r");
    let of = |cell: &Cell, align| {
        let classes: Vec<&str> = side(align).into_iter().chain(class(cell.mark)).collect();
        (!classes.is_empty()).then(|| classes.join(" "))
    };
    let empty = Cell::empty();
    html! {
        div.scroll { table {
            @if table.columns.iter().any(|column| !column.name.is_empty()) {
                thead { tr { @for column in &table.columns { th class=[side(column.align)] { (column.name) } } } }
            }
            tbody { @for row in &table.rows { tr {
                @for (at, column) in table.columns.iter().enumerate() {
                    @let cell = row.get(at).unwrap_or(&empty);
                    td class=[of(cell, column.align)] { (with_times(&cell.to_string())) }
                }
            } } }
        } }
    }
}

fn bars(bars: &[ShareBar]) -> Markup {
    html! {
        div.scroll { table { tbody { @for bar in bars { tr {
            td.r { (bar.value.to_string()) }
            td.r { (Cell::percent(bar.part).to_string()) }
            td { div.bar { div style=(width(bar.part)) {} } }
            td class=[class(bar.name.mark)] { (bar.name.to_string()) }
            td {
                (bar.text)
                @for one in &bar.commands { (command(one)) }
            }
        } } } } }
    }
}

/// Formats a share as a width, clamped to 0 to 100 %.
fn width(part: Option<f64>) -> String {
    let part = part.filter(|part| part.is_finite()).unwrap_or(0.0);
    format!("width:{:.1}%", part.clamp(0.0, 1.0) * 100.0)
}

/// Renders notes with evidence or commands separately, the others as a list.
fn notes(notes: &[Note]) -> Markup {
    let is_short = |note: &Note| note.evidence.is_empty() && note.commands.is_empty();
    let is_list = notes
        .iter()
        .all(|note| is_short(note) && note.word.mark == StatusMark::Plain);
    html! {
        @if is_list {
            ul { @for note in notes { li { (sentence(note)) } } }
        } @else {
            @for note in notes { div class=(format!("note {}", class(note.word.mark).unwrap_or_default()).trim()) {
                p { (sentence(note)) }
                @if !note.evidence.is_empty() { ul { @for line in &note.evidence { li { (line) } } } }
                @for one in &note.commands { (command(one)) }
            } }
        }
    }
}

fn sentence(note: &Note) -> Markup {
    html! { @if !note.word.is_empty() { b { (note.word.to_string()) ":" } " " } (note.text) }
}

fn command(command: &CommandHint) -> Markup {
    html! {
        p {
            @if !command.label.is_empty() { (command.label) ": " }
            code { (command.line) }
            @if !command.note.is_empty() { " " (command.note) }
        }
    }
}

fn lines(lines: &[String]) -> Markup {
    html! { pre { @for line in lines { span class=[class(line_mark(line))] { (line) } "\n" } } }
}

/// Asserts in tests that a page is self-contained and complete. The SVG namespace is a name, not an address.
#[cfg(test)]
pub(crate) fn needs_nothing(page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>"));
    let rest = page.replace("http://www.w3.org/2000/svg", "");
    for sign in [
        "http://", "https://", "src=", "href=", "@import", "url(", "<script",
    ] {
        assert!(!rest.contains(sign), "{sign}");
    }
    assert!(!page.contains("could not be drawn"), "a chart is missing");
    // Axes and text follow the page's colour.
    assert!(page.contains("currentColor") && page.contains("color-scheme: light dark"));
}

#[cfg(test)]
mod tests {
    use super::super::{Chart, ColumnShrink, Point, Series};
    use super::*;
    use hugeleaf_units::Bytes;

    fn body(block: impl Into<ContentBlock>) -> String {
        let mut page = Document::new("t", "l");
        page.add(block);
        let html = page.html();
        let (_, body) = html.split_once("</header>").unwrap();
        body.trim_end_matches("</body></html>").to_owned()
    }

    #[test]
    fn the_header_says_what_it_is_and_has_the_colour_of_the_news() {
        let mut page = Document::new("redis & co", "faster");
        page.mark = StatusMark::Good;
        let html = page.html();
        assert!(html.contains("<title>redis &amp; co</title>"), "{html}");
        assert!(html.contains(
            "<header class=\"good\"><h1>redis &amp; co</h1><p class=\"lead\">faster</p></header>"
        ));
        let html = Document::new("", "only this").html();
        assert!(
            html.contains("<header><h1>only this</h1></header>"),
            "{html}"
        );
        assert!(html.starts_with("<!DOCTYPE html>") && !html.contains("<script"));
    }

    #[test]
    fn a_table_shows_all_rows_with_numbers_to_the_right() {
        let rows = [
            ("<b>", Bytes(4 << 30).into()),
            ("two", Cell::default().marked(StatusMark::Bad)),
        ];
        let mut table = Table::from_items(rows)
            .left("NAME", |row| row.0)
            .right("HELD", |row| row.1.clone())
            .narrow(ColumnShrink::Drop(1))
            .done()
            .limited(1, "", "");
        table.rows.push(vec!["short".into()]);
        assert_eq!(
            body(table),
            "<div class=\"scroll\"><table><thead><tr><th>NAME</th><th class=\"r\">HELD</th></tr></thead><tbody>\
             <tr><td>&lt;b&gt;</td><td class=\"r\">4G</td></tr>\
             <tr><td>two</td><td class=\"r bad\">-</td></tr>\
             <tr><td>short</td><td class=\"r\"></td></tr></tbody></table></div>"
        );
    }

    #[test]
    fn names_are_text_whatever_is_in_them() {
        let evil = "<script>\x1b[2J\u{202e}";
        let shown = "&lt;script&gt;\\u001b[2J\\u202e";
        let all: [ContentBlock; 6] = [
            evil.into(),
            vec![(evil.to_owned(), Cell::from(evil))].into(),
            vec![Note::new(evil, evil).run(evil, evil)].into(),
            vec![CommandHint::new(evil, evil)].into(),
            ContentBlock::Lines(vec![evil.to_owned()]),
            Section::new(evil, vec![evil.into()]).into(),
        ];
        for block in all {
            let html = body(block);
            assert!(
                html.contains(shown) && !html.contains("<script") && !html.contains('\x1b'),
                "{html}"
            );
        }
    }

    #[test]
    fn headings_go_down_with_their_sections() {
        let inner = Section::new("inner", vec!["words".into()]);
        let outer = Section::new("outer", vec![inner.into()]);
        assert_eq!(body(outer), "<h2>outer</h2><h3>inner</h3><p>words</p>");
    }

    #[test]
    fn a_folded_section_is_opened_by_its_heading() {
        let section = |title| Section::new(title, vec!["words".into()]).folded();
        assert_eq!(
            body(section("Threads")),
            "<details><summary>Threads</summary><p>words</p></details>"
        );
        assert!(body(section("")).contains("<summary>Table</summary>"));
    }

    #[test]
    fn notes_have_a_box_where_there_is_something_below_them() {
        let short = vec![Note::plain("one"), Note::new("note", "two")];
        assert_eq!(
            body(short),
            "<ul><li>one</li><li><b>note:</b> two</li></ul>"
        );
        let mut long =
            Note::new(Cell::from("warning").marked(StatusMark::Warn), "so").run("run", "x --y");
        long.evidence.push("seen".to_owned());
        assert_eq!(
            body(vec![long]),
            "<div class=\"note warn\"><p><b>warning:</b> so</p><ul><li>seen</li></ul>\
             <p>run: <code>x --y</code></p></div>"
        );
    }

    #[test]
    fn bars_charts_facts_and_lines() {
        let bar = |part| ShareBar {
            value: Bytes(1 << 20).into(),
            part,
            name: "a".into(),
            ..ShareBar::default()
        };
        let html = body(vec![bar(Some(0.25)), bar(Some(f64::NAN)), bar(Some(7.0))]);
        let widths: Vec<&str> = html
            .matches("width:25.0%")
            .chain(html.matches("width:0.0%"))
            .collect();
        assert_eq!(
            (widths.len(), html.matches("width:100.0%").count()),
            (2, 1),
            "{html}"
        );
        let points = vec![
            Point {
                x: 1.0,
                y: 2.0,
                ..Point::default()
            },
            Point {
                x: 2.0,
                y: 3.0,
                ..Point::default()
            },
        ];
        let series = vec![Series {
            name: "s".to_owned(),
            points,
        }];
        let html = body(Chart {
            title: "over time".to_owned(),
            series,
            ..Chart::default()
        });
        assert!(
            html.starts_with("<h3>over time</h3><div class=\"scroll\"><svg"),
            "{html}"
        );
        let html = body(vec![(
            "process".to_owned(),
            Cell::from("4711 since 2026-11-24T10:00:00Z, x-y-T"),
        )]);
        let expected = "<th scope=\"row\">process</th>\
             <td>4711 since <time>2026-11-24T10:00:00Z,</time> x-y-T</td>";
        assert!(html.contains(expected), "{html}");
        let html = body(ContentBlock::Lines(vec![
            "+new".to_owned(),
            " old".to_owned(),
        ]));
        assert_eq!(
            html,
            "<pre><span class=\"good\">+new</span>\n<span> old</span>\n</pre>"
        );
    }
}
