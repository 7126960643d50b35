//! Errors of taking, returning and transferring elastic memory.

use hugeleaf_sys::{Pid, SysError};
use hugeleaf_units::Bytes;

use super::ids::{Component, Granule};
use crate::error::MemoryError;

/// A refused operation. Except for [`ElasticError::ReturnPending`], nothing has changed.
///
/// ```
/// use hugeleaf::{Bytes, Elastic, ElasticError, ElasticOptions};
///
/// let memory = Elastic::new(&ElasticOptions::new(Bytes::from_mib(8), "2M".parse()?))?;
/// let pages = memory.component("page cache", true)?;
/// let held = memory.take_many(pages, 4)?;
/// match memory.take(pages) {
///     Ok(granule) => println!("{granule} taken"),
///     // The cache is as large as it may be, and reuses its oldest granule.
///     Err(ElasticError::OverTarget { .. } | ElasticError::Full { .. }) => {
///         println!("{} reused", held[0]);
///     }
///     Err(error) => println!("{error}\n  next: {}", error.next()),
/// }
/// # assert!(memory.take(pages).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    #[error("{granule} is out of date: it was returned or transferred since")]
    Stale {
        /// The granule.
        granule: Granule,
    },
    /// The list names the granule twice.
    #[error("{granule} is in the list twice")]
    DuplicateGranule {
        /// The granule.
        granule: Granule,
    },
    /// Another component holds the granule.
    #[error("{granule} is held by component {holder}, not by {asked}")]
    HeldByOther {
        /// The granule.
        granule: Granule,
        /// The component named by the caller.
        asked: Component,
        /// The component that holds it.
        holder: Component,
    },
    /// The request exceeds the target.
    #[error("{held} held and {wanted} more exceed the target of {target}")]
    OverTarget {
        /// The target.
        target: Bytes,
        /// Memory held by all components.
        held: Bytes,
        /// The requested size.
        wanted: Bytes,
    },
    /// The target exceeds the maximum size.
    #[error("the target of {target} exceeds the maximum size of {max}")]
    OverMax {
        /// The target.
        target: Bytes,
        /// The maximum size.
        max: Bytes,
    },
    /// The target exceeds the memory that this process can have.
    #[error("the target of {target} exceeds the {most} of memory that this process can have")]
    OverMemory {
        /// The target.
        target: Bytes,
        /// The memory of the host, or the limit of its memory cgroups if that is less.
        most: Bytes,
    },
    /// All granules are held.
    #[error("{wanted} requested, {free} of {max} available")]
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
    #[error("no room for another component: the maximum is {most}")]
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
    #[error("component '{name}' already exists, and is {}", match resizable {
        true => "resizable", false => "of fixed size" })]
    OtherKind {
        /// Its name.
        name: String,
        /// True if the existing component is resizable.
        resizable: bool,
    },
    /// The manager has a component of that name, or reserves the name.
    #[error("the manager already has a component '{name}'")]
    NameTaken {
        /// Its name.
        name: String,
    },
    /// The component has a fixed size: it cannot take more, or give any granule away.
    #[error("component '{name}' has a fixed size: it takes memory once and keeps it")]
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
    #[error("{granules} granules exceed the table's maximum of {most}")]
    TooManyGranules {
        /// Requested number of granules.
        granules: u64,
        /// Maximum number of granules.
        most: u64,
    },
    /// The memory belongs to another process, of which this one is a forked copy.
    #[error("the elastic belongs to process {pid}, and this process is its forked copy")]
    Forked {
        /// The owner.
        pid: Pid,
    },
    /// The elastic was created in another PID namespace, so its processes and this one cannot check
    /// whether the other is alive.
    #[error("the elastic was created in another PID namespace")]
    OtherNamespace,
    /// A process holds the table's lock and makes no progress.
    #[error("process {pid} has held the table's lock for {seconds} s")]
    LockTimeout {
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
    #[error("{bytes} were returned, but the system did not free them: {error}")]
    ReturnPending {
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
            E::NotHeld { .. } | E::Stale { .. } | E::DuplicateGranule { .. } => {
                "keep one list of the granules taken, and remove a granule from it before returning it"
            }
            E::HeldByOther { holder, .. } => {
                return format!("pass component {holder}, or transfer the granule first");
            }
            E::OverTarget { held, wanted, .. } => {
                let enough = *held + *wanted;
                return format!("return memory, recover(), or raise the target to {enough}");
            }
            E::OverMax { max: most, .. } | E::OverMemory { most, .. } => {
                return format!("set at most {most}");
            }
            E::Full { .. } => "return memory, or recover() the memory of ended processes",
            E::NoSuchComponent(_) => "create it with component()",
            E::TooManyComponents { .. } => "use an existing one: see info()",
            E::NameTooLong { most, .. } => return format!("use at most {most} bytes"),
            E::NoName => "pass a name",
            E::NameTaken { .. } => "choose another name",
            E::OtherKind { resizable, .. } => {
                return format!("request it with resizable = {resizable}");
            }
            E::NotResizable { .. } => "take all in one call; it lasts until its process ends",
            E::TooManyProcesses { .. } => "detach a process that does not need the elastic",
            E::TooManyGranules { .. } => "use a larger granule",
            E::Forked { .. } => "attach a handle in the child",
            E::OtherNamespace => "attach in the PID namespace of the process that created it",
            E::LockTimeout { pid, .. } => {
                return format!("kill -CONT {pid}    # or end it, then recover()");
            }
            E::Damaged(_) => "end the processes that use it, and create a new one",
            E::ReturnPending { .. } => "call recover()",
            E::Memory(error) => return error.next(),
        };
        text.to_owned()
    }
}
