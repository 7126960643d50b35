//! Readers of processes: `/proc/PID`.

mod all;
pub mod maps;
pub mod orders;
pub mod pages;
mod read;
mod rings;
mod role;
mod run;
pub mod stat;

use hugeleaf_sys::Pid;

use crate::fact::ReadError;

pub use all::read_all_processes;
pub use read::{Mount, identity, parse_mountinfo, read_process};
pub(crate) use read::{mappings, read_basics};
pub use rings::parse_registered;
pub use role::role_of;
pub use run::{find_variable, is_run_library, parse_run_settings, read_run_settings};

/// How closely to look at a process.
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
    /// It is not there (or hidden by hidepid: then nobody can tell the two apart).
    #[error("no process {pid}")]
    Gone {
        /// The id.
        pid: Pid,
        /// Whether `/proc` hides the processes of other users (mount option hidepid).
        hidden_possible: bool,
    },
    /// It is there, but its memory may not be read.
    #[error("process {pid} ({name}) of uid {uid}: {error}")]
    Denied {
        /// The id.
        pid: Pid,
        /// Its name.
        name: String,
        /// Whose it is.
        uid: u32,
        /// What the system said.
        error: ReadError,
    },
    /// A thread of the kernel: it has no memory of its own.
    #[error("process {pid} ({name}) is a kernel thread: it has no memory of its own")]
    KernelThread {
        /// The id.
        pid: Pid,
        /// Its name.
        name: String,
    },
    /// It is dead and waits for its parent.
    #[error("process {pid} ({name}) is a zombie: it has no memory any more")]
    Zombie {
        /// The id.
        pid: Pid,
        /// Its name.
        name: String,
    },
    /// A file of it is not what it should be.
    #[error("{0}")]
    Read(#[from] ReadError),
}
