//! What the screen and the page of `bench oltp` both show, as values and rows. Pure.

use hugeleaf_proof::bench::oltp::{
    OltpArm, OltpCost, OltpKind, OltpResult, OltpSample, StepsBy, TranslationArm,
};
use hugeleaf_proof::bench::{CONFIDENCE, Spread, effect_by_round};
use hugeleaf_proof::result::Effect;
use hugeleaf_units::Bytes;

use super::super::{NotHadLine, duration, short};
use crate::prove::{number, ratio};

/// Throughput that DB2 9 reached by page size on POWER5+ with 473 GB of buffer pools, 4K pages = 100
/// (charts 1 and 3 of its study).
pub(crate) const PUBLISHED: [(&str, f64); 4] = [
    ("4K", 100.0),
    ("64K", 113.0),
    ("16M", 122.0),
    ("16G", 126.0),
];
/// Cycles an instruction and the rate of TLB misses, likewise (chart 2); larger pages have no numbers there.
pub(crate) const PUBLISHED_CYCLES: [(&str, f64); 2] = [("4K", 100.0), ("64K", 89.0)];
/// See [`PUBLISHED_CYCLES`].
pub(crate) const PUBLISHED_MISSES: [(&str, f64); 2] = [("4K", 100.0), ("64K", 87.0)];
/// What 64K pages gained there by the size of the buffer pools (chart 3).
pub(crate) const PUBLISHED_GAIN: &str = "published for 64K over 4K: ×1.05 with 18 GB of buffer \
     pools, ×1.13 with 473 GB";
/// The study of Oracle 11g: transactions, logical reads, block changes, physical reads and physical writes a
/// second.
const ORACLE: [(&str, [f64; 5]); 2] = [
    (
        "Oracle AMM, base",
        [905.0, 36_742.0, 10_195.0, 4287.0, 2817.0],
    ),
    (
        "Oracle manual, 2M",
        [872.0, 36_411.0, 10_101.0, 4864.0, 2928.0],
    ),
];

/// What DB2 9 reached with pages of about the size of an arm's.
pub(crate) fn published(label: &str) -> Option<(&'static str, f64)> {
    let size = label.rsplit(':').next().unwrap_or(label);
    let at = match size {
        "base" => 0,
        "64K" => 1,
        "2M" | "16M" | "32M" => 2,
        "1G" | "16G" => 3,
        _ => return None,
    };
    Some(PUBLISHED[at])
}

/// What is known of the pages of an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// All of it was seen to be on them.
    Yes,
    /// A part was not.
    NotAll,
    /// It could not be read back.
    CannotBeTold,
}

impl Seen {
    fn of(verified: Option<bool>) -> Seen {
        match verified {
            Some(true) => Seen::Yes,
            Some(false) => Seen::NotAll,
            None => Seen::CannotBeTold,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Seen::Yes => "yes",
            Seen::NotAll => "not all of it",
            Seen::CannotBeTold => "cannot be told",
        }
    }
}

/// One arm held against the first one, which is 100.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Index {
    pub(crate) label: String,
    /// What was measured, in its own unit.
    pub(crate) spread: Option<Spread>,
    /// Missing where this arm or the first was not had.
    pub(crate) value: Option<f64>,
    /// The interval of the effect; of the first arm its own spread.
    pub(crate) ends: Option<(f64, f64)>,
    /// Each sample over that of the first arm in the same round; of the first arm over its median.
    pub(crate) dots: Vec<f64>,
    pub(crate) seen: Seen,
}

/// What [`index`] needs of an arm, of throughput as of translation.
#[derive(Clone, Copy)]
struct Measured<'a> {
    label: &'a str,
    samples: &'a [f64],
    rounds: &'a [usize],
    spread: Option<Spread>,
    effect: Option<Effect>,
    seen: Seen,
}

/// The arms of one step, or of a result without steps.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step<'a> {
    pub(crate) at: Option<u64>,
    pub(crate) arms: Vec<&'a OltpArm>,
}

/// The steps, in rising order; one without a value where there are none.
pub(crate) fn steps(result: &OltpResult) -> Vec<Step<'_>> {
    let mut values: Vec<Option<u64>> = result.arms.iter().map(|arm| arm.at).collect();
    values.sort_unstable();
    values.dedup();
    let of = |at| Step {
        at,
        arms: result.arms.iter().filter(|arm| arm.at == at).collect(),
    };
    values.into_iter().map(of).collect()
}

