//! The quantities and charts of `hugeleaf-lab oltp`.

use crate::kits::tpcc::{DriverResult, TransactionKind, TransactionStats};

use super::watch::DatabaseUsage;
use hugeleaf_proof::bench::chase::READ;
use hugeleaf_proof::result_format::{Chart, Quantity};

/// The arm of a result without arms: one run, as it is.
pub(super) const AS_IT_IS: &str = "as it is";

/// Throughput of DB2 9 relative to 4K pages, by page size, on POWER5+ with 473 GB of buffer pools (charts 1 and 3 of
/// its study).
const PUBLISHED: [(&str, f64); 3] = [
    ("DB2 9, 64K", 1.13),
    ("DB2 9, 16M", 1.22),
    ("DB2 9, 16G", 1.26),
];
/// Cycles an instruction and rate of TLB misses, likewise (chart 2); larger pages have no numbers there.
const PUBLISHED_CYCLES: [(&str, f64); 1] = [("DB2 9, 64K", 0.89)];
/// See [`PUBLISHED_CYCLES`].
const PUBLISHED_MISSES: [(&str, f64); 1] = [("DB2 9, 64K", 0.87)];
/// Gain of 64K pages by the size of the buffer pools (chart 3).
const PUBLISHED_GAIN: &str =
    "published for DB2 9, 64K over 4K: ×1.05 with 18 GB of buffer pools, ×1.13 with 473 GB";
/// Results of the study of Oracle 11g: automatic memory management on base pages, manual on huge pages.
const PUBLISHED_COUNTS: &str = "published for Oracle 11g, a second, on base pages and on 2M: transactions 905 and 872, logical \
     reads 36,742 and 36,411, block changes 10,195 and 10,101, physical reads 4287 and 4864, physical writes 2817 and 2928";

const CYCLES: &str = "cycles an instruction";
const MISSES: &str = "TLB misses in 1000 instructions";

pub(super) fn main() -> Quantity {
    Quantity::rate("NOTPM", "NOTPM").main()
}

/// Returns the charts, by the place that changes between steps if there are several. A chart without rows in a result
/// is not drawn.
pub(super) fn charts(steps: Option<&str>) -> Vec<Chart> {
    let chart = |y: &str, title: &str| match steps {
        None => Chart::bars(y, title),
        Some(place) => Chart::by(place, y, title),
    };
    let over = |y: &str, title: &str, published| chart(y, title).over_first().published(published);
    vec![
        chart("NOTPM", "New-Order transactions a minute"),
        over(
            "NOTPM",
            "The same, relative to the first arm",
            &PUBLISHED[..],
        ),
        over(
            CYCLES,
            "Cycles an instruction, relative to the first arm",
            &PUBLISHED_CYCLES,
        ),
        over(
            MISSES,
            "TLB misses in 1000 instructions, relative to the first arm",
            &PUBLISHED_MISSES,
        ),
        Chart::bars(READ, "Time of a dependent read"),
        chart(
            "page tables",
            "Page tables of all processes of the database",
        ),
    ]
}

pub(super) fn remarks(steps: Option<&str>) -> Vec<String> {
    let gain = steps
        .filter(|place| *place == "cache_bytes")
        .map(|_| PUBLISHED_GAIN);
    let all = [PUBLISHED_COUNTS].into_iter().chain(gain);
    all.map(str::to_owned).collect()
}

