//! A host without findings, and functions that change one thing at a time.

use hugeleaf_host::demand::{
    Demand, EqualMappings, HugePageRequirement, HugePageSetting, PageSource as From, Service,
    ServiceKind, User,
};
use hugeleaf_host::system::pam_limits;
use hugeleaf_host::system::settings_files::{BootLoaderLine, SettingsFiles, TmpfilesLine};
use hugeleaf_host::system::unit_files::UnitFile;
use hugeleaf_host::{Fact, Host, HugetlbCgroup, HugetlbLimit, PageUsage, Pid, SysctlLine};
use hugeleaf_units::{Bytes, PageKind, Pages};

use super::{
    AppliedPlan, AppliedStepState, PathDrift, ReleasedPages, StepKind, VerifyFacts, VerifyReport,
    verify,
};
use crate::{BaseMemory, DemandPlan, PageCount, Plan, PoolPlan, ServicePlan, TargetHost};
use hugeleaf_testkit::healthy_host_fixture::{healthy, size, word};
use hugeleaf_verdict::advice::{AcceptedValues, SettingRequirement};

/// The values that [`VerifyFacts`] borrows.
struct World {
    host: Host,
    services: Vec<Service>,
    unread: Vec<String>,
    applied: Vec<AppliedPlan>,
    settings: SettingsFiles,
    booted: Option<u64>,
    log_since: Option<u64>,
    given: Vec<ReleasedPages>,
    wants: Vec<SettingRequirement>,
}

const PAGES: u64 = 4096; // not a page size: the pool of the healthy host

fn two_mib() -> hugeleaf_units::PageSize {
    size("2M")
}

fn user(name: &str) -> User {
    User {
        name: Some(name.to_owned()),
        uid: 26,
        gid: 26,
        groups: vec![26, 501],
        memlock: Fact::Known(Bytes(64 << 10)),
        memlock_hard: Fact::Known(Bytes(64 << 10)),
        ipc_lock: false,
    }
}

fn demand(pages: u64, held: Option<u64>) -> Demand {
    let bytes = |pages: u64| Pages(pages).in_bytes(two_mib());
    Demand {
        what: "shared_buffers and related memory".to_owned(),
        mappings: vec![EqualMappings::single(bytes(pages))],
        place: From::Pool,
        page: None,
        source: "its mapping".to_owned(),
        held: held.map(|held| {
            let mut table = Vec::new();
            PageUsage::add(&mut table, two_mib(), PageKind::Hugetlb, bytes(held));
            PageUsage::add(&mut table, size("4K"), PageKind::Base, bytes(pages - held));
            table
        }),
        buffers: None,
    }
}

/// Returns a running service that has `held` of the `pages` that it wants.
fn service(name: &str, kind: ServiceKind, pages: u64, held: u64) -> Service {
    let mut service = Service::new(name, kind);
    service.unit = Some(format!("{name}.service"));
    service.user = Some(user("postgres"));
    service.pids = vec![Pid(4711)];
    service.since = Fact::Known(1_790_000_000);
    service.huge_page_setting = HugePageSetting {
        requirement: HugePageRequirement::IfAvailable,
        text: "huge_pages = try".to_owned(),
    };
    service.demands = vec![demand(pages, Some(held))];
    service
}

fn plan(name: &str, pages: u64) -> Plan {
    let sizes = vec![two_mib(), size("1G")];
    Plan {
        schema: 1,
        made: None,
        force: None,
        notes: Vec::new(),
        host: TargetHost {
            name: None,
            id: None,
            kernel: None,
            arch: None,
            memory: Bytes(64 << 30),
            base_page: size("4K"),
            default_page: Some(two_mib()),
            pages: sizes,
            nodes: vec![0, 1],
        },
        base: BaseMemory {
            used: Bytes(8 << 30),
            moves: Bytes(0),
            other_pools: Bytes(0),
            margin: Bytes(6 << 30),
        },
        promises: Vec::new(),
        services: vec![ServicePlan {
            node: None,
            name: name.to_owned(),
            kind: ServiceKind::PostgreSql,
            unit: Some(format!("{name}.service")),
            user: None,
            configured_by: None,
            restart: false,
            runs: true,
            ways: Vec::new(),
            demands: vec![DemandPlan {
                what: "shared_buffers".to_owned(),
                source: "its mapping".to_owned(),
                from: From::Pool,
                mappings: vec![EqualMappings::single(Pages(pages).in_bytes(two_mib()))],
                pages: vec![PageCount {
                    page: two_mib(),
                    pages: Pages(pages),
                }],
                missing: Vec::new(),
            }],
        }],
        pools: Vec::new(),
        knobs: Vec::new(),
        limits: Vec::new(),
        group: None,
        mounts: Vec::new(),
        units: Vec::new(),
        boot: None,
        kept: Vec::new(),
    }
}

