//! Tests `hugeleaf why` on captured hosts, and on programs that each have one obstacle.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap().to_owned()
}

fn hugeleaf(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hugeleaf"))
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Compares with the committed text; `HUGELEAF_BLESS=1` rewrites it.
fn compare(path: &Path, got: &str) {
    if std::env::var_os("HUGELEAF_BLESS").is_some() {
        std::fs::write(path, got).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(got == expected, "{} differs; got:\n{got}", path.display());
}

fn captured_hosts() -> Vec<PathBuf> {
    let folder = repository().join("fixtures/why");
    let mut hosts: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    hosts.sort();
    hosts
}

#[test]
fn captured_hosts_answer_as_committed() {
    let hosts = captured_hosts();
    assert!(hosts.len() >= 12, "{hosts:?}");
    for host in hosts {
        let question = std::fs::read_to_string(host.join("question")).unwrap();
        let mut args: Vec<&str> = question.split_whitespace().collect();
        let root = host.to_str().unwrap();
        args.extend(["--root", root]);
        let text = hugeleaf(&args);
        assert!(text.stderr.is_empty(), "{text:?}");
        let status = text.status.code().unwrap();
        let answer = String::from_utf8(text.stdout).unwrap();
        for line in answer.lines() {
            let command = line.trim_start().starts_with("next: ");
            assert!(command || line.chars().count() <= 100, "{line}");
        }
        compare(
            &host.join("answer.txt"),
            &format!("{answer}exit status {status}\n"),
        );
        args.push("--json");
        let json = hugeleaf(&args);
        assert_eq!(json.status.code(), Some(status), "{root}");
        compare(
            &host.join("answer.json"),
            &String::from_utf8(json.stdout).unwrap(),
        );
    }
}

#[test]
fn json_adds_up_on_captured_hosts() {
    for host in captured_hosts() {
        let text = std::fs::read_to_string(host.join("answer.json")).unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["schema"], 2);
        for process in answer["processes"].as_array().unwrap() {
            let verdicts = process["verdicts"].as_array().unwrap();
            let judged: u64 = verdicts.iter().map(|v| v["bytes"].as_u64().unwrap()).sum();
            let number = |name: &str| process[name].as_u64().unwrap();
            assert_eq!(
                judged + number("huge_bytes") + number("too_small_bytes"),
                number("resident_bytes"),
                "{}: {}",
                host.display(),
                process["pid"]
            );
        }
        let lines = answer["summary"].as_array().unwrap();
        let summed: u64 = lines.iter().map(|l| l["bytes"].as_u64().unwrap()).sum();
        let total = |name: &str| answer["totals"][name].as_u64().unwrap();
        assert_eq!(
            summed + total("huge_bytes") + total("too_small_bytes"),
            total("resident_bytes")
        );
    }
}

#[test]
fn every_row_is_shown_with_all() {
    let host = repository().join("fixtures/why/excluded");
    let root = host.to_str().unwrap();
    let short = String::from_utf8(hugeleaf(&["why", "1000", "--root", root]).stdout).unwrap();
    let long =
        String::from_utf8(hugeleaf(&["why", "1000", "--all", "--root", root]).stdout).unwrap();
    let stacks = |text: &str| text.matches("thread stack  thread-stack").count();
    assert_eq!((stacks(&short), stacks(&long)), (1, 12));
    assert!(short.contains("(--all)") && !long.contains("(--all)"));
}

#[test]
fn nobody_and_nothing() {
    let missing = hugeleaf(&["why"]);
    assert_eq!(missing.status.code(), Some(2));
    let nobody = hugeleaf(&["why", "no-such-program-here"]);
    assert_eq!(nobody.status.code(), Some(3));
    let text = String::from_utf8(nobody.stderr).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
}

/// A running program with one obstacle.
struct Victim {
    child: Child,
    start: u64,
    len: u64,
    other: u64,
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.child.stdin.take()); // It exits when its input closes, and ends its own child.
        let _ = self.child.wait();
    }
}

