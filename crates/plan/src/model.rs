//! The plan in its editable form: only intents. [`super::steps`] derives paths and contents of files from them,
//! so an edited number cannot disagree with a file.
//!
//! This module neither judges nor writes. [`super::parse`] reads these types, [`super::write`] writes them.

use std::path::PathBuf;

use hugeleaf_host::demand::{EqualMappings, PageSource, ServiceKind};
use hugeleaf_units::deserialize::some;
use hugeleaf_units::{Bytes, PageKind, PageSize, Pages};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::value_checks;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u64,
    /// Time of creation, as in `2026-11-21T17:20:00Z`.
    pub made: Option<String>,
    /// The user's reason for leaving base pages less than the margin.
    pub force: Option<String>,
    /// Notes and instructions for the user; no step follows from them.
    #[serde(default)]
    pub notes: Vec<String>,
    pub host: TargetHost,
    pub base: BaseMemory,
    #[serde(default, rename = "service")]
    pub services: Vec<ServicePlan>,
    #[serde(default, rename = "pool")]
    pub pools: Vec<PoolPlan>,
    #[serde(default, rename = "knob")]
    pub knobs: Vec<Knob>,
    /// memlock limits of users (limits.conf(5)).
    #[serde(default, rename = "limit")]
    pub limits: Vec<UserMemlock>,
    pub group: Option<ShmGroupSetting>,
    #[serde(default, rename = "mount")]
    pub mounts: Vec<Mount>,
    #[serde(default, rename = "unit")]
    pub units: Vec<UnitDropIn>,
    pub boot: Option<BootPools>,
    /// Promises of the plans in force at creation to services outside this plan.
    #[serde(default, rename = "promise")]
    pub promises: Vec<PromisedPages>,
    /// Lines of earlier plans in files that this plan rewrites.
    #[serde(default, rename = "keep")]
    pub kept: Vec<KeptLines>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TargetHost {
    pub name: Option<String>,
    /// A hash of the machine id. Without one, the other fields identify the host.
    pub id: Option<String>,
    pub kernel: Option<String>,
    pub arch: Option<String>,
    #[serde(rename = "memory_bytes")]
    pub memory: Bytes,
    #[serde(deserialize_with = "value_checks::size", skip_serializing)]
    pub base_page: PageSize,
    /// The page size of a hugetlb request without a size.
    #[serde(default, deserialize_with = "some", skip_serializing)]
    pub default_page: Option<PageSize>,
    #[serde(deserialize_with = "value_checks::sizes", skip_serializing)]
    pub pages: Vec<PageSize>,
    pub nodes: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BaseMemory {
    /// Memory in use outside the pools: neither available nor in a pool.
    #[serde(rename = "used_bytes")]
    pub used: Bytes,
    /// The part of it that moves to the pools when the services restart.
    #[serde(rename = "to_pools_bytes", alias = "moves_bytes")]
    pub moves: Bytes,
    #[serde(rename = "other_pools_bytes", default)]
    pub other_pools: Bytes,
    #[serde(rename = "margin_bytes")]
    pub margin: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServicePlan {
    pub name: String,
    pub kind: ServiceKind,
    pub unit: Option<String>,
    pub user: Option<String>,
    pub configured_by: Option<PathBuf>,
    #[serde(skip_serializing)]
    pub node: Option<u32>,
    #[serde(default, skip_serializing)]
    pub runs: bool,
    #[serde(default)]
    pub restart: bool,
    /// Manual changes that make the service use the pages, one line each.
    #[serde(default)]
    pub ways: Vec<String>,
    #[serde(default, rename = "demand", skip_serializing)]
    pub demands: Vec<DemandPlan>,
}

impl ServicePlan {
    pub fn pages(&self) -> impl Iterator<Item = PageCount> {
        self.demands.iter().flat_map(|d| &d.pages).copied()
    }

    pub fn pages_of(&self, size: PageSize) -> Pages {
        let of_size = self.pages().filter(|p| p.page == size);
        of_size.map(|p| p.pages).sum()
    }

    /// Returns the systemd unit, or else the name in hugeleaf.
    pub fn known_as(&self) -> &str {
        self.unit.as_deref().unwrap_or(&self.name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DemandPlan {
    pub what: String,
    pub source: String,
    pub from: PageSource,
    /// The mappings, each rounded up to whole pages separately.
    #[serde(rename = "mappings", alias = "pieces")]
    pub mappings: Vec<EqualMappings>,
    #[serde(default, rename(serialize = "got"))]
    pub pages: Vec<PageCount>,
    /// Pages that could not be planned because base pages need the memory.
    #[serde(default)]
    pub missing: Vec<PageCount>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageCount {
    #[serde(deserialize_with = "value_checks::size")]
    pub page: PageSize,
    pub pages: Pages,
}

impl PageCount {
    pub const fn new(page: PageSize, pages: Pages) -> PageCount {
        PageCount { page, pages }
    }

    #[must_use]
    pub fn times(self, count: u64) -> PageCount {
        PageCount::new(self.page, self.pages * count)
    }

    pub fn bytes(self) -> Bytes {
        self.pages.in_bytes(self.page)
    }
}

impl Serialize for PageCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("PagesOf", 4)?;
        fields.serialize_field("page_bytes", &self.page)?;
        fields.serialize_field("kind", &PageKind::Hugetlb)?;
        fields.serialize_field("pages", &self.pages)?;
        fields.serialize_field("bytes", &self.bytes())?;
        fields.end()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PoolPlan {
    #[serde(
        deserialize_with = "value_checks::size",
        rename(serialize = "page_bytes")
    )]
    pub page: PageSize,
    /// The node; `None` on a host that only counts pools of all nodes together.
    pub node: Option<u32>,
    pub was: Option<Pages>,
    pub pages: Pages,
    #[serde(rename = "for", default)]
    pub services: Vec<String>,
    #[serde(default)]
    pub others: Pages,
    /// Pages promised by plans in force to services outside this plan.
    #[serde(default)]
    pub promised: Pages,
    /// Idle pages at the time of planning that nobody wanted. They stay, but are not requested at the next boot.
    #[serde(default)]
    pub idle: Pages,
    /// True if the guard may return unused pages to the kernel while memory is short, and reclaim them later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub give_back: bool,
}

impl PoolPlan {
    pub fn lasting(&self) -> Pages {
        self.pages - self.idle
    }
}

/// The promise of an earlier plan to a service outside this one. Its pages are not for others, even while it is
/// stopped.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromisedPages {
    /// The apply, by the number for `undo`.
    pub apply: u32,
    /// The service; `None` if the plan of that apply cannot be read.
    pub name: Option<String>,
    #[serde(default)]
    pub pages: Vec<PageCount>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Knob {
    /// Its file, below /proc/sys or /sys.
    pub path: PathBuf,
    pub was: Option<String>,
    pub now: String,
    pub why: String,
    pub risk: String,
    /// Services that notice the change only after a restart.
    #[serde(default, skip_serializing)]
    pub restart: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserMemlock {
    pub user: String,
    #[serde(rename = "was_bytes")]
    pub was: Option<Bytes>,
    #[serde(rename = "memlock_bytes")]
    pub memlock: Bytes,
    pub why: String,
}

/// `vm.hugetlb_shm_group`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShmGroupSetting {
    pub gid: u32,
    pub was: Option<u32>,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub path: PathBuf,
    #[serde(deserialize_with = "value_checks::size")]
    pub page: PageSize,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Its permissions, as in `0770`.
    #[serde(deserialize_with = "value_checks::mode")]
    pub mode: u32,
    /// Maximum size of its files together.
    #[serde(rename = "size_bytes")]
    pub size: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitDropIn {
    /// The unit, as in `postgresql@15-main.service`.
    pub unit: String,
    /// Maximum locked memory (`LimitMEMLOCK=`).
    #[serde(rename = "memlock_bytes")]
    pub memlock: Option<Bytes>,
    /// Its variables, as in `NAME=value`.
    #[serde(default)]
    pub environment: Vec<String>,
    pub exec_start: Option<String>,
    pub why: String,
}

/// Pages that are guaranteed only before memory is fragmented.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootPools {
    /// Sizes of the pools that the kernel command line fills.
    #[serde(deserialize_with = "value_checks::sizes")]
    pub pages: Vec<PageSize>,
    /// True if the boot loader reads drop-ins in /etc/default/grub.d. Otherwise the user must set the parameters.
    pub grub_drop_in: bool,
}

/// Lines of an earlier plan in a hugeleaf file that this plan does not set.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptLines {
    pub path: PathBuf,
    pub lines: Vec<String>,
}

impl Plan {
    pub fn of_size(&self, size: PageSize) -> impl Iterator<Item = &PoolPlan> {
        self.pools.iter().filter(move |pool| pool.page == size)
    }

    /// Returns the size of all pools, including those that the plan does not change.
    pub fn in_pools(&self) -> Bytes {
        let planned: Bytes = self.pools.iter().map(|p| p.pages.in_bytes(p.page)).sum();
        planned + self.base.other_pools
    }

    /// Returns the memory that remains for base pages beyond their current use; `None` if the pools exceed the
    /// memory.
    pub fn left(&self) -> Option<Bytes> {
        let used = self.base.used - self.base.moves;
        let taken = self.in_pools().get().checked_add(used.get())?;
        let left = self.host.memory.get().checked_sub(taken)?;
        Some(Bytes(left))
    }

    pub fn missing(&self) -> impl Iterator<Item = (&ServicePlan, PageCount)> {
        self.services.iter().flat_map(|service| {
            let missing = service.demands.iter().flat_map(|d| &d.missing);
            missing.map(move |pages| (service, *pages))
        })
    }

    /// Returns the manual tasks, besides the restarts and reboots that steps name.
    pub fn by_hand(&self) -> Vec<String> {
        let ways = self.services.iter().flat_map(|service| {
            let name = service.name.clone();
            service.ways.iter().map(move |way| format!("{name}: {way}"))
        });
        ways.chain(self.notes.iter().cloned()).collect()
    }
}
