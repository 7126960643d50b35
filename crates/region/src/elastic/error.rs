//! Errors of taking, returning and transferring elastic memory.

use hugeleaf_sys::{Pid, SysError};
use hugeleaf_units::Bytes;

use super::names::{Component, Granule};
use crate::error::MemoryError;

/// A refused operation. Except for [`ElasticError::NotYetBack`], nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElasticError {
    /// The granule is not held: it was returned already, or the name is unknown.
    #[error("{granule} is not held: it was returned, or never taken")]
    NotHeld {
        /// The granule.
        granule: Granule,
    },
    /// The granule was returned and taken again, or transferred to another component, since it got
    /// this name.
    #[error("{granule} is an old name: it has changed hands since")]
    Stale {
        /// The granule.
        granule: Granule,
    },
    /// The list names the granule twice.
    #[error("{granule} stands in the list twice")]
    Twice {
        /// The granule.
        granule: Granule,
    },
    /// Another component holds the granule.
    #[error("{granule} is held by component {holder}, not by {asked}")]
    NotItsOwn {
        /// The granule.
        granule: Granule,
        /// The component named by the caller.
        asked: Component,
        /// The component that holds it.
        holder: Component,
    },
    /// The request exceeds the target.
    #[error("{wanted} more than the {held} that are held would be over the target of {target}")]
    OverTarget {
        /// The target.
        target: Bytes,
        /// Memory held by all components.
        held: Bytes,
        /// The requested size.
        wanted: Bytes,
    },
    /// The target exceeds the maximum size.
    #[error("a target of {target}, and addresses for {max} only")]
    OverMax {
        /// The target.
        target: Bytes,
        /// The maximum size.
        max: Bytes,
    },
    /// All granules are held.
    #[error("{wanted} asked, {free} of {max} are not held")]
    Full {
        /// The maximum size.
        max: Bytes,
        /// Memory that is not held.
        free: Bytes,
        /// The requested size.
        wanted: Bytes,
    },
    /// The component does not exist.
    #[error("there is no component {0}")]
    NoSuchComponent(Component),
    /// The table has no room for another component.
    #[error("no room for another component: there are {most}")]
    TooManyComponents {
        /// Maximum number of components.
        most: usize,
    },
    /// The component's name is too long for the table.
    #[error("the name '{name}' is longer than {most} bytes")]
    NameTooLong {
        /// The name.
        name: String,
        /// Maximum length in bytes.
        most: usize,
    },
    /// The component's name is empty.
    #[error("a component needs a name")]
    NoName,
    /// The component exists with the other value of `resizable`.
    #[error("component '{name}' is there already, and is {}", match resizable {
        true => "resizable", false => "of a fixed size" })]
    OtherKind {
        /// Its name.
        name: String,
        /// True if the existing component is resizable.
        resizable: bool,
    },
    /// The manager has a component of that name, or reserves the name.
    #[error("the manager has a component '{name}' already")]
    NameTaken {
        /// Its name.
        name: String,
    },
    /// The component has a fixed size: it cannot take more, or give any granule away.
    #[error("component '{name}' is of a fixed size: it takes once, and keeps what it took")]
    NotResizable {
        /// Its name.
        name: String,
    },
    /// The table has no room for another process.
    #[error("no room for another process: {most} are attached")]
    TooManyProcesses {
        /// Maximum number of processes.
        most: usize,
    },
    /// The range has more granules than a table holds.
    #[error("{granules} granules, a table holds {most}")]
    TooManyGranules {
        /// Requested number of granules.
        granules: u64,
        /// Maximum number of granules.
        most: u64,
    },
    /// The memory belongs to another process, of which this one is a forked copy.
    #[error("process {pid} made it, and this one is a copy of that by fork")]
    Forked {
        /// The owner.
        pid: Pid,
    },
    /// The elastic was created in another PID namespace, so its processes and this one cannot check
    /// whether the other is alive.
    #[error("it was made in another PID namespace")]
    OtherNamespace,
    /// A process holds the table's lock and makes no progress.
    #[error("process {pid} has held the table's lock for {seconds} s")]
    Stuck {
        /// The process.
        pid: Pid,
        /// Time in seconds that it has been held.
        seconds: u64,
    },
    /// The table has contents that this library does not write.
    #[error("the table is damaged: {0}")]
    Damaged(String),
    /// The granules are not held any more, but the system did not accept all of their memory. The
    /// next take or recover tries again.
    #[error("{bytes} were given up, and the system did not take them back: {error}")]
    NotYetBack {
        /// Memory that was not accepted.
        bytes: Bytes,
        /// The error of the system.
        error: SysError,
    },
    /// Memory was unavailable.
    #[error("{0}")]
    Memory(#[from] MemoryError),
}

impl From<SysError> for ElasticError {
    fn from(error: SysError) -> ElasticError {
        ElasticError::Memory(error.into())
    }
}

impl ElasticError {
    /// Returns the next action: a command, or a different request.
    pub fn next(&self) -> String {
        use ElasticError as E;
        let text = match self {
            E::NotHeld { .. } | E::Stale { .. } | E::Twice { .. } => {
                "keep one list of what was taken, and take a granule out of it before it is returned"
            }
            E::NotItsOwn { holder, .. } => {
                return format!("name component {holder}, or transfer it first");
            }
            E::OverTarget { held, wanted, .. } => {
                let enough = *held + *wanted;
                return format!("return memory, recover(), or raise the target to {enough}");
            }
            E::OverMax { max, .. } => return format!("set at most {max}"),
            E::Full { .. } => "return memory, or recover() what dead processes held",
            E::NoSuchComponent(_) => "make it with component()",
            E::TooManyComponents { .. } => "use one that is there: see info()",
            E::NameTooLong { most, .. } => return format!("use at most {most} bytes"),
            E::NoName => "give it one",
            E::NameTaken { .. } => "choose another name",
            E::OtherKind { resizable, .. } => {
                return format!("ask for it with resizable = {resizable}");
            }
            E::NotResizable { .. } => "take all of it in one call; it lasts until its process ends",
            E::TooManyProcesses { .. } => "let a process that does not need it detach",
            E::TooManyGranules { .. } => "ask for a larger granule",
            E::Forked { .. } => "attach a handle in the child",
            E::OtherNamespace => "attach from the PID namespace of its maker",
            E::Stuck { pid, .. } => {
                return format!("kill -CONT {pid}    # or end it, then recover()");
            }
            E::Damaged(_) => "end the processes that use it, and make a new one",
            E::NotYetBack { .. } => "call recover()",
            E::Memory(error) => return error.next(),
        };
        text.to_owned()
    }
}
