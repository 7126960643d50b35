use std::collections::BTreeMap;

use hugeleaf_host::system::features::{Abilities, Disk, DiskMount, Features, Network};
use hugeleaf_host::{Fact, Host};

use super::*;
use crate::findings::tests::testing::{healthy, word};

fn features(settings: &[(&str, &str)]) -> Features {
    Features {
        settings: (settings.iter())
            .map(|(name, value)| (format!("proc/sys/{}", name.replace('.', "/")), word(value)))
            .collect(),
        ..Features::default()
    }
}

fn rows(
    host: &Host,
    features: &Features,
    profile: Option<Profile>,
    running: &[Program],
) -> Vec<Row> {
    check(&Checked {
        host,
        features,
        profile,
        running,
    })
}

fn one(host: &Host, features: &Features, id: &str) -> Row {
    let all = rows(host, features, None, &[]);
    all.into_iter().find(|row| row.id == id).unwrap()
}

fn program(name: &str) -> Program {
    programs()
        .into_iter()
        .find(|program| program.name == name)
        .unwrap()
}

#[test]
fn a_device_that_leaves_work_to_the_processor_is_looked_at() {
    let with = |known: &[(&str, bool)]| Features {
        network: vec![Network {
            name: "eth0".to_owned(),
            offloads: match known {
                [] => Fact::Absent,
                known => {
                    let named = known.iter().map(|(name, on)| ((*name).to_owned(), *on));
                    Fact::Known(named.collect())
                }
            },
            ..Network::default()
        }],
        ..Features::default()
    };
    let row = |known| one(&healthy(), &with(known), "network-offloads");
    assert_eq!(row(&[]).state, State::Absent);
    assert_eq!(row(&[("cutting", true)]).state, State::Good);
    let off = row(&[("checksums", true), ("cutting", false)]);
    assert_eq!(off.state, State::Look);
    assert!(off.value.unwrap().ends_with("without cutting"));
    assert!(off.command.unwrap().contains("eth0"));
}

#[test]
fn every_program_of_the_data_file_has_a_source() {
    let all = programs();
    assert!(all.len() >= 12);
    for program in &all {
        assert!(program.source.starts_with("https://"), "{}", program.name);
        let known = ["always", "madvise", "never"];
        assert!(
            !program.thp.is_empty()
                && program
                    .thp
                    .iter()
                    .all(|word| known.contains(&word.as_str()))
        );
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
        ("zone-reclaim", State::Change),
        ("somaxconn", State::Look),
        ("io-uring", State::Look),
        ("threads", State::Look),
        ("maps", State::Look),
        ("shared-memory", State::Look),
        ("aio", State::Change),
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
        assert_eq!(one(&host, &good, id).state, State::Good, "{id}");
    }
}

#[test]
fn absent_and_unreadable_differ() {
    let host = healthy();
    assert_eq!(
        one(&host, &Features::default(), "io-uring").state,
        State::Absent
    );
    let error =
        hugeleaf_host::ReadError::io("/x".into(), &std::io::ErrorKind::PermissionDenied.into());
    let mut unreadable = features(&[]);
    unreadable.settings.insert(
        "proc/sys/kernel/io_uring_disabled".into(),
        Fact::Unreadable(error),
    );
    assert_eq!(one(&host, &unreadable, "io-uring").state, State::Unknown);
}

#[test]
fn thp_that_nobody_can_have_is_to_be_changed() {
    let mut host = healthy();
    if let Fact::Known(thp) = &mut host.thp {
        thp.enabled = word("never");
    }
    let row = one(&host, &Features::default(), "thp");
    assert_eq!(
        (row.state, row.arm.as_deref()),
        (State::Change, Some("thp:2M"))
    );
    host.thp = Fact::Absent;
    assert_eq!(one(&host, &Features::default(), "thp").state, State::Absent);
}

#[test]
fn programs_that_want_different_things_are_a_finding() {
    let host = healthy();
    let running = [program("mongod"), program("redis-server")];
    let all = rows(&host, &Features::default(), None, &running);
    let conflict = all.iter().find(|row| row.id == "program-conflict").unwrap();
    assert!(conflict.what.contains("MongoDB") && conflict.what.contains("Redis"));
    let wants: Vec<State> = all
        .iter()
        .filter(|row| row.id == "program-thp")
        .map(|row| row.state)
        .collect();
    assert!(wants.contains(&State::Change), "{wants:?}");
    let peaceful = [program("redis-server"), program("postgres")];
    let all = rows(&host, &Features::default(), None, &peaceful);
    assert!(all.iter().all(|row| row.id != "program-conflict"));
}

#[test]
fn a_disk_is_judged_by_what_it_is() {
    let host = healthy();
    let disk = |rotates, scheduler: &str| Features {
        disks: vec![Disk {
            name: "sda".into(),
            scheduler: word(scheduler),
            rotates: Fact::Known(rotates),
            read_ahead_kib: Fact::Known(128),
            ..Disk::default()
        }],
        ..Features::default()
    };
    let state = |rotates, scheduler| one(&host, &disk(rotates, scheduler), "scheduler").state;
    assert_eq!(state(false, "[none] mq-deadline"), State::Good);
    assert_eq!(state(true, "[none] mq-deadline"), State::Look);
    assert_eq!(state(false, "none [bfq]"), State::Look);
    // What a profile asks for.
    let ahead = |profile| {
        let all = rows(&host, &disk(false, "[none]"), profile, &[]);
        all.iter().find(|row| row.id == "read-ahead").unwrap().state
    };
    assert_eq!(
        (ahead(None), ahead(Some(Profile::Backup))),
        (State::Good, State::Look)
    );
}

#[test]
fn mounts_without_barriers_lose_commits() {
    let host = healthy();
    let mount = |options: &str| Features {
        mounts: vec![DiskMount {
            at: "/data".into(),
            kind: "ext4".into(),
            options: options.into(),
            can: Fact::Absent,
        }],
        ..Features::default()
    };
    let state = |options| one(&host, &mount(options), "mount").state;
    assert_eq!(state("rw,relatime"), State::Good);
    assert_eq!(state("rw,relatime,nobarrier"), State::Change);
    assert_eq!(state("rw"), State::Look);
}

#[test]
fn a_slow_clock_is_named_with_a_better_one() {
    let host = healthy();
    let folder = "sys/devices/system/clocksource/clocksource0";
    let clock = |current: &str| Features {
        settings: BTreeMap::from([
            (format!("{folder}/current_clocksource"), word(current)),
            (
                format!("{folder}/available_clocksource"),
                word("tsc hpet acpi_pm"),
            ),
        ]),
        ..Features::default()
    };
    assert_eq!(one(&host, &clock("tsc"), "clock").state, State::Good);
    let row = one(&host, &clock("hpet"), "clock");
    assert!(row.state == State::Change && row.command.unwrap().contains("tsc"));
}

#[test]
fn file_systems_say_what_they_can_and_their_kind_the_rest() {
    let mount = |kind: &str, can| DiskMount {
        at: format!("/{kind}"),
        kind: kind.into(),
        options: "rw,relatime".into(),
        can,
    };
    let features = Features {
        mounts: vec![
            mount("xfs", Fact::Absent),
            mount(
                "ext4",
                Fact::Known(Abilities {
                    extents: Some(false),
                    ..Abilities::default()
                }),
            ),
            mount("new", Fact::Absent),
        ],
        ..Features::default()
    };
    let told = |kernel: &str| {
        let host = Host {
            kernel: word(kernel),
            ..healthy()
        };
        let all = file_systems(&Checked {
            host: &host,
            features: &features,
            profile: None,
            running: &[],
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
