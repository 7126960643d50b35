//! The result of `bench mover` as rows.

use super::layout::add_looks;
use super::result::{MoverArm, MoverResult, MoverSample, PUBLISHED, Times};
use crate::bench::{add_arm, without_samples};
use crate::rows::{ArmAbout, Chart, Place, Quantity, Results, Row, Sample};
use hugeleaf_units::Bytes;
use serde_json::json;

const MOVED: &str = "data moved";
const CPU: &str = "CPU of the process a GiB";

impl MoverResult<'_> {
    /// As it is kept.
    pub fn to_results(&self) -> Results {
        let s = self.measured.settings;
        let sample = s.sample.as_secs_f64();
        let mut results = self.measured.results(
            format!(
                "a backup server's data path: readers {}, writers {}, on {}; blocks of {}, each checked; read and written \
                 together",
                s.readers,
                s.writers,
                self.devices.join(", "),
                s.block
            ),
            format!(
                "buffers are slots of one data space of {}, taken in turn; each device has {}; {} rounds of {sample:.2} s, the \
                 arms in a new order in each, drawn from seed {}; what was written is read back after each sample; through a \
                 ring {} transfers under way a thread, else one",
                s.space, s.each, s.rounds, s.seed, s.depth
            ),
            &json!({
                "readers": s.readers, "writers": s.writers, "devices": self.devices, "device_bytes": s.each.get(),
                "block_bytes": s.block.get(), "space_bytes": s.space.get(), "depth": s.depth, "rounds": s.rounds,
                "sample_seconds": sample, "seed": s.seed,
            }),
        );
        results.charts = vec![
            Chart::bars(MOVED, "Moved, MiB a second"),
            Chart::bars(CPU, "CPU of the process a GiB"),
        ];
        for arm in &self.measured.arms {
            add(arm, &mut results);
        }
        let p = PUBLISHED;
        results.remarks = vec![format!(
            "published for a backup server (256K, 2 readers, 5 and 7 writers): {} to {} MiB/s, ×{}",
            p.small_mib_per_second, p.large_mib_per_second, p.ratio
        )];
        for mode in modes(&results) {
            results.remarks.extend(contiguity(&results, &mode));
        }
        let mut arms = self.measured.arms.iter();
        let streams = arms.find_map(|arm| arm.streams.as_ref());
        results.remarks.extend(streams.map(|streams| {
            format!(
                "writers that keep up: each at {} a second, to a device of its own; {} at most were tried",
                Bytes(streams.rate_bytes),
                streams.most_tried
            )
        }));
        if !self.bare.is_empty() {
            results.arms.push(ArmAbout::named(BARE));
            let rate = Quantity::rate("devices alone", "MiB/s");
            let samples = Sample::alone(self.bare.iter().copied());
            results.rows.push(Row::new(BARE, Vec::new(), rate, samples));
        }
        results
    }
}

