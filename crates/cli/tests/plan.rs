//! Tests `hugeleaf plan` on captured hosts, with invalid flags, for users without rights, and on this host's pools.
//!
//! The answers are committed next to this file. After an intended change, `HUGELEAF_BLESS=1 cargo test -p hugeleaf-cli --test cli plan::`
//! rewrites them; review the difference before committing it.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::Output;

use crate::common::{
    files_below, good, has_pool_in_use, host_with, hugeleaf, is_root, not_run, refused, repository,
    run, stderr, stdout,
};
use hugeleaf_host::demand::{Demand, EqualMappings, PageSource, Service, ServiceKind};
use hugeleaf_host::{Root, identity, read_host};
use hugeleaf_plan::{
    CurrentHost, Plan, PlanFacts, PlanOptions, build_plan, check, parse, steps, write,
};
use hugeleaf_sys::Kernel;
use hugeleaf_testkit::host_lock;
use hugeleaf_units::{Bytes, PageKind};
use serde_json::Value;

/// Case, captured host, arguments and exit status; 1 if pages had to be cut.
const CASES: [(&str, &str, &[&str], i32); 14] = [
    (
        "two-nodes-bytes",
        "x86-4k-two-nodes",
        &["--bytes", "9G", "--name", "cache", "--sizes", "2M"],
        0,
    ),
    ("two-nodes-mover", "x86-4k-two-nodes", &["--mover", "8"], 0),
    ("two-nodes-cut", "x86-4k-two-nodes", &["--bytes", "400G"], 1),
    (
        "two-nodes-forced",
        "x86-4k-two-nodes",
        &["--bytes", "300G", "--force", "a test of the kernel"],
        1,
    ),
    (
        "two-nodes-bound",
        "x86-4k-two-nodes",
        &["--bytes", "3G", "--node", "1", "--mount", "/mnt/huge"],
        0,
    ),
    (
        "two-nodes-host-cache",
        "x86-4k-two-nodes",
        &[
            "--host-cache",
            "20G",
            "--ranks",
            "8",
            "--node-each",
            "--sizes",
            "1G,2M",
        ],
        0,
    ),
    ("arm64-16k", "arm64-16k", &["--bytes", "512M"], 0),
    (
        "arm64-64k",
        "arm64-64k",
        &["--bytes", "3G", "--sizes", "512M,2M"],
        0,
    ),
    ("no-hugetlb", "no-hugetlb", &["--bytes", "1G"], 0),
    ("no-thp", "no-thp", &["--mover", "1"], 0),
    ("postgres", "why/postgres-stock", &[], 0),
    ("postgres-short", "why/postgres-pool-short", &[], 0),
    ("redis", "why/redis-saves", &[], 0),
    (
        "container",
        "why/container-limits",
        &["--container", "/kubepods/a"],
        0,
    ),
];

/// Runs the command in the repository, so that answers do not depend on its location.
fn plan(arguments: &[&str]) -> Output {
    let mut all = vec!["plan"];
    all.extend(arguments);
    hugeleaf(&all).current_dir(repository()).output().unwrap()
}

