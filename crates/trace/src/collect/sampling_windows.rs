//! Collections too expensive to be always on: system calls that lock memory (any system-call
//! tracepoint slows every system call of the host, here from 0.19 to 0.28 µs) and TLB flushes (one at
//! every context switch between processes). They are on in short windows, and their counts are scaled
//! up. Once calls are seen, there is a window in every second.
//!
//! A tracepoint is patched into the kernel's code when its first event is opened, and out when the
//! last one is closed. Closing waits for all CPUs, tens of milliseconds each. So windows are few, and
//! closed on a separate thread.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hugeleaf_perf::{PerfEvent, PerfRing, PerfSampling, PerfStack, monotonic_nanos};
use hugeleaf_sys::SysError;
use hugeleaf_units::{Bytes, PageSize};

use super::open_events::state_of;
use super::perf_records::{PerfRecord, SampleHead, SampleLayout, parse};
use super::permissions::PerfRestrictions;
use super::processes::ProcessTable;
use super::tracepoint::{Tracefs, Tracepoint};
use crate::model::{EventSource, MemoryEvent, PinningCalls, SourceState};
use crate::tables::not_measured::TraceDataKind;

/// Duration of a window.
pub const OPEN: Duration = Duration::from_millis(100);

/// Seconds between windows: after one without calls, and after one with calls.
const SELDOM: f64 = 4.0;
const OFTEN: f64 = 1.0;

/// System calls that lock memory: name, whether they report a size, and whether windows watch them.
/// Calls that lock everything occur once in a process's life, so no window would see them.
const CALLS: [(&str, bool, bool); 5] = [
    ("mlock", true, true),
    ("mlock2", true, true),
    ("munlock", true, true),
    ("mlockall", false, false),
    ("munlockall", false, false),
];

/// Sampled flushes per second and CPU; each represents those since the previous one. With a fixed
/// period instead, the kernel would write every event of a tracepoint whose samples carry their
/// period.
const FLUSHES_A_SECOND: u64 = 997;

const ROOM: Bytes = Bytes::from_kib(512);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TracepointRole {
    Enter(usize),
    Failed(usize),
    Flush,
}

#[derive(Debug, Clone, Copy, Default)]
struct CallStats {
    calls: u64,
    bytes: u64,
    failed: u64,
}

#[derive(Debug)]
struct MlockSyscall {
    name: &'static str,
    sized: bool,
    enter: Tracepoint,
    exit: Option<Tracepoint>,
}

#[derive(Debug, Default)]
struct OpenWindow {
    since: u64,
    rings: Vec<PerfRing>,
    roles: HashMap<u64, TracepointRole>,
    events: Vec<PerfEvent>,
    calls: u64,
}

#[derive(Debug)]
pub struct SamplingWindows {
    cpus: Vec<u32>,
    base: PageSize,
    calls: Vec<MlockSyscall>,
    flush: Option<Tracepoint>,
    on: Option<OpenWindow>,
    /// Time of the next window, in seconds.
    next: f64,
    closing: Vec<std::thread::JoinHandle<()>>,
    seen: BTreeMap<(u32, u32, usize), CallStats>,
    flushes: BTreeMap<String, u64>,
    open_nanos: u64,
    /// True if on during the whole trace.
    always: bool,
    /// `memory locking calls` and `tlb flushes`.
    pub sources: [EventSource; 2],
}