fn place(what: StepKind, path: &str, wanted: &str) -> AppliedStepState {
    AppliedStepState {
        id: "step".to_owned(),
        what,
        path: path.into(),
        before: None,
        wanted: Some(wanted.to_owned()),
        now: Some(wanted.to_owned()),
        state: PathDrift::AsApplied,
    }
}

const SHMEM: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
const NODE_POOL: &str = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
const DROP_IN: &str = "/etc/systemd/system/postgresql.service.d/60-hugeleaf.conf";

/// Returns a world where PostgreSQL has all of a planned pool, and files and kernel agree.
fn world() -> World {
    let mut host = healthy();
    host.limits.hugetlb_shm_group = Fact::Known(0);
    host.limits.sysctl = Fact::Known(vec![SysctlLine {
        path: "/etc/sysctl.d/60-hugeleaf.conf".to_owned(),
        key: "vm.nr_hugepages".to_owned(),
        value: PAGES.to_string(),
    }]);
    let memlock = Fact::Known(pam_limits::parse("", ""));
    World {
        host,
        services: vec![service("postgresql", ServiceKind::PostgreSql, PAGES, PAGES)],
        unread: Vec::new(),
        applied: vec![AppliedPlan {
            id: 3,
            time: "2026-11-20T10:00:00Z".to_owned(),
            plan_copy: "/var/lib/hugeleaf/journal/0003.toml".into(),
            plan: Ok(plan("postgresql", PAGES)),
            is_complete: true,
            damage: Vec::new(),
            places: vec![
                place(StepKind::Pool, NODE_POOL, "2048"),
                place(StepKind::Knob, SHMEM, "advise"),
                place(StepKind::Mount, "/mnt/huge", "pagesize=2M"),
                place(StepKind::File, DROP_IN, "LimitMEMLOCK=8G"),
            ],
        }],
        settings: SettingsFiles {
            tmpfiles: Fact::Known(vec![TmpfilesLine {
                path: "/etc/tmpfiles.d/thp.conf".to_owned(),
                knob: "/sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
                value: "madvise".to_owned(),
                now: word("madvise"),
            }]),
            memlock,
            units: Vec::new(),
            boot: Fact::Known(Vec::new()),
            tuned: Fact::Absent,
        },
        booted: Some(1_780_000_000),
        log_since: None,
        given: Vec::new(),
        wants: Vec::new(),
    }
}

impl World {
    fn verify(&self) -> VerifyReport {
        verify(&VerifyFacts {
            host: &self.host,
            services: &self.services,
            unread: &self.unread,
            applied: &self.applied,
            settings: &self.settings,
            booted: self.booted,
            log_since: self.log_since,
            given: &self.given,
            wants: &self.wants,
        })
    }

