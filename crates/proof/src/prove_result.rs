//! The result of `prove`: a file of rows ([`crate::result_format`]) with their analysis.

use std::path::{Path, PathBuf};

use hugeleaf_host::PageUsage;
use hugeleaf_mover::StallStats;
use hugeleaf_sys::OnExisting;
use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::long_holds::HoldResult;
use crate::result_format::{self, ArmInfo, Chart, ResultRow};
pub use crate::stats::Effect;
use crate::stats::{BetterDirection, Verdict};
use crate::subject::Arm;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentDesign {
    /// Pairs of intervals, one on each arm, in an order drawn in balanced blocks.
    RandomPairs,
    /// All intervals on base pages, then all on huge pages: the weaker design, for memory that
    /// cannot be demoted.
    BeforeAfter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExperimentEnd {
    Narrow,
    Pairs,
    Time,
    /// All quantiles of both arms are in one bucket, so more pairs would show nothing.
    OneBucket,
    Interrupted,
}

impl ExperimentEnd {
    /// True if the arms are held after pairs with this ending.
    pub(crate) const fn allows_hold(self) -> bool {
        !matches!(self, ExperimentEnd::Interrupted | ExperimentEnd::OneBucket)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProveResult {
    /// [`crate::result_format::SCHEMA`].
    pub schema: u64,
    pub experiment: ProveExperimentInfo,
    /// `base` and `large`, in this order.
    pub arms: Vec<ArmInfo>,
    /// The samples of the metric and the secondary quantities; unreadable ones are missing.
    pub rows: Vec<ResultRow>,
    pub charts: Vec<Chart>,
    pub pairs: Vec<Pair>,
    /// Huge over base pages; `None` with too few pairs for an interval.
    pub effect: Option<Effect>,
    pub verdict: Verdict,
    /// The two one-sided tests behind `same`; `None` without an effect.
    pub equivalence: Option<Equivalence>,
    /// Checks of the pairs themselves; `None` without an effect, and for a design without pairs.
    pub pairs_looked_at: Option<IndependenceChecks>,
    /// Both arms held for longer after the pairs; missing where they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<HoldResult>,
    /// The effect over all pairs as assigned, if requested.
    pub intention_to_treat: Option<IntentionToTreat>,
    /// For a quantile read from buckets: the conclusions that they allow.
    pub buckets: Option<BucketedQuantile>,
    /// The memory by page size at the stages of the experiment.
    pub page_sizes: PageUsageStages,
    /// The memory before and after; `None` if the target has exited.
    pub left: Option<BeforeAfterMemory>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<DiscardedInterval>,
    /// The number of rejections for bad readings of the metric.
    #[serde(default)]
    pub bad_readings: BadReadings,
    /// Caveats, a sentence each.
    pub caveats: Vec<String>,
    pub host: HostFingerprint,
    pub settings: ProveResultSettings,
    pub command: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProveExperimentInfo {
    pub name: String,
    pub unit: String,
    pub better: BetterDirection,
    /// Target as typed.
    pub target: String,
    /// Command name of its processes; `None` if they differ, and in earlier files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    pub design: ExperimentDesign,
    /// Start time (RFC 3339, UTC).
    pub started: String,
    /// Duration, including promoting, demoting and restoring.
    pub duration_seconds: f64,
    pub ending: ExperimentEnd,
    pub began_on: Arm,
    pub left_on: Option<Arm>,
    pub moved_bytes: Bytes,
    /// Stalls of the processes by promoting and demoting; `None` if the process did that itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<StallStats>,
}

/// One sample of each arm, taken one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    pub base: f64,
    pub large: f64,
    /// `large / base`.
    pub ratio: f64,
    pub first: Arm,
    pub at_seconds: f64,
}

/// Two one-sided tests of the margin of equality (see [`crate::stats::judge`]).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Equivalence {
    /// The margin: equal means a ratio between `1 / (1 + margin)` and `1 + margin`.
    pub margin: f64,
    /// The level of each test: half of `1 - confidence`.
    pub alpha: f64,
    /// True if a ratio below the margin is rejected.
    pub not_below: bool,
    /// True if a ratio above the margin is rejected. The verdict is `same` if both are.
    pub not_above: bool,
}

/// Checks of the pairs beyond their ratio (see [`crate::effective_sample`]).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IndependenceChecks {
    /// The correlation of each log ratio with the previous one.
    pub lag_one_correlation: f64,
    /// The factor that widened the interval for the correlation; 1 without widening.
    pub stretched: f64,
    /// The distance of an interval's second half from the first towards its arm, as a ratio, if
    /// significant. The confidence interval then also covers the result of the second halves alone.
    pub carried_over: Option<f64>,
}

/// The effect over all pairs, including those whose memory was not on the intended pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IntentionToTreat {
    pub pairs: Vec<AssignedPair>,
    /// The number of pairs that were not on the intended pages.
    pub astray: usize,
    pub effect: Option<Effect>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AssignedPair {
    #[serde(flatten)]
    pub pair: Pair,
    /// True if both of its intervals were on the intended pages.
    pub as_asked: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BucketedQuantile {
    /// The bucket that holds the quantile of both arms: lower and upper edge, `null` if open. The
    /// verdict is then always `unclear`.
    pub shared: Option<[Option<f64>; 2]>,
    /// The ratio by interpolation within the buckets; not a bound.
    pub interpolated: Option<f64>,
    /// A better metric: the mean of the same observations, in the form of `--metric`.
    pub instead: Option<String>,
}

/// Resident memory and its part on huge pages, before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeforeAfterMemory {
    /// True if both are unchanged within 0.5 % of the resident memory.
    pub as_found: bool,
    pub resident_before_bytes: Bytes,
    pub resident_after_bytes: Bytes,
    pub large_before_bytes: Bytes,
    pub large_after_bytes: Bytes,
}

impl BeforeAfterMemory {
    /// Compares tables by page size; `None` if one is empty.
    pub fn compare(before: &[PageUsage], after: &[PageUsage]) -> Option<BeforeAfterMemory> {
        if before.is_empty() || after.is_empty() {
            return None;
        }
        let large = |table: &[PageUsage]| PageUsage::total(table) - PageUsage::on_base(table);
        let (was, is) = (PageUsage::total(before), PageUsage::total(after));
        // A busy server allocates and frees a little all the time.
        let near = |a: Bytes, b: Bytes| a.get().abs_diff(b.get()) <= was.get() / 200;
        Some(BeforeAfterMemory {
            as_found: near(was, is) && near(large(before), large(after)),
            resident_before_bytes: was,
            resident_after_bytes: is,
            large_before_bytes: large(before),
            large_after_bytes: large(after),
        })
    }
}

/// Failed readings of the metric, and counters that fell or stood still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BadReadings {
    pub base: usize,
    pub large: usize,
}

