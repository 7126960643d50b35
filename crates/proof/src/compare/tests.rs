use proptest::prelude::*;

use super::*;
use crate::result_format::{ArmInfo, ParameterValue, QuantityKind};

const EQUAL: f64 = 0.02;

/// A `bench chase` of two arms, with samples by round.
fn chase(kernel: &str, base: &[f64], large: &[f64]) -> String {
    let row = |arm: &str, samples: &[f64]| {
        let samples = samples.iter().enumerate();
        let samples =
            samples.map(|(round, value)| serde_json::json!({"round": round, "value": value}));
        serde_json::json!({
            "arm": arm, "at": {"working_set_bytes": 1 << 30},
            "quantity": {"name": "dependent read", "unit": "ns", "better": "lower", "kind": "speed", "main": true},
            "samples": samples.collect::<Vec<_>>(),
        })
    };
    serde_json::json!({
        "schema": 2,
        "experiment": {
            "name": "chase", "started": "2026-01-02T03:04:05Z", "duration_seconds": 1.0, "ending": "done",
        },
        "arms": [{"name": "base"}, {"name": "thp:2M"}],
        "rows": [row("base", base), row("thp:2M", large)],
        "caveats": ["virtual"],
        "host": {"kernel": kernel, "cpus": 2, "nodes": 1, "base_page_bytes": 1},
        "settings": {
            "rounds": 6, "for_seconds": 1.0, "sample_seconds": 0.1, "seed": 1, "line_bytes": 64,
            "most_bytes": base.len(), "confidence": 0.95,
            "knobs": [{"name": "enabled", "value": kernel}], "version": "0.1.0",
        },
        "command": ["hugeleaf", "bench", "chase"],
    })
    .to_string()
}

const BASE: [f64; 6] = [200.0, 202.0, 198.0, 201.0, 199.0, 203.0];
const LARGE: [f64; 6] = [100.0, 102.0, 101.0, 99.0, 98.0, 103.0];

fn read(text: &str) -> Results {
    Results::read(text).unwrap()
}

#[test]
fn rows_of_two_files_are_held_against_each_other() {
    let a = read(&chase("6.1", &BASE, &LARGE));
    let b = read(&chase("6.1", &LARGE, &LARGE));
    let compared = files(&a, &b, EQUAL).unwrap();
    assert_eq!(compared.notes, []);
    let [base, large, gain] = compared.rows.as_slice() else {
        panic!("{:#?}", compared.rows);
    };
    assert_eq!(base.verdict, Some(Verdict::Faster));
    let effect = base.effect.unwrap();
    assert!((effect.ratio - 0.5).abs() < 0.01 && effect.low < 0.5 && effect.high > 0.5);
    assert_eq!(effect.method, crate::stats::StatisticalTest::RankSum);
    // Equal samples show no difference, but six of them are too few for ± 2 %.
    assert_eq!(large.verdict, Some(Verdict::Unclear));
    assert_eq!(large.ratio, Some(1.0));
    assert_eq!(gain.quantity.name, "dependent read over base");
    assert_eq!(gain.verdict, Some(Verdict::Slower));
}

#[test]
fn arms_of_one_file_are_compared_in_pairs_of_a_round() {
    let a = read(&chase("6.1", &BASE, &LARGE));
    let names = ["base".to_owned(), "thp:2M".to_owned()];
    let compared = arms(&a, None, &names, EQUAL).unwrap();
    let [row] = compared.rows.as_slice() else {
        panic!("{:#?}", compared.rows);
    };
    assert_eq!(row.verdict, Some(Verdict::Faster));
    assert_eq!(
        row.effect.unwrap().method,
        crate::stats::StatisticalTest::SignedRank
    );
    assert!(compared.caveats == ["virtual"], "{:?}", compared.caveats);
    // Two files have no pairs.
    let compared = arms(&a, Some(&a), &names, EQUAL).unwrap();
    let method = compared.rows[0].effect.unwrap().method;
    assert_eq!(method, crate::stats::StatisticalTest::RankSum);
    let none = arms(&a, None, &["base".to_owned(), "1G".to_owned()], EQUAL);
    let none = none.unwrap_err().to_string();
    assert!(
        none.contains("'1G'") && none.contains("base, thp:2M"),
        "{none}"
    );
}

