//! Commands are the OOM killer's first victims when memory is short; programs started by `run` are exempt.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{ChildGuard, HUGELEAF, good, hugeleaf, not_run};
use hugeleaf_testkit::until;

const NAME: &str = "oom_score_adj";

fn score(of: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{of}/{NAME}"));
    text.unwrap_or_default().trim().to_owned()
}

/// A process group, killed when dropped.
struct Group(Child);

impl Group {
    fn start(command: &mut Command) -> Group {
        let command = std::os::unix::process::CommandExt::process_group(command, 0);
        Group(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = self.0.wait();
    }
}

#[test]
fn the_kernel_ends_a_command_first_and_not_what_it_starts() {
    let sleeper = Group::start(Command::new("sleep").arg("120"));
    let pid = sleeper.0.id().to_string();
    let command = Group::start(&mut hugeleaf(&["predict", &pid, "--for", "60s"]));
    let its = command.0.id().to_string();
    until("it is ended first", || score(&its) == "1000");
    let own = score("self");
    let file = format!("/proc/self/{NAME}");
    for words in [&["run", "--"][..], &["run", "--report", "/dev/null", "--"]] {
        let run = [words, &["cat", &file]].concat();
        assert_eq!(
            good(&hugeleaf(&run).output().unwrap()).trim(),
            own,
            "{words:?}"
        );
    }
}

/// Returns a command's anonymous memory in kB while it waits to write its answer into a full pipe. Relocations of its program file are
/// excluded.
fn held_while_it_answers(command: &mut Command) -> u64 {
    let (answer, mut full) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    for part in [1000, 1] {
        while full.write(&vec![0; part]).is_ok() {}
    }
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let shown = format!("{command:?}");
    let mut child = ChildGuard(command.stdout(full).spawn().unwrap());
    let wchan = format!("/proc/{}/wchan", child.pid());
    until(&format!("{shown} answers"), || {
        assert!(child.0.try_wait().unwrap().is_none(), "{shown} ended");
        std::fs::read_to_string(&wchan).unwrap().contains("pipe_w")
    });
    let mappings = hugeleaf_testkit::process_facts::mappings(child.0.id());
    drop(answer);
    let own = mappings
        .iter()
        .filter(|m| !m.name.starts_with("/") || m.name.contains("/lib"));
    own.map(|mapping| mapping.kb("Anonymous")).sum()
}

/// Commands must run when memory is short. Relocations depend on the build: 1.2M in a release.
#[test]
fn commands_hold_little_memory() {
    let name = "commands_hold_little_memory";
    // `mem` needs memory per scanned process, and other tests may run any number of processes.
    if !hugeleaf_testkit::apart_from_processes(&format!("guest::{name}")) {
        return;
    }
    let Some(_host) = crate::guard::kit::can_run(name) else {
        return;
    };
    let target = crate::common::holder(64, None);
    for words in ["status", "mem", "mem PID", "why PID", "promote PID"] {
        let words = words.replace("PID", &target.pid());
        let words: Vec<&str> = words.split(' ').collect();
        let held = held_while_it_answers(&mut hugeleaf(&words));
        assert!(held < 800, "{words:?}: {held} kB");
    }
}

/// A cgroup with a memory limit, removed when dropped.
struct Cgroup {
    folder: PathBuf,
    limit: &'static str,
    usage: &'static str,
}

impl Cgroup {
    fn new() -> Option<Cgroup> {
        let top = Path::new("/sys/fs/cgroup");
        let name = format!("hugeleaf-guest-{}", std::process::id());
        let handed = std::fs::read_to_string(top.join("cgroup.subtree_control"));
        let is_two = handed.is_ok_and(|text| text.split_whitespace().any(|c| c == "memory"));
        let (folder, limit, usage) = match is_two {
            true => (top.join(name), "memory.max", "memory.current"),
            false => (
                top.join("memory").join(name),
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            ),
        };
        std::fs::create_dir(&folder).ok()?;
        let cgroup = Cgroup {
            folder,
            limit,
            usage,
        };
        cgroup.folder.join(limit).exists().then_some(cgroup)
    }

    /// Returns a shell command in the cgroup.
    fn command(&self, script: &str) -> Command {
        let procs = self.folder.join("cgroup.procs");
        let mut shell = Command::new("sh");
        let script = format!("echo $$ >{}; {script}", procs.display());
        shell.args(["-c", &script]);
        shell
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Killed processes leave the cgroup a moment later.
        until("the cgroup is empty", || {
            std::fs::remove_dir(&self.folder).is_ok()
        });
    }
}

/// A command in the cgroup of a server near its limit (`docker exec`) is refused or is killed itself.
#[test]
fn a_server_near_its_limit_outlives_a_command_in_its_cgroup() {
    let name = "a_server_near_its_limit_outlives_a_command_in_its_cgroup";
    let Some(cgroup) = Cgroup::new() else {
        return not_run(name, "no memory cgroup can be made");
    };
    let held: u64 = 64 << 20;
    let script = format!("(head -c {held} /dev/zero; sleep 300) | tail -c {held}");
    let server = Group::start(&mut cgroup.command(&script));
    let processes = || -> Vec<String> {
        let text = std::fs::read_to_string(cgroup.folder.join("cgroup.procs"));
        let pids = text.unwrap_or_default();
        let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let mut names: Vec<String> = pids.lines().flat_map(name).collect();
        names.sort();
        names
    };
    let usage = || -> u64 {
        let text = std::fs::read_to_string(cgroup.folder.join(cgroup.usage)).unwrap();
        text.trim().parse().unwrap()
    };
    // `sleep` starts after all memory is written.
    until("the server holds its memory", || {
        usage() > held && processes().contains(&"sleep\n".to_owned())
    });
    let all = processes();
    let limit = usage() + (3 << 20);
    std::fs::write(cgroup.folder.join(cgroup.limit), limit.to_string()).unwrap();
    for words in ["mem", "why self", "promote self", "status"] {
        let words = words.replace("self", &server.0.id().to_string());
        let command = format!("exec {HUGELEAF} {words}");
        let ended = cgroup
            .command(&command)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .status();
        // Refused or killed.
        assert!(matches!(ended.unwrap().code(), Some(3) | None), "{words}");
        assert_eq!(processes(), all, "{words}");
    }
    drop(server);
}
