//! `hugeleaf check` on six kinds of hosts and on this one. Each is a captured or generated host with its settings beside page sizes.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{files_below, hugeleaf, repository, run, stderr, stdout};
use serde_json::Value;

/// Returns a host of the fixtures with additional files.
fn host(fixture: &str, more: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = repository().join("fixtures").join(fixture);
    let put = |name: &Path, bytes: &[u8]| {
        let to = folder.path().join(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::write(to, bytes).unwrap();
    };
    for name in files_below(&from) {
        put(&name, &std::fs::read(from.join(&name)).unwrap());
    }
    for (name, text) in more {
        put(Path::new(name), text.as_bytes());
    }
    folder
}

/// Returns the states of a host's features by id (the worst of several), and the whole answer.
fn states(host: &tempfile::TempDir, more: &[&str]) -> (BTreeMap<String, String>, Value) {
    let root = host.path().to_str().unwrap();
    let arguments = [&["check", "--json", "--root", root], more].concat();
    let output = hugeleaf(&arguments)
        .current_dir(host.path())
        .output()
        .unwrap();
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let order = ["change", "review", "unknown", "good", "absent"];
    let rank = |state: &str| order.iter().position(|known| *known == state).unwrap();
    let mut states: BTreeMap<String, String> = BTreeMap::new();
    for row in answer["features"].as_array().unwrap() {
        let (id, state) = (row["id"].as_str().unwrap(), row["state"].as_str().unwrap());
        let known = states
            .entry(id.to_owned())
            .or_insert_with(|| state.to_owned());
        if rank(state) < rank(known) {
            state.clone_into(known);
        }
    }
    let must_change = states.values().any(|state| state == "change");
    assert_eq!(
        output.status.code(),
        Some(i32::from(must_change)),
        "{}",
        stderr(&output)
    );
    (states, answer)
}

fn assert_states(states: &BTreeMap<String, String>, wanted: &[(&str, &str)]) {
    for (id, state) in wanted {
        assert_eq!(states.get(*id).map(String::as_str), Some(*state), "{id}");
    }
}

const CLOCK: &str = "sys/devices/system/clocksource/clocksource0";
const MOUNTS: &str = "22 1 8:1 / / rw,relatime - xfs /dev/sda1 rw\n23 22 8:17 / /data rw,noatime - ext4 /dev/sdb1 rw,nobarrier\n";
const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             96000                96000                processes \n\
                      Max open files            1024                 4096                 files     \n\
                      Max locked memory         8388608              8388608              bytes     \n";

#[test]
fn bare_metal_with_two_nodes_and_programs_that_disagree() {
    let current = format!("{CLOCK}/current_clocksource");
    let offered = format!("{CLOCK}/available_clocksource");
    let host = host(
        "x86-4k-two-nodes",
        &[
            ("proc/sys/kernel/numa_balancing", "1"),
            ("proc/sys/vm/zone_reclaim_mode", "1"),
            (&current, "hpet\n"),
            (&offered, "tsc hpet acpi_pm \n"),
            ("sys/block/sda/queue/scheduler", "[none] mq-deadline\n"),
            ("sys/block/sda/queue/rotational", "1\n"),
            (
                "sys/block/nvme0n1/queue/scheduler",
                "none mq-deadline [bfq]\n",
            ),
            ("sys/block/nvme0n1/queue/rotational", "0\n"),
            ("sys/block/loop0/queue/scheduler", "[none]\n"),
            ("proc/self/mountinfo", MOUNTS),
            (
                "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
                "powersave\n",
            ),
            (
                "sys/devices/system/cpu/cpufreq/policy0/affected_cpus",
                "0 1 2 3\n",
            ),
            ("proc/900001/comm", "mongod\n"),
            ("proc/900002/comm", "redis-server\n"),
            ("proc/900003/comm", "postgres\n"),
            ("proc/sys/vm/overcommit_memory", "0\n"),
        ],
    );
    let (found, answer) = states(&host, &[]);
    assert_states(
        &found,
        &[
            ("numa-balancing", "review"),
            ("zone-reclaim", "change"),
            ("clock", "change"),
            ("scheduler", "review"),
            ("mount", "change"),
            ("governor", "review"),
            // MongoDB 8 and later needs 1 like Redis; PostgreSQL needs 2.
            ("overcommit", "change"),
            // The version of MongoDB is unknown.
            ("thp", "review"),
        ],
    );
    let features = answer["features"].as_array().unwrap();
    let row = |id| features.iter().find(|row| row["id"] == id).unwrap();
    assert!(row("thp")["command"].is_null() && row("overcommit")["command"].is_null());
    let two = "sysctl -w vm.overcommit_memory";
    assert!(!answer.to_string().contains(two), "{answer}");
    let text = answer.to_string();
    assert!(
        text.contains("nvme0n1") && text.contains("sda") && !text.contains("loop0"),
        "{text}"
    );
    assert!(
        text.contains("https://"),
        "what a program wants has a source"
    );
}

#[test]
fn a_virtual_machine_as_it_should_be() {
    let current = format!("{CLOCK}/current_clocksource");
    let host = host(
        "arm64-16k",
        &[
            (&current, "arch_sys_counter\n"),
            ("proc/sys/kernel/io_uring_disabled", "0\n"),
            ("proc/sys/fs/aio-max-nr", "1048576\n"),
            ("proc/sys/net/core/somaxconn", "4096\n"),
            (
                "sys/block/vda/queue/scheduler",
                "[none] mq-deadline kyber\n",
            ),
            ("sys/block/vda/queue/rotational", "1\n"),
            (
                "proc/version",
                "Linux version 6.12.0 (gcc) #1 SMP PREEMPT_DYNAMIC Debian\n",
            ),
        ],
    );
    let (found, answer) = states(&host, &["--for", "oltp"]);
    assert_states(
        &found,
        &[
            ("clock", "good"),
            ("io-uring", "good"),
            ("aio", "good"),
            ("somaxconn", "good"),
            ("preemption", "good"),
        ],
    );
    assert_eq!(answer["profile"], "oltp");
    // Names only page sizes of this host.
    assert!(answer.to_string().contains("thp:32M") && !answer.to_string().contains("thp:2M"));
}

#[test]
fn a_container_sees_little_and_its_limits() {
    let host = host(
        "neither-kind",
        &[
            ("proc/900001/comm", "redis-server\n"),
            ("proc/900001/limits", LIMITS),
            ("proc/sys/kernel/osrelease", "6.12.0\n"),
        ],
    );
    let (found, _) = states(&host, &[]);
    assert_states(
        &found,
        &[
            ("pools", "absent"),
            ("thp", "absent"),
            // A missing file in a capture does not prove that the kernel lacks the feature.
            ("io-uring", "unknown"),
            ("governor", "unknown"),
            ("open-files", "review"),
            ("processes", "good"),
            ("memlock", "good"),
        ],
    );
}

#[test]
fn kernels_old_and_new_have_what_they_have() {
    let (old, _) = states(
        &host("x86-6.1-cgroup-v1", &[("proc/sys/fs/aio-max-nr", "65536")]),
        &[],
    );
    // Linux 6.1 has no switch for io_uring.
    assert_states(&old, &[("io-uring", "absent"), ("aio", "review")]);
    let new = host(
        "x86-7.3-two-nodes",
        &[
            ("proc/sys/kernel/io_uring_disabled", "2"),
            ("proc/sys/kernel/numa_balancing", "0"),
        ],
    );
    let (new, _) = states(&new, &[]);
    assert_states(
        &new,
        &[
            ("io-uring", "review"),
            ("numa-balancing", "good"),
            ("thp", "good"),
        ],
    );
}

#[test]
fn base_pages_of_64k_have_pages_of_512m() {
    let (found, answer) = states(&host("arm64-64k", &[]), &["--for", "vector"]);
    // 512M for all.
    assert_states(&found, &[("thp", "review")]);
    assert!(answer.to_string().contains("thp:512M"));
}

#[test]
fn damaged_files_are_unknown_and_not_good() {
    let damaged = host(
        "x86-7.3-two-nodes",
        &[
            ("proc/self/mountinfo", "- - -\n\n22 1"),
            ("proc/sys/vm/swappiness", "many"),
            ("sys/block/sda/queue/nr_requests", "x"),
        ],
    );
    let (found, _) = states(&damaged, &[]);
    assert_states(&found, &[("queue-depth", "unknown")]);
}

/// The kernel truncates a process name to 15 bytes: `clickhouse-serv`.
#[test]
fn a_program_with_a_long_name_is_judged_with_its_own_limits() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("clickhouse-server");
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let mut child = std::process::Command::new(&program)
        .arg("600")
        .spawn()
        .unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let output = run(&["check", "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let features = answer["features"].as_array().unwrap();
    let row = |id: &str, what: &str| {
        let found = features
            .iter()
            .find(|row| row["id"] == id && row["what"] == what);
        found.unwrap_or_else(|| panic!("no row {id} of {what}: {answer:#}"))
    };
    row("program", "ClickHouse");
    let locked = &row("memlock", "ClickHouse: locked memory")["value"];
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max locked memory"));
    let mut words = line.unwrap().split_whitespace().skip(3);
    let (soft, hard) = (words.next().unwrap(), words.next().unwrap());
    assert_eq!(*locked, format!("{soft}, at most {hard}"));
    let overcommit = features
        .iter()
        .find(|row| row["id"] == "overcommit")
        .unwrap();
    let wants = overcommit["wants"].as_array().unwrap();
    assert!(
        wants.iter().any(|want| want["program"] == "ClickHouse"),
        "{overcommit}"
    );
}

#[test]
fn this_host_is_checked_and_not_changed() {
    for profile in ["oltp", "warehouse", "backup", "jvm", "cache", "vector"] {
        let output = run(&["check", "--for", profile]);
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "{}",
            stderr(&output)
        );
        assert!(stdout(&output).contains("not measured here"));
    }
    let output = run(&["check", "--for", "everything"]);
    assert_eq!(output.status.code(), Some(2));
    // Each file system on a named disk has a minimum for its maximum file size.
    let answer: Value = serde_json::from_str(&stdout(&run(&["check", "--json"]))).unwrap();
    for one in answer["file_systems"].as_array().unwrap() {
        if one["kind"] == "ext4" && one["at"] == "/" {
            assert!(
                one["can"]["largest_file_bytes"].as_u64() > Some(1 << 40),
                "{one}"
            );
            assert_eq!(one["resize"], "larger", "{one}");
        }
    }
}
