//! `bench FILE`: any program that a file describes, on the pages of several arms or with several settings.
//!
//! Arms take turns in a new random order each round. Each turn starts the program anew, so that the memory layout varies
//! too. A failed turn is kept with its reason instead of a sample, and an arm that fails twice at a place is skipped
//! there.

mod arm;
mod arm_run;
mod peak_memory;
mod workload_bench;

use std::path::PathBuf;

use crate::result_format::Results;

use hugeleaf_verdict::shell_word;
pub use hugeleaf_workload::workload_file::WorkloadSpec;

pub use arm::{ArmPageSource, WorkloadArm, merged};
pub use workload_bench::measure;

impl WorkloadBenchSettings<'_> {
    /// Returns the dry-run command that shows the workload, with the purpose `why`.
    fn dry_run(&self, why: &str) -> String {
        let given = shell_word(self.given);
        format!("hugeleaf bench {given} --dry-run    # {why}")
    }
}

pub struct WorkloadBenchSettings<'a> {
    pub described: &'a WorkloadSpec,
    /// The name or file as given, for printed commands.
    pub given: &'a str,
    /// The file's text, which identifies a result to resume.
    pub text: &'a str,
    pub arms: Vec<WorkloadArm>,
    pub rounds: usize,
    pub seed: u64,
    pub below: PathBuf,
    pub resume: Option<Results>,
    pub keep: &'a dyn Fn(&Results),
}
