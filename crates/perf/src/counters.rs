//! Groups of processor counters for a thread, or for all processes on one CPU.
//!
//! The events of a group occupy registers at the same times, so a ratio of two of them covers the same
//! work. This holds even if groups take turns because the processor has too few registers.
//! [`GroupCount::since`] scales up a count that covers a part of the time. A group that never got
//! registers is reported as unknown.
#![allow(unsafe_code)]
//! # Safety
//! perf_event_open(2) takes a structure by pointer and returns a descriptor that nothing else owns; its
//! ioctls take a number and a descriptor. Writes to our own mapping stay within it.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;

use hugeleaf_units::{Bytes, PageSize};
use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as abi;

use hugeleaf_sys::{Advice, Errno, OwnMapping, Pid, Sharing, SysError, errno_of};

use crate::event::{checked, open_event};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CounterKind {
    Cycles,
    Instructions,
    /// A generic event of caches and TLBs, as the kernel maps it on this CPU:
    /// `cache | operation << 8 | result << 16`.
    Cache(u64),
    /// An event by the vendor's number.
    Raw(u64),
    /// Any kernel event: (type, config). Software events count on every machine.
    Other(u32, u64),
}

impl CounterKind {
    fn type_and_config(self) -> (u32, u64) {
        let hardware = |what: u32| (abi::PERF_TYPE_HARDWARE, u64::from(what));
        match self {
            CounterKind::Cycles => hardware(abi::PERF_COUNT_HW_CPU_CYCLES),
            CounterKind::Instructions => hardware(abi::PERF_COUNT_HW_INSTRUCTIONS),
            CounterKind::Cache(config) => (abi::PERF_TYPE_HW_CACHE, config),
            CounterKind::Raw(config) => (abi::PERF_TYPE_RAW, config),
            CounterKind::Other(kind, config) => (kind, config),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterScope {
    /// A thread in user mode, on any CPU.
    Thread(Pid),
    /// All processes on a CPU, in user and kernel mode.
    Cpu(u32),
}

#[derive(Debug)]
pub struct CounterGroup {
    leader: File,
    others: Vec<File>,
    work: CounterScope,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupCount {
    /// Raw counts, in the order of the requested events.
    pub values: Vec<u64>,
    /// Nanoseconds in which counting was requested. For a thread, only the time in which it ran.
    pub enabled_nanos: u64,
    pub running_nanos: u64,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScaledCounts {
    /// Counts, scaled up to the whole enabled time. Meaningless zeros if `running_nanos` is 0.
    pub values: Vec<f64>,
    /// See [`GroupCount::enabled_nanos`].
    pub enabled_nanos: u64,
    /// See [`GroupCount::running_nanos`].
    pub running_nanos: u64,
}

impl GroupCount {
    /// Returns the counts since an earlier reading of the same group, scaled up from the running time to
    /// the enabled time.
    pub fn since(&self, earlier: &GroupCount) -> ScaledCounts {
        let enabled = self.enabled_nanos.saturating_sub(earlier.enabled_nanos);
        let running = self.running_nanos.saturating_sub(earlier.running_nanos);
        let factor = match running {
            0 => 0.0,
            _ => enabled.max(running) as f64 / running as f64,
        };
        let of = |(at, value): (usize, &u64)| {
            let before = earlier.values.get(at).copied().unwrap_or(0);
            value.saturating_sub(before) as f64 * factor
        };
        ScaledCounts {
            values: self.values.iter().enumerate().map(of).collect(),
            enabled_nanos: enabled,
            running_nanos: running,
        }
    }
}

impl CounterGroup {
    /// Opens the events as one disabled group (perf_event_open(2)).
    ///
    /// # Errors
    /// The error of the first event that was refused. ENOENT, EOPNOTSUPP or ENODEV: this
    /// machine has no such event. EINVAL: more events than the CPU can count at once, or an unknown event
    /// number. EACCES or EPERM: `kernel.perf_event_paranoid` forbids it. ESRCH: no such thread.
    pub fn open(work: CounterScope, kinds: &[CounterKind]) -> Result<CounterGroup, SysError> {
        let mut leader: Option<File> = None;
        let mut others = Vec::new();
        for kind in kinds {
            let file = open_one(work, *kind, leader.as_ref())?;
            match leader {
                None => leader = Some(file),
                Some(_) => others.push(file),
            }
        }
        let none = || SysError::new("perf_event_open", "of no event", Errno::INVAL);
        Ok(CounterGroup {
            leader: leader.ok_or_else(none)?,
            others,
            work,
        })
    }

    /// Starts all events at once.
    ///
    /// # Errors
    /// None on kernels that support the ioctl.
    pub fn enable(&self) -> Result<(), SysError> {
        // SAFETY: the leader is a descriptor that this value owns; the argument is a number.
        let result =
            unsafe { perf::ioctls::ENABLE(self.leader.as_raw_fd(), abi::PERF_IOC_FLAG_GROUP as _) };
        checked("PERF_EVENT_IOC_ENABLE", result, || subject(self.work))
    }

    /// Returns the counts since the start. For a thread that has ended, returns its total.
    ///
    /// # Errors
    /// Errors of read(2).
    pub fn read(&self) -> Result<GroupCount, SysError> {
        let events = 1 + self.others.len();
        let mut buffer = vec![0u8; (3 + events) * 8];
        (&self.leader)
            .read_exact(&mut buffer)
            .map_err(|e| SysError::new("read", "a group of counters", errno_of(&e)))?;
        let word = |chunk: &[u8]| u64::from_ne_bytes(chunk.try_into().unwrap_or_default());
        let mut words = buffer.chunks_exact(8).map(word);
        let _events = words.next();
        let enabled_nanos = words.next().unwrap_or(0);
        let running_nanos = words.next().unwrap_or(0);
        Ok(GroupCount {
            values: words.collect(),
            enabled_nanos,
            running_nanos,
        })
    }
}

fn subject(work: CounterScope) -> String {
    match work {
        CounterScope::Thread(thread) => format!("of thread {thread}"),
        CounterScope::Cpu(cpu) => format!("of all processes on CPU {cpu}"),
    }
}

fn open_one(
    work: CounterScope,
    kind: CounterKind,
    leader: Option<&File>,
) -> Result<File, SysError> {
    let mut attr = abi::perf_event_attr::default();
    (attr.type_, attr.config) = kind.type_and_config();
    attr.read_format = u64::from(abi::PERF_FORMAT_GROUP)
        | u64::from(abi::PERF_FORMAT_TOTAL_TIME_ENABLED)
        | u64::from(abi::PERF_FORMAT_TOTAL_TIME_RUNNING);
    // A group starts with its leader.
    attr.set_disabled(u64::from(leader.is_none()));
    let (thread, cpu) = match work {
        CounterScope::Thread(thread) => {
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
            (i32::try_from(thread.0).unwrap_or(i32::MAX), -1)
        }
        CounterScope::Cpu(cpu) => (-1, i32::try_from(cpu).unwrap_or(i32::MAX)),
    };
    let group = leader.map_or(-1, |leader| leader.as_raw_fd());
    open_event(&mut attr, (thread, cpu), group, || subject(work))
}

/// Tests whether a data TLB event counts anything. Many processors and hypervisors open any raw event and
/// leave it at 0 for ever, which looks like a program without a miss. This function therefore touches new
/// memory of this thread, base page by base page, which no TLB can hold yet. An event that stays at 0
/// does not count.
///
/// # Errors
/// Errors of [`CounterGroup::open`] and [`CounterGroup::read`]; ENOMEM without memory for a few pages;
/// EBUSY if the event never got a register.
pub fn counts_misses(kind: CounterKind, base: PageSize) -> Result<bool, SysError> {
    const PAGES: u64 = 256;
    let work = CounterScope::Thread(own_thread());
    let group = CounterGroup::open(work, &[kind])?;
    let page = base.bytes();
    let mapping = OwnMapping::anonymous(Bytes(PAGES * page.get()), Sharing::Private)?;
    // One huge-page entry would cover all pages. A kernel without THP refuses, which is harmless.
    let _ = mapping.advise(mapping.range(), Advice::NoHugePage);
    group.enable()?;
    mapping.touch(page)?;
    let count = group.read()?;
    match count.running_nanos {
        0 => {
            let subject = "an event that was never scheduled";
            Err(SysError::new("read", subject, Errno::BUSY))
        }
        _ => Ok(count.values.iter().any(|value| *value > 0)),
    }
}

pub fn own_thread() -> Pid {
    Pid(rustix::thread::gettid().as_raw_pid().unsigned_abs())
}

/// A set of events, in groups as large as the processor allows.
#[derive(Debug, Default)]
pub struct CounterGroups {
    groups: Vec<CounterGroup>,
    /// The group of each event, and its position in the group.
    places: Vec<Result<(usize, usize), SysError>>,
}

impl CounterGroups {
    /// Maximum number of events in a group. Processors have four or more general registers. The kernel's
    /// watchdog may hold one for ever, and a group that needs all of them then never runs.
    pub const MAX_EVENTS: usize = 4;

    /// Opens the events, disabled. Groups are filled in this order, so related events must be adjacent.
    /// An event that does not fit into a group starts the next.
    pub fn open(work: CounterScope, kinds: &[CounterKind]) -> CounterGroups {
        let mut all = CounterGroups::default();
        for kind in kinds {
            let place = all.add(work, *kind);
            all.places.push(place);
        }
        all
    }

    fn add(&mut self, work: CounterScope, kind: CounterKind) -> Result<(usize, usize), SysError> {
        let at = self.groups.len();
        if let Some(group) = self.groups.last_mut()
            && group.others.len() + 1 < CounterGroups::MAX_EVENTS
        {
            match open_one(work, kind, Some(&group.leader)) {
                Ok(file) => {
                    group.others.push(file);
                    return Ok((at - 1, group.others.len()));
                }
                // This group may be full.
                Err(e) if matches!(e.errno, Errno::INVAL | Errno::NOSPC) => {}
                Err(e) => return Err(e),
            }
        }
        let group = CounterGroup::open(work, &[kind])?;
        self.groups.push(group);
        Ok((at, 0))
    }

    /// Starts all groups.
    ///
    /// # Errors
    /// None on kernels that support the ioctl.
    pub fn enable(&self) -> Result<(), SysError> {
        self.groups.iter().try_for_each(CounterGroup::enable)
    }

    /// Returns the scaled count of each event since the start, with the times of its group.
    pub fn read(&self) -> Vec<Result<ScaledCounts, SysError>> {
        let start = GroupCount::default();
        let counts: Vec<_> = self.groups.iter().map(CounterGroup::read).collect();
        let of = |(group, place): (usize, usize)| {
            let since = counts[group].clone()?.since(&start);
            Ok(ScaledCounts {
                values: since.values.get(place).copied().into_iter().collect(),
                ..since
            })
        };
        self.places
            .iter()
            .map(|place| place.clone().and_then(of))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(values: &[u64], enabled_nanos: u64, running_nanos: u64) -> GroupCount {
        GroupCount {
            values: values.to_vec(),
            enabled_nanos,
            running_nanos,
        }
    }

    #[test]
    fn what_had_its_turn_for_a_part_is_scaled_by_that_part_of_this_interval() {
        // The counters ran half of the time before, and a quarter since.
        let before = count(&[1000, 500], 100, 50);
        let now = count(&[1100, 540], 200, 75);
        let since = now.since(&before);
        assert_eq!(since.values, [400.0, 160.0]);
        assert_eq!((since.enabled_nanos, since.running_nanos), (100, 25));
        // The ratio of two events of one group is unscaled.
        assert!((since.values[0] / since.values[1] - 100.0 / 40.0).abs() < 1e-9);
    }

    #[test]
    fn what_never_had_its_turn_is_not_a_count() {
        let since = count(&[0, 0], 100, 0).since(&GroupCount::default());
        assert_eq!((since.enabled_nanos, since.running_nanos), (100, 0));
        // A sleeping thread has no enabled time.
        let same = count(&[7], 100, 100);
        assert_eq!(same.since(&same).enabled_nanos, 0);
    }

    /// Software events need no register and exist on every machine.
    #[test]
    fn a_group_counts_from_when_it_is_started() {
        const TASK_CLOCK: CounterKind = CounterKind::Other(1, 1);
        const PAGE_FAULTS: CounterKind = CounterKind::Other(1, 2);
        let work = CounterScope::Thread(own_thread());
        let group = match CounterGroup::open(work, &[TASK_CLOCK, PAGE_FAULTS]) {
            Ok(group) => group,
            Err(e) => {
                println!("not run: a_group_counts_from_when_it_is_started: {e}");
                return;
            }
        };
        assert_eq!(group.read().unwrap().values, [0, 0]);
        group.enable().unwrap();
        let memory = OwnMapping::anonymous(Bytes::from_mib(1), Sharing::Private).unwrap();
        memory.touch(Bytes::from_kib(1)).unwrap();
        let count = group.read().unwrap();
        assert!(count.values[0] > 0 && count.running_nanos > 0, "{count:?}");
        assert_eq!(count.values.len(), 2);
        let refused = CounterGroup::open(work, &[TASK_CLOCK, CounterKind::Other(1, u64::MAX)]);
        assert!(refused.is_err());
        assert!(CounterGroup::open(work, &[]).is_err());
    }

    #[test]
    fn what_cannot_be_opened_does_not_keep_the_others_from_counting() {
        const TASK_CLOCK: CounterKind = CounterKind::Other(1, 1);
        let work = CounterScope::Thread(own_thread());
        let mut kinds = vec![TASK_CLOCK; 6];
        kinds[1] = CounterKind::Other(1, u64::MAX);
        let groups = CounterGroups::open(work, &kinds);
        groups.enable().unwrap();
        let work: u64 = (0..1_000_000u64).fold(0, |a, b| a ^ b.wrapping_mul(a | 1));
        assert!(work != 1);
        let read = groups.read();
        assert_eq!(read.len(), 6);
        if read[0].is_err() {
            println!(
                "not run: what_cannot_be_opened_does_not_keep_the_others_from_counting: needs perf_event_open"
            );
            return;
        }
        let counted: Vec<bool> = read.iter().map(Result::is_ok).collect();
        assert_eq!(counted, [true, false, true, true, true, true]);
        assert_eq!(groups.groups.len(), 2);
        for counted in read.into_iter().flatten() {
            assert!(counted.values[0] > 0.0 && counted.running_nanos > 0);
        }
    }
}
