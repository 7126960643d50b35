//! The compared ways to run a program.

use std::process::Command;

use super::host::Host;
use crate::HUGELEAF;

/// The baseline of all other arms.
pub const BARE: &str = "bare";
/// `hugeleaf run` by transparent huge pages alone.
pub const RUN_THP: &str = "run, thp";

/// One way to run a program.
#[derive(Debug, Clone)]
pub struct Arm {
    pub label: &'static str,
    prefix: Vec<String>,
}

impl Arm {
    /// Returns the arm in which nothing is added.
    pub fn bare() -> Arm {
        Arm {
            label: BARE,
            prefix: Vec::new(),
        }
    }

    /// Returns the arm of `hugeleaf run` by transparent huge pages alone.
    pub fn thp(host: &Host) -> Arm {
        let thp = format!("thp:{}", host.huge);
        let prefix = [HUGELEAF, "run", "--shm", &thp, "--"].map(str::to_owned);
        Arm {
            label: RUN_THP,
            prefix: prefix.to_vec(),
        }
    }

    /// Returns the arm of `hugeleaf run` by default: shared memory from the pool if there is one.
    pub fn pool() -> Arm {
        Arm {
            label: "run, pool",
            prefix: [HUGELEAF, "run", "--"].map(str::to_owned).to_vec(),
        }
    }

    /// Returns the command that runs `program` this way.
    pub fn command(&self, program: &str) -> Command {
        match self.prefix.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        }
    }
}
