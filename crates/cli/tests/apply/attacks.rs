//! `plan`, `apply` and `undo` under attack: hostile names, a full disk, concurrent calls.

use std::process::Stdio;

use serde_json::Value;

use super::namespace::Namespace;
use crate::common::{good, not_run, stderr};

fn pool() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap();
    text.trim().parse().unwrap()
}

fn take(test: &str) -> Option<Namespace> {
    let host = Namespace::new(test, "")?;
    if pool() != 0 {
        not_run(test, "somebody else has a pool on this host");
        return None;
    }
    Some(host)
}

fn plan(host: &Namespace, name: &str, file: &str) -> String {
    let file = host.folder.path().join(file).display().to_string();
    let args = ["plan", "--bytes", "16M", "--name", name, "--output", &file];
    good(&host.hugeleaf(&args));
    file
}

/// Returns the services of all plans in force, as `verify` lists them.
fn services(host: &Namespace) -> Vec<String> {
    let out = host.hugeleaf(&["verify", "--json"]);
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    let services = answer["services"].as_array().unwrap().iter();
    services
        .map(|s| s["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn hostile_names_steer_nothing() {
    let Some(host) = take("hostile_names_steer_nothing") else {
        return;
    };
    let names = [
        "a\nb".to_owned(),
        "../../../etc/passwd".to_owned(),
        "x".repeat(300),
        "größe 大 🍃 \u{202e}nevig".to_owned(),
        "\"]]\n[[pool]]\npages = 9999\n#".to_owned(),
        "$(touch /etc/owned) `touch /etc/owned`; touch /etc/owned".to_owned(),
        "\u{1b}[31mred".to_owned(),
        " ".to_owned(),
    ];
    let mut needed = 0;
    for (number, name) in names.iter().enumerate() {
        let file = plan(&host, name, &format!("{number}.toml"));
        good(&host.hugeleaf(&["apply", &file]));
        // Each name is a separate service, and its pages are added.
        assert!(pool() > needed, "{name:?}");
        needed = pool();
        // The same name again is the same service.
        let again = plan(&host, name, &format!("{number}-again.toml"));
        good(&host.hugeleaf(&["apply", &again]));
        assert_eq!(pool(), needed, "{name:?}");
    }
    assert_eq!(services(&host).len(), names.len(), "{:?}", services(&host));
    let text = good(&host.hugeleaf(&["undo", "--list"]));
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert_eq!(host.shell("ls /etc/owned 2>/dev/null || true"), "");
    good(&host.hugeleaf(&["undo", "--all"]));
    host.assert_etc_as_before("undone");
    host.assert_knobs_as_before("undone");
}

#[test]
fn a_full_disk_changes_nothing_that_is_not_in_the_journal() {
    let Some(host) = take("a_full_disk_changes_nothing_that_is_not_in_the_journal") else {
        return;
    };
    let file = host.plan();
    host.shell("mount -t tmpfs -o size=128k none /var/lib");
    // Tries amounts of free space from none to enough for the whole apply.
    let mut refused = 0;
    for free in (0..32).step_by(3) {
        host.shell(&format!(
            "rm -f /var/lib/fill; dd if=/dev/zero of=/var/lib/fill bs=1k 2>/dev/null; \
             truncate -s -{free}k /var/lib/fill; true"
        ));
        let out = host.hugeleaf(&["apply", &file]);
        let is_done = out.status.success();
        if !is_done {
            refused += 1;
            assert_eq!(out.status.code(), Some(3), "{}", stderr(&out));
            assert!(stderr(&out).contains("next: "), "{}", stderr(&out));
        }
        // Every started apply is recorded and can be undone once there is space.
        host.shell("rm -f /var/lib/fill");
        good(&host.hugeleaf(&["undo", "--all"]));
        host.assert_etc_as_before("undone");
        host.assert_knobs_as_before("undone");
        host.shell("rm -rf /var/lib/hugeleaf");
        assert!(
            is_done || free < 31,
            "no room was ever enough: {}",
            stderr(&out)
        );
    }
    assert!(refused > 0, "there always was room");
}

#[test]
fn of_several_at_once_none_promises_what_another_has() {
    let Some(host) = take("of_several_at_once_none_promises_what_another_has") else {
        return;
    };
    for round in 0..4 {
        let files: Vec<String> = (0..3)
            .map(|n| plan(&host, &format!("s{n}"), &format!("{round}-{n}.toml")))
            .collect();
        let started: Vec<_> = files
            .iter()
            .map(|file| {
                let mut command = host.command(env!("CARGO_BIN_EXE_hugeleaf"), &["apply", file]);
                command
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let ended: Vec<_> = started
            .into_iter()
            .map(|c| c.wait_with_output().unwrap())
            .collect();
        let done = ended.iter().filter(|out| out.status.success()).count();
        // All plans were made before the first apply, so they compete for the same pages.
        assert_eq!(done, 1, "{ended:#?}");
        for out in ended.iter().filter(|out| !out.status.success()) {
            let said = stderr(out);
            let known = ["is running", "promises", "ran meanwhile"]
                .iter()
                .any(|w| said.contains(w));
            assert!(known && out.status.code() == Some(3), "{said}");
        }
        assert_eq!(services(&host).len(), 1);
        good(&host.hugeleaf(&["undo", "--all"]));
        host.assert_knobs_as_before("undone");
    }
}
