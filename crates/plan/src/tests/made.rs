//! Tests of the arithmetic, and of the limits of a plan.

use super::*;
use proptest::prelude::*;

#[test]
fn a_single_segment_is_rounded_up_once() {
    let one = service("pg", ServiceKind::PostgreSql, 8_724_152_321);
    let plan = usual(&host(), &[one]);
    assert_eq!(pools(&plan), ["2M/0: 2081", "2M/1: 2080"]);
    assert_eq!(plan.services[0].demands[0].pages[0].pages, Pages(4161));
    let lines = demand_lines(&plan.services[0].demands[0]);
    assert_eq!(
        lines,
        ["1 mapping of 8724152321 bytes (8.1G) = 4161 pages of 2M"]
    );
}

#[test]
fn what_a_program_will_ask_for_decides_the_size() {
    let of = |kind, bytes| {
        let plan = usual(&host(), &[service("a", kind, bytes)]);
        all_pages_text(&plan.services[0].demands[0].pages)
    };
    // These request the default size unless another one is configured.
    assert_eq!(of(ServiceKind::PostgreSql, 8 * GIB), "4096 pages of 2M");
    assert_eq!(of(ServiceKind::SysV, 8 * GIB), "4096 pages of 2M");
    // These could use larger pages, but none is configured.
    assert_eq!(of(ServiceKind::MariaDb, 8 * GIB), "4096 pages of 2M");
    assert_eq!(of(ServiceKind::Other, GIB), "512 pages of 2M");
    // With both sizes requested, `hugeleaf run` uses both.
    let mut both = service("a", ServiceKind::Other, 8 * GIB + 1);
    let wishes = PlanOptions {
        sizes: Some(vec![size("1G"), size("2M")]),
        ..PlanOptions::default()
    };
    let plan = planned(&host(), &[both.clone()], &wishes);
    assert_eq!(
        all_pages_text(&plan.services[0].demands[0].pages),
        "8 pages of 1G + 1 page of 2M"
    );
    both.demands[0].page = Some(size("1G"));
    let plan = usual(&host(), &[both]);
    assert_eq!(
        all_pages_text(&plan.services[0].demands[0].pages),
        "9 pages of 1G"
    );
}

#[test]
fn a_size_that_is_configured_or_named_is_taken() {
    let mut one = service("pg", ServiceKind::PostgreSql, 8 * GIB + 1);
    one.demands[0].page = Some(size("1G"));
    let plan = usual(&host(), &[one.clone()]);
    assert_eq!(pools(&plan), ["1G/0: 5", "1G/1: 4"]);
    one.demands[0].page = None;
    let wishes = PlanOptions {
        sizes: Some(vec![size("1G"), size("2M")]),
        ..PlanOptions::default()
    };
    // 9 G for 8 G and a byte wastes more than 2 %.
    let plan = planned(&host(), &[one.clone()], &wishes);
    assert_eq!(pools(&plan), ["2M/0: 2049", "2M/1: 2048"]);
    one.demands[0].mappings = vec![EqualMappings::single(Bytes(8 * GIB))];
    let plan = planned(&host(), &[one], &wishes);
    assert_eq!(pools(&plan), ["1G/0: 4", "1G/1: 4"]);
    has(&plan.services[0].ways, "huge_page_size = '1GB'");
}

#[test]
fn a_size_that_is_configured_and_not_there_is_refused() {
    let host = host();
    let identity = identity();
    let facts = facts(&host, &identity);
    let odd = |kind| sized(service("pg", kind, GIB), "16M");
    let one = [odd(ServiceKind::PostgreSql)];
    let refusal = build_plan(&facts, &one, &PlanOptions::default()).unwrap_err();
    assert!(
        refusal.message.contains("pages of 16M (huge_page_size)"),
        "{refusal:?}"
    );
    assert!(refusal.remedy.contains("one of 1G, 2M"), "{refusal:?}");
    // A JVM continues with the default size.
    let plan = usual(&host, &[odd(ServiceKind::Jvm)]);
    assert_eq!(pools(&plan), ["2M/0: 256", "2M/1: 256"]);
    has(
        &plan.notes,
        "pages of 16M, which this kernel cannot reserve",
    );
}

