//! Tests that knobs, permissions and manual changes are proposed only if a service gains.

use super::*;
use hugeleaf_host::{HugetlbCgroup, HugetlbLimit};
use hugeleaf_verdict::advice::{AcceptedValues, SettingRequirement};

fn knobs(plan: &Plan) -> Vec<String> {
    let one = |k: &Knob| {
        let name = k.path.display().to_string();
        let name = name
            .rsplit("transparent_hugepage/")
            .next()
            .unwrap()
            .to_owned();
        format!("{name}: {} -> {}", k.was.clone().unwrap_or_default(), k.now)
    };
    for knob in &plan.knobs {
        assert!(!knob.why.is_empty() && !knob.risk.is_empty());
    }
    plan.knobs.iter().map(one).collect()
}

fn private(bytes: u64) -> Service {
    let mut service = service("redis", ServiceKind::Redis, bytes);
    service.demands[0].place = PageSource::Thp;
    service
}

/// A plan omits a setting that a running program wants otherwise, and reports it.
#[test]
fn what_a_running_program_wants_otherwise_is_left_out() {
    let mut host = host();
    thp(&mut host).enabled = word("never");
    let (path, identity) = (hugeleaf_host::thp_file("enabled"), identity());
    for (wanted, set, said) in [
        ("never", &[][..], true),
        ("madvise", &["enabled: never -> madvise"], false),
    ] {
        host.wants = vec![SettingRequirement {
            who: "Redis".to_owned(),
            file: path.clone(),
            values: AcceptedValues::OneOf(vec![wanted.to_owned()]),
        }];
        let facts = facts(&host, &identity);
        let plan = build_plan(&facts, &[private(GIB)], &PlanOptions::default()).unwrap();
        assert_eq!(knobs(&plan), set);
        let says = |note: &String| note.contains("is not set to madvise: Redis wants never");
        assert_eq!(plan.notes.iter().any(says), said, "{:?}", plan.notes);
    }
}

#[test]
fn shared_memory_that_the_pool_cannot_hold_gets_the_shmem_knob() {
    let big = || service("pg", ServiceKind::PostgreSql, 60 * GIB);
    let mut host = host();
    thp(&mut host).shmem_enabled = word("never");
    assert_eq!(
        knobs(&usual(&host, &[big()])),
        ["shmem_enabled: never -> advise"]
    );
    // Not if the pool holds it,
    let small = service("pg", ServiceKind::PostgreSql, GIB);
    assert_eq!(knobs(&usual(&host, &[small])), [""; 0]);
    // nor if its memory is private,
    let mariadb = service("db", ServiceKind::MariaDb, 60 * GIB);
    assert_eq!(knobs(&usual(&host, &[mariadb])), [""; 0]);
    // nor if the setting is on.
    thp(&mut host).shmem_enabled = word("advise");
    assert_eq!(knobs(&usual(&host, &[big()])), [""; 0]);
    // A size with its own setting ignores the top-level one.
    thp(&mut host).orders[1].shmem = word("never");
    let plan = usual(&host, &[running(big(), "4K", PageKind::Base)]);
    assert_eq!(
        knobs(&plan),
        ["hugepages-2048kB/shmem_enabled: never -> advise"]
    );
    assert_eq!(plan.knobs[0].restart, ["pg"]);
}

#[test]
fn private_memory_gets_the_thp_knob_where_it_is_off() {
    let mut host = host();
    assert_eq!(knobs(&usual(&host, &[private(GIB)])), [""; 0]);
    thp(&mut host).enabled = word("never");
    let plan = usual(&host, &[private(GIB)]);
    assert_eq!(knobs(&plan), ["enabled: never -> madvise"]);
    assert_eq!(plan.pools, []);
    let shared = service("pg", ServiceKind::PostgreSql, GIB);
    assert_eq!(knobs(&usual(&host, &[shared])), [""; 0]);
}

/// On arm64 with 16K base pages, up to 32M at each end of a mapping have no other huge page.
#[test]
fn ends_of_mappings_get_the_size_that_the_processor_translates_as_one() {
    let mut host = arm64_16k();
    let plan = usual(&host, &[private(GIB)]);
    assert_eq!(knobs(&plan), ["hugepages-2048kB/enabled: never -> inherit"]);
    assert!(plan.knobs[0].why.contains("up to 32M at each end"));
    // Not if the size is on, nor for pool memory.
    thp(&mut host).orders[1].anon = word("madvise");
    assert_eq!(knobs(&usual(&host, &[private(GIB)])), [""; 0]);
}

