//! Plans made, written, read again, compared with hosts and turned into steps.

mod checks;
mod files;
mod kubernetes;
mod made;
mod promises;
mod settings;

use std::path::Path;
use std::time::Duration;

use hugeleaf_host::demand::{
    Demand, EqualMappings, HugePageRequirement, PageSource, Service, ServiceKind, User,
};
use hugeleaf_host::{Fact, Host, HostIdentity, OrphanKind, OrphanedHugetlb, PageUsage, SysctlLine};
use hugeleaf_units::{Bytes, PageKind, Pages};

use super::*;
use hugeleaf_testkit::healthy_host_fixture::{arm64_16k, gib, healthy, pool, size, thp, word};

const GIB: u64 = 1 << 30;

/// Returns a host with 64 GiB on two nodes, 24 GiB used, empty pools.
fn host() -> Host {
    let mut host = healthy();
    host.pools = ["2M", "1G"]
        .iter()
        .flat_map(|text| [None, Some(0), Some(1)].map(|node| pool(text, node, 0)))
        .collect();
    host.limits.hugetlb_shm_group = Fact::Known(0);
    host
}

fn identity() -> HostIdentity {
    HostIdentity {
        name: word("db1"),
        id: word("00112233445566778899aabbccddeeff"),
    }
}

/// Sets a pool: pages on each node, total pages in use, total pages promised.
fn fill(host: &mut Host, page: &str, each: u64, used: u64, promised: u64) {
    let nodes = host.nodes.len() as u64;
    for pool in host.pools.iter_mut().filter(|p| p.size == size(page)) {
        let (total, used) = match pool.node {
            None => (each * nodes, used),
            Some(_) => (each, used / nodes),
        };
        pool.total = Fact::Known(Pages(total));
        pool.free = Fact::Known(Pages(total - used));
        if pool.node.is_none() {
            pool.reserved = Fact::Known(Pages(promised));
        }
    }
    // Memory in a pool is not available.
    let in_pools: u64 = host
        .pools
        .iter()
        .filter(|p| p.node.is_none())
        .map(|p| p.total.get().unwrap().in_bytes(p.size).get())
        .sum();
    host.memory.available = Fact::Known(Bytes(40 * GIB - in_pools));
}

fn demand(bytes: u64) -> Demand {
    Demand {
        what: "shared memory".to_owned(),
        mappings: vec![EqualMappings::single(Bytes(bytes))],
        place: PageSource::Pool,
        page: None,
        source: "somebody said so".to_owned(),
        held: None,
        buffers: None,
    }
}

fn service(name: &str, kind: ServiceKind, bytes: u64) -> Service {
    let mut service = Service::new(name, kind);
    service.demands = vec![demand(bytes)];
    service
}

/// Configures the service for pages of this size.
fn sized(mut service: Service, page: &str) -> Service {
    for demand in &mut service.demands {
        demand.page = Some(size(page));
    }
    service
}

/// Makes the service run, with its memory on pages of that kind.
fn running(mut service: Service, page: &str, kind: PageKind) -> Service {
    service.pids = vec![hugeleaf_host::Pid(100)];
    for demand in &mut service.demands {
        let bytes = demand.bytes();
        let page = size(page);
        let bytes = match kind {
            PageKind::Hugetlb => page.pages_for(bytes).in_bytes(page),
            _ => bytes,
        };
        demand.held = Some(vec![PageUsage {
            size: page,
            kind,
            bytes,
        }]);
    }
    service
}

fn user(uid: u32) -> User {
    User {
        name: Some(format!("user{uid}")),
        uid,
        gid: uid,
        groups: vec![uid],
        memlock: Fact::Known(Bytes::from_kib(64)),
        memlock_hard: Fact::Known(Bytes::from_kib(64)),
        ipc_lock: false,
    }
}

fn facts<'a>(host: &'a Host, identity: &'a HostIdentity) -> PlanFacts<'a> {
    PlanFacts {
        host,
        identity,
        grub_drop_ins: true,
        grub_text: "",
        tmpfiles: true,
        program: Path::new("/usr/bin/hugeleaf"),
        created_at: Some("2026-11-21T17:20:00Z"),
        in_force: &[],
        found: &[],
    }
}

fn planned(host: &Host, services: &[Service], wishes: &PlanOptions) -> Plan {
    let plan = build_plan(&facts(host, &identity()), services, wishes).unwrap();
    let text = written(&plan);
    assert_eq!(parse(&text).as_ref(), Ok(&plan), "{text}");
    plan
}

fn usual(host: &Host, services: &[Service]) -> Plan {
    planned(host, services, &PlanOptions::default())
}

/// Writes the plan for a host without hugeleaf files.
fn written(plan: &Plan) -> String {
    write(plan, |_| None)
}

/// Returns the pages of a plan's pools by node, as in `2M/0: 100`.
fn pools(plan: &Plan) -> Vec<String> {
    let one = |p: &PoolPlan| match p.node {
        Some(node) => format!("{}/{node}: {}", p.page, p.pages),
        None => format!("{}: {}", p.page, p.pages),
    };
    plan.pools.iter().map(one).collect()
}

/// Asserts that a line contains the part.
fn has(lines: &[String], part: &str) {
    assert!(
        lines.iter().any(|line| line.contains(part)),
        "no '{part}' in {lines:#?}"
    );
}

/// Compares with a file next to the sources; `HUGELEAF_BLESS=1` rewrites it.
fn compare(got: &str, name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/expected")
        .join(name);
    if std::env::var_os("HUGELEAF_BLESS").is_some() {
        std::fs::write(&file, got).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(got == expected, "{name} differs; it is now:\n{got}");
}

fn full() -> Plan {
    let mut host = host();
    thp(&mut host).shmem_enabled = word("never");
    let mut oracle = service("oracle", ServiceKind::SysV, 4 * GIB);
    oracle.user = Some(user(54321));
    let mut postgres = service("postgresql@15-main", ServiceKind::PostgreSql, 8 * GIB + 1);
    postgres.unit = Some("postgresql@15-main.service".to_owned());
    postgres.exec_start = Some("/usr/bin/postgres -D /srv/pg".to_owned());
    postgres.user = Some(user(26));
    postgres.huge_page_setting.requirement = HugePageRequirement::IfAvailable;
    postgres.huge_page_setting.text = "huge_pages = try".to_owned();
    let postgres = running(postgres, "4K", PageKind::Base);
    let cache = sized(service("cache", ServiceKind::Other, 2 * GIB), "1G");
    let big = service("big", ServiceKind::PostgreSql, 100 * GIB);
    let wishes = PlanOptions {
        run: Some("--stack 64K".to_owned()),
        environment: vec!["MALLOC_CONF=thp:always".to_owned()],
        mounts: vec![Mount {
            path: "/mnt/huge".into(),
            page: size("2M"),
            uid: Some(26),
            gid: Some(26),
            mode: 0o770,
            size: Some(Bytes(GIB)),
        }],
        ..PlanOptions::default()
    };
    let mut plan = planned(&host, &[oracle, postgres, cache, big], &wishes);
    keep(&mut plan, |path| {
        (path == Path::new("/etc/security/limits.d/60-hugeleaf.conf"))
            .then(|| format!("{OURS}\ndb2 soft memlock 100\nuser54321 soft memlock 7\n"))
    })
    .unwrap();
    plan
}
