//! Tests the guard as a service: the real program on real processes, under faults of every kind.

mod browser;
pub mod kit;
mod pools;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use crate::common::{good, not_run, refused, run, stdout};
use hugeleaf_sys::Kernel;
use kit::{Guarding, Place, Worker, can_run, rule};

#[test]
fn what_a_rule_names_is_moved_and_kept_as_it_grows() {
    let Some(_host) = can_run("what_a_rule_names_is_moved_and_kept_as_it_grows") else {
        return;
    };
    let place = Place::new();
    let mut worker = Worker::grown(&place, "grower", 200);
    let guard = Guarding::start(&place, &rule("grower", ""));
    guard.wait_for("it is kept", |s| {
        guard
            .program(s, worker.pid())
            .is_some_and(|p| p["state"] == "managed")
    });
    assert!(worker.huge() > 190 << 20, "{}", worker.huge());
    let grown = worker.resident();
    worker.tell("grow 300");
    guard.wait_for("what it grew by is moved", |_| worker.huge() > 480 << 20);
    guard.wait_for("it is seen", |s| {
        guard
            .program(s, worker.pid())
            .and_then(|p| p["coverage"].as_f64())
            > Some(0.95)
    });
    // The process grew only by its own allocations, and it still works.
    assert!(
        worker.resident() < grown + (310 << 20),
        "{}",
        worker.resident()
    );
    worker.tell("");
    let status = guard.status();
    assert_eq!(status["counts"]["grown_bytes"], 0);
    let program = guard.program(&status, worker.pid()).unwrap();
    assert_eq!(program["proof"], "unproven");
    // The log has each decision before its result.
    let log = guard.log();
    let what: Vec<&str> = log.iter().map(|e| e["what"].as_str().unwrap()).collect();
    assert_eq!(what[..3], ["started", "promote", "promoted"], "{log:?}");
    assert!(log[1]["rule"].as_str().unwrap().contains("name grower"));
}

