//! The result of `bench oltp` as rows.

use super::{OltpCost, OltpKind, OltpResult, OltpSample, StepsBy, Translation, TranslationSource};
use crate::bench::{Parts, add_arm, without_samples};
use crate::rows::{ArmAbout, Chart, Layout, Place, Quantity, Results, Row, Sample, fields};
use serde_json::{Value as Json, json};

/// The arm of a result that has none: one run, as it is.
pub const AS_IT_IS: &str = "as it is";

impl OltpResult {
    /// As it is kept.
    pub fn to_results(&self) -> Results {
        let mut settings = fields(&self.settings);
        settings.insert("database".to_owned(), json!(self.database));
        if let Some(steps) = &self.steps {
            settings.insert("steps".to_owned(), json!(steps));
        }
        let mut results = Parts {
            about: &self.experiment,
            title: format!(
                "New-Order transactions a minute on {}, {} warehouses; a load after the rules of TPC-C",
                self.database.version, self.database.warehouses
            ),
            how: format!(
                "{} connections, {} s after {} s of ramp-up, each run in a process of its own; {} of {} warehouses touched; \
                 seed {}; all runs left the database consistent",
                self.settings.connections,
                self.settings.for_seconds,
                self.settings.ramp_up_seconds,
                self.settings.touched_warehouses,
                self.database.warehouses,
                self.settings.seed
            ),
            host: &self.host,
            settings,
            caveats: &self.caveats,
            command: &self.command,
        }
        .results();
        results.charts = match self.steps.as_ref().map(|steps| steps.by) {
            None => vec![
                Chart::bars("NOTPM", "New-Order transactions a minute"),
                Chart::bars("NOTPM", "The same over the first arm").over_first(),
            ],
            Some(by) => vec![
                Chart::by(step(by), "NOTPM", "New-Order transactions a minute"),
                Chart::by(step(by), "NOTPM", "The same over the first arm").over_first(),
            ],
        };
        let mut groups: Vec<(String, Option<u64>)> = self
            .arms
            .iter()
            .map(|arm| (arm.label.clone(), arm.at))
            .collect();
        if groups.is_empty() {
            groups.push((AS_IT_IS.to_owned(), None));
        }
        for (label, at) in &groups {
            self.group(label, *at, &mut results);
        }
        if let Some(translation) = &self.translation {
            translation.add_to(&mut results);
        }
        counted_by(self, &mut results);
        results
    }

    fn group(&self, label: &str, at: Option<u64>, results: &mut Results) {
        let runs = self.runs.iter();
        let runs: Vec<&OltpSample> = runs
            .filter(|run| run.arm.as_deref().unwrap_or(AS_IT_IS) == label && run.at == at)
            .collect();
        let arm = self
            .arms
            .iter()
            .find(|arm| arm.label == label && arm.at == at);
        let by = self.steps.as_ref().map_or(StepsBy::Cache, |steps| steps.by);
        let places: Vec<Place> = at
            .map(|value| Place::number(step(by), value))
            .into_iter()
            .collect();
        let not_had = arm.and_then(|arm| arm.not_had.as_ref());
        add_arm(results, ArmAbout::named(label), &places, not_had);
        if runs.is_empty() {
            results.rows.push(without_samples(label, places, notpm()));
            return;
        }
        for (quantity, of) in quantities(&runs) {
            let sample = |run: &&OltpSample| Some(Sample::of(run.round, of(run)?));
            let samples: Vec<Sample> = runs.iter().filter_map(sample).collect();
            if !samples.is_empty() {
                results.rows.push(Row {
                    doubtful: !arm.and_then(|arm| arm.verified).unwrap_or(true),
                    ..Row::new(label, places.clone(), quantity, samples)
                });
            }
        }
        let seen = runs
            .iter()
            .filter(|run| !run.pages.is_empty() || run.verified.is_some());
        results.layouts.extend(seen.map(|run| Layout {
            arm: label.to_owned(),
            at: places.clone(),
            when: "end".to_owned(),
            round: Some(run.round),
            pages: run.pages.clone(),
            extents_a_block: None,
            verified: run.verified,
            note: None,
        }));
    }
}

fn notpm() -> Quantity {
    Quantity::rate("NOTPM", "NOTPM").main()
}

fn step(by: StepsBy) -> &'static str {
    match by {
        StepsBy::Cache => "cache_bytes",
        StepsBy::Connections => "connections",
    }
}

/// Which events were counted in each run; they are the same but for the share of time.
fn counted_by(result: &OltpResult, results: &mut Results) {
    let mut all: Vec<Json> = Vec::new();
    for run in &result.runs {
        if let Some(by) = &run.counted_by {
            all.push(json!({"arm": run.arm, "round": run.round, "at": run.at, "by": by}));
        }
    }
    if !all.is_empty() {
        results.settings.insert("counted_by".to_owned(), all.into());
    }
}

impl Translation {
    /// Dependent reads are rows of their own; what was counted is in the runs.
    fn add_to(&self, results: &mut Results) {
        if let Some(why) = self
            .why
            .as_ref()
            .filter(|_| self.source == TranslationSource::Chase)
        {
            results
                .remarks
                .push(format!("translation, by dependent reads: {why}"));
            for arm in self.arms.iter().filter(|arm| !arm.samples.is_empty()) {
                let samples = Sample::in_rounds(&arm.rounds, &arm.samples);
                let read = Quantity::time("dependent read", "ns");
                results
                    .rows
                    .push(Row::new(&arm.label, Vec::new(), read, samples));
            }
        }
    }
}

