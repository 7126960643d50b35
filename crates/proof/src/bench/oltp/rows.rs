//! The result of `bench oltp` as rows.

use super::{
    CountedBy, OltpCost, OltpKind, OltpResult, OltpSample, StepsBy, Translation, TranslationSource,
};
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
                 seed {}; the twelve consistency conditions held after each run",
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
        results.charts = charts(self.steps.as_ref().map(|steps| steps.by));
        results.remarks = vec![PUBLISHED_COUNTS.to_owned()];
        if self
            .steps
            .as_ref()
            .is_some_and(|steps| steps.by == StepsBy::Cache)
        {
            results.remarks.push(PUBLISHED_GAIN.to_owned());
        }
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
        let shortage = arm.and_then(|arm| arm.shortage.as_ref());
        add_arm(results, ArmAbout::named(label), &places, shortage);
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

/// Throughput that DB2 9 reached over 4K pages, by page size, on POWER5+ with 473 GB of buffer pools (charts 1 and 3 of
/// its study).
const PUBLISHED: [(&str, f64); 3] = [
    ("DB2 9, 64K", 1.13),
    ("DB2 9, 16M", 1.22),
    ("DB2 9, 16G", 1.26),
];
/// Cycles an instruction and the rate of TLB misses, likewise (chart 2); larger pages have no numbers there.
const PUBLISHED_CYCLES: [(&str, f64); 1] = [("DB2 9, 64K", 0.89)];
/// See [`PUBLISHED_CYCLES`].
const PUBLISHED_MISSES: [(&str, f64); 1] = [("DB2 9, 64K", 0.87)];
/// What 64K pages gained there by the size of the buffer pools (chart 3).
const PUBLISHED_GAIN: &str =
    "published for DB2 9, 64K over 4K: ×1.05 with 18 GB of buffer pools, ×1.13 with 473 GB";
/// The study of Oracle 11g: automatic memory management on base pages, manual on huge ones.
const PUBLISHED_COUNTS: &str = "published for Oracle 11g, a second, on base pages and on 2M: transactions 905 and 872, logical \
     reads 36,742 and 36,411, block changes 10,195 and 10,101, physical reads 4287 and 4864, physical writes 2817 and 2928";

const CYCLES: &str = "cycles an instruction";
const MISSES: &str = "TLB misses in 1000 instructions";
const READ: &str = "dependent read";

/// Those of which a result has no rows are not drawn.
fn charts(steps: Option<StepsBy>) -> Vec<Chart> {
    let chart = |y: &str, title: &str| match steps {
        None => Chart::bars(y, title),
        Some(by) => Chart::by(step(by), y, title),
    };
    vec![
        chart("NOTPM", "New-Order transactions a minute"),
        chart("NOTPM", "The same over the first arm")
            .over_first()
            .published(&PUBLISHED),
        chart(CYCLES, "Cycles an instruction over the first arm")
            .over_first()
            .published(&PUBLISHED_CYCLES),
        chart(MISSES, "TLB misses in 1000 instructions over the first arm")
            .over_first()
            .published(&PUBLISHED_MISSES),
        Chart::bars(READ, "Time of a dependent read"),
        chart(
            "page tables",
            "Page tables of all processes of the database",
        ),
    ]
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
        if self.source == TranslationSource::Counters {
            results.remarks.push(counted(self.counted_by.as_ref()));
        }
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
                let read = Quantity::time(READ, "ns");
                results
                    .rows
                    .push(Row::new(&arm.label, Vec::new(), read, samples));
            }
        }
    }
}

/// What was counted, by which events, and what was not.
fn counted(by: Option<&CountedBy>) -> String {
    let Some(by) = by else {
        return "translation: counted by the processor while the load ran".to_owned();
    };
    let share = by.share_of_time.filter(|share| *share < 0.995);
    let share = share.map_or_else(String::new, |share| {
        format!(", for {:.0} % of the time and scaled up", 100.0 * share)
    });
    let misses = match (&by.tlb_misses, &by.tlb_misses_error) {
        (Some(event), _) => format!(", {event}"),
        (None, error) => {
            let why = error.as_deref().unwrap_or("no reason was given");
            format!("; misses of the TLB and walks of page tables are not counted here: {why}")
        }
    };
    format!(
        "translation: counted by the processor while the load ran, by the events {}, {}{misses}{share}",
        by.cycles, by.instructions
    )
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
        (Quantity::amount(CYCLES, ""), |run| {
            run.cycles_an_instruction
                .or(run.counted.map(|counted| counted[0]))
        }),
        (Quantity::amount(MISSES, ""), |run| {
            run.counted.map(|counted| counted[1])
        }),
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
