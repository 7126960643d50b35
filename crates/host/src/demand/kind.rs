//! What a source of demand that has a flag is, and a program whose demand is known by rules of its own: the
//! rows of the tables in `source`.

use std::ffi::OsStr;

use super::running::Look;
use super::{DemandError, Service, ServiceKind};
use crate::model::Process;

/// A kind of source that has a flag of its own.
#[derive(Debug)]
pub struct SourceKind {
    pub flag: &'static str,
    pub value: &'static str,
    pub help: &'static str,
    pub given: Given,
    /// Whether a text can be its value; `None` where any can, as a path.
    pub check: Option<Check>,
    /// Whether it is memory of no program that is looked at: what it is called, whom it runs as and
    /// its node are for the user to say.
    pub is_made_up: bool,
    pub(super) read: fn(&Look<'_>, &OsStr) -> Result<Vec<Service>, DemandError>,
}

/// Says why a text cannot be a value.
type Check = fn(&str) -> Result<(), String>;

/// A service, or why it could not be asked.
pub(super) type Asked = Result<Service, DemandError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    Once,
    OnceOrBare,
    Often,
    /// The same, with values that may begin with a dash.
    OftenWithDash,
}

/// A program whose demand is known by rules of its own.
pub(super) struct Program {
    pub kind: ServiceKind,
    pub is: fn(&str) -> bool,
    /// Whether a child of the same name stands for its parent: a backend, or one that saves.
    pub forks: bool,
    pub running: fn(&Look<'_>, &Process, &[Process]) -> Result<Service, DemandError>,
    /// One that does not run, by the program and the words of its unit's command; `None` where these
    /// do not name such a one.
    pub stopped: fn(&Look<'_>, &str, &[&str]) -> Option<Asked>,
    pub ask: Option<fn(&Look<'_>, &mut Service)>,
}