#[test]
fn a_larger_size_that_would_fit_is_said() {
    let fits = service("pg", ServiceKind::PostgreSql, 8 * GIB);
    let plan = usual(&host(), &[fits]);
    has(
        &plan.services[0].ways,
        "pages of 1G would fit with little waste: set huge_page_size",
    );
    let nearly = service("pg", ServiceKind::PostgreSql, 8 * GIB + 1);
    let ways = &usual(&host(), &[nearly]).services[0].ways;
    assert!(!ways.iter().any(|w| w.contains("would fit")), "{ways:?}");
}

#[test]
fn sizes_that_the_host_lacks_are_refused() {
    let wishes = PlanOptions {
        sizes: Some(vec![size("16M")]),
        ..PlanOptions::default()
    };
    let one = [service("a", ServiceKind::Other, GIB)];
    let refusal = build_plan(&facts(&host(), &identity()), &one, &wishes).unwrap_err();
    assert_eq!(refusal.message, "this kernel cannot reserve pages of 16M");
}

#[test]
fn others_keep_their_pages_and_ones_own_are_counted() {
    let mut host = host();
    // 2048 pages: 1000 in use, 24 more promised.
    fill(&mut host, "2M", 1024, 1000, 24);
    let mine = running(
        service("pg", ServiceKind::PostgreSql, GIB),
        "2M",
        PageKind::Hugetlb,
    );
    let plan = usual(&host, &[mine]);
    // The service has 512 of the 1024, and the pool has enough room.
    assert_eq!(pools(&plan), ["2M/0: 1024", "2M/1: 1024"]);
    assert_eq!(plan.pools.iter().map(|p| p.others.get()).sum::<u64>(), 512);
    assert!(!plan.services[0].restart);
    has(
        &plan.notes,
        "1024 pages of 2M in the pool are neither in use",
    );
    // Another service of 3 G: 512 + 512 + 1536 pages.
    let more = service("pg2", ServiceKind::PostgreSql, 3 * GIB);
    let mine = running(
        service("pg", ServiceKind::PostgreSql, GIB),
        "2M",
        PageKind::Hugetlb,
    );
    let plan = usual(&host, &[mine, more]);
    assert_eq!(pools(&plan), ["2M/0: 1280", "2M/1: 1280"]);
}

#[test]
fn memory_that_moves_to_the_pool_is_not_counted_twice() {
    // 24 G are used, 16 of them by the server itself: 64 - 8 - 6.4 leaves room for 32 more.
    let mut big = service("pg", ServiceKind::PostgreSql, 40 * GIB);
    let plan = usual(&host(), std::slice::from_ref(&big));
    assert_eq!(
        super::super::plan_input::lacks(&plan.services[0]).unwrap(),
        "20480 pages of 2M"
    );
    big = running(big, "4K", PageKind::Base);
    big.demands[0].held.as_mut().unwrap()[0].bytes = Bytes(16 * GIB);
    let plan = usual(&host(), &[big]);
    assert_eq!(super::super::plan_input::lacks(&plan.services[0]), None);
    assert_eq!(plan.base.moves, Bytes(16 * GIB));
    assert!(plan.services[0].restart);
    // 40 G are available: just enough to grow before the server stops.
    assert!(!plan.notes.iter().any(|n| n.contains("stop pg before")));
    let mut short = host();
    short.memory.available = gib(39);
    short.memory.total = gib(63);
    let mut big = running(
        service("pg", ServiceKind::PostgreSql, 40 * GIB),
        "4K",
        PageKind::Base,
    );
    big.demands[0].held.as_mut().unwrap()[0].bytes = Bytes(16 * GIB);
    has(&usual(&short, &[big]).notes, "stop pg before");
}