/// The labels of the arms of which something was measured at some step, in the order in which they were asked
/// for.
pub(crate) fn labels(result: &OltpResult) -> Vec<&str> {
    let measured = result.arms.iter().filter(|arm| arm.spread.is_some());
    measured.fold(Vec::new(), |mut labels, arm| {
        if !labels.contains(&arm.label.as_str()) {
            labels.push(&arm.label);
        }
        labels
    })
}

/// The value of a step as it is shown: `4G`, `32`.
pub(crate) fn step_name(result: &OltpResult, at: u64) -> String {
    match result.steps.as_ref().map(|steps| steps.by) {
        Some(StepsBy::Cache) => Bytes(at).to_string(),
        Some(StepsBy::Connections) | None => at.to_string(),
    }
}

/// The same in a sentence: ` with a cache of 4G`, or nothing where there are no steps.
pub(crate) fn with_step(result: &OltpResult, at: Option<u64>) -> String {
    match (at, result.steps.as_ref().map(|steps| steps.by)) {
        (Some(at), Some(StepsBy::Cache)) => format!(" with a cache of {}", Bytes(at)),
        (Some(1), Some(StepsBy::Connections)) => " with 1 connection".to_owned(),
        (Some(at), Some(StepsBy::Connections)) => format!(" with {at} connections"),
        _ => String::new(),
    }
}

/// What all others are held against: the first arm that was asked for.
pub(crate) fn first_label(result: &OltpResult) -> &str {
    result.arms.first().map_or("base", |arm| arm.label.as_str())
}

/// The arms of a step, over the first of them.
pub(crate) fn indices(step: &Step<'_>) -> Vec<Index> {
    let arms = step.arms.iter().map(|arm| Measured {
        label: &arm.label,
        samples: &arm.samples,
        rounds: &arm.rounds,
        spread: arm.spread,
        effect: arm.effect,
        seen: Seen::of(arm.verified),
    });
    over_first(&arms.collect::<Vec<_>>())
}

/// The cost of translation of the arms, over the first of them. What is known of their pages is what is known
/// from the load: `seen` finds it by label.
pub(crate) fn translation_indices(
    arms: &[TranslationArm],
    seen: &dyn Fn(&str) -> Seen,
) -> Vec<Index> {
    let arms = arms.iter().map(|arm| Measured {
        label: &arm.label,
        samples: &arm.samples,
        rounds: &arm.rounds,
        spread: arm.spread,
        effect: arm.effect,
        seen: seen(&arm.label),
    });
    over_first(&arms.collect::<Vec<_>>())
}

/// Misses of the TLB of the arms, over the first of them: in a thousand instructions, or `each` transaction.
/// None where the host does not count them.
pub(crate) fn miss_indices(
    arms: &[TranslationArm],
    each: bool,
    seen: &dyn Fn(&str) -> Seen,
) -> Option<Vec<Index>> {
    let of = |arm: &'_ TranslationArm| match each {
        true => arm.tlb_misses_each.clone(),
        false => arm.tlb_misses.clone(),
    };
    let misses: Vec<Vec<f64>> = arms.iter().map(of).collect();
    if misses.iter().all(Vec::is_empty) {
        return None;
    }
    let by_round = |arm: &TranslationArm, own: &[f64]| -> Vec<(usize, f64)> {
        let rounds = arm.rounds.iter().copied();
        rounds.zip(own.iter().copied()).collect()
    };
    let all = || arms.iter().zip(&misses);
    let first = all().next().map(|(arm, own)| by_round(arm, own));
    let first = first.unwrap_or_default();
    let measured = all().map(|(arm, own)| Measured {
        label: &arm.label,
        samples: own,
        rounds: &arm.rounds,
        spread: Spread::of(own, CONFIDENCE),
        effect: effect_by_round(first.iter().copied(), by_round(arm, own).into_iter()),
        seen: seen(&arm.label),
    });
    Some(over_first(&measured.collect::<Vec<_>>()))
}

/// What is known of the pages of the arm of this name, in all steps together.
pub(crate) fn seen(result: &OltpResult, label: &str) -> Seen {
    let own = result.arms.iter().filter(|arm| arm.label == label);
    let all: Vec<Seen> = own.map(|arm| Seen::of(arm.verified)).collect();
    let worst = [Seen::NotAll, Seen::CannotBeTold];
    worst
        .into_iter()
        .find(|bad| all.contains(bad))
        .unwrap_or(Seen::Yes)
}