impl BadReadings {
    /// Returns the number of bad readings allowed after `pairs` pairs: 2, and one more for every
    /// ten pairs. The limit is fixed in advance, so that nobody can choose which readings to omit.
    pub const fn most(pairs: usize) -> usize {
        2 + pairs / 10
    }

    pub const fn count(&self) -> usize {
        self.base + self.large
    }
}

/// The memory by page size, at four times. Stages that were not reached are empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PageUsageStages {
    pub before: Vec<PageUsage>,
    pub base: Vec<PageUsage>,
    pub large: Vec<PageUsage>,
    pub after: Vec<PageUsage>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiscardedInterval {
    pub arm: Arm,
    pub at_seconds: f64,
    pub reason: String,
    #[serde(default)]
    pub cause: DiscardCause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiscardCause {
    /// The memory was not on the intended pages.
    #[default]
    Pages,
    /// The metric was unreadable, or its readings give no sample.
    Reading,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostFingerprint {
    pub kernel: Option<String>,
    pub arch: Option<String>,
    pub processor: Option<String>,
    pub cpus: usize,
    pub nodes: usize,
    pub memory_bytes: Option<u64>,
    pub base_page_bytes: u64,
    pub large_page_bytes: Option<u64>,
    pub is_virtual: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProveResultSettings {
    pub interval_seconds: f64,
    /// Time discarded after every change: the settling time, and half an interval.
    pub settle_seconds: f64,
    /// Stopping threshold: half-width of the interval as a ratio less 1.
    pub until: f64,
    pub for_seconds: f64,
    pub pairs: Option<usize>,
    /// Margin of equality, as a ratio less 1.
    pub equal: f64,
    pub seed: u64,
    /// Number of pairs in a balanced block, half of which begin with each arm.
    pub block_pairs: Option<usize>,
    /// True if both arms were measured on the initial pages (A/A).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_pages: bool,
    /// Kernel knobs that affect huge pages, by path below `/sys/kernel/mm/transparent_hugepage` or
    /// by name.
    pub knobs: Vec<Knob>,
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct WriteError {
    pub path: PathBuf,
    pub reason: String,
}

impl ProveResult {
    pub fn to_json(&self) -> String {
        result_format::to_json(self)
    }

    pub fn samples(&self, arm: Arm) -> Option<&ResultRow> {
        self.row(arm, &self.experiment.name)
    }

    pub fn row(&self, arm: Arm, quantity: &str) -> Option<&ResultRow> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.arm == arm.name() && row.quantity.name == quantity)
    }
}

/// Writes a file whole or not at all ([`hugeleaf_sys::write_whole`]). A device or a pipe is written
/// directly.
///
/// # Errors
/// [`WriteError`]; nothing is left behind.
pub fn write_whole(path: &Path, text: &str) -> Result<(), WriteError> {
    hugeleaf_sys::write_whole(path, text.as_bytes(), OnExisting::Replaced).map_err(|e| WriteError {
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
