//! Wall-clock time of commands, with arms in random order.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Failed;

/// One way to get an answer, and the duration of each run of it.
pub struct Arm {
    /// Name of the arm.
    pub label: String,
    program: String,
    arguments: Vec<String>,
    /// Seconds, in the order of measurement.
    pub seconds: Vec<f64>,
}

impl Arm {
    /// Makes an arm of a command, whose output is discarded.
    pub fn new(label: &str, program: &str, arguments: &[&str]) -> Arm {
        Arm {
            label: label.to_owned(),
            program: program.to_owned(),
            arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
            seconds: Vec::new(),
        }
    }

    fn run(&mut self) -> Result<f64, Failed> {
        let start = Instant::now();
        let status = Command::new(&self.program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        let seconds = start.elapsed().as_secs_f64();
        if !status.success() {
            return Err(format!("{} {:?}: {status}", self.program, self.arguments).into());
        }
        Ok(seconds)
    }
}

/// Runs every arm `rounds` times, each round in a new random order. A first round, not counted,
/// warms caches.
pub fn interleave(arms: &mut [Arm], rounds: usize) -> Result<(), Failed> {
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..arms.len()).collect();
        fastrand::shuffle(&mut order);
        for at in order {
            let seconds = arms[at].run()?;
            if round > 0 {
                arms[at].seconds.push(seconds);
            }
        }
    }
    Ok(())
}