#[test]
fn base_pages_keep_what_they_use_and_the_margin() {
    // 64 - 24 - 6.4 = 33.6 G.
    let plan = usual(&host(), &[service("a", ServiceKind::Other, 60 * GIB)]);
    assert!(plan.left().unwrap() >= plan.base.margin);
    assert!(plan.left().unwrap() - plan.base.margin < size("2M").bytes());
    has(&plan.notes, "cut: a lacks 13517 pages of 2M");
    // A service that maps its memory whole cannot use a part of the pages.
    let whole = usual(&host(), &[service("pg", ServiceKind::PostgreSql, 60 * GIB)]);
    assert_eq!(whole.pools, []);
    has(&whole.notes, "cut: pg lacks 30720 pages of 2M");
    // Mappings are served one by one.
    let mut mappings = service("pg", ServiceKind::SysV, 0);
    mappings.demands[0].mappings = vec![EqualMappings {
        bytes: Bytes(10 * GIB),
        count: 6,
    }];
    let plan = usual(&host(), &[mappings]);
    assert_eq!(pools(&plan), ["2M/0: 7680", "2M/1: 7680"]);
}

#[test]
fn a_margin_of_ones_own_and_force() {
    let asked = [service("a", ServiceKind::Other, 38 * GIB)];
    let with = |margin, force: Option<&str>| {
        let wishes = PlanOptions {
            margin,
            force: force.map(str::to_owned),
            ..PlanOptions::default()
        };
        planned(&host(), &asked, &wishes)
    };
    assert!(with(None, None).missing().next().is_some());
    let small = Some(Margin::Bytes(Bytes(GIB)));
    assert!(with(small, None).missing().next().is_none());
    let forced = with(None, Some("a test host"));
    assert!(forced.missing().next().is_none());
    assert_eq!(forced.force.as_deref(), Some("a test host"));
    assert!(written(&forced).contains("force = \"a test host\""));
    // Even a forced plan cannot exceed the memory.
    let wishes = PlanOptions {
        force: Some("why not".to_owned()),
        ..PlanOptions::default()
    };
    let plan = planned(
        &host(),
        &[service("a", ServiceKind::Other, 65 * GIB)],
        &wishes,
    );
    assert!(plan.missing().next().is_some());
    assert!(plan.left().unwrap() > Bytes(GIB));
    has(&plan.notes, "the minimum that stays free even with --force");
}

#[test]
fn strict_overcommit_bounds_the_growth_of_pools() {
    let mut host = host();
    host.limits.overcommit_memory = Fact::Known(2);
    let asked = [service("a", ServiceKind::Other, 20 * GIB)];
    let refusal =
        build_plan(&facts(&host, &identity()), &asked, &PlanOptions::default()).unwrap_err();
    assert!(refusal.message.contains("overcommit_ratio"), "{refusal:?}");
    host.limits.overcommit_ratio = Fact::Known(50);
    host.memory.commit_limit = gib(32);
    host.memory.committed = gib(18);
    // 18 G are 90 % of 20 G: the limit may fall by 12 G, the pools may grow by 24 G.
    assert!(usual(&host, &asked).missing().next().is_none());
    // 27 G are 90 % of 30 G: 2 G, 4 G.
    host.memory.committed = gib(27);
    let plan = usual(&host, &asked);
    assert_eq!(pools(&plan), ["2M/0: 1024", "2M/1: 1024"]);
    has(
        &plan.notes,
        "cut: a lacks 8192 pages of 2M, because vm.overcommit_memory is 2",
    );
    // No reason makes allocations succeed.
    let forced = PlanOptions {
        force: Some("a test host".to_owned()),
        ..PlanOptions::default()
    };
    assert_eq!(pools(&planned(&host, &asked, &forced)), pools(&plan));
}