    /// Returns the names of the findings. Every finding has a text with a full stop, and a command.
    #[track_caller]
    fn ids(&self) -> Vec<&'static str> {
        let report = self.verify();
        for finding in &report.findings {
            assert!(
                !finding.text.is_empty() && !finding.command.is_empty(),
                "{finding:?}"
            );
        }
        report.findings.iter().map(|finding| finding.id).collect()
    }

    /// Fails unless the host has exactly this finding, with these words.
    #[track_caller]
    fn shows(&self, id: &str, words: &[&str]) {
        assert_eq!(self.ids(), [id], "{:#?}", self.verify().findings);
        let found = &self.verify().findings[0];
        for word in words {
            assert!(
                found.text.contains(word),
                "'{word}' is missing in: {}",
                found.text
            );
        }
    }

    fn pool(&mut self, total: u64, free: u64, surplus: u64) {
        self.host.pools[0].total = Fact::Known(Pages(total));
        self.host.pools[0].free = Fact::Known(Pages(free));
        self.host.pools[0].surplus = Fact::Known(Pages(surplus));
    }

    fn no_plan(&mut self) {
        self.applied.clear();
        self.host.limits.sysctl = Fact::Known(Vec::new());
    }
}

/// A command that contradicts a running program's want is not printed.
#[test]
fn running_programs_are_asked_what_they_want() {
    let mut world = world();
    world.no_plan();
    world.host.limits.sysctl = Fact::Known(vec![SysctlLine {
        key: "vm.hugetlb_shm_group".to_owned(),
        value: "5".to_owned(),
        path: "/etc/sysctl.d/50-a.conf".to_owned(),
    }]);
    let command = |world: &World| world.verify().findings[0].command.clone();
    assert_eq!(command(&world), "sysctl -w vm.hugetlb_shm_group=5");
    world.wants = vec![SettingRequirement {
        who: "Oracle".to_owned(),
        file: "/proc/sys/vm/hugetlb_shm_group".to_owned(),
        values: AcceptedValues::OneOf(vec!["0".to_owned()]),
    }];
    assert_eq!(command(&world), "hugeleaf check");
    world.shows("sysctl-drift", &["Oracle wants another value"]);
}

#[test]
fn a_healthy_host_is_silent() {
    let mut world = world();
    let report = world.verify();
    assert_eq!(report.findings, []);
    assert!(report.is_good());
    assert_eq!(report.services[0].short, Pages(0));
    assert_eq!(report.plan.as_ref().map(|plan| plan.id), Some(3));
    // Also without a plan, and without any pool.
    world.no_plan();
    assert_eq!(world.ids(), [""; 0]);
    world.pool(0, 0, 0);
    world.services[0].demands = vec![demand(PAGES, Some(0))];
    world.services[0].huge_page_setting.text.clear();
    assert_eq!(world.ids(), [""; 0]);
    assert_eq!(world.verify().services, []);
}

#[test]
fn a_server_that_asks_by_default_wants_no_pool_that_a_plan_made_for_others() {
    let mut world = world();
    let mut other = service("other", ServiceKind::PostgreSql, 100, 0);
    other.huge_page_setting.text.clear();
    world.services.push(other);
    assert_eq!(world.ids(), [""; 0]);
    // Without a plan, the pool is for the service that requests it.
    world.no_plan();
    world.shows("service-short", &["other asked for 200M"]);
}

#[test]
fn started_before_the_pool_was_filled() {
    let mut world = world();
    world.pool(PAGES, PAGES, 0);
    world.services[0].demands = vec![demand(PAGES, Some(0))];
    world.shows(
        "started-before-pool",
        &["4096 pages of 2M short", "silently"],
    );
    let report = world.verify();
    assert!(!report.is_good());
    assert_eq!(report.services[0].short, Pages(PAGES));
    assert_eq!(
        report.findings[0].command,
        "systemctl restart postgresql.service"
    );
    let reason = report.services[0].reason.as_deref();
    assert_eq!(reason, Some(report.findings[0].text.as_str()));
}

#[test]
fn short_by_44_pages_of_a_pool_that_is_too_small() {
    let mut world = world();
    world.applied.clear();
    world.services[0].demands = vec![demand(PAGES + 44, Some(0))];
    world.pool(PAGES, PAGES, 0);
    world.shows(
        "service-short",
        &["4140 pages of 2M short", "so 44 are missing"],
    );
}

