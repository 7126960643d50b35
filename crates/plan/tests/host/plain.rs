//! Tests apply and undo on plain files.

use std::os::unix::fs::PermissionsExt;

use hugeleaf_host::{Fact, Root};
use hugeleaf_plan::applied_plans::unseen_by_kubelet;
use hugeleaf_plan::host_changes::{
    HostChangeError, Obstacle, PathState, StepState, UndoOptions, UndoSelection, applied, inspect,
};
use hugeleaf_sys::Kernel;

use super::tree::{MARK, POOL, Tree, assert_same, block, file, folder, knob, pool, steps};
use super::{apply_as, apply_to, options, state, undo_in, undo_newest};

const PLAINLY: UndoOptions = UndoOptions {
    even_if_changed: false,
    dry_run: false,
};

#[test]
fn what_is_applied_is_there_and_what_is_undone_is_as_before() {
    let tree = Tree::new();
    let before = tree.snapshot();
    let outcome = apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    assert!(outcome.is_good(), "{outcome:#?}");
    assert_eq!(outcome.id, Some(1));
    assert!(
        outcome.steps.iter().all(|s| s.state == StepState::Done),
        "{outcome:#?}"
    );
    assert_eq!(tree.read("proc/sys/vm/hugetlb_shm_group"), "26\n");
    assert_eq!(tree.read(POOL), "5\n");
    let sysctl = tree.read("etc/sysctl.d/60-hugeleaf.conf");
    assert_eq!(sysctl, format!("{MARK}vm.hugetlb_shm_group = 26\n"));
    let fstab = tree.read("etc/fstab");
    assert!(fstab.starts_with("# none\nproc /proc proc defaults 0 0\n# written by hugeleaf"));
    assert!(
        fstab.contains("/mnt/a") && fstab.contains("/mnt/b"),
        "{fstab}"
    );
    let mode = tree
        .path()
        .join("etc/fstab")
        .metadata()
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o7777, 0o640, "the file's own mode is kept");

    let undone = undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert!(undone.len() == 1 && undone[0].is_good(), "{undone:#?}");
    assert_same(&before, &tree.snapshot(), "after undo");
    // A second undo finds nothing.
    let again = undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert!(again.is_empty(), "{again:#?}");
    let by_id = undo_in(tree.path(), &Kernel::new(), UndoSelection::Id(1), PLAINLY).unwrap();
    assert!(by_id[0].steps.is_empty(), "{by_id:#?}");
    assert_same(&before, &tree.snapshot(), "after undoing twice");
}

#[test]
fn where_nothing_was_applied_there_is_nothing_to_undo() {
    let tree = Tree::new();
    let undone = undo_in(tree.path(), &Kernel::new(), UndoSelection::All, PLAINLY).unwrap();
    assert!(undone.is_empty() && !tree.has("var"), "{undone:#?}");
    let error = undo_in(tree.path(), &Kernel::new(), UndoSelection::Id(3), PLAINLY).unwrap_err();
    assert_eq!(error, HostChangeError::NoSuch(3));
}

#[test]
fn applying_twice_changes_nothing_and_one_undo_takes_it_back() {
    let tree = Tree::new();
    let before = tree.snapshot();
    apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    let between = tree.snapshot();
    let again = apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    assert_eq!(again.id, None);
    assert!(
        again.steps.iter().all(|s| s.state == StepState::Already),
        "{again:#?}"
    );
    assert_same(&between, &tree.snapshot(), "after applying twice");
    undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_same(&before, &tree.snapshot(), "after undo");
}

