//! Tests the real program on real servers under load (tier 3).
//!
//! Each test starts its own server, keeps it busy with clients that check every answer, and applies the guide's own commands to it. The
//! test reads the effect from `/proc`. Needs root (knobs, other accounts' processes) and the server; otherwise prints "not run" with the
//! name.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::process::{Child, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use hugeleaf_testkit::guide_commands::{self, GuidePage};
use hugeleaf_testkit::host_lock;
use hugeleaf_testkit::mariadb::{self, FilledMariadb};
use hugeleaf_testkit::postgresql::{self, FilledPostgres};
use hugeleaf_testkit::redis_server::{self, FilledRedis};
use hugeleaf_testkit::server::{ServerAccount, as_account, folder_for};
use hugeleaf_testkit::until as wait_until;
use hugeleaf_testkit::{left_to_all, process_facts};

use crate::common::{CommandOutput, HUGELEAF, answer as hugeleaf};

/// Every marked block of the guide. A block that no test runs is not verified.
const STEPS: [&str; 27] = [
    "first-steps:status",
    "first-steps:mem",
    "first-steps:mem-one",
    "first-steps:why",
    "first-steps:promote",
    "first-steps:demote",
    "mariadb:see",
    "mariadb:why",
    "mariadb:allow",
    "mariadb:promote",
    "mariadb:prove",
    "mariadb:demote",
    "redis:see",
    "redis:why",
    "redis:promote",
    "redis:promote-while-saving",
    "redis:prove",
    "redis:demote",
    "postgresql-knob-off:why",
    "postgresql-knob-off:promote",
    "postgresql:knob",
    "postgresql:see",
    "postgresql:promote",
    "postgresql:prove",
    "without-root:own",
    "without-root:any",
    "without-root:none",
];

/// Tolerance for memory that a server gains or loses during a test, in kB.
const SLACK_KB: u64 = 32 << 10;
/// Minimum size of a mapping that counts as data, in kB.
const LARGE_KB: u64 = 8 << 10;

/// Returns true if a test can run; otherwise prints the reason.
fn can_run(test: &str, server: &str, installed: bool) -> bool {
    let reason = if hugeleaf_sys::effective_uid() != 0 {
        "root"
    } else if !installed {
        server
    } else if hugeleaf_testkit::find_program(&["setpriv"]).is_none() {
        "setpriv (util-linux)"
    } else if process_facts::huge_page_kb().is_none() {
        "a kernel with transparent huge pages"
    } else {
        return true;
    };
    println!("not run: {test}: needs {reason}");
    false
}

fn percent(part: u64, whole: u64) -> u64 {
    part * 100 / whole.max(1)
}

