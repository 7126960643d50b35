//! `apply` and `undo` on a captured host, as an ordinary user, and in a mount namespace with a
//! private /etc on the running host.

mod attacks;
pub mod namespace;
mod together;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{NOBODY, good, hugeleaf, not_run, refused, repository, run, stdout};
use namespace::Namespace;
use serde_json::Value;

/// Returns a captured host and a plan for it.
fn captured() -> (String, tempfile::TempDir, String) {
    let root = repository().join("fixtures/x86-4k-two-nodes");
    let root = root.display().to_string();
    let dir = tempfile::tempdir().unwrap();
    // The plan names a service, so it has files too.
    let plan = dir.path().join("plan.toml").display().to_string();
    let made = run(&[
        "plan", "--root", &root, "--bytes", "1G", "--sizes", "1G", "--name", "cache", "--output",
        &plan,
    ]);
    assert!(matches!(made.status.code(), Some(0 | 1)), "{made:?}");
    (root, dir, plan)
}

#[test]
fn a_captured_host_shows_the_difference_and_is_never_changed() {
    let (root, _dir, plan) = captured();
    let text = good(&run(&["apply", "--dry-run", "--root", &root, &plan]));
    assert!(
        text.contains(" pages → ") && text.contains("nothing was changed"),
        "{text}"
    );
    assert!(
        text.contains("+++ /etc/sysctl.d/60-hugeleaf.conf") || text.contains("tmpfiles.d"),
        "{text}"
    );
    let json = good(&run(&[
        "apply",
        "--dry-run",
        "--json",
        "--root",
        &root,
        &plan,
    ]));
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&value["schema"], &value["dry_run"]),
        (&2.into(), &true.into())
    );
    let steps = value["steps"].as_array().unwrap();
    assert!(!steps.is_empty());
    for step in steps {
        for name in ["id", "what", "path", "state"] {
            assert!(step[name].is_string(), "{name}: {step}");
        }
    }
    let words = ["--root", "--dry-run"];
    refused(&run(&["apply", "--root", &root, &plan]), 2, &words);
    refused(&run(&["undo", "--root", &root]), 2, &["--root"]);
    let text = good(&run(&["undo", "--list", "--root", &root]));
    assert_eq!(text, "nothing has been applied\n");
}

#[test]
fn a_plan_that_does_not_read_is_wrong_usage() {
    let (root, dir, plan) = captured();
    let missing = dir.path().join("none.toml").display().to_string();
    refused(
        &run(&["apply", &missing]),
        2,
        &["none.toml", "hugeleaf plan"],
    );
    let text = std::fs::read_to_string(&plan).unwrap();
    let bad = text.replacen("node = 0", "node = nought", 1);
    assert_ne!(text, bad);
    std::fs::write(&plan, bad).unwrap();
    refused(
        &run(&["apply", "--dry-run", "--root", &root, &plan]),
        2,
        &["line", "column"],
    );
}

#[test]
fn a_plan_for_another_host_is_refused() {
    let (root, dir, plan) = captured();
    let other = repository()
        .join("fixtures/arm64-64k")
        .display()
        .to_string();
    refused(
        &run(&["apply", "--dry-run", "--root", &other, &plan]),
        3,
        &["plan"],
    );
    // The same on this host, before any scan.
    refused(&run(&["apply", &plan]), 3, &["plan"]);
    drop((root, dir));
}

#[test]
fn an_id_that_there_is_not_and_flags_that_exclude_each_other() {
    refused(&run(&["undo", "--list", "--all"]), 2, &["--help"]);
    refused(&run(&["undo", "3", "--all"]), 2, &["--help"]);
    refused(&run(&["undo", "three"]), 2, &["--help"]);
    let root = repository().join("fixtures/no-thp").display().to_string();
    let out = run(&["undo", "--dry-run", "--root", &root, "3"]);
    refused(&out, 2, &["number 3", "undo --list"]);
}

#[test]
fn an_ordinary_user_is_told_what_is_missing_and_nothing_is_changed() {
    let name = "an_ordinary_user_is_told_what_is_missing_and_nothing_is_changed";
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let plan = dir.path().join("plan.toml").display().to_string();
    let made = run(&["plan", "--bytes", "16M", "--output", &plan]);
    if made.status.code() != Some(0) {
        not_run(name, "this host cannot reserve 16M");
        return;
    }
    let text = good(&hugeleaf(&["apply", "--dry-run", &plan]).output().unwrap());
    if text.contains("would make 0 steps") {
        not_run(name, "this host has the pages already");
        return;
    }
    let mut command = hugeleaf(&["apply", &plan]);
    if hugeleaf_sys::effective_uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    refused(
        &command.output().unwrap(),
        3,
        &["run as root", "nothing was changed"],
    );
}

