//! Limits of control groups on hugetlb pages: limited processes are reported, and none is killed by them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::capture::capture;
use crate::host::Host;
use crate::kernel::{fields, flag, inside, text};
use crate::victim::Victim;
use crate::{answer, json, not_run, program};

/// A control group with limits on hugetlb pages; removed when dropped.
struct Group(PathBuf);

impl Group {
    /// Makes a group of the host's version; `None` if there is none.
    fn of_either(name: &str) -> Option<Group> {
        let first = Path::new("/sys/fs/cgroup/hugetlb");
        if !first.join("cgroup.procs").exists() {
            return Group::new(name);
        }
        Group::below(first, name)
    }

    fn below(root: &Path, name: &str) -> Option<Group> {
        let group = root.join(format!("hugeleaf-test-{name}"));
        std::fs::create_dir(&group).ok()?;
        Some(Group(group))
    }

    /// Makes a group of version 2.
    fn new(name: &str) -> Option<Group> {
        Group::with(name, "hugetlb")
    }

    fn with(name: &str, controller: &str) -> Option<Group> {
        let root = Path::new("/sys/fs/cgroup");
        let controllers = text(root.join("cgroup.controllers"));
        if !controllers
            .split_ascii_whitespace()
            .any(|c| c == controller)
        {
            return None;
        }
        std::fs::write(
            root.join("cgroup.subtree_control"),
            format!("+{controller}"),
        )
        .ok()?;
        Group::below(root, name)
    }

    /// Makes a group of either version that can limit memory, with the files of its limit and usage.
    fn of_memory(name: &str) -> Option<(Group, PathBuf, PathBuf)> {
        let first = Path::new("/sys/fs/cgroup/memory");
        let (group, limit, usage) = match first.join("cgroup.procs").exists() {
            true => (
                Group::below(first, name)?,
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            ),
            false => (Group::with(name, "memory")?, "memory.max", "memory.current"),
        };
        let (limit, usage) = (group.0.join(limit), group.0.join(usage));
        Some((group, limit, usage))
    }

    /// Sets a limit by its name in version 2.
    fn limit(&self, size: u64, name: &str, bytes: u64) {
        let name = match self.0.starts_with("/sys/fs/cgroup/hugetlb") {
            true => name.replace("max", "limit_in_bytes"),
            false => name.to_owned(),
        };
        let unit = if size >= 1 << 30 {
            format!("{}GB", size >> 30)
        } else {
            format!("{}MB", size >> 20)
        };
        let file = self.0.join(format!("hugetlb.{unit}.{name}"));
        std::fs::write(&file, bytes.to_string()).unwrap_or_else(|e| panic!("{file:?}: {e}"));
    }

    /// Moves this process into the group, or back to the group above.
    fn hold_own(&self, is_in: bool) {
        let group = if is_in {
            &self.0
        } else {
            self.0.parent().unwrap()
        };
        std::fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    }

