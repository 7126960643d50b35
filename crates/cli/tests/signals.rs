//! SIGTERM and SIGINT end every long-running or waiting command, even in the middle of a pause of an hour. Memory contents
//! stay intact, and `prove` restores the pages. `apply`, `run`, `top`, `try` and `bench FILE` have their own tests for that.
//!
//! The promise is to end within 5 s. How long that takes on a busy host depends on its load, so these tests bound what does not: the
//! processor time after the signal, and the memory that is promoted or demoted after it.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use hugeleaf_host::Root;
use hugeleaf_host::process::cpu_time::cpu_usage;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{ChildGuard, good, holder, hugeleaf, wait_until};
use crate::guard::kit::{Guarding, Place, Worker, can_run, rule};

const BOTH: [Signal; 2] = [Signal::TERM, Signal::INT];

/// The promised time to the end of a command after a signal.
const PROMISED: Duration = Duration::from_secs(5);

/// Returns a field of `/proc/PID/status` as text.
fn status(pid: u32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_default().trim().to_owned()
}

/// Returns true if a process has a handler for a signal.
pub fn catches(pid: u32, signal: Signal) -> bool {
    let caught = u64::from_str_radix(&status(pid, "SigCgt:"), 16);
    caught.is_ok_and(|caught| caught >> (signal.as_raw() - 1) & 1 == 1)
}

/// Returns the processor time of all threads of a process, also of one that has ended and was not waited for.
fn processor_time(pid: u32) -> Duration {
    let used = cpu_usage(&Root::live(), hugeleaf_host::Pid(pid)).unwrap();
    used.user + used.system
}

/// Sends a signal to a working command, and returns its exit status.
#[track_caller]
pub fn ended(
    command: &mut Command,
    signal: Signal,
    is_at_work: &dyn Fn(u32) -> bool,
) -> ExitStatus {
    ended_at(command, signal, is_at_work, &mut || {})
}

/// Does the same, and calls `at_signal` when the command has done all that it does before the signal.
#[track_caller]
fn ended_at(
    command: &mut Command,
    signal: Signal,
    is_at_work: &dyn Fn(u32) -> bool,
    at_signal: &mut dyn FnMut(),
) -> ExitStatus {
    let shown = format!("{command:?}");
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = ChildGuard(command.spawn().unwrap());
    let pid = running.0.id();
    wait_until(&format!("{shown} is at work"), || {
        let ended = running.0.try_wait().unwrap();
        assert!(ended.is_none(), "{shown} ended early: {ended:?}");
        catches(pid, signal) && is_at_work(pid)
    });
    let is_in = |states: &[char]| status(pid, "State:").starts_with(states);
    let send = |signal| kill_process(Pid::from_child(&running.0), signal).unwrap();
    // Stopped, so that all that follows comes after the signal. It may just have ended.
    send(Signal::STOP);
    wait_until(&format!("{shown} is stopped"), || is_in(&['T', 'Z']));
    let before = processor_time(pid);
    at_signal();
    send(signal);
    send(Signal::CONT);
    wait_until(&format!("{shown} ends"), || is_in(&['Z']));
    let used = processor_time(pid).saturating_sub(before);
    assert!(
        used <= PROMISED,
        "{shown} used {used:?} of a processor after the signal"
    );
    let status = running.0.wait().unwrap();
    // The command reports its result, or that it has none; the signal itself does not end it.
    assert_eq!(status.signal(), None, "{shown}");
    status
}

#[test]
fn what_watches_ends() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (target, plan, trace, result) = (holder(8, None), file("p"), file("t"), file("r"));
    let pid = target.pid();
    let sleeps = |pid: u32| status(pid, "State:").starts_with('S');
    let has_threads = |pid: u32| status(pid, "Threads:") != "1";
    let always = |_: u32| true;
    let commands: [(&str, &dyn Fn(u32) -> bool); 5] = [
        (&format!("mem --watch 1h {pid}"), &sleeps),
        (
            &format!("plan --tighten --for 1h --every 1h --output {plan}"),
            &sleeps,
        ),
        (&format!("predict {pid} --for 1h"), &has_threads),
        (
            &format!("trace --for 1h --intervals-only -o {trace}"),
            &always,
        ),
        (
            &format!("bench chase --sizes 64K --pages base --for 1h -o {result}"),
            &always,
        ),
    ];
    for (words, is_at_work) in commands {
        for signal in BOTH {
            let words: Vec<&str> = words.split(' ').collect();
            ended(&mut hugeleaf(&words), signal, is_at_work);
        }
    }
}

