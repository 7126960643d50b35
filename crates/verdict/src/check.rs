//! Is a host fit for a database: one row a feature, present or not, its value, what it should be, how to change it, and what
//! that risks. Pure.
//!
//! Each row is a function of the host's facts. What a row is worth is measured elsewhere, on this host or not at all.

mod file_systems;
mod model;
mod programs;
mod rows;
#[cfg(test)]
mod tests;

pub use file_systems::{FileSystem, file_systems};
pub use model::{Checked, Profile, Program, Row, State};
pub use programs::{PROGRAMS_SOURCE, programs};

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
