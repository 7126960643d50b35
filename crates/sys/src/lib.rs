//! Every system call that hugeleaf makes, and nearly every line of unsafe.
//!
//! The calls that observe or change another process go through the [`Kernel`] trait, so that a
//! test can stand in for the kernel ([`Faulty`] fails a chosen call with a chosen errno and passes
//! the others on). Reading files below `/proc` and `/sys` is the business of `hugeleaf-host`.
//!
//! This crate must not judge: it does what it is told and says what the kernel answered.
//!
//! Main types: [`Kernel`], [`RealKernel`], [`Faulty`], [`PidFd`], [`Advice`], [`PageRun`],
//! [`SysError`].

mod error;
mod faulty;
mod files;
mod kernel;
mod lock;
mod memory;
mod memory_file;
mod pagemap;
mod perf;
mod process;
mod remote_call;
mod space;
mod start;

pub use error::{Errno, SysError};
pub use faulty::{Call, Fault, Faulty};
pub use files::{
    FileKind, FileLook, append_to, create_file, effective_gid, look_at, make_folder,
    mount_hugetlbfs, probe_folder, probe_write, remove_file, remove_folder, rename, sync_folder,
    unmount, write_value,
};
pub use kernel::{Advice, Kernel, Pid, RealKernel};
pub use lock::{HostLock, lock_host};
pub use memory::{Mapping, Placement, Sharing, advise_own, name_own};
pub use memory_file::{
    DESCRIPTORS_A_MESSAGE, MemoryFile, MemoryFileFacts, duplicate_raw, keep_on_exec,
};
pub use pagemap::{PageMap, PageRun, PageState, ScanDetail};
pub use perf::{Counter, CounterKind};
pub use process::{
    PidFd, effective_uid, free_space, kernel_log, machine, own_pid, terminal_columns,
    ticks_per_second,
};
pub use space::{Gate, Memory, MemoryCall, NodePolicy, Reserve, Space, may_lock, own_page_map};
pub use start::{
    Ended, Started, TaskPolicy, end_by, exec, has_file_capabilities, is_mounted_noexec, may_run,
    real_ids, set_task_policy,
};
