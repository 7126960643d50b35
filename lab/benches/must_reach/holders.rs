//! Processes that hold memory: the example `hold` of the host crate, started by its path.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::Failed;

/// A process that holds memory until it is dropped.
pub struct Holder {
    child: Child,
    stdin: Option<ChildStdin>,
}

/// Returns the example's path: cargo puts examples next to the program.
fn program() -> Result<PathBuf, Failed> {
    let path = Path::new(crate::HUGELEAF)
        .with_file_name("examples")
        .join("hold");
    if path.exists() {
        return Ok(path);
    }
    Err("build the holder first: cargo build --package hugeleaf-host --example hold".into())
}

impl Holder {
    /// Starts a process without waiting for it.
    pub fn start(file: &str, size: &str, skew: &str, collapse: bool) -> Result<Holder, Failed> {
        let mut command = Command::new(program()?);
        command
            .args([file, size, skew])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if collapse {
            command.env("HOLD_COLLAPSE", "1");
        }
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        Ok(Holder { child, stdin })
    }

    /// Waits until it has touched all of its memory.
    pub fn wait_ready(&mut self) -> Result<(), Failed> {
        let out = self.child.stdout.take().ok_or("waited for twice")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        if line.trim() == "ready" {
            return Ok(());
        }
        Err(format!("the holder said '{}'", line.trim()).into())
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It ends when its standard input closes.
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.flush();
        }
        let _ = self.child.wait();
    }
}

/// A file in memory of a given length; removed when dropped.
pub struct Segment {
    file: tempfile::NamedTempFile,
}

impl Segment {
    /// Makes a file on the tmpfs at /dev/shm, the place of POSIX shared memory.
    pub fn new(bytes: u64) -> Result<Segment, Failed> {
        let file = tempfile::Builder::new()
            .prefix("hugeleaf-bench-")
            .tempfile_in("/dev/shm")?;
        file.as_file().set_len(bytes)?;
        Ok(Segment { file })
    }

    /// Returns its path.
    pub fn path(&self) -> Result<&str, Failed> {
        self.file.path().to_str().ok_or_else(|| "not UTF-8".into())
    }
}
