//! Tests real servers that grow under a guard, which must restore their coverage (tier 3).
//!
//! Clients that check every answer keep each server busy. The test reads the guard's effect from `/proc`.

use std::process::{Command, Stdio};

use crate::common::not_run;
use crate::guard::kit::{self, Guarding, Place, rule};
use hugeleaf_testkit::jvm::{self, Jvm};
use hugeleaf_testkit::mariadb::{self, FilledMariadb};
use hugeleaf_testkit::postgresql::{self, FilledPostgres};
use hugeleaf_testkit::redis_server::{self, FilledRedis};
use hugeleaf_testkit::until as wait_until;
use hugeleaf_testkit::{left_to_all, process_facts};

/// Returns true if at least 95 % of the promotable memory is on huge pages.
fn is_covered(pid: u32) -> bool {
    let movable = process_facts::promotable_kb(pid);
    movable > 100 << 10 && process_facts::private_memory(pid, 8 << 10).huge_kb >= movable / 20 * 19
}

fn covered_in_time(what: &str, guard: &Guarding<'_>, pid: u32) {
    guard.wait_for(what, |_| is_covered(pid));
}

#[test]
fn mariadb_is_resized_and_stays_large() {
    if left_to_all("mariadb_is_resized_and_stays_large") {
        return;
    }
    let test = "mariadb_is_resized_and_stays_large";
    let Some(_host) = kit::can_run(test) else {
        return;
    };
    if mariadb::programs().is_none() {
        return not_run(test, "mariadb-server is not installed");
    }
    let place = Place::new();
    let mut mariadb = FilledMariadb::start();
    let pid = mariadb.server.pid();
    let guard = Guarding::start(&place, &rule("mariadbd", "override = true"));
    let load = mariadb.load();
    covered_in_time("256M", &guard, pid);
    for size in ["384M", "192M", "448M"] {
        mariadb.resize(size);
        mariadb.read_all();
        covered_in_time(size, &guard, pid);
        load.assert_healthy();
    }
    assert!(load.end() > 0);
    mariadb.server.assert_no_complaint(&mariadb::COMPLAINTS);
    let status = guard.status();
    assert_eq!(status["counts"]["grown_bytes"], 0, "{status}");
    assert!(
        status["counts"]["promotions"].as_u64() >= Some(3),
        "{status}"
    );
}

#[test]
fn redis_loads_and_saves_and_stays_large() {
    if left_to_all("redis_loads_and_saves_and_stays_large") {
        return;
    }
    let test = "redis_loads_and_saves_and_stays_large";
    let Some(_host) = kit::can_run(test) else {
        return;
    };
    if redis_server::program().is_none() {
        return not_run(test, "redis-server is not installed");
    }
    let place = Place::new();
    let mut redis = FilledRedis::start_empty();
    let pid = redis.server.pid();
    let guard = Guarding::start(&place, &rule("redis-server", ""));
    redis.fill();
    covered_in_time("the data set", &guard, pid);
    let load = redis.load(true);
    // The server saves in a forked child and keeps writing. Memory shared with the child is left alone, and is promoted after the child
    // ends.
    redis.send(&["CONFIG", "SET", "rdb-key-save-delay", "10"]);
    redis.send(&["BGSAVE"]);
    guard.wait_for("the save is seen", |s| {
        let program = guard.program(s, pid);
        program.is_some_and(|p| p["reason"] == "saving") || process_facts::children(pid).is_empty()
    });
    for child in process_facts::children(pid) {
        redis.server.signal_child(child);
    }
    wait_until("the save ends", || process_facts::children(pid).is_empty());
    covered_in_time("after the save", &guard, pid);
    load.assert_healthy();
    assert!(load.end() > 0);
    redis.server.assert_no_complaint(&redis_server::COMPLAINTS);
    assert_eq!(guard.status()["counts"]["grown_bytes"], 0);
}

#[test]
fn backends_that_come_and_go_stay_large() {
    let test = "backends_that_come_and_go_stay_large";
    let Some(host) = kit::can_change(test) else {
        return;
    };
    if postgresql::programs().is_none() {
        return not_run(test, "postgresql is not installed");
    }
    host.choose("shmem_enabled", "advise");
    let place = Place::new();
    let mut postgres = FilledPostgres::start();
    let pid = postgres.server.pid();
    let guard = Guarding::start(&place, &rule("postgres", ""));
    let load = postgres.load();
    let filler = postgres.backend_that_touched_all();
    let huge = |pid: u32| process_facts::largest_shared(pid).kb("ShmemPmdMapped");
    let enough = postgresql::SHARED_BUFFERS_KB / 20 * 19;
    guard.wait_for("the buffers are large", |_| huge(filler) >= enough);
    // All backends count as one program, named after the postmaster.
    let status = guard.status();
    let program = guard.program(&status, pid).unwrap();
    assert!(program["processes"].as_u64() > Some(3), "{program}");
    // A new backend maps the buffers with huge pages, because they already are huge.
    assert!(postgres.huge_kb_of_a_new_backend() >= enough);
    load.assert_healthy();
    assert!(load.end() > 0);
    postgres.server.assert_no_complaint(&postgresql::COMPLAINTS);
    assert_eq!(guard.status()["counts"]["grown_bytes"], 0);
}

#[test]
fn a_heap_that_expands_stays_large() {
    if left_to_all("a_heap_that_expands_stays_large") {
        return;
    }
    let test = "a_heap_that_expands_stays_large";
    let Some(_host) = kit::can_run(test) else {
        return;
    };
    let Some(java) = jvm::program() else {
        return not_run(test, "no JDK is installed");
    };
    let place = Place::new();
    let guard = Guarding::start(&place, &rule("java", ""));
    let source = crate::common::repository().join("crates/cli/tests/guard/Objects.java");
    let mut command = Command::new(java);
    command
        .args(["-XX:+UseSerialGC", "-Xms64m", "-Xmx700m"])
        .arg(source)
        .args(["300000000", "5000000"])
        .stderr(Stdio::null());
    let mut java = Jvm::start(&mut command, |line| line == "ready").unwrap();
    covered_in_time("the heap", &guard, java.pid());
    java.tell("");
    let mut lines = java.lines.map(Result::unwrap);
    assert!(
        lines.any(|line| line.starts_with("check ")),
        "it found all of its objects"
    );
    assert_eq!(guard.status()["counts"]["grown_bytes"], 0);
}
