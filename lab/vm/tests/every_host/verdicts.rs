//! `why` on running programs, each with one obstacle.

use serde_json::Value;

use crate::capture::capture;
use crate::host::Host;
use crate::kernel::{fields, inside, text};
use crate::victim::{Addresses, Victim};
use crate::{json, not_run};

const PAGES: u64 = 4;

/// Returns the complete verdicts of `why` on a range.
pub fn judged(victim: &Victim, range: Addresses) -> Vec<Value> {
    let answer = json(&["why", &victim.id()]);
    let mut all = answer["processes"][0]["verdicts"]
        .as_array()
        .unwrap()
        .clone();
    all.retain(|v| {
        let (start, end) = (v["start"].as_u64().unwrap(), v["end"].as_u64().unwrap());
        start < range.1 && range.0 < end
    });
    all
}

/// Returns the ids and bytes of the verdicts on a range.
fn verdicts(victim: &Victim, range: Addresses) -> Vec<(String, u64)> {
    let reported = judged(victim, range);
    reported
        .iter()
        .map(|v| {
            (
                v["id"].as_str().unwrap().to_owned(),
                v["bytes"].as_u64().unwrap(),
            )
        })
        .collect()
}

/// Starts a program with base-page memory, and applies commands to it.
fn victim(host: &Host, kind: &str, done: &[&str]) -> (Victim, Addresses) {
    let mut victim = Victim::start();
    let range = victim.map("a", kind, PAGES * host.huge, host.huge);
    victim.tell("small a");
    for command in done {
        victim.tell(&format!("{command} a"));
    }
    (victim, range)
}

#[track_caller]
fn assert_reported(victim: &Victim, range: Addresses, id: &str) -> u64 {
    let reported = verdicts(victim, range);
    let bytes: u64 = reported
        .iter()
        .filter(|(t, _)| t == id)
        .map(|(_, b)| b)
        .sum();
    assert!(bytes > 0, "no {id} in {reported:?}");
    bytes
}

#[test]
fn why_reports_swapped_memory() {
    let test = "why_reports_swapped_memory";
    let Some(host) = Host::new(test) else {
        return;
    };
    if fields("/proc/meminfo")["SwapTotal"] == 0 {
        return not_run(test, "needs swap");
    }
    let (victim, range) = victim(&host, "private", &["pageout"]);
    let swapped = inside(victim.pid(), range, |m| m.get("Swap"));
    if swapped < host.huge {
        return not_run(test, "the kernel did not swap the memory out");
    }
    // Nothing of it may remain resident: no byte is on any page then.
    let reported = verdicts(&victim, range);
    assert!(
        reported.iter().any(|(id, _)| id == "swapped"),
        "{reported:?}"
    );
    capture("swapped", &[victim.pid()]);
    let shown = json(&["mem", &victim.id()]);
    assert_eq!(shown["processes"][0]["swapped_bytes"], swapped);
}

/// Promotion leaves swapped-out memory unchanged.
#[test]
fn promote_does_not_swap_memory_in() {
    let test = "promote_does_not_swap_memory_in";
    let Some(host) = Host::new(test) else {
        return;
    };
    if fields("/proc/meminfo")["SwapTotal"] == 0 {
        return not_run(test, "needs swap");
    }
    let (mut victim, range) = victim(&host, "private", &["pageout"]);
    let swapped = inside(victim.pid(), range, |m| m.get("Swap"));
    let promoted = json(&["promote", "--budget", "100%", &victim.id()]);
    let after = inside(victim.pid(), range, |m| m.get("Swap"));
    assert!(after >= swapped, "{swapped} → {after}: {promoted:#}");
    victim.tell("check a");
}

