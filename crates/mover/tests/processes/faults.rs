//! Every call fails with every errno it can return: each has its reason, and return values are not
//! trusted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hugeleaf_mover::{
    Outcome, Percent, PreconditionError, Progress, PromoteOptions, StoppedBy, UnchangedReason,
    promote,
};
use hugeleaf_sys::{
    Advice, Errno, GateReply, Kernel, PageMap, PageRun, PageScanDetail, PageState, ProcessCall,
    SyscallGate,
};
use hugeleaf_units::{Bytes, Range};
use hugeleaf_verdict::eligible;

use super::faulty::{Call, failing};
use super::{Bench, bytes_of, fast, fast_demote};

/// The first call checks the permission; later ones name memory.
const PROBES: u64 = 1;

fn collapse_failing(bench: &Bench, errno: Errno, times: u64, options: &PromoteOptions) -> Outcome {
    let (victim, _) = bench.private_victim(4);
    let call = Call::ProcessMadvise(Advice::Collapse);
    let kernel = failing(call, errno, PROBES, times);
    bench
        .promote_with(&kernel, &[victim.pid()], options, &mut |_| {})
        .unwrap()
}

#[test]
fn each_errno_of_collapse_has_its_reason() {
    let Some(bench) = Bench::new("each_errno_of_collapse_has_its_reason") else {
        return;
    };
    for (errno, reason) in [
        (Errno::AGAIN, UnchangedReason::Busy),
        (Errno::INTR, UnchangedReason::Busy),
        (Errno::BUSY, UnchangedReason::CgroupLimit),
        (Errno::NOMEM, UnchangedReason::NoContiguousMemory),
        (Errno::INVAL, UnchangedReason::Refused),
        (Errno::SRCH, UnchangedReason::ProcessEnded),
        (Errno::PERM, UnchangedReason::Denied),
        (Errno::ACCESS, UnchangedReason::Denied),
        (Errno::FAULT, UnchangedReason::Other(Errno::FAULT)),
        (Errno::BADF, UnchangedReason::Other(Errno::BADF)),
        (Errno::NOSYS, UnchangedReason::Other(Errno::NOSYS)),
    ] {
        for options in [PromoteOptions::default(), fast()] {
            let outcome = collapse_failing(&bench, errno, u64::MAX, &options);
            let p = &outcome.processes[0];
            assert_eq!(
                bytes_of(&p.failed, reason),
                bench.pages(4),
                "{errno}: {p:#?}"
            );
            assert!(!outcome.is_complete());
            let stopped = (errno == Errno::NOMEM).then_some(StoppedBy::NoContiguousMemory);
            assert_eq!(outcome.stopped_by, stopped, "{errno}");
        }
    }
}

#[test]
fn what_passes_is_tried_again() {
    let Some(bench) = Bench::new("what_passes_is_tried_again") else {
        return;
    };
    for errno in [Errno::AGAIN, Errno::BUSY, Errno::NOMEM, Errno::INTR] {
        for options in [PromoteOptions::default(), fast()] {
            let outcome = collapse_failing(&bench, errno, 2, &options);
            assert!(outcome.is_complete(), "{errno}: {outcome:#?}");
        }
    }
    // The number of passes is a bound.
    let once = PromoteOptions {
        passes: 1,
        ..PromoteOptions::default()
    };
    let outcome = collapse_failing(&bench, Errno::AGAIN, 2, &once);
    assert_eq!(outcome.done(), bench.pages(2));
}