fn compare(got: &str, name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/plan")
        .join(name);
    if std::env::var_os("HUGELEAF_BLESS").is_some() {
        std::fs::write(&file, got).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(got == expected, "{name} differs; it is now:\n{got}");
}

#[test]
fn every_case_reads_as_committed() {
    for (name, host, flags, status) in CASES {
        let root = format!("fixtures/{host}");
        let with = |more: &[&str]| {
            let mut all = vec!["--root", &root];
            all.extend(flags);
            all.extend(more);
            let output = plan(&all);
            assert_eq!(
                output.status.code(),
                Some(status),
                "{name}: {}",
                stderr(&output)
            );
            assert_eq!(stderr(&output), "", "{name}");
            stdout(&output)
        };
        let text = with(&[]);
        for line in text.lines() {
            let is_long = line.chars().count() > 100;
            assert!(
                !is_long || line.trim().split(' ').count() == 1,
                "{name}: {line}"
            );
        }
        compare(&text, &format!("{name}.txt"));
        compare(&with(&["--json"]), &format!("{name}.json"));
        let file = with(&["--output", "-"]);
        compare(&file, &format!("{name}.toml"));
        let read = parse(&file).unwrap();
        assert_eq!(written(&read), file, "{name}");
    }
}

/// Returns the plan as a file, on a host without files of hugeleaf.
fn written(plan: &Plan) -> String {
    write(plan, |_| None)
}

/// Field names are a contract.
#[test]
fn the_json_contract_holds() {
    let root = "fixtures/x86-4k-two-nodes";
    let text = stdout(&plan(&["--root", root, "--bytes", "400G", "--json"]));
    assert!(text.starts_with("{\n  \"schema\": 2,"));
    let answer: Value = serde_json::from_str(&text).unwrap();
    for name in ["id", "what", "path", "after", "state", "why", "verify"] {
        assert!(!answer["steps"][0][name].is_null(), "{name}");
    }
    let service = &answer["services"][0];
    assert!(service["short_pages"].as_u64().unwrap() > 0);
    assert!(service["reason"].is_string());
    for name in ["asked", "got"] {
        for field in ["page_bytes", "kind", "pages", "bytes"] {
            assert!(!service[name][0][field].is_null(), "{name} {field}");
        }
    }
    let base = &answer["base"];
    assert!(base["left_bytes"].as_u64() >= base["margin_bytes"].as_u64());
}

#[test]
fn it_is_written_once_and_never_over_another() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.toml");
    let file = file.to_str().unwrap();
    let flags = [
        "--root",
        "fixtures/no-thp",
        "--bytes",
        "64M",
        "--output",
        file,
    ];
    let text = good(&plan(&flags));
    assert!(
        text.contains(&format!("hugeleaf apply --dry-run {file}")),
        "{text}"
    );
    let written = std::fs::read_to_string(file).unwrap();
    parse(&written).unwrap();
    refused(&plan(&flags), 2, &["the file exists already", "--output"]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), written);
    let nowhere = dir.path().join("none/plan.toml");
    let nowhere = nowhere.to_str().unwrap();
    let flags = [
        "--root",
        "fixtures/no-thp",
        "--bytes",
        "64M",
        "--output",
        nowhere,
    ];
    refused(&plan(&flags), 3, &["none/plan.toml: No such file"]);
}

#[test]
fn flags_that_make_no_sense_are_refused_in_two_lines() {
    let root = ["--root", "fixtures/x86-4k-two-nodes"];
    let with = |flags: &[&str]| plan(&[&root[..], flags].concat());
    for (flags, status, words) in [
        (&["--bytes", "0"][..], 2, &["--bytes 0"][..]),
        (&["--bytes", "many"], 2, &["is not a size"]),
        (&["--bytes", "1G", "--margin", "120%"], 2, &["not a margin"]),
        (&["--bytes", "1G", "--margin", "a\nb"], 2, &["not a margin"]),
        (
            &["--bytes", "1G", "--sizes", "16M"],
            3,
            &["cannot reserve pages of 16M"],
        ),
        (
            &["--bytes", "1G", "--sizes", "2M!"],
            2,
            &["cannot have mandatory sizes"],
        ),
        (&["--bytes", "1G", "--sizes", "3M"], 2, &["not a ladder"]),
        (&["--bytes", "1G", "--force", " "], 2, &["empty reason"]),
        (&["--bytes", "1G", "--env", "A"], 2, &["has no ="]),
        (
            &["--bytes", "1G", "--mount", "mnt"],
            2,
            &["expected an absolute path"],
        ),
        (
            &["--bytes", "1G", "--mount", "/mnt/../etc"],
            2,
            &["path without .."],
        ),
        (
            &["--bytes", "1G", "--user", "nosuchuser"],
            2,
            &["--user nosuchuser: no such user"],
        ),
        (&["--bytes", "1G", "--node", "7"], 2, &["no node 7"]),
        (
            &["--name", "a"],
            2,
            &["need --bytes, --mover or --host-cache"],
        ),
        (&["--for", "1m"], 2, &["--tighten"]),
        (&["--tighten", "--every", "0s"], 2, &["is not a time"]),
        (&["--container", "/nowhere"], 2, &["/nowhere"]),
        (&["--postgres", "/nowhere"], 2, &["/nowhere"]),
        (&["424242"], 3, &["424242"]),
        (&["no-such.service"], 2, &["no-such.service"]),
    ] {
        let output = with(flags);
        let text = stderr(&output);
        let is_either = matches!(output.status.code(), Some(2 | 3));
        assert!(is_either, "{flags:?}: {text}{}", stdout(&output));
        let named = ["/nowhere", "424242", "no-such.service"];
        let status = match flags.iter().any(|f| named.contains(f)) {
            // The readers of services report these errors.
            true => output.status.code().unwrap(),
            false => status,
        };
        refused(&output, status, words);
    }
}

