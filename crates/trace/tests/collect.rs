//! Traces of this host under a known load. They need root (or CAP_PERFMON); a test that cannot run prints
//! the reason.

// Panics are test failures, also in helpers.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use hugeleaf_host::{Root, read_host};
use hugeleaf_sys::{Kernel, OwnMapping, Sharing};
use hugeleaf_testkit::host_lock::alone_as_root;
use hugeleaf_trace::model::{
    CpuMode, Lock, LockKind, SourceState, TraceEndReason, TracedProcess, TracedTarget,
};
use hugeleaf_trace::{CollectOptions, CollectStage, Trace, collect};
use hugeleaf_units::{Bytes, PageSize};

fn options(millis: u64) -> CollectOptions {
    CollectOptions {
        time: Duration::from_millis(millis),
        rate: 499,
        buffer: Bytes::from_mib(4),
        intervals_only: false,
        no_locks: false,
        every_call: false,
        target: None,
        command: vec!["test".to_owned()],
        tool_version: "0".to_owned(),
    }
}

fn aimed_at(pid: u32, options: CollectOptions) -> CollectOptions {
    CollectOptions {
        target: Some(TracedTarget {
            text: pid.to_string(),
            pids: vec![pid],
        }),
        ..options
    }
}

fn base_page() -> PageSize {
    read_host(&Root::live(), &Kernel::new()).unwrap().base_page
}

/// Returns a trace, or `None` with a message if this host or user provides no events.
fn trace(name: &str, options: &CollectOptions) -> Option<Trace> {
    trace_while(name, options, &AtomicBool::new(false), || {})
}

/// Traces until `stop` is set; calls `begun` once it is under way.
fn trace_while(
    name: &str,
    options: &CollectOptions,
    stop: &AtomicBool,
    begun: impl FnOnce(),
) -> Option<Trace> {
    let (root, kernel) = (Root::live(), Kernel::new());
    let mut begun = Some(begun);
    let mut watch = |progress| {
        if let CollectStage::At(_) = progress
            && let Some(begun) = begun.take()
        {
            begun();
        }
    };
    match collect(&root, &kernel, options, stop, &mut watch) {
        Ok(trace) => Some(trace),
        Err(error) => {
            println!("not run: {name}: {error}");
            None
        }
    }
}

fn state<'a>(trace: &'a Trace, source: &str) -> &'a SourceState {
    &trace
        .sources
        .iter()
        .find(|s| s.name == source)
        .unwrap()
        .state
}

/// Returns true if a source was used, and prints the reason otherwise.
fn used(test: &str, trace: &Trace, source: &str) -> bool {
    let state = state(trace, source);
    if *state != SourceState::Used {
        println!("not run: {test}: {source}: {state:?}");
    }
    *state == SourceState::Used
}

fn process(trace: &Trace, pid: u32) -> (u32, &TracedProcess) {
    let place = trace.processes.iter().position(|p| p.pid == pid).unwrap();
    (u32::try_from(place).unwrap(), &trace.processes[place])
}

/// A child process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a shell whose script may wait for a line (`read go`) on its standard input.
fn shell(script: &str) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Ended(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    )
}

/// Threads that work until dropped.
struct Busy(Arc<AtomicBool>, Vec<JoinHandle<()>>);

impl Busy {
    fn new(threads: usize, work: impl Fn() + Send + Clone + 'static) -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |_| {
            let (stop, work) = (Arc::clone(&stop), work.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    work();
                }
            })
        };
        let threads = (0..threads).map(start).collect();
        Busy(stop, threads)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_busy_child_is_in_the_profile() {
    let child = shell("while :; do :; done");
    let options = aimed_at(child.0.id(), options(1500));
    let Some(trace) = trace("a_busy_child_is_in_the_profile", &options) else {
        return;
    };
    assert_eq!(trace.ending, TraceEndReason::Done);
    let (place, process) = process(&trace, child.0.id());
    assert!(process.in_target);
    assert!(process.user_seconds.unwrap() > 0.0, "{process:?}");
    let in_user_mode: u64 = trace
        .samples
        .iter()
        .filter(|s| s.process == place && s.mode == CpuMode::User)
        .map(|s| s.count)
        .sum();
    // The host is shared with other tests, so far less than a fair share of one CPU suffices.
    assert!(in_user_mode > 30, "{in_user_mode}");
    let sample = trace.samples.iter().find(|s| s.process == place).unwrap();
    let leaf = trace.stacks[sample.stack as usize].frames[0];
    assert!(!trace.symbols[leaf as usize].name.is_empty());
    // Intervals cover the whole trace and include the target.
    let covered: f64 = trace.intervals.iter().map(|i| i.seconds).sum();
    assert!((covered - trace.seconds).abs() < 0.5, "{covered}");
    assert_eq!(trace.intervals[0].target.as_ref().unwrap().processes, 1);
    let before = trace.memory_before.as_ref().unwrap();
    let is_child = |p: &&hugeleaf_trace::model::ProcessMemory| p.pid == child.0.id();
    let memory = before.processes.iter().find(is_child).unwrap();
    assert!(memory.in_target && !memory.segments.is_empty());
}