#[test]
fn pools_that_are_too_large_already_do_not_grow_and_are_no_error() {
    let mut host = host();
    fill(&mut host, "2M", 9000, 18_000, 0);
    let plan = usual(&host, &[service("a", ServiceKind::SysV, GIB)]);
    assert_eq!(plan.pools, []);
    // Its own pages exist already, so nothing grows and nothing is missing.
    let mine = running(
        service("a", ServiceKind::SysV, GIB),
        "2M",
        PageKind::Hugetlb,
    );
    let plan = usual(&host, &[mine]);
    assert_eq!(pools(&plan), ["2M/0: 9000", "2M/1: 9000"]);
}

#[test]
fn idle_pages_stay_on_the_node_where_they_are() {
    let mut host = host();
    let on = |host: &mut Host, node, pages| {
        let of = |p: &&mut hugeleaf_host::Pool| p.size == size("2M") && p.node == node;
        let pool = host.pools.iter_mut().find(of).unwrap();
        pool.total = Fact::Known(Pages(pages));
        pool.free = Fact::Known(Pages(pages));
    };
    on(&mut host, Some(0), 1000);
    on(&mut host, None, 1000);
    host.memory.available = gib(38);
    let plan = usual(&host, &[service("a", ServiceKind::SysV, GIB)]);
    assert_eq!(pools(&plan), ["2M/0: 1000", "2M/1: 0"]);
    let plan = usual(&host, &[service("a", ServiceKind::SysV, 4 * GIB)]);
    assert_eq!(pools(&plan), ["2M/0: 1024", "2M/1: 1024"]);
    // A service bound to the other node cannot use them.
    let mut bound = service("a", ServiceKind::SysV, GIB);
    bound.node = Some(1);
    assert_eq!(pools(&usual(&host, &[bound])), ["2M/0: 1000", "2M/1: 512"]);
}

#[test]
fn surplus_pages_are_not_taken_for_lasting_ones() {
    let mut host = host();
    fill(&mut host, "2M", 512, 1024, 0);
    for pool in host.pools.iter_mut().filter(|p| p.size == size("2M")) {
        let each = if pool.node.is_some() { 100 } else { 200 };
        pool.surplus = Fact::Known(Pages(each));
    }
    let mine = running(
        service("a", ServiceKind::SysV, GIB),
        "2M",
        PageKind::Hugetlb,
    );
    let plan = usual(&host, &[mine]);
    // 512 pages of others and 512 of the service must all be permanent now.
    assert_eq!(pools(&plan), ["2M/0: 512", "2M/1: 512"]);
    assert_eq!(plan.pools[0].was, Some(Pages(412)));
}

#[test]
fn pages_go_where_the_service_is_bound() {
    let mut bound = service("a", ServiceKind::SysV, GIB);
    bound.node = Some(1);
    let free = service("b", ServiceKind::SysV, GIB);
    let plan = usual(&host(), &[bound, free]);
    assert_eq!(pools(&plan), ["2M/0: 256", "2M/1: 768"]);
}

#[test]
fn a_host_without_nodes_in_sys_has_one_pool() {
    let mut host = host();
    host.nodes = vec![0];
    host.pools.retain(|p| p.node.is_none());
    let plan = usual(&host, &[service("a", ServiceKind::SysV, GIB)]);
    assert_eq!(pools(&plan), ["2M: 512"]);
    let step = &steps(&plan)[0];
    assert_eq!(
        step.path,
        Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    );
}

#[test]
fn without_hugetlb_it_is_transparent_pages() {
    let mut host = host();
    host.pools.clear();
    host.memory.default_hugetlb_page = Fact::Absent;
    let plan = usual(&host, &[service("a", ServiceKind::SysV, GIB)]);
    assert_eq!(plan.services[0].demands[0].from, PageSource::Thp);
    has(&plan.notes, "this kernel has no hugetlb");
}

#[test]
fn nothing_is_reserved_where_nobody_wants_that() {
    let mut host = host();
    thp(&mut host).shmem_enabled = word("never");
    let wishes = PlanOptions {
        sizes: Some(Vec::new()),
        ..PlanOptions::default()
    };
    let mut one = service("pg", ServiceKind::PostgreSql, GIB);
    one.demands[0].page = Some(size("2M"));
    let plan = planned(&host, &[one], &wishes);
    assert_eq!(plan.pools, []);
    assert_eq!(plan.services[0].demands[0].from, PageSource::Thp);
    assert_eq!(plan.knobs[0].now, "advise");
}

