//! Screens of `apply` and `undo`: the state of each step, shortages with their reasons, remaining
//! manual work and the undo command. A dry run shows the changes instead.

mod diff;
mod json;
mod manual_steps;

use hugeleaf_host::Fact;
use hugeleaf_plan::host_changes::{
    ApplyOutcome, JournaledApply, Obstacle, PathState, Shortage, StepOutcome, StepPreview,
    StepState, StopReason, UndoOutcome,
};
use hugeleaf_units::Bytes;

use crate::document::{
    CommandHint, ContentBlock, Document, Note, StatusMark, Table, counted, listed,
};

pub use json::{apply_json, dry_run_json, list_json, undo_json};
pub use manual_steps::todo;

/// The parts of the request that the answer repeats.
#[derive(Debug, Clone, Copy)]
pub struct AppliedPlanRemarks<'a> {
    pub plan: &'a str,
    /// Manual steps that the plan requires, one a line.
    pub by_hand: &'a [String],
    pub warnings: &'a [String],
}

pub fn apply(outcome: &ApplyOutcome, asked: AppliedPlanRemarks<'_>) -> Document {
    let (lead, mark) = headline(outcome, asked);
    let mut page = Document::new("Applied", lead);
    page.mark = mark;
    steps(&mut page, &outcome.steps);
    let shortages = outcome.steps.iter().filter_map(|s| s.shortage.as_deref());
    let mut notes: Vec<Note> = shortages.map(|s| short(s, asked)).collect();
    notes.extend(Note::each("note", asked.warnings));
    let is_taken_back = outcome.reverted.as_ref().is_some_and(|b| b.finished);
    if !is_taken_back {
        let todo = todo(&outcome.steps, outcome.systemd);
        notes.extend(to_do(todo.iter().chain(asked.by_hand)));
        let undo = |id| format!("hugeleaf undo    # reverts apply {id}");
        notes.extend(outcome.id.map(|id| Note::new("undo", "").run("", undo(id))));
    }
    page.add(notes);
    page
}

fn headline(outcome: &ApplyOutcome, asked: AppliedPlanRemarks<'_>) -> (String, StatusMark) {
    let count =
        |test: fn(StepState) -> bool| outcome.steps.iter().filter(|s| test(s.state)).count();
    use StepState::{Differs, Done, InUse, Short};
    let made = count(|s| matches!(s, Done | Differs | InUse | Short));
    let parts = counts(
        format!("{} made", counted(made, "step")),
        [
            (count(|s| s == StepState::Already), "already set"),
            (count(|s| s == StepState::NotReached), "not reached"),
            (
                count(|s| s == StepState::NotApplicable),
                "not applicable here",
            ),
            (count(|s| s == StepState::Restored), "reverted"),
        ],
    );
    let (verb, mark) = match &outcome.stopped {
        _ if outcome.id.is_none() => ("already as planned", StatusMark::Good),
        Some(StopReason::Short) => ("not applied, a pool was short", StatusMark::Warn),
        Some(_) => ("partly applied", StatusMark::Bad),
        None if outcome.is_good() => ("applied", StatusMark::Good),
        None => ("applied, with deviations from the plan", StatusMark::Warn),
    };
    (format!("{verb}: {} ({parts})", asked.plan), mark)
}

/// Formats counts such as `2 steps made, 1 already so`, without zero counts.
fn counts<const N: usize>(first: String, others: [(usize, &str); N]) -> String {
    let others = others.into_iter().filter(|(n, _)| *n > 0);
    let others = others.map(|(n, what)| format!("{n} {what}"));
    let first = [first].into_iter().filter(|first| !first.is_empty());
    first.chain(others).collect::<Vec<_>>().join(", ")
}

fn steps(page: &mut Document, steps: &[StepOutcome]) {
    let before = |step: &StepOutcome| step.before.as_ref().map(PathState::in_short);
    let now = |step: &StepOutcome| match (&step.after, step.state) {
        (Some(after), _) => Some(after.in_short()),
        (None, StepState::Already | StepState::AsBefore) => before(step),
        _ => None,
    };
    let table = Table::from_items(steps)
        .left("STATE", |step| step.state.name())
        .right("BEFORE", |step| before(step))
        .right("NOW", |step| now(step))
        .left("STEP", |step| step.id.clone())
        .left("PATH", |step| step.path.display().to_string());
    page.add(table);
    for step in steps {
        page.add(note_of(step));
    }
}