fn modes(results: &Results) -> Vec<String> {
    let mut modes: Vec<String> = Vec::new();
    for place in results.rows.iter().flat_map(|row| &row.at) {
        let mode = place.value.to_string();
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

/// How much of the gain is there already where huge pages are split: contiguity alone.
fn contiguity(results: &Results, mode: &str) -> Option<String> {
    /// Below it, parts of a gain are parts of noise.
    const WORTH: f64 = 1.1;
    let at = [Place::text("mode", mode)];
    let row = |arm: &str| results.row(arm, &at, MOVED);
    // Huge ones: in one extent a block before.
    let is_huge = |arm: &&ArmAbout| {
        let mut looks = results
            .layouts
            .iter()
            .filter(|l| l.arm == arm.name && l.at == at);
        let extents = looks.next().and_then(|look| look.extents_a_block);
        arm.name.starts_with("thp:") && extents.is_none_or(|extents| extents < 1.5)
    };
    let whole = results.arms.iter().find(is_huge)?;
    let first = row("scattered")?;
    let (split, gain) = (row("split")?.over(first)?, row(&whole.name)?.over(first)?);
    // Of a gain that may be none there are no parts.
    if gain.ratio < WORTH || gain.low <= 1.0 {
        return None;
    }
    let part = (split.ratio.ln() / gain.ratio.ln() * 100.0).clamp(0.0, 100.0);
    Some(format!(
        "{mode}: {part:.0} % of the gain of {} is contiguity (split, which keeps only that: ×{:.2}); the rest is \
         translation and the unit of pinning",
        whole.name, split.ratio
    ))
}

/// The devices without a data path.
const BARE: &str = "devices alone";

fn add(arm: &MoverArm, results: &mut Results) {
    let at = vec![Place::text("mode", &arm.mode)];
    let rate = Quantity::rate(MOVED, "MiB/s").main();
    let about = ArmAbout::named(&arm.label);
    add_arm(results, about, &at, arm.shortage.as_ref());
    let looks = [("before", &arm.before), ("after", &arm.after)];
    let wrong = add_looks(results, &arm.label, &at, looks);
    if arm.raw.is_empty() {
        results.rows.push(without_samples(&arm.label, at, rate));
        return;
    }
    let row = |quantity, samples| Row {
        doubtful: wrong.is_some(),
        note: wrong.and_then(|seen| seen.note.clone()),
        ..Row::new(&arm.label, at.clone(), quantity, samples)
    };
    for (quantity, of) in quantities(rate) {
        let samples: Vec<Sample> = (arm.raw.iter())
            .filter_map(|raw| {
                Some(Sample {
                    at_seconds: Some(raw.at_seconds),
                    ..Sample::of(raw.round, of(raw)?)
                })
            })
            .collect();
        if !samples.is_empty() {
            results.rows.push(row(quantity, samples));
        }
    }
    if let Some(streams) = &arm.streams {
        #[allow(clippy::cast_precision_loss)] // streams are few
        let kept_up = streams.samples.iter().map(|n| *n as f64);
        let quantity = Quantity {
            kind: crate::rows::Kind::Amount,
            ..Quantity::rate("writers that keep up", "")
        };
        results.rows.push(row(quantity, Sample::alone(kept_up)));
        let tried = results
            .settings
            .entry("streams")
            .or_insert_with(|| serde_json::Value::Array(Vec::new()));
        if let serde_json::Value::Array(all) = tried {
            all.push(serde_json::json!({
                "arm": arm.label, "mode": arm.mode, "rate_bytes": streams.rate_bytes,
                "most_tried": streams.most_tried, "steps": streams.steps,
            }));
        }
    }
}

type Of = Box<dyn Fn(&MoverSample) -> Option<f64>>;

/// All that was seen of a sample.
#[allow(clippy::cast_precision_loss)] // counts and bytes of a sample are below 2^52
fn quantities(rate: Quantity) -> Vec<(Quantity, Of)> {
    let mut all: Vec<(Quantity, Of)> = vec![
        (rate, Box::new(|raw| Some(raw.mib_per_second))),
        (
            Quantity::amount(CPU, "seconds"),
            Box::new(MoverSample::processor_per_gib),
        ),
        (
            Quantity::amount("CPU of the host a GiB", "seconds"),
            Box::new(MoverSample::host_per_gib),
        ),
        (
            Quantity::time("lock and unlock, mean", "seconds"),
            Box::new(|raw| Some(raw.lock?.mean_seconds)),
        ),
        (
            Quantity::plain("length", "seconds"),
            Box::new(|raw| Some(raw.seconds)),
        ),
        (
            Quantity::plain("read", "bytes"),
            Box::new(|raw| Some(raw.read_bytes as f64)),
        ),
        (
            Quantity::plain("written", "bytes"),
            Box::new(|raw| Some(raw.written_bytes as f64)),
        ),
        (
            Quantity::plain("user", "seconds"),
            Box::new(|raw| Some(raw.user_seconds)),
        ),
        (
            Quantity::plain("system", "seconds"),
            Box::new(|raw| Some(raw.system_seconds)),
        ),
        (
            Quantity::plain("share of time waited", ""),
            Box::new(|raw| Some(raw.waiting_share)),
        ),
        (
            Quantity::plain("waits", ""),
            Box::new(|raw| Some(raw.waits as f64)),
        ),
        (
            Quantity::plain("host user", "seconds"),
            Box::new(|raw| Some(raw.host?.user_seconds)),
        ),
        (
            Quantity::plain("host system", "seconds"),
            Box::new(|raw| Some(raw.host?.system_seconds)),
        ),
        (
            Quantity::plain("host idle", "seconds"),
            Box::new(|raw| Some(raw.host?.idle_seconds)),
        ),
        (
            Quantity::plain("host I/O wait", "seconds"),
            Box::new(|raw| Some(raw.host?.wait_seconds)),
        ),
        (
            Quantity::plain("host stolen", "seconds"),
            Box::new(|raw| Some(raw.host?.steal_seconds)),
        ),
    ];
    operations(&mut all);
    all
}

/// Of each operation its times, but for what is there already.
#[allow(clippy::cast_precision_loss)] // counts of a sample are below 2^52
fn operations(all: &mut Vec<(Quantity, Of)>) {
    type OfTimes = fn(&MoverSample) -> Option<Times>;
    let operations: [(&str, OfTimes); 3] = [
        ("transfer", |raw| Some(raw.io)),
        ("lock and unlock", |raw| raw.lock),
        ("page fault of a bystander", |raw| Some(raw.bystander)),
    ];
    for (name, of) in operations {
        type Get = fn(&Times) -> f64;
        let each: [(&str, Get); 4] = [
            ("mean", |t| t.mean_seconds),
            ("p50", |t| t.median_seconds),
            ("p99", |t| t.p99_seconds),
            ("longest", |t| t.max_seconds),
        ];
        for (which, get) in each {
            let name = format!("{name}, {which}");
            if all.iter().all(|(known, _)| known.name != name) {
                all.push((
                    Quantity::time(&name, "seconds"),
                    Box::new(move |raw| Some(get(&of(raw)?))),
                ));
            }
        }
        let count = Quantity::plain(&format!("{name}, count"), "");
        all.push((count, Box::new(move |raw| Some(of(raw)?.count as f64))));
    }
}
