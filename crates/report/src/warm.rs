//! `hugeleaf warm`: as a screen and as JSON.

use hugeleaf_units::{Bytes, PageKind, PageSize};
use serde::Serialize;

use crate::document::{Document, Note, StatusMark, Table, TableBuilder};
use crate::json::answer;

/// The result of `hugeleaf warm`.
#[derive(Debug, Clone, Serialize)]
pub struct WarmView {
    /// True if all memory is on the requested pages.
    pub good: bool,
    /// True if a signal ended it.
    pub stopped: bool,
    /// The file; `None` for memory on trial.
    pub file: Option<String>,
    pub nodes: Vec<NodeRow>,
    pub pages: Vec<PagesRow>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct NodeRow {
    pub node: Option<u32>,
    pub threads: usize,
    pub bytes: Bytes,
    pub seconds: f64,
    pub bytes_per_second: Option<Bytes>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct PagesRow {
    #[serde(rename = "page_bytes")]
    pub page: PageSize,
    pub kind: PageKind,
    pub node: Option<u32>,
    #[serde(rename = "wanted_bytes")]
    pub wanted: Bytes,
    #[serde(rename = "got_bytes")]
    pub got: Bytes,
}

impl PagesRow {
    fn missing(&self) -> Bytes {
        self.wanted - self.got
    }
}

impl NodeRow {
    /// Makes a row; a time of zero has no rate.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn new(node: Option<u32>, threads: usize, bytes: Bytes, seconds: f64) -> NodeRow {
        let rate = (seconds > 0.0).then(|| Bytes((bytes.as_f64() / seconds) as u64));
        NodeRow {
            node,
            threads,
            bytes,
            seconds,
            bytes_per_second: rate,
        }
    }
}

impl WarmView {
    pub fn page(&self) -> Document {
        let mut page = Document::new("hugeleaf warm", self.lead());
        page.mark = match self.good {
            true => StatusMark::Good,
            false => StatusMark::Bad,
        };
        page.section("NODES", vec![nodes(&self.nodes).into()])
            .section("PAGES", vec![pages(&self.pages).into()])
            .section(
                "NOTES",
                vec![Note::each("note", &self.notes).collect::<Vec<_>>().into()],
            );
        page
    }

    fn lead(&self) -> String {
        let done: Bytes = self.nodes.iter().map(|node| node.bytes).sum();
        let of = match &self.file {
            Some(file) => format!("of {file} "),
            None => String::new(),
        };
        let missing: Bytes = self.pages.iter().map(PagesRow::missing).sum();
        match (self.good, self.stopped) {
            (_, true) => format!("Interrupted: {done} {of}populated."),
            (true, _) => format!("All {done} {of}on the requested pages."),
            (false, _) => {
                format!("Silent fallback: {missing} of {done} {of}not on the requested pages.")
            }
        }
    }

    pub fn json(&self) -> String {
        answer(self)
    }
}

fn node_text(node: Option<u32>, none: &str) -> String {
    node.map_or_else(|| none.to_owned(), |node| node.to_string())
}

fn nodes(rows: &[NodeRow]) -> TableBuilder<&NodeRow> {
    Table::from_items(rows)
        .right("NODE", |row| node_text(row.node, "all"))
        .right("THREADS", |row| row.threads.to_string())
        .right("MEMORY", |row| row.bytes)
        .right("SECONDS", |row| format!("{:.3}", row.seconds))
        .right("GB/s", |row| {
            let rate = row.bytes_per_second;
            rate.map_or_else(
                || "-".to_owned(),
                |rate| format!("{:.2}", rate.as_f64() / 1e9),
            )
        })
}

fn pages(rows: &[PagesRow]) -> TableBuilder<&PagesRow> {
    Table::from_items(rows)
        .right("SIZE", |row| row.page)
        .left("KIND", |row| row.kind.to_string())
        .right("NODE", |row| node_text(row.node, "any"))
        .right("REQUESTED", |row| row.wanted)
        .right("GOT", |row| row.got)
        .right("MISSING", |row| {
            let missing = row.missing();
            (!missing.is_zero()).then_some(missing)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::TextOptions;

    fn made(got: u64) -> WarmView {
        let wanted = Bytes(4 << 30);
        WarmView {
            good: got == wanted.get(),
            stopped: false,
            file: Some("/dev/hugepages/cache".to_owned()),
            nodes: vec![NodeRow::new(Some(0), 2, wanted, 2.0)],
            pages: vec![PagesRow {
                page: "2M".parse().unwrap(),
                kind: PageKind::Hugetlb,
                node: None,
                wanted,
                got: Bytes(got),
            }],
            notes: Vec::new(),
        }
    }

    #[test]
    fn memory_elsewhere_is_a_silent_fallback() {
        let good = made(4 << 30).page().text(TextOptions::plain(80));
        assert!(
            good.starts_with("All 4G of /dev/hugepages/cache on the requested pages."),
            "{good}"
        );
        assert!(good.contains("2.15"), "GB/s are powers of 1000: {good}");
        let bad = made(3 << 30).page().text(TextOptions::plain(80));
        assert!(bad.starts_with("Silent fallback: 1G of 4G"), "{bad}");
    }

    #[test]
    fn an_interrupted_run_says_how_far_it_came() {
        let view = WarmView {
            stopped: true,
            good: false,
            pages: Vec::new(),
            ..made(0)
        };
        let text = view.page().text(TextOptions::plain(80));
        assert!(text.starts_with("Interrupted: 4G of"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&view.json()).unwrap();
        assert_eq!(value["stopped"], true);
        assert_eq!(value["nodes"][0]["bytes_per_second"], 2_u64 << 30);
    }

    #[test]
    fn no_time_has_no_rate() {
        assert_eq!(NodeRow::new(None, 1, Bytes(1), 0.0).bytes_per_second, None);
    }
}
