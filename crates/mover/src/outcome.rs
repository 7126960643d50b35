//! Outcome of a promotion or demotion. All values were read back from the page map or smaps.

use std::time::Duration;

use hugeleaf_host::MappingRole;
use hugeleaf_sys::{Errno, Pid};
use hugeleaf_units::{Bytes, Range};
use hugeleaf_verdict::eligible;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::options::Percent;
use crate::pacer::StallStats;
use crate::precondition::PreconditionError;
use crate::process_memory::{ProcessIdentity, ProcessRanges};
use crate::split_refusals::{SplitRefusal, ZeroRestoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum UnchangedReason {
    #[error("{}", .0.says())]
    Not(eligible::Reason),
    // Refused by the kernel.
    #[error("busy in every pass (EAGAIN): pinned for I/O, or held elsewhere")]
    Busy,
    #[error("no room under the cgroup's memory limit, or its pages are held (EBUSY in every pass)")]
    CgroupLimit,
    /// ENOMEM on mapped memory: no contiguous block is available.
    #[error("no contiguous memory available (ENOMEM)")]
    NoContiguousMemory,
    /// ENOMEM on memory that is no longer mapped.
    #[error("unmapped or freed by the program meanwhile")]
    Unmapped,
    #[error("refused by the kernel (EINVAL)")]
    Refused,
    /// EPERM or EACCES after the first calls succeeded.
    #[error("no longer permitted: the process changed its credentials")]
    Denied,
    #[error("refused by the kernel: {0}")]
    Other(Errno),
    #[error(
        "the kernel reported success, but the page map shows otherwise: the process or \
         khugepaged changed it again"
    )]
    NotSeen,
    // Demotion.
    /// Several processes map it: MADV_COLD skips it and reports success. Holds why debugfs could not split it
    /// either, if that was tried.
    #[error("mapped by several processes{}", and_why(*.0))]
    SharedByOthers(Option<SplitRefusal>),
    #[error("locked in memory (mlock): the kernel refuses to split it")]
    Locked,
    // Ended early.
    #[error("not reached: interrupted")]
    Interrupted,
    #[error("not reached: the host stayed short of memory")]
    Pressure,
    #[error("the process exited or executed another program")]
    ProcessEnded,
}

fn and_why(why: Option<SplitRefusal>) -> String {
    match why {
        None => ": the kernel skips such pages and reports success".to_owned(),
        Some(why) => format!(", so a split needs {why}"),
    }
}

impl UnchangedReason {
    /// Returns a stable name for JSON and scripts.
    pub const fn id(self) -> &'static str {
        match self {
            UnchangedReason::Not(reason) => reason.name(),
            UnchangedReason::Busy => "busy",
            UnchangedReason::CgroupLimit => "cgroup-limit",
            UnchangedReason::NoContiguousMemory => "no-contiguous-memory",
            UnchangedReason::Unmapped => "unmapped",
            UnchangedReason::Refused => "refused",
            UnchangedReason::Denied => "denied",
            UnchangedReason::Other(_) => "other",
            UnchangedReason::NotSeen => "not-seen",
            UnchangedReason::SharedByOthers(_) => "shared-by-others",
            UnchangedReason::Locked => "locked",
            UnchangedReason::Interrupted => "interrupted",
            UnchangedReason::Pressure => "memory-pressure",
            UnchangedReason::ProcessEnded => "process-ended",
        }
    }
}

impl From<eligible::Reason> for UnchangedReason {
    fn from(reason: eligible::Reason) -> UnchangedReason {
        UnchangedReason::Not(reason)
    }
}

impl Serialize for UnchangedReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Reason", 2)?;
        fields.serialize_field("reason", self.id())?;
        fields.serialize_field("text", &self.to_string())?;
        fields.end()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BytesByReason {
    #[serde(flatten)]
    pub reason: UnchangedReason,
    pub bytes: Bytes,
}

impl BytesByReason {
    /// Adds to a table that lists each reason once, in the order of first occurrence.
    pub fn add(table: &mut Vec<BytesByReason>, reason: UnchangedReason, bytes: Bytes) {
        if bytes.is_zero() {
            return;
        }
        match table.iter_mut().find(|p| p.reason == reason) {
            Some(part) => part.bytes += bytes,
            None => table.push(BytesByReason { reason, bytes }),
        }
    }