fn over_first(arms: &[Measured<'_>]) -> Vec<Index> {
    let first = arms.first().copied();
    let own = arms.iter().enumerate();
    own.map(|(at, arm)| match (at, first) {
        (1.., Some(first)) => index(&first, arm),
        _ => index_of_first(arm),
    })
    .collect()
}

fn index_of_first(arm: &Measured<'_>) -> Index {
    let whole = arm.spread.map(|s| s.median).filter(|median| *median > 0.0);
    let part = |value: f64| whole.map(|whole| 100.0 * value / whole);
    let ends = arm.spread.and_then(|s| s.low.zip(s.high));
    Index {
        label: arm.label.to_owned(),
        spread: arm.spread,
        value: whole.map(|_| 100.0),
        ends: ends.and_then(|(low, high)| part(low).zip(part(high))),
        dots: arm.samples.iter().filter_map(|v| part(*v)).collect(),
        seen: arm.seen,
    }
}

fn index(first: &Measured<'_>, arm: &Measured<'_>) -> Index {
    let over = |value: f64, of: f64| (of > 0.0).then(|| 100.0 * value / of);
    let medians = arm.spread.zip(first.spread);
    let by_medians = medians.and_then(|(own, of)| over(own.median, of.median));
    let in_round = |(value, round): (&f64, &usize)| {
        let at = first.rounds.iter().position(|r| r == round)?;
        over(*value, *first.samples.get(at)?)
    };
    let effect = arm.effect;
    Index {
        label: arm.label.to_owned(),
        spread: arm.spread,
        value: effect.map(|e| 100.0 * e.ratio).or(by_medians),
        ends: effect.map(|e| (100.0 * e.low, 100.0 * e.high)),
        dots: arm
            .samples
            .iter()
            .zip(arm.rounds)
            .filter_map(in_round)
            .collect(),
        seen: arm.seen,
    }
}

/// `116 [114, 118]`.
pub(crate) fn index_text(index: &Index) -> String {
    let Some(value) = index.value else {
        return "not had".to_owned();
    };
    let plain = |v: f64| number(v.round());
    match index.ends {
        Some((low, high)) => format!("{} [{}, {}]", plain(value), plain(low), plain(high)),
        None => plain(value),
    }
}

/// `×1.16 [1.14, 1.18]`.
pub(crate) fn over_base(effect: &Effect) -> String {
    format!(
        "×{} [{}, {}]",
        ratio(effect.ratio),
        ratio(effect.low),
        ratio(effect.high)
    )
}

/// The runs of an arm at its step.
pub(crate) fn runs_of<'a>(
    result: &'a OltpResult,
    arm: &'a OltpArm,
) -> impl Iterator<Item = &'a OltpSample> {
    let runs = result.runs.iter();
    runs.filter(|run| run.arm.as_deref() == Some(arm.label.as_str()) && run.at == arm.at)
}

/// The heads of [`study_rows`], behind those of the arm.
pub(crate) const STUDY: [&str; 6] = [
    "transactions",
    "logical reads",
    "block changes",
    "physical reads",
    "physical writes",
    "CPU",
];

/// The table of the Oracle study, on the average of the runs of an arm: two rows an arm, what it was a second
/// and what a transaction; the first cell is the arm, the second its step, the third which of the two. Below
/// are those of the study.
pub(crate) fn study_rows(result: &OltpResult) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for arm in result.arms.iter().filter(|arm| arm.spread.is_some()) {
        let own: Vec<&OltpSample> = runs_of(result, arm).collect();
        let tps: Vec<f64> = own.iter().map(|run| run.transactions_per_second).collect();
        let second: Vec<OltpCost> = own.iter().map(|run| run.per_second).collect();
        let each: Vec<OltpCost> = own.iter().map(|run| run.per_transaction).collect();
        let at = arm.at.map_or_else(String::new, |at| step_name(result, at));
        let tps = mean(&tps).map_or_else(|| "-".to_owned(), short);
        let heads = [arm.label.clone(), at, "a second".to_owned(), tps];
        rows.push([heads.to_vec(), averages(&second)].concat());
        let heads = ["", "", "each", "1"].map(str::to_owned);
        rows.push([heads.to_vec(), averages(&each)].concat());
    }
    for (name, second) in ORACLE {
        let cells = |per: &str, values: [f64; 5]| {
            let heads = [name, "", per].map(str::to_owned).to_vec();
            let values = values.map(short).to_vec();
            [heads, values, vec!["-".to_owned()]].concat()
        };
        rows.push(cells("a second", second));
        let mut each = cells("each", second.map(|value| value / second[0]));
        (each[0], each[3]) = (String::new(), "1".to_owned());
        rows.push(each);
    }
    rows
}

