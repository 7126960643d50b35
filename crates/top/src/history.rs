//! Coverage, CPU and memory over time, of the host and of each process tree, from the start. Derived from samples, so that
//! a replay has it too.

use std::collections::{HashMap, HashSet};

use crate::model::{HostSample, TreeId};

/// Maximum number of points of a series.
const POINTS: usize = 480;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    pub host: HistorySeries,
    programs: HashMap<TreeId, TreeHistory>,
}

/// The history of a process tree.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TreeHistory {
    /// Share of memory on huge pages, where it is known.
    pub coverage: HistorySeries,
    /// Share of one processor.
    pub cpu: HistorySeries,
    /// Resident memory, in bytes.
    pub resident: HistorySeries,
}

/// Values from the start of `top`, the newest last. A full series is thinned out: it keeps its start, with fewer points.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HistorySeries {
    points: Vec<f64>,
    /// Number of values that one point stands for, a power of two.
    every: usize,
    /// Number of values since the last point.
    pending: usize,
}

impl HistorySeries {
    fn push(&mut self, value: f64) {
        self.every = self.every.max(1);
        self.pending += 1;
        if self.pending < self.every {
            return;
        }
        self.pending = 0;
        if self.points.len() == POINTS {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.every *= 2;
        }
        self.points.push(value);
    }

    /// Returns at most `columns` points, which span the whole time.
    pub fn fitted(&self, columns: usize) -> Vec<f64> {
        let all = self.points.len();
        match all <= columns {
            true => self.points.clone(),
            false => (1..=columns)
                .map(|column| self.points[column * all / columns - 1])
                .collect(),
        }
    }

    /// Returns the largest value; 0 without any.
    pub fn max(&self) -> f64 {
        self.points.iter().copied().fold(0.0, f64::max)
    }
}

impl History {
    /// Adds a sample, and removes process trees that have ended.
    pub fn add(&mut self, sample: &HostSample) {
        if let Some(coverage) = sample.host.coverage() {
            self.host.push(coverage);
        }
        let there: HashSet<TreeId> = sample.programs.iter().map(|p| p.id()).collect();
        self.programs.retain(|id, _| there.contains(id));
        for program in &sample.programs {
            let history = self.programs.entry(program.id()).or_default();
            if let Some(coverage) = program.coverage() {
                history.coverage.push(coverage);
            }
            if let Some(cpu) = program.cpu {
                history.cpu.push(cpu);
            }
            history.resident.push(program.resident_bytes.as_f64());
        }
    }

    /// Returns the history of a process tree; `None` before its first sample.
    pub fn of_program(&self, id: TreeId) -> Option<&TreeHistory> {
        self.programs.get(&id)
    }
}

/// Draws a series in at most `columns` columns, in steps of an eighth of `full`: `▁▄█`. Zero is a dot, to distinguish it
/// from missing points.
pub fn spark(series: &HistorySeries, full: f64, columns: usize) -> String {
    const STEPS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let step = |value: f64| {
        let part = if full > 0.0 { value / full } else { 0.0 };
        #[allow(clippy::cast_possible_truncation)] // 0 to 8
        let at = (part.clamp(0.0, 1.0) * 8.0).ceil() as usize;
        STEPS[at.min(8)]
    };
    series.fitted(columns).into_iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ProcessTreeMemory, TreeSample};
    use hugeleaf_units::Bytes;

    fn series(values: &[f64]) -> HistorySeries {
        let mut series = HistorySeries::default();
        values.iter().for_each(|value| series.push(*value));
        series
    }

    #[test]
    fn parts_as_steps() {
        let spark = |values: &[f64], columns| spark(&series(values), 1.0, columns);
        assert_eq!(spark(&[0.0, 0.01, 0.5, 0.99, 1.0], 10), "·▁▄██");
        assert_eq!(spark(&[0.0, 0.01, 0.4, 0.5], 2), "▁▄");
        assert_eq!(spark(&[f64::NAN, -1.0, 7.0], 9), "··█");
        assert_eq!(spark(&[], 9), "");
        assert_eq!(spark(&[1.0], 0), "");
    }

    #[test]
    fn a_full_series_keeps_its_start_and_its_end() {
        let rising: Vec<f64> = (0..100_000).map(f64::from).collect();
        let series = series(&rising);
        let shown = series.fitted(50);
        assert!(series.points.len() <= POINTS && shown.len() == 50);
        assert!(shown[0] < 4000.0 && shown[49] > 98_000.0, "{shown:?}");
        assert!(shown.is_sorted());
    }

    #[test]
    fn it_is_bounded_and_forgets_who_is_gone() {
        let mut history = History::default();
        let program = TreeSample {
            pid: 7,
            held: Some(ProcessTreeMemory {
                huge_bytes: Bytes(1),
                ..ProcessTreeMemory::default()
            }),
            ..TreeSample::default()
        };
        let id = program.id();
        let mut sample = HostSample {
            programs: vec![program],
            ..HostSample::default()
        };
        for _ in 0..2 * POINTS {
            history.add(&sample);
        }
        let coverage = &history.of_program(id).unwrap().coverage;
        assert!(coverage.points.len() <= POINTS && coverage.fitted(3) == [1.0; 3]);
        assert!(history.host.points.is_empty());
        sample.programs.clear();
        history.add(&sample);
        assert!(history.of_program(id).is_none());
    }
}