#[test]
fn a_service_that_is_planned_for_and_switched_off() {
    let mut world = world();
    world.services[0].huge_page_setting = HugePageSetting {
        requirement: HugePageRequirement::Never,
        text: "huge_pages = off".to_owned(),
    };
    world.services[0].demands = vec![demand(PAGES, Some(0))];
    world.pool(PAGES, PAGES, 0);
    world.shows("service-off", &["its configuration says huge_pages = off"]);
    // Without a plan the missing use is not a finding, and the pages are idle.
    world.applied.clear();
    world.shows("pool-unused", &["4096 pages of 2M (8G) of 4096"]);
}

#[test]
fn a_figure_is_no_shortfall_by_less_than_it_is_exact_to() {
    let mut world = world();
    world.services[0].demands = vec![demand(PAGES, Some(PAGES - 40))];
    world.pool(PAGES, 40, 0);
    assert_eq!(world.ids(), [""; 0]);
    world.services[0].demands = vec![demand(PAGES, Some(PAGES - 41))];
    world.pool(PAGES, 41, 0);
    assert_eq!(world.ids(), ["started-before-pool"]);
}

#[test]
fn a_pool_that_has_drained_since() {
    let mut world = world();
    // The pool was set to 1000 while its pages were in use, so the others are surplus now.
    world.no_plan();
    world.pool(PAGES, 0, PAGES - 1000);
    world.shows(
        "restart-would-fail",
        &[
            "would fall back to base pages",
            "1000 would be free, 3096 too few",
            "3096 of the pool's pages are surplus",
        ],
    );
    // A service that requires huge pages does not start at all.
    world.services[0].huge_page_setting.requirement = HugePageRequirement::Always;
    world.shows("restart-would-fail", &["would fail"]);
}

#[test]
fn a_stopped_service_whose_pages_others_took() {
    let mut world = world();
    world.no_plan();
    world.services[0].pids.clear();
    world.services[0].demands = vec![demand(PAGES, None)];
    world.pool(PAGES, PAGES, 0);
    assert_eq!(world.ids(), [""; 0]);
    world.pool(PAGES, 96, 0);
    world.shows(
        "restart-would-fail",
        &["A start of postgresql", "4000 too few"],
    );
    let report = world.verify();
    assert_eq!(report.services[0].short, Pages(0), "it does not run");
}

#[test]
fn services_that_fit_one_by_one_and_not_together() {
    let mut world = world();
    world.no_plan();
    let mut other = service("oracle", ServiceKind::PostgreSql, 3000, 0);
    other.demands = vec![demand(3000, None)];
    other.pids.clear();
    world.services.push(other);
    world.services[0].pids.clear();
    world.services[0].demands = vec![demand(3000, None)];
    world.pool(PAGES, PAGES, 0);
    world.shows(
        "pool-too-small",
        &["Together 2 services ask for 6000", "1904 too few"],
    );
}

#[test]
fn pages_that_nobody_uses() {
    let mut world = world();
    world.no_plan();
    world.services[0].demands = vec![demand(2000, Some(2000))];
    world.pool(PAGES, 2096, 0);
    world.shows("pool-unused", &["2096 pages of 2M (4.1G) of 4096"]);
    assert!(!world.verify().is_good());
    // Reserved pages are not unused.
    world.host.pools[0].reserved = Fact::Known(Pages(2096));
    assert_eq!(world.ids(), [""; 0]);
    // Few unused pages deserve only a note.
    world.host.pools[0].reserved = Fact::Known(Pages(2096 - 83));
    assert!(world.ids() == ["pool-unused"] && world.verify().is_good());
    world.host.pools[0].reserved = Fact::Known(Pages(2096 - 81));
    assert_eq!(world.ids(), [""; 0]);
}

fn oracle() -> World {
    let mut world = world();
    world.services[0] = service("postgresql", ServiceKind::SysV, PAGES, 0);
    world.services[0].huge_page_setting = HugePageSetting::default();
    world.pool(PAGES, PAGES, 0);
    world
}

