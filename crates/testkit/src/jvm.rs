//! A JVM that runs one source file. It has started once it prints its ready line, and it is killed when dropped.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use crate::find_program;
use crate::process::ChildGuard;
use crate::server::{ServerError, file};

/// A running JVM.
#[derive(Debug)]
pub struct Jvm {
    pub running: ChildGuard,
    /// Lines before the ready line.
    pub said: Vec<String>,
    pub input: ChildStdin,
    /// Lines after the ready line.
    pub lines: Lines<BufReader<ChildStdout>>,
}

/// Returns the `java` of a JDK, because a JRE cannot run a source file.
pub fn program() -> Option<PathBuf> {
    find_program(&["javac"]).and(find_program(&["java"]))
}

impl Jvm {
    /// Runs a command that starts a JVM, until it prints the ready line. The caller chooses its standard error.
    ///
    /// # Errors
    /// [`ServerError::File`] if it cannot be started, [`ServerError::Start`] with its output if it ends first.
    pub fn start(
        command: &mut Command,
        is_ready: impl Fn(&str) -> bool,
    ) -> Result<Jvm, ServerError> {
        let program = command.get_program().to_owned();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut running = ChildGuard(child.map_err(file(Path::new(&program)))?);
        let input = running.0.stdin.take().unwrap();
        let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        let found = lines.by_ref().map_while(Result::ok).any(|line| {
            let found = is_ready(&line);
            if !found {
                said.push(line);
            }
            found
        });
        match found {
            true => Ok(Jvm {
                running,
                said,
                input,
                lines,
            }),
            false => Err(ServerError::Start {
                what: format!("{command:?}"),
                reason: "it ended before its ready line".to_owned(),
                log: said.join("\n"),
            }),
        }
    }

    /// Starts a JVM that waits until its standard input ends.
    ///
    /// # Errors
    /// Those of [`Jvm::start`].
    pub fn waiting(java: &Path, flags: &[&str]) -> Result<Jvm, ServerError> {
        const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/jvm/Waits.java");
        Jvm::start(Command::new(java).args(flags).arg(SOURCE), |line| {
            line == "up"
        })
    }

    pub fn pid(&self) -> u32 {
        self.running.0.id()
    }

    /// Writes a line to the standard input.
    #[track_caller]
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a shell in place of a JVM.
    fn start(script: &str) -> Result<Jvm, ServerError> {
        Jvm::start(Command::new("sh").args(["-c", script]), |line| line == "up")
    }

    #[test]
    fn it_is_ready_after_its_line_and_is_killed_at_the_end() {
        let script = "echo one; echo up; read -r line; echo \"got $line\"; read -r line";
        let mut jvm = start(script).unwrap();
        assert_eq!(jvm.said, ["one"]);
        jvm.tell("7");
        assert_eq!(jvm.lines.next().unwrap().unwrap(), "got 7");
        let folder = format!("/proc/{}", jvm.pid());
        assert!(Path::new(&folder).exists());
        drop(jvm);
        assert!(!Path::new(&folder).exists());
    }

    #[test]
    fn one_that_ends_first_is_an_error_with_its_output() {
        let error = start("echo 'no room'; exit 1").unwrap_err();
        assert!(format!("{error:?}").ends_with("\nno room"), "{error:?}");
    }

    #[test]
    fn a_real_one_waits() {
        let Some(java) = program() else {
            return crate::not_run("a_real_one_waits", "needs a JDK");
        };
        let mut jvm = Jvm::waiting(&java, &["-Xmx64m"]).unwrap();
        assert!(jvm.running.0.try_wait().unwrap().is_none());
    }
}