#[test]
fn a_second_plan_is_undone_to_the_first_and_that_to_the_beginning() {
    let tree = Tree::new();
    let before = tree.snapshot();
    apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    let first = tree.snapshot();
    let second = [
        pool(9),
        file("sysctl", "/etc/sysctl.d/60-hugeleaf.conf", "other\n"),
        block(
            "fstab-a",
            "/etc/fstab",
            "none /mnt/c hugetlbfs defaults 0 0\n",
        ),
    ];
    let outcome = apply_to(tree.path(), &Kernel::new(), &second, &options()).unwrap();
    assert_eq!((outcome.id, outcome.continues), (Some(2), None));
    assert!(!tree.read("etc/fstab").contains("/mnt/a"));
    // The first cannot be undone before the second.
    let refused = undo_in(tree.path(), &Kernel::new(), UndoSelection::Id(1), PLAINLY).unwrap_err();
    assert!(
        matches!(refused, HostChangeError::BuiltUpon { id: 1, by: 2, .. }),
        "{refused}"
    );
    let list = applied(&Root::at(tree.path()));
    let ids: Vec<u32> = list
        .known()
        .unwrap()
        .iter()
        .map(|one| one.head.id)
        .collect();
    assert_eq!(ids, [2, 1]);
    undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_same(&first, &tree.snapshot(), "after the first undo");
    undo_in(tree.path(), &Kernel::new(), UndoSelection::All, PLAINLY).unwrap();
    assert_same(&before, &tree.snapshot(), "after all");
}

#[test]
fn what_a_later_apply_found_as_it_wanted_it_cannot_be_taken_from_under_it() {
    let tree = Tree::new();
    let apply = |steps: &[hugeleaf_plan::Step], serves: &[&str]| {
        apply_as(
            tree.path(),
            &Kernel::new(),
            (steps, &options()),
            serves,
            None,
        )
        .unwrap()
    };
    apply(&[pool(5)], &["a"]);
    // For another service, with a pool that is large enough already.
    let second = apply(&[pool(5)], &["b"]);
    assert_eq!((second.id, second.continues), (Some(2), None));
    let refused = undo_in(tree.path(), &Kernel::new(), UndoSelection::Id(1), PLAINLY).unwrap_err();
    assert!(
        matches!(
            refused,
            HostChangeError::BuiltUpon {
                id: 1,
                by: 2,
                rests: true,
                ..
            }
        ),
        "{refused}"
    );
    assert!(refused.to_string().contains("relies on"), "{refused}");
    // Undoing the second alone changes nothing of the first.
    undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_eq!(tree.read(POOL), "5\n");
    undo_in(tree.path(), &Kernel::new(), UndoSelection::Id(1), PLAINLY).unwrap();
    assert_eq!(tree.read(POOL), "0\n");
    // The same plan again changes nothing.
    apply(&[pool(5)], &["a"]);
    assert_eq!(apply(&[pool(5)], &["a"]).id, None);
}

#[test]
fn an_apply_that_came_in_between_is_not_overlooked() {
    let tree = Tree::new();
    let apply = |seen: &[u32], pages| {
        let steps = [pool(pages)];
        apply_as(
            tree.path(),
            &Kernel::new(),
            (&steps, &options()),
            &[],
            Some(seen),
        )
    };
    apply(&[], 5).unwrap();
    let before = tree.snapshot();
    assert_eq!(apply(&[], 9).unwrap_err(), HostChangeError::Overtaken(1));
    assert_same(&before, &tree.snapshot(), "after the refusal");
    apply(&[1], 9).unwrap();
    undo_newest(tree.path(), &Kernel::new()).unwrap();
    apply(&[1], 7).unwrap();
}

#[test]
fn what_others_changed_is_left_alone_and_said() {
    let tree = Tree::new();
    apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    tree.write("proc/sys/vm/hugetlb_shm_group", "99\n");
    tree.write("etc/sysctl.d/60-hugeleaf.conf", "mine now\n");
    tree.write("etc/tmpfiles.d/others.conf", "theirs\n");
    tree.write("mnt/deep/huge/data", "theirs\n");
    let fstab = tree.read("etc/fstab") + "none /mnt/mine tmpfs defaults 0 0\n";
    tree.write("etc/fstab", &fstab);
    let undone = undo_newest(tree.path(), &Kernel::new()).unwrap();
    let steps = &undone[0].steps;
    for id in ["group", "sysctl", "point"] {
        assert_eq!(state(steps, id), StepState::ChangedSince, "{id}");
    }
    for id in ["pool", "limits", "more", "unit", "tmpfiles"] {
        assert_eq!(state(steps, id), StepState::Restored, "{id}");
    }
    assert!(!undone[0].is_good() && undone[0].finished);
    assert_eq!(tree.read("proc/sys/vm/hugetlb_shm_group"), "99\n");
    assert_eq!(tree.read("etc/sysctl.d/60-hugeleaf.conf"), "mine now\n");
    // Only the blocks were removed. The folder with a foreign file in it stays.
    let expected = "# none\nproc /proc proc defaults 0 0\nnone /mnt/mine tmpfs defaults 0 0\n";
    assert_eq!(tree.read("etc/fstab"), expected);
    assert_eq!(tree.read("etc/tmpfiles.d/others.conf"), "theirs\n");
    assert!(!tree.has("etc/security") && tree.has("mnt/deep/huge/data"));
    let note = steps
        .iter()
        .find(|s| s.id == "tmpfiles")
        .unwrap()
        .note
        .clone();
    assert!(note.unwrap().contains("/etc/tmpfiles.d stays"));

    let insist = UndoOptions {
        even_if_changed: true,
        dry_run: false,
    };
    let undone = undo_in(tree.path(), &Kernel::new(), UndoSelection::Id(1), insist).unwrap();
    assert_eq!(state(&undone[0].steps, "group"), StepState::Restored);
    assert_eq!(tree.read("proc/sys/vm/hugetlb_shm_group"), "0\n");
    assert!(!tree.has("etc/sysctl.d/60-hugeleaf.conf"));
    assert!(tree.has("mnt/deep/huge/data"), "nobody's data is removed");
}

