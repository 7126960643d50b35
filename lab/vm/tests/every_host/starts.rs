//! `run`: programs started on the expected pages.

use crate::host::Host;
use crate::kernel::{Mapping, fields, flag, smaps};
use crate::not_run;
use crate::victim::Victim;

/// Returns the huge-page bytes of a process's private memory, and all bytes of it.
fn private(victim: &Victim) -> (u64, u64) {
    let mappings = smaps(victim.pid());
    let sum = |of: fn(&Mapping) -> u64| mappings.iter().map(of).sum::<u64>();
    (sum(|m| m.get("AnonHugePages")), sum(|m| m.get("Anonymous")))
}

/// Memory of malloc that grows in small steps is on huge pages, except for the part before the growth was detected.
/// This is usually a sixth (40 of 48 blocks are huge). On a busy machine 36 were seen once, for an unknown reason.
fn grows_on_huge_pages(host: &Host, victim: &mut Victim) {
    victim.tell(&format!("grow {} {}", 48 * host.huge, 64 << 10));
    let (huge, all) = private(victim);
    println!("{huge} of {all} are on huge pages");
    assert!(huge * 100 >= all * 66, "{huge} of {all} are on huge pages");
    assert!(all <= 51 * host.huge, "{all}: it grew");
}

/// With THP `never`, grown memory can only be collapsed.
const NEVER: &str = "THP is never, so faults allocate no huge pages";

#[test]
fn run_puts_a_growing_heap_on_huge_pages() {
    let test = "run_puts_a_growing_heap_on_huge_pages";
    let Some(host) = Host::new(test) else {
        return;
    };
    if !host.gives_at_touch() {
        return not_run(test, NEVER);
    }
    let mut victim = Victim::from_shell("export MALLOC_ARENA_MAX=1", &[]);
    grows_on_huge_pages(&host, &mut victim);
}

/// The same for a thread, whose memory comes from arenas of 64M in glibc.
#[test]
fn run_puts_arenas_of_threads_on_huge_pages() {
    let test = "run_puts_arenas_of_threads_on_huge_pages";
    let Some(host) = Host::new(test) else {
        return;
    };
    if !host.gives_at_touch() {
        return not_run(test, NEVER);
    }
    if host.huge > 8 << 20 {
        return not_run(test, "a 64M arena holds too few huge pages of this size");
    }
    grows_on_huge_pages(&host, &mut Victim::under_run(&[]));
}

#[test]
fn run_puts_shared_memory_on_huge_pages() {
    let test = "run_puts_shared_memory_on_huge_pages";
    let Some(host) = Host::new(test) else {
        return;
    };
    let ladder = format!("thp:{}", flag(host.huge));
    for kind in ["any-shared", "any-sysv"] {
        let mut victim = Victim::under_run(&["--shm", &ladder]);
        victim.map("a", kind, 24 * host.huge, host.huge);
        victim.tell("touch a");
        let huge: u64 = smaps(victim.pid())
            .iter()
            .map(|m| m.get("ShmemPmdMapped"))
            .sum();
        // The program chooses a segment's address; a misaligned one cannot be corrected.
        if kind == "any-shared" {
            assert!(huge >= 23 * host.huge, "{kind}: {huge}");
        }
        victim.tell("check a");
    }
}

/// From a reserved pool, and not one page more than it has.
#[test]
fn run_takes_shared_memory_from_a_pool() {
    let test = "run_takes_shared_memory_from_a_pool";
    let Some(mut host) = Host::new(test) else {
        return;
    };
    let Some(size) = host.pool_size() else {
        return not_run(test, "needs pools of hugetlb pages");
    };
    if host.pool(size, None, 8) < 8 {
        return not_run(test, "8 pages for a pool cannot be reserved");
    }
    let ladder = format!("hugetlb:{}!", flag(size));
    let mut victim = Victim::under_run(&["--shm", &ladder]);
    victim.map("a", "any-shared", 8 * size, size);
    victim.tell("touch a");
    assert_eq!(hugetlb(&victim), 8 * size);
    // Mandatory, and no page is left: it fails with ENOMEM, and no process is killed.
    let error = victim
        .try_tell(&format!("map b any-shared {size} {size}"))
        .unwrap_err();
    assert!(error.contains("Cannot allocate memory"), "{error}");
    victim.tell("check a");
}

fn hugetlb(victim: &Victim) -> u64 {
    fields(format!("/proc/{}/status", victim.pid()))["HugetlbPages"]
}

#[test]
fn run_takes_a_heap_from_a_pool() {
    let test = "run_takes_a_heap_from_a_pool";
    let Some(mut host) = Host::new(test) else {
        return;
    };
    let Some(size) = host.pool_size() else {
        return not_run(test, "needs pools of hugetlb pages");
    };
    if host.pool(size, None, 16) < 16 {
        return not_run(test, "16 pages for a pool cannot be reserved");
    }
    let ladder = format!("hugetlb:{}", flag(size));
    // The heap proper: arenas of other threads are mappings.
    let mut victim = Victim::from_shell("export MALLOC_ARENA_MAX=1", &["--data", &ladder]);
    victim.tell(&format!("grow {} {}", 8 * size, 64 << 10));
    assert!(hugetlb(&victim) >= 8 * size, "{}", hugetlb(&victim));
}

/// With an unavailable ladder without `!`, the program runs on the available pages.
#[test]
fn run_falls_back_where_a_pool_is_empty() {
    let test = "run_falls_back_where_a_pool_is_empty";
    let Some(mut host) = Host::new(test) else {
        return;
    };
    let Some(size) = host.pool_size() else {
        return not_run(test, "needs pools of hugetlb pages");
    };
    host.pool(size, None, 0);
    let ladder = format!("hugetlb:{}", flag(size));
    let mut victim = Victim::under_run(&["--shm", &ladder]);
    victim.map("a", "any-shared", 4 * size, size);
    victim.tell("touch a");
    victim.tell("check a");
    assert_eq!(hugetlb(&victim), 0);
}
