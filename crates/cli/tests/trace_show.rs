//! Tests `hugeleaf trace show` and `diff` on generated and captured traces, and on invalid files.

use std::path::{Path, PathBuf};

use crate::common::{good, refused, repository, run, stderr, stdout};
use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{
    CpuMode, EventSource, Interval, Lock, LockAction, LockCaller, LockEvent, LockKind, LockThread,
    LockTotals, Stack, StackSample, Symbol, TracedHost, TracedProcess, TracedTarget,
};
use hugeleaf_trace::write_trace;
use serde_json::Value;

/// Returns a trace of a program on another machine whose threads wait for each other at one lock.
fn made() -> Trace {
    let symbol = |name: &str, kernel| Symbol {
        name: name.to_owned(),
        module: if kernel { "[kernel]" } else { "/opt/mover" }.to_owned(),
        kernel,
        unnamed: false,
    };
    let sample = |mode, stack, count| StackSample {
        process: 0,
        tid: 71,
        stack,
        mode,
        count,
    };
    Trace {
        schema: hugeleaf_trace::model::SCHEMA,
        seconds: 4.0,
        asked_seconds: 4.0,
        samples_a_second: 100.0,
        sampled_by: "cpu-clock".to_owned(),
        host: TracedHost {
            name: "elsewhere".to_owned(),
            kernel: "5.10.0".to_owned(),
            arch: "s390x".to_owned(),
            cpus: 64,
            ..TracedHost::default()
        },
        target: Some(TracedTarget {
            text: "mover".to_owned(),
            pids: vec![70],
        }),
        processes: vec![TracedProcess {
            pid: 70,
            name: "mover".to_owned(),
            in_target: true,
            user_seconds: Some(1.0),
            system_seconds: Some(3.0),
            ..TracedProcess::default()
        }],
        intervals: vec![interval(0.0), interval(1.0)],
        symbols: vec![symbol("mlock_pte_range", true), symbol("checksum", false)],
        stacks: vec![Stack { frames: vec![0, 1] }, Stack { frames: vec![1] }],
        samples: vec![
            sample(CpuMode::Kernel, 0, 300),
            sample(CpuMode::User, 1, 100),
        ],
        locks: vec![lock()],
        ..Trace::default()
    }
}

fn interval(at_seconds: f64) -> Interval {
    Interval {
        at_seconds,
        seconds: 1.0,
        user_seconds: 1.0,
        system_seconds: 3.0,
        idle_seconds: 60.0,
        ..Interval::default()
    }
}

fn lock() -> Lock {
    let totals = LockTotals {
        contentions: 40,
        waited_nanos: 4_000_000_000,
        longest_nanos: 200_000_000,
    };
    let event = |number: u64| LockEvent {
        at_nanos: number * 1000,
        tid: 71 + u32::try_from(number % 2).unwrap(),
        what: LockAction::Got,
        waited_nanos: 1000,
        ..LockEvent::default()
    };
    Lock {
        address: 0xffff_1000,
        kind: LockKind::Spin,
        taken_by: Some(0),
        totals,
        by_caller: vec![LockCaller {
            stack: 0,
            function: Some(0),
            kind: LockKind::Spin,
            totals,
        }],
        by_thread: vec![LockThread {
            process: 0,
            tid: 71,
            totals,
        }],
        events: (0..8).map(event).collect(),
        ..Lock::default()
    }
}

/// Creates a folder with one trace, `t.trace`.
fn folder(trace: &Trace) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.trace");
    write_trace(&path, trace).unwrap();
    let name = path.to_str().unwrap().to_owned();
    (dir, name)
}

fn show(args: &[&str]) -> std::process::Output {
    run(&[&["trace", "show"], args].concat())
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&good(&show(&[args, &["--json"]].concat()))).unwrap()
}

