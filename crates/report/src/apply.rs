//! What `apply` and `undo` say: what stands now where, what fell short and why, what is left for a
//! person to do, and how to take it back; and, before anything is changed, the difference.

mod diff;
mod json;
mod todo;

use hugeleaf_change::host::{
    Applied, ApplyOutcome, Looked, Obstacle, Place, Shortage, State, StepOutcome, StopReason,
    UndoOutcome,
};
use hugeleaf_host::Fact;
use hugeleaf_units::Bytes;

use crate::table::{Align, Look, Paint, Table};

pub use json::{apply_json, dry_run_json, list_json, undo_json};
pub use todo::todo;

/// What was asked for, as far as the answer repeats it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The plan's file, as it was typed.
    pub plan: &'a str,
    /// What a person still has to do by the plan itself, line by line.
    pub by_hand: &'a [String],
    /// What is worth knowing about the plan on this host.
    pub warnings: &'a [String],
}

/// What `apply` says at its end.
pub fn apply(outcome: &ApplyOutcome, asked: Asked<'_>, look: Look) -> String {
    let mut text = headline(outcome, asked, look);
    text.push_str(&steps(&outcome.steps, look));
    for step in &outcome.steps {
        if let Some(shortage) = &step.shortage {
            text.push_str(&short(shortage, asked, look));
        }
    }
    for warning in asked.warnings {
        text.push_str(&look.wrap("note:  ", warning));
    }
    if outcome
        .taken_back
        .as_ref()
        .is_some_and(|back| back.finished)
    {
        return text;
    }
    let todo = todo(&outcome.steps, outcome.systemd);
    text.push_str(&list("to do: ", todo.iter().chain(asked.by_hand), look));
    if let Some(id) = outcome.id {
        text.push_str(&format!("undo:  hugeleaf undo    # this is apply {id}\n"));
    }
    text
}

fn headline(outcome: &ApplyOutcome, asked: Asked<'_>, look: Look) -> String {
    let count = |test: fn(State) -> bool| outcome.steps.iter().filter(|s| test(s.state)).count();
    let made = count(|s| {
        matches!(
            s,
            State::Done | State::Differs | State::InUse | State::Short
        )
    });
    let already = count(|s| s == State::Already);
    let left = count(|s| s == State::NotReached);
    let mut parts = vec![format!("{} made", steps_of(made))];
    for (n, what) in [
        (already, "already so"),
        (left, "not reached"),
        (count(|s| s == State::NotApplicable), "not applicable here"),
        (count(|s| s == State::Restored), "taken back"),
    ] {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    }
    let (verb, paint) = match &outcome.stopped {
        _ if outcome.id.is_none() => ("all as planned already", Paint::Good),
        Some(StopReason::Short) => ("not applied, a pool was short", Paint::Warn),
        Some(_) => ("applied in part", Paint::Bad),
        None if outcome.is_good() => ("applied", Paint::Good),
        None => ("applied, with less than was planned", Paint::Warn),
    };
    let verb = look.paint(verb, paint);
    format!("{verb}: {} ({})\n", asked.plan, parts.join(", "))
}

fn steps_of(count: usize) -> String {
    match count {
        1 => "1 step".to_owned(),
        n => format!("{n} steps"),
    }
}

