//! `pin`: the cost of pinning the memory of one transfer, repeatedly. Several threads pin at a time,
//! each on buffers of its own in one space.
//!
//! The kernel offers three methods: mlock(2) and munlock(2), registering a buffer with a ring and
//! unregistering it, and a direct read, which holds the pages while it lasts. The memory is that of
//! [`crate::kits::backup_io`]. The kit does not compare.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use hugeleaf_io::{Direction, Ring, lock_memory, unlock_memory, with_ring};
use hugeleaf_sys::{ResourceUsage, thread_usage};
use hugeleaf_units::{Bytes, Range};

use crate::kits::backup_io::{BackupIoError, DeviceRange, IoEngine, IoMemory, Latency, SyncEngine};
use hugeleaf_workload::latency_histogram::{record, times};

use crate::kits::joined;

/// A method of pinning memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PinMethod {
    /// mlock(2), then munlock(2).
    Mlock,
    /// A buffer registered with io_uring, then unregistered.
    Uring,
    /// A read past the page cache, which holds its pages meanwhile.
    Direct,
}

impl PinMethod {
    pub const ALL: [PinMethod; 3] = [PinMethod::Mlock, PinMethod::Uring, PinMethod::Direct];

    pub const fn name(self) -> &'static str {
        match self {
            PinMethod::Mlock => "mlock",
            PinMethod::Uring => "uring",
            PinMethod::Direct => "direct",
        }
    }
}

impl fmt::Display for PinMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PinMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<PinMethod, String> {
        let found = PinMethod::ALL
            .into_iter()
            .find(|method| method.name() == text);
        found.ok_or_else(|| format!("'{text}' is not a way to pin; write mlock, uring or direct"))
    }
}

#[derive(Debug, Clone, Copy)]
pub struct PinLoad<'a> {
    pub method: PinMethod,
    pub threads: usize,
    pub block: Bytes,
    pub time: Duration,
    /// Area that [`PinMethod::Direct`] reads.
    pub source: Option<&'a DeviceRange>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PinResult {
    /// Number of times that all threads pinned and released a block.
    pub count: u64,
    pub each: Latency,
    pub usage: ResourceUsage,
}

struct PinTimes {
    times: Histogram<u64>,
    usage: ResourceUsage,
}

/// Pins blocks of `memory` for a while.
///
/// # Errors
/// [`BackupIoError`]; nothing is pinned any more then.
pub fn pin<'b>(
    memory: &'b mut IoMemory,
    load: &PinLoad<'b>,
    stop: &AtomicBool,
) -> Result<PinResult, BackupIoError> {
    let block = usize::try_from(load.block.get()).unwrap_or(usize::MAX);
    // Each thread gets every n-th slot, so that all threads use the whole space.
    let mut dealt: Vec<Vec<&'b mut [u8]>> = (0..load.threads).map(|_| Vec::new()).collect();
    for (at, slot) in memory.bytes().chunks_exact_mut(block).enumerate() {
        dealt[at % load.threads.max(1)].push(slot);
    }
    let ready = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let (ready, failed) = (&ready, &failed);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (dealt.into_iter())
            .map(|slots| {
                scope.spawn(move || {
                    let gate = StartBarrier {
                        ready,
                        failed,
                        stop,
                        threads: load.threads,
                    };
                    let done = worker(slots, load, &gate);
                    if done.is_err() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    done
                })
            })
            .collect();
        let (mut all, mut usage) = (times(), ResourceUsage::default());
        for seen in joined(workers)? {
            // Both have the same bounds.
            let _ = all.add(&seen.times);
            usage = usage.and(seen.usage);
        }
        match stop.load(Ordering::Relaxed) {
            true => Err(BackupIoError::Stopped),
            false => Ok(PinResult {
                count: all.len(),
                each: Latency::from_histogram(&all),
                usage,
            }),
        }
    })
}

/// Barrier of the threads at the start, and their check for the end.
struct StartBarrier<'a> {
    ready: &'a AtomicUsize,
    failed: &'a AtomicBool,
    stop: &'a AtomicBool,
    threads: usize,
}

impl StartBarrier<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Waits for all threads, so that none has the memory for itself.
    fn wait(&self) {
        self.ready.fetch_add(1, Ordering::Relaxed);
        while self.ready.load(Ordering::Relaxed) < self.threads && !self.is_over() {
            std::thread::yield_now();
        }
    }
}

