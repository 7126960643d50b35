//! Plans: from demand and a host to pages, settings and files.
//!
//! [`make`] creates a [`Plan`], [`write`](write()) writes it as an editable TOML file, and
//! [`parse`] reads that file. [`check`] compares it with the host to which it will be applied.
//! [`steps`] derives the files and the values of knobs. [`tighten`] creates a smaller plan from the
//! use observed over a time.
//!
//! All of it is pure: no I/O, no clock. `hugeleaf-change` executes the steps.

mod allowed;
mod arithmetic;
mod build;
mod check;
mod derive;
mod facts;
mod file;
mod files;
mod knobs;
mod layout;
mod merge;
mod model;
mod named;
mod notes;
mod promise;
mod read;
pub(crate) mod reservation;
mod rights;
mod rightsize;
mod service_hints;
mod step;
mod validate;
mod write;

#[cfg(test)]
mod tests;

pub use allowed::hides as hidden_by_mount;
pub use arithmetic::{all_pages_text, base as base_lines, demand as demand_lines, sum_pages};
pub use build::make;
pub use check::{Now, check};
pub use derive::{pool_path, steps};
pub use facts::{Facts, InForce, Wishes};
pub use file::{PlanError, parse};
pub use files::{GRUB, OURS};
pub use merge::keep;
pub use model::{
    BasePages, Boot, ForDemand, ForHost, Group, Kept, Knob, Limit, Mount, PagesOf, Plan, PoolPlan,
    Promise, ServicePlan, Unit,
};
pub use promise::{Promised, can_be_found, is_same, is_same_place, pages_of, promised};
pub use read::SCHEMA;
pub use reservation::Margin;
pub use rightsize::{Sample, sample, tighten};
pub use step::{Needs, Step, What};
pub use write::{needs, write};
