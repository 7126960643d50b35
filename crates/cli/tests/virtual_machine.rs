//! Tests `mem`, `promote` and `demote` on QEMU, whose guest does not run: the test writes its memory over the qtest protocol.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use hugeleaf_sys::Kernel;
use hugeleaf_testkit::find_program;
use hugeleaf_testkit::host_lock::{self, ExclusiveHost};
use serde_json::Value;

use crate::common::{answered, good, not_run, run, wait_until};

const M: u64 = 1 << 20;
const QEMU: &str = "qemu-system-x86_64";
const KSM: &str = "/sys/kernel/mm/ksm";
/// Start of the guest memory that tests write, above the firmware's.
const FILLED_FROM: u64 = 16 * M;
const PAGE: u64 = 4096;

/// Holds the host alone, with THP off, so that guest memory starts on base pages: QEMU advises huge pages for it.
fn can_run(test: &str) -> Option<ExclusiveHost> {
    if find_program(&[QEMU]).is_none() {
        not_run(test, "needs qemu-system-x86_64");
        return None;
    }
    if !Kernel::new().supports_collapse() {
        not_run(test, "needs MADV_COLLAPSE, Linux 6.1");
        return None;
    }
    let host = host_lock::alone_as_root(test)?;
    host.choose("enabled", "never");
    Some(host)
}

