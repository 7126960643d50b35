//! Services on captured hosts, and on this one.
use std::path::{Path, PathBuf};

use hugeleaf_host::demand::{
    HugePageRequirement, PageSource, SOURCES, Service, ServiceKind, ServiceSelector, Services,
    read_services, read_source,
};
use hugeleaf_host::{Fact, Pid, Root, read_memory_facts};
use hugeleaf_sys::Kernel;
use hugeleaf_units::{Bytes, Failure, PageKind};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/why")
        .join(name)
}

fn all_of(root: &Root) -> Services {
    let host = read_memory_facts(root, &Kernel::new()).unwrap();
    read_services(root, &Kernel::new(), &host)
}

fn of(root: &Root, source: &ServiceSelector) -> Result<Vec<Service>, Failure> {
    let host = read_memory_facts(root, &Kernel::new()).unwrap();
    read_source(root, &Kernel::new(), &host, source)
}

fn by_flag(flag: &str, value: &str) -> ServiceSelector {
    let kind = SOURCES.iter().find(|kind| kind.flag == flag).unwrap();
    ServiceSelector::Flag(kind, value.into())
}

/// Copies a captured host and adds some files.
fn with(name: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture(name), dir.path());
    for (file, text) in files {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let root = Root::at(dir.path());
    (dir, root)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_running_cluster_is_told_by_its_shared_mapping() {
    let unit = "lib/systemd/system/postgresql@.service";
    let exec = "[Service]\nExecStart=/usr/bin/pg_ctlcluster %i start\nUser=postgres\n";
    let passwd = "postgres:x:999:999::/:/bin/sh\n";
    let files = [
        (unit, exec),
        ("proc/stat", "btime 1000\n"),
        ("etc/passwd", passwd),
    ];
    let (_dir, root) = with("postgres-pool-short", &files);
    let found = all_of(&root);
    assert_eq!((found.services.len(), found.unread.len()), (1, 0));
    let service = &found.services[0];
    assert_eq!(
        (service.name.as_str(), service.kind),
        ("postgresql@15-main", ServiceKind::PostgreSql)
    );
    assert_eq!(service.unit.as_deref(), Some("postgresql@15-main.service"));
    let command = "/usr/bin/pg_ctlcluster 15-main start";
    assert_eq!(service.exec_start.as_deref(), Some(command));
    assert_eq!(service.pids, [Pid(1000)]);
    assert_eq!(
        service.since,
        Fact::Known(1000 + 5555 / hugeleaf_sys::ticks_per_second())
    );
    let user = service.user.as_ref().unwrap();
    assert_eq!((user.name.as_deref(), user.uid), (Some("postgres"), 999));
    // The setting is missing, so its default applies.
    assert_eq!(
        (
            service.huge_page_setting.requirement,
            service.huge_page_setting.text.as_str()
        ),
        (HugePageRequirement::IfAvailable, "")
    );
    let demand = &service.demands[0];
    assert_eq!(demand.bytes(), Bytes::from_kib(524_300));
    assert_eq!((demand.place, demand.page), (PageSource::Pool, None));
    let held = demand.held.as_ref().unwrap();
    assert!(held.iter().all(|held| held.kind != PageKind::Hugetlb));
    // The PID and the unit give the same result.
    let by_pid = of(&root, &ServiceSelector::Pids(vec![Pid(1000)])).unwrap();
    assert_eq!(by_pid, found.services);
    for unit in ["postgresql@15-main", "postgresql@15-main.service"] {
        assert_eq!(
            of(&root, &ServiceSelector::Unit(unit.to_owned())).unwrap(),
            found.services
        );
    }
}

#[test]
fn redis_is_never_for_the_pool() {
    let found = all_of(&Root::at(fixture("redis-saves")));
    let redis: Vec<&Service> = found
        .services
        .iter()
        .filter(|s| s.kind == ServiceKind::Redis)
        .collect();
    assert!(!redis.is_empty(), "{found:?}");
    let mut demands = redis.iter().flat_map(|service| &service.demands);
    assert!(demands.all(|demand| demand.place == PageSource::Thp));
}

const HEADING: &str =
    "key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap\n";

#[test]
fn segments_are_told_attached_or_not() {
    let meminfo = std::fs::read_to_string(fixture("sysv-memlock").join("proc/meminfo")).unwrap();
    assert!(meminfo.contains("Hugepagesize"));
    let segments = format!(
        "{HEADING}305419896 1029 600 536883200 1000 1000 1 54321 500 54321 500 0 0 0 0 0\n\
         0 7 600 8388608000 4242 4242 0 54322 500 54322 500 0 0 0 0 0\n\
         0 8 600 4096 4242 4242 0 54322 500 54322 500 0 0 0 0 0\n"
    );
    let files = [
        ("proc/sysvipc/shm", segments.as_str()),
        ("etc/passwd", "other:x:54322:500::/:/bin/sh\n"),
    ];
    let (_dir, root) = with("sysv-memlock", &files);
    let found = all_of(&root);
    let sysv: Vec<&Service> = found
        .services
        .iter()
        .filter(|s| s.kind == ServiceKind::SysV)
        .collect();
    assert_eq!(sysv.len(), 2, "{found:?}");
    assert_eq!(
        (sysv[0].name.as_str(), sysv[0].pids.as_slice()),
        ("oracle", &[Pid(1000)][..])
    );
    assert_eq!(sysv[0].demands[0].bytes(), Bytes(536_883_200));
    assert!(sysv[0].demands[0].held.is_some());
    // A process named alone has only its own segments.
    let named = of(&root, &ServiceSelector::Pids(vec![Pid(1000)])).unwrap();
    assert_eq!(named, [sysv[0].clone()]);
    // The second is not attached, and the third is smaller than any huge page.
    assert_eq!(
        (sysv[1].name.as_str(), sysv[1].pids.len()),
        ("segments of other", 0)
    );
    assert_eq!(sysv[1].demands.len(), 1);
    assert_eq!(sysv[1].demands[0].held, None);
}

#[test]
fn segments_that_the_list_does_not_show_are_told_by_their_mappings() {
    let found = all_of(&Root::at(fixture("sysv-no-right")));
    let service = &found.services[0];
    assert_eq!(
        (service.name.as_str(), service.kind),
        ("oracle", ServiceKind::SysV)
    );
}

#[test]
fn a_container_is_what_runs_in_it() {
    let root = Root::at(fixture("container-limits"));
    for path in ["/kubepods/a", "kubepods/a/", "/sys/fs/cgroup/kubepods/a"] {
        let found = of(&root, &by_flag("container", path)).unwrap();
        assert_eq!(
            (found[0].kind, found[0].name.as_str()),
            (ServiceKind::Container, "a")
        );
        assert_eq!(found[0].limits.hugetlb[0].path, "/kubepods/a");
        assert_eq!(found[0].pids, [Pid(1000)]);
        let shared = found[0]
            .demands
            .iter()
            .find(|d| d.place == PageSource::Pool)
            .unwrap();
        assert_eq!(shared.bytes(), Bytes::from_kib(524_300));
    }
    let all = of(&root, &by_flag("container", "/kubepods")).unwrap();
    assert_eq!(all[0].pids, [Pid(1000), Pid(1001)]);
    let none = of(&root, &by_flag("container", "/kubepods/c")).unwrap_err();
    assert!(
        none.status == 2 && none.message.contains("/kubepods/c"),
        "{none:?}"
    );
}

/// Neither a process in a cgroup whose path the container's ends in, nor one in the top cgroup.
#[test]
fn a_container_is_told_by_its_whole_path() {
    for other in ["0::/a\n", "0::/\n"] {
        let (_dir, root) = with("container-limits", &[("proc/1001/cgroup", other)]);
        for path in ["/kubepods/a", "/sys/fs/cgroup/kubepods/a"] {
            let found = of(&root, &by_flag("container", path)).unwrap();
            assert_eq!(found[0].pids, [Pid(1000)], "{other:?} {path}");
        }
    }
}

#[test]
fn no_program_is_run_for_a_captured_host() {
    let files = [
        ("srv/pg/PG_VERSION", "15\n"),
        ("usr/lib/postgresql/15/bin/postgres", "#!/bin/sh\n"),
        ("usr/sbin/mariadbd", "#!/bin/sh\n"),
        ("usr/bin/java", "#!/bin/sh\n"),
    ];
    let (_dir, root) = with("postgres-stock", &files);
    for source in [
        by_flag("postgres", "/srv/pg"),
        by_flag("mariadb", ""),
        by_flag("java", "-Xmx1g"),
    ] {
        let error = of(&root, &source).unwrap_err();
        assert!(error.message.contains("captured host"), "{error:?}");
        assert!(!error.remedy.is_empty() && error.status == 3);
    }
}

#[test]
fn what_is_not_there_is_said_with_what_to_do_next() {
    let root = Root::at(fixture("postgres-stock"));
    let usage = |source: ServiceSelector| {
        let error = of(&root, &source).unwrap_err();
        assert!(error.status == 2 && !error.remedy.is_empty(), "{error:?}");
        error.message
    };
    assert!(usage(by_flag("postgres", "/nowhere")).contains("/nowhere/PG_VERSION"));
    assert!(usage(by_flag("java", "/opt/none/java -Xmx1g")).starts_with("/opt/none/java"));
    assert!(usage(ServiceSelector::Unit("none".into())).starts_with("none.service"));
    let gone = of(&root, &ServiceSelector::Pids(vec![Pid(77)])).unwrap_err();
    assert!(gone.message.contains("process 77"), "{gone:?}");
}

#[test]
fn a_stopped_unit_whose_program_cannot_be_asked() {
    let file = "etc/systemd/system/app.service";
    let files = [
        (file, "[Service]\nExecStart=/usr/bin/app\n"),
        ("etc/systemd/system/multi-user.target.wants/app.service", ""),
    ];
    let (_dir, root) = with("postgres-stock", &files);
    let error = of(&root, &ServiceSelector::Unit("app".to_owned())).unwrap_err();
    assert!(
        error.remedy.contains("systemctl start app.service"),
        "{error:?}"
    );
    // A scan of the host does not report it.
    assert!(all_of(&root).unread.is_empty());
}

#[test]
fn this_very_process_can_be_measured() {
    let root = Root::live();
    let parent = std::os::unix::process::parent_id();
    match of(&root, &ServiceSelector::Pids(vec![Pid(parent)])) {
        Ok(found) => assert_eq!(found[0].pids, [Pid(parent)]),
        // The process is another user's, or has ended.
        Err(error) => assert!(error.message.contains(&parent.to_string()), "{error:?}"),
    }
}
