//! Kernel events of all processes on one CPU: samples, records, tracepoints. For plain counts, see
//! [`crate::CounterGroup`].
#![allow(unsafe_code)]
//! # Safety
//! perf_event_open(2) takes a structure by pointer and returns a descriptor that nothing else owns;
//! its ioctls take a number, a descriptor, or a pointer to text or to a number that outlives them.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as abi;

use hugeleaf_sys::{Errno, SysError, last_errno};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PerfKind {
    /// A timer of the CPU's clock. Every host has it, and it cannot fire while interrupts are off.
    CpuClock,
    /// CPU cycles. Samples also land where interrupts are off.
    Cycles,
    PageFaults,
    /// A dummy event that carries process records.
    Dummy,
    /// A tracepoint, by the number in its `id` file.
    Tracepoint(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerfSampling {
    /// Samples per second.
    Frequency(u64),
    /// Every occurrence. The kernel cannot combine a sampling period with the period field of a sample: it then
    /// records every occurrence, regardless of the requested period.
    Each,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerfStack {
    /// No stack.
    No,
    /// The kernel stack, with a maximum number of frames.
    Kernel(u16),
    /// The kernel and user stacks, with a maximum number of frames. The user stack needs frame pointers.
    KernelAndUser(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerfSetup {
    pub kind: PerfKind,
    pub rate: PerfSampling,
    pub stack: PerfStack,
    pub raw: bool,
}

/// The layout of the records of a ring, on which the record parser depends. A sample is: id, instruction,
/// process and thread, time (CLOCK_MONOTONIC), CPU, period, then frames and fields where requested. Other
/// records end in process and thread, time, CPU, id.
pub const SAMPLE_TYPE: u64 = abi::PERF_SAMPLE_IDENTIFIER as u64
    | abi::PERF_SAMPLE_IP as u64
    | abi::PERF_SAMPLE_TID as u64
    | abi::PERF_SAMPLE_TIME as u64
    | abi::PERF_SAMPLE_CPU as u64
    | abi::PERF_SAMPLE_PERIOD as u64;

#[derive(Debug)]
pub struct PerfEvent {
    file: File,
    cpu: u32,
    rate: PerfSampling,
}

impl PerfEvent {
    /// Opens an event of all processes on a CPU, disabled (perf_event_open(2)). The kernel refuses a frequency
    /// above `kernel.perf_event_max_sample_rate`, which it lowers if samples take too long. The event then uses
    /// that limit; see [`PerfEvent::rate`].
    ///
    /// # Errors
    /// EACCES or EPERM: `kernel.perf_event_paranoid`, a missing CAP_PERFMON, or kernel lockdown.
    /// ENOENT, EOPNOTSUPP or ENODEV: no such event on this machine. EMFILE: too many descriptors.
    pub fn open(setup: &PerfSetup, cpu: u32) -> Result<PerfEvent, SysError> {
        let mut setup = *setup;
        let on = i32::try_from(cpu).unwrap_or(i32::MAX);
        let subject = || format!("of all processes on CPU {cpu}");
        loop {
            match open_event(&mut attributes(&setup), (-1, on), -1, subject) {
                Err(error) if error.errno == Errno::INVAL => {
                    setup.rate = allowed(setup.rate).ok_or(error)?;
                }
                opened => {
                    let (file, rate) = (opened?, setup.rate);
                    return Ok(PerfEvent { file, cpu, rate });
                }
            }
        }
    }

    pub const fn rate(&self) -> PerfSampling {
        self.rate
    }

    pub const fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns the number that the event's records carry.
    ///
    /// # Errors
    /// None on kernels that support the ioctl.
    pub fn id(&self) -> Result<u64, SysError> {
        let mut id = 0u64;
        // SAFETY: the kernel writes one u64, which `id` is.
        let result = unsafe { perf::ioctls::ID(self.file.as_raw_fd(), &raw mut id) };
        self.checked("PERF_EVENT_IOC_ID", result).map(|()| id)
    }

    /// Enables the event.
    ///
    /// # Errors
    /// Only errors of a broken descriptor.
    pub fn enable(&self) -> Result<(), SysError> {
        // SAFETY: takes no memory.
        let result = unsafe { perf::ioctls::ENABLE(self.file.as_raw_fd(), 0) };
        self.checked("PERF_EVENT_IOC_ENABLE", result)
    }

    /// Disables the event. A tracepoint has a cost until it is dropped.
    ///
    /// # Errors
    /// Only errors of a broken descriptor.
    pub fn disable(&self) -> Result<(), SysError> {
        // SAFETY: takes no memory.
        let result = unsafe { perf::ioctls::DISABLE(self.file.as_raw_fd(), 0) };
        self.checked("PERF_EVENT_IOC_DISABLE", result)
    }

    /// Redirects records into the ring of another event of the same CPU.
    ///
    /// # Errors
    /// EINVAL if the CPUs or the clocks differ.
    pub fn write_into(&self, other: &PerfEvent) -> Result<(), SysError> {
        // SAFETY: both are descriptors that this process owns.
        let result =
            unsafe { perf::ioctls::SET_OUTPUT(self.file.as_raw_fd(), other.file.as_raw_fd()) };
        self.checked("PERF_EVENT_IOC_SET_OUTPUT", result)
    }

    /// Restricts a tracepoint to matching fields, as in `nr == 9 || nr == 10`.
    ///
    /// # Errors
    /// EINVAL for a filter that the tracepoint does not understand.
    pub fn filter(&self, text: &str) -> Result<(), SysError> {
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: the kernel reads a text that ends in zero and outlives the call; it does not
        // write to it, whatever the pointer's type says.
        let result =
            unsafe { perf::ioctls::SET_FILTER(self.file.as_raw_fd(), text.as_ptr().cast_mut()) };
        self.checked("PERF_EVENT_IOC_SET_FILTER", result)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn checked(&self, call: &'static str, result: i32) -> Result<(), SysError> {
        checked(call, result, || format!("on CPU {}", self.cpu))
    }
}

/// Returns the error of an ioctl if its result is negative.
pub(crate) fn checked(
    call: &'static str,
    result: i32,
    subject: impl FnOnce() -> String,
) -> Result<(), SysError> {
    match result < 0 {
        true => Err(SysError::new(call, subject(), last_errno())),
        false => Ok(()),
    }
}

/// Calls perf_event_open(2). CPU -1 means all CPUs, group -1 a group of its own.
pub(crate) fn open_event(
    attr: &mut abi::perf_event_attr,
    (thread, cpu): (i32, i32),
    group: i32,
    subject: impl FnOnce() -> String,
) -> Result<File, SysError> {
    attr.size = u32::try_from(std::mem::size_of_val(attr)).unwrap_or(u32::MAX);
    let cloexec = u64::from(abi::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is initialised, its size is set, and it outlives the call.
    let fd = unsafe { perf::perf_event_open(attr, thread, cpu, group, cloexec as _) };
    checked("perf_event_open", fd, subject)?;
    // SAFETY: a new descriptor that only the file owns.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Returns the kernel's current frequency limit if it is lower than `rate`.
fn allowed(rate: PerfSampling) -> Option<PerfSampling> {
    let PerfSampling::Frequency(asked) = rate else {
        return None;
    };
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?;
    let most: u64 = text.trim().parse().ok()?;
    (0 < most && most < asked).then_some(PerfSampling::Frequency(most))
}

fn attributes(setup: &PerfSetup) -> abi::perf_event_attr {
    let mut attr = abi::perf_event_attr::default();
    (attr.type_, attr.config) = match setup.kind {
        PerfKind::CpuClock => software(abi::PERF_COUNT_SW_CPU_CLOCK),
        PerfKind::PageFaults => software(abi::PERF_COUNT_SW_PAGE_FAULTS),
        PerfKind::Dummy => software(abi::PERF_COUNT_SW_DUMMY),
        PerfKind::Cycles => (
            abi::PERF_TYPE_HARDWARE,
            u64::from(abi::PERF_COUNT_HW_CPU_CYCLES),
        ),
        PerfKind::Tracepoint(id) => (abi::PERF_TYPE_TRACEPOINT, id),
    };
    attr.set_disabled(1);
    match setup.rate {
        PerfSampling::Frequency(a_second) => {
            attr.set_freq(1);
            attr.__bindgen_anon_1.sample_freq = a_second;
        }
        PerfSampling::Each => attr.__bindgen_anon_1.sample_period = 1,
    }
    attr.sample_type = SAMPLE_TYPE;
    match setup.stack {
        PerfStack::No => {}
        PerfStack::Kernel(frames) | PerfStack::KernelAndUser(frames) => {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_CALLCHAIN);
            attr.sample_max_stack = frames;
        }
    }
    if matches!(setup.stack, PerfStack::Kernel(_)) {
        attr.set_exclude_callchain_user(1);
    }
    if setup.raw {
        attr.sample_type |= u64::from(abi::PERF_SAMPLE_RAW);
    }
    if setup.kind == PerfKind::Dummy {
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
    }
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    // No reader waits for single events: the ring is read at intervals.
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = u32::MAX;
    attr
}

fn software(what: u32) -> (u32, u64) {
    (abi::PERF_TYPE_SOFTWARE, u64::from(what))
}

/// Raises the descriptor limit of this process to its hard limit. Each event needs a descriptor, about a dozen
/// per CPU (setrlimit(2)). A failure leaves the limit unchanged.
pub fn allow_many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // If this fails, a host with many CPUs gets an error that names the limit.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Returns the time of the monotonic clock of [`PerfEvent`]s, which never steps (CLOCK_MONOTONIC).
pub fn monotonic_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
