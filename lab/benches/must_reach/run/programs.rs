//! The programs whose coverage and speed are measured, each of a bounded size and with a fixed
//! amount of work.

mod compiler;
mod postgresql;
mod redis_server;
mod talking;

use std::process::{Command, Stdio};

pub use postgresql::Cluster;

use super::arms::{Arm, Need, ours, peers};
use super::host::Host;
use super::look::{Held, Look};
use super::number;
use super::samples::Sample;
use crate::support::server::Account;
use crate::{Asked, Failed};

/// Memory of the whole program, each page counted once, at its largest.
pub const RESIDENT: &str = "resident, bytes";
/// The part of the private memory that is on large pages.
const PRIVATE: &str = "private on large, share";
/// The part of the shared memory that is on large pages.
const SHARED: &str = "shared on large, share";
const GROW: &str = "grow, operations/s";
const WORK: &str = "work, operations/s";

/// What one run of a program gave.
#[derive(Debug, Default)]
pub struct Taken {
    pub sample: Sample,
    /// What it came to: the same in every arm.
    pub check: String,
}

impl Taken {
    fn rate(&mut self, name: &str, value: f64) {
        self.sample.insert(name.to_owned(), value);
    }

    fn resident(&mut self, pid: u32) -> Result<(), Failed> {
        let resident = super::look::resident(pid)?;
        self.rate(RESIDENT, number(resident));
        Ok(())
    }

    fn private(&mut self, look: Look) {
        self.held("private", PRIVATE, look.private);
    }

    fn shared(&mut self, look: Look) {
        self.held("shared", SHARED, look.shared);
    }

    fn held(&mut self, name: &str, share: &str, held: Held) {
        self.rate(share, held.coverage().unwrap_or(f64::NAN));
        self.rate(&format!("{name} resident, bytes"), number(held.resident));
        self.rate(&format!("{name} thp, bytes"), number(held.thp));
        self.rate(&format!("{name} hugetlb, bytes"), number(held.hugetlb));
    }
}

/// A program that can be run in any arm.
pub trait Program {
    /// What it is called on the command line of the benchmark.
    fn name(&self) -> &'static str;
    /// The name of its file of samples.
    fn file(&self) -> &'static str;
    /// How large it gets.
    fn need(&self) -> Need;
    /// How many rounds are taken where nobody says.
    fn rounds(&self) -> usize {
        8
    }
    /// Quantities that are shares of memory on large pages.
    fn shares(&self) -> &'static [&'static str] {
        &[PRIVATE]
    }
    /// Quantities of which more is better.
    fn rates(&self) -> &'static [&'static str] {
        &[GROW, WORK]
    }
    /// The arms that are worth comparing.
    fn arms(&self, host: &Host) -> Vec<Arm> {
        [ours(host, false), peers()].concat()
    }
    /// Runs it once.
    fn sample(&self, arm: &Arm) -> Result<Taken, Failed>;
}

/// Those that can be run here and that were asked for.
pub fn all(asked: &Asked) -> Result<Vec<Box<dyn Program>>, Failed> {
    let mode = asked.mode;
    let mut all: Vec<Box<dyn Program>> = Vec::new();
    let mut add = |name: &str, made: &dyn Fn() -> Result<Made, Failed>| -> Result<(), Failed> {
        if !asked.wants(name) {
            return Ok(());
        }
        match made()? {
            Ok(program) => all.push(program),
            Err(reason) => println!("not run: {name}: {reason}"),
        }
        Ok(())
    };
    add("chunks", &|| talking::chunks(mode, 1))?;
    add("chunks-threads", &|| talking::chunks(mode, 4))?;
    add("python", &|| talking::python(mode))?;
    add("sqlite", &|| talking::sqlite(mode))?;
    add("jvm", &|| talking::jvm(mode))?;
    add("redis", &|| redis_server::redis(mode))?;
    add("postgresql", &|| postgresql::postgresql(mode))?;
    add("compiler", &|| compiler::compiler(mode))?;
    Ok(all)
}

/// A program, or why there is none.
type Made = Result<Box<dyn Program>, &'static str>;

/// The command that runs a server as an account of its own, in an arm. The arm comes first: it is
/// set up by root, and what it does reaches the server through setpriv (of util-linux), which also
/// makes the server end with this benchmark.
fn server_command(arm: &Arm, account: Account, program: &std::path::Path) -> Command {
    let mut command = arm.command("setpriv");
    command
        .args(["--reuid", &account.uid.to_string()])
        .args(["--regid", &account.gid.to_string()])
        .args(["--clear-groups", "--pdeathsig", "KILL"])
        .arg(program)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null());
    command
}
