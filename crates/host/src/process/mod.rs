//! Readers of processes: `/proc/PID`.

#[cfg(feature = "full")]
mod all;
pub mod maps;
#[cfg(feature = "full")]
pub mod orders;
#[cfg(feature = "full")]
pub mod pages;
#[cfg(feature = "full")]
mod read;
#[cfg(feature = "full")]
mod rings;
#[cfg(feature = "full")]
mod role;
#[cfg(feature = "full")]
mod run;
#[cfg(feature = "full")]
pub mod spent;
pub mod stat;

use hugeleaf_sys::Pid;

use crate::fact::ReadError;

#[cfg(feature = "full")]
pub(crate) use {all::in_parallel, read::read_basics};
#[cfg(feature = "full")]
pub use {
    all::read_all_processes,
    read::{Mount, identity, parse_mountinfo, read_process},
    rings::parse_registered,
    role::role_of,
    run::{find_variable, is_run_library, parse_run_settings, read_run_settings},
};

/// A file of a process, below a root.
#[cfg(feature = "full")]
pub(crate) fn file_of(pid: Pid, name: &str) -> String {
    format!("proc/{pid}/{name}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Looking {
    /// Totals and sizes; no segments.
    Summary,
    /// Segments with what was asked and got.
    Segments,
    /// Segments, page by page: what `why` and `promote` need.
    Pages,
}

/// Why a process could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// It is not there (or hidden by hidepid: then nobody can distinguish the two).
    #[error("no process {pid}")]
    Gone {
        pid: Pid,
        /// Whether `/proc` hides the processes of other users (mount option hidepid).
        hidden_possible: bool,
    },
    /// It is there, but its memory may not be read.
    #[error("process {pid} ({name}) of uid {uid}: {error}")]
    Denied {
        pid: Pid,
        name: String,
        uid: u32,
        error: ReadError,
    },
    /// A thread of the kernel: it has no memory of its own.
    #[error("process {pid} ({name}) is a kernel thread: it has no memory of its own")]
    KernelThread { pid: Pid, name: String },
    /// It is dead and waits for its parent.
    #[error("process {pid} ({name}) is a zombie: it has no memory any more")]
    Zombie { pid: Pid, name: String },
    /// A file of it is not what it should be.
    #[error("{0}")]
    Read(#[from] ReadError),
}