/// Under `vm.overcommit_memory=2` each page of a pool lowers CommitLimit.
#[test]
fn pages_are_not_restored_where_allocations_would_fail() {
    const TOTAL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    let tree = Tree::new();
    for (path, text) in [
        // AT_PAGESZ with 4096.
        ("proc/self/auxv", "\u{6}\0\0\0\0\0\0\0\0\u{10}\0\0\0\0\0\0"),
        ("proc/sys/vm/overcommit_memory", "2\n"),
        ("proc/sys/vm/overcommit_ratio", "50\n"),
        (TOTAL, "5\n"),
        (POOL, "9\n"),
    ] {
        tree.write(path, text);
    }
    let committed = |kib: u64| {
        let limit = "MemTotal: 8388608 kB\nCommitLimit: 4194304 kB";
        tree.write(
            "proc/meminfo",
            &format!("{limit}\nCommitted_AS: {kib} kB\n"),
        );
    };
    committed(4_190_208);
    apply_to(tree.path(), &Kernel::new(), &[pool(5)], &options()).unwrap();
    let dry = UndoOptions {
        dry_run: true,
        ..PLAINLY
    };
    for (options, expected) in [(dry, StepState::WouldChange), (PLAINLY, StepState::Failed)] {
        let undone = undo_in(tree.path(), &Kernel::new(), UndoSelection::Newest, options).unwrap();
        let step = &undone[0].steps[0];
        assert_eq!(step.state, expected, "{step:#?}");
        let note = step.note.as_deref().unwrap();
        assert!(
            note.contains("8M more in pools") && note.contains("lowers CommitLimit (4G)"),
            "{note}"
        );
        assert_eq!(tree.read(POOL), "5\n");
        // Neither the dry run nor the undo says that the pool changes.
        assert_ne!(step.after, step.wanted);
    }
    committed(1_048_576);
    let undone = undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_eq!(state(&undone[0].steps, "pool"), StepState::Restored);
    assert_eq!(tree.read(POOL), "9\n");
}

