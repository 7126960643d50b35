//! Traces for tests: one without findings, which tests change one thing at a time.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{
    CpuMode, EventSource, HardwareCounter, Interval, Lock, LockAction, LockCaller, LockEvent,
    LockKind, LockTotals, MemoryCounter, MemoryState, PageSizeCount, PageSizeUsage, PinningCalls,
    ProcessMemory, SegmentMemory, Stack, StackSample, Symbol, TargetInterval, TracedHost,
    TracedPageSize, TracedProcess, TracedTarget,
};

use super::TraceFinding;

const BASE: u64 = 4 << 10;
const HUGE: u64 = 512 * BASE;
const MIB: u64 = 1 << 20; // not a page size
const MOVER: u32 = 0;
const SECONDS: f64 = 10.0;

pub fn finds(trace: &Trace, id: &str) -> Option<TraceFinding> {
    super::findings(trace).into_iter().find(|f| f.id == id)
}

/// Returns ten seconds of a busy program on huge pages, `mover` (4242): 1000 samples, 800 in user mode.
pub fn quiet() -> Trace {
    let mut trace = Trace {
        schema: 1,
        seconds: SECONDS,
        samples_a_second: 100.0,
        sampled_by: "cpu-clock".to_owned(),
        host: TracedHost {
            cpus: 2,
            memory_bytes: Some(16 << 30),
            base_page_bytes: BASE,
            pmd_page_bytes: Some(HUGE),
            page_sizes: vec![TracedPageSize {
                page_bytes: HUGE,
                kind: "thp".to_owned(),
                enabled: true,
                how: "madvise".to_owned(),
            }],
            ..TracedHost::default()
        },
        target: Some(TracedTarget {
            text: "mover".to_owned(),
            pids: vec![4242],
        }),
        processes: vec![TracedProcess {
            pid: 4242,
            name: "mover".to_owned(),
            in_target: true,
            ..TracedProcess::default()
        }],
        intervals: vec![Interval {
            seconds: SECONDS,
            target: Some(TargetInterval::default()),
            ..Interval::default()
        }],
        memory_after: Some(MemoryState {
            processes: vec![ProcessMemory {
                pid: 4242,
                name: "mover".to_owned(),
                in_target: true,
                ..ProcessMemory::default()
            }],
            ..MemoryState::default()
        }),
        ..Trace::default()
    };
    cpu(&mut trace, 8.0, 2.0);
    sample(&mut trace, "sum", false, 800);
    sample(&mut trace, "tcp_sendmsg", true, 200);
    with_memory(trace, 100, 900)
}

fn symbol(trace: &mut Trace, name: &str, kernel: bool) -> u32 {
    trace.symbols.push(Symbol {
        name: name.to_owned(),
        kernel,
        ..Symbol::default()
    });
    u32::try_from(trace.symbols.len() - 1).unwrap()
}

fn stack(trace: &mut Trace, name: &str, kernel: bool) -> u32 {
    let frame = symbol(trace, name, kernel);
    let frames = vec![frame];
    trace.stacks.push(Stack { frames });
    u32::try_from(trace.stacks.len() - 1).unwrap()
}

fn sample(trace: &mut Trace, name: &str, kernel: bool, count: u64) {
    let stack = stack(trace, name, kernel);
    let mode = if kernel {
        CpuMode::Kernel
    } else {
        CpuMode::User
    };
    trace.samples.push(StackSample {
        process: MOVER,
        tid: 4243,
        stack,
        mode,
        count,
    });
}

pub fn cpu(trace: &mut Trace, user: f64, system: f64) {
    let target = trace.intervals[0].target.as_mut().unwrap();
    (target.user_seconds, target.system_seconds) = (user, system);
}

/// Moves `percent` of the samples from the program to a kernel function.
pub fn busy_in(mut trace: Trace, function: &str, percent: u64) -> Trace {
    trace.samples[0].count -= percent * 10;
    sample(&mut trace, function, true, percent * 10);
    trace
}

/// Returns a program that locks memory, with system over user time and the percentage of samples there.
pub fn pinning(ratio: f64, percent: u64) -> Trace {
    let mut trace = busy_in(quiet(), "mlock_pte_range", percent);
    match ratio.is_finite() {
        true => cpu(&mut trace, 1.0, ratio),
        false => cpu(&mut trace, 0.0, 4.0),
    }
    trace.pins.push(PinningCalls {
        process: MOVER,
        call: "mlock".to_owned(),
        calls: 10,
        bytes: Some(10 * 64 * BASE),
        ..PinningCalls::default()
    });
    trace
}