/// Servers that accept a connection and never answer.
#[test]
fn what_keeps_house_ends() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let component = |name: &str, kind: &str| {
        format!(
            "[[balance.component]]\nname = '{name}'\nkind = '{kind}'\naddress = '{address}'\nleast = '64M'\nmost = '100M'\n"
        )
    };
    let place = Place::new();
    let rules = format!(
        "schema = 1\nevery = '1h'\nlisten = 'off'\n[[balance]]\nname = 'both'\ntarget = '150M'\naction = 'balance'\nevery = '1h'\n{}{}",
        component("a", "memcached"),
        component("b", "redis"),
    );
    let config = place.write("guard.toml", &rules);
    let has_threads = |pid: u32| status(pid, "Threads:") != "1";
    for command in ["balance", "guard"] {
        for signal in BOTH {
            let mut command = place.hugeleaf(&[command, "--config", &config]);
            let ended = ended(&mut command, signal, &has_threads);
            assert!(ended.success(), "{command:?}: {ended}");
        }
    }
}

#[test]
fn what_moves_memory_ends() {
    let Some(_host) = can_run("what_moves_memory_ends") else {
        return;
    };
    let place = Place::new();
    let counter = place.path("counter");
    // A call that had begun is made to its end; one of a demotion splits four huge pages.
    let one_call = 4 * (hugeleaf_testkit::process_facts::huge_page_kb().unwrap() << 10);
    for signal in BOTH {
        let mut worker = Worker::start(&place, "moved", &counter, 1.1);
        worker.tell("grow 64");
        let (pid, metric) = (worker.pid().to_string(), format!("cmd:cat {counter}"));
        // In the middle of the promotion, and of its pauses.
        let huge = || worker.huge();
        let mut then = 0;
        let promote = &mut place.hugeleaf(&["promote", "--budget", "1%", &pid]);
        ended_at(promote, signal, &|_| huge() > 0, &mut || then = huge());
        assert!(huge() <= then + one_call, "promotes after {signal:?}");
        good(&place.hugeleaf(&["promote", &pid]).output().unwrap());
        let whole = huge();
        let demote = &mut place.hugeleaf(&["demote", "--budget", "1%", &pid]);
        ended_at(demote, signal, &|_| huge() < whole, &mut || then = huge());
        assert!(huge() + one_call >= then, "demotes after {signal:?}");
        good(&place.hugeleaf(&["demote", &pid]).output().unwrap());
        // In a pause between two readings.
        let result = place.path("result.json");
        let settle = ["--settle", "1h", "--interval", "1h", "-o", &result];
        let prove = [&["prove", &pid, "--metric", &metric][..], &settle].concat();
        ended(&mut place.hugeleaf(&prove), signal, &|_| huge() > 0);
        assert_eq!(huge(), 0, "{signal:?}");
        worker.tell("");
    }
}

/// The proof waits in a thread that no signal reaches.
#[test]
fn a_guard_that_tests_ends() {
    let Some(_host) = can_run("a_guard_that_tests_ends") else {
        return;
    };
    let place = Place::new();
    let counter = place.path("counter");
    let mut worker = Worker::start(&place, "paused", &counter, 1.1);
    worker.tell("grow 64");
    let test = format!(
        "metric = 'cmd:cat {counter}'\nprove = {{ pairs = 100, every = '7d', over = '0s', interval = '1h' }}"
    );
    let guard = Guarding::start(&place, &rule("paused", &test));
    guard.wait_for("it tests", |status| {
        let program = guard.program(status, worker.pid());
        program.is_some_and(|program| program.to_string().contains("\"testing\""))
    });
    guard.end();
    assert!(worker.huge() > 60 << 20, "{}", worker.huge());
    worker.tell("");
}
