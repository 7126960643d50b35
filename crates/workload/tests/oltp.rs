//! Tests of the workload in a separate process: real promotion, and every way to end it.
//!
//! These tests start this test program again as the workload, as its parent, and as another user.
//! Tests marked `ignore` are these roles and do nothing when run alone.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hugeleaf_sys::{Advice, Errno, Kernel, effective_uid};
use hugeleaf_testkit::until as wait_until;
use hugeleaf_units::{Bytes, PageSize, Range};
use hugeleaf_workload::{
    ChildCommand, ChildError, OltpProcess, StartupProgress, StartupStage, WorkloadSettings, serve,
};

const CACHE: Bytes = Bytes::from_mib(64);

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn role(name: &str) -> Vec<std::ffi::OsString> {
    [
        "--ignored",
        "--exact",
        "--nocapture",
        "--test-threads=1",
        name,
    ]
    .map(Into::into)
    .to_vec()
}

#[test]
#[ignore = "a role that other tests start"]
fn role_workload() {
    // Returns only if no process holds the other end.
    let Err(error) = serve();
    println!("not run: role_workload: only other tests start this ({error})");
}

#[test]
#[ignore = "a role that other tests start"]
fn role_holder() {
    if std::env::var_os("HUGELEAF_TEST_HOLD").is_none() {
        println!("not run: role_holder: only other tests start this");
        return;
    }
    let workload = start(CACHE, 1).unwrap();
    println!("\nholds {}", workload.pid());
    hugeleaf_testkit::pause(Duration::from_secs(600), "another test kills this process");
}

/// Returns the size that memory can be promoted to; `None` if this kernel cannot.
fn huge_page() -> Option<PageSize> {
    let path = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    let text = std::fs::read_to_string(path).ok()?;
    PageSize::new(Bytes(text.trim().parse().ok()?)).ok()
}

fn align() -> PageSize {
    huge_page().unwrap_or_else(|| Kernel::new().base_page())
}

fn start(cache: Bytes, seed: u64) -> Result<OltpProcess, ChildError> {
    start_watched(cache, seed, &mut |_| ControlFlow::Continue(()))
}

fn start_watched(
    cache: Bytes,
    seed: u64,
    progress: &mut dyn FnMut(StartupProgress) -> ControlFlow<()>,
) -> Result<OltpProcess, ChildError> {
    let program = ChildCommand {
        path: this_program(),
        arguments: role("oltp::role_workload"),
    };
    let settings = WorkloadSettings {
        cache,
        align: align(),
        seed,
    };
    OltpProcess::spawn(settings, &program, progress)
}

/// Sums a field of smaps over the mappings in `range`.
fn smaps(pid: u32, range: Range, line: &str) -> Bytes {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut inside = false;
    let mut sum = Bytes::ZERO;
    for text in text.lines() {
        let first = text.split(' ').next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let hex = |t| u64::from_str_radix(t, 16).unwrap();
            let mapping = Range::new(hex(start), hex(end)).unwrap();
            inside = mapping.intersect(range).is_some();
        } else if inside && first.strip_suffix(':') == Some(line) {
            let kib: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
            sum += Bytes::from_kib(kib);
        }
    }
    sum
}

fn status(pid: u32, line: &str) -> Bytes {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let text = text.lines().find(|l| l.starts_with(line)).unwrap();
    Bytes::from_kib(text.split_whitespace().nth(1).unwrap().parse().unwrap())
}

/// Returns true if the process is gone; an unreaped zombie counts as gone.
fn is_gone(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(") ").next().unwrap().starts_with('Z'),
        Err(_) => true,
    }
}

