//! Checks if a host is fit for a database. Each row is a feature, with its presence, current value, advised value, command and
//! risk. Pure.
//!
//! Each row is a function of the host's facts. The gain of a row is measured elsewhere, on this host or not at all. `judge`
//! alone judges and advises a value, by the row's own rule and by all programs that run here, so that no row contradicts
//! another.

use hugeleaf_host::system::system_config::SystemConfig;
use hugeleaf_host::{Fact, Host};

use crate::advice;

mod file_systems;
mod judge;
mod model;
mod programs;
mod rows;
mod setting_lookup;
#[cfg(test)]
mod tests;

pub use file_systems::{FileSystem, file_systems};
pub use model::{
    CheckInput, CheckRow, CheckState, DocumentedRequirement, KnownProgram, ProgramRequirement,
    RunningProgram, WorkloadProfile,
};
pub use programs::{packages, programs, servers};

/// Returns the wants of the programs that run here, for other screens that advise settings.
pub fn wants(host: &Host, servers: &Fact<Vec<RunningProgram>>) -> Vec<advice::SettingRequirement> {
    let checked = CheckInput {
        host,
        features: &SystemConfig::default(),
        profile: None,
        servers,
    };
    programs::all_wants(&checked)
}

pub fn check(checked: &CheckInput<'_>) -> Vec<CheckRow> {
    let areas = [
        ("memory", rows::memory(checked)),
        ("disks", rows::disks(checked)),
        ("network", rows::network(checked)),
        ("processors", rows::processors(checked)),
        ("limits", rows::limits(checked)),
        ("programs", programs::rows(checked)),
    ];
    let of_area = |(area, rows): (_, Vec<CheckRow>)| {
        rows.into_iter().map(move |row| CheckRow { area, ..row })
    };
    areas.into_iter().flat_map(of_area).collect()
}
