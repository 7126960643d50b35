//! Output of `why` on base-page memory although THP is on, and on advice of the program itself.

use serde_json::Value;

use crate::capture::capture;
use crate::host::Host;
use crate::kernel::inside;
use crate::verdicts::judged;
use crate::victim::Victim;
use crate::{json, not_run};

const PAGES: u64 = 4;
const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

/// Returns a host with THP on for all memory, like Debian's, and khugepaged asleep during a test.
fn always(test: &str) -> Option<Host> {
    let mut host = Host::new(test)?;
    let size = format!("{FOLDER}/hugepages-{}kB/enabled", host.huge / 1024);
    host.set(&size, "inherit");
    let is_set = host.set(
        &format!("{FOLDER}/khugepaged/scan_sleep_millisecs"),
        "3600000",
    ) && host.set(&format!("{FOLDER}/enabled"), "always");
    if !is_set {
        not_run(test, "needs to write the settings of THP");
        return None;
    }
    Some(host)
}

fn promote(victim: &Victim) -> Value {
    let answer = json(&["promote", "--budget", "100%", &victim.id()]);
    answer["processes"][0].clone()
}

/// No verdict advises to enable an enabled setting; the time until khugepaged is a figure.
#[test]
fn why_names_khugepaged_for_base_pages_under_thp_always() {
    let test = "why_names_khugepaged_for_base_pages_under_thp_always";
    let Some(host) = always(test) else {
        return;
    };
    let mut victim = Victim::start();
    let range = victim.map("a", "private", PAGES * host.huge, host.huge);
    victim.tell("small a");
    let reported = judged(&victim, range);
    assert_eq!(reported.len(), 1, "{reported:#?}");
    assert_eq!(reported[0]["id"], "small-steps", "{reported:#?}");
    capture("small-steps", &[victim.pid()]);
    let text = reported[0]["text"].as_str().unwrap();
    assert!(text.contains("THP is on"), "{text}");
    assert!(
        text.contains("khugepaged") && text.contains("takes up to"),
        "{text}"
    );
    let command = reported[0]["command"].as_str().unwrap();
    assert_eq!(command, format!("hugeleaf promote {}", victim.pid()));
    // As root, everything about it is readable.
    let promoted = promote(&victim);
    assert_eq!(inside(victim.pid(), range, |m| m.huge()), PAGES * host.huge);
    for part in promoted["left_out"].as_array().into_iter().flatten() {
        assert_ne!(part["reason"], "exclusive-unknown", "{promoted:#}");
    }
}

#[test]
fn promote_in_a_process_with_thp_for_advised_memory_only() {
    let test = "promote_in_a_process_with_thp_for_advised_memory_only";
    let Some(host) = always(test) else {
        return;
    };
    let mut victim = Victim::start();
    let range = victim.map("a", "private", PAGES * host.huge, host.huge);
    if victim.try_tell("advised-only a").is_err() {
        return not_run(test, "needs PR_THP_DISABLE_EXCEPT_ADVISED (Linux 6.18)");
    }
    victim.tell("touch a");
    assert_eq!(inside(victim.pid(), range, |m| m.huge()), 0);
    let reported = judged(&victim, range);
    assert_eq!(reported.len(), 1, "{reported:#?}");
    assert_eq!(reported[0]["id"], "process-unless-advised", "{reported:#?}");
    let promoted = promote(&victim);
    let huge = inside(victim.pid(), range, |m| m.huge());
    assert_eq!(huge, PAGES * host.huge, "{promoted:#}");
}

/// Kernels that collapse files of ordinary file systems, also written ones, show this in smaps.
#[test]
fn promote_a_file_mapped_for_writing() {
    let test = "promote_a_file_mapped_for_writing";
    let Some(host) = always(test) else {
        return;
    };
    let path = format!("/var/tmp/hugeleaf-every-host-{}", std::process::id());
    let mut victim = Victim::start();
    let kind = format!("file:{path}");
    let range = victim.map("a", &kind, PAGES * host.huge, host.huge);
    let _ = std::fs::remove_file(&path);
    victim.tell("touch a");
    let eligible = inside(victim.pid(), range, |m| m.get("THPeligible")) > 0;
    if !eligible || inside(victim.pid(), range, |m| m.huge()) > 0 {
        return not_run(
            test,
            "needs a kernel that collapses files mapped for writing (Linux 7.2)",
        );
    }
    let reported = judged(&victim, range);
    assert!(
        reported.iter().all(|v| v["id"] == "file-not-collapsed") && !reported.is_empty(),
        "{reported:#?}"
    );
    let promoted = promote(&victim);
    let huge = inside(victim.pid(), range, |m| m.huge());
    assert_eq!(huge, PAGES * host.huge, "{promoted:#}");
    victim.tell("check a");
}
