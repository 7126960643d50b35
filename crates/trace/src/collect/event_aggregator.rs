//! Conversion of records to facts in order of time. The rings of the CPUs are read one after the
//! other, so a record waits until every ring has been read up to its time.

use std::collections::HashMap;

use super::locks::{EventOrigin, Locks};
use super::open_events::{EventRole, MEMORY, OpenEvents};
use super::perf_records::{PerfRecord, ProcessRecord, SampleHead, parse};
use super::processes::ProcessTable;
use super::stacks::Stacks;
use crate::model::{CpuMode, EventSource};

type PidTidCpu = (u32, u32, u32);

#[derive(Debug)]
enum QueuedEvent {
    Process(ProcessRecord),
    Sample {
        head: Box<SampleHead>,
        stack: Box<[u64]>,
        fault: bool,
    },
    Lock {
        who: PidTidCpu,
        address: u64,
        part: LockPhase,
    },
    Memory {
        which: usize,
        who: PidTidCpu,
        result: Option<Box<str>>,
        stack: Option<u32>,
    },
    Pin {
        call: &'static str,
        who: PidTidCpu,
        bytes: Option<u64>,
        failed: Option<bool>,
    },
}

#[derive(Debug)]
enum LockPhase {
    Begin { flags: u32 },
    Stack { stack: u32, stands_for: u64 },
    End { result: i32 },
}

#[derive(Debug, Clone, Copy, Default)]
pub struct PinTotals {
    pub calls: u64,
    /// Number of bytes, if it was reported.
    pub bytes: Option<u64>,
    pub failed: Option<u64>,
}

/// Key of a memory-management count: index in [`MEMORY`], result, process, thread, stack.
pub type MemoryEventKey = (usize, Option<Box<str>>, u32, u32, Option<u32>);