#[test]
fn what_is_certain_and_small_differs_within_a_file_and_not_between_two() {
    let by = |part: f64| BASE.map(|value| value * part);
    // Lower than 200 by at least 1 % and at most 3 %.
    let close = [196.4, 196.0, 196.2, 195.8, 196.6, 195.6];
    let a = [200.0, 200.2, 199.8, 200.1, 199.9, 200.3];
    let within = read(&chase("6.1", &a, &close));
    let names = ["base".to_owned(), "thp:2M".to_owned()];
    let verdict = |compared: Comparison| compared.rows[0].verdict;
    let equal = 0.019;
    assert_eq!(
        verdict(arms(&within, None, &names, equal).unwrap()),
        Some(Verdict::Faster)
    );
    let other = read(&chase("6.1", &close, &a));
    assert_eq!(
        verdict(files(&within, &other, equal).unwrap()),
        Some(Verdict::Unclear)
    );
    // All of it is beyond the limit of equality.
    let half = read(&chase("6.1", &by(0.5), &LARGE));
    assert_eq!(
        verdict(files(&within, &half, equal).unwrap()),
        Some(Verdict::Faster)
    );
}

/// A result of `prove` on a metric, read from buckets or not.
fn prove_result(kind: QuantityKind) -> Results {
    let mut results = Results::empty("p99", "");
    for (arm, value) in [("base", 0.036), ("large", 0.034)] {
        results.arms.push(ArmInfo::named(arm));
        for pair in 0..8 {
            let p99 = Quantity {
                kind,
                ..Quantity::time("p99", "s").main()
            };
            results.add(arm, &[], p99, Sample::new(pair, value));
        }
    }
    Results::read(&results.to_json()).unwrap()
}

#[test]
fn quantiles_of_buckets_are_not_told_apart_by_interpolation() {
    let names = ["base".to_owned(), "large".to_owned()];
    let of = |kind| arms(&prove_result(kind), None, &names, EQUAL).unwrap();
    assert_eq!(
        of(QuantityKind::Speed).rows[0].verdict,
        Some(Verdict::Faster)
    );
    let compared = of(QuantityKind::InBuckets);
    assert_eq!(compared.rows[0].verdict, None);
    assert_eq!(compared.rows[0].effect, None);
    assert!(
        compared
            .notes
            .iter()
            .any(|note| note.text.contains("mean(NAME)"))
    );
}

#[test]
fn what_differs_is_named_with_both_values_and_marked_in_each_row() {
    let a = read(&chase("6.1", &BASE, &LARGE));
    let b = read(&chase("6.9", &BASE[..5], &LARGE));
    let compared = files(&a, &b, EQUAL).unwrap();
    let text = |value: &str| Some(ParameterValue::Text(value.to_owned()));
    let differs = |id, name: &str| ComparisonNote {
        id,
        text: format!("{name}: 6.1 in A, 6.9 in B"),
        name: Some(name.to_owned()),
        a: text("6.1"),
        b: text("6.9"),
    };
    // most_bytes differs too, and is ignored as meaningless.
    assert_eq!(
        compared.notes,
        [differs(1, "host.kernel"), differs(2, "knob enabled")]
    );
    assert!(compared.rows.iter().all(|row| row.notes == [1, 2]));
}

#[test]
fn what_only_one_has_is_a_row_without_a_verdict() {
    let a = read(&chase("6.1", &BASE, &LARGE));
    let b = read(&chase("6.1", &BASE, &[]));
    let compared = files(&a, &b, EQUAL).unwrap();
    let row = compared
        .rows
        .iter()
        .find(|row| row.arm.as_deref() == Some("thp:2M"));
    let row = row.unwrap();
    assert!(row.a.is_some() && row.b.is_none() && row.verdict.is_none() && row.ratio.is_none());
    let note = &compared.notes[row.notes[0] - 1];
    assert_eq!(
        (note.text.as_str(), &note.name),
        ("only A has samples of thp:2M", &None)
    );
}

#[test]
fn few_samples_have_no_ratio_and_no_verdict() {
    let a = read(&chase("6.1", &BASE[..1], &LARGE[..1]));
    let b = read(&chase("6.1", &LARGE[..1], &LARGE[..1]));
    let compared = files(&a, &b, EQUAL).unwrap();
    let row = &compared.rows[0];
    assert_eq!((row.verdict, row.ratio, row.effect), (None, None, None));
    let note = &compared.notes[row.notes[0] - 1].text;
    assert!(note.contains("too few"), "{note}");
}

