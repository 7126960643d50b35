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

/// Everything that was collected together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trace {
    /// Version of this model; see [`SCHEMA`].
    pub schema: u32,
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// The host.
    pub host: TracedHost,
    /// The exact command.
    pub command: Vec<String>,
    /// What was pointed at; `None` for the whole host. Whatever it is, the whole host is collected.
    pub target: Option<TracedTarget>,
    /// Wall clock at the start, in seconds since 1970 (UTC).
    pub started_unix: u64,
    /// How long it took, by a clock that does not step.
    pub seconds: f64,
    /// How long it was to take.
    pub asked_seconds: f64,
    /// Why it ended.
    pub ending: Ending,
    /// The wall clock stepped meanwhile: by how much, in words. Lengths are not affected.
    pub clock_note: Option<String>,
    /// Things that a reader should know and no number says, as whole sentences.
    pub notes: Vec<String>,
    /// Where the numbers came from, and what was unavailable.
    pub sources: Vec<Source>,
    /// Processes that were seen. Those that were there at the start come first.
    pub processes: Vec<Process>,
    /// One a second.
    pub intervals: Vec<Interval>,
    /// Functions.
    pub symbols: Vec<Symbol>,
    /// Call stacks.
    pub stacks: Vec<Stack>,
    /// CPU samples per second and CPU, as asked for; 0 where there are none.
    pub samples_a_second: f64,
    /// The event that samples are taken by: `cpu-clock` or `cycles`.
    pub sampled_by: String,
    /// CPU samples, grouped.
    pub samples: Vec<Sample>,
    /// Page faults, grouped: `count` is how many faults the samples stand for.
    pub faults: Vec<Sample>,
    /// Locks that were waited for, by time waited, longest first.
    pub locks: Vec<Lock>,
    /// Locks that are left out of [`Trace::locks`] to keep the file small, summed up.
    pub other_locks: LockTotals,
    /// How many locks are summed up there.
    pub other_locks_count: u64,
    /// What the memory management did, with who made it do so.
    pub memory_events: Vec<MemoryEvent>,
    /// Counters of the kernel for the memory management: THP, compaction, reclaim.
    pub memory_counters: Vec<MemoryCounter>,
    /// Calls that pin or lock memory.
    pub pins: Vec<Pin>,
    /// Counters of the CPU.
    pub counters: Vec<Counter>,
    /// `mem` before.
    pub memory_before: Option<MemoryState>,
    /// `mem` after.
    pub memory_after: Option<MemoryState>,
    /// What the traced program reported of itself, where it was asked (throughput and the like).
    pub throughput: Option<Throughput>,
}

/// The host that was traced.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracedHost {
    /// Its name.
    pub name: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Architecture as uname(2) names it.
    pub arch: String,
    /// Model of the CPU.
    pub cpu_model: Option<String>,
    /// CPUs that were online.
    pub cpus: u32,
    /// Memory in all.
    pub memory_bytes: Option<u64>,
    /// The smallest page.
    pub base_page_bytes: u64,
    /// What one entry of a page middle directory maps: a full THP. `None` without THP.
    pub pmd_page_bytes: Option<u64>,
    /// Every page size of every kind.
    pub page_sizes: Vec<PageSizeKind>,
    /// Nodes that have memory.
    pub nodes: Vec<u32>,
    /// THP's `enabled`.
    pub thp_enabled: Option<String>,
    /// THP's `shmem_enabled`.
    pub thp_shmem_enabled: Option<String>,
    /// Whether it runs under a hypervisor, where that can be determined.
    pub virtual_machine: Option<bool>,
}

/// A page size of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageSizeKind {
    /// The size.
    pub page_bytes: u64,
    /// `base`, `thp` or `hugetlb`.
    pub kind: String,
    /// Whether a program could get one by the settings in force.
    pub enabled: bool,
    /// The settings in words.
    pub how: String,
}

/// What the trace was pointed at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TracedTarget {
    /// As it was typed.
    pub text: String,
    /// The processes that it meant at the start. Children that they make meanwhile belong to it
    /// too: see [`Process::in_target`].
    pub pids: Vec<u32>,
}

/// Why a trace ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The time was over.
    #[default]
    Done,
    /// Ctrl-C.
    Interrupted,
    /// The last process of the target ended.
    TargetEnded,
}