#[test]
fn no_right_to_act_is_found_before_anything_is_done() {
    let Some(bench) = Bench::new("no_right_to_act_is_found_before_anything_is_done") else {
        return;
    };
    let (victim, _) = bench.private_victim(1);
    for advice in [Advice::Collapse, Advice::Cold] {
        for errno in [Errno::PERM, Errno::ACCESS] {
            let kernel = failing(Call::ProcessMadvise(advice), errno, 0, u64::MAX);
            let pids = [victim.pid()];
            let error = match advice {
                Advice::Collapse => bench.promote_with(&kernel, &pids, &fast(), &mut |_| {}),
                _ => bench.demote_with(&kernel, &pids, &fast_demote()),
            };
            let error = error.unwrap_err();
            assert!(
                matches!(error, PreconditionError::Denied { .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains("process_madvise"), "{error}");
        }
    }
}

#[test]
fn kernels_that_lack_a_call_are_named() {
    let Some(bench) = Bench::new("kernels_that_lack_a_call_are_named") else {
        return;
    };
    let (victim, _) = bench.private_victim(1);
    let pids = [victim.pid()];
    let refused = |kernel: &Kernel| {
        bench
            .promote_with(kernel, &pids, &fast(), &mut |_| {})
            .unwrap_err()
    };
    let old = failing(Call::KnowsCollapse, Errno::INVAL, 0, u64::MAX);
    assert_eq!(refused(&old), PreconditionError::NoCollapse);
    // A split needs no MADV_COLLAPSE.
    bench.demote_with(&old, &pids, &fast_demote()).unwrap();
    let old = failing(Call::KnowsProcessMadvise, Errno::NOSYS, 0, u64::MAX);
    assert_eq!(refused(&old), PreconditionError::NoProcessMadvise);
    let error = bench.demote_with(&old, &pids, &fast_demote()).unwrap_err();
    assert_eq!(error, PreconditionError::NoProcessMadvise);
    let nosys = failing(Call::ProcessMadvise(Advice::Collapse), Errno::NOSYS, 0, 1);
    assert_eq!(refused(&nosys), PreconditionError::NoProcessMadvise);
    let no_pidfd = failing(Call::PidfdOpen, Errno::NOSYS, 0, u64::MAX);
    assert_eq!(refused(&no_pidfd), PreconditionError::NoPidfd);
    let mut host = bench.host.clone();
    host.pmd_page = hugeleaf_host::Fact::Absent;
    let bench = Bench { host, ..bench };
    let no_thp = bench.promote_with(&bench.kernel, &pids, &fast(), &mut |_| {});
    assert_eq!(no_thp.unwrap_err(), PreconditionError::NoThp);
}

#[test]
fn a_process_that_cannot_be_opened_is_an_error() {
    let Some(bench) = Bench::new("a_process_that_cannot_be_opened_is_an_error") else {
        return;
    };
    let (victim, _) = bench.private_victim(1);
    for errno in [
        Errno::INVAL,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NODEV,
        Errno::NOMEM,
    ] {
        let kernel = failing(Call::PidfdOpen, errno, 0, u64::MAX);
        let error = bench
            .promote_with(&kernel, &[victim.pid()], &fast(), &mut |_| {})
            .unwrap_err();
        let PreconditionError::Sys(error) = error else {
            panic!("{error:?}")
        };
        assert_eq!((error.call, error.errno), ("pidfd_open", errno));
    }
    let kernel = failing(Call::PidfdOpen, Errno::SRCH, 0, u64::MAX);
    let error = bench
        .promote_with(&kernel, &[victim.pid()], &fast(), &mut |_| {})
        .unwrap_err();
    assert!(matches!(error, PreconditionError::Process(_)), "{error:?}");
}

#[test]
fn whoever_cannot_be_told_to_live_is_not_touched() {
    let Some(bench) = Bench::new("whoever_cannot_be_told_to_live_is_not_touched") else {
        return;
    };
    let (victim, _) = bench.private_victim(4);
    for errno in [Errno::BADF, Errno::NOMEM, Errno::INVAL] {
        let at_once = failing(Call::HasExited, errno, 0, u64::MAX);
        let pids = [victim.pid()];
        let error = bench.promote_with(&at_once, &pids, &fast(), &mut |_| {});
        assert!(matches!(error, Err(PreconditionError::Sys(_))), "{error:?}");
        let later = failing(Call::HasExited, errno, 2, u64::MAX);
        let options = PromoteOptions::default();
        let outcome = bench
            .promote_with(&later, &pids, &options, &mut |_| {})
            .unwrap();
        let p = &outcome.processes[0];
        assert_eq!(
            bytes_of(&p.failed, UnchangedReason::Other(errno)),
            p.requested,
            "{p:#?}"
        );
        bench.demote(&pids, &fast_demote());
    }
}

#[test]
fn each_errno_of_cold_has_its_reason() {
    let Some(bench) = Bench::new("each_errno_of_cold_has_its_reason") else {
        return;
    };
    let (victim, _) = bench.private_victim(4);
    bench.promote(&[victim.pid()], &fast());
    for (errno, reason) in [
        (Errno::AGAIN, UnchangedReason::Busy),
        (Errno::BUSY, UnchangedReason::Busy),
        (Errno::INTR, UnchangedReason::Busy),
        (Errno::NOMEM, UnchangedReason::Unmapped),
        (Errno::INVAL, UnchangedReason::Refused),
        (Errno::SRCH, UnchangedReason::ProcessEnded),
        (Errno::PERM, UnchangedReason::Denied),
        (Errno::FAULT, UnchangedReason::Other(Errno::FAULT)),
    ] {
        let call = Call::ProcessMadvise(Advice::Cold);
        let kernel = failing(call, errno, PROBES, u64::MAX);
        let outcome = bench
            .demote_with(&kernel, &[victim.pid()], &fast_demote())
            .unwrap();
        let p = &outcome.processes[0];
        assert_eq!(
            bytes_of(&p.failed, reason),
            bench.pages(4),
            "{errno}: {p:#?}"
        );
    }
    // One failure in a list does not prevent the split of the others.
    let call = Call::ProcessMadvise(Advice::Cold);
    let kernel = failing(call, Errno::INVAL, PROBES, 2);
    let outcome = bench
        .demote_with(&kernel, &[victim.pid()], &fast_demote())
        .unwrap();
    assert_eq!(outcome.done(), bench.pages(3), "{outcome:#?}");
}

/// A kernel whose answers differ from its actions.
struct Odd<A, M> {
    /// The answer of process_madvise for ranges of this many bytes; `None` lets the call through.
    advise: A,
    /// Changes the answer of the page map.
    map: M,
}

impl<A, M> fmt::Debug for Odd<A, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Odd")
    }
}

