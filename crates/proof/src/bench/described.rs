//! `bench FILE`: any program that a file describes, on the pages of several arms, or with several settings.
//!
//! Arms take turns in an order drawn anew each round, and whatever is measured is started anew for each turn, so that the
//! layout of memory varies too. A turn that fails is no sample: it is kept with its reason, and an arm that fails twice at
//! a place is left out there.

mod arm;
mod measure;
mod seen;
mod turn;

use std::path::{Path, PathBuf};

use hugeleaf_host::Root;
use hugeleaf_units::Bytes;
use hugeleaf_workload::described::Place;

use crate::rows::Results;

pub use hugeleaf_workload::described::{Described, Unmet};

pub use arm::{LabArm, LabPages, merged};
pub use measure::measure;

/// What is asked for.
pub struct LabSettings<'a> {
    /// The workload.
    pub described: &'a Described,
    /// Its text, by which a result that is to be gone on with is known.
    pub text: &'a str,
    /// The arms; others are compared with the first.
    pub arms: Vec<LabArm>,
    /// Runs of each arm at each place.
    pub rounds: usize,
    /// Of the orders.
    pub seed: u64,
    /// Where its folder is made.
    pub below: PathBuf,
    /// A result that was interrupted, to be gone on with.
    pub resume: Option<Results>,
    /// Called with what there is after each round.
    pub keep: &'a dyn Fn(&Results),
}

/// What of a workload's needs this host lacks.
pub fn unmet(described: &Described, memory: Bytes, below: &Path) -> Option<Unmet> {
    let place = Place {
        memory,
        disk: rustix::fs::statvfs(below)
            .ok()
            .map(|s| Bytes(s.f_bavail.saturating_mul(s.f_frsize))),
        is_root: hugeleaf_sys::effective_uid() == 0,
    };
    let path = std::env::var("PATH").unwrap_or_default();
    let all = || {
        path.split(':')
            .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"])
    };
    let has = |name: &str| match name.starts_with('/') {
        true => Path::new(name).exists(),
        false => all().any(|folder| Path::new(folder).join(name).is_file()),
    };
    let root = Root::live();
    let is_there = |file: &Path| {
        let below = file.strip_prefix("/").unwrap_or(file);
        root.path(below).exists()
    };
    described.needs.unmet(&place, &has, &is_there)
}
