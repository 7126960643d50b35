//! `trace` with the tracepoints and counters of the running kernel.

use crate::host::Host;
use crate::kernel::text;
use crate::victim::Victim;
use crate::{json, not_run};

/// Every source is used, or reported as missing; none is denied to root, and none is silent.
#[test]
fn trace_uses_the_sources_of_the_kernel() {
    let test = "trace_uses_the_sources_of_the_kernel";
    let Some(host) = Host::new(test) else {
        return;
    };
    if text("/proc/self/status").contains("Seccomp:\t2") {
        return not_run(test, "needs a process without a seccomp filter");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.trace").display().to_string();
    let mut victim = Victim::start();
    victim.map("a", "private", 4 * host.huge, host.huge);
    let pid = victim.id();
    let traced = std::thread::scope(|scope| {
        let tracing = scope.spawn(|| json(&["trace", &pid, "--for", "4s", "--output", &file]));
        // Repeated, because the start time of the trace is unknown.
        while !tracing.is_finished() {
            victim.tell("small a");
            victim.tell("empty a");
        }
        tracing.join().unwrap()
    });
    let sources = traced["sources"].as_array().unwrap();
    assert!(!sources.is_empty());
    for source in sources {
        let state = source["state"].as_str().unwrap();
        assert_ne!(state, "refused", "{source:#}");
        let has_tracepoints = std::path::Path::new("/sys/kernel/tracing/events").is_dir();
        if has_tracepoints && source["name"].as_str().unwrap().contains("lock") {
            assert_eq!(state, "used", "{source:#}");
        }
    }
    assert!(!traced["intervals"].as_array().unwrap().is_empty());
    // The victim's page faults were recorded, page by page.
    let faults: u64 = traced["intervals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["target"]["faults_minor"].as_u64().unwrap_or(0))
        .sum();
    assert!(faults * host.base >= 4 * host.huge, "{faults}");
    let again = json(&["trace", "show", &file]);
    assert_eq!(again["intervals"], traced["intervals"]);
}

/// A counter has a value above 0, or a reason for a missing value. This includes processors that open events
/// without counting them.
#[test]
fn every_counter_has_a_value_or_a_reason() {
    let test = "every_counter_has_a_value_or_a_reason";
    if text("/proc/self/status").contains("Seccomp:\t2") {
        return not_run(test, "needs a process without a seccomp filter");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.trace").display().to_string();
    let traced = json(&["trace", "--for", "2s", "--output", &file]);
    let counters = traced["counters"].as_array().unwrap();
    assert!(!counters.is_empty());
    for counter in counters {
        let is_used = counter["state"] == "used";
        let value = counter["value"].as_u64();
        assert_eq!(is_used, value.is_some_and(|v| v > 0), "{counter:#}");
        assert!(
            is_used || counter["reason"].as_str().is_some_and(|r| !r.is_empty()),
            "{counter:#}"
        );
    }
    if counters.iter().all(|counter| counter["state"] != "used") {
        let part = format!("the part of {test} with numbers");
        not_run(&part, "needs working CPU counters");
    }
}
