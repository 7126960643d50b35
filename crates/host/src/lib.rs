//! Reads the facts of a host and of its processes.
//!
//! [`Root`] is the folder below which every reader finds `/proc`, `/sys` and `/etc`. Parsers are pure
//! (text in, `Result` out, no panic on any input) and live next to the reader that calls them. Readers
//! fill the [`model`], the only interface to other crates.
//!
//! `system/` has one module per source of host-wide facts, `process/` those of a process. `process/all_processes.rs` reads all
//! processes at a cost that does not grow with the number that share memory: it walks a shared object
//! once, and compares each attached process by the size of its page tables. [`limits`] is the one answer to
//! which limits bind a process: its own and those of its cgroups, v1 and v2, inside and outside a container.
//! `totals` counts a shared page once. `Target::resolve` (`target.rs`) is the one way from a target to
//! processes. Commands that change something take `ResolvedTarget::single_tree`, which refuses a name of several
//! unrelated process trees. `demand` finds services and their demand (`PROGRAMS`, `SOURCES`).
//!
//! This crate must not judge (that is `hugeleaf-verdict`) and must not write anything anywhere.
//!
//! Without the feature `full` it has only the memory facts that the library `hugeleaf` needs.
//!
//! Main types: [`Root`], [`Fact`], [`Host`], [`Process`], [`ProcessMapping`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

#[cfg(feature = "full")]
pub mod demand;
#[cfg(feature = "full")]
pub mod executable;
pub mod fact;
pub mod limits;
#[cfg(feature = "full")]
pub mod memory_totals;
pub mod model;
mod parse_helpers;
pub mod process;
#[cfg(feature = "full")]
pub mod process_scanner;
mod root;
mod setting_requirements;
pub mod system;
#[cfg(feature = "full")]
mod target;
#[cfg(test)]
mod testing;

pub use fact::{Fact, ReadError};
pub use model::{
    Buddy, CompactionStalls, FreeBlocks, GuestRam, Host, HugetlbCgroup, HugetlbLimit,
    HugetlbLimitKind, HugetlbfsMount, KernelLimits, Khugepaged, MappingRole, MappingSettings,
    Memory, MemoryLimit, OrphanKind, OrphanedHugetlb, PageSizeAvailability, PageSizeInfo,
    PageUsage, Pool, Process, ProcessKind, ProcessMapping, ProcessMemoryLimits, ProcessMemoryUse,
    RunMemoryKind, RunPageKind, RunPolicy, RunSettings, SharedMemoryObject, SysctlLine, Thp,
    ThpAdvice, ThpMemoryKind, ThpSizeSettings, VmFlags, pool_file, size_folder, thp_file,
    thp_is_on,
};
pub use parse_helpers::ParseError;
// Page map types are part of the model. Crates that judge a snapshot then need no sys.
pub use hugeleaf_sys::{PageMap, PageRun, PageState, Pid, UserCredentials};
pub use root::{Root, UntrustedFiles};
pub use setting_requirements::{AcceptedValues, SettingRequirement};
pub use system::{read_memory_facts, read_start_facts, read_start_facts_within};
#[cfg(feature = "full")]
pub use {
    executable::{
        Elf, ExecutableFormat, FilePrivilege, ProgramError, ProgramFile, find_program,
        has_hidden_sqlite, parse_elf,
    },
    limits::cgroup_paths::unescape,
    parse_helpers::MountLine,
    process::{ProcessError, ReadDetail, read_all_processes, read_process},
    process_scanner::ForkTreeId,
    system::{
        HostIdentity, file_readers::size_in_path, identity, read_host, read_hugetlbfs_mounts,
        read_leftovers, read_owners,
    },
    target::{
        ProcessTree, ResolvedTarget, Target, TargetError, all_pids, is_in_host_pid_namespace,
    },
};
