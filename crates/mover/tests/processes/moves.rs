//! Tests what is promoted, what is left out, and that no process grows.

use hugeleaf_mover::{
    DemoteOptions, HeldBeforeSplit, Percent, ProcessRanges, PromoteOptions, UnchangedReason,
    ZeroRestoreError,
};
use hugeleaf_sys::Errno;

use hugeleaf_units::Bytes;
use hugeleaf_verdict::eligible;

use super::faulty::{Call, failing};
use super::victim::Victim;
use super::{Bench, bytes_of, fast, fast_demote};

#[test]
fn private_memory_goes_there_and_back() {
    let Some(bench) = Bench::new("private_memory_goes_there_and_back") else {
        return;
    };
    let (victim, range) = bench.private_victim(16);
    for options in [PromoteOptions::default(), fast()] {
        let there = bench.promote(&[victim.pid()], &options);
        let p = &there.processes[0];
        assert!(there.is_complete(), "{there:#?}");
        assert_eq!(p.done, bench.pages(16));
        assert_eq!(p.moved, [range]);
        assert!(p.coverage_after > p.coverage_before, "{p:#?}");
        // Not a page more than before, except for the process's own growth.
        let grown = p.resident_after.unwrap() - p.resident_before;
        assert!(grown < bench.huge.bytes(), "{p:#?}");
        assert_eq!(p.grown, Bytes::ZERO);

        let again = bench.promote(&[victim.pid()], &options);
        assert!(again.is_complete(), "{again:#?}");
        assert_eq!(again.processes[0].requested, Bytes::ZERO);
        assert_eq!(again.processes[0].already, bench.pages(16));

        let back = bench.demote(&[victim.pid()], &fast_demote());
        let p = &back.processes[0];
        assert!(back.is_complete(), "{back:#?}");
        assert_eq!((p.requested, &p.moved), (bench.pages(16), &vec![range]));
        assert!(p.coverage_after < p.coverage_before, "{p:#?}");
    }
}

/// Returns a promoted process whose memory is mostly zero pages.
fn sparse(bench: &Bench, n: u64) -> Victim {
    let mut victim = Victim::start();
    victim.map("a", "private", bench.pages(n), bench.huge);
    victim.tell("sparse a");
    let there = bench.promote(&[victim.pid()], &fast());
    assert_eq!(there.done(), bench.pages(n), "{there:#?}");
    victim
}

#[test]
fn pages_of_zeros_are_still_there_after_the_way_back() {
    let Some(bench) = Bench::new("pages_of_zeros_are_still_there_after_the_way_back") else {
        return;
    };
    let victim = sparse(&bench, 16);
    for options in [DemoteOptions::default(), fast_demote()] {
        let back = bench.demote(&[victim.pid()], &options);
        let p = &back.processes[0];
        assert!(back.is_complete(), "{back:#?}");
        assert_eq!(p.zeros_lost, Bytes::ZERO, "{p:#?}");
        let lost = p.resident_before - p.resident_after.unwrap();
        assert!(lost < bench.huge.bytes(), "{p:#?}");
        let there = bench.promote(&[victim.pid()], &fast());
        assert!(there.is_complete(), "{there:#?}");
        let p = &there.processes[0];
        assert_eq!((p.done, p.grown), (bench.pages(16), Bytes::ZERO), "{p:#?}");
    }
}