impl Victim {
    fn start(program: &Path, huge: u64, why: &str) -> Victim {
        let mut child = Command::new(program)
            .args([why, &huge.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let numbers: Vec<u64> = line
            .split_whitespace()
            .map(|n| u64::from_str_radix(n, 16).unwrap())
            .collect();
        assert_eq!(numbers.len(), 3, "{why}: '{line}'");
        Victim {
            child,
            start: numbers[0],
            len: numbers[1],
            other: numbers[2],
        }
    }

    /// Returns id, bytes and text of the verdicts on its memory, and the exit status.
    fn verdicts(&self) -> (Vec<(String, u64, String)>, Option<i32>) {
        let pid = self.child.id().to_string();
        let output = hugeleaf(&["why", &pid, "--json"]);
        let answer: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        let verdicts = answer["processes"][0]["verdicts"].as_array().unwrap();
        let inside = |v: &&Value| {
            let (start, end) = (v["start"].as_u64().unwrap(), v["end"].as_u64().unwrap());
            start < self.start + self.len && self.start < end
        };
        let reported = verdicts.iter().filter(inside).map(|v| {
            let word = |name: &str| v[name].as_str().unwrap().to_owned();
            (word("id"), v["bytes"].as_u64().unwrap(), word("text"))
        });
        (reported.collect(), output.status.code())
    }
}

/// Returns the chosen word of a THP setting; `None` if the kernel has no THP.
fn setting(name: &str) -> Option<String> {
    let path = Path::new("/sys/kernel/mm/transparent_hugepage").join(name);
    let text = std::fs::read_to_string(path).ok()?;
    let chosen = text.split(['[', ']']).nth(1).unwrap_or(text.trim());
    Some(chosen.to_owned())
}

/// Returns the compiled program and the size of a huge page, or the reason for a failure.
fn victim_program(folder: &Path) -> Result<(PathBuf, u64), &'static str> {
    let huge = setting("hpage_pmd_size").and_then(|s| s.parse().ok());
    let huge = huge.ok_or("a kernel with transparent huge pages")?;
    let (source, program) = (
        repository().join("crates/cli/tests/why/victim.c"),
        folder.join("victim"),
    );
    let compiled = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    match compiled {
        Ok(status) if status.success() => Ok((program, huge)),
        Ok(status) => panic!("cc {}: {status}", source.display()),
        Err(_) => Err("a C compiler"),
    }
}

/// Returns the reason that a setting gives for promotable memory.
fn promotable(advised: bool) -> &'static str {
    let of_size = setting("hugepages-2048kB/enabled").filter(|v| v != "inherit");
    let knob = of_size.or_else(|| setting("enabled")).unwrap_or_default();
    match (knob.as_str(), advised) {
        ("never", _) => "thp-never",
        ("madvise", false) => "not-advised",
        _ => "small-steps",
    }
}

/// Returns the bytes that verdicts of one id cover.
fn bytes_of(reported: &[(String, u64, String)], id: &str) -> u64 {
    reported
        .iter()
        .filter(|(reported, ..)| reported == id)
        .map(|(_, bytes, _)| bytes)
        .sum()
}

