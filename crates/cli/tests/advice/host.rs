//! Runs printed commands on this host. Each test creates the situation of a command in a mount
//! namespace with a private /etc, and restores the host.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hugeleaf::{Region, RegionOptions};
use hugeleaf_host::{Root, read_memory_facts};
use hugeleaf_sys::Kernel;
use hugeleaf_units::PageSize;
use serde_json::Value;

use super::is_program;
use super::kinds::{Held, kind};
use super::sources::printed;
use crate::apply::namespace::Namespace;
use crate::common::{NOBODY, good, holder, not_run, public_copy, stderr, stdout};

/// Returns the bracketed word, or the whole line without brackets.
fn chosen(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text.trim(), |(value, _)| value).to_owned()
}

/// The namespace and the pool of the default size, which must be empty.
struct Pool {
    page: PageSize,
    file: String,
}

fn pool(test: &str) -> Option<(Namespace, Pool)> {
    let host = Namespace::new(test, "")?;
    let facts = read_memory_facts(&Root::live(), &Kernel::new()).unwrap();
    let Some(page) = facts.memory.default_hugetlb_page.get() else {
        not_run(test, "this kernel has no hugetlb pages");
        return None;
    };
    let kib = page.bytes().get() / 1024;
    let file = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages");
    if chosen(&file) != "0" {
        not_run(test, "somebody else has a pool on this host");
        return None;
    }
    Some((host, Pool { page, file }))
}

fn findings(host: &Namespace, command: &str) -> Vec<(String, String)> {
    let out = host.hugeleaf(&[command, "--json"]);
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    let found = answer["findings"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    found
        .map(|f| (text(&f["id"]), text(&f["command"])))
        .collect()
}

#[track_caller]
fn command_of(found: &[(String, String)], id: &str) -> String {
    let of_id = found.iter().find(|(found, _)| found == id);
    of_id
        .unwrap_or_else(|| panic!("no {id} in {found:?}"))
        .1
        .clone()
}

/// Returns the next step that a refusal suggests.
#[track_caller]
fn next(out: &Output) -> String {
    assert!(!out.status.success());
    let said = stderr(out);
    let next = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("next: "));
    next.unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[test]
fn a_plan_that_others_can_change_is_made_ones_own() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let root = crate::common::repository().join("fixtures/x86-4k-two-nodes");
    let root = root.display().to_string();
    let dry = |plan: &Path| {
        let plan = plan.display().to_string();
        crate::common::run(&["apply", "--dry-run", "--root", &root, &plan])
    };
    let plan = folder.path().join("a plan.toml");
    let file = plan.display().to_string();
    crate::common::run(&["plan", "--root", &root, "--bytes", "1G", "--output", &file]);
    good(&dry(&plan));
    let shell = |command: &str, home: &Path| {
        let ended = Command::new("sh")
            .args(["-c", command])
            .env("HOME", home)
            .status();
        assert!(ended.unwrap().success(), "{command}");
    };
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&plan, 0o666);
    let command = next(&dry(&plan));
    assert!(command.starts_with("chmod go-w "), "{command}");
    shell(&command, folder.path());
    good(&dry(&plan));
    if hugeleaf_sys::effective_uid() != 0 {
        not_run(
            "a_plan_that_others_can_change_is_made_ones_own",
            "needs root",
        );
        return;
    }
    std::os::unix::fs::chown(&plan, Some(NOBODY), Some(NOBODY)).unwrap();
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let command = next(&dry(&plan));
    assert!(command.starts_with("cp "), "{command}");
    shell(&command, &home);
    good(&dry(&home.join("a plan.toml")));
}

