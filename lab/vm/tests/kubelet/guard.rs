//! Exporter and guard of the chart, and an upgrade of their image.

use std::time::Instant;

use serde_json::{Value, json};

use crate::node::{Container, Node, get, guard_status, node};
use crate::{redis, until};

/// The metrics' port in the chart.
const METRICS: u16 = 9646;
/// Share of a pod's memory that the guard must reach, in percent.
const SHARE: u64 = 95;

fn resources() -> Value {
    json!({"requests": {"memory": "64Mi"}, "limits": {"memory": "1Gi"}})
}

/// Starts a pod with data on base pages.
fn victim(node: &Node) -> Container {
    node.run(&redis::pod(&resources()));
    let pod = node.ready("redis", "redis:1");
    redis::fill();
    pod
}

fn reached(pod: &Container) -> Result<(u64, u64), String> {
    let (all, huge) = pod.memory();
    match huge * 100 >= all * SHARE {
        true => Ok((all, huge)),
        false => Err(format!("{huge} of {all} bytes")),
    }
}

/// Waits until the metrics show the pod by its UID, and returns its eligible bytes on pages of a kind.
fn eligible(pod: &Container, pages: &str) -> f64 {
    let info = format!("pod_uid=\"{}\",container_id=\"{}\"", pod.uid, pod.id);
    let text = until("the pod's UID in the metrics", || {
        let text = get(METRICS, "/metrics")?;
        let has = text
            .lines()
            .any(|l| l.starts_with("hugeleaf_pod_info{") && l.contains(&info));
        has.then(|| text.clone()).ok_or(text)
    })
    .0;
    let series = format!(
        "hugeleaf_eligible_bytes{{unit=\"pod {}\",pages=\"{pages}\"}} ",
        pod.uid
    );
    let value = text.lines().find_map(|line| line.strip_prefix(&series));
    let value = value.unwrap_or_else(|| panic!("no {series}:\n{text}"));
    value.parse().unwrap()
}

/// Promotes a pod, and upgrades the image of the guard while the pod runs.
pub fn promotes_and_survives_an_upgrade(node: &Node, runtime: &str) {
    // Without what an earlier guard left.
    for folder in ["/var/log/hugeleaf", "/var/lib/hugeleaf"] {
        let _ = std::fs::remove_dir_all(folder);
    }
    node.run(&node.of_chart(1, "guard"));
    let first = node.ready("guard", "hugeleaf:1");
    node.run(&redis::pod(&resources()));
    let pod = node.ready("redis", "redis:1");
    let since_running = Instant::now();
    redis::fill();
    let filled = since_running.elapsed().as_secs_f64();
    let ((all, huge), seconds) = until("95 % of the pod on huge pages", || reached(&pod));
    println!(
        "measured: {runtime}: {:.1} % of {} MiB on huge pages {seconds:.1} s after the data was written, {:.1} s after the \
         pod ran (writing took {filled:.1} s)",
        huge as f64 * 100.0 / all as f64,
        all >> 20,
        filled + seconds
    );
    until("the metrics to show this", || {
        match eligible(&pod, "huge") {
            shown if shown * 100.0 >= (all * SHARE) as f64 => Ok(()),
            shown => Err(format!("{shown} of {all}")),
        }
    });

    let second = upgrade(node, runtime, &pod);
    assert_ne!(first.id, second.id);
    // The second guard knew the promotions of the first, and the server did not notice.
    let log = std::fs::read_to_string("/var/log/hugeleaf/guard.jsonl").unwrap();
    let count = |what: &str| {
        log.lines()
            .filter(|l| l.contains(&format!("\"what\":\"{what}\"")))
            .count()
    };
    assert_eq!(count("started"), 2, "{log}");
    println!(
        "measured: {runtime}: promotions in the log: {}",
        count("promoted")
    );
    redis::assert_whole();
    let after = node.ready("redis", "redis:1");
    assert_eq!((after.restarts, &after.id), (0, &pod.id));
    println!(
        "measured: {runtime}: restarts of the pod: {}",
        after.restarts
    );
    reached(&after).unwrap();
}

/// Upgrades the image of the guard, and waits until the new guard manages the pod.
fn upgrade(node: &Node, runtime: &str, pod: &Container) -> Container {
    let upgrade = Instant::now();
    node.run(&node.of_chart(2, "guard"));
    let mut lowest = 100;
    let second = until("the upgraded guard", || {
        let (all, huge) = pod.memory();
        lowest = lowest.min(huge * 100 / all);
        let found = node
            .container("guard")
            .filter(|one| one.is_ready && one.image.ends_with(":2"));
        found.ok_or_else(|| format!("{:?}", node.container("guard")))
    })
    .0;
    println!(
        "measured: {runtime}: the upgrade took {:.1} s; at least {lowest} % stayed huge",
        upgrade.elapsed().as_secs_f64()
    );
    assert!(lowest >= SHARE, "{lowest} %");
    until("the guard's answer for the pod", || {
        let status = guard_status()?;
        let trees = status["programs"].as_array().cloned().unwrap_or_default();
        let is_managed =
            |tree: &Value| tree["name"] == "redis-server" && tree["state"] == "managed";
        trees
            .iter()
            .any(is_managed)
            .then_some(())
            .ok_or_else(|| status.to_string())
    });
    second
}

#[test]
fn the_guard_keeps_a_pod_on_huge_pages_through_an_upgrade() {
    if let Some(node) = node(
        "the_guard_keeps_a_pod_on_huge_pages_through_an_upgrade",
        "runc",
    ) {
        promotes_and_survives_an_upgrade(&node, "runc");
    }
}

#[test]
fn the_exporter_names_pods_and_changes_nothing() {
    let Some(node) = node("the_exporter_names_pods_and_changes_nothing", "runc") else {
        return;
    };
    let pod = victim(&node);
    node.run(&node.of_chart(1, "exporter"));
    let exporter = node.ready("exporter", "hugeleaf:1");
    assert!(eligible(&pod, "base") >= (redis::KEYS << 10) as f64);
    // The paths of other pods' cgroups as the exporter reads them.
    let process = pod.process("redis-server");
    let seen = std::process::Command::new("nsenter")
        .args([
            "-C",
            "-t",
            &exporter.process("hugeleaf").to_string(),
            "cat",
            &format!("/proc/{process}/cgroup"),
        ])
        .output()
        .unwrap();
    println!(
        "cgroup of the pod in the exporter: {}",
        String::from_utf8_lossy(&seen.stdout).trim()
    );
    assert_eq!(pod.memory().1, 0);
    assert_eq!(node.ready("exporter", "hugeleaf:1").restarts, 0);
}
