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

use std::path::PathBuf;
use std::process::Command;

use crate::{Asked, Failed};

/// Measures the cost of starting a program and of its calls.
pub fn rates(asked: &Asked) -> Result<(), Failed> {
    rates::run(asked)
}

/// Measures shared memory with a pool that is too small.
pub fn pool(asked: &Asked) -> Result<(), Failed> {
    pool::run(asked)
}

/// Programs of this benchmark, compiled into a folder of their own.
struct Environment {
    folder: tempfile::TempDir,
}

impl Environment {
    fn new() -> Result<Environment, Failed> {
        // Servers run under accounts of their own and pass through here.
        let folder = tempfile::Builder::new().prefix("hugeleaf-run-").tempdir()?;
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open)?;
        Ok(Environment { folder })
    }

    /// Writes a file and returns its path.
    fn file(&self, name: &str, text: &str) -> Result<PathBuf, Failed> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// Compiles a C program; `None` if there is no compiler.
    fn compile(&self, name: &str, source: &str) -> Result<Option<PathBuf>, Failed> {
        let Some(compiler) = hugeleaf_testkit::find_program(&["cc", "gcc"]) else {
            return Ok(None);
        };
        let source = self.file(&format!("{name}.c"), source)?;
        let program = self.folder.path().join(name);
        let mut command = Command::new(compiler);
        command.args(["-O2", "-pthread", "-o"]).arg(&program);
        done(command.arg(&source))?;
        Ok(Some(program))
    }
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

/// Converts bytes to a figure of a sample: exact up to 2^53.
fn number(bytes: u64) -> f64 {
    bytes as f64
}
