//! Processes that end, execute other programs, or change their memory midway; and Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};

use hugeleaf_host::ProcessError;
use hugeleaf_mover::{
    Outcome, PreconditionError, Progress, PromoteOptions, StoppedBy, TargetLoss, UnchangedReason,
    promote,
};
use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;
use hugeleaf_verdict::eligible;

use super::victim::Victim;
use super::{Bench, bytes_of, fast, fast_demote};

/// Promotes a victim of eight blocks, one per call, and runs `act` after the first.
fn interfere(bench: &Bench, act: impl Fn(&mut Victim)) -> Outcome {
    let (mut victim, _) = bench.private_victim(8);
    let pid = victim.pid();
    let mut acted = false;
    let mut progress = |p: &Progress<'_>| {
        if !acted && !p.done.is_zero() {
            acted = true;
            act(&mut victim);
        }
    };
    let options = PromoteOptions::default();
    bench
        .promote_with(&bench.kernel, &[pid], &options, &mut progress)
        .unwrap()
}

#[test]
fn an_exit_midway_ends_it_in_a_clear_line() {
    let Some(bench) = Bench::new("an_exit_midway_ends_it_in_a_clear_line") else {
        return;
    };
    let outcome = interfere(&bench, Victim::kill);
    let p = &outcome.processes[0];
    assert_eq!(p.ended, Some(TargetLoss::Exited));
    assert_eq!(
        bytes_of(&p.failed, UnchangedReason::ProcessEnded),
        bench.pages(8)
    );
    assert_eq!((p.coverage_after, p.resident_after), (None, None));
    assert!(!outcome.is_complete());
}

#[test]
fn an_execve_midway_leaves_the_new_program_alone() {
    let Some(bench) = Bench::new("an_execve_midway_leaves_the_new_program_alone") else {
        return;
    };
    let outcome = interfere(&bench, |victim| {
        victim.say("exec");
        victim.await_name("sleep");
    });
    let p = &outcome.processes[0];
    assert_eq!(p.ended, Some(TargetLoss::Replaced), "{p:#?}");
    assert_eq!(
        bytes_of(&p.failed, UnchangedReason::ProcessEnded),
        bench.pages(8)
    );
    assert_eq!(p.resident_after, None);
}

#[test]
fn memory_unmapped_midway_is_skipped() {
    let Some(bench) = Bench::new("memory_unmapped_midway_is_skipped") else {
        return;
    };
    let outcome = interfere(&bench, |victim| {
        victim.tell("unmap a");
    });
    let p = &outcome.processes[0];
    assert_eq!(p.ended, None);
    assert_eq!(
        bytes_of(&p.failed, UnchangedReason::Unmapped),
        bench.pages(8),
        "{p:#?}"
    );
}

#[test]
fn a_stop_says_what_was_done_so_far() {
    let Some(bench) = Bench::new("a_stop_says_what_was_done_so_far") else {
        return;
    };
    let (victim, _) = bench.private_victim(80);
    let stop = AtomicBool::new(false);
    let outcome = promote(
        &bench.kernel,
        &bench.root,
        &bench.host,
        &[victim.pid()],
        &PromoteOptions::default(),
        &mut |p| stop.store(p.done >= bench.pages(3), Ordering::Relaxed),
        &stop,
    )
    .unwrap();
    assert!(outcome.interrupted && outcome.stopped_by == Some(StoppedBy::Signal));
    let p = &outcome.processes[0];
    // Some of the tried blocks may have been busy.
    let not_tried = bytes_of(&p.failed, UnchangedReason::Interrupted);
    assert!(not_tried > Bytes::ZERO, "{p:#?}");
    assert!(not_tried <= bench.pages(77), "{p:#?}");
    // The same command continues the work.
    let rest = bench.promote(&[victim.pid()], &fast());
    assert_eq!(rest.requested(), bench.pages(80) - p.done, "{rest:#?}");
}

#[test]
fn nobody_kernel_threads_and_zombies_are_refused() {
    let Some(bench) = Bench::new("nobody_kernel_threads_and_zombies_are_refused") else {
        return;
    };
    let refused = |pids: &[Pid]| {
        bench
            .promote_with(&bench.kernel, pids, &fast(), &mut |_| {})
            .unwrap_err()
    };
    assert_eq!(refused(&[]), PreconditionError::NoTarget);
    let (mut gone, _) = bench.private_victim(1);
    gone.kill();
    let error = refused(&[gone.pid()]);
    assert!(
        matches!(error, PreconditionError::Process(ProcessError::Gone { .. })),
        "{error:?}"
    );
    let kthreadd = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
    if kthreadd.trim() == "kthreadd" {
        let error = refused(&[Pid(2)]);
        let is_kernel = matches!(
            error,
            PreconditionError::Process(ProcessError::KernelThread { .. })
        );
        assert!(is_kernel, "{error:?}");
    }
    let mut zombie = std::process::Command::new("true").spawn().unwrap();
    let path = format!("/proc/{}/stat", zombie.id());
    while !std::fs::read_to_string(&path).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    let error = refused(&[Pid(zombie.id())]);
    assert!(
        matches!(
            error,
            PreconditionError::Process(ProcessError::Zombie { .. })
        ),
        "{error:?}"
    );
    zombie.wait().unwrap();
}

/// The process maps, moves, empties and unmaps memory all the time during promotion and demotion.
#[test]
fn a_process_that_changes_all_the_time_keeps_what_it_holds() {
    let Some(bench) = Bench::new("a_process_that_changes_all_the_time_keeps_what_it_holds") else {
        return;
    };
    let (mut victim, range) = bench.private_victim(8);
    victim.tell(&format!("storm {:#}", bench.huge.bytes()));
    for _ in 0..10 {
        let there = bench.promote(&[victim.pid()], &fast());
        let moved = |range: &hugeleaf_units::Range| {
            there.processes[0]
                .moved
                .iter()
                .any(|m| m.intersect(*range) == Some(*range))
        };
        assert!(moved(&range), "{there:#?}");
        let back = bench.demote(&[victim.pid()], &fast_demote());
        assert!(back.done() >= bench.pages(8), "{back:#?}");
        victim.tell("check a");
    }
}

#[test]
fn a_stopped_process_goes_there_and_back() {
    let Some(bench) = Bench::new("a_stopped_process_goes_there_and_back") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(4);
    let pid = rustix::process::Pid::from_raw(i32::try_from(victim.pid().0).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let there = bench.promote(&[victim.pid()], &fast());
    assert!(there.is_complete(), "{there:#?}");
    let back = bench.demote(&[victim.pid()], &fast_demote());
    assert_eq!(back.done(), bench.pages(4), "{back:#?}");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    victim.tell("check a");
}

#[test]
fn tens_of_thousands_of_mappings_are_left_out_by_name() {
    let Some(bench) = Bench::new("tens_of_thousands_of_mappings_are_left_out_by_name") else {
        return;
    };
    let mut victim = Victim::start();
    let size = Bytes(bench.kernel.base_page().bytes().get() * 50_000);
    victim.map("a", "private", size, bench.huge);
    victim.tell("touch a");
    victim.tell("crumble a");
    let (whole, _) = bench.private_victim(2);
    let there = bench.promote(&[victim.pid(), whole.pid()], &fast());
    assert!(there.is_complete(), "{there:#?}");
    assert_eq!(there.done(), bench.pages(2));
    let small = bytes_of(&there.processes[0].left_out, eligible::Reason::TooSmall);
    assert!(small >= size, "{there:#?}");
    victim.tell("check a");
}
