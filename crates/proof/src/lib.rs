//! Proof: experiments on running processes, and their statistics.
//!
//! An experiment measures a [`Metric`] on a [`Subject`] whose memory is promoted and demoted, in pairs of
//! intervals in random order, until its [`stopping_rule`] is satisfied. The result is a ratio with an interval, a
//! verdict, and side effects.
//!
//! [`mod@bench`] measures the costs and gains of each page size on its own memory. [`compare`] compares two
//! results of either. [`try_experiment`] is the experiment of `hugeleaf try`.
//!
//! `stopping_rule` decides when enough was measured. `arm_order` draws which arm is first, `stats` makes a ratio with an interval of
//! the pairs, `effective_sample` checks their independence, and `experiment_lock` keeps a second experiment away. `long_holds` measures each
//! arm for longer after the pairs. `metric` has one module per kind and one table of them, from which help,
//! errors and documents are made.
//!
//! `result_format` is the one format of a result: arms, rows (arm, place, quantity, samples), charts. It is checked when it is
//! read. An experiment of [`mod@bench`] adds samples to rows as it takes them (`BenchRun`, which the lab uses too).
//! [`compare`] knows no experiment by name; `compare::over` alone decides if two rows are comparable, and their ratio.
//! `past_gains` says what arms have gained on this host, from results.
//!
//! This crate must not draw or print (that is `hugeleaf-report`). It promotes and demotes only through a
//! [`Subject`], which is responsible for restoring the memory.
//!
//! Main types: [`run`], [`ExperimentSettings`], [`Subject`], [`Metric`], [`ProveResult`], [`stats`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod arm_order;
pub mod bench;
pub mod compare;
pub mod effective_sample;
pub mod experiment;
pub mod experiment_lock;
pub mod live_subject;
pub mod long_holds;
mod median_interval;
pub mod metric;
pub mod past_gains;
pub mod prediction_inputs;
pub mod prove_result;
pub mod result_format;
pub mod stats;
pub mod stopping_rule;
pub mod subject;
pub mod try_experiment;

pub use experiment::{
    ExperimentEvent, ExperimentSettings, FinalPages, ProveError, Provenance, run,
};
pub use live_subject::{LiveSubject, circumstances};
pub use long_holds::HoldResult;
pub use median_interval::MedianInterval;
pub use metric::{Metric, MetricError, MetricSpec};
pub use prove_result::{ExperimentDesign, ExperimentEnd, ProveResult, WriteError, write_whole};
pub use stats::Verdict;
pub use stopping_rule::StoppingRule;
pub use subject::{Arm, SelectedMemory, SideMetrics, Subject, SubjectError};
