use super::*;
use crate::Provenance;
use crate::result_format::ResultRow;
use crate::stats::StatisticalTest;
use hugeleaf_host::Host;
use hugeleaf_sys::Kernel;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn row(samples: Vec<(usize, f64)>) -> ResultRow {
    let samples = samples.into_iter();
    let samples = samples.map(|(round, ns)| Sample::new(round, ns)).collect();
    ResultRow::new("base", Vec::new(), Quantity::time("read", "ns"), samples)
}

#[test]
fn arms_are_compared_round_by_round() {
    let base = [100.0, 200.0, 300.0, 100.0, 100.0, 100.0];
    let mut arm: Vec<(usize, f64)> = base.map(|ns| ns / 2.0).into_iter().enumerate().collect();
    let base = row(base.into_iter().enumerate().collect());
    let found = row(arm.clone()).over(&base).unwrap();
    assert!((found.ratio - 0.5).abs() < 1e-12 && found.method == StatisticalTest::SignedRank);
    assert!((found.high - found.low).abs() < 1e-12);
    // A round without a partner forms no pair.
    arm[5].0 = 9;
    assert_eq!(row(arm).over(&base), None);
}

const MOST: Bytes = Bytes::from_mib(64);

fn settings(host: &Host, arms: Vec<PageArm>) -> ChaseSettings {
    let base = host.base_page.bytes().get();
    ChaseSettings {
        arms,
        sizes: vec![Bytes(base), Bytes(base * 4)],
        time: Duration::from_millis(20),
        rounds: 6,
        seed: 3,
        line: Bytes(64),
    }
}

fn run_it(settings: &ChaseSettings, most: Bytes, stop: bool) -> Result<Results, BenchError> {
    let root = Root::live();
    let host = hugeleaf_host::read_memory_facts(&root, &Kernel::new())?;
    let machine = BenchContext {
        program: std::path::Path::new("/bin/false"),
        root: &root,
        host: &host,
        circumstances: &Provenance::default(),
        most,
        stop: &Arc::new(AtomicBool::new(stop)),
    };
    measure(settings, &machine, &mut |_| {})
}

fn live() -> Host {
    hugeleaf_host::read_memory_facts(&Root::live(), &Kernel::new()).unwrap()
}

/// Returns an arm's rows of a quantity that have samples.
fn rows<'a>(results: &'a Results, arm: &str, what: &str) -> Vec<&'a ResultRow> {
    let is_it = |row: &&ResultRow| row.arm == arm && row.quantity.name == what;
    let rows = results.rows.iter().filter(is_it);
    rows.filter(|row| !row.samples.is_empty()).collect()
}

#[test]
fn every_point_has_its_samples_and_reads_back() {
    let host = live();
    let settings = settings(&host, vec![PageArm::base(&host)]);
    let results = run_it(&settings, MOST, false).unwrap();
    assert_eq!(results.experiment.ending, "done");
    let points = rows(&results, "base", READ);
    assert_eq!(points.len(), 2);
    for (point, size) in points.iter().zip(&settings.sizes) {
        assert_eq!(point.at, place(*size));
        assert_eq!(point.samples.len(), 6);
        assert!(point.values().iter().all(|s| *s > 0.0 && s.is_finite()));
        assert!(!point.doubtful, "{:?}", point.note);
        let mut layouts = results.layouts.iter().filter(|l| l.at == point.at);
        let after = layouts.find(|layout| layout.when == "after").unwrap();
        assert_eq!(PageUsage::total(&after.pages), *size);
    }
    let back = Results::read(&results.to_json()).unwrap();
    assert_eq!(back, results);
    for reads in rows(&back, "base", "reads") {
        assert_eq!(reads.samples.len(), 6);
        assert!(
            reads
                .values()
                .iter()
                .all(|n| *n >= 2000.0 && n.fract() == 0.0)
        );
    }
    assert_eq!(back.settings["seed"], settings.seed);
    assert!(back.rows[0].spread().unwrap().low.is_some());
}

#[test]
fn what_cannot_be_had_is_told_and_does_not_end_the_rest() {
    let host = live();
    let odd = PageArm {
        size: "8M".parse().unwrap(),
        kind: PageKind::Thp,
    };
    let both = settings(&host, vec![PageArm::base(&host), odd]);
    let results = run_it(&both, MOST, false).unwrap();
    assert_eq!(rows(&results, "base", READ).len(), 2);
    let [lacking] = &results.unavailable[..] else {
        panic!("{:?}", results.unavailable);
    };
    assert_eq!(
        (lacking.arm.as_str(), lacking.from_bytes),
        ("thp:8M", both.sizes[0].get())
    );
    assert!(lacking.reason.contains("8M") && !lacking.next.is_empty());
    // Its rows exist and are empty.
    let mut empty = results.rows.iter().filter(|row| row.arm == "thp:8M");
    assert!(empty.clone().count() > 0 && empty.all(|row| row.samples.is_empty()));
    // If only this arm was requested, its absence is the error.
    let alone = settings(&host, vec![odd]);
    let error = run_it(&alone, MOST, false).unwrap_err();
    assert!(matches!(error, BenchError::NoData { .. }), "{error}");
}

#[test]
fn what_does_not_fit_together_is_taken_in_turn_and_too_much_is_refused() {
    let host = live();
    let base = PageArm::base(&host);
    let settings = settings(&host, vec![base, base]);
    let [small, large] = settings.sizes[..] else {
        panic!("{:?}", settings.sizes);
    };
    let results = run_it(&settings, large, false).unwrap();
    let in_turn = |size: Bytes| {
        let of = results.layouts.iter().filter(|l| l.at == place(size));
        of.map(|layout| layout.note.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(in_turn(small), [false; 4]);
    assert_eq!(in_turn(large), [true; 4]);
    for point in rows(&results, "base", READ) {
        // Samples of both arms of that name.
        assert!(!point.doubtful && point.samples.len() == 12, "{point:?}");
    }
    let error = run_it(&settings, small, false).unwrap_err();
    assert!(matches!(error, BenchError::TooLarge { .. }), "{error}");
}

#[test]
fn a_stop_before_the_first_sample_is_no_result() {
    let host = live();
    let settings = settings(&host, vec![PageArm::base(&host)]);
    let error = run_it(&settings, MOST, true).unwrap_err();
    assert!(matches!(error, BenchError::Stopped), "{error}");
}

#[test]
fn memory_on_other_pages_or_not_there_is_told() {
    let host = live();
    let base = PageArm::base(&host);
    let length = Bytes(host.base_page.bytes().get() * 4);
    let memory = ChaseMemory::take(base, length, &host).unwrap();
    let table = memory.pages(length).unwrap().unwrap();
    assert_eq!(judge(table.clone(), base, length, &memory).note, None);
    let large = PageArm {
        size: "2M".parse().unwrap(),
        kind: PageKind::Thp,
    };
    let seen = judge(table, large, length, &memory);
    let expected = format!("{length} of {length} were not on thp:2M");
    assert_eq!(seen.note, Some(expected));
    // Half of it was swapped out: the resident part is right, but incomplete.
    let half = Bytes(length.get() / 2);
    let there = memory.pages(half).unwrap().unwrap();
    let seen = judge(there, base, length, &memory);
    assert!(seen.note.unwrap().starts_with(&half.to_string()));
}
