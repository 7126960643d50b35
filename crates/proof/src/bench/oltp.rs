//! `bench oltp`: orders a minute on a real database, with what each transaction cost.
//!
//! The database is filled where it is not, driven, and then asked for its twelve consistency
//! conditions; where one does not hold there is no result. The rules of the load are those of
//! [`hugeleaf_workload::tpcc`].

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hugeleaf_workload::tpcc::{
    Counters, Durability, Kind, LoadEvent, Origin, Outcome, Pace, Run, Scale, Store, TpccError,
    Violation, check, drive, load,
};
use serde::{Deserialize, Serialize};

use super::{About, BenchEnding, Circumstances};
use crate::result::{HostFingerprint, Knob};
use crate::subject::SizeHeld;

mod arms;
mod child;
mod copier;
mod cost;
mod elsewhere;
mod embedded;
mod measure;
mod order;
mod pages;
mod postgres;
mod rows;
mod server;
mod setup;
mod translation;
mod usage;
mod watch;

pub use arms::OltpArm;
pub use copier::{COPIER, copy_until_ended};
pub use measure::{SERVERS, measure};
pub use order::{Database, Order, Refusal, ServerKind};
pub use pages::Pages;
pub use watch::Watcher;

/// What is measured.
#[derive(Debug, Clone)]
pub struct OltpSettings {
    /// What the database holds, or is to be filled with.
    pub origin: Origin,
    /// Whether it may be filled.
    pub may_fill: bool,
    /// The run.
    pub run: Run,
    /// When commits reach the disk.
    pub durability: Durability,
    /// The database's own cache.
    pub cache_bytes: u64,
    /// What a page that is not in it is read through.
    pub io: Io,
    /// The length of a file that is copied at the same time.
    pub copied_file_bytes: Option<u64>,
}

/// What is happening, for whoever watches.
#[derive(Debug, Clone, PartialEq)]
pub enum OltpEvent {
    /// It is being filled.
    Filling(LoadEvent),
    /// It runs, for so long of so long.
    Running(Duration, Duration),
    /// So many of so many questions are answered.
    Checking(usize, usize),
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum OltpRunError {
    /// The load could not be made.
    #[error(transparent)]
    Tpcc(#[from] TpccError),
    /// It was made, and the database is not consistent.
    #[error("the database is not consistent: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Inconsistent(Vec<Violation>),
}

impl OltpRunError {
    /// What to do next.
    pub fn next(&self) -> String {
        match self {
            OltpRunError::Tpcc(error) => error.next(),
            OltpRunError::Inconsistent(_) => {
                "fill it anew, and report it where that comes again: --refill".to_owned()
            }
        }
    }
}

/// A whole result; `schema` 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OltpResult {
    /// 1.
    pub schema: u32,
    /// What was measured.
    pub experiment: About,
    /// On what.
    pub database: OltpDatabase,
    /// Page sizes of its cache that were compared; none where there was one run as it is. Where
    /// there are steps, each arm is here once a step.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub arms: Vec<OltpArm>,
    /// What was changed from step to step, where there were several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steps: Option<Steps>,
    /// What it costs on each arm to translate an address; with arms, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub translation: Option<Translation>,
    /// How it went.
    pub runs: Vec<OltpSample>,
    /// What a reader must know before believing it, a sentence each.
    pub caveats: Vec<String>,
    /// The machine.
    pub host: HostFingerprint,
    /// How it was made.
    pub settings: OltpUsed,
    /// The exact command.
    pub command: Vec<String>,
}

/// What is changed from step to step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepsBy {
    /// Bytes of the database's cache; as many warehouses are touched as fill it.
    Cache,
    /// Connections.
    Connections,
}

/// The steps of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// What is changed.
    pub by: StepsBy,
    /// To what, in rising order.
    pub values: Vec<u64>,
}