    /// Describes the future of memory that cannot be demoted.
    pub fn one_way_in_words(self) -> String {
        let BytesByReason { bytes, reason } = self;
        format!(
            "{bytes} stay on huge pages until the processes that map them exit, and cannot be demoted: {reason}"
        )
    }

    pub fn total(table: &[BytesByReason]) -> Bytes {
        table.iter().map(|p| p.bytes).sum()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockResult {
    /// Nothing was tried (dry run).
    Planned,
    Done,
    Failed(UnchangedReason),
}

impl BlockResult {
    /// Combines the results of one block mapped in two places: a failure in either place counts. A process that has
    /// ended does not reduce the result of the others.
    pub(crate) fn worse(self, other: BlockResult) -> BlockResult {
        let rank = |fate: BlockResult| match fate {
            BlockResult::Planned => 0,
            BlockResult::Failed(UnchangedReason::ProcessEnded) => 1,
            BlockResult::Done => 2,
            BlockResult::Failed(_) => 3,
        };
        match rank(other) > rank(self) {
            true => other,
            false => self,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetLoss {
    /// The process exited, or its id now belongs to another process.
    Exited,
    /// The process executed another program (execve), which replaced its memory.
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
pub struct BytesByMethod {
    #[serde(rename = "by")]
    pub method: Method,
    pub bytes: Bytes,
}

/// Requested and completed memory of one role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RoleOutcome {
    pub role: MappingRole,
    /// Requested from the kernel, or planned in a dry run.
    #[serde(rename = "asked_bytes")]
    pub requested: Bytes,
    #[serde(rename = "done_bytes")]
    pub done: Bytes,
}

impl RoleOutcome {
    /// Returns the role's entry in a table that has each role once; adds it if missing.
    pub(crate) fn entry(table: &mut Vec<RoleOutcome>, role: MappingRole) -> &mut RoleOutcome {
        let at = table.iter().position(|r| r.role == role);
        let at = at.unwrap_or_else(|| {
            table.push(RoleOutcome {
                role,
                requested: Bytes::ZERO,
                done: Bytes::ZERO,
            });
            table.len() - 1
        });
        &mut table[at]
    }
}

/// Outcome of one process, by its mappings. Shared memory counts in each process and at each address that maps it
/// ([`crate::Outcome::totals`] counts it once). `asked` = `done` + all of `failed`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ProcessOutcome {
    pub pid: Pid,
    #[serde(skip)]
    pub who: ProcessIdentity,
    pub name: String,
    pub unit: Option<String>,
    #[serde(rename = "asked_bytes")]
    pub requested: Bytes,
    /// Memory that was already on the target page size before.
    #[serde(rename = "already_bytes")]
    pub already: Bytes,
    #[serde(rename = "done_bytes")]
    pub done: Bytes,
    /// By method. Less than `done` if the kernel changed some of it without a call.
    pub done_by: Vec<BytesByMethod>,
    pub failed: Vec<BytesByReason>,
    pub left_out: Vec<BytesByReason>,
    /// Memory that was filled up because `min_resident` was below 100%: planned, and promoted.
    #[serde(rename = "grown_bytes")]
    pub grown: Bytes,
    /// Zero pages that splitting returned to the kernel and that were restored, either at once or by a promotion of
    /// blocks split earlier.
    #[serde(rename = "zeros_restored_bytes")]
    pub zeros_restored: Bytes,
    /// The same if they are not restored; the process is smaller by this amount.
    #[serde(rename = "zeros_lost_bytes")]
    pub zeros_lost: Bytes,
    /// Shared memory that splitting unmapped. The process maps it again on touch.
    #[serde(rename = "unmapped_bytes")]
    pub unmapped: Bytes,
    #[serde(skip)]
    pub no_zeros: Option<ZeroRestoreError>,
    /// Promoted memory that cannot be demoted, by reason.
    pub one_way: Vec<BytesByReason>,
    /// Requested and completed memory by role.
    #[serde(rename = "roles")]
    pub by_role: Vec<RoleOutcome>,
    /// The blocks that were promoted or demoted, sorted by address, neighbours merged.
    #[serde(skip)]
    pub moved: Vec<Range>,
    /// Time spent on this process, pauses included.
    pub seconds: f64,
    /// Coverage before: the part of resident memory on pages larger than the base page.
    pub coverage_before: Option<f64>,
    /// Coverage after; `None` if the process is gone.
    pub coverage_after: Option<f64>,
    #[serde(rename = "page_tables_before_bytes")]
    pub page_tables_before: Bytes,
    /// Page tables after; `None` if the process is gone.
    #[serde(rename = "page_tables_after_bytes")]
    pub page_tables_after: Option<Bytes>,
    /// Resident size before, hugetlb included.
    #[serde(rename = "resident_before_bytes")]
    pub resident_before: Bytes,
    /// Resident size after; `None` if the process is gone.
    #[serde(rename = "resident_after_bytes")]
    pub resident_after: Option<Bytes>,
    /// Resident memory under MADV_MERGEABLE, which KSM may merge with equal pages.
    #[serde(rename = "mergeable_bytes")]
    pub mergeable: Bytes,
    /// True if THP was switched on for a process that had disabled it for itself, or would be in a dry run.
    pub thp_enabled: bool,
    pub ended: Option<TargetLoss>,
}

impl ProcessOutcome {
    /// Returns the promoted or demoted memory, with its process.
    pub fn memory(&self) -> ProcessRanges {
        ProcessRanges {
            who: self.who,
            ranges: self.moved.clone(),
        }
    }
}

/// Eligible resident memory of a target, each page once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct EligibleShare {
    /// Memory on huge pages, hugetlb pages included. `mem` counts the same pages.
    #[serde(rename = "huge_bytes")]
    pub huge: Bytes,
    /// `huge`, and memory on base pages that could be on huge pages ([`eligible::Reason::counts_as_eligible`]).
    #[serde(rename = "eligible_bytes")]
    pub eligible: Bytes,
}

impl EligibleShare {
    pub fn missing(self) -> Bytes {
        self.eligible - self.huge
    }

    /// Returns true if no eligible memory is missing for this percentage. Without eligible memory nothing is missing.
    pub fn reaches(self, percent: Percent) -> bool {
        let all = u128::from(self.eligible.get()) * u128::from(percent.get());
        u128::from(self.huge.get()) * 100 >= all
    }
}

/// Result of [`crate::PromoteOptions::at_least`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CoverageTarget {
    #[serde(rename = "at_least", serialize_with = "as_share")]
    pub percent: Percent,
    /// True if the share was reached, by all processes of the target together.
    pub reached: bool,
    /// Number of rounds.
    pub rounds: u32,
    #[serde(flatten)]
    pub share: EligibleShare,
}

fn as_share<S: Serializer>(percent: &Percent, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_f64(f64::from(percent.get()) / 100.0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoppedBy {
    /// The stop flag was set (Ctrl-C).
    Signal,
    MemoryPressure,
    NoContiguousMemory,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedProcess {
    pub pid: Pid,
    #[serde(serialize_with = "in_words")]
    pub error: PreconditionError,
}

fn in_words<S: Serializer>(error: &PreconditionError, serializer: S) -> Result<S::Ok, S::Error> {
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
    /// The process being worked on; `None` before the first.
    pub pid: Option<Pid>,
    /// Memory about to be promoted or demoted; set once per round, before the first call, and empty otherwise. A caller that
    /// must know this after a crash has to record it before it returns.
    pub planned: &'a [ProcessRanges],
    /// Bytes processed so far over all processes, as reported by the kernel and not yet read back.
    pub done: Bytes,
    pub total: Bytes,
    /// Time since the start.
    pub elapsed: Duration,
    /// Time of it in promotion and demotion calls, which the budget bounds.
    pub stalls: StallStats,
    /// Memory that cannot be demoted, known before the first call; the reason with most bytes.
    pub one_way: Option<BytesByReason>,
}
