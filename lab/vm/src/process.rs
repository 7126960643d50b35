//! Programs of this machine, run to their end.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::missing_precondition::missing;

/// Finds a program by name on PATH or in the folders of system programs.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Finds a program, or returns an error that names its Debian package.
///
/// # Errors
/// [`MissingPrecondition`](crate::missing_precondition::MissingPrecondition) if it does not exist.
pub fn need(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    find(name).ok_or_else(|| {
        missing(
            format!("there is no {name}"),
            format!("install it: apt-get install --no-install-recommends {package}"),
        )
    })
}

pub fn program<S: AsRef<OsStr>>(name: impl AsRef<OsStr>, arguments: &[S]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// If it cannot be started or fails; the error contains the last lines of its error output.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{command:?}");
    let out = command
        .output()
        .with_context(|| format!("{shown} could not be started"))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("{shown}: {}\n{}", out.status, last_lines(&said, 15));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Returns the last non-empty lines of a text.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_says_why() {
        let error = output(&mut program("sh", &["-c", "echo broken >&2; exit 3"])).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("broken") && text.contains('3'), "{text}");
    }

    #[test]
    fn what_is_not_there_names_its_package() {
        let error = need("hugeleaf-no-such-program", "some-package").unwrap_err();
        assert!(error.is::<crate::missing_precondition::MissingPrecondition>());
        assert!(error.to_string().contains("some-package"));
    }

    #[test]
    fn last_lines_leaves_out_empty_ones() {
        assert_eq!(last_lines("a\n\nb\nc\n\n", 2), "b\nc");
        assert_eq!(last_lines("a", 5), "a");
    }
}
