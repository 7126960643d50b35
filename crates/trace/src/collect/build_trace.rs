//! Conversion of counts to the model: numbers become names, and tables are sorted and cut to a
//! useful length.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hugeleaf_host::{Host, is_in_host_pid_namespace, system};
use hugeleaf_perf::processor::{Processor, is_virtual};

use super::event_aggregator::EventAggregator;
use super::kernel_data_symbols::KernelDataSymbols;
use super::locks::{LockStats, Locks};
use super::open_events::MEMORY;
use super::pid_namespace;
use super::symbols::{SymbolizedFrames, name_all};
use super::{CollectOptions, TraceSession};
use crate::model::{
    CpuMode, EventSource, HardwareCounter, Lock, LockCaller, LockEvent, LockKind, LockThread,
    LockTotals, MemoryEvent, PinningCalls, SCHEMA, SourceState, Stack, StackSample, Trace,
    TracedHost, TracedPageSize,
};
use crate::tables::not_measured::TraceDataKind;

/// Maximum number of listed locks; the others are summed.
const LOCKS: usize = 1_000;

const ROWS_A_LOCK: usize = 200;

const LOCKS_WITH_EVENTS: usize = 20;

impl TraceSession {
    pub(super) fn finish(mut self, nanos: u64, host: &Host, options: &CollectOptions) -> Trace {
        let (window_pins, flushes) = self.windows.finish(nanos);
        let queue = &mut self.queue;
        let named = name_all(&queue.stacks, &self.root);
        let mut seen: HashSet<(u32, u32)> =
            self.work.finish(&mut queue.processes).into_iter().collect();
        let interval_sources = self.intervals.sources();
        let mut trace = Trace {
            schema: SCHEMA,
            tool_version: options.tool_version.clone(),
            host: traced_host(&self.root, host),
            command: options.command.clone(),
            target: options.target.clone(),
            started_unix: self.wall.as_secs(),
            seconds: Duration::from_nanos(nanos).as_secs_f64(),
            asked_seconds: options.time.as_secs_f64(),
            intervals: self.found,
            stacks: stacks(queue, &named),
            samples: samples(&queue.samples),
            faults: scaled(samples(&queue.faults), self.fault_sampling.on_nanos, nanos),
            sampled_by: self.sampled_by.to_owned(),
            memory_counters: self.intervals.counters,
            counters: self.counters.finish(),
            ..Trace::default()
        };
        let rate = self.samples_a_second as f64;
        trace.samples_a_second = rate;
        trace.memory_events = memory_events(queue);
        trace.memory_events.extend(flushes);
        trace.pins = pins(queue, window_pins);
        let locks = std::mem::take(&mut queue.locks);
        fill_locks(&mut trace, locks, &named, queue, self.start);
        name_static_locks(&mut trace.locks, &self.root);
        trace.notes = named.notes;
        trace.notes.extend(self.work.note());
        trace
            .notes
            .extend(note_of_rate(options, self.samples_a_second));
        trace.symbols = named.symbols;
        trace.sources = std::mem::take(&mut queue.sources);
        note_share(&mut trace.sources, self.fault_sampling.on_nanos, nanos);
        trace
            .sources
            .extend(self.windows.sources.iter().cloned().map(|source| {
                let off = options.intervals_only.then_some(SourceState::Off);
                let state = off.unwrap_or(source.state.clone());
                EventSource { state, ..source }
            }));
        trace.sources.push(EventSource {
            events: trace.intervals.len() as u64,
            ..EventSource::new("intervals", SourceState::Used)
        });
        trace.sources.extend(interval_sources);
        trace
            .sources
            .extend(self.work.source(options.target.is_some()));
        let counters = source_of_counters(&trace.counters, options.intervals_only);
        trace.sources.push(counters);
        seen.extend(threads_of(&trace));
        trace.processes = self.queue.processes.finish(seen);
        for (place, process) in trace.processes.iter_mut().enumerate() {
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            for thread in &mut process.threads {
                thread.io = self.work.io_of(place, thread.tid);
            }
        }
        if is_in_host_pid_namespace(&self.root) == Some(false) {
            pid_namespace::separate_outside(&mut trace);
        }
        trace
    }
}

