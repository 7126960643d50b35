//! What every page has: a head, a style, tables, and the host it was made on. A page needs nothing
//! beside it: no network, no script; it can be read in light and in dark.

use hugeleaf_proof::result::{HostFingerprint, Knob};
use hugeleaf_units::Bytes;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8885; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2rem auto; padding: 0 1rem;
  background: Canvas; color: CanvasText; }
h1 { font-size: 1.9rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
.long h1 { font-size: 1.4rem; }
.lead { font-size: 1.1rem; margin-top: .25rem; }
.faster { border-left: .5rem solid #16a34a; } .slower { border-left: .5rem solid #dc2626; }
.same { border-left: .5rem solid #6b7280; } .unclear { border-left: .5rem solid #d97706; }
header { padding-left: 1rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .9rem .2rem 0; text-align: right;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
td:first-child, th:first-child { text-align: left; }
.scroll { overflow-x: auto; }
svg { width: 100%; height: auto; } code, pre { background: var(--soft); padding: .1rem .3rem;
  overflow-wrap: anywhere; white-space: pre-wrap; }
";

/// The top of a page.
pub(crate) struct Top<'a> {
    /// In the title of the window.
    pub(crate) title: &'a str,
    /// Of the header: how it went, and `long` where the headline is more than a few words.
    pub(crate) class: &'a str,
    pub(crate) headline: &'a str,
    pub(crate) lead: &'a str,
    /// What this page's style has beside that of all.
    pub(crate) style: &'a str,
}

/// The page around a body.
pub(crate) fn page(top: &Top<'_>, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (top.title) }
                style { (PreEscaped(STYLE)) (PreEscaped(top.style)) }
            }
            body {
                header class=(top.class) {
                    h1 { (top.headline) }
                    p.lead { (top.lead) }
                }
                (body)
            }
        }
    };
    crate::screen::page(&page.into_string())
}

/// A table; wider than the page it can be moved sideways.
pub(crate) fn table<Row: AsRef<[String]>>(heads: &[&str], rows: &[Row]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { @for head in heads { th { (head) } } } }
            tbody { @for row in rows { tr { @for cell in row.as_ref() { td { (cell) } } } } }
        } }
    }
}

/// What a reader must know before believing it.
pub(crate) fn notes(notes: &[String]) -> Markup {
    html! {
        @if !notes.is_empty() {
            h2 { "Before you believe it" }
            ul { @for note in notes { li { (note) } } }
        }
    }
}

/// The exact command, where it is known.
pub(crate) fn command(words: &[String]) -> Markup {
    html! { @if !words.is_empty() { pre { (words.join(" ")) } } }
}

/// The host, the settings, the knobs in force and the command.
pub(crate) fn circumstances(
    host: &HostFingerprint,
    knobs: &[Knob],
    more: &[[String; 2]],
    words: &[String],
) -> Markup {
    let unknown = || "?".to_owned();
    let text = |fact: &Option<String>| fact.clone().unwrap_or_else(unknown);
    let size = |fact: Option<u64>| fact.map_or_else(unknown, |b| Bytes(b).to_string());
    let is_virtual = host.is_virtual.map_or_else(unknown, |v| v.to_string());
    let facts = [
        ("kernel", text(&host.kernel)),
        ("architecture", text(&host.arch)),
        ("processor", text(&host.processor)),
        ("processors", host.cpus.to_string()),
        ("virtual", is_virtual),
        ("nodes", host.nodes.to_string()),
        ("memory", size(host.memory_bytes)),
        ("base page", size(Some(host.base_page_bytes))),
        ("large page", size(host.large_page_bytes)),
    ];
    let mut rows: Vec<[String; 2]> = facts.map(|(name, value)| [name.to_owned(), value]).into();
    rows.extend_from_slice(more);
    rows.extend(knobs.iter().map(|k| [k.name.clone(), k.value.clone()]));
    html! {
        h2 { "Host, settings, command" }
        (table(&["", ""], &rows))
        (command(words))
    }
}

/// For tests of pages: nothing is loaded from anywhere, and nothing is missing. The name space of SVG is a
/// name, not an address.
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
    // Axes and words follow the page's colour.
    assert!(page.contains("currentColor") && page.contains("color-scheme: light dark"));
}
