//! Proof: experiments on running programs, and their statistics.
//!
//! An experiment measures a [`Metric`] on a [`Subject`] whose memory is moved between base and
//! large pages, pair by pair of intervals in random order, until its [`rule`] has seen enough; the
//! result is a ratio with an interval, a verdict, and what else moved.
//!
//! [`mod@bench`] measures what pages of each size cost and gain, on memory of its own;
//! [`compare`] holds two results of either against each other; [`embedded`] is the experiment of `hugeleaf try`.
//!
//! This crate must not draw or print (that is `hugeleaf-report`), and moves memory only through a
//! [`Subject`]: what is left behind is that subject's business, and so is putting it back.
//!
//! Main types: [`run`], [`Settings`], [`Subject`], [`Metric`], [`ResultFile`], [`stats`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod bench;
pub mod claim;
pub mod compare;
pub mod embedded;
pub mod experiment;
pub mod hold;
pub mod live;
pub mod metric;
pub mod orders;
pub mod predict;
pub mod result;
pub mod rows;
pub mod rule;
mod spread;
pub mod stats;
pub mod subject;
pub mod weigh;
pub mod worth;

pub use experiment::{Circumstances, Event, Keep, ProveError, Settings, run};
pub use hold::Holds;
pub use live::{LiveSubject, circumstances};
pub use metric::{Metric, MetricError, MetricSpec};
pub use result::{Design, Ending, ResultFile, WriteError, write_whole};
pub use rule::Rule;
pub use spread::Spread;
pub use stats::Verdict;
pub use subject::{Arm, Prepared, SideMetrics, Subject, SubjectError};