#[test]
fn what_is_no_result_is_told_apart() {
    let good = chase("6.1", &BASE, &LARGE);
    let error = |text: &str| Results::read(text).unwrap_err();
    let says = |text: &str, what: &str| {
        let error = error(text);
        assert!(
            error.to_string().contains(what) && !error.remedy.is_empty(),
            "{what}: {error}"
        );
    };
    says(&good[..good.len() / 2], "ends in the middle");
    says("", "ends in the middle");
    says("hugeleaf trace 1\n", "it is not JSON");
    says("{}", "it has no 'schema'");
    says("{\"schema\": 2}", "it has no 'experiment'");
    let other = good.replace("\"schema\":2", "\"schema\":3");
    says(&other, "it has schema 3,");
    says("{\"schema\": \"2\"}", "it has schema \"2\",");
    let older = error(&good.replace("\"schema\":2", "\"schema\":1"));
    assert!(older.to_string().contains("older hugeleaf") && older.remedy.contains("measure again"));
    for (from, to, why) in [
        ("\"quantity\"", "\"quality\"", "quantity"),
        ("\"arm\":\"thp:2M\"", "\"arm\":\"thp:4M\"", "unknown arm"),
        ("{\"name\":\"thp:2M\"}", "{\"name\":\"base\"}", "two arms"),
        ("\"arm\":\"thp:2M\"", "\"arm\":\"base\"", "two rows"),
        ("\"round\":5", "\"round\":4", "a round twice"),
        (
            "\"working_set_bytes\":1073741824",
            "\"working_set_bytes\":null",
            "at.working_set_bytes",
        ),
        ("\"value\":98.0", "\"value\":null", "null"),
        ("\"value\":98.0", "\"value\":1e999", ""),
    ] {
        let damaged = good.replace(from, to);
        assert_ne!(damaged, good, "{from}");
        let error = error(&damaged).to_string();
        let is_one =
            error.starts_with("it is not a valid result") || error.starts_with("it is not JSON");
        assert!(is_one && error.contains(why), "{to}: {error}");
    }
    let two = good.replacen("\"unit\":\"ns\"", "\"unit\":\"µs\"", 1);
    assert!(error(&two).to_string().contains("two different quantities"));
    let stopped = chase("6.1", &[], &[]).replace("\"done\"", "\"interrupted\"");
    says(&stopped, "it holds no samples: it was interrupted");
}

/// The main quantity must be positive; secondary amounts may be 0.
#[test]
fn samples_that_are_not_above_zero_are_not_compared() {
    let good = read(&chase("6.1", &BASE, &LARGE));
    let mut long = BASE.to_vec();
    long.extend(BASE.iter().chain(&BASE));
    let every_second = |value: f64| {
        let alternate = long.iter().enumerate();
        let alternate = alternate.map(|(n, own)| if n % 2 == 0 { value } else { *own });
        alternate.collect::<Vec<_>>()
    };
    let names = ["base".to_owned(), "thp:2M".to_owned()];
    for samples in [
        vec![0.0; 6],
        vec![-1.0; 6],
        every_second(0.0),
        every_second(-3.0),
    ] {
        let bad = read(&chase("6.1", &samples, &long));
        let within = arms(&bad, None, &names, EQUAL).unwrap();
        for compared in [
            files(&bad, &bad, EQUAL).unwrap(),
            files(&good, &bad, EQUAL).unwrap(),
            within,
        ] {
            let row = &compared.rows[0];
            assert_eq!((row.verdict, row.ratio, row.effect), (None, None, None));
            let stopping = compared.stopping(0.02).not_compared;
            assert!(stopping[0].contains("not above 0"), "{stopping:?}");
        }
    }
    let none = ResultRow::new(
        "base",
        Vec::new(),
        Quantity::amount("faults", ""),
        vec![0.0.into(); 6],
    );
    let zeros = over(&none, &none, Pairing::Ranks).unwrap();
    assert_eq!(
        zeros.verdict(EQUAL, EQUAL, BetterDirection::Lower),
        Verdict::Same
    );
    assert_eq!(zeros.ratio, None);
}

