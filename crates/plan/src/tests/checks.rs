//! Tests of plans compared with a host.

use super::*;
use hugeleaf_units::Failure;

fn plan() -> Plan {
    usual(&host(), &[service("a", ServiceKind::SysV, 4 * GIB)])
}

fn held(plan: &Plan, host: &Host, identity: &HostIdentity) -> Result<Vec<String>, Vec<String>> {
    let refused = |all: Vec<Failure>| {
        assert!(
            all.iter().all(|r| r.remedy.contains("hugeleaf plan")),
            "{all:?}"
        );
        all.into_iter().map(|r| r.message).collect()
    };
    check(
        plan,
        &CurrentHost {
            host,
            identity,
            in_force: &[],
        },
    )
    .map_err(refused)
}

#[test]
fn the_host_that_it_was_made_for() {
    assert_eq!(held(&plan(), &host(), &identity()), Ok(Vec::new()));
}

#[test]
fn another_host() {
    let other = HostIdentity {
        name: word("db2"),
        id: word("ff"),
    };
    let refused = held(&plan(), &host(), &other).unwrap_err();
    assert_eq!(
        refused,
        ["the plan is for the host db1, but this host is db2"]
    );
    // A renamed host is the same host.
    let renamed = HostIdentity {
        name: word("db2"),
        ..identity()
    };
    assert_eq!(held(&plan(), &host(), &renamed), Ok(Vec::new()));
    // A clone with the same name has another id.
    let clone = HostIdentity {
        id: word("ff"),
        ..identity()
    };
    has(
        &held(&plan(), &host(), &clone).unwrap_err(),
        "another host named db1",
    );
    // Without ids, only the name identifies the host.
    let unnamed = HostIdentity {
        name: word("db2"),
        id: Fact::Absent,
    };
    assert!(held(&plan(), &host(), &unnamed).is_err());
}

#[test]
fn another_machine() {
    let with = |change: &dyn Fn(&mut Host)| {
        let mut host = host();
        change(&mut host);
        held(&plan(), &host, &identity()).unwrap_err()
    };
    has(
        &with(&|h| h.arch = word("aarch64")),
        "the plan is for x86_64, but this host is aarch64",
    );
    has(&with(&|h| h.base_page = size("64K")), "base pages of 4K");
    has(
        &with(&|h| h.pools.retain(|p| p.size != size("2M"))),
        "cannot reserve pages of 2M",
    );
    let fewer = |h: &mut Host| {
        h.nodes = vec![0];
        h.pools.retain(|p| p.node != Some(1));
    };
    has(
        &with(&fewer),
        "pages on node 1, but this host has memory on only 1 nodes",
    );
}

#[test]
fn another_kernel_is_only_said() {
    let mut host = host();
    host.kernel = word("7.0.0");
    has(
        &held(&plan(), &host, &identity()).unwrap(),
        "made under Linux 6.12.0, but this is 7.0.0",
    );
}

#[test]
fn a_pool_on_its_way_may_go_on_and_one_that_somebody_changed_may_not() {
    let mut host = host();
    for pages in [0, 300, 1024] {
        fill(&mut host, "2M", pages, 0, 0);
        assert_eq!(held(&plan(), &host, &identity()), Ok(Vec::new()), "{pages}");
    }
    fill(&mut host, "2M", 1025, 0, 0);
    has(
        &held(&plan(), &host, &identity()).unwrap_err(),
        "the pool of 2M on node 0 has changed since the plan was made: 0 pages then, 1025 now, 1024 planned",
    );
}

#[test]
fn a_setting_that_somebody_changed() {
    let mut host = host();
    thp(&mut host).enabled = word("never");
    let mut redis = service("redis", ServiceKind::Redis, GIB);
    redis.demands[0].place = PageSource::Thp;
    let plan = usual(&host, &[redis]);
    assert!(held(&plan, &host, &identity()).is_ok());
    thp(&mut host).enabled = word("madvise");
    assert!(held(&plan, &host, &identity()).is_ok());
    thp(&mut host).enabled = word("always");
    has(
        &held(&plan, &host, &identity()).unwrap_err(),
        "never then, always now, madvise planned",
    );
}

#[test]
fn a_group_that_somebody_changed() {
    let mut host = host();
    let mut oracle = service("oracle", ServiceKind::SysV, GIB);
    oracle.user = Some(user(5));
    let plan = usual(&host, &[oracle]);
    host.limits.hugetlb_shm_group = Fact::Known(5);
    assert!(held(&plan, &host, &identity()).is_ok());
    host.limits.hugetlb_shm_group = Fact::Known(6);
    has(
        &held(&plan, &host, &identity()).unwrap_err(),
        "vm.hugetlb_shm_group has changed",
    );
}

#[test]
fn a_host_that_uses_much_more_by_now() {
    let mut host = host();
    let plan = usual(&host, &[service("a", ServiceKind::Other, 33 * GIB)]);
    // The margin is 6.4 G. It covers two more in use, but not four.
    host.memory.available = gib(38);
    assert!(held(&plan, &host, &identity()).is_ok());
    host.memory.available = gib(36);
    has(
        &held(&plan, &host, &identity()).unwrap_err(),
        "the host now uses 28G outside its pools, 24G when",
    );
    let forced = Plan {
        force: Some("they stop soon".to_owned()),
        ..plan
    };
    assert!(held(&forced, &host, &identity()).is_ok());
}

#[test]
fn a_host_that_has_committed_more_by_now() {
    let mut host = host();
    host.limits.overcommit_memory = Fact::Known(2);
    host.limits.overcommit_ratio = Fact::Known(50);
    host.memory.commit_limit = gib(32);
    host.memory.committed = gib(27);
    // The pools may grow by 4 G with a tenth of CommitLimit left, and by more with a twentieth.
    let plan = usual(&host, &[service("a", ServiceKind::Other, 20 * GIB)]);
    host.memory.committed = gib(28);
    assert_eq!(held(&plan, &host, &identity()), Ok(Vec::new()));
    host.memory.committed = gib(29);
    let refused = held(&plan, &host, &identity()).unwrap_err();
    has(
        &refused,
        "would let allocations fail: vm.overcommit_memory is 2",
    );
    let forced = Plan {
        force: Some("they stop soon".to_owned()),
        ..plan
    };
    assert!(held(&forced, &host, &identity()).is_err());
}