#[test]
fn the_screen_replays_on_any_machine() {
    let (_dir, file) = folder(&made());
    // The root does not exist, so any access to the host would fail.
    let text = good(&run(&["--root", "/nowhere", "trace", "show", &file]));
    for part in [
        "mover, 4.0 s",
        "elsewhere 5.10.0 s390x",
        "mlock_pte_range",
        "×3.00",
        "Findings",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    // Commands name the file that was shown.
    assert!(
        text.contains(&format!("hugeleaf trace show {file} --lock 0xffff1000")),
        "{text}"
    );
}

#[test]
fn sections_are_chosen_by_name() {
    let (_dir, file) = folder(&made());
    let text = good(&show(&[&file, "--section", "locks,intervals"]));
    assert!(text.contains("Lock contention") && text.contains("Intervals"));
    assert!(
        !text.contains("by process") && !text.contains("Findings"),
        "{text}"
    );
    let all = good(&show(&[&file, "--all"]));
    for part in ["by process", "Counters of the CPU", "Findings"] {
        assert!(all.contains(part), "{part}");
    }
    let said = refused(&show(&[&file, "--section", "nonsense"]), 2, &["nonsense"]);
    assert!(said.contains("lock-callers"), "{said}");
}

#[test]
fn one_lock_shows_threads_taking_turns() {
    let (_dir, file) = folder(&made());
    for name in ["0xffff1000", "mlock_pte_range"] {
        let text = good(&show(&[&file, "--lock", name]));
        assert!(text.contains("2 threads take turns: 7 of 7"), "{text}");
        assert_eq!(text.matches("GOT").count(), 8, "{text}");
    }
    refused(
        &show(&[&file, "--lock", "mmap_lock"]),
        1,
        &["waited for a lock 'mmap_lock'", "--section locks --all"],
    );
    let value = json(&[&file, "--lock", "ffff1000"]);
    assert_eq!(value["locks"][0]["events"].as_array().unwrap().len(), 8);
    let text = good(&show(&[&file, "--callers", "mlock_pte_range"]));
    assert!(text.contains("mlock_pte_range < checksum"), "{text}");
    refused(&show(&[&file, "--callers", "nobody"]), 1, &["'nobody'"]);
}

#[test]
fn json_is_the_contract() {
    let (_dir, file) = folder(&made());
    let value = json(&[&file]);
    assert_eq!(value["schema"], 2);
    assert_eq!(value["trace"]["host"]["cpus"], 64);
    assert_eq!(value["profile"]["target_functions"][0]["share"], 0.75);
    assert_eq!(value["locks"]["locks"][0]["contentions"], 40);
    let ids: Vec<&str> = value["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["id"].as_str().unwrap())
        .collect();
    assert!(
        ids.contains(&"pin-locking") && ids.contains(&"page-locks"),
        "{ids:?}"
    );
    // Every field of the answer is named in the reference.
    let reference = std::fs::read_to_string(repository().join("docs/reference/json.md")).unwrap();
    let section = reference
        .split("\n## ")
        .find(|s| s.starts_with("`hugeleaf trace --json`"));
    let section = section.unwrap();
    let mut names = Vec::new();
    keys(&value, &mut names);
    for name in names {
        let is_common = [
            "schema",
            "page_bytes",
            "kind",
            "bytes",
            "severity",
            "text",
            "command",
        ];
        let known = is_common.contains(&name.as_str()) || section.contains(&format!("`{name}"));
        assert!(known, "json.md does not speak of {name}");
    }
}

fn keys(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| {
            names.push(name.clone());
            keys(value, names);
        }),
        Value::Array(list) => list.iter().for_each(|value| keys(value, names)),
        _ => {}
    }
}

