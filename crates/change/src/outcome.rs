//! What came of a change. Everything in here was read back from the page map or smaps.

use std::time::Duration;

use hugeleaf_host::Role;
use hugeleaf_sys::{Errno, Pid};
use hugeleaf_units::{Bytes, Range};
use hugeleaf_verdict::eligible;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::error::ChangeError;
use crate::memory::{Memory, Who};
use crate::pacer::Stalls;
use crate::refusals::{NoSplit, NoZeros};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    #[error("{}", .0.says())]
    Not(eligible::Reason),
    // Refused by the kernel.
    /// EAGAIN in every pass: pages are held elsewhere.
    #[error("busy in every pass (EAGAIN): pinned for I/O, or held elsewhere")]
    Busy,
    /// EBUSY: the cgroup's memory limit has no room for the new page.
    #[error("no room under the cgroup's memory limit, or its pages are held (EBUSY in every pass)")]
    CgroupLimit,
    /// ENOMEM on mapped memory: no contiguous block available.
    #[error("no contiguous memory available (ENOMEM)")]
    NoContiguousMemory,
    /// ENOMEM on memory that is not mapped any more.
    #[error("unmapped or freed by the program meanwhile")]
    Unmapped,
    /// EINVAL.
    #[error("refused by the kernel (EINVAL)")]
    Refused,
    /// EPERM or EACCES after the first calls went through.
    #[error("not permitted any more: the process changed its rights")]
    Denied,
    #[error("refused by the kernel: {0}")]
    Other(Errno),
    /// The kernel reported success, and the page map says otherwise.
    #[error(
        "the kernel reported success, and the page map says otherwise: the program or \
         khugepaged changed it again"
    )]
    NotSeen,
    // Demotion.
    /// Several processes map it: MADV_COLD passes over it and reports success. Why the kernel's
    /// file for such pages was of no use either, where it was tried.
    #[error("mapped by several processes{}", and_why(*.0))]
    SharedByOthers(Option<NoSplit>),
    /// Locked in memory (mlock): MADV_COLD is refused.
    #[error("locked in memory (mlock): the kernel refuses to split it")]
    Locked,
    // Ended early.
    /// Not reached: Ctrl-C.
    #[error("not reached: interrupted")]
    Interrupted,
    /// Not reached: the host was short of memory.
    #[error("not reached: the host stayed short of memory")]
    Pressure,
    /// Not reached: the process exited or became another program.
    #[error("the process ended or became another program")]
    ProcessEnded,
}

fn and_why(why: Option<NoSplit>) -> String {
    match why {
        None => ": the kernel passes over such pages and reports success".to_owned(),
        Some(why) => format!(", which takes another way: {why}"),
    }
}

impl Reason {
    /// A stable name for JSON and scripts.
    pub const fn id(self) -> &'static str {
        match self {
            Reason::Not(reason) => reason.name(),
            Reason::Busy => "busy",
            Reason::CgroupLimit => "cgroup-limit",
            Reason::NoContiguousMemory => "no-contiguous-memory",
            Reason::Unmapped => "unmapped",
            Reason::Refused => "refused",
            Reason::Denied => "denied",
            Reason::Other(_) => "other",
            Reason::NotSeen => "not-seen",
            Reason::SharedByOthers(_) => "shared-by-others",
            Reason::Locked => "locked",
            Reason::Interrupted => "interrupted",
            Reason::Pressure => "memory-pressure",
            Reason::ProcessEnded => "process-ended",
        }
    }
}

