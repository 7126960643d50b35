//! The CPU's counters, if this machine has them, including more groups than registers and events that open but
//! count nothing. It runs in the guest `arm64-counters` as well, whose CPU counts cycles and instructions.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hugeleaf_perf::{
    CounterGroup, CounterKind, CounterScope, GroupCount, counts_misses, own_thread,
};
use hugeleaf_proof::metric::{Metric, MetricError, Reading, TranslationCounters, cpi, walk_cycles};
use hugeleaf_sys::{Kernel, own_pid};

fn not_run(test: &str, why: &str) {
    println!("not run: {test}: {why}");
}

/// Work that is the same at every moment.
fn work(time: Duration) -> u64 {
    let until = Instant::now() + time;
    let mut sum = 1u64;
    while Instant::now() < until {
        for n in 0..200_000u64 {
            sum = black_box(sum ^ n.wrapping_mul(sum | 1));
        }
    }
    sum
}

const CPI: [CounterKind; 2] = [CounterKind::Cycles, CounterKind::Instructions];

/// Opens groups of this thread that all need registers at once.
fn crowd(groups: usize) -> Vec<CounterGroup> {
    let own = CounterScope::Thread(own_thread());
    let crowd = (0..groups).map(|_| CounterGroup::open(own, &CPI).unwrap());
    let crowd: Vec<CounterGroup> = crowd.collect();
    crowd.iter().for_each(|group| group.enable().unwrap());
    crowd
}

#[track_caller]
fn near(a: f64, b: f64, within: f64) {
    assert!((a / b - 1.0).abs() < within, "{a} and {b}");
}

fn above_and_below(counted: &mut Metric) -> (f64, f64) {
    match counted.read(&AtomicBool::new(false)).unwrap() {
        Reading::Ratio { above, below } => (above, below),
        other => panic!("{other:?}"),
    }
}

/// A group that is on half of the time gives the same counts as a permanent one, and the same cycles per
/// instruction.
#[test]
fn cpi_holds_where_groups_take_turns() {
    let test = "cpi_holds_where_groups_take_turns";
    let mut cpi = match cpi(&[own_pid()]) {
        Ok(cpi) => cpi,
        Err(e) => {
            assert!(
                matches!(e, MetricError::NoCounter { .. }) && !e.next().is_empty(),
                "{e}"
            );
            return not_run(test, &e.to_string());
        }
    };
    assert_eq!(cpi.unit, "cycles/instruction (cycles / instructions)");
    let before = above_and_below(&mut cpi);
    work(Duration::from_millis(500));
    let now = above_and_below(&mut cpi);
    let alone = (now.0 - before.0) / (now.1 - before.1);
    let crowd = crowd(24);
    let before = above_and_below(&mut cpi);
    let starts: Vec<GroupCount> = crowd.iter().map(|group| group.read().unwrap()).collect();
    work(Duration::from_secs(3));
    let since: Vec<_> = crowd
        .iter()
        .zip(&starts)
        .map(|(group, start)| group.read().unwrap().since(start))
        .collect();
    let now = above_and_below(&mut cpi);
    near((now.0 - before.0) / (now.1 - before.1), alone, 0.2);
    let took_turns = since.iter().any(|s| s.running_nanos < s.enabled_nanos / 2);
    if !took_turns {
        return not_run(test, "needs fewer registers than 24 groups want");
    }
    // Each measured a part, and scales it to the whole.
    for since in &since {
        assert!(since.running_nanos > 0, "{since:?}");
        near(since.values[0] / since.values[1], alone, 0.2);
        near(since.values[1], now.1 - before.1, 0.4);
    }
}

/// An event that opens but stays at 0 does not count misses: it is skipped and named.
#[test]
fn misses_are_counted_or_it_is_said_why_not() {
    let test = "misses_are_counted_or_it_is_said_why_not";
    let mut counted = match TranslationCounters::open(&[own_pid()]) {
        Ok(counted) => counted,
        Err(e) => return not_run(test, &e.to_string()),
    };
    let before = counted.totals().unwrap();
    let mut memory = vec![0u8; 64 << 20];
    for at in (0..memory.len()).step_by(1 << 10) {
        memory[at] = black_box(1);
    }
    let now = counted.totals().unwrap();
    assert!(now.cycles > before.cycles && now.instructions > before.instructions);
    match counted.misses.map(|event| event.name) {
        Ok(event) => assert!(now.misses > before.misses, "{event}: {now:?}"),
        Err(why) => {
            assert_eq!((before.misses, now.misses), (None, None));
            assert!(
                why.contains("stays at 0") || why.contains("dTLB-load-misses"),
                "{why}"
            );
        }
    }
}

/// A reported event of `walk-cycles` really counts page walks.
#[test]
fn walks_are_counted_or_it_is_said_why_not() {
    let test = "walks_are_counted_or_it_is_said_why_not";
    match walk_cycles(&[own_pid()], None) {
        Ok(mut walks) => {
            let before = above_and_below(&mut walks);
            let memory: Vec<u8> = (0..32usize << 20).map(|n| n.to_le_bytes()[0]).collect();
            black_box(&memory);
            assert!(above_and_below(&mut walks).0 > before.0, "{}", walks.unit);
        }
        Err(e) => {
            assert!(!e.next().is_empty());
            let part = format!("the part of {test} that walks");
            not_run(&part, &e.to_string());
        }
    }
    // Software events never walk page tables: the probe distinguishes them.
    let base = Kernel::new().base_page();
    match counts_misses(CounterKind::Other(1, 9), base) {
        Ok(counts) => assert!(!counts),
        Err(e) => not_run(&format!("the part of {test} that probes"), &e.to_string()),
    }
}
