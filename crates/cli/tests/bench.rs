//! Tests `hugeleaf bench`: its results, its refusals, and the absence of leftover processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{
    ChildGuard, good, has_pool_in_use, hugeleaf, not_run, of_arm, refused, rows, run, samples,
    stderr, stdout, wait_until,
};
use crate::signals::catches;
use hugeleaf_host::{Host, Root, read_host};
use hugeleaf_proof::result_format::Results;
use hugeleaf_sys::Kernel;
use hugeleaf_testkit::host_lock::{ExclusiveHost, alone_as_root};
use hugeleaf_units::PageSize;
use serde_json::Value;

fn host() -> Host {
    read_host(&Root::live(), &Kernel::new()).unwrap()
}

/// Returns the bracketed word, or the whole line without brackets.
fn chosen(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let word = text.split(['[', ']']).nth(1).unwrap_or(&text);
    word.trim().to_owned()
}

fn pool(size: PageSize) -> PathBuf {
    let kib = size.bytes().get() / 1024;
    format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages").into()
}

/// Returns the default hugetlb size of this host, with a pool of `pages`.
fn with_pool(test: &str, pages: u64) -> Option<(ExclusiveHost, PageSize)> {
    let Some(size) = host().memory.default_hugetlb_page.get() else {
        not_run(test, "needs hugetlb");
        return None;
    };
    let guard = alone_as_root(test)?;
    if has_pool_in_use() {
        // Setting and restoring the pool would make surplus pages permanent.
        not_run(test, "somebody else uses pages of a pool");
        return None;
    }
    guard.set(pool(size), pages);
    if chosen(&pool(size)) != pages.to_string() {
        not_run(
            test,
            &format!("needs {pages} pages of {size} of contiguous memory"),
        );
        return None;
    }
    Some((guard, size))
}

/// Returns `hugeleaf bench …` in a separate folder.
fn bench_in(dir: &Path, args: &[&str]) -> Command {
    let mut command = hugeleaf(&[&["bench"], args].concat());
    command.current_dir(dir);
    command
}

fn bench(args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    bench_in(dir.path(), args).output().unwrap()
}

/// Returns the answer with `--json`, and the exit status.
fn json(args: &[&str]) -> (Value, i32) {
    let output = bench(&[args, &["--json"]].concat());
    let status = output.status.code().unwrap();
    let value = serde_json::from_str(&stdout(&output));
    (
        value.unwrap_or_else(|e| panic!("{e}: {}", stderr(&output))),
        status,
    )
}

const SHORT: [&str; 7] = [
    "chase", "--sizes", "64K,256K", "--for", "60ms", "--rounds", "6",
];

/// Quantity that `bench chase` measures.
const READ: &str = "dependent read";

#[test]
fn chase_answers_as_the_contract_says() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let (result, status) = json(&[&SHORT[..], &["--pages", "base", "--seed", "9"]].concat());
    assert_eq!(status, 0);
    assert_eq!(result["schema"], 2);
    assert_eq!(result["experiment"]["name"], "chase");
    let quantity = &rows(&result, "base", READ)[0]["quantity"];
    assert_eq!(
        (&quantity["unit"], &quantity["better"]),
        (&"ns".into(), &"lower".into())
    );
    assert_eq!(quantity["main"], true);
    assert_eq!(result["experiment"]["ending"], "done");
    assert_eq!(result["settings"]["seed"], 9);
    assert!(result["host"]["kernel"].is_string() && result["settings"]["knobs"].is_array());
    assert_eq!(result["command"][1], "bench");
    assert_eq!(result["arms"][0]["kind"], "base");
    let points = rows(&result, "base", READ);
    assert_eq!(points.len(), 2);
    let layouts = of_arm(&result, "layouts", "base");
    for (point, size) in points.into_iter().zip([64u64 << 10, 256 << 10]) {
        assert_eq!(point["at"]["working_set_bytes"], size);
        let samples = samples(point);
        assert_eq!(samples.len(), 6);
        assert!(samples.iter().all(|s| *s > 0.0));
        assert!(point["doubtful"].is_null(), "{point}");
        let is_after = |l: &&&Value| l["at"] == point["at"] && l["when"] == "after";
        let after = layouts.iter().find(is_after).unwrap();
        assert_eq!(after["pages"][0]["bytes"], size);
    }
}

