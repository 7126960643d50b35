//! Workloads defined by a file: their needs, their preparation, the server on the pages of an arm, the load, and the figures that the load
//! prints.
//!
//! [`WorkloadSpec::parse`] reads a file and locates its errors; [`figures`] extracts the figures from a run's output. Both are pure. [`Runner`]
//! runs the commands in a separate folder and leaves nothing behind. The workloads of hugeleaf are in [`SHIPPED`].

mod metrics;
mod needs;
mod resource_usage;
mod runner;
mod shipped;
mod size;
mod spec;

pub use metrics::{Figure, LoadOutput, NoFigure, figures};
pub use needs::Needs;
pub use runner::{Runner, RunnerError, RunningServer, Watched};
pub use shipped::{SHIPPED, ShippedWorkload, shipped};
pub use size::Size;
pub use spec::{
    Better, FileArm, LoadSpec, LoopKind, Measure, MetricSource, SCHEMA, Script, ServerSpec,
    WorkloadFileError, WorkloadSpec,
};