#[test]
fn applied_it_is_so_and_undone_it_is_as_before() {
    let Some(host) = Namespace::new("applied_it_is_so_and_undone_it_is_as_before", "") else {
        return;
    };
    let plan = host.plan();
    let json = good(&host.hugeleaf(&["apply", "--json", &plan]));
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&value["id"], &value["complete"]),
        (&1.into(), &true.into()),
        "{json}"
    );
    let steps = value["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["state"] == "done"), "{json}");
    assert!(
        value["to_do"]
            .as_array()
            .is_some_and(|lines| !lines.is_empty())
    );
    let group = std::fs::read_to_string("/proc/sys/vm/hugetlb_shm_group").unwrap();
    assert_eq!(group.trim(), NOBODY.to_string());
    let seen = host
        .shell("cat /etc/sysctl.d/60-hugeleaf.conf; stat -f -c %T /mnt/huge; tail -1 /etc/fstab");
    assert!(
        seen.starts_with("# written by hugeleaf; undone by: hugeleaf undo\n"),
        "{seen}"
    );
    assert!(
        seen.contains("\nhugetlbfs\n") && seen.contains("hugeleaf's block"),
        "{seen}"
    );

    let again = good(&host.hugeleaf(&["apply", &plan]));
    assert!(again.starts_with("already as planned"), "{again}");
    let list = good(&host.hugeleaf(&["undo", "--list"]));
    assert!(
        list.contains("in force") && list.contains("plan.toml"),
        "{list}"
    );
    let would = good(&host.hugeleaf(&["undo", "--dry-run"]));
    assert!(
        would.contains("unmount /mnt/huge") && would.contains("--- /etc/fstab"),
        "{would}"
    );
    let undone = good(&host.hugeleaf(&["undo"]));
    assert!(undone.starts_with("undone: apply 1 of 2"), "{undone}");
    host.assert_etc_as_before("undone");
    host.assert_knobs_as_before("undone");
    assert_eq!(host.shell("ls -A /mnt"), "");
    let nothing = good(&host.hugeleaf(&["undo"]));
    assert_eq!(nothing, "nothing to undo: no apply is in force\n");
    host.assert_etc_as_before("undone twice");
}

