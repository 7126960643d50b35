use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::kits::tpcc::Durability;
use hugeleaf_host::{Host, Root, read_host};
use hugeleaf_sys::Kernel;
use hugeleaf_units::Bytes;

use super::*;
use crate::experiments::oltp::ReadPath;
use crate::experiments::oltp::settings::EventSink;
use hugeleaf_proof::Provenance;
use hugeleaf_proof::bench::MissingPages;

fn order(pages: &[&str], rounds: usize) -> OltpSettings {
    OltpSettings {
        database: OltpDatabase::Sqlite("x".into()),
        warehouses: 1,
        connections: Some(1),
        by_connections: Vec::new(),
        touch: None,
        time: Duration::from_secs(1),
        ramp_up: Duration::ZERO,
        cache: None,
        by_cache: Vec::new(),
        io: None,
        copy_beside: None,
        durability: Durability::Soon,
        think: 0.0,
        shrink: 1,
        may_fill: true,
        refill: false,
        pages: pages.iter().map(|text| text.parse().unwrap()).collect(),
        translation: false,
        rounds,
        arm: None,
        count: false,
        seed: 1,
    }
}

/// A database whose runs come from a closure of the arm, its cache and the number of all runs so far.
struct Fake<'a> {
    host: &'a Host,
    runs: usize,
    run: &'a mut dyn FnMut(&str, Bytes, usize) -> Result<Results, BenchError>,
}

impl MeasuredDatabase for Fake<'_> {
    fn check(&self, _: OltpPages) -> Result<(), BenchError> {
        Ok(())
    }
    fn fill(&mut self, _: EventSink<'_>) -> Result<(), BenchError> {
        Ok(())
    }
    fn start(&mut self, _: Option<OltpPages>, _: DerivedSettings) -> Result<(), BenchError> {
        Ok(())
    }
    fn drive(
        &mut self,
        pages: Option<OltpPages>,
        setup: DerivedSettings,
        _: EventSink<'_>,
    ) -> Result<Results, BenchError> {
        self.runs += 1;
        let label = pages.unwrap().label(self.host);
        (self.run)(&label, setup.cache, self.runs)
    }
}

/// Returns one run, as a database gives it.
fn one(notpm: f64) -> Results {
    let mut results = Results::empty("oltp", "");
    results.experiment.title = "orders".to_owned();
    results.add(AS_IT_IS, &[], main(), Sample::new(0, notpm));
    results.layouts.push(PageLayout {
        verified: Some(true),
        ..PageLayout::new(AS_IT_IS, &[], "end", Vec::new())
    });
    results.caveats.push("as always".to_owned());
    results
}

fn missing() -> BenchError {
    BenchError::PagesMissing(MissingPages {
        from: Bytes(1),
        reason: "no such pages".to_owned(),
        next: "plan".to_owned(),
    })
}

/// Runs all turns, and returns the number of runs.
fn turns(
    order: &OltpSettings,
    stop: &Arc<AtomicBool>,
    run: &mut dyn FnMut(&str, Bytes, usize) -> Result<Results, BenchError>,
) -> (Result<Results, BenchError>, usize) {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/x86-4k-two-nodes");
    let root = Root::at(fixture);
    let host = read_host(&root, &Kernel::new()).unwrap();
    let machine = BenchContext {
        program: std::path::Path::new("/bin/false"),
        root: &root,
        host: &host,
        circumstances: &Provenance::default(),
        most: Bytes::from_mib(1024),
        stop,
    };
    let setup = DerivedSettings {
        cache: Bytes(20),
        connections: 1,
        touch: None,
        io: ReadPath::Cached,
    };
    let mut server = Fake {
        host: &host,
        runs: 0,
        run,
    };
    let mut quiet = |_| {};
    let mut measuring = BenchRun::new("oltp", (1, json!({})), &machine, &mut quiet);
    let went = take_turns(&mut server, order, setup, &mut measuring);
    let runs = server.runs;
    let ended = measuring.ended(went);
    (ended.and_then(|()| measuring.finish(&main())), runs)
}

fn go() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

/// Returns the NOTPM of an arm relative to the first, at each of its places.
fn over_first(results: &Results, label: &str) -> Vec<f64> {
    let own = results
        .rows
        .iter()
        .filter(|row| row.arm == label && row.quantity.main);
    let over = |row: &hugeleaf_proof::result_format::ResultRow| {
        let first = results.row(&results.arms[0].name, &row.at, &row.quantity.name)?;
        Some((row.over(first)?.ratio * 100.0).round() / 100.0)
    };
    own.filter_map(over).collect()
}