/// How the cost of translation was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TranslationSource {
    /// Counted by the processor while the load ran: cycles an instruction, and misses of the TLB for
    /// data in a thousand instructions.
    Counters,
    /// The host has no such counters: nanoseconds of a read that depends on the one before, over
    /// memory as long as the cache (`bench chase`).
    Chase,
}

/// What it costs on each arm to translate an address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Translation {
    /// How it was found.
    pub source: TranslationSource,
    /// Why not by counters, where it was not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// By which events of the processor, where it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counted_by: Option<CountedBy>,
    /// In the order of the arms; of several on the same pages (base pages, and such that are locked) the
    /// first, where they were not counted while they ran.
    pub arms: Vec<TranslationArm>,
}

/// The same of one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TranslationArm {
    /// As the arm is called.
    pub label: String,
    /// Cycles an instruction, or nanoseconds a read; one a round.
    pub samples: Vec<f64>,
    /// The rounds in which they were taken.
    pub rounds: Vec<usize>,
}

/// A database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OltpDatabase {
    /// Where, without a password.
    pub name: String,
    /// Which, with its version.
    pub version: String,
    /// Warehouses.
    pub warehouses: i32,
    /// Databases over which they are spread.
    pub databases: i32,
    /// Items, and customers of a district: the standard has 100000 and 3000.
    pub items: i32,
    /// See `items`.
    pub customers: i32,
    /// Its own cache.
    pub cache_bytes: u64,
    /// `commit`, `soon`, `never`: when commits reach the disk.
    pub durability: String,
}

/// How it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OltpUsed {
    /// Connections.
    pub connections: usize,
    /// Not counted before.
    pub ramp_up_seconds: f64,
    /// Measured.
    pub for_seconds: f64,
    /// Warehouses that were touched.
    pub touched_warehouses: i32,
    /// Keying and thinking, over those of the standard; 0 is none.
    pub think: f64,
    /// Seed of what was asked for.
    pub seed: u64,
    /// What a page that is not in the cache is read through: `cached` where all of the data fit it,
    /// else `buffered` or `direct`.
    #[serde(default)]
    pub io: Io,
    /// A file that was copied while the load runs, again and again, to press on the page cache.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub copied_file_bytes: Option<u64>,
    /// Knobs in force.
    pub knobs: Vec<Knob>,
}

/// What a page that is not in the database's cache is read through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Io {
    /// All of the data fit the cache.
    #[default]
    Cached,
    /// Through the page cache of the host.
    Buffered,
    /// Past it.
    Direct,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OltpSample {
    /// The arm, of several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub arm: Option<String>,
    /// The round, of several.
    #[serde(default)]
    pub round: usize,
    /// The value of its step, where there are steps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<u64>,
    /// Page tables of all processes of the database, at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub page_tables_bytes: Option<u64>,
    /// How much of a file a second was copied at the same time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub copied_bytes_per_second: Option<f64>,
    /// Cycles an instruction, and misses of the TLB for data in a thousand instructions, of the
    /// database's processes; where the host counts them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counted: Option<[f64; 2]>,
    /// Cycles an instruction: as in `counted`, and where misses are not counted too.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cycles_an_instruction: Option<f64>,
    /// By which events that was counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counted_by: Option<CountedBy>,
    /// The cache by page size, at the end; of a cache of our own.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub pages: Vec<SizeHeld>,
    /// Whether all of that is on the pages that it was asked to be on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verified: Option<bool>,
    /// New-Order transactions committed a minute.
    pub notpm: f64,
    /// Transactions of all kinds a second.
    pub transactions_per_second: f64,
    /// How long was measured.
    pub seconds: f64,
    /// By kind.
    pub kinds: Vec<OltpKind>,
    /// What a transaction cost.
    pub per_transaction: OltpCost,
    /// The same a second.
    pub per_second: OltpCost,
    /// The twelve conditions held afterwards; a run of which they do not is none.
    pub consistent: bool,
}

