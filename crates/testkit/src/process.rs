//! Processes that tests start: commands run to their end, and children that end with the test.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// User id of nobody, which owns no files.
pub const NOBODY: u32 = 65534;

#[derive(Debug)]
pub struct CommandOutput {
    pub command: String,
    /// Exit status; -1 if a signal ended the process.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    /// Runs a command to its end.
    ///
    /// # Panics
    /// If it does not start, or runs longer than a quarter of an hour (a day in a soak test). A server that should refuse to start may run
    /// instead; it is killed.
    pub fn run(command: &mut Command) -> CommandOutput {
        const QUARTER: Duration = Duration::from_secs(15 * 60);
        let at_most = crate::size_or_soak(QUARTER, QUARTER, 96 * QUARTER);
        let shown = format!("{command:?}");
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = piped.stderr(Stdio::piped()).spawn();
        let child = child.unwrap_or_else(|e| panic!("{shown} did not start: {e}"));
        let pid = rustix::process::Pid::from_child(&child);
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || ended.send(child.wait_with_output()));
        let out = end.recv_timeout(at_most).unwrap_or_else(|_| {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            panic!("{shown} has not ended after {at_most:?}")
        });
        let out = out.unwrap_or_else(|e| panic!("{shown}: {e}"));
        CommandOutput {
            command: shown,
            status: out.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }

    /// Fails unless the exit status is one of these.
    #[track_caller]
    pub fn ends_in(self, statuses: &[i32]) -> CommandOutput {
        assert!(
            statuses.contains(&self.status),
            "{} ended in {}, not in one of {statuses:?}\nstdout:\n{}\nstderr:\n{}",
            self.command,
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{}: {e} in:\n{}", self.command, self.stdout))
    }
}

/// Runs a test in a separate process of this program. Returns true in that process, which continues the test, and false in the caller once
/// it has passed.
///
/// # Panics
/// If the test fails there, with its output.
#[track_caller]
pub fn in_own_process(test: &str) -> bool {
    rerun_test(test, &[])
}

/// Like [`in_own_process`], in a separate PID namespace. Commands of other tests that scan all processes cannot see the programs of this test, and
/// vice versa. Returns false, with a message, if no namespace is available.
///
/// # Panics
/// If the test fails there, with its output.
#[track_caller]
pub fn apart_from_processes(test: &str) -> bool {
    // The namespace's first process is a shell because other programs do not reap orphans.
    const OWN: [&str; 8] = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        "\"$0\" \"$@\"; exit $?",
    ];
    if !is_apart(test) {
        let can = Command::new(OWN[0]).args(&OWN[1..]).arg("true").output();
        if !can.is_ok_and(|output| output.status.success()) {
            crate::not_run(test, "needs PID and mount namespaces");
            return false;
        }
    }
    rerun_test(test, &OWN)
}

const APART: &str = "HUGELEAF_TEST_APART";

fn is_apart(test: &str) -> bool {
    std::env::var_os(APART).is_some_and(|name| name == test)
}

/// Like [`in_own_process`], through a command that takes a program and its arguments.
///
/// # Panics
/// If the test fails there, with its output.
#[track_caller]
pub fn rerun_test(test: &str, by: &[&str]) -> bool {
    if is_apart(test) {
        return true;
    }
    let own = std::env::current_exe().unwrap();
    let mut words = by.iter().map(OsStr::new).chain([own.as_os_str()]);
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .args(["--exact", test, "--nocapture"])
        .env(APART, test);
    let answer = CommandOutput::run(&mut command).ends_in(&[0]);
    print!("{}", answer.stdout);
    assert!(
        answer.stdout.contains("1 passed"),
        "there is no test {test}"
    );
    false
}

/// A child that is killed and reaped when the test ends for any reason.
#[derive(Debug)]
pub struct ChildGuard(pub Child);

impl ChildGuard {
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an idle process with `mib` MiB of private memory, as `uid` if given.
pub fn holder(mib: u32, uid: Option<u32>) -> ChildGuard {
    let script = format!("x=$(head -c {mib}M /dev/zero | tr '\\0' x); echo ready; read -r line");
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &script])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    let mut child = command.spawn().unwrap();
    let mut ready = [0u8; 6];
    let mut out = child.stdout.take().unwrap();
    let running = ChildGuard(child);
    out.read_exact(&mut ready).expect("the holder came up");
    running
}

/// Starts a process that has ended and is not reaped.
pub fn zombie() -> ChildGuard {
    let child = ChildGuard(Command::new("true").spawn().unwrap());
    let stat = format!("/proc/{}/stat", child.pid());
    crate::until("the child is a zombie", || {
        std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") Z "))
    });
    child
}

/// Returns true if the command exists and succeeds here.
pub fn works(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