/// The log announces a promotion that demotion cannot undo.
#[test]
fn what_cannot_go_back_is_in_the_log_before_it_is_moved() {
    let Some(_host) = can_run("what_cannot_go_back_is_in_the_log_before_it_is_moved") else {
        return;
    };
    let place = Place::new();
    let mut worker = Worker::grown(&place, "locked", 64);
    worker.tell("lock");
    let guard = Guarding::start(&place, &rule("locked", ""));
    guard.wait_for("it is moved", |_| worker.huge() > 60 << 20);
    guard.wait_for("it is logged", |s| s["counts"]["promotions"] == 1);
    let log = guard.log();
    let what: Vec<&str> = log.iter().map(|e| e["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["started", "promote", "one-way", "promoted"]);
    let text = log[2]["text"].as_str().unwrap();
    assert!(
        text.contains("stay on huge pages") && text.contains("mlock"),
        "{text}"
    );
}

#[test]
fn without_rules_it_watches_and_says_so() {
    let Some(_host) = can_run("without_rules_it_watches_and_says_so") else {
        return;
    };
    let place = Place::new();
    let worker = Worker::grown(&place, "watched", 200);
    let rules = rule("watched", "").replace("action = 'promote'", "action = 'watch'");
    let guard = Guarding::start(&place, &rules);
    guard.wait_for("it would be moved", |s| {
        guard
            .program(s, worker.pid())
            .is_some_and(|p| p["state"] == "candidate")
    });
    assert_eq!(guard.status()["acts"], false);
    assert_eq!(worker.huge(), 0);
    let text = good(&guard.ask(&["status"]).output().unwrap());
    assert!(
        text.starts_with("Watching only: no rule allows promotion; 0 process trees"),
        "{text}"
    );
    assert!(text.contains("200M of"), "{text}");
}

#[test]
fn one_pass_says_what_it_would_do_and_then_does_it() {
    let Some(_host) = can_run("one_pass_says_what_it_would_do_and_then_does_it") else {
        return;
    };
    let place = Place::new();
    let mut worker = Worker::grown(&place, "passed", 200);
    let config = place.write("guard.toml", &rule("passed", ""));
    let pass = |more: &[&str]| run(&[&["guard", "--once", "--config", &config], more].concat());
    let said = good(&pass(&["--dry-run"]));
    assert!(
        said.starts_with("1 process tree would be promoted") && said.contains("SKIPPED"),
        "{said}"
    );
    assert_eq!(worker.huge(), 0);
    let said = stdout(&pass(&[]));
    assert!(
        said.starts_with("1 process tree promoted or demoted.") && worker.huge() > 190 << 20,
        "{said}"
    );
    worker.tell("");
    let said = good(&pass(&[]));
    assert!(said.starts_with("Nothing to do."), "{said}");
}

#[test]
fn rules_are_checked_and_read_again() {
    let place = Place::new();
    let config = place.write(
        "guard.toml",
        "schema = 1\n[[rule]]\nname = 'a'\naction = 'yes'\n",
    );
    refused(
        &run(&["guard", "--check", "--config", &config]),
        2,
        &["guard.toml:4:10", "promote"],
    );
    refused(
        &run(&["guard", "--config", &config]),
        2,
        &["guard.toml:4:10"],
    );
    refused(
        &run(&["guard", "--check", "--config", "/no/such"]),
        2,
        &["/no/such"],
    );
    let guard = Guarding::start(&place, "schema = 1\n[[rule]]\nname = 'a'\n");
    let labels = |guard: &Guarding<'_>| guard.status()["rules"].as_u64();
    assert_eq!(labels(&guard), Some(1));
    place.write("guard.toml", "schema = 1\nevry = '5s'\n");
    guard.signal("HUP");
    guard.wait_for("the error is said", |s| {
        s["problems"].to_string().contains("guard.toml:2:1")
    });
    assert_eq!(labels(&guard), Some(1), "the old rules stay in force");
    place.write(
        "guard.toml",
        "schema = 1\n[[rule]]\nname = 'a'\n[[rule]]\nname = 'b'\n",
    );
    good(&guard.ask(&["reload"]).output().unwrap());
    guard.wait_for("the new rules", |s| {
        s["rules"] == 2 && s["problems"].as_array().unwrap().is_empty()
    });
}

#[test]
fn there_is_one_guard() {
    let place = Place::new();
    let guard = Guarding::start(&place, "schema = 1\nlisten = 'off'\n");
    let second = place
        .hugeleaf(&["guard", "--config", &place.path("guard.toml")])
        .output()
        .unwrap();
    refused(
        &second,
        3,
        &[
            "another guard runs",
            &guard.pid().to_string(),
            "guard status",
        ],
    );
    // A killed guard leaves no obstacle.
    guard.kill();
    let guard = Guarding::start(&place, "schema = 1\nlisten = 'off'\n");
    good(&guard.ask(&["status"]).output().unwrap());
}

#[test]
fn who_asks_without_a_guard_is_told_so() {
    let place = Place::new();
    let ask = |what: &str| place.hugeleaf(&["guard", what]).output().unwrap();
    for what in ["status", "log", "pause", "resume", "reload"] {
        refused(&ask(what), 3, &["no guard listens at", "hugeleaf guard"]);
    }
}

#[test]
fn killed_while_it_moves_it_leaves_processes_as_they_are() {
    let Some(_host) = can_run("killed_while_it_moves_it_leaves_processes_as_they_are") else {
        return;
    };
    let place = Place::new();
    let mut worker = Worker::grown(&place, "survivor", 400);
    let rules = rule("survivor", "").replace("budget = '100%'", "budget = '2%'");
    let mut moved = 0;
    // Kills at a different moment each time.
    for delay in [0, 150, 400, 900, 2000] {
        let guard = Guarding::start(&place, &rules);
        guard.wait_for("it is being moved", |s| {
            guard
                .program(s, worker.pid())
                .is_some_and(|p| p["state"] == "promoting" || p["state"] == "managed")
        });
        hugeleaf_testkit::pause(
            std::time::Duration::from_millis(delay),
            "each kill is at another moment",
        );
        guard.kill();
        assert!(!worker.is_stopped_or_traced());
        worker.tell("");
        assert!(worker.huge() >= moved, "what was moved stays");
        moved = worker.huge();
    }
    assert!(moved > 0);
    // The next guard continues.
    let guard = Guarding::start(&place, &rules.replace("'2%'", "'100%'"));
    guard.wait_for("it is kept", |s| {
        guard
            .program(s, worker.pid())
            .is_some_and(|p| p["state"] == "managed")
    });
    guard.wait_for("all of it", |_| worker.huge() > 390 << 20);
    // Memory promoted by the killed guards counts as promoted, because their journal names it.
    guard.wait_for("it knows what was moved", |s| {
        let moved = guard
            .program(s, worker.pid())
            .map(|p| p["promoted_bytes"].as_u64());
        moved.flatten().is_some_and(|bytes| bytes > 390 << 20)
    });
    worker.tell("");
}

#[test]
fn what_makes_a_program_slower_is_taken_back() {
    let Some(_host) = can_run("what_makes_a_program_slower_is_taken_back") else {
        return;
    };
    let place = Place::new();
    let counter = place.path("counter");
    let mut worker = Worker::start(&place, "slower", &counter, 0.7);
    worker.tell("grow 100");
    let test = format!(
        "metric = 'cmd:cat {counter}'\nprove = {{ pairs = 8, every = '7d', over = '0s', interval = '300ms', hold = '2s' }}"
    );
    let rules = rule("slower", &test);
    let guard = Guarding::start(&place, &rules);
    guard.wait_long_for("it is moved back", |s| {
        guard
            .program(s, worker.pid())
            .is_some_and(|p| p["reason"] == "no-gain")
    });
    assert!(worker.huge() < 4 << 20, "{}", worker.huge());
    let status = guard.status();
    assert_eq!(
        (&status["counts"]["slower"], &status["counts"]["promotions"]),
        (&1.into(), &1.into())
    );
    let proven = &status["remembered"][0]["proven"];
    assert_eq!(proven["verdict"], "slower");
    assert!(
        proven["low"].as_f64().unwrap() < 0.75 && proven["high"].as_f64().unwrap() > 0.65,
        "{proven}"
    );
    // A failed proof is not repeated, not even by a new guard.
    guard.end();
    let guard = Guarding::start(&place, &rules);
    guard.wait_for("it is known", |s| {
        guard
            .program(s, worker.pid())
            .is_some_and(|p| p["reason"] == "no-gain")
    });
    assert_eq!(guard.status()["counts"]["promotions"], 1);
    worker.tell("");
}

#[test]
fn a_metric_that_stops_answering_leaves_memory_as_it_was() {
    let Some(_host) = can_run("a_metric_that_stops_answering_leaves_memory_as_it_was") else {
        return;
    };
    let place = Place::new();
    let counter = place.path("counter");
    let mut worker = Worker::start(&place, "silent", &counter, 1.1);
    worker.tell("grow 100");
    let test = format!(
        "metric = 'cmd:cat {counter}.shown'\nprove = {{ pairs = 100, every = '7d', over = '0s', interval = '1s' }}"
    );
    std::os::unix::fs::symlink(&counter, format!("{counter}.shown")).unwrap();
    let guard = Guarding::start(&place, &rule("silent", &test));
    guard.wait_long_for("it is tested", |s| {
        guard
            .program(s, worker.pid())
            .is_some_and(|p| p["state"] == "testing")
    });
    guard.wait_long_for("a test moves it to huge pages", |_| {
        worker.huge() > 95 << 20
    });
    guard.wait_long_for("a test moves it to base pages", |_| worker.huge() < 4 << 20);
    std::fs::remove_file(format!("{counter}.shown")).unwrap();
    guard.wait_long_for("the test is dropped", |s| s["counts"]["dropped"] == 1);
    assert!(
        worker.huge() > 95 << 20,
        "on huge pages, as before the test: {}",
        worker.huge()
    );
    assert_eq!(guard.status()["counts"]["demotions"], 0);
    worker.tell("");
}

#[test]
fn ended_while_it_tests_it_puts_memory_back() {
    let Some(_host) = can_run("ended_while_it_tests_it_puts_memory_back") else {
        return;
    };
    let place = Place::new();
    let counter = place.path("counter");
    let mut worker = Worker::start(&place, "tested", &counter, 1.1);
    worker.tell("grow 100");
    let test = format!(
        "metric = 'cmd:cat {counter}'\nprove = {{ pairs = 100, every = '7d', over = '0s', interval = '1s' }}"
    );
    let guard = Guarding::start(&place, &rule("tested", &test));
    guard.wait_long_for("a test moves it back", |_| worker.huge() > 95 << 20);
    guard.wait_long_for("a test moves it to base pages", |_| worker.huge() < 4 << 20);
    guard.end();
    assert!(worker.huge() > 95 << 20, "{}", worker.huge());
    worker.tell("");
}

/// A command that hangs, with a child that has left its process group and holds its pipe open.
#[test]
fn a_metric_that_hangs_does_not_hold_up_the_end() {
    let Some(_host) = can_run("a_metric_that_hangs_does_not_hold_up_the_end") else {
        return;
    };
    let place = Place::new();
    let [counter, gate, hung] = ["counter", "gate", "hung"].map(|name| place.path(name));
    let mut worker = Worker::start(&place, "hanging", &counter, 1.1);
    worker.tell("grow 100");
    let script = format!(
        "#!/bin/sh\ntest -e {gate} || exec cat {counter}\nsetsid sleep 20 &\ntouch {hung}\nsleep 600\n"
    );
    let script = place.write("metric", &script);
    let test = format!(
        "metric = 'cmd:sh {script}'\nprove = {{ pairs = 100, every = '7d', over = '0s', interval = '1s' }}"
    );
    let guard = Guarding::start(&place, &rule("hanging", &test));
    guard.wait_long_for("a test moves it to base pages", |_| {
        worker.huge() > 95 << 20
    });
    guard.wait_long_for("it is tested", |_| worker.huge() < 4 << 20);
    place.write("gate", "");
    let exists = |path: &str| std::path::Path::new(path).exists();
    hugeleaf_testkit::until("the metric hangs", || exists(&hung));
    // The guard keeps scanning meanwhile.
    let looks = |s: &serde_json::Value| s["cost"]["scans"].as_u64().unwrap();
    let before = looks(&guard.status());
    guard.wait_for("it looks on", |s| looks(s) > before);
    guard.end();
    assert!(worker.huge() > 95 << 20, "{}", worker.huge());
    // The end did not wait for the metric's deadline.
    let log = std::fs::read_to_string(place.path("log/guard.jsonl")).unwrap();
    assert!(!log.contains("no answer"), "{log}");
    worker.tell("");
}

#[test]
fn a_pause_holds() {
    let Some(_host) = can_run("a_pause_holds") else {
        return;
    };
    let place = Place::new();
    let guard = Guarding::start(&place, &rule("paused", ""));
    good(&guard.ask(&["pause"]).output().unwrap());
    guard.wait_for("it is paused", |s| s["paused_since"].is_string());
    let worker = Worker::grown(&place, "paused", 100);
    guard.wait_for("it waits", |s| {
        guard
            .program(s, worker.pid())
            .is_some_and(|p| p["reason"] == "paused")
    });
    // The pause survives a restart.
    guard.kill();
    let guard = Guarding::start(&place, &rule("paused", ""));
    guard.wait_for("it waits still", |s| {
        guard
            .program(s, worker.pid())
            .is_some_and(|p| p["reason"] == "paused")
    });
    assert_eq!(worker.huge(), 0);
    good(&guard.ask(&["resume"]).output().unwrap());
    guard.wait_for("it is moved", |_| worker.huge() > 90 << 20);
}

#[test]
fn places_that_are_taken_are_said_and_stop_nothing() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let guard = Guarding::start(&place, &format!("schema = 1\nlisten = '{address}'\n"));
    guard.wait_for("the port is said", |s| {
        s["problems"].to_string().contains(&address.to_string())
    });
    guard.kill();
    // A folder occupies the socket's path; the page still works.
    drop(taken);
    let socket = place.path("run/guard.sock");
    let _ = std::fs::remove_file(&socket);
    std::fs::create_dir(&socket).unwrap();
    let guard =
        Guarding::start_without_socket(&place, &format!("schema = 1\nlisten = '{address}'\n"));
    crate::common::wait_until("a look", || {
        !guard
            .page(&address.to_string(), "/status.json")
            .contains("\"scans\":0,")
    });
    let said = guard.page(&address.to_string(), "/status.json");
    assert!(said.contains("exists and is not a socket"), "{said}");
    assert!(
        guard
            .page(&address.to_string(), "/")
            .contains("cannot open the socket")
    );
}

#[test]
fn a_full_disk_under_the_log_stops_nothing() {
    let Some(_host) = can_run("a_full_disk_under_the_log_stops_nothing") else {
        return;
    };
    let place = Place::new();
    let Some(_small) = place.small_disk("log") else {
        return not_run(
            "a_full_disk_under_the_log_stops_nothing",
            "needs to mount a tmpfs",
        );
    };
    let guard = Guarding::start(&place, &rule("full", ""));
    std::fs::write(place.path("log/filler"), vec![0u8; 60 << 10]).unwrap_or_default();
    let worker = Worker::grown(&place, "full", 100);
    let fill = || {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(place.path("log/filler"))
            .unwrap();
        while file.write_all(&[0u8; 512]).is_ok() {}
    };
    fill();
    guard.wait_for("it is moved all the same", |_| worker.huge() > 90 << 20);
    // The rest of the log's last page is still filled.
    for what in ["pause", "resume"].repeat(40) {
        good(&guard.ask(&[what]).output().unwrap());
    }
    guard.wait_for("the loss is said", |s| {
        s["problems"].to_string().contains("entries lost")
    });
    // Every existing line is complete.
    assert!(!guard.log().is_empty());
    std::fs::remove_file(place.path("log/filler")).unwrap();
    good(&guard.ask(&["pause"]).output().unwrap());
    guard.wait_for("it works again", |s| {
        s["problems"].as_array().unwrap().is_empty()
    });
}

#[test]
fn its_pages_show_programs_and_decisions() {
    let Some(_host) = can_run("its_pages_show_programs_and_decisions") else {
        return;
    };
    let place = Place::new();
    let worker = Worker::grown(&place, "paged", 64);
    let address = format!("127.0.0.1:{}", kit::free_port());
    let rules = kit::listening(&rule("paged", ""), &address);
    let guard = Guarding::start(&place, &rules);
    guard.wait_for("it is moved", |s| {
        let large = guard.program(s, worker.pid()).map(|p| &p["huge_bytes"]);
        large.and_then(|n| n.as_u64()) > Some(60 << 20)
    });
    let of_worker = format!("/program/{}", worker.pid());
    for (path, shown) in [
        ("/", vec!["paged", "Decisions", "Proofs"]),
        ("/decisions", vec!["paged", "to huge pages"]),
        ("/proofs", vec!["No tests yet"]),
        (&of_worker, vec!["paged", "coverage", "Coverage over time"]),
    ] {
        let page = guard.page(&address, path);
        assert!(page.starts_with("HTTP/1.1 200 "), "{path}: {page}");
        for text in shown {
            assert!(page.contains(text), "{path} lacks {text:?}: {page}");
        }
    }
}

/// Anyone on the network may connect. They get metrics and probes, and stop neither the guard nor other readers.
#[test]
fn other_hosts_read_metrics_alone() {
    let place = Place::new();
    let port = kit::free_port();
    let rules = format!(
        "schema = 1\nevery = '1s'\ncpu = '50%'\nlisten = 'off'\nlisten_beyond_host = true\nmetrics = '0.0.0.0:{port}'\n"
    );
    let guard = Guarding::start(&place, &rules);
    // This address is reached only because all addresses are served.
    let address = format!("127.0.0.2:{port}");
    guard.wait_for("it has scanned", |s| s["cost"]["scans"].as_u64() > Some(0));
    for (path, status, text) in [
        ("/metrics", 200, "hugeleaf_info{"),
        ("/healthz", 200, "\r\n\r\nok\n"),
        ("/readyz", 200, "\r\n\r\nok\n"),
        ("/", 404, "only /metrics"),
        ("/status.json", 404, "only /metrics"),
        ("/decisions", 404, "only /metrics"),
        ("/program/1", 404, "only /metrics"),
    ] {
        let said = guard.page(&address, path);
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}: {said}"
        );
        assert!(said.contains(text), "{path}: {said}");
    }
    let named = "GET /metrics HTTP/1.1\r\nHost: node-7.example:9646\r\n\r\n";
    for (request, status) in [
        (named, 200),
        ("POST /pause HTTP/1.1\r\nHost: node-7.example\r\n\r\n", 405),
        ("\u{16}\u{3}\u{1}\u{2}\r\n\r\n", 400),
    ] {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} ")),
            "{said:.60}"
        );
    }
    assert!(guard.status()["paused_since"].is_null());
    let mut slow = Vec::new();
    for n in 0..300 {
        let Ok(mut stream) = TcpStream::connect(&address) else {
            continue;
        };
        let _ = match n % 3 {
            0 => Ok(()),
            1 => stream.write_all(b"GET /metr"),
            _ => stream.write_all(named.as_bytes()),
        };
        slow.push(stream);
    }
    assert!(guard.page(&address, "/metrics").contains("hugeleaf_info{"));
    drop(slow);
    flood_by(3, &address);
    let scans = guard.status()["cost"]["scans"].as_u64();
    guard.wait_for("it scans", |s| s["cost"]["scans"].as_u64() > scans);
    assert!(
        guard
            .page(&address, "/healthz")
            .starts_with("HTTP/1.1 200 ")
    );
    guard.end();
}