/// Returns the counters' source: used if any of them counted, else with the first one's state.
fn source_of_counters(counters: &[HardwareCounter], off: bool) -> EventSource {
    let mut states = counters.iter().map(|counter| counter.state.clone());
    let state = match off {
        true => SourceState::Off,
        false if states.clone().any(|state| state == SourceState::Used) => SourceState::Used,
        false => states.next().unwrap_or(SourceState::Off),
    };
    EventSource::new(TraceDataKind::Counters.name(), state)
}

/// Returns a note if fewer samples were allowed than requested.
fn note_of_rate(options: &CollectOptions, allowed: u64) -> Option<String> {
    (!options.intervals_only && allowed < options.rate).then(|| {
        format!(
            "The kernel allowed at most {allowed} samples per second and CPU; {} were requested. It lowers \
             kernel.perf_event_max_sample_rate when samples take too long.",
            options.rate
        )
    })
}

fn threads_of(trace: &Trace) -> impl Iterator<Item = (u32, u32)> {
    let samples = trace.samples.iter().chain(&trace.faults);
    let locks = trace.locks.iter();
    let samples = samples.map(|s| (s.process, s.tid));
    let waits = locks.clone().flat_map(|l| &l.by_thread);
    let events = locks.flat_map(|l| &l.events);
    samples
        .chain(waits.map(|t| (t.process, t.tid)))
        .chain(events.map(|e| (e.process, e.tid)))
        .chain(trace.pins.iter().map(|p| (p.process, p.tid)))
        .collect::<Vec<_>>()
        .into_iter()
}

fn traced_host(root: &hugeleaf_host::Root, host: &Host) -> TracedHost {
    let cpuinfo = root.read("proc/cpuinfo");
    let cpuinfo = cpuinfo.known().map_or("", String::as_str);
    let thp = host.thp.known();
    let known = |fact: &hugeleaf_host::Fact<String>| fact.known().cloned();
    TracedHost {
        name: known(&system::identity(root).name).unwrap_or_default(),
        kernel: known(&host.kernel).unwrap_or_default(),
        arch: known(&host.arch).unwrap_or_default(),
        cpu_model: Processor::parse(cpuinfo).name,
        cpus: u32::try_from(super::online(root).len()).unwrap_or(u32::MAX),
        memory_bytes: host.memory.total.get().map(|b| b.get()),
        base_page_bytes: host.base_page.bytes().get(),
        pmd_page_bytes: host.pmd_page.get().map(|p| p.bytes().get()),
        page_sizes: host
            .page_sizes
            .iter()
            .map(|size| TracedPageSize {
                page_bytes: size.size.bytes().get(),
                kind: size.kind.name().to_owned(),
                enabled: size.enabled,
                how: size.how.clone(),
            })
            .collect(),
        nodes: host.nodes.clone(),
        thp_enabled: thp.and_then(|t| known(&t.enabled)),
        thp_shmem_enabled: thp.and_then(|t| known(&t.shmem_enabled)),
        virtual_machine: is_virtual(cpuinfo),
    }
}

fn stacks(queue: &EventAggregator, named: &SymbolizedFrames) -> Vec<Stack> {
    queue
        .stacks
        .stacks()
        .iter()
        .map(|frames| Stack {
            frames: frames.iter().map(|f| named.of_frame[*f as usize]).collect(),
        })
        .collect()
}

fn samples(counted: &HashMap<(u32, u32, u32, CpuMode), u64>) -> Vec<StackSample> {
    let mut samples: Vec<StackSample> = counted
        .iter()
        .map(|((process, tid, stack, mode), count)| StackSample {
            process: *process,
            tid: *tid,
            stack: *stack,
            mode: *mode,
            count: *count,
        })
        .collect();
    samples.sort_by_key(|s| (Reverse(s.count), s.process, s.tid, s.stack, s.mode));
    samples
}

#[allow(clippy::cast_possible_truncation)]
fn scaled(mut samples: Vec<StackSample>, on_nanos: u64, nanos: u64) -> Vec<StackSample> {
    let factor = nanos as f64 / on_nanos.clamp(1, nanos.max(1)) as f64;
    for sample in &mut samples {
        sample.count = (sample.count as f64 * factor).round() as u64;
    }
    samples
}

fn note_share(sources: &mut [EventSource], on_nanos: u64, nanos: u64) {
    let faults = sources.iter_mut().find(|s| s.name == "page faults");
    if let Some(faults) = faults.filter(|s| s.state == SourceState::Used) {
        faults.share_of_time = Some((on_nanos as f64 / nanos.max(1) as f64).min(1.0));
    }
}

