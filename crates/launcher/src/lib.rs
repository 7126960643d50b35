//! Starts programs on the configured page sizes: the library to load, the variables to set, and the watch over a
//! program's process tree.
//!
//! [`variables`] passes a policy to `hugeleaf-preload`, the [`PreloadLibrary`] that the program loads, and [`Watch`] observes what
//! its processes get. This crate must not move memory (`hugeleaf-mover` does) and must not print.
//!
//! Main types: [`PreloadLibrary`], [`Watch`], [`SqliteCacheSettings`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod environment;
mod library_file;
mod process_peaks;
mod process_watch;

use std::path::PathBuf;

use hugeleaf_host::{Pid, ProgramFile};
use hugeleaf_sys::NumaTaskPolicy;
use hugeleaf_units::{Bytes, Failure};
use hugeleaf_verdict::role_results::RoleResult;
use hugeleaf_verdict::run_policy::{NumaPolicy, PreloadObstacle, RunFlags, obstacle};
use serde::Serialize;

pub use environment::{SqliteCacheSettings, variables};
pub use library_file::{PreloadLibrary, place};
pub use process_watch::{PreparedWatch, Watch};

/// A process as observed when it held the most memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessPeak {
    pub pid: Pid,
    pub name: String,
    /// Time of the observation, since the program's start.
    #[serde(rename = "seen_at_seconds")]
    pub seconds: f64,
    #[serde(rename = "seen_resident_bytes")]
    pub resident: Bytes,
    /// Peak resident memory as the kernel reports it; at least `resident`.
    #[serde(rename = "peak_resident_bytes")]
    pub peak: Bytes,
    /// True for the observation at exit, for which the library delays the process.
    pub at_exit: bool,
    pub roles: Vec<RoleResult>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct WatchReport {
    /// The processes, largest first.
    pub processes: Vec<ProcessPeak>,
    /// Number of processes not listed, each smaller than all listed ones.
    #[serde(rename = "processes_left_out")]
    pub left_out: usize,
    /// Peak of the summed resident memory of all processes.
    #[serde(rename = "peak_resident_bytes")]
    pub peak: Bytes,
    /// Roles of all processes at that moment, shared memory counted once.
    pub roles: Vec<RoleResult>,
    /// Files with a SQLite whose functions are hidden, which `--sqlite` cannot reach.
    #[serde(rename = "hidden_sqlite_files", skip_serializing_if = "Vec::is_empty")]
    pub hidden_sqlite: Vec<PathBuf>,
}

/// Returns the obstacle that prevents loading the library into the program, if the policy selects the program.
pub fn find_obstacle(policy: &RunFlags, program: &ProgramFile) -> Option<PreloadObstacle> {
    let name = program.path.file_name()?.to_string_lossy();
    let is_meant = policy.only.is_empty() || policy.only.iter().any(|only| *only == name);
    obstacle(program, std::env::consts::ARCH).filter(|o| is_meant || !o.may_pass_on)
}

/// Returns the library file to name to the program's loader. Writes the file if needed, except in a dry run.
///
/// # Errors
/// No folder is writable only by this user or root.
pub fn library_for(
    obstacle: Option<&PreloadObstacle>,
    library: &PreloadLibrary,
    is_dry: bool,
) -> Result<Option<PathBuf>, Failure> {
    match obstacle {
        Some(obstacle) if !obstacle.may_pass_on => Ok(None),
        _ => place(library, is_dry).map(Some),
    }
}

/// Sets this process's memory policy, which programs that it executes or starts inherit.
pub fn set_numa(policy: &RunFlags) -> Result<(), Failure> {
    let Some(numa) = &policy.numa else {
        return Ok(());
    };
    let task = match numa {
        NumaPolicy::Bind(nodes) => NumaTaskPolicy::Bind(nodes.clone()),
        NumaPolicy::Prefer(node) => NumaTaskPolicy::Prefer(*node),
        NumaPolicy::Interleave(nodes) => NumaTaskPolicy::Interleave(nodes.clone()),
        NumaPolicy::Local => NumaTaskPolicy::Local,
    };
    hugeleaf_sys::set_task_policy(&task).map_err(|error| {
        Failure::missing(
            format!("run: --numa {numa}: {error}"),
            "name nodes that this process may use: grep Mems_allowed_list /proc/self/status",
        )
    })
}
