//! Outcome of a promotion or demotion of several processes.

use hugeleaf_units::{Bytes, PageSize};
use hugeleaf_verdict::eligible;
use serde::Serialize;

use crate::job::{Job, ProcessWork};
use crate::outcome::{
    CoverageTarget, ProcessOutcome, SkippedProcess, Stage, StoppedBy, UnchangedReason,
};
use crate::outcome_totals::{self, OutcomeTotals};
use crate::pacer::StallStats;
use crate::process_memory::HeldBeforeSplit;
use crate::{pacer, readback};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// One entry per requested process that was alive at the start, in the requested order.
    pub processes: Vec<ProcessOutcome>,
    pub totals: OutcomeTotals,
    /// Requested processes that could not be worked on, with the reason.
    pub skipped: Vec<SkippedProcess>,
    pub interrupted: bool,
    pub stopped_by: Option<StoppedBy>,
    /// True if nothing was changed: `asked` then holds the planned amount, and `done` is 0.
    pub dry_run: bool,
    /// Estimated duration of the promotion, for a dry run only. It is derived from
    /// [`crate::pacer::ASSUMED_BYTES_A_SECOND`] and the budget.
    pub estimated_seconds: Option<f64>,
    /// Time from the first read to the last.
    pub seconds: f64,
    /// The part of it spent in promotion and demotion calls.
    #[serde(flatten)]
    pub stalls: StallStats,
    /// Memory that blocks held after the split, if requested ([`crate::DemoteOptions::record_held`]).
    #[serde(skip)]
    pub held: HeldBeforeSplit,
    /// Time spent waiting for the host's memory pressure, beyond the budget's pauses.
    pub paused_seconds: f64,
    #[serde(rename = "huge_page_bytes")]
    pub huge_page: PageSize,
    /// Result of [`crate::PromoteOptions::at_least`].
    #[serde(flatten)]
    pub at_least: Option<CoverageTarget>,
}

impl Outcome {
    /// Returns all requested memory over all processes, each page once.
    pub const fn requested(&self) -> Bytes {
        self.totals.requested
    }

    pub const fn done(&self) -> Bytes {
        self.totals.done
    }

    /// Returns true if all requested memory was promoted or demoted, no process ended, and no live process was
    /// skipped. False without processes, or if the page map could not tell private memory.
    pub fn is_complete(&self) -> bool {
        let totals = &self.totals;
        let ended = self.processes.iter().any(|p| p.ended.is_some());
        let all =
            totals.done == totals.requested && self.processes.iter().all(|p| p.done == p.requested);
        let untold = UnchangedReason::Not(eligible::Reason::ExclusiveUnknown);
        let told =
            (self.processes.iter()).all(|p| p.left_out.iter().all(|part| part.reason != untold));
        let looked = !self.processes.is_empty() && told;
        !ended && !self.missed_any() && self.stopped_by.is_none() && all && looked
    }

    /// Returns true if the requested share was reached ([`crate::PromoteOptions::at_least`]), or without one if all was
    /// done.
    pub fn is_success(&self) -> bool {
        self.at_least
            .map_or_else(|| self.is_complete(), |target| target.reached)
    }

    /// Returns true if a live process could not be worked on.
    pub(crate) fn missed_any(&self) -> bool {
        self.skipped.iter().any(|skipped| !skipped.error.is_end())
    }
}

/// Reads back the result of the processes. With `to_huge` they were promoted, or would be in a dry run.
pub(crate) fn finish(
    mut job: Job<'_>,
    mut works: Vec<ProcessWork>,
    skipped: Vec<SkippedProcess>,
    huge: PageSize,
    to_huge: bool,
    dry_run: bool,
) -> Outcome {
    job.report(Stage::ReadingBack, None);
    let unreached = match job.stopped_by {
        Some(StoppedBy::MemoryPressure) => UnchangedReason::Pressure,
        Some(StoppedBy::NoContiguousMemory) => UnchangedReason::NoContiguousMemory,
        Some(StoppedBy::Signal) => UnchangedReason::Interrupted,
        None => UnchangedReason::NotSeen,
    };
    let mut held = job.held.take();
    let read = |work: &mut ProcessWork| match dry_run {
        true => readback::planned(work),
        false => readback::outcome(&job.context, work, to_huge, unreached, held.as_mut()),
    };
    let processes: Vec<_> = works.iter_mut().map(read).collect();
    let totals = outcome_totals::sum_totals(&works, &processes);
    Outcome {
        processes,
        skipped,
        interrupted: job.stopped_by == Some(StoppedBy::Signal),
        stopped_by: job.stopped_by,
        dry_run,
        estimated_seconds: (dry_run && to_huge)
            .then(|| pacer::estimate_seconds(totals.requested, job.pace.budget)),
        totals,
        seconds: job.elapsed().as_secs_f64(),
        stalls: job.stalls,
        held: held.unwrap_or_default(),
        paused_seconds: job.held_back.as_secs_f64(),
        huge_page: huge,
        at_least: None,
    }
}
