//! The rows of each kind of result.

use hugeleaf_units::Bytes;

use super::{Place, Quantity, Row, Sample, Sort, Value};
use crate::bench::NotHad;
use crate::bench::chase::ChaseResult;
use crate::bench::mover::{MoverArm, MoverResult, MoverSample};
use crate::bench::oltp::{
    OltpCost, OltpKind, OltpResult, OltpSample, StepsBy, TranslationArm, TranslationSource,
};
use crate::bench::pagetables::PageTablesResult;
use crate::bench::pin::PinResult;
use crate::result::{Design, Pair, ResultFile};
use crate::stats::{Better, log_ratio};
use crate::subject::Arm;

/// The arm of a result that has none: one run, as it is.
pub const AS_IT_IS: &str = "as it is";

fn quantity(name: &str, unit: &str, better: Better, sort: Sort) -> Quantity {
    Quantity {
        name: name.to_owned(),
        unit: unit.to_owned(),
        better,
        sort,
        is_main: false,
    }
}

fn main(quantity: Quantity) -> Quantity {
    Quantity {
        is_main: true,
        ..quantity
    }
}

fn time(name: &str, unit: &str) -> Quantity {
    quantity(name, unit, Better::Lower, Sort::Speed)
}

fn amount(name: &str, unit: &str) -> Quantity {
    quantity(name, unit, Better::Lower, Sort::Amount)
}

/// Values with the rounds in which they were taken.
fn in_rounds(rounds: &[usize], values: &[f64]) -> Vec<Sample> {
    let rounds = rounds.iter().map(|round| Some(*round));
    let rounds = rounds.chain(std::iter::repeat(None));
    let sample = |(value, round): (&f64, Option<usize>)| Sample {
        round,
        value: *value,
    };
    values.iter().zip(rounds).map(sample).collect()
}

/// Values without rounds.
fn alone(values: &[f64]) -> Vec<Sample> {
    in_rounds(&[], values)
}

fn not_had(had: Option<&NotHad>) -> Option<String> {
    had.map(|had| format!("not had: {}", had.reason))
}

/// What is to be said of an arm that was measured.
fn seen(verified: bool, note: Option<&String>) -> Option<String> {
    const NOT_SEEN: &str = "not all of it was seen to be on these pages";
    match (verified, note) {
        (true, _) => None,
        (false, None) => Some(NOT_SEEN.to_owned()),
        (false, Some(note)) => Some(format!("{NOT_SEEN}: {note}")),
    }
}

/// The row of an arm that was not had at all.
fn lacking(arm: &str, had: Option<&NotHad>, quantity: Quantity) -> Row {
    Row {
        arm: arm.to_owned(),
        at: Vec::new(),
        quantity,
        samples: Vec::new(),
        note: not_had(had),
    }
}

pub(super) fn chase(result: &ChaseResult) -> Vec<Row> {
    let latency = main(time("dependent read", &result.experiment.unit));
    let mut rows = Vec::new();
    for arm in &result.arms {
        if arm.points.is_empty() {
            rows.push(lacking(&arm.label, arm.not_had.as_ref(), latency.clone()));
        }
        rows.extend(arm.points.iter().map(|point| Row {
            arm: arm.label.clone(),
            at: vec![Place {
                name: "working_set_bytes",
                value: Value::Bytes(Bytes(point.working_set_bytes)),
            }],
            quantity: latency.clone(),
            samples: in_rounds(&point.rounds, &point.samples),
            note: seen(point.verified, point.note.as_ref()),
        }));
    }
    rows
}

