//! Samples by arm and quantity, round by round, and their ratios.

use std::collections::BTreeMap;
use std::path::Path;

use hugeleaf_proof::result_format::Results;
use hugeleaf_proof::stats::{LogRatioInterval, log_ratio, signed_rank_interval};
use serde_json::Value;

use crate::Failed;
use crate::record::{Record, median};

/// Values of one process by the name of the quantity.
pub type Sample = BTreeMap<String, f64>;

/// The samples of all arms; the n-th of each belongs to the n-th round. NaN for a missing sample.
#[derive(Debug, Default)]
pub struct Samples {
    by_arm: BTreeMap<String, BTreeMap<String, Vec<f64>>>,
    rounds: usize,
}

impl Samples {
    /// Reads the samples of a file; empty if there is no file.
    pub fn read(file: &Path) -> Result<Samples, Failed> {
        let mut samples = Samples::default();
        let Ok(text) = std::fs::read_to_string(file) else {
            return Ok(samples);
        };
        let results = Results::read(&text)?;
        let rounds = results.rows.iter().flat_map(|row| &row.samples);
        samples.rounds = rounds.filter_map(|s| Some(s.round? + 1)).max().unwrap_or(0);
        for row in results.rows {
            let mut values = vec![f64::NAN; samples.rounds];
            for sample in &row.samples {
                values[sample.round.ok_or("a sample without a round")?] = sample.value;
            }
            let quantities = samples.by_arm.entry(row.arm).or_default();
            quantities.insert(row.quantity.name, values);
        }
        Ok(samples)
    }

    /// Adds a round; missing arms get no sample in it.
    pub fn add_round(&mut self, round: BTreeMap<&str, Sample>) {
        for (arm, sample) in round {
            let quantities = self.by_arm.entry(arm.to_owned()).or_default();
            for (quantity, value) in sample {
                let values = quantities.entry(quantity).or_default();
                values.resize(self.rounds, f64::NAN);
                values.push(value);
            }
        }
        self.rounds += 1;
        for values in self.by_arm.values_mut().flat_map(BTreeMap::values_mut) {
            values.resize(self.rounds, f64::NAN);
        }
    }

    /// Returns the number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Returns all values of an arm, round by round.
    pub fn of(&self, arm: &str, quantity: &str) -> &[f64] {
        let found = self.by_arm.get(arm).and_then(|q| q.get(quantity));
        found.map_or(&[], Vec::as_slice)
    }

    /// Returns the ratio of an arm to another within rounds and its 95 % interval, or the ratio
    /// alone with too few rounds for an interval.
    pub fn ratio(&self, arm: &str, over: &str, quantity: &str) -> Option<Ratio> {
        let logs: Vec<f64> = self
            .of(arm, quantity)
            .iter()
            .zip(self.of(over, quantity))
            .filter_map(|(ours, theirs)| log_ratio(*theirs, *ours))
            .collect();
        if logs.is_empty() {
            return None;
        }
        let interval = signed_rank_interval(&logs, 0.95);
        Some(Ratio {
            center: interval
                .map_or_else(|| median(&logs), |i: LogRatioInterval| i.center)
                .exp(),
            interval: interval.map(|i| (i.low.exp(), i.high.exp())),
        })
    }

    /// Adds the raw samples to the record.
    pub fn keep(&self, record: &mut Record) {
        for (arm, quantities) in &self.by_arm {
            for (quantity, values) in quantities {
                let unit = quantity.rsplit_once(", ").map_or("", |(_, unit)| unit);
                record.arm(format!("{arm}: {quantity}"), unit, values);
            }
        }
    }
}

/// Ratio of one arm to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub center: f64,
    pub interval: Option<(f64, f64)>,
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self.interval {
            Some((low, high)) => format!("{:.3} [{low:.3}, {high:.3}]", self.center),
            None => format!("{:.3}", self.center),
        };
        f.pad(&text)
    }
}

impl From<Ratio> for Value {
    fn from(ratio: Ratio) -> Value {
        match ratio.interval {
            Some((low, high)) => Value::from(vec![low, ratio.center, high]),
            None => Value::from(ratio.center),
        }
    }
}
