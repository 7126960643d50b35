//! Executes the steps of a plan in order, each journaled before it is executed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use crate::{Step, StepAction};
use hugeleaf_host::Fact;
use hugeleaf_sys::{Errno, SysError};
use hugeleaf_units::PageSize;

use super::apply_step::{PathChange, StepResult, execute, make_folders};
use super::error::{HostChangeError, Obstacle};
use super::journal::{JournalWriter, JournaledApply, boot, history, next_id};
use super::outcome::{ApplyOutcome, StepOutcome, StepState, StopReason};
use super::path_state::{PathState, below};
use super::preview::{self, StepPreview, has_systemd, preview_step, probe, side_effect_of};
use super::record::{BeginRecord, JournalHeader, JournalRecord, RecordedStep, SCHEMA};
use super::shortage::{node_of, shortage};
use super::undo::{UndoOptions, undo_one};
use super::{ChangeContext, lock};

#[derive(Debug, Clone, Copy)]
pub struct ApplyRequest<'a> {
    pub steps: &'a [Step],
    pub plan: &'a str,
    pub plan_file: &'a str,
    pub program: &'a str,
    /// Reason given by the user for reserving more memory than is safe for the host.
    pub forced: Option<&'a str>,
    /// Names of the services that the plan is for. If an apply changes nothing and has the same
    /// services as the newest, both are undone together.
    pub serves: &'a [&'a str],
    /// The applies in force when the plan was compared with them; `None` if it was not compared.
    pub in_force: Option<&'a [u32]>,
}

#[derive(Debug, Clone, Copy)]
pub struct ApplyOptions {
    pub drop_caches: bool,
    pub all_or_nothing: bool,
    pub base_page: PageSize,
}

/// Applies the steps. All steps are checked first; if one of them is impossible, none is executed.
///
/// # Errors
/// [`HostChangeError`]: a precondition is missing, and nothing was changed. A later failure of a step is
/// no error here. The outcome reports which steps were done.
pub fn apply(
    context: &mut ChangeContext<'_>,
    request: &ApplyRequest<'_>,
    options: &ApplyOptions,
) -> Result<ApplyOutcome, HostChangeError> {
    let mut seen = BTreeSet::new();
    if let Some(again) = request.steps.iter().find(|step| !seen.insert(&step.id)) {
        return Err(HostChangeError::SameId(again.id.clone()));
    }
    let (looked, mut obstacles) = preview::inspect(context.root, request.steps);
    obstacles.extend(probe(context.root, &looked));
    if !obstacles.is_empty() {
        return Err(HostChangeError::Refused(obstacles, request.steps.len()));
    }
    let _lock = lock::lock(context.root)?;
    let history = history(context.root)?;
    known(&history, request)?;
    let newest = history.iter().find(|one| !one.undone);
    let changes = looked.iter().any(|l| l.state == StepState::WouldChange);
    let in_force = newest.filter(|one| one.is_whole());
    let is_same = in_force.is_some_and(|one| one.plan.known().is_some_and(|p| p == request.plan));
    let outcome = ApplyOutcome {
        systemd: has_systemd(context.root),
        ..ApplyOutcome::default()
    };
    if !changes && is_same {
        let steps = looked.iter().map(StepOutcome::from_preview).collect();
        return Ok(ApplyOutcome { steps, ..outcome });
    }
    // This apply continues one that was interrupted. If it changes nothing, it also continues one
    // for the same services, so that both are undone together.
    let is_for_same = |one: &&JournaledApply| one.head.serves == request.serves;
    let continues = newest.filter(|one| !one.is_whole() || !changes && is_for_same(one));
    let continues = continues.map(|one| one.head.id);
    let header = header(context, request, &looked, continues);
    let id = header.id;
    let secret = looked.iter().any(|l| is_secret(&l.before));
    let mut writer =
        JournalWriter::create(context.root, context.kernel, header, request.plan, secret)
            .map_err(HostChangeError::State)?;
    let mut run = ApplyRun {
        context,
        options,
        writer: &mut writer,
        outcome: ApplyOutcome {
            id: Some(id),
            continues,
            ..outcome
        },
    };
    run.steps(request.steps, &looked);
    run.end();
    let mut outcome = run.outcome;
    if outcome.stopped == Some(StopReason::Short) {
        revert(context, id, &mut outcome);
    }
    Ok(outcome)
}

