//! The input and the result of a check.

use hugeleaf_host::system::running_programs::RunningProcess;
use hugeleaf_host::system::system_config::SystemConfig;
use hugeleaf_host::{Fact, Host};
use serde::{Deserialize, Serialize};

use crate::advice::AcceptedValues;

/// A program of `data/programs.toml`, which documents the fields.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownProgram {
    pub names: Vec<String>,
    pub title: String,
    pub argument: Option<String>,
    pub path: Option<String>,
    #[serde(default)]
    pub starts: Vec<String>,
    #[serde(default)]
    pub packages: Vec<String>,
    #[serde(default)]
    pub pool: bool,
    #[serde(default)]
    pub want: Vec<DocumentedRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentedRequirement {
    pub setting: String,
    #[serde(default)]
    pub values: Vec<String>,
    pub least: Option<u64>,
    pub most: Option<u64>,
    pub since: Option<u32>,
    pub until: Option<u32>,
    #[serde(default)]
    pub arch: Vec<String>,
    pub source: String,
}

/// A running program and its processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningProgram {
    pub program: KnownProgram,
    pub processes: Vec<RunningProcess>,
}

hugeleaf_units::named! {
    pub enum WorkloadProfile {
        Oltp = "oltp",
        Warehouse = "warehouse",
        Backup = "backup",
        Jvm = "jvm",
        Cache = "cache",
        Vector = "vector",
    }
}

hugeleaf_units::named! {
    pub enum CheckState {
        /// Set to a harmful value, or against the want of a program that runs here.
        Change = "change",
        Review = "review",
        Good = "good",
        /// Nothing to set, because the kernel or the machine lacks the feature.
        Absent = "absent",
        Unknown = "unknown",
    }
}

/// A demand on a setting, with its reason.
#[derive(Debug, Clone)]
pub(super) struct SettingDemand {
    pub wants: AcceptedValues,
    /// The whole sentence: the defect or the demand, with the source.
    pub why: String,
    /// State of a row that does not meet the demand.
    pub state: CheckState,
    /// True for a general rule, which gives way to the wants of programs that run here.
    pub is_general: bool,
}

impl SettingDemand {
    pub fn own(wants: AcceptedValues, state: CheckState, why: impl Into<String>) -> SettingDemand {
        SettingDemand {
            wants,
            why: why.into(),
            state,
            is_general: false,
        }
    }

    pub fn general(
        wants: AcceptedValues,
        state: CheckState,
        why: impl Into<String>,
    ) -> SettingDemand {
        SettingDemand {
            is_general: true,
            ..SettingDemand::own(wants, state, why)
        }
    }
}

/// The want of a running program for the setting of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramRequirement {
    pub program: String,
    /// As in `madvise or never`, `at least 511`.
    pub wants: String,
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckRow {
    /// The name of the row. It does not change between versions.
    pub id: &'static str,
    /// The area: `memory`, `disks`, `network`, `processors`, `limits`, `programs`.
    pub area: &'static str,
    pub what: String,
    /// The value on this host, if any.
    pub value: Option<String>,
    pub state: CheckState,
    /// The advised value and the reason, in a sentence; `None` if the value is good.
    pub why: Option<String>,
    pub command: Option<String>,
    pub risk: Option<String>,
    /// The arm of a workload whose gain is the worth of the row: `thp:2M`, `hugetlb:2M`.
    pub arm: Option<String>,
    pub wants: Vec<ProgramRequirement>,
}

impl CheckRow {
    /// Creates a row without an area, which [`super::check`] sets.
    pub(super) fn new(id: &'static str, what: impl Into<String>) -> CheckRow {
        CheckRow {
            id,
            area: "",
            what: what.into(),
            value: None,
            state: CheckState::Absent,
            why: None,
            command: None,
            risk: None,
            arm: None,
            wants: Vec::new(),
        }
    }

    /// Applies a known fact. For an absent fact the row stays absent, for an unreadable one it is unknown
    /// with the reason.
    pub(super) fn with_fact<T>(
        self,
        fact: &Fact<T>,
        known: impl FnOnce(CheckRow, &T) -> CheckRow,
    ) -> CheckRow {
        match fact {
            Fact::Known(value) => known(self, value),
            Fact::Absent => self,
            Fact::Unreadable(error) => self.with_state(CheckState::Unknown, error.to_string()),
        }
    }

    pub(super) fn with_value(mut self, value: impl Into<String>) -> CheckRow {
        self.value = Some(value.into());
        self.state = CheckState::Good;
        self
    }

    pub(super) fn with_state(mut self, state: CheckState, why: impl Into<String>) -> CheckRow {
        self.state = state;
        self.why = Some(why.into());
        self
    }

    pub(super) fn review(self, why: impl Into<String>) -> CheckRow {
        self.with_state(CheckState::Review, why)
    }

    pub(super) fn change(self, why: impl Into<String>) -> CheckRow {
        self.with_state(CheckState::Change, why)
    }

    pub(super) fn when(
        self,
        is_wrong: bool,
        better: impl FnOnce(CheckRow) -> CheckRow,
    ) -> CheckRow {
        if is_wrong { better(self) } else { self }
    }

    /// Adds a command that does not change a host setting; those come from `judge_setting`.
    pub(super) fn with_command(
        mut self,
        command: impl Into<String>,
        risk: impl Into<String>,
    ) -> CheckRow {
        self.command = Some(command.into());
        self.risk = Some(risk.into());
        self
    }
}

#[derive(Debug, Clone, Copy)]
pub struct CheckInput<'a> {
    pub host: &'a Host,
    pub features: &'a SystemConfig,
    pub profile: Option<WorkloadProfile>,
    pub servers: &'a Fact<Vec<RunningProgram>>,
}

impl CheckInput<'_> {
    pub(super) fn is_for(&self, profiles: &[WorkloadProfile]) -> bool {
        self.profile
            .is_none_or(|profile| profiles.contains(&profile))
    }
}
