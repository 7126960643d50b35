//! How memory is divided among components: buffer pools, sort areas and caches of one process, or whole servers. A
//! target says how much they may hold together; granules move from the component that loses least by it to the one
//! that gains most.
//!
//! Benefit is measured, never guessed: [`Ghost`] of a cache that sees its own keys, [`Spills`] of sorts and hash
//! joins, [`Counters`] of a server of which only counters are known. All say the same thing in one unit, a
//! [`Benefit`]: seconds saved a second by a granule more, and lost by a granule less. What shows no benefit gets
//! nothing, however many misses it has.
//!
//! Who uses it calls [`decide`] every look, carries the orders of its [`Move`]s out (or not), and hands what came of
//! each to [`learn`].
//!
//! This crate must not read a clock, wait, start threads or do any input or output: time is a parameter, so that days
//! are simulated in seconds (`tests/`).
//!
//! Main types: [`Component`], [`Benefit`], [`Settings`], [`State`], [`Move`], [`Came`], [`Standing`], [`View`].

#![warn(missing_docs)] // people program against it
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(not(test), warn(clippy::disallowed_types))]

mod choose;
mod component;
mod counters;
mod ghost;
mod history;
mod learn;
mod look;
mod policy;
mod rate;
mod settings;
mod spill;
mod standing;
mod state;
mod view;

pub use component::{Benefit, Component, Estimate, Granule, NoGranule};
pub use counters::Counters;
pub use ghost::{Ghost, Step};
pub use history::{History, Mode, OperationKind, ResizeOperation, Status};
pub use learn::{Came, changed, learn};
pub use policy::decide;
pub use settings::Settings;
pub use spill::{Ran, Spills};
pub use standing::{Problem, Standing, Trouble};
pub use state::{Move, Order, State};
pub use view::{DynamicComponent, SgaInfo, View, view};