/// Flags with optional values work without one.
#[test]
fn values_that_may_be_left_out() {
    let root = ["--root", "fixtures/x86-4k-two-nodes"];
    let with = |flags: &[&str]| plan(&[&root[..], flags].concat());
    // The captured host has no such server; this is the only error.
    refused(&with(&["--mariadb"]), 3, &["neither mariadbd nor mysqld"]);
    let text = good(&with(&["--bytes", "1G", "--run"]));
    assert!(text.contains("bytes has no systemd unit"), "{text}");
    let text = good(&with(&["--bytes", "1G", "--run=--shm 2M"]));
    assert!(text.contains("bytes has no systemd unit"), "{text}");
}

#[test]
fn a_folder_that_is_no_captured_host_is_refused() {
    refused(&plan(&["--root", "crates", "--bytes", "1G"]), 3, &["auxv"]);
}

const ACCOUNTS: [(&str, &str); 2] = [
    (
        "etc/passwd",
        "root:x:0:0::/root:/bin/sh\noracle:x:54321:54321::/home/oracle:/bin/sh\ndba:x:700:54321::/:/bin/sh\n",
    ),
    (
        "etc/group",
        "root:x:0:\noinstall:x:54321:\ndba:x:54322:oracle\n",
    ),
];

/// Returns the missing rights for a plan of 8G for this user on such a host.
fn rights(user: &str, more: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut files = ACCOUNTS.to_vec();
    files.extend(more);
    let host = host_with("x86-4k-two-nodes", &files);
    let root = host.path().to_str().unwrap();
    let flags = ["--root", root, "--bytes", "8G", "--user", user, "--json"];
    let answer: Value = serde_json::from_str(&good(&plan(&flags))).unwrap();
    let rights = answer["rights"].as_array().unwrap();
    let text = |r: &Value, name: &str| r[name].as_str().unwrap().to_owned();
    rights
        .iter()
        .map(|r| (text(r, "lacks"), text(r, "change")))
        .collect()
}

#[test]
fn a_user_is_told_what_it_lacks_and_the_exact_change() {
    let none = ("proc/sys/vm/hugetlb_shm_group", "0\n");
    let lacks = rights("oracle", &[none]);
    let changes: Vec<&str> = lacks.iter().map(|(_, change)| change.as_str()).collect();
    assert_eq!(
        changes,
        [
            "vm.hugetlb_shm_group = 54321",
            "limits.d: oracle soft and hard memlock 8G"
        ]
    );
    for part in ["CAP_IPC_LOCK", "group 0", "oracle (uid 54321)"] {
        assert!(lacks[0].0.contains(part), "{lacks:?}");
    }
    // A member of the configured group with a sufficient limit lacks nothing.
    let group = ("proc/sys/vm/hugetlb_shm_group", "54322\n");
    let limits = (
        "etc/security/limits.d/90-oracle.conf",
        "oracle soft memlock unlimited\noracle hard memlock unlimited\n",
    );
    assert_eq!(rights("oracle", &[group, limits]), []);
    assert_eq!(rights("54321", &[group, limits]), []);
    // Another user is not a member and has no limit.
    let lacks = rights("dba", &[group, limits]);
    assert_eq!(lacks.len(), 1, "{lacks:?}");
    assert!(lacks[0].0.contains("is not in group 54322"), "{lacks:?}");
    // root needs no rights.
    assert_eq!(rights("root", &[none]), []);
}