pub(super) fn of_run(outcome: &DriverResult, seen: &DatabaseUsage) -> Vec<(Quantity, f64)> {
    let all = outcome.transactions() as f64;
    let (transactions, seconds) = (outcome.counted.max(1) as f64, outcome.seconds);
    let (amount, plain) = (Quantity::amount, Quantity::plain);
    let mut known = vec![(main(), outcome.notpm())];
    for kind in TransactionKind::ALL {
        of_kind(kind.name(), &outcome.kinds[kind.index()], all, &mut known);
    }
    let own = outcome.usage.processor().as_secs_f64();
    let server = outcome.counters.server_cpu_micros;
    let server = server.map(|(user, system)| (user + system) as f64 / 1e6);
    let cpu = (own + server.unwrap_or(0.0)) / transactions;
    known.push((amount("CPU a transaction", "seconds"), cpu));
    let costs = costs(outcome, seen);
    known.extend((costs.iter()).map(|(name, count)| {
        (
            amount(&format!("{name} a transaction"), ""),
            count / transactions,
        )
    }));
    known.extend(
        (costs.iter())
            .map(|(name, count)| (plain(&format!("{name} a second"), ""), count / seconds)),
    );
    let counted = seen.counted.as_ref().map(|(totals, _)| totals);
    let counted = counted.filter(|totals| totals.instructions > 0.0);
    let an_instruction = |count: f64| Some(count / counted?.instructions);
    let misses = counted.and_then(|totals| an_instruction(totals.misses?));
    let of_server = |over: f64| server.map(|server| server / over);
    let rest = [
        (
            amount("page tables", "bytes"),
            seen.page_tables.map(|bytes| bytes.as_f64()),
        ),
        (
            Quantity::rate("copied beside, a second", "bytes"),
            seen.copied_per_second,
        ),
        (
            amount(CYCLES, ""),
            counted.and_then(|totals| an_instruction(totals.cycles)),
        ),
        (amount(MISSES, ""), misses.map(|misses| 1000.0 * misses)),
        (plain("transactions a second", ""), Some(outcome.tps())),
        (plain("measured", "seconds"), Some(seconds)),
        (
            plain("CPU of the load's program a transaction", "seconds"),
            Some(own / transactions),
        ),
        (
            plain("CPU of the server a transaction", "seconds"),
            of_server(transactions),
        ),
        (
            plain("CPU of the load's program a second", "seconds"),
            Some(own / seconds),
        ),
        (
            plain("CPU of the server a second", "seconds"),
            of_server(seconds),
        ),
    ];
    known.extend(
        rest.into_iter()
            .filter_map(|(quantity, value)| Some((quantity, value?))),
    );
    known
}

/// Adds the quantities of a kind of transaction. A kind that did not occur has no times.
fn of_kind(kind: &str, seen: &TransactionStats, all: f64, known: &mut Vec<(Quantity, f64)>) {
    let named = |which: &str| format!("{kind} {which}");
    let ended = seen.committed + seen.rolled_back;
    let times = [
        ("p50", seen.p50),
        ("p99", seen.p99),
        ("p90", seen.p90),
        ("mean", seen.mean),
        ("longest", seen.max),
    ];
    let times = times.into_iter().filter(|_| ended > 0);
    known.extend(times.map(|(which, time)| (Quantity::time(&named(which), "seconds"), time)));
    let counts = [
        ("committed", seen.committed as f64),
        ("rolled back", seen.rolled_back as f64),
        ("conflicts", seen.conflicts as f64),
        ("share", ended as f64 / all),
    ];
    known.extend(counts.map(|(which, count)| (Quantity::plain(&named(which), ""), count)));
}

/// Returns the costs of all transactions, as far as they are counted.
fn costs(outcome: &DriverResult, seen: &DatabaseUsage) -> Vec<(&'static str, f64)> {
    let counters = &outcome.counters;
    let totals = seen.counted.as_ref().map(|(totals, _)| totals);
    let float = |count: Option<u64>| count.map(|count| count as f64);
    let all = [
        ("logical reads", float(counters.logical_reads)),
        ("block changes", float(counters.block_changes)),
        ("physical reads", float(counters.physical_reads)),
        ("physical writes", float(counters.physical_writes)),
        ("cycles", totals.map(|totals| totals.cycles)),
        ("TLB misses", totals.and_then(|totals| totals.misses)),
        ("instructions", totals.map(|totals| totals.instructions)),
    ];
    all.into_iter()
        .filter_map(|(name, count)| Some((name, count?)))
        .collect()
}
