//! Divides memory among components: buffer pools, sort areas and caches of one process, or whole servers. A target
//! limits their total memory. Granules move from the component that loses least to the one that gains most.
//!
//! Benefit is always measured: by [`GhostList`] for a cache that sees its own keys, by [`Spills`] for sorts and hash
//! joins, by [`MissRateModel`] for a server with only counters. All return a [`Benefit`] in the same unit: seconds saved
//! per second by a granule more, and lost by a granule less. A component without a measured benefit gets nothing,
//! regardless of its misses.
//!
//! The caller runs [`decide`] in each scan, executes the orders of its [`Move`]s (or not), and passes each result to
//! [`learn`].
//!
//! `policy` orders moves. It takes before it gives, judges each move by its effect, and leaves a pair of components alone
//! for longer each time that a move between them was wrong. `propose_moves` finds worthwhile moves and their sizes. `apply_scan` and
//! `order_result` take over observations and the results of orders. `oracle_views` shows components and moves as Oracle's views do.
//!
//! This crate must not read a clock, wait, start threads or do any input or output. Time is a parameter, so that days
//! are simulated in seconds (`tests/`).
//!
//! Main types: [`Component`], [`Benefit`], [`Settings`], [`State`], [`Move`], [`OrderResult`], [`ComponentState`], [`OracleViews`].

#![warn(missing_docs)] // people program against it
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(not(test), warn(clippy::disallowed_types))]

mod apply_order_result;
mod apply_scan;
mod component;
mod component_state;
mod decayed_rate;
mod ghost_list;
mod history;
mod miss_rate_model;
mod oracle_views;
mod policy;
mod propose_moves;
mod settings;
mod spill;
mod state;

pub use apply_order_result::{OrderResult, changed, learn};
pub use component::{Benefit, Component, Estimate, Granule, NoGranule};
pub use component_state::{ComponentState, OrderFailure, TargetProblem};
pub use ghost_list::{CurveStep, GhostList};
pub use history::{OperationKind, ResizeHistory, ResizeMode, ResizeOperation, ResizeStatus};
pub use miss_rate_model::MissRateModel;
pub use oracle_views::{DynamicComponent, OracleViews, SgaInfo, view};
pub use policy::decide;
pub use settings::Settings;
pub use spill::{Spills, WorkAreaOperation};
pub use state::{Move, Order, State};
