//! A kill at every call. A child process of this test program is killed during its work. The
//! remains are undone, or applied again and then undone.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hugeleaf_plan::Step;
use hugeleaf_plan::host_changes::{UndoOptions, UndoSelection};
use hugeleaf_sys::{Errno, Kernel};

use super::faults::calls;
use super::faulty::{BlockResult, FaultyHost};
use super::tree::{Tree, assert_same, steps};
use super::{apply_to, options, undo_in, undo_newest};

/// The child's order in its environment: its work, the place, and the time of its death.
const ORDER: &str = "HUGELEAF_TEST_ORDER";

/// Steps that the child applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steps {
    Plain,
    Real,
}

/// The child process of the other tests; not a test itself.
#[test]
fn child_that_is_killed() {
    let Ok(order) = std::env::var(ORDER) else {
        return;
    };
    let words: Vec<&str> = order.split(' ').collect();
    let [what, steps, at, fate, root] = words[..] else {
        panic!("{order}")
    };
    let fate = match fate {
        "kill" => BlockResult::Kill,
        _ => BlockResult::Half,
    };
    let sink = FaultyHost::at(at.parse().unwrap(), fate);
    let root = PathBuf::from(root);
    if what == "undo" {
        undo_newest(&root, &sink.kernel).unwrap();
        return;
    }
    let steps = match steps {
        "Plain" => super::tree::steps(),
        _ => super::real::steps(),
    };
    apply_to(&root, &sink.kernel, &steps, &options()).unwrap();
}

/// Lets a child apply or undo, killed at a call. Returns true if it was killed.
pub fn killed(what: &str, steps: Steps, at: usize, half: bool, root: &Path) -> bool {
    let fate = if half { "half" } else { "kill" };
    let order = format!("{what} {steps:?} {at} {fate} {}", root.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "host::kills::child_that_is_killed",
            "--nocapture",
        ])
        .env(ORDER, &order)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = super::spawn(&mut command);
    let out = child.wait_with_output().unwrap();
    match out.status.signal() {
        Some(9) => true,
        None if out.status.success() => false,
        _ => panic!(
            "{order}: {}\n{}{}",
            out.status,
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        ),
    }
}

fn undo(root: &Path) {
    let undone = undo_newest(root, &Kernel::new()).unwrap();
    for one in &undone {
        assert!(one.is_good(), "{undone:#?}");
    }
}

#[test]
fn killed_at_any_call_an_apply_is_undone() {
    let (applying, _) = calls();
    assert!(applying > 60, "{applying} calls are too few to be all");
    for half in [false, true] {
        for at in 1..=applying {
            let tree = Tree::new();
            let before = tree.snapshot();
            assert!(
                killed("apply", Steps::Plain, at, half, tree.path()),
                "call {at}"
            );
            undo(tree.path());
            let when = format!("killed at call {at}, half: {half}");
            assert_same(&before, &tree.snapshot(), &when);
            // A second undo changes nothing.
            undo(tree.path());
            assert_same(&before, &tree.snapshot(), &when);
        }
    }
}

#[test]
fn killed_at_any_call_and_applied_again_it_is_whole_and_is_undone() {
    let (applying, _) = calls();
    let wanted = {
        let tree = Tree::new();
        apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
        tree.snapshot()
    };
    for at in 1..=applying {
        let tree = Tree::new();
        let before = tree.snapshot();
        assert!(killed("apply", Steps::Plain, at, at % 2 == 0, tree.path()));
        let again = apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
        let when = format!("killed at call {at}");
        assert!(again.is_good(), "{when}: {again:#?}");
        assert_same(&wanted, &tree.snapshot(), &format!("{when}, applied again"));
        undo(tree.path());
        assert_same(
            &before,
            &tree.snapshot(),
            &format!("{when}, applied again, undone"),
        );
    }
}

#[test]
fn killed_at_any_call_an_undo_is_run_again() {
    let (_, undoing) = calls();
    for half in [false, true] {
        for at in 1..=undoing {
            let tree = Tree::new();
            let before = tree.snapshot();
            apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
            assert!(
                killed("undo", Steps::Plain, at, half, tree.path()),
                "call {at}"
            );
            undo(tree.path());
            assert_same(
                &before,
                &tree.snapshot(),
                &format!("undo killed at call {at}"),
            );
        }
    }
}

#[test]
fn killed_in_both_directions_again_and_again() {
    let (applying, undoing) = calls();
    let tree = Tree::new();
    let before = tree.snapshot();
    let number = |name: &str, otherwise: u64| {
        let text = std::env::var(name).ok();
        text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let mut random = fastrand::Rng::with_seed(number("HUGELEAF_SEED", 5));
    let rounds = number("HUGELEAF_ROUNDS", hugeleaf_testkit::size(15, 60));
    for _ in 0..rounds {
        let (what, calls) = match random.bool() {
            true => ("apply", applying),
            false => ("undo", undoing),
        };
        killed(
            what,
            Steps::Plain,
            random.usize(1..=calls),
            random.bool(),
            tree.path(),
        );
    }
    let all = undo_in(
        tree.path(),
        &Kernel::new(),
        UndoSelection::All,
        UndoOptions::default(),
    )
    .unwrap();
    assert!(all.iter().all(|one| one.is_good()), "{all:#?}");
    assert_same(&before, &tree.snapshot(), "after all of it");
}

/// The kill occurs at the right call: a test of the tests.
#[test]
fn the_child_says_where_it_fails() {
    let tree = Tree::new();
    let sink = FaultyHost::at(1, BlockResult::Fail(Errno::ACCESS));
    let steps: Vec<Step> = steps();
    assert!(apply_to(tree.path(), &sink.kernel, &steps, &options()).is_err());
    assert!(!killed("undo", Steps::Plain, 10_000, false, tree.path()));
}
