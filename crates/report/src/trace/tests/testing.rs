//! A trace for tests of views: the published case, reduced. `pinning` is on base pages, `cured` on huge
//! pages.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{
    CpuMode, EventSource, Interval, Lock, LockAction, LockCaller, LockEvent, LockKind, LockThread,
    LockTotals, MemoryState, PageSizeCount, PageSizeUsage, PinningCalls, ProcessMemory,
    SegmentMemory, SourceState, Stack, StackSample, Symbol, TargetInterval, Thread, ThreadIo,
    TracedHost, TracedProcess, TracedTarget,
};

const BASE: u64 = 4 << 10;
const HUGE: u64 = 512 * BASE;
const MIB: u64 = 1 << 20; // not a page size
const BUFFER: u64 = 64 * BASE;

pub(crate) fn pinning() -> Trace {
    made(
        0.1,
        0.5,
        600,
        "mlock_pte_range",
        &[(BASE, "base", 512)],
        1000,
    )
}

pub(crate) fn cured() -> Trace {
    let mut trace = made(
        0.45,
        0.15,
        100,
        "copy_to_iter",
        &[(HUGE, "hugetlb", 512)],
        2720,
    );
    trace.locks.clear();
    trace.pins.clear();
    trace
}

fn symbol(name: &str, kernel: bool) -> Symbol {
    Symbol {
        name: name.to_owned(),
        module: if kernel { "[kernel]" } else { "/usr/bin/mover" }.to_owned(),
        kernel,
        unnamed: false,
    }
}

fn made(
    user: f64,
    system: f64,
    hot: u64,
    function: &str,
    on: &[(u64, &str, u64)],
    reads: u64,
) -> Trace {
    let totals = LockTotals {
        contentions: 5000,
        waited_nanos: 3_000_000_000,
        longest_nanos: 4_000_000,
    };
    let sample = |process, tid, stack, mode, count| StackSample {
        process,
        tid,
        stack,
        mode,
        count,
    };
    Trace {
        schema: 1,
        command: ["hugeleaf", "trace", "mover", "--for", "10s"]
            .map(str::to_owned)
            .to_vec(),
        started_unix: 1_790_000_000,
        seconds: 10.0,
        asked_seconds: 10.0,
        samples_a_second: 100.0,
        sampled_by: "cpu-clock".to_owned(),
        host: host(),
        target: Some(TracedTarget {
            text: "mover".to_owned(),
            pids: vec![4242],
        }),
        processes: processes(reads, user, system),
        intervals: (0..10u32)
            .map(|i| interval(f64::from(i), user, system))
            .collect(),
        symbols: symbols(function),
        stacks: [&[0, 1, 2][..], &[3], &[4], &[5, 0, 1, 2]]
            .map(|frames| Stack {
                frames: frames.to_vec(),
            })
            .to_vec(),
        samples: vec![
            sample(1, 4243, 0, CpuMode::Kernel, hot),
            sample(1, 4244, 1, CpuMode::User, 300),
            sample(0, 0, 2, CpuMode::Kernel, 800),
        ],
        locks: vec![lock(totals)],
        pins: vec![pin(reads)],
        sources: vec![EventSource {
            name: "page-walk cycles".to_owned(),
            state: SourceState::NotHere {
                reason: "no hardware counters".to_owned(),
            },
            ..EventSource::default()
        }],
        memory_before: Some(memory(&[(BASE, "base", 512)])),
        memory_after: Some(memory(on)),
        ..Trace::default()
    }
}

fn pin(reads: u64) -> PinningCalls {
    PinningCalls {
        process: 1,
        tid: 4243,
        call: "mlock".to_owned(),
        calls: reads,
        bytes: Some(reads * BUFFER),
        ..PinningCalls::default()
    }
}

fn symbols(function: &str) -> Vec<Symbol> {
    vec![
        symbol(function, true),
        symbol("walk_page_range", true),
        symbol("mlock", false),
        symbol("checksum", false),
        symbol("native_safe_halt", true),
        symbol("_raw_spin_lock", true),
    ]
}

