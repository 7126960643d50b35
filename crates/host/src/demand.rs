//! Demand: which services there are, and what memory each wants on large pages.
//!
//! The types are plain data. The readers find services among the running processes, in data
//! folders, unit files and cgroups, and ask a program about its own needs where only it can tell
//! (`ask`). Nothing here says what should be done about it: that is a plan's business.

pub mod account;
mod ask;
mod jvm;
mod kind;
mod made_up;
mod mariadb;
mod measured;
mod postgres;
mod postgres_files;
mod running;
mod source;
pub mod sysv;

use std::path::PathBuf;

use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, PageSize};
use serde::{Deserialize, Serialize};

use crate::fact::Fact;
use crate::model::{Held, ProcessLimits};

pub use account::read_user;
pub use jvm::{Region as JavaRegion, Sizes as JavaSizes, parse_sizes as parse_java_sizes};
pub use kind::{Given, SourceKind};
pub use mariadb::parse_options as parse_mariadb_options;
pub use postgres_files::setting_in as parse_postgres_setting;
pub use source::{SOURCES, Services, Source, read_services, read_source};

/// A program, or several that belong together, with memory that could be on large pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Service {
    /// What people call it: the unit's name without `.service`, else the program's.
    pub name: String,
    /// Nobody and nothing gave it a name of its own: another of that name is another service.
    pub is_unnamed: bool,
    /// What it is: decides how its demand is known and how it is asked to use large pages.
    pub kind: ServiceKind,
    /// Its systemd unit, as in `postgresql@15-main.service`.
    pub unit: Option<String>,
    pub user: Option<User>,
    /// Its processes; empty when it does not run.
    pub pids: Vec<Pid>,
    /// When the first of them started, in seconds since 1970; absent when it does not run.
    pub since: Fact<u64>,
    /// The file or folder that configures it, where one does: the data folder of PostgreSQL, the
    /// option file that MariaDB is started with. Tells whether two are the same.
    pub configured_by: Option<PathBuf>,
    /// The unit's own command, where it has exactly one and that has no prefix (systemd.service(5)).
    pub exec_start: Option<String>,
    /// The limits that bind it, by its first process; none where it does not run.
    pub limits: ProcessLimits,
    /// It takes its pages as it grows, and not all at its start: having fewer is no shortfall as long
    /// as the pool has the rest.
    pub grows: bool,
    /// The one node that it may take memory from, where it is bound to one of several.
    pub node: Option<u32>,
    /// What its configuration says about large pages.
    pub wish: Wish,
    /// What it wants, in mappings that are rounded to pages one by one.
    pub demands: Vec<Demand>,
}

impl Service {
    /// One of which nothing more is known.
    pub fn new(name: impl Into<String>, kind: ServiceKind) -> Service {
        Service {
            name: name.into(),
            kind,
            ..Service::default()
        }
    }

    pub fn is_running(&self) -> bool {
        !self.pids.is_empty()
    }
}

/// What a service's own configuration says about large pages from the pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    pub how: Insists,
    /// The setting in its own words, as in `huge_pages = try`; empty where there is none.
    pub said: String,
}

impl Wish {
    fn new(how: Insists, said: impl Into<String>) -> Wish {
        let said = said.into();
        Wish { how, said }
    }
}

/// How much a service insists on large pages from the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Insists {
    /// Nothing is known: the program has no such setting, or it could not be read.
    #[default]
    Unknown,
    /// It does not ask for them.
    Never,
    /// It could not: its memory is of a kind that comes from no pool, as it is configured.
    Cannot,
    /// It asks, and starts without them where they are unavailable.
    IfToBeHad,
    /// It does not start without them.
    Always,
}

impl Insists {
    /// Whether its own configuration keeps it off the pool.
    pub const fn is_off(self) -> bool {
        matches!(self, Insists::Never | Insists::Cannot)
    }
}

