//! `hugeleaf run`: the cost of starting a program and of its calls, and its behaviour with a short pool. Workload files
//! (`hugeleaf bench FILE`) measure coverage and speed of whole programs.
//!
//! Every sample is a process of its own from start to end. The arms of a round are taken in random order, and all
//! figures are ratios within rounds. The memory of a program is read from its `smaps` and not from hugeleaf, so that
//! the program under test does not judge itself.

mod arms;
mod host;
mod look;
mod pool;
mod rates;
mod samples;
mod talk;

pub use pool::run as pool;
pub use rates::run as rates;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failed;

/// Makes a folder for compiled programs.
fn folder() -> Result<tempfile::TempDir, Failed> {
    // Servers run under accounts of their own and pass through here.
    let folder = tempfile::Builder::new().prefix("hugeleaf-run-").tempdir()?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open)?;
    Ok(folder)
}

/// Compiles a C program into a folder; `None` if there is no compiler.
pub fn compile(folder: &Path, name: &str, source: &str) -> Result<Option<PathBuf>, Failed> {
    let Some(compiler) = hugeleaf_testkit::find_program(&["cc", "gcc"]) else {
        return Ok(None);
    };
    let (file, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&file, source)?;
    let mut command = Command::new(compiler);
    command.args(["-O2", "-pthread", "-o"]);
    done(command.args([&program, &file]))?;
    Ok(Some(program))
}

/// Runs a command that must succeed, and returns its output.
fn done(command: &mut Command) -> Result<String, Failed> {
    let output = command.stdin(std::process::Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {}", output.status, said.trim()).into())
}
