//! Kinds of demand sources with a flag, and of programs with their own demand rules. They are the rows of
//! the tables in `service_discovery`.

use std::ffi::OsStr;

use hugeleaf_units::Failure;

use super::service_reader::ServiceReader;
use super::{Service, ServiceKind};
use crate::model::Process;

/// A kind of source that has a flag of its own.
#[derive(Debug)]
pub struct DemandSourceKind {
    pub flag: &'static str,
    pub value: &'static str,
    pub help: &'static str,
    pub arity: FlagArity,
    /// Checks a value. `None` if any text is valid, as for a path.
    pub check: Option<ValueCheck>,
    /// True if the memory is of no existing program. The user must then give its name, account and node.
    pub is_synthetic: bool,
    pub(super) read: fn(&ServiceReader<'_>, &OsStr) -> Result<Vec<Service>, Failure>,
}

/// Returns the reason why a text cannot be a value.
type ValueCheck = fn(&str) -> Result<(), String>;

/// A service, or the reason why it could not be read.
pub(super) type ServiceResult = Result<Service, Failure>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagArity {
    Once,
    OnceOrBare,
    Often,
    /// The same, with values that may begin with a dash.
    OftenWithDash,
}

/// A program with its own rules for its demand.
pub(super) struct ProgramRule {
    pub kind: ServiceKind,
    pub is: fn(&str) -> bool,
    /// True if a child of the same name belongs to its parent: a backend, or a saving child.
    pub forks: bool,
    pub running: fn(&ServiceReader<'_>, &Process, &[Process]) -> Result<Service, Failure>,
    /// Reads a stopped service, by the program and the words of its unit's command. `None` if these do not
    /// start this program.
    pub stopped: fn(&ServiceReader<'_>, &str, &[&str]) -> Option<ServiceResult>,
    pub query: Option<fn(&ServiceReader<'_>, &mut Service)>,
}