#[test]
fn what_cannot_be_read_is_not_guessed() {
    let mut host = host();
    host.memory.available = Fact::Absent;
    let one = [service("a", ServiceKind::SysV, GIB)];
    let refusal =
        build_plan(&facts(&host, &identity()), &one, &PlanOptions::default()).unwrap_err();
    assert!(refusal.message.contains("MemAvailable"), "{refusal:?}");
}

#[test]
fn names_are_unique_and_steer_nothing() {
    let twice = [
        service("a\nb", ServiceKind::SysV, GIB),
        service("a\nb", ServiceKind::SysV, GIB),
        service("", ServiceKind::SysV, GIB),
    ];
    let plan = usual(&host(), &twice);
    let names: Vec<&str> = plan.services.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["a?b", "a?b-2", "service"]);
}

#[test]
fn pages_larger_than_any_free_block_go_on_the_command_line() {
    let one = [sized(service("a", ServiceKind::Other, 8 * GIB), "1G")];
    let mut host = host();
    let plan = usual(&host, &one);
    assert_eq!(plan.boot.as_ref().unwrap().pages, [size("1G")]);
    // No boot parameters if they exist already.
    host.limits.boot = word("quiet hugepagesz=1G hugepages=8");
    assert_eq!(usual(&host, &one).boot, None);
    // If hugeleaf's own drop-in added them, they must stay.
    let identity = identity();
    let mut facts = facts(&host, &identity);
    facts.grub_text = "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX hugepagesz=1G hugepages=8\"\n";
    let plan = build_plan(&facts, &one, &PlanOptions::default()).unwrap();
    assert_eq!(plan.boot.unwrap().pages, [size("1G")]);
    host.limits.boot = word("quiet hugepagesz=1G hugepages=4");
    assert!(usual(&host, &one).boot.is_some());
    // 2M pages come from the lists of free blocks.
    let small = usual(&host, &[service("a", ServiceKind::SysV, 8 * GIB)]);
    assert_eq!(small.boot, None);
    // Without drop-ins the user must set the parameters.
    let mut facts = super::facts(&host, &identity);
    facts.grub_drop_ins = false;
    let plan = build_plan(&facts, &one, &PlanOptions::default()).unwrap();
    has(&plan.notes, "command line: hugepagesz=1G hugepages=8");
    assert!(!steps(&plan).iter().any(|s| s.id == "grub"));
}

#[test]
fn the_smaller_plan_keeps_the_most_that_was_used() {
    let mut host = host();
    fill(&mut host, "2M", 2048, 1000, 100);
    let high = sample(&host).unwrap();
    fill(&mut host, "2M", 2048, 500, 0);
    let low = sample(&host).unwrap();
    let identity = identity();
    let facts = facts(&host, &identity);
    let watched = Duration::from_secs(60);
    let tight = |samples: &[PoolSample]| {
        let plan = tighten(&facts, samples, watched, &PlanOptions::default()).unwrap();
        assert_eq!(parse(&written(&plan)).as_ref(), Ok(&plan));
        plan
    };
    // 1100, and 2 % more.
    let plan = tight(&[low.clone(), high, low.clone()]);
    assert_eq!(pools(&plan), ["2M/0: 561", "2M/1: 561"]);
    has(&plan.notes, "at most 1100 of 4096 pages of 2M");
    assert_eq!(pools(&tight(&[low])), ["2M/0: 255", "2M/1: 255"]);
    // Current use counts even if no sample includes it.
    assert_eq!(pools(&tight(&[])), ["2M/0: 255", "2M/1: 255"]);
}