#[test]
fn memlock_that_is_too_small_for_the_segment() {
    let mut world = oracle();
    world.shows("memlock-small", &["asks for 8G", "postgres may lock 64K"]);
    let user = world.services[0].user.as_mut().unwrap();
    user.memlock = Fact::Known(Bytes(8 << 30));
    assert_eq!(world.ids(), ["started-before-pool"]);
    let user = world.services[0].user.as_mut().unwrap();
    (user.memlock, user.ipc_lock) = (Fact::Known(Bytes(0)), true);
    assert_eq!(world.ids(), ["started-before-pool"]);
}

#[test]
fn a_user_who_is_not_in_the_group() {
    let mut world = oracle();
    world.host.limits.hugetlb_shm_group = Fact::Known(500);
    world.shows("group-missing", &["postgres is not in group 500"]);
    world.host.limits.hugetlb_shm_group = Fact::Known(501);
    assert_eq!(world.ids(), ["started-before-pool"]);
}

fn limited(world: &mut World, faults: Option<u64>, reservations: Option<u64>) {
    let limit =
        |pages: Option<u64>| Fact::Known(pages.map(|pages| Pages(pages).in_bytes(two_mib())));
    world.services[0].limits.hugetlb = vec![HugetlbCgroup {
        version: 2,
        path: "/system.slice".to_owned(),
        folder: "/sys/fs/cgroup/system.slice".to_owned(),
        hugetlb: vec![HugetlbLimit {
            size: two_mib(),
            fault_limit: limit(faults),
            fault_usage: Fact::Known(Bytes(0)),
            reservation_limit: limit(reservations),
            reservation_usage: Fact::Known(Bytes(0)),
            hits: Fact::Known(0),
        }],
    }];
}

#[test]
fn a_cgroup_that_allows_less() {
    let mut world = world();
    limited(&mut world, Some(PAGES), None);
    assert_eq!(world.ids(), [""; 0]);
    limited(&mut world, Some(PAGES - 1), None);
    world.shows("cgroup-limit", &["/system.slice allows 8G", "SIGBUS"]);
    limited(&mut world, None, Some(10));
    world.shows("cgroup-limit", &["allows 20M", "falls back"]);
    let command = &world.verify().findings[0].command;
    assert!(
        command.ends_with("/sys/fs/cgroup/system.slice/hugetlb.2MB.rsvd.max"),
        "{command}"
    );
    // In a container its cgroup must not be written. The pod's line sets it, or the server uses no huge
    // pages.
    limited(&mut world, Some(0), None);
    world.services[0].limits.is_in_container = true;
    let command = &world.verify().findings[0].command;
    assert!(
        command.contains("hugepages-2Mi: ") && command.contains("huge_pages = off"),
        "{command}"
    );
}

#[test]
fn files_that_the_kernel_does_not_follow() {
    let mut world = world();
    let set = |key: &str, value: u64| SysctlLine {
        path: "/etc/sysctl.d/x.conf".to_owned(),
        key: key.to_owned(),
        value: value.to_string(),
    };
    let sysctl = |world: &mut World, settings| world.host.limits.sysctl = Fact::Known(settings);
    sysctl(&mut world, vec![set("vm.hugetlb_shm_group", 5)]);
    world.shows(
        "sysctl-drift",
        &["vm.hugetlb_shm_group is 0, but /etc/sysctl.d/x.conf sets 5"],
    );
    // The last value counts.
    sysctl(
        &mut world,
        vec![set("vm.nr_hugepages", 1), set("vm.nr_hugepages", PAGES)],
    );
    assert_eq!(world.ids(), [""; 0]);
    sysctl(&mut world, vec![set("vm.nr_hugepages", PAGES - 1)]);
    world.shows("sysctl-drift", &["the pool shrinks at the next boot"]);
    sysctl(&mut world, vec![set("vm.nr_hugepages", PAGES + 1)]);
    world.shows("pool-short", &["1 short"]);
}

#[test]
fn a_knob_that_somebody_reset() {
    let mut world = world();
    if let Fact::Known(lines) = &mut world.settings.tmpfiles {
        lines[0].now = word("never");
    }
    world.settings.tuned = word("postgresql");
    world.shows(
        "knob-reset",
        &[
            "enabled is never",
            "sets it to madvise",
            "tuned's profile postgresql",
        ],
    );
}

