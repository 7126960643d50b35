//! Parts of pages whose bodies are not blocks yet; each goes with its last user.

use hugeleaf_proof::result::{HostFingerprint, Knob};
use hugeleaf_units::Bytes;
use maud::{Markup, html};

use super::html::block;
use super::{Block, Command, Note, Table};

/// A table: the first column of names, the others of numbers.
pub(crate) fn table<Row: AsRef<[String]>>(heads: &[&str], rows: &[Row]) -> Markup {
    let mut table = Table::new();
    for (at, head) in heads.iter().enumerate() {
        table = if at == 0 {
            table.left(*head)
        } else {
            table.right(*head)
        };
    }
    for row in rows {
        table.row(row.as_ref());
    }
    block(&table.into(), 2)
}

/// What a reader must know before believing it.
pub(crate) fn notes(notes: &[String]) -> Markup {
    let all: Vec<Note> = notes.iter().map(Note::plain).collect();
    html! {
        @if !all.is_empty() {
            h2 { "Before you believe it" }
            (block(&all.into(), 2))
        }
    }
}

/// The exact command, where it is known.
pub(crate) fn command(words: &[String]) -> Markup {
    html! { @if !words.is_empty() { (block(&vec![Command::new("", words.join(" "))].into(), 2)) } }
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
    let facts = facts.map(|(name, value)| (name.to_owned(), value.into()));
    let more = more
        .iter()
        .map(|[name, value]| (name.clone(), value.into()));
    let knobs = knobs.iter().map(|k| (k.name.clone(), (&k.value).into()));
    let facts = facts.into_iter().chain(more).chain(knobs).collect();
    html! {
        h2 { "Host, settings, command" }
        (block(&Block::Facts(facts), 2))
        (command(words))
    }
}
