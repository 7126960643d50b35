use super::*;
use hugeleaf_host::Root;
use hugeleaf_proof::Provenance;
use hugeleaf_sys::Kernel;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn turn(pages: &[(&str, PageKind, u64)]) -> AttachTiming {
    AttachTiming {
        pid: Pid(1),
        attach: Duration::from_millis(3),
        first_touch: Duration::from_millis(1),
        pages: pages
            .iter()
            .map(|(size, kind, bytes)| (size.parse().unwrap(), *kind, Bytes(*bytes)))
            .collect(),
    }
}

fn arm() -> PageArm {
    PageArm {
        size: "2M".parse().unwrap(),
        kind: PageKind::Hugetlb,
    }
}

#[test]
fn growth_is_that_of_the_same_processes() {
    let good = turn(&[("2M", PageKind::Hugetlb, 4 << 20)]);
    let before = [Bytes(1000), Bytes(2000)];
    let after = [Bytes(1500), Bytes(1900)];
    let turns = [good.clone(), good];
    let host = Some((Bytes(9), Bytes(5)));
    let all = quantities(&before, &after, &turns, Bytes(7), host);
    let of = |name: &str| {
        let mut all = all.iter();
        let found = all.find(|(quantity, _)| quantity.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).1.clone()
    };
    assert_eq!(of("page tables of a process"), [500.0, -100.0]);
    assert_eq!(of(GROWTH), [400.0]);
    assert_eq!(of("page tables before"), [3000.0]);
    assert_eq!(of("page tables after"), [3400.0]);
    assert_eq!(of("page tables of the host"), [-4.0]);
    assert_eq!(astray(Bytes(4 << 20), arm(), &turns), None);
    assert!((of("attach, all")[0] - 0.006).abs() < 1e-12);
}

#[test]
fn a_process_on_other_pages_is_told() {
    let good = turn(&[("2M", PageKind::Hugetlb, 4 << 20)]);
    let mixed = turn(&[
        ("2M", PageKind::Hugetlb, 2 << 20),
        ("4K", PageKind::Base, 2 << 20),
    ]);
    let note = astray(Bytes(4 << 20), arm(), &[good, mixed]);
    assert!(note.unwrap().starts_with("1 of 2 processes"));
}

#[test]
fn more_than_may_be_taken_is_refused_before_anything_is_started() {
    let host = hugeleaf_host::read_memory_facts(&Root::live(), &Kernel::new()).unwrap();
    let settings = PageTablesSettings {
        arms: vec![PageArm::base(&host)],
        processes: vec![1, 100_000],
        region: Bytes::from_mib(64),
        seed: 1,
        memory_limit: Bytes::from_mib(1024),
        program: ChildCommand {
            path: "/nonexistent".into(),
            arguments: Vec::new(),
        },
    };
    let circumstances = Provenance::default();
    let root = Root::live();
    let stop = Arc::new(AtomicBool::new(false));
    let machine = BenchContext {
        program: std::path::Path::new("/bin/false"),
        root: &root,
        host: &host,
        circumstances: &circumstances,
        most: settings.memory_limit,
        stop: &stop,
    };
    let error = measure(&settings, &machine, &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::TooLarge { .. }), "{error}");
    // A missing program is reported with its path's error.
    let settings = PageTablesSettings {
        processes: vec![1],
        ..settings
    };
    let error = measure(&settings, &machine, &mut |_| {}).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot start process 1 of 1"),
        "{error}"
    );
}
