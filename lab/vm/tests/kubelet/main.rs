//! The chart on a node of a cluster: a real kubelet and containerd, with runc and with crun. Runs in the guest of
//! `lab/vm/hosts/kubelet.toml`. The kubelet has no API server, so the chart's pods are static pods.
//!
//! The kernel's own counters of a pod's cgroup say how much of its memory is on huge pages.

// The tests' shared code unwraps too.
#![allow(clippy::unwrap_used)]

mod guard;
mod image;
mod node;
mod pools;
mod redis;

use std::time::{Duration, Instant};

/// Waits for a condition, and returns its value and the seconds that passed. The emulated processor is slow.
#[track_caller]
pub fn until<T>(wanted: &str, mut condition: impl FnMut() -> Result<T, String>) -> (T, f64) {
    let start = Instant::now();
    loop {
        match condition() {
            Ok(value) => return (value, start.elapsed().as_secs_f64()),
            Err(found) if start.elapsed() > Duration::from_secs(600) => {
                panic!("waited 600 s for {wanted}: {found}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(300)),
        }
    }
}

// Not in a module, so that it is the last test: the others run under runc.
#[test]
fn with_crun_the_guard_keeps_a_pod_on_huge_pages_through_an_upgrade() {
    let name = "with_crun_the_guard_keeps_a_pod_on_huge_pages_through_an_upgrade";
    if let Some(node) = node::node(name, "crun") {
        guard::promotes_and_survives_an_upgrade(&node, "crun");
    }
}
