//! Reasons why the host was not changed.

use std::path::PathBuf;

use hugeleaf_host::ReadError;
use hugeleaf_sys::{PathError, SysError};

use super::config_block::ConfigBlockError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    #[error("{}: not an absolute path without ..", .0.display())]
    BadPath(PathBuf),
    #[error("{}: not a kernel setting: those are below /proc/sys and /sys", .0.display())]
    NoKnob(PathBuf),
    #[error("{}: this host has no such setting", .0.display())]
    Missing(PathBuf),
    #[error("{}: '{value}' is not one of its values: {}", path.display(), choices.join(" "))]
    NoChoice {
        path: PathBuf,
        value: String,
        choices: Vec<String>,
    },
    #[error("{}: not written by hugeleaf (its first line does not say so)", .0.display())]
    Foreign(PathBuf),
    #[error("{}: a link or a special file exists there", .0.display())]
    Special(PathBuf),
    #[error("{}: {found} exists there", path.display())]
    WrongKind { path: PathBuf, found: &'static str },
    #[error("{}: {found} is mounted there", path.display())]
    OtherMount { path: PathBuf, found: String },
    #[error("{}: {broken}", path.display())]
    Broken {
        path: PathBuf,
        broken: ConfigBlockError,
    },
    /// The file's text lacks hugeleaf's marker, so undo could not recognise it.
    #[error("{}: the text does not begin with '# written by hugeleaf'", .0.display())]
    NotMarked(PathBuf),
    #[error("{0}")]
    Denied(SysError),
    /// Other users can change the path or a folder above it, so they would control what root writes
    /// there.
    #[error("{0}")]
    Others(PathError),
    #[error("{}: the folder is not empty, and a mount would hide its files", .0.display())]
    NotEmpty(PathBuf),
    /// The mount point is a link, or the mount would hide files that the host needs.
    #[error("{}: {why}", path.display())]
    NoMountPoint { path: PathBuf, why: String },
    #[error("{}: mounting requires CAP_SYS_ADMIN", .0.display())]
    MayNotMount(PathBuf),
}

/// A missing precondition. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostChangeError {
    #[error("{}", refused(.0, *.1))]
    Refused(Vec<Obstacle>, usize),
    /// Two steps have the same name, so the journal could not distinguish them.
    #[error("two steps have the id '{0}'")]
    SameId(String),
    /// Another apply or undo is running.
    #[error("another apply or undo is running{}", .pid.map(|p| format!(" (process {p})")).unwrap_or_default())]
    Locked { pid: Option<u32>, path: PathBuf },
    #[error("{0}")]
    Others(PathError),
    #[error("cannot write the journal: {0}")]
    State(SysError),
    #[error("{0}")]
    Journal(ReadError),
    #[error("apply {id} was made by a newer hugeleaf ({}), and this version does not know all of its changes", if program.is_empty() { "unknown" } else { program })]
    Newer { id: u32, program: String },
    #[error("apply {0} ran meanwhile, and the plan was not compared with it")]
    Overtaken(u32),
    #[error("no apply has the number {0}")]
    NoSuch(u32),
    /// A later apply changed the same places, or relies on their changed state.
    #[error("apply {by} came after {id} and {} {}{}", if *.rests { "relies on" } else { "changed" }, path.display(), if *.rests { " as that left it" } else { " too" })]
    BuiltUpon {
        id: u32,
        by: u32,
        path: PathBuf,
        /// True if the later one found the wanted state already, and changed nothing there.
        rests: bool,
    },
}

fn refused(obstacles: &[Obstacle], steps: usize) -> String {
    let texts: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
    format!(
        "{} of {steps} steps cannot be made: {}",
        obstacles.len(),
        texts.join("; ")
    )
}
