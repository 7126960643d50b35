//! Readers of processes: `/proc/PID`.

#[cfg(feature = "full")]
mod all_processes;
#[cfg(feature = "full")]
pub mod cpu_time;
#[cfg(feature = "full")]
pub mod folios;
#[cfg(feature = "full")]
mod guest_memory;
#[cfg(feature = "full")]
mod io_uring_buffers;
#[cfg(feature = "full")]
mod mapping_role;
pub mod maps;
#[cfg(feature = "full")]
pub mod pagemap_text;
pub mod proc_parsers;
#[cfg(feature = "full")]
mod read;
#[cfg(feature = "full")]
mod run_settings;

use hugeleaf_sys::Pid;

use crate::fact::ReadError;

#[cfg(feature = "full")]
pub(crate) use {all_processes::in_parallel, read::read_basics};
#[cfg(feature = "full")]
pub use {
    all_processes::read_all_processes,
    guest_memory::{BackendKind, MemoryBackend, guest_ram, parse_guest_backends},
    io_uring_buffers::parse_registered,
    mapping_role::role_of,
    read::{MountFileSystem, identity, parse_mountinfo, read_process},
    run_settings::{find_variable, is_run_library, parse_run_settings, read_run_settings},
};

/// Returns the path of a file of a process, below a root.
#[cfg(feature = "full")]
pub(crate) fn file_of(pid: Pid, name: &str) -> String {
    format!("proc/{pid}/{name}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadDetail {
    /// Totals and sizes, without segments.
    Summary,
    /// Segments with their advice and page sizes.
    Segments,
    /// Segments with their page maps, as `why` and `promote` need them.
    Pages,
}

/// The reason why a process could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// It does not exist, or hidepid hides it. A reader cannot distinguish the two.
    #[error("no process {pid}")]
    Gone {
        pid: Pid,
        /// True if `/proc` hides the processes of other users (mount option hidepid).
        hidden_possible: bool,
    },
    /// It exists, but its memory may not be read.
    #[error("process {pid} ({name}) of uid {uid}: {error}")]
    Denied {
        pid: Pid,
        name: String,
        uid: u32,
        error: ReadError,
    },
    /// A kernel thread, which has no memory of its own.
    #[error("process {pid} ({name}) is a kernel thread: it has no memory of its own")]
    KernelThread { pid: Pid, name: String },
    /// It has exited and its parent has not waited for it.
    #[error("process {pid} ({name}) is a zombie: it has no memory any more")]
    Zombie { pid: Pid, name: String },
    /// A file of it does not parse.
    #[error("{0}")]
    Read(#[from] ReadError),
}
