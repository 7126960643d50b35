//! Applies a plan that lets the guard free pool pages on this host, and tests the guard's actions. Memory is short only in the namespace: a
//! file of the test is mounted over the kernel's figures.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::kit::{Guarding, Place};
use crate::apply::namespace::Namespace;
use crate::common::{good, not_run};

const RULES: &str =
    "schema = 1\nevery = '1s'\nlisten = 'off'\ncpu = '100%'\npause_memory = '20%'\n";
/// Calm period that must pass before the guard takes pages again.
const CALM: Duration = Duration::from_secs(600);
const POOL: &str = "/proc/sys/vm/nr_hugepages";

fn pages() -> u64 {
    let text = std::fs::read_to_string(POOL).unwrap();
    text.trim().parse().unwrap()
}

/// Simulated PSI memory pressure.
struct Pressure {
    file: PathBuf,
    total: std::cell::Cell<u64>,
}

impl Pressure {
    fn over(host: &Namespace) -> Pressure {
        let file = host.folder.path().join("pressure");
        let pressure = Pressure {
            file,
            total: 0.into(),
        };
        std::fs::write(&pressure.file, "").unwrap();
        pressure.stall(0);
        let file = pressure.file.display();
        host.shell(&format!("mount --bind {file} /proc/pressure/memory"));
        pressure
    }

    /// Adds microseconds of stall. The text keeps its length, so that a reader always finds a complete one.
    fn stall(&self, more: u64) {
        self.total.set(self.total.get() + more);
        let text = format!(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total={:012}\n",
            self.total.get()
        );
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&self.file)
            .unwrap();
        file.write_all_at(text.as_bytes(), 0).unwrap();
    }
}

fn given(status: &Value) -> u64 {
    let given = status["pools"]["given"].as_array().unwrap();
    let missing = |one: &Value| Some(one["had"].as_u64()? - one["pages"].as_u64()?);
    given.iter().filter_map(missing).sum()
}

fn finds(status: &Value, id: &str) -> bool {
    let findings = status["pools"]["findings"].as_array().unwrap();
    findings.iter().any(|finding| finding["id"] == id)
}

/// Applies the plan of a small pool that may free pages. Returns its number of pages.
fn applied(host: &Namespace, test: &str) -> Option<u64> {
    let plan = host.plan();
    let text = std::fs::read_to_string(&plan).unwrap();
    std::fs::write(
        &plan,
        text.replace("[[pool]]\n", "[[pool]]\ngive_back = true\n"),
    )
    .unwrap();
    let out = host.hugeleaf(&["apply", &plan]);
    if out.status.code() != Some(0) {
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        not_run(test, &format!("this host has no pages for a pool: {said}"));
        return None;
    }
    Some(pages())
}

/// Starts a guard in the test's mount namespace.
fn start_within<'a>(host: &Namespace, place: &'a Place, rules: &str) -> Guarding<'a> {
    let config = place.write("guard.toml", rules);
    let args = ["guard", "--config", config.as_str()];
    let child = host
        .command(env!("CARGO_BIN_EXE_hugeleaf"), &args)
        .envs(place.folders())
        .env_remove("NOTIFY_SOCKET")
        .env_remove("JOURNAL_STREAM")
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    Guarding::of(place, child)
}

/// Waits for the first check, then raises the pressure until the guard frees pages. Returns the remaining number.
fn gives_back(guard: &Guarding<'_>, pressure: &Pressure, planned: u64) -> u64 {
    guard.wait_for("it is checked", |s| s["pools"]["checked"].is_string());
    let status = guard.status();
    assert_eq!(
        status["pools"]["findings"],
        serde_json::json!([]),
        "{status:#}"
    );
    assert_eq!((given(&status), pages()), (0, planned));
    guard.wait_for("pages are given back", |s| {
        pressure.stall(500_000);
        given(s) > 0
    });
    pages()
}

/// Returns the namespace, the applied plan and its pressure; prints a reason and returns `None` if unsupported.
fn planned(test: &str) -> Option<(Namespace, u64, Pressure)> {
    if !std::path::Path::new("/proc/pressure/memory").exists() {
        not_run(test, "this kernel has no PSI");
        return None;
    }
    let host = Namespace::new(test, "")?;
    let planned = applied(&host, test)?;
    let pressure = Pressure::over(&host);
    Some((host, planned, pressure))
}