impl SamplingWindows {
    pub fn new(cpus: &[u32], base: PageSize, tracefs: &Tracefs, always: bool) -> SamplingWindows {
        let calls: Vec<MlockSyscall> = CALLS
            .into_iter()
            .filter(|(_, _, in_windows)| always || *in_windows)
            .filter_map(|(name, sized, _)| {
                let find = |path: String| tracefs.tracepoint(&path).known().cloned();
                let exit = || find(format!("syscalls/sys_exit_{name}"));
                Some(MlockSyscall {
                    name,
                    sized,
                    enter: find(format!("syscalls/sys_enter_{name}"))?,
                    exit: always.then(exit).flatten(),
                })
            })
            .collect();
        let flush = tracefs.tracepoint("tlb/tlb_flush").known().cloned();
        let source = |of: TraceDataKind, there: bool, what: &str| {
            let state = match (there, tracefs) {
                (true, _) => SourceState::Used,
                (false, Tracefs::Missing { reason, remedy }) => {
                    SourceState::refused(reason, remedy)
                }
                (false, _) => {
                    SourceState::not_here(format!("this kernel has no tracepoint {what}"))
                }
            };
            EventSource::new(of.name(), state)
        };
        let calls_at = "syscalls:sys_enter_mlock";
        let sources = [
            source(TraceDataKind::LockingCalls, !calls.is_empty(), calls_at),
            source(TraceDataKind::TlbFlushes, flush.is_some(), "tlb:tlb_flush"),
        ];
        SamplingWindows {
            cpus: cpus.to_vec(),
            base,
            calls,
            flush,
            on: None,
            next: 0.2,
            closing: Vec::new(),
            seen: BTreeMap::new(),
            flushes: BTreeMap::new(),
            open_nanos: 0,
            always,
            sources,
        }
    }

    /// Opens, reads and closes windows on schedule; `at` is the time since the start, in seconds.
    pub fn tick(&mut self, at: f64, guards: &PerfRestrictions, processes: &mut ProcessTable) {
        match &self.on {
            None if !self.always && at >= self.next => self.open(guards),
            None => {}
            Some(on) => {
                let open = Duration::from_nanos(monotonic_nanos().saturating_sub(on.since));
                self.drain(processes);
                if self.always || open < OPEN {
                    return;
                }
                let seen = self.on.as_ref().is_some_and(|on| on.calls > 0);
                let every = if seen { OFTEN } else { SELDOM };
                // The window's position within a second varies, so that a process with a rhythm of one
                // second is seen.
                self.next = (at / every).floor() * every + every + (at * 0.37).fract() * 0.8;
                self.close(processes);
            }
        }
    }

    /// Opens a window. An event that cannot be opened is omitted from now on, with the reason.
    pub fn open(&mut self, guards: &PerfRestrictions) {
        if self.calls.is_empty() && self.flush.is_none() {
            return;
        }
        match self.try_open() {
            Ok(on) => self.on = Some(on),
            Err(error) => {
                for source in &mut self.sources {
                    if source.state == SourceState::Used {
                        source.state = state_of(&error, guards);
                    }
                }
                self.calls.clear();
                self.flush = None;
            }
        }
    }

    fn try_open(&self) -> Result<OpenWindow, SysError> {
        let mut on = OpenWindow::default();
        for cpu in &self.cpus {
            self.open_on(*cpu, &mut on)?;
        }
        for event in &on.events {
            event.enable()?;
        }
        on.since = monotonic_nanos();
        Ok(on)
    }

    fn open_on(&self, cpu: u32, on: &mut OpenWindow) -> Result<(), SysError> {
        let first = on.events.len();
        let mut add = |point: &Tracepoint, rate, filter: Option<&str>, role| {
            let event = point.open(rate, PerfStack::No, cpu)?;
            if let Some(filter) = filter {
                event.filter(filter)?;
            }
            match on.events.get(first) {
                Some(first) => event.write_into(first)?,
                None => on.rings.push(PerfRing::map(&event, ROOM, self.base)?),
            }
            on.roles.insert(event.id()?, role);
            on.events.push(event);
            Ok::<(), SysError>(())
        };
        for (at, call) in self.calls.iter().enumerate() {
            add(
                &call.enter,
                PerfSampling::Each,
                None,
                TracepointRole::Enter(at),
            )?;
            if let Some(exit) = &call.exit {
                let failed = Some("ret < 0");
                add(exit, PerfSampling::Each, failed, TracepointRole::Failed(at))?;
            }
        }
        if let Some(flush) = &self.flush {
            let some = PerfSampling::Frequency(FLUSHES_A_SECOND);
            add(flush, some, None, TracepointRole::Flush)?;
        }
        Ok(())
    }

