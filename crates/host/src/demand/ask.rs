//! Runs a program that alone can tell what it needs: `postgres -C`, `mariadbd --help`, `java
//! -version`. Each of them prints and ends; none is given a way to start a service.
//!
//! Only on the running host, never of a captured one; never as root what belongs to somebody
//! else; never longer than [`AT_MOST`].

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::DemandError;
use crate::root::Root;

/// How long such a program may take. They end within a second, unless the host is out of memory.
const AT_MOST: Duration = Duration::from_secs(30);

/// How much of an answer is read.
const MOST_BYTES: u64 = 8 << 20;

/// What a program answered.
#[derive(Debug)]
pub(super) struct Answer {
    /// Whether it ended in success.
    pub is_good: bool,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Answer {
    /// The first line that says something, for an error message.
    pub fn complaint(&self) -> &str {
        let lines = self.stderr.lines().chain(self.stdout.lines());
        let mut said = lines.map(str::trim).filter(|line| !line.is_empty());
        said.next()
            .unwrap_or("it ended in failure and said nothing")
    }
}

/// Runs `program` with `arguments` and gives its answer; as `account` (user and group) where that
/// is another one than this process's, which takes root.
pub(super) fn ask(
    root: &Root,
    program: &Path,
    arguments: &[String],
    account: Option<(u32, u32)>,
) -> Result<Answer, DemandError> {
    let shown = format!("{} {}", program.display(), arguments.join(" "));
    if !root.is_live() {
        return Err(DemandError::missing(
            format!("{shown}: is not run for a captured host"),
            "run hugeleaf on that host, without --root",
        ));
    }
    let own = hugeleaf_sys::effective_uid();
    let mut command = Command::new(program);
    match account {
        Some((uid, _)) if uid == own => {}
        Some((uid, gid)) if own == 0 => {
            // Command drops supplementary groups when it changes the user.
            command.uid(uid).gid(gid);
        }
        Some((uid, _)) => {
            return Err(DemandError::missing(
                format!("{shown}: has to be run as uid {uid}, whose it is"),
                "run hugeleaf as root, or as that user",
            ));
        }
        None => {}
    }
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    run(&mut command, AT_MOST).map_err(|reason| {
        DemandError::missing(
            format!("{shown}: {reason}"),
            "run that command by hand and mend what it says",
        )
    })
}

/// Runs a command to its end or to the end of its time.
fn run(command: &mut Command, at_most: Duration) -> Result<Answer, String> {
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let end = Instant::now() + at_most;
    let status: ExitStatus = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("had not ended after {} s", at_most.as_secs()));
            }
            Err(e) => return Err(e.to_string()),
        }
    };
    // A child of it may keep the pipe open: what is there by now is the answer.
    let text = |from: mpsc::Receiver<String>| {
        from.recv_timeout(Duration::from_secs(1))
            .unwrap_or_default()
    };
    Ok(Answer {
        is_good: status.success(),
        stdout: text(out),
        stderr: text(err),
    })
}

/// Reads a pipe to its end beside the child, which would stand still once it is full.
fn collect(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(MOST_BYTES).read_to_end(&mut bytes);
        }
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn an_answer_and_a_failure() {
        let root = Root::live();
        let echo = ask(&root, Path::new("/bin/echo"), &words("a b"), None).unwrap();
        assert!(echo.is_good && echo.stdout == "a b\n");
        let no = ask(&root, Path::new("/bin/ls"), &words("/nowhere/at/all"), None).unwrap();
        assert!(!no.is_good && no.complaint().contains("/nowhere/at/all"));
        let none = ask(&root, Path::new("/no/such/program"), &[], None).unwrap_err();
        assert!(none.what.starts_with("/no/such/program"), "{none:?}");
    }

    #[test]
    fn nothing_is_run_for_a_captured_host() {
        let error = ask(&Root::at("/tmp"), Path::new("/bin/echo"), &[], None).unwrap_err();
        assert!(error.what.contains("captured"), "{error:?}");
    }

    #[test]
    fn what_does_not_end_is_ended() {
        let mut sleeper = Command::new("/bin/sleep");
        sleeper.arg("600").stdin(Stdio::null());
        let error = run(&mut sleeper, Duration::from_millis(20)).unwrap_err();
        assert!(error.contains("had not ended"), "{error}");
    }
}