#[test]
fn undo_takes_a_pool_back_that_gave_pages_back() {
    let Some((host, planned, pressure)) = planned("undo_takes_a_pool_back_that_gave_pages_back")
    else {
        return;
    };
    let place = Place::new();
    let guard = start_within(&host, &place, RULES);
    let left = gives_back(&guard, &pressure, planned);
    // For undo the pool was changed by another program, so undo leaves it alone.
    let out = host.hugeleaf(&["undo"]);
    assert_eq!((out.status.code(), pages()), (Some(1), left));
    good(&host.hugeleaf(&["undo", "1", "--even-if-changed"]));
    host.assert_knobs_as_before("undone");
    guard.wait_for("it is no pool of the guard's any more", |s| given(s) == 0);
    // Pages that no plan requests are not taken again.
    pressure.stall(500_000);
    guard.wait_for("it looked again", |s| {
        s["pools"]["findings"] == serde_json::json!([])
    });
    host.assert_knobs_as_before("undone, and looked at");
    guard.end();
    host.assert_knobs_as_before("ended");
}

/// Needs ten minutes without pressure, so it runs only in `make soak`.
#[test]
fn pages_are_taken_again_once_memory_is_not_short() {
    let test = "pages_are_taken_again_once_memory_is_not_short";
    if std::env::var_os("HUGELEAF_SOAK").is_none() {
        return not_run(test, "takes eleven minutes: set HUGELEAF_SOAK");
    }
    let Some((host, planned, pressure)) = planned(test) else {
        return;
    };
    let place = Place::new();
    let guard = start_within(&host, &place, RULES);
    let left = gives_back(&guard, &pressure, planned);
    let began = Instant::now();
    while given(&guard.status()) > 0 {
        assert!(began.elapsed() < 2 * CALM, "{left} of {planned}");
        hugeleaf_testkit::pause(
            Duration::from_secs(5),
            "more frequent questions would disturb the calm period",
        );
    }
    assert_eq!(pages(), planned);
    assert!(guard.log().iter().any(|entry| entry["what"] == "took"));
    guard.end();
    good(&host.hugeleaf(&["undo"]));
    host.assert_knobs_as_before("undone");
}

#[test]
fn a_pool_gives_pages_back_and_one_that_shrank_is_found() {
    let test = "a_pool_gives_pages_back_and_one_that_shrank_is_found";
    let Some((host, planned, pressure)) = planned(test) else {
        return;
    };
    let place = Place::new();
    let guard = start_within(&host, &place, RULES);
    let left = gives_back(&guard, &pressure, planned);
    assert!(
        left < planned && left >= planned - planned / 4,
        "{left} of {planned}"
    );
    let log = guard.log();
    let what: Vec<&str> = log.iter().map(|e| e["what"].as_str().unwrap()).collect();
    let at = |word: &str| what.iter().position(|w| *w == word);
    assert!(at("give").is_some() && at("give") < at("gave"), "{what:?}");
    let text = good(&guard.ask(&["status"]).output().unwrap());
    assert!(
        text.contains("POOLS") && text.contains("released"),
        "{text}"
    );

    // A killed guard still knows the pages it freed, and a pool that it shrank is not reported as short.
    guard.kill();
    let guard = start_within(&host, &place, RULES);
    guard.wait_for("it is checked", |s| s["pools"]["checked"].is_string());
    let status = guard.status();
    assert_eq!(given(&status), planned - left);
    assert_eq!(
        status["pools"]["findings"],
        serde_json::json!([]),
        "{status:#}"
    );

    host.alone.set(POOL, left - 1);
    guard.wait_for("it is somebody else's now", |s| given(s) == 0);
    good(&guard.ask(&["reload"]).output().unwrap());
    guard.wait_for("it is short", |s| finds(s, "pool-short"));
    assert!(guard.log().iter().any(|e| {
        e["what"] == "problem" && e["text"].as_str().unwrap().contains("another program")
    }));
    host.alone.set(POOL, planned);
    good(&guard.ask(&["reload"]).output().unwrap());
    guard.wait_for("it is not short any more", |s| !finds(s, "pool-short"));
    assert!(guard.log().iter().any(|e| e["what"] == "resolved"));
    guard.end();
    good(&host.hugeleaf(&["undo"]));
    host.assert_knobs_as_before("undone");
}