/// Returns the note of a step with its ID, or an empty text.
fn note_of(step: &StepOutcome) -> String {
    let note = step.note.as_ref();
    note.map_or(String::new(), |note| format!("{}: {note}", step.id))
}

/// Returns the remaining manual work. A line with a `#` remark is a command and stays whole.
fn to_do<'a>(lines: impl Iterator<Item = &'a String>) -> impl Iterator<Item = Note> {
    lines.map(|line| match line.contains("    # ") {
        true => Note::new("to do", "").run("", line),
        false => Note::new("to do", line),
    })
}

fn short(short: &Shortage, asked: AppliedPlanRemarks<'_>) -> Note {
    let text = format!(
        "{} of {} pages of {} are missing on node {} after {} tries with compaction",
        short.missing, short.wanted, short.size, short.node, short.attempts,
    );
    let mut parts = Vec::new();
    let mut part = |name: &str, fact: &Fact<Bytes>| match fact {
        Fact::Known(bytes) => parts.push(format!("{name} {bytes}")),
        Fact::Absent => {}
        Fact::Unreadable(_) => parts.push(format!("{name} unreadable")),
    };
    part("memory", &short.total);
    part("free", &short.free);
    part(
        &format!("free in blocks of {} and more", short.size),
        &short.free_in_blocks,
    );
    part("page cache", &short.cache);
    part("processes", &short.anon);
    part("shared and tmpfs", &short.shmem);
    part("kernel, reclaimable", &short.kernel_reclaimable);
    part("kernel, unreclaimable", &short.kernel_fixed);
    part("locked", &short.locked);
    if let Fact::Known(blocks) = &short.unmovable_blocks {
        parts.push(format!("{blocks} blocks hold unmovable pages"));
    }
    let mut note = Note::marked("short", StatusMark::Warn, text);
    note.evidence.push(parts.join(", "));
    note.run("next", remedy(short, asked))
}

fn remedy(short: &Shortage, asked: AppliedPlanRemarks<'_>) -> String {
    let missing = short.missing.in_bytes(short.size);
    let known = |fact: &Fact<Bytes>| fact.known().copied().unwrap_or(Bytes::ZERO);
    let free = known(&short.free);
    let caches = known(&short.cache) + known(&short.kernel_reclaimable);
    let plan = asked.plan;
    if free + caches < missing {
        return "stop or shrink processes, then apply again; or plan fewer pages".into();
    }
    if free < missing {
        return format!("hugeleaf apply --drop-caches {plan}    # frees clean page cache");
    }
    format!(
        "hugeleaf apply --drop-caches {plan}    # free memory is fragmented; if this does not \
         help, reboot and apply before other services start"
    )
}

pub fn dry_run(
    looked: &[StepPreview],
    obstacles: &[Obstacle],
    asked: AppliedPlanRemarks<'_>,
    systemd: bool,
) -> Document {
    let mut page = Document::new("What apply would change", "");
    for one in looked.iter().filter(|l| l.state == StepState::WouldChange) {
        let lines = diff::step(&one.step.path, &one.before, &one.wanted);
        page.add(ContentBlock::Lines(lines));
    }
    for obstacle in obstacles {
        page.add(format!("obstacle: {obstacle}"));
    }
    let count = |state| looked.iter().filter(|l| l.state == state).count();
    let parts = counts(
        format!(
            "would make {}",
            counted(count(StepState::WouldChange), "step")
        ),
        [
            (count(StepState::Already), "already set"),
            (count(StepState::NotApplicable), "not applicable here"),
        ],
    );
    page.add(format!("{parts}; nothing was changed"));
    let outcomes: Vec<StepOutcome> = looked.iter().map(StepOutcome::from_preview).collect();
    let todo = todo(&outcomes, systemd);
    let todo = to_do(todo.iter().chain(asked.by_hand));
    let warnings = Note::each("note", asked.warnings);
    page.add(warnings.chain(todo).collect::<Vec<_>>());
    page
}

