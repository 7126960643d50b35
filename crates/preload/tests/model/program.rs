//! A program of several threads that requests and returns memory, and its invariants.
//!
//! # Safety
//!
//! Touches only memory that was handed out to it; a child makes system calls and ends.

#![allow(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::schedule::{self, begin, drawn, take_part};
use crate::settings::{LaunchSettings, PageLadder};
use crate::state::{self, GROWING, LOCK, RESIDENT};
use crate::{density, mapping_window, private_hugetlb, real};

/// Memory of the program: start, length, owner.
static HAS: Mutex<Vec<(usize, usize, usize)>> = Mutex::new(Vec::new());

fn has() -> MutexGuard<'static, Vec<(usize, usize, usize)>> {
    HAS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn overlaps(start: usize, length: usize) -> Option<(usize, usize, usize)> {
    let meets =
        |(from, long, _): &&(usize, usize, usize)| start < from + long && *from < start + length;
    has().iter().find(meets).copied()
}

/// Fails if the program has memory in a range.
#[track_caller]
pub fn nobody_has(start: usize, length: usize, what: &str) {
    if let Some(found) = overlaps(start, length) {
        panic!("{start:x} and {length:x} bytes are {what}, of which the program has {found:x?}");
    }
}

/// Requests memory as the library does in `private_memory::map`.
fn ask(length: usize, from_pool: bool) -> Option<usize> {
    if from_pool {
        return private_hugetlb::allocate(length);
    }
    let kind = density::kind_of(length);
    let large = density::judgement(kind, length) == density::HugePageDecision::Huge;
    let at = mapping_window::allocate(kind, large, length)?;
    density::record(kind, at, length, large);
    Some(at)
}

fn give_back(start: usize, length: usize) {
    density::unmapped(start, length);
    if private_hugetlb::holds(start, length) {
        private_hugetlb::unmap(start, length);
    } else {
        // SAFETY: the program's own memory, which it no longer uses.
        unsafe { real::munmap(start, length) };
    }
}

fn mark(start: usize, length: usize, whose: usize) {
    for at in [start, start + length - size_of::<usize>()] {
        // SAFETY: handed out for reading and writing, a multiple of the base page.
        unsafe {
            assert_eq!(
                *(at as *const usize),
                0,
                "{start:x} was handed out with content"
            );
            *(at as *mut usize) = whose;
        }
    }
}

fn is_marked(start: usize, length: usize, whose: usize) -> bool {
    [start, start + length - size_of::<usize>()]
        .iter()
        // SAFETY: as above.
        .all(|at| unsafe { *(*at as *const usize) == whose })
}

fn one_step(whose: usize) {
    let base = state::settings().base;
    match drawn(16) {
        0..8 => {
            let length = base * (1 + drawn([4, 64, 700][drawn(3)]));
            if let Some(start) = ask(length, drawn(3) == 0) {
                nobody_has(start, length, "handed out twice");
                has().push((start, length, whose));
                mark(start, length, whose);
            }
        }
        8..13 => {
            let mine = has().iter().position(|range| range.2 == whose);
            if let Some(index) = mine {
                let (start, length, _) = has().swap_remove(index);
                assert!(is_marked(start, length, whose), "{start:x} was changed");
                give_back(start, length);
            }
        }
        13 => density::check_samples(0),
        14 => RESIDENT.store(
            drawn(64) * state::settings().pmd,
            std::sync::atomic::Ordering::Relaxed,
        ),
        _ if drawn(8) == 0 => forked(),
        _ => {}
    }
}

/// Forks a child at this point, regardless of locks that other threads hold.
fn forked() {
    const SIGCHLD: usize = 17;
    // SAFETY: the child makes system calls, asks for memory as below, and ends.
    let child = unsafe { real::clone(SIGCHLD) };
    assert!(child >= 0, "fork: {child}");
    if child == 0 {
        schedule::is_alone();
        LOCK.reopen();
        mapping_window::leave();
        density::leave();
        real::exit(usize::from(!gets_its_own()));
    }
    assert_eq!(
        real::wait(child as usize),
        Some(0),
        "a child did not get memory of its own"
    );
}

/// Checks in the child that it gets memory.
/// The list is not locked, because other threads wait outside of it.
fn gets_its_own() -> bool {
    density::check_samples(0);
    (1..40_usize).all(|pages| {
        let length = pages * 8 * state::settings().base;
        ask(length, false).is_some_and(|start| overlaps(start, length).is_none())
    })
}

fn settings() -> LaunchSettings<'static> {
    let base = std::process::Command::new("getconf")
        .arg("PAGESIZE")
        .output()
        .unwrap();
    let base: usize = String::from_utf8(base.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let pmd = base * 64;
    LaunchSettings {
        base,
        // Smaller than the host's, so that a window is soon used up.
        pmd,
        data: PageLadder {
            pools: [pmd, 0, 0, 0],
            thp: true,
            mandatory: false,
        },
        data_after: 16 * pmd,
        touch: true,
        ..state::IDLE
    }
}

/// Runs one program with several threads of some steps each, in an order drawn from the seed.
fn run(seed: u64, threads: usize) {
    begin(threads, seed);
    std::thread::scope(|scope| {
        for me in 0..threads {
            scope.spawn(move || take_part(me, || (0..40).for_each(|_| one_step(me + 1))));
        }
    });
    let left = std::mem::take(&mut *has());
    for (start, length, whose) in left {
        assert!(is_marked(start, length, whose), "{start:x} was changed");
        give_back(start, length);
    }
    assert!(LOCK.take().is_some(), "the lock is held by nobody");
}

/// Returns a number from the environment, set for longer runs.
fn said(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Returns the processor time of this process and its children in seconds.
fn worked() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, numbers) = stat.rsplit_once(')').unwrap();
    let ticks = numbers.split_whitespace().skip(11).take(4);
    // 100 ticks per second for programs, regardless of the kernel's own (proc_pid_stat(5), USER_HZ).
    ticks.map(|n| n.parse::<u64>().unwrap()).sum::<u64>() / 100
}

#[test]
fn growth_in_every_order_that_is_drawn() {
    // SAFETY: no thread has started yet.
    unsafe { state::set(settings()) };
    GROWING.store(true, std::sync::atomic::Ordering::Relaxed);
    density::watch();
    let first = said("HUGELEAF_SEED", 1);
    // A longer run sets the number of programs, or a limit of processor time, because other work
    // shares the processors.
    let seconds = said("HUGELEAF_SECONDS", u64::MAX);
    for seed in first..first + said("HUGELEAF_PROGRAMS", 500) {
        if worked() >= seconds {
            break;
        }
        println!("HUGELEAF_SEED={seed} HUGELEAF_PROGRAMS=1 runs it again");
        run(seed, 2 + (seed % 3) as usize);
    }
}