#[test]
fn empty_pools_cannot_be_tightened() {
    let host = host();
    let sample = sample(&host).unwrap();
    let identity = identity();
    let facts = facts(&host, &identity);
    let watched = Duration::from_secs(1);
    let refusal = tighten(&facts, &[sample], watched, &PlanOptions::default()).unwrap_err();
    assert!(refusal.message.contains("all pools are empty"));
}

fn any_kind() -> impl Strategy<Value = ServiceKind> {
    prop::sample::select(ServiceKind::ALL.to_vec())
}

prop_compose! {
    fn any_service()(
        name in ".{0,12}",
        kind in any_kind(),
        mappings in prop::collection::vec((0u64..1 << 36, 0u64..4), 0..4),
        held in prop::option::of((0u64..1 << 34, any::<bool>())),
        unit in prop::option::of(".{0,12}"),
        page in prop::option::of(prop::sample::select(vec!["2M", "1G", "16M"])),
        thp in any::<bool>(),
        node in prop::option::of(0u32..3),
        uid in prop::option::of(0u32..3),
    ) -> Service {
        let mut service = service(&name, kind, 0);
        service.unit = unit;
        service.node = node;
        service.user = uid.map(user);
        let demand = &mut service.demands[0];
        demand.what = name.clone();
        demand.source = name;
        demand.page = page.map(size);
        demand.place = if thp { PageSource::Thp } else { PageSource::Pool };
        demand.mappings = mappings
            .into_iter()
            .map(|(bytes, count)| EqualMappings { bytes: Bytes(bytes), count })
            .collect();
        demand.held = held.map(|(bytes, on_pool)| vec![PageUsage {
            size: size(if on_pool { "2M" } else { "4K" }),
            kind: if on_pool { PageKind::Hugetlb } else { PageKind::Base },
            bytes: Bytes(bytes),
        }]);
        service
    }
}

proptest! {
    /// For any request, the plan parses to itself, base pages keep their memory, each demand is
    /// served or reported as missing, and no pages in use are removed.
    #[test]
    fn every_plan_is_sound(
        services in prop::collection::vec(any_service(), 0..5),
        pool in (0u64..6000, 0u64..=100, 0u64..2000),
    ) {
        let mut host = host();
        let used = pool.0 * 2 * pool.1 / 100 / 2 * 2;
        let free = pool.0 * 2 - used;
        fill(&mut host, "2M", pool.0, used, pool.2.min(free));
        let odd = |s: &Service| {
            s.kind == ServiceKind::PostgreSql && s.demands[0].page == Some(size("16M"))
        };
        if services.iter().any(|s| odd(s) && s.demands[0].place == PageSource::Pool) {
            return Ok(());
        }
        let plan = usual(&host, &services);
        let was: Bytes = plan.pools.iter().map(|p| p.was.unwrap().in_bytes(p.page)).sum();
        let grows = plan.in_pools() - plan.base.other_pools > was;
        let left = plan.left().unwrap();
        prop_assert!(!grows || left >= plan.base.margin, "{left} left of {plan:#?}");
        for (asked, got) in services.iter().zip(&plan.services) {
            for (asked, got) in asked.demands.iter().zip(&got.demands) {
                let all: Bytes = got.pages.iter().chain(&got.missing).map(|p| p.bytes()).sum();
                prop_assert!(got.from == PageSource::Thp || all >= asked.bytes());
            }
        }
        for pool in &plan.pools {
            let now = host.pools.iter().find(|p| p.size == pool.page && p.node == pool.node).unwrap();
            let in_use = now.total.get().unwrap().get() - now.free.get().unwrap().get();
            let bound = services.iter().any(|s| s.node.is_some());
            prop_assert!(bound || pool.pages.get() >= in_use);
        }
        let ids: std::collections::BTreeSet<String> = steps(&plan).into_iter().map(|s| s.id).collect();
        prop_assert_eq!(ids.len(), steps(&plan).len());
        let now = CurrentHost { host: &host, identity: &identity(), in_force: &[] };
        prop_assert!(check(&plan, &now).is_ok(), "{:?}", check(&plan, &now));
    }
}