fn host() -> TracedHost {
    TracedHost {
        name: "backup1".to_owned(),
        kernel: "6.18.0".to_owned(),
        arch: "x86_64".to_owned(),
        cpus: 2,
        memory_bytes: Some(24 << 30),
        base_page_bytes: BASE,
        pmd_page_bytes: Some(HUGE),
        ..TracedHost::default()
    }
}

fn processes(reads: u64, user: f64, system: f64) -> Vec<TracedProcess> {
    let io = |calls: u64| ThreadIo {
        read_calls: calls,
        read_bytes: calls * BUFFER,
        ..ThreadIo::default()
    };
    let thread = |tid, name: &str, calls| Thread {
        tid,
        name: name.to_owned(),
        io: Some(io(calls)),
    };
    vec![
        TracedProcess {
            name: "swapper".to_owned(),
            kernel_thread: true,
            ..TracedProcess::default()
        },
        TracedProcess {
            pid: 4242,
            name: "mover".to_owned(),
            in_target: true,
            user_seconds: Some(user * 20.0),
            system_seconds: Some(system * 20.0),
            threads: vec![
                thread(4243, "reader 1", reads / 2),
                thread(4244, "writer 1", reads / 2),
            ],
            ..TracedProcess::default()
        },
    ]
}

/// A second of two CPUs; the values are shares of both together.
fn interval(at: f64, user: f64, system: f64) -> Interval {
    let drift = 0.02 * (at % 3.0);
    Interval {
        at_seconds: at,
        seconds: 1.0,
        user_seconds: 2.0 * (user + drift),
        system_seconds: 2.0 * system,
        idle_seconds: 2.0 * (0.9 - user - system - drift),
        wait_seconds: 0.2,
        faults: 100,
        faults_by_size: vec![PageSizeCount {
            page_bytes: BASE,
            count: 100,
        }],
        target: Some(TargetInterval {
            processes: 1,
            user_seconds: 2.0 * user,
            system_seconds: 2.0 * system,
            ..TargetInterval::default()
        }),
        ..Interval::default()
    }
}

fn lock(totals: LockTotals) -> Lock {
    let event = |number: u32| LockEvent {
        at_nanos: 1_000_000 + u64::from(number) * 10_000,
        process: 1,
        tid: 4243 + (number / 2) % 2,
        what: match number % 2 {
            0 => LockAction::Waits,
            _ => LockAction::Got,
        },
        waited_nanos: 20_000,
        function: Some(0),
        ..LockEvent::default()
    };
    let thread = |tid| LockThread {
        process: 1,
        tid,
        totals,
    };
    Lock {
        address: 0xffff_8881_0000_1000,
        kind: LockKind::Spin,
        name: Some("pool_lock".to_owned()),
        taken_by: Some(0),
        totals,
        by_caller: vec![LockCaller {
            stack: 3,
            function: Some(0),
            kind: LockKind::Spin,
            totals,
        }],
        by_thread: vec![thread(4243), thread(4244)],
        events: (0..12).map(event).collect(),
        events_left_out: 9988,
        ..Lock::default()
    }
}

fn memory(on: &[(u64, &str, u64)]) -> MemoryState {
    let held = on.iter().map(|(page_bytes, kind, mib)| PageSizeUsage {
        page_bytes: *page_bytes,
        kind: (*kind).to_owned(),
        bytes: mib * MIB,
    });
    let held: Vec<PageSizeUsage> = held.collect();
    MemoryState {
        by_page_size: held.clone(),
        page_tables_bytes: Some(8 * MIB),
        processes: vec![ProcessMemory {
            pid: 4242,
            name: "mover".to_owned(),
            in_target: true,
            by_page_size: Some(held.clone()),
            segments: vec![SegmentMemory {
                role: "shm".to_owned(),
                resident_bytes: 512 * MIB,
                by_page_size: held,
                ..SegmentMemory::default()
            }],
            ..ProcessMemory::default()
        }],
        ..MemoryState::default()
    }
}

pub fn compared<'a>(before: &'a Trace, after: &'a Trace) -> super::TraceDiff<'a> {
    let shown = |trace| super::TraceView {
        trace,
        findings: &[],
        file: "x",
    };
    super::TraceDiff {
        before: shown(before),
        after: shown(after),
    }
}
