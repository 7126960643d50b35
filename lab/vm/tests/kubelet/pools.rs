//! The pool setter of the chart, the kubelet, and pods with and without a request.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::node::{Ended, Node, node, write_private};
use crate::redis;

/// Pages that the plan asks for.
const PAGES: u64 = 64;

fn hugeleaf(arguments: &[&str]) -> String {
    let out = Command::new("/payload/bin/hugeleaf")
        .args(arguments)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

fn pool() -> u64 {
    let file = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

/// Runs the Job's containers with a plan.
fn set(node: &Node, plan: &str) -> Vec<Ended> {
    let pod = node.of_chart(1, "pool-setter");
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let volume = volumes
        .iter()
        .find(|volume| volume["name"] == "plan")
        .unwrap();
    let folder = volume["hostPath"]["path"].as_str().unwrap();
    let file = Path::new(folder).join("plan.toml");
    fs::remove_file(&file).unwrap();
    write_private(&file, plan);
    node.run(&pod);
    let ended = node.ended("pool-setter");
    node.delete("pool-setter");
    ended
}

/// Makes a plan for this node as the guide says: on the node, then without the name of the host.
fn plan() -> String {
    let bytes = (PAGES << 21).to_string();
    let file = "/run/plan.toml";
    let said = hugeleaf(&["plan", "--bytes", &bytes, "--name", "db", "--output", file]);
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{error}: {said}"));
    let is_for_all = |line: &&str| {
        !["name = ", "id = ", "was = "]
            .iter()
            .any(|key| line.trim_start().starts_with(key))
    };
    let mut is_host = false;
    text.lines()
        .filter(|line| {
            is_host = if line.starts_with('[') {
                *line == "[host]"
            } else {
                is_host
            };
            is_for_all(line) || (line.starts_with("name = ") && !is_host)
        })
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn the_pool_setter_sets_pools_and_limits_follow_the_kubelet() {
    let Some(node) = node(
        "the_pool_setter_sets_pools_and_limits_follow_the_kubelet",
        "runc",
    ) else {
        return;
    };
    assert_eq!(pool(), 0);
    let plan = plan();
    let too_large = plan.replace(&format!("pages = {PAGES}"), "pages = 900000");
    let ended = set(&node, &too_large);
    assert!(ended[0].status != 0 && pool() == 0, "{ended:?}");
    println!("refused: {}", ended[0].said);

    let ended = set(&node, &plan);
    assert_eq!((ended[0].status, pool()), (0, PAGES), "{ended:?}");
    let report = ended.iter().find(|one| one.name == "report").unwrap();
    assert_eq!(report.status, 0, "{ended:?}");
    assert!(
        report.said.contains("systemctl restart kubelet"),
        "{ended:?}"
    );

    // The kubelet has started without a pool, and offers no pages to pods.
    let said = hugeleaf(&["status"]);
    assert!(said.contains("systemctl restart kubelet"), "{said}");
    node.restart_kubelet();
    let said = hugeleaf(&["status"]);
    assert!(!said.contains("systemctl restart kubelet"), "{said}");

    // A pod without a request may have none; why names the limit and the line that raises it.
    node.run(&redis::pod(&json!({"requests": {"memory": "64Mi"}})));
    let pod = node.ready("redis", "redis:1");
    let limit = fs::read_to_string(pod.pod_cgroup().join("hugetlb.2MB.max")).unwrap();
    assert_eq!(limit.trim(), "0");
    let process = pod.process("redis-server").to_string();
    let said = hugeleaf(&["why", &process]);
    println!("why: {said}");
    let said = hugeleaf(&["verify"]);
    println!("verify: {said}");

    // One with a request has its limit.
    node.delete("redis");
    let size = format!("{}Mi", PAGES * 2);
    let resources = json!({"memory": "256Mi", "hugepages-2Mi": size});
    node.run(&redis::pod(
        &json!({"requests": resources, "limits": resources}),
    ));
    let pod = node.ready("redis", "redis:1");
    let limit = fs::read_to_string(pod.pod_cgroup().join("hugetlb.2MB.max")).unwrap();
    assert_eq!(limit.trim(), (PAGES << 21).to_string());
    let said = hugeleaf(&["status"]);
    println!("status: {said}");
    // An in-place resize sets both limits of the pod to 0 (kubernetes #141991).
    for file in ["hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"] {
        fs::write(pod.pod_cgroup().join(file), "0").unwrap();
    }
    let said = hugeleaf(&["verify"]);
    assert!(
        said.contains(&pod.uid) && said.contains("in-place resize"),
        "{said}"
    );
    node.clear();
    println!("{}", hugeleaf(&["undo", "--all"]));
    assert_eq!(pool(), 0);
}