#[test]
fn an_ordinary_user_plans_too() {
    use std::os::unix::process::CommandExt;
    if !is_root() {
        return not_run(
            "an_ordinary_user_plans_too",
            "needs root to become another user",
        );
    }
    let (_dir, binary) = crate::common::public_copy();
    let output = crate::common::program(&binary, &["plan", "--bytes", "64M", "--user", "nobody"])
        .uid(crate::common::NOBODY)
        .gid(crate::common::NOBODY)
        .current_dir("/")
        .output()
        .unwrap();
    let text = good(&output);
    assert!(
        text.contains("PERMISSIONS") && text.contains("nobody (uid 65534)"),
        "{text}"
    );
}

#[test]
fn files_of_earlier_plans_keep_what_they_gave_to_others() {
    let host = host_with(
        "x86-4k-two-nodes",
        &[(
            "etc/security/limits.d/60-hugeleaf.conf",
            "# written by hugeleaf; undone by: hugeleaf undo\ndb2 soft memlock 100\ndb2 hard memlock 100\n",
        )],
    );
    for (name, text) in ACCOUNTS {
        std::fs::write(host.path().join(name), text).unwrap();
    }
    std::fs::write(host.path().join("proc/sys/vm/hugetlb_shm_group"), "0\n").unwrap();
    let root = host.path().to_str().unwrap();
    let flags = [
        "--root", root, "--bytes", "8G", "--user", "oracle", "--output", "-",
    ];
    let plan = parse(&good(&plan(&flags))).unwrap();
    let all = steps(&plan);
    let limits = all.iter().find(|s| s.id == "limits").unwrap();
    let text = format!("{:?}", limits.what);
    assert!(text.contains("oracle soft memlock 8388608"), "{text}");
    assert!(text.contains("db2 hard memlock 100"), "{text}");
}

fn service(kind: ServiceKind) -> Service {
    let mut service = Service::new("a", kind);
    service.demands = vec![Demand {
        what: "memory".to_owned(),
        mappings: vec![EqualMappings::single(Bytes::from_mib(100))],
        place: PageSource::Pool,
        page: None,
        source: "a test".to_owned(),
        held: None,
        buffers: None,
    }];
    service
}

/// Makes each file of a host unreadable in turn. The result must be a plan that parses and passes its own check, or a refusal with a
/// reason.
#[test]
fn each_file_that_cannot_be_read_leaves_a_plan_or_a_reason() {
    let mut refused = Vec::new();
    for host in [
        "x86-4k-two-nodes",
        "arm64-64k",
        "no-hugetlb",
        "x86-old-kernel",
    ] {
        let folder = repository().join("fixtures").join(host);
        for file in files_below(&folder) {
            let root = Root::at(&folder).failing(&file, ErrorKind::PermissionDenied);
            let Ok(facts) = read_host(&root, &Kernel::new()) else {
                continue;
            };
            let identity = identity(&root);
            let facts = PlanFacts {
                host: &facts,
                identity: &identity,
                grub_drop_ins: true,
                grub_text: "",
                tmpfiles: true,
                program: Path::new("/usr/bin/hugeleaf"),
                created_at: None,
                in_force: &[],
                found: &[],
            };
            for kind in [ServiceKind::PostgreSql, ServiceKind::Other] {
                match build_plan(&facts, &[service(kind)], &PlanOptions::default()) {
                    Ok(plan) => {
                        let text = written(&plan);
                        assert_eq!(parse(&text).as_ref(), Ok(&plan), "{host} {file:?}");
                        let now = CurrentHost {
                            host: facts.host,
                            identity: &identity,
                            in_force: &[],
                        };
                        assert!(check(&plan, &now).is_ok(), "{host} {file:?}");
                    }
                    Err(refusal) => {
                        assert!(!refusal.remedy.is_empty());
                        refused.push(file.display().to_string());
                    }
                }
            }
        }
    }
    for file in ["proc/meminfo", "hugepages-2048kB/free_hugepages"] {
        assert!(
            refused.iter().any(|f| f.ends_with(file)),
            "{file}: {refused:?}"
        );
    }
}

