//! Tests that the promises of plans in force reduce the pages for the next plan.

use super::*;

/// Returns a stopped cluster.
fn cluster(folder: &str, bytes: u64) -> Service {
    let mut one = service("postgresql-15", ServiceKind::PostgreSql, bytes);
    one.configured_by = Some(folder.into());
    one
}

fn after(host: &Host, in_force: &[PlanInForce], found: &[Service], new: &[Service]) -> Plan {
    let identity = identity();
    let facts = PlanFacts {
        in_force,
        found,
        ..facts(host, &identity)
    };
    let plan = build_plan(&facts, new, &PlanOptions::default()).unwrap();
    let text = written(&plan);
    assert_eq!(parse(&text).as_ref(), Ok(&plan), "{text}");
    plan
}

fn applied(id: u32, plan: Plan) -> PlanInForce {
    PlanInForce { id, plan: Ok(plan) }
}

/// Returns the 2M pages on all nodes, and those after a boot.
fn pages(plan: &Plan) -> (u64, u64) {
    let of_size = || plan.pools.iter().filter(|p| p.page == size("2M"));
    let all = of_size().map(|p| p.pages.get()).sum();
    (all, of_size().map(|p| p.lasting().get()).sum())
}

#[test]
fn a_second_stopped_cluster_gets_pages_of_its_own() {
    let mut host = host();
    let (one, two) = (cluster("/a", GIB), cluster("/b", GIB));
    let first = usual(&host, std::slice::from_ref(&one));
    assert_eq!(pages(&first), (512, 512));
    fill(&mut host, "2M", 256, 0, 0);
    let in_force = [applied(1, first)];
    let found = [one.clone(), two.clone()];
    let second = after(&host, &in_force, &found, std::slice::from_ref(&two));
    assert_eq!(pages(&second), (1024, 1024));
    assert_eq!(second.services[0].name, "postgresql-15-2");
    assert_eq!(second.promises[0].name.as_deref(), Some("postgresql-15"));
    has(
        &second.notes,
        "512 pages of 2M are promised to postgresql-15 by apply 1",
    );
    // Plan the first service again: with the promise to the second, the pool has exactly enough.
    fill(&mut host, "2M", 512, 0, 0);
    let in_force = [applied(2, second), in_force[0].clone()];
    let again = after(&host, &in_force, &found, std::slice::from_ref(&one));
    assert_eq!(pages(&again), (1024, 1024));
    // A running service with its pages needs no more.
    fill(&mut host, "2M", 512, 512, 0);
    let runs = running(one, "2M", PageKind::Hugetlb);
    let third = cluster("/c", GIB);
    let found = [runs, two, third.clone()];
    assert_eq!(
        pages(&after(&host, &in_force, &found, &[third])),
        (1536, 1536)
    );
}

#[test]
fn bytes_that_nobody_named_are_new_ones_and_a_name_says_which() {
    let mut host = host();
    let bytes = |name: &str, is_unnamed| Service {
        is_unnamed,
        ..service(name, ServiceKind::Other, GIB)
    };
    let first = usual(&host, &[bytes("bytes", true)]);
    fill(&mut host, "2M", 256, 0, 0);
    let in_force = [applied(1, first)];
    let second = after(&host, &in_force, &[], &[bytes("bytes", true)]);
    assert_eq!(pages(&second), (1024, 1024));
    assert_eq!(second.services[0].name, "bytes-2");
    let same = after(&host, &in_force, &[], &[bytes("bytes", false)]);
    assert_eq!((pages(&same), same.promises.len()), ((512, 512), 0));
}

#[test]
fn pages_in_use_by_nobody_known_may_be_those_that_were_promised() {
    let mut host = host();
    let cache = service("cache", ServiceKind::Other, GIB);
    let other = service("other", ServiceKind::SysV, GIB);
    let first = usual(&host, &[cache]);
    let in_force = [applied(1, first)];
    // It runs under another name, and has its pages.
    fill(&mut host, "2M", 256, 512, 0);
    let second = after(&host, &in_force, &[], std::slice::from_ref(&other));
    assert_eq!(pages(&second), (1024, 1024));
    // Pages that others already used before are not counted.
    let mut first = in_force[0].plan.clone().unwrap();
    first.pools[0].others = Pages(256);
    let in_force = [applied(1, first)];
    let second = after(&host, &in_force, &[], &[other]);
    assert_eq!(pages(&second), (1280, 1280));
}

#[test]
fn idle_pages_are_left_to_a_plan_that_cannot_be_read() {
    let mut host = host();
    fill(&mut host, "2M", 500, 0, 0);
    let unread = [PlanInForce {
        id: 7,
        plan: Err("line 1: not TOML".to_owned()),
    }];
    let plan = after(&host, &unread, &[], &[service("a", ServiceKind::SysV, GIB)]);
    assert_eq!(pages(&plan), (1512, 1512));
    has(&plan.notes, "the plan of apply 7 cannot be read");
    let identity = identity();
    let now = CurrentHost {
        host: &host,
        identity: &identity,
        in_force: &unread,
    };
    assert!(check(&plan, &now).is_ok());
    let facts = PlanFacts {
        in_force: &unread,
        ..facts(&host, &identity)
    };
    let seen = [sample(&host).unwrap()];
    let smaller = tighten(
        &facts,
        &seen,
        Duration::from_secs(1),
        &PlanOptions::default(),
    );
    let refusal = smaller.unwrap_err();
    assert!(refusal.message.contains("apply 7"), "{refusal:?}");
    let blind = usual(&host, &[service("a", ServiceKind::SysV, GIB)]);
    let refusals = check(&blind, &now).unwrap_err();
    assert!(
        refusals[0].message.contains("the plan of apply 7"),
        "{refusals:?}"
    );
}

