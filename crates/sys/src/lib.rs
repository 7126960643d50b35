//! Makes every system call of hugeleaf and contains nearly all of its unsafe code.
//!
//! Calls that observe or change another process go through a [`Kernel`], as do calls that change the host. A [`SyscallGate`]
//! in front of it, or of a [`MemorySyscalls`], answers chosen calls instead of the kernel. `hugeleaf-host` reads the files
//! below `/proc` and `/sys`.
//!
//! Calls that lay out memory of this process go through a [`MemorySyscalls`]. `trusted_path` follows a path and reports who could have
//! redirected it, and `atomic_file` writes files whole or not at all; nothing is written in another way. `Kernel::wait` is the pause
//! of every command: a signal ends it, in any thread. [`Deadline`] is the gate of every question to a server, a command or a
//! file. `untrusted_fs` opens files that others control, and `watchdog` reads what may block.
//!
//! This crate must not judge. It makes the requested calls and returns the kernel's answers.
//!
//! Main types: [`Kernel`], [`SyscallGate`], [`PidFd`], [`Deadline`], [`Advice`], [`PageRun`], [`SysError`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod address_space;
mod advice;
mod atomic_file;
mod child;
mod command_output;
mod cpu_affinity;
mod deadline;
mod detached_mount;
mod error;
mod ethtool;
mod fault_hook;
mod file_capabilities;
mod file_system_features;
mod host_file_changes;
mod hugetlb_file;
mod kernel_calls;
mod lock;
mod membarrier;
mod memory_file;
mod own_mapping;
mod page_frames;
mod pagemap;
mod prefault;
mod priority;
mod process;
mod program_query;
mod remote_populate;
mod remote_syscall;
mod rusage;
mod seccomp;
mod thp_split;
mod trusted_path;
mod untrusted_fs;
mod watchdog;

pub use address_space::{
    HugetlbReservation, NodePolicy, ReservedAddresses, may_lock, own_page_map,
};
pub use advice::Advice;
pub use atomic_file::{OnExisting, StagedFile, draft_beside, is_draft_of, write_whole};
pub use child::{
    ChildExit, ChildProgram, NumaTaskPolicy, end_by, exec, has_file_capabilities,
    is_mounted_noexec, may_run, peer_pid, prefer_oom_kill, real_ids, return_unused,
    set_task_policy,
};
pub use command_output::{ProgramOutput, confine, run_for_output};
pub use cpu_affinity::{allowed_cpus, run_on_cpus};
pub use deadline::{Deadline, set_stop_flag};
pub use detached_mount::DetachedMount;
pub use error::{Errno, SysError, errno_of, last_errno};
pub use ethtool::offloads;
pub use fault_hook::{GateReply, MemoryCall, MemorySyscalls, ProcessCall, SyscallGate};
pub use file_capabilities::{FileCapabilities, setcap_advice};
pub use file_system_features::{FileSystemFeatures, file_system_at, file_system_used};
pub use host_file_changes::{
    FileKind, FileMeta, HostChange, append_to, device_numbers, effective_gid, metadata_at,
    probe_folder, probe_write, rename, write_value,
};
pub use hugetlb_file::HugetlbFile;
pub use kernel_calls::Kernel;
pub use lock::{HostLock, SharedFlock, lock_host, mark};
pub use membarrier::AsymmetricBarrier;
pub use memory_file::{
    DESCRIPTORS_A_MESSAGE, MemoryFile, MemoryFileFacts, duplicate_raw, keep_on_exec,
};
pub use own_mapping::{OwnMapping, Sharing, advise_own, name_own};
pub use page_frames::frames_of;
pub use pagemap::{LONGEST_UNSCANNED, PageMap, PageRun, PageScanDetail, PageState};
pub use priority::RealTimePriority;
pub use process::{
    DIRECT_FLAG, NOFOLLOW_FLAG, Pid, PidFd, effective_uid, kernel_log, machine, own_pid,
    terminal_columns, ticks_per_second,
};
pub use program_query::query_program;
pub use rusage::{ResourceUsage, children_usage, process_usage, thread_usage};
pub use seccomp::SeccompFilters;
pub use thp_split::ThpSplitFile;
pub use trusted_path::{PathError, check_trusted, open_trusted};
pub use untrusted_fs::{
    ConfinedFolder, UserCredentials, copy_in_memory, is_safe_from_others, list_at_most,
    open_regular, read_at_most,
};
pub use watchdog::with_stall_limit;
