//! What is too dear to be on all the time: system calls that lock memory (any tracepoint of a
//! system call makes every system call of the host slower) and flushes of the TLB (one at every
//! switch between programs). They are on for a part of each second, and what they counted is
//! scaled up.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hugeleaf_sys::{
    PerfEvent, PerfKind, PerfRate, PerfRing, PerfSetup, PerfStack, SysError, monotonic_nanos,
};
use hugeleaf_units::{Bytes, PageSize};

use super::events::state_of;
use super::people::People;
use super::record::{Record, Shape, parse};
use super::refusal::Guards;
use super::tracepoint::{Tracefs, Tracepoint};
use crate::model::{MemoryEvent, Pin, Source, SourceState};

/// How long it is on in each second.
pub const OPEN: Duration = Duration::from_millis(100);

/// System calls that lock memory, and whether they say how much.
const CALLS: [(&str, bool); 5] = [
    ("mlock", true),
    ("mlock2", true),
    ("munlock", true),
    ("mlockall", false),
    ("munlockall", false),
];

/// Room of a CPU's ring.
const ROOM: Bytes = Bytes::from_mib(1);

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    calls: u64,
    bytes: u64,
    failed: u64,
}

#[derive(Debug)]
struct Call {
    name: &'static str,
    sized: bool,
    enter: Tracepoint,
    exit: Option<Tracepoint>,
}

/// What is on now.
#[derive(Debug)]
struct On {
    since: u64,
    rings: Vec<PerfRing>,
    /// What each event's number means: a call by its place, and whether it is the end of it.
    roles: HashMap<u64, (usize, bool)>,
    /// Counts of flushes by reason.
    flushes: Vec<(String, PerfEvent)>,
    _events: Vec<PerfEvent>,
}

/// Windows of a trace.
#[derive(Debug)]
pub struct Windows {
    cpus: Vec<u32>,
    base: PageSize,
    calls: Vec<Call>,
    flush: Option<Tracepoint>,
    on: Option<On>,
    seen: BTreeMap<(u32, u32, usize), Seen>,
    flushes: BTreeMap<String, u64>,
    open_nanos: u64,
    /// On from the first to the last moment.
    always: bool,
    /// `memory locking calls` and `tlb flushes`.
    pub sources: [Source; 2],
}

impl Windows {
    /// Finds the tracepoints; opens nothing.
    pub fn new(cpus: &[u32], base: PageSize, tracefs: &Tracefs, always: bool) -> Windows {
        let calls: Vec<Call> = CALLS
            .into_iter()
            .filter_map(|(name, sized)| {
                let find = |path: String| tracefs.tracepoint(&path).known().cloned();
                Some(Call {
                    name,
                    sized,
                    enter: find(format!("syscalls/sys_enter_{name}"))?,
                    exit: find(format!("syscalls/sys_exit_{name}")),
                })
            })
            .collect();
        let flush = tracefs.tracepoint("tlb/tlb_flush").known().cloned();
        let state = |there: bool, what: &str| match (there, tracefs) {
            (true, _) => SourceState::Used,
            (false, Tracefs::Missing { reason, remedy }) => SourceState::Refused {
                reason: reason.clone(),
                remedy: remedy.clone(),
            },
            (false, _) => SourceState::NotHere {
                reason: format!("this kernel has no tracepoint {what}"),
            },
        };
        let source = |name: &str, state| Source {
            name: name.to_owned(),
            state,
            ..Source::default()
        };
        let sources = [
            source(
                "memory locking calls",
                state(!calls.is_empty(), "syscalls:sys_enter_mlock"),
            ),
            source("tlb flushes", state(flush.is_some(), "tlb:tlb_flush")),
        ];
        Windows {
            cpus: cpus.to_vec(),
            base,
            calls,
            flush,
            on: None,
            seen: BTreeMap::new(),
            flushes: BTreeMap::new(),
            open_nanos: 0,
            always,
            sources,
        }
    }

    /// Whether it is on, and for how long it has been.
    pub fn open_for(&self) -> Option<Duration> {
        let on = self.on.as_ref()?;
        Some(Duration::from_nanos(
            monotonic_nanos().saturating_sub(on.since),
        ))
    }

