use std::cell::Cell;
use std::collections::VecDeque;

use hugeleaf_host::{MappingRole, ProcessError};
use hugeleaf_sys::Pid;
use hugeleaf_units::Range;
use proptest::prelude::*;

use super::*;
use crate::outcome::StoppedBy;
use crate::outcome_totals::OutcomeTotals;
use crate::pacer::StallStats;
use crate::process_memory::{HeldBeforeSplit, ProcessIdentity};

const MIB: fn(u64) -> Bytes = Bytes::from_mib;

fn percent(n: u8) -> Percent {
    Percent::new(n).unwrap()
}

/// A round over one process with `already`, `asked` and `done` MiB.
fn round(already: u64, asked: u64, done: u64) -> Outcome {
    let busy = BytesByReason {
        reason: UnchangedReason::Busy,
        bytes: MIB(asked - done),
    };
    let role = RoleOutcome {
        role: MappingRole::Anon,
        requested: MIB(asked),
        done: MIB(done),
    };
    let process = ProcessOutcome {
        pid: Pid(7),
        who: ProcessIdentity::default(),
        requested: MIB(asked),
        already: MIB(already),
        done: MIB(done),
        coverage_before: Some(already as f64),
        coverage_after: Some((already + done) as f64),
        by_role: vec![role],
        moved: Range::new(already << 20, (already + done) << 20)
            .into_iter()
            .collect(),
        seconds: 1.0,
        ..ProcessOutcome::default()
    };
    Outcome {
        totals: OutcomeTotals {
            requested: MIB(asked),
            already: MIB(already),
            done: MIB(done),
            failed: vec![busy],
            by_role: vec![role],
            ..OutcomeTotals::default()
        },
        processes: vec![process],
        skipped: Vec::new(),
        interrupted: false,
        stopped_by: None,
        dry_run: false,
        estimated_seconds: None,
        seconds: 2.0,
        stalls: StallStats::default(),
        held: HeldBeforeSplit::default(),
        paused_seconds: 0.5,
        huge_page: "2M".parse().unwrap(),
        at_least: None,
    }
}

fn leaving_out(mut outcome: Outcome, reason: Reason, mib: u64) -> Outcome {
    BytesByReason::add(&mut outcome.totals.left_out, reason.into(), MIB(mib));
    outcome
}

/// Repeats prepared rounds; a further one is an error.
fn repeat_all(at_least: u8, rounds: Vec<Outcome>) -> (Outcome, usize) {
    let mut rest = VecDeque::from(rounds);
    let clock = || Duration::ZERO;
    let gone = ProcessError::Gone {
        pid: Pid(7),
        hidden_possible: false,
    };
    let next = || {
        rest.pop_front()
            .ok_or(PreconditionError::Process(gone.clone()))
    };
    let all = repeat(percent(at_least), clock, next).unwrap();
    (all, rest.len())
}

#[test]
fn the_share_counts_eligible_memory_only() {
    let outcome = round(100, 60, 50);
    let share = outcome.eligible_share();
    assert_eq!((share.huge, share.eligible), (MIB(150), MIB(160)));
    for (reason, huge, eligible) in [
        (Reason::Hugetlb, 190, 200),
        (Reason::PartlyResident, 150, 200),
        (Reason::Sparse, 150, 200),
        (Reason::Merged, 150, 200),
        (Reason::CopyOnWrite, 150, 200),
        (Reason::NoHugeAdvised, 150, 200),
        (Reason::TooSmall, 150, 160),
        (Reason::ThreadStack, 150, 160),
        (Reason::SmallFolios, 150, 160),
        (Reason::PrivateFile, 150, 160),
    ] {
        let share = leaving_out(outcome.clone(), reason, 40).eligible_share();
        assert_eq!(
            (share.huge, share.eligible),
            (MIB(huge), MIB(eligible)),
            "{reason:?}"
        );
    }
}

#[test]
fn the_share_is_not_rounded_up() {
    let share = |huge, eligible| EligibleShare {
        huge: Bytes(huge),
        eligible: Bytes(eligible),
    };
    assert!(share(95, 100).reaches(percent(95)));
    assert!(!share(94_999_999, 100_000_000).reaches(percent(95)));
    assert!(!share(u64::MAX - 1, u64::MAX).reaches(percent(100)));
    assert!(share(0, 0).reaches(percent(100)));
    assert!(!share(0, 1).reaches(percent(1)));
}

