use super::*;
use crate::document::TextOptions;
use hugeleaf_host::Root;
use hugeleaf_plan::host_changes::FileContent;
use hugeleaf_plan::{FollowUp, Step, StepAction};
use hugeleaf_units::Pages;
use serde_json::Value;

const VIEW: TextOptions = TextOptions::plain(100);

const ASKED: AppliedPlanRemarks<'static> = AppliedPlanRemarks {
    plan: "pg.toml",
    by_hand: &[],
    warnings: &[],
};

fn step(
    id: &str,
    path: &str,
    before: PathState,
    after: PathState,
    state: StepState,
) -> StepOutcome {
    let what = match &after {
        PathState::Pool { .. } => "pool",
        PathState::File { .. } => "file",
        _ => "knob",
    };
    StepOutcome {
        id: id.to_owned(),
        what: what.to_owned(),
        path: path.into(),
        why: "for pg".to_owned(),
        verify: "cat".to_owned(),
        needs: FollowUp::Nothing,
        before: Some(before),
        wanted: Some(after.clone()),
        after: Some(after),
        state,
        note: None,
        shortage: None,
    }
}

fn pool(pages: u64) -> PathState {
    PathState::Pool { pages, surplus: 0 }
}

fn file(text: &str) -> PathState {
    PathState::File {
        content: FileContent::from(text),
        mode: 0o644,
        uid: 0,
        gid: 0,
        attributes: Vec::new(),
    }
}

fn shortage() -> Shortage {
    let mib = |n| Fact::Known(Bytes::from_mib(n));
    Shortage {
        size: "2M".parse().unwrap(),
        node: 0,
        wanted: Pages(4163),
        got: Pages(4000),
        missing: Pages(163),
        attempts: 3,
        total: mib(16384),
        free: mib(100),
        free_in_blocks: mib(2),
        cache: mib(2048),
        anon: mib(5000),
        shmem: Fact::Absent,
        kernel_reclaimable: mib(300),
        kernel_fixed: mib(90),
        locked: mib(0),
        unmovable_blocks: Fact::Known(12),
    }
}

fn outcome() -> ApplyOutcome {
    let nr = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
    let mut short = step("pool-2M-node0", nr, pool(0), pool(4000), StepState::Short);
    short.shortage = Some(Box::new(shortage()));
    let sysctl = "/etc/sysctl.d/60-hugeleaf.conf";
    let mut grub = step(
        "grub",
        "/etc/default/grub.d/60-hugeleaf.cfg",
        PathState::Absent,
        file("a\nb\n"),
        StepState::Done,
    );
    grub.needs = FollowUp::Reboot {
        first: "update-grub".to_owned(),
    };
    let unit = "/etc/systemd/system/pg.service.d/60-hugeleaf.conf";
    let mut unit = step(
        "unit-pg",
        unit,
        PathState::Absent,
        file("x\n"),
        StepState::Done,
    );
    unit.needs = FollowUp::Restart(vec!["pg.service".to_owned()]);
    ApplyOutcome {
        id: Some(3),
        continues: None,
        steps: vec![
            short,
            step(
                "sysctl",
                sysctl,
                PathState::Absent,
                file("a\nb\n"),
                StepState::Done,
            ),
            grub,
            unit,
        ],
        stopped: None,
        reverted: None,
        systemd: true,
    }
}

#[test]
fn says_what_was_made_what_is_missing_and_what_remains() {
    let text = apply(&outcome(), ASKED).text(VIEW);
    let expected = "\
applied, with deviations from the plan: pg.toml (4 steps made)
STATE  BEFORE      NOW  STEP           PATH
short       0     4000  pool-2M-node0  /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr…
done   absent  2 lines  sysctl         /etc/sysctl.d/60-hugeleaf.conf
done   absent  2 lines  grub           /etc/default/grub.d/60-hugeleaf.cfg
done   absent   1 line  unit-pg        /etc/systemd/system/pg.service.d/60-hugeleaf.conf
short  163 of 4163 pages of 2M are missing on node 0 after 3 tries with compaction
       - memory 16G, free 100M, free in blocks of 2M and more 2M, page cache 2G, processes 4.9G,
         kernel, reclaimable 300M, kernel, unreclaimable 90M, locked 0, 12 blocks hold unmovable
         pages
       next: hugeleaf apply --drop-caches pg.toml    # frees clean page cache
to do  systemctl daemon-reload
to do  update-grub    # then reboot to apply /etc/default/grub.d/60-hugeleaf.cfg
to do  systemctl restart pg.service
undo   hugeleaf undo    # reverts apply 3
";
    assert_eq!(text, expected);
}