#[test]
fn the_database_lies_wholly_in_the_segment_on_base_pages() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let mut stages = vec![];
    let workload = start_watched(CACHE, 1, &mut |p| {
        assert!(p.done <= p.total, "{p:?}");
        if stages.last() != Some(&p.stage) {
            stages.push(p.stage);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(
        stages,
        [
            StartupStage::Populate,
            StartupStage::Fill,
            StartupStage::Warm
        ]
    );
    let ready = workload.ready();
    let pid = workload.pid().0;
    assert_eq!(ready.segment.len(), CACHE);
    assert_eq!(ready.segment.aligned_inside(align()), Some(ready.segment));
    assert_eq!(ready.outside, Bytes::ZERO);
    // Only keys, stamps and records; SQLite adds the headers of rows and pages.
    let data = Bytes(ready.rows * (8 + 280));
    assert!(data.share_of(CACHE).unwrap() > 0.8, "{data} of {CACHE}");
    assert!(data < CACHE);
    assert!(smaps(pid, ready.segment, "Rss") >= CACHE);
    assert_eq!(smaps(pid, ready.segment, "AnonHugePages"), Bytes::ZERO);
    let elsewhere = status(pid, "RssAnon:") - CACHE;
    assert!(elsewhere < Bytes::from_mib(12), "{elsewhere}");
    workload.stop();
    assert!(is_gone(pid));
}

#[test]
fn the_same_seed_makes_the_same_database() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let rows = |seed| start(Bytes::from_mib(32), seed).unwrap().ready().rows;
    assert_eq!(rows(1), rows(1));
}

#[test]
fn the_load_counts_and_does_not_grow() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let workload = start(CACHE, 1).unwrap();
    let pid = workload.pid().0;
    let before = workload.stats().unwrap();
    let resident = status(pid, "RssAnon:");
    wait_until("300,000 operations", || {
        workload.stats().unwrap().operations > before.operations + 300_000
    });
    let client = workload.client();
    wait_until("samples", || client.stats().unwrap().samples > 0);
    let after = client.stats().unwrap();
    assert!(after.nanoseconds > before.nanoseconds);
    assert!(after.cpu_nanoseconds > before.cpu_nanoseconds);
    let updates = after.updates - before.updates;
    let share = updates as f64 / (after.operations - before.operations) as f64;
    assert!((0.08..0.12).contains(&share), "{share} are updates");
    let grown = status(pid, "RssAnon:") - resident;
    assert!(grown < Bytes::from_mib(2), "grew by {grown}");
    // The handle shares the client.
    drop(client);
    workload.stop();
    assert!(is_gone(pid));
}

#[test]
fn percentiles_are_of_the_time_since_the_last_question() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let workload = start(Bytes::from_mib(32), 1).unwrap();
    wait_until("samples", || {
        let stats = workload.stats().unwrap();
        if stats.samples == 0 {
            return false;
        }
        assert!(stats.p50_nanoseconds > 0);
        assert!(stats.p50_nanoseconds <= stats.p99_nanoseconds);
        assert!(stats.samples <= stats.operations);
        true
    });
}

/// Promotes and demotes through the engines' kernel interface, and reads back the result.
#[test]
fn it_promotes_and_demotes_itself_on_request() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let Some(huge) = huge_page().filter(|_| Kernel::new().supports_collapse()) else {
        println!(
            "not run: it_promotes_and_demotes_itself_on_request: this kernel has no MADV_COLLAPSE"
        );
        return;
    };
    let workload = start(CACHE, 1).unwrap();
    let (pid, segment) = (workload.pid(), workload.ready().segment);
    let kernel = workload.kernel();
    let process = kernel.pidfd_open(pid).unwrap();
    assert!(!kernel.has_exited(&process).unwrap());
    if effective_uid() != 0 {
        let denied = Kernel::new().process_madvise(&process, &[segment], Advice::Collapse);
        assert_eq!(denied.unwrap_err().errno, Errno::PERM);
    }
    let before = smaps(pid.0, segment, "AnonHugePages");
    for block in segment.chunks(huge) {
        for attempt in 0.. {
            match kernel.process_madvise(&process, &[block], Advice::Collapse) {
                Ok(done) => assert_eq!(done, block.len()),
                Err(e) if e.errno == Errno::AGAIN && attempt < 100 => continue,
                Err(e) => panic!("{e}"),
            }
            break;
        }
    }
    assert_eq!(before, Bytes::ZERO);
    assert_eq!(smaps(pid.0, segment, "AnonHugePages"), CACHE);

    let base = kernel.base_page().bytes().get();
    let first_pages: Vec<Range> = segment
        .chunks(huge)
        .map(|block| Range::new(block.start(), block.start() + base).unwrap())
        .collect();
    let done = kernel.process_madvise(&process, &first_pages, Advice::Cold);
    assert_eq!(done.unwrap(), Bytes(base * first_pages.len() as u64));
    assert_eq!(smaps(pid.0, segment, "AnonHugePages"), Bytes::ZERO);
    // The load still runs; a damaged row would have ended it.
    let operations = workload.stats().unwrap().operations;
    wait_until("it works on", || {
        workload.stats().unwrap().operations > operations
    });
}

