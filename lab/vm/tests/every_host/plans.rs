//! `plan`, `apply`, `verify` and `undo` on each node that has memory for it.

use serde_json::Value;

use crate::host::Host;
use crate::kernel::{flag, nodes, number, pool_file};
use crate::{answer, json, not_run};

/// Returns the pages of a pool on each node.
fn pages_by_node(size: u64) -> Vec<(u32, u64)> {
    let pages = |node: u32| number(pool_file(size, Some(node), "nr_hugepages")).unwrap_or(0);
    nodes()
        .into_iter()
        .map(|node| (node, pages(node)))
        .collect()
}

/// A plan for one node is applied, verified and undone: the pages are on that node, then gone again.
#[test]
fn plan_apply_verify_and_undo_on_each_node() {
    let test = "plan_apply_verify_and_undo_on_each_node";
    let Some(host) = Host::new(test) else {
        return;
    };
    let Some(size) = host.pool_size() else {
        return not_run(test, "needs pools of hugetlb pages");
    };
    if number(pool_file(size, None, "surplus_hugepages")) > Some(0) {
        return not_run(
            test,
            "programs use surplus pages, which undo names as still in use",
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let nodes = Host::nodes_with(8 * size);
    if nodes.is_empty() {
        return not_run(test, "no node has memory for 8 pages");
    }
    for node in nodes {
        let before = pages_by_node(size);
        // Free pages of this node serve the plan, so only the rest is added. Free pages of other nodes
        // are of no use to it.
        let free = number(pool_file(size, Some(node), "free_hugepages")).unwrap_or(0);
        let anywhere = number(pool_file(size, None, "free_hugepages")).unwrap_or(0);
        let plan = folder.path().join(format!("node{node}.toml"));
        let plan = plan.display().to_string();
        let (bytes, sizes, on) = (flag(4 * size), flag(size), node.to_string());
        let made = [
            "plan", "--bytes", &bytes, "--sizes", &sizes, "--node", &on, "--output", &plan,
        ];
        answer(&[&made[..], &["--margin", "0"]].concat());
        answer(&["apply", &plan]);
        let applied = Applied;
        for ((on, was), (_, is)) in before.iter().zip(pages_by_node(size)) {
            let more = if *on == node {
                4_u64.saturating_sub(free)
            } else {
                0
            };
            assert_eq!(is, was + more, "node {on}, planned for {node}");
        }
        let verified = json(&["verify"]);
        assert_made(&verified);
        // Free pages that the plan leaves idle are a finding.
        let idle = anywhere + 4_u64.saturating_sub(free) - 4;
        assert_eq!(verified["good"], idle == 0, "{verified:#}");
        drop(applied);
        assert_eq!(pages_by_node(size), before, "after undo");
    }
}

/// An applied plan; undone when dropped, also after a failure.
struct Applied;

impl Drop for Applied {
    fn drop(&mut self) {
        let undone = crate::hugeleaf(&["undo"]);
        if !std::thread::panicking() {
            assert!(undone.status.success(), "{undone:?}");
        }
    }
}

/// Checks that the applied steps are in force in `verify`, without any other finding.
#[track_caller]
pub fn assert_in_force(verified: &Value) {
    assert_made(verified);
    assert_eq!(verified["good"], true, "{verified:#}");
}

#[track_caller]
fn assert_made(verified: &Value) {
    let steps = verified["steps"].as_array().unwrap();
    assert!(!steps.is_empty(), "{verified:#}");
    for step in steps {
        assert_eq!(step["state"], "as-applied", "{verified:#}");
    }
}