#[test]
fn a_stop_midway_says_what_was_done_and_what_was_not() {
    let mut outcome = outcome();
    outcome.stopped = Some(StopReason::Failed {
        step: "sysctl".to_owned(),
        error: "open /etc/x: Read-only file system".to_owned(),
        errno: None,
        journal: false,
    });
    outcome.steps[1].state = StepState::Failed;
    outcome.steps[1].after = None;
    outcome.steps[1].note = Some("open /etc/x: Read-only file system".to_owned());
    for step in &mut outcome.steps[2..] {
        (step.state, step.after) = (StepState::NotReached, None);
    }
    let text = apply(&outcome, ASKED).text(VIEW);
    assert!(
        text.starts_with("partly applied: pg.toml (1 step made, 2 not reached)"),
        "{text}"
    );
    assert!(
        text.contains("\nsysctl: open /etc/x: Read-only file system\n"),
        "{text}"
    );
    // A change that was not made needs no further steps.
    assert!(
        !text.contains("update-grub") && !text.contains("restart"),
        "{text}"
    );
    let value: Value = serde_json::from_str(&apply_json(&outcome, ASKED)).unwrap();
    assert_eq!(value["stopped"]["reason"], "failed");
    assert_eq!(value["steps"][1]["state"], "failed");
    assert!(value["steps"][1].get("after").is_none());
}

#[test]
fn json_keeps_the_contract() {
    let value: Value = serde_json::from_str(&apply_json(&outcome(), ASKED)).unwrap();
    assert_eq!((&value["schema"], &value["id"]), (&2.into(), &3.into()));
    let steps = value["steps"].as_array().unwrap();
    for step in steps {
        for name in ["id", "what", "path", "state"] {
            assert!(step[name].is_string(), "{name}: {step}");
        }
    }
    assert_eq!(
        (&steps[0]["before"], &steps[0]["after"]),
        (&0.into(), &4000.into())
    );
    assert_eq!(steps[0]["shortage"]["missing"], 163);
    assert!(steps[1].get("before").is_none(), "absent is missing");
    assert_eq!(steps[1]["after"], "a\nb\n");
    assert_eq!(value["to_do"][2], "systemctl restart pg.service");
}

#[test]
fn the_difference_is_shown_line_by_line() {
    let dir = tempfile_root();
    let knob = Step {
        id: "knob".to_owned(),
        what: StepAction::Knob {
            value: "advise".to_owned(),
        },
        path: "/sys/knob".into(),
        why: String::new(),
        verify: String::new(),
        needs: FollowUp::Nothing,
    };
    let block = Step {
        id: "fstab-a".to_owned(),
        what: StepAction::Block {
            text: "new\n".to_owned(),
        },
        path: "/etc/fstab".into(),
        ..knob.clone()
    };
    let (looked, obstacles) = hugeleaf_plan::host_changes::inspect(&dir.1, &[knob, block]);
    let text = dry_run(&looked, &obstacles, ASKED, true).text(VIEW);
    let expected = "\
/sys/knob: never → advise
--- /etc/fstab
+++ /etc/fstab
@@ -1 +1,4 @@
 old	one
+# written by hugeleaf: block fstab-a; undone by: hugeleaf undo
+new
+# end of hugeleaf's block fstab-a
would make 2 steps; nothing was changed
to do  systemctl daemon-reload
";
    assert_eq!(text, expected);
    let json = dry_run_json(&looked, &obstacles, ASKED, true);
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["steps"][0]["after"], "advise");
    assert_eq!(value["steps"][0]["state"], "would-change");
}

fn tempfile_root() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("sys/knob", "always advise [never]\n"),
        ("etc/fstab", "old\tone\n"),
    ] {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let root = Root::at(dir.path());
    (dir, root)
}

#[test]
fn an_undo_says_what_was_left_alone() {
    let mut left = step(
        "sysctl",
        "/etc/s",
        file("theirs\n"),
        PathState::Absent,
        StepState::ChangedSince,
    );
    left.after = None;
    left.note = Some("it was changed meanwhile, and is left unchanged".to_owned());
    let undone = UndoOutcome {
        id: 3,
        time: "2026-01-02T03:04:05Z".to_owned(),
        steps: vec![
            step("pool", "/p", pool(9), pool(0), StepState::Restored),
            left,
        ],
        damage: vec!["0003.log: line 4 is damaged and is ignored".to_owned()],
        finished: true,
        unjournaled: false,
        systemd: false,
    };
    let text = undo(std::slice::from_ref(&undone), false).text(VIEW);
    let expected = "\
undone, with exceptions: apply 3 of 2026-01-02T03:04:05Z (1 restored, 1 left alone)
STATE          BEFORE  NOW  STEP    PATH
restored            9    0  pool    /p
changed-since  1 line    -  sysctl  /etc/s
sysctl: it was changed meanwhile, and is left unchanged
journal: 0003.log: line 4 is damaged and is ignored
next: hugeleaf undo 3 --even-if-changed    # restores these too
";
    assert_eq!(text, expected);
    assert_eq!(
        undo(&[], false).text(VIEW),
        "nothing to undo: no apply is in force\n"
    );
    let value: Value = serde_json::from_str(&undo_json(&[undone], false)).unwrap();
    assert_eq!(value["steps"][0]["apply"], 3);
    assert_eq!(value["applies"][0]["finished"], true);
}
