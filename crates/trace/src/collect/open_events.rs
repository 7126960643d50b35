//! The events opened on every CPU, and the purpose of each.

use std::collections::HashMap;

use hugeleaf_host::Fact;
use hugeleaf_perf::{PerfEvent, PerfKind, PerfRing, PerfSampling, PerfSetup, PerfStack};
use hugeleaf_sys::SysError;
use hugeleaf_units::{Bytes, Failure, PageSize};

use super::perf_records::SampleLayout;
use super::permissions::{PerfRestrictions, is_not_here, refusal};
use super::tracepoint::{Tracefs, Tracepoint};
use crate::model::{EventSource, SourceState};
use crate::tables::not_measured::TraceDataKind;

/// Maximum number of frames of a sample. Deeper frames cost more than they tell.
const FRAMES: u16 = 64;

/// Number of frames of a lock wait: the lock's own, the function that takes it, and a few above.
const LOCK_FRAMES: u16 = 8;

/// Lock waits with a sampled stack, per second and CPU. All waits are counted and timed. Under
/// contention there are a hundred thousand a second, and their stacks were most of a trace's cost
/// (docs/internals/kernel-notes.md).
const LOCK_STACKS_A_SECOND: u64 = 997;

/// Sampled page faults per second and CPU.
const FAULTS_A_SECOND: u64 = 97;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventRole {
    Cpu,
    Fault,
    LockBegin(Tracepoint),
    LockStack(Tracepoint),
    LockEnd(Tracepoint),
    /// An event of the memory management, by its index in [`MEMORY`].
    Memory(usize, Tracepoint),
    Direct(Tracepoint),
    Register(Tracepoint),
}

#[derive(Debug, Clone, Copy)]
pub struct MemoryTracepoint {
    pub point: &'static str,
    pub name: &'static str,
    pub result: Option<&'static str>,
    /// `Some(true)` for the begin and `Some(false)` for the end of an operation that takes time.
    pub begins: Option<bool>,
}

/// Rare events only, because each costs a stack.
pub const MEMORY: [MemoryTracepoint; 6] = [
    MemoryTracepoint {
        point: "huge_memory/mm_collapse_huge_page",
        name: "collapse",
        result: Some("status"),
        begins: None,
    },
    MemoryTracepoint {
        point: "huge_memory/mm_khugepaged_collapse_file",
        name: "collapse of a file",
        result: Some("result"),
        begins: None,
    },
    MemoryTracepoint {
        point: "compaction/mm_compaction_begin",
        name: "compaction",
        result: None,
        begins: Some(true),
    },
    MemoryTracepoint {
        point: "compaction/mm_compaction_end",
        name: "compaction",
        result: Some("status"),
        begins: Some(false),
    },
    MemoryTracepoint {
        point: "vmscan/mm_vmscan_direct_reclaim_begin",
        name: "direct reclaim",
        result: None,
        begins: Some(true),
    },
    MemoryTracepoint {
        point: "vmscan/mm_vmscan_direct_reclaim_end",
        name: "direct reclaim",
        result: None,
        begins: Some(false),
    },
];

#[derive(Debug, Clone, Copy)]
pub struct EventOptions {
    /// Samples per second and CPU.
    pub rate: u64,
    /// Size of a CPU's ring for locks; the ring for the rest is a quarter of it.
    pub buffer: Bytes,
    /// The base page size, which is the unit of a ring.
    pub base: PageSize,
    pub locks: bool,
}

#[derive(Clone, Copy)]
struct EventOpenContext<'a> {
    cpus: &'a [u32],
    tracefs: &'a Tracefs,
    guards: &'a PerfRestrictions,
}

#[derive(Debug, Default)]
pub struct OpenEvents {
    pub rings: Vec<(PerfRing, usize)>,
    /// The role of each event ID, and the index of its source.
    pub roles: HashMap<u64, (EventRole, usize)>,
    pub shapes: HashMap<u64, SampleLayout>,
    pub sources: Vec<EventSource>,
    pub sampled_by: &'static str,
    /// Samples per second and CPU: the requested number or the kernel's limit.
    pub samples_a_second: u64,
    /// Dropped last, because nothing is written without them.
    pub events: Vec<PerfEvent>,
    faults: Vec<PerfEvent>,
}

const CPU: usize = TraceDataKind::CpuSamples as usize;
pub(super) const FAULTS: usize = TraceDataKind::FaultSamples as usize;
const LOCKS: usize = TraceDataKind::Locks as usize;
const MEMORY_EVENTS: usize = TraceDataKind::MemoryEvents as usize;
const DIRECT: usize = TraceDataKind::DirectIo as usize;
const REGISTER: usize = TraceDataKind::Registrations as usize;

pub fn sources(state: &SourceState) -> Vec<EventSource> {
    let of_events = &TraceDataKind::ALL[..=REGISTER];
    let source = |what: &TraceDataKind| EventSource::new(what.name(), state.clone());
    of_events.iter().map(source).collect()
}

