//! Repeats promotion until a share of the eligible memory is on huge pages, and sums up the rounds.
//!
//! A program fills memory while a round runs, and pages that were busy in one round are free in the next. Each round makes a
//! new plan.

use std::time::Duration;

use hugeleaf_units::Bytes;
use hugeleaf_verdict::eligible::Reason;

use crate::finish::Outcome;
use crate::options::Percent;
use crate::outcome::{
    BytesByReason, CoverageTarget, EligibleShare, ProcessOutcome, RoleOutcome, SkippedProcess,
    TargetLoss, UnchangedReason,
};
use crate::precondition::PreconditionError;
use crate::process_memory::push_joined;

/// No round starts after this time. A round that runs is not cut off: the budget and the amount of memory bound it.
pub const LAST_ROUND_AFTER: Duration = Duration::from_secs(600);

impl Outcome {
    /// Returns the part of the eligible memory that is on huge pages after this round.
    pub fn eligible_share(&self) -> EligibleShare {
        let totals = &self.totals;
        let left_out = |counts: fn(Reason) -> bool| -> Bytes {
            let parts = totals.left_out.iter();
            let parts = parts.filter(
                |part| matches!(part.reason, UnchangedReason::Not(reason) if counts(reason)),
            );
            parts.map(|part| part.bytes).sum()
        };
        let pools = left_out(|reason| reason == Reason::Hugetlb);
        let before = totals.already + pools;
        EligibleShare {
            huge: before + totals.done,
            eligible: before + totals.requested + left_out(Reason::counts_as_eligible),
        }
    }
}

/// Calls `round` until the share is reached, a round gains nothing or is stopped, or [`LAST_ROUND_AFTER`].
///
/// # Errors
/// The error of the first round.
pub(crate) fn repeat(
    percent: Percent,
    now: impl Fn() -> Duration,
    mut round: impl FnMut() -> Result<Outcome, PreconditionError>,
) -> Result<Outcome, PreconditionError> {
    let start = now();
    let mut all = round()?;
    let mut target = judge(&all, percent, 1);
    let mut gained = all.done();
    while !target.reached
        && !gained.is_zero()
        && all.stopped_by.is_none()
        && now().saturating_sub(start) < LAST_ROUND_AFTER
    {
        // All processes have ended: the rounds so far count.
        let Ok(next) = round() else { break };
        target = judge(&next, percent, target.rounds + 1);
        gained = next.done();
        all = join(all, next);
    }
    all.at_least = Some(target);
    Ok(all)
}

fn judge(outcome: &Outcome, percent: Percent, rounds: u32) -> CoverageTarget {
    let share = outcome.eligible_share();
    let lives = outcome.processes.iter().any(|p| p.ended.is_none());
    CoverageTarget {
        percent,
        reached: lives && !outcome.missed_any() && share.reaches(percent),
        rounds,
        share,
    }
}

/// Sums up two rounds: the state before the first, the work of both, and what the second left.
fn join(first: Outcome, next: Outcome) -> Outcome {
    let mut all = Outcome {
        seconds: first.seconds + next.seconds,
        paused_seconds: first.paused_seconds + next.paused_seconds,
        ..next
    };
    all.stalls.join(&first.stalls);
    let (sum, before) = (&mut all.totals, first.totals);
    sum.already = before.already;
    sum.requested += before.done;
    sum.done += before.done;
    sum.grown += before.grown;
    add_reasons(&mut sum.one_way, &before.one_way);
    add_roles(&mut sum.by_role, &before.by_role);
    for earlier in first.processes {
        match all.processes.iter_mut().find(|p| p.who == earlier.who) {
            Some(later) => join_process(later, earlier),
            None => {
                let has_ended = |s: &SkippedProcess| s.pid == earlier.pid && s.error.is_end();
                let ended = all.skipped.iter().any(has_ended);
                all.skipped.retain(|s| !has_ended(s));
                all.processes.push(ProcessOutcome {
                    ended: earlier.ended.or(ended.then_some(TargetLoss::Exited)),
                    ..earlier
                });
            }
        }
    }
    for skipped in first.skipped {
        if !all.skipped.contains(&skipped) {
            all.skipped.push(skipped);
        }
    }
    all
}

fn join_process(later: &mut ProcessOutcome, earlier: ProcessOutcome) {
    later.requested += earlier.done;
    later.done += earlier.done;
    later.already = earlier.already;
    later.grown += earlier.grown;
    later.zeros_restored += earlier.zeros_restored;
    later.seconds += earlier.seconds;
    later.coverage_before = earlier.coverage_before;
    later.page_tables_before = earlier.page_tables_before;
    later.resident_before = earlier.resident_before;
    later.thp_enabled |= earlier.thp_enabled;
    for done in &earlier.done_by {
        match later.done_by.iter_mut().find(|d| d.method == done.method) {
            Some(sum) => sum.bytes += done.bytes,
            None => later.done_by.push(*done),
        }
    }
    add_reasons(&mut later.one_way, &earlier.one_way);
    add_roles(&mut later.by_role, &earlier.by_role);
    let mut moved = std::mem::take(&mut later.moved);
    moved.extend(earlier.moved);
    moved.sort_unstable_by_key(|range| range.start());
    moved.dedup();
    for range in moved {
        push_joined(&mut later.moved, range);
    }
}

fn add_reasons(table: &mut Vec<BytesByReason>, more: &[BytesByReason]) {
    for part in more {
        BytesByReason::add(table, part.reason, part.bytes);
    }
}

/// Adds the memory of an earlier round. What it did not get was requested again.
fn add_roles(table: &mut Vec<RoleOutcome>, earlier: &[RoleOutcome]) {
    for role in earlier.iter().filter(|role| !role.done.is_zero()) {
        let sum = RoleOutcome::entry(table, role.role);
        sum.requested += role.done;
        sum.done += role.done;
    }
}

#[cfg(test)]
mod tests;