/// One line a step.
fn steps(steps: &[StepOutcome], look: Look) -> String {
    let mut table = Table::new(&[
        ("STATE", Align::Left),
        ("BEFORE", Align::Right),
        ("NOW", Align::Right),
        ("STEP", Align::Left),
        ("WHERE", Align::Left),
    ]);
    for step in steps {
        let now = match (&step.after, step.state) {
            (Some(after), _) => after.in_short(),
            (None, State::Already | State::AsBefore) => {
                step.before.as_ref().map_or_else(dash, Place::in_short)
            }
            _ => dash(),
        };
        table.row([
            step.state.id().to_owned(),
            step.before.as_ref().map_or_else(dash, Place::in_short),
            now,
            step.id.clone(),
            step.path.display().to_string(),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    let mut text = table.render_as(look);
    for step in steps {
        if let Some(note) = &step.note {
            text.push_str(&look.wrap(&format!("{}: ", step.id), note));
        }
    }
    text
}

fn dash() -> String {
    "-".to_owned()
}

/// A pool that is short: what is missing, what holds the memory, what would help.
fn short(short: &Shortage, asked: Asked<'_>, look: Look) -> String {
    let text = format!(
        "{} of {} pages of {} are missing on node {}, after {} tries with compaction between them",
        short.missing, short.wanted, short.size, short.node, short.attempts,
    );
    let mut out = look.wrap("short: ", &text);
    let mut parts = Vec::new();
    let mut part = |name: &str, fact: &Fact<Bytes>| match fact {
        Fact::Known(bytes) => parts.push(format!("{name} {bytes}")),
        Fact::Absent => {}
        Fact::Unreadable(_) => parts.push(format!("{name} not readable")),
    };
    part("memory", &short.total);
    part("free", &short.free);
    part(
        &format!("free in blocks of {} and more", short.size),
        &short.free_in_blocks,
    );
    part("pages of files", &short.cache);
    part("processes", &short.anon);
    part("shared and tmpfs", &short.shmem);
    part("kernel, can be given back", &short.kernel_reclaimable);
    part("kernel, cannot", &short.kernel_fixed);
    part("locked", &short.locked);
    if let Fact::Known(blocks) = &short.unmovable_blocks {
        parts.push(format!("{blocks} blocks hold unmovable pages"));
    }
    out.push_str(&look.wrap("       ", &parts.join(", ")));
    out.push_str(&command("  next: ", &remedy(short, asked), look));
    out
}

/// What would bring the missing pages, by what holds the memory.
fn remedy(short: &Shortage, asked: Asked<'_>) -> String {
    let missing = short.missing.of(short.size);
    let known = |fact: &Fact<Bytes>| fact.known().copied().unwrap_or(Bytes::ZERO);
    let free = known(&short.free);
    let caches = known(&short.cache) + known(&short.kernel_reclaimable);
    let plan = asked.plan;
    if free + caches < missing {
        return "end or shrink what the processes hold, then apply again; or plan fewer pages"
            .into();
    }
    if free < missing {
        return format!("hugeleaf apply --drop-caches {plan}    # clean pages of files make room");
    }
    format!(
        "hugeleaf apply --drop-caches {plan}    # enough is free, in pieces; if that does not help, \
         reboot and apply before anything else starts"
    )
}

/// A line that may be a command: one with a remark behind it is to be copied, and stays whole.
fn command(first: &str, line: &str, look: Look) -> String {
    match line.contains("    # ") {
        true => format!("{first}{}\n", crate::table::clean(line)),
        false => look.wrap(first, line),
    }
}

fn list<'a>(head: &str, lines: impl Iterator<Item = &'a String>, look: Look) -> String {
    let (mut text, mut first) = (String::new(), head.to_owned());
    for line in lines {
        text.push_str(&command(&first, line, look));
        first = " ".repeat(head.chars().count());
    }
    text
}

/// What `apply --dry-run` says: the difference, and what stands in the way.
pub fn dry_run(
    looked: &[Looked],
    obstacles: &[Obstacle],
    asked: Asked<'_>,
    systemd: bool,
    look: Look,
) -> String {
    let mut text = String::new();
    for one in looked.iter().filter(|l| l.state == State::WouldChange) {
        text.push_str(&diff::step(&one.step.path, &one.before, &one.wanted, look));
    }
    for obstacle in obstacles {
        text.push_str(&look.wrap("in the way: ", &obstacle.to_string()));
    }
    let count = |state| looked.iter().filter(|l| l.state == state).count();
    let mut parts = vec![format!(
        "would make {}",
        steps_of(count(State::WouldChange))
    )];
    for (n, what) in [
        (count(State::Already), "so already"),
        (count(State::NotApplicable), "not applicable here"),
    ] {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    }
    text.push_str(&format!("{}; nothing was changed\n", parts.join(", ")));
    let outcomes: Vec<StepOutcome> = looked.iter().map(StepOutcome::of).collect();
    for warning in asked.warnings {
        text.push_str(&look.wrap("note:  ", warning));
    }
    let todo = todo(&outcomes, systemd);
    text.push_str(&list("to do: ", todo.iter().chain(asked.by_hand), look));
    text
}

/// What `undo` says at its end.
pub fn undo(outcomes: &[UndoOutcome], dry_run: bool, look: Look) -> String {
    if outcomes.is_empty() {
        return "nothing to undo: no apply is in force\n".to_owned();
    }
    let mut text = String::new();
    for outcome in outcomes {
        text.push_str(&undo_head(outcome, dry_run, look));
        if dry_run {
            for step in &outcome.steps {
                if let (State::WouldChange, Some(now), Some(wanted)) =
                    (step.state, &step.before, &step.wanted)
                {
                    text.push_str(&diff::step(&step.path, now, wanted, look));
                } else if let Some(note) = &step.note {
                    text.push_str(&look.wrap(&format!("{}: ", step.id), note));
                }
            }
        } else {
            text.push_str(&steps(&outcome.steps, look));
        }
        for damage in &outcome.damage {
            text.push_str(&look.wrap("journal: ", damage));
        }
        let todo = todo(&outcome.steps, outcome.systemd);
        text.push_str(&list("to do: ", todo.iter(), look));
        let is_left = |s: &StepOutcome| s.state == State::ChangedSince;
        if !dry_run && outcome.steps.iter().any(is_left) {
            let next = format!("hugeleaf undo {} --even-if-changed", outcome.id);
            text.push_str(&format!("  next: {next}    # puts those back too\n"));
        }
    }
    text
}

fn undo_head(outcome: &UndoOutcome, dry_run: bool, look: Look) -> String {
    let count = |test: fn(State) -> bool| outcome.steps.iter().filter(|s| test(s.state)).count();
    let mut parts = Vec::new();
    for (n, what) in [
        (count(|s| s == State::WouldChange), "would be put back"),
        (count(|s| s == State::Restored), "put back"),
        (count(|s| s == State::AsBefore), "as before already"),
        (count(|s| s == State::ChangedSince), "left alone"),
        (count(|s| s == State::Busy), "in use"),
        (count(|s| s == State::InUse), "held by programs"),
        (count(|s| s == State::Failed), "failed"),
        (count(|s| s == State::NotReached), "not reached"),
    ] {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    }
    if parts.is_empty() {
        parts.push("it had changed nothing".to_owned());
    }
    let (verb, paint) = match (dry_run, outcome.is_good(), outcome.finished) {
        (true, ..) => ("would undo", Paint::Bold),
        (_, true, _) => ("undone", Paint::Good),
        (_, _, true) => ("undone, but for what is below", Paint::Warn),
        _ => ("undone in part", Paint::Bad),
    };
    let time = match outcome.time.as_str() {
        "" => String::new(),
        time => format!(" of {time}"),
    };
    let verb = look.paint(verb, paint);
    format!(
        "{verb}: apply {}{time} ({})\n",
        outcome.id,
        parts.join(", ")
    )
}

/// What `undo --list` says.
pub fn undo_list(all: &[Applied], look: Look) -> String {
    if all.is_empty() {
        return "nothing was ever applied\n".to_owned();
    }
    let mut table = Table::new(&[
        ("ID", Align::Right),
        ("WHEN", Align::Left),
        ("STATE", Align::Left),
        ("STEPS", Align::Right),
        ("PLAN", Align::Left),
    ]);
    for one in all {
        table.row([
            one.id.to_string(),
            one.time.clone(),
            standing(one).to_owned(),
            begun(one).to_string(),
            one.plan_file.clone(),
        ]);
    }
    let mut text = table.render_as(look);
    for one in all {
        for damage in &one.damage {
            text.push_str(&look.wrap("journal: ", damage));
        }
        if let Some(reason) = &one.forced {
            text.push_str(&look.wrap(&format!("{}: forced: ", one.id), reason));
        }
    }
    text
}

/// How many steps were begun.
fn begun(one: &Applied) -> usize {
    one.steps.iter().filter(|s| s.before.is_some()).count()
}

/// How an apply stands, in a word or two.
fn standing(one: &Applied) -> &'static str {
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
