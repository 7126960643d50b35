//! Programs that alone know their own needs, as `postgres -C`. They run only on the running host, never for a captured one.

use std::path::Path;

use hugeleaf_sys::{ProgramOutput, query_program};
use hugeleaf_units::Failure;

use crate::root::Root;

/// Returns the first line that is not empty, for an error message.
pub(super) fn complaint(said: &ProgramOutput) -> &str {
    let lines = said.stderr.lines().chain(said.stdout.lines());
    let mut said = lines.map(str::trim).filter(|line| !line.is_empty());
    said.next().unwrap_or("it failed without a message")
}

/// Returns the output of a program, as [`query_program`].
pub(super) fn query(
    root: &Root,
    program: &Path,
    arguments: &[String],
    account: Option<(u32, u32)>,
) -> Result<ProgramOutput, Failure> {
    if !root.is_live() {
        return Err(Failure::missing(
            format!(
                "{} {}: not run for a captured host",
                program.display(),
                arguments.join(" ")
            ),
            "run hugeleaf on that host, without --root",
        ));
    }
    query_program(program, arguments, account)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_run_for_a_captured_host() {
        let error = query(&Root::at("/tmp"), Path::new("/bin/echo"), &[], None).unwrap_err();
        assert!(error.message.contains("captured"), "{error:?}");
    }
}