/// A row of [`study_rows`] with its step behind the arm, which is narrower.
pub(crate) fn with_joined_step(mut row: Vec<String>) -> Vec<String> {
    let at = row.remove(1);
    if !at.is_empty() {
        row[0] += &format!(" at {at}");
    }
    row
}

fn averages(costs: &[OltpCost]) -> Vec<String> {
    type Of = fn(&OltpCost) -> Option<f64>;
    let columns: [Of; 4] = [
        |c| c.logical_reads,
        |c| c.block_changes,
        |c| c.physical_reads,
        |c| c.physical_writes,
    ];
    let column = |of: Of| {
        let all: Option<Vec<f64>> = costs.iter().map(of).collect();
        all.and_then(|all| mean(&all))
    };
    let cpu: Vec<f64> = costs
        .iter()
        .map(|c| c.cpu_seconds + c.server_cpu_seconds.unwrap_or(0.0))
        .collect();
    columns
        .into_iter()
        .map(|of| column(of).map_or_else(|| "-".to_owned(), short))
        .chain([mean(&cpu).map_or_else(|| "-".to_owned(), duration)])
        .collect()
}

// Few runs.
#[allow(clippy::cast_precision_loss)]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Within which time so many of the transactions of a kind ended: the median of an arm's runs.
pub(crate) fn within(runs: &[&OltpSample], kind: &str, of: fn(&OltpKind) -> f64) -> String {
    let kinds = runs.iter().flat_map(|run| &run.kinds);
    // Of a kind that did not occur there are no times.
    let own = kinds.filter(|k| k.name == kind && k.committed + k.rolled_back > 0);
    let times: Vec<f64> = own.map(of).collect();
    let middle = Spread::of(&times, CONFIDENCE);
    middle.map_or_else(|| "-".to_owned(), |s| duration(s.median))
}

/// The kinds of transactions that ran, in the standard's order.
pub(crate) fn kind_names(result: &OltpResult) -> Vec<&str> {
    let first = result.runs.first().into_iter().flat_map(|run| &run.kinds);
    first.map(|kind| kind.name.as_str()).collect()
}

/// The heads of [`latency_rows`], behind those of the arm and its step.
pub(crate) const LATENCY: [&str; 6] = ["transaction", "sent again", "p50", "p90", "p99", "max"];

/// A row an arm and kind of transaction; the first cells are the arm and its step.
pub(crate) fn latency_rows(result: &OltpResult) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for arm in result.arms.iter().filter(|arm| arm.spread.is_some()) {
        let own: Vec<&OltpSample> = runs_of(result, arm).collect();
        for (number, kind) in kind_names(result).into_iter().enumerate() {
            let first = |text: String| if number == 0 { text } else { String::new() };
            let at = arm.at.map_or_else(String::new, |at| step_name(result, at));
            let kinds = own.iter().flat_map(|run| &run.kinds);
            let again = kinds.filter(|k| k.name == kind).map(|k| k.conflicts);
            rows.push(vec![
                first(arm.label.clone()),
                first(at),
                kind.to_owned(),
                whole(again.fold(0, u64::saturating_add)),
                within(&own, kind, |k| k.p50_seconds),
                within(&own, kind, |k| k.p90_seconds),
                within(&own, kind, |k| k.p99_seconds),
                within(&own, kind, |k| k.max_seconds),
            ]);
        }
    }
    rows
}

// Counts of a run are far below 2^52.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn whole(count: u64) -> String {
    number(count as f64)
}

/// Page tables of an arm at its step: the median of its runs.
pub(crate) fn page_tables(result: &OltpResult, arm: &OltpArm) -> Option<Spread> {
    let own = runs_of(result, arm).filter_map(|run| run.page_tables_bytes);
    let own: Vec<f64> = own.map(|bytes| Bytes(bytes).as_f64()).collect();
    Spread::of(&own, CONFIDENCE)
}

/// Arms that were not had: a line an arm where that is so for one reason at all steps, else one a step.
pub(crate) fn not_had(result: &OltpResult) -> Vec<NotHadLine> {
    let mut done: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for arm in &result.arms {
        let Some(why) = &arm.not_had else { continue };
        if done.contains(&arm.label.as_str()) {
            continue;
        }
        let mut line = NotHadLine::of(&arm.label, false, why);
        let mut own = result.arms.iter().filter(|a| a.label == arm.label);
        if own.all(|a| a.not_had.as_ref() == Some(why)) {
            done.push(&arm.label);
        } else {
            line.what += &with_step(result, arm.at);
        }
        lines.push(line);
    }
    lines
}