/// Returns a field of the only process in an answer, in kB.
#[track_caller]
fn kb_of(process: &Value, field: &str) -> u64 {
    process[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no {field} in {process:#}"))
        / 1024
}

#[test]
fn every_marked_block_of_the_guide_is_run() {
    let marked: Vec<String> = guide_commands::blocks()
        .into_iter()
        .map(|b| b.label)
        .collect();
    let unique: BTreeSet<&str> = marked.iter().map(String::as_str).collect();
    assert_eq!(
        unique.len(),
        marked.len(),
        "a label stands twice: {marked:?}"
    );
    assert_eq!(unique, BTreeSet::from(STEPS));
}

#[test]
fn blocks_are_read_as_they_stand() {
    let text = "a\n```sh\nno\n```\n```sh test=p:s exit=0,1\nyes\n  two\n```\n```sh test=p:t\n```\n";
    let blocks = guide_commands::blocks_of(text);
    assert_eq!(blocks.len(), 2);
    assert_eq!(blocks[0].label, "p:s");
    assert_eq!(blocks[0].statuses, [0, 1]);
    assert_eq!(blocks[0].commands, "yes\n  two");
    assert_eq!(blocks[1].statuses, [0]);
}

#[test]
fn mariadb_live() {
    if left_to_all("mariadb_live") {
        return;
    }
    let programs = mariadb::programs();
    if !can_run("mariadb_live", "mariadb-server", programs.is_some()) {
        return;
    }
    let _host = host_lock::advised();
    let mut mariadb = FilledMariadb::start();
    let pid = mariadb.server.pid();
    let load = mariadb.load();
    let guide = GuidePage::open(
        "mariadb",
        Path::new(HUGELEAF),
        vec![("PID", pid.to_string()), ("DSN", mariadb.address())],
    );

    guide.run("see");
    let why = guide.run("why").stdout;
    let before = process_facts::private_memory(pid, LARGE_KB);
    let movable = process_facts::promotable_kb(pid);
    assert!(movable >= mariadb::BUFFER_POOL_KB / 10 * 9, "{movable} kB");
    let tables = process_facts::status_kb(pid, "VmPTE");
    assert_eq!(before.huge_kb, 0);
    if process_facts::thp_enabled(pid) {
        assert!(why.contains("not-advised"), "{why}");
    } else {
        assert!(why.contains("prctl(PR_SET_THP_DISABLE)"), "{why}");
        let refused = hugeleaf(&["promote", &pid.to_string()]).ends_in(&[0, 1, 3]);
        assert!(
            format!("{refused:?}").contains("prctl"),
            "it names the call: {refused:?}"
        );
        guide.run("allow");
        assert!(process_facts::thp_enabled(pid));
    }
    guide.run("promote");
    load.assert_healthy();
    let after = process_facts::private_memory(pid, LARGE_KB);
    assert!(
        percent(after.huge_kb, movable) >= 90,
        "{movable} {before:?} {after:?}"
    );
    assert!(
        after.resident_kb <= before.resident_kb + SLACK_KB,
        "{before:?} {after:?}"
    );
    // Promotion of private memory keeps its page tables.
    assert!(percent(process_facts::status_kb(pid, "VmPTE"), tables) >= 90);

    guide.run("prove");
    load.assert_healthy();
    let as_it_was = process_facts::private_memory(pid, LARGE_KB);
    assert!(
        percent(as_it_was.huge_kb, after.huge_kb) >= 90,
        "prove ends as it began: {after:?} {as_it_was:?}"
    );

    guide.run("demote");
    let demoted = process_facts::private_memory(pid, LARGE_KB);
    assert!(percent(demoted.huge_kb, after.huge_kb) <= 10, "{demoted:?}");
    promote_again(pid, mariadb::BUFFER_POOL_KB);

    mariadb.server.assert_no_complaint(&mariadb::COMPLAINTS);
    assert!(load.end() > 0);
    mariadb.server.assert_no_complaint(&mariadb::COMPLAINTS);
    drop(mariadb);
}

/// Checks `promote --json` on just demoted private memory. Its report must match the state, and all memory must be promoted again,
/// including zero pages.
#[track_caller]
fn promote_again(pid: u32, data_kb: u64) {
    let answer =
        hugeleaf(&["promote", "--budget=100%", "--json", &pid.to_string()]).ends_in(&[0, 1]);
    let json = answer.json();
    assert_eq!(json["schema"], 2);
    let process = &json["processes"][0];
    assert_eq!(process["pid"], u64::from(pid));
    let got = kb_of(process, "done_bytes") + kb_of(process, "already_bytes");
    assert!(percent(got, data_kb) >= 90, "{process:#}");
    let huge = process_facts::private_memory(pid, 0).huge_kb;
    assert!(
        got.abs_diff(huge) <= SLACK_KB,
        "it says {got} kB, smaps {huge} kB"
    );
    let failed: u64 = process["failed"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|part| kb_of(part, "bytes"))
        .sum();
    let asked = kb_of(process, "asked_bytes");
    assert_eq!(asked, kb_of(process, "done_bytes") + failed, "{process:#}");
    assert_eq!(answer.status, i32::from(failed > 0));
    assert!(process["coverage_after"].as_f64() > process["coverage_before"].as_f64());
}

#[test]
fn redis_live() {
    if left_to_all("redis_live") {
        return;
    }
    let program = redis_server::program();
    if !can_run("redis_live", "redis-server", program.is_some()) {
        return;
    }
    let _host = host_lock::advised();
    let mut redis = FilledRedis::start();
    let pid = redis.server.pid();
    let load = redis.load(true);
    let guide = GuidePage::open(
        "redis",
        Path::new(HUGELEAF),
        vec![("PID", pid.to_string()), ("ADDRESS", redis.address())],
    );

    first_steps(pid);
    guide.run("see");
    guide.run("why");
    let before = process_facts::private_memory(pid, LARGE_KB);
    let movable = process_facts::promotable_kb(pid);
    guide.run("promote");
    load.assert_healthy();
    let after = process_facts::private_memory(pid, LARGE_KB);
    assert!(
        percent(after.huge_kb, movable) >= 90,
        "{movable} {before:?} {after:?}"
    );
    assert!(
        after.resident_kb <= before.resident_kb + SLACK_KB,
        "{before:?} {after:?}"
    );
    guide.run("prove");
    load.assert_healthy();
    guide.run("demote");
    let demoted = process_facts::private_memory(pid, LARGE_KB);
    assert!(percent(demoted.huge_kb, after.huge_kb) <= 10, "{demoted:?}");
    assert!(load.end() > 0);

    let load = redis.load(false);
    promote_while_saving(&redis, &guide);
    promote_again(pid, after.huge_kb);
    assert!(load.end() > 0);
    redis.server.assert_no_complaint(&redis_server::COMPLAINTS);
    drop(redis);
}

/// Redis exits if the host sets THP to always, and `why` reports that.
#[test]
fn redis_that_switched_thp_off() {
    let program = redis_server::program();
    if !can_run(
        "redis_that_switched_thp_off",
        "redis-server",
        program.is_some(),
    ) {
        return;
    }
    let host = host_lock::exclusive();
    host.choose("enabled", "always");
    let redis = FilledRedis::start_empty();
    host.choose("enabled", "madvise");
    redis.fill();
    let pid = redis.server.pid();
    if process_facts::thp_enabled(pid) {
        println!("not run: redis_that_switched_thp_off: this Redis leaves THP on");
        return;
    }
    let target = pid.to_string();
    let mem = hugeleaf(&["mem", "--json", &target]).ends_in(&[0]).json();
    assert_eq!(mem["processes"][0]["thp_disabled"], true);
    let why = hugeleaf(&["why", &target]).ends_in(&[0, 1]).stdout;
    for word in ["prctl(PR_SET_THP_DISABLE)", "THP_enabled"] {
        assert!(why.contains(word), "no '{word}' in:\n{why}");
    }
    drop(redis);
}

/// Runs the page for new users on a running server.
fn first_steps(pid: u32) {
    let guide = GuidePage::open(
        "first-steps",
        Path::new(HUGELEAF),
        vec![("PID", pid.to_string())],
    );
    for step in ["status", "mem", "mem-one", "why", "promote", "demote"] {
        guide.run(step);
    }
}

/// Promotion while a forked child shares every page must cost no memory. The clients only read, so that nothing else copies pages
/// meanwhile.
fn promote_while_saving(redis: &FilledRedis, guide: &GuidePage) {
    let pid = redis.server.pid();
    // One key per second keeps the child alive for long enough.
    redis.send(&["CONFIG", "SET", "rdb-key-save-delay", "1000000"]);
    redis.send(&["BGSAVE"]);
    wait_until("the child", || !process_facts::children(pid).is_empty());
    let child = process_facts::children(pid)[0];
    let both = || process_facts::pss_kb(pid) + process_facts::pss_kb(child);
    let before = both();
    let answer = guide.run("promote-while-saving");
    let after = both();
    assert!(
        process_facts::children(pid).contains(&child),
        "the child was to stay"
    );
    assert!(
        after <= before + SLACK_KB,
        "promotion with a forked child: {before} kB became {after} kB"
    );
    assert!(
        answer.stdout.contains("copy-on-write"),
        "it says what it left alone:\n{}",
        answer.stdout
    );
    // Redis itself ends a saving child with SIGUSR1 and does not count it as an error.
    redis.server.signal_child(child);
    wait_until("the child's end", || {
        process_facts::children(pid).is_empty()
    });
}

#[test]
fn postgresql_live() {
    let bin = postgresql::programs();
    if !can_run("postgresql_live", "postgresql", bin.is_some()) {
        return;
    }
    let host = host_lock::exclusive();
    if process_facts::has_pool() {
        println!(
            "not run: postgresql_live: needs a host without a pool, which would be the reason first"
        );
        return;
    }
    host.choose("hugepages-2048kB/shmem_enabled", "inherit");
    host.choose("shmem_enabled", "never");
    let mut postgresql = FilledPostgres::start();
    let load = postgresql.load();
    started_with_the_knob_off(&postgresql);
    assert!(load.end() > 0);
    postgresql
        .server
        .assert_no_complaint(&postgresql::COMPLAINTS);
    drop(postgresql);

    GuidePage::open("postgresql", Path::new(HUGELEAF), Vec::new()).run("knob");
    let mut postgresql = FilledPostgres::start();
    let load = postgresql.load();
    started_with_the_knob_on(&postgresql, || load.assert_healthy());
    assert!(load.end() > 0);
    postgresql
        .server
        .assert_no_complaint(&postgresql::COMPLAINTS);
    drop(postgresql);
}

/// Uses random pairs if this host splits shared memory; otherwise the weaker before-and-after experiment.
#[test]
fn postgresql_proven() {
    if left_to_all("postgresql_proven") {
        return;
    }
    let bin = postgresql::programs();
    if !can_run("postgresql_proven", "postgresql", bin.is_some()) {
        return;
    }
    let host = host_lock::exclusive();
    host.choose("hugepages-2048kB/shmem_enabled", "inherit");
    host.choose("shmem_enabled", "advise");
    let mut postgresql = FilledPostgres::start();
    let load = postgresql.load();
    load.assert_healthy();
    let guide = GuidePage::open(
        "postgresql",
        Path::new(HUGELEAF),
        vec![
            ("PID", postgresql.server.pid().to_string()),
            ("DSN", postgresql.address()),
        ],
    );
    let said = guide.run("prove").stdout;
    load.assert_healthy();
    let shared = process_facts::largest_shared(postgresql.backend_that_touched_all());
    let large = percent(shared.kb("ShmemPmdMapped"), postgresql::SHARED_BUFFERS_KB);
    if said.contains("in random order") {
        assert!(large <= 10, "it ends as it began: {shared:?}");
    } else {
        println!(
            "not run: the part of postgresql_proven that splits: this host splits no shared memory"
        );
        assert!(
            said.contains("before") && said.contains("split_huge_pages"),
            "it names the weaker design, and why:\n{said}"
        );
        assert!(large >= 90, "{shared:?}");
        // Once it is on huge pages there is no other arm.
        guide.run_expecting("prove", &[3]);
    }
    assert!(load.end() > 0);
    postgresql
        .server
        .assert_no_complaint(&postgresql::COMPLAINTS);
    drop(postgresql);
}

fn started_with_the_knob_off(postgresql: &FilledPostgres) {
    let pid = postgresql.server.pid();
    let huge_kb = process_facts::huge_page_kb().unwrap();
    if process_facts::largest_shared(pid)
        .start
        .is_multiple_of(huge_kb * 1024)
    {
        println!(
            "not run: the part of postgresql_live with the knob off: the memory is aligned by chance"
        );
        return;
    }
    let guide = GuidePage::open(
        "postgresql-knob-off",
        Path::new(HUGELEAF),
        vec![("PID", pid.to_string())],
    );
    let why = guide.run("why").stdout;
    for word in ["misaligned", "shmem_enabled", "restart"] {
        assert!(why.contains(word), "no '{word}' in:\n{why}");
    }
    guide.run("promote");
    for process in process_facts::tree(pid) {
        assert_eq!(
            process_facts::largest_shared(process).kb("ShmemPmdMapped"),
            0
        );
    }
}

fn started_with_the_knob_on(postgresql: &FilledPostgres, healthy: impl Fn()) {
    let pid = postgresql.server.pid();
    let guide = GuidePage::open(
        "postgresql",
        Path::new(HUGELEAF),
        vec![("PID", pid.to_string()), ("DSN", postgresql.address())],
    );
    guide.run("see");
    let filler = postgresql.backend_that_touched_all();
    let tables = process_facts::status_kb(filler, "VmPTE");
    guide.run("promote");
    healthy();
    let shared = process_facts::largest_shared(filler);
    assert!(
        percent(shared.kb("ShmemPmdMapped"), postgresql::SHARED_BUFFERS_KB) >= 90,
        "{shared:?}"
    );
    let tables_after = process_facts::status_kb(filler, "VmPTE");
    assert!(
        tables_after < tables / 2,
        "page tables of a backend: {tables} kB before, {tables_after} kB after"
    );
    assert!(
        postgresql.huge_kb_of_a_new_backend() > 0,
        "a new backend finds large pages"
    );
    let json = hugeleaf(&["promote", "--json", &format!("tree:{pid}")])
        .ends_in(&[0, 1])
        .json();
    let done: u64 = json["processes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|process| kb_of(process, "done_bytes"))
        .sum();
    assert!(
        done <= postgresql::SHARED_BUFFERS_KB / 10,
        "it was promoted already: {json:#}"
    );
}

/// Memory of [`hold_memory`]: space for many huge pages of any usual size.
const HELD_BYTES: usize = 64 << 20;

/// A process with memory to promote, started by [`without_root`] as another account.
#[test]
#[ignore = "a helper of without_root"]
fn hold_memory() {
    let held = vec![1u8; HELD_BYTES];
    println!("holding");
    let _ = std::io::stdin().read_line(&mut String::new());
    assert!(held.iter().all(|byte| *byte == 1));
}

/// Checks the answers of `hugeleaf promote` to an ordinary user, with the rights that the guide grants.
#[test]
fn without_root() {
    let setcap = hugeleaf_testkit::find_program(&["setcap"]);
    if !can_run("without_root", "setcap (libcap2-bin)", setcap.is_some()) {
        return;
    }
    let _host = host_lock::advised();
    let me = ServerAccount::first_of(&["nobody"]);
    let somebody = ServerAccount::first_of(&["daemon", "bin", "mail"]);
    let folder = folder_for(me);
    let own = Holder::start(me);
    let foreign = Holder::start(somebody);
    let program = folder.path().join("hugeleaf");
    copy_program(Path::new(HUGELEAF), &program);
    let guide = GuidePage::open(
        "without-root",
        Path::new(HUGELEAF),
        vec![("HUGELEAF", program.display().to_string())],
    );
    let promote = |pid: u32| {
        let mut command = as_account(me, &program, folder.path());
        CommandOutput::run(command.args(["promote", &pid.to_string()]))
    };

    let refused = promote(own.pid()).ends_in(&[3]);
    assert!(
        refused.stderr.contains("cap_sys_nice"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("  next: "), "{}", refused.stderr);
    guide.run("own");
    promote(own.pid()).ends_in(&[0, 1]);
    assert!(own.huge_kb() > 0, "nothing was promoted");
    promote(foreign.pid()).ends_in(&[3]);
    assert_eq!(foreign.huge_kb(), 0);
    guide.run("any");
    promote(foreign.pid()).ends_in(&[0, 1]);
    assert!(foreign.huge_kb() > 0, "nothing was promoted");
    guide.run("none");
    promote(own.pid()).ends_in(&[3]);
    drop((own, foreign));
}

/// A process of an account that holds memory until it is dropped.
struct Holder {
    child: Child,
    _folder: TempDir,
}

impl Holder {
    fn start(account: ServerAccount) -> Holder {
        let folder = folder_for(account);
        // The test program may be in a folder that other accounts cannot access.
        let program = folder.path().join("holder");
        copy_program(&std::env::current_exe().unwrap(), &program);
        let mut child = as_account(account, &program, folder.path())
            .args([
                "--exact",
                "servers::hold_memory",
                "--ignored",
                "--nocapture",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("holding")));
        Holder {
            child,
            _folder: folder,
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn huge_kb(&self) -> u64 {
        process_facts::private_memory(self.pid(), 0).huge_kb
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies a program in another process. A descriptor open for writing here could be inherited by processes that other threads start, and
/// running the copy would then fail ("text file busy").
fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}
