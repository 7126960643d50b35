//! `guard`: its cost, its stability over hours, the correctness of its tests, and the time until servers that grow
//! are on huge pages again.

mod cost;
mod growth;
mod kills;
mod proofs;
mod soak;

pub use cost::run as cost;
pub use growth::run as growth;
pub use kills::run as kills;
pub use proofs::run as proofs;
pub use soak::run as soak;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hugeleaf_host::process::proc_parsers::parse_stat;
use hugeleaf_sys::ticks_per_second;
use hugeleaf_testkit::ChildGuard;

use crate::Failed;

/// Compiles the worker that the tests watch too: its memory grows on command, and its speed follows its pages.
fn compile_worker(folder: &Path) -> Result<PathBuf, Failed> {
    compile("../crates/cli/tests/guard/worker.c", folder)
}

/// Compiles a C program of the lab's folder.
fn compile(source: &str, folder: &Path) -> Result<PathBuf, Failed> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let program = folder.join(source.file_stem().unwrap_or_default());
    let compiled = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &source])
        .status()?;
    match compiled.success() {
        true => Ok(program),
        false => Err(format!("cc: {} was not compiled", source.display()).into()),
    }
}

/// Links the same program under another name.
fn named(program: &Path, name: &str) -> Result<PathBuf, Failed> {
    let link = program.with_file_name(name);
    std::fs::hard_link(program, &link)?;
    Ok(link)
}

/// A program that holds memory; ended when dropped.
struct Holder(ChildGuard);

impl Holder {
    /// Starts a worker that holds `mib` MiB.
    fn start(program: &Path, mib: u64) -> Result<Holder, Failed> {
        let mut holder = Holder::spawn(program, &["-", "1"])?;
        let input = holder.0.0.stdin.as_mut().ok_or("no pipe")?;
        writeln!(input, "grow {mib}")?;
        input.flush()?;
        holder.wait_for_ok()?;
        Ok(holder)
    }

    /// Starts a program that prints "ok" when it holds its memory.
    fn spawn(program: &Path, args: &[&str]) -> Result<Holder, Failed> {
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut holder = Holder(ChildGuard(child));
        holder.wait_for_ok()?;
        Ok(holder)
    }

    fn wait_for_ok(&mut self) -> Result<(), Failed> {
        let mut line = [0; 3];
        self.0
            .0
            .stdout
            .as_mut()
            .ok_or("no pipe")?
            .read_exact(&mut line)?;
        match &line {
            b"ok\n" => Ok(()),
            other => Err(format!("{}: {other:?}", self.0.0.id()).into()),
        }
    }

    fn pid(&self) -> u32 {
        self.0.0.id()
    }
}

/// Returns the processor time of a process so far, in seconds.
pub fn used(pid: u32) -> Result<f64, Failed> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let stat = parse_stat(&text)?;
    Ok((stat.user_ticks + stat.system_ticks) as f64 / ticks_per_second() as f64)
}

/// Returns a line of its status, such as `VmRSS`, in MiB.
fn mib(pid: u32, name: &str) -> Result<f64, Failed> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    let kib: u64 = line.ok_or_else(|| format!("no {name}"))?.parse()?;
    Ok(kib as f64 / 1024.0)
}
