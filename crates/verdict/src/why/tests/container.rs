//! Commands inside a container, where each change of the host is a comment.

use std::process::{Command, Stdio};

use super::*;
use crate::advice::{raised_limit, some_pages};
use crate::run_policy::{RunFlags, resolve};

fn inside(mut host: Host) -> Host {
    host.is_in_container = true;
    host
}

/// Returns true if a shell can parse it.
fn parses(script: &str) -> bool {
    let shell = Command::new("sh")
        .args(["-n", "-c", script])
        .stderr(Stdio::null())
        .status();
    shell.unwrap().success()
}

#[test]
fn the_own_command_comes_after_the_comment_on_the_host() {
    let mut host = inside(host());
    host.buddy = buddy(0);
    let mut p = process(vec![anon(AT, 4 * M)]);
    let command = |host: &Host, p: &Process| judge(host, p)[0].command.clone();
    assert_eq!(
        command(&host, &p),
        "# on the host of this container: echo 1 > /proc/sys/vm/compact_memory; then here: \
         hugeleaf promote 100"
    );
    host.memory.free = Fact::Known(Bytes(65 * M));
    assert_eq!(
        command(&host, &p),
        "# on the host of this container: sync && echo 1 > /proc/sys/vm/drop_caches; echo 1 > \
         /proc/sys/vm/compact_memory; then here: hugeleaf promote 100"
    );
    p.segments = vec![shm(AT + 12 * K, 8 * M)];
    p.unit = Some("server.service".to_owned());
    assert_eq!(
        command(&host, &p),
        "# on the host of this container: echo advise > \
         /sys/kernel/mm/transparent_hugepage/shmem_enabled; then here: systemctl restart \
         server.service"
    );
    let pages = some_pages(&host, size("2M"));
    assert!(
        pages.starts_with("# on the host of this container: echo N > "),
        "{pages}"
    );
    let raised = raised_limit("/sys/fs/cgroup/db/memory.max", Bytes(4 * M), true);
    assert_eq!(
        raised.then("hugeleaf promote 100").command,
        "# start the container with a memory limit of 4M; then here: hugeleaf promote 100"
    );
}

/// A command with a remark takes no other behind the remark.
#[test]
fn several_changes_and_what_they_enable_are_one_command() {
    use crate::advice::{AdvisedCommand, compaction, dropped_caches, sequence};
    let both = || sequence([dropped_caches(), compaction()], &host());
    assert_eq!(
        both().then("hugeleaf promote 7").command,
        "sync && echo 1 > /proc/sys/vm/drop_caches && echo 1 > /proc/sys/vm/compact_memory && \
         hugeleaf promote 7"
    );
    assert_eq!(both().changes.len(), 2);
    let checked = AdvisedCommand::from("hugeleaf check    # TiKV wants another value");
    assert_eq!(
        checked.then("hugeleaf promote 7").command,
        "hugeleaf check    # TiKV wants another value; then here: hugeleaf promote 7"
    );
}

proptest! {
    #[test]
    fn no_command_is_swallowed_by_a_comment(
        host in any_host(),
        segments in prop::collection::vec(any_segment(), 0..4),
        left in prop::option::of(0_u64..(4 * M)),
        is_unit in any::<bool>(),
        ladder in prop::sample::select(vec!["2M!", "64K!", "hugetlb:2M!", "1G!", "2M"]),
    ) {
        let host = inside(host);
        let mut p = process(segments);
        p.unit = is_unit.then(|| "server.service".to_owned());
        p.limits.memory = left.into_iter().map(|left| MemoryLimit {
            version: 2,
            path: "/db".to_owned(),
            file: "/sys/fs/cgroup/db/memory.max".to_owned(),
            limit: Bytes(100 * M),
            usage: Bytes(100 * M - left),
            inactive_cache: Bytes(0),
            active_cache: Bytes(0),
            only_throttles: false,
        }).collect();
        let accounts = account(&host, &p, "100");
        let lines = summarise(&[(&p, &accounts)]).lines;
        let mut commands: Vec<String> = judge(&host, &p).into_iter().map(|v| v.command).collect();
        commands.extend(lines.into_iter().map(|line| line.command));
        for role in RunMemoryKind::ALL {
            let mut policy = RunFlags::default();
            policy.wants[role as usize] = ladder.parse().unwrap();
            match resolve(&policy, &host, None) {
                Ok(settled) => commands.extend(settled.missing.into_iter().map(|m| m.command)),
                Err(failure) => commands.push(failure.remedy),
            }
        }
        for command in &commands {
            prop_assert!(!command.contains("&& #"), "{command}");
            let comment = command.find('#').map_or("", |at| &command[at..]);
            let own = ["&& hugeleaf promote", "&& systemctl"];
            prop_assert!(!own.iter().any(|own| comment.contains(own)), "{command}");
            let is_bare = command.starts_with("echo ") || command.starts_with("sysctl -w");
            prop_assert!(!is_bare, "{command}");
        }
        prop_assert!(parses(&commands.join("\n")), "{commands:#?}");
    }
}