/// Checks that this program can read all applies in force, and that the plan was compared with them.
fn known(history: &[JournaledApply], request: &ApplyRequest<'_>) -> Result<(), HostChangeError> {
    let mut in_force = history.iter().filter(|one| !one.undone);
    if let Some(newer) = in_force.clone().find(|one| one.is_newer) {
        return Err(newer.refuse_newer());
    }
    let Some(expected) = request.in_force else {
        return Ok(());
    };
    match in_force.find(|one| !expected.contains(&one.head.id)) {
        Some(one) => Err(HostChangeError::Overtaken(one.head.id)),
        None => Ok(()),
    }
}

fn is_secret(place: &PathState) -> bool {
    matches!(place, PathState::File { mode, .. } if mode & 0o004 == 0)
}

impl RecordedStep {
    fn from_preview(looked: &StepPreview) -> RecordedStep {
        let step = &looked.step;
        RecordedStep {
            id: step.id.clone(),
            what: step.what.name().to_owned(),
            path: step.path.clone(),
            why: step.why.clone(),
            verify: step.verify.clone(),
            needs: step.needs.clone(),
            state: looked.state,
        }
    }
}

impl StepOutcome {
    pub fn from_preview(looked: &StepPreview) -> StepOutcome {
        StepOutcome {
            before: Some(looked.before.clone()),
            wanted: Some(looked.wanted.clone()),
            ..StepOutcome::listed(RecordedStep::from_preview(looked))
        }
    }

    /// Returns an outcome for a step of which only the header's entry is known.
    pub(super) fn listed(listed: RecordedStep) -> StepOutcome {
        StepOutcome {
            id: listed.id,
            what: listed.what,
            path: listed.path,
            why: listed.why,
            verify: listed.verify,
            needs: listed.needs,
            before: None,
            wanted: None,
            after: None,
            state: listed.state,
            note: None,
            shortage: None,
        }
    }
}

fn header(
    context: &mut ChangeContext<'_>,
    request: &ApplyRequest<'_>,
    looked: &[StepPreview],
    continues: Option<u32>,
) -> JournalHeader {
    JournalHeader {
        schema: SCHEMA,
        id: next_id(context.root),
        time: super::time(),
        boot: boot(context.root),
        program: request.program.to_owned(),
        plan_file: request.plan_file.to_owned(),
        forced: request.forced.map(str::to_owned),
        continues,
        serves: request
            .serves
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
        steps: looked.iter().map(RecordedStep::from_preview).collect(),
    }
}

struct ApplyRun<'a, 'h> {
    context: &'a mut ChangeContext<'h>,
    options: &'a ApplyOptions,
    writer: &'a mut JournalWriter,
    outcome: ApplyOutcome,
}

struct StepFailure {
    error: String,
    errno: Option<Errno>,
    journal: bool,
}

fn failure(error: &SysError, journal: bool) -> StepFailure {
    StepFailure {
        error: error.to_string(),
        errno: Some(error.errno),
        journal,
    }
}

impl ApplyRun<'_, '_> {
    fn steps(&mut self, steps: &[Step], looked: &[StepPreview]) {
        for (step, first) in steps.iter().zip(looked) {
            if self.outcome.stopped.is_none() && self.context.stop.load(Ordering::Relaxed) {
                self.outcome.stopped = Some(StopReason::Signal);
            }
            let mut outcome = StepOutcome::from_preview(first);
            if self.outcome.stopped.is_some() {
                if outcome.state == StepState::WouldChange {
                    outcome.state = StepState::NotReached;
                }
                self.outcome.steps.push(outcome);
                continue;
            }
            (self.context.progress)(&step.id);
            if let Err(failure) = self.step(step, &mut outcome) {
                self.fail(&mut outcome, failure);
            }
            let is_short = outcome.state == StepState::Short;
            self.outcome.steps.push(outcome);
            if is_short && self.options.all_or_nothing {
                self.outcome.stopped = Some(StopReason::Short);
            }
        }
    }

    fn fail(&mut self, outcome: &mut StepOutcome, failure: StepFailure) {
        // Begun and done, but not recorded as done: undo reads the current state.
        if outcome.state != StepState::Begun {
            outcome.state = StepState::Failed;
        }
        outcome.note = Some(failure.error.clone());
        // If even this record cannot be written, the record of the beginning is enough.
        let _ = self.writer.add(
            self.context.kernel,
            &JournalRecord::Failed {
                step: outcome.id.clone(),
                error: failure.error.clone(),
            },
        );
        self.outcome.stopped = Some(StopReason::Failed {
            step: outcome.id.clone(),
            error: failure.error,
            errno: failure.errno,
            journal: failure.journal,
        });
    }

