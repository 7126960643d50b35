//! Tests the engines of `promote` and `demote` on the workload of `try`, as root and without
//! privilege. The workload advises its own memory on request.

use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use hugeleaf_host::{Root, read_host};
use hugeleaf_mover::{
    BytesByReason, DemoteOptions, Percent, PreconditionError, PromoteOptions, demote, promote,
};
use hugeleaf_sys::{Kernel, effective_uid};
use hugeleaf_units::Bytes;
use hugeleaf_verdict::eligible;
use hugeleaf_workload::{ChildCommand, OltpProcess, WorkloadSettings};

const CACHE: Bytes = Bytes::from_mib(64);

/// Names programs that another user can access, since this program may be out of reach.
const PROGRAM: &str = "HUGELEAF_TEST_PROGRAM";

fn program() -> ChildCommand {
    let path = std::env::var_os(PROGRAM);
    ChildCommand {
        path: path.map_or_else(|| env!("CARGO_BIN_EXE_hugeleaf").into(), PathBuf::from),
        arguments: vec!["workload".into(), "oltp".into()],
    }
}

#[test]
fn the_engines_move_it_there_and_back() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let real = Kernel::new();
    let root = Root::live();
    let host = read_host(&root, &real).unwrap();
    let Some(align) = host.pmd_page.get().filter(|_| real.supports_collapse()) else {
        println!("not run: the_engines_move_it_there_and_back: this kernel has no MADV_COLLAPSE");
        return;
    };
    let settings = WorkloadSettings {
        cache: CACHE,
        align,
        seed: 1,
    };
    let workload =
        OltpProcess::spawn(settings, &program(), &mut |_| ControlFlow::Continue(())).unwrap();
    let pids = [workload.pid()];
    let stop = AtomicBool::new(false);
    let there = PromoteOptions {
        pace: Percent::ALL.into(),
        ..PromoteOptions::default()
    };
    if effective_uid() != 0 {
        let denied = promote(&real, &root, &host, &pids, &there, &mut |_| {}, &stop);
        assert!(
            matches!(denied, Err(PreconditionError::Denied { .. })),
            "{denied:?}"
        );
    }
    let kernel = workload.kernel();
    let up = promote(&kernel, &root, &host, &pids, &there, &mut |_| {}, &stop).unwrap();
    let got = &up.processes[0];
    assert!(got.done >= CACHE, "{got:?}");
    // Excludes the program itself, which is larger on some architectures.
    let is_program = |part: &&BytesByReason| part.reason == eligible::Reason::FileMisaligned.into();
    let program: Bytes = got
        .left_out
        .iter()
        .filter(is_program)
        .map(|p| p.bytes)
        .sum();
    let done = got.done.share_of(got.resident_before - program);
    assert!(done.unwrap() > 0.8, "{got:?}");
    assert!(got.coverage_after > got.coverage_before, "{got:?}");

    let back = DemoteOptions {
        pace: Percent::ALL.into(),
        ..DemoteOptions::default()
    };
    let down = demote(&kernel, &root, &host, &pids, &back, &mut |_| {}, &stop).unwrap();
    let got = &down.processes[0];
    assert!(got.done >= CACHE, "{got:?}");
    assert!(got.coverage_after.unwrap() < 0.01, "{got:?}");
    // A damaged row would have ended the workload.
    workload.stats().unwrap();
}

#[test]
fn and_so_they_do_without_privilege() {
    let _host = hugeleaf_testkit::host_lock::shared();
    const NOBODY: u32 = 65534;
    if effective_uid() != 0 {
        println!("not run: and_so_they_do_without_privilege: needs root, to become another user");
        return;
    }
    // Other users may have no access to the build folder.
    let dir = tempfile::tempdir().unwrap();
    let public = |from: PathBuf, name: &str| {
        let to = dir.path().join(name);
        copy_program(&from, &to);
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).unwrap();
        to
    };
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let tests = public(std::env::current_exe().unwrap(), "tests");
    let hugeleaf = public(env!("CARGO_BIN_EXE_hugeleaf").into(), "hugeleaf");
    let done = Command::new(tests)
        .args([
            "--exact",
            "--nocapture",
            "oltp::the_engines_move_it_there_and_back",
        ])
        .env(PROGRAM, hugeleaf)
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && text.contains("1 passed"),
        "{}{text}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Copies a program in another process. A descriptor open for writing here could be inherited by
/// processes that other threads start, and running the copy would then fail ("text file busy").
fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}