#[derive(Debug)]
pub struct EventAggregator {
    waiting: Vec<(u64, QueuedEvent)>,
    pub stacks: Stacks,
    /// The stack without frames, for events whose stack was not sampled.
    pub no_stack: u32,
    pub processes: ProcessTable,
    pub locks: Locks,
    /// CPU samples: (process, thread, stack, mode).
    pub samples: HashMap<(u32, u32, u32, CpuMode), u64>,
    pub faults: HashMap<(u32, u32, u32, CpuMode), u64>,
    pub memory: HashMap<MemoryEventKey, (u64, u64)>,
    /// Pending operations: (name in [`MEMORY`], thread) to time and stack.
    begun: HashMap<(&'static str, u32), (u64, Option<u32>)>,
    /// Calls that pin: (process, thread, call).
    pub pins: HashMap<(u32, u32, &'static str), PinTotals>,
    /// Sources of the numbers, with current counts and losses.
    pub sources: Vec<EventSource>,
}

impl EventAggregator {
    pub fn new(processes: ProcessTable, sources: Vec<EventSource>) -> EventAggregator {
        let mut stacks = Stacks::default();
        EventAggregator {
            waiting: Vec::new(),
            no_stack: stacks.stack(&[]),
            stacks,
            processes,
            locks: Locks::default(),
            samples: HashMap::new(),
            faults: HashMap::new(),
            memory: HashMap::new(),
            begun: HashMap::new(),
            pins: HashMap::new(),
            sources,
        }
    }

    /// Reads all rings, and processes records before `horizon`, the start of the previous reading.
    pub fn drain(&mut self, opened: &mut OpenEvents, horizon: u64) {
        let mut lost_locks = false;
        let (roles, shapes) = (&opened.roles, &opened.shapes);
        for (ring, source) in &mut opened.rings {
            ring.drain(|bytes| {
                let Some(record) = parse(bytes, |id| shapes.get(&id).copied()) else {
                    return;
                };
                if let PerfRecord::Lost { count, .. } = record {
                    self.sources[*source].lost += count;
                    lost_locks |= roles
                        .values()
                        .any(|(r, s)| s == source && matches!(r, EventRole::LockBegin(_)));
                    return;
                }
                self.take(record, roles);
            });
        }
        self.process_until(horizon);
        if lost_locks {
            self.locks.drop_pending();
        }
    }

    fn take(&mut self, record: PerfRecord<'_>, roles: &HashMap<u64, (EventRole, usize)>) {
        let (nanos, what) = match record {
            PerfRecord::Sample { head, stack, raw } => {
                let Some((role, source)) = roles.get(&head.id) else {
                    return;
                };
                // A wait counts as one event, with or without its stack.
                if !matches!(role, EventRole::LockStack(_)) {
                    self.sources[*source].events += 1;
                }
                match self.sampled(role, head, stack, raw) {
                    Some(what) => (head.nanos, what),
                    None => return,
                }
            }
            PerfRecord::Process(nanos, what) => (nanos, QueuedEvent::Process(what)),
            PerfRecord::Lost { .. } | PerfRecord::Other => return,
        };
        self.waiting.push((nanos, what));
    }

    fn sampled(
        &mut self,
        role: &EventRole,
        head: SampleHead,
        stack: Vec<u64>,
        raw: &[u8],
    ) -> Option<QueuedEvent> {
        let who = (head.pid, head.tid, head.cpu);
        Some(match role {
            EventRole::Cpu | EventRole::Fault => QueuedEvent::Sample {
                head: Box::new(head),
                stack: stack.into_boxed_slice(),
                fault: matches!(role, EventRole::Fault),
            },
            EventRole::LockBegin(point)
            | EventRole::LockStack(point)
            | EventRole::LockEnd(point) => QueuedEvent::Lock {
                who,
                address: point.field("lock_addr", raw)?,
                part: match role {
                    EventRole::LockStack(_) => LockPhase::Stack {
                        stack: self.stacks.kernel_stack(&stack),
                        stands_for: head.period,
                    },
                    EventRole::LockEnd(_) => LockPhase::End {
                        result: point.signed("ret", raw)?,
                    },
                    _ => LockPhase::Begin {
                        flags: u32::try_from(point.field("flags", raw)?).ok()?,
                    },
                },
            },
            EventRole::Memory(which, point) => QueuedEvent::Memory {
                which: *which,
                who,
                result: MEMORY[*which].result.and_then(|field| {
                    let value = point.signed(field, raw)?;
                    Some(point.name_of(i64::from(value)).into_boxed_str())
                }),
                stack: (!stack.is_empty()).then(|| self.stacks.kernel_stack(&stack)),
            },
            EventRole::Direct(point) => {
                // IOCB_WRITE (include/linux/fs.h).
                const WRITE: u64 = 1 << 6;
                let write = point.field("ki_flags", raw)? & WRITE != 0;
                QueuedEvent::Pin {
                    call: if write { "direct write" } else { "direct read" },
                    who,
                    bytes: point.field("count", raw),
                    failed: None,
                }
            }
            EventRole::Register(point) => {
                let result = point.field("ret", raw)?.cast_signed();
                QueuedEvent::Pin {
                    call: register_name(point.field("opcode", raw)?)?,
                    who,
                    bytes: None,
                    failed: Some(result < 0),
                }
            }
        })
    }

    pub fn process_until(&mut self, horizon: u64) {
        // A stable sort keeps simultaneous records of one CPU in order.
        self.waiting.sort_by_key(|(nanos, _)| *nanos);
        let ready = self.waiting.partition_point(|(nanos, _)| *nanos < horizon);
        let rest = self.waiting.split_off(ready);
        let ready = std::mem::replace(&mut self.waiting, rest);
        for (nanos, what) in ready {
            self.happened(nanos, what);
        }
    }

    fn happened(&mut self, nanos: u64, what: QueuedEvent) {
        match what {
            QueuedEvent::Process(record) => self.processes.record(nanos, record),
            QueuedEvent::Sample { head, stack, fault } => self.sample(&head, &stack, fault),
            QueuedEvent::Lock { who, address, part } => {
                let who = self.who(nanos, who);
                match part {
                    LockPhase::Begin { flags } => self.locks.begin(who, address, flags),
                    LockPhase::Stack { stack, stands_for } => {
                        self.locks.record_stack(who, address, stack, stands_for);
                    }
                    LockPhase::End { result } => self.locks.end(who, address, result),
                }
            }
            QueuedEvent::Memory {
                which,
                who,
                result,
                stack,
            } => self.remember(nanos, which, who, result, stack),
            QueuedEvent::Pin {
                call,
                who,
                bytes,
                failed,
            } => {
                let place = self.processes.find(who.0);
                let calls = self.pins.entry((place, who.1, call)).or_default();
                calls.calls += 1;
                if let Some(bytes) = bytes {
                    calls.bytes = Some(calls.bytes.unwrap_or(0).saturating_add(bytes));
                }
                if let Some(failed) = failed {
                    calls.failed = Some(calls.failed.unwrap_or(0) + u64::from(failed));
                }
            }
        }
    }

    fn who(&mut self, nanos: u64, (pid, tid, cpu): PidTidCpu) -> EventOrigin {
        EventOrigin {
            nanos,
            process: self.processes.find(pid),
            tid,
            cpu,
        }
    }

    fn sample(&mut self, head: &SampleHead, stack: &[u64], fault: bool) {
        // PERF_RECORD_MISC_KERNEL, _USER (linux/perf_event.h).
        let mode = match head.mode {
            1 => CpuMode::Kernel,
            2 => CpuMode::User,
            _ => CpuMode::Other,
        };
        let place = self.processes.find(head.pid);
        let stack = self
            .processes
            .stack(head.pid, head.nanos, stack, &mut self.stacks);
        let key = (place, head.tid, stack, mode);
        match fault {
            // A fault sample represents all faults since the previous one.
            true => *self.faults.entry(key).or_default() += head.period.max(1),
            false => *self.samples.entry(key).or_default() += 1,
        }
    }

    fn remember(
        &mut self,
        nanos: u64,
        which: usize,
        who: PidTidCpu,
        result: Option<Box<str>>,
        stack: Option<u32>,
    ) {
        let place = self.processes.find(who.0);
        let point = &MEMORY[which];
        match point.begins {
            Some(true) => {
                self.begun.insert((point.name, who.1), (nanos, stack));
            }
            Some(false) => {
                if let Some((since, stack)) = self.begun.remove(&(point.name, who.1)) {
                    let key = (which, result, place, who.1, stack);
                    let (count, time) = self.memory.entry(key).or_default();
                    *count += 1;
                    *time += nanos.saturating_sub(since);
                }
            }
            None => {
                let key = (which, result, place, who.1, stack);
                self.memory.entry(key).or_default().0 += 1;
            }
        }
    }
}

/// Returns the name of `IORING_REGISTER_*` opcodes that pin or unpin memory (linux/io_uring.h).
fn register_name(opcode: u64) -> Option<&'static str> {
    Some(match opcode {
        0 => "io_uring register buffers",
        1 => "io_uring unregister buffers",
        15 => "io_uring register buffers (tagged)",
        16 => "io_uring update buffers",
        30 => "io_uring clone buffers",
        _ => return None,
    })
}
