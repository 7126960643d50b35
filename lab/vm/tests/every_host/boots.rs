//! Applied settings exist after a real reboot, and undone ones are gone after the next. There is one test a boot, in a
//! guest whose first process is systemd.

use crate::host::Host;
use crate::kernel::{flag, nodes, number, pool_file};
use crate::plans::assert_in_force;
use crate::{answer, json, not_run};

/// Pages on a node in the plan of these tests.
const PAGES: u64 = 6;

/// Place where the tests of later boots find the state of the first one.
const STATE: &str = "/var/lib/hugeleaf-every-host";

/// Returns the host if this is that boot of a guest.
pub fn boot(test: &str, number: &str) -> Option<Host> {
    if std::env::var("HUGELEAF_BOOT").as_deref() != Ok(number) {
        not_run(test, "needs a guest that reboots");
        return None;
    }
    Host::new(test)
}

fn on_node(size: u64, node: u32) -> u64 {
    number(pool_file(size, Some(node), "nr_hugepages")).unwrap_or(0)
}

/// Returns the node of the plan: the last one with enough memory.
fn node(size: u64) -> u32 {
    *Host::nodes_with(2 * PAGES * size).last().unwrap()
}

#[test]
fn boot_1_applies_a_plan() {
    let Some(host) = boot("boot_1_applies_a_plan", "1") else {
        return;
    };
    let size = host.pool_size().unwrap();
    let node = node(size);
    let plan = "/var/lib/hugeleaf-every-host.toml";
    let (bytes, sizes, on) = (flag(PAGES * size), flag(size), node.to_string());
    let args = [
        "plan", "--bytes", &bytes, "--sizes", &sizes, "--node", &on, "--margin", "0",
    ];
    answer(&[&args[..], &["--name", "cache", "--output", plan]].concat());
    answer(&["apply", plan]);
    assert_eq!(on_node(size, node), PAGES);
    std::fs::write(STATE, node.to_string()).unwrap();
}

#[test]
fn boot_2_has_the_pools_and_undoes_the_plan() {
    let test = "boot_2_has_the_pools_and_undoes_the_plan";
    let Some(host) = boot(test, "2") else {
        return;
    };
    let size = host.pool_size().unwrap();
    let node: u32 = std::fs::read_to_string(STATE).unwrap().parse().unwrap();
    for each in nodes() {
        let wanted = if each == node { PAGES } else { 0 };
        assert_eq!(on_node(size, each), wanted, "node {each}");
    }
    assert_in_force(&json(&["verify"]));
    answer(&["undo"]);
    assert_eq!(on_node(size, node), 0);
}

#[test]
fn boot_3_has_no_pools_and_no_plan_in_force() {
    let Some(host) = boot("boot_3_has_no_pools_and_no_plan_in_force", "3") else {
        return;
    };
    let size = host.pool_size().unwrap();
    for node in nodes() {
        assert_eq!(on_node(size, node), 0, "node {node}");
    }
    let journal = answer(&["undo", "--list"]);
    assert!(!journal.contains("in force"), "{journal}");
}
