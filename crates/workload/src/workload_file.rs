//! Workloads defined by a file: their needs, their preparation, the server on the pages of an arm, the load, and the figures that the load
//! prints.
//!
//! [`WorkloadSpec::parse`] reads a file and locates its errors; [`figures`] extracts the figures from a run's output. Both are pure. [`Runner`]
//! runs the commands in a separate folder and leaves nothing behind. The workloads of hugeleaf are in [`SHIPPED`].

mod needs;
mod output_metrics;
mod resource_usage;
mod runner;
mod shipped;
mod size;
mod spec;

pub use needs::Needs;
pub use output_metrics::{LoadOutput, MetricValue, MissingMetric, figures};
pub use runner::{LoadObserver, Runner, RunnerError, RunningServer};
pub use shipped::{SHIPPED, ShippedWorkload, shipped};
pub use size::SizeSpec;
pub use spec::{
    ArmSpec, LoadSpec, LoopKind, MetricDirection, MetricSource, SCHEMA, Script, ServerSpec,
    WorkloadFileError, WorkloadMetric, WorkloadSpec,
};
