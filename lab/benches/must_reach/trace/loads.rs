//! Loads that run on and on and say how fast they are meanwhile. Each ends when it is dropped.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::Failed;
use hugeleaf_testkit::find_program;

/// Something that runs on and on.
pub trait Load {
    /// Operations a second over the next `seconds`.
    fn rate(&mut self, seconds: u64) -> Result<f64, Failed>;
}

/// Threads that fight for the lock of one address space.
const THREADS: &str = "4";

/// Each thread maps, touches and unmaps, and so takes one lock twice a turn.
const FIGHT: &str = include_str!("fight.c");

/// Compiles the load that fights; `None` where there is no compiler.
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

/// Threads that fight for a lock; for each line they answer how far they are.
pub struct Fight {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Fight {
    /// Starts them.
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

    /// Its clock in seconds, and turns so far.
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

/// pgbench, which says its rate each second.
pub struct Pgbench {
    child: Child,
    rates: Receiver<f64>,
}

impl Pgbench {
    /// Starts a client that is ready to go: `command` says of what kind.
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

/// `progress: 5.0 s, 12345.6 tps, lat …`.
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
    // It may have ended by itself; the failure was reported by then.
    let _ = child.kill();
    let _ = child.wait();
}