    /// Reads the current state again, since earlier steps may have changed it. Then journals the
    /// step, executes it, and journals the result.
    fn step(&mut self, step: &Step, outcome: &mut StepOutcome) -> Result<(), StepFailure> {
        let looked =
            preview_step(self.context.root, step, &BTreeMap::new()).map_err(|obstacle| {
                StepFailure {
                    error: obstacle.to_string(),
                    errno: match &obstacle {
                        Obstacle::Denied(error) => Some(error.errno),
                        _ => None,
                    },
                    journal: false,
                }
            })?;
        *outcome = StepOutcome::from_preview(&looked);
        if looked.state != StepState::WouldChange {
            return Ok(());
        }
        outcome.state = StepState::Failed;
        let beside_before = side_effect_of(self.context.root, &step.path);
        self.add(JournalRecord::Begin(begin(&looked, beside_before)))?;
        let root = self.context.root;
        let folders: Vec<_> = looked.makes.iter().map(|path| below(root, path)).collect();
        make_folders(self.context.kernel, &folders).map_err(|e| failure(&e, false))?;
        let made = execute(self.context, self.change(&looked)).map_err(|e| failure(&e, false))?;
        outcome.after = Some(made.after.clone());
        outcome.state = StepState::Begun;
        let done = JournalRecord::Done {
            step: step.id.clone(),
            after: made.after.clone(),
            state: made.state,
            beside: side_effect_of(self.context.root, &step.path),
        };
        self.add(done)?;
        outcome.state = made.state;
        self.explain(&looked, &made, outcome);
        Ok(())
    }

    fn change<'l>(&self, looked: &'l StepPreview) -> PathChange<'l> {
        PathChange {
            path: &looked.step.path,
            now: &looked.before,
            target: &looked.wanted,
            is_block: matches!(looked.step.what, StepAction::Block { .. }),
            drop_caches: self.options.drop_caches,
        }
    }

    fn add(&mut self, record: JournalRecord) -> Result<(), StepFailure> {
        let written = self.writer.add(self.context.kernel, &record);
        written.map_err(|e| failure(&e, true))
    }

    fn explain(&self, looked: &StepPreview, made: &StepResult, outcome: &mut StepOutcome) {
        match (&looked.step.what, &made.after) {
            (StepAction::Pool { size, node, pages }, PathState::Pool { pages: got, .. })
                if made.state == StepState::Short =>
            {
                let node = match node {
                    0 => node_of(&looked.step.path),
                    node => *node,
                };
                outcome.shortage = Some(Box::new(shortage(
                    self.context.root,
                    (*size, node),
                    (pages.get(), *got),
                    made.attempts,
                    self.options.base_page,
                )));
            }
            (_, PathState::Pool { surplus, .. }) if made.state == StepState::InUse => {
                outcome.note = Some(format!(
                    "{surplus} pages are in use beyond the size of the pool; each leaves it when \
                     its process frees it"
                ));
            }
            (_, PathState::Value { value }) if made.state == StepState::Differs => {
                outcome.note = Some(format!("the kernel accepted the value but shows {value}"));
            }
            _ => {}
        }
    }

    fn end(&mut self) {
        let complete = self.outcome.stopped.is_none();
        let time = super::time();
        let ended = self.add(JournalRecord::End { time, complete });
        if let (Err(failure), None) = (ended, &self.outcome.stopped) {
            self.outcome.stopped = Some(StopReason::Failed {
                step: "journal".to_owned(),
                error: failure.error,
                errno: failure.errno,
                journal: true,
            });
        }
    }
}

fn begin(looked: &StepPreview, beside: Option<String>) -> BeginRecord {
    let block = match &looked.step.what {
        StepAction::Block { text } => Some(text.clone()),
        _ => None,
    };
    BeginRecord {
        step: looked.step.id.clone(),
        what: looked.step.what.name().to_owned(),
        path: looked.step.path.clone(),
        before: looked.before.clone(),
        wanted: looked.wanted.clone(),
        makes: looked.makes.clone(),
        block,
        beside,
    }
}

fn revert(context: &mut ChangeContext<'_>, id: u32, outcome: &mut ApplyOutcome) {
    let Fact::Known(one) = super::journal::read_one(context.root, id) else {
        return;
    };
    let undone = undo_one(context, &one, &UndoOptions::default(), &mut BTreeMap::new());
    for step in &mut outcome.steps {
        if let Some(back) = undone.steps.iter().find(|s| s.id == step.id) {
            step.after.clone_from(&back.after);
            step.state = back.state;
        }
    }
    outcome.reverted = Some(Box::new(undone));
}