#[test]
fn rounds_end_when_the_share_is_reached() {
    let (all, left) = repeat_all(
        95,
        vec![round(0, 100, 60), round(60, 40, 36), round(96, 4, 4)],
    );
    let target = all.at_least.unwrap();
    assert_eq!((target.reached, target.rounds, left), (true, 2, 1));
    assert_eq!(
        (target.share.huge, target.share.eligible),
        (MIB(96), MIB(100))
    );
    // The sums are those of both rounds: asked = done + failed.
    assert_eq!(
        (all.requested(), all.done(), all.totals.already),
        (MIB(100), MIB(96), MIB(0))
    );
    assert_eq!(BytesByReason::total(&all.totals.failed), MIB(4));
    assert_eq!((all.seconds, all.paused_seconds), (4.0, 1.0));
    let process = &all.processes[0];
    assert_eq!((process.requested, process.done), (MIB(100), MIB(96)));
    assert_eq!(
        (process.coverage_before, process.coverage_after),
        (Some(0.0), Some(96.0))
    );
    assert_eq!(process.by_role[0].requested, MIB(100));
    assert_eq!(process.moved, [Range::new(0, 96 << 20).unwrap()]);
}

#[test]
fn rounds_end_when_nothing_more_is_gained() {
    let (all, left) = repeat_all(
        95,
        vec![round(0, 100, 60), round(60, 40, 0), round(60, 40, 40)],
    );
    let target = all.at_least.unwrap();
    assert_eq!((target.reached, target.rounds, left), (false, 2, 1));
    let (all, left) = repeat_all(95, vec![round(0, 100, 0), round(0, 100, 100)]);
    assert_eq!((all.at_least.unwrap().rounds, left), (1, 1));
}

#[test]
fn rounds_end_at_a_signal_and_after_the_time() {
    let mut stopped = round(0, 100, 60);
    stopped.stopped_by = Some(StoppedBy::Signal);
    let (all, left) = repeat_all(95, vec![stopped, round(60, 40, 40)]);
    assert_eq!((all.at_least.unwrap().reached, left), (false, 1));
    let now = Cell::new(Duration::ZERO);
    let mut already = 0;
    let slow = || {
        now.set(now.get() + LAST_ROUND_AFTER / 4);
        already += 1;
        Ok(round(already - 1, 100 - already, 1))
    };
    let all = repeat(percent(95), || now.get(), slow).unwrap();
    assert_eq!(all.at_least.unwrap().rounds, 4);
}

#[test]
fn a_process_that_cannot_be_read_or_that_ended_misses_the_target() {
    let mut denied = round(100, 0, 0);
    denied.skipped.push(SkippedProcess {
        pid: Pid(8),
        error: PreconditionError::NoPidfd,
    });
    assert!(!repeat_all(95, vec![denied]).0.at_least.unwrap().reached);
    let mut ended = round(100, 0, 0);
    ended.processes[0].ended = Some(TargetLoss::Exited);
    assert!(!repeat_all(95, vec![ended]).0.at_least.unwrap().reached);
    // It ended between two rounds: the first one counts.
    let (all, _) = repeat_all(95, vec![round(0, 100, 60)]);
    let target = all.at_least.unwrap();
    assert_eq!((target.reached, target.rounds), (false, 1));
}

#[test]
fn one_of_two_processes_that_ends_between_rounds_is_named() {
    let mut first = round(0, 100, 60);
    let mut other = first.processes[0].clone();
    other.pid = Pid(8);
    other.who.pid = Pid(8);
    first.processes.push(other);
    let mut second = round(60, 40, 40);
    second.skipped.push(SkippedProcess {
        pid: Pid(8),
        error: PreconditionError::Process(ProcessError::Gone {
            pid: Pid(8),
            hidden_possible: false,
        }),
    });
    let (all, _) = repeat_all(95, vec![first, second]);
    assert!(all.at_least.unwrap().reached);
    let ended = all.processes.iter().find(|p| p.pid == Pid(8)).unwrap();
    assert_eq!(
        (ended.ended, ended.done),
        (Some(TargetLoss::Exited), MIB(60))
    );
    assert_eq!(all.skipped, []);
}

proptest! {
    /// Asked stays the sum of done and failed over any rounds, and the share never passes 100 %.
    #[test]
    fn sums_of_rounds_add_up(gains in prop::collection::vec((0u64..100, 0u64..100), 1..6)) {
        let mut already = 0;
        let rounds = gains.iter().map(|(a, b)| {
            let (asked, done) = (*a.max(b), *a.min(b));
            already += done;
            round(already - done, asked, done)
        });
        let (all, _) = repeat_all(100, rounds.collect());
        let failed = BytesByReason::total(&all.totals.failed);
        prop_assert_eq!(all.requested(), all.done() + failed);
        let share = all.at_least.unwrap().share;
        prop_assert!(share.huge <= share.eligible);
    }
}
