//! The model: what a trace file holds. Plain data, no I/O, no page size of any machine.
//!
//! What is counted here was counted on the host that is named in [`Trace::host`]; whoever draws or
//! judges it needs nothing of that host. A field that a host does not have is `None` or missing,
//! never zero; why it is missing stands in [`Trace::sources`]. Bytes are in `*_bytes`, lengths of
//! time in `*_seconds` or `*_nanos`; times of events count from the start of the trace.
//!
//! [`Process`], [`Symbol`] and [`Stack`] are referred to by their place in [`Trace::processes`],
//! [`Trace::symbols`] and [`Trace::stacks`], because ids of processes are used again.

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
    /// What was pointed at; `None` for the whole host. Whatever it is, the whole host is collected.
    pub target: Option<TracedTarget>,
    /// Wall clock at the start, in seconds since 1970 (UTC).
    pub started_unix: u64,
    /// How long it took, by a clock that does not step.
    pub seconds: f64,
    pub asked_seconds: f64,
    pub ending: Ending,
    /// The wall clock stepped meanwhile: by how much, in words. Lengths are not affected.
    pub clock_note: Option<String>,
    /// Things that a reader should know and no number says, as whole sentences.
    pub notes: Vec<String>,
    pub sources: Vec<Source>,
    /// Processes that were seen. Those that were there at the start come first.
    pub processes: Vec<Process>,
    pub intervals: Vec<Interval>,
    pub symbols: Vec<Symbol>,
    pub stacks: Vec<Stack>,
    /// CPU samples per second and CPU, as asked for; 0 where there are none.
    pub samples_a_second: f64,
    /// The event that samples are taken by: `cpu-clock` or `cycles`.
    pub sampled_by: String,
    pub samples: Vec<Sample>,
    /// Page faults, grouped: `count` is how many faults the samples stand for.
    pub faults: Vec<Sample>,
    /// Locks that were waited for, by time waited, longest first.
    pub locks: Vec<Lock>,
    /// Locks that are left out of [`Trace::locks`] to keep the file small, summed up.
    pub other_locks: LockTotals,
    pub other_locks_count: u64,
    /// What the memory management did, with who made it do so.
    pub memory_events: Vec<MemoryEvent>,
    /// Counters of the kernel for the memory management: THP, compaction, reclaim.
    pub memory_counters: Vec<MemoryCounter>,
    pub pins: Vec<Pin>,
    pub counters: Vec<Counter>,
    pub memory_before: Option<MemoryState>,
    pub memory_after: Option<MemoryState>,
    pub throughput: Option<Throughput>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracedHost {
    pub name: String,
    pub kernel: String,
    /// Architecture as uname(2) names it.
    pub arch: String,
    pub cpu_model: Option<String>,
    pub cpus: u32,
    pub memory_bytes: Option<u64>,
    pub base_page_bytes: u64,
    /// What one entry of a page middle directory maps: a full THP. `None` without THP.
    pub pmd_page_bytes: Option<u64>,
    pub page_sizes: Vec<PageSizeKind>,
    pub nodes: Vec<u32>,
    pub thp_enabled: Option<String>,
    pub thp_shmem_enabled: Option<String>,
    /// Whether it runs under a hypervisor, where that can be determined.
    pub virtual_machine: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageSizeKind {
    pub page_bytes: u64,
    /// `base`, `thp` or `hugetlb`.
    pub kind: String,
    /// Whether a program could get one by the settings in force.
    pub enabled: bool,
    pub how: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracedTarget {
    pub text: String,
    /// The processes that it meant at the start. Children that they make meanwhile belong to it
    /// too: see [`Process::in_target`].
    pub pids: Vec<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    #[default]
    Done,
    Interrupted,
    TargetEnded,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    /// `cpu samples`, `lock contention`, `pinning calls`, …
    pub name: String,
    pub state: SourceState,
    pub events: u64,
    /// Events that the kernel dropped because nobody read them in time.
    pub lost: u64,
    /// The part of the time in which it was on, where that is less than all: its counts are of
    /// that part, scaled up.
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
    /// The host has it and would not give it.
    Refused {
        /// Why, with the call or the file.
        reason: String,
        /// What to do: the setting or the capability, as a command where there is one.
        remedy: String,
    },
    Off,
}

impl Source {
    pub(crate) fn new(name: &str, state: SourceState) -> Source {
        Source {
            name: name.to_owned(),
            state,
            ..Source::default()
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
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// Name of the command at the end.
    pub name: String,
    /// Names that it had before an execve(2), oldest first.
    pub earlier_names: Vec<String>,
    /// Arguments, joined by spaces; empty for a thread of the kernel and where it was gone too soon.
    pub command_line: String,
    pub kernel_thread: bool,
    /// Whether it belongs to the target, or descends from one that does. True of all without a
    /// target.
    pub in_target: bool,
    /// When it was made; `None` if before the start.
    pub started_seconds: Option<f64>,
    /// When it ended; `None` if it was still there.
    pub ended_seconds: Option<f64>,
    /// CPU time in user mode meanwhile (`stat`); `None` where it could not be read.
    pub user_seconds: Option<f64>,
    pub system_seconds: Option<f64>,
    pub faults_minor: Option<u64>,
    pub faults_major: Option<u64>,
    /// Descriptors open with O_DIRECT, as last seen; looked at for the target only.
    pub direct_files: Option<u64>,
    /// Its threads, those that appear in samples, locks, pins or I/O.
    pub threads: Vec<Thread>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    pub tid: u32,
    pub name: String,
    /// I/O meanwhile; read for the target's threads. `None` where it could not be read.
    pub io: Option<ThreadIo>,
}

/// I/O of a thread (`/proc/PID/task/TID/io`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadIo {
    /// Calls that read (`syscr`).
    pub read_calls: u64,
    /// Calls that write (`syscw`).
    pub write_calls: u64,
    /// Bytes that they read, the page cache included (`rchar`).
    pub read_bytes: u64,
    /// Bytes that they wrote (`wchar`).
    pub write_bytes: u64,
    /// Bytes fetched from a device (`read_bytes`): all of direct I/O, and what was not cached.
    pub device_read_bytes: u64,
    /// Bytes sent to a device (`write_bytes`).
    pub device_write_bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    pub at_seconds: f64,
    pub seconds: f64,
    /// CPU time in user mode, of all CPUs together, nice included.
    pub user_seconds: f64,
    /// In the kernel, interrupts included.
    pub system_seconds: f64,
    pub idle_seconds: f64,
    pub wait_seconds: f64,
    pub steal_seconds: f64,
    /// Threads that ran or could run, at the end (`procs_running`).
    pub runnable: u64,
    /// Threads that waited for I/O, at the end (`procs_blocked`).
    pub blocked: u64,
    /// Minor and major faults (`pgfault`).
    pub faults: u64,
    /// Major faults (`pgmajfault`).
    pub faults_major: u64,
    /// Faults by the size of page that they brought in. Faults on hugetlb pages are counted nowhere
    /// by the kernel and stand under the base page.
    pub faults_by_size: Vec<SizeCount>,
    pub context_switches: u64,
    pub forks: u64,
    /// From devices (`pgpgin`).
    pub page_in_bytes: u64,
    /// To devices (`pgpgout`).
    pub page_out_bytes: u64,
    pub swap_in_bytes: u64,
    pub swap_out_bytes: u64,
    pub pressure: Option<Pressure>,
    /// Memory of the host by page size and kind, at the end.
    pub host_by_size: Vec<Held>,
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
    /// Its memory by page size and kind, at the end, from the totals of its processes (a shared
    /// page counts once a process). Empty where it was not read.
    pub by_size: Vec<Held>,
    pub page_tables_bytes: u64,
    /// What it holds locked (`VmLck`), at the end.
    pub locked_bytes: u64,
    /// What it holds pinned (`VmPin`: buffers that are registered with io_uring, and devices'), at
    /// the end.
    pub pinned_bytes: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
}

/// The share of the interval in which work stood still for want of something (PSI), 0 to 1.
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
pub struct SizeCount {
    pub page_bytes: u64,
    pub count: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    pub page_bytes: u64,
    /// `base`, `thp` or `hugetlb`.
    pub kind: String,
    pub bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Symbol {
    /// Its name, demangled. Without symbols: `[module+0x1234]`.
    pub name: String,
    /// The program or library, as a path; `[kernel]` or `[module]` of a kernel module.
    pub module: String,
    pub kernel: bool,
    /// The file had no symbols for this address.
    pub unnamed: bool,
}

/// A call stack: the innermost function first, frames of the kernel before those of the program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// Places in [`Trace::symbols`].
    pub frames: Vec<u32>,
}

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    Kernel,
    #[default]
    User,
    /// A guest, a hypervisor, or not reported.
    Other,
}

/// Samples that agree in all but time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Place in [`Trace::processes`].
    pub process: u32,
    pub tid: u32,
    /// Place in [`Trace::stacks`].
    pub stack: u32,
    pub mode: Mode,
    pub count: u64,
}

/// What kind of lock, by the flags of the tracepoint.
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
    /// Flags that are none of these (also what sleeps and says no more).
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

/// How often and how long something was waited for. Exact, but for callers where not every wait's
/// stack was taken ([`Lock::callers_estimated`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockTotals {
    /// How often somebody had to wait and the wait ended meanwhile.
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
    /// What sort; where it was taken in several ways, the one that was waited for longest.
    pub kind: LockKind,
    /// Its name, where it is a static one.
    pub name: Option<String>,
    /// Place in [`Trace::symbols`]: the function that waited longest in taking it, the first frame
    /// outside the lock's own code.
    pub taken_by: Option<u32>,
    pub totals: LockTotals,
    /// Waits that ended without the lock (a signal, a timeout). They count in `totals`.
    pub failed: u64,
    pub by_caller: Vec<LockCaller>,
    /// The stacks of some waits stand for those of all: `by_caller` says how the totals, which are
    /// exact, are shared out, and its longest waits are of those that were looked at.
    pub callers_estimated: bool,
    pub by_thread: Vec<LockThread>,
    pub events: Vec<LockEvent>,
    /// Events of this lock that are not in `events`.
    pub events_left_out: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockCaller {
    /// Place in [`Trace::stacks`]: the whole way there, lock code included.
    pub stack: u32,
    /// Place in [`Trace::symbols`]: the first frame outside the lock's own code.
    pub function: Option<u32>,
    pub kind: LockKind,
    pub totals: LockTotals,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockThread {
    /// Place in [`Trace::processes`].
    pub process: u32,
    pub tid: u32,
    pub totals: LockTotals,
}

/// One thing that happened to a lock. The kernel tells nothing of a lock that is free when it is
/// taken, and nothing of a release: the end of a wait is the proof of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockEvent {
    pub at_nanos: u64,
    /// Place in [`Trace::processes`].
    pub process: u32,
    pub tid: u32,
    pub cpu: u32,
    pub what: LockAction,
    /// For the end of a wait: how long it was.
    pub waited_nanos: u64,
    /// Place in [`Trace::symbols`] of the function that takes it, where the stack was taken.
    pub function: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockAction {
    /// The thread found it taken and waits.
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
    /// What more the kernel said: a result (`succeeded`), a reason (`remote shootdown`).
    pub detail: String,
    /// Place in [`Trace::processes`]; `None` where it is not distinguished by process.
    pub process: Option<u32>,
    pub tid: Option<u32>,
    /// Place in [`Trace::stacks`], where one was taken.
    pub stack: Option<u32>,
    pub count: u64,
    /// Base pages that it spoke of, where it does.
    pub pages: Option<u64>,
    /// Time that it took, where it has an end.
    pub nanos: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryCounter {
    /// As the kernel names it (`thp_fault_alloc`); for a single size `64K anon_fault_alloc`.
    pub name: String,
    /// The page size that it speaks of, where it is of one.
    pub page_bytes: Option<u64>,
    pub by_interval: Vec<u64>,
    pub total: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pin {
    /// Place in [`Trace::processes`].
    pub process: u32,
    pub tid: u32,
    /// `mlock`, `munlock`, `io_uring register buffers`, `direct read`, …
    pub call: String,
    pub calls: u64,
    /// Of how many bytes; `None` where the call does not report it (mlockall).
    pub bytes: Option<u64>,
    /// How many failed; `None` where the result was not seen.
    pub failed: Option<u64>,
    /// Counted in a part of the time and scaled up; the part is in [`Source::share_of_time`].
    pub estimated: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counter {
    /// Its generic name, the same on all hosts: `cycles`, `instructions`, `dtlb_load_misses`,
    /// `itlb_misses`, `page_walk_cycles`, …
    pub name: String,
    /// What this CPU calls it, as in `DTLB_LOAD_MISSES.WALK_ACTIVE`.
    pub event: String,
    pub state: SourceState,
    /// The count, scaled up where it shared a register.
    pub value: Option<u64>,
    /// The part of the time in which it was counted.
    pub running_share: Option<f64>,
}

/// Memory at one time, as `hugeleaf mem` shows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryState {
    /// When; may be before the start.
    pub at_seconds: f64,
    /// The host's memory by page size and kind; a shared page once.
    pub by_page_size: Vec<Held>,
    pub page_tables_bytes: Option<u64>,
    pub pools: Vec<PoolState>,
    pub processes: Vec<ProcessMemory>,
    /// Processes that could not be read: id and why.
    pub unread: Vec<(u32, String)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolState {
    pub page_bytes: u64,
    pub total: u64,
    pub free: u64,
    /// Promised and not yet touched.
    pub reserved: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessMemory {
    pub pid: u32,
    pub name: String,
    pub in_target: bool,
    /// Resident, hugetlb pages included.
    pub resident_bytes: u64,
    pub locked_bytes: u64,
    pub pinned_bytes: u64,
    pub page_tables_bytes: u64,
    /// By page size and kind; `None` where it was hidden.
    pub by_page_size: Option<Vec<Held>>,
    /// Its segments; of the target's processes only.
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
    /// What the program asked for in words: `advised huge`, `hugetlb 2M`; empty for nothing.
    pub asked: String,
    pub by_page_size: Vec<Held>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Throughput {
    /// What: `MB/s`, `transactions/s`.
    pub unit: String,
    pub source: String,
    pub value: f64,
}
