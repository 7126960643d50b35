//! Starts programs on the pages they should have: the library that is loaded into them and the variables that they get,
//! and the look at a program and all that it starts.

mod environment;
mod library;
mod tree;
mod watch;

use std::path::PathBuf;

use hugeleaf_host::{Pid, Program};
use hugeleaf_sys::TaskPolicy;
use hugeleaf_units::{Bytes, Failure};
use hugeleaf_verdict::roles::RoleState;
use hugeleaf_verdict::run::{Numa, Obstacle, Policy, obstacle};
use serde::Serialize;

pub use environment::{SqliteCache, variables};
pub use library::Library;
pub use watch::{Watch, Watcher};

/// A process, as it was when it held most.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Seen {
    pub pid: Pid,
    pub name: String,
    /// When it was looked at, since the program's start.
    #[serde(rename = "seen_at_seconds")]
    pub seconds: f64,
    #[serde(rename = "seen_resident_bytes")]
    pub resident: Bytes,
    /// The most that was ever resident, as the kernel has it; at least `resident`.
    #[serde(rename = "peak_resident_bytes")]
    pub peak: Bytes,
    /// Whether that was the look at its end, for which the library makes it wait.
    pub at_exit: bool,
    pub roles: Vec<RoleState>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// The processes, those that held most first.
    pub processes: Vec<Seen>,
    /// Processes that are not listed: they held less than all that are.
    #[serde(rename = "processes_left_out")]
    pub left_out: usize,
    /// Resident in all processes together when that was most, as their sizes add up.
    #[serde(rename = "peak_resident_bytes")]
    pub peak: Bytes,
    /// The roles of all processes that lived then, shared memory counted once.
    pub roles: Vec<RoleState>,
}

/// Why the library cannot be loaded into the program, where the policy is for it.
pub fn stands_in_the_way(policy: &Policy, program: &Program) -> Option<Obstacle> {
    let name = program.path.file_name()?.to_string_lossy();
    let is_meant = policy.only.is_empty() || policy.only.iter().any(|only| *only == name);
    obstacle(program, std::env::consts::ARCH).filter(|o| is_meant || !o.may_pass_on)
}

/// The file of the library, where it is to be named to the program's loader; it is written if need be, unless this
/// is a dry run.
///
/// # Errors
/// Where there is no place for it that only this user, or root, can change.
pub fn library_for(
    obstacle: Option<&Obstacle>,
    library: &Library,
    is_dry: bool,
) -> Result<Option<PathBuf>, Failure> {
    match obstacle {
        Some(obstacle) if !obstacle.may_pass_on => Ok(None),
        _ => place(library, is_dry).map(Some),
    }
}

/// The file of a library that is loaded whatever the program is, as [`library_for`].
pub fn place(library: &Library, is_dry: bool) -> Result<PathBuf, Failure> {
    match is_dry {
        true => library::where_it_would_be(library),
        false => library::place(library),
    }
}

/// Sets the memory policy of this process, which the program that it becomes, or starts, keeps.
pub fn set_numa(policy: &Policy) -> Result<(), Failure> {
    let Some(numa) = &policy.numa else {
        return Ok(());
    };
    let task = match numa {
        Numa::Bind(nodes) => TaskPolicy::Bind(nodes.clone()),
        Numa::Prefer(node) => TaskPolicy::Prefer(*node),
        Numa::Interleave(nodes) => TaskPolicy::Interleave(nodes.clone()),
        Numa::Local => TaskPolicy::Local,
    };
    hugeleaf_sys::set_task_policy(&task).map_err(|error| {
        Failure::new(
            format!("run: --numa {numa}: {error}"),
            "name nodes that this process may use: grep Mems_allowed_list /proc/self/status",
        )
    })
}