#[test]
fn ratios_are_of_pairs_of_one_round() {
    let order = order(&["base", "thp:2M", "hugetlb:1G"], 8);
    let (mut of_base, mut of_thp) = (0.0, 0.0);
    let (results, _) = turns(&order, &go(), &mut |label, _, _| match label {
        // Drift from round to round is in both samples of a pair.
        "base" => {
            of_base += 1.0;
            Ok(one(1000.0 * of_base))
        }
        "thp:2M" => {
            of_thp += 1.0;
            let mut run = one(1200.0 * of_thp);
            // One run of eight was not on the requested pages.
            run.layouts[0].verified = Some(of_thp != 3.0);
            Ok(run)
        }
        _ => Err(missing()),
    });
    let results = results.unwrap();
    assert_eq!(over_first(&results, "thp:2M"), [1.2]);
    let doubtful = |arm: &str| results.row(arm, &[], "NOTPM").unwrap().doubtful;
    assert!(!doubtful("base") && doubtful("thp:2M"));
    assert_eq!(results.unavailable[0].arm, "hugetlb:1G");
    assert!(
        results
            .row("hugetlb:1G", &[], "NOTPM")
            .unwrap()
            .samples
            .is_empty()
    );
    let base = results.row("base", &[], "NOTPM").unwrap();
    let rounds: Vec<_> = base.samples.iter().map(|sample| sample.round).collect();
    assert_eq!(rounds, (0..8).map(Some).collect::<Vec<_>>());
}

#[test]
fn an_arm_is_compared_with_the_first_of_its_own_step() {
    let mut order = order(&["base", "thp:2M"], 6);
    order.by_cache = vec![Bytes(20), Bytes(10)];
    // The gain is a tenth at the small step and a fifth at the large one.
    let (results, runs) = turns(&order, &go(), &mut |label, cache, _| {
        let gain = match (label, cache) {
            ("base", Bytes(10)) => 1.0,
            ("base", _) => 5.0,
            (_, Bytes(10)) => 1.1,
            _ => 6.0,
        };
        let mut run = one(1000.0 * gain);
        run.caveats.push(format!("of {label}"));
        run.settings.insert(
            "counted_by".to_owned(),
            json!([{ "by": { "cycles": label } }]),
        );
        Ok(run)
    });
    let results = results.unwrap();
    assert_eq!(runs, 24);
    let steps = json!({ "by": "cache", "values": [10, 20] });
    assert_eq!(results.settings["steps"], steps);
    let rows = results.rows.iter();
    let rows: Vec<(&str, Option<f64>)> = rows
        .map(|row| (row.arm.as_str(), row.at[0].value.as_f64()))
        .collect();
    let expected = [
        ("base", 10.0),
        ("thp:2M", 10.0),
        ("base", 20.0),
        ("thp:2M", 20.0),
    ];
    assert_eq!(rows, expected.map(|(label, at)| (label, Some(at))));
    assert_eq!(over_first(&results, "thp:2M"), [1.1, 1.2]);
    // Caveats of any run are shown, once.
    let mut caveats = results.caveats.clone();
    caveats.sort();
    assert_eq!(caveats, ["as always", "of base", "of thp:2M"]);
    let counted = results.settings["counted_by"].as_array().unwrap();
    assert_eq!(counted.len(), 24);
    for one in counted {
        assert_eq!(one["by"]["cycles"], one["arm"]);
        assert!([10, 20].map(Some).contains(&one["at"].as_u64()) && one["round"].is_number());
    }
}

#[test]
fn what_is_not_had_is_asked_once_and_stopping_keeps_what_is_there() {
    let order = order(&["base", "hugetlb:2M"], 3);
    let (nothing, asked) = turns(&order, &go(), &mut |_, _, _| Err(missing()));
    assert!(
        matches!(nothing, Err(BenchError::NoData { .. })),
        "{nothing:?}"
    );
    assert_eq!(asked, 2);
    // A stopped run leaves nothing; earlier runs are kept completely.
    let (some, _) = turns(&order, &go(), &mut |_, _, runs| match runs {
        3 => Err(BenchError::Stopped),
        _ => Ok(one(1.0)),
    });
    let some = some.unwrap();
    assert!(some.experiment.is_interrupted());
    let samples = some.rows.iter().map(|row| row.samples.len());
    assert_eq!(samples.sum::<usize>(), 2);
    let stop = go();
    stop.store(true, Ordering::Relaxed);
    let (never, asked) = turns(&order, &stop, &mut |_, _, _| Err(missing()));
    assert!(matches!(never, Err(BenchError::Stopped)), "{never:?}");
    assert_eq!(asked, 0);
}
