//! Promotion and demotion of memory of every kind, with the results read back from the kernel.

use crate::host::Host;
use crate::json;
use crate::kernel::{chosen, inside, smaps, text};
use crate::victim::{Addresses, Victim};

const PAGES: u64 = 4;

/// Returns true if the knob for shared memory forbids huge pages.
fn forbidden() -> bool {
    let knob = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    chosen(knob).as_deref() == Some("deny")
}

fn huge(victim: &Victim, range: Addresses) -> u64 {
    inside(victim.pid(), range, |m| m.huge())
}

fn resident(victim: &Victim) -> u64 {
    smaps(victim.pid()).iter().map(|m| m.get("Rss")).sum()
}

fn run(what: &str, victim: &Victim) -> serde_json::Value {
    let answer = json(&[what, "--budget", "100%", &victim.id()]);
    answer["processes"][0].clone()
}

/// Promotes and demotes: nothing is lost, no process grows, and the reports match the kernel.
fn there_and_back(test: &str, kind: &str) {
    let Some(host) = Host::new(test) else {
        return;
    };
    if kind != "private" && forbidden() {
        return crate::not_run(test, "shmem_enabled is deny");
    }
    let mut victim = Victim::start();
    let range = victim.map("a", kind, PAGES * host.huge, host.huge);
    victim.tell("small a");
    let before = resident(&victim);
    assert_eq!(huge(&victim, range), 0, "it begins on base pages");

    let promoted = run("promote", &victim);
    assert_eq!(huge(&victim, range), PAGES * host.huge, "{promoted:#}");
    assert!(promoted["done_bytes"].as_u64().unwrap() >= PAGES * host.huge);
    assert!(resident(&victim) <= before, "{before}: {promoted:#}");
    victim.tell("check a");

    let demoted = run("demote", &victim);
    assert_eq!(huge(&victim, range), 0, "{demoted:#}");
    assert!(
        demoted["done_bytes"].as_u64().unwrap() >= PAGES * host.huge,
        "{demoted:#}"
    );
    victim.tell("check a");
    assert!(resident(&victim) <= before, "{before}: {demoted:#}");

    let again = run("promote", &victim);
    assert_eq!(huge(&victim, range), PAGES * host.huge, "{again:#}");
    victim.tell("check a");
}

#[test]
fn promote_and_demote_private_memory() {
    there_and_back("promote_and_demote_private_memory", "private");
}

#[test]
fn promote_and_demote_shared_memory() {
    there_and_back("promote_and_demote_shared_memory", "shared");
}

#[test]
fn promote_and_demote_a_memfd() {
    there_and_back("promote_and_demote_a_memfd", "memfd");
}

#[test]
fn promote_and_demote_a_sysv_segment() {
    there_and_back("promote_and_demote_a_sysv_segment", "sysv");
}

#[test]
fn promote_and_demote_a_file_on_tmpfs() {
    let test = "promote_and_demote_a_file_on_tmpfs";
    let path = format!("/dev/shm/hugeleaf-every-host-{}", std::process::id());
    if !text("/proc/self/mounts").contains(" /dev/shm tmpfs") {
        return crate::not_run(test, "needs a tmpfs at /dev/shm");
    }
    there_and_back(test, &format!("file:{path}"));
    let _ = std::fs::remove_file(path);
}

/// One promotion is effective for all processes that share the memory.
#[test]
fn promote_memory_shared_by_four_processes() {
    let test = "promote_memory_shared_by_four_processes";
    let Some(host) = Host::new(test) else {
        return;
    };
    if forbidden() {
        return crate::not_run(test, "shmem_enabled is deny");
    }
    let mut victim = Victim::start();
    let range = victim.map("a", "shared", PAGES * host.huge, host.huge);
    victim.tell("small a");
    let children: Vec<u32> = (0..3)
        .map(|_| victim.tell("fork a").parse().unwrap())
        .collect();
    let answer = json(&[
        "promote",
        "--budget",
        "100%",
        &format!("tree:{}", victim.pid()),
    ]);
    for pid in children.iter().copied().chain([victim.pid()]) {
        let huge = inside(pid, range, |m| m.huge());
        assert_eq!(huge, PAGES * host.huge, "{pid}: {answer:#}");
    }
    // The totals by role match the totals of the process.
    for process in answer["processes"].as_array().unwrap() {
        let roles = process["roles"].as_array();
        let sum: u64 = roles
            .into_iter()
            .flatten()
            .map(|r| r["done_bytes"].as_u64().unwrap())
            .sum();
        assert_eq!(process["done_bytes"], sum, "{process:#}");
    }
    victim.tell("check a");
}

/// Memory that a forked child shares copy-on-write is skipped: its promotion would cost memory.
#[test]
fn promote_skips_copy_on_write_memory() {
    let test = "promote_skips_copy_on_write_memory";
    let Some(host) = Host::new(test) else {
        return;
    };
    let mut victim = Victim::start();
    let range = victim.map("a", "private", PAGES * host.huge, host.huge);
    victim.tell("small a");
    victim.tell("fork");
    let answer = run("promote", &victim);
    assert_eq!(huge(&victim, range), 0, "{answer:#}");
    let shared = inside(victim.pid(), range, |m| {
        m.get("Shared_Dirty") + m.get("Shared_Clean")
    });
    assert_eq!(shared, PAGES * host.huge, "still one copy");
}

/// Partly resident memory is not filled up unless requested.
#[test]
fn promote_skips_partly_resident_blocks() {
    let test = "promote_skips_partly_resident_blocks";
    let Some(host) = Host::new(test) else {
        return;
    };
    let mut victim = Victim::start();
    let whole = victim.map("a", "private", 3 * host.huge, host.huge);
    victim.tell("small a");
    let half = victim.map("b", "private", host.huge, host.huge);
    victim.tell("half b");
    let before = resident(&victim);
    let answer = run("promote", &victim);
    assert_eq!(huge(&victim, whole), 3 * host.huge, "{answer:#}");
    assert_eq!(huge(&victim, half), 0, "{answer:#}");
    assert!(resident(&victim) <= before, "{before}: {answer:#}");
}