#[test]
fn places_that_are_not_as_the_plan_left_them() {
    let spoil = |at: usize, now: Option<&str>, stands: PathDrift| {
        let mut world = world();
        let place = &mut world.applied[0].places[at];
        place.now = now.map(str::to_owned);
        place.state = stands;
        world
    };
    spoil(1, Some("never"), PathDrift::Changed).shows(
        "knob-reset",
        &["shmem_enabled is never, but the plan set advise"],
    );
    spoil(2, None, PathDrift::Gone).shows("mount-missing", &["/mnt/huge is gone"]);
    spoil(3, Some("x"), PathDrift::Changed).shows("file-changed", &[DROP_IN]);
    spoil(3, None, PathDrift::Gone).shows("file-changed", &["is gone"]);
    let fewer = spoil(0, Some("2000"), PathDrift::Changed);
    fewer.shows("pool-changed", &["is 2000, but the plan set 2048"]);
    assert!(!fewer.verify().is_good());
    let more = spoil(0, Some("2100"), PathDrift::Changed);
    assert!(more.ids() == ["pool-changed"] && more.verify().is_good());
    let denied = spoil(3, None, PathDrift::Unread("Permission denied".to_owned()));
    assert!(denied.ids() == ["not-verified"] && denied.verify().is_good());
}

#[test]
fn a_later_plan_takes_the_place_of_an_earlier_one() {
    let mut world = world();
    let mut earlier = world.applied[0].clone();
    earlier.id = 2;
    for place in &mut earlier.places {
        place.state = PathDrift::Changed;
    }
    earlier.plan = Ok(plan("postgresql", 9999));
    world.applied.push(earlier);
    assert_eq!(world.ids(), [""; 0]);
    // A place that only the earlier plan set is still in force.
    world.applied[0].places.pop();
    assert_eq!(world.ids(), ["file-changed"]);
}

#[test]
fn a_limit_that_a_running_service_did_not_get() {
    let mut world = world();
    world.settings.units = vec![UnitFile {
        unit: "postgresql.service".to_owned(),
        memlock: Some((Bytes(8 << 30), Bytes(8 << 30))),
        memlock_file: Some(DROP_IN.to_owned()),
        ..UnitFile::default()
    }];
    world.shows("limit-not-taken", &["may lock 64K", DROP_IN, "is 8G"]);
    let line = "postgres soft memlock unlimited\n";
    let file = "/etc/security/limits.d/60-hugeleaf.conf";
    world.settings.memlock = Fact::Known(pam_limits::parse(line, file));
    world.services[0].unit = None;
    world.services[0].name = "postgresql".to_owned();
    world.shows(
        "limit-not-taken",
        &["limits.d/60-hugeleaf.conf is unlimited"],
    );
}

#[test]
fn a_command_line_that_the_kernel_was_not_started_with() {
    let mut world = world();
    world.settings.boot = Fact::Known(vec![BootLoaderLine {
        path: "/etc/default/grub.d/60-hugeleaf.cfg".to_owned(),
        arguments: "hugepagesz=1G hugepages=4".to_owned(),
    }]);
    world.shows("boot-drift", &["asks for 4 pages of 1G at boot"]);
    world.host.limits.boot = word("quiet hugepagesz=1G hugepages=4");
    // It was rebooted, but the pages were unavailable.
    world.shows("pool-short", &["asks for 4 pages of 1G, the pool has 0"]);
}

#[test]
fn lines_of_the_kernels_log_since_it_matters() {
    let mut world = world();
    let line = "[  100.5] HugeTLB: allocating 16 of page size 1.00 GiB failed.  Only allocated 11.";
    world.host.kernel_log = Fact::Known(vec![line.to_owned()]);
    world.shows("kernel-log", &["1 line", "Only allocated 11"]);
    world.log_since = Some(1_780_000_101);
    assert_eq!(world.ids(), [""; 0]);
    world.log_since = Some(1_780_000_100);
    assert_eq!(world.ids(), ["kernel-log"]);
    let line = "[ 100.5] postgres (1): Using mlock ulimits for SHM_HUGETLB is obsolete";
    world.host.kernel_log = Fact::Known(vec![line.to_owned()]);
    world.shows("kernel-log", &["only memlock allowed"]);
    assert!(world.verify().is_good());
}