/// On request, promotion reads partly swapped memory back, as `why` says.
#[test]
fn promote_swaps_partly_swapped_memory_in_on_request() {
    let test = "promote_swaps_partly_swapped_memory_in_on_request";
    let Some(host) = Host::new(test) else {
        return;
    };
    let (mut victim, range) = victim(&host, "private", &["pageout-some"]);
    let swapped = || inside(victim.pid(), range, |m| m.get("Swap"));
    if swapped() == 0 {
        return not_run(
            test,
            "needs swap, and a kernel that swaps out single base pages",
        );
    }
    let reported = judged(&victim, range);
    let reported = reported.iter().find(|v| v["id"] == "swapped").unwrap();
    let command = reported["command"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let promoted = json(&[&words[..], &["--budget", "100%"]].concat());
    assert_eq!(swapped(), 0, "{command}: {promoted:#}");
    let huge = inside(victim.pid(), range, |m| m.huge());
    assert_eq!(huge, PAGES * host.huge, "{command}: {promoted:#}");
    victim.tell("check a");
}

#[test]
fn why_reports_merged_memory() {
    let test = "why_reports_merged_memory";
    let Some(mut host) = Host::new(test) else {
        return;
    };
    let ksm = "/sys/kernel/mm/ksm";
    if text(format!("{ksm}/run")).is_empty() {
        return not_run(test, "needs a kernel with KSM");
    }
    // 2 splits all merged pages again, and 0 stops it.
    host.set(&format!("{ksm}/run"), "1");
    host.set(&format!("{ksm}/sleep_millisecs"), "0");
    host.set(&format!("{ksm}/pages_to_scan"), "100000");
    let (victim, range) = victim(&host, "private", &["merge"]);
    let merged = || inside(victim.pid(), range, |m| m.get("KSM"));
    let has_ksm = text(format!("/proc/{}/smaps", victim.pid())).contains("\nKSM:");
    for _ in 0..600 {
        let pages = crate::kernel::number(format!("{ksm}/pages_sharing")).unwrap_or(0);
        if merged() > 3 * host.huge || !has_ksm && pages * host.base > 3 * host.huge {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_reported(&victim, range, "ksm-merged");
    drop(victim);
    let _ = std::fs::write(format!("{ksm}/run"), "2");
}

#[test]
fn why_reports_userfaultfd() {
    let test = "why_reports_userfaultfd";
    let Some(host) = Host::new(test) else {
        return;
    };
    let mut victim = Victim::start();
    let range = victim.map("a", "private", PAGES * host.huge, host.huge);
    victim.tell("half a");
    if let Err(error) = victim.try_tell("watch a") {
        return not_run(test, &format!("needs userfaultfd(2): {error}"));
    }
    assert_reported(&victim, range, "userfaultfd");
}

#[test]
fn why_reports_pinned_memory() {
    let test = "why_reports_pinned_memory";
    let Some(host) = Host::new(test) else {
        return;
    };
    let (mut victim, range) = victim(&host, "private", &[]);
    // One page is pinned at its start. From outside, only the existence of pins is visible.
    if let Err(error) = victim.try_tell(&format!("pin a {}", 16 * host.base)) {
        return not_run(test, &format!("needs io_uring: {error}"));
    }
    let promoted = json(&["promote", "--budget", "100%", &victim.id()]);
    let process = &promoted["processes"][0];
    let huge = inside(victim.pid(), range, |m| m.huge());
    assert_eq!(
        huge,
        (PAGES - 1) * host.huge,
        "all but the pinned block: {process:#}"
    );
    assert_reported(&victim, range, "pinned");
}

#[test]
fn why_reports_a_short_pool() {
    let test = "why_reports_a_short_pool";
    let Some(mut host) = Host::new(test) else {
        return;
    };
    let size = host.pool_size();
    let Some(size) = size.filter(|size| *size <= PAGES * host.huge) else {
        return not_run(test, "needs a pool whose pages fit the memory of the test");
    };
    if host.pool(size, None, 1) != 1 {
        return not_run(test, "no pool page can be reserved");
    }
    // At a misaligned address, and of a program that uses the pool, the pool is the solution.
    let mut victim = Victim::start();
    victim.map("p", "pool", size, size);
    victim.tell("touch p");
    let range = victim.map("a", "any-shared", PAGES * host.huge, host.huge);
    victim.tell("small a");
    let reported = verdicts(&victim, range);
    let aligned = range.0.is_multiple_of(host.huge);
    let short = reported.iter().any(|(id, _)| id == "pool-short");
    capture("pool-short", &[victim.pid()]);
    assert!(short || aligned, "{reported:?}");
    if aligned && !short {
        not_run(test, "the kernel chose an aligned address");
    }
}

#[test]
fn why_reports_madv_nohugepage() {
    let test = "why_reports_madv_nohugepage";
    let Some(host) = Host::new(test) else {
        return;
    };
    let (victim, range) = victim(&host, "private", &["nohuge"]);
    let bytes = assert_reported(&victim, range, "no-huge-advised");
    assert_eq!(bytes, PAGES * host.huge);
}

#[test]
fn why_reports_copy_on_write_memory() {
    let test = "why_reports_copy_on_write_memory";
    let Some(host) = Host::new(test) else {
        return;
    };
    let (mut victim, range) = victim(&host, "private", &[]);
    let child = victim.tell("fork");
    capture("copy-on-write", &[victim.pid(), child.parse().unwrap()]);
    let bytes = assert_reported(&victim, range, "copy-on-write");
    assert_eq!(bytes, PAGES * host.huge);
    let text = judged(&victim, range)[0]["text"].to_string();
    assert!(text.contains(&child), "{text} names no {child}");
}

/// `promote` gets all memory that `why` calls promotable.
#[test]
fn promote_all_memory_that_why_calls_promotable() {
    let test = "promote_all_memory_that_why_calls_promotable";
    let Some(host) = Host::new(test) else {
        return;
    };
    let (victim, range) = victim(&host, "private", &[]);
    let before = verdicts(&victim, range);
    let judged: u64 = before.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(judged, PAGES * host.huge, "{before:?}");
    json(&["promote", "--budget", "100%", &victim.id()]);
    assert_eq!(verdicts(&victim, range), []);
}