#[test]
fn khugepaged_goes_faster_where_it_would_take_hours() {
    // 16 MiB every 10 s: an hour for 5.6 GiB.
    let host = host();
    assert_eq!(knobs(&usual(&host, &[private(5 * GIB)])), [""; 0]);
    let plan = usual(&host, &[private(12 * GIB)]);
    assert_eq!(
        knobs(&plan),
        ["khugepaged/scan_sleep_millisecs: 10000 -> 1000"]
    );
    has(&[plan.knobs[0].why.clone()], "needs 2 hours for 12G");
}

#[test]
fn stacks_get_their_size_where_run_starts_the_program() {
    let host = host();
    let mut one = [service("a", ServiceKind::PostgreSql, GIB)];
    one[0].unit = Some("a.service".to_owned());
    one[0].exec_start = Some("/usr/bin/a".to_owned());
    assert_eq!(knobs(&usual(&host, &one)), [""; 0]);
    let wishes = PlanOptions {
        run: Some(String::new()),
        ..PlanOptions::default()
    };
    let plan = planned(&host, &one, &wishes);
    assert_eq!(knobs(&plan), ["hugepages-64kB/enabled: never -> madvise"]);
    let mover = [sized(service("tsm", ServiceKind::Mover, GIB), "1G")];
    let plan = usual(&host, &mover);
    assert_eq!(knobs(&plan), ["hugepages-64kB/enabled: never -> madvise"]);
    has(&plan.services[0].ways, "--data hugetlb:1G --stack 64K");
}

#[test]
fn segments_larger_than_the_kernel_allows() {
    let mut host = host();
    let segment = [service("a", ServiceKind::SysV, GIB)];
    host.limits.shmmax = Fact::Known(Bytes(GIB));
    host.limits.shmall = Fact::Known(Pages(GIB / 4096)); // not a page size of ours: that of the host in the test
    assert_eq!(knobs(&usual(&host, &segment)), [""; 0]);
    host.limits.shmmax = Fact::Known(Bytes(GIB - 1));
    host.limits.shmall = Fact::Known(Pages(1));
    let plan = usual(&host, &segment);
    assert_eq!(
        knobs(&plan),
        [
            "/proc/sys/kernel/shmmax: 1073741823 -> 1073741824",
            "/proc/sys/kernel/shmall: 1 -> 262144"
        ]
    );
    let all = steps(&plan);
    let sysctl = all.iter().find(|s| s.id == "sysctl").unwrap();
    assert!(
        matches!(&sysctl.what, StepAction::File { text, .. } if text.contains("\nkernel.shmmax = 1073741824\n"))
    );
}

fn limited(path: &str, version: u8, most: u64) -> HugetlbCgroup {
    HugetlbCgroup {
        version,
        path: path.to_owned(),
        folder: format!("/sys/fs/cgroup{path}"),
        hugetlb: vec![HugetlbLimit {
            size: size("2M"),
            fault_limit: Fact::Known(Some(Bytes(most))),
            fault_usage: Fact::Known(Bytes(0)),
            reservation_limit: Fact::Known(None),
            reservation_usage: Fact::Known(Bytes(0)),
            hits: Fact::Known(0),
        }],
    }
}

#[test]
fn limits_of_cgroups_above_the_service_are_raised() {
    let mut host = host();
    let groups = vec![limited("/pods/one", 2, GIB), limited("/pods", 2, 2 * GIB)];
    host.cgroups = Fact::Known(groups.clone());
    let mut pod = service("one", ServiceKind::Container, 2 * GIB);
    pod.limits.hugetlb = groups;
    let plan = usual(&host, &[pod]);
    assert_eq!(
        knobs(&plan),
        ["/sys/fs/cgroup/pods/one/hugetlb.2MB.max: 1073741824 -> 2147483648"]
    );
    has(
        &plan.services[0].ways,
        "resources.limits and resources.requests: hugepages-2Mi: 2048Mi",
    );
    // The creator of the cgroup recreates it after a reboot, so no file could hold the setting.
    assert!(!steps(&plan).iter().any(|s| s.id == "tmpfiles"));
    assert!(
        matches!(&check(&plan, &CurrentHost { host: &host, identity: &identity(), in_force: &[] }), Ok(none) if none.is_empty())
    );
}

