use super::*;
use crate::document::TextOptions;
use crate::exposition::{open_metrics, text};
use crate::guard::tests::{program, status};
use hugeleaf_proof::Verdict;
use hugeleaf_proof::stats::BetterDirection;

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
    let pool = sum(
        &all,
        "hugeleaf_pool_memory_bytes{page_size=\"2M\",node=\"all\",",
    );
    assert_eq!(pool, 100.0 * 2048.0 * 1024.0);
    let programs: f64 = TreeState::ALL
        .iter()
        .map(|s| {
            sample(
                &all,
                &format!("hugeleaf_process_trees{{state=\"{}\"}}", s.name()),
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

/// A latency that falls is a gain, like a throughput that rises.
#[test]
fn the_gain_of_a_proof_has_one_direction() {
    let gain = |better, verdict, [low, ratio, high]: [f64; 3]| {
        let mut said = status();
        for program in &mut said.programs {
            if let Proof::Proven(proof) = &mut program.proof_detail {
                (proof.better, proof.verdict) = (better, verdict);
                (proof.low, proof.ratio, proof.high) = (low, ratio, high);
            }
        }
        let all = text(metrics(&said, 200));
        ["low", "estimate", "high"].map(|bound| {
            let labels =
                format!("unit=\"mariadbd.service\",verdict=\"{verdict}\",bound=\"{bound}\"");
            let name = format!("hugeleaf_proof_gain_ratio{{{labels}}}");
            all.contains(&name)
                .then(|| (sample(&all, &name) * 1e4).round() / 1e4)
        })
    };
    let some = |values: [f64; 3]| values.map(Some);
    let (higher, lower) = (Some(BetterDirection::Higher), Some(BetterDirection::Lower));
    let up = [1.1, 1.25, 1.6];
    let down = [0.625, 0.8, 0.9091];
    assert_eq!(gain(higher, Verdict::Faster, up), some(up));
    assert_eq!(gain(lower, Verdict::Slower, up), some(down));
    assert_eq!(
        gain(lower, Verdict::Unclear, [0.96, 1.0, 1.25]),
        some([0.8, 1.0, 1.0417])
    );
    // Earlier builds kept no direction. A clear verdict tells it.
    assert_eq!(gain(None, Verdict::Slower, up), some(down));
    assert_eq!(gain(None, Verdict::Faster, up), some(up));
    assert_eq!(gain(None, Verdict::Same, up), [None; 3]);
    assert_eq!(
        gain(Some(BetterDirection::Neither), Verdict::Same, up),
        [None; 3]
    );
}

#[test]
fn misaligned_memory_is_a_part_of_that_on_base_pages() {
    let mut said = status();
    let first = &mut said.programs[0];
    first.misaligned_bytes = first.base_bytes;
    let unit = first.group.clone();
    let all = text(metrics(&said, 200));
    let base = sample(
        &all,
        &format!("hugeleaf_eligible_bytes{{unit=\"{unit}\",pages=\"base\"}}"),
    );
    assert_eq!(
        sample(
            &all,
            &format!("hugeleaf_misaligned_bytes{{unit=\"{unit}\"}}")
        ),
        base
    );
    assert!(base > 0.0);
}

/// Returns the sum of the samples whose names and labels start like this.
fn sum(all: &str, start: &str) -> f64 {
    let lines = all.lines().filter(|line| line.starts_with(start));
    let values = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
    values.sum()
}

/// Alerts written for earlier builds still fire, and no sum over the states of one metric counts twice.
#[test]
fn renamed_states_keep_their_old_metrics() {
    let said = status();
    let all = text(metrics(&said, 200));
    for (new, old, n) in [
        ("promoting", "moving", TreeState::Promoting),
        ("reverting", "reverting", TreeState::Reverting),
        ("testing", "testing", TreeState::Testing),
        ("queued", "next", TreeState::Queued),
        ("candidate", "would", TreeState::Candidate),
        ("managed", "kept", TreeState::Managed),
        ("already huge", "large", TreeState::AlreadyHuge),
        ("skipped", "no", TreeState::Skipped),
    ]
    .map(|(new, old, state)| (new, old, said.count(state) as f64))
    {
        let new = format!("hugeleaf_process_trees{{state=\"{new}\"}}");
        let old = format!("hugeleaf_programs{{state=\"{old}\"}}");
        assert_eq!((sample(&all, &new), sample(&all, &old)), (n, n));
    }
    assert_eq!(sum(&all, "hugeleaf_programs{"), 4.0);
    let pool = |name: &str, state: &str| {
        let labels = format!("page_size=\"2M\",node=\"all\",state=\"{state}\"");
        sample(&all, &format!("{name}{{{labels}}}")) / Bytes::from_mib(2).as_f64()
    };
    for (new, old, pages) in [
        ("used", "used", 60.0),
        ("reserved", "reserved", 30.0),
        ("unused", "free", 10.0),
    ] {
        assert_eq!(pool("hugeleaf_pool_memory_bytes", new), pages);
        assert_eq!(pool("hugeleaf_pool_bytes", old), pages);
    }
    for metric in ["hugeleaf_pool_memory_bytes{", "hugeleaf_pool_bytes{"] {
        assert_eq!(sum(&all, metric), Bytes::from_mib(200).as_f64());
    }
}

/// A dashboard or alert that uses a deprecated metric breaks when the metric is removed.
#[test]
fn dashboard_and_alerts_use_no_deprecated_metric() {
    let all = text(metrics(&status(), 200));
    let deprecated: Vec<&str> = all
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '))
        .filter(|(_, help)| help.starts_with("Deprecated"))
        .map(|(name, _)| name)
        .collect();
    assert!(deprecated.contains(&"hugeleaf_programs"), "{deprecated:?}");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib");
    for file in [
        "grafana/hugeleaf.json",
        "prometheus/hugeleaf.rules.yml",
        "prometheus/tests.yml",
    ] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut words = text.split(|c: char| !is_word(c));
        let used = words.find(|word| deprecated.contains(word));
        assert_eq!(used, None, "{file}");
    }
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
    let screen = crate::guard::status(&status()).text(TextOptions::plain(100));
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

/// With another help text than that of `verify --prometheus`, node_exporter drops the family of the file that it reads second.
#[test]
fn findings_are_those_of_verify() {
    let mut said = status();
    let warning = PoolFinding {
        id: "pool-unused-for-a-day".into(),
        severity: "warning".into(),
        ..said.pools.findings[0].clone()
    };
    said.pools.findings.extend([warning.clone(), warning]);
    let all = text(metrics(&said, 200));
    let count = |id: &str, severity: &str| {
        sample(
            &all,
            &format!("hugeleaf_findings{{id=\"{id}\",severity=\"{severity}\"}}"),
        )
    };
    assert_eq!(count("pool-short", "problem"), 1.0);
    assert_eq!(count("pool-unused-for-a-day", "warning"), 2.0);
    let of_verify = crate::verify::verify_prometheus(&crate::verify::tests::testing::report(), 0);
    let heads = |text: &str| -> Vec<String> {
        let heads = text.lines().filter(|line| line.starts_with('#'));
        let heads = heads.filter(|line| line.contains(" hugeleaf_findings "));
        heads.map(str::to_owned).collect()
    };
    assert_eq!((heads(&all).len(), heads(&all)), (2, heads(&of_verify)));
}

#[test]
fn units_of_pods_have_their_pod_and_containers() {
    const POD: &str = "0b3c5a6e-1111-2222-3333-444455556666";
    let mut said = status();
    let mut of_pod = |pid: u32, container: Option<&str>| {
        let mut one = program(pid, "postgres", TreeState::Managed);
        one.group = format!("pod {POD}");
        one.pod_uid = Some(POD.into());
        one.container_id = container.map(str::to_owned);
        said.programs.push(one);
    };
    of_pod(1001, Some("9f"));
    of_pod(1002, Some("9f"));
    of_pod(1003, Some("a0"));
    of_pod(1004, None);
    let all = text(metrics(&said, 200));
    let of_pods: Vec<&str> = (all.lines())
        .filter(|line| line.starts_with("hugeleaf_pod_info"))
        .collect();
    let line = |container: &str| {
        format!(
            "hugeleaf_pod_info{{unit=\"pod {POD}\",pod_uid=\"{POD}\",container_id=\"{container}\"}} 1.0"
        )
    };
    assert_eq!(of_pods, ["", "9f", "a0"].map(line));
    // A unit that is only part of `other` has no series to join.
    assert!(!text(metrics(&said, 0)).contains("hugeleaf_pod_info{"));
}

/// node_exporter has these metrics of itself, and drops those of a file.
#[test]
fn the_textfile_has_no_metrics_of_the_process() {
    let of_process = |all: &str| all.lines().filter(|l| l.starts_with("process_")).count();
    assert_eq!(of_process(&text(metrics(&status(), 200))), 3);
    let file = text(textfile_metrics(&status(), 200));
    assert!(
        of_process(&file) == 0 && !file.contains("process_cpu"),
        "{file}"
    );
    assert_eq!(sample(&file, "hugeleaf_scans_total"), 1440.0);
}
