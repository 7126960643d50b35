//! `hugeleaf guard`: its status, its log and one pass, as screens and as the served page.

use hugeleaf_guard::one_shot::OneShotResult;
use hugeleaf_guard::status::{GuardStatus, PoolCheckStatus, ProcessTreeStatus};
use hugeleaf_guard::{LogEntry, Proof, RuleAction, TreeState};

use hugeleaf_units::time::{format_elapsed, measured};

use crate::document::{
    Cell, CellValue, ColumnShrink, Document, Note, StatusMark, Table, TableBuilder, counted, fact,
    listed,
};

mod metrics;
#[cfg(test)]
mod tests;
mod web_pages;

pub use metrics::{metrics, textfile_metrics};
pub use web_pages::answer;

pub fn status(status: &GuardStatus) -> Document {
    let mut page = Document::new("hugeleaf guard", lead(status));
    let is_good = status.problems.is_empty() && status.pools.findings.is_empty();
    page.mark = match (is_good, status.paused_since.is_some()) {
        (true, false) => StatusMark::Good,
        _ => StatusMark::Warn,
    };
    page.section("PROCESS TREES", vec![programs(&status.programs).into()])
        .section("REASONS", why(&status.programs))
        .section("POOLS", pools(&status.pools));
    crate::balance::sections(&mut page, &status.balance);
    page.section("TOTALS", vec![counts(status).into()])
        .section("GUARD", vec![itself(status).into()]);
    page.add(crate::balance::problems(&status.problems));
    page
}

fn lead(status: &GuardStatus) -> String {
    let kept = status.count(TreeState::Managed) + status.count(TreeState::Testing);
    let would = status.count(TreeState::Candidate);
    let what = match (&status.paused_since, status.acts) {
        (Some(since), _) => format!("Paused since {since}"),
        (None, true) => "Acting by its rules".to_owned(),
        (None, false) if status.read_only => "Read-only: nothing is changed".to_owned(),
        (None, false) => "Watching only: no rule allows promotion".to_owned(),
    };
    let are = if kept == 1 { "is" } else { "are" };
    let kept = format!("{} {are} kept on huge pages", counted(kept, "process tree"));
    let would = match would {
        0 => String::new(),
        n => format!(", {n} would be promoted"),
    };
    format!("{what}; {kept}{would}.")
}

/// Returns findings on pools, services and plans, and pages given back; empty if everything is in order.
fn pools(status: &PoolCheckStatus) -> Vec<crate::document::ContentBlock> {
    let findings: Vec<Note> = (status.findings.iter())
        .map(|finding| {
            Note::marked(&finding.severity, StatusMark::Warn, &finding.text)
                .run("run", &finding.command)
        })
        .collect();
    let given: Vec<(String, Cell)> = (status.given.iter())
        .map(|given| {
            let node = listed(" on node ", given.node);
            let missing = given.had.saturating_sub(given.pages);
            let text = format!("{missing} of {} pages, while memory is short", given.had);
            (format!("{}{node} released", given.page_bytes), text.into())
        })
        .collect();
    vec![findings.into(), given.into()]
}

/// Builds a row for each process tree; the status lists most base-page memory first.
fn programs(all: &[ProcessTreeStatus]) -> TableBuilder<&ProcessTreeStatus> {
    Table::from_items(all)
        .left("STATE", |p| stand(p))
        .right("PID", |p| CellValue::Text(p.pid.to_string()))
        .left("NAME", |p| p.name.as_str())
        .left("UNIT OR POD", |p| match p.group == p.name {
            true => Cell::empty(),
            false => p.group.as_str().into(),
        })
        .narrow(ColumnShrink::Drop(2))
        .right("BASE", |p| p.base_bytes)
        .right("HUGE", |p| p.huge_bytes)
        .right("COVERAGE", |p| Cell::percent(p.coverage))
        .right("CPU", |p| Cell::percent(p.cpu))
        .narrow(ColumnShrink::Drop(3))
        .right("PROMOTED", |p| Cell::some_bytes(p.promoted_bytes))
        .narrow(ColumnShrink::Drop(4))
        .left("PROOF", in_short)
        .narrow(ColumnShrink::Drop(1))
}

/// Returns the test result without its interval, which the page of the process tree shows.
fn in_short(program: &&ProcessTreeStatus) -> String {
    let proof = &program.proof;
    match (&program.proof_detail, proof.split_once(" (")) {
        (Proof::Proven(_), Some((difference, _))) => difference.to_owned(),
        _ => proof.clone(),
    }
}

fn stand(program: &ProcessTreeStatus) -> Cell {
    let mark = match program.standing.state {
        TreeState::Managed | TreeState::AlreadyHuge => StatusMark::Good,
        TreeState::Promoting
        | TreeState::Reverting
        | TreeState::Testing
        | TreeState::Queued
        | TreeState::Candidate => StatusMark::Warn,
        TreeState::Skipped => StatusMark::Dim,
    };
    Cell::from(program.standing.state.name()).marked(mark)
}

fn why(all: &[ProcessTreeStatus]) -> Vec<crate::document::ContentBlock> {
    use TreeState::{AlreadyHuge, Managed};
    let all = all.iter();
    let said = all.filter(|p| !matches!(p.standing.state, AlreadyHuge | Managed));
    let table = Table::from_items(said)
        .right("PID", |p| CellValue::Text(p.pid.to_string()))
        .left("NAME", |p| p.name.as_str())
        .left("RULE", |p| {
            format!("{}: {}", p.standing.rule, action(p.action))
        })
        .narrow(ColumnShrink::Drop(1))
        .left("REASON", |p| match &p.job {
            Some(job) => format!("{}; {job}", p.standing.text),
            None => p.standing.text.clone(),
        })
        .narrow(ColumnShrink::Wrap);
    vec![table.into()]
}