#[test]
fn idle_pages_are_used_and_not_asked_for_again() {
    let mut host = host();
    fill(&mut host, "2M", 1000, 0, 0);
    let cache = service("cache", ServiceKind::Other, 100 << 20);
    let plan = usual(&host, std::slice::from_ref(&cache));
    assert_eq!(pages(&plan), (2000, 50));
    has(
        &plan.notes,
        "1950 pages of 2M in the pool are neither in use",
    );
    let text = |plan: &Plan| {
        let all = steps(plan);
        let files = all.iter().filter_map(|step| match &step.what {
            StepAction::File { text, .. } => Some(text.clone()),
            _ => None,
        });
        files.collect::<String>()
    };
    assert!(
        text(&plan).contains("vm.nr_hugepages = 50\n"),
        "{}",
        text(&plan)
    );
    // A file of another owner requests them at each boot, so they are intended.
    let set = |pages: &str| {
        Fact::Known(vec![SysctlLine {
            path: "/etc/sysctl.d/10-db.conf".to_owned(),
            key: "vm.nr_hugepages".to_owned(),
            value: pages.to_owned(),
        }])
    };
    host.limits.sysctl = set("1200");
    assert_eq!(
        pages(&usual(&host, std::slice::from_ref(&cache))),
        (2000, 1200)
    );
    host.limits.sysctl = set("9999");
    assert_eq!(pages(&usual(&host, &[cache])), (2000, 2000));
    // More idle pages than exist are invalid.
    let mut edited = plan;
    edited.pools[0].idle = Pages(990);
    let error = parse(&written(&edited)).unwrap_err();
    assert!(
        error.what.contains("only 1950 pages have no user"),
        "{error}"
    );
}

#[test]
fn a_plan_that_knows_nothing_of_another_is_refused() {
    let host = host();
    let (a, b) = (cluster("/a", GIB), cluster("/b", GIB));
    let (first, second) = (usual(&host, &[a]), usual(&host, std::slice::from_ref(&b)));
    let in_force = [applied(1, first.clone())];
    let identity = identity();
    let now = CurrentHost {
        host: &host,
        identity: &identity,
        in_force: &in_force,
    };
    let refusals = check(&second, &now).unwrap_err();
    let what = &refusals[0].message;
    assert!(
        what.contains("apply 1 promises 512 pages of 2M to postgresql-15"),
        "{what}"
    );
    assert!(check(&first, &now).is_ok());
    assert!(check(&after(&host, &in_force, &[], &[b]), &now).is_ok());
}

#[test]
fn a_service_on_one_node_takes_no_pages_of_another() {
    let mut host = host();
    let bound = |name: &str, node| Service {
        node: Some(node),
        ..service(name, ServiceKind::Other, GIB)
    };
    let first = usual(&host, &[bound("a", 0)]);
    for (node, pages) in [(None, 512), (Some(0), 512), (Some(1), 0)] {
        let of = |p: &&mut hugeleaf_host::Pool| p.size == size("2M") && p.node == node;
        let pool = host.pools.iter_mut().find(of).unwrap();
        (pool.total, pool.free) = (Fact::Known(Pages(pages)), Fact::Known(Pages(pages)));
    }
    host.memory.available = gib(39);
    let in_force = [applied(1, first)];
    let second = after(&host, &in_force, &[], &[bound("b", 1)]);
    assert_eq!(pools(&second), ["2M/0: 512", "2M/1: 512"]);
    assert_eq!(second.pools[0].promised, Pages(512));
    let third = after(&host, &in_force, &[], &[bound("c", 0)]);
    assert_eq!(pools(&third), ["2M/0: 1024", "2M/1: 0"]);
    // Pages that it holds elsewhere move to its node, and are not kept in both places.
    let mut strays = running(bound("d", 1), "2M", PageKind::Hugetlb);
    for pool in host
        .pools
        .iter_mut()
        .filter(|p| p.size == size("2M") && p.node != Some(1))
    {
        pool.free = Fact::Known(Pages(0));
    }
    strays.node = Some(1);
    assert_eq!(pools(&usual(&host, &[strays])), ["2M/0: 0", "2M/1: 512"]);
}

#[test]
fn what_is_made_smaller_leaves_stopped_services_theirs() {
    let mut host = host();
    let (a, b) = (cluster("/a", GIB), cluster("/b", GIB));
    let both = usual(&host, &[a.clone(), b.clone()]);
    fill(&mut host, "2M", 1024, 512, 0);
    let in_force = [applied(1, both)];
    let found = [running(a.clone(), "2M", PageKind::Hugetlb), b.clone()];
    let identity = identity();
    let facts = PlanFacts {
        in_force: &in_force,
        found: &found,
        ..facts(&host, &identity)
    };
    let seen = [sample(&host).unwrap()];
    let plan = tighten(
        &facts,
        &seen,
        Duration::from_secs(1),
        &PlanOptions::default(),
    )
    .unwrap();
    // 512 in use and 11 more, and 512 for the one that does not run.
    assert_eq!(pages(&plan).0, 512 + 11 + 512);
    assert_eq!(parse(&written(&plan)).as_ref(), Ok(&plan));
    // A running service needs the pages in use. A stopped one keeps its promise.
    let in_force = [applied(2, plan), in_force[0].clone()];
    let mut half = found;
    half[0].demands[0].held.as_mut().unwrap()[0].bytes = Bytes(GIB / 2);
    fill(&mut host, "2M", 600, 256, 0);
    let next = after(&host, &in_force, &half, &[cluster("/c", GIB)]);
    assert_eq!(pages(&next).1, 256 + 512 + 512);
}
