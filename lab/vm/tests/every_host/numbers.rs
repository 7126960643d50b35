//! hugeleaf's figures match the kernel's, to the page.

use serde_json::Value;

use crate::capture::capture;
use crate::host::Host;
use crate::kernel::{chosen, fields, node_memory, nodes, number, pool_file, pool_sizes, smaps};
use crate::victim::Victim;
use crate::{json, not_run};

/// Memory, nodes, swap, THP's settings, and the pools of each node.
#[test]
fn status_agrees_with_the_kernel() {
    let Some(mut host) = Host::new("status_agrees_with_the_kernel") else {
        return;
    };
    if let Some(size) = host.pool_size() {
        for node in Host::nodes_with(2 * size) {
            host.pool(size, Some(node), 2);
        }
    }
    capture("status", &[]);
    let answer = json(&["status"]);
    let host = &answer["host"];
    let meminfo = fields("/proc/meminfo");
    assert_eq!(host["memory_bytes"], meminfo["MemTotal"]);
    assert_eq!(host["swap_bytes"], meminfo["SwapTotal"]);
    assert_eq!(host["hugetlb_bytes"], meminfo["Hugetlb"]);
    let thp = "/sys/kernel/mm/transparent_hugepage";
    assert_eq!(
        host["pmd_page_bytes"],
        number(format!("{thp}/hpage_pmd_size")).unwrap()
    );
    for setting in ["enabled", "shmem_enabled", "defrag"] {
        let is = chosen(format!("{thp}/{setting}")).unwrap();
        assert_eq!(host["thp"][setting], is, "{setting}");
    }
    for size in pool_sizes() {
        for node in nodes()
            .into_iter()
            .filter(has_memory)
            .map(Some)
            .chain([None])
        {
            assert_pool(host, size, node);
        }
    }
}

/// Returns true if a node has memory; one without cannot have a pool, though the kernel shows files of one.
fn has_memory(node: &u32) -> bool {
    node_memory(*node, "MemTotal") != Some(0)
}

fn assert_pool(host: &Value, size: u64, node: Option<u32>) {
    let Some(total) = number(pool_file(size, node, "nr_hugepages")) else {
        return;
    };
    let pools = host["pools"].as_array().unwrap();
    let is_it = |p: &&Value| p["page_bytes"] == size && p["node"].as_u64() == node.map(u64::from);
    let Some(pool) = pools.iter().find(is_it) else {
        panic!("no pool of {size} on {node:?}: {pools:#?}");
    };
    assert_eq!(pool["total"], total, "{size} on {node:?}");
    let free = number(pool_file(size, node, "free_hugepages")).unwrap();
    assert_eq!(pool["free"], free, "{size} on {node:?}");
}

/// Starts a process with memory of every kind, some of it on huge pages.
fn full(host: &mut Host) -> Victim {
    let mut victim = Victim::start();
    let length = 2 * host.huge;
    for kind in ["private", "shared", "memfd", "sysv"] {
        victim.map(kind, kind, length, host.huge);
        victim.tell(&format!("touch {kind}"));
    }
    victim.map("large", "private", length, host.huge);
    victim.tell("huge large");
    victim.tell("touch large");
    victim
}

fn sum_by_kind(held: &Value, kind: &str) -> u64 {
    let held = held.as_array().unwrap().iter();
    let of_kind = held.filter(|h| h["kind"] == kind);
    of_kind.map(|h| h["bytes"].as_u64().unwrap()).sum()
}

/// One process and each of its segments.
#[test]
fn mem_of_a_process_agrees_with_smaps() {
    let Some(mut host) = Host::new("mem_of_a_process_agrees_with_smaps") else {
        return;
    };
    let victim = full(&mut host);
    let answer = json(&["mem", &victim.id()]);
    let process = &answer["processes"][0];
    let mappings = smaps(victim.pid());
    let resident: u64 = mappings.iter().map(|m| m.get("Rss") + m.hugetlb()).sum();
    let huge: u64 = mappings.iter().map(|m| m.huge()).sum();
    assert_eq!(process["resident_bytes"], resident);
    assert_eq!(sum_by_kind(&process["by_page_size"], "thp"), huge);
    let rollup = fields(format!("/proc/{}/smaps_rollup", victim.pid()));
    assert_eq!(rollup["Rss"], resident);
    assert!(huge >= host.huge || !host.gives_at_touch(), "{huge}");
    let status = fields(format!("/proc/{}/status", victim.pid()));
    assert_eq!(process["page_tables_bytes"], status["VmPTE"]);
    let segments = process["segments"].as_array().unwrap();
    for mapping in mappings.iter().filter(|m| m.get("Rss") > 0) {
        let segment = segments.iter().find(|s| s["start"] == mapping.start);
        let segment = segment.unwrap_or_else(|| panic!("{:#x} is missing", mapping.start));
        assert_eq!(segment["resident_bytes"], mapping.get("Rss"), "{segment:#}");
        assert_eq!(sum_by_kind(&segment["by_page_size"], "thp"), mapping.huge());
        assert_eq!(segment["swapped_bytes"], mapping.get("Swap"));
    }
}