#[test]
fn a_page_stands_by_itself() {
    let (dir, file) = folder(&made());
    let page = dir.path().join("t.html");
    let output = show(&[&file, "--html", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("page: "));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("<svg") && !text.contains("could not be drawn"));
    assert!(!text.contains("<script") && !text.contains("src="));
    let nowhere = dir.path().join("no/such/folder.html");
    let output = show(&[&file, "--html", nowhere.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    // The screen was printed; only the page failed.
    assert!(stdout(&output).contains("Findings"));
}

#[test]
fn a_flame_graph_is_a_file_by_itself() {
    let mut trace = made();
    trace.symbols[0].name = "<script>alert(1)</script>;\u{1b}".to_owned();
    let (dir, file) = folder(&trace);
    let path = dir.path().join("t.svg");
    let path = path.to_str().unwrap();
    let output = show(&[&file, "--flame-graph", path]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("flame graph: "));
    let svg = std::fs::read_to_string(path).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.contains("checksum (400 samples, 100.00%)"),
        "{svg}"
    );
    assert!(!svg.contains("<script") && !svg.contains('\u{1b}'));
    let (_dir, file) = folder(&Trace::default());
    refused(
        &show(&[&file, "--flame-graph", path]),
        1,
        &["no CPU samples", "--section sources"],
    );
    refused(
        &show(&[&file, "--flame-graph", "/nowhere/t.svg"]),
        1,
        &["no CPU samples"],
    );
}

#[test]
fn a_trace_with_nothing_in_it_is_shown() {
    let (dir, file) = folder(&Trace::default());
    let text = good(&show(&[&file]));
    // Missing data does not mean a value of zero.
    assert!(
        text.contains("not measured: this trace has no record of it"),
        "{text}"
    );
    for claim in ["no samples", "no thread waited", "none on this host"] {
        assert!(!good(&show(&[&file, "--all"])).contains(claim), "{claim}");
    }
    let answer = json(&[&file]);
    for part in [
        "cpu", "profile", "locks", "faults", "pages", "io", "memory", "pins",
    ] {
        assert!(
            answer[part].is_null() && answer[format!("{part}_error")].is_string(),
            "{part}"
        );
    }
    let page = dir.path().join("t.html");
    let output = show(&[&file, "--html", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let text = good(&run(&["trace", "diff", &file, &file]));
    assert!(text.contains("none in either"), "{text}");
}

#[test]
fn lost_events_make_a_statement_unsafe() {
    let mut trace = made();
    trace.sources.push(EventSource {
        name: "lock contention".to_owned(),
        events: 900,
        lost: 100,
        ..EventSource::default()
    });
    let (_dir, file) = folder(&trace);
    let text = good(&show(&[&file, "--section", "findings,sources"]));
    assert!(text.contains("100 of 1000 lost, 10 %"), "{text}");
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn files_that_are_no_traces_are_refused() {
    let (dir, file) = folder(&made());
    let whole = std::fs::read(&file).unwrap();
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("empty", Vec::new(), "not a trace"),
        ("foreign", b"{\"schema\": 1}\n".to_vec(), "not a trace"),
        ("cut", whole[..whole.len() - 20].to_vec(), "cut off"),
        (
            "newer",
            [b"hugeleaf trace 3\n", &whole[17..]].concat(),
            "schema 3",
        ),
        (
            "older",
            [b"hugeleaf trace 1\n", &whole[17..]].concat(),
            "schema 1",
        ),
        ("head", b"hugeleaf trace 2\n".to_vec(), "cut off"),
    ];
    for (name, bytes, said) in cases {
        let bad = write(dir.path(), name, &bytes);
        refused(&show(&[&bad]), 3, &[&bad, said]);
        refused(&run(&["trace", "diff", &file, &bad]), 3, &[&bad, said]);
    }
    let missing = dir.path().join("missing");
    refused(&show(&[missing.to_str().unwrap()]), 3, &["No such file"]);
}

/// Captured with `hugeleaf trace` on a real host: see fixtures/README.md.
fn captured(name: &str) -> String {
    let path: PathBuf = repository().join("fixtures/traces").join(name);
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_captured_case_shows_the_cause_and_the_cure() {
    let (base, large) = (captured("lock-base.trace"), captured("lock-hugetlb.trace"));
    let ids = |file: &str| -> Vec<String> {
        let value = json(&[file]);
        let findings = value["findings"].as_array().unwrap().iter();
        findings
            .map(|f| f["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(
        ids(&base).contains(&"pin-locking".to_owned()),
        "{:?}",
        ids(&base)
    );
    assert!(
        !ids(&large).contains(&"pin-locking".to_owned()),
        "{:?}",
        ids(&large)
    );
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("case.html");
    let output = run(&[
        "trace",
        "diff",
        &base,
        &large,
        "--html",
        page.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["system over user", "hugetlb", "pin-locking"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.matches("<svg").count() >= 4 && !page.contains("could not be drawn"));
    let value: Value =
        serde_json::from_str(&good(&run(&["trace", "diff", &base, &large, "--json"]))).unwrap();
    let over = |side: &str| {
        value[side]["cpu"]["target"]["system_over_user"]
            .as_f64()
            .unwrap()
    };
    assert!(over("before") > over("after"), "{value}");
}

/// The guide's output equals the printed output, so it cannot become outdated.
#[test]
fn the_guide_shows_what_is_printed() {
    let guide = std::fs::read_to_string(repository().join("docs/guide/trace.md")).unwrap();
    let said = |args: &[&str]| {
        let mut command = crate::common::hugeleaf(args);
        command.current_dir(repository().join("fixtures/traces"));
        good(&command.output().unwrap())
    };
    for args in [
        &["trace", "show", "lock-base.trace"][..],
        &["trace", "diff", "lock-base.trace", "lock-hugetlb.trace"],
    ] {
        let text = said(args);
        assert!(
            guide.contains(&text),
            "the guide does not show this:\n{text}"
        );
    }
    // The guide shows only some lines of the event list.
    let lock = "__x64_sys_munlock";
    let text = said(&["trace", "show", "lock-base.trace", "--lock", lock]);
    let block = guide.split("some lines left out:").nth(1).unwrap();
    let block = block.split("```").nth(1).unwrap();
    for line in block.lines() {
        assert!(text.contains(line), "not printed: {line}");
    }
}
