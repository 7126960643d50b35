//! `hugeleaf verify --can-take`: as a screen and as JSON.

use hugeleaf_plan::can_take::{CanTake, CapacityCheck, PlacedPages};
use hugeleaf_verdict::advice::risks;
use hugeleaf_verdict::findings::AdvisedCommand;
use serde_json::json;

use crate::document::{CommandHint, Document, Note, StatusMark, Table, TableBuilder, counted};
use crate::json::{answer, merge_fields};

pub fn page(answer: &CanTake) -> Document {
    let lead = match answer.can_take {
        true => format!("Yes: {}", answer.decides.text),
        false => format!("No, {}: {}", answer.decides.id.name(), answer.decides.text),
    };
    let mut page = Document::new("hugeleaf verify --can-take", lead);
    page.mark = match answer.can_take {
        true => StatusMark::Good,
        false => StatusMark::Bad,
    };
    page.add(next(answer.decides.next.as_ref()))
        .section("REQUEST", vec![request(answer).into()])
        .section("CHECKS", vec![checks(answer).into()])
        .section("PAGES", vec![pages(answer).into()])
        .section(
            "NOTES",
            vec![Note::each("note", &answer.notes).collect::<Vec<_>>().into()],
        );
    page
}

fn next(next: Option<&AdvisedCommand>) -> Vec<CommandHint> {
    let hint =
        next.map(|next| CommandHint::new("next", &next.command).at_risk(risks(&next.changes)));
    hint.into_iter().collect()
}

fn request(answer: &CanTake) -> String {
    let ranks = usize::try_from(answer.ranks).unwrap_or(usize::MAX);
    format!(
        "{} for {}, {} each in whole pages",
        answer.asked,
        counted(ranks, "rank"),
        answer.rank
    )
}

fn checks(answer: &CanTake) -> TableBuilder<&CapacityCheck> {
    Table::from_items(&answer.checks)
        .left("CHECK", |check| check.id.name())
        .left("RESULT", |check| match check.ok {
            true => "enough",
            false => "short",
        })
        .right("NEEDED", |check| check.need)
        .right("AVAILABLE", |check| check.have)
        .right("SHORT", |check| (!check.ok).then(|| check.short()))
        .left("SOURCE", |check| &check.source)
}

/// Shows the pages of a cache that fits.
fn pages(answer: &CanTake) -> TableBuilder<&PlacedPages> {
    let pages = answer.pages.iter().filter(|_| answer.can_take);
    Table::from_items(pages)
        .right("SIZE", |pages| pages.page)
        .left("KIND", |pages| pages.kind.to_string())
        .right("NODE", |pages| {
            pages
                .node
                .map_or_else(|| "any".to_owned(), |node| node.to_string())
        })
        .right("PAGES", |pages| pages.pages)
        .right("MEMORY", |pages| pages.bytes())
}

pub fn json(can_take: &CanTake) -> String {
    let next = can_take.decides.next.as_ref().map(|next| &next.command);
    let decides = merge_fields(&can_take.decides, json!({ "next": next }));
    answer(&merge_fields(can_take, json!({ "decides": decides })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::TextOptions;
    use hugeleaf_plan::can_take::{CheckId, DecidingNumber};
    use hugeleaf_units::{Bytes, PageKind, Pages};

    fn made(can_take: bool) -> CanTake {
        let need = Bytes(8 << 30);
        let have = Bytes(if can_take { 10 << 30 } else { 6 << 30 });
        CanTake {
            can_take,
            asked: need,
            ranks: 2,
            rank: Bytes(4 << 30),
            decides: DecidingNumber {
                id: CheckId::Free,
                need,
                have,
                short: need - have,
                text: "The cache needs 8G.".to_owned(),
                next: (!can_take).then(|| "hugeleaf plan --host-cache 8G".into()),
            },
            checks: vec![CapacityCheck {
                id: CheckId::Free,
                ok: can_take,
                need,
                have,
                source: "pool of 2M".to_owned(),
            }],
            pages: vec![PlacedPages {
                page: "2M".parse().unwrap(),
                kind: PageKind::Hugetlb,
                node: Some(1),
                pages: Pages(4096),
            }],
            notes: vec!["a remark".to_owned()],
        }
    }

    #[test]
    fn a_no_names_the_number_and_the_next_step() {
        let text = page(&made(false)).text(TextOptions::plain(100));
        assert!(text.starts_with("No, free: The cache needs 8G."), "{text}");
        for part in [
            "next: hugeleaf plan --host-cache 8G",
            "free",
            "short",
            "2G",
            "a remark",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("PAGES"), "{text}");
    }

    #[test]
    fn a_yes_shows_the_pages() {
        let text = page(&made(true)).text(TextOptions::plain(100));
        assert!(text.starts_with("Yes: "), "{text}");
        assert!(text.contains("4096") && !text.contains("next"), "{text}");
    }

    #[test]
    fn json_has_the_deciding_number_in_bytes() {
        let value: serde_json::Value = serde_json::from_str(&json(&made(false))).unwrap();
        assert_eq!(value["can_take"], false);
        assert_eq!(value["decides"]["id"], "free");
        assert_eq!(value["decides"]["short_bytes"], 2_u64 << 30);
        assert_eq!(value["decides"]["next"], "hugeleaf plan --host-cache 8G");
        assert_eq!(value["pages"][0]["page_bytes"], 2 << 20);
        let value: serde_json::Value = serde_json::from_str(&json(&made(true))).unwrap();
        assert!(value["decides"].get("next").is_none(), "{value}");
    }
}
