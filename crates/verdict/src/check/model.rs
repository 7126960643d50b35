//! What is judged, and what comes of it.

use hugeleaf_host::system::features::Features;
use hugeleaf_host::{Fact, Host};
use serde::Deserialize;

/// A program and what it wants.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// As the kernel names its processes.
    pub name: String,
    /// As people call it.
    pub title: String,
    /// Settings of transparent huge pages that it is content with, the best first.
    pub thp: Vec<String>,
    /// Where its makers say so.
    pub source: String,
    /// `vm.overcommit_memory`.
    pub overcommit_memory: Option<u64>,
    /// The most for `vm.swappiness`.
    pub swappiness: Option<u64>,
    /// The least for `vm.max_map_count`.
    pub max_map_count: Option<u64>,
    /// The least for `net.core.somaxconn`.
    pub somaxconn: Option<u64>,
    /// Whether it takes pages of a pool where there are any.
    #[serde(default)]
    pub pool: bool,
}

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
    /// A row of no area yet: [`super::check`] sets it.
    pub(super) fn new(id: &'static str, what: impl Into<String>) -> Row {
        Row {
            id,
            area: "",
            what: what.into(),
            value: None,
            state: State::Absent,
            why: None,
            command: None,
            risk: None,
            arm: None,
        }
    }

    /// What a fact makes of it: it stays absent, or is unknown with the reason, unless the fact is known.
    pub(super) fn of<T>(self, fact: &Fact<T>, known: impl FnOnce(Row, &T) -> Row) -> Row {
        match fact {
            Fact::Known(value) => known(self, value),
            Fact::Absent => self,
            Fact::Unreadable(error) => self.should(State::Unknown, error.to_string()),
        }
    }

    pub(super) fn is(mut self, value: impl Into<String>) -> Row {
        self.value = Some(value.into());
        self.state = State::Good;
        self
    }

    pub(super) fn should(mut self, state: State, why: impl Into<String>) -> Row {
        self.state = state;
        self.why = Some(why.into());
        self
    }

    /// Worth a look, and why.
    pub(super) fn look(self, why: impl Into<String>) -> Row {
        self.should(State::Look, why)
    }

    /// To be changed, and why.
    pub(super) fn change(self, why: impl Into<String>) -> Row {
        self.should(State::Change, why)
    }

    pub(super) fn when(self, is_wrong: bool, better: impl FnOnce(Row) -> Row) -> Row {
        if is_wrong { better(self) } else { self }
    }

    pub(super) fn by(mut self, command: impl Into<String>, risk: &'static str) -> Row {
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
    pub(super) fn is_for(&self, profiles: &[Profile]) -> bool {
        self.profile
            .is_none_or(|profile| profiles.contains(&profile))
    }
}