/// Kernel functions have names if addresses are readable.
#[test]
fn the_kernel_has_names() {
    let child = shell("while :; do cat /proc/self/maps; done");
    let Some(trace) = trace("the_kernel_has_names", &options(1000)) else {
        return;
    };
    drop(child);
    let kernel: Vec<_> = trace.symbols.iter().filter(|s| s.kernel).collect();
    assert!(!kernel.is_empty());
    let named = kernel.iter().filter(|s| !s.unnamed).count();
    if named == 0 {
        println!("not run: the_kernel_has_names: /proc/kallsyms has no addresses");
        return;
    }
    assert!(named * 10 > kernel.len() * 9, "{named} of {}", kernel.len());
    assert!(kernel.iter().any(|s| s.name.contains("syscall")));
}

/// All short-lived children of a forking target belong to it, and the trace ends with the target.
#[test]
fn a_target_that_forks_a_thousand_times_and_ends() {
    let script = "read go; i=0; while [ $i -lt 1000 ]; do (:); i=$((i+1)); done; exec sleep 0.2";
    let mut child = shell(script);
    let pid = child.0.id();
    let mut stdin = child.0.stdin.take().unwrap();
    // The child must be reaped, or it stays as a zombie, which is outside of this test.
    let reaper = std::thread::spawn(move || child.0.wait());
    let options = aimed_at(pid, options(600_000));
    let name = "a_target_that_forks_a_thousand_times_and_ends";
    let begun = || stdin.write_all(b"go\n").unwrap();
    let Some(trace) = trace_while(name, &options, &AtomicBool::new(false), begun) else {
        return;
    };
    reaper.join().unwrap().unwrap();
    assert_eq!(trace.ending, TraceEndReason::TargetEnded);
    let mine: Vec<&TracedProcess> = trace.processes.iter().filter(|p| p.in_target).collect();
    let children = mine.iter().filter(|p| p.started_seconds.is_some()).count();
    assert!(children >= 1000, "{children}");
    assert!(mine.iter().all(|p| p.ended_seconds.is_some()));
    // The process has called execve meanwhile.
    let (_, process) = process(&trace, pid);
    assert_eq!(process.name, "sleep");
    assert_eq!(process.earlier_names, ["sh"]);
    // Its parent does not belong to it.
    assert!(mine.iter().all(|p| p.pid != std::process::id()));
}

/// Checks that the sums of a lock's tables agree.
fn check_sums(lock: &Lock) {
    let callers: u64 = lock.by_caller.iter().map(|c| c.totals.contentions).sum();
    let threads: u64 = lock.by_thread.iter().map(|t| t.totals.contentions).sum();
    assert_eq!(callers, lock.totals.contentions);
    assert_eq!(threads, lock.totals.contentions);
    let time: u64 = lock.by_thread.iter().map(|t| t.totals.waited_nanos).sum();
    assert_eq!(time, lock.totals.waited_nanos);
    let time: u64 = lock.by_caller.iter().map(|c| c.totals.waited_nanos).sum();
    assert_eq!(time, lock.totals.waited_nanos);
    assert!(lock.totals.longest_nanos <= lock.totals.waited_nanos);
}

/// Threads of one process that change its mappings contend for one lock.
#[test]
fn threads_that_fight_for_a_lock() {
    const NAME: &str = "threads_that_fight_for_a_lock";
    let length = Bytes(base_page().bytes().get() * 64);
    let busy = Busy::new(4, move || {
        drop(OwnMapping::anonymous(length, Sharing::Private).unwrap());
    });
    let trace = trace(NAME, &options(1500));
    drop(busy);
    let Some(trace) = trace.filter(|t| used(NAME, t, "lock contention")) else {
        return;
    };
    let (place, _) = process(&trace, std::process::id());
    let is_ours = |lock: &&Lock| {
        let ours = lock.by_thread.iter().filter(|t| t.process == place);
        matches!(lock.kind, LockKind::RwSemWrite | LockKind::RwSemRead) && ours.count() >= 2
    };
    let lock = trace.locks.iter().find(is_ours);
    let lock = lock.expect("no lock that two of the threads waited for");
    check_sums(lock);
    // The function that takes it is not the lock's own code.
    let taker = &trace.symbols[lock.taken_by.unwrap() as usize];
    assert!(taker.kernel && !taker.name.contains("rwsem"), "{taker:?}");
    // Events are in order, and threads take turns in them.
    assert!(lock.events.is_sorted_by_key(|e| e.at_nanos));
    let mut tids: Vec<u32> = lock.events.iter().map(|e| e.tid).collect();
    tids.sort_unstable();
    tids.dedup();
    assert!(tids.len() >= 2, "{tids:?}");
}