impl<A, M> SyscallGate for Odd<A, M>
where
    A: Fn(Bytes) -> Option<Result<Bytes, Errno>> + Send + Sync,
    M: Fn(PageMap, Range, PageScanDetail) -> Result<PageMap, Errno> + Send + Sync,
{
    fn process(&self, call: ProcessCall<'_>) -> Result<Option<GateReply>, Errno> {
        match call {
            ProcessCall::Madvise(_, ranges, _) => {
                let answer = (self.advise)(ranges.iter().map(|r| r.len()).sum());
                answer.transpose().map(|bytes| bytes.map(GateReply::Bytes))
            }
            ProcessCall::PageMap(file, range, detail) => {
                let map = Kernel::new().page_map(file, range, detail);
                let map = map.map_err(|e| e.errno)?;
                (self.map)(map, range, detail).map(|map| Some(GateReply::PageMap(map)))
            }
            _ => Ok(None),
        }
    }
}

fn as_it_is(map: PageMap, _: Range, _: PageScanDetail) -> Result<PageMap, Errno> {
    Ok(map)
}

#[test]
fn success_is_not_believed() {
    let Some(bench) = Bench::new("success_is_not_believed") else {
        return;
    };
    let (victim, _) = bench.private_victim(4);
    let kernel = Kernel::behind(Arc::new(Odd {
        advise: |bytes| Some(Ok(bytes)),
        map: as_it_is,
    }));
    let outcome = bench
        .promote_with(&kernel, &[victim.pid()], &fast(), &mut |_| {})
        .unwrap();
    let p = &outcome.processes[0];
    assert_eq!(
        bytes_of(&p.failed, UnchangedReason::NotSeen),
        bench.pages(4),
        "{p:#?}"
    );
    bench.promote(&[victim.pid()], &fast());
    let outcome = bench
        .demote_with(&kernel, &[victim.pid()], &fast_demote())
        .unwrap();
    let p = &outcome.processes[0];
    assert_eq!(
        bytes_of(&p.failed, UnchangedReason::NotSeen),
        bench.pages(4),
        "{p:#?}"
    );
}

