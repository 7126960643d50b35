//! Coverage over time, of the host and of each program with a page-table walk. Derived from samples, so that a replay
//! has it too.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::model::{Id, Sample};

const POINTS: usize = 240;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    host: VecDeque<f64>,
    programs: HashMap<Id, VecDeque<f32>>,
}

impl History {
    /// Adds a sample, and removes programs that have ended.
    pub fn add(&mut self, sample: &Sample) {
        if let Some(coverage) = sample.host.coverage() {
            push(&mut self.host, coverage);
        }
        let there: HashSet<Id> = sample.programs.iter().map(|p| p.id()).collect();
        self.programs.retain(|id, _| there.contains(id));
        for program in &sample.programs {
            if let Some(coverage) = program.coverage() {
                #[allow(clippy::cast_possible_truncation)] // a part of one
                let coverage = coverage as f32;
                push(self.programs.entry(program.id()).or_default(), coverage);
            }
        }
    }

    pub fn host(&self) -> Vec<f64> {
        self.host.iter().copied().collect()
    }

    pub fn of(&self, id: Id) -> Vec<f64> {
        let points = self.programs.get(&id).into_iter().flatten();
        points.map(|coverage| f64::from(*coverage)).collect()
    }
}

fn push<T>(points: &mut VecDeque<T>, point: T) {
    if points.len() == POINTS {
        points.pop_front();
    }
    points.push_back(point);
}

/// Draws the newest points in `columns` columns, in steps of an eighth: `▁▄█`. Zero is a dot, to distinguish it from
/// missing points.
pub fn spark(points: &[f64], columns: usize) -> String {
    const STEPS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let from = points.len().saturating_sub(columns);
    let step = |part: &f64| {
        #[allow(clippy::cast_possible_truncation)] // 0 to 8
        let at = (part.clamp(0.0, 1.0) * 8.0).ceil() as usize;
        STEPS[at.min(8)]
    };
    points[from..].iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Held, Program};
    use hugeleaf_units::Bytes;

    #[test]
    fn parts_as_steps() {
        assert_eq!(spark(&[0.0, 0.01, 0.5, 0.99, 1.0], 10), "·▁▄██");
        assert_eq!(spark(&[0.0, 0.01, 0.5], 2), "▁▄");
        assert_eq!(spark(&[f64::NAN, -1.0, 7.0], 9), "··█");
        assert_eq!(spark(&[], 9), "");
        assert_eq!(spark(&[1.0], 0), "");
    }

    #[test]
    fn it_is_bounded_and_forgets_who_is_gone() {
        let mut history = History::default();
        let program = Program {
            pid: 7,
            held: Some(Held {
                huge_bytes: Bytes(1),
                ..Held::default()
            }),
            ..Program::default()
        };
        let id = program.id();
        let mut sample = Sample {
            programs: vec![program],
            ..Sample::default()
        };
        for _ in 0..2 * POINTS {
            history.add(&sample);
        }
        assert_eq!(history.of(id), [1.0; POINTS]);
        assert!(history.host().is_empty());
        sample.programs.clear();
        history.add(&sample);
        assert!(history.of(id).is_empty() && history.programs.is_empty());
    }
}
