//! Memory that several processes map, or one maps several times, counts once in the totals.

use hugeleaf_mover::{BytesByReason, Outcome};
use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;
use hugeleaf_verdict::eligible;

use super::victim::Victim;
use super::{Bench, bytes_of, fast, fast_demote};

fn sum_of(outcome: &Outcome, of: impl Fn(&hugeleaf_mover::ProcessOutcome) -> Bytes) -> Bytes {
    outcome.processes.iter().map(of).sum()
}

/// Returns the memory of the processes by the kernel, each page once, if no other process maps it.
fn pss(pids: &[Pid]) -> Bytes {
    let of = |pid: &Pid| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix("Pss:")).unwrap();
        Bytes::from_kib(line.trim().trim_end_matches(" kB").parse().unwrap())
    };
    pids.iter().map(of).sum()
}

/// Returns all memory covered by a plan, each page once.
fn looked_at(outcome: &Outcome) -> Bytes {
    let totals = &outcome.totals;
    totals.requested + totals.already + BytesByReason::total(&totals.left_out)
}

#[track_caller]
fn assert_within_a_hundredth(is: Bytes, should: Bytes, outcome: &Outcome) {
    let apart = is.get().abs_diff(should.get());
    assert!(
        apart * 100 <= should.get(),
        "{is}, not {should}: {:#?}",
        outcome.totals
    );
}

#[test]
fn shared_memory_of_several_processes_counts_once() {
    let Some(bench) = Bench::new("shared_memory_of_several_processes_counts_once") else {
        return;
    };
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let path = file.path().to_str().unwrap();
    let mut victims: Vec<Victim> = (0..5).map(|_| Victim::start()).collect();
    for victim in &mut victims {
        victim.map("a", path, bench.pages(8), bench.huge);
        victim.tell("touch a");
    }
    let pids: Vec<Pid> = victims.iter().map(Victim::pid).collect();
    let mut dry = fast();
    dry.dry_run = true;
    let plan = bench.promote(&pids, &dry);
    assert_eq!(plan.requested(), bench.pages(8), "{plan:#?}");
    let there = bench.promote(&pids, &fast());
    assert!(there.is_complete(), "{there:#?}");
    assert_eq!(
        (there.requested(), there.done()),
        (bench.pages(8), bench.pages(8))
    );
    assert_eq!(sum_of(&there, |p| p.done), bench.pages(40));
    assert_eq!(there.totals.by_role[0].done, bench.pages(8));
    let again = bench.promote(&pids, &fast());
    assert_eq!(
        (again.requested(), again.totals.already),
        (Bytes::ZERO, bench.pages(8))
    );
}

#[test]
fn memory_that_one_process_maps_several_times_counts_once() {
    let Some(bench) = Bench::new("memory_that_one_process_maps_several_times_counts_once") else {
        return;
    };
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let path = file.path().to_str().unwrap();
    let mut victim = Victim::start();
    for name in ["a", "b", "c"] {
        victim.map(name, path, bench.pages(4), bench.huge);
        victim.tell(&format!("touch {name}"));
    }
    let there = bench.promote(&[victim.pid()], &fast());
    assert!(there.is_complete(), "{there:#?}");
    assert_eq!(there.done(), bench.pages(4), "{there:#?}");
    assert_eq!(there.processes[0].done, bench.pages(12));
}

/// Trees of one, ten and a hundred processes that share all memory copy-on-write.
#[test]
fn forked_trees_come_to_what_the_kernel_says() {
    let Some(bench) = Bench::alone("forked_trees_come_to_what_the_kernel_says") else {
        return;
    };
    for count in [1, 10, 100] {
        let (mut victim, _) = bench.private_victim(16);
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        let path = file.path().to_str().unwrap();
        victim.map("b", path, bench.pages(4), bench.huge);
        victim.tell("touch b");
        let children = (1..count).map(|_| Pid(victim.tell("fork").parse().unwrap()));
        let mut pids: Vec<Pid> = children.collect();
        pids.insert(0, victim.pid());
        let mut dry = fast();
        dry.dry_run = true;
        let plan = bench.promote(&pids, &dry);
        assert_within_a_hundredth(looked_at(&plan), pss(&pids), &plan);
        if count > 1 {
            let left = bytes_of(&plan.totals.left_out, eligible::Reason::CopyOnWrite);
            assert_within_a_hundredth(left, bench.pages(16), &plan);
        }
        let there = bench.promote(&pids, &fast());
        let moved = if count == 1 { 20 } else { 4 };
        assert_eq!(there.done(), bench.pages(moved), "{count}: {there:#?}");
        let again = bench.promote(&pids, &dry);
        assert_eq!(again.totals.already, bench.pages(moved));
        assert_within_a_hundredth(looked_at(&again), pss(&pids), &again);
    }
}

/// Copy-on-write huge pages of a forked tree could not be promoted again, so they stay, and count once.
#[test]
fn huge_pages_of_a_forked_tree_stay_and_count_once() {
    let Some(bench) = Bench::new("huge_pages_of_a_forked_tree_stay_and_count_once") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(8);
    let there = bench.promote(&[victim.pid()], &fast());
    assert_eq!(there.done(), bench.pages(8));
    let children = (0..7).map(|_| Pid(victim.tell("fork").parse().unwrap()));
    let mut pids: Vec<Pid> = children.collect();
    pids.push(victim.pid());
    let back = bench.demote(&pids, &fast_demote());
    assert_eq!(back.requested(), Bytes::ZERO, "{back:#?}");
    let left = bytes_of(&back.totals.left_out, eligible::Reason::CopyOnWrite);
    assert_within_a_hundredth(left, bench.pages(8), &back);
}