#[allow(clippy::cast_precision_loss)] // page tables of a host are far below 2^52 bytes
pub(super) fn pagetables(result: &PageTablesResult) -> Vec<Row> {
    let growth = quantity("page tables", "bytes", Better::Lower, Sort::Counted);
    let growth = main(growth);
    let mut rows = Vec::new();
    for arm in &result.arms {
        if arm.points.is_empty() {
            rows.push(lacking(&arm.label, arm.not_had.as_ref(), growth.clone()));
        }
        for point in &arm.points {
            let values = [
                (growth.clone(), point.growth_bytes as f64),
                (time("attach, all", "seconds"), point.attach.total_seconds),
                (
                    time("first touch, all", "seconds"),
                    point.first_touch.total_seconds,
                ),
            ];
            rows.extend(values.map(|(quantity, value)| Row {
                arm: arm.label.clone(),
                at: vec![Place {
                    name: "processes",
                    value: Value::count(point.processes as u64),
                }],
                quantity,
                samples: alone(&[value]),
                note: seen(point.verified, point.note.as_ref()),
            }));
        }
    }
    rows
}

pub(super) fn mover(result: &MoverResult) -> Vec<Row> {
    let unit = &result.experiment.unit;
    let rate = main(quantity("data moved", unit, Better::Higher, Sort::Speed));
    result
        .arms
        .iter()
        .flat_map(|arm| mover_arm(arm, &rate))
        .collect()
}

#[allow(clippy::cast_precision_loss)] // streams are few
fn mover_arm(arm: &MoverArm, rate: &Quantity) -> Vec<Row> {
    let row = |quantity: Quantity, samples: Vec<Sample>| Row {
        arm: arm.label.clone(),
        at: vec![Place {
            name: "mode",
            value: Value::Text(arm.mode.clone()),
        }],
        quantity,
        samples,
        note: not_had(arm.not_had.as_ref()).or_else(|| {
            let lying = arm.before.iter().chain(&arm.after);
            lying
                .filter_map(|l| seen(l.verified, l.note.as_ref()))
                .next()
        }),
    };
    let of = |value: &dyn Fn(&MoverSample) -> Option<f64>| -> Vec<Sample> {
        let sample = |raw: &MoverSample| {
            Some(Sample {
                round: Some(raw.round),
                value: value(raw)?,
            })
        };
        arm.raw.iter().filter_map(sample).collect()
    };
    let mut rows = vec![
        row(rate.clone(), of(&|raw| Some(raw.mib_per_second))),
        row(
            amount("CPU of the process a GiB", "seconds"),
            of(&MoverSample::processor_per_gib),
        ),
        row(
            amount("CPU of the host a GiB", "seconds"),
            of(&MoverSample::host_per_gib),
        ),
        row(
            time("lock and unlock, mean", "seconds"),
            of(&|raw| Some(raw.lock?.mean_seconds)),
        ),
    ];
    if let Some(streams) = &arm.streams {
        let kept_up: Vec<f64> = streams.samples.iter().map(|n| *n as f64).collect();
        let quantity = quantity("writers that keep up", "", Better::Higher, Sort::Amount);
        rows.push(row(quantity, alone(&kept_up)));
    }
    rows.retain(|row| !row.samples.is_empty() || row.quantity.is_main);
    rows
}

pub(super) fn pin(result: &PinResult) -> Vec<Row> {
    let unit = &result.experiment.unit;
    let mut rows = Vec::new();
    for arm in &result.arms {
        let row = |quantity, at: Option<usize>, samples| {
            let mut places = vec![Place {
                name: "method",
                value: Value::Text(arm.method.clone()),
            }];
            places.extend(at.map(|threads| Place {
                name: "threads",
                value: Value::count(threads as u64),
            }));
            let lying = arm.before.iter().chain(&arm.after);
            let not_seen = lying
                .filter_map(|l| seen(l.verified, l.note.as_ref()))
                .next();
            let nothing = "there is nothing to do: the kernel returns at once".to_owned();
            Row {
                arm: arm.label.clone(),
                at: places,
                quantity,
                samples,
                note: (not_had(arm.not_had.as_ref()).or(not_seen))
                    .or(arm.nothing_to_do.then_some(nothing)),
            }
        };
        let pinned = main(time("pin and let go", unit));
        if arm.is_empty() {
            rows.push(row(pinned, None, Vec::new()));
            continue;
        }
        for point in &arm.points {
            let at = Some(point.threads);
            let processor = in_rounds(&point.rounds, &point.processor_samples);
            rows.push(row(
                pinned.clone(),
                at,
                in_rounds(&point.rounds, &point.samples),
            ));
            rows.push(row(amount("CPU of one", unit), at, processor));
        }
    }
    rows
}