const fn action(action: RuleAction) -> &'static str {
    match action {
        RuleAction::Promote => "promote",
        RuleAction::Watch => "watch",
        RuleAction::Never => "never",
    }
}

fn counts(status: &GuardStatus) -> Vec<(String, Cell)> {
    let counts = &status.counts;
    let moves = format!(
        "{} ({} in all); {} demotions; {} incomplete",
        counts.promotions, counts.promoted, counts.demotions, counts.short
    );
    let tests = format!(
        "{} faster, {} slower, {} same, {} unclear; {} given up",
        counts.faster, counts.slower, counts.same, counts.unclear, counts.dropped
    );
    let growth = format!("{} added to processes by promotion", counts.grown);
    let stalls = format!(
        "{} in calls that promote or demote, longest {}",
        format_elapsed(counts.stalled.as_secs_f64()),
        measured(counts.longest_stall.as_secs_f64())
    );
    vec![
        fact("promotions", moves),
        fact("growth", growth),
        fact("stalls", stalls),
        fact("tests", tests),
    ]
}

fn itself(status: &GuardStatus) -> Vec<(String, Cell)> {
    let cost = &status.cost;
    let rules = match status.files.len() {
        0 => "none: all processes are watched".to_owned(),
        _ => format!("{} in {}", status.rules, status.files.join(", ")),
    };
    let share = match cost.wait_seconds > 0.0 {
        true => cost.scan_seconds / cost.wait_seconds,
        false => 0.0,
    };
    let looks = format!(
        "{} of {} processes, {:.0} ms CPU each, every {:.0} s: {:.2} % CPU",
        cost.scans,
        status.seen,
        cost.scan_seconds * 1e3,
        cost.wait_seconds,
        share * 100.0
    );
    let pressure = match (status.host.stalled, status.host.waiting) {
        (None, None) => Cell::from("not reported by this kernel"),
        (stalled, waiting) => Cell::from(format!(
            "tasks stall for memory {}, wait for a processor {} of the time",
            Cell::percent(stalled),
            Cell::percent(waiting)
        )),
    };
    let process = format!(
        "{} since {}, {} resident, {:.1} s of processor time",
        status.pid, status.started, cost.resident_bytes, cost.cpu_seconds
    );
    vec![
        fact("rules", rules),
        fact("scans", looks),
        fact("process", process),
        fact("pressure", pressure),
    ]
}

pub fn log(entries: &[LogEntry]) -> Document {
    let lead = entries.is_empty().then_some("No decisions yet.");
    let mut page = Document::new("hugeleaf guard log", lead.unwrap_or_default());
    page.add(entries_table(entries));
    page
}

fn entries_table(entries: &[LogEntry]) -> TableBuilder<&LogEntry> {
    Table::from_items(entries)
        .left("TIME", |e| e.at.as_str())
        .left("EVENT", |e| what(e))
        .right("PID", |e| e.pid.map(|pid| CellValue::Text(pid.to_string())))
        .left("NAME", |e| e.name.as_str())
        .right("TOOK", |e| e.seconds.map(CellValue::Duration))
        .narrow(ColumnShrink::Drop(1))
        .left("", |e| e.text.as_str())
        .narrow(ColumnShrink::Wrap)
}

fn what(entry: &LogEntry) -> Cell {
    let mark = match entry.what.as_str() {
        "failed" | "problem" => StatusMark::Warn,
        "promoted" | "tested" | "resolved" | "balanced" => StatusMark::Good,
        _ => StatusMark::Plain,
    };
    Cell::from(entry.what.as_str()).marked(mark)
}

pub fn once(pass: &OneShotResult) -> Document {
    let count = |state| {
        let programs = pass.programs.iter();
        programs.filter(|p| p.standing.state == state).count()
    };
    let programs_of = |n: usize| counted(n, "process tree");
    let (queued, candidates) = (count(TreeState::Queued), count(TreeState::Candidate));
    let lead = match (pass.dry_run, queued, candidates, pass.done.len()) {
        (_, 0, 0, 0) => "Nothing to do.".to_owned(),
        (_, 0, n, 0) => format!("{} would be promoted if a rule allowed it.", programs_of(n)),
        (true, n, 0, _) => format!("{} would be promoted.", programs_of(n)),
        (true, n, w, _) => format!(
            "{} would be promoted, and {} if their rule allowed it.",
            programs_of(n),
            w
        ),
        (false, _, _, done) => format!("{} promoted or demoted.", programs_of(done)),
    };
    let mut page = Document::new("hugeleaf guard --once", lead);
    page.section("PROCESS TREES", vec![programs(&pass.programs).into()])
        .section("REASONS", why(&pass.programs));
    let pools: Vec<Note> = Note::each("", &pass.pools).collect();
    page.section("POOLS", vec![pools.into()]);
    let others: Vec<(String, Cell)> = (pass.passed_over.iter())
        .map(|(why, n)| fact(in_words(why), *n))
        .collect();
    page.section("SKIPPED", vec![others.into()]);
    page
}

fn in_words(reason: &str) -> &str {
    match reason {
        "too-small" => "too small for their rule",
        "too-young" => "too young for their rule",
        "rule-says-never" => "their rule says never",
        "own" => "the guard",
        "init" => "the first process",
        other => other,
    }
}