#[test]
fn a_user_without_rights_gets_the_group_and_memlock() {
    let mut host = host();
    let mut oracle = service("oracle", ServiceKind::SysV, GIB);
    oracle.user = Some(user(54321));
    let plan = usual(&host, &[oracle.clone()]);
    assert_eq!(plan.group.as_ref().unwrap().gid, 54321);
    assert_eq!(plan.limits[0].user, "user54321");
    assert_eq!(plan.limits[0].memlock, Bytes(GIB));
    let why = &plan.limits[0].why;
    for part in ["has no CAP_IPC_LOCK", "is not in group 0", "may lock 64K"] {
        assert!(why.contains(part), "{why}");
    }
    // limits.conf has no effect on a unit, so the limit goes into the drop-in.
    oracle.unit = Some("oracle.service".to_owned());
    let plan = usual(&host, &[oracle.clone()]);
    assert_eq!(plan.limits, []);
    assert_eq!(plan.units[0].memlock, Some(Bytes(GIB)));
    oracle.unit = None;
    // A configured group stays.
    host.limits.hugetlb_shm_group = Fact::Known(7);
    let plan = usual(&host, &[oracle.clone()]);
    assert_eq!((plan.group, plan.limits.len()), (None, 1));
    // A member of the group does not need it.
    oracle.user.as_mut().unwrap().groups.push(7);
    oracle.user.as_mut().unwrap().memlock = Fact::Known(Bytes(GIB));
    let plan = usual(&host, &[oracle]);
    assert_eq!((plan.group, plan.limits.len()), (None, 0));
}

#[test]
fn whoever_may_do_all_or_maps_its_memory_needs_no_right() {
    let with = |change: &dyn Fn(&mut Service)| {
        let mut one = service("a", ServiceKind::SysV, GIB);
        one.user = Some(user(1));
        change(&mut one);
        let plan = usual(&host(), &[one]);
        (plan.group.is_some(), plan.limits.len())
    };
    assert_eq!(with(&|_| ()), (true, 1));
    assert_eq!(with(&|s| s.user = Some(user(0))), (false, 0));
    assert_eq!(
        with(&|s| s.user.as_mut().unwrap().ipc_lock = true),
        (false, 0)
    );
    assert_eq!(with(&|s| s.kind = ServiceKind::PostgreSql), (false, 0));
    assert_eq!(with(&|s| s.kind = ServiceKind::MariaDb), (false, 0));
    let mysql = |s: &mut Service| {
        s.kind = ServiceKind::MariaDb;
        s.name = "mysql".to_owned();
    };
    assert_eq!(with(&mysql), (true, 1));
}

#[test]
fn two_services_of_a_user_share_its_limit() {
    let mut one = service("a", ServiceKind::SysV, GIB);
    one.user = Some(user(5));
    let mut two = service("b", ServiceKind::SysV, 2 * GIB);
    two.user = Some(user(5));
    let plan = usual(&host(), &[one, two]);
    assert_eq!(plan.limits.len(), 1);
    assert_eq!(plan.limits[0].memlock, Bytes(3 * GIB));
}

#[test]
fn units_are_started_through_run_only_when_asked() {
    let mut redis = private(GIB);
    redis.unit = Some("redis.service".to_owned());
    redis.exec_start = Some("/usr/bin/redis-server /etc/redis.conf".to_owned());
    let plan = usual(&host(), &[running(redis.clone(), "4K", PageKind::Base)]);
    assert_eq!(plan.units, []);
    has(&plan.services[0].ways, "hugeleaf promote redis.service");
    let wishes = PlanOptions {
        run: Some("--data thp:2M".to_owned()),
        ..PlanOptions::default()
    };
    let plan = planned(&host(), &[redis], &wishes);
    assert_eq!(
        plan.units[0].exec_start.as_deref(),
        Some("/usr/bin/hugeleaf run --data thp:2M -- /usr/bin/redis-server /etc/redis.conf")
    );
}