fn memory_events(queue: &EventAggregator) -> Vec<MemoryEvent> {
    let mut events: Vec<MemoryEvent> = queue
        .memory
        .iter()
        .map(
            |((which, result, process, tid, stack), (count, nanos))| MemoryEvent {
                name: MEMORY[*which].name.to_owned(),
                detail: result.as_deref().unwrap_or_default().to_owned(),
                process: Some(*process),
                tid: Some(*tid),
                stack: *stack,
                count: *count,
                pages: None,
                nanos: MEMORY[*which].begins.map(|_| *nanos),
            },
        )
        .collect();
    events.sort_by_key(|e| (e.name.clone(), Reverse(e.count), e.tid, e.stack));
    events
}

fn pins(queue: &EventAggregator, window_pins: Vec<PinningCalls>) -> Vec<PinningCalls> {
    let mut pins: Vec<PinningCalls> = queue
        .pins
        .iter()
        .map(|((process, tid, call), calls)| PinningCalls {
            process: *process,
            tid: *tid,
            call: (*call).to_owned(),
            calls: calls.calls,
            bytes: calls.bytes,
            failed: calls.failed,
            estimated: false,
        })
        .collect();
    pins.extend(window_pins);
    pins.sort_by_key(|p| (Reverse(p.calls), p.process, p.tid, p.call.clone()));
    pins
}

fn fill_locks(
    trace: &mut Trace,
    locks: Locks,
    named: &SymbolizedFrames,
    queue: &EventAggregator,
    start: u64,
) {
    let all = locks.finish();
    for (n, (address, waits)) in all.into_iter().enumerate() {
        if n >= LOCKS {
            trace.other_locks.join(&waits.totals);
            trace.other_locks_count += 1;
            continue;
        }
        let with_events = n < LOCKS_WITH_EVENTS;
        trace
            .locks
            .push(lock(address, &waits, with_events, named, queue, start));
    }
}

fn name_static_locks(locks: &mut [Lock], root: &hugeleaf_host::Root) {
    if locks.is_empty() {
        return;
    }
    let kallsyms = root.read("proc/kallsyms");
    let statics = KernelDataSymbols::parse(kallsyms.known().map_or("", String::as_str));
    for lock in locks {
        lock.name = statics.name(lock.address);
    }
}

fn lock(
    address: u64,
    waits: &LockStats,
    with_events: bool,
    named: &SymbolizedFrames,
    queue: &EventAggregator,
    start: u64,
) -> Lock {
    let function = |stack: u32| acquiring_function(queue, named, stack);
    let mut by_caller: Vec<LockCaller> = waits
        .by_caller()
        .into_iter()
        .map(|((stack, kind), totals)| {
            let stack = stack.unwrap_or(queue.no_stack);
            LockCaller {
                stack,
                function: function(stack),
                kind,
                totals,
            }
        })
        .collect();
    by_caller.sort_by_key(|c| (longest_first(&c.totals), c.stack, c.kind));
    let mut by_thread: Vec<LockThread> = waits
        .by_thread
        .iter()
        .map(|((process, tid), totals)| LockThread {
            process: *process,
            tid: *tid,
            totals: *totals,
        })
        .collect();
    by_thread.sort_by_key(|t| (longest_first(&t.totals), t.process, t.tid));
    let (taken_by, kind) = longest_taker(&by_caller);
    by_caller.truncate(ROWS_A_LOCK);
    by_thread.truncate(ROWS_A_LOCK);
    let events: Vec<LockEvent> = waits
        .events
        .iter()
        .filter(|_| with_events)
        .map(|event| LockEvent {
            at_nanos: event.who.nanos.saturating_sub(start),
            process: event.who.process,
            tid: event.who.tid,
            cpu: event.who.cpu,
            what: event.what,
            waited_nanos: event.waited,
            function: event.stack.and_then(function),
        })
        .collect();
    Lock {
        address,
        kind,
        name: None,
        taken_by,
        totals: waits.totals,
        failed: waits.failed,
        by_caller,
        callers_estimated: waits.unsampled > 0,
        by_thread,
        events_left_out: waits.events_seen.saturating_sub(events.len() as u64),
        events,
    }
}

fn longest_first(totals: &LockTotals) -> (Reverse<u64>, Reverse<u64>) {
    (Reverse(totals.waited_nanos), Reverse(totals.contentions))
}

