//! Services and their demand for memory on huge pages.
//!
//! The types are plain data. The readers find services among the running processes, in data folders,
//! unit files and cgroups. They run a program to learn its needs if no other source has them (`ask`).
//! Decisions are left to a plan.

pub mod host_cache;
mod jvm;
mod mariadb;
mod postgres;
mod postgres_config;
mod program_query;
mod resident;
mod service_discovery;
mod service_reader;
mod source_kind;
mod synthetic;
pub mod sysv;
pub mod user_account;

use std::path::PathBuf;

use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, PageSize};
use serde::{Deserialize, Serialize};

use crate::fact::Fact;
use crate::model::{PageUsage, ProcessMemoryLimits};

pub use host_cache::{CacheNodes, CacheShare, cache_shares};
pub use jvm::{
    JvmMemoryArea as JavaRegion, JvmSizes as JavaSizes, parse_sizes as parse_java_sizes,
};
pub use mariadb::parse_options as parse_mariadb_options;
pub use postgres_config::setting_in as parse_postgres_setting;
pub use service_discovery::{SOURCES, ServiceSelector, Services, read_services, read_source};
pub use source_kind::{DemandSourceKind, FlagArity};
pub use user_account::read_user;

/// A program, or several that belong together, with memory that could be on huge pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Service {
    /// Display name: the unit's name without `.service`, else the program's.
    pub name: String,
    /// True if the service has no name of its own. Another service may then have the same name.
    pub is_unnamed: bool,
    /// Kind of the service, which decides how its demand is read and how it gets huge pages.
    pub kind: ServiceKind,
    /// Its systemd unit, as in `postgresql@15-main.service`.
    pub unit: Option<String>,
    pub user: Option<User>,
    /// Its processes. Empty when it does not run.
    pub pids: Vec<Pid>,
    /// Start time of its first process, in seconds since 1970. Absent when it does not run.
    pub since: Fact<u64>,
    /// The file or folder that configures it, if any: the data folder of PostgreSQL, the option file
    /// that MariaDB is started with. Equal values identify the same service.
    pub configured_by: Option<PathBuf>,
    /// The unit's own command, if it has exactly one and that has no prefix (systemd.service(5)).
    pub exec_start: Option<String>,
    /// The limits that bind it, by its first process. Empty if it does not run.
    pub limits: ProcessMemoryLimits,
    /// True if it takes its pages as it grows, not all at its start. Fewer pages are then no
    /// shortfall as long as the pool has the rest.
    pub grows: bool,
    /// The one node that it may take memory from, if it is bound to one of several.
    pub node: Option<u32>,
    /// Huge-page setting in its configuration.
    pub huge_page_setting: HugePageSetting,
    /// Its demand, in mappings that are rounded to pages one by one.
    pub demands: Vec<Demand>,
}

impl Service {
    /// Makes a service with a name and a kind only.
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

/// A service's own setting for huge pages from the pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HugePageSetting {
    pub requirement: HugePageRequirement,
    /// The setting as written, as in `huge_pages = try`. Empty if there is none.
    pub text: String,
}

impl HugePageSetting {
    fn new(how: HugePageRequirement, said: impl Into<String>) -> HugePageSetting {
        let said = said.into();
        HugePageSetting {
            requirement: how,
            text: said,
        }
    }
}

/// Degree to which a service requires huge pages from the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePageRequirement {
    /// Nothing is known: the program has no such setting, or it could not be read.
    #[default]
    Unknown,
    /// It does not request them.
    Never,
    /// It cannot use them. As configured, its memory is of a kind that no pool provides.
    Cannot,
    /// It requests them, and starts without them if they are unavailable.
    IfAvailable,
    /// It does not start without them.
    Always,
}

impl HugePageRequirement {
    /// True if its own configuration excludes the pool.
    pub const fn is_off(self) -> bool {
        matches!(
            self,
            HugePageRequirement::Never | HugePageRequirement::Cannot
        )
    }
}

hugeleaf_units::named! {
    #[derive(Default, Deserialize)]
    pub enum ServiceKind {
        PostgreSql = "postgresql",
        MariaDb = "mariadb",
        Jvm = "jvm",
        /// Redis, Valkey and similar servers: private memory and forked saves.
        Redis = "redis",
        /// Programs that attach SysV segments, as Oracle and DB2 do.
        SysV = "sysv",
        /// A container or pod, by its cgroup.
        Container = "container",
        /// A cache in host memory, such as that of an LLM server, by its size.
        HostCache = "host-cache",
        /// A data mover by the published rule.
        Mover = "mover",
        /// Any other program, by its memory in use or by a given number of bytes.
        #[default]
        Other = "other",
    }
}

/// An account, and its rights to huge pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name, if `/etc/passwd` has one.
    pub name: Option<String>,
    pub uid: u32,
    pub gid: u32,
    /// All groups, the primary one included.
    pub groups: Vec<u32>,
    /// The soft memlock limit: of the running service, else of its unit, else from
    /// `/etc/security/limits.*` for the user. Absent if none of them sets it, which leaves the
    /// kernel's default. `u64::MAX` is unlimited.
    pub memlock: Fact<Bytes>,
    /// The hard limit, from the same place, up to which the user may raise the soft one.
    pub memlock_hard: Fact<Bytes>,
    /// CAP_IPC_LOCK: memlock and `hugetlb_shm_group` do not bind it.
    pub ipc_lock: bool,
}

/// Memory of a service that should be on huge pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Name of the memory in the service's own terms, as in `shared_buffers and related memory`.
    pub what: String,
    /// Its mappings, each of which is rounded up to whole pages.
    pub mappings: Vec<EqualMappings>,
    /// Source of its huge pages. Shared memory may come from the pool. Private memory goes on THP
    /// unless the program itself takes it from the pool (a JVM, MariaDB).
    pub place: PageSource,
    /// The page size that its configuration, or its present segment, requires.
    pub page: Option<PageSize>,
    /// Origin of the figure, as in `postgres -C shared_memory_size`.
    pub source: String,
    /// Memory of this demand in use, by page size. `None` when it does not run. Includes hugetlb
    /// pages that are reserved for it and not yet touched, because the pool counts them as used.
    pub held: Option<Vec<PageUsage>>,
    /// `shared_buffers` of PostgreSQL as it is configured, if that is known in bytes.
    pub buffers: Option<Bytes>,
}

impl Demand {
    /// Makes a demand without a page size, for a service that does not run.
    fn new(
        what: impl Into<String>,
        mappings: Vec<EqualMappings>,
        place: PageSource,
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

/// Equal mappings: their number and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EqualMappings {
    pub count: u64,
    /// Bytes of each.
    #[serde(rename(serialize = "each_bytes"))]
    pub bytes: Bytes,
}

impl EqualMappings {
    pub const fn single(bytes: Bytes) -> EqualMappings {
        EqualMappings { bytes, count: 1 }
    }
}

hugeleaf_units::named! {
    /// Source of huge pages for some memory.
    #[derive(Deserialize)]
    pub enum PageSource {
        /// The pool: the program requests hugetlb pages itself, or through `hugeleaf run`.
        Pool = "pool",
        /// Transparent huge pages only.
        Thp = "thp",
    }
}