    /// Returns the shell line that enters the group.
    fn enter(&self) -> String {
        format!("echo $$ >{}/cgroup.procs", self.0.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may be about to end.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Checks a sufficient pool and a group that may touch or reserve a quarter of it.
fn under_a_limit(test: &str, limit: &str, flags: &str, doing: &[&str]) {
    let Some(mut host) = Host::new(test) else {
        return;
    };
    let Some(size) = host.pool_size() else {
        return not_run(test, "needs pools of hugetlb pages");
    };
    let Some(group) = Group::new(test) else {
        return not_run(test, "needs cgroup v2 with the hugetlb controller");
    };
    if host.pool(size, None, 16) < 16 {
        return not_run(test, "16 pages for a pool cannot be reserved");
    }
    group.limit(size, limit, 4 * size);
    let ladder = format!("hugetlb:{}", flag(size));
    let mut victim = Victim::from_shell(&group.enter(), &[flags, &ladder]);
    for command in doing {
        let command = command.replace("ALL", &(12 * size).to_string());
        let command = command.replace("PAGE", &size.to_string());
        // Memory may be refused, but the program must survive.
        if let Err(error) = victim.try_tell(&command) {
            assert!(!error.starts_with("ended"), "{command}: {error}");
        }
    }
    victim.tell("map last any-private 4096 4096");
}

const SHARED: [&str; 3] = ["map a any-shared ALL PAGE", "touch a", "check a"];
const PRIVATE: [&str; 1] = ["grow ALL 65536"];

#[test]
fn shared_memory_survives_a_cgroup_limit_on_hugetlb_faults() {
    let test = "shared_memory_survives_a_cgroup_limit_on_hugetlb_faults";
    under_a_limit(test, "max", "--shm", &SHARED);
}

#[test]
fn a_heap_survives_a_cgroup_limit_on_hugetlb_faults() {
    let test = "a_heap_survives_a_cgroup_limit_on_hugetlb_faults";
    under_a_limit(test, "max", "--data", &PRIVATE);
}

#[test]
fn shared_memory_survives_a_cgroup_limit_on_hugetlb_reservations() {
    let test = "shared_memory_survives_a_cgroup_limit_on_hugetlb_reservations";
    under_a_limit(test, "rsvd.max", "--shm", &SHARED);
}

#[test]
fn a_heap_survives_a_cgroup_limit_on_hugetlb_reservations() {
    let test = "a_heap_survives_a_cgroup_limit_on_hugetlb_reservations";
    under_a_limit(test, "rsvd.max", "--data", &PRIVATE);
}

/// The available memory in `status` ends at the limit of its own group, and `status` names both.
#[test]
fn status_applies_the_hugetlb_limit_of_its_own_cgroup() {
    let test = "status_applies_the_hugetlb_limit_of_its_own_cgroup";
    let Some(mut host) = Host::new(test) else {
        return;
    };
    let Some(group) = Group::of_either("limited") else {
        return not_run(test, "needs the hugetlb controller of cgroups");
    };
    let size = host.pool_size().unwrap();
    if host.pool(size, None, 6) < 6 {
        return not_run(test, "6 pages for a pool cannot be reserved");
    }
    group.limit(size, "max", 4 * size);
    group.hold_own(true);
    capture("limited", &[]);
    let answer = json(&["status"]);
    group.hold_own(false);
    let host = &answer["host"];
    let sizes = host["page_sizes"].as_array().unwrap();
    let is_it = |of: &&Value| of["kind"] == "hugetlb" && of["page_bytes"] == size;
    let shown = sizes.iter().find(is_it).unwrap();
    assert_eq!(shown["available_bytes"], 4 * size, "{shown}");
    let limited_by = shown["limited_by"].as_str().unwrap();
    assert_eq!(limited_by, "cgroup /hugeleaf-test-limited");
    let cgroups = host["cgroups"].as_array().unwrap();
    let own = cgroups
        .iter()
        .find(|g| limited_by.ends_with(g["path"].as_str().unwrap()));
    assert_eq!(own.unwrap()["hugetlb"][0]["fault_limit_bytes"], 4 * size);
}

/// A huge page is charged before the base pages that it replaces are freed. The command named by `why`
/// makes room for it, and promotes.
#[test]
fn why_reports_a_memory_cgroup_at_its_limit() {
    let test = "why_reports_a_memory_cgroup_at_its_limit";
    let Some(host) = Host::new(test) else {
        return;
    };
    let Some((group, limit, usage)) = Group::of_memory("full") else {
        return not_run(test, "needs the memory controller of cgroups");
    };
    let mut victim = Victim::after(&group.enter());
    let range = victim.map("a", "private", 8 * host.huge, host.huge);
    victim.tell("small a");
    let used: u64 = text(&usage).trim().parse().unwrap();
    std::fs::write(&limit, (used + host.huge / 2).to_string()).unwrap();
    let large = || inside(victim.pid(), range, |m| m.huge());
    let why = json(&["why", &victim.id()]);
    let lines = why["summary"].as_array().unwrap();
    let line = lines.iter().find(|l| l["id"] == "cgroup-memory");
    let line = line.unwrap_or_else(|| panic!("{why:#}"));
    assert!(line["bytes"].as_u64() >= Some(8 * host.huge), "{line}");
    let status = json(&["status"]);
    let limits = status["host"]["memory_limits"].as_array().unwrap();
    let own = |l: &&Value| l["path"].as_str().is_some_and(|p| p.ends_with("-full"));
    assert!(limits.iter().any(|l| own(&l)), "{limits:?}");
    // Swap makes room, because the kernel may then swap out pages of the process itself.
    if fields("/proc/meminfo")["SwapTotal"] == 0 {
        answer(&["promote", &victim.id()]);
        assert_eq!(large(), 0);
    }
    let command = line["command"].as_str().unwrap();
    let own = program().parent().unwrap().to_string_lossy().into_owned();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).env("PATH", path);
    let done = shell.output().unwrap();
    assert!(done.status.success(), "{command}: {done:?}");
    assert_eq!(large(), 8 * host.huge, "{command}");
}