/// Adds a lock for which two threads wait in turn.
pub fn with_lock(mut trace: Trace, nanos: u64, function: &str) -> Trace {
    let stack = stack(&mut trace, function, true);
    let function = trace.stacks[stack as usize].frames.first().copied();
    let totals = LockTotals {
        contentions: 100,
        waited_nanos: nanos,
        longest_nanos: nanos / 10,
    };
    let event = |number: u64| LockEvent {
        at_nanos: number,
        process: MOVER,
        tid: 4243 + u32::try_from(number % 2).unwrap(),
        what: LockAction::Got,
        ..LockEvent::default()
    };
    trace.locks.push(Lock {
        address: 0xff20,
        kind: LockKind::Spin,
        taken_by: function,
        totals,
        by_caller: vec![LockCaller {
            stack,
            function,
            kind: LockKind::Spin,
            totals,
        }],
        events: (0..10).map(event).collect(),
        ..Lock::default()
    });
    trace
}

/// Adds a thousand faults per second, `on_base` percent of them on base pages.
pub fn faults(trace: &mut Trace, on_base: u64) {
    let count = |page_bytes, percent| PageSizeCount {
        page_bytes,
        count: percent * 100,
    };
    trace.intervals[0].faults_by_size = vec![count(BASE, on_base), count(HUGE, 100 - on_base)];
}

/// Returns a host that counts walks, with their share of its cycles.
pub fn walks(part: f64) -> Trace {
    let mut trace = quiet();
    let counter = |name: &str, value| HardwareCounter {
        name: name.to_owned(),
        value: Some(value),
        ..HardwareCounter::default()
    };
    #[allow(clippy::cast_possible_truncation)]
    let walks = (part * 1e9) as u64;
    trace.counters = vec![
        counter("cycles", 1_000_000_000),
        counter("page_walk_cycles", walks),
    ];
    trace
}

/// Sets page tables to a share of memory.
pub fn page_tables(trace: &mut Trace, part: f64) {
    let memory = hugeleaf_units::Bytes(trace.host.memory_bytes.unwrap()).as_f64();
    #[allow(clippy::cast_possible_truncation)]
    let bytes = (memory * part) as u64;
    trace.intervals[0].page_tables_bytes = Some(bytes);
}

pub fn with_counter(mut trace: Trace, name: &str, total: u64) -> Trace {
    trace.memory_counters.push(MemoryCounter {
        name: name.to_owned(),
        total,
        ..MemoryCounter::default()
    });
    trace
}

/// Returns a trace with khugepaged in `samples` of the 1000 samples that a CPU could have.
pub fn khugepaged(samples: u64) -> Trace {
    let mut trace = quiet();
    trace.processes.push(TracedProcess {
        pid: 30,
        name: "khugepaged".to_owned(),
        kernel_thread: true,
        ..TracedProcess::default()
    });
    sample(&mut trace, "hpage_collapse_scan_pmd", true, samples);
    trace.samples.last_mut().unwrap().process = 1;
    trace
}

fn held(base_mib: u64, huge_mib: u64) -> Vec<PageSizeUsage> {
    let on = |page_bytes, kind: &str, mib: u64| PageSizeUsage {
        page_bytes,
        kind: kind.to_owned(),
        bytes: mib * MIB,
    };
    vec![on(BASE, "base", base_mib), on(HUGE, "thp", huge_mib)]
}

fn member(trace: &mut Trace) -> &mut ProcessMemory {
    &mut trace.memory_after.as_mut().unwrap().processes[0]
}

pub fn with_memory(mut trace: Trace, base_mib: u64, huge_mib: u64) -> Trace {
    member(&mut trace).by_page_size = Some(held(base_mib, huge_mib));
    trace
}

pub fn with_segment(mut trace: Trace, base_mib: u64, huge_mib: u64, asked: &str) -> Trace {
    member(&mut trace).segments.push(SegmentMemory {
        role: "heap".to_owned(),
        resident_bytes: (base_mib + huge_mib) * MIB,
        asked: asked.to_owned(),
        by_page_size: held(base_mib, huge_mib),
        ..SegmentMemory::default()
    });
    trace
}

pub fn lose(trace: &mut Trace, lost: u64) {
    trace.sources.push(EventSource {
        name: "cpu samples".to_owned(),
        events: 1000 - lost,
        lost,
        ..EventSource::default()
    });
}

pub fn everything() -> Trace {
    let mut trace = with_lock(pinning(4.0, 25), 2_000_000_000, "mlock_pte_range");
    trace = busy_in(trace, "__blk_rq_map_sg", 12);
    trace = busy_in(trace, "clear_page_erms", 12);
    trace = busy_in(trace, "_raw_spin_unlock_irqrestore", 12);
    faults(&mut trace, 95);
    page_tables(&mut trace, 0.06);
    trace = with_counter(trace, "compact_stall", 100);
    trace = with_counter(trace, "thp_split_page", 100);
    trace = with_segment(with_memory(trace, 640, 360), 20, 44, "");
    lose(&mut trace, 50);
    trace
}
