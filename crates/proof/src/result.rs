//! The result of `prove`: a file of rows ([`crate::rows`]), with what the rows say.

use std::path::{Path, PathBuf};

use hugeleaf_change::Stalls;
use hugeleaf_host::Held;
use hugeleaf_sys::Existing;
use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::hold::Holds;
use crate::rows::{self, ArmAbout, Chart, Row};
pub use crate::stats::Effect;
use crate::stats::{Better, Verdict};
use crate::subject::Arm;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// Pairs of intervals, one on each arm, in an order drawn in balanced blocks.
    RandomPairs,
    /// All intervals on base pages, then all on large ones: the weaker design, for memory that
    /// cannot be moved back.
    BeforeAfter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    Narrow,
    Pairs,
    Time,
    /// Every quantile of both arms is in one bucket: no number of pairs would tell more.
    OneBucket,
    Interrupted,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    /// [`rows::SCHEMA`].
    pub schema: u64,
    pub experiment: Experiment,
    /// `base` and `large`, in this order.
    pub arms: Vec<ArmAbout>,
    /// The samples of the metric, and what was also measured; what could not be read is missing.
    pub rows: Vec<Row>,
    pub charts: Vec<Chart>,
    pub pairs: Vec<Pair>,
    /// Large over base; missing where there were too few pairs to say anything.
    pub effect: Option<Effect>,
    pub verdict: Verdict,
    /// The two one-sided tests behind `same`; missing without an effect.
    pub equivalence: Option<Equivalence>,
    /// What was found in looking at the pairs themselves; missing without an effect, and of a
    /// design without pairs.
    pub pairs_looked_at: Option<PairsLookedAt>,
    /// Both arms held for longer after the pairs; missing where they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Holds>,
    /// The effect over all pairs as they were assigned, where that was asked for.
    pub intention_to_treat: Option<AsAssigned>,
    /// Of a quantile read from buckets: what they allow one to say.
    pub buckets: Option<Buckets>,
    /// The memory by page size at the stages of the experiment.
    pub page_sizes: PageSizes,
    /// The memory before and after; missing where the target has ended.
    pub left: Option<Left>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Rejected>,
    /// How many of these for a bad reading of the metric.
    #[serde(default)]
    pub bad_readings: BadReadings,
    /// What a reader must know before believing it, a sentence each.
    pub caveats: Vec<String>,
    pub host: HostFingerprint,
    pub settings: SettingsInForce,
    pub command: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    pub name: String,
    pub unit: String,
    pub better: Better,
    pub target: String,
    pub design: Design,
    /// When it began (RFC 3339, UTC).
    pub started: String,
    /// How long it took, moving and putting back included.
    pub duration_seconds: f64,
    pub ending: Ending,
    pub began_on: Arm,
    pub left_on: Option<Arm>,
    pub moved_bytes: Bytes,
    /// Stalls of the processes by moves; `None` where a program moved its own memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
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
    pub pairs: Vec<AssignedPair>,
    /// How many of them did not move as asked.
    pub astray: usize,
    pub effect: Option<Effect>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AssignedPair {
    #[serde(flatten)]
    pub pair: Pair,
    /// Whether both of its intervals were on the pages that they were meant for.
    pub as_asked: bool,
}

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
    pub resident_before_bytes: Bytes,
    pub resident_after_bytes: Bytes,
    pub large_before_bytes: Bytes,
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
    pub base: usize,
    pub large: usize,
}

impl BadReadings {
    /// How many may be bad after so many pairs, before the experiment is given up: 2, and one more
    /// for every ten pairs. Fixed before the first pair, so that nobody chooses which to leave out.
    pub const fn most(pairs: usize) -> usize {
        2 + pairs / 10
    }

    pub const fn count(&self) -> usize {
        self.base + self.large
    }
}

/// The memory by page size, at four times. What was not reached is empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PageSizes {
    pub before: Vec<Held>,
    pub base: Vec<Held>,
    pub large: Vec<Held>,
    pub after: Vec<Held>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    pub arm: Arm,
    pub at_seconds: f64,
    pub reason: String,
    #[serde(default)]
    pub cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// Its memory was not on the pages that it was meant for.
    #[default]
    Pages,
    /// The metric could not be read, or what was read makes no sample.
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
pub struct SettingsInForce {
    pub interval_seconds: f64,
    /// Time discarded after every change: the settling time, and half an interval.
    pub settle_seconds: f64,
    /// When to stop: half width of the interval as a ratio less 1.
    pub until: f64,
    pub for_seconds: f64,
    pub pairs: Option<usize>,
    /// What counts as equal, as a ratio less 1.
    pub equal: f64,
    pub seed: u64,
    /// Pairs of a balanced block: half of them begin with each arm.
    pub block_pairs: Option<usize>,
    /// Whether both arms were measured on the pages as found (A/A).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_pages: bool,
    /// Knobs of the kernel that bear on large pages, by path below
    /// `/sys/kernel/mm/transparent_hugepage` or name.
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

impl ResultFile {
    pub fn to_json(&self) -> String {
        rows::to_json(self)
    }

    pub fn samples(&self, arm: Arm) -> Option<&Row> {
        self.row(arm, &self.experiment.name)
    }

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
