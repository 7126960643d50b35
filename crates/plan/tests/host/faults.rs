//! Every call fails in turn: the apply stops there and reports it, and undo works.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hugeleaf_host::Root;
use hugeleaf_plan::host_changes::{
    ApplyOptions, ApplyRequest, ChangeContext, HostChangeError, StepState, StopReason, apply,
};
use hugeleaf_sys::{
    Errno, GateReply, HostChange, Kernel, ProcessCall, SysError, SyscallGate, lock_host,
};

use super::faulty::{BlockResult, FaultyHost};
use super::tree::{Tree, assert_same, file, knob, pool, steps};
use super::{apply_to, options, state, undo_newest};

/// Returns the number of calls of an apply of all steps, and of its undo.
pub fn calls() -> (usize, usize) {
    let tree = Tree::new();
    let sink = FaultyHost::counting();
    apply_to(tree.path(), &sink.kernel, &steps(), &options()).unwrap();
    let applying = sink.calls().len();
    let sink = FaultyHost::counting();
    undo_newest(tree.path(), &sink.kernel).unwrap();
    (applying, sink.calls().len())
}

#[test]
fn an_apply_that_fails_at_any_call_says_so_and_is_undone() {
    let (applying, _) = calls();
    for errno in [
        Errno::ROFS,
        Errno::NOSPC,
        Errno::ACCESS,
        Errno::BUSY,
        Errno::INVAL,
    ] {
        for at in 1..=applying {
            fails_at(at, BlockResult::Fail(errno));
        }
    }
    for at in 1..=applying {
        fails_at(at, BlockResult::HalfThenFail(Errno::NOSPC));
    }
}

fn fails_at(at: usize, fate: BlockResult) {
    let tree = Tree::new();
    let before = tree.snapshot();
    let sink = FaultyHost::at(at, fate);
    let result = apply_to(tree.path(), &sink.kernel, &steps(), &options());
    let when = format!("{fate:?} at call {at}, {}", sink.calls()[at - 1]);
    match result {
        // Only the journal was touched.
        Err(HostChangeError::State(_)) => assert_same(&before, &tree.snapshot(), &when),
        Err(other) => panic!("{when}: {other}"),
        Ok(outcome) => {
            let Some(StopReason::Failed { step, error, .. }) = &outcome.stopped else {
                panic!("{when}: not reported: {outcome:#?}");
            };
            assert!(!error.is_empty(), "{when}");
            // Steps after the failed one were not begun.
            let place = outcome.steps.iter().position(|s| s.id == *step);
            let after = outcome
                .steps
                .iter()
                .skip(place.map_or(usize::MAX, |p| p + 1));
            for later in after {
                assert_eq!(later.state, StepState::NotReached, "{when}: {}", later.id);
            }
        }
    }
    undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_same(&before, &tree.snapshot(), &format!("{when}, undone"));
}

#[test]
fn an_undo_that_fails_at_any_call_says_so_and_can_be_run_again() {
    let (_, undoing) = calls();
    for fate in [
        BlockResult::Fail(Errno::ROFS),
        BlockResult::HalfThenFail(Errno::NOSPC),
    ] {
        for at in 1..=undoing {
            let tree = Tree::new();
            let before = tree.snapshot();
            apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
            let sink = FaultyHost::at(at, fate);
            let undone = undo_newest(tree.path(), &sink.kernel);
            let when = format!("{fate:?} at call {at}, {}", sink.calls()[at - 1]);
            let undone = undone.unwrap_or_else(|e| panic!("{when}: {e}"));
            assert!(!undone[0].is_good(), "{when}: not reported: {undone:#?}");
            undo_newest(tree.path(), &Kernel::new()).unwrap();
            assert_same(&before, &tree.snapshot(), &format!("{when}, undone again"));
        }
    }
}

#[test]
fn a_file_system_that_turns_read_only_midway_stays_so_and_is_told() {
    let (applying, _) = calls();
    for at in 1..=applying {
        let tree = Tree::new();
        let before = tree.snapshot();
        let sink = FaultyHost::from(at, BlockResult::Fail(Errno::ROFS));
        let result = apply_to(tree.path(), &sink.kernel, &steps(), &options());
        let reported = match &result {
            Err(HostChangeError::State(_)) => true,
            Ok(outcome) => outcome.stopped.is_some(),
            Err(_) => false,
        };
        assert!(reported, "call {at}: {result:#?}");
        undo_newest(tree.path(), &Kernel::new()).unwrap();
        assert_same(
            &before,
            &tree.snapshot(),
            &format!("read-only from call {at}"),
        );
    }
}

#[test]
fn two_at_once() {
    let tree = Tree::new();
    tree.write("var/lib/hugeleaf/lock", "4711\n");
    // Without any earlier apply, undo needs no lock.
    std::fs::create_dir(tree.path().join("var/lib/hugeleaf/journal")).unwrap();
    let lock = tree.path().join("var/lib/hugeleaf/lock");
    // The functions called here take the guard against forks, so it cannot be held too.
    let held = {
        let _no_fork = super::no_fork();
        lock_host(&lock, false).unwrap()
    };
    let before = tree.snapshot();
    let error = apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap_err();
    let named = matches!(
        error,
        HostChangeError::Locked {
            pid: Some(4711),
            ..
        }
    );
    assert!(named && error.to_string().contains("4711"), "{error}");
    let undo = undo_newest(tree.path(), &Kernel::new());
    assert!(
        matches!(undo, Err(HostChangeError::Locked { .. })),
        "{undo:?}"
    );
    assert_same(&before, &tree.snapshot(), "refused");
    drop(held);
    // A child forked meanwhile releases the lock when it executes its program.
    hugeleaf_testkit::until("the lock is let go", || {
        match apply_to(tree.path(), &Kernel::new(), &steps(), &options()) {
            Err(HostChangeError::Locked { .. }) => false,
            result => result.map(|_| true).unwrap(),
        }
    });
}

