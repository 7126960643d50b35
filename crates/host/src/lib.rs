//! Reads the facts of a host and of its processes.
//!
//! [`Root`] is the folder below which every reader finds `/proc`, `/sys` and `/etc`. Parsers are pure
//! (text in, `Result` out, no panic on any input) and live next to the reader that calls them. Readers
//! fill the [`model`], the only interface to other crates.
//!
//! `system/` has one module per source of host-wide facts, `process/` those of a process. `process/all.rs` reads all
//! processes at a cost that does not grow with the number that share memory: it walks a shared object
//! once, and compares each attached process by the size of its page tables. [`limits`] is the one answer to
//! which limits bind a process: its own and those of its cgroups, v1 and v2, inside and outside a container.
//! `totals` counts a shared page once. `Target::resolve` (`snapshot.rs`) is the one way from a target to
//! processes. Commands that change something take `Resolved::one`, which refuses a name of several
//! unrelated process trees. `demand` finds services and their demand (`PROGRAMS`, `SOURCES`).
//!
//! This crate must not judge (that is `hugeleaf-verdict`) and must not write anything anywhere.
//!
//! Without the feature `full` it has only the memory facts that the library `hugeleaf` needs.
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
pub mod executable;
mod root;
#[cfg(feature = "full")]
mod target;
pub mod system;
#[cfg(test)]
mod testing;
#[cfg(feature = "full")]
pub mod totals;
mod wants;
#[cfg(feature = "full")]
pub mod watch;

pub use fact::{Fact, ReadError};
pub use model::{
    ThpAdvice, MappingRequest, Available, Buddy, Cgroup, Compaction, FreeBlocks, PageUsage, Host, HugetlbLimit,
    Khugepaged, Leftover, LeftoverKind, HugetlbAccounting, Limits, Memory, MemoryLimit, Owner, PageSizeInfo,
    Pool, Process, ProcessKind, ProcessLimits, Role, RunPageKind, RunPolicy, RunRole, RunSettings,
    Segment, SharedObject, Sysctl, Thp, ThpOrder, ThpUse, VmFlags, pool_file, size_folder,
    thp_file, thp_is_on,
};
pub use parse::ParseError;
// Page map types are part of the model. Crates that judge a snapshot then need no sys.
pub use hugeleaf_sys::{PageMap, PageRun, PageState, Pid, Rights};
pub use root::{Root, UserFiles};
pub use system::{read_memory_facts, read_start_facts};
pub use wants::{SettingRequirement, AcceptedValues};
#[cfg(feature = "full")]
pub use {
    process::{ProcessError, ReadDetail, read_all_processes, read_process},
    executable::{
        Elf, Format, Privilege, Program, ProgramError, find_program, has_hidden_sqlite, parse_elf,
    },
    target::{ProcessTree, Resolved, Target, TargetError, is_in_host_pid_namespace},
    system::{HostIdentity, identity, read_host, read_leftovers, read_owners},
    watch::ProgramId,
};