#[test]
fn a_pool_that_cannot_be_read_is_not_taken_for_good() {
    let mut world = world();
    let error = hugeleaf_host::ReadError {
        path: "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages".into(),
        reason: "Input/output error".to_owned(),
        denied: false,
    };
    world.host.kernel_log = Fact::Unreadable(error.clone());
    assert!(world.ids() == ["unreadable"] && world.verify().is_good());
    world.host.kernel_log = Fact::Known(Vec::new());
    world.host.pools[0].total = Fact::Unreadable(error);
    assert!(world.ids().contains(&"unreadable") && !world.verify().is_good());
}

#[test]
fn an_apply_that_was_cut_off() {
    let mut world = world();
    world.applied[0].is_complete = false;
    world.shows(
        "apply-incomplete",
        &["Apply 3 of 2026-11-20T10:00:00Z is incomplete"],
    );
    world.applied[0].is_complete = true;
    world.applied[0].damage = vec!["line 3: cut off".to_owned()];
    world.shows("journal-damaged", &["line 3: cut off"]);
}

#[test]
fn a_planned_service_that_is_not_there_is_no_shortfall_as_long_as_it_could_start() {
    let mut world = world();
    world.services.clear();
    world.pool(PAGES, PAGES, 0);
    assert_eq!(world.ids(), [""; 0]);
    assert_eq!(world.verify().services[0].name, "postgresql");
    world.pool(PAGES, PAGES - 1, 0);
    world.shows("restart-would-fail", &["1 too few"]);
}

#[test]
fn a_service_that_got_a_unit_and_a_name_after_it_was_planned_for() {
    let mut world = world();
    let planned = |world: &mut World, kind: ServiceKind| {
        if let Ok(plan) = &mut world.applied[0].plan {
            plan.services[0].name = "postgresql-15".to_owned();
            plan.services[0].unit = None;
            plan.services[0].kind = kind;
        }
    };
    planned(&mut world, ServiceKind::PostgreSql);
    let report = world.verify();
    assert_eq!((report.services.len(), report.findings.len()), (1, 0));
    // A service of another kind is another service. Its pages are in use by the first.
    planned(&mut world, ServiceKind::MariaDb);
    assert_eq!(world.ids(), ["restart-would-fail", "pool-too-small"]);
    // A running container cannot be recognised: its program appears under its own name.
    planned(&mut world, ServiceKind::Container);
    assert_eq!(world.ids(), [""; 0]);
    assert!(!world.verify().services[1].is_found);
}

/// Returns a world with two stopped clusters of one name, each in its own plan.
fn two_stopped() -> World {
    let mut world = world();
    let clusters = ["/a", "/b"].map(|folder| {
        let mut one = service("postgresql-15", ServiceKind::PostgreSql, PAGES, 0);
        one.demands = vec![demand(PAGES, None)];
        one.configured_by = Some(folder.into());
        (one.unit, one.pids) = (None, Vec::new());
        one
    });
    let mut newer = world.applied[0].clone();
    (newer.id, newer.places) = (4, Vec::new());
    world.applied.insert(0, newer);
    for (applied, folder) in world.applied.iter_mut().zip(["/b", "/a"]) {
        let service = &mut applied.plan.as_mut().unwrap().services[0];
        "postgresql-15".clone_into(&mut service.name);
        (service.unit, service.configured_by) = (None, Some(folder.into()));
    }
    world.services = clusters.to_vec();
    world.pool(PAGES, PAGES, 0);
    world
}

#[test]
fn stopped_services_are_added_up_though_they_have_one_name() {
    let world = two_stopped();
    let services = world.verify().services;
    let names: Vec<&str> = services.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["postgresql-15", "postgresql-15-2"]);
    world.shows(
        "pool-too-small",
        &["Together 2 services ask for 8192", "4096 too few"],
    );
    assert!(!world.verify().is_good());
}