#[test]
fn a_pool_that_stays_short_is_told_and_all_or_nothing_takes_all_back() {
    let tree = Tree::new();
    tree.write(
        "proc/meminfo",
        "MemTotal: 1000 kB\nMemFree: 10 kB\nCached: 500 kB\n",
    );
    tree.write("proc/buddyinfo", "Node 0, zone Normal 1 2 3\n");
    let before = tree.snapshot();
    // A pool of plain text takes any number; this one ignores writes.
    let mut steps = steps();
    steps[1] = pool(500);
    let kernel = Kernel::behind(Arc::new(Stingy));
    let outcome = apply_to(tree.path(), &kernel, &steps, &options()).unwrap();
    assert!(!outcome.is_good() && outcome.stopped.is_none());
    let step = outcome.steps.iter().find(|s| s.id == "pool").unwrap();
    assert_eq!(step.state, StepState::Short);
    let short = step.shortage.as_ref().unwrap();
    assert_eq!((short.got.get(), short.missing.get()), (7, 493));
    assert!(short.free.known().is_some() && short.attempts > 1);
    assert_eq!(
        state(&outcome.steps, "unit"),
        StepState::Done,
        "the rest is made"
    );
    undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_same(&before, &tree.snapshot(), "undone");

    let strict = ApplyOptions {
        all_or_nothing: true,
        ..options()
    };
    let outcome = apply_to(tree.path(), &kernel, &steps, &strict).unwrap();
    assert_eq!(outcome.stopped, Some(StopReason::Short));
    assert!(outcome.reverted.as_ref().unwrap().is_good(), "{outcome:#?}");
    assert_eq!(state(&outcome.steps, "group"), StepState::Restored);
    assert_eq!(state(&outcome.steps, "unit"), StepState::NotReached);
    assert_same(&before, &tree.snapshot(), "taken back");
}

/// A host with pools of at most seven pages.
#[derive(Debug)]
struct Stingy;

impl SyscallGate for Stingy {
    fn host(&self, change: HostChange<'_>) -> Option<Result<(), SysError>> {
        let HostChange::Write(path, value) = change else {
            return None;
        };
        let pages: u64 = value.parse().ok()?;
        let capped = pages.min(7).to_string();
        let is_pool = path.ends_with("nr_hugepages");
        is_pool.then(|| HostChange::Write(path, &capped).execute())
    }

    fn process(&self, _: ProcessCall<'_>) -> Result<Option<GateReply>, Errno> {
        Ok(Some(GateReply::Done))
    }
}

#[test]
fn stopped_by_the_person_it_ends_between_two_steps() {
    let tree = Tree::new();
    let before = tree.snapshot();
    let (root, stop) = (Root::at(tree.path()), AtomicBool::new(false));
    let steps = steps();
    let request = ApplyRequest {
        steps: &steps,
        plan: super::PLAN,
        plan_file: "p",
        program: "t",
        forced: Some("because"),
        serves: &[],
        in_force: None,
    };
    let mut seen = 0;
    let mut context = ChangeContext {
        root: &root,
        kernel: &Kernel::new(),
        stop: &stop,
        progress: &mut |_| {
            seen += 1;
            stop.store(seen == 3, std::sync::atomic::Ordering::Relaxed);
        },
    };
    let outcome = {
        let _no_fork = super::no_fork();
        apply(&mut context, &request, &options()).unwrap()
    };
    assert_eq!(outcome.stopped, Some(StopReason::Signal));
    let done = outcome
        .steps
        .iter()
        .filter(|s| s.state == StepState::Done)
        .count();
    let rest = outcome
        .steps
        .iter()
        .filter(|s| s.state == StepState::NotReached)
        .count();
    assert_eq!((done, rest), (3, steps.len() - 3));
    // An interrupted apply and its repetition are undone as one.
    let again = apply_to(tree.path(), &Kernel::new(), &steps, &options()).unwrap();
    assert_eq!(again.continues, Some(1));
    let undone = undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_eq!(undone.iter().map(|u| u.id).collect::<Vec<_>>(), [2, 1]);
    assert_same(&before, &tree.snapshot(), "undone");
}

#[test]
fn what_may_not_be_written_is_told_before_anything_is_changed() {
    if hugeleaf_sys::effective_uid() == 0 {
        println!("not run: what_may_not_be_written_is_told: root may write anything here");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let tree = Tree::new();
    let locked = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(tree.path().join("etc/sysctl.d"), locked).unwrap();
    let group = tree.path().join("proc/sys/vm/hugetlb_shm_group");
    std::fs::set_permissions(&group, std::fs::Permissions::from_mode(0o444)).unwrap();
    let steps = [
        pool(3),
        knob("group", "/proc/sys/vm/hugetlb_shm_group", "26"),
        file("sysctl", "/etc/sysctl.d/60-hugeleaf.conf", "x\n"),
    ];
    let error = apply_to(tree.path(), &Kernel::new(), &steps, &options()).unwrap_err();
    assert!(
        matches!(&error, HostChangeError::Refused(all, 3) if all.len() == 2),
        "{error}"
    );
    assert_eq!(tree.read(super::tree::POOL), "0\n");
}
