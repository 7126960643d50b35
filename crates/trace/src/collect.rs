//! Collection of all data for a limited time at a low cost. It opens events and reads files, and
//! changes nothing.
//!
//! Samples, records and locks come from rings that the kernel fills and [`event_aggregator`](self) empties
//! twenty times a second. Intervals come from `/proc`, once a second. Function names are resolved
//! at the end.

mod build_trace;
mod event_aggregator;
mod hardware_counters;
mod interval;
mod kernel_data_symbols;
mod locks;
mod memory_snapshot;
mod open_events;
mod perf_records;
mod permissions;
mod pid_namespace;
mod processes;
mod sampling_windows;
mod stacks;
mod symbols;
mod target_usage;
mod tracepoint;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hugeleaf_host::process::proc_parsers::parse_status;
use hugeleaf_host::{Host, Root, read_host};
use hugeleaf_perf::processor::Processor;
use hugeleaf_perf::{allow_many_descriptors, monotonic_nanos};
use hugeleaf_sys::{Kernel, setcap_advice};
use hugeleaf_units::{Bytes, Failure};

use crate::model::{Interval, MemoryState, SourceState, Trace, TraceEndReason, TracedTarget};
use event_aggregator::EventAggregator;
use hardware_counters::ProcessorCounters;
use interval::IntervalReader;
use open_events::{EventOptions, OpenEvents, ring_for_samples};
use permissions::PerfRestrictions;
use processes::ProcessTable;
use sampling_windows::SamplingWindows;
use target_usage::TargetUsage;
use tracepoint::Tracefs;

const PAUSE: Duration = Duration::from_millis(50);

const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct CollectOptions {
    pub time: Duration,
    /// CPU samples per second and CPU.
    pub rate: u64,
    /// Size of each CPU's ring of lock events.
    pub buffer: Bytes,
    pub intervals_only: bool,
    pub no_locks: bool,
    /// True to count every call that locks memory, instead of those in a part of each second.
    pub every_call: bool,
    pub target: Option<TracedTarget>,
    pub command: Vec<String>,
    pub tool_version: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CollectStage {
    Before,
    At(f64),
    After,
    Names,
}

/// Collects until the time is over, `stop` is set, or the last process of the target has exited.
pub fn collect(
    root: &Root,
    kernel: &Kernel,
    options: &CollectOptions,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(CollectStage),
) -> Result<Trace, Failure> {
    let host = read_host(root, kernel)?;
    let guards = read_guards(root);
    let cpus = online(root);
    watch(CollectStage::Before);
    let pids = options.target.as_ref().map(|t| t.pids.clone());
    let before = memory_snapshot::read(root, kernel, pids.as_deref());
    let tracefs = match options.intervals_only {
        true => Tracefs::Missing {
            reason: "switched off by --intervals-only".to_owned(),
            remedy: "trace without --intervals-only".to_owned(),
        },
        false => Tracefs::find(root),
    };
    let mut opened = match options.intervals_only {
        true => None,
        false => Some(open(options, &host, &cpus, &tracefs, &guards)?),
    };
    let mut session = TraceSession::new(
        root,
        &host,
        options,
        &cpus,
        &tracefs,
        opened.as_ref(),
        guards,
    );
    session.begin(&mut opened, &cpus, options.every_call);
    let ending = session.run(&mut opened, kernel, options, stop, watch);
    let (nanos, wall) = session.end(&mut opened);
    watch(CollectStage::After);
    let target = options
        .target
        .is_some()
        .then(|| session.queue.processes.target());
    let after = memory_snapshot::read(root, kernel, target.as_deref());
    watch(CollectStage::Names);
    let mut trace = session.finish(nanos, &host, options);
    trace
        .sources
        .push(memory_snapshot::source(before.as_ref().or(after.as_ref())));
    trace.ending = ending;
    trace.clock_note = clock_note(wall, nanos);
    trace.memory_before = before;
    trace.memory_after = after.map(|state| MemoryState {
        at_seconds: trace.seconds,
        ..state
    });
    Ok(trace)
}

fn open(
    options: &CollectOptions,
    host: &Host,
    cpus: &[u32],
    tracefs: &Tracefs,
    guards: &PerfRestrictions,
) -> Result<OpenEvents, Failure> {
    allow_many_descriptors();
    let wanted = EventOptions {
        rate: options.rate,
        buffer: ring_for_locks(cpus.len(), options.buffer),
        base: host.base_page,
        locks: !options.no_locks,
    };
    OpenEvents::open(&wanted, cpus, tracefs, guards)
}

/// Returns the size of each CPU's ring of lock events.
fn ring_for_locks(cpus: usize, asked: Bytes) -> Bytes {
    /// Total size of these rings, divided among the CPUs: the memory cannot be paged out.
    const MOST: Bytes = Bytes::from_mib(512);
    asked.min(Bytes(MOST.get() / cpus.max(1) as u64))
}

/// Returns the memory of all rings of a recording on this host, with [`CollectOptions::buffer`] and [`CollectOptions::no_locks`].
pub fn ring_memory(root: &Root, buffer: Bytes, no_locks: bool) -> Bytes {
    let cpus = online(root).len();
    let locks = ring_for_locks(cpus, buffer);
    // A ring has a power of two of pages.
    let size = |ring: Bytes| Bytes(ring.get().next_power_of_two());
    let of_locks = if no_locks { Bytes::ZERO } else { size(locks) };
    (size(ring_for_samples(locks)) + of_locks) * cpus as u64
}

fn online(root: &Root) -> Vec<u32> {
    let cpus = parse_list(&root.read("sys/devices/system/cpu/online").or_default());
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Parses a list of numbers and ranges, such as `0-3,6`.
fn parse_list(text: &str) -> Vec<u32> {
    /// Maximum length of a list; a damaged one could be longer.
    const MOST: usize = 8192; // not a page size
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            Some(from.parse::<u32>().ok()?..=to.parse::<u32>().ok()?)
        })
        .flatten()
        .take(MOST)
        .collect()
}