#[test]
fn pages_of_zeros_that_stay_given_back_are_said() {
    let Some(bench) = Bench::new("pages_of_zeros_that_stay_given_back_are_said") else {
        return;
    };
    for (errno, why) in [
        (Errno::PERM, ZeroRestoreError::Denied),
        (Errno::NOMEM, ZeroRestoreError::Failed(Errno::NOMEM)),
    ] {
        let victim = sparse(&bench, 4);
        let kernel = failing(Call::Populate, errno, 0, u64::MAX);
        let back = bench.demote_with(&kernel, &[victim.pid()], &fast_demote());
        let back = back.unwrap();
        let p = &back.processes[0];
        assert!(back.is_complete(), "{back:#?}");
        if p.zeros_lost.is_zero() {
            println!(
                "not run: pages_of_zeros_that_stay_given_back_are_said: this kernel keeps pages of zeros"
            );
            return;
        }
        let three_quarters = Bytes(bench.pages(4).get() / 4 * 3);
        assert_eq!(p.zeros_lost, three_quarters, "{p:#?}");
        assert_eq!(p.no_zeros, Some(why));
        let lost = p.resident_before - p.resident_after.unwrap();
        assert!(lost >= Bytes(three_quarters.get() / 4 * 3), "{p:#?}");
        // The remaining pages have the frames of the huge pages, so they are promoted again to their
        // former size.
        let there = bench.promote(&[victim.pid()], &fast());
        assert!(there.is_complete(), "{there:#?}");
        let p = &there.processes[0];
        assert_eq!((p.done, p.grown), (bench.pages(4), Bytes::ZERO), "{p:#?}");
        assert_eq!(p.zeros_restored, three_quarters, "{p:#?}");
    }
}

/// Memory that was read but never written is no split huge page.
#[test]
fn pages_that_were_never_written_are_not_filled_up() {
    let Some(bench) = Bench::new("pages_that_were_never_written_are_not_filled_up") else {
        return;
    };
    let mut victim = Victim::start();
    victim.map("a", "private", bench.pages(4), bench.huge);
    victim.tell("half a");
    let there = bench.promote(&[victim.pid()], &fast());
    assert_eq!(there.requested(), Bytes::ZERO, "{there:#?}");
    let left = bytes_of(&there.totals.left_out, eligible::Reason::PartlyResident);
    assert!(left >= bench.pages(2), "{there:#?}");
}

#[test]
fn only_the_named_ranges_are_moved() {
    let Some(bench) = Bench::new("only_the_named_ranges_are_moved") else {
        return;
    };
    let (victim, range) = bench.private_victim(8);
    let half = range.chunks(bench.huge).take(4).last().unwrap().end();
    let first = hugeleaf_units::Range::new(range.start(), half).unwrap();
    let only = Some(vec![bench.memory(victim.pid(), first)]);
    let options = PromoteOptions {
        only: only.clone(),
        ..fast()
    };
    let outcome = bench.promote(&[victim.pid()], &options);
    assert_eq!(outcome.processes[0].moved, [first]);
    bench.promote(&[victim.pid()], &fast());
    let options = DemoteOptions {
        only,
        ..fast_demote()
    };
    let back = bench.demote(&[victim.pid()], &options);
    assert_eq!(back.processes[0].moved, [first]);
    // A list that does not name the process permits nothing.
    let options = DemoteOptions {
        only: Some(Vec::new()),
        ..fast_demote()
    };
    assert_eq!(
        bench.demote(&[victim.pid()], &options).requested(),
        Bytes::ZERO
    );
}

#[test]
fn what_a_process_gave_back_is_not_filled_up_again() {
    let Some(bench) = Bench::new("what_a_process_gave_back_is_not_filled_up_again") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(8);
    bench.promote(&[victim.pid()], &fast());
    let split = bench.demote(&[victim.pid()], &fast_demote());
    assert_eq!(split.done(), bench.pages(8), "{split:#?}");
    let back = PromoteOptions {
        held: Some(split.held.clone()),
        ..fast()
    };
    // As found: all of it is promoted again.
    let outcome = bench.promote(&[victim.pid()], &back);
    assert_eq!(outcome.done(), bench.pages(8), "{outcome:#?}");
    let unasked = DemoteOptions {
        record_held: false,
        ..fast_demote()
    };
    let split = bench.demote(&[victim.pid()], &unasked);
    assert_eq!(split.held, HeldBeforeSplit::default());
    victim.tell(&format!("free a {:#}", bench.huge.bytes()));
    let outcome = bench.promote(&[victim.pid()], &back);
    let process = &outcome.processes[0];
    assert_eq!(outcome.done(), Bytes::ZERO, "{outcome:#?}");
    assert!(process.resident_after.unwrap() <= process.resident_before);
    assert_eq!(outcome.totals.grown, Bytes::ZERO);
    // It uses the memory again, so promotion may restore it.
    victim.tell("touch a");
    let outcome = bench.promote(&[victim.pid()], &back);
    assert_eq!(outcome.done(), bench.pages(8), "{outcome:#?}");
}

