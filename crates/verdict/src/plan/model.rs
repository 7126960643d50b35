//! The plan as a person reads and edits it: intents only. Paths and contents of files follow from
//! these by [`super::steps`], so an edited number cannot disagree with a file.
//!
//! Nothing here judges or writes; [`super::parse`] reads these types, [`super::write`] writes them.

use std::path::PathBuf;

use hugeleaf_host::demand::{Mappings, Place, ServiceKind};
use hugeleaf_units::{Bytes, PageKind, PageSize, Pages};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::read;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u64,
    /// When it was made, as in `2026-11-21T17:20:00Z`.
    pub made: Option<String>,
    /// Why less is left for base pages than the margin asks for: the reason that somebody gave.
    pub force: Option<String>,
    /// What the person should know or do; no step follows from these.
    #[serde(default)]
    pub notes: Vec<String>,
    pub host: ForHost,
    pub base: BasePages,
    #[serde(default, rename = "service")]
    pub services: Vec<ForService>,
    #[serde(default, rename = "pool")]
    pub pools: Vec<ForPool>,
    #[serde(default, rename = "knob")]
    pub knobs: Vec<Knob>,
    /// memlock limits of users (limits.conf(5)).
    #[serde(default, rename = "limit")]
    pub limits: Vec<Limit>,
    pub group: Option<Group>,
    #[serde(default, rename = "mount")]
    pub mounts: Vec<Mount>,
    #[serde(default, rename = "unit")]
    pub units: Vec<Unit>,
    pub boot: Option<Boot>,
    /// What plans that were in force when this one was made promise to services which are not in it.
    #[serde(default, rename = "promise")]
    pub promises: Vec<Promise>,
    /// What earlier plans put into files that this one writes again.
    #[serde(default, rename = "keep")]
    pub kept: Vec<Kept>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ForHost {
    pub name: Option<String>,
    /// A hash of its machine id; where it has none the other fields have to distinguish it.
    pub id: Option<String>,
    pub kernel: Option<String>,
    pub arch: Option<String>,
    #[serde(rename = "memory_bytes")]
    pub memory: Bytes,
    #[serde(deserialize_with = "read::size", skip_serializing)]
    pub base_page: PageSize,
    /// What a program gets that asks for a reserved page without naming a size.
    #[serde(default, deserialize_with = "read::some_size", skip_serializing)]
    pub default_page: Option<PageSize>,
    #[serde(deserialize_with = "read::sizes", skip_serializing)]
    pub pages: Vec<PageSize>,
    pub nodes: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BasePages {
    /// What the host has been using outside the pools: memory that is neither available nor in a
    /// pool.
    #[serde(rename = "used_bytes")]
    pub used: Bytes,
    /// The part of it that moves to the pools when the services restart.
    #[serde(rename = "moves_bytes")]
    pub moves: Bytes,
    #[serde(rename = "other_pools_bytes", default)]
    pub other_pools: Bytes,
    #[serde(rename = "margin_bytes")]
    pub margin: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ForService {
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
    /// What a person does so that it uses them, a line each.
    #[serde(default)]
    pub ways: Vec<String>,
    #[serde(default, rename = "demand", skip_serializing)]
    pub demands: Vec<ForDemand>,
}

impl ForService {
    pub fn pages(&self) -> impl Iterator<Item = PagesOf> {
        self.demands.iter().flat_map(|d| &d.pages).copied()
    }

    pub fn pages_of(&self, size: PageSize) -> Pages {
        let of_size = self.pages().filter(|p| p.page == size);
        of_size.map(|p| p.pages).sum()
    }

    /// What systemd, or else hugeleaf, knows it by.
    pub fn known_as(&self) -> &str {
        self.unit.as_deref().unwrap_or(&self.name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ForDemand {
    pub what: String,
    pub source: String,
    pub from: Place,
    /// The mappings, each of which is rounded up to whole pages by itself.
    #[serde(rename = "pieces")]
    pub mappings: Vec<Mappings>,
    #[serde(default, rename(serialize = "got"))]
    pub pages: Vec<PagesOf>,
    /// The pages that could not be planned for it, because base pages need the memory.
    #[serde(default)]
    pub missing: Vec<PagesOf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagesOf {
    #[serde(deserialize_with = "read::size")]
    pub page: PageSize,
    pub pages: Pages,
}

impl PagesOf {
    pub const fn new(page: PageSize, pages: Pages) -> PagesOf {
        PagesOf { page, pages }
    }

    #[must_use]
    pub fn times(self, count: u64) -> PagesOf {
        PagesOf::new(self.page, self.pages * count)
    }

    pub fn bytes(self) -> Bytes {
        self.pages.of(self.page)
    }
}

impl Serialize for PagesOf {
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
pub struct ForPool {
    #[serde(deserialize_with = "read::size", rename(serialize = "page_bytes"))]
    pub page: PageSize,
    /// The node; missing on a host that counts its pools for all nodes together only.
    pub node: Option<u32>,
    pub was: Option<Pages>,
    pub pages: Pages,
    #[serde(rename = "for", default)]
    pub services: Vec<String>,
    #[serde(default)]
    pub others: Pages,
    /// Pages of these that plans in force promise to services which are not in this plan.
    #[serde(default)]
    pub promised: Pages,
    /// Pages of these that were there when the plan was made and that nobody wanted: they stay, and
    /// are not asked for at the next boot.
    #[serde(default)]
    pub idle: Pages,
    /// Whether the guard may return pages of these that nobody uses to the kernel while memory is short, and take
    /// them again later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub give_back: bool,
}

impl ForPool {
    pub fn lasting(&self) -> Pages {
        self.pages - self.idle
    }
}

/// What an earlier plan promises to a service that is not in this one: its pages are not for
/// others, whether it runs or not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// The apply, by the number that `undo` knows it by.
    pub apply: u32,
    /// The service; missing where the plan of that apply cannot be read.
    pub name: Option<String>,
    #[serde(default)]
    pub pages: Vec<PagesOf>,
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
    /// Services that notice it only after a restart.
    #[serde(default, skip_serializing)]
    pub restart: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
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
pub struct Group {
    pub gid: u32,
    pub was: Option<u32>,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub path: PathBuf,
    #[serde(deserialize_with = "read::size")]
    pub page: PageSize,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Its permissions, as in `0770`.
    #[serde(deserialize_with = "read::mode")]
    pub mode: u32,
    /// The most that files on it may hold.
    #[serde(rename = "size_bytes")]
    pub size: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// The unit, as in `postgresql@15-main.service`.
    pub unit: String,
    /// How much it may lock (`LimitMEMLOCK=`).
    #[serde(rename = "memlock_bytes")]
    pub memlock: Option<Bytes>,
    /// Variables that it gets, as in `NAME=value`.
    #[serde(default)]
    pub environment: Vec<String>,
    pub exec_start: Option<String>,
    pub why: String,
}

/// Pages available for certain only before memory is fragmented.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// Pools of these sizes are filled by the kernel's command line.
    #[serde(deserialize_with = "read::sizes")]
    pub pages: Vec<PageSize>,
    /// Whether the boot loader reads drop-ins in /etc/default/grub.d. Otherwise the parameters are
    /// a thing for the person to do.
    pub grub_drop_in: bool,
}

/// Lines of a file of hugeleaf's that an earlier plan put there, and that this one says nothing of.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    pub path: PathBuf,
    pub lines: Vec<String>,
}

impl Plan {
    pub fn of_size(&self, size: PageSize) -> impl Iterator<Item = &ForPool> {
        self.pools.iter().filter(move |pool| pool.page == size)
    }

    /// What all pools come to, those that the plan leaves alone included.
    pub fn in_pools(&self) -> Bytes {
        let planned: Bytes = self.pools.iter().map(|p| p.pages.of(p.page)).sum();
        planned + self.base.other_pools
    }

    /// What stays for base pages beyond what is used there; `None` where the pools take more than
    /// there is.
    pub fn left(&self) -> Option<Bytes> {
        let used = self.base.used - self.base.moves;
        let taken = self.in_pools().get().checked_add(used.get())?;
        let left = self.host.memory.get().checked_sub(taken)?;
        Some(Bytes(left))
    }

    pub fn missing(&self) -> impl Iterator<Item = (&ForService, PagesOf)> {
        self.services.iter().flat_map(|service| {
            let missing = service.demands.iter().flat_map(|d| &d.missing);
            missing.map(move |pages| (service, *pages))
        })
    }

    /// What is left for a person to do, beyond the restarts and reboots that steps name.
    pub fn by_hand(&self) -> Vec<String> {
        let ways = self.services.iter().flat_map(|service| {
            let name = service.name.clone();
            service.ways.iter().map(move |way| format!("{name}: {way}"))
        });
        ways.chain(self.notes.iter().cloned()).collect()
    }
}
