//! What is judged, and what comes of it.

use hugeleaf_host::system::features::Features;
use hugeleaf_host::{Fact, Host};
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub name: String,
    pub title: String,
    /// Settings of transparent huge pages that it is content with, the best first.
    pub thp: Vec<String>,
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
    pub enum Profile {
        Oltp = "oltp",
        Warehouse = "warehouse",
        Backup = "backup",
        Jvm = "jvm",
        Cache = "cache",
        Vector = "vector",
    }
}

hugeleaf_units::named! {
    pub enum State {
        /// Set to what hurts, or against what a program here wants.
        Change = "change",
        Look = "look",
        Good = "good",
        /// Nothing to set: this kernel or this machine has no such thing.
        Absent = "absent",
        Unknown = "unknown",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Row {
    /// Names the row; does not change between versions.
    pub id: &'static str,
    /// What it belongs to: `memory`, `disks`, `network`, `processors`, `limits`, `programs`.
    pub area: &'static str,
    pub what: String,
    /// Its value here; nothing where there is none.
    pub value: Option<String>,
    pub state: State,
    /// What it should be, and why, in a sentence; nothing where it is so.
    pub why: Option<String>,
    pub command: Option<String>,
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

    pub(super) fn look(self, why: impl Into<String>) -> Row {
        self.should(State::Look, why)
    }

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

#[derive(Debug, Clone, Copy)]
pub struct Checked<'a> {
    pub host: &'a Host,
    pub features: &'a Features,
    pub profile: Option<Profile>,
    pub running: &'a [Program],
}

impl Checked<'_> {
    pub(super) fn is_for(&self, profiles: &[Profile]) -> bool {
        self.profile
            .is_none_or(|profile| profiles.contains(&profile))
    }
}
