//! Memory that processes share since fork counts once in every output.

use serde_json::Value;

use crate::host::Host;
use crate::json;
use crate::kernel::{fields, number, pool_file, smaps, text};
use crate::not_run;
use crate::victim::Victim;

/// Returns the processes of a tree from the kernel: children belong to the thread that forked.
fn tree(top: u32) -> Vec<u32> {
    let mut all = vec![top];
    for task in std::fs::read_dir(format!("/proc/{top}/task")).unwrap() {
        let children = text(task.unwrap().path().join("children"));
        all.extend(
            children
                .split_ascii_whitespace()
                .map(|c| c.parse::<u32>().unwrap()),
        );
    }
    all
}

fn sum(table: &Value, of: impl Fn(&Value) -> bool) -> u64 {
    let held = table.as_array().unwrap().iter().filter(|h| of(h));
    held.map(|h| h["bytes"].as_u64().unwrap()).sum()
}

/// Compares within a percent, and within the pages of files that processes outside the tree also map.
/// Those are completely resident here, and only a share of them is in the sum of shares.
#[track_caller]
fn agrees(what: &str, got: u64, shares: u64, outside: u64) {
    let (least, most) = (shares / 100 * 99, shares / 100 * 101 + outside);
    assert!(
        (least..=most).contains(&got),
        "{what}: {got}, shares {shares} and {outside}"
    );
}

/// Returns the kernel's sum of shares of a tree, and the part of its files that others own.
fn by_the_kernel(top: u32) -> (u64, u64) {
    let pids = tree(top);
    let shares = pids
        .iter()
        .map(|pid| fields(format!("/proc/{pid}/smaps_rollup"))["Pss"])
        .sum();
    let files = smaps(top);
    let files = files.iter().filter(|m| m.get("Anonymous") < m.get("Rss"));
    (
        shares,
        files.map(|m| m.get("Rss") - m.get("Anonymous")).sum(),
    )
}

#[test]
fn a_forked_tree_counts_each_page_once() {
    let Some(host) = Host::new("a_forked_tree_counts_each_page_once") else {
        return;
    };
    // A hundredth of it is larger than this program itself, for any huge page size.
    let private = host.huge * (64_u64 << 20).div_ceil(host.huge).max(2);
    for children in [0, 9, 99] {
        let mut victim = Victim::start();
        victim.map("a", "private", private, host.huge);
        victim.tell("small a");
        victim.map("b", "shared", 2 * host.huge, host.huge);
        victim.tell("touch b");
        victim.tell(&format!("forks {children} a {}", private / 128));
        assert_eq!(tree(victim.pid()).len(), children + 1);
        let target = format!("tree:{}", victim.pid());
        let (shares, outside) = by_the_kernel(victim.pid());
        let mem = json(&["mem", &target]);
        let table = &mem["totals"]["by_page_size"];
        agrees("mem", sum(table, |_| true), shares, outside);
        let why = json(&["why", &target]);
        let resident = why["totals"]["resident_bytes"].as_u64().unwrap();
        agrees("why", resident, shares, outside);
        let lines = why["summary"].as_array().unwrap();
        let parts: u64 = lines.iter().map(|l| l["bytes"].as_u64().unwrap()).sum();
        let rest = ["huge_bytes", "too_small_bytes"].map(|n| why["totals"][n].as_u64().unwrap());
        assert_eq!(parts + rest[0] + rest[1], resident);
    }
}

/// Private memory on pool pages is copied in whole pages.
#[test]
fn pool_pages_of_a_forked_tree_count_once() {
    let test = "pool_pages_of_a_forked_tree_count_once";
    let Some(mut host) = Host::new(test) else {
        return;
    };
    let Some(size) = host.pool_size().filter(|size| *size == host.huge) else {
        return not_run(test, "needs hugetlb pages of the size of huge pages");
    };
    if host.pool(size, None, 18) < 18 {
        return not_run(test, "18 pages for a pool cannot be reserved");
    }
    let free = || number(pool_file(size, None, "free_hugepages")).unwrap();
    for children in [1, 10] {
        let mut victim = Victim::start();
        victim.map("a", "pool", 8 * size, size);
        victim.tell("touch a");
        victim.tell(&format!("forks {children} a {size}"));
        let used = (18 - free()) * size;
        assert_eq!(used, (8 + children) * size);
        let target = format!("tree:{}", victim.pid());
        let mem = json(&["mem", &target]);
        let table = &mem["totals"]["by_page_size"];
        assert_eq!(sum(table, |h| h["kind"] == "hugetlb"), used);
        let why = json(&["why", &target]);
        let large = why["totals"]["huge_bytes"].as_u64().unwrap();
        // Libraries and this program may be on huge pages as well.
        let others = sum(table, |h| h["kind"] == "thp");
        assert_eq!(large, used + others);
        drop(victim);
        // Its children end after it, and free their pages then.
        while free() < 18 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