#[test]
fn a_call_that_stops_halfway_is_gone_on_with() {
    let Some(bench) = Bench::new("a_call_that_stops_halfway_is_gone_on_with") else {
        return;
    };
    let (victim, _) = bench.private_victim(4);
    let huge = bench.huge.bytes();
    for halfway in [
        Ok(huge),
        Ok(Bytes::ZERO),
        Err(Errno::AGAIN),
        Err(Errno::INVAL),
    ] {
        let kernel = Kernel::behind(Arc::new(Odd {
            advise: move |bytes: Bytes| (bytes > huge).then_some(halfway),
            map: as_it_is,
        }));
        let outcome = bench
            .promote_with(&kernel, &[victim.pid()], &fast(), &mut |_| {})
            .unwrap();
        // A part that was falsely reported as done is reported as such.
        let p = &outcome.processes[0];
        let misreported = if halfway == Ok(huge) {
            huge
        } else {
            Bytes::ZERO
        };
        assert_eq!(
            bytes_of(&p.failed, UnchangedReason::NotSeen),
            misreported,
            "{p:#?}"
        );
        assert_eq!(p.done, bench.pages(4) - misreported);
        bench.demote(&[victim.pid()], &fast_demote());
    }
}

#[test]
fn a_page_map_that_fails_before_a_call_holds_it_back() {
    let Some(bench) = Bench::new("a_page_map_that_fails_before_a_call_holds_it_back") else {
        return;
    };
    let (victim, range) = bench.private_victim(4);
    let block = bench.huge.bytes();
    let kernel = Kernel::behind(Arc::new(Odd {
        advise: |_| None,
        map: move |map, asked: Range, detail| {
            let one = asked.len() == block && asked.intersect(range).is_some();
            match one && detail == PageScanDetail::ExclusiveFirst {
                true => Err(Errno::NOMEM),
                false => Ok(map),
            }
        },
    }));
    let options = PromoteOptions::default();
    let outcome = bench
        .promote_with(&kernel, &[victim.pid()], &options, &mut |_| {})
        .unwrap();
    let p = &outcome.processes[0];
    let failed = bytes_of(&p.failed, UnchangedReason::Other(Errno::NOMEM));
    assert_eq!(failed, bench.pages(4), "{p:#?}");
}

#[test]
fn no_page_map_at_all_means_nothing_is_taken() {
    let Some(bench) = Bench::new("no_page_map_at_all_means_nothing_is_taken") else {
        return;
    };
    let (victim, _) = bench.private_victim(4);
    for errno in [Errno::PERM, Errno::NOMEM, Errno::SRCH, Errno::IO] {
        let kernel = failing(Call::PageMap, errno, 0, u64::MAX);
        if let Ok(outcome) = bench.promote_with(&kernel, &[victim.pid()], &fast(), &mut |_| {}) {
            assert_eq!(outcome.requested(), Bytes::ZERO, "{errno}: {outcome:#?}");
            assert!(!outcome.is_complete());
        }
    }
}

/// Answers as a kernel before 6.7: entries of pagemap, without huge pages.
fn without_huge(map: PageMap, _: Range, _: PageScanDetail) -> Result<PageMap, Errno> {
    let facts = [
        PageState::PRESENT,
        PageState::SWAPPED,
        PageState::FILE,
        PageState::EXCLUSIVE,
    ];
    let strip = |run: PageRun| PageRun {
        state: facts
            .iter()
            .filter(|fact| run.state.has(**fact))
            .fold(PageState::default(), |sum, fact| sum.with(*fact)),
        ..run
    };
    Ok(PageMap {
        runs: map.runs.into_iter().map(strip).collect(),
        huge_known: false,
        exclusive_known: true,
    })
}