hugeleaf_units::named! {
    #[derive(Default, Deserialize)]
    pub enum ServiceKind {
        PostgreSql = "postgresql",
        MariaDb = "mariadb",
        Jvm = "jvm",
        /// Redis, Valkey and their kin: private memory and forked saves.
        Redis = "redis",
        /// Programs that attach SysV segments, as Oracle and DB2 do.
        SysV = "sysv",
        /// A container or pod, by its cgroup.
        Container = "container",
        /// A data mover by the published rule.
        Mover = "mover",
        /// Anything else, by what it holds or by bytes that somebody named.
        #[default]
        Other = "other",
    }
}

/// An account, and what it may do about large pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name, where `/etc/passwd` has one.
    pub name: Option<String>,
    pub uid: u32,
    pub gid: u32,
    /// All groups, the primary one included.
    pub groups: Vec<u32>,
    /// How much it may lock, the soft limit: of the running service, else of its unit, else what
    /// `/etc/security/limits.*` gives the user; absent where nothing says so, which leaves the
    /// kernel's default. `u64::MAX` is unlimited.
    pub memlock: Fact<Bytes>,
    /// The hard limit, from the same place: how far the user may raise the soft one.
    pub memlock_hard: Fact<Bytes>,
    /// CAP_IPC_LOCK: memlock and `hugetlb_shm_group` do not bind it.
    pub ipc_lock: bool,
}

/// Memory that a service wants on large pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// What it is in the service's own words, as in `shared_buffers and what goes with it`.
    pub what: String,
    /// Its mappings, made one by one: each is rounded up to whole pages by itself.
    pub mappings: Vec<Mappings>,
    /// Shared memory may come from the pool; private memory goes on THP unless the program itself
    /// takes it from the pool (a JVM, MariaDB).
    pub place: Place,
    /// The page size that its configuration, or the segment that it has now, insists on.
    pub page: Option<PageSize>,
    /// Where the figure is from, as in `postgres -C shared_memory_size`.
    pub source: String,
    /// What it has of this now, by page size; `None` when it does not run. Of hugetlb pages also
    /// those that are promised to it and not yet touched: the pool counts them as its own.
    pub held: Option<Vec<Held>>,
    /// `shared_buffers` of PostgreSQL as it is configured, where that is known in bytes.
    pub buffers: Option<Bytes>,
}

impl Demand {
    /// One of no size of page in particular, of a service that does not run.
    fn new(
        what: impl Into<String>,
        mappings: Vec<Mappings>,
        place: Place,
        source: impl Into<String>,
    ) -> Demand {
        Demand {
            what: what.into(),
            mappings,
            place,
            page: None,
            source: source.into(),
            held: None,
            buffers: None,
        }
    }

    pub fn bytes(&self) -> Bytes {
        self.mappings.iter().map(|p| p.bytes * p.count).sum()
    }
}

/// So many equal mappings of so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mappings {
    pub count: u64,
    /// Bytes of each.
    #[serde(rename(serialize = "each_bytes"))]
    pub bytes: Bytes,
}

impl Mappings {
    pub const fn one(bytes: Bytes) -> Mappings {
        Mappings { bytes, count: 1 }
    }
}

hugeleaf_units::named! {
    /// Where memory is available on large pages.
    #[derive(Deserialize)]
    pub enum Place {
        /// From the pool: the program asks for hugetlb itself, or `hugeleaf run` does for it.
        Pool = "pool",
        /// Transparent huge pages only.
        Thp = "thp",
    }
}

/// Why a demand could not be determined: what failed, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct DemandError {
    pub what: String,
    /// What to do next, as a command where there is one.
    pub next: String,
    /// Whether what was named is wrong, rather than something missing on the host.
    pub is_usage: bool,
}

impl DemandError {
    fn missing(what: impl Into<String>, next: impl Into<String>) -> DemandError {
        DemandError {
            what: what.into(),
            next: next.into(),
            is_usage: false,
        }
    }

    fn usage(what: impl Into<String>, next: impl Into<String>) -> DemandError {
        DemandError {
            is_usage: true,
            ..DemandError::missing(what, next)
        }
    }
}
