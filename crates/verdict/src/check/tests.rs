mod other_screens;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use hugeleaf_host::system::running_programs::RunningProcess;
use hugeleaf_host::system::system_config::{
    Disk, DiskMount, FileSystemFeatures, NetworkDevice, ResourceLimit, SystemConfig,
};
use hugeleaf_host::{Fact, Host, Pid};
use hugeleaf_units::Bytes;
use proptest::prelude::*;

use super::*;
use crate::findings::tests::testing::{gib, healthy, size, thp, word};

fn features(settings: &[(&str, &str)]) -> SystemConfig {
    SystemConfig {
        settings: (settings.iter())
            .map(|(name, value)| (format!("proc/sys/{}", name.replace('.', "/")), word(value)))
            .collect(),
        ..SystemConfig::default()
    }
}

static PROGRAMS: LazyLock<Vec<KnownProgram>> = LazyLock::new(programs);

/// Processes of these names, with consecutive PIDs.
fn running(names: &[&str]) -> Vec<RunningProcess> {
    let one = |(at, name): (usize, &&str)| RunningProcess {
        pid: Pid(u32::try_from(at).unwrap() + 100),
        name: (*name).to_owned(),
        version: Some(8),
        ..RunningProcess::default()
    };
    names.iter().enumerate().map(one).collect()
}

fn rows_of(
    host: &Host,
    features: &SystemConfig,
    profile: Option<WorkloadProfile>,
    all: &[RunningProcess],
) -> Vec<CheckRow> {
    check(&CheckInput {
        host,
        features,
        profile,
        servers: &Fact::Known(servers(&PROGRAMS, all)),
    })
}

fn rows(
    host: &Host,
    features: &SystemConfig,
    profile: Option<WorkloadProfile>,
    names: &[&str],
) -> Vec<CheckRow> {
    rows_of(host, features, profile, &running(names))
}

fn find(all: &[CheckRow], id: &str) -> CheckRow {
    let found = all.iter().find(|row| row.id == id);
    found
        .unwrap_or_else(|| panic!("no row {id}: {all:#?}"))
        .clone()
}

fn one(host: &Host, features: &SystemConfig, id: &str) -> CheckRow {
    find(&rows(host, features, None, &[]), id)
}

