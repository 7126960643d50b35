//! What the library that is loaded into a program is given: the value of `HUGELEAF_RUN`.

use std::fmt;

use hugeleaf_units::{Bytes, PageSize};

use super::RunRole;

/// A way to larger pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Transparent huge pages of the PMD's size.
    Thp,
    /// Pages of this size from a pool.
    Hugetlb(PageSize),
}

/// The library keeps so many pool sizes a role; no kernel has more than it has levels of tables.
pub(super) const MOST_POOLS: usize = 4;

/// The ways to try for a role, in this order. None: it is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rungs {
    /// In order.
    pub ways: Vec<Method>,
    /// Base pages are not acceptable.
    pub mandatory: bool,
}

impl Rungs {
    /// Whether there is nothing to do for the role.
    pub fn is_base(&self) -> bool {
        self.ways.is_empty()
    }
}

impl fmt::Display for Rungs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ways.is_empty() {
            return f.write_str("base");
        }
        for (i, way) in self.ways.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match way {
                Method::Thp => f.write_str("thp")?,
                Method::Hugetlb(size) => write!(f, "hugetlb:{:#}", size.bytes())?,
            }
        }
        if self.mandatory {
            f.write_str(",!")?;
        }
        Ok(())
    }
}

/// The settings; they print as the value of `HUGELEAF_RUN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The host's smallest page.
    pub base: PageSize,
    /// The size of a full THP; `None` where there is none.
    pub pmd: Option<PageSize>,
    /// What to try for each role, in the order of [`RunRole::ALL`].
    pub rungs: [Rungs; 4],
    /// What was asked for each role, as it was typed.
    pub asked: [String; 4],
    /// Private memory stays as it is until the process has grown so far.
    pub data_after: Option<Bytes>,
    /// The smallest shared segment that is looked at.
    pub shm_after: Option<Bytes>,
    /// The smallest stack of a thread that is looked at.
    pub stack_after: Option<Bytes>,
    /// Whether advised private memory is huge when first touched; otherwise only collapse helps.
    pub touch: bool,
    /// The same for shared memory.
    pub shmem_touch: bool,
    /// So much of data is taken at the start.
    pub reserve: Option<Bytes>,
    /// Base names of the executables it is for; empty for all.
    pub only: Vec<String>,
    /// Where to say that the program ends: a socket of the launcher.
    pub report: Option<String>,
}

impl Settings {
    /// The name of the variable.
    pub const VARIABLE: &'static str = "HUGELEAF_RUN";

    /// The version of the format.
    const VERSION: u32 = 1;

    /// What is tried for a role.
    pub fn rungs(&self, role: RunRole) -> &Rungs {
        &self.rungs[role as usize]
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v={};base={:#}", Settings::VERSION, self.base.bytes())?;
        let mut bytes = |key: &str, value: Option<Bytes>| match value {
            Some(value) => write!(f, ";{key}={value:#}"),
            None => Ok(()),
        };
        bytes("pmd", self.pmd.map(PageSize::bytes))?;
        bytes("data_after", self.data_after)?;
        bytes("shm_after", self.shm_after)?;
        bytes("stack_after", self.stack_after)?;
        bytes("reserve", self.reserve)?;
        for (role, rungs) in RunRole::ALL.iter().zip(&self.rungs) {
            write!(f, ";{role}={rungs}")?;
        }
        let touch = u8::from(self.touch);
        write!(
            f,
            ";touch={touch};shmem_touch={}",
            u8::from(self.shmem_touch)
        )?;
        if !self.only.is_empty() {
            write!(f, ";only={}", self.only.join(":"))?;
        }
        if let Some(report) = &self.report {
            write!(f, ";report={report}")?;
        }
        for (role, asked) in RunRole::ALL.iter().zip(&self.asked) {
            write!(f, ";asked_{role}={asked}")?;
        }
        Ok(())
    }
}
