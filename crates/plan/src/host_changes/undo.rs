//! Undoes an apply from its journal alone.
//!
//! Each step is compared with the current state. If it is as before the apply, nothing is done. If
//! it is as the apply left it, it is restored. Any other state was set by others meanwhile, and is
//! left alone unless the user insists. So a repeated undo, even after a crash, does no harm.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;

use hugeleaf_host::size_folder;
use hugeleaf_host::system::read_start_facts;
use hugeleaf_sys::{Errno, HostChange, SysError};
use hugeleaf_units::Pages;
use hugeleaf_verdict::reservation::may_grow_again;

use super::apply_step::{PathChange, execute, read_again, remove_above, remove_drafts};
use super::config_block;
use super::error::HostChangeError;
use super::journal::{AppliedStep, JournalWriter, JournaledApply, boot, history};
use super::outcome::{StepOutcome, StepState, UndoOutcome};
use super::path_state::{FileContent, PathState};
use super::preview::{SIDE_EFFECTS, has_systemd, real_path, side_effect_of};
use super::record::{BeginRecord, JournalRecord};
use super::{ChangeContext, lock};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndoSelection {
    /// The newest apply in force, with those that it continues.
    Newest,
    Id(u32),
    /// All applies in force, newest first.
    All,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct UndoOptions {
    pub even_if_changed: bool,
    pub dry_run: bool,
}

/// States that earlier undo steps would leave, for a dry run.
pub type SimulatedState = BTreeMap<String, PathState>;

/// Undoes applies, newest first. Returns an empty list if there is none.
///
/// # Errors
/// [`HostChangeError`]: a precondition is missing, and nothing was changed. A later failure to restore a
/// place is no error here. The outcome reports it per step.
pub fn undo(
    context: &mut ChangeContext<'_>,
    which: UndoSelection,
    options: &UndoOptions,
) -> Result<Vec<UndoOutcome>, HostChangeError> {
    // Without any earlier apply not even the lock is created.
    let is_new = context.root.list(super::JOURNAL).is_absent();
    let _lock = match options.dry_run || is_new {
        true => None,
        false => Some(lock::lock(context.root)?),
    };
    let all = history(context.root)?;
    let chosen = choose(&all, which)?;
    if let Some(newer) = chosen.iter().find(|one| one.is_newer) {
        return Err(newer.refuse_newer());
    }
    let (mut outcomes, mut left) = (Vec::new(), SimulatedState::new());
    for one in chosen {
        let outcome = undo_one(context, one, options, &mut left);
        // If this one could not be undone, older ones must wait, because it may rely on them.
        let goes_on = outcome.finished;
        outcomes.push(outcome);
        if !goes_on {
            break;
        }
    }
    Ok(outcomes)
}

fn choose(
    all: &[JournaledApply],
    which: UndoSelection,
) -> Result<Vec<&JournaledApply>, HostChangeError> {
    let first = match which {
        UndoSelection::All => return Ok(all.iter().filter(|one| !one.undone).collect()),
        UndoSelection::Newest => all.iter().find(|one| !one.undone),
        UndoSelection::Id(id) => {
            let one = all.iter().find(|one| one.head.id == id);
            Some(one.ok_or(HostChangeError::NoSuch(id))?)
        }
    };
    let mut chosen: Vec<&JournaledApply> = first.into_iter().collect();
    while let Some(next) = chosen.last().and_then(|one| one.head.continues) {
        match all.iter().find(|one| one.head.id == next && !one.undone) {
            // A damaged journal must not cause an endless loop.
            Some(one) if chosen.iter().all(|c| c.head.id > one.head.id) => chosen.push(one),
            _ => break,
        }
    }
    if let UndoSelection::Id(id) = which {
        let later = all.iter().filter(|one| !one.undone && one.head.id > id);
        for later in later {
            if let Some((path, rests)) = shared(&chosen, later) {
                return Err(HostChangeError::BuiltUpon {
                    id,
                    by: later.head.id,
                    path: path.to_owned(),
                    rests,
                });
            }
        }
    }
    Ok(chosen)
}

/// Returns a place that a later apply also changed, or found already as wanted. In that case the
/// later one relies on the change without a change of its own.
fn shared<'a>(chosen: &[&JournaledApply], later: &'a JournaledApply) -> Option<(&'a Path, bool)> {
    let changed = |step: &&AppliedStep| step.begun.is_some();
    let ours = |path: &Path| {
        let steps = chosen.iter().flat_map(|one| &one.steps);
        let mut steps = steps
            .filter(changed)
            .filter(|step| step.listed.path == path);
        steps.any(|step| !matches!(step.listed.state, StepState::Restored | StepState::AsBefore))
    };
    let rests = |step: &&AppliedStep| step.begun.is_none() && step.applied == StepState::Already;
    let theirs = later.steps.iter();
    let theirs = theirs.filter(|step| changed(step) || rests(step));
    let mut theirs = theirs.filter(|step| ours(&step.listed.path));
    theirs.next().map(|step| (&*step.listed.path, rests(&step)))
}

