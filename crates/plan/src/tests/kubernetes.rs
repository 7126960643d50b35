//! Tests of plans for pods and for the nodes of a group.

use super::*;
use hugeleaf_host::MemoryLimit;

fn of(plan: &Plan, services: &[Service]) -> KubernetesPlan {
    KubernetesPlan::new(plan, services, None)
}

#[test]
fn a_plan_for_nodes_names_no_host_and_can_be_applied_on_each() {
    let services = [
        service("Big DB@15", ServiceKind::PostgreSql, 8 * GIB),
        sized(service("b", ServiceKind::Other, 4 * GIB), "1G"),
    ];
    let mut plan = usual(&host(), &services);
    plan.knobs.push(Knob {
        path: "/proc/sys/kernel/shmmax".into(),
        was: Some("1".to_owned()),
        now: "8589934592".to_owned(),
        why: "the segment".to_owned(),
        risk: "none".to_owned(),
        restart: Vec::new(),
    });
    let made = KubernetesPlan::new(&plan, &services, Some("Big DBs"));
    assert_eq!(made.name, "big-dbs");
    let text = written(&made.for_nodes);
    assert_eq!(parse(&text).unwrap(), made.for_nodes);
    for own in [
        "db1", "00112233", "was =", "made =", "kernel =", "shmmax", "keep",
    ] {
        assert!(!text.contains(own), "{own} in {text}");
    }
    assert_eq!(made.left_out, ["/proc/sys/kernel/shmmax = 8589934592"]);
    assert_eq!(made.boot_arguments, ["hugepagesz=1G hugepages=4"]);
    has(&made.for_nodes.notes, "systemctl restart kubelet");
    has(
        &made.for_nodes.notes,
        "kernel command line: hugepagesz=1G hugepages=4",
    );
    // Another host of the same kind accepts it, with and without pages in its pools.
    let mut other = host();
    for pages in [0, 5] {
        other.pools[1] = pool("2M", Some(0), pages);
        let other_identity = HostIdentity {
            name: word("other"),
            id: word("ffff"),
        };
        let now = CurrentHost {
            host: &other,
            identity: &other_identity,
            in_force: &[],
        };
        assert_eq!(check(&made.for_nodes, &now), Ok(Vec::new()));
    }
}

#[test]
fn pods_request_what_their_service_needs() {
    let mut running = service("Big DB@15", ServiceKind::PostgreSql, GIB);
    running.limits.memory = vec![MemoryLimit {
        version: 2,
        path: "/a".to_owned(),
        file: "/sys/fs/cgroup/a/memory.max".to_owned(),
        limit: Bytes::from_mib(300),
        usage: Bytes(0),
        inactive_cache: Bytes(0),
        active_cache: Bytes(0),
        only_throttles: false,
    }];
    let mut on_thp = service("redis", ServiceKind::Redis, GIB);
    on_thp.demands[0].place = PageSource::Thp;
    let services = [
        running,
        service("big-db 15", ServiceKind::Other, 2 * GIB),
        on_thp,
    ];
    let wishes = PlanOptions {
        mounts: vec![Mount {
            path: "/mnt/huge".into(),
            page: size("2M"),
            uid: None,
            gid: None,
            mode: 0o770,
            size: None,
        }],
        ..PlanOptions::default()
    };
    let plan = planned(&host(), &services, &wishes);
    let made = of(&plan, &services);
    let pods: Vec<(&str, &str, String)> = made
        .pods
        .iter()
        .map(|pod| (&*pod.service, &*pod.name, all_pages_text(&pod.pages)))
        .collect();
    assert_eq!(
        pods,
        [
            ("Big DB@15", "big-db-15", "512 pages of 2M".to_owned()),
            ("big-db 15", "big-db-15-2", "1024 pages of 2M".to_owned())
        ]
    );
    assert_eq!(made.pods[0].memory, Some(Bytes::from_mib(300)));
    assert_eq!(made.pods[1].memory, None);
    assert_eq!(made.pods[0].mounts, [("/mnt/huge".into(), size("2M"))]);
    has(&made.pods[0].ways, "huge_pages = on");
    // The pod's volume takes the place of the host's mount.
    assert!(
        steps(&made.for_nodes)
            .iter()
            .all(|step| !step.id.contains("mnt"))
    );
    assert_eq!(made.name, "pools");
}

/// Pages that stay only until the next boot of this host are not for other nodes. Pages of others are.
#[test]
fn idle_pages_of_this_host_are_not_planned_for_others() {
    let mut host = host();
    for (at, node, pages) in [(0, None, 2000), (1, Some(0), 1000), (2, Some(1), 1000)] {
        host.pools[at] = pool("2M", node, pages);
        host.pools[at].free = Fact::Known(Pages(pages));
    }
    let services = [service("a", ServiceKind::Other, GIB)];
    let plan = usual(&host, &services);
    assert_eq!(
        plan.pools.iter().map(|p| p.pages).sum::<Pages>(),
        Pages(2000)
    );
    let made = of(&plan, &services);
    assert_eq!(all_pages_text(&made.pools), "512 pages of 2M");
    assert_eq!(made.name, "a");
}

const SYSCTL_FILE: &str = "/etc/sysctl.d/60-hugeleaf.conf";
const TMPFILES_FILE: &str = "/etc/tmpfiles.d/hugeleaf.conf";

/// Returns the content of a file that the plan writes.
fn content(plan: &Plan, path: &str) -> Option<String> {
    steps(plan).into_iter().find_map(|step| match step.what {
        StepAction::File { text, .. } if step.path == Path::new(path) => Some(text),
        _ => None,
    })
}

/// Without the default size, the pool was set by tmpfiles.d, and an earlier number stayed in sysctl.d.
#[test]
fn a_plan_without_the_default_size_leaves_no_second_number() {
    let old = format!("{OURS}\nvm.nr_hugepages = 7\n");
    let read = |path: &Path| (path == Path::new(SYSCTL_FILE)).then(|| old.clone());
    let mut plan = usual(&host(), &[service("a", ServiceKind::Other, GIB)]);
    plan.host.default_page = None;
    assert_eq!(content(&plan, SYSCTL_FILE), None);
    complete(&mut plan, &host(), read).unwrap();
    let written = content(&plan, SYSCTL_FILE).unwrap();
    assert_eq!(written, format!("{OURS}\nvm.nr_hugepages = 512\n"));
    assert_eq!(content(&plan, TMPFILES_FILE), None);
}

/// A plan for several hosts finds the lines of earlier plans on each of them.
#[test]
fn a_plan_for_several_hosts_takes_over_its_earlier_lines() {
    let pool = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
    let other = "w /sys/kernel/mm/transparent_hugepage/shmem_enabled - - - - advise";
    let old = format!("{OURS}\nw {pool} - - - - 7\n{other}\n");
    let read = |path: &Path| (path == Path::new(TMPFILES_FILE)).then(|| old.clone());
    let services = [service("a", ServiceKind::Other, GIB)];
    let own = usual(&host(), &services);
    let mut made = of(&own, &services).for_nodes;
    complete(&mut made, &host(), read).unwrap();
    assert_eq!(
        content(&made, TMPFILES_FILE),
        Some(format!("{OURS}\n{other}\n"))
    );
    // A plan of one host has its own list.
    let mut edited = own.clone();
    complete(&mut edited, &host(), read).unwrap();
    assert_eq!(edited, own);
}