#[test]
fn what_stands_in_the_way_is_told_before_anything_is_changed() {
    let tree = Tree::new();
    tree.write("etc/sysctl.d/60-hugeleaf.conf", "# somebody's\n");
    tree.write("sys/knob", "always [madvise] never\n");
    std::os::unix::fs::symlink("nowhere", tree.path().join("etc/link")).unwrap();
    let broken = block("fstab-a", "/etc/fstab", "x\n");
    let half = "# written by hugeleaf: block fstab-a; undone by: hugeleaf undo\n";
    tree.write("etc/fstab", half);
    let before = tree.snapshot();
    let mut unmarked = file("unmarked", "/etc/new", "");
    unmarked.what = hugeleaf_plan::StepAction::File {
        text: "plain\n".to_owned(),
        mode: 0o644,
    };
    let steps = [
        pool(1),
        file("foreign", "/etc/sysctl.d/60-hugeleaf.conf", "x\n"),
        knob("choice", "/sys/knob", "sometimes"),
        knob("missing", "/sys/none", "1"),
        file("link", "/etc/link", "x\n"),
        file("folder", "/etc/sysctl.d", "x\n"),
        folder("in-the-way", "/etc/fstab"),
        knob("up", "/sys/../etc/fstab", "1"),
        knob("relative", "sys/knob", "never"),
        knob("file", "/etc/fstab", "1"),
        broken,
        unmarked,
    ];
    let error = apply_to(tree.path(), &Kernel::new(), &steps, &options()).unwrap_err();
    let text = error.to_string();
    let HostChangeError::Refused(obstacles, 12) = error else {
        panic!("{text}")
    };
    assert_eq!(obstacles.len(), 11, "{text}");
    let has = |test: fn(&Obstacle) -> bool| obstacles.iter().any(test);
    assert!(has(|o| matches!(o, Obstacle::Foreign(_))), "{text}");
    assert!(has(
        |o| matches!(o, Obstacle::NoChoice { choices, .. } if choices.len() == 3)
    ));
    assert!(has(|o| matches!(o, Obstacle::Missing(_))), "{text}");
    assert!(has(|o| matches!(o, Obstacle::Special(_))), "{text}");
    assert!(has(|o| matches!(o, Obstacle::NoKnob(_))), "{text}");
    assert!(has(|o| matches!(
        o,
        Obstacle::WrongKind {
            found: "a folder",
            ..
        }
    )));
    assert!(has(|o| matches!(
        o,
        Obstacle::WrongKind {
            found: "a file",
            ..
        }
    )));
    assert!(has(|o| matches!(o, Obstacle::Broken { .. })), "{text}");
    assert!(has(|o| matches!(o, Obstacle::NotMarked(_))), "{text}");
    assert_same(&before, &tree.snapshot(), "after the refusal");
    assert!(!tree.has("var"), "nothing was journaled");
}

#[test]
fn two_steps_of_one_name_are_refused() {
    let tree = Tree::new();
    let error = apply_to(tree.path(), &Kernel::new(), &[pool(1), pool(2)], &options());
    assert_eq!(
        error.unwrap_err(),
        HostChangeError::SameId("pool".to_owned())
    );
}

#[test]
fn a_mount_of_somebody_else_is_not_mounted_over() {
    let tree = Tree::new();
    let at = tree.path().join("mnt");
    let line = format!("9 1 0:1 / {} rw - tmpfs none rw\n", at.display());
    tree.write("proc/self/mountinfo", &line);
    tree.write("mnt/x", "");
    let what = hugeleaf_plan::StepAction::Mount {
        options: "pagesize=2M".to_owned(),
    };
    let step = super::tree::step("mount", "/mnt", what);
    let (_, obstacles) = inspect(&Root::at(tree.path()), &[step]);
    assert!(
        matches!(&obstacles[..], [Obstacle::OtherMount { found, .. }] if found == "tmpfs"),
        "{obstacles:?}"
    );
}

#[test]
fn a_mount_has_its_own_options_and_those_of_its_file_system() {
    let tree = Tree::new();
    let at = tree.path().join("mnt");
    let line = format!(
        "9 1 0:1 / {} rw,relatime - hugetlbfs none rw,pagesize=2M\n",
        at.display()
    );
    tree.write("proc/self/mountinfo", &line);
    tree.write("mnt/x", "");
    let mount = hugeleaf_plan::StepAction::Mount {
        options: "pagesize=2M".to_owned(),
    };
    let step = super::tree::step("mount", "/mnt", mount);
    let (steps, obstacles) = inspect(&Root::at(tree.path()), &[step]);
    assert!(obstacles.is_empty(), "{obstacles:?}");
    assert_eq!(steps[0].state, StepState::Already);
}

#[test]
fn without_systemd_its_units_are_left_out_and_said() {
    let tree = Tree::new();
    std::fs::remove_dir_all(tree.path().join("run")).unwrap();
    let before = tree.snapshot();
    let outcome = apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    assert!(outcome.is_good() && !outcome.systemd);
    assert_eq!(state(&outcome.steps, "unit"), StepState::NotApplicable);
    assert!(!tree.has("etc/systemd"));
    let list = applied(&Root::at(tree.path()));
    let steps = &list.known().unwrap()[0].steps;
    let unit = steps.iter().find(|s| s.listed.id == "unit").unwrap();
    assert_eq!(
        (unit.listed.state, &unit.begun),
        (StepState::NotApplicable, &None)
    );
    undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_same(&before, &tree.snapshot(), "after undo");
}

