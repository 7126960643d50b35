//! The result of `bench pin` as rows.

use super::result::{Model, PinArm, PinResult};
use crate::bench::mover::add_looks;
use crate::bench::{add_arm, without_samples};
use crate::rows::{ArmAbout, Chart, Place, Quantity, Results, Row, Sample};
use hugeleaf_units::Bytes;
use serde_json::json;

const PIN: &str = "pin and let go";

impl PinResult<'_> {
    /// As it is kept.
    pub fn to_results(&self) -> Results {
        let s = self.measured.settings;
        let sample = s.sample.as_secs_f64();
        let mut results = self.measured.results(
            format!(
                "pinning {} and letting it go: the time of one, by the layout of its pages and by number of threads",
                s.block
            ),
            format!(
                "threads pin parts of {} of memory; {} rounds of {sample:.2} s, everything in a new order in each, drawn from \
                 seed {}",
                s.space, s.rounds, s.seed
            ),
            &json!({
                "block_bytes": s.block.get(), "space_bytes": s.space.get(), "devices": self.devices, "rounds": s.rounds,
                "sample_seconds": sample, "seed": s.seed,
            }),
        );
        results.charts = vec![Chart::by("threads", PIN, "One pin by number of threads")];
        for arm in &self.measured.arms {
            add(arm, &mut results);
        }
        let model = Model::published();
        let rows = model.published.iter();
        let rows = rows.map(|row| format!("{} on pages of {}", row.units, Bytes(row.page_bytes)));
        let rows: Vec<String> = rows.collect();
        results.remarks = vec![format!(
            "the published model: {}; turns of the lock for 256K: {}",
            model.text,
            rows.join(", ")
        )];
        results
    }
}

#[allow(clippy::cast_precision_loss)] // counts of a sample are far below 2^52
fn add(arm: &PinArm, results: &mut Results) {
    let method = Place::text("method", &arm.method);
    let at = vec![method.clone()];
    let pinned = Quantity::time(PIN, "µs").main();
    let about = ArmAbout::named(&arm.label);
    add_arm(results, about, &at, arm.shortage.as_ref());
    let looks = [("before", &arm.before), ("after", &arm.after)];
    let wrong = add_looks(results, &arm.label, &at, looks);
    if arm.is_empty() {
        results.rows.push(without_samples(&arm.label, at, pinned));
        return;
    }
    let nothing = "there is nothing to do: the kernel returns at once".to_owned();
    let row = |at: Vec<Place>, quantity, samples| Row {
        doubtful: wrong.is_some(),
        note: match wrong {
            Some(seen) => seen.note.clone(),
            None => arm.nothing_to_do.then(|| nothing.clone()),
        },
        ..Row::new(&arm.label, at, quantity, samples)
    };
    for point in arm.points.iter().filter(|point| !point.samples.is_empty()) {
        let at = vec![
            method.clone(),
            Place::number("threads", point.threads as u64),
        ];
        let counts: Vec<f64> = point.counts.iter().map(|n| *n as f64).collect();
        for (quantity, values) in [
            (pinned.clone(), &point.samples),
            (
                Quantity::amount("CPU of one", "µs"),
                &point.processor_samples,
            ),
            (Quantity::amount("waits of one", ""), &point.waits_samples),
            (Quantity::plain("pinned", ""), &counts),
        ] {
            let samples = Sample::in_rounds(&point.rounds, values);
            results.rows.push(row(at.clone(), quantity, samples));
        }
        let once = [
            (
                Quantity::amount(
                    "time over one thread's, less what sharing processors explains",
                    "",
                ),
                point.contention,
            ),
            (
                Quantity::time("one, by the published model", "µs"),
                point.model_micros,
            ),
        ];
        for (quantity, value) in once {
            if let Some(value) = value {
                let samples = Sample::alone([value]);
                results
                    .rows
                    .push(row(at.clone(), quantity.counted(), samples));
            }
        }
    }
    let units = Sample::alone([arm.units as f64]);
    results.rows.push(row(
        at,
        Quantity::plain("pages of a buffer", "").counted(),
        units,
    ));
}