type Of = Box<dyn Fn(&OltpSample) -> Option<f64>>;

/// What is known of a run; kinds are those of the first one.
#[allow(clippy::cast_precision_loss)] // counts of a run and bytes of page tables are below 2^52
fn quantities(runs: &[&OltpSample]) -> Vec<(Quantity, Of)> {
    let mut all: Vec<(Quantity, Of)> = vec![(notpm(), Box::new(|run| Some(run.notpm)))];
    let kinds = runs.first().map(|run| run.kinds.as_slice());
    for kind in kinds.unwrap_or_default() {
        of_kind(&kind.name, &mut all);
    }
    all.push((
        Quantity::amount("CPU a transaction", "seconds"),
        Box::new(|run| {
            let cost = &run.per_transaction;
            Some(cost.cpu_seconds + cost.server_cpu_seconds.unwrap_or(0.0))
        }),
    ));
    costs(&mut all);
    type Get = fn(&OltpSample) -> Option<f64>;
    let rest: [(Quantity, Get); 10] = [
        (Quantity::amount("page tables", "bytes"), |run| {
            run.page_tables_bytes.map(|bytes| bytes as f64)
        }),
        (Quantity::rate("copied beside, a second", "bytes"), |run| {
            run.copied_bytes_per_second
        }),
        (Quantity::amount("cycles an instruction", ""), |run| {
            run.cycles_an_instruction
                .or(run.counted.map(|counted| counted[0]))
        }),
        (
            Quantity::amount("TLB misses in 1000 instructions", ""),
            |run| run.counted.map(|counted| counted[1]),
        ),
        (Quantity::plain("transactions a second", ""), |run| {
            Some(run.transactions_per_second)
        }),
        (Quantity::plain("measured", "seconds"), |run| {
            Some(run.seconds)
        }),
        (
            Quantity::plain("CPU of the load's program a transaction", "seconds"),
            |run| Some(run.per_transaction.cpu_seconds),
        ),
        (
            Quantity::plain("CPU of the server a transaction", "seconds"),
            |run| run.per_transaction.server_cpu_seconds,
        ),
        (
            Quantity::plain("CPU of the load's program a second", "seconds"),
            |run| Some(run.per_second.cpu_seconds),
        ),
        (
            Quantity::plain("CPU of the server a second", "seconds"),
            |run| run.per_second.server_cpu_seconds,
        ),
    ];
    all.extend(rest.map(|(quantity, of)| (quantity, Box::new(of) as Of)));
    all
}

/// Of each kind of transaction.
#[allow(clippy::cast_precision_loss)] // counts of a run are below 2^52
fn of_kind(kind: &str, all: &mut Vec<(Quantity, Of)>) {
    type Get = fn(&OltpKind) -> f64;
    let times: [(&str, Get); 5] = [
        ("p50", |k| k.p50_seconds),
        ("p99", |k| k.p99_seconds),
        ("p90", |k| k.p90_seconds),
        ("mean", |k| k.mean_seconds),
        ("longest", |k| k.max_seconds),
    ];
    let counts: [(&str, Get); 4] = [
        ("committed", |k| k.committed as f64),
        ("rolled back", |k| k.rolled_back as f64),
        ("conflicts", |k| k.conflicts as f64),
        ("share", |k| k.share),
    ];
    let times = times.map(|(which, get)| {
        (
            Quantity::time(&format!("{kind} {which}"), "seconds"),
            get,
            true,
        )
    });
    let counts =
        counts.map(|(which, get)| (Quantity::plain(&format!("{kind} {which}"), ""), get, false));
    for (quantity, get, is_time) in times.into_iter().chain(counts) {
        let kind = kind.to_owned();
        let of = move |run: &OltpSample| {
            // Of a kind that did not occur there are no times.
            let occurred = |k: &&OltpKind| !is_time || k.committed + k.rolled_back > 0;
            let mut kinds = run.kinds.iter().filter(|k| k.name == kind);
            kinds.find(occurred).map(get)
        };
        all.push((quantity, Box::new(of)));
    }
}

/// What a transaction used.
fn costs(all: &mut Vec<(Quantity, Of)>) {
    type Get = fn(&OltpCost) -> Option<f64>;
    let each: [(&str, Get); 7] = [
        ("logical reads", |c| c.logical_reads),
        ("block changes", |c| c.block_changes),
        ("physical reads", |c| c.physical_reads),
        ("physical writes", |c| c.physical_writes),
        ("cycles", |c| c.cycles),
        ("TLB misses", |c| c.tlb_misses),
        ("instructions", |c| c.instructions),
    ];
    for (name, get) in each {
        let quantity = Quantity::amount(&format!("{name} a transaction"), "");
        all.push((quantity, Box::new(move |run| get(&run.per_transaction))));
    }
    for (name, get) in each {
        let quantity = Quantity::plain(&format!("{name} a second"), "");
        all.push((quantity, Box::new(move |run| get(&run.per_second))));
    }
}