#[test]
fn a_pool_gets_the_pages_that_were_said() {
    let Some((host, pool)) = pool("a_pool_gets_the_pages_that_were_said") else {
        return;
    };
    // Frees idle pages.
    host.alone.set(&pool.file, "40");
    let command = command_of(&findings(&host, "status"), "pool-unused");
    host.shell(&command);
    assert_eq!(chosen(&pool.file), "0", "{command}");
    // Fills a pool to the number that a file sets.
    host.shell("echo 'vm.nr_hugepages = 24' > /etc/sysctl.d/90-test.conf");
    for from in ["status", "verify"] {
        host.alone.set(&pool.file, "7");
        let command = command_of(&findings(&host, from), "pool-short");
        host.shell(&command);
        assert_eq!(chosen(&pool.file), "24", "{command}");
    }
    // A program that requires huge pages gets a warning about an empty pool.
    host.alone.set(&pool.file, "0");
    let flag = format!("hugetlb:{}!", pool.page);
    let run = ["run", "--shm", &flag, "--", "true"];
    let command = next(&host.hugeleaf(&run)).replacen("echo N ", "echo 16 ", 1);
    host.shell(&command);
    assert_eq!(chosen(&pool.file), "16", "{command}");
    good(&host.hugeleaf(&run));
}

/// A SysV segment on two pages of a pool, without attachments; empty if this host has no perl.
struct Segment(String);

impl Segment {
    fn new(host: &Namespace, page: PageSize) -> Segment {
        let page = page.bytes().get();
        // IPC_CREAT and SHM_HUGETLB.
        let perl = format!(
            "$id = shmget(0, 2 * {page}, 0600 | 01000 | 04000) // exit; shmwrite($id, $_, $_ * {page}, 1) for 0, 1; print $id"
        );
        Segment(host.shell(&format!(
            "command -v perl >/dev/null || exit 0; perl -e '{perl}'"
        )))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let _ = Command::new("ipcrm").args(["-m", &self.0]).output();
    }
}

#[test]
fn pages_that_no_process_holds_are_named_and_freed() {
    let test = "pages_that_no_process_holds_are_named_and_freed";
    let Some((host, pool)) = pool(test) else {
        return;
    };
    let bytes = hugeleaf_units::Pages(6).in_bytes(pool.page);
    host.alone.set(&pool.file, "20");
    host.shell("mkdir /mnt/h && mount -t hugetlbfs none /mnt/h");
    host.shell(&format!("fallocate -l {bytes:#} '/mnt/h/of a dead one'"));
    let segment = Segment::new(&host, pool.page);
    for command in ["status", "verify"] {
        let out = stdout(&host.hugeleaf(&[command]));
        let text = out.split_whitespace().collect::<Vec<_>>().join(" ");
        let named = format!("file /mnt/h/of a dead one ({bytes} of root)");
        assert!(text.contains(&named), "{text}");
        let named = format!("SysV segment {}", segment.0);
        let segments = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        assert!(
            segment.0.is_empty() || text.contains(&named),
            "{text}\n{segments}"
        );
    }
    // None of them serves a service, and none is set at boot.
    let plan = good(&host.hugeleaf(&["plan", "--bytes", &format!("{bytes:#}"), "--json"]));
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let pools = plan["pools"].as_array().unwrap().iter();
    let sum = |key: &str| -> u64 { pools.clone().filter_map(|p| p[key].as_u64()).sum() };
    assert_eq!(sum("pages") - sum("idle"), 6, "{plan}");
    // A process that has the file open or mapped holds the pages.
    let mut open = host.command(
        "sh",
        &["-c", "exec 3<'/mnt/h/of a dead one'; echo; read -r line"],
    );
    let mut open = open
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0];
    std::io::Read::read_exact(&mut open.stdout.take().unwrap(), &mut line).unwrap();
    let found = findings(&host, "status");
    assert!(
        !found.iter().any(|(_, command)| command.starts_with("rm")),
        "{found:?}"
    );
    drop(open.stdin.take());
    open.wait().unwrap();
    host.shell(&command_of(&findings(&host, "verify"), "pool-leftovers"));
    let found = findings(&host, "status");
    assert!(
        !found.iter().any(|(id, _)| id == "pool-leftovers"),
        "{found:?}"
    );
    host.shell("umount /mnt/h");
}