pub fn undo_one(
    context: &mut ChangeContext<'_>,
    one: &JournaledApply,
    options: &UndoOptions,
    left: &mut SimulatedState,
) -> UndoOutcome {
    let rules = UndoConditions {
        even: options.even_if_changed,
        rebooted: one.head.boot.is_some() && one.head.boot != boot(context.root),
    };
    let mut run = UndoRun {
        writer: (!options.dry_run).then(|| JournalWriter::reopen(context.root, one.head.id)),
        outcome: UndoOutcome {
            id: one.head.id,
            time: one.head.time.clone(),
            steps: Vec::new(),
            damage: one.damage.clone(),
            finished: false,
            unjournaled: false,
            systemd: has_systemd(context.root),
        },
        context,
        rules,
        left,
        journaled: true,
        all_reached: true,
        blocked: Vec::new(),
    };
    let time = super::time();
    run.add(&JournalRecord::Undo { time });
    for step in one.steps.iter().rev().filter(|step| is_to_undo(one, step)) {
        run.step(step);
    }
    run.end()
}

fn is_to_undo(one: &JournaledApply, step: &AppliedStep) -> bool {
    let is_back = matches!(step.listed.state, StepState::Restored | StepState::AsBefore);
    // Its folders may remain, because an incomplete undo kept a later step's file in them.
    let has_folders = |begun: &BeginRecord| !one.undone && !begun.makes.is_empty();
    step.begun
        .as_ref()
        .is_some_and(|begun| !is_back || has_folders(begun))
}

struct UndoRun<'a, 'h, 's> {
    context: &'a mut ChangeContext<'h>,
    /// The journal; `None` in a dry run.
    writer: Option<JournalWriter>,
    outcome: UndoOutcome,
    rules: UndoConditions,
    left: &'a mut SimulatedState,
    journaled: bool,
    all_reached: bool,
    blocked: Vec<&'s Path>,
}

impl<'s> UndoRun<'_, '_, 's> {
    fn add(&mut self, record: &JournalRecord) {
        if let Some(writer) = &mut self.writer {
            self.journaled = self.journaled && writer.add(self.context.kernel, record).is_ok();
        }
    }

    fn step(&mut self, step: &'s AppliedStep) {
        let mut result = StepOutcome {
            wanted: step.begun.as_ref().map(|begun| begun.before.clone()),
            state: StepState::NotReached,
            ..StepOutcome::listed(step.listed.clone())
        };
        // A step must wait for a later one at the same place that could not be undone, e.g. the
        // block written to the file before, or the folder below a mount.
        let waits = self.blocked.contains(&&*step.listed.path);
        if !self.journaled || waits || self.context.stop.load(Ordering::Relaxed) {
            self.all_reached = false;
            self.outcome.steps.push(result);
            return;
        }
        (self.context.progress)(&step.listed.id);
        if self.writer.is_none() {
            undo_step(self.context, step, self.rules, &mut result, Some(self.left));
        } else {
            let id = step.listed.id.clone();
            self.add(&JournalRecord::Undoing { step: id.clone() });
            if self.journaled {
                undo_step(self.context, step, self.rules, &mut result, None);
                let state = result.state;
                self.add(&JournalRecord::Undone { step: id, state });
            }
        }
        if is_open(&result) {
            self.blocked.push(&step.listed.path);
        }
        self.outcome.steps.push(result);
    }

    fn end(mut self) -> UndoOutcome {
        let seen_to = self.all_reached && !self.outcome.steps.iter().any(is_open);
        if self.journaled {
            let time = super::time();
            let complete = seen_to;
            self.add(&JournalRecord::UndoEnd { time, complete });
        }
        self.outcome.unjournaled = !self.journaled;
        self.outcome.finished = seen_to && self.journaled;
        self.outcome
    }
}