#[test]
fn ways_say_what_the_service_is_not_told_yet() {
    let ways = |kind, how, said: &str| {
        let mut one = service("a", kind, GIB);
        one.huge_page_setting.requirement = how;
        one.huge_page_setting.text = said.to_owned();
        usual(&host(), &[one]).services[0].ways.join("; ")
    };
    use ServiceKind::{Jvm, MariaDb, PostgreSql};
    let larger = "pages of 1G would fit";
    assert!(ways(PostgreSql, HugePageRequirement::Always, "").starts_with(larger));
    assert!(
        ways(PostgreSql, HugePageRequirement::Never, "huge_pages = off")
            .contains("huge_pages = on (now huge_pages = off)")
    );
    assert_eq!(ways(MariaDb, HugePageRequirement::IfAvailable, ""), "");
    assert!(ways(MariaDb, HugePageRequirement::Never, "").contains("large_pages = ON"));
    assert!(ways(Jvm, HugePageRequirement::Unknown, "").contains("-XX:+UseLargePages"));
    assert!(ways(Jvm, HugePageRequirement::Always, "").starts_with(larger));
}

#[test]
fn files_in_etc_that_say_otherwise_later_are_named() {
    let mut host = host();
    let set = |path: &str, value: &str| SysctlLine {
        path: path.to_owned(),
        key: "vm.nr_hugepages".to_owned(),
        value: value.to_owned(),
    };
    let one = [service("a", ServiceKind::SysV, GIB)];
    for (path, value, said) in [
        ("/etc/sysctl.d/90-db.conf", "9", true),
        ("/etc/sysctl.conf", "9", true),
        ("/etc/sysctl.d/90-db.conf", "512", false),
        ("/etc/sysctl.d/10-db.conf", "9", false),
        ("/etc/sysctl.d/60-hugeleaf.conf", "9", false),
    ] {
        host.limits.sysctl = Fact::Known(vec![set(path, value)]);
        let notes = usual(&host, &one).notes;
        let has = notes.iter().any(|n| n.starts_with(path));
        assert_eq!(has, said, "{path} {value}: {notes:?}");
    }
}

#[test]
fn what_a_person_should_know_is_said_and_nothing_else() {
    let notes = |service: Service, wishes: &PlanOptions| planned(&host(), &[service], wishes).notes;
    let none = PlanOptions::default();
    let pg = || service("pg", ServiceKind::PostgreSql, 8 * GIB + 1);
    assert_eq!(notes(pg(), &none), [""; 0]);
    let configured = |page| {
        let mut pg = pg();
        pg.demands[0].page = Some(size(page));
        pg
    };
    let mut java = configured("16M");
    java.kind = ServiceKind::Jvm;
    has(
        &notes(java, &none),
        "pages of 16M, which this kernel cannot reserve",
    );
    has(
        &notes(configured("1G"), &none),
        "which waste 1G on 8G of memory",
    );
    assert_eq!(notes(configured("2M"), &none), [""; 0]);
    // Without a unit there is nothing to start through it.
    let through = PlanOptions {
        run: Some(String::new()),
        ..PlanOptions::default()
    };
    has(&notes(pg(), &through), "pg has no systemd unit");
    let mut unit = pg();
    unit.unit = Some("pg.service".to_owned());
    has(
        &notes(unit.clone(), &through),
        "not have exactly one plain ExecStart=",
    );
    unit.exec_start = Some("/usr/bin/pg".to_owned());
    assert_eq!(notes(unit, &through), [""; 0]);
}

#[test]
fn idle_larger_pages_tempt_mariadb() {
    let mut host = host();
    let db = |bytes| [service("db", ServiceKind::MariaDb, bytes)];
    fill(&mut host, "1G", 1, 0, 0);
    has(
        &usual(&host, &db(3 * GIB / 2)).notes,
        "db tries pages of 1G first",
    );
    let notes = usual(&host, &db(GIB / 2)).notes;
    assert!(!notes.iter().any(|n| n.contains("tries")), "{notes:?}");
    fill(&mut host, "1G", 1, 2, 0);
    let notes = usual(&host, &db(3 * GIB / 2)).notes;
    assert!(!notes.iter().any(|n| n.contains("tries")), "{notes:?}");
}

#[test]
fn files_that_nobody_reads_are_said() {
    let mut host = host();
    thp(&mut host).enabled = word("never");
    let identity = identity();
    let mut facts = facts(&host, &identity);
    facts.tmpfiles = false;
    let plan = build_plan(&facts, &[private(GIB)], &PlanOptions::default()).unwrap();
    has(&plan.notes, "systemd does not run here");
    let shared = [service("pg", ServiceKind::PostgreSql, GIB)];
    let plan = build_plan(&facts, &shared, &PlanOptions::default()).unwrap();
    assert_eq!(plan.notes, [""; 0]);
}
