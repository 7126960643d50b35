//! `hugeleaf-lab pagetables`: its answers, its limits, and that it leaves no process behind.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use hugeleaf_host::{Host, Root, read_host};
use hugeleaf_sys::Kernel;
use hugeleaf_testkit::host_lock::{ExclusiveHost, alone_as_root, pool};
use hugeleaf_units::PageSize;
use serde_json::Value;

use crate::common::{
    ChildGuard, children_of, has_pool_in_use, not_run, of_arm, refused, rows, samples, stderr,
    stdout, wait_until,
};
use crate::lab;

fn host() -> Host {
    read_host(&Root::live(), &Kernel::new()).unwrap()
}

/// Returns the default hugetlb size of this host, with a pool of `pages`.
fn with_pool(test: &str, pages: u64) -> Option<(ExclusiveHost, PageSize)> {
    let Some(size) = host().memory.default_hugetlb_page.get() else {
        not_run(test, "needs hugetlb");
        return None;
    };
    let alone = alone_as_root(test)?;
    if has_pool_in_use() {
        // Setting and restoring it would make surplus pages persistent.
        not_run(test, "somebody else uses pages of a pool");
        return None;
    }
    if alone.set_pool(size.bytes().get(), pages) != pages {
        not_run(
            test,
            &format!("needs {pages} pages of {size} of contiguous memory"),
        );
        return None;
    }
    Some((alone, size))
}

/// Returns `hugeleaf-lab …` in a folder of its own.
fn bench_in(dir: &Path, args: &[&str]) -> Command {
    let mut command = lab(args);
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

fn is_gone(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(") ").next().unwrap().starts_with('Z'),
        Err(_) => true,
    }
}

#[test]
fn pagetables_grow_with_base_pages_and_hardly_with_large_ones() {
    let Some((_guard, size)) = with_pool("pagetables_grow", 16) else {
        return;
    };
    let region = (size.bytes().get() * 16).to_string();
    let label = format!("hugetlb:{size}");
    let pages = format!("base,{label}");
    let args = [
        "pagetables",
        "--processes",
        "3,1",
        "--region",
        &region,
        "--pages",
        &pages,
    ];
    let (result, status) = json(&args);
    assert_eq!(status, 0);
    assert_eq!(result["experiment"]["name"], "pagetables");
    // An entry of 8 bytes per base page, in whole tables, in each process.
    let entries = size.bytes().get() * 16 / host().base_page.bytes().get();
    let least = f64::from(u32::try_from(entries * 8).unwrap());
    let one = |arm: &str, what: &str, at: usize| samples(rows(&result, arm, what)[at])[0];
    for (at, processes) in [1usize, 3].into_iter().enumerate() {
        let point = rows(&result, "base", "page tables of a process")[at];
        assert_eq!(point["at"]["processes"], processes);
        let each = samples(point);
        assert_eq!(each.len(), processes);
        assert!(each.iter().all(|s| *s >= least), "{point}");
        assert!(point["doubtful"].is_null(), "{point}");
        assert_eq!(
            samples(rows(&result, "base", "attach")[at]).len(),
            processes
        );
        let large = rows(&result, &label, "page tables")[at];
        assert!(large["doubtful"].is_null(), "{large}");
        assert_eq!(large["quantity"]["unit"], "bytes");
        assert_eq!(
            of_arm(&result, "layouts", &label)[at]["pages"][0]["kind"],
            "hugetlb"
        );
        let growth = one(&label, "page tables", at);
        assert!(growth < 0.5 * one("base", "page tables", at), "{large}");
        let after = one(&label, "page tables after", at);
        assert!((after - one(&label, "page tables before", at) - growth).abs() < 0.5);
    }
    // The pool is complete again.
    let free = std::fs::read_to_string(pool(size.bytes().get()).join("free_hugepages")).unwrap();
    assert_eq!(free.trim(), "16");
}

#[test]
fn a_region_that_pages_do_not_fit_is_told() {
    let huge = host().pmd_page.get();
    let Some(huge) = huge else {
        return not_run(
            "a_region_that_pages_do_not_fit",
            "needs transparent huge pages",
        );
    };
    let base = host().base_page.bytes().get();
    let region = (huge.bytes().get() + base).to_string();
    let label = format!("thp:{huge}");
    let args = ["pagetables", "--processes", "1", "--region", &region];
    let (result, status) = json(&[&args[..], &["--pages", &format!("base,{label}")]].concat());
    assert_eq!(status, 1);
    let reason = of_arm(&result, "unavailable", &label)[0]["reason"]
        .as_str()
        .unwrap();
    assert!(reason.contains("not a multiple of"), "{reason}");
    // Without `--pages`, only pages that fit are tried.
    let (result, status) = json(&args);
    assert_eq!(status, 0);
    assert_eq!(result["arms"].as_array().unwrap().len(), 1);
}

/// Starts a run of many processes and waits for some of them.
fn many(dir: &Path) -> (ChildGuard, Vec<u32>) {
    let args = [
        "pagetables",
        "--processes",
        "200",
        "--region",
        "64M",
        "--pages",
        "base",
    ];
    let child = bench_in(dir, &args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let running = ChildGuard(child);
    let mut children = Vec::new();
    wait_until("ten processes are there", || {
        children = children_of(running.0.id());
        children.len() >= 10
    });
    (running, children)
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
fn an_interrupt_leaves_nobody_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (running, mut children) = many(dir.path());
    signal(running.0.id(), rustix::process::Signal::INT);
    children.extend(children_of(running.0.id()));
    let output = end_of(running);
    refused(&output, 1, &["stopped on request"]);
    for pid in children {
        wait_until("the process is gone", || is_gone(pid));
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_killed_parent_takes_all_of_them_along() {
    let dir = tempfile::tempdir().unwrap();
    let (running, mut children) = many(dir.path());
    children.extend(children_of(running.0.id()));
    signal(running.0.id(), rustix::process::Signal::KILL);
    drop(running);
    for pid in children {
        wait_until("the process is gone", || is_gone(pid));
    }
}

#[test]
fn a_process_that_is_killed_ends_the_run_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let (running, children) = many(dir.path());
    signal(children[3], rustix::process::Signal::KILL);
    let output = end_of(running);
    refused(&output, 3, &[&format!("process {} has ended", children[3])]);
    for pid in children {
        wait_until("the process is gone", || is_gone(pid));
    }
}

#[test]
fn bad_input_is_refused_in_two_lines() {
    for (flag, value, status, words) in [
        ("--processes", "0", 2, "number of processes"),
        ("--processes", "1,x", 2, "number of processes"),
        ("--region", "0", 2, "not a multiple of a base page"),
        ("--region", "1000", 2, "not a multiple of a base page"),
        ("--region", "64T", 3, "half of what is available"),
    ] {
        refused(&bench(&["pagetables", flag, value]), status, &[words]);
    }
}

/// The processes' start arguments are internal, as their error says.
#[test]
fn the_processes_of_pagetables_cannot_be_started_by_hand() {
    refused(
        &lab(&["bench-attacher"]).output().unwrap(),
        2,
        &["internal command"],
    );
    let output = lab(&["bench-attacher", "1", "fds;"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("parent process 1 has ended"),
        "{}",
        stderr(&output)
    );
}