const WITH_STACK: SampleLayout = SampleLayout {
    stack: true,
    raw: false,
};

impl OpenEvents {
    /// Opens all events that the host has, disabled.
    ///
    /// # Errors
    /// Not even samples are available.
    pub fn open(
        wanted: &EventOptions,
        cpus: &[u32],
        tracefs: &Tracefs,
        guards: &PerfRestrictions,
    ) -> Result<OpenEvents, Failure> {
        let mut opened = OpenEvents {
            sources: sources(&SourceState::Used),
            sampled_by: "cpu-clock",
            samples_a_second: wanted.rate,
            ..OpenEvents::default()
        };
        let main_room = ring_for_samples(wanted.buffer);
        for cpu in cpus {
            opened
                .open_samples(*cpu, wanted, main_room)
                .map_err(|error| refusal(&error, guards))?;
        }
        if let Tracefs::Missing { reason, remedy } = tracefs {
            for source in &mut opened.sources[LOCKS..] {
                source.state = SourceState::refused(reason, remedy);
            }
            return Ok(opened);
        }
        let ground = EventOpenContext {
            cpus,
            tracefs,
            guards,
        };
        match wanted.locks {
            true => opened.open_locks(wanted, ground),
            false => opened.sources[LOCKS].state = SourceState::Off,
        }
        for (at, memory) in MEMORY.iter().enumerate() {
            let stack = match memory.begins {
                Some(false) => PerfStack::No,
                _ => PerfStack::Kernel(FRAMES),
            };
            let role = |point| EventRole::Memory(at, point);
            opened.open_points(memory.point, MEMORY_EVENTS, stack, ground, role);
        }
        let (none, direct) = (PerfStack::No, "iomap/iomap_dio_rw_begin");
        opened.open_points(direct, DIRECT, none, ground, EventRole::Direct);
        let register = "io_uring/io_uring_register";
        opened.open_points(register, REGISTER, none, ground, EventRole::Register);
        Ok(opened)
    }

    /// Opens records and samples of a CPU in one ring; faults join them later.
    fn open_samples(
        &mut self,
        cpu: u32,
        wanted: &EventOptions,
        room: Bytes,
    ) -> Result<(), SysError> {
        let setup = |kind, rate, stack| PerfSetup {
            kind,
            rate,
            stack,
            raw: false,
        };
        let records = setup(PerfKind::Dummy, PerfSampling::Each, PerfStack::No);
        let records = PerfEvent::open(&records, cpu)?;
        let ring = map(&records, room, wanted.base)?;
        let stack = PerfStack::KernelAndUser(FRAMES);
        let rate = PerfSampling::Frequency(wanted.rate);
        // Cycles sample code with interrupts off; a clock does not. All CPUs of a host have them,
        // or none.
        let cycles = match self.sampled_by == "cycles" || self.events.is_empty() {
            true => PerfEvent::open(&setup(PerfKind::Cycles, rate, stack), cpu).ok(),
            false => None,
        };
        let samples = match cycles {
            Some(event) => {
                self.sampled_by = "cycles";
                event
            }
            None => PerfEvent::open(&setup(PerfKind::CpuClock, rate, stack), cpu)?,
        };
        if let PerfSampling::Frequency(got) = samples.rate() {
            self.samples_a_second = self.samples_a_second.min(got);
        }
        samples.write_into(&records)?;
        self.know(&samples, EventRole::Cpu, CPU, WITH_STACK)?;
        self.rings.push((ring, CPU));
        self.events.extend([records, samples]);
        Ok(())
    }

    fn know(
        &mut self,
        event: &PerfEvent,
        role: EventRole,
        source: usize,
        shape: SampleLayout,
    ) -> Result<(), SysError> {
        let id = event.id()?;
        self.roles.insert(id, (role, source));
        self.shapes.insert(id, shape);
        Ok(())
    }

    /// Directs an event's records to the sample ring of its CPU.
    fn join(
        &mut self,
        event: PerfEvent,
        role: EventRole,
        source: usize,
        shape: SampleLayout,
    ) -> Result<PerfEvent, SysError> {
        let records = self.events.iter().find(|e| e.cpu() == event.cpu());
        records.map_or(Ok(()), |records| event.write_into(records))?;
        self.know(&event, role, source, shape)?;
        Ok(event)
    }

    /// Opens begins and ends of waits in a separate ring: if it overflows, no samples are lost.
    fn open_locks(&mut self, wanted: &EventOptions, ground: EventOpenContext<'_>) {
        let begin = ground.tracefs.tracepoint("lock/contention_begin");
        let end = ground.tracefs.tracepoint("lock/contention_end");
        let (Some(begin), Some(end)) = (begin.known(), end.known()) else {
            self.sources[LOCKS].state = absent(&begin, "lock:contention_begin (Linux 5.19)");
            return;
        };
        for cpu in ground.cpus {
            if let Err(error) = self.open_locks_of(*cpu, wanted, begin, end) {
                self.sources[LOCKS].state = state_of(&error, ground.guards);
                return;
            }
        }
    }

