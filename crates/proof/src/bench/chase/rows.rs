//! The result of `bench chase` as rows.

use serde_json::json;

use super::{ChaseArm, ChasePoint, ChaseResult, sample_time};
use crate::bench::{add_arm, without_samples};
use crate::rows::{ArmAbout, Chart, Layout, Place, Quantity, Results, Row, Sample};

/// What it is made for.
pub(in crate::bench) const READ: &str = "dependent read";

impl ChaseResult<'_> {
    /// As it is kept.
    pub fn to_results(&self) -> Results {
        let s = self.settings;
        let (line, sample) = (s.line.get(), sample_time(s).as_secs_f64());
        let mut results = self.results(
            "dependent random reads: the time of one, by working set and page size".to_owned(),
            format!(
                "one cycle through every {line} bytes of the working set, in an order drawn from seed {}; {} rounds, the arms \
                 in a new order in each; {sample:.2} s a sample, after reading on without a clock",
                s.seed, s.rounds
            ),
            &json!({
                "rounds": s.rounds, "for_seconds": s.time.as_secs_f64(), "sample_seconds": sample,
                "seed": s.seed, "line_bytes": line, "most_bytes": s.most.get(),
            }),
        );
        results.charts = vec![
            Chart::by("working_set_bytes", READ, "Time of a read by working set"),
            Chart::by(
                "working_set_bytes",
                READ,
                "Time of a read over the first arm's",
            )
            .over_first(),
        ];
        for arm in &self.arms {
            let about = ArmAbout {
                name: arm.label.clone(),
                page_bytes: Some(arm.page_bytes),
                kind: Some(arm.kind.clone()),
            };
            add_arm(&mut results, about, &[], arm.shortage.as_ref());
            if arm.points.is_empty() {
                results.rows.push(without_samples(
                    &arm.label,
                    Vec::new(),
                    Quantity::time(READ, "ns").main(),
                ));
            }
            for point in &arm.points {
                self.point(arm, point, &mut results);
            }
        }
        results
    }

    #[allow(clippy::cast_precision_loss)] // reads of a sample are far below 2^52
    fn point(&self, arm: &ChaseArm, point: &ChasePoint, results: &mut Results) {
        let at = vec![Place::number("working_set_bytes", point.working_set_bytes)];
        let mut samples = Sample::in_rounds(&point.rounds, &point.samples);
        for (sample, seconds) in samples.iter_mut().zip(&point.at_seconds) {
            sample.at_seconds = Some(*seconds);
        }
        let hops: Vec<f64> = point.hops.iter().map(|n| *n as f64).collect();
        let hops = Sample::in_rounds(&point.rounds, &hops);
        results.rows.push(Row {
            doubtful: !point.verified,
            note: point.note.clone(),
            ..Row::new(
                &arm.label,
                at.clone(),
                Quantity::time(READ, "ns").main(),
                samples,
            )
        });
        results.rows.push(Row::new(
            &arm.label,
            at.clone(),
            Quantity::plain("reads", ""),
            hops,
        ));
        for (when, pages) in [
            ("before", &point.pages_before),
            ("after", &point.pages_after),
        ] {
            results.layouts.push(Layout {
                arm: arm.label.clone(),
                at: at.clone(),
                when: when.to_owned(),
                round: None,
                pages: pages.clone(),
                extents_a_block: None,
                verified: None,
                note: point
                    .in_turn
                    .then(|| "memory was taken anew for each sample".to_owned()),
            });
        }
    }
}
