use super::*;
use crate::guard::tests::{program, status};
use crate::metrics::{open_metrics, text};
use crate::page::View;

fn sample(all: &str, name: &str) -> f64 {
    let line = all
        .lines()
        .find(|l| l.rsplit_once(' ').is_some_and(|(n, _)| n == name));
    line.unwrap_or_else(|| panic!("{name} in {all}"))
        .rsplit_once(' ')
        .unwrap()
        .1
        .parse()
        .unwrap()
}

#[test]
fn states_add_up() {
    let all = text(metrics(&status(), 200));
    let pool = |state: &str| {
        sample(
            &all,
            &format!("hugeleaf_pool_bytes{{page_size=\"2M\",node=\"all\",state=\"{state}\"}}"),
        )
    };
    assert_eq!(
        pool("used") + pool("reserved") + pool("free"),
        100.0 * 2048.0 * 1024.0
    );
    let programs: f64 = TreeState::ALL
        .iter()
        .map(|s| {
            sample(
                &all,
                &format!("hugeleaf_programs{{state=\"{}\"}}", s.name()),
            )
        })
        .sum();
    assert_eq!(programs, 4.0);
    assert_eq!(sample(&all, "hugeleaf_grown_bytes_total"), 0.0);
    assert_eq!(
        sample(
            &all,
            "hugeleaf_proof_ratio{unit=\"mariadbd.service\",verdict=\"faster\",bound=\"low\"}"
        ),
        1.07
    );
}

#[test]
fn what_is_wrong_with_pools_and_what_is_given_back() {
    let all = text(metrics(&status(), 200));
    let count = |severity: &str| {
        sample(
            &all,
            &format!("hugeleaf_pool_findings{{severity=\"{severity}\"}}"),
        )
    };
    assert_eq!((count("problem"), count("warning")), (1.0, 0.0));
    let given = sample(
        &all,
        "hugeleaf_pool_given_bytes{page_size=\"2M\",node=\"0\"}",
    );
    assert_eq!(given, Bytes::from_mib(50).as_f64());
    let screen = crate::guard::status(&status()).text(View::plain(100));
    assert!(screen.contains("10 short (20M)"), "{screen}");
    assert!(
        screen.contains("2M on node 0 released") && screen.contains("25 of 100 pages"),
        "{screen}"
    );
}

#[test]
fn no_label_is_a_process() {
    let mut said = status();
    for program in &mut said.programs {
        program.pid += 7_654_321;
    }
    let all = open_metrics(metrics(&said, 200));
    assert!(!all.contains("76543"), "{all}");
}

#[test]
fn beyond_the_limit_units_are_one() {
    let mut said = status();
    said.programs = (0..500)
        .map(|n| program(n, &format!("unit{n}"), TreeState::Managed))
        .collect();
    let all = text(metrics(&said, 20));
    let units = all
        .lines()
        .filter(|l| l.starts_with("hugeleaf_eligible_bytes{"))
        .count();
    assert_eq!(units, 2 * 21);
    let other = sample(
        &all,
        "hugeleaf_eligible_bytes{unit=\"other\",pages=\"huge\"}",
    );
    assert_eq!(other, 480.0 * Bytes::from_mib(4096).as_f64());
}

#[test]
fn names_follow_the_conventions() {
    for line in text(metrics(&status(), 200)).lines() {
        let Some(rest) = line.strip_prefix("# TYPE ") else {
            continue;
        };
        let (name, kind) = rest.split_once(' ').unwrap();
        assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        assert!(
            name.starts_with("hugeleaf_") || name.starts_with("process_"),
            "{line}"
        );
        assert!(
            !["_kb", "_ms", "_mib", "_percent"]
                .iter()
                .any(|end| name.ends_with(end)),
            "{line}"
        );
    }
}