#[test]
fn a_knob_that_is_gone_does_not_hold_up_the_rest() {
    let tree = Tree::new();
    let limit = "sys/fs/cgroup/db/hugetlb.2MB.max";
    tree.write(limit, "max\n");
    let before = tree.snapshot();
    let with_limit = [steps(), vec![knob("limit", &format!("/{limit}"), "100")]].concat();
    apply_to(tree.path(), &Kernel::new(), &with_limit, &options()).unwrap();
    let folder = tree.path().join("sys/fs/cgroup/db");
    std::fs::remove_dir_all(&folder).unwrap();
    let undone = undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert!(undone[0].is_good(), "{undone:#?}");
    let limit_step = undone[0].steps.iter().find(|s| s.id == "limit").unwrap();
    assert_eq!(limit_step.state, StepState::AsBefore);
    assert!(limit_step.note.is_some());
    tree.write(limit, "max\n");
    assert_same(&before, &tree.snapshot(), "undone");
}

#[test]
fn a_block_goes_where_a_link_leads_and_the_link_stays() {
    let tree = Tree::new();
    let real = tree.path().join("etc/fstab");
    let moved = tree.path().join("etc/fstab.real");
    std::fs::rename(&real, &moved).unwrap();
    std::os::unix::fs::symlink("fstab.real", &real).unwrap();
    let before = tree.snapshot();
    apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    assert!(real.symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read_to_string(&moved).unwrap().contains("/mnt/b"));
    undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_same(&before, &tree.snapshot(), "after undo");
}

#[test]
fn what_would_be_changed_is_told_as_each_step_would_leave_it() {
    let tree = Tree::new();
    let before = tree.snapshot();
    let (looked, obstacles) = inspect(&Root::at(tree.path()), &steps());
    assert!(obstacles.is_empty(), "{obstacles:?}");
    assert!(looked.iter().all(|l| l.state == StepState::WouldChange));
    let of = |id: &str| looked.iter().find(|l| l.step.id == id).unwrap();
    // The second block is compared with the result of the first.
    assert_eq!(of("fstab-b").before, of("fstab-a").wanted);
    let (PathState::File { content, .. }, made) = (&of("fstab-b").wanted, &of("point").makes)
    else {
        panic!("{looked:#?}")
    };
    assert!(content.text().contains("/mnt/a") && content.text().contains("/mnt/b"));
    assert_eq!(made.len(), 2, "{made:?}");
    assert_same(&before, &tree.snapshot(), "after looking");
}

#[test]
fn an_undo_that_is_only_tried_changes_nothing() {
    let tree = Tree::new();
    apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    let between = tree.snapshot();
    let log = tree.read("var/lib/hugeleaf/journal/0001.log");
    let dry = UndoOptions {
        dry_run: true,
        ..PLAINLY
    };
    let undone = undo_in(tree.path(), &Kernel::new(), UndoSelection::Newest, dry).unwrap();
    assert!(
        undone[0]
            .steps
            .iter()
            .all(|s| s.state == StepState::WouldChange),
        "{undone:#?}"
    );
    for step in &undone[0].steps {
        assert!(
            step.after.is_some() && step.after == step.wanted,
            "{step:#?}"
        );
    }
    assert_same(&between, &tree.snapshot(), "after trying");
    assert_eq!(tree.read("var/lib/hugeleaf/journal/0001.log"), log);
    // A file that another program changed stays as it is, and the result says so.
    tree.write("etc/sysctl.d/60-hugeleaf.conf", "theirs\n");
    let undone = undo_in(tree.path(), &Kernel::new(), UndoSelection::Newest, dry).unwrap();
    let mut left = undone[0].steps.iter();
    let left = left.find(|s| s.state == StepState::ChangedSince).unwrap();
    assert!(
        left.after.is_some() && left.after == left.before,
        "{left:#?}"
    );
}