fn longest_taker(callers: &[LockCaller]) -> (Option<u32>, LockKind) {
    let mut functions: HashMap<Option<u32>, u64> = HashMap::new();
    let mut kinds: HashMap<LockKind, u64> = HashMap::new();
    for caller in callers {
        *functions.entry(caller.function).or_default() += caller.totals.waited_nanos;
        *kinds.entry(caller.kind).or_default() += caller.totals.waited_nanos;
    }
    // Waits whose caller is unknown name no lock, however long they were.
    let function = (functions.into_iter()).max_by_key(|(f, nanos)| (f.is_some(), *nanos, *f));
    let kind = kinds.into_iter().max_by_key(|(k, nanos)| (*nanos, *k));
    (
        function.and_then(|(function, _)| function),
        kind.map(|(kind, _)| kind).unwrap_or_default(),
    )
}

/// Returns the first frame of a stack outside the lock's own code.
fn acquiring_function(
    queue: &EventAggregator,
    named: &SymbolizedFrames,
    stack: u32,
) -> Option<u32> {
    let frames = queue.stacks.stacks().get(stack as usize)?;
    frames
        .iter()
        .map(|f| named.of_frame[*f as usize])
        .into_iter()
        .find(|f| !is_lock_code(&named.symbols[*f as usize].name))
}

/// True if a kernel function is a lock's own code, which waits on behalf of its caller.
pub fn is_lock_code(name: &str) -> bool {
    const BEGINNINGS: &str = "_raw_spin_ _raw_read_ _raw_write_ __raw_spin_ __raw_read_ __raw_write_ do_raw_ \
        queued_spin_ native_queued_ __pv_queued_ pv_queued_ queued_read_ queued_write_ \
        mutex_lock __mutex_ mutex_spin_ ww_mutex_ __ww_mutex_ rwsem_ __rwsem_ rt_mutex_ \
        __rt_mutex_ percpu_down_ __percpu_ osq_lock lock_contention \
        __traceiter_contention_ trace_contention_ perf_trace_contention_ perf_tp_event \
        __down_";
    const WHOLE: &str = "down down_read down_write down_interruptible down_killable down_timeout \
        down_read_killable down_read_interruptible down_write_killable \
        down_write_nested down_read_nested __down_common rwbase_write_lock \
        __bpf_trace_contention_begin";
    let name = name.split('.').next().unwrap_or(name);
    let mut beginnings = BEGINNINGS.split(' ');
    WHOLE.split(' ').any(|whole| whole == name) || beginnings.any(|b| name.starts_with(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_code_is_told_from_its_users() {
        for name in [
            "native_queued_spin_lock_slowpath",
            "_raw_spin_lock_irqsave",
            "__mutex_lock.constprop.0",
            "rwsem_down_write_slowpath",
            "down_read_killable",
            "__traceiter_contention_begin",
        ] {
            assert!(is_lock_code(name), "{name}");
        }
        for name in [
            "lru_add_drain_all",
            "mlock_fixup",
            "__x64_sys_munmap",
            "vm_mmap_pgoff",
            "lock_mm_and_find_vma",
            "folio_batch_move_lru",
            "futex_wake",
        ] {
            assert!(!is_lock_code(name), "{name}");
        }
    }

    #[test]
    fn the_taker_is_who_waited_longest() {
        let caller = |function, kind, nanos| {
            let mut totals = LockTotals::default();
            totals.add(nanos);
            LockCaller {
                stack: 0,
                function,
                kind,
                totals,
            }
        };
        let callers = [
            caller(Some(1), LockKind::RwSemRead, 50),
            caller(Some(2), LockKind::RwSemWrite, 40),
            caller(Some(2), LockKind::RwSemWrite, 40),
        ];
        assert_eq!(longest_taker(&callers), (Some(2), LockKind::RwSemWrite));
        let unknown = [callers.as_slice(), &[caller(None, LockKind::Other, 10)]].concat();
        assert_eq!(longest_taker(&unknown), (Some(2), LockKind::RwSemWrite));
        let mostly_unknown = [caller(None, LockKind::RwSemRead, 90), callers[0]];
        assert_eq!(longest_taker(&mostly_unknown).0, Some(1));
        assert_eq!(longest_taker(&[]), (None, LockKind::Other));
    }
}
