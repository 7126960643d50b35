//! Facts: what a host has and what its processes hold.
//!
//! [`Root`] is where `/proc`, `/sys` and `/etc` are read below; every reader takes one. Parsers are
//! pure (text in, `Result` out, no panic on any input) and live next to the reader that feeds them.
//! Readers fill the [`model`]; nothing else hands facts on.
//!
//! This crate must not judge (that is `hugeleaf-verdict`) and must not write anything anywhere.
//!
//! Without the feature `full` it has what the library `hugeleaf` needs: the facts of memory of this host.
//!
//! Main types: [`Root`], [`Fact`], [`Host`], [`Process`], [`Segment`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

#[cfg(feature = "full")]
pub mod demand;
pub mod fact;
pub mod limits;
pub mod model;
mod parse;
pub mod process;
#[cfg(feature = "full")]
pub mod program;
mod root;
#[cfg(feature = "full")]
mod snapshot;
pub mod system;
#[cfg(test)]
mod testing;
#[cfg(feature = "full")]
pub mod totals;
#[cfg(feature = "full")]
pub mod watch;

pub use fact::{Fact, ReadError};
pub use model::{
    Advised, Asked, Available, Buddy, Cgroup, Compaction, FreeBlocks, Held, Host, HugetlbLimit,
    Khugepaged, Leftover, LeftoverKind, Limited, Limits, Memory, MemoryLimit, Owner, PageSizeInfo,
    Pool, Process, ProcessKind, ProcessLimits, Role, RunAsked, RunRole, RunSettings, RunWay,
    Segment, SharedObject, Sysctl, Thp, ThpOrder, ThpUse, VmFlags, pool_file, size_folder,
    thp_file, thp_is_on,
};
pub use parse::ParseError;
// Parts of the model that the kernel's page map gives: whoever judges a snapshot needs no sys.
pub use hugeleaf_sys::{PageMap, PageRun, PageState, Pid, Rights};
pub use root::{Root, Theirs};
pub use system::{read_memory_facts, read_start_facts};
#[cfg(feature = "full")]
pub use {
    process::{Looking, ProcessError, read_all_processes, read_process},
    program::{Elf, Format, Privilege, Program, ProgramError, find_program, parse_elf},
    snapshot::{ProcessTree, Resolved, Target, TargetError, is_in_host_pid_namespace},
    system::{Identity, identity, read_host, read_leftovers, read_owners},
};
