//! `hugeleaf try`: the four answers on one screen.

use hugeleaf_host::{Host, PageUsage, Process};
use hugeleaf_proof::{Arm, ProveResult, Verdict};
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_verdict::eligible::Remedy;
use hugeleaf_verdict::findings::Finding;
use hugeleaf_verdict::why::{SegmentAccount, summarise};
use serde_json::{Value as Json, json};

use crate::bench::bytes;
use crate::document::{
    Cell, CellValue, ContentBlock, Document, Note, Table, TableBuilder, fact, listed, number,
    thousands,
};
use crate::json::SCHEMA;
use crate::mem::MemView;
use crate::prove::{counted, difference, longer, mark, median};
use crate::status::status_json;
use crate::why::WhyView;

#[derive(Debug, Clone, Copy)]
pub struct TryView<'a> {
    pub host: &'a Host,
    /// Findings about the host, the worst first.
    pub findings: &'a [Finding],
    pub rows: u64,
    pub cache: Bytes,
    /// The database's process at its start, on base pages.
    pub process: &'a Process,
    pub accounts: &'a [SegmentAccount],
    pub result: &'a ProveResult,
    pub html: &'a str,
    /// Total duration in seconds.
    pub seconds: f64,
}

/// Maximum number of caveats on the screen; the page has all of them.
const MOST_CAVEATS: usize = 2;

/// Returns the screen, at most 40 lines.
pub fn page(it: &TryView<'_>) -> Document {
    let lead = format!(
        "Effect of huge pages on this host: a SQLite database of {} rows, wholly in a page cache \
         of {}. One thread accesses random rows, nine reads to one update. hugeleaf analyzed, \
         promoted and demoted its process like that of any server, in {:.0} s.",
        thousands(&it.rows.to_string()),
        it.cache,
        it.seconds
    );
    let mut page = Document::new("hugeleaf try", lead);
    let answers = vec![status(it), mem(it), why(it), prove(it)];
    let caveats = it.result.caveats.iter().take(MOST_CAVEATS);
    let mut verdict = vec![verdict(it.result)];
    verdict.extend(Note::each("caveat", caveats));
    page.section("", vec![answers.into()])
        .section("", vec![medians(it).into()])
        .section("", vec![verdict.into()])
        .section(
            "For your own servers, without a restart",
            vec![next().into()],
        )
        .add(ContentBlock::Lines(vec![format!(
            "Samples and charts: {}",
            it.html
        )]));
    page
}

/// Returns the answers of all four commands in their own formats; `seed` is the seed of the rows.
pub fn json(it: &TryView<'_>, seed: u64) -> String {
    let mem = MemView {
        host: it.host,
        processes: std::slice::from_ref(it.process),
        shared: &[],
        targeted: true,
        accounts: &[it.accounts.to_vec()],
        roles: &[],
    };
    let why = WhyView {
        judged: &[(it.process, it.accounts)],
        unread: &[],
    };
    // The answers are embedded unchanged, with their nulls.
    let whole = |text: &str| serde_json::from_str::<Json>(text).unwrap_or_default();
    let answer = json!({
        "schema": SCHEMA,
        "workload": {
            "name": "oltp",
            "rows": it.rows,
            "cache_bytes": it.cache,
            "seed": seed,
        },
        "status": whole(&status_json(it.host, it.findings)),
        "mem": whole(&mem.json()),
        "why": whole(&why.json()),
        "prove": whole(&it.result.to_json()),
        "seconds": it.seconds,
    });
    format!("{answer:#}\n")
}

fn status(it: &TryView<'_>) -> Note {
    let mut sizes = vec![format!("base pages of {}", it.host.base_page)];
    let mut larger = it.host.page_sizes.iter().collect::<Vec<_>>();
    larger.retain(|p| p.kind != PageKind::Base && p.enabled);
    larger.sort_by_key(|p| (p.kind, p.size));
    sizes.extend(
        larger
            .iter()
            .map(|p| format!("{} {} ({})", p.kind, p.size, p.how)),
    );
    let findings = match it.findings {
        [] => "no findings".to_owned(),
        [one] => format!("one finding: {}", one.text),
        [worst, ..] => format!("{} findings, the worst: {}", it.findings.len(), worst.text),
    };
    let note = Note::new("status", format!("{}; {findings}", sizes.join(", ")));
    // The database has exited when the user reads this, so a command with its PID would fail.
    let pid = it.process.pid.to_string();
    match it.findings.first() {
        Some(worst) if !worst.command.contains(&pid) => note.run("next", &worst.command),
        _ => note,
    }
}

