//! Runs a program that alone knows its own needs, as `postgres -C`, `mariadbd --help`, `java -version`. Each
//! of them prints and exits. None can start a service.
//!
//! Programs get the rights of the user who configures them, a minimal environment and a session of their own. A program
//! is refused if users other than that user and root can change it. So nothing of an unprivileged user ever runs as root.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hugeleaf_units::Failure;

use crate::{Deadline, ProgramOutput, confine, effective_uid, is_safe_from_others, run_for_output};

/// Time limit for one program. They exit within a second, unless the host is out of memory.
const AT_MOST: Duration = Duration::from_secs(30);

/// Time limit for all programs that another user configures, because that user controls their duration.
const AT_MOST_OF_OTHERS: Duration = Duration::from_secs(4);

/// Normal duration of a program that root installed. Only longer runs count, caused by its configuration.
const ORDINARY: Duration = Duration::from_millis(500);

/// Time used by the programs of each user.
static TAKEN: Mutex<BTreeMap<u32, Duration>> = Mutex::new(BTreeMap::new());

const MOST_BYTES: usize = 8 << 20;

/// Runs `program` with `arguments` to its end and returns its output. Runs as `account` (user and group) if that
/// differs from this process's, which requires root.
///
/// # Errors
/// It must run as another user and this process is not root; others can change it; it does not start, or does not end in
/// time.
pub fn query_program(
    program: &Path,
    arguments: &[String],
    account: Option<(u32, u32)>,
) -> Result<ProgramOutput, Failure> {
    let shown = format!("{} {}", program.display(), arguments.join(" "));
    let own = effective_uid();
    let (uid, gid) = account.unwrap_or((own, 0));
    if uid != own && own != 0 {
        return Err(Failure::missing(
            format!("{shown}: must run as uid {uid}, its owner"),
            "run hugeleaf as root, or as that user",
        ));
    }
    need_safe(program, uid)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if uid != own {
        // Command drops supplementary groups when it changes the user.
        command.uid(uid).gid(gid);
    }
    confine(&mut command);
    let answer = match uid == own {
        true => run(&mut command, AT_MOST),
        false => run_for(uid, program, &mut command),
    };
    answer.map_err(|reason| {
        Failure::missing(
            format!("{shown}: {reason}"),
            "run that command by hand and fix its error",
        )
    })
}

/// Runs a program as another user, within the remaining time of that user's programs.
fn run_for(uid: u32, program: &Path, command: &mut Command) -> Result<ProgramOutput, String> {
    let taken = || TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let left = AT_MOST_OF_OTHERS.saturating_sub(taken().get(&uid).copied().unwrap_or_default());
    if left.is_zero() {
        let most = AT_MOST_OF_OTHERS.as_secs();
        return Err(format!("programs of uid {uid} have used their {most} s"));
    }
    let start = Instant::now();
    let answer = run(command, left);
    let is_roots = is_safe_from_others(program, 0).unwrap_or(false);
    let free = if is_roots { ORDINARY } else { Duration::ZERO };
    let more = start.elapsed().saturating_sub(free);
    *taken().entry(uid).or_default() += if answer.is_err() { left } else { more };
    answer
}

/// Refuses a program that users other than root and its user could replace.
fn need_safe(program: &Path, uid: u32) -> Result<(), Failure> {
    let who = match uid {
        0 => "root".to_owned(),
        uid => format!("root and uid {uid}"),
    };
    match is_safe_from_others(program, uid) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::missing(
            format!(
                "{}: not run, because users other than {who} can change it or a folder above it",
                program.display()
            ),
            format!(
                "remove write permission of other users: namei -l {}",
                program.display()
            ),
        )),
        Err(e) => Err(Failure::missing(
            format!("{}: {e}", program.display()),
            "install it, or name another program",
        )),
    }
}

const NOT_ENDED: &str = "still running";

fn run(command: &mut Command, at_most: Duration) -> Result<ProgramOutput, String> {
    run_for_output(command, Deadline::new(at_most), MOST_BYTES).map_err(|e| match e.kind() {
        ErrorKind::TimedOut => format!("{NOT_ENDED} after {} s", at_most.as_secs()),
        _ => e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_testkit::NOBODY;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn an_answer_and_a_failure() {
        let echo = query_program(Path::new("/bin/echo"), &words("a b"), None).unwrap();
        assert!(echo.status.success() && echo.stdout == "a b\n");
        let no = query_program(Path::new("/bin/ls"), &words("/nowhere/at/all"), None).unwrap();
        assert!(!no.status.success() && no.stderr.contains("/nowhere/at/all"));
        let none = query_program(Path::new("/no/such/program"), &[], None).unwrap_err();
        assert!(none.message.starts_with("/no/such/program"), "{none:?}");
    }

    #[test]
    fn what_does_not_end_is_ended() {
        let mut sleeper = Command::new("/bin/sleep");
        sleeper.arg("600").stdin(Stdio::null());
        let error = run(&mut sleeper, Duration::from_millis(20)).unwrap_err();
        assert!(error.contains(NOT_ENDED), "{error}");
    }

    #[test]
    fn somebody_else_gets_no_terminal_and_no_rights_and_is_asked_once() {
        if effective_uid() != 0 {
            println!("not run: somebody_else_gets_no_terminal_and_no_rights: needs root");
            return;
        }
        let sh = |script: &str| {
            let arguments = ["-c".to_owned(), script.to_owned()];
            query_program(Path::new("/bin/sh"), &arguments, Some((NOBODY, NOBODY)))
        };
        let seen = sh(
            "id -u; id -G; grep NoNewPrivs /proc/self/status; ulimit -c; \
            (: </dev/tty) 2>/dev/null || echo no terminal; env | grep -c =",
        );
        let seen = seen.unwrap().stdout;
        let lines: Vec<&str> = seen.lines().collect();
        assert_eq!(lines[..2], ["65534", "65534"], "{seen}");
        assert_eq!(
            lines[2..5],
            ["NoNewPrivs:\t1", "0", "no terminal"],
            "{seen}"
        );
        // PATH, LC_ALL, and the variables of the shell itself.
        assert!(lines[5].parse::<u32>().unwrap() <= 5, "{seen}");
        // Its child processes are ended with it.
        let left = sh("sleep 600 & echo $!").unwrap().stdout;
        let stat = format!("/proc/{}/stat", left.trim());
        hugeleaf_testkit::until("its child ends", || {
            std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "))
        });
        // A program installed by root may use half a second each time.
        assert!((0..100).all(|_| sh("sleep 0.05").is_ok()));
        let slow = sh("sleep 600").unwrap_err();
        assert!(slow.message.contains(NOT_ENDED), "{slow:?}");
        let again = sh("echo").unwrap_err();
        assert!(again.message.contains("have used their 4 s"), "{again:?}");
    }

    #[test]
    fn what_others_can_change_is_not_run() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        std::fs::copy("/bin/echo", &program).unwrap();
        let run = || query_program(&program, &words("a"), None);
        assert_eq!(run().unwrap().stdout, "a\n");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&program, open).unwrap();
        let error = run().unwrap_err();
        assert!(error.message.contains("not run, because"), "{error:?}");
    }
}
