//! The journal: one append-only file per apply, with the plan's text next to it.
//!
//! Finds, combines and writes the records of [`super::record`].

use std::path::PathBuf;

use crate::FollowUp;
use hugeleaf_host::{Fact, ReadError, Root};
use hugeleaf_sys::{HostChange, Kernel, SysError, check_trusted};

use super::apply_step::make_folders;
use super::error::HostChangeError;
use super::outcome::StepState;
use super::path_state::{PathState, fresh, missing_folders};
use super::record::{
    BeginRecord, JournalDamage, JournalHeader, JournalRecord, RecordedStep, SCHEMA, line,
    parse_records,
};

/// Folder of the journals, below the root of the host.
pub const JOURNAL: &str = "var/lib/hugeleaf/journal";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournaledApply {
    /// The header of the journal without its steps; only the number if it is damaged.
    pub head: JournalHeader,
    /// True if a newer program wrote it in a format that this one does not know.
    pub is_newer: bool,
    pub plan: Fact<String>,
    pub steps: Vec<AppliedStep>,
    /// True if all steps were reached; `None` if the apply did not end (a crash).
    pub complete: Option<bool>,
    pub undone: bool,
    /// End of the apply, or of its undo.
    pub ended: Option<String>,
    pub damage: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedStep {
    /// The step as listed in the header, with its latest state.
    pub listed: RecordedStep,
    /// State at the end of the apply; differs from the latest state after an undo.
    pub applied: StepState,
    /// The record of its beginning; `None` if it was never begun.
    pub begun: Option<BeginRecord>,
    pub after: Option<PathState>,
    /// Final value of the setting that the kernel changes along with this one.
    pub side_effect: Option<String>,
}

/// Checks that only root can write a journal file on the running host, because `undo` restores its
/// content. The journal of a captured host is only displayed.
fn believed(root: &Root, relative: &str) -> Result<(), ReadError> {
    let path = root.path(relative);
    let is_there = std::fs::symlink_metadata(&path).is_ok();
    if !root.is_live() || !is_there {
        return Ok(());
    }
    check_trusted(&path).map_err(|error| ReadError::new(path, format!("not trusted: {error}")))
}

/// Returns the applies in the journal, newest first; absent if there was none.
pub fn applied(root: &Root) -> Fact<Vec<JournaledApply>> {
    if let Err(error) = believed(root, JOURNAL) {
        return Fact::Unreadable(error);
    }
    root.list(JOURNAL).and_then(|names| {
        let mut all = Vec::new();
        let mut ids: Vec<u32> = names.iter().filter_map(|name| log_id(name)).collect();
        ids.sort_unstable();
        for id in ids.into_iter().rev() {
            match read_one(root, id) {
                Fact::Known(one) => all.push(one),
                Fact::Absent => {}
                Fact::Unreadable(error) => return Fact::Unreadable(error),
            }
        }
        Fact::Known(all)
    })
}

/// Returns the applies in the journal, newest first; none without a journal.
///
/// # Errors
/// [`HostChangeError::Journal`]: the journal cannot be read, or is not trusted.
pub fn history(root: &Root) -> Result<Vec<JournaledApply>, HostChangeError> {
    match applied(root) {
        Fact::Known(all) => Ok(all),
        Fact::Absent => Ok(Vec::new()),
        Fact::Unreadable(error) => Err(HostChangeError::Journal(error)),
    }
}

fn log_id(name: &str) -> Option<u32> {
    name.strip_suffix(".log")?.parse().ok()
}

pub fn read_one(root: &Root, id: u32) -> Fact<JournaledApply> {
    for name in [log_name(id), plan_name(id)] {
        if let Err(error) = believed(root, &name) {
            return Fact::Unreadable(error);
        }
    }
    root.bytes(log_name(id)).map(|bytes| {
        let (records, _, damage) = parse_records(&bytes);
        let plan = root.read(plan_name(id));
        let mut one = fold(id, records, plan);
        let file = root.path(log_name(id));
        let of_newer = |damage: &JournalDamage| matches!(damage, JournalDamage::Unknown { .. });
        one.is_newer = one.is_newer || damage.iter().any(of_newer);
        one.damage = damage
            .iter()
            .map(|damage| format!("{}: {damage}", file.display()))
            .collect();
        one
    })
}

pub fn next_id(root: &Root) -> u32 {
    let names = root.list(JOURNAL);
    let names = names.known().map(Vec::as_slice).unwrap_or_default();
    let ids = names.iter().filter_map(|name| {
        let stem = name.split('.').next()?;
        stem.parse::<u32>().ok()
    });
    ids.max().unwrap_or(0).saturating_add(1)
}

fn log_name(id: u32) -> String {
    format!("{JOURNAL}/{id:04}.log")
}

fn plan_name(id: u32) -> String {
    format!("{JOURNAL}/{id:04}.toml")
}

/// Combines the records of a journal. Pure.
fn fold(id: u32, records: Vec<JournalRecord>, plan: Fact<String>) -> JournaledApply {
    let mut one = JournaledApply {
        plan,
        ..JournaledApply::default()
    };
    one.head.id = id;
    for record in records {
        match record {
            JournalRecord::Apply(header) => one.head(header),
            JournalRecord::Begin(begin) => one.begin(begin),
            JournalRecord::Done {
                step,
                after,
                state,
                beside,
            } => one.step(&step, |s| {
                s.stands(state);
                s.after = Some(after);
                s.side_effect = beside;
            }),
            JournalRecord::Failed { step, .. } => one.step(&step, |s| s.stands(StepState::Failed)),
            JournalRecord::End { time, complete } => {
                (one.ended, one.complete) = (Some(time), Some(complete));
            }
            JournalRecord::Undo { .. } => one.undone = false,
            JournalRecord::Undoing { .. } => {}
            JournalRecord::Undone { step, state } => one.step(&step, |s| s.listed.state = state),
            JournalRecord::UndoEnd { time, complete } => {
                (one.ended, one.undone) = (Some(time), complete);
            }
        }
    }
    one
}

impl AppliedStep {
    fn new(listed: RecordedStep) -> AppliedStep {
        AppliedStep {
            applied: listed.state,
            listed,
            begun: None,
            after: None,
            side_effect: None,
        }
    }

    fn stands(&mut self, state: StepState) {
        (self.listed.state, self.applied) = (state, state);
    }
}

impl JournaledApply {
    fn head(&mut self, mut head: JournalHeader) {
        self.is_newer = head.schema > SCHEMA;
        let steps = std::mem::take(&mut head.steps).into_iter();
        let steps = steps.map(|mut listed| {
            if listed.state == StepState::WouldChange {
                listed.state = StepState::NotReached;
            }
            AppliedStep::new(listed)
        });
        self.steps = steps.collect();
        // A journal is identified by its file.
        self.head = JournalHeader {
            id: self.head.id,
            ..head
        };
    }

    /// Records the beginning of a step; adds it if the (damaged) head does not list it.
    fn begin(&mut self, begin: BeginRecord) {
        if !self.steps.iter().any(|s| s.listed.id == begin.step) {
            self.steps.push(AppliedStep::new(RecordedStep {
                id: begin.step.clone(),
                what: begin.what.clone(),
                path: begin.path.clone(),
                why: String::new(),
                verify: String::new(),
                needs: FollowUp::Nothing,
                state: StepState::Begun,
            }));
        }
        let id = begin.step.clone();
        self.step(&id, |s| {
            s.stands(StepState::Begun);
            s.begun = Some(begin);
        });
    }

    fn step(&mut self, id: &str, change: impl FnOnce(&mut AppliedStep)) {
        if let Some(step) = self.steps.iter_mut().find(|s| s.listed.id == id) {
            change(step);
        }
    }

    /// Returns the error for an apply that only a newer program understands.
    pub(super) fn refuse_newer(&self) -> HostChangeError {
        HostChangeError::Newer {
            id: self.head.id,
            program: self.head.program.clone(),
        }
    }

    pub fn is_whole(&self) -> bool {
        self.complete == Some(true)
    }
}

#[derive(Debug)]
pub struct JournalWriter {
    path: PathBuf,
    next: u64,
    mode: u32,
    /// True if the last line may be cut off, so that the next record must start with a newline.
    torn: bool,
}

impl JournalWriter {
    /// Creates the journal of a new apply: the plan's text, then the header.
    ///
    /// # Errors
    /// Those of the kernel. Nothing on the host was changed then.
    pub fn create(
        root: &Root,
        kernel: &Kernel,
        header: JournalHeader,
        plan: &str,
        secret: bool,
    ) -> Result<JournalWriter, SysError> {
        // The journal may hold copies of files that not all users may read.
        let mode = if secret { 0o600 } else { 0o644 };
        let folder = root.path(JOURNAL);
        make_folders(kernel, &missing_folders(&folder))?;
        let look = fresh(0o644);
        kernel.change(HostChange::Create(
            &root.path(plan_name(header.id)),
            plan.as_bytes(),
            &look,
        ))?;
        let mut writer = JournalWriter {
            path: root.path(log_name(header.id)),
            next: 1,
            mode,
            torn: false,
        };
        writer.add(kernel, &JournalRecord::Apply(header))?;
        kernel.change(HostChange::SyncFolder(&folder))?;
        Ok(writer)
    }

    pub fn reopen(root: &Root, id: u32) -> JournalWriter {
        let bytes = root.read_bytes(log_name(id)).unwrap_or_default();
        let (_, last, _) = parse_records(&bytes);
        JournalWriter {
            path: root.path(log_name(id)),
            next: last + 1,
            mode: 0o600,
            torn: !bytes.is_empty() && !bytes.ends_with(b"\n"),
        }
    }

    /// Writes a record and syncs it to disk before returning.
    pub fn add(&mut self, kernel: &Kernel, record: &JournalRecord) -> Result<(), SysError> {
        let mut text = line(self.next, record);
        if self.torn {
            text.insert(0, '\n');
        }
        self.torn = true;
        kernel.change(HostChange::Append(&self.path, text.as_bytes(), self.mode))?;
        (self.torn, self.next) = (false, self.next + 1);
        Ok(())
    }
}

pub fn boot(root: &Root) -> Option<String> {
    let id = root.read("proc/sys/kernel/random/boot_id");
    id.known().map(|text| text.trim().to_owned())
}
