//! Hardware counters of a running process, where the machine has them.
#![allow(unsafe_code)]
//! # Safety
//! perf_event_open(2) takes a structure by pointer and returns a descriptor that nothing else owns.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};

use perf_event_open_sys as perf;

use crate::kernel::last_errno;
use crate::pagemap::errno_of;
use crate::{Pid, SysError};

/// What to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CounterKind {
    /// CPU cycles in user mode.
    Cycles,
    /// Instructions in user mode.
    Instructions,
    /// Data TLB misses of loads, as the kernel maps the generic event on this CPU.
    DataTlbLoadMisses,
    /// A raw event of this CPU: (type, config), as in `/sys/bus/event_source/devices/cpu/events`.
    Raw(u32, u64),
}

/// A running counter of one thread.
#[derive(Debug)]
pub struct Counter {
    file: File,
}

impl Counter {
    /// Starts counting for one thread on all CPUs (perf_event_open(2)).
    ///
    /// # Errors
    /// ENOENT, EOPNOTSUPP or ENODEV: no such counter on this machine. EACCES or EPERM:
    /// `kernel.perf_event_paranoid` forbids it. ESRCH: no such thread.
    pub fn open(thread: Pid, kind: CounterKind) -> Result<Counter, SysError> {
        let (kind_type, config) = match kind {
            CounterKind::Cycles => (
                perf::bindings::PERF_TYPE_HARDWARE,
                u64::from(perf::bindings::PERF_COUNT_HW_CPU_CYCLES),
            ),
            CounterKind::Instructions => (
                perf::bindings::PERF_TYPE_HARDWARE,
                u64::from(perf::bindings::PERF_COUNT_HW_INSTRUCTIONS),
            ),
            CounterKind::DataTlbLoadMisses => (
                perf::bindings::PERF_TYPE_HW_CACHE,
                u64::from(perf::bindings::PERF_COUNT_HW_CACHE_DTLB)
                    | u64::from(perf::bindings::PERF_COUNT_HW_CACHE_OP_READ) << 8
                    | u64::from(perf::bindings::PERF_COUNT_HW_CACHE_RESULT_MISS) << 16,
            ),
            CounterKind::Raw(kind_type, config) => (kind_type, config),
        };
        let mut attr = perf::bindings::perf_event_attr::default();
        attr.type_ = kind_type;
        attr.size = u32::try_from(std::mem::size_of_val(&attr)).unwrap_or(u32::MAX);
        attr.config = config;
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        let tid = i32::try_from(thread.0).unwrap_or(i32::MAX);
        let cloexec = u64::from(perf::bindings::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: `attr` is initialised, its size is set, and it outlives the call.
        let fd = unsafe { perf::perf_event_open(&raw mut attr, tid, -1, -1, cloexec as _) };
        if fd < 0 {
            return Err(SysError::new(
                "perf_event_open",
                format!("of thread {tid}"),
                last_errno(),
            ));
        }
        // SAFETY: a new descriptor that only this value owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Counter {
            file: File::from(fd),
        })
    }

    /// The count since it was opened.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn read(&mut self) -> Result<u64, SysError> {
        let mut buffer = [0u8; 8];
        self.file
            .read_exact(&mut buffer)
            .map_err(|e| SysError::new("read", "a counter", errno_of(&e)))?;
        Ok(u64::from_ne_bytes(buffer))
    }
}
