//! Processes that tests start: commands run to their end, children that end with the test.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The user that owns nothing ("nobody").
pub const NOBODY: u32 = 65534;

#[derive(Debug)]
pub struct Answer {
    pub command: String,
    /// Its exit status; -1 where a signal ended it.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    /// # Panics
    /// If it does not start, or has not ended after a quarter of an hour (a day where hours are asked for): a server that
    /// was to refuse to start may serve instead. It is killed then.
    pub fn of(command: &mut Command) -> Answer {
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
        Answer {
            command: shown,
            status: out.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }

    /// Fails unless it ended in one of these.
    #[track_caller]
    pub fn ends_in(self, statuses: &[i32]) -> Answer {
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

/// Runs a test in a process of its own: this program again, with that test alone. True in that
/// process, whose caller goes on with the test; false in the other one, once it has passed.
///
/// # Panics
/// If the test fails there, with its output.
#[track_caller]
pub fn apart(test: &str) -> bool {
    again(test, &[])
}

/// The same in a PID namespace of its own: programs that this test starts are not seen by commands of
/// other tests that look at all processes, and it sees none of theirs. False where it cannot be had,
/// which is said.
///
/// # Panics
/// If the test fails there, with its output.
#[track_caller]
pub fn apart_from_processes(test: &str) -> bool {
    // The first process of the namespace is a shell: others do not reap what is left to them.
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
    again(test, &OWN)
}

const APART: &str = "HUGELEAF_TEST_APART";

fn is_apart(test: &str) -> bool {
    std::env::var_os(APART).is_some_and(|name| name == test)
}

/// Runs this program again with one test, by a command that takes a program and its arguments.
#[track_caller]
fn again(test: &str, by: &[&str]) -> bool {
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
    let answer = Answer::of(&mut command).ends_in(&[0]);
    print!("{}", answer.stdout);
    assert!(
        answer.stdout.contains("1 passed"),
        "there is no test {test}"
    );
    false
}

/// A child that is ended and reaped when the test is over, however that goes.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that holds `mib` MiB of private memory and does nothing, as `uid` where given.
pub fn holder(mib: u32, uid: Option<u32>) -> Running {
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
    let running = Running(child);
    out.read_exact(&mut ready).expect("the holder came up");
    running
}

/// A process that has ended and that nobody has waited for.
pub fn zombie() -> Running {
    let child = Running(Command::new("true").spawn().unwrap());
    let stat = format!("/proc/{}/stat", child.pid());
    crate::until("the child is a zombie", || {
        std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") Z "))
    });
    child
}

/// Whether a command can be run here at all and succeeds.
pub fn works(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