fn read_guards(root: &Root) -> PerfRestrictions {
    let text = |path: &str| root.read(path).known().cloned();
    let status = root.parse("proc/self/status", parse_status);
    let status = status.known();
    PerfRestrictions {
        paranoid: text("proc/sys/kernel/perf_event_paranoid").and_then(|t| t.trim().parse().ok()),
        lockdown: text("sys/kernel/security/lockdown").and_then(|t| {
            let from = t.find('[')? + 1;
            Some(t[from..].split(']').next()?.to_owned())
        }),
        capabilities: status.map_or(0, |status| status.capabilities),
        setcap: setcap_advice(&["cap_sys_ptrace", "cap_syslog", "cap_perfmon"]),
        is_filtered: status.and_then(|status| status.seccomp) == Some(2),
    }
}

/// Compares the wall clock with the monotonic clock, each read at the start and at the end.
fn clock_note(wall: (Duration, Duration), nanos: u64) -> Option<String> {
    let (start, end) = (wall.0.as_secs_f64(), wall.1.as_secs_f64());
    let step = end - start - Duration::from_nanos(nanos).as_secs_f64();
    // A slewed clock drifts by less than a thousandth, and reading both clocks takes a moment.
    let tolerated = 0.1 + Duration::from_nanos(nanos).as_secs_f64() * 0.001;
    (step.abs() > tolerated).then(|| {
        let way = if step > 0.0 { "forward" } else { "back" };
        format!(
            "The wall clock stepped {way} by {:.1} s during the trace. Times here are from the \
             monotonic clock; only the start time is from the wall clock.",
            step.abs()
        )
    })
}

fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

