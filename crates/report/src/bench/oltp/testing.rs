//! Results of `bench oltp` for tests of views.

use hugeleaf_proof::bench::oltp::{
    CountedBy, Io, OltpArm, OltpCost, OltpDatabase, OltpKind, OltpResult, OltpSample, OltpUsed,
    Steps, StepsBy, Translation, TranslationArm, TranslationSource,
};
use hugeleaf_proof::bench::{About, BenchEnding, CONFIDENCE, NotHad, Spread};
use hugeleaf_proof::result::{Effect, HostFingerprint, Knob};
use hugeleaf_proof::stats::{Better, Method};

/// A result with arms on base pages, on base pages that are locked, on 2M transparent (not all of it seen), on
/// 2M of the pool, and on 1G, which were not had; ten rounds.
pub(crate) fn example() -> OltpResult {
    let mut result = empty();
    arms_at(&mut result, None, 10, 1.0);
    result.translation = Some(chased());
    result
}

/// The same at several caches: what large pages gain grows with them.
pub(crate) fn by_cache() -> OltpResult {
    let gib = 1 << 30;
    by(StepsBy::Cache, &[gib, 2 * gib, 4 * gib])
}

/// The same with several numbers of connections.
pub(crate) fn by_connections() -> OltpResult {
    by(StepsBy::Connections, &[2, 8, 32])
}

/// One run as it is, without arms.
pub(crate) fn single() -> OltpResult {
    let mut result = empty();
    result.runs.push(OltpSample {
        arm: None,
        ..run("base", None, 0, 31_200.0)
    });
    result
}

/// Two rounds only: too few for any interval.
pub(crate) fn two_rounds() -> OltpResult {
    let mut result = empty();
    arms_at(&mut result, None, 2, 1.0);
    result
}

/// No arm of which anything was measured.
pub(crate) fn nothing() -> OltpResult {
    let mut result = empty();
    arms_at(&mut result, None, 0, 1.0);
    result
}

/// What processors count, in place of reads.
pub(crate) fn counted() -> OltpResult {
    let mut result = example();
    let arm = |label: &str, cycles: f64, misses: f64| TranslationArm {
        tlb_misses: wobble(misses, 0, 10),
        tlb_misses_each: wobble(misses * 1100.0, 0, 10),
        ..translation_arm(label, cycles, 2.4)
    };
    result.translation = Some(Translation {
        source: TranslationSource::Counters,
        why: None,
        counted_by: Some(CountedBy {
            cycles: "cycles".to_owned(),
            instructions: "instructions".to_owned(),
            tlb_misses: Some("ls_l1_d_tlb_miss.all_l2_miss".to_owned()),
            tlb_misses_error: None,
            share_of_time: Some(0.75),
        }),
        arms: vec![arm("base", 2.4, 9.1), arm("thp:2M", 2.1, 1.2)],
    });
    result
}

/// The same on a host that counts cycles and instructions, and whose event for the TLB stays at 0.
pub(crate) fn counted_without_misses() -> OltpResult {
    let mut result = counted();
    if let Some(translation) = &mut result.translation {
        for arm in &mut translation.arms {
            arm.tlb_misses.clear();
            arm.tlb_misses_each.clear();
        }
        if let Some(by) = &mut translation.counted_by {
            by.tlb_misses = None;
            by.tlb_misses_error = Some("DTLB_WALK opens and stays at 0".to_owned());
        }
    }
    result
}

fn by(by: StepsBy, values: &[u64]) -> OltpResult {
    let mut result = empty();
    result.steps = Some(Steps {
        by,
        values: values.to_vec(),
    });
    for (number, value) in (0u8..).zip(values) {
        arms_at(&mut result, Some(*value), 8, 0.5 + 0.5 * f64::from(number));
    }
    result
}

/// Rounds of all arms; `times` scales how much they gain.
fn arms_at(result: &mut OltpResult, at: Option<u64>, rounds: usize, times: f64) {
    let gains = [
        ("base", 0.0, Some(true)),
        ("locked", 0.004, Some(true)),
        ("thp:2M", 0.11, Some(false)),
        ("hugetlb:2M", 0.16, Some(true)),
    ];
    for (label, gain, verified) in gains {
        let over = 1.0 + gain * times;
        let samples = wobble(31_200.0 * over, label.len(), rounds);
        let runs = samples.iter().enumerate();
        let runs = runs.map(|(round, notpm)| run(label, at, round, *notpm));
        result.runs.extend(runs);
        let is_base = label == "base";
        result.arms.push(OltpArm {
            label: label.to_owned(),
            at,
            spread: Spread::of(&samples, CONFIDENCE),
            rounds: (0..rounds).collect(),
            effect: (!is_base && rounds >= 6).then(|| effect(over)),
            verified: verified.filter(|_| rounds > 0),
            not_had: None,
            samples,
        });
    }
    result.arms.push(OltpArm {
        label: "hugetlb:1G".to_owned(),
        at,
        samples: Vec::new(),
        rounds: Vec::new(),
        spread: None,
        effect: None,
        verified: None,
        not_had: Some(NotHad {
            from_bytes: 0,
            reason: "the pool of 1G has no free page <b>".to_owned(),
            next: "hugeleaf plan".to_owned(),
        }),
    });
}