pub fn undo(outcomes: &[UndoOutcome], dry_run: bool) -> Document {
    let mut page = Document::new("Undone", "");
    if outcomes.is_empty() {
        page.add("nothing to undo: no apply is in force");
    }
    for (n, outcome) in outcomes.iter().enumerate() {
        let (head, mark) = undo_head(outcome, dry_run);
        // A single outcome becomes the headline, which is the usual case.
        match n {
            0 => (page.lead, page.mark) = (head, mark),
            _ => {
                page.add(head);
            }
        }
        match dry_run {
            true => outcome.steps.iter().for_each(|step| {
                page.add(would_undo(step));
            }),
            false => steps(&mut page, &outcome.steps),
        }
        for damage in &outcome.damage {
            page.add(format!("journal: {damage}"));
        }
        let todo = todo(&outcome.steps, outcome.systemd);
        page.add(to_do(todo.iter()).collect::<Vec<_>>());
        let is_left = |s: &StepOutcome| s.state == StepState::ChangedSince;
        if !dry_run && outcome.steps.iter().any(is_left) {
            let id = outcome.id;
            let next = format!("hugeleaf undo {id} --even-if-changed    # restores these too");
            page.add(vec![CommandHint::new("next", next)]);
        }
    }
    page
}

fn would_undo(step: &StepOutcome) -> ContentBlock {
    match (step.state, &step.before, &step.wanted) {
        (StepState::WouldChange, Some(now), Some(wanted)) => {
            ContentBlock::Lines(diff::step(&step.path, now, wanted))
        }
        _ => note_of(step).into(),
    }
}

fn undo_head(outcome: &UndoOutcome, dry_run: bool) -> (String, StatusMark) {
    let count =
        |test: fn(StepState) -> bool| outcome.steps.iter().filter(|s| test(s.state)).count();
    let mut parts = counts(
        String::new(),
        [
            (count(|s| s == StepState::WouldChange), "would be restored"),
            (count(|s| s == StepState::Restored), "restored"),
            (count(|s| s == StepState::AsBefore), "already as before"),
            (count(|s| s == StepState::ChangedSince), "left alone"),
            (count(|s| s == StepState::Busy), "in use"),
            (count(|s| s == StepState::InUse), "held by processes"),
            (count(|s| s == StepState::Failed), "failed"),
            (count(|s| s == StepState::NotReached), "not reached"),
        ],
    );
    if parts.is_empty() {
        parts = "no changes".to_owned();
    }
    let (verb, mark) = match (dry_run, outcome.is_good(), outcome.finished) {
        (true, ..) => ("would undo", StatusMark::Plain),
        (_, true, _) => ("undone", StatusMark::Good),
        (_, _, true) => ("undone, with exceptions", StatusMark::Warn),
        _ => ("partly undone", StatusMark::Bad),
    };
    let time = listed(" of ", Some(&outcome.time).filter(|time| !time.is_empty()));
    let head = format!("{verb}: apply {}{time} ({parts})", outcome.id);
    (head, mark)
}

pub fn undo_list(all: &[JournaledApply]) -> Document {
    let mut page = Document::new("Applied plans", "");
    if all.is_empty() {
        page.add("nothing has been applied");
    }
    let table = Table::from_items(all)
        .right("ID", |one| one.head.id)
        .left("TIME", |one| one.head.time.clone())
        .left("STATE", |one| standing(one))
        .right("STEPS", |one| begun(one))
        .left("PLAN", |one| one.head.plan_file.clone());
    page.add(table);
    for one in all {
        for damage in &one.damage {
            page.add(format!("journal: {damage}"));
        }
        if let Some(reason) = &one.head.forced {
            page.add(format!("{}: forced: {reason}", one.head.id));
        }
    }
    page
}

fn begun(one: &JournaledApply) -> usize {
    one.steps.iter().filter(|s| s.begun.is_some()).count()
}

fn standing(one: &JournaledApply) -> &'static str {
    match (one.undone, one.complete) {
        (true, _) => "undone",
        (false, Some(true)) => "in force",
        (false, Some(false)) => "stopped",
        (false, None) => "cut off",
    }
}

#[cfg(test)]
#[path = "apply/tests.rs"]
mod tests;