#[test]
fn bytes_that_were_planned_for_are_added_up_too() {
    let mut world = two_stopped();
    world.services.clear();
    for (applied, name) in world.applied.iter_mut().zip(["bytes", "bytes-2"]) {
        let service = &mut applied.plan.as_mut().unwrap().services[0];
        name.clone_into(&mut service.name);
        (service.kind, service.configured_by) = (ServiceKind::Other, None);
    }
    world.shows("pool-too-small", &["(bytes, bytes-2)"]);
    // One of them runs under another name, and its pages count once.
    world.services = vec![service("cache", ServiceKind::Other, PAGES, PAGES)];
    world.services[0].huge_page_setting = HugePageSetting::default();
    world.pool(PAGES, 0, 0);
    assert_eq!(world.ids(), ["pool-too-small"]);
    world.applied.remove(0);
    assert_eq!(world.ids(), [""; 0]);
}

#[test]
fn idle_pages_that_a_plan_leaves_to_the_next_boot_are_no_drift() {
    let mut world = world();
    let pools = [Some(0), Some(1)].map(|node| PoolPlan {
        page: two_mib(),
        node,
        was: Some(Pages(2048)),
        pages: Pages(2048),
        services: vec!["postgresql".to_owned()],
        others: Pages(0),
        promised: Pages(0),
        idle: Pages(2023),
        give_back: false,
    });
    world.applied[0].plan.as_mut().unwrap().pools = pools.to_vec();
    let set = |world: &mut World, pages: u64| {
        let Fact::Known(settings) = &mut world.host.limits.sysctl else {
            panic!("no settings")
        };
        settings[0].value = pages.to_string();
    };
    set(&mut world, 50);
    assert_eq!(world.ids(), [""; 0], "before the boot");
    // After the boot: the pages that the file requests, and no more.
    let place = &mut world.applied[0].places[0];
    (place.now, place.state) = (Some("25".to_owned()), PathDrift::Changed);
    assert!(!world.ids().contains(&"pool-changed"), "{:?}", world.ids());
    let place = &mut world.applied[0].places[0];
    place.now = Some("24".to_owned());
    assert!(world.ids().contains(&"pool-changed"), "{:?}", world.ids());
    set(&mut world, 51);
    assert!(world.ids().contains(&"sysctl-drift"), "{:?}", world.ids());
}

#[test]
fn one_that_grows_is_not_short_as_long_as_the_pool_has_the_rest() {
    let mut world = world();
    world.services[0].grows = true;
    world.services[0].demands = vec![demand(PAGES, Some(PAGES - 323))];
    world.pool(PAGES, 323, 0);
    assert_eq!(world.ids(), [""; 0]);
    world.pool(PAGES, 23, 0);
    world.shows("service-short", &["300 pages of 2M short"]);
    // A program that takes all at its start is a finding.
    world.services[0].grows = false;
    world.pool(PAGES, 323, 0);
    world.shows("started-before-pool", &["323 pages of 2M short"]);
}

#[test]
fn what_the_guard_gave_back_is_no_shortage() {
    let mut world = world();
    let place = &mut world.applied[0].places[0];
    let path = hugeleaf_host::pool_file(two_mib(), Some(0), "nr_hugepages");
    (place.what, place.path) = (StepKind::Pool, path.into());
    place.wanted = Some("2048".to_owned());
    (place.now, place.state) = (Some("2000".to_owned()), PathDrift::Changed);
    world.pool(PAGES - 48, 48, 0);
    let short = |world: &World| {
        let ids = world.ids();
        ids.contains(&"pool-short") || ids.contains(&"pool-changed")
    };
    assert!(short(&world), "{:?}", world.ids());
    let mut given = ReleasedPages {
        page: two_mib(),
        node: Some(0),
        pages: Pages(48),
    };
    world.given = vec![given];
    assert!(!short(&world), "{:?}", world.ids());
    given.pages = Pages(47);
    world.given = vec![given];
    assert!(
        short(&world),
        "more than that is missing: {:?}",
        world.ids()
    );
}