/// Where numbers come from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    /// `cpu samples`, `lock contention`, `pinning calls`, …
    pub name: String,
    /// Whether it was used.
    pub state: SourceState,
    /// Events that were read.
    pub events: u64,
    /// Events that the kernel dropped because nobody read them in time.
    pub lost: u64,
    /// The part of the time in which it was on, where that is less than all: its counts are of
    /// that part, scaled up.
    pub share_of_time: Option<f64>,
}

/// Whether a source was used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum SourceState {
    /// Yes.
    #[default]
    Used,
    /// This host does not have it.
    NotHere {
        /// Why.
        reason: String,
    },
    /// The host has it and would not give it.
    Refused {
        /// Why, with the call or the file.
        reason: String,
        /// What to do: the setting or the capability, as a command where there is one.
        remedy: String,
    },
    /// It was switched off by a flag.
    Off,
}

impl Source {
    /// A source of that name, of which nothing is counted.
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

/// A process that was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's id.
    pub parent: u32,
    /// Name of the command at the end.
    pub name: String,
    /// Names that it had before an execve(2), oldest first.
    pub earlier_names: Vec<String>,
    /// Arguments, joined by spaces; empty for a thread of the kernel and where it was gone too soon.
    pub command_line: String,
    /// A thread of the kernel.
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
    /// CPU time in the kernel.
    pub system_seconds: Option<f64>,
    /// Minor faults meanwhile.
    pub faults_minor: Option<u64>,
    /// Major faults meanwhile.
    pub faults_major: Option<u64>,
    /// Descriptors open with O_DIRECT, as last seen; looked at for the target only.
    pub direct_files: Option<u64>,
    /// Its threads, those that appear in samples, locks, pins or I/O.
    pub threads: Vec<Thread>,
}

/// A thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// Its id.
    pub tid: u32,
    /// Its name.
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

/// What the host did in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// When it began.
    pub at_seconds: f64,
    /// How long it was.
    pub seconds: f64,
    /// CPU time in user mode, of all CPUs together, nice included.
    pub user_seconds: f64,
    /// In the kernel, interrupts included.
    pub system_seconds: f64,
    /// Idle.
    pub idle_seconds: f64,
    /// Idle while I/O was outstanding.
    pub wait_seconds: f64,
    /// Taken by the hypervisor.
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
    /// Context switches.
    pub context_switches: u64,
    /// Processes and threads made.
    pub forks: u64,
    /// From devices (`pgpgin`).
    pub page_in_bytes: u64,
    /// To devices (`pgpgout`).
    pub page_out_bytes: u64,
    /// From swap.
    pub swap_in_bytes: u64,
    /// To swap.
    pub swap_out_bytes: u64,
    /// Pressure; `None` where the kernel has none.
    pub pressure: Option<Pressure>,
    /// Memory of the host by page size and kind, at the end.
    pub host_by_size: Vec<Held>,
    /// All page tables, at the end.
    pub page_tables_bytes: Option<u64>,
    /// The target's.
    pub target: Option<TargetInterval>,
}

/// What the target did in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetInterval {
    /// Its processes, at the end.
    pub processes: u64,
    /// Its CPU time in user mode.
    pub user_seconds: f64,
    /// Its CPU time in the kernel.
    pub system_seconds: f64,
    /// Its minor faults.
    pub faults_minor: u64,
    /// Its major faults.
    pub faults_major: u64,
    /// Its memory by page size and kind, at the end, from the totals of its processes (a shared
    /// page counts once a process). Empty where it was not read.
    pub by_size: Vec<Held>,
    /// Its page tables.
    pub page_tables_bytes: u64,
    /// What it holds locked (`VmLck`), at the end.
    pub locked_bytes: u64,
    /// What it holds pinned (`VmPin`: buffers that are registered with io_uring, and devices'), at
    /// the end.
    pub pinned_bytes: u64,
    /// Bytes that its threads read.
    pub read_bytes: u64,
    /// Bytes that its threads wrote.
    pub write_bytes: u64,
}

/// The share of the interval in which work stood still for want of something (PSI), 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// Some thread waited for a CPU.
    pub cpu_some: f64,
    /// Some thread waited for memory.
    pub memory_some: f64,
    /// All threads did.
    pub memory_full: f64,
    /// Some thread waited for I/O.
    pub io_some: f64,
    /// All threads did.
    pub io_full: f64,
}

/// A number of things of one page size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizeCount {
    /// The size.
    pub page_bytes: u64,
    /// How many.
    pub count: u64,
}