const fn is_open(step: &StepOutcome) -> bool {
    matches!(step.state, StepState::Failed | StepState::Busy)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum UndoAction {
    Nothing,
    To(PathState),
    /// The file is left alone, except for our block, which is removed.
    Cut(PathState),
    LeaveAlone,
}

#[derive(Debug, Clone, Copy)]
struct UndoConditions {
    even: bool,
    /// True after a reboot since the apply: the current values come from the files.
    rebooted: bool,
}

fn decide(now: &PathState, step: &AppliedStep, rules: UndoConditions) -> UndoAction {
    let Some(begun) = &step.begun else {
        return UndoAction::Nothing;
    };
    let (before, wanted) = (&begun.before, &begun.wanted);
    if now.is_like(before) {
        return UndoAction::Nothing;
    }
    if matches!(now, PathState::Other | PathState::OtherMount { .. }) {
        return UndoAction::LeaveAlone;
    }
    let is_left = match &step.after {
        Some(after) => now.is_like(after) || (rules.rebooted && now.is_like(wanted)),
        None => now.is_like(wanted),
    };
    // A kill leaves a pool at any size in between, and a boot may have found fewer pages.
    let on_the_way = (step.after.is_none() || rules.rebooted) && is_between(before, now, wanted);
    if is_left || on_the_way || rules.even {
        return UndoAction::To(before.clone());
    }
    if let (Some(text), Some((content, look))) = (&begun.block, now.as_file()) {
        let written = config_block::whole(&step.listed.id, text);
        if let Some(rest) = config_block::cut(&content.0, &step.listed.id, &written) {
            return UndoAction::Cut(PathState::file(FileContent(rest), &look));
        }
    }
    UndoAction::LeaveAlone
}

fn is_between(before: &PathState, now: &PathState, wanted: &PathState) -> bool {
    match (before, now, wanted) {
        (
            PathState::Pool { pages: a, .. },
            PathState::Pool { pages: x, .. },
            PathState::Pool { pages: b, .. },
        ) => (a.min(b)..=a.max(b)).contains(&x),
        _ => false,
    }
}

fn is_block(step: &AppliedStep) -> bool {
    step.listed.what == "block"
}

fn read_now(context: &ChangeContext<'_>, step: &AppliedStep) -> Result<PathState, SysError> {
    let like = step
        .begun
        .as_ref()
        .map_or(&PathState::Absent, |b| &b.before);
    let real = real_path(context.root, &step.listed.path, is_block(step));
    read_again(context, &step.listed.path, like, &real)
}

/// True if a knob or pool no longer exists: its cgroup has ended, or another kernel runs.
fn is_gone(step: &AppliedStep, error: &SysError) -> bool {
    let is_knob =
        |b: &BeginRecord| matches!(b.before, PathState::Value { .. } | PathState::Pool { .. });
    step.begun.as_ref().is_some_and(is_knob) && error.errno == Errno::NOENT
}

const ONLY_THE_BLOCK: &str = "the file was changed meanwhile; only hugeleaf's block is removed";

fn leave_alone(step: &AppliedStep, result: &mut StepOutcome) {
    result.state = StepState::ChangedSince;
    let text = match step.after {
        Some(_) => "it was changed meanwhile, and is left unchanged",
        None => "it is neither as before nor as planned, and is left unchanged",
    };
    result.note = Some(text.to_owned());
}

/// Undoes a step. With `left`, reports what the undo would do, and records it there.
fn undo_step(
    context: &mut ChangeContext<'_>,
    step: &AppliedStep,
    rules: UndoConditions,
    result: &mut StepOutcome,
    left: Option<&mut SimulatedState>,
) {
    if let Err(error) = try_undo_step(context, step, rules, result, left) {
        let is_busy = error.errno == Errno::BUSY && step.listed.what == "mount";
        let is_full =
            step.listed.what == "folder" && matches!(error.errno, Errno::NOTEMPTY | Errno::EXIST);
        let (state, note) = match (is_busy, is_full) {
            (true, _) => (StepState::Busy, "a process has it open; it stays mounted"),
            (_, true) => (
                StepState::ChangedSince,
                "it contains other files, and is left unchanged",
            ),
            _ => (StepState::Failed, &*error.to_string()),
        };
        (result.state, result.note) = (state, Some(note.to_owned()));
    }
}

fn try_undo_step(
    context: &mut ChangeContext<'_>,
    step: &AppliedStep,
    rules: UndoConditions,
    result: &mut StepOutcome,
    mut left: Option<&mut SimulatedState>,
) -> Result<(), SysError> {
    let group = match step.listed.what.as_str() {
        "block" | "folder" => "file",
        other => other,
    };
    let key = format!("{group}:{}", step.listed.path.display());
    let known = left.as_ref().and_then(|left| left.get(&key).cloned());
    let now = match known.map_or_else(|| read_now(context, step), Ok) {
        Err(error) if is_gone(step, &error) => {
            result.state = StepState::AsBefore;
            result.note = Some("it no longer exists, so nothing is restored".to_owned());
            return Ok(());
        }
        other => other?,
    };
    result.before = Some(now.clone());
    if left.is_none() && matches!(step.listed.what.as_str(), "file" | "block") {
        let path = real_path(context.root, &step.listed.path, is_block(step));
        remove_drafts(context, &path)?;
    }
    let decision = decide(&now, step, rules);
    if left.is_some() {
        result.after = Some(now.clone());
    }
    match (&decision, &mut left) {
        (UndoAction::Nothing, _) => result.state = StepState::AsBefore,
        (UndoAction::LeaveAlone, _) => {
            leave_alone(step, result);
            return Ok(());
        }
        (UndoAction::To(target) | UndoAction::Cut(target), None) => {
            put_back(context, step, &now, target, result)?;
        }
        (UndoAction::To(target) | UndoAction::Cut(target), Some(left)) => {
            result.state = StepState::WouldChange;
            result.note = may_restore(context, step, &now, target).err();
            if result.note.is_none() {
                result.after = Some(target.clone());
            }
            left.insert(key, target.clone());
        }
    }
    if let UndoAction::Cut(target) = decision {
        result.note = Some(ONLY_THE_BLOCK.to_owned());
        if left.is_some() {
            result.wanted = Some(target);
        }
        return Ok(());
    }
    if left.is_some() {
        return Ok(());
    }
    let kept = match &step.begun {
        Some(begun) if begun.before == PathState::Absent => remove_above(context, &begun.makes)?,
        _ => Vec::new(),
    };
    if let Some(folder) = kept.first() {
        result.note = Some(format!(
            "{} stays: it contains other files",
            folder.display()
        ));
    }
    Ok(())
}

fn put_back(
    context: &mut ChangeContext<'_>,
    step: &AppliedStep,
    now: &PathState,
    target: &PathState,
    result: &mut StepOutcome,
) -> Result<(), SysError> {
    if let Err(why) = may_restore(context, step, now, target) {
        (result.state, result.note) = (StepState::Failed, Some(why));
        return Ok(());
    }
    let beside_before = side_effect_of(context.root, &step.listed.path);
    let made = execute(
        context,
        PathChange {
            path: &step.listed.path,
            now,
            target,
            is_block: is_block(step),
            drop_caches: false,
        },
    )?;
    restore_side_effect(context, step, beside_before)?;
    result.state = match made.state {
        StepState::Done => StepState::Restored,
        other => other,
    };
    if let (StepState::InUse, PathState::Pool { surplus, .. }) = (made.state, &made.after) {
        result.note = Some(format!(
            "{surplus} pages are still in use; each leaves the pool when its process frees it"
        ));
    }
    if let (StepState::Short, PathState::Pool { pages, .. }) = (made.state, &made.after) {
        result.note = Some(format!("only {pages} pages were available"));
    }
    result.after = Some(made.after);
    Ok(())
}

/// Refuses pages of a pool that would let allocations of programs fail.
fn may_restore(
    context: &ChangeContext<'_>,
    step: &AppliedStep,
    now: &PathState,
    target: &PathState,
) -> Result<(), String> {
    let (PathState::Pool { pages: from, .. }, PathState::Pool { pages: to, .. }) = (now, target)
    else {
        return Ok(());
    };
    if to <= from {
        return Ok(());
    }
    // Without the size of the base page nothing is known about the host.
    let Ok(host) = read_start_facts(context.root, context.kernel) else {
        return Ok(());
    };
    let path = &step.listed.path;
    let is_its = |folder: &str| path.iter().any(|part| part == folder);
    let mut sizes = host.totals().map(|pool| pool.size);
    match sizes.find(|size| is_its(&size_folder(*size))) {
        Some(size) => may_grow_again(&host, Pages(to - from).in_bytes(size)),
        None => Ok(()),
    }
}

/// Restores the value that the kernel changed along with a knob, unless the kernel did so or it was
/// changed by others meanwhile.
fn restore_side_effect(
    context: &mut ChangeContext<'_>,
    step: &AppliedStep,
    found: Option<String>,
) -> Result<(), SysError> {
    let before = step.begun.as_ref().and_then(|begun| begun.beside.as_ref());
    let (Some(before), Some(after)) = (before, &step.side_effect) else {
        return Ok(());
    };
    let now = side_effect_of(context.root, &step.listed.path);
    if now.as_ref() != Some(before) && found.as_ref() == Some(after) {
        let path = context.root.path(SIDE_EFFECTS);
        context.kernel.change(HostChange::Write(&path, before))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