#[test]
fn kernels_that_tell_no_huge_pages_are_read_by_smaps() {
    let Some(bench) = Bench::new("kernels_that_tell_no_huge_pages_are_read_by_smaps") else {
        return;
    };
    let (victim, _) = bench.private_victim(4);
    let kernel = Kernel::behind(Arc::new(Odd {
        advise: |_| None,
        map: without_huge,
    }));
    let promote = || {
        bench
            .promote_with(&kernel, &[victim.pid()], &fast(), &mut |_| {})
            .unwrap()
    };
    let outcome = promote();
    assert_eq!(outcome.done(), bench.pages(4), "{outcome:#?}");
    assert!(outcome.is_complete());
    let again = promote();
    let p = &again.processes[0];
    assert_eq!(
        (p.requested, p.already),
        (Bytes::ZERO, bench.pages(4)),
        "{p:#?}"
    );
    let back = bench
        .demote_with(&kernel, &[victim.pid()], &fast_demote())
        .unwrap();
    assert_eq!(back.done(), bench.pages(4), "{back:#?}");
    for p in [&outcome.processes[0], &back.processes[0]] {
        let sum: Bytes = p.by_role.iter().map(|r| r.done).sum();
        assert_eq!(sum, bench.pages(4), "by role as in all: {p:#?}");
    }
}

/// A page map without sizes has a limit, beyond which it is not read.
#[test]
fn what_is_too_long_to_be_read_page_by_page_is_left_out_by_name() {
    let Some(bench) = Bench::new("what_is_too_long_to_be_read_page_by_page_is_left_out_by_name")
    else {
        return;
    };
    let (victim, _) = bench.private_victim(4);
    let kernel = Kernel::behind(Arc::new(Odd {
        advise: |_| None,
        map: |_, _, _| Err(Errno::TOOBIG),
    }));
    let outcome = bench
        .promote_with(&kernel, &[victim.pid()], &fast(), &mut |_| {})
        .unwrap();
    let p = &outcome.processes[0];
    assert_eq!(p.requested, Bytes::ZERO, "{p:#?}");
    let left = bytes_of(&p.left_out, eligible::Reason::ExclusiveUnknown);
    assert!(left >= bench.pages(4), "{p:#?}");
}

#[test]
fn a_host_short_of_memory_is_left_in_peace() {
    let Some(bench) = Bench::new("a_host_short_of_memory_is_left_in_peace") else {
        return;
    };
    let (victim, _) = bench.private_victim(64);
    // A floor that no host meets: the work waits, and finally gives up.
    let options = PromoteOptions {
        keep_available: Some(Bytes(u64::MAX)),
        pace: Percent::new(1).unwrap().into(),
        ..PromoteOptions::default()
    };
    let outcome = bench.promote(&[victim.pid()], &options);
    assert_eq!(outcome.stopped_by, Some(StoppedBy::MemoryPressure));
    let p = &outcome.processes[0];
    let left = bytes_of(&p.failed, UnchangedReason::Pressure);
    assert!(left > bench.pages(50), "{p:#?}");
    assert!(outcome.paused_seconds > 0.0);
}

/// Its filter would kill it at this call, so it is left alone and survives.
#[test]
fn one_that_filters_its_calls_is_left_alone() {
    let Some(bench) = Bench::new("one_that_filters_its_calls_is_left_alone") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(4);
    victim.tell("refuse");
    victim.tell("filter");
    for dry_run in [true, false] {
        let options = PromoteOptions {
            switch_thp_on: true,
            dry_run,
            ..fast()
        };
        let kernel = Kernel::new();
        let error = bench
            .promote_with(&kernel, &[victim.pid()], &options, &mut |_| {})
            .unwrap_err();
        let filtered = matches!(error, PreconditionError::Filtered { mode: 2, .. });
        assert!(filtered, "{error}");
    }
    victim.tell("touch a");
}