/// Bytes on pages of one size and kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// The size.
    pub page_bytes: u64,
    /// `base`, `thp` or `hugetlb`.
    pub kind: String,
    /// How much.
    pub bytes: u64,
}

/// A function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Symbol {
    /// Its name, demangled. Without symbols: `[module+0x1234]`.
    pub name: String,
    /// The program or library, as a path; `[kernel]` or `[module]` of a kernel module.
    pub module: String,
    /// Whether it is the kernel's.
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

/// What a CPU did when it was looked at.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The kernel ran.
    Kernel,
    /// The program ran.
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
    /// The thread.
    pub tid: u32,
    /// Place in [`Trace::stacks`].
    pub stack: u32,
    /// Who ran.
    pub mode: Mode,
    /// How many.
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
    /// A spinning reader-writer lock, for reading.
    RwLockRead,
    /// A spinning reader-writer lock, for writing.
    RwLockWrite,
    /// A reader-writer semaphore, for reading: the waiter sleeps.
    RwSemRead,
    /// A reader-writer semaphore, for writing.
    RwSemWrite,
    /// A mutex.
    Mutex,
    /// An RT mutex.
    RtMutex,
    /// A per-CPU reader-writer semaphore, for reading.
    PerCpuRwSemRead,
    /// A per-CPU reader-writer semaphore, for writing.
    PerCpuRwSemWrite,
    /// Flags that are none of these (also what sleeps and says no more).
    #[default]
    Other,
}

impl LockKind {
    /// The name on screens.
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
    /// Time waited, in all.
    pub waited_nanos: u64,
    /// The longest wait.
    pub longest_nanos: u64,
}

impl LockTotals {
    /// One more wait.
    pub fn add(&mut self, nanos: u64) {
        self.join(&LockTotals {
            contentions: 1,
            waited_nanos: nanos,
            longest_nanos: nanos,
        });
    }

    /// Those of another.
    pub fn join(&mut self, other: &LockTotals) {
        self.contentions = self.contentions.saturating_add(other.contentions);
        self.waited_nanos = self.waited_nanos.saturating_add(other.waited_nanos);
        self.longest_nanos = self.longest_nanos.max(other.longest_nanos);
    }

    /// The mean wait; `None` of none.
    pub fn mean_nanos(&self) -> Option<u64> {
        self.waited_nanos.checked_div(self.contentions)
    }
}

/// A lock that was waited for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lock {
    /// Where it is in the kernel.
    pub address: u64,
    /// What sort; where it was taken in several ways, the one that was waited for longest.
    pub kind: LockKind,
    /// Its name, where it is a static one.
    pub name: Option<String>,
    /// Place in [`Trace::symbols`]: the function that waited longest in taking it, the first frame
    /// outside the lock's own code.
    pub taken_by: Option<u32>,
    /// In all.
    pub totals: LockTotals,
    /// Waits that ended without the lock (a signal, a timeout). They count in `totals`.
    pub failed: u64,
    /// By who took it, longest first.
    pub by_caller: Vec<LockCaller>,
    /// The stacks of some waits stand for those of all: `by_caller` says how the totals, which are
    /// exact, are shared out, and its longest waits are of those that were looked at.
    pub callers_estimated: bool,
    /// By thread, longest first.
    pub by_thread: Vec<LockThread>,
    /// The newest events of the busiest locks, oldest first.
    pub events: Vec<LockEvent>,
    /// Events of this lock that are not in `events`.
    pub events_left_out: u64,
}

/// Waits at one place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockCaller {
    /// Place in [`Trace::stacks`]: the whole way there, lock code included.
    pub stack: u32,
    /// Place in [`Trace::symbols`]: the first frame outside the lock's own code.
    pub function: Option<u32>,
    /// As what it was taken.
    pub kind: LockKind,
    /// Waits.
    pub totals: LockTotals,
}

/// Waits of one thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockThread {
    /// Place in [`Trace::processes`].
    pub process: u32,
    /// The thread.
    pub tid: u32,
    /// Waits.
    pub totals: LockTotals,
}

/// One thing that happened to a lock. The kernel tells nothing of a lock that is free when it is
/// taken, and nothing of a release: the end of a wait is the proof of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockEvent {
    /// When.
    pub at_nanos: u64,
    /// Place in [`Trace::processes`].
    pub process: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// What happened.
    pub what: LockAction,
    /// For the end of a wait: how long it was.
    pub waited_nanos: u64,
    /// Place in [`Trace::symbols`] of the function that takes it, where the stack was taken.
    pub function: Option<u32>,
}