#[test]
fn zeros_that_a_split_gave_back_count_as_held_by_nobody() {
    let test = "zeros_that_a_split_gave_back_count_as_held_by_nobody";
    let Some(bench) = Bench::new(test) else {
        return;
    };
    // Three of four pages hold zeros, which a split may return to the kernel.
    let mut victim = Victim::start();
    victim.map("a", "private", bench.pages(4), bench.huge);
    victim.tell("sparse a");
    bench.promote(&[victim.pid()], &fast());
    let split = bench.demote(&[victim.pid()], &fast_demote());
    let back = PromoteOptions {
        held: Some(split.held.clone()),
        ..fast()
    };
    let outcome = bench.promote(&[victim.pid()], &back);
    assert_eq!(outcome.done(), bench.pages(4), "{split:#?} {outcome:#?}");
    assert_eq!(outcome.totals.grown, Bytes::ZERO);
}

#[test]
fn ranges_of_a_process_that_ended_move_nothing_of_another() {
    let test = "ranges_of_a_process_that_ended_move_nothing_of_another";
    let Some(bench) = Bench::new(test) else {
        return;
    };
    let (victim, range) = bench.private_victim(4);
    bench.promote(&[victim.pid()], &fast());
    let (other, _) = bench.private_victim(1);
    // Ranges are stored with their process, here an earlier one with this id.
    let who = bench.memory(other.pid(), range).who;
    let mut who = serde_json::to_value(who).unwrap();
    who["pid"] = victim.pid().0.into();
    let remembered = ProcessRanges {
        who: serde_json::from_value(who).unwrap(),
        ranges: vec![range],
    };
    assert!(!remembered.who.is_there(&bench.root));
    let options = DemoteOptions {
        only: Some(vec![remembered]),
        ..fast_demote()
    };
    let answer = bench.demote_with(&bench.kernel, &[victim.pid()], &options);
    assert!(answer.unwrap_err().is_end());
    let still = bench.demote(&[victim.pid()], &fast_demote());
    assert_eq!(still.done(), bench.pages(4), "{still:#?}");
}

#[test]
fn a_dry_run_touches_nothing() {
    let Some(bench) = Bench::new("a_dry_run_touches_nothing") else {
        return;
    };
    let (victim, _) = bench.private_victim(4);
    let options = PromoteOptions {
        dry_run: true,
        ..PromoteOptions::default()
    };
    let plan = bench.promote(&[victim.pid()], &options);
    assert!(plan.dry_run && plan.estimated_seconds.unwrap() > 0.0);
    assert_eq!(plan.requested(), bench.pages(4));
    assert_eq!(plan.done(), Bytes::ZERO);
    let after = bench.promote(&[victim.pid()], &options);
    assert_eq!(after.processes[0].already, Bytes::ZERO, "{after:#?}");
}