/// Every call is counted with its bytes if requested.
#[test]
fn calls_that_lock_memory() {
    const NAME: &str = "calls_that_lock_memory";
    const CALLS: u64 = 300;
    let length = Bytes(base_page().bytes().get() * 2);
    let stop = Arc::new(AtomicBool::new(false));
    let (go, begun) = mpsc::channel();
    let done = Arc::clone(&stop);
    let worker = std::thread::spawn(move || {
        // It fails if the trace failed; then nothing observes the calls.
        let _ = begun.recv();
        let mapping = OwnMapping::anonymous(length, Sharing::Private).unwrap();
        for _ in 0..CALLS {
            lock_and_unlock(&mapping, usize::try_from(length.get()).unwrap());
        }
        done.store(true, Ordering::Relaxed);
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        tid.unsigned_abs()
    });
    let options = CollectOptions {
        every_call: true,
        ..options(600_000)
    };
    let trace = trace_while(NAME, &options, &stop, move || go.send(()).unwrap());
    let tid = worker.join().unwrap();
    let Some(trace) = trace.filter(|t| used(NAME, t, "memory locking calls")) else {
        return;
    };
    for call in ["mlock", "munlock"] {
        let pin = trace.pins.iter().find(|p| p.tid == tid && p.call == call);
        let pin = pin.unwrap_or_else(|| panic!("no {call} of {tid}: {:?}", trace.pins));
        assert_eq!((pin.calls, pin.failed), (CALLS, Some(0)));
        assert_eq!(pin.bytes, Some(CALLS * length.get()));
        assert!(!pin.estimated);
    }
}

#[allow(unsafe_code)] // the addresses are the mapping's own
fn lock_and_unlock(mapping: &OwnMapping, bytes: usize) {
    let start = mapping.as_ptr().cast();
    // SAFETY: the range is the mapping's, which lives until after both calls; locking changes no byte of it.
    unsafe {
        rustix::mm::mlock(start, bytes).unwrap();
        rustix::mm::munlock(start, bytes).unwrap();
    }
}

/// Direct I/O is counted by thread, call by call.
#[test]
fn direct_reads() {
    const NAME: &str = "direct_reads";
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("data");
    let length = Bytes::from_mib(4).get();
    std::fs::write(&file, vec![1u8; usize::try_from(length).unwrap()]).unwrap();
    let script = format!(
        "read go; dd if={} of=/dev/null iflag=direct bs=256k count=16 2>/dev/null",
        file.display()
    );
    let mut child = shell(&script);
    let pid = child.0.id();
    let mut stdin = child.0.stdin.take().unwrap();
    let reaper = std::thread::spawn(move || child.0.wait());
    let options = aimed_at(pid, options(600_000));
    let begun = || stdin.write_all(b"go\n").unwrap();
    let trace = trace_while(NAME, &options, &AtomicBool::new(false), begun);
    drop(stdin);
    reaper.join().unwrap().unwrap();
    let Some(trace) = trace.filter(|t| used(NAME, t, "direct i/o")) else {
        return;
    };
    let pins: Vec<_> = trace
        .pins
        .iter()
        .filter(|p| trace.processes[p.process as usize].name == "dd" && p.call == "direct read")
        .collect();
    let [pin] = pins[..] else {
        println!("not run: {NAME}: this file system does direct I/O in its own way");
        return;
    };
    assert_eq!((pin.calls, pin.bytes), (16, Some(length)));
}

/// Builds a C program in a folder; returns `None` with a message without a compiler.
fn build(test: &str, name: &str, flags: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (source, program) = (dir.path().join("a.c"), dir.path().join(name));
    let text = "__attribute__((noinline)) int take_a_turn(volatile int *n)\n\
                { for (int i = 0; i < 100000; i++) ++*n; return *n; }\n\
                int main(void) { volatile int n = 0; for (;;) take_a_turn(&n); }\n";
    std::fs::write(&source, text).unwrap();
    let mut command = Command::new("cc");
    let status = command
        .args(flags)
        .arg("-o")
        .args([&program, &source])
        .status();
    if !status.is_ok_and(|s| s.success()) {
        println!("not run: {test}: no C compiler");
        return None;
    }
    Some((dir, program))
}