/// So many values around one, not in the same order for all arms.
fn wobble(around: f64, order: usize, rounds: usize) -> Vec<f64> {
    let parts = [0.99, 1.012, 1.0, 0.985, 1.004, 0.996, 1.008, 1.001];
    let parts = parts.into_iter().cycle().skip(order).take(rounds);
    parts.map(|part| around * part).collect()
}

pub(crate) fn effect(ratio: f64) -> Effect {
    Effect {
        ratio,
        low: ratio * 0.985,
        high: ratio * 1.015,
        confidence: CONFIDENCE,
        method: Method::SignedRank,
        estimator: None,
    }
}

fn translation_arm(label: &str, value: f64, of_base: f64) -> TranslationArm {
    let samples = wobble(value, label.len(), 10);
    TranslationArm {
        label: label.to_owned(),
        spread: Spread::of(&samples, CONFIDENCE),
        rounds: (0..10).collect(),
        effect: (label != "base").then(|| effect(value / of_base)),
        tlb_misses: Vec::new(),
        tlb_misses_each: Vec::new(),
        samples,
    }
}

fn chased() -> Translation {
    let arm = |label: &str, nanos: f64| translation_arm(label, nanos, 312.0);
    Translation {
        source: TranslationSource::Chase,
        counted_by: None,
        why: Some("this host has no hardware counters".to_owned()),
        arms: vec![
            arm("base", 312.0),
            arm("locked", 311.0),
            arm("thp:2M", 215.0),
            arm("hugetlb:2M", 208.0),
        ],
    }
}

fn run(label: &str, at: Option<u64>, round: usize, notpm: f64) -> OltpSample {
    let tps = notpm / 60.0 / 0.45;
    let each = OltpCost {
        cpu_seconds: 0.000_82,
        server_cpu_seconds: None,
        logical_reads: Some(310.0),
        block_changes: Some(24.5),
        physical_reads: Some(0.02),
        physical_writes: Some(3.1),
        ..OltpCost::default()
    };
    let second = |part: Option<f64>| part.map(|part| part * tps);
    let tables: u64 = if label.ends_with("2M") {
        1 << 20
    } else {
        1 << 23
    };
    OltpSample {
        arm: Some(label.to_owned()),
        round,
        at,
        page_tables_bytes: Some(tables.saturating_mul(at.filter(|n| *n < 1000).unwrap_or(1))),
        copied_bytes_per_second: None,
        counted: None,
        cycles_an_instruction: None,
        counted_by: None,
        pages: Vec::new(),
        verified: Some(label != "thp:2M"),
        notpm,
        transactions_per_second: tps,
        seconds: 30.0,
        kinds: kinds(),
        per_transaction: each,
        per_second: OltpCost {
            cpu_seconds: each.cpu_seconds * tps,
            server_cpu_seconds: None,
            logical_reads: second(each.logical_reads),
            block_changes: second(each.block_changes),
            physical_reads: second(each.physical_reads),
            physical_writes: second(each.physical_writes),
            ..OltpCost::default()
        },
        consistent: true,
    }
}

fn kinds() -> Vec<OltpKind> {
    let kind = |name: &str, committed: u64, share: f64| OltpKind {
        name: name.to_owned(),
        committed,
        rolled_back: committed / 100,
        conflicts: 3,
        share,
        mean_seconds: 0.001,
        p50_seconds: 0.000_9,
        p90_seconds: 0.001_8,
        p99_seconds: 0.004_1,
        max_seconds: 0.1,
    };
    vec![
        kind("New-Order", 15_600, 0.45),
        kind("Payment", 14_900, 0.43),
        kind("Order-Status", 1400, 0.04),
        kind("Delivery", 1390, 0.04),
        // Did not occur.
        kind("Stock-Level", 0, 0.0),
    ]
}

/// A result of which nothing is measured yet.
pub(crate) fn empty() -> OltpResult {
    OltpResult {
        schema: 1,
        experiment: About {
            name: "oltp".to_owned(),
            unit: "NOTPM".to_owned(),
            better: Better::Higher,
            started: "2026-01-31T12:00:00Z".to_owned(),
            duration_seconds: 1840.0,
            ending: BenchEnding::Done,
        },
        database: OltpDatabase {
            name: "sqlite:hugeleaf-oltp".to_owned(),
            version: "SQLite 3.50.4".to_owned(),
            warehouses: 48,
            databases: 2,
            items: 100_000,
            customers: 3000,
            cache_bytes: 4 << 30,
            durability: "soon".to_owned(),
        },
        arms: Vec::new(),
        steps: None,
        translation: None,
        runs: Vec::new(),
        caveats: vec!["a load after the rules of TPC-C".to_owned()],
        host: HostFingerprint {
            kernel: Some("6.18.0".to_owned()),
            arch: Some("x86_64".to_owned()),
            cpus: 2,
            nodes: 1,
            ..HostFingerprint::default()
        },
        settings: OltpUsed {
            connections: 2,
            ramp_up_seconds: 5.0,
            for_seconds: 30.0,
            touched_warehouses: 40,
            think: 0.0,
            seed: 1,
            io: Io::Cached,
            copied_file_bytes: None,
            knobs: vec![Knob {
                name: "enabled".to_owned(),
                value: "madvise".to_owned(),
            }],
        },
        command: ["hugeleaf", "bench", "oltp", "--pages", "base,thp:2M"]
            .map(str::to_owned)
            .to_vec(),
    }
}