#[test]
fn shared_memory_is_moved_once_and_mapped_everywhere() {
    let Some(bench) = Bench::new("shared_memory_is_moved_once_and_mapped_everywhere") else {
        return;
    };
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let path = file.path().to_str().unwrap();
    let (mut one, mut two) = (Victim::start(), Victim::start());
    for victim in [&mut one, &mut two] {
        victim.map("a", path, bench.pages(8), bench.huge);
        victim.tell("touch a");
    }
    let pids = [one.pid(), two.pid()];
    let there = bench.promote(&pids, &fast());
    assert!(there.is_complete(), "{there:#?}");
    for p in &there.processes {
        assert_eq!(p.done, bench.pages(8), "{p:#?}");
        // Page tables of shared memory are freed, and it is mapped as before.
        assert!(
            p.page_tables_after.unwrap() < p.page_tables_before,
            "{p:#?}"
        );
        let lost = p.resident_before - p.resident_after.unwrap();
        assert!(lost < bench.huge.bytes(), "{p:#?}");
    }
    two.kill();
    let back = bench.demote(&pids[..1], &fast_demote());
    assert!(back.is_complete(), "{back:#?}");
    assert_eq!(back.done(), bench.pages(8));
    // A split unmaps the memory. It is mapped again at once, so that its size stays and it can be
    // promoted again.
    let p = &back.processes[0];
    assert_eq!(p.unmapped, Bytes::ZERO, "{p:#?}");
    let lost = p.resident_before - p.resident_after.unwrap();
    assert!(lost < bench.huge.bytes(), "{p:#?}");
    let again = bench.promote(&pids[..1], &fast());
    assert!(again.is_complete(), "{again:#?}");
    assert_eq!(again.done(), bench.pages(8));
}

/// A skipped live process makes the outcome incomplete; one that has ended does not.
#[test]
fn somebody_who_was_skipped_is_missed() {
    let Some(bench) = Bench::new("somebody_who_was_skipped_is_missed") else {
        return;
    };
    let (one, _) = bench.private_victim(2);
    let (two, _) = bench.private_victim(2);
    let kernel = failing(
        Call::ProcessMadvise(hugeleaf_sys::Advice::Collapse),
        Errno::PERM,
        1,
        1,
    );
    let pids = [one.pid(), two.pid()];
    let outcome = bench.promote_with(&kernel, &pids, &fast(), &mut |_| {});
    let outcome = outcome.unwrap();
    assert_eq!((outcome.done(), outcome.skipped.len()), (bench.pages(2), 1));
    assert!(!outcome.is_complete(), "{outcome:#?}");
}

#[test]
fn shared_memory_touched_in_halves_is_whole_together() {
    let Some(bench) = Bench::new("shared_memory_touched_in_halves_is_whole_together") else {
        return;
    };
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let path = file.path().to_str().unwrap();
    let huge = format!("{:#}", bench.huge.bytes());
    let (mut half, mut whole) = (Victim::start(), Victim::start());
    half.map("a", path, bench.pages(4), bench.huge);
    half.tell(&format!("part a 50 {huge}"));
    let alone = bench.promote(&[half.pid()], &fast());
    assert_eq!(alone.requested(), Bytes::ZERO, "{alone:#?}");
    let left = bytes_of(&alone.processes[0].left_out, eligible::Reason::PartlyMapped);
    assert!(!left.is_zero(), "{alone:#?}");
    whole.map("a", path, bench.pages(4), bench.huge);
    whole.tell("touch a");
    let together = bench.promote(&[half.pid(), whole.pid()], &fast());
    assert!(together.is_complete(), "{together:#?}");
    for p in &together.processes {
        assert_eq!((p.done, p.grown), (bench.pages(4), Bytes::ZERO));
    }
}

#[test]
fn memory_shared_with_a_forked_child_is_left_alone() {
    let Some(bench) = Bench::new("memory_shared_with_a_forked_child_is_left_alone") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(8);
    let child = hugeleaf_sys::Pid(victim.tell("fork").parse().unwrap());
    let outcome = bench.promote(&[victim.pid(), child], &fast());
    // None of it is eligible, so there is nothing to do.
    assert!(outcome.is_complete());
    assert_eq!(outcome.requested(), Bytes::ZERO, "{outcome:#?}");
    for p in &outcome.processes {
        assert!(bytes_of(&p.left_out, eligible::Reason::CopyOnWrite) >= bench.pages(8));
    }
}