#[test]
fn a_pool_grows_by_as_many_pages_as_were_missing() {
    let Some((host, pool)) = pool("a_pool_grows_by_as_many_pages_as_were_missing") else {
        return;
    };
    host.alone.set(&pool.file, "5");
    let bytes = hugeleaf_units::Pages(12).in_bytes(pool.page);
    let region = || {
        Region::new(&RegionOptions::new(
            bytes,
            format!("hugetlb:{}", pool.page).parse().unwrap(),
        ))
        .unwrap()
    };
    let short = region().extents().unwrap();
    let mut whys = short.iter().filter_map(|extent| extent.why.as_ref());
    let command = whys.next().unwrap_or_else(|| panic!("{short:?}")).next();
    let words: Vec<&str> = command.split(' ').skip(1).chain(["--json"]).collect();
    let planned = host.hugeleaf(&words);
    let planned: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    let pools = planned["pools"].as_array().unwrap().iter();
    let pages: u64 = pools.filter_map(|planned| planned["pages"].as_u64()).sum();
    // The first region is gone, so its pages have no owner.
    assert_eq!(pages, 12, "{command}: {planned}");
    host.alone.set(&pool.file, pages);
    assert!(
        region()
            .extents()
            .unwrap()
            .iter()
            .all(|extent| extent.why.is_none())
    );
}

