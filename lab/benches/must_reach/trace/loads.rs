//! Continuous loads that report their rate. Each ends when it is dropped.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::Failed;
use hugeleaf_testkit::find_program;

/// A continuous load.
pub trait Load {
    /// Returns the operations a second over the next `seconds`.
    fn rate(&mut self, seconds: u64) -> Result<f64, Failed>;
}

/// Threads that contend for the lock of one address space.
const THREADS: &str = "4";

/// Each thread maps, touches and unmaps, and so takes one lock twice a turn.
const FIGHT: &str = include_str!("fight.c");

/// Compiles the load with contention; `None` if there is no compiler.
pub fn compile(folder: &Path) -> Result<Option<PathBuf>, Failed> {
    let Some(compiler) = find_program(&["cc", "gcc"]) else {
        return Ok(None);
    };
    let (source, program) = (folder.join("fight.c"), folder.join("fight"));
    std::fs::write(&source, FIGHT)?;
    let mut command = Command::new(compiler);
    command
        .args(["-O2", "-pthread", "-o"])
        .args([&program, &source]);
    match command.status()?.success() {
        true => Ok(Some(program)),
        false => Err("the load was not compiled".into()),
    }
}

/// Threads that contend for a lock; they answer each line with their progress.
pub struct Fight {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Fight {
    /// Starts the threads.
    pub fn start(program: &Path) -> Result<Fight, Failed> {
        let mut child = Command::new(program)
            .arg(THREADS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let questions = child.stdin.take().ok_or("no pipe to the load")?;
        let answers = child.stdout.take().ok_or("no pipe from the load")?;
        Ok(Fight {
            child,
            questions,
            answers: BufReader::new(answers),
        })
    }

    /// Returns its clock in seconds, and its turns so far.
    fn ask(&mut self) -> Result<(f64, f64), Failed> {
        self.questions.write_all(b"\n")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let mut numbers = line.split_ascii_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(clock)), Some(Ok(turns))) => Ok((clock, turns)),
            _ => Err(format!("the load that fights said {line:?}").into()),
        }
    }
}

impl Load for Fight {
    fn rate(&mut self, seconds: u64) -> Result<f64, Failed> {
        let (from, before) = self.ask()?;
        std::thread::sleep(Duration::from_secs(seconds));
        let (to, after) = self.ask()?;
        Ok((after - before) / (to - from))
    }
}

impl Drop for Fight {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// pgbench, which prints its rate each second.
pub struct Pgbench {
    child: Child,
    rates: Receiver<f64>,
}

impl Pgbench {
    /// Starts a client; `command` determines its kind.
    pub fn start(command: &mut Command) -> Result<Pgbench, Failed> {
        let mut child = command
            .args(["-P", "1", "-T", "86400"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stderr.take().ok_or("no pipe from pgbench")?).lines();
        let (sender, rates) = channel();
        std::thread::spawn(move || {
            for rate in lines.map_while(Result::ok).filter_map(|l| progress(&l)) {
                if sender.send(rate).is_err() {
                    return;
                }
            }
        });
        Ok(Pgbench { child, rates })
    }

    fn next(&self) -> Result<f64, Failed> {
        let rate = self.rates.recv_timeout(Duration::from_secs(30));
        rate.map_err(|_| "pgbench says nothing any more".into())
    }
}

/// Parses `progress: 5.0 s, 12345.6 tps, lat …`.
fn progress(line: &str) -> Option<f64> {
    let words = line.strip_prefix("progress: ")?;
    words.split(", ").nth(1)?.strip_suffix(" tps")?.parse().ok()
}

impl Load for Pgbench {
    fn rate(&mut self, seconds: u64) -> Result<f64, Failed> {
        while self.rates.try_recv().is_ok() {}
        // A part of this second is over.
        self.next()?;
        let mut sum = 0.0;
        for _ in 0..seconds {
            sum += self.next()?;
        }
        Ok(sum / seconds.max(1) as f64)
    }
}

impl Drop for Pgbench {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

fn stop(child: &mut Child) {
    // It may have ended on its own; the failure was then reported already.
    let _ = child.kill();
    let _ = child.wait();
}