/// A program without symbols has offsets instead of names, and a note.
#[test]
fn a_stripped_program() {
    const NAME: &str = "a_stripped_program";
    let Some((_dir, program)) = build(NAME, "spinner", &["-O1", "-s"]) else {
        return;
    };
    let child = Ended(Command::new(&program).spawn().unwrap());
    let trace = trace(NAME, &options(1000));
    drop(child);
    let Some(trace) = trace else {
        return;
    };
    let of_it = |s: &&hugeleaf_trace::model::Symbol| s.module.ends_with("/spinner");
    let symbol = trace
        .symbols
        .iter()
        .find(of_it)
        .expect("it is in no sample");
    assert!(
        symbol.unnamed && symbol.name.starts_with("[spinner+0x"),
        "{symbol:?}"
    );
    let note = trace.notes.iter().find(|n| n.contains("spinner"));
    assert!(note.unwrap().contains("No symbols"), "{:?}", trace.notes);
}

/// A file deleted while it runs is read through the process. A replaced file gives no names.
#[test]
fn a_program_that_was_deleted() {
    const NAME: &str = "a_program_that_was_deleted";
    let Some((_dir, program)) = build(NAME, "turner", &["-O1"]) else {
        return;
    };
    let child = Ended(Command::new(&program).spawn().unwrap());
    std::fs::remove_file(&program).unwrap();
    std::fs::copy("/bin/sh", &program).unwrap();
    let trace = trace(NAME, &options(1000));
    drop(child);
    let Some(trace) = trace else {
        return;
    };
    let named = trace.symbols.iter().any(|s| s.name == "take_a_turn");
    assert!(named, "{:?}", trace.notes);
}

/// Events dropped because rings were not emptied in time are counted.
#[test]
fn lost_events_are_counted() {
    let busy = Busy::new(4, || {
        // Each process that starts and ends is several records.
        let _ = Command::new("true").status();
    });
    let options = CollectOptions {
        // The smallest possible rings, and the maximum rate of samples.
        buffer: Bytes(1),
        rate: 10_000,
        ..options(1500)
    };
    let trace = trace("lost_events_are_counted", &options);
    drop(busy);
    let Some(trace) = trace else {
        return;
    };
    let lost: u64 = trace.sources.iter().map(|s| s.lost).sum();
    assert!(lost > 0, "{:?}", trace.sources);
}

/// If the kernel allows fewer samples than requested, only the rate is reduced.
#[test]
fn fewer_samples_where_the_kernel_allows_no_more() {
    let test = "fewer_samples_where_the_kernel_allows_no_more";
    let Some(host) = alone_as_root(test) else {
        return;
    };
    let limit = "/proc/sys/kernel/perf_event_max_sample_rate";
    // Not below the rate of other tests that run at the same time.
    if host.try_set(limit, 600).is_err() {
        return println!("not run: {test}: needs to write to {limit}");
    }
    let asked = CollectOptions {
        rate: 9_000,
        ..options(700)
    };
    let trace = trace(test, &asked);
    drop(host);
    let Some(trace) = trace else {
        return;
    };
    assert!(
        trace.samples_a_second <= 600.0,
        "{}",
        trace.samples_a_second
    );
    let note = trace
        .notes
        .iter()
        .find(|n| n.contains("perf_event_max_sample_rate"));
    assert!(note.is_some(), "{:?}", trace.notes);
    for source in &trace.sources {
        let is_refused =
            matches!(&source.state, SourceState::NotHere { reason } if reason.contains("Invalid"));
        assert!(!is_refused, "{source:?}");
    }
}

/// On Ctrl-C the data so far is kept. Without events, nothing is made up.
#[test]
fn stopped_early() {
    let stop = AtomicBool::new(false);
    let options = CollectOptions {
        intervals_only: true,
        ..options(600_000)
    };
    let begun = || stop.store(true, Ordering::Relaxed);
    let trace = trace_while("stopped_early", &options, &stop, begun).unwrap();
    assert_eq!(trace.ending, TraceEndReason::Interrupted);
    assert!(trace.seconds < 600.0 && !trace.intervals.is_empty());
    // Disabled sources are reported as such; sources without events were read.
    use hugeleaf_trace::tables::not_measured::{TraceDataKind, not_measured};
    for what in TraceDataKind::ALL {
        let read = [
            TraceDataKind::CpuTime,
            TraceDataKind::Vmstat,
            TraceDataKind::Memory,
        ]
        .contains(&what);
        assert_eq!(not_measured(&trace, what).is_none(), read, "{what:?}");
        if !read && what != TraceDataKind::Io {
            assert_eq!(*state(&trace, what.name()), SourceState::Off);
        }
    }
    assert!(trace.samples.is_empty() && trace.locks.is_empty());
    // The trace read back equals the collected one.
    let dir = tempfile::tempdir().unwrap();
    let path: &Path = &dir.path().join("a.trace");
    hugeleaf_trace::write_trace(path, &trace).unwrap();
    assert_eq!(hugeleaf_trace::read_trace(path).unwrap(), trace);
}