/// Runs a command of `echo VALUE > FILE` parts and compares each file with its value.
#[track_caller]
fn run_echoes(host: &Namespace, command: &str) -> usize {
    host.shell(command);
    let command = command.split("    #").next().unwrap_or_default();
    let parts = command.split(&[';', '&']).map(str::trim);
    let mut seen = 0;
    for (value, file) in parts.filter_map(|p| p.strip_prefix("echo ")?.split_once(" > ")) {
        seen += 1;
        // Writes to these files trigger work and cannot be read back.
        if !file.ends_with("_memory") && !file.ends_with("_caches") {
            assert_eq!(chosen(file), value, "{command}");
        }
    }
    seen
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

#[test]
fn a_knob_says_what_was_said() {
    let test = "a_knob_says_what_was_said";
    let Some(host) = Namespace::new(test, "") else {
        return;
    };
    if !Path::new(THP).is_dir() {
        return not_run(test, "this kernel has no transparent huge pages");
    }
    let child = holder(48, None);
    let knobs = ["enabled", "shmem_enabled"].map(|name| format!("{THP}/{name}"));
    let set = |values: [&str; 2]| {
        for (knob, value) in knobs.iter().zip(values) {
            host.alone.set(knob, value);
        }
    };
    let before = knobs.each_ref().map(|knob| chosen(knob));
    let mut seen = 0;
    for values in [["never", "never"], ["madvise", "never"], ["always", "deny"]] {
        set(values);
        let mut commands = findings(&host, "status");
        commands.extend(findings(&host, "verify"));
        let out = host.hugeleaf(&["why", &child.pid(), "--json"]);
        let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
        let verdicts = answer["processes"][0]["verdicts"].as_array().unwrap();
        let of = |v: &Value| v["command"].as_str().unwrap_or_default().to_owned();
        commands.extend(verdicts.iter().map(|v| (v["id"].to_string(), of(v))));
        for (_, command) in commands.iter().filter(|(_, c)| c.starts_with("echo ")) {
            // Pools have their own test, and the rest of the line may need the process.
            if !command.contains("nr_hugepages") {
                seen += run_echoes(&host, command.split(" && hugeleaf").next().unwrap());
            }
        }
        // Checks the commands that `run` prints for a disabled knob.
        for flag in ["--shm=thp:2M!", "--data=thp:2M!"] {
            let out = host.hugeleaf(&["run", flag, "--", "true"]);
            if !out.status.success() && next(&out).starts_with("echo ") {
                seen += run_echoes(&host, &next(&out));
            }
        }
    }
    set(before.each_ref().map(String::as_str));
    assert!(seen > 1, "only {seen} knobs were printed");
    // Applies sysctl settings with their current values.
    for one in printed(&is_program) {
        let words = one
            .command
            .strip_prefix("sysctl -w ")
            .or(one.command.strip_prefix("sysctl "));
        let Some((key, _)) = words.and_then(|words| words.split_once('=')) else {
            continue;
        };
        if key.contains('*') || !matches!(kind(&one.command), Some((_, Held::Run(_)))) {
            continue;
        }
        let set = one.command.split('=').next().unwrap();
        host.shell(&format!(
            "sysctl -n {key} >/dev/null 2>&1 || exit 0; {set}=$(sysctl -n {key})"
        ));
    }
    drop(child);
    host.assert_knobs_as_before("all run");
}

#[test]
fn files_that_are_not_in_force_are_put_in_force() {
    let Some((host, _pool)) = pool("files_that_are_not_in_force_are_put_in_force") else {
        return;
    };
    let overcommit = "/proc/sys/vm/nr_overcommit_hugepages";
    host.alone.set(overcommit, "0");
    host.shell("echo 'vm.nr_overcommit_hugepages = 3' > /etc/sysctl.d/90-test.conf");
    let command = command_of(&findings(&host, "verify"), "sysctl-drift");
    host.shell(&command);
    assert_eq!(chosen(overcommit), "3", "{command}");
    let knob = format!("{THP}/khugepaged/scan_sleep_millisecs");
    let here =
        Path::new(&knob).exists() && !host.shell("command -v systemd-tmpfiles || true").is_empty();
    if here {
        host.alone.set(&knob, "10000");
        host.shell(&format!(
            "echo 'w {knob} - - - - 9999' > /etc/tmpfiles.d/90-test.conf"
        ));
        let command = command_of(&findings(&host, "verify"), "knob-reset");
        host.shell(&command);
        assert_eq!(chosen(&knob), "9999", "{command}");
    }
}

#[test]
fn mounts_and_limits_take_the_words() {
    let Some((host, _pool)) = pool("mounts_and_limits_take_the_words") else {
        return;
    };
    let all = printed(&is_program);
    let begin = |start: &str| {
        let of = all.iter().filter(|p| p.command.starts_with(start));
        let found: Vec<String> = of.map(|p| p.command.clone()).collect();
        assert!(!found.is_empty(), "{start}");
        found
    };
    for command in begin("ulimit ") {
        // Root of a container may not raise its limits.
        let command = command.replace('*', "unlimited");
        let out = host.command("sh", &["-c", &command]).output().unwrap();
        let is_refused = stderr(&out).contains("Operation not permitted");
        assert!(
            out.status.success() || is_refused,
            "{command}: {}",
            stderr(&out)
        );
    }
    for command in begin("mount -t tracefs ") {
        host.shell("umount /sys/kernel/tracing 2>/dev/null || true");
        // A kernel without tracefs has no folder for it either.
        host.shell(&format!(
            "[ -d /sys/kernel/tracing ] || exit 0; {command} && [ -e /sys/kernel/tracing/trace ]"
        ));
    }
    // Remounts a program's tmpfs with `huge=`.
    host.shell("mkdir /mnt/t && mount -t tmpfs none /mnt/t");
    for command in begin("mount -o remount,* ") {
        let command = command.replacen('*', "huge=advise", 1);
        host.shell(&command.replace('*', "/mnt/t"));
        assert!(
            host.shell("grep ' /mnt/t ' /proc/mounts")
                .contains("huge=advise"),
            "{command}"
        );
    }
    host.shell("umount /mnt/t");
    // Reports a read-only file system with the command that makes it writable.
    host.shell("mount -t tmpfs -o ro none /etc/sysctl.d");
    let plan = host.plan();
    let said = next(&host.hugeleaf(&["apply", &plan]));
    let command = said
        .strip_prefix("make it writable: ")
        .unwrap_or_else(|| panic!("{said}"));
    host.shell(command);
    good(&host.hugeleaf(&["apply", &plan]));
    good(&host.hugeleaf(&["undo"]));
    host.shell("umount /etc/sysctl.d");
    // The mount point of a plan is occupied by another mount.
    host.shell("mkdir /mnt/huge && mount -t tmpfs none /mnt/huge");
    let said = next(&host.hugeleaf(&["apply", &plan]));
    let command = said.split("; or").next().unwrap();
    assert!(command.starts_with("umount "), "{said}");
    host.shell(command);
    good(&host.hugeleaf(&["apply", &plan]));
    good(&host.hugeleaf(&["undo"]));
}

#[test]
fn a_file_in_the_way_is_moved_aside() {
    let Some((host, _pool)) = pool("a_file_in_the_way_is_moved_aside") else {
        return;
    };
    let plan = host.plan();
    host.shell("echo mine > /etc/sysctl.d/60-hugeleaf.conf");
    let command = next(&host.hugeleaf(&["apply", &plan]));
    assert!(command.starts_with("mv "), "{command}");
    let program = Path::new(env!("CARGO_BIN_EXE_hugeleaf")).parent().unwrap();
    host.shell(&format!("PATH={}:$PATH; {command}", program.display()));
    assert_eq!(
        host.shell("cat /etc/sysctl.d/60-hugeleaf.conf.before"),
        "mine\n"
    );
    good(&host.hugeleaf(&["undo"]));
}

#[test]
fn steps_are_shown_by_their_commands() {
    let Some((host, _pool)) = pool("steps_are_shown_by_their_commands") else {
        return;
    };
    let plan = host.plan();
    let json = good(&host.hugeleaf(&["apply", "--json", &plan]));
    let answer: Value = serde_json::from_str(&json).unwrap();
    let mut seen = Vec::new();
    for step in answer["steps"].as_array().unwrap() {
        let command = step["verify"].as_str().unwrap_or_default();
        let program = command.split(' ').next().unwrap();
        let is_there = !host
            .shell(&format!("command -v {program} || true"))
            .is_empty();
        if is_there {
            let out = host.command("sh", &["-c", command]).output().unwrap();
            // A line of the host's own fstab may be wrong, which is not hugeleaf's fault.
            assert!(
                out.status.success() || program == "findmnt",
                "{command}: {}",
                stderr(&out)
            );
            seen.push(program.to_owned());
        }
    }
    assert!(seen.contains(&"cat".to_owned()), "{seen:?}");
    good(&host.hugeleaf(&["undo"]));
    host.assert_etc_as_before("undone");
}

#[test]
fn a_capability_lets_an_ordinary_user_look() {
    let test = "a_capability_lets_an_ordinary_user_look";
    if hugeleaf_sys::effective_uid() != 0 {
        return not_run(test, "needs root");
    }
    let (folder, program) = public_copy();
    let child = holder(1, None);
    let look = || {
        let mut command = Command::new(&program);
        command.args(["mem", &child.pid()]).uid(NOBODY).gid(NOBODY);
        command.current_dir("/").output().unwrap()
    };
    let said = next(&look());
    let at = said.find("setcap ").unwrap_or_else(|| panic!("{said}"));
    let here = program.parent().unwrap_or(folder.path());
    let script = format!("PATH={}:$PATH:/usr/sbin; {}", here.display(), &said[at..]);
    let out = Command::new("sh").args(["-c", &script]).output().unwrap();
    if !out.status.success() {
        return not_run(
            test,
            &format!("no capability can be given: {}", stderr(&out)),
        );
    }
    good(&look());
}