/// The list of all processes has the same figures, although it is read in another way. No process has more bytes
/// by page size than resident memory.
#[test]
fn mem_of_all_processes_agrees_with_smaps() {
    let Some(mut host) = Host::new("mem_of_all_processes_agrees_with_smaps") else {
        return;
    };
    let victim = full(&mut host);
    let answer = json(&["mem"]);
    let processes = answer["processes"].as_array().unwrap();
    for process in processes {
        let held = process["by_page_size"].as_array();
        let held = held.into_iter().flatten();
        let sum: u64 = held.map(|h| h["bytes"].as_u64().unwrap()).sum();
        assert!(
            process["resident_bytes"].as_u64().unwrap() >= sum,
            "{process:#}"
        );
    }
    let own = processes.iter().find(|p| p["pid"] == victim.pid()).unwrap();
    let huge: u64 = smaps(victim.pid()).iter().map(|m| m.huge()).sum();
    assert_eq!(sum_by_kind(&own["by_page_size"], "thp"), huge);
}

/// Every byte is on a huge page, has a verdict, or is in a small mapping.
#[test]
fn why_accounts_for_every_byte() {
    let Some(mut host) = Host::new("why_accounts_for_every_byte") else {
        return;
    };
    let victim = full(&mut host);
    let answer = json(&["why", &victim.id()]);
    let process = &answer["processes"][0];
    let verdicts = process["verdicts"].as_array().unwrap();
    let judged: u64 = verdicts.iter().map(|v| v["bytes"].as_u64().unwrap()).sum();
    let number = |name: &str| process[name].as_u64().unwrap();
    assert_eq!(
        judged + number("huge_bytes") + number("too_small_bytes"),
        number("resident_bytes")
    );
    let resident: u64 = smaps(victim.pid())
        .iter()
        .map(|m| m.get("Rss") + m.hugetlb())
        .sum();
    assert_eq!(number("resident_bytes"), resident);
}

/// The screens have no error, and the expected width.
#[test]
fn screens_fit_100_columns() {
    let Some(mut host) = Host::new("screens_fit_100_columns") else {
        return;
    };
    let victim = full(&mut host);
    for args in [
        &["status"][..],
        &["mem"],
        &["mem", "--global"],
        &["mem", &victim.id()],
        &["why", &victim.id()],
        &["plan"],
    ] {
        let out = crate::hugeleaf(args);
        let text = String::from_utf8(out.stdout).unwrap();
        // Without a service, `plan` reports what to name.
        if args != ["plan"] {
            assert!(matches!(out.status.code(), Some(0 | 1)), "{args:?}");
            assert!(!text.is_empty(), "{args:?}");
        }
        for line in text
            .lines()
            .filter(|line| !line.trim_start().starts_with("next: "))
        {
            assert!(line.chars().count() <= 100, "{args:?}: {line}");
        }
    }
}

/// A 32-bit process on a 64-bit host, where a guest has such a program.
#[test]
fn mem_and_promote_work_on_a_32_bit_process() {
    let test = "mem_and_promote_work_on_a_32_bit_process";
    let Some(host) = Host::new(test) else {
        return;
    };
    let Some(process) = crate::processes::of_32_bits(8 * host.huge) else {
        return not_run(test, "needs a 32-bit busybox at /payload/bin/busybox-32");
    };
    let answer = json(&["mem", &process.id()]);
    let resident: u64 = smaps(process.pid()).iter().map(|m| m.get("Rss")).sum();
    assert_eq!(answer["processes"][0]["resident_bytes"], resident);
    let promoted = json(&["promote", "--budget", "100%", &process.id()]);
    let huge: u64 = smaps(process.pid()).iter().map(|m| m.huge()).sum();
    let done = promoted["processes"][0]["done_bytes"].as_u64().unwrap();
    let already = promoted["processes"][0]["already_bytes"].as_u64().unwrap();
    assert_eq!(done + already, huge, "{promoted:#}");
    assert!(huge >= 6 * host.huge, "{promoted:#}");
}