/// Which events of the processor counted, in user mode, in one group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CountedBy {
    /// Cycles.
    pub cycles: String,
    /// Instructions.
    pub instructions: String,
    /// Misses of the TLB for data; where the processor counts walks of page tables, those. Missing where
    /// nothing of it is counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tlb_misses: Option<String>,
    /// Why nothing of it is counted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tlb_misses_error: Option<String>,
    /// The part of the time in which they had registers, above 0 to 1; what was counted is scaled up by it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub share_of_time: Option<f64>,
}

/// How transactions of one kind went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OltpKind {
    /// As the standard writes it.
    pub name: String,
    /// Committed.
    pub committed: u64,
    /// Rolled back, as the standard has it of one New-Order in a hundred.
    pub rolled_back: u64,
    /// Sent again because another was in the way.
    pub conflicts: u64,
    /// Its part of all.
    pub share: f64,
    /// Seconds, sending again included.
    pub mean_seconds: f64,
    /// Half are faster.
    pub p50_seconds: f64,
    /// Nine of ten are faster.
    pub p90_seconds: f64,
    /// 99 of a hundred are faster.
    pub p99_seconds: f64,
    /// The slowest.
    pub max_seconds: f64,
}

/// What was used; what the database does not count is missing.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct OltpCost {
    /// Processor time of this program: with an embedded database that is the database's too.
    pub cpu_seconds: f64,
    /// Of the server, where it is one of our own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_cpu_seconds: Option<f64>,
    /// Pages asked of the database's cache.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub logical_reads: Option<f64>,
    /// Pages changed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub block_changes: Option<f64>,
    /// Pages that were not in its cache.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub physical_reads: Option<f64>,
    /// Pages written to a file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub physical_writes: Option<f64>,
    /// Cycles of the database's processes in user mode.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cycles: Option<f64>,
    /// Their instructions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub instructions: Option<f64>,
    /// Their misses of the TLB for data, or walks of page tables: [`CountedBy::tlb_misses`] says which.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tlb_misses: Option<f64>,
}

/// Fills where need be, runs once, and checks.
///
/// # Errors
/// [`OltpRunError`]; then nothing was measured that may be called a result.
pub fn run(
    store: &dyn Store,
    settings: &OltpSettings,
    circumstances: &Circumstances,
    watcher: &mut Watcher<'_>,
    progress: &mut dyn FnMut(OltpEvent),
    stop: &AtomicBool,
) -> Result<OltpResult, OltpRunError> {
    let began = Instant::now();
    let version = store.version()?;
    let origin = load(
        store,
        &settings.origin,
        settings.may_fill,
        &mut |event| progress(OltpEvent::Filling(event)),
        stop,
    )?;
    let outcome = drive(
        store,
        &origin,
        settings.run,
        watcher,
        &mut |done, of| progress(OltpEvent::Running(done, of)),
        stop,
    )?;
    let violations = check(
        store,
        &origin,
        &mut |done, of| progress(OltpEvent::Checking(done, of)),
        stop,
    )?;
    if !violations.is_empty() {
        return Err(OltpRunError::Inconsistent(violations));
    }
    let mut run = sample(&outcome);
    let mut caveats = caveats(&origin, settings);
    if let Some(why) = watcher.write(&mut run, outcome.counted) {
        caveats.push(format!("{NOT_COUNTED}{why}"));
    }
    Ok(OltpResult {
        schema: 1,
        experiment: About {
            name: "oltp".to_owned(),
            started: circumstances.started.clone(),
            duration_seconds: began.elapsed().as_secs_f64(),
            ending: BenchEnding::Done,
        },
        caveats,
        database: database(store, version, &origin, settings),
        arms: Vec::new(),
        steps: None,
        translation: None,
        runs: vec![run],
        host: circumstances.host.clone(),
        settings: used(&origin, settings, circumstances),
        command: circumstances.command.clone(),
    })
}

/// How the note begins that says why the processor did not count.
pub const NOT_COUNTED: &str = "the processor's counters were not counted here: ";