struct TraceSession {
    root: Root,
    guards: PerfRestrictions,
    queue: EventAggregator,
    windows: SamplingWindows,
    intervals: IntervalReader,
    work: TargetUsage,
    counters: ProcessorCounters,
    found: Vec<Interval>,
    processor: Processor,
    sampled_by: &'static str,
    samples_a_second: u64,
    start: u64,
    wall: Duration,
    fault_sampling: FaultSampling,
}

impl TraceSession {
    fn new(
        root: &Root,
        host: &Host,
        options: &CollectOptions,
        cpus: &[u32],
        tracefs: &Tracefs,
        opened: Option<&OpenEvents>,
        guards: PerfRestrictions,
    ) -> TraceSession {
        let start = monotonic_nanos();
        let processes = ProcessTable::new(root, options.target.is_none(), start);
        let cpuinfo = root.read("proc/cpuinfo");
        let processor = Processor::parse(cpuinfo.known().map_or("", String::as_str));
        let off = || open_events::sources(&SourceState::Off);
        let sources = opened.map_or_else(off, |o| o.sources.clone());
        TraceSession {
            root: root.clone(),
            guards,
            queue: EventAggregator::new(processes, sources),
            windows: SamplingWindows::new(cpus, host.base_page, tracefs, options.every_call),
            intervals: IntervalReader::new(root, host),
            work: TargetUsage::new(root),
            counters: ProcessorCounters::default(),
            found: Vec::new(),
            processor,
            sampled_by: opened.map_or("", |o| o.sampled_by),
            samples_a_second: opened.map_or(0, |o| o.samples_a_second),
            start,
            wall: wall(),
            fault_sampling: FaultSampling {
                cpus: cpus.to_vec(),
                ..FaultSampling::default()
            },
        }
    }

    /// Enables the events, then scans processes: a process that starts meanwhile has a record.
    fn begin(&mut self, opened: &mut Option<OpenEvents>, cpus: &[u32], every_call: bool) {
        if let Some(opened) = opened {
            self.counters = ProcessorCounters::open(&self.processor, cpus, &self.guards);
            if let Err(error) = opened.switch(true) {
                self.queue.sources[0].state = open_events::state_of(&error, &self.guards);
            }
            self.fault_sampling.switch(true, opened, &self.guards);
            if every_call {
                self.windows.open(&self.guards);
            }
        }
        self.queue.processes.scan_proc();
    }

    fn seconds(&self) -> f64 {
        Duration::from_nanos(monotonic_nanos().saturating_sub(self.start)).as_secs_f64()
    }

    fn run(
        &mut self,
        opened: &mut Option<OpenEvents>,
        kernel: &Kernel,
        options: &CollectOptions,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(CollectStage),
    ) -> TraceEndReason {
        let target = options.target.as_ref();
        for pid in target.iter().flat_map(|t| &t.pids) {
            self.queue.processes.add_target(*pid);
        }
        let follow = target.is_some();
        if follow {
            self.work.scan(&mut self.queue.processes);
        }
        let length = options.time.as_secs_f64();
        let mut horizon = monotonic_nanos();
        let (mut begun, mut next) = (0.0, INTERVAL.as_secs_f64().min(length));
        loop {
            kernel.wait(self.pause(opened.as_ref(), next), stop);
            let now = monotonic_nanos();
            if let Some(opened) = opened {
                self.queue.drain(opened, horizon);
                horizon = now;
                let at = self.seconds();
                self.windows
                    .tick(at, &self.guards, &mut self.queue.processes);
                self.fault_sampling.tick(at, opened, &self.guards);
            }
            let at = self.seconds();
            let ending = match () {
                () if stop.load(Ordering::Relaxed) => Some(TraceEndReason::Interrupted),
                () if at >= length => Some(TraceEndReason::Done),
                () if follow && self.queue.processes.target().is_empty() => {
                    Some(TraceEndReason::TargetEnded)
                }
                () => None,
            };
            if at >= next || ending.is_some() {
                // A remainder too short to be meaningful is joined to the interval before.
                if at - begun > 0.2 || self.found.is_empty() {
                    self.interval(begun, at, follow, kernel);
                    begun = at;
                }
                next = at + INTERVAL.as_secs_f64();
                watch(CollectStage::At(at.min(length)));
            }
            if let Some(ending) = ending {
                return ending;
            }
        }
    }