/// What happened to a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockAction {
    /// The thread found it taken and waits.
    #[default]
    Waits,
    /// The thread has it.
    Got,
    /// The thread gave up.
    GaveUp,
}

/// Something that the memory management did, and who made it do so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryEvent {
    /// `collapse`, `compaction stall`, `direct reclaim`, `tlb flush`, …
    pub name: String,
    /// What more the kernel said: a result (`succeeded`), a reason (`remote shootdown`).
    pub detail: String,
    /// Place in [`Trace::processes`]; `None` where it is not distinguished by process.
    pub process: Option<u32>,
    /// The thread, where distinguished.
    pub tid: Option<u32>,
    /// Place in [`Trace::stacks`], where one was taken.
    pub stack: Option<u32>,
    /// How often.
    pub count: u64,
    /// Base pages that it spoke of, where it does.
    pub pages: Option<u64>,
    /// Time that it took, where it has an end.
    pub nanos: Option<u64>,
}

/// A counter of the kernel for the memory management.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryCounter {
    /// As the kernel names it (`thp_fault_alloc`); for a single size `64K anon_fault_alloc`.
    pub name: String,
    /// The page size that it speaks of, where it is of one.
    pub page_bytes: Option<u64>,
    /// How much it grew in each interval.
    pub by_interval: Vec<u64>,
    /// In all.
    pub total: u64,
}

/// Calls of a thread that pin or lock memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pin {
    /// Place in [`Trace::processes`].
    pub process: u32,
    /// The thread.
    pub tid: u32,
    /// `mlock`, `munlock`, `io_uring register buffers`, `direct read`, …
    pub call: String,
    /// How many.
    pub calls: u64,
    /// Of how many bytes; `None` where the call does not report it (mlockall).
    pub bytes: Option<u64>,
    /// How many failed; `None` where the result was not seen.
    pub failed: Option<u64>,
    /// Counted in a part of the time and scaled up; the part is in [`Source::share_of_time`].
    pub estimated: bool,
}

/// A counter of the CPU, over the whole host and the whole trace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counter {
    /// Its generic name, the same on all hosts: `cycles`, `instructions`, `dtlb_load_misses`,
    /// `itlb_misses`, `page_walk_cycles`, …
    pub name: String,
    /// What this CPU calls it, as in `DTLB_LOAD_MISSES.WALK_ACTIVE`.
    pub event: String,
    /// Whether the host has it.
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
    /// All page tables.
    pub page_tables_bytes: Option<u64>,
    /// The pools.
    pub pools: Vec<PoolState>,
    /// Processes.
    pub processes: Vec<ProcessMemory>,
    /// Processes that could not be read: id and why.
    pub unread: Vec<(u32, String)>,
}

/// A hugetlb pool, all nodes together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolState {
    /// The page size.
    pub page_bytes: u64,
    /// Pages in it.
    pub total: u64,
    /// Of those free.
    pub free: u64,
    /// Promised and not yet touched.
    pub reserved: u64,
}

/// A process's memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessMemory {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Whether it belongs to the target.
    pub in_target: bool,
    /// Resident, hugetlb pages included.
    pub resident_bytes: u64,
    /// Locked.
    pub locked_bytes: u64,
    /// Pinned.
    pub pinned_bytes: u64,
    /// Its page tables.
    pub page_tables_bytes: u64,
    /// By page size and kind; `None` where it was hidden.
    pub by_page_size: Option<Vec<Held>>,
    /// Its segments; of the target's processes only.
    pub segments: Vec<SegmentMemory>,
}

/// A segment's memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SegmentMemory {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// `text`, `data`, `heap`, `anon`, `stack`, `thread stack`, `shm`, `file`, `vdso`.
    pub role: String,
    /// Path or name; empty for plain anonymous memory.
    pub name: String,
    /// Resident.
    pub resident_bytes: u64,
    /// Locked.
    pub locked_bytes: u64,
    /// What the program asked for in words: `advised huge`, `hugetlb 2M`; empty for nothing.
    pub asked: String,
    /// By page size and kind.
    pub by_page_size: Vec<Held>,
}

/// What a traced program reported of its work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Throughput {
    /// What: `MB/s`, `transactions/s`.
    pub unit: String,
    /// Where from, in words.
    pub source: String,
    /// Its mean rate.
    pub value: f64,
}
