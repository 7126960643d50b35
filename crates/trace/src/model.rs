//! The model of a trace file. Plain data without I/O, independent of any machine's page size.
//!
//! Counts are from the host named in [`Trace::host`]; drawing and judging need nothing else of that
//! host. A field that the host lacks is `None` or missing, never zero; [`Trace::sources`] gives the
//! reason. Bytes are in `*_bytes`, durations in `*_seconds` or `*_nanos`. Times of events count from
//! the start of the trace.
//!
//! [`TracedProcess`], [`Symbol`] and [`Stack`] are referred to by their index in [`Trace::processes`],
//! [`Trace::symbols`] and [`Trace::stacks`], because PIDs are reused.

use serde::{Deserialize, Serialize};

/// The version of the model that this program writes, and the newest that it reads.
pub const SCHEMA: u32 = 2;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trace {
    pub schema: u32,
    pub tool_version: String,
    pub host: TracedHost,
    pub command: Vec<String>,
    /// The target; `None` for the whole host. In either case the whole host is collected.
    pub target: Option<TracedTarget>,
    /// Wall clock at the start, in seconds since 1970 (UTC).
    pub started_unix: u64,
    /// Duration by a monotonic clock.
    pub seconds: f64,
    pub asked_seconds: f64,
    pub ending: TraceEndReason,
    /// A note on a step of the wall clock during the trace, with its size. Durations are unaffected.
    pub clock_note: Option<String>,
    /// Remarks that no number expresses, as whole sentences.
    pub notes: Vec<String>,
    pub sources: Vec<EventSource>,
    /// Processes seen. Those that existed at the start come first.
    pub processes: Vec<TracedProcess>,
    pub intervals: Vec<Interval>,
    pub symbols: Vec<Symbol>,
    pub stacks: Vec<Stack>,
    /// CPU samples per second and CPU, as requested; 0 without samples.
    pub samples_a_second: f64,
    /// The sampling event: `cpu-clock` or `cycles`.
    pub sampled_by: String,
    pub samples: Vec<StackSample>,
    /// Page faults, grouped: `count` is the number of faults that the samples represent.
    pub faults: Vec<StackSample>,
    /// Contended locks by total waiting time, longest first.
    pub locks: Vec<Lock>,
    /// The sum of the locks omitted from [`Trace::locks`] to keep the file small.
    pub other_locks: LockTotals,
    pub other_locks_count: u64,
    /// Events of the memory management, with the processes that caused them.
    pub memory_events: Vec<MemoryEvent>,
    /// The kernel's counters of the memory management: THP, compaction, reclaim.
    pub memory_counters: Vec<MemoryCounter>,
    pub pins: Vec<PinningCalls>,
    pub counters: Vec<HardwareCounter>,
    pub memory_before: Option<MemoryState>,
    pub memory_after: Option<MemoryState>,
    pub throughput: Option<Throughput>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracedHost {
    pub name: String,
    pub kernel: String,
    /// Architecture as named by uname(2).
    pub arch: String,
    pub cpu_model: Option<String>,
    pub cpus: u32,
    pub memory_bytes: Option<u64>,
    pub base_page_bytes: u64,
    /// Size mapped by one PMD entry: a full THP. `None` without THP.
    pub pmd_page_bytes: Option<u64>,
    pub page_sizes: Vec<TracedPageSize>,
    pub nodes: Vec<u32>,
    pub thp_enabled: Option<String>,
    pub thp_shmem_enabled: Option<String>,
    /// True if the host runs under a hypervisor; `None` if unknown.
    pub virtual_machine: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracedPageSize {
    pub page_bytes: u64,
    /// `base`, `thp` or `hugetlb`.
    pub kind: String,
    /// True if the current settings let a process use this size.
    pub enabled: bool,
    pub how: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracedTarget {
    pub text: String,
    /// The PIDs of the target at the start. Later children belong to it too, see
    /// [`TracedProcess::in_target`].
    pub pids: Vec<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceEndReason {
    #[default]
    Done,
    Interrupted,
    TargetEnded,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventSource {
    /// `cpu samples`, `lock contention`, `pinning calls`, …
    pub name: String,
    pub state: SourceState,
    pub events: u64,
    /// Events that the kernel dropped because the ring was full.
    pub lost: u64,
    /// The share of the time in which the source was on, if it was not always on. Its counts are
    /// scaled up from that share.
    pub share_of_time: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum SourceState {
    #[default]
    Used,
    NotHere {
        reason: String,
    },
    /// The host has the source, but refused access.
    Refused {
        /// The reason, with the call or the file.
        reason: String,
        /// The remedy: a setting or a capability, as a command if possible.
        remedy: String,
    },
    Off,
}

impl EventSource {
    pub(crate) fn new(name: &str, state: SourceState) -> EventSource {
        EventSource {
            name: name.to_owned(),
            state,
            ..EventSource::default()
        }
    }
}

impl SourceState {
    pub(crate) fn not_here(reason: impl Into<String>) -> SourceState {
        SourceState::NotHere {
            reason: reason.into(),
        }
    }

    pub(crate) fn refused(reason: impl Into<String>, remedy: impl Into<String>) -> SourceState {
        SourceState::Refused {
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracedProcess {
    pub pid: u32,
    pub parent: u32,
    /// Name of the command at the end.
    pub name: String,
    /// Names before an execve(2), oldest first.
    pub earlier_names: Vec<String>,
    /// Arguments, joined by spaces; empty for a kernel thread and for a process that ended too soon.
    pub command_line: String,
    pub kernel_thread: bool,
    /// True if the process belongs to the target, or descends from a member. Without a target it is
    /// true for all but kernel threads.
    pub in_target: bool,
    /// Start time; `None` if before the start of the trace.
    pub started_seconds: Option<f64>,
    /// End time; `None` if the process outlived the trace.
    pub ended_seconds: Option<f64>,
    /// CPU time in user mode during the trace (`stat`); `None` if unreadable.
    pub user_seconds: Option<f64>,
    pub system_seconds: Option<f64>,
    pub faults_minor: Option<u64>,
    pub faults_major: Option<u64>,
    /// Descriptors open with O_DIRECT at the last scan; for the target only.
    pub direct_files: Option<u64>,
    /// The threads that appear in samples, locks, pins or I/O.
    pub threads: Vec<Thread>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    pub tid: u32,
    pub name: String,
    /// I/O during the trace, for the target's threads. `None` if unreadable.
    pub io: Option<ThreadIo>,
}

/// I/O of a thread (`/proc/PID/task/TID/io`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadIo {
    /// Read calls (`syscr`).
    pub read_calls: u64,
    /// Write calls (`syscw`).
    pub write_calls: u64,
    /// Bytes read by calls, from the page cache too (`rchar`).
    pub read_bytes: u64,
    /// Bytes written by calls (`wchar`).
    pub write_bytes: u64,
    /// Bytes read from a device (`read_bytes`): all direct I/O, and uncached data.
    pub device_read_bytes: u64,
    /// Bytes written to a device (`write_bytes`).
    pub device_write_bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    pub at_seconds: f64,
    pub seconds: f64,
    /// CPU time in user mode, summed over all CPUs, nice included.
    pub user_seconds: f64,
    /// CPU time in the kernel, interrupts included.
    pub system_seconds: f64,
    pub idle_seconds: f64,
    pub wait_seconds: f64,
    pub steal_seconds: f64,
    /// Threads that are running or runnable, at the end (`procs_running`).
    pub runnable: u64,
    /// Threads that are waiting for I/O, at the end (`procs_blocked`).
    pub blocked: u64,
    /// Minor and major faults (`pgfault`).
    pub faults: u64,
    /// Major faults (`pgmajfault`).
    pub faults_major: u64,
    /// Faults by the size of the faulted page. The kernel does not count faults on hugetlb pages, so
    /// they are under the base page.
    pub faults_by_size: Vec<PageSizeCount>,
    pub context_switches: u64,
    pub forks: u64,
    /// Bytes read from devices (`pgpgin`).
    pub page_in_bytes: u64,
    /// Bytes written to devices (`pgpgout`).
    pub page_out_bytes: u64,
    pub swap_in_bytes: u64,
    pub swap_out_bytes: u64,
    pub pressure: Option<Pressure>,
    /// Memory of the host by page size and kind, at the end.
    pub host_by_size: Vec<PageSizeUsage>,
    pub page_tables_bytes: Option<u64>,
    pub target: Option<TargetInterval>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetInterval {
    pub processes: u64,
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub faults_minor: u64,
    pub faults_major: u64,
    /// Memory by page size and kind at the end, from the totals of the processes (a shared page
    /// counts once a process). Empty if it was not read.
    pub by_size: Vec<PageSizeUsage>,
    pub page_tables_bytes: u64,
    /// Locked memory (`VmLck`), at the end.
    pub locked_bytes: u64,
    /// Pinned memory (`VmPin`: buffers registered with io_uring, and those of devices), at the end.
    pub pinned_bytes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
}

/// The share of the interval in which work stalled for lack of a resource (PSI), 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    pub cpu_some: f64,
    pub memory_some: f64,
    pub memory_full: f64,
    pub io_some: f64,
    pub io_full: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageSizeCount {
    pub page_bytes: u64,
    pub count: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageSizeUsage {
    pub page_bytes: u64,
    /// `base`, `thp` or `hugetlb`.
    pub kind: String,
    pub bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Symbol {
    /// The function's demangled name. Without symbols: `[module+0x1234]`.
    pub name: String,
    /// The path of the program or library; `[kernel]` or `[module]` for a kernel module.
    pub module: String,
    pub kernel: bool,
    /// True if the file has no symbol for this address.
    pub unnamed: bool,
}

/// A call stack: innermost function first, kernel frames before user frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// Indices in [`Trace::symbols`].
    pub frames: Vec<u32>,
}

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum CpuMode {
    Kernel,
    #[default]
    User,
    /// A guest, a hypervisor, or not reported.
    Other,
}

/// Samples that differ in time only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StackSample {
    /// Index in [`Trace::processes`].
    pub process: u32,
    pub tid: u32,
    /// Index in [`Trace::stacks`].
    pub stack: u32,
    pub mode: CpuMode,
    pub count: u64,
}

/// The kind of lock, by the flags of the tracepoint.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// A spinlock: the waiter spins.
    Spin,
    RwLockRead,
    RwLockWrite,
    /// A reader-writer semaphore, for reading: the waiter sleeps.
    RwSemRead,
    RwSemWrite,
    Mutex,
    RtMutex,
    PerCpuRwSemRead,
    PerCpuRwSemWrite,
    /// Unknown flags, including locks that sleep without further detail.
    #[default]
    Other,
}

impl LockKind {
    pub const fn name(self) -> &'static str {
        match self {
            LockKind::Spin => "spinlock",
            LockKind::RwLockRead => "rwlock (read)",
            LockKind::RwLockWrite => "rwlock (write)",
            LockKind::RwSemRead => "rwsem (read)",
            LockKind::RwSemWrite => "rwsem (write)",
            LockKind::Mutex => "mutex",
            LockKind::RtMutex => "rt-mutex",
            LockKind::PerCpuRwSemRead => "percpu-rwsem (read)",
            LockKind::PerCpuRwSemWrite => "percpu-rwsem (write)",
            LockKind::Other => "lock",
        }
    }
}

/// Number and duration of waits. Exact, except for callers if some stacks were not sampled
/// ([`Lock::callers_estimated`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockTotals {
    /// Number of waits that ended during the trace.
    pub contentions: u64,
    pub waited_nanos: u64,
    pub longest_nanos: u64,
}

impl LockTotals {
    pub fn add(&mut self, nanos: u64) {
        self.join(&LockTotals {
            contentions: 1,
            waited_nanos: nanos,
            longest_nanos: nanos,
        });
    }

    pub fn join(&mut self, other: &LockTotals) {
        self.contentions = self.contentions.saturating_add(other.contentions);
        self.waited_nanos = self.waited_nanos.saturating_add(other.waited_nanos);
        self.longest_nanos = self.longest_nanos.max(other.longest_nanos);
    }

    pub fn mean_nanos(&self) -> Option<u64> {
        self.waited_nanos.checked_div(self.contentions)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lock {
    pub address: u64,
    /// The kind of lock; of several kinds, the one with the longest waits.
    pub kind: LockKind,
    /// The name of a static lock.
    pub name: Option<String>,
    /// Index in [`Trace::symbols`]: the function with the longest total wait of those known, the first
    /// frame outside the lock's own code. `None` if no caller is known.
    pub taken_by: Option<u32>,
    pub totals: LockTotals,
    /// Waits that ended without the lock (a signal, a timeout). They count in `totals`.
    pub failed: u64,
    pub by_caller: Vec<LockCaller>,
    /// True if stacks were sampled for some waits only. `by_caller` then divides the exact totals by
    /// the sampled stacks, and its longest waits are those of samples.
    pub callers_estimated: bool,
    pub by_thread: Vec<LockThread>,
    pub events: Vec<LockEvent>,
    /// Events of this lock that are not in `events`.
    pub events_left_out: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockCaller {
    /// Index in [`Trace::stacks`]: the whole stack, lock code included.
    pub stack: u32,
    /// Index in [`Trace::symbols`]: the first frame outside the lock's own code.
    pub function: Option<u32>,
    pub kind: LockKind,
    pub totals: LockTotals,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockThread {
    /// Index in [`Trace::processes`].
    pub process: u32,
    pub tid: u32,
    pub totals: LockTotals,
}

/// An event of a lock. The kernel reports neither uncontended acquisitions nor releases; the end of
/// a wait implies a release.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockEvent {
    pub at_nanos: u64,
    /// Index in [`Trace::processes`].
    pub process: u32,
    pub tid: u32,
    pub cpu: u32,
    pub what: LockAction,
    /// Duration of a wait, at its end.
    pub waited_nanos: u64,
    /// Index in [`Trace::symbols`] of the acquiring function, if the stack was sampled.
    pub function: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockAction {
    /// The thread found the lock taken and waits.
    #[default]
    Waits,
    Got,
    GaveUp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryEvent {
    /// `collapse`, `compaction stall`, `direct reclaim`, `tlb flush`, …
    pub name: String,
    /// Further detail from the kernel: a result (`succeeded`), a reason (`remote shootdown`).
    pub detail: String,
    /// Index in [`Trace::processes`]; `None` if processes are not distinguished.
    pub process: Option<u32>,
    pub tid: Option<u32>,
    /// Index in [`Trace::stacks`], if the stack was sampled.
    pub stack: Option<u32>,
    pub count: u64,
    /// Number of base pages, if the event reports it.
    pub pages: Option<u64>,
    /// Duration, if the event has an end.
    pub nanos: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryCounter {
    /// The kernel's name (`thp_fault_alloc`); for a single size `64K anon_fault_alloc`.
    pub name: String,
    /// The page size, if the counter is for a single size.
    pub page_bytes: Option<u64>,
    pub by_interval: Vec<u64>,
    pub total: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinningCalls {
    /// Index in [`Trace::processes`].
    pub process: u32,
    pub tid: u32,
    /// `mlock`, `munlock`, `io_uring register buffers`, `direct read`, …
    pub call: String,
    pub calls: u64,
    /// Number of bytes; `None` if the call does not report it (mlockall).
    pub bytes: Option<u64>,
    /// Number of failed calls; `None` if results were not observed.
    pub failed: Option<u64>,
    /// True if counted for part of the time and scaled up; [`EventSource::share_of_time`] is that part.
    pub estimated: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HardwareCounter {
    /// The generic name, identical on all hosts: `cycles`, `instructions`, `dtlb_load_misses`,
    /// `itlb_misses`, `page_walk_cycles`, …
    pub name: String,
    /// The name on this CPU, such as `DTLB_LOAD_MISSES.WALK_ACTIVE`.
    pub event: String,
    pub state: SourceState,
    /// The count, scaled up if the event shared a register.
    pub value: Option<u64>,
    /// The share of the time in which the event was counted.
    pub running_share: Option<f64>,
}

/// Memory at one time, as `hugeleaf mem` shows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryState {
    /// Time of the reading; may be before the start.
    pub at_seconds: f64,
    /// The host's memory by page size and kind; a shared page counts once.
    pub by_page_size: Vec<PageSizeUsage>,
    pub page_tables_bytes: Option<u64>,
    pub pools: Vec<PoolState>,
    pub processes: Vec<ProcessMemory>,
    /// PIDs of unreadable processes, with the reason.
    pub unread: Vec<(u32, String)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolState {
    pub page_bytes: u64,
    pub total: u64,
    pub free: u64,
    /// Pages reserved and not yet touched.
    pub reserved: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessMemory {
    pub pid: u32,
    pub name: String,
    pub in_target: bool,
    /// Resident memory, hugetlb pages included.
    pub resident_bytes: u64,
    pub locked_bytes: u64,
    pub pinned_bytes: u64,
    pub page_tables_bytes: u64,
    /// Memory by page size and kind; `None` if it was inaccessible.
    pub by_page_size: Option<Vec<PageSizeUsage>>,
    /// Segments, for the target's processes only.
    pub segments: Vec<SegmentMemory>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SegmentMemory {
    pub start: u64,
    pub end: u64,
    /// `text`, `data`, `heap`, `anon`, `stack`, `thread stack`, `shm`, `file`, `vdso`.
    pub role: String,
    /// Path or name; empty for plain anonymous memory.
    pub name: String,
    pub resident_bytes: u64,
    pub locked_bytes: u64,
    /// The process's request: `advised huge`, `hugetlb 2M`; empty without one.
    pub asked: String,
    pub by_page_size: Vec<PageSizeUsage>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Throughput {
    /// The unit: `MB/s`, `transactions/s`.
    pub unit: String,
    pub source: String,
    pub value: f64,
}
