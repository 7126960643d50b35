//! The result of `prove`: a file of rows ([`crate::rows`]), with what the rows say.

use std::path::{Path, PathBuf};

use hugeleaf_host::Held;
use hugeleaf_sys::Existing;
use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::rows::{self, ArmAbout, Chart, Row};
pub use crate::stats::Effect;
use crate::stats::{Better, Verdict};
use crate::subject::Arm;

/// How the arms were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// Pairs of intervals, one on each arm, in an order drawn in balanced blocks.
    RandomPairs,
    /// All intervals on base pages, then all on large ones: the weaker design, for memory that
    /// cannot be moved back.
    BeforeAfter,
}

/// Why an experiment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The interval is as narrow as was asked.
    Narrow,
    /// The number of pairs that was asked for is there.
    Pairs,
    /// Time is over.
    Time,
    /// Every quantile of both arms is in one bucket: no number of pairs would tell more.
    OneBucket,
    /// Ctrl-C.
    Interrupted,
}

/// A whole result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    /// [`rows::SCHEMA`].
    pub schema: u64,
    /// What was measured, and how.
    pub experiment: Experiment,
    /// `base` and `large`, in this order.
    pub arms: Vec<ArmAbout>,
    /// The samples of the metric, and what was also measured; what could not be read is missing.
    pub rows: Vec<Row>,
    /// What is to be drawn.
    pub charts: Vec<Chart>,
    /// The pairs, in the order they were taken.
    pub pairs: Vec<Pair>,
    /// Large over base; missing where there were too few pairs to say anything.
    pub effect: Option<Effect>,
    /// What that says.
    pub verdict: Verdict,
    /// The two one-sided tests behind `same`; missing without an effect.
    pub equivalence: Option<Equivalence>,
    /// What was found in looking at the pairs themselves; missing without an effect, and of a
    /// design without pairs.
    pub pairs_looked_at: Option<PairsLookedAt>,
    /// The effect over all pairs as they were assigned, where that was asked for.
    pub intention_to_treat: Option<AsAssigned>,
    /// Of a quantile read from buckets: what they allow one to say.
    pub buckets: Option<Buckets>,
    /// The memory by page size at the stages of the experiment.
    pub page_sizes: PageSizes,
    /// The memory before and after; missing where the target has ended.
    pub left: Option<Left>,
    /// Intervals that were thrown away, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Rejected>,
    /// How many of these for a bad reading of the metric.
    #[serde(default)]
    pub bad_readings: BadReadings,
    /// What a reader must know before believing it, a sentence each.
    pub caveats: Vec<String>,
    /// The machine.
    pub host: HostFingerprint,
    /// The knobs in force and the settings of the experiment.
    pub settings: SettingsInForce,
    /// The exact command, passwords left out.
    pub command: Vec<String>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Name of the metric.
    pub name: String,
    /// Unit of the samples.
    pub unit: String,
    /// Which way it gets better.
    pub better: Better,
    /// What it was measured on.
    pub target: String,
    /// How.
    pub design: Design,
    /// When it began (RFC 3339, UTC).
    pub started: String,
    /// How long it took, moving and putting back included.
    pub duration_seconds: f64,
    /// Why it ended.
    pub ending: Ending,
    /// How the memory was found.
    pub began_on: Arm,
    /// How it was left; missing where the target had gone.
    pub left_on: Option<Arm>,
    /// The memory that was moved.
    pub moved_bytes: Bytes,
}

/// One sample of each arm, taken one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// On base pages.
    pub base: f64,
    /// On large pages.
    pub large: f64,
    /// `large / base`.
    pub ratio: f64,
    /// Which was first.
    pub first: Arm,
    /// When the pair began.
    pub at_seconds: f64,
}

/// Two one-sided tests of the margin of equality (see [`crate::stats::judge`]).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Equivalence {
    /// What counts as equal: the ratio is to be within `1 / (1 + margin)` and `1 + margin`.
    pub margin: f64,
    /// The level of each test: half of what the confidence leaves.
    pub alpha: f64,
    /// That the ratio is below the margin is rejected.
    pub not_below: bool,
    /// That it is above is rejected. `same` is said where both are.
    pub not_above: bool,
}

/// What pairs show in addition to their ratio (see [`crate::weigh`]).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PairsLookedAt {
    /// The correlation of each log ratio with the one before.
    pub lag_one_correlation: f64,
    /// By how much the interval was stretched for it; 1 where it was not.
    pub stretched: f64,
    /// How much further the second half of an interval is towards its arm than the first, as a
    /// ratio, where that is more than chance: then the interval holds what the second halves alone
    /// say as well.
    pub carried_over: Option<f64>,
}

/// The effect over all pairs, also those whose memory did not move as asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AsAssigned {
    /// The pairs, in the order they were taken.
    pub pairs: Vec<AssignedPair>,
    /// How many of them did not move as asked.
    pub astray: usize,
    /// Large over base; missing where there were too few.
    pub effect: Option<Effect>,
    /// What that says.
    pub verdict: Verdict,
}

/// A pair, and whether its memory moved as asked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AssignedPair {
    /// The pair.
    #[serde(flatten)]
    pub pair: Pair,
    /// Whether both of its intervals were on the pages that they were meant for.
    pub as_asked: bool,
}

/// What buckets allow one to say of a quantile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Buckets {
    /// The bucket that holds the quantile of both arms: lower and upper edge, `null` where open.
    /// Then there is no verdict but `unclear`.
    pub shared: Option<[Option<f64>; 2]>,
    /// The ratio if the observations were in their buckets as interpolated; no bound.
    pub interpolated: Option<f64>,
    /// What says more: the mean of the same observations, as `--metric` takes it.
    pub instead: Option<String>,
}