pub(super) fn prove(result: &ResultFile) -> Vec<Row> {
    let about = &result.experiment;
    let quantity = main(quantity(
        &about.name,
        &about.unit,
        about.better,
        match result.arms.iter().any(|arm| !arm.buckets.is_empty()) {
            true => Sort::InBuckets,
            false => Sort::Speed,
        },
    ));
    let row = |arm: Arm| {
        let in_pairs = about.design == Design::RandomPairs && !result.pairs.is_empty();
        let samples = if in_pairs {
            let of = |(at, pair): (usize, &Pair)| Sample {
                round: Some(at),
                value: match arm {
                    Arm::Base => pair.base,
                    Arm::Large => pair.large,
                },
            };
            result.pairs.iter().enumerate().map(of).collect()
        } else {
            let samples = result.arm(arm).map(|own| own.samples.clone());
            alone(&samples.unwrap_or_default())
        };
        Row {
            arm: match arm {
                Arm::Base => "base".to_owned(),
                Arm::Large => "large".to_owned(),
            },
            at: Vec::new(),
            quantity: quantity.clone(),
            samples,
            note: None,
        }
    };
    [Arm::Base, Arm::Large].map(row).into()
}

pub(super) fn oltp(result: &OltpResult) -> Vec<Row> {
    let mut groups: Vec<(String, Option<u64>)> = (result.arms.iter())
        .map(|arm| (arm.label.clone(), arm.at))
        .collect();
    if groups.is_empty() {
        groups.push((AS_IT_IS.to_owned(), None));
    }
    let mut rows = Vec::new();
    for (label, at) in groups {
        let runs: Vec<&OltpSample> = (result.runs.iter())
            .filter(|run| run.arm.as_deref().unwrap_or(AS_IT_IS) == label && run.at == at)
            .collect();
        let arm = result
            .arms
            .iter()
            .find(|arm| arm.label == label && arm.at == at);
        let verified = arm.and_then(|arm| arm.verified).unwrap_or(true);
        let had = arm.and_then(|arm| arm.not_had.as_ref());
        let note = not_had(had).or_else(|| seen(verified, None));
        let places: Vec<Place> = at.map(|value| step(result, value)).into_iter().collect();
        for (quantity, of) in oltp_quantities(&runs, &result.experiment.unit) {
            let samples: Vec<Sample> = (runs.iter())
                .filter_map(|run| {
                    Some(Sample {
                        round: Some(run.round),
                        value: of(run)?,
                    })
                })
                .collect();
            if samples.is_empty() && !quantity.is_main {
                continue;
            }
            rows.push(Row {
                arm: label.clone(),
                at: places.clone(),
                quantity,
                samples,
                note: note.clone(),
            });
        }
    }
    rows.extend(translation(result));
    rows
}

fn step(result: &OltpResult, value: u64) -> Place {
    match result.steps.as_ref().map(|steps| steps.by) {
        Some(StepsBy::Cache) | None => Place {
            name: "cache_bytes",
            value: Value::Bytes(Bytes(value)),
        },
        Some(StepsBy::Connections) => Place {
            name: "connections",
            value: Value::count(value),
        },
    }
}

type OfRun = Box<dyn Fn(&OltpSample) -> Option<f64>>;