fn database(
    store: &dyn Store,
    version: String,
    origin: &Origin,
    settings: &OltpSettings,
) -> OltpDatabase {
    OltpDatabase {
        name: store.name(),
        version,
        warehouses: origin.warehouses,
        databases: origin.shards,
        items: origin.scale.items,
        customers: origin.scale.customers,
        cache_bytes: settings.cache_bytes,
        durability: settings.durability.name().to_owned(),
    }
}

fn used(origin: &Origin, settings: &OltpSettings, circumstances: &Circumstances) -> OltpUsed {
    let run = &settings.run;
    OltpUsed {
        connections: run.connections,
        ramp_up_seconds: run.ramp_up.as_secs_f64(),
        for_seconds: run.time.as_secs_f64(),
        touched_warehouses: run.touched.unwrap_or(origin.warehouses),
        think: match run.pace {
            Pace::Full => 0.0,
            Pace::People(factor) => factor,
        },
        seed: run.seed,
        io: settings.io,
        copied_file_bytes: settings.copied_file_bytes,
        knobs: circumstances.knobs.clone(),
    }
}

fn caveats(origin: &Origin, settings: &OltpSettings) -> Vec<String> {
    let mut caveats = vec![
        "a load after the rules of TPC-C, and no TPC-C result: compare it with others of hugeleaf \
         only"
            .to_owned(),
    ];
    if origin.scale != Scale::STANDARD {
        caveats.push(format!(
            "{} items and {} customers a district, where the standard has 100000 and 3000: it says \
             nothing about memory",
            origin.scale.items, origin.scale.customers
        ));
    }
    if origin.shards > 1 {
        caveats.push(format!(
            "{} databases: what the standard calls a remote warehouse is one of the same database",
            origin.shards
        ));
    }
    if settings.run.time < Duration::from_secs(10) {
        caveats.push("measured for less than 10 s".to_owned());
    }
    caveats
}

// Counts of a run are far below 2^52.
#[allow(clippy::cast_precision_loss)]
fn sample(outcome: &Outcome) -> OltpSample {
    let all = outcome.transactions() as f64;
    let kinds = Kind::ALL
        .iter()
        .map(|kind| {
            let seen = outcome.kinds[kind.index()];
            OltpKind {
                name: kind.name().to_owned(),
                committed: seen.committed,
                rolled_back: seen.rolled_back,
                conflicts: seen.conflicts,
                share: (seen.committed + seen.rolled_back) as f64 / all,
                mean_seconds: seen.mean,
                p50_seconds: seen.p50,
                p90_seconds: seen.p90,
                p99_seconds: seen.p99,
                max_seconds: seen.max,
            }
        })
        .collect();
    OltpSample {
        notpm: outcome.notpm(),
        transactions_per_second: outcome.tps(),
        seconds: outcome.seconds,
        kinds,
        per_transaction: cost(outcome, outcome.counted.max(1) as f64),
        per_second: cost(outcome, outcome.seconds),
        consistent: true,
        ..OltpSample::default()
    }
}

#[allow(clippy::cast_precision_loss)]
fn cost(outcome: &Outcome, over: f64) -> OltpCost {
    let Counters {
        logical_reads,
        physical_reads,
        physical_writes,
        block_changes,
        server_cpu_micros,
    } = outcome.counters;
    let part = |count: Option<u64>| count.map(|count| count as f64 / over);
    OltpCost {
        cpu_seconds: outcome.usage.processor().as_secs_f64() / over,
        server_cpu_seconds: part(server_cpu_micros.map(|(user, system)| user + system))
            .map(|micros| micros / 1e6),
        logical_reads: part(logical_reads),
        block_changes: part(block_changes),
        physical_reads: part(physical_reads),
        physical_writes: part(physical_writes),
        // These the watcher adds.
        cycles: None,
        instructions: None,
        tlb_misses: None,
    }
}