#[test]
fn chase_writes_its_result_and_a_page() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let dir = tempfile::tempdir().unwrap();
    let args = [&SHORT[..], &["--pages", "base", "--html", "page.html"]].concat();
    let output = bench_in(dir.path(), &args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("chase at 256K: base "), "{text}");
    let said = stderr(&output);
    let written = said
        .lines()
        .find_map(|l| l.strip_prefix("result: "))
        .unwrap();
    assert!(written.starts_with("hugeleaf-bench-chase-"), "{said}");
    let result = std::fs::read_to_string(dir.path().join(written)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&result).unwrap()["schema"], 2);
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("could not be drawn"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn transparent_huge_pages_are_read_back() {
    const NAME: &str = "transparent_huge_pages_are_read_back";
    let Some(huge) = host().pmd_page.get() else {
        return not_run(NAME, "needs transparent huge pages");
    };
    let _guard = hugeleaf_testkit::host_lock::shared();
    let label = format!("thp:{huge}");
    let pages = format!("base,{label}");
    let (result, status) = json(&[&SHORT[..], &["--pages", &pages]].concat());
    if !of_arm(&result, "unavailable", &label).is_empty() {
        return not_run(NAME, "needs transparent huge pages that are not off");
    }
    assert_eq!(status, 0);
    let point = rows(&result, &label, READ)[1];
    assert!(point["doubtful"].is_null(), "{point}");
    assert_eq!(
        of_arm(&result, "layouts", &label)[0]["pages"][0]["kind"],
        "thp"
    );
    // Huge pages use the same rounds as base pages, so that they can be compared.
    let read: Results = serde_json::from_value(result.clone()).unwrap();
    let of = |arm: &str| {
        read.rows
            .iter()
            .rfind(|r| r.arm == arm && r.quantity.main)
            .unwrap()
    };
    let effect = of(&label).over(of("base")).unwrap();
    assert!(effect.ratio > 0.0 && effect.confidence == 0.95);
}

/// A size below the full one, enabled for the test; as root the report names the pages.
#[test]
fn smaller_transparent_pages_are_had_where_they_are_on_and_told_where_not() {
    const NAME: &str = "smaller_transparent_pages";
    let Some(guard) = alone_as_root(NAME) else {
        return;
    };
    let host = host();
    let orders = host.thp.known().map_or(&[][..], |thp| &thp.orders);
    let smaller = orders
        .iter()
        .find(|o| o.size.ratio_to(host.base_page) == 16 && o.anon.known().is_some());
    let Some(size) = smaller.map(|order| order.size) else {
        return not_run(NAME, "needs smaller transparent huge pages");
    };
    let folder = "/sys/kernel/mm/transparent_hugepage/hugepages";
    let knob = PathBuf::from(format!("{folder}-{}kB/enabled", size.bytes().get() / 1024));
    let label = format!("thp:{size}");
    let args = [
        &["chase", "--sizes", "4M", "--for", "20ms", "--rounds", "1"][..],
        &["--pages", &label],
    ];
    guard.set(&knob, "never");
    let output = bench(&args.concat());
    let said = refused(&output, 3, &[&label, "are off"]);
    assert!(
        said.contains(&format!("{}; madvise suffices", knob.display())),
        "{said}"
    );
    guard.set(&knob, "madvise");
    let (result, status) = json(&args.concat());
    assert_eq!(status, 0);
    let point = rows(&result, &label, READ)[0];
    assert!(point["doubtful"].is_null(), "{point}");
    let pages = &of_arm(&result, "layouts", &label)[0]["pages"];
    assert_eq!(pages[0]["page_bytes"], size.bytes().get());
    let caveats = result["caveats"].to_string();
    assert!(caveats.contains("contiguity"), "{caveats}");
}

#[test]
fn what_was_named_and_not_had_is_told() {
    let Some((_guard, size)) = with_pool("what_was_named_and_not_had_is_told", 0) else {
        return;
    };
    let label = format!("hugetlb:{size}");
    let alone = bench(&[&SHORT[..], &["--pages", &label]].concat());
    refused(&alone, 3, &[&label, "hugeleaf plan --bytes"]);
    let pages = format!("base,{label}");
    let (result, status) = json(&[&SHORT[..], &["--pages", &pages]].concat());
    assert_eq!(status, 1);
    assert_eq!(rows(&result, "base", READ).len(), 2);
    let unavailable = of_arm(&result, "unavailable", &label)[0];
    assert_eq!(unavailable["from_bytes"], 64 << 10);
    assert!(
        unavailable["next"]
            .as_str()
            .unwrap()
            .starts_with("hugeleaf plan --bytes")
    );
    let text = stdout(&bench(&[&SHORT[..], &["--pages", &pages]].concat()));
    assert!(text.contains(&format!("unavailable  {label}: ")), "{text}");
    // Unless the user named it, an unavailable size is no shortfall.
    let output = bench(&SHORT);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("unavailable"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn a_pool_gives_what_it_has() {
    let Some((_guard, size)) = with_pool("a_pool_gives_what_it_has", 2) else {
        return;
    };
    let label = format!("hugetlb:{size}");
    let (two, four) = (size.bytes().get() * 2, size.bytes().get() * 4);
    let sizes = format!("{two},{four}");
    let args = [
        "chase", "--sizes", &sizes, "--for", "20ms", "--rounds", "1", "--pages", &label,
    ];
    let (result, status) = json(&args);
    assert_eq!(status, 1);
    let points = rows(&result, &label, READ);
    assert_eq!(points.len(), 1);
    assert_eq!(points[0]["at"]["working_set_bytes"], two);
    assert!(points[0]["doubtful"].is_null());
    assert_eq!(
        of_arm(&result, "unavailable", &label)[0]["from_bytes"],
        four
    );
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn end_of(mut running: ChildGuard) -> Output {
    let status = running.0.wait().unwrap();
    let read = |pipe: Option<&mut dyn std::io::Read>| {
        let mut bytes = Vec::new();
        pipe.unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    let out = read(
        running
            .0
            .stdout
            .as_mut()
            .map(|p| p as &mut dyn std::io::Read),
    );
    let err = read(
        running
            .0
            .stderr
            .as_mut()
            .map(|p| p as &mut dyn std::io::Read),
    );
    Output {
        status,
        stdout: out,
        stderr: err,
    }
}

#[test]
fn an_interrupted_chase_says_so() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let dir = tempfile::tempdir().unwrap();
    let sizes = ["chase", "--sizes", "64K", "--pages", "base", "--json"];
    let args = [&sizes[..], &["--for", "10h", "--rounds", "6"]].concat();
    let child = bench_in(dir.path(), &args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let running = ChildGuard(child);
    // The test waits until the signal handlers are installed.
    wait_until("signals are caught", || {
        catches(running.0.id(), rustix::process::Signal::INT)
    });
    // A sample alone would take too long, so the run must end in the middle of one.
    signal(running.0.id(), rustix::process::Signal::INT);
    let mut running = running;
    wait_until("it has ended", || running.0.try_wait().unwrap().is_some());
    let output = end_of(running);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    // The first sample may or may not be complete; either case is reported.
    match stdout(&output).is_empty() {
        true => assert!(stderr(&output).contains("stopped on request")),
        false => {
            let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
            assert_eq!(result["experiment"]["ending"], "interrupted");
        }
    }
}

#[test]
fn bad_input_is_refused_in_two_lines() {
    let _host = hugeleaf_testkit::host_lock::shared();
    for (args, words) in [
        (&["chase", "--sizes", "0"][..], &["a working set of 0"][..]),
        (&["chase", "--sizes", "1M..64K"], &["descends"]),
        (&["chase", "--sizes", "1K"], &["smaller than a base page"]),
        (&["chase", "--pages", "3M"], &["is not a kind of page"]),
        (&["chase", "--pages", "2M!"], &["is not a kind of page"]),
        (&["chase", "--rounds", "0"], &["number of rounds"]),
        (&["chase", "--for", "0"], &["is not a time"]),
        (&["chase", "--root", "/nonexistent"], &["--root"]),
        (&["nothing"], &["nothing"]),
    ] {
        refused(&bench(args), 2, words);
    }
    for (args, words) in [
        (
            &["chase", "--sizes", "64T"][..],
            &["64T", "half of available memory"][..],
        ),
        (
            &["chase", "--html", "/nonexistent/page.html"],
            &["/nonexistent/page.html"],
        ),
        (
            &["chase", "--pages", "thp:8M", "--sizes", "64K"],
            &["thp:8M", "next: hugeleaf status"],
        ),
    ] {
        refused(&bench(args), 3, words);
    }
}

/// Experiments that moved to the lab are named in the refusal, wherever flags of all commands stand.
#[test]
fn the_lab_is_named() {
    for name in ["amm", "mover", "oltp", "pagetables", "pin"] {
        let lab = format!("hugeleaf-lab {name}");
        let typed: [&[&str]; 6] = [
            &["bench", name],
            &["bench", name, "--pages", "base", "-o", "x.json"],
            &["--json", "bench", name],
            &["bench", "--json", name],
            &["bench", name, "--json"],
            &["bench", name, "--help"],
        ];
        for words in typed {
            refused(&run(words), 2, &[name, "lab", &lab]);
        }
        let help = good(&run(&["help", "bench", name]));
        assert!(help.contains(&lab), "{help}");
    }
    // An experiment that the lab does not have is the name of a workload.
    let output = run(&["bench", "keyed"]);
    let text = refused(&output, 2, &["keyed", "--list"]);
    assert!(!text.contains("hugeleaf-lab"), "{text}");
}

/// `bench NAME` is short for `bench file NAME`, wherever flags of all commands stand.
#[test]
fn a_workload_is_found_behind_flags_of_all_commands() {
    let typed: [&[&str]; 4] = [
        &["--json", "bench", "redis", "--dry-run"],
        &["bench", "--json", "redis", "--dry-run"],
        &["bench", "redis", "--dry-run", "--json"],
        &["bench", "--json", "file", "redis", "--dry-run"],
    ];
    for words in typed {
        let text = good(&run(words));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value.is_object(), "{words:?}: {text}");
    }
    refused(&run(&["bench", "--list", "redis"]), 2, &["--list"]);
    refused(&run(&["bench", "--", "redis"]), 2, &["--list"]);
}

/// The reference names exactly the flags of `bench chase`.
#[test]
fn the_reference_knows_every_flag() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let path = crate::common::repository().join("docs/reference/commands.md");
    let text = std::fs::read_to_string(path).unwrap();
    let start = "`hugeleaf bench chase";
    let section = text.split("\n## ").find(|s| s.starts_with(start)).unwrap();
    let help = good(&bench(&["chase", "--help"]));
    for flag in [
        "--sizes", "--pages", "--for", "--rounds", "--seed", "--output", "--html",
    ] {
        let named = section.contains(&format!("`{flag}"));
        assert_eq!(named, help.contains(flag), "{flag}");
    }
}