impl From<eligible::Reason> for Reason {
    fn from(reason: eligible::Reason) -> Reason {
        Reason::Not(reason)
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Reason", 2)?;
        fields.serialize_field("reason", self.id())?;
        fields.serialize_field("text", &self.to_string())?;
        fields.end()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Part {
    #[serde(flatten)]
    pub reason: Reason,
    pub bytes: Bytes,
}

impl Part {
    /// Adds to a table that has each reason once, in the order in which they came up.
    pub fn add(table: &mut Vec<Part>, reason: Reason, bytes: Bytes) {
        if bytes.is_zero() {
            return;
        }
        match table.iter_mut().find(|p| p.reason == reason) {
            Some(part) => part.bytes += bytes,
            None => table.push(Part { reason, bytes }),
        }
    }

    /// Says of memory that no demotion takes back what becomes of it.
    pub fn one_way_in_words(self) -> String {
        let Part { bytes, reason } = self;
        format!(
            "{bytes} stay on huge pages until what maps them ends, and no demotion takes them back: {reason}"
        )
    }

    pub fn total(table: &[Part]) -> Bytes {
        table.iter().map(|p| p.bytes).sum()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing was tried (a dry run).
    Planned,
    Done,
    Failed(Reason),
}

impl Fate {
    /// Of one block in two places: what was not got in one of them was not got. A process that has
    /// ended takes nothing from what the others got.
    pub(crate) fn worse(self, other: Fate) -> Fate {
        let rank = |fate: Fate| match fate {
            Fate::Planned => 0,
            Fate::Failed(Reason::ProcessEnded) => 1,
            Fate::Done => 2,
            Fate::Failed(_) => 3,
        };
        match rank(other) > rank(self) {
            true => other,
            false => self,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// It exited, or its id now belongs to another process.
    Exited,
    /// It became another program (execve): its memory was replaced.
    Replaced,
}

hugeleaf_units::named! {
    pub enum Method {
        Collapse = "process_madvise(MADV_COLLAPSE)",
        Cold = "process_madvise(MADV_COLD)",
        SplitFile = "debugfs split_huge_pages",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DoneBy {
    #[serde(rename = "by")]
    pub method: Method,
    pub bytes: Bytes,
}

/// What was asked and got for one role of a process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RoleOutcome {
    pub role: Role,
    /// Asked of the kernel (or, in a dry run, what would be).
    #[serde(rename = "asked_bytes")]
    pub asked: Bytes,
    #[serde(rename = "done_bytes")]
    pub done: Bytes,
}

impl RoleOutcome {
    /// The line of a role in a table that has each once; a new one where it has none.
    pub(crate) fn of(table: &mut Vec<RoleOutcome>, role: Role) -> &mut RoleOutcome {
        let at = table.iter().position(|r| r.role == role);
        let at = at.unwrap_or_else(|| {
            table.push(RoleOutcome {
                role,
                asked: Bytes::ZERO,
                done: Bytes::ZERO,
            });
            table.len() - 1
        });
        &mut table[at]
    }
}

/// What came of one process, by what it maps: shared memory counts in each that maps it, and at each
/// address ([`crate::Outcome::totals`] has it once). `asked` = `done` + all of `failed`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ProcessOutcome {
    pub pid: Pid,
    #[serde(skip)]
    pub who: Who,
    pub name: String,
    pub unit: Option<String>,
    #[serde(rename = "asked_bytes")]
    pub asked: Bytes,
    /// What was where it should be before (on huge pages; for a demotion on base pages).
    #[serde(rename = "already_bytes")]
    pub already: Bytes,
    #[serde(rename = "done_bytes")]
    pub done: Bytes,
    /// By what it was moved. Less than `done` where it went there by itself.
    pub done_by: Vec<DoneBy>,
    pub failed: Vec<Part>,
    pub left_out: Vec<Part>,
    /// Memory that was filled up because `min_resident` was below 100%: planned and moved.
    #[serde(rename = "grown_bytes")]
    pub grown: Bytes,
    /// Base pages that hold only zeros, which splitting returned to the kernel and which were brought
    /// back: at once, or by a promotion of what was split before.
    #[serde(rename = "zeros_brought_back_bytes")]
    pub zeros_brought_back: Bytes,
    /// The same where they are not brought back: the process is so much smaller than before.
    #[serde(rename = "zeros_given_back_bytes")]
    pub zeros_given_back: Bytes,
    /// Shared memory that splitting unmapped: the process maps it again as it touches it.
    #[serde(rename = "unmapped_bytes")]
    pub unmapped: Bytes,
    #[serde(skip)]
    pub no_zeros: Option<NoZeros>,
    /// Promoted memory that no demotion can split again, and why.
    pub one_way: Vec<Part>,
    /// The same by role.
    #[serde(rename = "roles")]
    pub by_role: Vec<RoleOutcome>,
    /// The blocks that were moved, in order of address, neighbours joined.
    #[serde(skip)]
    pub moved: Vec<Range>,
    /// Time spent on this process, pauses included.
    pub seconds: f64,
    /// The part of resident memory on pages larger than the base page, before.
    pub coverage_before: Option<f64>,
    /// The same after; `None` where the process is gone.
    pub coverage_after: Option<f64>,
    #[serde(rename = "page_tables_before_bytes")]
    pub page_tables_before: Bytes,
    /// Its page tables after; `None` where the process is gone.
    #[serde(rename = "page_tables_after_bytes")]
    pub page_tables_after: Option<Bytes>,
    /// Resident size before, hugetlb included.
    #[serde(rename = "resident_before_bytes")]
    pub resident_before: Bytes,
    /// Resident size after; `None` where the process is gone.
    #[serde(rename = "resident_after_bytes")]
    pub resident_after: Option<Bytes>,
    /// Whether THP, which it had switched off for itself, was switched on again; in a dry run,
    /// whether it would be.
    #[serde(rename = "thp_switched_on")]
    pub switched_on: bool,
    pub ended: Option<Ended>,
}

impl ProcessOutcome {
    /// Returns the memory that was moved, with its process.
    pub fn memory(&self) -> Memory {
        Memory {
            who: self.who,
            ranges: self.moved.clone(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoppedBy {
    /// The stop flag (Ctrl-C).
    Signal,
    #[serde(rename = "memory-pressure")]
    Pressure,
    NoContiguousMemory,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    pub pid: Pid,
    #[serde(serialize_with = "in_words")]
    pub error: ChangeError,
}

fn in_words<S: Serializer>(error: &ChangeError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

hugeleaf_units::named! {
    pub enum Stage {
        Planning = "reading",
        Moving = "moving",
        Retrying = "trying again",
        HoldingBack = "holding back",
        ReadingBack = "reading back",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    pub stage: Stage,
    /// The process in hand; `None` before the first.
    pub pid: Option<Pid>,
    /// Once, before the first call: the memory that is about to be moved. A caller that must know after a crash what
    /// was moved writes it down before it returns. Empty otherwise.
    pub planned: &'a [Memory],
    /// Gone through so far, over all processes; by the kernel's word, not read back yet.
    pub done: Bytes,
    pub total: Bytes,
    /// Since the start.
    pub elapsed: Duration,
    /// Of that, time in calls that move memory: what the budget bounds.
    pub stalls: Stalls,
    /// Memory that no demotion can take back, known before the first call; of several reasons that of most bytes.
    pub one_way: Option<Part>,
}