#[test]
fn what_somebody_else_changed_stays_until_the_person_insists() {
    let name = "what_somebody_else_changed_stays_until_the_person_insists";
    let Some(host) = Namespace::new(name, "") else {
        return;
    };
    let plan = host.plan();
    good(&host.hugeleaf(&["apply", &plan]));
    host.shell("echo mine > /etc/sysctl.d/60-hugeleaf.conf; echo '# mine' >> /etc/fstab");
    let out = host.hugeleaf(&["undo"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let text = stdout(&out);
    assert!(
        text.contains("changed-since") && text.contains("undo 1 --even-if-changed"),
        "{text}"
    );
    let seen = host.shell("cat /etc/sysctl.d/60-hugeleaf.conf; tail -1 /etc/fstab; grep -c hugeleaf /etc/fstab || true");
    assert_eq!(seen, "mine\n# mine\n0\n");
    good(&host.hugeleaf(&["undo", "1", "--even-if-changed"]));
    host.shell("test ! -e /etc/sysctl.d/60-hugeleaf.conf; sed -i '$d' /etc/fstab");
    host.assert_etc_as_before("undone");
    host.assert_knobs_as_before("undone");
}

#[test]
fn a_file_of_somebody_else_is_never_replaced() {
    let name = "a_file_of_somebody_else_is_never_replaced";
    let make = "echo theirs > /etc/sysctl.d/60-hugeleaf.conf";
    let Some(host) = Namespace::new(name, make) else {
        return;
    };
    let plan = host.plan();
    let words = [
        "/etc/sysctl.d/60-hugeleaf.conf",
        "not written by hugeleaf",
        "mv ",
    ];
    refused(&host.hugeleaf(&["apply", &plan]), 3, &words);
    assert_eq!(host.shell("cat /etc/sysctl.d/60-hugeleaf.conf"), "theirs\n");
    host.assert_knobs_as_before("refused");
}

#[test]
fn a_read_only_etc_is_told_before_anything_is_changed() {
    let name = "a_read_only_etc_is_told_before_anything_is_changed";
    let Some(host) = Namespace::new(name, "") else {
        return;
    };
    let plan = host.plan();
    host.shell("mount -o remount,ro,bind /etc");
    let words = [
        "/etc",
        "Read-only file system",
        "nothing was changed",
        "remount,rw",
    ];
    refused(&host.hugeleaf(&["apply", &plan]), 3, &words);
    host.assert_etc_as_before("refused");
    host.assert_knobs_as_before("refused");
    assert_eq!(host.shell("ls /var/lib"), "");
}

#[test]
fn a_container_that_may_not_set_knobs_is_told_before_anything_is_changed() {
    let name = "a_container_that_may_not_set_knobs_is_told_before_anything_is_changed";
    let Some(host) = Namespace::new(name, "") else {
        return;
    };
    let plan = host.plan();
    host.shell("mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys");
    host.shell("mount -o remount,ro,bind /sys");
    let words = [
        "Read-only file system",
        "nothing was changed",
        "on the host itself",
    ];
    refused(&host.hugeleaf(&["apply", &plan]), 3, &words);
    host.assert_etc_as_before("refused");
    host.assert_knobs_as_before("refused");
}

#[test]
fn a_state_folder_that_cannot_be_written_is_told_before_anything_is_changed() {
    let name = "a_state_folder_that_cannot_be_written_is_told_before_anything_is_changed";
    let Some(host) = Namespace::new(name, "") else {
        return;
    };
    let plan = host.plan();
    host.shell("mount -o remount,ro,bind /var/lib");
    let words = [
        "cannot write the journal",
        "Read-only file system",
        "nothing was changed",
    ];
    refused(&host.hugeleaf(&["apply", &plan]), 3, &words);
    host.assert_etc_as_before("refused");
    // A full disk: there is room for only a few names.
    host.shell("mount -t tmpfs -o size=4k,nr_inodes=8 none /var/lib; head -c 1M /dev/zero > /var/lib/full || true");
    refused(
        &host.hugeleaf(&["apply", &plan]),
        3,
        &["No space left", "make room"],
    );
    host.shell("umount /var/lib");
    host.assert_etc_as_before("refused");
    host.assert_knobs_as_before("refused");
}

#[test]
fn the_second_of_two_at_once_names_the_first() {
    let Some(host) = Namespace::new("the_second_of_two_at_once_names_the_first", "") else {
        return;
    };
    let plan = host.plan();
    let script = "mkdir -p /var/lib/hugeleaf; exec 9>/var/lib/hugeleaf/lock; flock 9; echo $$ >&9; \
                  echo locked; read -r line";
    let mut first = host
        .command("sh", &["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = first.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    assert_eq!(line, "locked\n");
    let pid = first.id().to_string();
    for command in [&["apply", &plan][..], &["undo", "--all"]] {
        // Undo has nothing to undo yet, and reports that without a lock.
        if command[0] == "apply" {
            let words = ["another apply or undo", &pid, "nothing was changed"];
            refused(&host.hugeleaf(command), 3, &words);
        }
    }
    drop(first.stdin.take());
    first.wait().unwrap();
    host.assert_etc_as_before("refused");
    good(&host.hugeleaf(&["apply", &plan]));
}

#[test]
fn killed_at_any_moment_it_is_undone() {
    let Some(host) = Namespace::new("killed_at_any_moment_it_is_undone", "") else {
        return;
    };
    let plan = host.plan();
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..hugeleaf_testkit::size(4, 12) {
        let mut child = host
            .command(env!("CARGO_BIN_EXE_hugeleaf"), &["apply", &plan])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        hugeleaf_testkit::pause(
            Duration::from_millis(random.u64(0..60)),
            "the kill is at a random moment",
        );
        child.kill().unwrap();
        child.wait().unwrap();
        good(&host.hugeleaf(&["undo", "--all"]));
        let when = format!("killed and undone, round {round}");
        host.assert_etc_as_before(&when);
        host.assert_knobs_as_before(&when);
    }
}

#[test]
fn a_journal_that_is_damaged_is_used_as_far_as_it_is_whole() {
    let name = "a_journal_that_is_damaged_is_used_as_far_as_it_is_whole";
    let Some(host) = Namespace::new(name, "") else {
        return;
    };
    let plan = host.plan();
    good(&host.hugeleaf(&["apply", &plan]));
    // Cuts off the last record, which marks the apply as complete.
    host.shell("truncate -s -20 /var/lib/hugeleaf/journal/0001.log");
    let list = good(&host.hugeleaf(&["undo", "--list"]));
    assert!(
        list.contains("cut off") && list.contains("0001.log: line"),
        "{list}"
    );
    let undone = good(&host.hugeleaf(&["undo"]));
    assert!(
        undone.contains("journal: /var/lib/hugeleaf/journal/0001.log"),
        "{undone}"
    );
    host.assert_etc_as_before("undone");
    host.assert_knobs_as_before("undone");
}
