//! Facts: what a host has and what its processes hold.
//!
//! [`Root`] is where `/proc`, `/sys` and `/etc` are read below; every reader takes one. Parsers are
//! pure (text in, `Result` out, no panic on any input) and live beside the reader that feeds them.
//! Readers fill the [`model`]; nothing else hands facts on.
//!
//! This crate must not judge (that is `hugeleaf-verdict`) and must not write anything anywhere.
//!
//! Main types: [`Root`], [`Fact`], [`Host`], [`Process`], [`Segment`], [`Snapshot`].

pub mod demand;
pub mod fact;
pub mod model;
mod parse;
pub mod process;
pub mod processor;
pub mod program;
mod root;
mod snapshot;
pub mod system;
#[cfg(test)]
mod testing;
pub mod totals;

pub use fact::{Fact, ReadError};
pub use model::{
    Advised, Asked, Buddy, Cgroup, CouldBeHad, FreeBlocks, Held, Host, HugetlbLimit, Khugepaged,
    Limits, Memory, MemoryLimit, Owner, PageSizeInfo, Pool, Process, ProcessKind, Role, RunAsked,
    RunSettings, RunWay, Segment, SharedObject, Snapshot, Sysctl, Thp, ThpOrder, VmFlags,
};
pub use parse::ParseError;
// Parts of the model that the kernel's page map gives: whoever judges a snapshot needs no sys.
pub use hugeleaf_sys::{PageMap, PageRun, PageState, Pid, Rights};
pub use process::{Looking, ProcessError, read_all_processes, read_process};
pub use program::{Elf, Format, Privilege, Program, ProgramError, find_program, parse_elf};
pub use root::{Root, Theirs};
pub use snapshot::{Target, TargetError, find_targets};
pub use system::{
    Identity, at_most, identity, read_host, read_memory_facts, read_owners, read_start_facts,
};