    fn open_locks_of(
        &mut self,
        cpu: u32,
        wanted: &EventOptions,
        begin: &Tracepoint,
        end: &Tracepoint,
    ) -> Result<(), SysError> {
        let begins = begin.open(PerfSampling::Each, PerfStack::No, cpu)?;
        let ends = end.open(PerfSampling::Each, PerfStack::No, cpu)?;
        let some = PerfSampling::Frequency(LOCK_STACKS_A_SECOND);
        let stacks = begin.open(some, PerfStack::Kernel(LOCK_FRAMES), cpu)?;
        let ring = map(&begins, wanted.buffer, wanted.base)?;
        ends.write_into(&begins)?;
        stacks.write_into(&begins)?;
        let shape = |stack| SampleLayout { stack, raw: true };
        self.know(
            &begins,
            EventRole::LockBegin(begin.clone()),
            LOCKS,
            shape(false),
        )?;
        self.know(&ends, EventRole::LockEnd(end.clone()), LOCKS, shape(false))?;
        self.know(
            &stacks,
            EventRole::LockStack(begin.clone()),
            LOCKS,
            shape(true),
        )?;
        self.rings.push((ring, LOCKS));
        self.events.extend([begins, ends, stacks]);
        Ok(())
    }

    /// Opens a tracepoint on all CPUs, with records in the sample rings.
    fn open_points(
        &mut self,
        name: &str,
        source: usize,
        stack: PerfStack,
        ground: EventOpenContext<'_>,
        role: impl Fn(Tracepoint) -> EventRole,
    ) {
        let found = ground.tracefs.tracepoint(name);
        let Some(point) = found.known() else {
            // A smaller kernel may lack some tracepoints of a source; only without any is the
            // source missing.
            if !self.roles.values().any(|(_, of)| *of == source) {
                self.sources[source].state = absent(&found, &name.replace('/', ":"));
            }
            return;
        };
        let shape = SampleLayout {
            stack: stack != PerfStack::No,
            raw: true,
        };
        for cpu in ground.cpus {
            let opened = point.open(PerfSampling::Each, stack, *cpu);
            match opened.and_then(|event| self.join(event, role(point.clone()), source, shape)) {
                Ok(event) => self.events.push(event),
                Err(error) => {
                    self.sources[source].state = state_of(&error, ground.guards);
                    return;
                }
            }
        }
        self.sources[source].state = SourceState::Used;
    }

    /// Opens or closes page-fault events, and returns true if they are now on. Disabling would not
    /// suffice: while an event exists, every fault of the host searches for it.
    pub fn switch_faults(&mut self, on: bool, cpus: &[u32], guards: &PerfRestrictions) -> bool {
        self.faults.clear();
        if !on || self.sources[FAULTS].state != SourceState::Used {
            return false;
        }
        for cpu in cpus {
            if let Err(error) = self.open_faults(*cpu) {
                self.sources[FAULTS].state = state_of(&error, guards);
                self.faults.clear();
                return false;
            }
        }
        true
    }

    fn open_faults(&mut self, cpu: u32) -> Result<(), SysError> {
        let setup = PerfSetup {
            kind: PerfKind::PageFaults,
            rate: PerfSampling::Frequency(FAULTS_A_SECOND),
            stack: PerfStack::KernelAndUser(FRAMES),
            raw: false,
        };
        let event = PerfEvent::open(&setup, cpu)?;
        let event = self.join(event, EventRole::Fault, FAULTS, WITH_STACK)?;
        event.enable()?;
        self.faults.push(event);
        Ok(())
    }

    pub fn switch(&self, on: bool) -> Result<(), SysError> {
        for event in &self.events {
            match on {
                true => event.enable()?,
                false => event.disable()?,
            }
        }
        Ok(())
    }
}

/// Returns the size of a CPU's ring for all but locks.
pub fn ring_for_samples(for_locks: Bytes) -> Bytes {
    Bytes(for_locks.get() / 4)
}

/// Maps a ring of the given size, or as large as the kernel allows.
fn map(event: &PerfEvent, room: Bytes, base: PageSize) -> Result<PerfRing, SysError> {
    let mut room = room;
    loop {
        match PerfRing::map(event, room, base) {
            Err(_) if room.get() > base.bytes().get().saturating_mul(16) => {
                room = Bytes(room.get() / 2);
            }
            other => return other,
        }
    }
}

fn absent<T>(found: &Fact<T>, what: &str) -> SourceState {
    match found.error() {
        Some(error) => SourceState::refused(error.to_string(), "run as root"),
        None => SourceState::not_here(format!("this kernel has no tracepoint {what}")),
    }
}

pub fn state_of(error: &SysError, guards: &PerfRestrictions) -> SourceState {
    if is_not_here(error.errno) {
        return SourceState::not_here(error.to_string());
    }
    let refused = refusal(error, guards);
    SourceState::refused(refused.message, refused.remedy)
}