/// A file of an exited program in a hugetlbfs, or a segment without attachments.
#[test]
fn pages_that_no_process_holds_are_never_made_permanent() {
    let mut host = host();
    fill(&mut host, "2M", 50, 80, 0);
    host.leftovers = Fact::Known(vec![OrphanedHugetlb {
        size: size("2M"),
        bytes: Pages(60).in_bytes(size("2M")),
        uid: 0,
        owner: Some("root".to_owned()),
        kind: OrphanKind::File {
            path: "/dev/hugepages/seg0".to_owned(),
        },
    }]);
    let plan = usual(&host, &[service("a", ServiceKind::Other, 20 << 20)]);
    let sum = |of: fn(&PoolPlan) -> Pages| -> Pages { plan.pools.iter().map(of).sum() };
    // 10 pages for the service and 20 of others are requested at each boot. 60 stay until then.
    assert_eq!(
        (sum(|p| p.pages), sum(PoolPlan::lasting)),
        (Pages(100), Pages(30))
    );
    assert_eq!(sum(|p| p.others), Pages(20));
    has(
        &plan.notes,
        "60 pages of 2M (120M) are held by no running process: file /dev/hugepages/seg0",
    );
    has(&plan.notes, "rm -- /dev/hugepages/seg0");
    // The service must not lack the pages that they hold.
    let plan = usual(&host, &[service("a", ServiceKind::Other, 100 << 20)]);
    let pages: Pages = plan.pools.iter().map(|p| p.pages).sum();
    assert_eq!(pages, Pages(20 + 60 + 50));
}

#[test]
fn shared_buffers_that_would_fill_whole_pages() {
    let mut host = host();
    host.memory.default_hugetlb_page = Fact::Known(size("1G"));
    let plan = usual(&host, &[service("pg", ServiceKind::PostgreSql, 514 << 20)]);
    assert_eq!(pools(&plan), ["1G/0: 1", "1G/1: 0"]);
    has(
        &plan.notes,
        "uses 514M of its 1G on pages of 1G: shared_buffers larger by 494MB would fill them",
    );
    let mut server = service("pg", ServiceKind::PostgreSql, 514 << 20);
    // The value was configured after the server started, so it is no part of the mapped memory.
    for (configured, says) in [
        (480, "shared_buffers = 974MB would fill them"),
        (2000, "shared_buffers larger by 494MB would"),
    ] {
        server.demands[0].buffers = Some(Bytes::from_mib(configured));
        has(&usual(&host, std::slice::from_ref(&server)).notes, says);
    }
    let plan = usual(&host, &[service("pg", ServiceKind::PostgreSql, 1020 << 20)]);
    assert!(
        !plan
            .notes
            .iter()
            .any(|note| note.contains("shared_buffers")),
        "{:?}",
        plan.notes
    );
}

#[test]
fn a_host_cache_is_rounded_rank_by_rank_on_each_node() {
    use hugeleaf_host::demand::{CacheNodes, cache_shares, host_cache};
    let shares = cache_shares(Bytes(10 * GIB), Some(4), CacheNodes::Each, &[0, 1]);
    let services = host_cache::services(&shares);
    let wishes = PlanOptions {
        sizes: Some(vec![size("1G"), size("2M")]),
        ..PlanOptions::default()
    };
    let plan = planned(&host(), &services, &wishes);
    // Each of two ranks a node takes 2.5G.
    let expected = ["1G/0: 4", "1G/1: 4", "2M/0: 512", "2M/1: 512"];
    assert_eq!(pools(&plan), expected);
    assert!(
        plan.boot.is_some(),
        "pages of 1G are guaranteed only at boot"
    );
    let ways = &plan.services[0].ways;
    has(ways, "LimitMEMLOCK=2684354560");
    has(ways, "pages of 1G are not the default (2M)");
    has(ways, "hugepages-1Gi: 4096Mi");
    // A cache is no SysV segment: it needs no group.
    assert!(plan.group.is_none());
}
