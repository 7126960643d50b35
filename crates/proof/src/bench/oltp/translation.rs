//! What it costs on each arm to translate an address. Pure.

use super::{OltpResult, Translation, TranslationArm, TranslationSource};
use crate::bench::chase::ChaseResult;

/// From what the processor counted during the runs, of the largest step where there are several;
/// `None` where it did not in any of them.
pub fn by_counters(result: &OltpResult) -> Option<Translation> {
    let mut labels: Vec<&str> = Vec::new();
    for arm in &result.arms {
        if !labels.contains(&arm.label.as_str()) {
            labels.push(&arm.label);
        }
    }
    let largest = result.runs.iter().filter_map(|run| run.at).max();
    let arms = labels.into_iter().map(|label| {
        let own = result.runs.iter();
        let own = own.filter(|run| run.arm.as_deref() == Some(label) && run.at == largest);
        let counted = own.filter_map(|run| {
            // Results of earlier versions have both in one field.
            let both = run.counted.map(|[cycles, _]| cycles);
            Some((run.round, run.cycles_an_instruction.or(both)?))
        });
        TranslationArm::of(label, counted)
    });
    let mut arms: Vec<TranslationArm> = arms.collect();
    // Pages that were unavailable were not counted on.
    arms.retain(|arm| !arm.samples.is_empty());
    let mut by = result.runs.iter().filter(|run| run.at == largest);
    (!arms.is_empty()).then_some(Translation {
        source: TranslationSource::Counters,
        why: None,
        counted_by: by.find_map(|run| run.counted_by.clone()),
        arms,
    })
}

/// From reads that depend on one another: each label with the name of the arm of `chase` whose
/// pages it has.
pub fn by_chase(labels: &[(String, String)], chase: &ChaseResult<'_>, why: String) -> Translation {
    let arms = labels.iter().map(|(label, pages)| {
        let own = chase.arms.iter().find(|arm| arm.label == *pages);
        let point = own.and_then(|arm| arm.points.first());
        let samples = point.into_iter().flat_map(|point| {
            let rounds = point.rounds.iter().copied();
            rounds.zip(point.samples.iter().copied())
        });
        TranslationArm::of(label, samples)
    });
    Translation {
        source: TranslationSource::Chase,
        why: Some(why),
        counted_by: None,
        arms: arms.collect(),
    }
}

impl TranslationArm {
    fn of(label: &str, samples: impl Iterator<Item = (usize, f64)>) -> TranslationArm {
        let (rounds, samples) = samples.unzip();
        TranslationArm {
            label: label.to_owned(),
            samples,
            rounds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::arms::tests::result;
    use super::super::{CountedBy, OltpSample};
    use super::*;

    #[test]
    fn counted_cycles_are_of_the_largest_step() {
        let mut of = result(&["base", "thp:2M"], &[Some(8), Some(32)], 7);
        assert_eq!(by_counters(&of), None);
        for run in &mut of.runs {
            let thp = run.arm.as_deref() == Some("thp:2M");
            let round = f64::from(u32::try_from(run.round).unwrap() + 1);
            // What the small step counted is far off.
            let off = if run.at == Some(8) { 10.0 } else { 1.0 };
            let cycles = if thp { 0.9 } else { 1.0 };
            run.counted = Some([off * cycles * round, off * 5.0]);
            run.counted_by = Some(CountedBy {
                tlb_misses: Some("DTLB_WALK".to_owned()),
                ..CountedBy::default()
            });
        }
        let seen = by_counters(&of).unwrap();
        assert_eq!(seen.source, TranslationSource::Counters);
        let [base, thp] = &seen.arms[..] else {
            panic!("{seen:?}");
        };
        let rounds = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        assert_eq!(base.samples, rounds);
        assert_eq!(thp.samples, rounds.map(|round| 0.9 * round));
        let by = seen.counted_by.clone().unwrap();
        assert_eq!(by.tlb_misses.as_deref(), Some("DTLB_WALK"));
    }

    #[test]
    fn a_host_that_counts_cycles_and_no_misses_shows_no_zeros_for_them() {
        let mut of = result(&["base", "thp:2M"], &[None], 4);
        for run in &mut of.runs {
            run.cycles_an_instruction = Some(1.5);
            run.counted_by = Some(CountedBy {
                tlb_misses_error: Some("DTLB_WALK stays at 0".to_owned()),
                ..CountedBy::default()
            });
        }
        let seen = by_counters(&of).unwrap();
        assert_eq!(seen.arms.len(), 2);
        for arm in &seen.arms {
            assert_eq!(arm.samples, [1.5; 4]);
        }
        assert!(seen.counted_by.unwrap().tlb_misses_error.is_some());
    }

    #[test]
    fn an_arm_that_was_not_counted_is_not_there() {
        let mut of = result(&["base", "promoted", "thp:2M"], &[None], 3);
        let counted = |run: &&mut OltpSample| run.arm.as_deref() != Some("promoted");
        for run in of.runs.iter_mut().filter(counted) {
            run.counted = Some([1.0, 1.0]);
        }
        let seen = by_counters(&of).unwrap();
        let labels: Vec<&str> = seen.arms.iter().map(|arm| arm.label.as_str()).collect();
        assert_eq!(labels, ["base", "thp:2M"]);
    }
}