#[test]
fn each_obstacle_is_told_on_a_running_program() {
    let folder = tempfile::tempdir().unwrap();
    let (program, huge) = match victim_program(folder.path()) {
        Ok(ready) => ready,
        Err(needs) => {
            println!("not run: each_obstacle_is_told_on_a_running_program: needs {needs}");
            return;
        }
    };
    let all = 8 * huge;
    // Case, id, minimum and maximum of bytes. khugepaged may run meanwhile: it scans at most half
    // of the memory of `advised-late` in a round.
    for (why, id, least, most) in [
        ("steps", promotable(false), all, all),
        ("advised-late", promotable(true), all / 2, all),
        ("nohuge", "no-huge-advised", all, all),
        ("disabled", "process-disabled", all, all),
        ("fork", "copy-on-write", all, all),
        ("holes", "partly-resident", all / 2, all),
        ("sparse", "sparse", 1, all / 64),
        ("lock", "locked", huge / 2, 2 * huge),
    ] {
        // khugepaged may take advised memory at any time. It wakes every 10 s, so at least one of a
        // few successive victims is examined before it runs.
        let mut tries = 0;
        let (victim, reported, status) = loop {
            let victim = Victim::start(&program, huge, why);
            let (reported, status) = victim.verdicts();
            tries += 1;
            if (least..=most).contains(&bytes_of(&reported, id)) || tries == 5 {
                break (victim, reported, status);
            }
        };
        let Some((_, _, text)) = reported.iter().find(|(reported, ..)| reported == id) else {
            panic!("{why}: no verdict {id}: {reported:?}");
        };
        let bytes = bytes_of(&reported, id);
        assert!(
            (least..=most).contains(&bytes),
            "{why}: {bytes}: {reported:?}"
        );
        // Memory that would have to grow does not cause status 1; other memory of the program may.
        if !["sparse", "partly-resident"].contains(&id) {
            assert_eq!(status, Some(1), "{why}");
        }
        if why == "fork" {
            assert!(text.contains(&format!("child {}", victim.other)), "{text}");
        }
    }
}

#[test]
fn a_memfd_at_an_address_that_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let Ok((program, huge)) = victim_program(folder.path()) else {
        println!("not run: a_memfd_at_an_address_that_does_not_fit: needs a C compiler and THP");
        return;
    };
    let victim = Victim::start(&program, huge, "memfd");
    let (reported, status) = victim.verdicts();
    assert_eq!((reported.len(), status), (1, Some(1)), "{reported:?}");
    // If another process filled a pool meanwhile, its pages are the shorter way.
    let ids = [
        "misaligned",
        "pool-short",
        "pool-unused",
        "cgroup-reservation",
        "cgroup-fault",
    ];
    assert!(ids.contains(&reported[0].0.as_str()), "{reported:?}");
    assert_eq!(reported[0].1, 8 * huge);
}

#[test]
fn a_thread_stack() {
    let folder = tempfile::tempdir().unwrap();
    let Ok((program, huge)) = victim_program(folder.path()) else {
        println!("not run: a_thread_stack: needs a C compiler and THP");
        return;
    };
    let victim = Victim::start(&program, huge, "thread");
    let (reported, _) = victim.verdicts();
    let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", victim.child.id())).unwrap();
    let excluded = smaps
        .lines()
        .any(|l| l.starts_with("VmFlags:") && l.contains(" nh"));
    if !excluded {
        println!("not run: a_thread_stack: needs a kernel that excludes them (6.7)");
        return;
    }
    let ids: Vec<&str> = reported.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(ids, ["thread-stack"], "{reported:?}");
    assert!(reported[0].1 >= 1 << 20, "{reported:?}");
}

/// `promote` promotes exactly the memory that `why` calls promotable; nothing remains afterwards.
#[test]
fn promote_gets_what_why_promises() {
    let name = "promote_gets_what_why_promises";
    let folder = tempfile::tempdir().unwrap();
    let Ok((program, huge)) = victim_program(folder.path()) else {
        println!("not run: {name}: needs a C compiler and THP");
        return;
    };
    let is_root = std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|s| s.lines().any(|l| l.starts_with("Uid:\t0\t")));
    if !is_root {
        println!("not run: {name}: needs root");
        return;
    }
    let victim = Victim::start(&program, huge, "steps");
    let (before, _) = victim.verdicts();
    assert_eq!(before[0].1, victim.len, "{before:?}");
    let pid = victim.child.id().to_string();
    let promoted = hugeleaf(&["promote", &pid, "--budget", "100%"]);
    assert!(
        promoted.status.code().is_some_and(|s| s <= 1),
        "{promoted:?}"
    );
    let (after, _) = victim.verdicts();
    assert!(after.is_empty(), "{after:?}");
}