#[test]
fn a_result_that_was_made_for_nothing_stops_a_release() {
    let text = chase("6.1", &BASE, &LARGE).replace("\"main\":true", "\"main\":false");
    let one = read(&text);
    let stopping = files(&one, &one, EQUAL).unwrap().stopping(0.02);
    assert_eq!(stopping.not_compared.len(), 1);
}

/// A quadratic algorithm in rows, samples or differences would not end here.
#[test]
fn long_results_are_compared() {
    let many = hugeleaf_testkit::size(2_000, 100_000);
    let mut long = Results::empty("chase", "");
    long.arms = ["base", "thp:2M"].map(ArmInfo::named).to_vec();
    let quantity = Quantity::time("read", "ns").main();
    for arm in ["base", "thp:2M"] {
        let at = |n| vec![Parameter::number("n", n)];
        let row = |n| ResultRow::new(arm, at(n), quantity.clone(), Sample::alone([1.0; 2]));
        long.rows.extend((0..many).map(row));
        let samples = (0..2000).map(|n| Sample::new(n, 1.0 + n as f64));
        long.rows.push(ResultRow::new(
            arm,
            Vec::new(),
            quantity.clone(),
            samples.collect(),
        ));
    }
    for n in 0..many {
        long.settings.insert(n.to_string(), n.into());
    }
    let mut other = read(&long.to_json());
    other
        .settings
        .values_mut()
        .for_each(|value| *value = 0.into());
    let compared = files(&long, &other, EQUAL).unwrap();
    assert_eq!(compared.rows.len(), long.rows.len() + 1);
    assert!(compared.notes.len() <= MOST_DIFFERENCES + 2);
    let names = ["base".to_owned(), "thp:2M".to_owned()];
    let within = arms(&long, None, &names, EQUAL).unwrap();
    assert_eq!(within.rows.last().unwrap().ratio, Some(1.0));
}

#[test]
fn a_result_beyond_what_is_read_is_refused_with_the_limit() {
    let mut many = Results::empty("chase", "");
    many.arms = (0..20_000).map(|n| ArmInfo::named(n.to_string())).collect();
    let error = Results::read(&many.to_json()).unwrap_err().to_string();
    assert!(error.contains("20000 arms, and at most 10000"), "{error}");
}

#[test]
fn different_experiments_are_refused() {
    let a = read(&chase("6.1", &BASE, &LARGE));
    let mut b = a.clone();
    for row in &mut b.rows {
        "µs".clone_into(&mut row.quantity.unit);
    }
    let error = files(&a, &b, EQUAL).unwrap_err().to_string();
    assert!(
        error.contains("(ns, ") && error.contains("(µs, "),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = Results::read(&text);
    }

    /// Two rows have a verdict or a reason, and never use only some of their samples.
    #[test]
    fn a_row_has_a_verdict_or_a_reason(
        a in prop::collection::vec(-1.0f64..9.0, 1..12),
        b in prop::collection::vec(-1.0f64..9.0, 1..12))
    {
        let both = [("base", &a), ("thp:2M", &b)].map(|(arm, samples)| {
            let samples = samples.iter().enumerate().map(|(n, value)| Sample::new(n, *value));
            ResultRow::new(arm, Vec::new(), Quantity::time("read", "ns").main(), samples.collect())
        });
        for pairing in [Pairing::Rounds, Pairing::Ranks] {
            let judged = over(&both[0], &both[1], pairing);
            let is_positive = a.iter().chain(&b).all(|value| *value > 0.0);
            let has_enough = match pairing {
                Pairing::Rounds => a.len().min(b.len()) >= 6,
                Pairing::Ranks => a.len().min(b.len()) >= 4,
            };
            if let Ok(over) = &judged {
                prop_assert!(is_positive && over.effect.is_some() && over.ratio.is_some());
            }
            if is_positive && has_enough {
                prop_assert!(judged.is_ok());
            }
        }
    }

    /// A result with one changed character is read or refused, and a read one can be compared.
    #[test]
    fn a_damaged_result_is_read_or_refused(at in 0usize..2000, with in "[ -~]") {
        let mut text = chase("6.1", &BASE, &LARGE);
        let at = at.min(text.len() - 1);
        text.replace_range(at..=at, &with);
        if let Ok(measured) = Results::read(&text) {
            let _ = files(&measured, &measured, EQUAL);
        }
    }
}
