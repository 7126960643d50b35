use super::*;
use crate::result::HostFingerprint;
use crate::rows::{Quantity, Results, Row, Sample};
use crate::stats::Method;
use hugeleaf_sys::RealKernel;
use std::sync::Arc;

fn row(samples: Vec<(usize, f64)>) -> Row {
    let (rounds, values): (Vec<usize>, Vec<f64>) = samples.into_iter().unzip();
    let samples = Sample::in_rounds(&rounds, &values);
    Row::new("base", Vec::new(), Quantity::time("read", "ns"), samples)
}

#[test]
fn arms_are_compared_round_by_round() {
    let base = [100.0, 200.0, 300.0, 100.0, 100.0, 100.0];
    let mut arm: Vec<(usize, f64)> = base.map(|ns| ns / 2.0).into_iter().enumerate().collect();
    let base = row(base.into_iter().enumerate().collect());
    let found = row(arm.clone()).over(&base).unwrap();
    assert!((found.ratio - 0.5).abs() < 1e-12 && found.method == Method::SignedRank);
    assert!((found.high - found.low).abs() < 1e-12);
    // A round that only one of them has is nobody's pair.
    arm[5].0 = 9;
    assert_eq!(row(arm).over(&base), None);
}

fn circumstances() -> Circumstances {
    Circumstances {
        host: HostFingerprint::default(),
        knobs: Vec::new(),
        command: vec!["hugeleaf".to_owned()],
        started: String::new(),
    }
}

fn settings(host: &Host, arms: Vec<PageArm>) -> ChaseSettings {
    let base = host.base_page.bytes().get();
    ChaseSettings {
        arms,
        sizes: vec![Bytes(base), Bytes(base * 4)],
        time: Duration::from_millis(20),
        rounds: 6,
        seed: 3,
        most: Bytes::from_mib(64),
        line: Bytes(64),
    }
}

fn run_it(settings: &ChaseSettings, stop: bool) -> Result<ChaseResult<'_>, BenchError> {
    let root = Root::live();
    let host = hugeleaf_host::read_memory_facts(&root, &RealKernel::new())?;
    let machine = Machine {
        root: &root,
        host: &host,
        circumstances: &circumstances(),
        most: settings.most,
        stop: &Arc::new(AtomicBool::new(stop)),
    };
    measured(settings, &machine, &mut |_| {})
}

fn live() -> Host {
    hugeleaf_host::read_memory_facts(&Root::live(), &RealKernel::new()).unwrap()
}

#[test]
fn every_point_has_its_samples_and_reads_back() {
    let host = live();
    let settings = settings(&host, vec![PageArm::base(&host)]);
    let result = run_it(&settings, false).unwrap();
    assert_eq!(result.experiment.ending, BenchEnding::Done);
    let points = &result.arms[0].points;
    assert_eq!(points.len(), 2);
    for (point, size) in points.iter().zip(&settings.sizes) {
        assert_eq!(point.working_set_bytes, size.get());
        assert_eq!(point.samples.len(), 6);
        assert!(point.samples.iter().all(|s| *s > 0.0 && s.is_finite()));
        assert!(point.verified, "{:?}", point.note);
        let held: u64 = point.pages_after.iter().map(|h| h.bytes).sum();
        assert_eq!(held, size.get());
    }
    let results = result.to_results();
    let back = Results::read(&results.to_json()).unwrap();
    assert_eq!(back, results);
    let hops: Vec<f64> = points[1]
        .hops
        .iter()
        .map(|n| f64::from(u32::try_from(*n).unwrap()))
        .collect();
    let row = back
        .rows
        .iter()
        .rfind(|row| row.quantity.name == "reads")
        .unwrap();
    assert_eq!(row.values(), hops);
    assert_eq!(back.settings["seed"], settings.seed);
    assert!(back.rows[0].spread().unwrap().low.is_some());
}

#[test]
fn what_cannot_be_had_is_told_and_does_not_end_the_rest() {
    let host = live();
    let odd = PageArm {
        size: "8M".parse().unwrap(),
        kind: hugeleaf_units::PageKind::Thp,
    };
    let both = settings(&host, vec![PageArm::base(&host), odd]);
    let result = run_it(&both, false).unwrap();
    assert_eq!(result.arms[0].points.len(), 2);
    let shortage = result.arms[1].shortage.as_ref().unwrap();
    assert_eq!(shortage.from_bytes, both.sizes[0].get());
    assert!(shortage.reason.contains("8M") && !shortage.next.is_empty());
    // Nothing else asked for: then that is the answer.
    let alone = settings(&host, vec![odd]);
    let error = run_it(&alone, false).unwrap_err();
    assert!(matches!(error, BenchError::NothingHad { .. }), "{error}");
}

#[test]
fn what_does_not_fit_together_is_taken_in_turn_and_too_much_is_refused() {
    let host = live();
    let base = PageArm::base(&host);
    let mut tight = settings(&host, vec![base, base]);
    tight.most = tight.sizes[1];
    let result = run_it(&tight, false).unwrap();
    let in_turn: Vec<bool> = result.arms[0].points.iter().map(|p| p.in_turn).collect();
    assert_eq!(in_turn, [false, true]);
    assert!(
        result.arms[0]
            .points
            .iter()
            .all(|p| p.verified && p.samples.len() == 6)
    );
    tight.most = tight.sizes[0];
    let error = run_it(&tight, false).unwrap_err();
    assert!(matches!(error, BenchError::TooLarge { .. }), "{error}");
}

#[test]
fn a_stop_before_the_first_sample_is_no_result() {
    let host = live();
    let settings = settings(&host, vec![PageArm::base(&host)]);
    let error = run_it(&settings, true).unwrap_err();
    assert!(matches!(error, BenchError::Stopped), "{error}");
}
