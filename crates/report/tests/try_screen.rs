//! The screen of `try` for this host and process stays one screen, whatever the values.

// Panics are test failures, also in helpers.
#![allow(clippy::unwrap_used)]

use hugeleaf_host::{ReadDetail, Root, read_host, read_process};
use hugeleaf_proof::prove_result::{
    BadReadings, Effect, HostFingerprint, PageUsageStages, Pair, ProveExperimentInfo,
    ProveResultSettings,
};
use hugeleaf_proof::result_format::{Quantity, ResultRow, Sample};
use hugeleaf_proof::stats::{BetterDirection, StatisticalTest};
use hugeleaf_proof::{Arm, ExperimentDesign, ExperimentEnd, ProveResult, Verdict};
use hugeleaf_report::document::TextOptions;
use hugeleaf_report::try_::{TryView, page};
use hugeleaf_sys::{Kernel, own_pid};
use hugeleaf_units::Bytes;
use hugeleaf_verdict::findings::findings;
use hugeleaf_verdict::why::account;

const EFFECT: Effect = Effect {
    ratio: 1.0981,
    low: 1.0622,
    high: 1.1344,
    confidence: 0.95,
    method: StatisticalTest::SignedRank,
    estimator: None,
};

/// The samples of an arm, and secondary quantities.
fn rows(arm: Arm, samples: &[f64]) -> Vec<ResultRow> {
    let row = |quantity, samples| ResultRow::new(arm.name(), Vec::new(), quantity, samples);
    let main = Quantity::rate("sqlite", "operations/CPU s").main();
    let also = [
        ("resident", "bytes", 3_328_599_654.0),
        ("page tables", "bytes", 6_501_171.0),
        ("user CPUs", "", 0.98),
        ("system CPUs", "", 0.0123),
    ];
    let also = also.map(|(name, unit, value)| {
        row(
            Quantity::amount(name, unit).counted(),
            Sample::alone([value]),
        )
    });
    let main = row(main, Sample::alone(samples.iter().copied()));
    [main].into_iter().chain(also).collect()
}

fn result(verdict: Verdict, effect: Option<Effect>) -> ProveResult {
    let pair = Pair {
        base: 1.0,
        large: 1.0,
        ratio: 1.0,
        first: Arm::Base,
        at_seconds: 0.0,
    };
    ProveResult {
        schema: 2,
        experiment: ProveExperimentInfo {
            name: "sqlite".to_owned(),
            unit: "operations/CPU s".to_owned(),
            better: BetterDirection::Higher,
            target: "hugeleaf".to_owned(),
            process: None,
            design: ExperimentDesign::RandomPairs,
            started: String::new(),
            duration_seconds: 150.0,
            ending: ExperimentEnd::Time,
            began_on: Arm::Base,
            left_on: Some(Arm::Base),
            moved_bytes: Bytes(3 << 30),
            stalls: None,
        },
        arms: vec![],
        rows: [
            rows(Arm::Base, &[484_123.4, 1.0, 9e9]),
            rows(Arm::Large, &[532_449.2, 9e9, 1.0]),
        ]
        .concat(),
        charts: vec![],
        pairs: vec![pair; 14],
        effect,
        verdict,
        page_sizes: PageUsageStages::default(),
        equivalence: None,
        pairs_looked_at: None,
        holds: None,
        intention_to_treat: None,
        buckets: None,
        left: None,
        bad_readings: BadReadings::default(),
        rejected: vec![],
        caveats: vec!["A sentence that a reader must know before believing it. ".repeat(4); 5],
        host: HostFingerprint::default(),
        settings: ProveResultSettings {
            interval_seconds: 2.0,
            settle_seconds: 0.5,
            until: 0.03,
            for_seconds: 150.0,
            pairs: None,
            equal: 0.02,
            same_pages: false,
            block_pairs: None,
            seed: 1,
            knobs: vec![],
            version: "0".to_owned(),
        },
        command: vec![],
    }
}

fn screen(verdict: Verdict, effect: Option<Effect>) -> String {
    let (root, kernel) = (Root::live(), Kernel::new());
    let host = read_host(&root, &kernel).unwrap();
    let process = read_process(&root, &kernel, &host, own_pid(), ReadDetail::Pages).unwrap();
    let accounts = account(&host, &process, &process.pid.to_string());
    let it = TryView {
        host: &host,
        findings: &findings(&host),
        rows: 9_411_584,
        cache: Bytes::from_mib(3072),
        process: &process,
        accounts: &accounts,
        result: &result(verdict, effect),
        html: "hugeleaf-try.html",
        seconds: 171.2,
    };
    page(&it).text(TextOptions::plain(100))
}

#[test]
fn it_is_one_screen() {
    for verdict in [
        Verdict::Faster,
        Verdict::Slower,
        Verdict::Same,
        Verdict::Unclear,
    ] {
        for effect in [Some(EFFECT), None] {
            let screen = screen(verdict, effect);
            assert!(screen.lines().count() <= 40, "{screen}");
            for line in screen.lines() {
                // Commands are not broken, so that they can be copied.
                let is_command = line.trim_start().starts_with("next: ");
                assert!(is_command || line.chars().count() <= 100, "{line}");
            }
            let word = verdict.to_string().to_uppercase();
            assert!(screen.contains(&format!("\n{word} ")), "{screen}");
        }
    }
}

#[test]
fn it_says_what_was_measured() {
    let screen = screen(Verdict::Faster, Some(EFFECT));
    println!("{screen}");
    for words in [
        "9,411,584 rows",
        "a page cache of 3G",
        "\nstatus ",
        "\nmem ",
        "\nwhy ",
        "\nprove ",
        "14 pairs",
        "484,123",
        "532,449",
        "9.8 % faster (95 % CI 6.2 to 13 %), ×1.10 [1.06, 1.13]: huge pages",
        "RESIDENT PAGE TABLES SYSTEM CPU",
        "484,123 3.1G 6.2M 1.2 %",
        "532,449 3.1G 6.2M 1.2 %",
        "hugeleaf promote PID",
        "hugeleaf-try.html",
    ] {
        // A phrase may be broken at the end of a line.
        let flat: Vec<&str> = screen.split_whitespace().collect();
        let found = screen.contains(words) || flat.join(" ").contains(words);
        assert!(found, "{words} in\n{screen}");
    }
    assert!(!screen.contains('\x1b'));
}

#[test]
fn an_unclear_result_says_how_to_get_a_clear_one() {
    let screen = screen(Verdict::Unclear, Some(EFFECT));
    assert!(
        screen.contains("the same command with --for 4m --until 3%"),
        "{screen}"
    );
}
