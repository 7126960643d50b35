//! What came of a promotion or a demotion of several processes.

use hugeleaf_units::{Bytes, PageSize};
use hugeleaf_verdict::eligible;
use serde::Serialize;

use crate::memory::Footprint;
use crate::outcome::{ProcessOutcome, Reason, Skipped, Stage, StoppedBy};
use crate::pacer::Stalls;
use crate::totals::{self, Totals};
use crate::work::{Job, Work};
use crate::{pacer, readback};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// One entry a process that was asked for and lived when the work began, in that order.
    pub processes: Vec<ProcessOutcome>,
    pub totals: Totals,
    /// Processes that were asked for and could not be worked on, and why.
    pub skipped: Vec<Skipped>,
    pub interrupted: bool,
    pub stopped_by: Option<StoppedBy>,
    /// Whether nothing was touched: `asked` is then what would be, `done` is 0.
    pub dry_run: bool,
    /// For a dry run of a promotion: how long it is estimated to take, from the speed of
    /// [`crate::pacer::ASSUMED_BYTES_A_SECOND`] and the budget.
    pub estimated_seconds: Option<f64>,
    /// Time from the first read to the last.
    pub seconds: f64,
    /// Of that, time in the calls that move memory.
    #[serde(flatten)]
    pub stalls: Stalls,
    /// Memory that blocks held after they were split, where that was asked for ([`crate::DemoteOptions::notes_held`]).
    #[serde(skip)]
    pub held: Footprint,
    /// How long it held back for the host's sake, beyond the budget.
    pub held_back_seconds: f64,
    #[serde(rename = "huge_page_bytes")]
    pub huge_page: PageSize,
}

impl Outcome {
    /// All that was asked, over all processes, each page once.
    pub const fn asked(&self) -> Bytes {
        self.totals.asked
    }

    pub const fn done(&self) -> Bytes {
        self.totals.done
    }

    /// True if all was got that was asked for, of everybody who still lives, and if nothing was to be moved, unless
    /// nobody could tell.
    pub fn is_complete(&self) -> bool {
        let totals = &self.totals;
        let ended = self.processes.iter().any(|p| p.ended.is_some());
        let missed = self.skipped.iter().any(|skipped| !skipped.error.is_end());
        let all = totals.done == totals.asked && self.processes.iter().all(|p| p.done == p.asked);
        let untold = Reason::Not(eligible::Reason::ExclusiveUnknown);
        let told =
            (self.processes.iter()).all(|p| p.left_out.iter().all(|part| part.reason != untold));
        let looked = !self.processes.is_empty() && told;
        !ended && !missed && self.stopped_by.is_none() && all && looked
    }
}

/// Reads back what became of the processes. `to_huge`: they were promoted, or, in a dry run, would
/// have been.
pub(crate) fn finish(
    mut job: Job<'_>,
    mut works: Vec<Work>,
    skipped: Vec<Skipped>,
    huge: PageSize,
    to_huge: bool,
    dry_run: bool,
) -> Outcome {
    job.report(Stage::ReadingBack, None);
    let unreached = match job.stopped_by {
        Some(StoppedBy::Pressure) => Reason::Pressure,
        Some(StoppedBy::NoContiguousMemory) => Reason::NoContiguousMemory,
        Some(StoppedBy::Signal) => Reason::Interrupted,
        None => Reason::NotSeen,
    };
    let mut held = job.held.take();
    let read = |work: &mut Work| match dry_run {
        true => readback::planned(work),
        false => readback::outcome(&job.context, work, to_huge, unreached, held.as_mut()),
    };
    let processes: Vec<_> = works.iter_mut().map(read).collect();
    let totals = totals::of(&works, &processes);
    Outcome {
        processes,
        skipped,
        interrupted: job.stopped_by == Some(StoppedBy::Signal),
        stopped_by: job.stopped_by,
        dry_run,
        estimated_seconds: (dry_run && to_huge)
            .then(|| pacer::estimate_seconds(totals.asked, job.pace.budget)),
        totals,
        seconds: job.elapsed().as_secs_f64(),
        stalls: job.stalls,
        held: held.unwrap_or_default(),
        held_back_seconds: job.held_back.as_secs_f64(),
        huge_page: huge,
    }
}
