//! The ways to run a program that are compared.

use std::process::Command;

use hugeleaf_units::Bytes;

use super::host::Host;
use crate::setting::Put;
use crate::support::find_program;
use crate::{Failed, HUGELEAF};

/// The arm that all others are compared with.
pub const BARE: &str = "bare";
/// `hugeleaf run` by transparent huge pages alone.
pub const RUN_THP: &str = "run, thp";
/// `hugeleaf run` as it is by default: shared memory from the pool where there is one.
pub const RUN_POOL: &str = "run, pool";

/// Nothing added, then moved by `hugeleaf promote` when it has grown.
pub const PROMOTED: &str = "promote";
/// `hugeleaf run`, on a host that is set to `always`.
pub const RUN: &str = "run";

/// Pages of a pool that an arm finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pool {
    None,
    /// As much as the program's shared memory needs.
    Shared,
    /// Half as much again as the program needs in all: chunks of glibc's may waste that.
    Ample,
}

/// One way to run a program.
#[derive(Debug, Clone)]
pub struct Arm {
    pub label: &'static str,
    prefix: Vec<String>,
    environment: Vec<(&'static str, String)>,
    always: bool,
    promoted: bool,
    pool: Pool,
}

/// What a program needs at its largest.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    pub all: Bytes,
    pub shared: Bytes,
}

impl Arm {
    fn new(label: &'static str) -> Arm {
        Arm {
            label,
            prefix: Vec::new(),
            environment: Vec::new(),
            always: false,
            promoted: false,
            pool: Pool::None,
        }
    }

    /// The arm in which nothing is added.
    pub fn bare() -> Arm {
        Arm::new(BARE)
    }

    fn prefix(mut self, words: &[&str]) -> Arm {
        self.prefix = words.iter().map(|w| (*w).to_owned()).collect();
        self
    }

    fn set(mut self, name: &'static str, value: impl Into<String>) -> Arm {
        self.environment.push((name, value.into()));
        self
    }

    fn pool(mut self, pool: Pool) -> Arm {
        self.pool = pool;
        self
    }

    /// What this arm does to a program that has grown and has not begun its work.
    pub fn grown(&self, pid: u32) -> Result<(), Failed> {
        if self.promoted {
            let pid = pid.to_string();
            let arguments = ["promote", "--budget", "100%", &pid];
            let status = super::quietly(Command::new(HUGELEAF).args(arguments))?;
            // 1: not all of it could be moved, which is what the figures are to show.
            if !matches!(status.code(), Some(0 | 1)) {
                return Err(format!("promote ended in {status}").into());
            }
        }
        Ok(())
    }

    /// The command that runs `program` this way.
    pub fn command(&self, program: &str) -> Command {
        let mut command = match self.prefix.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Makes the host what this arm needs, with memory that is warm.
    pub fn prepare(&self, host: &Host, need: Need) -> Result<Vec<Put>, Failed> {
        // What the sample will use and a little more.
        host.warm(Bytes(need.all.get() + need.all.get() / 4))?;
        let pages = match self.pool {
            Pool::None => Bytes::ZERO,
            Pool::Shared => need.shared,
            Pool::Ample => Bytes(need.all.get() + need.all.get() / 2),
        };
        let mut puts = Vec::new();
        if pages > Bytes::ZERO {
            puts.push(host.fill_pool(pages)?);
        }
        if self.always {
            puts.push(Host::always()?);
        }
        Ok(puts)
    }
}

/// Nothing added, and `hugeleaf run`.
pub fn ours(host: &Host, pool: bool) -> Vec<Arm> {
    let thp = format!("thp:{}", host.huge);
    let mut arms = vec![
        Arm::new(BARE),
        Arm::new(RUN_THP).prefix(&[HUGELEAF, "run", "--shm", &thp, "--"]),
    ];
    if pool {
        arms.push(
            Arm::new(RUN_POOL)
                .prefix(&[HUGELEAF, "run", "--"])
                .pool(Pool::Shared),
        );
    }
    arms
}

/// All of them on a host that is set to `always`, as most distributions set it.
pub fn under_always() -> Vec<Arm> {
    let ours = vec![
        Arm::new(BARE),
        Arm::new(RUN).prefix(&[HUGELEAF, "run", "--"]),
        Arm {
            promoted: true,
            ..Arm::new(PROMOTED)
        },
    ];
    let peers = peers().into_iter().filter(|arm| {
        // The first is bare here; pools are no matter of this setting.
        !arm.always && arm.pool == Pool::None
    });
    let mut arms: Vec<Arm> = ours.into_iter().chain(peers).collect();
    arms.iter_mut().for_each(|arm| arm.always = true);
    arms
}

/// What else there is, where it is installed.
pub fn peers() -> Vec<Arm> {
    let mut arms = vec![
        Arm {
            always: true,
            ..Arm::new("THP always")
        },
        Arm::new("glibc.malloc.hugetlb=1").set("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
        Arm::new("glibc.malloc.hugetlb=2")
            .set("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2")
            .pool(Pool::Ample),
    ];
    match find_program(&["hugectl"]) {
        Some(_) => arms.push(
            Arm::new("hugectl")
                .prefix(&["hugectl", "--heap", "--shm", "--thp"])
                .pool(Pool::Ample),
        ),
        None => println!("not run: the arm hugectl: it is not installed"),
    }
    match library("libjemalloc.so.2") {
        Some(path) => arms.push(
            Arm::new("jemalloc, thp:always")
                .set("LD_PRELOAD", path)
                .set("MALLOC_CONF", "thp:always"),
        ),
        None => println!("not run: the arm jemalloc: it is not installed"),
    }
    match library("libmimalloc.so.2") {
        Some(path) => arms.push(
            Arm::new("mimalloc, large pages")
                .set("LD_PRELOAD", path)
                .set("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1"),
        ),
        None => println!("not run: the arm mimalloc: it is not installed"),
    }
    arms
}

/// Where a library of this name is: in one of the folders that the dynamic linker looks in.
fn library(name: &str) -> Option<String> {
    let known = Command::new("/sbin/ldconfig").arg("-p").output().ok()?;
    String::from_utf8_lossy(&known.stdout)
        .lines()
        .filter(|line| line.split_whitespace().next() == Some(name))
        .find_map(|line| Some(line.split_once("=> ")?.1.trim().to_owned()))
}