#[test]
fn metrics_for_other_hosts_are_checked() {
    let place = Place::new();
    let check = |text: &str| {
        let config = place.write("guard.toml", &format!("schema = 1\n{text}"));
        run(&["guard", "--check", "--config", &config])
    };
    let at = "metrics = '0.0.0.0:9647'\n";
    refused(
        &check(at),
        2,
        &["guard.toml:2:11", "add listen_beyond_host = true"],
    );
    let said = good(&check(&format!("{at}listen_beyond_host = true\n")));
    assert!(
        said.ends_with(
            "\nother hosts may read the metrics at 0.0.0.0:9647, without authentication\n"
        ),
        "{said}"
    );
    let said = good(&check("metrics = '127.0.0.1:9647'\n"));
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// The exporter of a cluster: a process may be read with these two capabilities, and promoted with neither.
#[test]
fn a_read_only_guard_changes_nothing_and_needs_two_capabilities() {
    let name = "a_read_only_guard_changes_nothing_and_needs_two_capabilities";
    let Some(_host) = can_run(name) else {
        return;
    };
    if hugeleaf_testkit::find_program(&["setpriv"]).is_none() {
        return not_run(name, "needs setpriv (util-linux)");
    }
    let place = Place::new();
    for folder in ["state", "log"] {
        std::fs::remove_dir(place.path(folder)).unwrap();
    }
    let worker = Worker::grown(&place, "readonly", 100);
    let port = kit::free_port();
    let rules = format!("metrics = '127.0.0.1:{port}'\n{}", rule("readonly", ""));
    let config = place.write("guard.toml", &rules);
    let capabilities = "-all,+sys_ptrace,+dac_read_search";
    let args = [
        "--bounding-set",
        capabilities,
        crate::common::HUGELEAF,
        "guard",
        "--read-only",
        "--config",
        &config,
    ];
    let mut command = place.command(Path::new("setpriv"), &args);
    let guard = Guarding::of(&place, command.spawn().unwrap());
    guard.wait_for("it reads the worker", |s| {
        let found = guard.program(s, worker.pid());
        found.and_then(|p| p["base_bytes"].as_u64()) > Some(90 << 20)
    });
    // A reload does not let the rules act either.
    good(&guard.ask(&["reload"]).output().unwrap());
    let scans = guard.status()["cost"]["scans"].as_u64();
    guard.wait_for("it scans", |s| {
        s["cost"]["scans"].as_u64() > scans.map(|n| n + 2)
    });
    let status = guard.status();
    assert_eq!(
        (&status["acts"], &status["read_only"]),
        (&false.into(), &true.into())
    );
    assert_eq!(status["problems"], serde_json::json!([]), "{status}");
    let log = status["log"].as_array().unwrap().iter();
    let what: Vec<&str> = log.map(|e| e["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["started", "reloaded"]);
    assert!(
        good(&guard.ask(&["status"]).output().unwrap())
            .starts_with("Read-only: nothing is changed; ")
    );
    let metrics = guard.page(&format!("127.0.0.1:{port}"), "/metrics");
    assert!(
        metrics.contains("hugeleaf_eligible_bytes{unit=\"readonly\""),
        "{metrics}"
    );
    guard.end();
    assert_eq!(worker.huge(), 0);
    for folder in ["state", "log"] {
        assert!(!Path::new(&place.path(folder)).exists(), "{folder}");
    }
}

#[test]
fn readers_that_stand_still_hold_nobody_up() {
    let place = Place::new();
    let port = kit::free_port();
    let guard = Guarding::start(
        &place,
        &format!("schema = 1\nlisten = '127.0.0.1:{port}'\n"),
    );
    let address = format!("127.0.0.1:{port}");
    guard.wait_for("it listens", |_| TcpStream::connect(&address).is_ok());
    let mut still = Vec::new();
    for n in 0..400 {
        let Ok(mut stream) = TcpStream::connect(&address) else {
            continue;
        };
        let _ = match n % 4 {
            0 => Ok(()),
            1 => stream.write_all(b"GET /metr"),
            2 => stream.write_all(format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()),
            _ => stream.write_all(&[0xff; 4000]),
        };
        still.push(stream);
    }
    let metrics = guard.page(&address, "/metrics");
    assert!(metrics.contains("hugeleaf_info") && !metrics.contains("# EOF"));
    good(&guard.ask(&["status"]).output().unwrap());
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", guard.pid()))
        .unwrap()
        .count();
    assert!(descriptors < 100, "{descriptors}");
    drop(still);
    // TCP clients cannot change anything, and other host names get nothing.
    for (request, status) in [
        (
            format!("POST /pause HTTP/1.1\r\nHost: {address}\r\n\r\n"),
            " 405 ",
        ),
        (
            "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".into(),
            " 421 ",
        ),
        (
            format!("GET /../../etc/passwd HTTP/1.1\r\nHost: {address}\r\n\r\n"),
            " 404 ",
        ),
        (
            format!("GET /program/x HTTP/1.1\r\nHost: {address}\r\n\r\n"),
            " 404 ",
        ),
    ] {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1") && answer[..16].contains(status),
            "{request} {answer}"
        );
    }
    assert!(guard.status()["paused_since"].is_null());
}

fn flood_by(clients: usize, address: &str) {
    for _ in 0..clients {
        let address = address.to_owned();
        std::thread::spawn(move || flood(&address));
    }
}

/// Sends requests for different pages at full speed and reads nothing, until the server stops.
fn flood(address: &str) {
    let mut open = VecDeque::new();
    for n in 0_u64.. {
        match TcpStream::connect(address) {
            Ok(mut stream) => {
                let _ = write!(stream, "GET /?{n} HTTP/1.1\r\nHost: {address}\r\n\r\n");
                open.push_back(stream);
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return,
            Err(_) => {}
        }
        open.drain(..open.len().saturating_sub(50));
    }
}

/// A reader gets every answer meanwhile, and the scans that it counts continue.
#[test]
fn a_flood_of_requests_stops_no_scans() {
    let place = Place::new();
    let address = format!("127.0.0.1:{}", kit::free_port());
    let rules = format!("schema = 1\nevery = '1s'\ncpu = '10%'\nlisten = '{address}'\n");
    let guard = Guarding::start(&place, &rules);
    let scans = || -> f64 {
        let page = guard.page(&address, "/metrics");
        let mut lines = page.lines();
        let count = lines.find_map(|line| line.strip_prefix("hugeleaf_scans_total "));
        count.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
    };
    let first = scans();
    flood_by(2, &address);
    let more = hugeleaf_testkit::size(4.0, 40.0);
    hugeleaf_testkit::until("scans go on", || scans() >= first + more);
}

#[test]
fn itself_and_the_first_process_are_left_alone() {
    let Some(_host) = can_run("itself_and_the_first_process_are_left_alone") else {
        return;
    };
    let place = Place::new();
    // A unique program name, because other tests run `hugeleaf`.
    let name = format!("hl-{}", std::process::id());
    let path = place.path(&name);
    std::os::unix::fs::symlink(crate::common::HUGELEAF, &path).unwrap();
    let rules = format!(
        "schema = 1\nevery = '1s'\nlisten = 'off'\n[[rule]]\nname = 'nobody-is-called-that'\n[[rule]]\nname = '{name}'\n\
         action = 'promote'\nmin_bytes = '1M'\nlooks = 1\n"
    );
    let guard = Guarding::start_as(Path::new(&path), &place, &rules);
    guard.wait_for("some looks", |s| s["cost"]["scans"].as_u64() > Some(3));
    assert!(guard.program(&guard.status(), guard.pid()).is_none());
    assert_eq!(guard.log().len(), 1, "{:?}", guard.log());
}

#[test]
fn without_rights_it_says_what_it_cannot_see() {
    let Some(_host) = can_run("without_rights_it_says_what_it_cannot_see") else {
        return;
    };
    let place = Place::new();
    let worker = Worker::grown(&place, "roots", 100);
    let (_dir, copy) = crate::common::public_copy();
    let config = place.write("guard.toml", &rule("roots", ""));
    use std::os::unix::process::CommandExt;
    let mut command = crate::common::program(
        &copy,
        &[
            "guard",
            "--once",
            "--dry-run",
            "--json",
            "--config",
            &config,
        ],
    );
    let output = command
        .uid(crate::common::NOBODY)
        .gid(crate::common::NOBODY)
        .output()
        .unwrap();
    let answer: serde_json::Value = serde_json::from_str(&good(&output)).unwrap();
    let programs = answer["programs"].as_array().unwrap();
    let mine = programs.iter().find(|p| p["pid"] == worker.pid()).unwrap();
    assert_eq!(mine["reason"], "unreadable", "{mine}");
    assert!(Kernel::new().supports_process_madvise());
}

/// Readers of a guard started by systemd: node_exporter reads the textfile, and any user reads the journal through `verify`. The program is
/// in the folder that README.md and the packages use.
#[test]
fn the_unit_fits_its_readers() {
    let repository = crate::common::repository();
    let read = |path: &str| std::fs::read_to_string(repository.join(path)).unwrap();
    let unit = read("contrib/systemd/hugeleaf-guard.service");
    let setting = |name: &str| {
        let mut lines = unit.lines().filter_map(|line| line.split_once('='));
        lines.find(|(key, _)| *key == name).unwrap().1
    };
    let mode = |name: &str| u32::from_str_radix(setting(name), 8).unwrap();
    assert_eq!(mode("UMask") & 0o044, 0);
    assert_eq!(mode("StateDirectoryMode") & 0o055, 0o055);
    assert!(setting("OOMScoreAdjust").parse::<i32>().unwrap() >= 0);
    // systemd searches these folders for a name without a folder (systemd.service(5)).
    assert_eq!(setting("ExecStart"), "hugeleaf guard");
    // A minimal Debian has no kill(1).
    assert_eq!(setting("ExecReload"), "hugeleaf guard reload");
    let searched = ["/usr/local/bin/", "/usr/bin/"];
    let readme = read("README.md");
    let install = readme.lines().find(|line| line.contains("sudo install"));
    let to = install.unwrap().split_whitespace().last().unwrap();
    assert!(searched.contains(&to), "{to}");
}

/// A refused priority is no error, so only the unit shows that calls with a bound get theirs.
#[test]
fn the_unit_permits_the_priority_of_bounded_calls() {
    let repository = crate::common::repository();
    let read = |path: &str| std::fs::read_to_string(repository.join(path)).unwrap();
    let unit = read("contrib/systemd/hugeleaf-guard.service");
    let filters = unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="));
    // Later lines change earlier ones (systemd.exec(5)), so the calls must follow the group that they are in.
    let (_, last) = unit.split_once("SystemCallFilter=~@resources").unwrap();
    let source = read("crates/sys/src/priority.rs");
    let calls = source.split("libc::SYS_").skip(1);
    let calls = calls.map(|rest| rest.split([',', ')']).next().unwrap());
    let mut needed = 0;
    for call in calls {
        needed += 1;
        let mut permits = filters.clone().filter(|filter| !filter.starts_with('~'));
        let is_named = permits.any(|filter| filter.split_whitespace().any(|name| name == call));
        assert!(is_named && last.contains(call), "{call}");
    }
    assert!(needed > 0, "the calls were not found");
    assert!(!unit.contains("RestrictRealtime=yes"));
}

#[test]
fn rules_for_alarms_hold() {
    let Some(promtool) = kit::promtool() else {
        return not_run("rules_for_alarms_hold", "promtool is not installed");
    };
    let folder = crate::common::repository().join("contrib/prometheus");
    for args in [
        ["check", "rules", "hugeleaf.rules.yml"],
        ["test", "rules", "tests.yml"],
    ] {
        let output = Command::new(&promtool)
            .args(args)
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stdout(&output));
    }
    let place = Place::new();
    // The name contains terminal control characters, and no format can contain it unescaped.
    let hostile = Worker::grown(&place, "a\u{1b}[31m\"\t\\u", 24);
    let guard = Guarding::start(&place, "schema = 1\nlisten = 'off'\n");
    guard.wait_for("a look", |s| s["cost"]["scans"].as_u64() > Some(0));
    let of_guard = good(&place.hugeleaf(&["metrics"]).output().unwrap());
    drop(guard);
    let of_command = good(&place.hugeleaf(&["metrics"]).output().unwrap());
    for metrics in [of_guard, of_command] {
        assert!(!metrics.contains('\u{1b}'), "{metrics}");
        check_metrics(&promtool, &metrics);
    }
    drop(hostile);
}

fn check_metrics(promtool: &std::path::Path, metrics: &str) {
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    check
        .stdin
        .take()
        .unwrap()
        .write_all(metrics.as_bytes())
        .unwrap();
    let output = check.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        stdout(&output),
        crate::common::stderr(&output)
    );
}