/// What is known of a run; kinds are those of the first one.
#[allow(clippy::cast_precision_loss)] // page tables of a host are far below 2^52 bytes
fn oltp_quantities(runs: &[&OltpSample], unit: &str) -> Vec<(Quantity, OfRun)> {
    let rate = main(quantity(unit, unit, Better::Higher, Sort::Speed));
    let mut all: Vec<(Quantity, OfRun)> = vec![(rate, Box::new(|run| Some(run.notpm)))];
    let kinds = runs.first().map(|run| run.kinds.as_slice());
    for kind in kinds.unwrap_or_default() {
        type Of = fn(&OltpKind) -> f64;
        let both: [(&str, Of); 2] = [("p50", |k| k.p50_seconds), ("p99", |k| k.p99_seconds)];
        for (which, of) in both {
            let name = kind.name.clone();
            let of_run = move |run: &OltpSample| {
                // Of a kind that did not occur there are no times.
                let mut kinds = run.kinds.iter();
                let kind = kinds.find(|k| k.name == name && k.committed + k.rolled_back > 0)?;
                Some(of(kind))
            };
            all.push((
                time(&format!("{} {which}", kind.name), "seconds"),
                Box::new(of_run),
            ));
        }
    }
    type OfCost = fn(&OltpCost) -> Option<f64>;
    let each: [(&str, OfCost); 6] = [
        ("logical reads a transaction", |c| c.logical_reads),
        ("block changes a transaction", |c| c.block_changes),
        ("physical reads a transaction", |c| c.physical_reads),
        ("physical writes a transaction", |c| c.physical_writes),
        ("cycles a transaction", |c| c.cycles),
        ("TLB misses a transaction", |c| c.tlb_misses),
    ];
    all.push((
        amount("CPU a transaction", "seconds"),
        Box::new(|run| {
            let cost = &run.per_transaction;
            Some(cost.cpu_seconds + cost.server_cpu_seconds.unwrap_or(0.0))
        }),
    ));
    for (name, of) in each {
        all.push((
            amount(name, ""),
            Box::new(move |run| of(&run.per_transaction)),
        ));
    }
    all.push((
        amount("page tables", "bytes"),
        Box::new(|run| run.page_tables_bytes.map(|bytes| bytes as f64)),
    ));
    all.push((
        quantity(
            "copied beside, a second",
            "bytes",
            Better::Higher,
            Sort::Speed,
        ),
        Box::new(|run| run.copied_bytes_per_second),
    ));
    all.push((
        amount("cycles an instruction", ""),
        Box::new(|run| {
            let counted = run.counted.map(|counted| counted[0]);
            run.cycles_an_instruction.or(counted)
        }),
    ));
    all.push((
        amount("TLB misses in 1000 instructions", ""),
        Box::new(|run| run.counted.map(|counted| counted[1])),
    ));
    all
}

/// The dependent read of each arm; what was counted is in its runs.
fn translation(result: &OltpResult) -> Vec<Row> {
    let chased = result.translation.as_ref();
    let chased = chased.filter(|t| t.source == TranslationSource::Chase);
    let arms = chased.map(|t| t.arms.as_slice()).unwrap_or_default();
    let row = |arm: &TranslationArm| Row {
        arm: arm.label.clone(),
        at: Vec::new(),
        quantity: time("dependent read", "ns"),
        samples: in_rounds(&arm.rounds, &arm.samples),
        note: None,
    };
    arms.iter()
        .map(row)
        .filter(|row| !row.samples.is_empty())
        .collect()
}

/// The rows, and for each main row of an arm that is not the first how much it is over the first, by
/// the rounds that both have: what is left of two results of different hosts.
pub(super) fn with_gains(rows: &[Row]) -> Vec<Row> {
    let mut all = rows.to_vec();
    for row in rows.iter().filter(|row| row.quantity.is_main) {
        let first = rows.iter().find(|first| first.is_same_as(row));
        let Some(first) = first.filter(|first| first.arm != row.arm) else {
            continue;
        };
        let of_first = |round: Option<usize>| {
            round?;
            first.samples.iter().find(|sample| sample.round == round)
        };
        let samples: Vec<Sample> = (row.samples.iter())
            .filter_map(|own| {
                let log = log_ratio(of_first(own.round)?.value, own.value)?;
                Some(Sample {
                    round: own.round,
                    value: log.exp(),
                })
            })
            .collect();
        if !samples.is_empty() {
            let name = format!("{} over {}", row.quantity.name, first.arm);
            all.push(Row {
                quantity: quantity(&name, "×", row.quantity.better, Sort::Amount),
                samples,
                ..row.clone()
            });
        }
    }
    all
}