fn mem(it: &TryView<'_>) -> Note {
    let process = it.process;
    let held = process.by_page_size.known();
    let held = held.map(Vec::as_slice).unwrap_or_default();
    let on = |h: &PageUsage| match h.kind {
        PageKind::Base => format!("{} on {} pages", h.bytes, h.size),
        kind => format!("{} on {kind} {}", h.bytes, h.size),
    };
    let sizes: Vec<String> = held.iter().map(on).collect();
    let text = format!(
        "process {} had {} resident: {}; coverage {}; page tables of {}",
        process.pid,
        process.resident,
        sizes.join(", "),
        Cell::percent(PageUsage::coverage(held)),
        process.page_tables
    );
    Note::new("mem", text)
}

fn why(it: &TryView<'_>) -> Note {
    let lines = summarise(&[(it.process, it.accounts)]).lines;
    let line = lines.iter().find(|l| l.id.remedy() != Remedy::Nothing);
    let text = match line {
        None => "nothing prevented huge pages".to_owned(),
        Some(line) => format!(
            "{} was not on huge pages ({}): {}",
            line.bytes,
            line.id.name(),
            line.text
        ),
    };
    Note::new("why", text)
}

fn prove(it: &TryView<'_>) -> Note {
    let text = format!(
        "{} pairs of {:.1} s intervals on {} and {} pages, in random order; medians in {}:",
        it.result.pairs.len(),
        it.result.settings.interval_seconds,
        it.host.base_page,
        large_name(it),
        it.result.experiment.unit
    );
    Note::new("prove", text)
}

fn medians<'a>(it: &TryView<'a>) -> TableBuilder<(Arm, String)> {
    let result: &'a ProveResult = it.result;
    let also = move |arm, name| counted(result.row(arm, name)?);
    let held = move |arm, name| also(arm, name).map(bytes);
    Table::from_items([
        (Arm::Base, it.host.base_page.to_string()),
        (Arm::Large, large_name(it)),
    ])
    .left("PAGES", |(_, name)| name.clone())
    .right("MEDIAN", move |(arm, _)| {
        result.samples(*arm).and_then(median).map(number)
    })
    .nonzero_column("RESIDENT", move |(arm, _)| held(*arm, "resident"))
    .nonzero_column("PAGE TABLES", move |(arm, _)| held(*arm, "page tables"))
    .nonzero_column("SYSTEM CPU", move |(arm, _)| {
        also(*arm, "system CPUs").map(CellValue::Share)
    })
}

fn verdict(result: &ProveResult) -> Note {
    let meaning = match result.verdict {
        Verdict::Faster => "huge pages make this database faster here",
        Verdict::Slower => "huge pages make this database slower here",
        Verdict::Same => "huge pages make no difference to this database here",
        Verdict::Unclear => "the samples vary too much for a verdict",
    };
    // The page says the same.
    let longer = (result.verdict == Verdict::Unclear).then(|| longer(result));
    let meaning = format!("{meaning}{}", listed("; ", longer));
    let text = match &result.effect {
        None => meaning,
        effect => {
            let better = result.experiment.better;
            let difference = difference(result.verdict, better, effect.as_ref());
            format!("{difference}: {meaning}")
        }
    };
    let word = result.verdict.to_string().to_uppercase();
    Note::new(Cell::from(word).marked(mark(result.verdict)), text)
}

fn next() -> Vec<(String, Cell)> {
    let prove = "hugeleaf prove PID --metric METRIC";
    vec![
        fact("hugeleaf mem", "memory of all processes by page size"),
        fact("hugeleaf why PID", "reasons for base pages, and next steps"),
        fact(prove, "measure the effect of huge pages"),
        fact("hugeleaf promote PID", "promote its memory"),
    ]
}

fn large_name(it: &TryView<'_>) -> String {
    let size = it.host.pmd_page.get();
    size.map_or_else(|| "huge".to_owned(), |size| size.to_string())
}
