//! Tests apply and undo: on plain files by an ordinary user, with every call failing in turn and a
//! kill at each; and on the knobs, pools and mounts of the running host as root.

mod faults;
mod faulty;
mod journals;
mod kills;
mod plain;
mod real;
mod tree;

use std::path::Path;
use std::process::{Child, Command};
use std::sync::RwLock;
use std::sync::atomic::AtomicBool;

use hugeleaf_host::Root;
use hugeleaf_plan::Step;
use hugeleaf_plan::host_changes::{
    ApplyOptions, ApplyOutcome, ApplyRequest, ChangeContext, HostChangeError, StepOutcome,
    StepState, UndoOptions, UndoOutcome, UndoSelection, apply, undo,
};
use hugeleaf_sys::Kernel;

/// The plan's text that these tests apply; its content does not matter here.
const PLAN: &str = "schema = 1\n";

fn options() -> ApplyOptions {
    ApplyOptions {
        drop_caches: false,
        all_or_nothing: false,
        base_page: Kernel::new().base_page(),
    }
}

/// Read-locked while a hugeleaf lock may be held, write-locked during a fork. Until it executes its
/// program, a child has its parent's open files, and so holds the lock too.
static FORKS: RwLock<()> = RwLock::new(());

/// Starts a program while no hugeleaf lock is held.
fn spawn(command: &mut Command) -> Child {
    let forks = FORKS.write();
    let _forks = forks.unwrap_or_else(std::sync::PoisonError::into_inner);
    command.spawn().unwrap()
}

fn no_fork() -> std::sync::RwLockReadGuard<'static, ()> {
    FORKS
        .read()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Applies the steps below `root`.
fn apply_to(
    root: &Path,
    kernel: &Kernel,
    steps: &[Step],
    options: &ApplyOptions,
) -> Result<ApplyOutcome, HostChangeError> {
    apply_as(root, kernel, (steps, options), &[], None)
}

/// Applies a plan for these services that was compared with these applies.
fn apply_as(
    root: &Path,
    kernel: &Kernel,
    (steps, options): (&[Step], &ApplyOptions),
    serves: &[&str],
    in_force: Option<&[u32]>,
) -> Result<ApplyOutcome, HostChangeError> {
    let _no_fork = no_fork();
    let (root, stop) = (Root::at(root), AtomicBool::new(false));
    let mut context = ChangeContext {
        root: &root,
        kernel,
        stop: &stop,
        progress: &mut |_| {},
    };
    let plan = match serves {
        [] => PLAN.to_owned(),
        some => format!("{PLAN}# for {some:?}\n"),
    };
    let request = ApplyRequest {
        steps,
        plan: &plan,
        plan_file: "plan.toml",
        program: "test",
        forced: None,
        serves,
        in_force,
    };
    apply(&mut context, &request, options)
}

/// Undoes below `root`.
fn undo_in(
    root: &Path,
    kernel: &Kernel,
    which: UndoSelection,
    options: UndoOptions,
) -> Result<Vec<UndoOutcome>, HostChangeError> {
    let _no_fork = no_fork();
    let (root, stop) = (Root::at(root), AtomicBool::new(false));
    let mut context = ChangeContext {
        root: &root,
        kernel,
        stop: &stop,
        progress: &mut |_| {},
    };
    undo(&mut context, which, &options)
}

/// Undoes the newest apply below `root`, with default options.
fn undo_newest(root: &Path, kernel: &Kernel) -> Result<Vec<UndoOutcome>, HostChangeError> {
    undo_in(root, kernel, UndoSelection::Newest, UndoOptions::default())
}

/// Returns the state of a step.
#[track_caller]
fn state(steps: &[StepOutcome], id: &str) -> StepState {
    let step = steps.iter().find(|step| step.id == id);
    step.unwrap_or_else(|| panic!("no step {id}: {steps:#?}"))
        .state
}
