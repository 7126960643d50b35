//! An applied plan, and later changes to its settings.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{answer, ids};
use crate::apply::namespace::Namespace;
use crate::common::{ChildGuard, NOBODY, good, has_pool_in_use, not_run, wait_until};

/// Returns the findings in the namespace. Lines of the kernel's log are excluded.
#[track_caller]
fn verify(host: &Namespace) -> (Value, i32) {
    answer(&host.hugeleaf(&["verify", "--json", "--since", "1s"]))
}

/// Returns the findings except those for other servers, which cannot be queried from the namespace.
fn own_ids(found: &Value) -> Vec<&str> {
    let mut own = ids(found);
    own.retain(|id| *id != "not-verified");
    own
}

#[track_caller]
fn finds(host: &Namespace, expected: &[&str], status: i32) {
    let (found, ended) = verify(host);
    assert_eq!(own_ids(&found), expected, "{:#}", found["findings"]);
    assert_eq!(ended, status);
}

#[test]
fn a_plan_in_force_is_silent_and_each_change_of_it_is_found() {
    let test = "a_plan_in_force_is_silent_and_each_change_of_it_is_found";
    let Some(host) = Namespace::new(test, "") else {
        return;
    };
    let plan = host.plan();
    good(&host.hugeleaf(&["apply", &plan]));
    let (found, status) = verify(&host);
    assert_eq!((own_ids(&found), status), (vec![], 0), "{found:#}");
    assert_eq!(found["applied"]["id"], 1);
    let steps = found["steps"].as_array().unwrap();
    assert!(steps.len() > 4);
    for step in steps {
        let state = step["state"].as_str().unwrap();
        assert!(matches!(state, "as-applied" | "not-applicable"), "{step}");
    }

    let group = std::fs::read_to_string("/proc/sys/vm/hugetlb_shm_group").unwrap();
    host.alone.set("/proc/sys/vm/hugetlb_shm_group", "0");
    finds(&host, &["knob-reset"], 1);
    host.alone
        .set("/proc/sys/vm/hugetlb_shm_group", group.trim());

    host.shell("umount /mnt/huge");
    finds(&host, &["mount-missing"], 1);
    host.shell("mount /mnt/huge");

    host.shell(
        "cp -a /etc/sysctl.d/60-hugeleaf.conf /mnt/kept; echo >> /etc/sysctl.d/60-hugeleaf.conf",
    );
    finds(&host, &["file-changed"], 1);
    host.shell("rm /etc/sysctl.d/60-hugeleaf.conf");
    finds(&host, &["file-changed"], 1);
    host.shell("cp -a /mnt/kept /etc/sysctl.d/60-hugeleaf.conf");

    host.shell("cp -a /etc/fstab /mnt/fstab; sed -i /hugetlbfs/d /etc/fstab");
    finds(&host, &["file-changed"], 1);
    host.shell("cp -a /mnt/fstab /etc/fstab");

    let pages = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap();
    let pages: u64 = pages.trim().parse().unwrap();
    host.alone.set("/proc/sys/vm/nr_hugepages", pages - 1);
    finds(&host, &["pool-short"], 1);
    host.alone.set("/proc/sys/vm/nr_hugepages", pages);

    finds(&host, &[], 0);
    good(&host.hugeleaf(&["undo"]));
    finds(&host, &[], 0);
    host.assert_knobs_as_before("undone");
}

#[test]
fn a_journal_that_was_cut_off_is_told() {
    let test = "a_journal_that_was_cut_off_is_told";
    if has_pool_in_use() {
        return not_run(test, "needs pools of which nobody uses pages");
    }
    let Some(host) = Namespace::new(test, "") else {
        return;
    };
    let plan = host.plan();
    good(&host.hugeleaf(&["apply", &plan]));
    // The last line marks the apply as complete.
    host.shell("cd /var/lib/hugeleaf/journal; cp -a 0001.log ../kept; sed -i '$d' 0001.log");
    finds(&host, &["apply-incomplete"], 1);
    host.shell("cd /var/lib/hugeleaf/journal; cp -a ../kept 0001.log; rm 0001.toml");
    // The owner of its pages is then unknown.
    finds(&host, &["journal-damaged", "pool-unused"], 1);
}

/// Starts a program with SysV segments on base pages, as a user with a very low lock limit.
fn segments(folder: &Path) -> ChildGuard {
    let program = folder.join("segments");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan_sizes/segments.c");
    let compiled = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(source)
        .status();
    assert!(compiled.unwrap().success());
    let nobody = NOBODY.to_string();
    let child = Command::new("prlimit")
        .args([
            "--memlock=65536:65536",
            "setpriv",
            "--reuid",
            &nobody,
            "--regid",
            &nobody,
        ])
        .args(["--clear-groups", "--pdeathsig", "KILL"])
        .arg(&program)
        .arg((64u64 << 20).to_string())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let running = ChildGuard(child);
    let maps = format!("/proc/{}/maps", running.pid());
    wait_until("the segment is attached", || {
        std::fs::read_to_string(&maps).is_ok_and(|text| text.contains("/SYSV"))
    });
    running
}

#[test]
fn a_user_who_may_not_have_segments_on_large_pages() {
    let test = "a_user_who_may_not_have_segments_on_large_pages";
    let Some(host) = Namespace::new(test, "") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = segments(folder.path());
    let plan = folder.path().join("plan.toml").display().to_string();
    let made = host.hugeleaf(&["plan", &program.pid(), "--output", &plan]);
    if made.status.code() != Some(0) {
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        return not_run(test, &format!("this host cannot reserve 64M: {said}"));
    }
    good(&host.hugeleaf(&["apply", &plan]));
    // The plan granted the right and the limit, but the program was started before.
    finds(&host, &["started-before-pool", "limit-not-taken"], 1);
    host.alone.set("/proc/sys/vm/hugetlb_shm_group", "0");
    finds(
        &host,
        &["memlock-small", "limit-not-taken", "knob-reset"],
        1,
    );
    host.alone.set("/proc/sys/vm/hugetlb_shm_group", "12345");
    finds(
        &host,
        &["group-missing", "limit-not-taken", "knob-reset"],
        1,
    );
}