/// Resident memory, and what of it is on large pages, before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Whether both are as they were, within a two-hundredth of what is resident.
    pub as_found: bool,
    /// Resident before.
    pub resident_before_bytes: Bytes,
    /// And after.
    pub resident_after_bytes: Bytes,
    /// On pages larger than the base page before.
    pub large_before_bytes: Bytes,
    /// And after.
    pub large_after_bytes: Bytes,
}

impl Left {
    /// From tables by page size; `None` where one of them is empty.
    pub fn of(before: &[Held], after: &[Held]) -> Option<Left> {
        if before.is_empty() || after.is_empty() {
            return None;
        }
        let large = |table: &[Held]| Held::total(table) - Held::on_base(table);
        let (was, is) = (Held::total(before), Held::total(after));
        // A server that works takes and frees a little all the time.
        let near = |a: Bytes, b: Bytes| a.get().abs_diff(b.get()) <= was.get() / 200;
        Some(Left {
            as_found: near(was, is) && near(large(before), large(after)),
            resident_before_bytes: was,
            resident_after_bytes: is,
            large_before_bytes: large(before),
            large_after_bytes: large(after),
        })
    }
}

/// Readings of the metric that failed, or of a counter that fell or stood still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BadReadings {
    /// In the base arm.
    pub base: usize,
    /// In the large arm.
    pub large: usize,
}

impl BadReadings {
    /// How many may be bad after so many pairs, before the experiment is given up: 2, and one more
    /// for every ten pairs. Fixed before the first pair, so that nobody chooses which to leave out.
    pub const fn most(pairs: usize) -> usize {
        2 + pairs / 10
    }

    /// In both.
    pub const fn count(&self) -> usize {
        self.base + self.large
    }
}

/// The memory by page size, at four times. What was not reached is empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PageSizes {
    /// As it was found.
    pub before: Vec<Held>,
    /// In the base arm.
    pub base: Vec<Held>,
    /// In the large arm.
    pub large: Vec<Held>,
    /// As it was left.
    pub after: Vec<Held>,
}

/// An interval that was thrown away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    /// The arm it was meant for.
    pub arm: Arm,
    /// When.
    pub at_seconds: f64,
    /// Why.
    pub reason: String,
    /// Of what kind that is.
    #[serde(default)]
    pub cause: Cause,
}

/// Why an interval was thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// Its memory was not on the pages that it was meant for.
    #[default]
    Pages,
    /// The metric could not be read, or what was read makes no sample.
    Reading,
}

/// The machine that a result was made on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostFingerprint {
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Architecture.
    pub arch: Option<String>,
    /// Model of the processor.
    pub processor: Option<String>,
    /// Processors.
    pub cpus: usize,
    /// NUMA nodes that have memory.
    pub nodes: usize,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// The base page.
    pub base_page_bytes: u64,
    /// The large page.
    pub large_page_bytes: Option<u64>,
    /// Whether the processor says that it is a virtual one.
    pub is_virtual: Option<bool>,
}

/// Knobs and settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingsInForce {
    /// Length of an interval.
    pub interval_seconds: f64,
    /// Time discarded after every change: the settling time, and half an interval.
    pub settle_seconds: f64,
    /// When to stop: half width of the interval as a ratio less 1.
    pub until: f64,
    /// When to stop: time.
    pub for_seconds: f64,
    /// When to stop: pairs, where a number was fixed.
    pub pairs: Option<usize>,
    /// What counts as equal, as a ratio less 1.
    pub equal: f64,
    /// Seed of the random orders.
    pub seed: u64,
    /// Pairs of a balanced block: half of them begin with each arm.
    pub block_pairs: Option<usize>,
    /// Whether both arms were measured on the pages as found (A/A).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_pages: bool,
    /// Knobs of the kernel that bear on large pages, by path below
    /// `/sys/kernel/mm/transparent_hugepage` or name.
    pub knobs: Vec<Knob>,
    /// Version of hugeleaf.
    pub version: String,
}

/// A knob of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// A result that could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// The system's answer.
    pub reason: String,
}

impl ResultFile {
    /// The file's text.
    pub fn to_json(&self) -> String {
        rows::to_json(self)
    }

    /// The samples of an arm.
    pub fn samples(&self, arm: Arm) -> Option<&Row> {
        self.row(arm, &self.experiment.name)
    }

    /// What was measured in an arm.
    pub fn row(&self, arm: Arm, quantity: &str) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.arm == arm.name() && row.quantity.name == quantity)
    }
}

/// Writes a file whole or not at all ([`hugeleaf_sys::write_whole`]). What is no regular file (a
/// device, a pipe) is written to as it stands.
///
/// # Errors
/// [`WriteError`]; nothing is left behind.
pub fn write_whole(path: &Path, text: &str) -> Result<(), WriteError> {
    hugeleaf_sys::write_whole(path, text.as_bytes(), Existing::Replaced).map_err(|e| WriteError {
        path: path.to_owned(),
        reason: e.reason(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result.json");
        write_whole(&path, "one").unwrap();
        write_whole(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let e = write_whole(&dir.path().join("no/such/folder"), "x").unwrap_err();
        assert!(e.to_string().contains("no/such/folder"), "{e}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_full_device_is_an_error_and_stays_a_device() {
        use std::os::unix::fs::FileTypeExt;
        let e = write_whole(Path::new("/dev/full"), "x").unwrap_err();
        assert!(e.reason.contains("space"), "{e}");
        let kind = std::fs::metadata("/dev/full").unwrap().file_type();
        assert!(kind.is_char_device());
    }
}