#[test]
fn a_pool_is_tightened_to_the_most_that_was_used() {
    let test = "a_pool_is_tightened_to_the_most_that_was_used";
    let host = read_host(&Root::live(), &Kernel::new()).unwrap();
    let Some(size) = host.memory.default_hugetlb_page.get().filter(|_| is_root()) else {
        return not_run(test, "needs root and hugetlb");
    };
    if has_pool_in_use() {
        return not_run(test, "needs pools of which nobody uses pages");
    }
    let guard = host_lock::exclusive();
    let pages = guard.set_pool(size.bytes().get(), 40);
    assert_eq!(pages, 40, "the host has no room for a small pool");
    let ladder = format!("hugetlb:{size}!").parse().unwrap();
    let length = Bytes(size.bytes().get() * 25);
    let held = hugeleaf::Region::new(&hugeleaf::RegionOptions::new(length, ladder)).unwrap();
    let mut watching = hugeleaf(&[
        "plan",
        "--tighten",
        "--for",
        "6s",
        "--every",
        "50ms",
        "--json",
    ])
    .env("HUGELEAF_TEST_PROGRESS", "100ms")
    .stdout(std::process::Stdio::piped())
    .stderr(std::process::Stdio::piped())
    .spawn()
    .unwrap();
    // The first line of progress follows the first sample.
    let mut progress = BufReader::new(watching.stderr.take().unwrap());
    let mut line = String::new();
    progress.read_line(&mut line).unwrap();
    assert!(line.contains("watching the pools"), "{line}");
    // Memory freed before the end still counts in the maximum.
    drop(held);
    let answer: Value = serde_json::from_str(&good(&watching.wait_with_output().unwrap())).unwrap();
    let pools = answer["pools"].as_array().unwrap();
    let pages: u64 = pools
        .iter()
        .filter(|p| p["page_bytes"] == size.bytes().get())
        .map(|p| p["pages"].as_u64().unwrap())
        .sum();
    // 25, and 2 % more: one page.
    assert_eq!(pages, 26, "{answer:#}");
    drop(guard);
}

#[test]
fn a_live_plan_passes_its_own_check() {
    let host = read_host(&Root::live(), &Kernel::new()).unwrap();
    let has_pools = host.page_sizes.iter().any(|s| s.kind == PageKind::Hugetlb);
    if !has_pools {
        return not_run(
            "a_live_plan_passes_its_own_check",
            "this kernel has no hugetlb",
        );
    }
    let lock = host_lock::shared();
    let text = good(&run(&["plan", "--bytes", "64M", "--output", "-"]));
    let plan = parse(&text).unwrap();
    let root = Root::live();
    let now = CurrentHost {
        host: &read_host(&root, &Kernel::new()).unwrap(),
        identity: &identity(&root),
        in_force: &[],
    };
    check(&plan, &now).unwrap();
    drop(lock);
    // The time is that of this host, in UTC.
    assert!(plan.made.unwrap().ends_with('Z'));
}

/// A part of a cache is of no use: the program falls back to base pages.
#[test]
fn a_host_cache_that_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.toml");
    let flags = [
        "--root",
        "fixtures/x86-4k-two-nodes",
        "--host-cache",
        "400G",
        "--ranks",
        "8",
    ];
    let mut all = flags.to_vec();
    all.extend(["--output", file.to_str().unwrap()]);
    let text = refused(
        &plan(&all),
        1,
        &["the host cache does not fit", "400G needed", "short"],
    );
    assert!(!file.exists(), "no plan was written");
    // The advised size fits.
    let next = text.split_once("next: hugeleaf plan ").unwrap().1;
    let next = next.split(" #").next().unwrap().split_whitespace();
    let next: Vec<&str> = flags[..2].iter().copied().chain(next).collect();
    good(&plan(&next));
    let many = refused(
        &plan(&["--ranks", "2", "--bytes", "1G"]),
        2,
        &["--host-cache"],
    );
    assert!(
        many.contains("--ranks") || many.contains("required"),
        "{many}"
    );
}