#[test]
fn a_device_that_leaves_work_to_the_processor_is_looked_at() {
    let with = |known: &[(&'static str, bool)]| SystemConfig {
        network: Fact::Known(vec![NetworkDevice {
            name: "eth0".to_owned(),
            offloads: match known {
                [] => Fact::Absent,
                known => Fact::Known(known.iter().copied().collect()),
            },
            ..NetworkDevice::default()
        }]),
        ..SystemConfig::default()
    };
    let row = |known| one(&healthy(), &with(known), "network-offloads");
    assert_eq!(row(&[]).state, CheckState::Absent);
    assert_eq!(row(&[("cutting", true)]).state, CheckState::Good);
    let off = row(&[("checksums", true), ("cutting", false)]);
    assert_eq!(off.state, CheckState::Review);
    assert!(off.value.unwrap().ends_with("without cutting"));
    assert!(off.command.unwrap().contains("eth0"));
}

#[test]
fn every_want_of_the_data_file_has_a_source_and_a_value_that_is_known() {
    let all = programs();
    assert!(all.len() >= 17);
    for want in all.iter().flat_map(|program| &program.want) {
        assert!(want.source.starts_with("https://"), "{want:?}");
        let ways = [
            want.least.is_some(),
            want.most.is_some(),
            !want.values.is_empty(),
        ];
        assert_eq!(ways.iter().filter(|is| **is).count(), 1, "{want:?}");
        let known: Option<&[&str]> = match want.setting.as_str() {
            "thp.enabled" => Some(&["always", "madvise", "never"]),
            "thp.defrag" => Some(&["always", "defer", "defer+madvise", "madvise", "never"]),
            _ => None,
        };
        let is_known = |value: &String| known.is_none_or(|known| known.contains(&value.as_str()));
        assert!(want.values.iter().all(is_known), "{want:?}");
    }
}

#[test]
fn settings_that_hurt_have_a_command_and_a_risk() {
    let host = healthy();
    let bad = features(&[
        ("vm.zone_reclaim_mode", "1"),
        ("net.core.somaxconn", "128"),
        ("kernel.io_uring_disabled", "2"),
        ("kernel.pid_max", "32768"),
        ("vm.max_map_count", "65530"),
        ("kernel.shmmax", "33554432"),
        ("fs.aio-max-nr", "65536"),
        ("fs.aio-nr", "60000"),
        ("kernel.threads-max", "100"),
    ]);
    for (id, state) in [
        ("zone-reclaim", CheckState::Change),
        ("somaxconn", CheckState::Review),
        ("io-uring", CheckState::Review),
        ("threads", CheckState::Review),
        ("maps", CheckState::Review),
        ("shared-memory", CheckState::Review),
        ("aio", CheckState::Change),
    ] {
        let row = one(&host, &bad, id);
        assert_eq!(row.state, state, "{row:?}");
        assert!(
            row.why.is_some() && row.command.is_some() && row.risk.is_some(),
            "{row:?}"
        );
    }
    let good = features(&[
        ("vm.zone_reclaim_mode", "0"),
        ("net.core.somaxconn", "4096"),
        ("kernel.io_uring_disabled", "0"),
        ("vm.max_map_count", "1048576"),
        ("kernel.shmmax", "18446744073692774399"),
        ("fs.aio-max-nr", "1048576"),
    ]);
    for id in [
        "zone-reclaim",
        "somaxconn",
        "io-uring",
        "maps",
        "shared-memory",
        "aio",
    ] {
        assert_eq!(one(&host, &good, id).state, CheckState::Good, "{id}");
    }
}

#[test]
fn absent_and_unreadable_differ() {
    let host = healthy();
    assert_eq!(
        one(&host, &SystemConfig::default(), "io-uring").state,
        CheckState::Absent
    );
    let error =
        hugeleaf_host::ReadError::io("/x".into(), &std::io::ErrorKind::PermissionDenied.into());
    let mut unreadable = features(&[]);
    unreadable.settings.insert(
        "proc/sys/kernel/io_uring_disabled".into(),
        Fact::Unreadable(error),
    );
    assert_eq!(
        one(&host, &unreadable, "io-uring").state,
        CheckState::Unknown
    );
}

#[test]
fn thp_that_is_never_is_looked_at_and_absent_where_there_is_none() {
    let mut host = healthy();
    thp(&mut host).enabled = word("never");
    let row = one(&host, &SystemConfig::default(), "thp");
    assert_eq!(
        (row.state, row.arm.as_deref()),
        (CheckState::Review, Some("thp:2M"))
    );
    // Promotion needs no setting.
    assert!(row.why.unwrap().contains("hugeleaf promote"));
    host.thp = Fact::Absent;
    assert_eq!(
        one(&host, &SystemConfig::default(), "thp").state,
        CheckState::Absent
    );
}

#[test]
fn thp_is_what_is_in_force_of_the_full_size() {
    let mut host = healthy();
    thp(&mut host).enabled = word("never");
    thp(&mut host).orders[1].anon = word("always");
    let row = one(&host, &SystemConfig::default(), "thp");
    assert_eq!(
        (row.state, row.value.as_deref()),
        (CheckState::Good, Some("always"))
    );
    thp(&mut host).enabled = word("always");
    thp(&mut host).orders[1].anon = word("never");
    let row = one(&host, &SystemConfig::default(), "thp");
    assert_eq!(
        (row.state, row.value.as_deref()),
        (CheckState::Review, Some("never"))
    );
    assert!(row.command.unwrap().ends_with("hugepages-2048kB/enabled"));
}

#[test]
fn programs_that_want_different_things_get_no_command() {
    let host = healthy();
    let set = features(&[("vm.overcommit_memory", "0")]);
    let row = |names: &[&str], id| find(&rows(&host, &set, None, names), id);
    let both = row(&["mongod", "redis-server"], "thp");
    let why = both.why.unwrap();
    assert!(why.contains("no value suits all") && why.contains("MongoDB") && why.contains("Redis"));
    assert_eq!((both.state, both.command), (CheckState::Change, None));
    assert_eq!(both.wants.len(), 2);
    // One program wants 1, the other 2.
    let both = row(&["redis-server", "postgres"], "overcommit");
    assert_eq!((both.state, both.command), (CheckState::Change, None));
    let peaceful = row(&["redis-server", "postgres"], "thp");
    assert_eq!((peaceful.state, peaceful.why), (CheckState::Good, None));
    // Among the values that suit one program, the row takes the one that suits the other too.
    assert_eq!(
        row(&["redis-server", "tikv-server"], "thp")
            .command
            .unwrap(),
        "echo never > /sys/kernel/mm/transparent_hugepage/enabled"
    );
    assert_eq!(
        row(&["clickhouse-serv", "redis-server"], "overcommit")
            .command
            .unwrap(),
        "sysctl -w vm.overcommit_memory=1"
    );
}

#[test]
fn a_rule_for_all_hosts_gives_way_to_programs_that_run_here() {
    let mut host = healthy();
    host.memory.swap_total = gib(4);
    let state = |names: &[&str], value| {
        let set = features(&[("vm.swappiness", value)]);
        let row = find(&rows(&host, &set, None, names), "swappiness");
        (row.state, row.command)
    };
    assert_eq!(state(&[], "10"), (CheckState::Good, None));
    let to_one = Some("sysctl -w vm.swappiness=1".to_owned());
    assert_eq!(state(&["mariadbd"], "10"), (CheckState::Review, to_one));
    let to_none = Some("sysctl -w vm.swappiness=0".to_owned());
    assert_eq!(
        state(&["mariadbd", "tikv-server"], "60"),
        (CheckState::Review, to_none)
    );
    assert_eq!(
        state(&["mariadbd", "tikv-server"], "0"),
        (CheckState::Good, None)
    );
    // Couchbase wants never, so `never` is good.
    let mut off = healthy();
    thp(&mut off).enabled = word("never");
    let row = find(&rows(&off, &features(&[]), None, &["splunkd"]), "thp");
    assert_eq!(row.state, CheckState::Good);
}

#[test]
fn strict_overcommit_has_a_command_where_the_host_can_bear_it_only() {
    let mut host = healthy();
    let set = features(&[("vm.overcommit_memory", "0")]);
    let row = |host: &Host| find(&rows(host, &set, None, &["postgres"]), "overcommit");
    assert_eq!(row(&host).command, None, "nothing is known");
    host.memory.swap_total = gib(0);
    host.memory.commit_limit = gib(28);
    host.memory.committed = gib(20);
    let tight = row(&host);
    assert_eq!((tight.state, tight.command), (CheckState::Review, None));
    let why = tight.why.unwrap();
    assert!(
        why.contains(
            "the limit is 28G, with no swap and 8G in pools, which lower it; 20G are committed"
        ),
        "{why}"
    );
    host.memory.committed = gib(14);
    let fits = row(&host);
    assert_eq!(
        fits.command.as_deref(),
        Some("sysctl -w vm.overcommit_memory=2")
    );
    assert!(fits.risk.unwrap().contains("would be refused"));
    // The pool that the same screen advises lowers the limit.
    host.pools.retain(|pool| pool.all().get() == 0);
    let first = row(&host);
    assert!(first.command.is_none() && first.why.unwrap().contains("plan the pool first"));
}

#[test]
fn strict_overcommit_that_is_nearly_used_up_is_to_be_changed() {
    let mut host = healthy();
    host.memory.commit_limit = gib(100);
    let row = |host: &Host, mode, names: &[&str]| {
        let set = features(&[("vm.overcommit_memory", mode)]);
        let row = find(&rows(host, &set, None, names), "overcommit");
        (row.state, row.command)
    };
    host.memory.committed = gib(95);
    let back = Some("sysctl -w vm.overcommit_memory=0".to_owned());
    assert_eq!(row(&host, "2", &[]), (CheckState::Change, back));
    assert_eq!(row(&host, "2", &["postgres"]), (CheckState::Change, None));
    assert_eq!(row(&host, "0", &[]), (CheckState::Good, None));
    host.memory.committed = gib(90);
    assert_eq!(row(&host, "2", &["postgres"]), (CheckState::Good, None));
}

#[test]
fn a_program_is_judged_where_it_is_affected() {
    let mut host = healthy();
    thp(&mut host).enabled = word("always");
    host.memory.swap_total = gib(0);
    let set = features(&[("net.core.somaxconn", "128"), ("vm.swappiness", "60")]);
    let judge = |all: &[RunningProcess]| {
        let rows = rows_of(&host, &set, None, all);
        ["thp", "somaxconn", "swappiness"].map(|id| find(&rows, id).wants.len())
    };
    let mut all = running(&["redis-server", "mariadbd"]);
    assert_eq!(judge(&all), [1, 1, 0], "no swap, so no swappiness");
    all[0].thp_disabled = Fact::Known(true);
    all[0].shares_network = Fact::Known(false);
    assert_eq!(judge(&all), [0, 0, 0]);
    // The condition does not hold for a second one.
    all.extend(running(&["redis-server"]));
    assert_eq!(judge(&all), [1, 1, 0]);
}

#[test]
fn programs_are_recognised_by_what_they_are() {
    let known = programs();
    let titles = |all: &[RunningProcess]| -> Vec<String> {
        let all = servers(&known, all).into_iter();
        all.map(|server| server.program.title).collect()
    };
    // The kernel truncates names to 15 bytes.
    assert_eq!(
        titles(&running(&["clickhouse-serv", "ora_pmon_ORCL"])),
        ["Oracle Database", "ClickHouse"]
    );
    assert!(titles(&running(&["java", "memcached", "clickhouse-clie", "bash"])).is_empty());
    let java = |argument: &str| {
        let mut all = running(&["java"]);
        all[0].arguments = vec!["java".into(), argument.into()];
        titles(&all)
    };
    assert_eq!(
        java("org.elasticsearch.server/org.elasticsearch.bootstrap.Elasticsearch"),
        ["Elasticsearch"]
    );
    assert_eq!(java("org.opensearch.bootstrap.OpenSearch"), ["OpenSearch"]);
    let mut couchbase = running(&["memcached"]);
    couchbase[0].executable = Some("/opt/couchbase/bin/memcached".into());
    assert_eq!(titles(&couchbase), ["Couchbase"]);
    let mut renamed = running(&["worker"]);
    renamed[0].executable = Some("/usr/sbin/mysqld".into());
    assert_eq!(titles(&renamed), ["MySQL"]);
    // The PostgreSQL of YugabyteDB and the MongoDB of Splunk are their parts.
    let mut parts = running(&["yb-tserver", "postgres", "postgres", "splunkd", "mongod"]);
    for (at, parent) in [(1, 100), (2, 101), (4, 103)] {
        parts[at].parent = Pid(parent);
    }
    assert_eq!(titles(&parts), ["YugabyteDB", "Splunk"]);
    // Two processes that are each other's parents do not loop for ever.
    let mut circle = running(&["mongod", "postgres"]);
    circle[0].parent = Pid(101);
    circle[1].parent = Pid(100);
    assert_eq!(titles(&circle), ["MongoDB", "PostgreSQL"]);
    let path = Some("/opt/couchbase/bin/memcached");
    assert!(packages(&known, "memcached", path).is_some());
    assert!(packages(&known, "memcached", None).is_none());
}

#[test]
fn mongodb_is_judged_by_version_and_architecture() {
    let row = |arch: &str, version, enabled: &str| {
        let mut host = healthy();
        host.arch = word(arch);
        thp(&mut host).enabled = word(enabled);
        let mut all = running(&["mongod"]);
        all[0].version = version;
        let rows = rows_of(&host, &SystemConfig::default(), None, &all);
        (find(&rows, "thp"), find(&rows, "thp-defrag"))
    };
    let file = "/sys/kernel/mm/transparent_hugepage";
    let (thp, _) = row("x86_64", Some(7), "always");
    assert_eq!(thp.command.unwrap(), format!("echo never > {file}/enabled"));
    let (thp, defrag) = row("aarch64", Some(8), "madvise");
    assert_eq!(
        thp.command.unwrap(),
        format!("echo always > {file}/enabled")
    );
    assert_eq!(
        defrag.command.unwrap(),
        format!("echo defer+madvise > {file}/defrag")
    );
    let (thp, defrag) = row("ppc64le", Some(8), "never");
    assert_eq!(
        (thp.state, defrag.state),
        (CheckState::Good, CheckState::Good)
    );
    // Conflicting wants: no command.
    let (thp, _) = row("x86_64", None, "madvise");
    let why = thp.why.unwrap();
    assert!(
        why.contains("MongoDB up to 7 wants never")
            && why.contains("from 8 on x86_64, aarch64 wants always"),
        "{why}"
    );
    assert_eq!((thp.state, thp.command), (CheckState::Review, None));
}

#[test]
fn a_program_for_base_pages_of_4k_on_others() {
    let mut host = healthy();
    let state = |host: &Host| {
        find(
            &rows(host, &SystemConfig::default(), None, &["qdrant"]),
            "base-page",
        )
    };
    assert_eq!(state(&host).state, CheckState::Good);
    host.base_page = size("64K");
    let row = state(&host);
    assert_eq!((row.state, row.command), (CheckState::Review, None));
    assert!(row.why.unwrap().contains("needs another kernel"));
}

#[test]
fn what_a_capture_lacks_is_unknown() {
    let root = hugeleaf_host::Root::at("/nowhere");
    let features = hugeleaf_host::system::system_config::read_features(&root);
    let running = hugeleaf_host::system::running_programs::read_running(&root, |_, _| None);
    let rows = check(&CheckInput {
        host: &healthy(),
        features: &features,
        profile: None,
        servers: &running.map(|_| Vec::new()),
    });
    for id in [
        "swappiness",
        "dirty",
        "preemption",
        "disks",
        "mounts",
        "network-devices",
        "governor",
        "mitigations",
        "programs",
    ] {
        assert_eq!(find(&rows, id).state, CheckState::Unknown, "{id}");
    }
}

#[test]
fn a_vulnerability_that_is_open_in_part_is_open() {
    let of = |texts: &[&str]| {
        let named = texts.iter().enumerate();
        let all = named.map(|(at, text)| (format!("w{at}"), (*text).to_owned()));
        let features = SystemConfig {
            weaknesses: Fact::Known(all.collect()),
            ..SystemConfig::default()
        };
        let row = one(&healthy(), &features, "mitigations");
        (row.value.unwrap(), row.state)
    };
    let texts = [
        "Not affected",
        "Mitigation: PTI",
        "KVM: Mitigation: VMX disabled",
        "KVM: Vulnerable",
        "Mitigation: Clear CPU buffers; SMT vulnerable",
        "Unknown: Dependent on hypervisor status",
    ];
    let all = (
        "2 mitigated, 2 open, 1 unknown".to_owned(),
        CheckState::Review,
    );
    assert_eq!(of(&texts), all);
    assert_eq!(
        of(&texts[..3]),
        (
            "2 mitigated, 0 open, 0 unknown".to_owned(),
            CheckState::Good
        )
    );
}

#[test]
fn threads_are_limited_by_the_smaller_of_two() {
    let row = |threads, pids| {
        let set = features(&[("kernel.threads-max", threads), ("kernel.pid_max", pids)]);
        let row = one(&healthy(), &set, "threads");
        (row.value.unwrap(), row.state)
    };
    assert_eq!(
        row("500000", "32768"),
        ("kernel.pid_max = 32768".to_owned(), CheckState::Review)
    );
    assert_eq!(
        row("20000", "4194304"),
        ("kernel.threads-max = 20000".to_owned(), CheckState::Review)
    );
    assert_eq!(
        row("500000", "4194304"),
        ("kernel.threads-max = 500000".to_owned(), CheckState::Good)
    );
}

#[test]
fn limits_are_those_of_the_program() {
    let mut all = running(&["redis-server"]);
    let limit = |name: &str, hard: &str| ResourceLimit {
        name: name.to_owned(),
        soft: "1024".to_owned(),
        hard: hard.to_owned(),
    };
    all[0].limits = Fact::Known(vec![
        limit("Max open files", "4096"),
        limit("Max locked memory", "8388608"),
    ]);
    let rows = rows_of(&healthy(), &SystemConfig::default(), None, &all);
    let files = find(&rows, "open-files");
    assert_eq!(
        (files.what.as_str(), files.state),
        ("Redis: open files", CheckState::Review)
    );
    assert_eq!(
        find(&rows, "memlock").value.as_deref(),
        Some("1024, at most 8388608")
    );
    assert_eq!(find(&rows, "processes").state, CheckState::Unknown);
    let rows = rows_of(&healthy(), &SystemConfig::default(), None, &[]);
    assert!(rows.iter().all(|row| row.id != "memlock"));
}

#[test]
fn huge_pages_of_512m_for_all_are_looked_at_as_in_status() {
    let mut host = healthy();
    host.base_page = size("64K");
    host.pmd_page = Fact::Known(size("512M"));
    thp(&mut host).orders[1].size = size("512M");
    thp(&mut host).enabled = word("always");
    thp(&mut host).defrag = word("always");
    let advised: Vec<String> = crate::findings::findings(&host)
        .into_iter()
        .filter(|finding| matches!(finding.id, "thp-too-large" | "defrag-always"))
        .map(|finding| finding.command)
        .collect();
    let rows =
        ["thp-defrag", "thp"].map(|id| one(&host, &SystemConfig::default(), id).command.unwrap());
    assert_eq!(advised.len(), 2);
    assert!(
        rows.iter().all(|command| advised.contains(command)),
        "{rows:?} {advised:?}"
    );
    // A program that wants them for all memory cannot be satisfied here.
    let row = find(
        &self::rows(&host, &SystemConfig::default(), None, &["yb-tserver"]),
        "thp",
    );
    assert_eq!((row.state, row.command), (CheckState::Change, None));
}

#[test]
fn no_other_screen_advises_what_a_running_program_does_not_want() {
    let mut host = healthy();
    thp(&mut host).enabled = word("never");
    thp(&mut host).shmem_enabled = word("never");
    let found = |names: &[&str]| {
        let servers = Fact::Known(servers(&PROGRAMS, &running(names)));
        let all = crate::findings::findings(&host);
        let all = crate::findings::without_contradicting_wants(all, &wants(&host, &servers));
        let off = all.into_iter().find(|finding| finding.id == "thp-off");
        off.map(|finding| (finding.command, finding.text)).unwrap()
    };
    assert!(found(&["redis-server"]).0.starts_with("echo madvise > "));
    let (command, text) = found(&["tikv-server"]);
    assert_eq!(command, "hugeleaf check");
    assert!(
        text.contains("(TiKV wants another value: see hugeleaf check.)"),
        "{text}"
    );
}

/// Returns the settings that the commands of a screen change, each setting or file once.
fn set_by(rows: &[CheckRow]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let commands = rows.iter().filter_map(|row| row.command.as_deref());
    for command in commands.flat_map(|command| command.split(" && ")) {
        let sets: Vec<(&str, &str)> = match (
            command.strip_prefix("sysctl -w "),
            command.strip_prefix("echo "),
        ) {
            (Some(settings), _) => settings
                .split(' ')
                .filter_map(|one| one.split_once('='))
                .collect(),
            (_, Some(rest)) => rest
                .split_once(" > ")
                .map(|(value, file)| (file, value))
                .into_iter()
                .collect(),
            _ => Vec::new(),
        };
        for (name, value) in sets {
            let other = all.insert(name.to_owned(), value.to_owned());
            assert!(
                other.is_none_or(|other| other == value),
                "two values for {name}: {rows:#?}"
            );
        }
    }
    all
}

/// Returns the host after these commands.
fn after(
    host: &Host,
    features: &SystemConfig,
    set: &BTreeMap<String, String>,
) -> (Host, SystemConfig) {
    let (mut host, mut features) = (host.clone(), features.clone());
    for (name, value) in set {
        match name.strip_prefix("/sys/kernel/mm/transparent_hugepage/") {
            Some("enabled") => thp(&mut host).enabled = word(value),
            Some("hugepages-2048kB/enabled") => thp(&mut host).orders[1].anon = word(value),
            Some("shmem_enabled") => thp(&mut host).shmem_enabled = word(value),
            Some("defrag") => thp(&mut host).defrag = word(value),
            Some(_) => {
                let pages = hugeleaf_units::Pages(value.parse().unwrap());
                thp(&mut host).khugepaged.max_ptes_none = Fact::Known(pages);
            }
            None => {
                let file = format!("proc/sys/{}", name.replace('.', "/"));
                features.settings.insert(file, word(value));
            }
        }
    }
    (host, features)
}

fn screens() -> impl Strategy<Value = (Host, SystemConfig, Vec<RunningProcess>)> {
    let names: Vec<&str> = vec![
        "mongod",
        "redis-server",
        "valkey-server",
        "tikv-server",
        "cockroach",
        "yb-tserver",
        "postgres",
        "mariadbd",
        "ora_pmon_X",
        "clickhouse-serv",
        "splunkd",
        "qdrant",
    ];
    let processes = (
        prop::sample::subsequence(names, 0..5),
        prop::option::of(6_u32..9),
        any::<bool>(),
    );
    let thp_words = prop::sample::select(vec!["always", "madvise", "never"]);
    let own = prop::sample::select(vec!["inherit", "always", "never"]);
    let defrag = prop::sample::select(vec!["always", "defer+madvise", "madvise", "never"]);
    let values = (
        0_u64..3,
        prop::sample::select(vec![0_u64, 1, 10, 60]),
        100_u64..5000,
        60_000_u64..1_100_000,
    );
    let memory = (0_u64..60, 1_u64..100, 0_u64..3);
    (processes, thp_words, own, defrag, values, memory).prop_map(
        |(
            (names, version, has_thp_off),
            enabled,
            own,
            defrag,
            values,
            (committed, limit, swap),
        )| {
            let mut host = healthy();
            thp(&mut host).enabled = word(enabled);
            thp(&mut host).orders[1].anon = word(own);
            thp(&mut host).defrag = word(defrag);
            host.memory.swap_total = gib(swap);
            host.memory.commit_limit = gib(limit);
            host.memory.committed = gib(committed);
            let (overcommit, swappiness, somaxconn, maps) = values;
            let set = features(&[
                ("vm.overcommit_memory", &overcommit.to_string()),
                ("vm.swappiness", &swappiness.to_string()),
                ("net.core.somaxconn", &somaxconn.to_string()),
                ("vm.max_map_count", &maps.to_string()),
            ]);
            let mut all = running(&names);
            for process in &mut all {
                process.version = version;
                process.thp_disabled = Fact::Known(has_thp_off);
            }
            (host, set, all)
        },
    )
}

proptest! {
    /// No two commands of a screen contradict each other. After them, no other command would undo one, and no allocation
    /// fails.
    #[test]
    fn commands_of_one_screen_agree((host, features, all) in screens()) {
        let rows = rows_of(&host, &features, None, &all);
        let set = set_by(&rows);
        if set.get("vm.overcommit_memory").is_some_and(|mode| mode == "2") {
            let (limit, committed) = (host.memory.commit_limit.get().unwrap(), host.memory.committed.get().unwrap());
            prop_assert!(Bytes(committed.get() * 2) <= limit);
        }
        let (host, features) = after(&host, &features, &set);
        let then = rows_of(&host, &features, None, &all);
        let again = set_by(&then);
        prop_assert!(again.keys().all(|name| !set.contains_key(name)), "{set:?} then {again:?}");
        // Each setting has one row, in a bad state if a program wants another value.
        for row in &then {
            let of_id = then.iter().filter(|other| (other.id, &other.what) == (row.id, &row.what));
            prop_assert_eq!(of_id.count(), 1, "{}", row.id);
            prop_assert!(row.state != CheckState::Good || row.why.is_none(), "{:?}", row);
            prop_assert!(row.command.is_none() || row.risk.is_some(), "{:?}", row);
        }
    }
}

#[test]
fn a_disk_is_judged_by_what_it_is() {
    let host = healthy();
    let disk = |rotates, scheduler: &str| SystemConfig {
        disks: Fact::Known(vec![Disk {
            name: "sda".into(),
            scheduler: word(scheduler),
            rotates,
            read_ahead_kib: Fact::Known(128),
            ..Disk::default()
        }]),
        ..SystemConfig::default()
    };
    let state =
        |rotates, scheduler| one(&host, &disk(Fact::Known(rotates), scheduler), "scheduler").state;
    assert_eq!(state(false, "[none] mq-deadline"), CheckState::Good);
    assert_eq!(state(true, "[none] mq-deadline"), CheckState::Review);
    assert_eq!(state(false, "none [bfq]"), CheckState::Review);
    // A virtual disk does not report it, and an unavailable scheduler cannot be selected.
    let virtio = one(
        &host,
        &disk(Fact::Absent, "[none] mq-deadline"),
        "scheduler",
    );
    assert_eq!(virtio.state, CheckState::Good);
    assert_eq!(state(true, "[none]"), CheckState::Good);
    // The wants of a profile.
    let ahead = |profile| {
        let disk = disk(Fact::Known(false), "[none]");
        let all = rows(&host, &disk, profile, &[]);
        all.iter().find(|row| row.id == "read-ahead").unwrap().state
    };
    assert_eq!(
        (ahead(None), ahead(Some(WorkloadProfile::Backup))),
        (CheckState::Good, CheckState::Review)
    );
}

#[test]
fn mounts_without_barriers_lose_commits() {
    let host = healthy();
    let mount = |options: &str| SystemConfig {
        mounts: Fact::Known(vec![DiskMount {
            at: "/data".into(),
            kind: "ext4".into(),
            options: options.into(),
            can: Fact::Absent,
        }]),
        ..SystemConfig::default()
    };
    let state = |options| one(&host, &mount(options), "mount").state;
    assert_eq!(state("rw,relatime"), CheckState::Good);
    assert_eq!(state("rw,relatime,nobarrier"), CheckState::Change);
    assert_eq!(state("rw"), CheckState::Review);
}

#[test]
fn a_slow_clock_is_named_with_a_better_one() {
    let host = healthy();
    let folder = "sys/devices/system/clocksource/clocksource0";
    let clock = |current: &str| SystemConfig {
        settings: BTreeMap::from([
            (format!("{folder}/current_clocksource"), word(current)),
            (
                format!("{folder}/available_clocksource"),
                word("tsc hpet acpi_pm"),
            ),
        ]),
        ..SystemConfig::default()
    };
    assert_eq!(one(&host, &clock("tsc"), "clock").state, CheckState::Good);
    let row = one(&host, &clock("hpet"), "clock");
    assert!(row.state == CheckState::Change && row.command.unwrap().contains("tsc"));
}

#[test]
fn file_systems_say_what_they_can_and_their_kind_the_rest() {
    let mount = |kind: &str, can| DiskMount {
        at: format!("/{kind}"),
        kind: kind.into(),
        options: "rw,relatime".into(),
        can,
    };
    let features = SystemConfig {
        mounts: Fact::Known(vec![
            mount("xfs", Fact::Absent),
            mount(
                "ext4",
                Fact::Known(FileSystemFeatures {
                    extents: Some(false),
                    ..FileSystemFeatures::default()
                }),
            ),
            mount("new", Fact::Absent),
        ]),
        ..SystemConfig::default()
    };
    let told = |kernel: &str| {
        let host = Host {
            kernel: word(kernel),
            ..healthy()
        };
        let all = file_systems(&CheckInput {
            host: &host,
            features: &features,
            profile: None,
            servers: &Fact::Absent,
        });
        let folios = all.iter().map(|one| one.large_folios).collect::<Vec<_>>();
        (folios, all)
    };
    let (folios, all) = told("6.1.0-13-amd64");
    assert_eq!(folios, [Some(true), Some(false), None]);
    assert_eq!(told("6.18.5").0, [Some(true), Some(true), None]);
    let extents: Vec<_> = all.iter().map(|one| one.extents).collect();
    assert_eq!(extents, [Some(true), Some(false), None]);
    assert_eq!(all[2].resize, None);
}
