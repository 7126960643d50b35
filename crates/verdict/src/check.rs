//! Is a host fit for a database: one row a feature, present or not, its value, what it should be, how to change it, and what
//! that risks. Pure.
//!
//! Each row is a function of the host's facts. What a row is worth is measured elsewhere, on this host or not at all.

mod programs;
mod rows;
#[cfg(test)]
mod tests;

use hugeleaf_host::Host;
use hugeleaf_host::system::features::Features;

pub use programs::{PROGRAMS_SOURCE, Program, programs};

hugeleaf_units::named! {
    /// What a host is for.
    pub enum Profile {
        /// Short transactions on a database.
        Oltp = "oltp",
        /// Long queries over much data.
        Warehouse = "warehouse",
        /// Moving data in large blocks.
        Backup = "backup",
        /// Java virtual machines.
        Jvm = "jvm",
        /// Caches in memory.
        Cache = "cache",
        /// Search among vectors.
        Vector = "vector",
    }
}

hugeleaf_units::named! {
    /// How a feature is.
    pub enum State {
        /// Set to what hurts, or against what a program here wants.
        Change = "change",
        /// Worth a look.
        Look = "look",
        /// As it should be.
        Good = "good",
        /// Nothing to set: this kernel or this machine has no such thing.
        Absent = "absent",
        /// It could not be read.
        Unknown = "unknown",
    }
}

/// A feature.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Row {
    /// Names the row; does not change between versions.
    pub id: &'static str,
    /// What it belongs to: `memory`, `disks`, `network`, `processors`, `limits`, `programs`.
    pub area: &'static str,
    /// What it is, in a few words.
    pub what: String,
    /// Its value here; nothing where there is none.
    pub value: Option<String>,
    /// How it is.
    pub state: State,
    /// What it should be, and why, in a sentence; nothing where it is so.
    pub why: Option<String>,
    /// What changes it.
    pub command: Option<String>,
    /// What that risks.
    pub risk: Option<&'static str>,
    /// The arm of a workload whose gain is what it is worth: `thp:2M`, `hugetlb:2M`.
    pub arm: Option<String>,
}

impl Row {
    fn new(id: &'static str, area: &'static str, what: impl Into<String>) -> Row {
        Row {
            id,
            area,
            what: what.into(),
            value: None,
            state: State::Absent,
            why: None,
            command: None,
            risk: None,
            arm: None,
        }
    }

    fn is(mut self, value: impl Into<String>) -> Row {
        self.value = Some(value.into());
        self.state = State::Good;
        self
    }

    fn should(mut self, state: State, why: impl Into<String>) -> Row {
        self.state = state;
        self.why = Some(why.into());
        self
    }

    fn by(mut self, command: impl Into<String>, risk: &'static str) -> Row {
        self.command = Some(command.into());
        self.risk = Some(risk);
        self
    }
}

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub struct Checked<'a> {
    /// The host.
    pub host: &'a Host,
    /// What it has switched on.
    pub features: &'a Features,
    /// What it is for, where that was said.
    pub profile: Option<Profile>,
    /// Programs that run there, of those that want something of a host.
    pub running: &'a [Program],
}

impl Checked<'_> {
    fn is_for(&self, profiles: &[Profile]) -> bool {
        self.profile
            .is_none_or(|profile| profiles.contains(&profile))
    }
}

/// All rows, area by area.
pub fn check(checked: &Checked<'_>) -> Vec<Row> {
    let mut all = rows::memory(checked);
    all.extend(rows::disks(checked));
    all.extend(rows::network(checked));
    all.extend(rows::processors(checked));
    all.extend(rows::limits(checked));
    all.extend(programs::wants(checked));
    all
}