#[test]
fn one_that_refuses_is_made_to_take_it_back() {
    let Some(bench) = Bench::new("one_that_refuses_is_made_to_take_it_back") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(4);
    victim.tell("refuse");
    let left_out = bench.promote(&[victim.pid()], &fast());
    let p = &left_out.processes[0];
    assert!(
        bytes_of(&p.left_out, eligible::Reason::ProcessDisabled) >= bench.pages(4),
        "{p:#?}"
    );
    let options = PromoteOptions {
        switch_thp_on: true,
        dry_run: true,
        ..fast()
    };
    let plan = bench.promote(&[victim.pid()], &options);
    assert!(plan.processes[0].thp_enabled && plan.requested() >= bench.pages(4));
    let still = bench.promote(&[victim.pid()], &fast());
    assert_eq!(still.requested(), Bytes::ZERO, "a dry run changes nothing");
    for errno in [Errno::PERM, Errno::SRCH, Errno::BUSY, Errno::NOSYS] {
        let kernel = failing(Call::SwitchThpOn, errno, 0, u64::MAX);
        let options = PromoteOptions {
            dry_run: false,
            ..options.clone()
        };
        let error = bench
            .promote_with(&kernel, &[victim.pid()], &options, &mut |_| {})
            .unwrap_err();
        let denied = matches!(error, PreconditionError::Denied { .. });
        assert_eq!(denied, errno == Errno::PERM, "{error}");
    }
    let options = PromoteOptions {
        dry_run: false,
        ..options
    };
    let outcome = bench.promote(&[victim.pid()], &options);
    if outcome.processes[0].thp_enabled {
        assert!(outcome.is_complete(), "{outcome:#?}");
    }
    // It still works: the call came while it was reading a line.
    victim.tell("touch a");
}

/// Counts the calls that change a process, and answers the one that switches THP on.
#[derive(Debug, Default)]
struct Counting {
    switches: AtomicU64,
    moves: AtomicU64,
}

impl SyscallGate for Counting {
    fn process(&self, call: ProcessCall<'_>) -> Result<Option<GateReply>, Errno> {
        match call {
            ProcessCall::SwitchThpOn(_) => {
                self.switches.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(GateReply::Done));
            }
            ProcessCall::Madvise(_, ranges, _) if !ranges.is_empty() => {
                self.moves.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(None)
    }
}

/// Switching THP on stops the process, so it is announced, bounded and counted like all other calls.
#[test]
fn a_switch_is_a_call_like_any_other() {
    let Some(bench) = Bench::new("a_switch_is_a_call_like_any_other") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(4);
    victim.tell("refuse");
    let options = PromoteOptions {
        switch_thp_on: true,
        ..fast()
    };
    for stops in [true, false] {
        let gate = Arc::new(Counting::default());
        let kernel = Kernel::behind(gate.clone());
        let switches = || gate.switches.load(Ordering::Relaxed);
        let stop = AtomicBool::new(false);
        let mut made_before = None;
        let progress = &mut |progress: &Progress<'_>| {
            if !progress.planned.is_empty() {
                made_before = Some(switches());
                stop.store(stops, Ordering::Relaxed);
            }
        };
        let (root, host, pids) = (&bench.root, &bench.host, [victim.pid()]);
        let outcome = promote(&kernel, root, host, &pids, &options, progress, &stop).unwrap();
        assert_eq!(made_before, Some(0), "made before it was announced");
        assert_eq!(outcome.interrupted, stops);
        assert_eq!(outcome.processes[0].thp_enabled, !stops);
        assert_eq!(switches(), u64::from(!stops));
        let moves = gate.moves.load(Ordering::Relaxed);
        assert_eq!(outcome.stalls.count, switches() + moves);
    }
    victim.tell("touch a");
}
