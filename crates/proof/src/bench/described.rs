//! `bench FILE`: any program that a file describes, on the pages of several arms, or with several settings.
//!
//! Arms take turns in an order drawn anew each round, and whatever is measured is started anew for each turn, so that the
//! layout of memory varies too. A turn that fails is no sample: it is kept with its reason, and an arm that fails twice at
//! a place is left out there.

mod arm;
mod measure;
mod seen;
mod turn;

use std::path::PathBuf;

use crate::rows::Results;

use hugeleaf_verdict::shell_word;
pub use hugeleaf_workload::described::Described;

pub use arm::{LabArm, LabPages, merged};
pub use measure::measure;

impl LabSettings<'_> {
    /// The command that shows all that it runs, with what that is looked at for.
    fn dry_run(&self, why: &str) -> String {
        let given = shell_word(self.given);
        format!("hugeleaf bench {given} --dry-run    # {why}")
    }
}

pub struct LabSettings<'a> {
    pub described: &'a Described,
    /// The name or file that was given, for commands that are printed.
    pub given: &'a str,
    /// Its text, by which a result that is to be gone on with is known.
    pub text: &'a str,
    pub arms: Vec<LabArm>,
    pub rounds: usize,
    pub seed: u64,
    pub below: PathBuf,
    pub resume: Option<Results>,
    pub keep: &'a dyn Fn(&Results),
}
