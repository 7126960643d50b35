//! Continuous loads that report their rate. Each ends when it is dropped.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::Failed;
use hugeleaf_testkit::ChildGuard;

/// A continuous load.
pub trait Load {
    /// Returns the operations a second over the next `seconds`.
    fn rate(&mut self, seconds: u64) -> Result<f64, Failed>;
}

/// Threads that contend for the lock of one address space.
const THREADS: &str = "4";

/// Threads that contend for a lock; they answer each line with their progress.
pub struct Fight {
    _child: ChildGuard,
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
            _child: ChildGuard(child),
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

/// pgbench, which prints its rate each second.
pub struct Pgbench {
    _child: ChildGuard,
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
        Ok(Pgbench {
            _child: ChildGuard(child),
            rates,
        })
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
