//! Workloads defined by a file: their needs, their preparation, the server on the pages of an arm, the load, and the figures that the load
//! prints.
//!
//! [`Described::parse`] reads a file and locates its errors; [`figures`] extracts the figures from a run's output. Both are pure. [`Stage`]
//! runs the commands in a separate folder and leaves nothing behind. The workloads of hugeleaf are in [`SHIPPED`].

mod counts;
mod metrics;
mod file;
mod needs;
mod runner;
mod shipped;
mod size;

pub use metrics::{Figure, NoFigure, LoadOutput, figures};
pub use file::{
    Better, WorkloadSpec, FileError, LoadSpec, Loop, Measure, OwnArm, SCHEMA, Script, ServerSpec, MetricSource,
};
pub use needs::Needs;
pub use runner::{RunningServer, Runner, RunnerError, Watched};
pub use shipped::{SHIPPED, Shipped, shipped};
pub use size::Size;