#[test]
fn errors_come_back_as_the_kernel_gave_them() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let workload = start(Bytes::from_mib(32), 1).unwrap();
    let kernel = workload.kernel();
    let process = kernel.pidfd_open(workload.pid()).unwrap();
    let base = kernel.base_page().bytes().get();
    let nowhere = Range::new(base, 2 * base).unwrap();
    let refused = kernel.process_madvise(&process, &[nowhere], Advice::Cold);
    assert_eq!(refused.unwrap_err().errno, Errno::NOMEM);
    // The first succeeds, the second fails. The answer is the processed bytes, as in
    // process_madvise(2).
    let start = workload.ready().segment.start();
    let good = Range::new(start, start + base).unwrap();
    let half = kernel.process_madvise(&process, &[good, nowhere, good], Advice::Cold);
    assert_eq!(half.unwrap(), Bytes(base));
    // The protocol has no other advice, and the call takes no more ranges.
    let refused = kernel.process_madvise(&process, &[good], Advice::NoHugePage);
    assert_eq!(refused.unwrap_err().errno, Errno::INVAL);
    let refused = kernel.process_madvise(&process, &[good; 1025], Advice::Cold);
    assert_eq!(refused.unwrap_err().errno, Errno::INVAL);
    assert_eq!(
        kernel.process_madvise(&process, &[], Advice::Cold).unwrap(),
        Bytes::ZERO
    );
    workload.stop();
    let gone = kernel.process_madvise(&process, &[good], Advice::Cold);
    assert_eq!(gone.unwrap_err().errno, Errno::SRCH);
    assert!(kernel.has_exited(&process).unwrap());
}

#[test]
fn it_works_for_a_user_without_privilege() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const NOBODY: u32 = 65534;
    if effective_uid() != 0 {
        println!(
            "not run: it_works_for_a_user_without_privilege: needs root, to become another user"
        );
        return;
    }
    // Other users may have no access to the build folder.
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let program = dir.path().join("oltp");
    copy_program(&this_program(), &program);
    open(dir.path());
    open(&program);
    let done = Command::new(&program)
        .args(["--exact", "--nocapture"])
        .arg("oltp::it_promotes_and_demotes_itself_on_request")
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn it_ends_when_its_parent_is_killed() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let mut holder = Command::new(this_program())
        .args(role("oltp::role_holder"))
        .env("HUGELEAF_TEST_HOLD", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let pid: u32 = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("holds ")?.parse().ok())
        .unwrap();
    assert!(!is_gone(pid));
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until("the workload ends", || is_gone(pid));
}

#[test]
fn it_ends_when_its_parent_breaks_off() {
    let _host = hugeleaf_testkit::host_lock::shared();
    for stop_in in [
        StartupStage::Populate,
        StartupStage::Fill,
        StartupStage::Warm,
    ] {
        let error = start_watched(CACHE, 1, &mut |p| {
            if p.stage == stop_in {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .map(drop)
        .unwrap_err();
        assert!(matches!(error, ChildError::Stopped), "{error}");
    }
}

#[test]
fn a_workload_that_was_killed_is_reported() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let workload = start(Bytes::from_mib(32), 1).unwrap();
    let pid = workload.pid().0;
    Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .unwrap();
    wait_until("it is gone", || is_gone(pid));
    let error = workload.stats().unwrap_err();
    assert!(matches!(error, ChildError::Ended { pid: p, .. } if p.0 == pid));
}

/// Copies a program in another process. A descriptor open for writing here could be inherited by
/// processes that other threads start, and running the copy would then fail ("text file busy").
fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}