    /// Reads the rings without closing the window.
    fn drain(&mut self, processes: &mut ProcessTable) {
        let Some(on) = &mut self.on else {
            return;
        };
        let roles = &on.roles;
        let shape = |id| {
            roles.contains_key(&id).then_some(SampleLayout {
                stack: false,
                raw: true,
            })
        };
        let mut found = Vec::new();
        for ring in &mut on.rings {
            ring.drain(|bytes| match parse(bytes, shape) {
                Some(PerfRecord::Sample { head, raw, .. }) => {
                    let role = roles.get(&head.id).copied();
                    found.extend(role.map(|role| (role, head, raw.to_vec())));
                }
                Some(PerfRecord::Lost { id, count }) => {
                    let flush = roles.get(&id) == Some(&TracepointRole::Flush);
                    self.sources[usize::from(flush)].lost += count;
                }
                _ => {}
            });
        }
        for (role, head, raw) in found {
            self.take(role, head, &raw, processes);
        }
    }

    fn take(
        &mut self,
        role: TracepointRole,
        head: SampleHead,
        raw: &[u8],
        processes: &mut ProcessTable,
    ) {
        let (TracepointRole::Enter(at) | TracepointRole::Failed(at)) = role else {
            let name = self.flush.as_ref().and_then(|point| {
                let reason = point.signed("reason", raw)?;
                Some(point.name_of(i64::from(reason)))
            });
            let count = self.flushes.entry(name.unwrap_or_default());
            *count.or_default() += head.period.max(1);
            self.sources[1].events += 1;
            return;
        };
        self.sources[0].events += 1;
        if let Some(on) = &mut self.on {
            on.calls += 1;
        }
        let key = (processes.find(head.pid), head.tid, at);
        let seen = self.seen.entry(key).or_default();
        if role == TracepointRole::Failed(at) {
            seen.failed += 1;
            return;
        }
        seen.calls += 1;
        seen.bytes += self.calls[at].enter.field("len", raw).unwrap_or(0);
    }

    pub fn close(&mut self, processes: &mut ProcessTable) {
        if let Some(on) = &self.on {
            for event in &on.events {
                // An event that cannot be disabled ends when it is dropped.
                let _ = event.disable();
            }
        }
        let closed = monotonic_nanos();
        self.drain(processes);
        if let Some(on) = self.on.take() {
            self.open_nanos += closed.saturating_sub(on.since);
            self.closing.retain(|thread| !thread.is_finished());
            self.closing.push(std::thread::spawn(move || drop(on)));
        }
    }

    /// Returns calls and flushes, scaled up from the windows to the whole trace.
    pub fn finish(&mut self, all_nanos: u64) -> (Vec<PinningCalls>, Vec<MemoryEvent>) {
        for thread in self.closing.drain(..) {
            // The thread only drops events and returns nothing.
            let _ = thread.join();
        }
        let share = (self.open_nanos as f64 / all_nanos.max(1) as f64).min(1.0);
        for source in &mut self.sources {
            let used = source.state == SourceState::Used;
            source.share_of_time = (used && !self.always).then_some(share);
        }
        let scaled = |count: u64| match self.always {
            true => count,
            false => scale(count, share),
        };
        let pins = self
            .seen
            .iter()
            .map(|((process, tid, at), seen)| PinningCalls {
                process: *process,
                tid: *tid,
                call: self.calls[*at].name.to_owned(),
                calls: scaled(seen.calls),
                bytes: self.calls[*at].sized.then(|| scaled(seen.bytes)),
                failed: self.calls[*at].exit.as_ref().map(|_| scaled(seen.failed)),
                estimated: !self.always,
            })
            .collect();
        let flushes = self
            .flushes
            .iter()
            .map(|(reason, count)| MemoryEvent {
                name: "tlb flush".to_owned(),
                detail: reason.clone(),
                count: scaled(*count),
                ..MemoryEvent::default()
            })
            .collect();
        (pins, flushes)
    }
}

#[allow(clippy::cast_possible_truncation)]
fn scale(count: u64, share: f64) -> u64 {
    if share <= 0.0 {
        return count;
    }
    (count as f64 / share).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_part_are_scaled_up() {
        assert_eq!(scale(10, 0.1), 100);
        assert_eq!(scale(10, 0.0), 10);
    }
}