    /// Switches it on. What cannot be opened is left out from now on, with the reason.
    pub fn open(&mut self, guards: &Guards) {
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

    fn try_open(&self) -> Result<On, SysError> {
        let mut on = On {
            since: 0,
            rings: Vec::new(),
            roles: HashMap::new(),
            flushes: Vec::new(),
            _events: Vec::new(),
        };
        for cpu in &self.cpus {
            self.open_calls(*cpu, &mut on)?;
            if let Some(flush) = &self.flush {
                for (reason, name) in flush.named() {
                    let event = open(flush, PerfRate::Counted, *cpu)?;
                    event.filter(&format!("reason == {reason}"))?;
                    on.flushes.push((name.clone(), event));
                }
            }
        }
        for event in on._events.iter().chain(on.flushes.iter().map(|(_, e)| e)) {
            event.enable()?;
        }
        on.since = monotonic_nanos();
        Ok(on)
    }

    fn open_calls(&self, cpu: u32, on: &mut On) -> Result<(), SysError> {
        let mut first: Option<usize> = None;
        let add = |event: PerfEvent, role, on: &mut On, first: &mut Option<usize>| {
            match *first {
                Some(at) => event.write_into(&on._events[at])?,
                None => {
                    on.rings.push(PerfRing::map(&event, ROOM, self.base)?);
                    *first = Some(on._events.len());
                }
            }
            on.roles.insert(event.id()?, role);
            on._events.push(event);
            Ok::<(), SysError>(())
        };
        for (at, call) in self.calls.iter().enumerate() {
            let enter = open(&call.enter, PerfRate::Every(1), cpu)?;
            add(enter, (at, false), on, &mut first)?;
            if let Some(exit) = &call.exit {
                let exit = open(exit, PerfRate::Every(1), cpu)?;
                exit.filter("ret < 0")?;
                add(exit, (at, true), on, &mut first)?;
            }
        }
        Ok(())
    }

    /// Reads what is there, without switching off.
    pub fn drain(&mut self, people: &mut People) {
        let Some(on) = &mut self.on else {
            return;
        };
        let (roles, calls) = (&on.roles, &self.calls);
        let shape = |id| {
            roles.contains_key(&id).then_some(Shape {
                stack: false,
                raw: true,
            })
        };
        for ring in &mut on.rings {
            ring.drain(|bytes| match parse(bytes, shape) {
                Some(Record::Sample { head, raw, .. }) => {
                    let Some((at, is_exit)) = roles.get(&head.id) else {
                        return;
                    };
                    let key = (people.find(head.pid), head.tid, *at);
                    let seen = self.seen.entry(key).or_default();
                    self.sources[0].events += 1;
                    if *is_exit {
                        seen.failed += 1;
                    } else {
                        seen.calls += 1;
                        seen.bytes += calls[*at].enter.field("len", raw).unwrap_or(0);
                    }
                }
                Some(Record::Lost { count, .. }) => self.sources[0].lost += count,
                _ => {}
            });
        }
    }

    /// Reads what is there and switches off.
    pub fn close(&mut self, people: &mut People) {
        self.drain(people);
        let Some(on) = self.on.take() else {
            return;
        };
        for (reason, event) in &on.flushes {
            let count = event.count().map_or(0, |c| c.value);
            *self.flushes.entry(reason.clone()).or_default() += count;
            self.sources[1].events += count;
        }
        self.open_nanos += monotonic_nanos().saturating_sub(on.since);
    }

    /// The calls and the flushes, scaled up from the time that it was on to all of it.
    pub fn finish(&mut self, all_nanos: u64) -> (Vec<Pin>, Vec<MemoryEvent>) {
        #[allow(clippy::cast_precision_loss)] // times of a trace
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
            .map(|((process, tid, at), seen)| Pin {
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

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn scale(count: u64, share: f64) -> u64 {
    if share <= 0.0 {
        return count;
    }
    (count as f64 / share).round() as u64
}

fn open(point: &Tracepoint, rate: PerfRate, cpu: u32) -> Result<PerfEvent, SysError> {
    let setup = PerfSetup {
        kind: PerfKind::Tracepoint(point.id),
        rate,
        stack: PerfStack::No,
        raw: rate != PerfRate::Counted,
    };
    PerfEvent::open(&setup, cpu)
}