/// A virtual machine with 256M of RAM that is never started. It ends with its standard input.
struct Guest {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Guest {
    fn start(backend: &str) -> Guest {
        let mut process = Command::new(QEMU)
            .args(["-accel", "tcg", "-S", "-nodefaults", "-display", "none"])
            .args(["-qtest", "stdio", "-qtest-log", "none", "-m", "256M"])
            .args(["-machine", "pc,memory-backend=ram0", "-object"])
            .arg(format!("{backend},id=ram0,size=256M"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let commands = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Guest {
            process,
            commands,
            answers,
        }
    }

    fn pid(&self) -> String {
        self.process.id().to_string()
    }

    /// Runs commands of the qtest protocol (qemu, docs/devel/testing/qtest.rst).
    fn tell(&mut self, commands: &[String]) {
        for command in commands {
            writeln!(self.commands, "{command}").unwrap();
            let mut answer = String::new();
            self.answers.read_line(&mut answer).unwrap();
            assert!(answer.starts_with("OK"), "{command}: {answer}");
        }
    }

    /// Fills guest memory from [`FILLED_FROM`] on with pages of equal content.
    fn fill(&mut self, mib: u64) {
        let bytes = mib * M;
        self.tell(&[format!("memset {FILLED_FROM:#x} {bytes:#x} 0x5a")]);
    }

    /// Makes the first `mib` of the filled memory differ from page to page.
    fn number_pages(&mut self, mib: u64) {
        let pages = 0..mib * M / PAGE;
        let write = |n: u64| format!("writeq {:#x} {:#x}", FILLED_FROM + n * PAGE, n + 1);
        self.tell(&pages.map(write).collect::<Vec<_>>());
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&answered(&run(arguments))).unwrap()
}

/// Returns the memory on huge pages as `mem` counts it.
fn huge_in_mem(pid: &str) -> u64 {
    let answer = json(&["mem", "--json", pid]);
    let sizes = answer["totals"]["by_page_size"].as_array().unwrap();
    let huge = sizes.iter().filter(|size| size["kind"] != "base");
    huge.map(|size| size["bytes"].as_u64().unwrap()).sum()
}

/// Returns the lines of `mem` for guest RAM, and its segments in JSON.
fn guest_ram(pid: &str) -> (String, Vec<Value>) {
    let text = good(&run(&["mem", pid]));
    let lines = text.lines().filter(|line| line.contains("guest RAM"));
    let answer = json(&["mem", "--json", pid]);
    let segments = answer["processes"][0]["segments"].as_array().unwrap();
    let ram = segments.iter().filter(|s| s.get("guest_ram").is_some());
    (lines.collect(), ram.cloned().collect())
}

/// Half of the RAM was never touched: it is not resident, so it does not count.
#[test]
fn a_guest_is_promoted_and_demoted() {
    let Some(_host) = can_run("a_guest_is_promoted_and_demoted") else {
        return;
    };
    let mut guest = Guest::start("memory-backend-ram");
    guest.fill(128);
    let pid = guest.pid();
    let (line, ram) = guest_ram(&pid);
    assert!(line.contains("guest RAM ram0"), "{line}");
    assert_eq!(ram.len(), 1, "{ram:#?}");
    assert_eq!(ram[0]["guest_ram"]["backend"], "ram0");
    let why = answered(&run(&["why", &pid]));
    assert!(why.contains("guest RAM ram0"), "{why}");

    let answer = json(&[
        "promote",
        "--budget",
        "100%",
        "--at-least",
        "95%",
        "--json",
        &pid,
    ]);
    let number = |name: &str| {
        answer[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {answer:#}"))
    };
    assert_eq!(
        (&answer["at_least"], &answer["reached"]),
        (&0.95.into(), &true.into()),
        "{answer:#}"
    );
    assert!(number("huge_bytes") >= 126 * M, "{answer:#}");
    assert!(number("eligible_bytes") < 160 * M, "{answer:#}");
    // One figure: the same as in `mem`.
    assert_eq!(number("huge_bytes"), huge_in_mem(&pid), "{answer:#}");

    let text = good(&run(&["promote", "--at-least", "95%", &pid]));
    assert!(text.starts_with("nothing left to promote"), "{text}");
    assert!(text.contains(" 95% reached: "), "{text}");

    let text = good(&run(&["demote", &pid]));
    assert!(text.starts_with("demoted all"), "{text}");
    assert!(huge_in_mem(&pid) < 4 * M);
    good(&run(&[
        "promote",
        "--budget",
        "100%",
        "--at-least",
        "95%",
        &pid,
    ]));
}

#[test]
fn shared_guest_ram_is_recognised() {
    let Some(_host) = can_run("shared_guest_ram_is_recognised") else {
        return;
    };
    for backend in ["memory-backend-memfd", "memory-backend-ram,share=on"] {
        let mut guest = Guest::start(backend);
        guest.fill(8);
        let (line, ram) = guest_ram(&guest.pid());
        assert!(line.contains("guest RAM ram0"), "{backend}: {line}");
        assert_eq!(ram.len(), 1, "{backend}: {ram:#?}");
    }
}

/// ksmd merges equal pages of a guest, and merged pages stay on base pages.
#[test]
fn merged_memory_of_a_guest_misses_the_share() {
    const TEST: &str = "merged_memory_of_a_guest_misses_the_share";
    if !std::path::Path::new(KSM).exists() {
        return not_run(TEST, "needs KSM");
    }
    let Some(host) = can_run(TEST) else { return };
    let mut guest = Guest::start("memory-backend-ram");
    guest.fill(64);
    guest.number_pages(32);
    let pid = guest.pid();
    let promote = ["promote", "--budget", "100%", "--at-least", "95%", &pid];
    for (knob, value) in [
        ("pages_to_scan", "20000"),
        ("sleep_millisecs", "20"),
        ("run", "1"),
    ] {
        host.set(format!("{KSM}/{knob}"), value);
    }
    let rollup = format!("/proc/{pid}/smaps_rollup");
    wait_until("ksmd to merge the equal half", || {
        let text = std::fs::read_to_string(&rollup).unwrap();
        let merged = text.lines().find_map(|line| line.strip_prefix("KSM:"));
        let Some(merged) = merged else {
            // Before Linux 6.7.
            return std::fs::read_to_string(format!("{KSM}/pages_sharing"))
                .unwrap()
                .trim()
                > "0";
        };
        let kb: u64 = merged.trim().trim_end_matches(" kB").parse().unwrap();
        kb * 1024 >= 31 * M
    });
    let missed = run(&promote);
    let text = answered(&missed);
    assert_eq!(missed.status.code(), Some(1), "{text}");
    assert!(text.contains(" 95% missed: "), "{text}");
    assert!(text.contains("KSM runs on this host"), "{text}");
    let answer = json(&["promote", "--json", "--at-least", "95%", &pid]);
    assert_eq!(answer["reached"], false, "{answer:#}");
    // The equal half, as the process maps it: KSM keeps one copy of it.
    let left_out = answer["totals"]["left_out"].as_array().unwrap();
    let merged = left_out.iter().find(|part| part["reason"] == "ksm-merged");
    let merged = merged.and_then(|part| part["bytes"].as_u64()).unwrap();
    assert!((28 * M..40 * M).contains(&merged), "{answer:#}");
    let huge = huge_in_mem(&pid);
    assert!((28 * M..40 * M).contains(&huge), "{huge}");

    // 2 separates what was merged.
    host.set(format!("{KSM}/run"), "2");
    let text = good(&run(&promote));
    assert!(text.contains(" 95% reached: "), "{text}");
    assert!(!text.contains("KSM runs"), "{text}");
    good(&run(&["demote", &pid]));
    good(&run(&promote));
}