#[test]
fn a_fork_midway_stops_the_moving_of_what_it_shares() {
    let Some(bench) = Bench::new("a_fork_midway_stops_the_moving_of_what_it_shares") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(8);
    let pid = victim.pid();
    let mut forked = false;
    let mut progress = |p: &hugeleaf_mover::Progress<'_>| {
        if !forked && !p.done.is_zero() {
            forked = true;
            victim.tell("fork");
        }
    };
    let outcome = bench
        .promote_with(
            &bench.kernel,
            &[pid],
            &PromoteOptions::default(),
            &mut progress,
        )
        .unwrap();
    let p = &outcome.processes[0];
    assert_eq!(p.done, bench.huge.bytes(), "{p:#?}");
    assert_eq!(
        bytes_of(&p.failed, eligible::Reason::CopyOnWrite),
        bench.pages(7)
    );
    let grown = p.resident_after.unwrap() - p.resident_before;
    assert!(grown < bench.huge.bytes(), "{p:#?}");
}

#[test]
fn what_refuses_huge_pages_is_left_out() {
    let Some(bench) = Bench::new("what_refuses_huge_pages_is_left_out") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(2);
    victim.tell("nohuge a");
    let outcome = bench.promote(&[victim.pid()], &fast());
    assert_eq!(outcome.requested(), Bytes::ZERO, "{outcome:#?}");
    // None of it is eligible, so there is nothing to do.
    assert!(outcome.is_complete());
    let p = &outcome.processes[0];
    assert!(
        bytes_of(&p.left_out, eligible::Reason::NoHugeAdvised) >= bench.pages(2),
        "{p:#?}"
    );
}

#[test]
fn locked_memory_moves_and_says_that_it_stays() {
    let Some(bench) = Bench::new("locked_memory_moves_and_says_that_it_stays") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(4);
    victim.tell("lock a");
    let there = bench.promote(&[victim.pid()], &fast());
    assert!(there.is_complete(), "{there:#?}");
    let stays = bytes_of(&there.processes[0].one_way, UnchangedReason::Locked);
    assert_eq!(stays, bench.pages(4));
    let back = bench.demote(&[victim.pid()], &fast_demote());
    assert_eq!(back.done(), Bytes::ZERO);
    let p = &back.processes[0];
    assert_eq!(
        bytes_of(&p.failed, UnchangedReason::Locked),
        bench.pages(4),
        "{p:#?}"
    );
}

#[test]
fn growth_is_asked_for_and_told() {
    let Some(bench) = Bench::new("growth_is_asked_for_and_told") else {
        return;
    };
    let mut victim = Victim::start();
    victim.map("a", "private", bench.pages(4), bench.huge);
    victim.tell(&format!("part a 75 {:#}", bench.huge.bytes()));
    let strict = bench.promote(&[victim.pid()], &fast());
    assert_eq!(strict.requested(), Bytes::ZERO, "{strict:#?}");
    let relaxed = |percent| PromoteOptions {
        min_resident: Percent::new(percent).unwrap(),
        ..fast()
    };
    let still = bench.promote(&[victim.pid()], &relaxed(90));
    assert_eq!(still.requested(), Bytes::ZERO, "{still:#?}");
    let outcome = bench.promote(&[victim.pid()], &relaxed(70));
    assert!(outcome.is_complete(), "{outcome:#?}");
    let p = &outcome.processes[0];
    assert_eq!(p.done, bench.pages(4));
    let grown = p.resident_after.unwrap() - p.resident_before;
    assert!(!p.grown.is_zero());
    let apart = Bytes(grown.get().abs_diff(p.grown.get()));
    assert!(
        apart < Bytes::from_mib(1),
        "reported {}, grew {grown}",
        p.grown
    );
}

#[test]
fn several_processes_one_of_them_gone() {
    let Some(bench) = Bench::new("several_processes_one_of_them_gone") else {
        return;
    };
    let (victim, _) = bench.private_victim(2);
    let (mut gone, _) = bench.private_victim(2);
    let pids = [gone.pid(), victim.pid()];
    gone.kill();
    let outcome = bench.promote(&pids, &fast());
    assert_eq!(outcome.done(), bench.pages(2));
    assert_eq!(outcome.skipped.len(), 1);
    assert_eq!(outcome.skipped[0].pid, pids[0]);
}
