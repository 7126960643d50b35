//! The table of situations (`can_take.toml`), and answers that are no verdict.

use std::collections::BTreeSet;

use hugeleaf_host::demand::CacheNodes;
use hugeleaf_host::{
    Fact, Host, HugetlbCgroup, HugetlbLimit, HugetlbfsMount, MemoryLimit, OrphanKind,
    OrphanedHugetlb, Pool, ProcessMemoryLimits, ReadError,
};
use hugeleaf_testkit::healthy_host_fixture::{healthy, pool, size};
use hugeleaf_units::{Bytes, Failure, Ladder, Pages};
use serde::Deserialize;

use super::*;

/// A size as a number or a text.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Size {
    Number(u64),
    Text(String),
}

impl Size {
    fn bytes(&self) -> Bytes {
        match self {
            Size::Number(bytes) => Bytes(*bytes),
            Size::Text(text) if text == "unlimited" => Bytes(u64::MAX),
            Size::Text(text) => text.parse().unwrap(),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Situations {
    situation: Vec<Situation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Situation {
    name: String,
    #[serde(default, rename = "source")]
    _source: String,
    host: HostFigures,
    request: RequestFigures,
    #[serde(default)]
    process: ProcessFigures,
    answer: String,
    decides: String,
    short: Option<Size>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostFigures {
    memory: Size,
    available: Size,
    #[serde(default)]
    pools: Vec<PoolFigures>,
    default: Option<String>,
    #[serde(default)]
    leftovers: Vec<LeftoverFigures>,
    #[serde(default)]
    mounts: Vec<MountFigures>,
    overcommit_memory: Option<u64>,
    commit_limit: Option<Size>,
    committed: Option<Size>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolFigures {
    size: String,
    total: Size,
    free: Option<Size>,
    reserved: Option<Size>,
    surplus: Option<Size>,
    overcommit: Option<Size>,
    /// Pages on each node, all free.
    #[serde(default)]
    nodes: Vec<Size>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftoverFigures {
    size: String,
    bytes: Size,
    path: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MountFigures {
    path: String,
    size: String,
    limit: Size,
    usage: Size,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestFigures {
    bytes: Size,
    sizes: String,
    ranks: Option<u64>,
    nodes: Option<String>,
    pin: Option<String>,
    mount: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessFigures {
    memlock: Option<Size>,
    address_space: Option<Size>,
    #[serde(default)]
    ipc_lock: bool,
    memory_limit: Option<Size>,
    memory_usage: Option<Size>,
    #[serde(default)]
    memory_counts_pools: bool,
    #[serde(default)]
    hugetlb: Vec<HugetlbFigures>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HugetlbFigures {
    size: String,
    fault_limit: Option<Size>,
    fault_usage: Option<Size>,
    reservation_limit: Option<Size>,
}

impl PoolFigures {
    fn pools(&self) -> Vec<Pool> {
        let page = size(&self.size);
        let pages = |bytes: &Size| Pages(bytes.bytes().get() / page.bytes().get());
        let known = |figure: &Option<Size>| Fact::Known(figure.as_ref().map_or(Pages(0), pages));
        let total = Fact::Known(pages(&self.total));
        let all = Pool {
            total: total.clone(),
            free: self
                .free
                .as_ref()
                .map_or(total, |free| Fact::Known(pages(free))),
            reserved: known(&self.reserved),
            surplus: known(&self.surplus),
            overcommit: known(&self.overcommit),
            ..pool(&self.size, None, 0)
        };
        let node = |(node, bytes): (u32, &Size)| Pool {
            free: Fact::Known(pages(bytes)),
            reserved: Fact::Absent,
            overcommit: Fact::Absent,
            ..pool(&self.size, Some(node), pages(bytes).get())
        };
        let nodes = (0..).zip(&self.nodes).map(node);
        std::iter::once(all).chain(nodes).collect()
    }
}

impl HostFigures {
    fn host(&self) -> Host {
        let mut host = healthy();
        let known = |figure: &Option<Size>| figure.as_ref().map(Size::bytes).into();
        host.memory.total = Fact::Known(self.memory.bytes());
        host.memory.available = Fact::Known(self.available.bytes());
        host.memory.default_hugetlb_page =
            Fact::Known(size(self.default.as_deref().unwrap_or("2M")));
        host.memory.commit_limit = known(&self.commit_limit);
        host.memory.committed = known(&self.committed);
        host.limits.overcommit_memory = Fact::Known(self.overcommit_memory.unwrap_or(0));
        host.pools = self.pools.iter().flat_map(PoolFigures::pools).collect();
        let nodes = self.pools.iter().map(|pool| pool.nodes.len()).max();
        host.nodes = (0..).take(nodes.unwrap_or(0).max(1)).collect();
        let leftover = |one: &LeftoverFigures| OrphanedHugetlb {
            size: size(&one.size),
            bytes: one.bytes.bytes(),
            uid: 0,
            owner: Some("root".to_owned()),
            kind: OrphanKind::File {
                path: one.path.clone(),
            },
        };
        host.leftovers = Fact::Known(self.leftovers.iter().map(leftover).collect());
        host
    }

    fn mounts(&self) -> Vec<HugetlbfsMount> {
        let mount = |one: &MountFigures| HugetlbfsMount {
            path: one.path.clone(),
            page: size(&one.size),
            limit: Some(one.limit.bytes()),
            usage: Fact::Known(one.usage.bytes()),
        };
        self.mounts.iter().map(mount).collect()
    }
}

impl ProcessFigures {
    fn limits(&self) -> ProcessMemoryLimits {
        let memory = self.memory_limit.as_ref().map(|limit| MemoryLimit {
            version: 2,
            path: "/kubepods/a".to_owned(),
            file: "/sys/fs/cgroup/kubepods/a/memory.max".to_owned(),
            limit: limit.bytes(),
            usage: self.memory_usage.as_ref().map_or(Bytes::ZERO, Size::bytes),
            inactive_cache: Bytes::ZERO,
            active_cache: Bytes::ZERO,
            only_throttles: false,
        });
        let known = |figure: &Option<Size>| Fact::Known(figure.as_ref().map(Size::bytes));
        let limit = |one: &HugetlbFigures| HugetlbLimit {
            size: size(&one.size),
            fault_limit: known(&one.fault_limit),
            fault_usage: one.fault_usage.as_ref().map(Size::bytes).into(),
            reservation_limit: known(&one.reservation_limit),
            reservation_usage: Fact::Absent,
            hits: Fact::Absent,
        };
        let group = HugetlbCgroup {
            version: 2,
            path: "/kubepods/a".to_owned(),
            folder: "/sys/fs/cgroup/kubepods/a".to_owned(),
            hugetlb: self.hugetlb.iter().map(limit).collect(),
        };
        ProcessMemoryLimits {
            hugetlb: vec![group],
            memory: memory.into_iter().collect(),
            memlock: self.memlock.as_ref().map(Size::bytes).into(),
            address_space: self.address_space.as_ref().map(Size::bytes).into(),
            memory_counts_pools: self.memory_counts_pools,
            is_in_container: false,
        }
    }
}

impl RequestFigures {
    fn request(&self) -> CacheRequest {
        let ladder: Ladder = self.sizes.parse().unwrap();
        CacheRequest {
            bytes: self.bytes.bytes(),
            sizes: ladder.rungs().to_vec(),
            nodes: match self.nodes.as_deref() {
                None => CacheNodes::Any,
                Some("each") => CacheNodes::Each,
                Some(node) => CacheNodes::One(node.parse().unwrap()),
            },
            ranks: self.ranks,
            pin: self.pin.as_deref().map(|pin| match pin {
                "whole" => Pinning::Whole,
                size => Pinning::Pieces(size.parse().unwrap()),
            }),
            mount: self.mount.clone(),
            margin: None,
        }
    }
}

fn situations() -> Vec<Situation> {
    let table: Situations = toml::from_str(include_str!("can_take.toml")).unwrap();
    table.situation
}

impl Situation {
    fn answer(&self) -> CanTake {
        let (host, limits, mounts) = (self.host.host(), self.process.limits(), self.host.mounts());
        let facts = CacheFacts {
            host: &host,
            limits: &limits,
            ipc_lock: self.process.ipc_lock,
            mounts: &mounts,
        };
        can_take(&facts, &self.request.request()).unwrap()
    }

    /// Compares the answer with the table. Returns the difference.
    fn wrong(&self) -> Option<String> {
        let answer = self.answer();
        let word = if answer.can_take { "yes" } else { "no" };
        let decides = &answer.decides;
        let short = self.short.as_ref().map(Size::bytes);
        let is_right = word == self.answer
            && decides.id.name() == self.decides
            && short.is_none_or(|short| short == decides.short);
        (!is_right).then(|| {
            let (name, short) = (&self.name, decides.short.get());
            format!(
                "{name}: {word}, {}, {short} short: {answer:#?}",
                decides.id.name()
            )
        })
    }
}

#[test]
fn every_situation_has_the_right_answer() {
    let all = situations();
    assert!(all.len() >= 30, "{}", all.len());
    let wrong: Vec<String> = all.iter().filter_map(Situation::wrong).collect();
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn a_no_says_what_to_do_and_a_yes_has_pages() {
    for one in situations() {
        let answer = one.answer();
        assert_eq!(
            answer.decides.next.is_none(),
            answer.can_take,
            "{}",
            one.name
        );
        assert!(
            answer.decides.text.ends_with('.'),
            "{}",
            answer.decides.text
        );
        let placed: Bytes = answer.pages.iter().map(PlacedPages::bytes).sum();
        let asked = one.request.bytes.bytes();
        assert!(!answer.can_take || placed >= asked, "{}", one.name);
        // One number decides, and it is the first that is too small.
        let failed = answer.checks.iter().find(|check| !check.ok);
        assert_eq!(failed.is_none(), answer.can_take, "{}", one.name);
    }
}

/// Each check and cause decides somewhere, so that none is dead.
#[test]
fn every_number_decides_somewhere() {
    let named: BTreeSet<String> = situations().into_iter().map(|one| one.decides).collect();
    for id in CheckId::ALL {
        assert!(named.contains(id.name()), "{}", id.name());
    }
}

fn small() -> (Host, CacheRequest) {
    let mut host = healthy();
    host.pools = vec![Pool {
        free: Fact::Known(Pages(1024)),
        ..pool("2M", None, 1024)
    }];
    host.nodes = vec![0];
    let request = CacheRequest {
        bytes: Bytes(1 << 30),
        sizes: "2M".parse::<Ladder>().unwrap().rungs().to_vec(),
        nodes: CacheNodes::Any,
        ranks: None,
        pin: None,
        mount: None,
        margin: None,
    };
    (host, request)
}

fn refused(host: &Host, limits: &ProcessMemoryLimits, request: &CacheRequest) -> Failure {
    let facts = CacheFacts {
        host,
        limits,
        ipc_lock: false,
        mounts: &[],
    };
    can_take(&facts, request).unwrap_err()
}

#[test]
fn an_unreadable_number_is_no_answer() {
    let none = ProcessMemoryLimits::default();
    let denied = || ReadError::new("/sys/x".into(), "denied");
    let (mut host, request) = small();
    host.pools[0].free = Fact::Unreadable(denied());
    let failure = refused(&host, &none, &request);
    assert_eq!(failure.status, 3, "{failure}");
    assert!(failure.message.contains("/sys/x"), "{failure}");

    let (host, mut request) = small();
    request.pin = Some(Pinning::Whole);
    assert_eq!(refused(&host, &none, &request).status, 3);

    let (host, request) = small();
    let mut limits = situations().remove(0).process.limits();
    limits.hugetlb[0].hugetlb = vec![HugetlbLimit {
        size: size("2M"),
        fault_limit: Fact::Unreadable(denied()),
        fault_usage: Fact::Absent,
        reservation_limit: Fact::Known(None),
        reservation_usage: Fact::Absent,
        hits: Fact::Absent,
    }];
    assert_eq!(refused(&host, &limits, &request).status, 3);
}

#[test]
fn requests_that_cannot_be_meant_are_refused() {
    let none = ProcessMemoryLimits::default();
    let (host, request) = small();
    for wrong in [
        CacheRequest {
            bytes: Bytes::ZERO,
            ..request.clone()
        },
        CacheRequest {
            nodes: CacheNodes::One(7),
            ..request.clone()
        },
        CacheRequest {
            mount: Some("/mnt".to_owned()),
            ..request
        },
    ] {
        assert_eq!(refused(&host, &none, &wrong).status, 2, "{wrong:?}");
    }
}
