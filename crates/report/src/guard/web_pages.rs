//! The page that the guard serves: an overview, each process tree, decisions and proofs. It is plain HTML that
//! works without scripts; a short script refreshes it while it is visible.

use hugeleaf_guard::Proof;
use hugeleaf_guard::status::{GuardStatus, ProcessTreeStatus};
use maud::{Markup, html};

use crate::document::{
    Axis, AxisUnit, Cell, Chart, ChartKind, Document, Point, Series, Table, fact,
};

use super::{entries_table, status as overview};

/// Fetches the page every 5 seconds while it is visible, and replaces its content.
const SCRIPT: &str = "
setInterval(async () => {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href);
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
    document.querySelector('main').replaceWith(fresh.querySelector('main'));
    document.title = fresh.title;
    document.body.classList.remove('stale');
  } catch { document.body.classList.add('stale'); }
}, 5000);
";

const STYLE: &str = "
nav a { margin-right: 1rem; display: inline-block; } nav a[aria-current] { font-weight: bold; text-decoration: none; color: inherit; }
nav { margin-bottom: 1rem; padding-bottom: .5rem; border-bottom: 1px solid var(--line); }
a { color: LinkText; } td:first-child { white-space: nowrap; } .stale main { opacity: .5; }
.stale nav::after { content: 'The guard does not answer. This is its last known state.'; color: var(--bad); }
";

const PAGES: [(&str, &str); 3] = [
    ("/", "Overview"),
    ("/decisions", "Decisions"),
    ("/proofs", "Proofs"),
];

pub fn answer(path: &str, status: &GuardStatus) -> Option<String> {
    let page = match path {
        "/" => overview(status),
        "/decisions" => decisions(status),
        "/proofs" => proofs(status),
        _ => program(path.strip_prefix("/program/")?, status)?,
    };
    Some(page.html_within(STYLE, &nav(path, status), SCRIPT))
}

fn nav(path: &str, status: &GuardStatus) -> Markup {
    html! {
        nav aria-label="Pages" {
            @for (at, name) in PAGES {
                a href=(at) aria-current=[(at == path).then_some("page")] { (name) }
            }
            @for program in &status.programs {
                @let at = format!("/program/{}", program.pid);
                a href=(at) aria-current=[(at == path).then_some("page")] { (program.name) " " (program.pid) }
            }
        }
    }
}

fn decisions(status: &GuardStatus) -> Document {
    let mut page = Document::new(
        "Decisions",
        "Decisions of the guard and their results, newest first.",
    );
    let mut entries = status.log.clone();
    entries.reverse();
    page.add(entries_table(&entries));
    page
}

fn proofs(status: &GuardStatus) -> Document {
    let mut page = Document::new(
        "Proofs",
        "Results of tests: huge pages compared with base pages, with the confidence interval (CI).",
    );
    let table = Table::from_items(&status.remembered)
        .left("NAME", |r| r.name.as_str())
        .left("UNIT OR POD", |r| r.group.as_str())
        .left("RESULT", |r| r.proven.in_words())
        .right("PAIRS", |r| r.proven.pairs as u64)
        .left("METRIC", |r| r.proven.metric.as_str())
        .left("", |r| if r.reverted { "demoted" } else { "kept" });
    if status.remembered.is_empty() {
        page.lead = "No tests yet. Rules with a metric test processes: docs/guide/guard.md.".into();
    }
    page.add(table);
    page
}

fn program(pid: &str, status: &GuardStatus) -> Option<Document> {
    let pid: u32 = pid.parse().ok()?;
    let program = status.programs.iter().find(|p| p.pid == pid)?;
    let mut page = Document::new(
        format!("{} {pid}", program.name),
        program.standing.text.clone(),
    );
    page.add(facts(program)).add(history(program));
    let newest = status.log.iter().rev();
    let of_it: Vec<_> = newest.filter(|e| e.pid == Some(pid)).cloned().collect();
    page.section("Decisions", vec![entries_table(&of_it).into()]);
    Some(page)
}

fn facts(program: &ProcessTreeStatus) -> Vec<(String, Cell)> {
    let mut facts = vec![
        fact("state", program.standing.state.name()),
        fact("rule", &program.standing.rule),
        fact("unit, pod or name", &program.group),
        fact("processes", program.processes),
        fact("on base pages", program.base_bytes),
        fact("on huge pages", program.huge_bytes),
        fact("coverage", Cell::percent(program.coverage)),
        fact("page tables", program.page_tables_bytes),
        fact("promoted", program.promoted_bytes),
        fact("growth", program.grown_bytes),
        fact("proof", &program.proof),
    ];
    let job = program.job.as_ref();
    facts.extend(job.map(|job| fact("progress", job.to_string())));
    if let Proof::Proven(proven) = &program.proof_detail {
        facts.push(fact("metric", &proven.metric));
    }
    facts
}

fn history(program: &ProcessTreeStatus) -> Chart {
    let history = &program.coverage_history;
    let first = history.first().map_or(0.0, |first| first.at_seconds);
    let points = history
        .iter()
        .map(|one| Point::at(one.at_seconds - first, one.coverage));
    Chart {
        title: "Coverage over time".into(),
        kind: ChartKind::Curves,
        x: Axis {
            unit: AxisUnit::Seconds,
            ..Axis::named("time since the first detailed scan")
        },
        y: Axis {
            unit: AxisUnit::Percent,
            level: Some(0.0),
            end: Some(1.0),
            ..Axis::named("on huge pages")
        },
        series: vec![Series::new("coverage", points.collect())],
    }
}
