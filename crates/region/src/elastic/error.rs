//! Why elastic memory could not be taken, returned or handed on.

use hugeleaf_sys::{Pid, SysError};
use hugeleaf_units::Bytes;

use super::names::{Component, Granule};
use crate::error::MemoryError;

/// What was refused. But for [`ElasticError::NotYetBack`] nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElasticError {
    /// A granule that nobody holds: it was returned already, or there is none of that name.
    #[error("{granule} is not held: it was returned, or never taken")]
    NotHeld {
        /// Which.
        granule: Granule,
    },
    /// The name of a granule that was returned and taken again, or handed to another component,
    /// since.
    #[error("{granule} is an old name: it has changed hands since")]
    Stale {
        /// Which.
        granule: Granule,
    },
    /// A granule that stands in one list twice.
    #[error("{granule} stands in the list twice")]
    Twice {
        /// Which.
        granule: Granule,
    },
    /// A granule that another component holds.
    #[error("{granule} is held by component {holder}, not by {asked}")]
    NotItsOwn {
        /// Which.
        granule: Granule,
        /// Who was said to hold it.
        asked: Component,
        /// Who does.
        holder: Component,
    },
    /// More than the target allows.
    #[error("{wanted} more than the {held} that are held would be over the target of {target}")]
    OverTarget {
        /// The target.
        target: Bytes,
        /// What is held by all components.
        held: Bytes,
        /// What was asked for.
        wanted: Bytes,
    },
    /// A target that is more than the addresses that were set aside.
    #[error("a target of {target}, and addresses for {max} only")]
    OverMax {
        /// The target.
        target: Bytes,
        /// The most there can be.
        max: Bytes,
    },
    /// All granules are held.
    #[error("{wanted} asked, {free} of {max} are not held")]
    Full {
        /// The most there can be.
        max: Bytes,
        /// How much nobody holds.
        free: Bytes,
        /// What was asked for.
        wanted: Bytes,
    },
    /// There is no such component.
    #[error("there is no component {0}")]
    NoSuchComponent(Component),
    /// More components than the table has room for.
    #[error("no room for another component: there are {most}")]
    TooManyComponents {
        /// How many there may be.
        most: usize,
    },
    /// A component's name that does not fit the table.
    #[error("the name '{name}' is longer than {most} bytes")]
    NameTooLong {
        /// The name.
        name: String,
        /// How many bytes it may have.
        most: usize,
    },
    /// A component without a name.
    #[error("a component needs a name")]
    NoName,
    /// A component that is there, and is resizable where it was asked not to be, or the other way
    /// round.
    #[error("component '{name}' is there already, and is {}", match resizable {
        true => "resizable", false => "of a fixed size" })]
    OtherKind {
        /// Its name.
        name: String,
        /// Whether it is resizable.
        resizable: bool,
    },
    /// A component that a manager has already, or keeps for itself.
    #[error("the manager has a component '{name}' already")]
    NameTaken {
        /// Its name.
        name: String,
    },
    /// A component of a fixed size that has got that size, or is to lose it.
    #[error("component '{name}' is of a fixed size: it takes once, and keeps what it took")]
    NotResizable {
        /// Its name.
        name: String,
    },
    /// More processes than the table has room for.
    #[error("no room for another process: {most} are attached")]
    TooManyProcesses {
        /// How many there may be.
        most: usize,
    },
    /// More granules than a table holds.
    #[error("{granules} granules, a table holds {most}")]
    TooManyGranules {
        /// How many it would be.
        granules: u64,
        /// How many there may be.
        most: u64,
    },
    /// The memory is another process's, of which this one is a forked copy.
    #[error("process {pid} made it, and this one is a copy of that by fork")]
    Forked {
        /// Whose it is.
        pid: Pid,
    },
    /// The maker counts processes in another PID namespace, so neither can tell whether the other
    /// is alive.
    #[error("it was made in another PID namespace")]
    OtherNamespace,
    /// A process holds the table's lock and does not go on.
    #[error("process {pid} has held the table's lock for {seconds} s")]
    Stuck {
        /// Who.
        pid: Pid,
        /// For how long.
        seconds: u64,
    },
    /// The table does not hold what this library writes.
    #[error("the table is damaged: {0}")]
    Damaged(String),
    /// The granules are not held any more, but the system did not take all of their memory back:
    /// that is tried again at the next take or recover.
    #[error("{bytes} were given up, and the system did not take them back: {error}")]
    NotYetBack {
        /// How much.
        bytes: Bytes,
        /// What it said.
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
    /// What to do next: a command, or what to ask for instead.
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
