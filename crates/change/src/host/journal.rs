//! The journal: one file an apply, appended to and never changed, with the plan's text next to it.
//!
//! What the lines mean is in [`super::record`]; here they are found, folded into what they tell,
//! and written.

use std::path::PathBuf;

use hugeleaf_host::{Fact, ReadError, Root};
use hugeleaf_sys::{HostChange, Kernel, SysError, check_trusted};
use hugeleaf_verdict::plan::Needs;

use super::error::HostError;
use super::make::make_folders;
use super::outcome::State;
use super::place::{Place, fresh, missing_folders};
use super::record::{Begin, Damage, Header, Listed, Record, SCHEMA, line, parse_records};

/// Where journals are, below the root of the host.
pub const JOURNAL: &str = "var/lib/hugeleaf/journal";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// What its journal begins with, but for the steps; where that is damaged, its number alone.
    pub head: Header,
    /// Whether a newer program wrote it, in a way that this one does not know.
    pub is_newer: bool,
    pub plan: Fact<String>,
    pub steps: Vec<AppliedStep>,
    /// Whether all steps were reached; `None` where it never came to its end (a crash).
    pub complete: Option<bool>,
    pub undone: bool,
    pub damage: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedStep {
    /// As it was listed, but for its state, which is how it stood last.
    pub listed: Listed,
    /// How it stood when the apply was over; differs from that once it is undone.
    pub applied: State,
    /// What it began with; `None` where it was never begun.
    pub begun: Option<Begin>,
    pub after: Option<Place>,
    /// What the value that the kernel changes along with this one became.
    pub beside: Option<String>,
}

/// Whether a file of the journal is root's word: on the running host others must not be able to
/// change it, because `undo` puts back what stands there. Of a captured host it is only shown.
fn believed(root: &Root, relative: &str) -> Result<(), ReadError> {
    let path = root.path(relative);
    let is_there = std::fs::symlink_metadata(&path).is_ok();
    if !root.is_live() || !is_there {
        return Ok(());
    }
    check_trusted(&path).map_err(|error| ReadError::new(path, format!("not believed: {error}")))
}

/// The applies that the journal knows, newest first. Absent where nothing was ever applied.
pub fn applied(root: &Root) -> Fact<Vec<Applied>> {
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

fn log_id(name: &str) -> Option<u32> {
    name.strip_suffix(".log")?.parse().ok()
}

pub fn read_one(root: &Root, id: u32) -> Fact<Applied> {
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
        let of_newer = |damage: &Damage| matches!(damage, Damage::Unknown { .. });
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

/// What the records of a journal come to. Pure.
fn fold(id: u32, records: Vec<Record>, plan: Fact<String>) -> Applied {
    let mut one = Applied {
        head: Header {
            id,
            ..Header::default()
        },
        is_newer: false,
        plan,
        steps: Vec::new(),
        complete: None,
        undone: false,
        damage: Vec::new(),
    };
    for record in records {
        match record {
            Record::Apply(header) => one.head(header),
            Record::Begin(begin) => one.begin(begin),
            Record::Done {
                step,
                after,
                state,
                beside,
            } => one.step(&step, |s| {
                s.stands(state);
                s.after = Some(after);
                s.beside = beside;
            }),
            Record::Failed { step, .. } => one.step(&step, |s| s.stands(State::Failed)),
            Record::End { complete, .. } => one.complete = Some(complete),
            Record::Undo { .. } => one.undone = false,
            Record::Undoing { .. } => {}
            Record::Undone { step, state } => one.step(&step, |s| s.listed.state = state),
            Record::UndoEnd { complete, .. } => one.undone = complete,
        }
    }
    one
}

impl AppliedStep {
    fn new(listed: Listed) -> AppliedStep {
        AppliedStep {
            applied: listed.state,
            listed,
            begun: None,
            after: None,
            beside: None,
        }
    }

    fn stands(&mut self, state: State) {
        (self.listed.state, self.applied) = (state, state);
    }
}

impl Applied {
    fn head(&mut self, mut head: Header) {
        self.is_newer = head.schema > SCHEMA;
        let steps = std::mem::take(&mut head.steps).into_iter();
        let steps = steps.map(|mut listed| {
            if listed.state == State::WouldChange {
                listed.state = State::NotReached;
            }
            AppliedStep::new(listed)
        });
        self.steps = steps.collect();
        // A journal is known by its file.
        self.head = Header {
            id: self.head.id,
            ..head
        };
    }

    /// Fills in a step that begins; one that the (damaged) head does not list is added.
    fn begin(&mut self, begin: Begin) {
        if !self.steps.iter().any(|s| s.listed.id == begin.step) {
            self.steps.push(AppliedStep::new(Listed {
                id: begin.step.clone(),
                what: begin.what.clone(),
                path: begin.path.clone(),
                why: String::new(),
                verify: String::new(),
                needs: Needs::Nothing,
                state: State::Begun,
            }));
        }
        let id = begin.step.clone();
        self.step(&id, |s| {
            s.stands(State::Begun);
            s.begun = Some(begin);
        });
    }

    fn step(&mut self, id: &str, change: impl FnOnce(&mut AppliedStep)) {
        if let Some(step) = self.steps.iter_mut().find(|s| s.listed.id == id) {
            change(step);
        }
    }

    /// Why nothing can be done about it: what it did is known to a newer program only.
    pub(super) fn refuse_newer(&self) -> HostError {
        HostError::Newer {
            id: self.head.id,
            program: self.head.program.clone(),
        }
    }

    pub fn is_whole(&self) -> bool {
        self.complete == Some(true)
    }
}

#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    next: u64,
    mode: u32,
    /// Whether the last line may be cut off, so that a new one must begin on a line of its own.
    torn: bool,
}

impl Writer {
    /// Begins the journal of a new apply: the plan's text, then the head.
    ///
    /// # Errors
    /// Those of the kernel. Nothing of the host was changed then.
    pub fn create(
        root: &Root,
        kernel: &Kernel,
        header: Header,
        plan: &str,
        secret: bool,
    ) -> Result<Writer, SysError> {
        // Copies of files that not all may read are kept as they were.
        let mode = if secret { 0o600 } else { 0o644 };
        let folder = root.path(JOURNAL);
        make_folders(kernel, &missing_folders(&folder))?;
        let look = fresh(0o644);
        kernel.change(HostChange::Create(
            &root.path(plan_name(header.id)),
            plan.as_bytes(),
            &look,
        ))?;
        let mut writer = Writer {
            path: root.path(log_name(header.id)),
            next: 1,
            mode,
            torn: false,
        };
        writer.add(kernel, &Record::Apply(header))?;
        kernel.change(HostChange::SyncFolder(&folder))?;
        Ok(writer)
    }

    pub fn reopen(root: &Root, id: u32) -> Writer {
        let bytes = root.read_bytes(log_name(id)).unwrap_or_default();
        let (_, last, _) = parse_records(&bytes);
        Writer {
            path: root.path(log_name(id)),
            next: last + 1,
            mode: 0o600,
            torn: !bytes.is_empty() && !bytes.ends_with(b"\n"),
        }
    }

    /// Writes a record; it is on disk when this returns.
    pub fn add(&mut self, kernel: &Kernel, record: &Record) -> Result<(), SysError> {
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