fn worker<'b>(
    slots: Vec<&'b mut [u8]>,
    load: &PinLoad<'b>,
    gate: &StartBarrier<'_>,
) -> Result<PinTimes, BackupIoError> {
    match load.method {
        PinMethod::Mlock => {
            gate.wait();
            repeat(slots, load, gate, |slot| {
                lock_memory(slot)?;
                unlock_memory(slot)?;
                Ok(slot)
            })
        }
        PinMethod::Uring => with_ring(1, |ring: &mut Ring<'b>| {
            gate.wait();
            repeat(slots, load, gate, |slot| {
                let start = slot.as_ptr() as u64;
                if let Ok(part) = Range::new(start, start + slot.len() as u64) {
                    ring.register(&[part])?;
                    ring.unregister()?;
                }
                Ok(slot)
            })
        })?,
        PinMethod::Direct => {
            gate.wait();
            let Some(source) = load.source else {
                return repeat(Vec::new(), load, gate, Ok);
            };
            let mut carrier = SyncEngine::new(source, Direction::Read, false);
            repeat(slots, load, gate, |slot| {
                carrier.start(source.take_next(), slot)?;
                match carrier.next()? {
                    Some(done) => Ok(done.buffer),
                    None => Err(BackupIoError::Stopped),
                }
            })
        }
    }
}

/// Number of pins timed together: reading the clock takes a part of the shortest pins.
const TIMED_TOGETHER: u32 = 8;

/// Pins slot after slot until the time is over.
fn repeat<'b>(
    slots: Vec<&'b mut [u8]>,
    load: &PinLoad<'_>,
    gate: &StartBarrier<'_>,
    mut once: impl FnMut(&'b mut [u8]) -> Result<&'b mut [u8], BackupIoError>,
) -> Result<PinTimes, BackupIoError> {
    let mut slots: std::collections::VecDeque<&'b mut [u8]> = slots.into();
    let mut seen = times();
    let before = thread_usage();
    let until = Instant::now() + load.time;
    let mut over = slots.is_empty();
    while !over {
        let began = Instant::now();
        let mut done = 0;
        while done < TIMED_TOGETHER
            && let Some(slot) = slots.pop_front()
        {
            slots.push_back(once(slot)?);
            done += 1;
        }
        let now = Instant::now();
        let each = now.duration_since(began) / done.max(1);
        (0..done).for_each(|_| record(&mut seen, each));
        over = now >= until || gate.is_over();
    }
    Ok(PinTimes {
        times: seen,
        usage: thread_usage().since(before),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kits::backup_io::IoPages;
    use hugeleaf_host::{Root, read_memory_facts};
    use hugeleaf_sys::Kernel;
    use hugeleaf_workload::chase::PageArm;

    #[test]
    fn names_read_back() {
        for method in PinMethod::ALL {
            assert_eq!(method.to_string().parse(), Ok(method));
        }
        assert!("pin".parse::<PinMethod>().is_err());
    }

    #[test]
    fn all_threads_pin_and_nothing_stays_locked() {
        let host = read_memory_facts(&Root::live(), &Kernel::new()).unwrap();
        let pages = IoPages::Pages(PageArm::base(&host));
        let block = host.base_page.bytes();
        let length = Bytes(block.get() * 8);
        let mut memory = IoMemory::take(pages, length, &host, 1).unwrap();
        let load = PinLoad {
            method: PinMethod::Mlock,
            threads: 3,
            block,
            time: Duration::from_millis(5),
            source: None,
        };
        let stop = AtomicBool::new(false);
        let pinned = pin(&mut memory, &load, &stop).unwrap();
        assert!(
            pinned.count >= 3 && pinned.each.count == pinned.count,
            "{pinned:?}"
        );
        let smaps = std::fs::read_to_string("/proc/self/status").unwrap();
        let locked = smaps
            .lines()
            .find(|line| line.starts_with("VmLck"))
            .unwrap();
        assert_eq!(locked.split_whitespace().nth(1), Some("0"), "{locked}");
        stop.store(true, Ordering::Relaxed);
        let stopped = pin(&mut memory, &load, &stop).unwrap_err();
        assert!(matches!(stopped, BackupIoError::Stopped));
    }
}