    /// Returns a shorter pause if a ring fills fast, and never one beyond the end of the interval.
    fn pause(&self, opened: Option<&OpenEvents>, next: f64) -> Duration {
        let fullest = opened
            .into_iter()
            .flat_map(|o| &o.rings)
            .map(|(ring, _)| ring.filled())
            .fold(0.0, f64::max);
        let pause = match fullest {
            f if f > 0.3 => PAUSE / 10,
            f if f > 0.1 => PAUSE / 3,
            _ => PAUSE,
        };
        let left = Duration::from_secs_f64((next - self.seconds()).clamp(0.0, 1.0));
        pause.min(left).max(Duration::from_millis(1))
    }

    fn interval(&mut self, from: f64, to: f64, follow: bool, kernel: &Kernel) {
        let mut interval = self.intervals.next(from, to - from, kernel);
        if follow {
            let processes = &mut self.queue.processes;
            interval.target = self.work.scan(processes);
            // Files stay open, so every fifth scan finds those that matter.
            if self.found.len().is_multiple_of(5) {
                self.work.look_at_files(processes);
            }
        }
        self.found.push(interval);
    }

    /// Disables the events and reads the rest. Returns the duration and both wall-clock readings.
    fn end(&mut self, opened: &mut Option<OpenEvents>) -> (u64, (Duration, Duration)) {
        self.windows.close(&mut self.queue.processes);
        let nanos = monotonic_nanos().saturating_sub(self.start);
        let wall = (self.wall, wall());
        if let Some(mut opened) = opened.take() {
            self.fault_sampling.switch(false, &mut opened, &self.guards);
            let faults = opened.sources[open_events::FAULTS].state.clone();
            self.queue.sources[open_events::FAULTS].state = faults;
            // An event that cannot be disabled ends when it is dropped.
            let _ = opened.switch(false);
            self.queue.drain(&mut opened, u64::MAX);
        }
        (nanos, wall)
    }
}

/// Faults are watched for a fifth of the time, because watching makes each 5 % slower.
#[derive(Debug, Default)]
struct FaultSampling {
    cpus: Vec<u32>,
    since: Option<u64>,
    on_nanos: u64,
}

impl FaultSampling {
    /// The watched part of each second.
    const PART: f64 = 0.2;

    fn tick(&mut self, at: f64, opened: &mut OpenEvents, guards: &PerfRestrictions) {
        let wanted = at.fract() < FaultSampling::PART;
        if wanted != self.since.is_some() {
            self.switch(wanted, opened, guards);
        }
    }

    fn switch(&mut self, on: bool, opened: &mut OpenEvents, guards: &PerfRestrictions) {
        let is_on = opened.switch_faults(on, &self.cpus, guards);
        let now = monotonic_nanos();
        if let Some(since) = self.since.take() {
            self.on_nanos += now.saturating_sub(since);
        }
        self.since = is_on.then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(parse_list(""), Vec::<u32>::new());
        assert!(parse_list("0-4294967295").len() <= 8192);
    }

    #[test]
    fn a_clock_that_steps_is_told() {
        let second = Duration::from_secs(1);
        let length = 10 * 1_000_000_000;
        let at = |start: u32, end: u32| (second * start, second * end);
        assert_eq!(clock_note(at(1000, 1010), length), None);
        let forward = clock_note(at(1000, 4610), length).unwrap();
        assert!(forward.contains("forward by 3600.0 s"), "{forward}");
        let back = clock_note(at(4610, 1010), length).unwrap();
        assert!(back.contains("back by 3610.0 s"), "{back}");
    }
}