#[test]
fn the_journal_hands_on_what_was_applied() {
    let tree = Tree::new();
    let root = Root::at(tree.path());
    assert_eq!(applied(&root), Fact::Absent);
    apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    let all = applied(&root);
    let one = &all.known().unwrap()[0];
    assert_eq!(
        (one.head.id, one.complete, one.undone),
        (1, Some(true), false)
    );
    assert_eq!(one.plan, Fact::Known(super::PLAN.to_owned()));
    assert_eq!(one.head.time, one.head.time.trim());
    assert_eq!(one.steps.len(), steps().len());
    assert!(
        one.steps
            .iter()
            .all(|s| s.applied == StepState::Done && s.begun.is_some())
    );
    undo_newest(tree.path(), &Kernel::new()).unwrap();
    let all = applied(&root);
    let one = &all.known().unwrap()[0];
    assert!(
        one.undone
            && one
                .steps
                .iter()
                .all(|s| s.listed.state == StepState::Restored)
    );
}

#[test]
fn copies_of_files_that_not_all_may_read_are_not_for_all() {
    let tree = Tree::new();
    apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    let mode = |name: &str| {
        let path = tree.path().join("var/lib/hugeleaf/journal").join(name);
        path.metadata().unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("0001.log"), mode("0001.toml")), (0o600, 0o644));
    apply_to(tree.path(), &Kernel::new(), &[pool(7)], &options()).unwrap();
    assert_eq!(mode("0002.log"), 0o644);
}

#[test]
fn nothing_is_written_where_others_could_steer_it() {
    let tree = Tree::new();
    let mode = |path: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(tree.path().join(path), mode).unwrap();
    };
    for (path, loose, back) in [
        ("etc", 0o777, 0o755),
        ("etc/sysctl.d", 0o775, 0o755),
        ("etc/fstab", 0o646, 0o640),
    ] {
        mode(path, loose);
        let before = tree.snapshot();
        let error = apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap_err();
        let HostChangeError::Refused(obstacles, _) = &error else {
            panic!("{error}")
        };
        let steered = |o: &Obstacle| matches!(o, Obstacle::Others(_));
        assert!(
            !obstacles.is_empty() && obstacles.iter().all(steered),
            "{error}"
        );
        assert!(
            error.to_string().contains("could be changed by others"),
            "{error}"
        );
        assert_same(&before, &tree.snapshot(), path);
        mode(path, back);
    }
    // The journal is refused there too.
    tree.write("var/lib/hugeleaf/.keep", "");
    mode("var/lib", 0o777);
    let error = apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap_err();
    assert!(matches!(error, HostChangeError::Others(_)), "{error}");
    mode("var/lib", 0o755);
    apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    let meta = std::fs::metadata(tree.path().join("var/lib/hugeleaf/lock")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_kubelet_has_seen_only_pools_set_before_its_start() {
    let tree = Tree::new();
    let unseen = || unseen_by_kubelet(&Root::at(tree.path())).len();
    let kubelet_started = |since_1970: u64| {
        let zeros = ["0"; 49].join(" ");
        tree.write("proc/7/comm", "kubelet\n");
        tree.write("proc/7/status", "Name:\tkubelet\nUid:\t0\t0\t0\t0\n");
        tree.write("proc/7/stat", &format!("7 (kubelet) S {zeros}\n"));
        tree.write("proc/stat", &format!("btime {since_1970}\n"));
    };
    const LONG_AGO: u64 = 1_000_000_000;
    const NEVER: u64 = 100_000_000_000;
    apply_to(
        tree.path(),
        &Kernel::new(),
        &[knob("knob", "/proc/sys/vm/hugetlb_shm_group", "26")],
        &options(),
    )
    .unwrap();
    kubelet_started(LONG_AGO);
    assert_eq!(unseen(), 0, "no pool was changed");
    apply_to(tree.path(), &Kernel::new(), &[pool(5)], &options()).unwrap();
    let sizes = unseen_by_kubelet(&Root::at(tree.path()));
    assert_eq!(sizes, ["2M".parse().unwrap()]);
    kubelet_started(NEVER);
    assert_eq!(unseen(), 0, "it started later");
    kubelet_started(LONG_AGO);
    undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_eq!(unseen(), 0, "changed and undone since its start");
    tree.write("proc/7/comm", "other\n");
    apply_to(tree.path(), &Kernel::new(), &[pool(5)], &options()).unwrap();
    assert_eq!(unseen(), 0, "no kubelet runs");
}
