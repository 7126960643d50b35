//! Workloads defined by a file: their needs, their preparation, the server on the pages of an arm, the load, and the figures that the load
//! prints.
//!
//! [`WorkloadSpec::parse`] reads a file and locates its errors; [`figures`] extracts the figures from a run's output. Both are pure. [`Runner`]
//! runs the commands in a separate folder and leaves nothing behind. The workloads of hugeleaf are in [`SHIPPED`].

mod counts;
mod file;
mod metrics;
mod needs;
mod runner;
mod shipped;
mod size;

pub use file::{
    Better, FileError, LoadSpec, Loop, Measure, MetricSource, OwnArm, SCHEMA, Script, ServerSpec,
    WorkloadSpec,
};
pub use metrics::{Figure, LoadOutput, NoFigure, figures};
pub use needs::Needs;
pub use runner::{Runner, RunnerError, RunningServer, Watched};
pub use shipped::{SHIPPED, Shipped, shipped};
pub use size::Size;
