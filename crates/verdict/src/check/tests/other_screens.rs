//! The commands of `why`, `run`, `promote` and `top` beside running programs that want other values.

use super::*;
use crate::advice::{BootTaskRunner, compaction, shmem_at_boot};
use crate::findings::tests::testing::arm64_16k;
use crate::run_policy::{RunFlags, RunMemoryKind, resolve};
use crate::unaligned_ends::ends;
use crate::why::judge;
use crate::why::tests::testing::{G, K, M, anon, process, shm};

/// Returns the host with the wants of these programs.
fn beside(mut host: Host, all: &[RunningProcess]) -> Host {
    host.wants = wants(&host, &Fact::Known(servers(&PROGRAMS, all)));
    host
}

/// Returns the commands of `run` for each role and several ladders.
fn of_run(host: &Host) -> Vec<String> {
    let ladders = ["2M!", "64K!", "64K", "2M", "32M!", "hugetlb:2M!"];
    let policies = ladders.iter().flat_map(|ladder| {
        RunMemoryKind::ALL.map(|role| {
            let mut policy = RunFlags::default();
            policy.wants[role as usize] = ladder.parse().unwrap();
            policy
        })
    });
    let commands = |policy: RunFlags| match resolve(&policy, host, None) {
        Ok(settled) => settled.missing.into_iter().map(|m| m.command).collect(),
        Err(failure) => vec![failure.remedy],
    };
    policies.flat_map(commands).collect()
}

fn of_why(host: &Host) -> Vec<String> {
    let at = 64 * G;
    let segments = vec![
        anon(at, 8 * M),
        anon(at + G, 80 * K),
        anon(at + 2 * G, M),
        shm(at + 3 * G, 8 * M),
        shm(at + 4 * G + 16 * K, 8 * M),
        shm(at + 5 * G, 80 * K),
    ];
    let verdicts = judge(host, &process(segments));
    verdicts.into_iter().map(|v| v.command).collect()
}

fn of_promote(host: &Host) -> Vec<String> {
    let ends = ends(host).and_then(|ends| ends.command);
    let others = [
        compaction().next(host),
        shmem_at_boot(host, BootTaskRunner::Unknown),
    ];
    let all = ends.into_iter().chain(others);
    all.map(|next| next.command).collect()
}

/// Returns the values that a command writes, each with its file. Comments count too.
fn written(command: &str) -> Vec<(&str, &str)> {
    let one = |part: &str| -> Option<(usize, usize)> {
        let value = part.find(" > ")?;
        let file = part[value + 3..].find([' ', ',', ';']);
        Some((value, file.map_or(part.len(), |end| value + 3 + end)))
    };
    let parts = command.split("echo ").skip(1);
    parts
        .filter_map(|part| one(part).map(|(value, end)| (&part[..value], &part[value + 3..end])))
        .collect()
}

proptest! {
    /// No command enables or disables THP of any size against the wants of a running program.
    #[test]
    fn no_screen_sets_thp_against_a_running_program((host, _, all) in screens()) {
        let mut arm = arm64_16k();
        let known = host.thp.known().unwrap();
        thp(&mut arm).enabled.clone_from(&known.enabled);
        thp(&mut arm).orders[2].anon.clone_from(&known.orders[1].anon);
        for host in [beside(host.clone(), &all), beside(arm, &all)] {
            let commands = [of_why(&host), of_run(&host), of_promote(&host)].concat();
            for (value, file) in commands.iter().flat_map(|command| written(command)) {
                if !file.starts_with("/sys/kernel/mm/transparent_hugepage") || !file.ends_with("/enabled") {
                    continue;
                }
                let top = host.thp.known().unwrap().enabled.text().unwrap();
                let value = if value == "inherit" { top } else { value };
                let mut wants = host.wants.iter().filter(|want| want.file.ends_with("/enabled"));
                let against = wants.find(|want| !want.values.allows(value));
                prop_assert!(against.is_none(), "{file} {value}: {against:?}: {commands:#?}");
            }
        }
    }
}

type Commands = fn(&Host) -> Vec<String>;

#[test]
fn a_program_that_wants_no_thp_is_heard_by_every_screen() {
    let mut host = arm64_16k();
    thp(&mut host).enabled = word("never");
    let screens: [Commands; 3] = [of_why, of_run, of_promote];
    let enables = |host: &Host, of: Commands| {
        let commands = of(host);
        let mut files = commands.iter().flat_map(|command| written(command));
        files.any(|(_, file)| file.ends_with("/enabled"))
    };
    let redis = beside(host.clone(), &running(&["redis-server"]));
    assert!(enables(&redis, of_run) && enables(&redis, of_promote));
    let host = beside(host, &running(&["tikv-server"]));
    for of in screens {
        assert!(!enables(&host, of), "{:#?}", of(&host));
    }
    let reason =
        "hugeleaf check    # TiKV wants another value of /sys/kernel/mm/transparent_hugepage/";
    assert!(
        of_run(&host)
            .iter()
            .any(|command| command.starts_with(reason))
    );
    // A size that inherits `never` goes by it.
    let to = |text: &str, thp_for_all: &str| {
        let mut host = host.clone();
        thp(&mut host).enabled = word(thp_for_all);
        let file = crate::advice::Setting::thp("hugepages-64kB/enabled");
        crate::advice::SettingChange::new(file, text)
            .check(&host)
            .is_ok()
    };
    assert!(to("inherit", "never") && !to("inherit", "always") && !to("always", "never"));
}
