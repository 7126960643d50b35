//! Tests of every verdict: one case that shows it, and one that nearly does.

use hugeleaf_host::{
    Fact, HugetlbCgroup, HugetlbLimit, MappingRole, MemoryLimit, Process, ProcessMapping,
    ReadError, RunMemoryKind, RunPageKind, RunPolicy, RunSettings,
};
use hugeleaf_host::{PageState, Pid};
use hugeleaf_units::{Bytes, PageKind, Pages, Range};
use proptest::prelude::*;

use super::*;
use testing::*;

mod container;
pub mod testing;

/// An address far from zero, at a multiple of 1 GiB.
const AT: u64 = 64 * G;

/// Returns the ids and bytes of the verdicts of a process with one segment.
fn ids(host: &Host, segment: ProcessMapping) -> Vec<(&'static str, u64)> {
    ids_of(host, &process(vec![segment]))
}

fn ids_of(host: &Host, process: &Process) -> Vec<(&'static str, u64)> {
    let verdicts = judge(host, process);
    verdicts
        .iter()
        .map(|v| {
            assert!(!v.text.is_empty() && !v.command.is_empty(), "{v:?}");
            assert!(!v.text.contains('\n') && !v.text.contains("  "), "{v:?}");
            (v.id.name(), v.bytes.get())
        })
        .collect()
}

fn only(host: &Host, process: &Process) -> RangeVerdict {
    let verdicts = judge(host, process);
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    verdicts.into_iter().next().unwrap()
}

#[test]
fn private_memory_waits_for_a_setting() {
    let eight = || anon(AT, 8 * M);
    for (enabled, segment, id) in [
        ("never", eight(), "thp-never"),
        ("never", flagged(eight(), b"hg"), "thp-never"),
        ("madvise", eight(), "not-advised"),
        ("madvise", flagged(eight(), b"hg"), "small-steps"),
    ] {
        let host = with_thp(|t| t.enabled = word(enabled));
        assert_eq!(ids(&host, segment), [(id, 8 * M)], "{enabled}");
    }
    let mut eligible = eight();
    eligible.thp_eligible = Fact::Known(true);
    let always = with_thp(|t| t.enabled = word("always"));
    assert_eq!(ids(&always, eligible), [("small-steps", 8 * M)]);
    // THP is on, but the kernel reports the mapping as not eligible.
    assert_eq!(ids(&always, eight()), [("process-unless-advised", 8 * M)]);
}

#[test]
fn the_knob_of_the_size_goes_before_the_one_for_all() {
    let host = with_thp(|t| {
        t.enabled = word("always");
        t.orders[3].anon = word("never");
    });
    let verdict = only(&host, &process(vec![anon(AT, 4 * M)]));
    assert_eq!(verdict.id, Reason::ThpNever);
    assert!(verdict.text.contains("hugepages-2048kB/enabled is never"));
    assert_eq!(verdict.command, "hugeleaf promote 100");
}

#[test]
fn a_setting_that_cannot_be_read_is_not_guessed() {
    let error = ReadError {
        path: "/sys/kernel/mm/transparent_hugepage/enabled".into(),
        reason: "Permission denied".to_owned(),
        denied: true,
    };
    let host = with_thp(|t| t.enabled = Fact::Unreadable(error));
    let verdict = only(&host, &process(vec![anon(AT, 4 * M)]));
    assert_eq!(verdict.id, Reason::Unknown);
    assert!(verdict.text.contains("enabled: Permission denied"));
}

#[test]
fn khugepaged_is_held_against_what_there_is_to_scan() {
    // 8G at 16M per 10 s: 512 scans.
    let host = host();
    let verdict = only(&host, &process(vec![flagged(anon(AT, 4 * M), b"hg")]));
    assert!(verdict.text.contains("scans 16M every 10 s"), "{verdict:?}");
    assert!(verdict.text.contains("so 8G"), "{verdict:?}");
    assert!(verdict.text.contains("up to 1 h 25 min"), "{verdict:?}");
    let nothing = with_thp(|t| t.khugepaged.pages_to_scan = Fact::Known(Pages(0)));
    let verdict = only(&nothing, &process(vec![flagged(anon(AT, 4 * M), b"hg")]));
    assert!(verdict.text.contains("set to scan no pages"), "{verdict:?}");
}

/// Debian's default: `why` knows that THP is on, tells when khugepaged will scan, and advises only missing
/// changes.
#[test]
fn memory_that_is_small_although_thp_is_always_on() {
    let host = with_thp(|t| t.enabled = word("always"));
    let mut segment = anon(AT, 4 * M);
    segment.thp_eligible = Fact::Known(true);
    let verdict = only(&host, &process(vec![segment]));
    assert_eq!(verdict.id, Reason::SmallSteps);
    for part in [
        "came in steps smaller than 2M",
        "scans 16M every 10 s",
        "up to 1 h 25 min",
        "under `hugeleaf run`",
    ] {
        assert!(verdict.text.contains(part), "{part}: {verdict:?}");
    }
    assert_eq!(verdict.command, "hugeleaf promote 100");
    // A process that requested THP for advised memory only: the kernel reports it as not eligible.
    let mut segment = anon(AT, 4 * M);
    segment.thp_eligible = Fact::Known(false);
    let verdict = only(&host, &process(vec![segment]));
    assert_eq!(verdict.id, Reason::ProcessUnlessAdvised);
    assert_eq!(verdict.command, "hugeleaf promote 100");
}

#[test]
fn a_file_that_this_kernel_collapses_can_be_promoted() {
    let host = host();
    let mut data = file(AT, 4 * M, MappingRole::File);
    assert_ne!(
        only(&host, &process(vec![data.clone()])).command,
        "hugeleaf promote 100"
    );
    // Linux 7.2 and later, with khugepaged for advised memory only: a collapse still works.
    let mut newer = with_thp(|t| t.khugepaged.collapses_small_orders = true);
    newer.memory.file_huge = Fact::Known(Bytes(2 * M));
    assert_eq!(
        only(&newer, &process(vec![data.clone()])).id,
        Reason::FileNotCollapsed
    );
    data.permissions[1] = true;
    assert_ne!(
        only(&newer, &process(vec![data.clone()])).id,
        Reason::FileNotCollapsed
    );
    data.thp_eligible = Fact::Known(true);
    let verdict = only(&host, &process(vec![data]));
    assert_eq!(verdict.id, Reason::FileNotCollapsed);
    assert!(verdict.text.contains("(ext4)"), "{verdict:?}");
    assert_eq!(verdict.command, "hugeleaf promote 100");
}

/// khugepaged of Linux 7.2 makes smaller sizes too, but only where a whole huge page fits (tested, see
/// docs/internals/kernel-notes.md).
#[test]
fn what_is_too_small_for_a_huge_page_is_never_visited_by_khugepaged() {
    let host = with_thp(|t| {
        t.orders[1].anon = word("always");
        t.khugepaged.collapses_small_orders = true;
    });
    let verdict = only(&host, &process(vec![anon(AT, M)]));
    assert_eq!(verdict.id, Reason::OrderAtFault);
    assert!(verdict.text.contains("at first touch only"), "{verdict:?}");
}

#[test]
fn what_no_large_page_fits_in() {
    let host = host();
    // Below the smallest huge page (16K here): no verdict.
    assert_eq!(ids(&host, anon(AT, 12 * K)), []);
    assert_eq!(
        ids(&host, anon(AT, 16 * K)),
        [("smaller-sizes-off", 16 * K)]
    );
    // Long enough, but at no aligned address.
    assert_eq!(
        ids(&host, anon(AT + 4 * K, 16 * K)),
        [("too-small", 16 * K)]
    );
    assert_eq!(
        ids(&host, file(AT, 64 * K, MappingRole::Text)),
        [("too-small", 64 * K)]
    );
    // 2M long, but without a whole 2M page.
    assert_eq!(
        ids(&host, anon(AT + 64 * K, 2 * M)),
        [("smaller-sizes-off", 2 * M)]
    );
    assert_eq!(ids(&host, anon(AT, 2 * M)), [("not-advised", 2 * M)]);
    // Without smaller sizes, 2M is the smallest.
    let old = with_thp(|t| t.orders.clear());
    assert_eq!(ids(&old, anon(AT, M)), []);
    assert_eq!(ids(&old, anon(AT + M, 2 * M)), [("too-small", 2 * M)]);
}

#[test]
fn the_ends_of_a_segment_are_not_part_of_a_large_page() {
    let host = host();
    let process = process(vec![anon(AT - 64 * K, 4 * M + 76 * K)]);
    let verdicts = judge(&host, &process);
    let got: Vec<_> = verdicts
        .iter()
        .map(|v| (v.id.name(), v.range.start(), v.bytes.get()))
        .collect();
    assert_eq!(
        got,
        [
            ("smaller-sizes-off", AT - 64 * K, 64 * K),
            ("not-advised", AT, 4 * M),
        ]
    );
    // The last 12K are below the smallest huge page.
    assert_eq!(account(&host, &process, "100")[0].too_small, Bytes(12 * K));
}

#[test]
fn a_smaller_size_that_is_on_is_given_at_first_touch() {
    let on = with_thp(|t| t.orders[1].anon = word("always"));
    assert_eq!(
        ids(&on, anon(AT, M)),
        [("smaller-sizes-at-fault", M)],
        "64K is on, though 1M would fit"
    );
    let advised = with_thp(|t| t.orders[1].anon = word("madvise"));
    assert_eq!(ids(&advised, anon(AT, M)), [("smaller-sizes-off", M)]);
    assert_eq!(
        ids(&advised, flagged(anon(AT, M), b"hg")),
        [("smaller-sizes-at-fault", M)]
    );
    let verdict = only(&host(), &process(vec![anon(AT, 80 * K)]));
    assert!(
        verdict.text.contains("64K pages would fit 64K of it"),
        "{verdict:?}"
    );
    assert!(
        verdict.text.contains("hugepages-64kB/enabled"),
        "{verdict:?}"
    );
}

#[test]
fn the_mapping_says_no() {
    let host = host();
    let eight = || anon(AT, 8 * M);
    let nh = only(&host, &process(vec![flagged(eight(), b"nh")]));
    assert_eq!(nh.id, Reason::NoHugeAdvised);
    assert!(nh.text.contains("MADV_NOHUGEPAGE") && nh.command.starts_with("# "));
    let mut stack = flagged(eight(), b"nh");
    stack.role = MappingRole::ThreadStack;
    assert_eq!(ids(&host, stack.clone()), [("thread-stack", 8 * M)]);
    // A thread stack without the kernel's mark can be promoted (before Linux 6.7).
    stack.flags.0.retain(|f| f != b"nh");
    assert_eq!(ids(&host, stack), [("not-advised", 8 * M)]);
    for flag in [b"io", b"pf", b"mm", b"de"] {
        let special = flagged(shm(AT, 8 * M), flag);
        assert_eq!(ids(&host, special), [("special", 8 * M)]);
    }
    for flag in [b"um", b"uw", b"ui"] {
        assert_eq!(ids(&host, flagged(eight(), flag)), [("userfaultfd", 8 * M)]);
    }
    assert_eq!(
        ids(&host, flagged(eight(), b"dd")),
        [("not-advised", 8 * M)]
    );
    let mut main = eight();
    main.role = MappingRole::Stack;
    assert_eq!(ids(&host, main), [("stack", 8 * M)]);
    let mut vdso = anon(AT, 16 * K);
    vdso.role = MappingRole::Vdso;
    assert_eq!(ids(&host, vdso), [("special", 16 * K)]);
}

#[test]
fn merged_pages() {
    let host = host();
    let mut merged = anon(AT, 4 * M);
    merged.merged = Bytes(64 * K);
    let (own, shared) = (range(AT, 64 * K), range(AT + 64 * K, 4 * M - 64 * K));
    set_pages(&mut merged, vec![(own, PageState::PRESENT), (shared, OWN)]);
    let process = process(vec![merged.clone()]);
    let verdicts = judge(&host, &process);
    assert_eq!(verdicts[0].id, Reason::Merged);
    assert!(verdicts[0].text.contains("KSM merged 64K"));
    let not_advised = ("not-advised", 2 * M);
    assert_eq!(
        ids(&host, merged.clone()),
        [("ksm-merged", 2 * M), not_advised]
    );
    // Without a page map: as much as the counters show.
    merged.pages = Fact::Absent;
    let rest = ("not-advised", 4 * M - 64 * K);
    assert_eq!(ids(&host, merged), [("ksm-merged", 64 * K), rest]);
    // Mergeable memory can be promoted.
    let mergeable = flagged(anon(AT, 8 * M), b"mg");
    assert_eq!(ids(&host, mergeable), [("not-advised", 8 * M)]);
}

#[test]
fn the_process_says_no() {
    let host = host();
    let mut p = process(vec![anon(AT, 8 * M), flagged(anon(AT + G, 8 * M), b"hg")]);
    p.thp_disabled = Fact::Known(true);
    assert_eq!(
        ids_of(&host, &p),
        [("process-disabled", 8 * M), ("process-disabled", 8 * M)]
    );
    assert!(
        judge(&host, &p)[0]
            .text
            .contains("prctl(PR_SET_THP_DISABLE)")
    );
    assert_eq!(
        judge(&host, &p)[0].command,
        "hugeleaf promote --switch-thp-on 100"
    );
    p.name = "redis-server".to_owned();
    assert!(judge(&host, &p)[0].text.contains("'disable-thp no'"));
    p.thp_disabled = Fact::Absent;
    assert_eq!(
        ids_of(&host, &p),
        [("not-advised", 8 * M), ("small-steps", 8 * M)]
    );
}

#[test]
fn misaligned_shared_memory_names_the_knob_and_one_restart() {
    let mut p = process(vec![shm(AT + 12 * K, 8 * M)]);
    let verdict = only(&host(), &p);
    assert_eq!(
        (verdict.id, verdict.bytes),
        (Reason::Misaligned, Bytes(8 * M))
    );
    assert!(
        verdict
            .text
            .contains("transparent_hugepage/shmem_enabled is never")
    );
    assert_eq!(
        verdict.command,
        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled    \
         # then restart server once"
    );
    // The knob was set later, so only the restart is missing.
    p.unit = Some("server.service".to_owned());
    let since = with_thp(|t| t.shmem_enabled = word("advise"));
    let verdict = only(&since, &p);
    assert!(
        verdict.text.contains("was never; it is advise now"),
        "{verdict:?}"
    );
    assert_eq!(verdict.command, "systemctl restart server.service");
    // The mount option decides for files of a mounted tmpfs, not the knob.
    p.segments[0].name = "/dev/shm/PostgreSQL.1".to_owned();
    let verdict = only(&since, &p);
    assert_eq!(
        verdict.command,
        "mount -o remount,huge=advise /dev/shm && systemctl restart server.service"
    );
    // The option was set later.
    p.segments[0].mount_huge = Some("advise".to_owned());
    let verdict = only(&since, &p);
    assert!(
        verdict.text.contains("it has huge=advise now"),
        "{verdict:?}"
    );
    assert_eq!(verdict.command, "systemctl restart server.service");
    // An offset that compensates for the address.
    p.segments[0].offset = 12 * K;
    let verdicts = judge(&host(), &p);
    assert!(
        verdicts.iter().all(|v| v.id != Reason::Misaligned),
        "{verdicts:?}"
    );
    // Too short for a huge page at any address.
    assert_eq!(ids(&host(), shm(AT + 12 * K, M)), [("too-small", M)]);
}

#[test]
fn aligned_shared_memory_can_be_promoted_unless_denied() {
    let eight = || shm(AT, 8 * M);
    for (knob, segment, id) in [
        ("never", eight(), "shmem-never"),
        ("advise", eight(), "shmem-not-advised"),
        ("advise", flagged(eight(), b"hg"), "small-steps"),
        ("always", eight(), "small-steps"),
        ("deny", eight(), "shmem-deny"),
    ] {
        let host = with_thp(|t| t.shmem_enabled = word(knob));
        assert_eq!(ids(&host, segment), [(id, 8 * M)], "{knob}");
    }
}

/// The mount option decides for a file on a mounted tmpfs, regardless of the host's knob.
#[test]
fn posix_shared_memory_goes_by_its_mount() {
    let posix = |huge: Option<&str>| {
        let mut segment = shm(AT, 8 * M);
        segment.name = "/dev/shm/PostgreSQL.1".to_owned();
        segment.mount_huge = huge.map(str::to_owned);
        segment
    };
    for knob in ["never", "advise", "always"] {
        let host = with_thp(|t| t.shmem_enabled = word(knob));
        for (segment, id) in [
            (posix(None), "shmem-never"),
            (posix(Some("advise")), "shmem-not-advised"),
            (flagged(posix(Some("advise")), b"hg"), "small-steps"),
            (posix(Some("within_size")), "small-steps"),
        ] {
            let huge = segment.mount_huge.clone();
            let verdict = only(&host, &process(vec![segment]));
            assert_eq!(verdict.id.name(), id, "{knob} {huge:?}");
            assert!(!verdict.text.contains("shmem_enabled"), "{verdict:?}");
        }
    }
}

#[test]
fn promotion_goes_by_the_shmem_knob_of_the_size() {
    for (word_of_size, expected) in [
        ("never", "shmem-size-off"),
        ("advise", "shmem-size-off"),
        ("always", "small-steps"),
        ("inherit", "shmem-never"),
    ] {
        let host = with_thp(|t| t.orders[3].shmem = word(word_of_size));
        assert_eq!(
            ids(&host, shm(AT, 8 * M)),
            [(expected, 8 * M)],
            "{word_of_size}"
        );
    }
    // SysV segments ignore it.
    let host = with_thp(|t| t.orders[3].shmem = word("never"));
    let mut sysv = shm(AT, 8 * M);
    sysv.name = "/SYSV00000000 (deleted)".to_owned();
    assert_eq!(ids(&host, sysv), [("shmem-never", 8 * M)]);
}

/// Returns a host with this 2M pool, and a server that can request its pages, with a misaligned SysV segment
/// of 8M.
fn pool_and_segment(pool: hugeleaf_host::Pool) -> (Host, Process) {
    let mut host = host();
    host.pools = vec![pool];
    let mut segment = shm(AT + 4 * K, 8 * M);
    segment.name = "/SYSV00000000 (deleted)".to_owned();
    let mut process = process(vec![segment]);
    process.name = "postgres".to_owned();
    (host, process)
}

/// A program without a configured size requests the default size, so pages of another size stay idle.
#[test]
fn a_pool_of_another_size_than_the_default_one() {
    let (mut host, mut p) = pool_and_segment(pool("2M", 100, 100, 0));
    p.segments[0].name = "/dev/zero (deleted)".to_owned();
    host.pools.push(pool("1G", 0, 0, 0));
    host.memory.default_hugetlb_page = Fact::Known(size("1G"));
    let verdict = only(&host, &p);
    assert_eq!(verdict.id, Reason::PoolUnused);
    assert!(
        verdict
            .text
            .contains("asks for pages of 1G, the default size"),
        "{verdict:?}"
    );
    assert!(
        verdict
            .command
            .contains("(huge_page_size = 2MB, huge_pages = on)"),
        "{verdict:?}"
    );
    // MariaDB searches for a size with pages.
    p.name = "mariadbd".to_owned();
    assert!(only(&host, &p).command.contains("(large-pages)"));
    // MySQL cannot be configured for it.
    p.name = "mysqld".to_owned();
    assert_eq!(only(&host, &p).id, Reason::Misaligned);
    // The pool has the default size.
    p.name = "postgres".to_owned();
    host.memory.default_hugetlb_page = Fact::Known(size("2M"));
    assert!(only(&host, &p).command.contains("(huge_pages = on)"));
}

/// Most programs never request pool pages, so a pool does not change their verdict.
#[test]
fn a_pool_is_nothing_to_a_program_that_does_not_ask() {
    for free in [0, 1, 100] {
        let (host, mut p) = pool_and_segment(pool("2M", 100, free, 0));
        p.name = "nginx".to_owned();
        assert_eq!(only(&host, &p).id, Reason::Misaligned);
        // A process with other memory on a pool does request pages.
        let mut on_pool = flagged(shm(AT + G, 8 * M), b"ht");
        on_pool.request.hugetlb = Some(size("2M"));
        p.segments.push(on_pool);
        assert_ne!(ids_of(&host, &p)[0].0, "misaligned");
        p.segments.pop();
        let asks = RunPolicy {
            ways: vec![RunPageKind::Hugetlb(size("2M"))],
            ..RunPolicy::default()
        };
        let mut settings = RunSettings::default();
        settings.roles[RunMemoryKind::Shm as usize] = asks;
        p.run = Fact::Known(settings);
        assert_ne!(only(&host, &p).id, Reason::Misaligned);
    }
}

#[test]
fn a_pool_that_is_short_says_by_how_much() {
    let (host, p) = pool_and_segment(pool("2M", 100, 5, 4));
    let verdict = only(&host, &p);
    assert_eq!(verdict.id, Reason::PoolShort);
    assert!(verdict.text.contains("3 pages short"), "{verdict:?}");
    assert!(
        verdict.text.contains("needs 4, and 1 are free"),
        "{verdict:?}"
    );
    assert!(
        verdict.command.starts_with(&format!(
            "hugeleaf plan {} --output pages.toml && hugeleaf apply pages.toml",
            p.pid
        )),
        "{verdict:?}"
    );
    // Overcommit covers the missing pages.
    let mut lent = pool("2M", 100, 5, 4);
    lent.overcommit = Fact::Known(Pages(3));
    let (host, p) = pool_and_segment(lent);
    assert_eq!(only(&host, &p).id, Reason::PoolUnused);
    let (host, p) = pool_and_segment(pool("2M", 100, 8, 4));
    assert_eq!(only(&host, &p).id, Reason::PoolUnused);
    // An empty pool is no remedy.
    let (host, p) = pool_and_segment(pool("2M", 0, 0, 0));
    assert_eq!(only(&host, &p).id, Reason::Misaligned);
    // A pool with pages larger than the segment is none either.
    let (host, p) = pool_and_segment(pool("1G", 4, 4, 0));
    assert_eq!(only(&host, &p).id, Reason::Misaligned);
}

#[test]
fn sysv_memory_needs_a_group_or_the_memlock_limit() {
    let (mut host, mut p) = pool_and_segment(pool("2M", 100, 100, 0));
    p.limits.memlock = Fact::Known(Bytes(8 * M - 1));
    let verdict = only(&host, &p);
    assert_eq!(verdict.id, Reason::Memlock);
    assert!(
        verdict
            .command
            .starts_with("sysctl -w vm.hugetlb_shm_group=999"),
        "{verdict:?}"
    );
    host.limits.hugetlb_shm_group = Fact::Known(54321);
    let verdict = only(&host, &p);
    assert_eq!(verdict.id, Reason::ShmGroup);
    assert!(verdict.text.contains("group 54321"), "{verdict:?}");
    let allowed = |change: fn(&mut Process)| {
        let mut p = p.clone();
        change(&mut p);
        only(&host, &p).id
    };
    assert_eq!(allowed(|p| p.groups.push(54321)), Reason::PoolUnused);
    assert_eq!(allowed(|p| p.capabilities = 1 << 14), Reason::PoolUnused);
    assert_eq!(
        allowed(|p| p.limits.memlock = Fact::Known(Bytes(8 * M))),
        Reason::PoolUnused
    );
    // Memory from mmap needs none of them.
    assert_eq!(
        allowed(|p| p.segments[0].name = "/dev/zero (deleted)".to_owned()),
        Reason::PoolUnused
    );
}

/// One screen does not advise two values of one setting.
#[test]
fn lines_that_contradict_each_other_leave_it_to_a_plan() {
    let (host, mut one) = pool_and_segment(pool("2M", 100, 100, 0));
    one.limits.memlock = Fact::Known(Bytes(8 * M - 1));
    let mut two = one.clone();
    (two.pid, two.groups) = (Pid(101), vec![998]);
    two.segments[0].object = (0, 1, 78);
    let accounts = [&one, &two].map(|p| account(&host, p, "server"));
    let summary = summarise(&[(&one, &accounts[0]), (&two, &accounts[1])]);
    assert_eq!(summary.lines.len(), 2, "{summary:?}");
    for line in &summary.lines {
        assert_eq!(line.command, crate::advice::PLAN);
        assert!(line.text.contains("advises the opposite"), "{line:?}");
    }
    let alone = summarise(&[(&one, &accounts[0])]);
    assert!(alone.lines[0].command.starts_with("sysctl -w "));
}

fn cgroup(path: &str, reservation: Option<u64>, fault: Option<u64>) -> HugetlbCgroup {
    HugetlbCgroup {
        version: 2,
        path: path.to_owned(),
        folder: format!("/sys/fs/cgroup{path}"),
        hugetlb: vec![HugetlbLimit {
            size: size("2M"),
            fault_limit: Fact::Known(fault.map(Bytes)),
            fault_usage: Fact::Known(Bytes(0)),
            reservation_limit: Fact::Known(reservation.map(Bytes)),
            reservation_usage: Fact::Known(Bytes(4 * M)),
            hits: Fact::Known(0),
        }],
    }
}

#[test]
fn cgroup_limits_of_the_process_and_those_above_it() {
    let (mut host, mut p) = pool_and_segment(pool("2M", 100, 100, 0));
    let mut with = |groups: Vec<HugetlbCgroup>| {
        p.limits.hugetlb = groups;
        only(&host, &p)
    };
    let verdict = with(vec![cgroup("/a", Some(8 * M), None)]);
    assert_eq!(verdict.id, Reason::CgroupReservation);
    assert!(
        verdict.text.contains("cgroup /a may reserve 4M more"),
        "{verdict:?}"
    );
    assert!(
        verdict
            .command
            .starts_with("echo 12582912 > /sys/fs/cgroup/a/hugetlb.2MB.rsvd.max"),
        "{verdict:?}"
    );
    let verdict = with(vec![cgroup("/a/b", None, Some(6 * M))]);
    assert_eq!(verdict.id, Reason::CgroupFault);
    assert!(verdict.text.contains("SIGBUS"), "{verdict:?}");
    // Enough, and no limit.
    for near in [
        cgroup("/a/b", Some(12 * M), Some(8 * M)),
        cgroup("/a/b", None, None),
    ] {
        assert_eq!(with(vec![near]).id, Reason::PoolUnused);
    }
    // A short pool is found before the fault limit, but after the reservation limit.
    host.pools = vec![pool("2M", 1, 1, 0)];
    p.limits.hugetlb = vec![cgroup("/a/b", None, Some(0))];
    assert_eq!(only(&host, &p).id, Reason::PoolShort);
    p.limits.hugetlb = vec![cgroup("/a/b", Some(0), Some(0))];
    assert_eq!(only(&host, &p).id, Reason::CgroupReservation);
    // In a container its cgroup must not be written.
    p.limits.is_in_container = true;
    p.name = "postgres".to_owned();
    let command = only(&host, &p).command;
    assert!(
        command.contains("hugepages-2Mi: 12Mi; or huge_pages = off"),
        "{command}"
    );
}

#[test]
fn hugetlb_memory_is_large_already() {
    let mut segment = flagged(shm(AT, 8 * M), b"ht");
    segment.request.hugetlb = Some(size("2M"));
    segment.by_page_size = vec![hugeleaf_host::PageUsage {
        size: size("2M"),
        kind: PageKind::Hugetlb,
        bytes: Bytes(8 * M),
    }];
    let p = process(vec![segment]);
    let accounts = account(&host(), &p, "100");
    assert_eq!(accounts[0].huge, Bytes(8 * M));
    assert!(accounts[0].verdicts.is_empty());
    assert!(summarise(&[(&p, &accounts)]).is_good());
}

#[test]
fn a_segment_is_cut_where_its_pages_differ() {
    let host = host();
    let own = OWN;
    let cow = PageState::PRESENT;
    let huge = OWN.with(PageState::HUGE);
    let at = |page: u64| AT + page * 2 * M;
    let mut segment = anon(AT, 14 * M);
    set_pages(
        &mut segment,
        vec![
            (range(at(0), 2 * M), own),
            (range(at(1), 2 * M), huge),
            (range(at(2), M), own),
            (range(at(2) + M, M), PageState::SWAPPED),
            (range(at(3), 2 * M - 4 * K), own),
            (range(at(3) + 2 * M - 4 * K, 4 * K), cow),
            (range(at(4), 2 * M - 4 * K), own),
            (range(at(5), 4 * K), own),
            (
                range(at(5) + 4 * K, 2 * M - 4 * K),
                PageState::PRESENT.with(PageState::ZERO),
            ),
        ],
    );
    let mut p = process(vec![segment]);
    p.children = vec![Pid(200)];
    let verdicts = judge(&host, &p);
    let got: Vec<_> = verdicts
        .iter()
        .map(|v| (v.id.name(), v.range, v.bytes.get()))
        .collect();
    assert_eq!(
        got,
        [
            ("not-advised", range(at(0), 2 * M), 2 * M),
            ("swapped", range(at(2), 2 * M), M),
            ("copy-on-write", range(at(3), 2 * M), 2 * M),
            ("partly-resident", range(at(4), 2 * M), 2 * M - 4 * K),
            ("sparse", range(at(5), 2 * M), 4 * K),
        ]
    );
    assert!(verdicts[1].text.contains("1M of it is in swap"));
    assert!(verdicts[2].text.contains("its child 200"));
    assert_eq!(
        verdicts[3].command,
        "hugeleaf promote --min-resident 90% 100    # promotes 2M of it, and adds 4K"
    );
    assert!(verdicts[3].text.contains("4K more"));
    let accounts = account(&host, &p, "100");
    assert_eq!(accounts[0].huge, Bytes(2 * M));
    assert_eq!(accounts[0].resident, p.segments[0].resident);
    assert!(!summarise(&[(&p, &accounts)]).is_good());
}

#[test]
fn what_would_have_to_grow_is_no_reason_for_a_no() {
    let mut segment = anon(AT, 4 * M);
    set_pages(
        &mut segment,
        vec![(range(AT, 4 * M - 4 * K), OWN.with(PageState::HUGE))],
    );
    let good = |segment: ProcessMapping| {
        let p = process(vec![segment]);
        let accounts = account(&host(), &p, "100");
        summarise(&[(&p, &accounts)]).is_good()
    };
    assert!(good(segment.clone()));
    set_pages(&mut segment, vec![(range(AT, 2 * M - 4 * K), OWN)]);
    assert!(good(segment.clone()));
    set_pages(&mut segment, vec![(range(AT, 2 * M), OWN)]);
    assert!(!good(segment));
}

#[test]
fn half_of_a_page_is_enough_to_ask_for_it() {
    let with = |resident: u64| {
        let mut segment = anon(AT, 2 * M);
        set_pages(&mut segment, vec![(range(AT, resident), OWN)]);
        ids(&host(), segment)
    };
    assert_eq!(with(M), [("partly-resident", M)]);
    assert_eq!(with(M - 4 * K), [("sparse", M - 4 * K)]);
    assert_eq!(with(2 * M), [("not-advised", 2 * M)]);
}

#[test]
fn shared_memory_that_this_process_touched_in_part() {
    let host = host();
    let mut segment = shm(AT, 4 * M);
    let state = PageState::PRESENT.with(PageState::FILE);
    set_pages(&mut segment, vec![(range(AT, 2 * M + 4 * K), state)]);
    // Shared memory may be mapped by other processes.
    assert_eq!(
        ids(&host, segment),
        [("shmem-never", 2 * M), ("partly-mapped", 4 * K)]
    );
}

#[test]
fn mlock_of_a_piece_cuts_the_mapping() {
    let host = host();
    let locked = flagged(anon(AT + M, 4 * K), b"lo");
    let segments = vec![
        anon(AT, M),
        locked.clone(),
        anon(AT + M + 4 * K, 3 * M - 4 * K),
    ];
    assert_eq!(
        ids_of(&host, &process(segments)),
        [("locked", M), ("locked", M - 4 * K), ("not-advised", 2 * M)]
    );
    // A fully locked mapping can be promoted, and a locked mapping elsewhere has no effect.
    assert_eq!(
        ids(&host, flagged(anon(AT, 4 * M), b"lo")),
        [("not-advised", 4 * M)]
    );
    let apart = vec![anon(AT, M - 4 * K), locked];
    assert_eq!(
        ids_of(&host, &process(apart)),
        [("smaller-sizes-off", M - 4 * K)]
    );
}

#[test]
fn pinned_pages_are_taken_off_the_largest_range() {
    let host = host();
    let mut p = process(vec![anon(AT, 4 * M), anon(AT + G, 16 * M)]);
    p.pinned = Bytes(8 * K);
    assert_eq!(
        ids_of(&host, &p),
        [
            ("not-advised", 4 * M),
            ("not-advised", 14 * M),
            ("pinned", 2 * M)
        ]
    );
    // More is pinned than could be promoted: all of that, and nothing else.
    p.pinned = Bytes(64 * M);
    assert_eq!(ids_of(&host, &p), [("pinned", 4 * M), ("pinned", 16 * M)]);
}

#[test]
fn buffers_of_io_uring_are_found_where_they_lie() {
    let host = host();
    let mut segment = anon(AT, 8 * M);
    let own = PageState::PRESENT.with(PageState::EXCLUSIVE);
    let all = segment.range;
    set_pages(&mut segment, vec![(all, own)]);
    let mut p = process(vec![segment]);
    let buffer = |start, len| Range::new(start, start + len).unwrap();
    // One inside the second page, one across the boundary of the third and the fourth.
    p.registered = Fact::Known(vec![
        buffer(AT + 3 * M, 64 * K),
        buffer(AT + 6 * M - 4 * K, 8 * K),
    ]);
    // VmPin may count them too, which adds no information.
    p.pinned = Bytes(72 * K);
    let verdicts = judge(&host, &p);
    let reported: Vec<_> = verdicts
        .iter()
        .map(|v| (v.id.name(), v.range.start() - AT, v.bytes.get()))
        .collect();
    assert_eq!(
        reported,
        [("not-advised", 0, 2 * M), ("pinned", 2 * M, 6 * M)]
    );
    assert!(
        verdicts[1].text.contains("/proc/100/fdinfo"),
        "{verdicts:?}"
    );
    // No buffer in memory that could be promoted.
    p.pinned = Bytes(64 * K);
    p.registered = Fact::Known(vec![buffer(AT + G, 64 * K)]);
    assert_eq!(ids_of(&host, &p), [("not-advised", 8 * M)]);
}

#[test]
fn no_free_block_is_left() {
    let mut host = host();
    host.buddy = buddy(0);
    let p = process(vec![anon(AT, 4 * M), flagged(anon(AT + G, 4 * M), b"nh")]);
    let verdict = &judge(&host, &p)[0];
    assert_eq!(verdict.id, Reason::NoContiguous);
    assert!(
        verdict.text.contains("Compaction could merge up to 3.9G"),
        "{verdict:?}"
    );
    assert_eq!(
        verdict.command,
        "echo 1 > /proc/sys/vm/compact_memory && hugeleaf promote 100"
    );
    // Memory that cannot be huge keeps its own reason.
    assert_eq!(judge(&host, &p)[1].id, Reason::NoHugeAdvised);
    // No free memory to compact.
    host.memory.free = Fact::Known(Bytes(65 * M));
    assert!(judge(&host, &p)[0].command.contains("drop_caches"));
    // One block is enough, because each promotion frees as much as it uses.
    host.buddy = buddy(1);
    assert_eq!(judge(&host, &p)[0].id, Reason::NotAdvised);
    host.buddy = Fact::Absent;
    assert_eq!(judge(&host, &p)[0].id, Reason::NotAdvised);
}

#[test]
fn files() {
    let mut host = host();
    let text = |start| file(start, 8 * M, MappingRole::Text);
    assert_eq!(ids(&host, text(AT)), [("text-unsupported", 8 * M)]);
    assert_eq!(
        ids(&host, file(AT, 8 * M, MappingRole::File)),
        [("no-large-folios", 8 * M)]
    );
    assert_eq!(ids(&host, text(AT + 4 * K)), [("file-misaligned", 8 * M)]);
    assert_eq!(
        ids(&host, file(AT, 8 * M, MappingRole::Data)),
        [("private-file", 8 * M)]
    );
    let mut eligible = text(AT);
    eligible.thp_eligible = Fact::Known(true);
    assert_eq!(ids(&host, eligible), [("text-not-collapsed", 8 * M)]);
    // A host with large folios: this file was read in smaller chunks, unless its file system has none.
    host.memory.file_huge = Fact::Known(Bytes(2 * M));
    assert_eq!(ids(&host, text(AT)), [("small-folios", 8 * M)]);
    let mut vfat = file(AT, 8 * M, MappingRole::File);
    vfat.file_system = Some("vfat".to_owned());
    assert_eq!(ids(&host, vfat), [("no-large-folios", 8 * M)]);
    // A private mapping of shared memory.
    let mut copy = shm(AT, 8 * M);
    copy.shared = false;
    copy.role = MappingRole::Anon;
    assert_eq!(ids(&host, copy), [("private-file", 8 * M)]);
}

#[test]
fn kernels_without_thp() {
    let mut host = host();
    host.thp = Fact::Absent;
    host.pmd_page = Fact::Absent;
    assert_eq!(ids(&host, anon(AT, 8 * M)), [("no-thp", 8 * M)]);
    assert_eq!(ids(&host, anon(AT, M)), [], "smaller than the pool's pages");
    // Shared memory can use the pool if it is filled.
    host.pools = vec![pool("2M", 8, 8, 0)];
    let mut asking = process(vec![shm(AT, 8 * M)]);
    asking.name = "postgres".to_owned();
    assert_eq!(ids_of(&host, &asking), [("pool-unused", 8 * M)]);
    assert_eq!(ids(&host, shm(AT, 8 * M)), [("no-thp", 8 * M)]);
    host.pools.clear();
    assert_eq!(ids(&host, shm(AT, 8 * M)), [("no-thp", 8 * M)]);
}

#[test]
fn other_page_sizes() {
    let mut host = host();
    host.base_page = size("64K");
    host.pmd_page = Fact::Known(size("512M"));
    host.pools.clear();
    if let Fact::Known(thp) = &mut host.thp {
        thp.orders = ["128K", "2M", "512M"]
            .map(|s| hugeleaf_host::ThpSizeSettings {
                size: size(s),
                anon: word(if s == "512M" { "inherit" } else { "never" }),
                shmem: Fact::Absent,
            })
            .to_vec();
    }
    host.buddy = Fact::Absent;
    assert_eq!(ids(&host, anon(AT, 64 * K)), []);
    assert_eq!(
        ids(&host, anon(AT, 300 * M)),
        [("smaller-sizes-off", 300 * M)]
    );
    assert_eq!(
        ids(&host, anon(AT, 514 * M)),
        [("not-advised", 512 * M), ("smaller-sizes-off", 2 * M)]
    );
}

#[test]
fn what_is_all_in_swap_is_said_though_no_byte_of_it_is_on_a_page() {
    let mut segment = anon(AT, 8 * M);
    let pages = vec![
        (range(AT, 4 * M), PageState::SWAPPED),
        (range(AT + 4 * M, 4 * M), OWN),
    ];
    set_pages(&mut segment, pages);
    let host = host();
    let said = |segment: &ProcessMapping| ids(&host, segment.clone());
    assert_eq!(said(&segment), [("swapped", 0), ("not-advised", 4 * M)]);
    set_pages(&mut segment, vec![(range(AT, 8 * M), PageState::SWAPPED)]);
    assert_eq!(said(&segment), [("swapped", 0)]);
    let reported = judge(&host, &process(vec![segment]));
    assert!(
        reported[0].text.starts_with("8M, all in swap"),
        "{}",
        reported[0].text
    );
    assert_eq!(
        reported[0].command,
        "# once it is back in memory: hugeleaf promote 100"
    );
    // The partly resident range can be promoted, and has a separate verdict from its neighbour, which
    // cannot.
    let pages = vec![
        (range(AT, 3 * M), PageState::SWAPPED),
        (range(AT + 3 * M, 5 * M), OWN),
    ];
    let mut segment = anon(AT, 8 * M);
    set_pages(&mut segment, pages);
    let reported = judge(&host, &process(vec![segment]));
    let ranges: Vec<Range> = reported.iter().map(|v| v.range).collect();
    let parts = [
        range(AT, 2 * M),
        range(AT + 2 * M, 2 * M),
        range(AT + 4 * M, 4 * M),
    ];
    assert_eq!(ranges, parts, "{reported:#?}");
    assert!(
        reported[1].command.contains("--min-resident 50%"),
        "{reported:#?}"
    );
}

#[test]
fn without_a_page_map_the_counters_decide() {
    let host = host();
    let without = |change: fn(&mut ProcessMapping)| {
        let mut segment = anon(AT, 64 * M);
        segment.pages = Fact::Absent;
        change(&mut segment);
        ids(&host, segment)
    };
    assert_eq!(without(|_| {}), [("not-advised", 64 * M)]);
    assert_eq!(
        without(|s| s.shared_with_others = Bytes(16 * M)),
        [("copy-on-write", 16 * M), ("not-advised", 48 * M)]
    );
    assert_eq!(without(|s| s.swapped = Bytes(4 * K)), [("swapped", 64 * M)]);
    assert_eq!(
        without(|s| s.resident = Bytes(40 * M)),
        [("partly-resident", 40 * M)]
    );
    assert_eq!(without(|s| s.resident = Bytes(4 * M)), [("sparse", 4 * M)]);
}

#[test]
fn large_pages_that_the_page_map_cannot_show_are_taken_off() {
    let host = host();
    let mut segment = anon(AT, 8 * M);
    segment.by_page_size = vec![
        hugeleaf_host::PageUsage {
            size: size("4K"),
            kind: PageKind::Base,
            bytes: Bytes(5 * M),
        },
        hugeleaf_host::PageUsage {
            size: size("64K"),
            kind: PageKind::Thp,
            bytes: Bytes(3 * M),
        },
    ];
    let p = process(vec![segment]);
    let a = &account(&host, &p, "100")[0];
    assert_eq!((a.huge, a.resident), (Bytes(3 * M), Bytes(8 * M)));
    assert_eq!(ids_of(&host, &p), [("not-advised", 5 * M)]);
}

#[test]
fn shared_memory_of_several_processes_is_summed_up_once() {
    let host = host();
    let mut less = shm(AT + 4 * K, 8 * M);
    let state = PageState::PRESENT.with(PageState::FILE);
    set_pages(&mut less, vec![(range(AT + 4 * K, 4 * M), state)]);
    less.pss = Bytes(2 * M);
    let mut more = shm(AT + 4 * K, 8 * M);
    (more.shared_with_others, more.pss) = (Bytes(4 * M), Bytes(6 * M));
    let one = process(vec![less, anon(AT + G, 2 * M)]);
    let two = process(vec![more, anon(AT + G, 2 * M)]);
    let accounts = [&one, &two].map(|p| account(&host, p, "server"));
    let summary = summarise(&[(&one, &accounts[0]), (&two, &accounts[1])]);
    assert_eq!(summary.resident, Bytes(12 * M));
    let lines: Vec<_> = summary
        .lines
        .iter()
        .map(|l| (l.id.name(), l.bytes))
        .collect();
    assert_eq!(
        lines,
        [("misaligned", Bytes(8 * M)), ("not-advised", Bytes(4 * M))]
    );
    assert_eq!(summary.lines[1].command, "hugeleaf promote server");
    assert_eq!(summary.by_remedy(Remedy::Promote), Bytes(4 * M));
    assert!(!summary.is_good());
}

/// Pages that a parent and its child share since fork: 6M of 8M, all on base pages.
#[test]
fn memory_of_a_forked_tree_is_summed_up_once() {
    let host = host();
    let shared = PageState::PRESENT;
    let half_shared = || {
        let mut segment = anon(AT, 8 * M);
        let runs = vec![(range(AT, 6 * M), shared), (range(AT + 6 * M, 2 * M), OWN)];
        set_pages(&mut segment, runs);
        segment.pss = Bytes(3 * M + 2 * M);
        process(vec![segment])
    };
    let (parent, mut child) = (half_shared(), half_shared());
    child.pid = Pid(101);
    let accounts = [&parent, &child].map(|p| account(&host, p, "tree:100"));
    let judged = [
        (&parent, accounts[0].as_slice()),
        (&child, accounts[1].as_slice()),
    ];
    let summary = summarise(&judged);
    assert_eq!(summary.resident, Bytes(10 * M));
    let lines: Vec<_> = summary
        .lines
        .iter()
        .map(|l| (l.id.name(), l.bytes.get()))
        .collect();
    // The child's exclusive memory can be promoted. Its parent shows the shared memory.
    assert_eq!(lines, [("copy-on-write", 6 * M), ("not-advised", 4 * M)]);
    let counted = counted(&judged);
    assert_eq!(counted[1][0].resident, Bytes(2 * M));
    let sizes = |s: &Summary| {
        s.lines
            .iter()
            .all(|l| l.host_wide.is_none_or(|b| b <= l.bytes))
    };
    assert!(sizes(&summary), "{summary:?}");
    assert_eq!(counted[1][0].verdicts.len(), 1);
    let cow = &summary.lines[0];
    assert!(cow.text.contains("by 2 of the processes"), "{cow:?}");
    assert_eq!(
        cow.command,
        "# wait until the children have ended, then: hugeleaf promote tree:100"
    );
    // Alone, each process counts all its memory.
    assert_eq!(summarise(&judged[1..]).resident, Bytes(8 * M));
}

/// One line's text and command cover all of its ranges. A host-wide setting comes with the bytes that it
/// could promote, and is not advised for less than a tenth.
#[test]
fn a_size_is_advised_for_what_it_would_fit() {
    let host = host();
    let small = |n: u64| anon(AT + n * 4 * M, 80 * K);
    let large = anon(AT + G, M);
    let line = |segments: Vec<ProcessMapping>| {
        let p = process(segments);
        let accounts = account(&host, &p, "100");
        summarise(&[(&p, &accounts)]).lines.remove(0)
    };
    // 20 ranges of 80K and one of 1M: 64K fits 20 x 64K and all of the 1M.
    let mixed = line((0..20).map(small).chain([large.clone()]).collect());
    assert_eq!(
        (mixed.id, mixed.bytes.get()),
        (Reason::OrdersOff, 1600 * K + M)
    );
    assert_eq!(mixed.host_wide, Some(Bytes(20 * 64 * K + M)));
    assert!(
        mixed.text.contains("64K pages would fit 2.3M of it"),
        "{mixed:?}"
    );
    assert!(
        mixed
            .command
            .contains("helps at most 2.3M here: echo always"),
        "{mixed:?}"
    );
}

/// The command of a line covers the blocks of all its ranges, with the bytes that it promotes and adds.
#[test]
fn ranges_that_are_resident_in_part_are_summed_up() {
    let host = host();
    let part = |at: u64, missing: u64| {
        let mut segment = anon(at, 4 * M);
        // One huge page is complete except for its end, the other is half full.
        let runs = vec![
            (range(at, 2 * M - missing), OWN),
            (range(at + 2 * M, M + 128 * K), OWN),
        ];
        set_pages(&mut segment, runs);
        segment
    };
    let p = process(vec![part(AT, 64 * K), part(AT + G, 256 * K)]);
    let accounts = account(&host, &p, "100");
    let summary = summarise(&[(&p, &accounts)]);
    let line = &summary.lines[0];
    assert_eq!(summary.lines.len(), 1, "{summary:?}");
    assert_eq!((line.id, line.ranges), (Reason::PartlyResident, 2));
    // Blocks of 96 % and 87 %, and two of 56 %: those above 80 % hold more than half.
    assert_eq!(line.adds, Bytes(320 * K));
    let command = "hugeleaf promote --min-resident 80% 100    # promotes 3.7M of it, and adds 320K";
    assert_eq!(line.command, command);
    let more = format!("would add the rest, {} more", Bytes(8 * M) - line.bytes);
    assert!(line.text.contains(&more), "{line:?}");
}

#[test]
fn a_cgroup_that_is_full_has_no_room_for_a_large_page() {
    let host = host();
    let limit = |left: u64| MemoryLimit {
        version: 2,
        path: "/db".to_owned(),
        file: "/sys/fs/cgroup/db/memory.max".to_owned(),
        limit: Bytes(100 * M),
        usage: Bytes(100 * M) - Bytes(left) + Bytes(3 * M),
        inactive_cache: Bytes(2 * M),
        active_cache: Bytes(M),
        only_throttles: false,
    };
    let mut p = process(vec![anon(AT, 8 * M)]);
    p.limits.memory = vec![limit(2 * M - 4 * K), limit(50 * M)];
    let verdict = only(&host, &p);
    assert_eq!(verdict.id, Reason::CgroupMemory);
    assert!(
        verdict
            .text
            .contains("cgroup /db has 2M left of its memory limit of 100M")
            || verdict.text.contains("cgroup /db has 1.9M left"),
        "{verdict:?}"
    );
    let limit_then = 102 * M + 2 * M;
    assert_eq!(
        verdict.command,
        format!("echo {limit_then} > /sys/fs/cgroup/db/memory.max && hugeleaf promote 100")
    );
    // memory.high refuses nothing.
    let mut high = limit(0);
    high.only_throttles = true;
    p.limits.memory = vec![high, limit(50 * M)];
    assert_eq!(only(&host, &p).id, Reason::NotAdvised);
    // Room for one page is enough, because each is freed before the next is allocated.
    p.limits.memory = vec![limit(2 * M)];
    assert_eq!(only(&host, &p).id, Reason::NotAdvised);
    // A promotion that fills holes needs room for the added bytes too.
    let runs = vec![(range(AT, 7 * M), OWN)];
    set_pages(&mut p.segments[0], runs);
    p.limits.memory = vec![limit(2 * M + 512 * K)];
    let accounts = account(&host, &p, "100");
    let summary = summarise(&[(&p, &accounts)]);
    let grows = summary
        .lines
        .iter()
        .find(|l| l.id == Reason::PartlyResident);
    let grows = grows.unwrap();
    assert!(
        grows
            .text
            .ends_with("The memory limit of cgroup /db leaves 2.5M"),
        "{grows:?}"
    );
    assert!(grows.command.starts_with("echo "), "{grows:?}");
    assert!(
        grows
            .command
            .contains("&& hugeleaf promote --min-resident 50% 100    # "),
        "{grows:?}"
    );
}

#[test]
fn no_name_of_a_process_or_unit_can_add_a_command() {
    let mut p = process(vec![shm(AT + 4 * K, 8 * M)]);
    p.name = "x\nrm -rf /".to_owned();
    let command = only(&host(), &p).command;
    assert!(!command.contains('\n'), "{command:?}");
    p.unit = Some("a;rm -rf $HOME.service".to_owned());
    let command = only(&host(), &p).command;
    assert!(
        command.ends_with("systemctl restart 'a;rm -rf $HOME.service'"),
        "{command}"
    );
    p.segments[0].name = "/mnt/a b/file".to_owned();
    p.segments[0].role = MappingRole::Shm;
    let command = only(&host(), &p).command;
    assert!(
        command.starts_with("mount -o remount,huge=advise '/mnt/a b' &&"),
        "{command}"
    );
}

#[test]
fn ids_are_unique_and_stable_in_form() {
    let mut names: Vec<&str> = Reason::ALL.iter().map(|o| o.name()).collect();
    for name in &names {
        assert!(
            name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
            "{name}"
        );
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Reason::ALL.len());
}

fn any_segment() -> impl Strategy<Value = ProcessMapping> {
    let kinds = prop::sample::select(vec![0u8, 1, 2, 3, 4]);
    let flags = prop::sample::subsequence(
        vec![*b"hg", *b"nh", *b"lo", *b"um", *b"mg", *b"io", *b"ht"],
        0..2,
    );
    let runs = prop::collection::vec((1u64..700, 0u8..7), 0..12);
    (
        kinds,
        0u64..1024,
        1u64..3000,
        flags,
        runs,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(kind, start, pages, flags, runs, keep_pages, huge_known)| {
                let (start, len) = (AT + start * 4 * K, pages * 4 * K);
                let mut segment = match kind {
                    0 | 1 => anon(start, len),
                    2 => shm(start, len),
                    3 => file(start, len, MappingRole::Text),
                    _ => file(start, len, MappingRole::File),
                };
                let end = start + len;
                let mut at = start;
                let mut states = Vec::new();
                for (pages, kind) in runs {
                    let next = (at + pages * 4 * K).min(end);
                    let Ok(run) = Range::new(at, next) else { break };
                    at = next;
                    let state = match kind {
                        0 => continue,
                        1 => PageState::SWAPPED,
                        2 => PageState::PRESENT.with(PageState::ZERO),
                        3 => PageState::PRESENT,
                        4 => OWN.with(PageState::HUGE),
                        _ => OWN,
                    };
                    states.push((run, state));
                }
                set_pages(&mut segment, states);
                if let Fact::Known(map) = &mut segment.pages {
                    map.huge_known = huge_known;
                    if !huge_known {
                        for run in &mut map.runs {
                            if run.state.has(PageState::HUGE) {
                                run.state = OWN;
                            }
                        }
                    }
                }
                if !keep_pages {
                    segment.pages = Fact::Absent;
                }
                flags.iter().fold(segment, flagged)
            },
        )
}

fn any_host() -> impl Strategy<Value = Host> {
    let words = || prop::sample::select(vec!["always", "madvise", "advise", "never", "deny", "x"]);
    (
        words(),
        words(),
        any::<bool>(),
        any::<bool>(),
        0u64..9,
        0u64..3,
    )
        .prop_map(|(enabled, shmem, thp, pmd, pages, blocks)| {
            let mut host = with_thp(|t| {
                t.enabled = word(enabled);
                t.shmem_enabled = word(shmem);
            });
            if !thp {
                host.thp = Fact::Absent;
            }
            if !pmd {
                host.pmd_page = Fact::Absent;
            }
            host.pools = vec![pool("2M", pages, pages / 2, pages / 4)];
            host.buddy = buddy(blocks);
            host
        })
}

proptest! {
    #[test]
    fn every_resident_byte_is_judged_once(
        host in any_host(),
        segments in prop::collection::vec(any_segment(), 0..4),
        pinned in 0u64..(8 * M),
        disabled in any::<bool>(),
    ) {
        let mut p = process(segments);
        p.pinned = Bytes(pinned);
        p.thp_disabled = Fact::Known(disabled);
        let accounts = account(&host, &p, "100");
        prop_assert_eq!(accounts.len(), p.segments.len());
        for (a, segment) in accounts.iter().zip(&p.segments) {
            let judged: Bytes = a.verdicts.iter().map(|v| v.bytes).sum();
            prop_assert_eq!(a.resident, segment.resident);
            prop_assert_eq!(judged + a.huge + a.too_small, a.resident);
            for v in &a.verdicts {
                prop_assert!(segment.range.intersect(v.range) == Some(v.range));
                prop_assert!(!v.bytes.is_zero() || v.id == Reason::Swapped);
                prop_assert!(v.bytes <= v.range.len());
            }
            for pair in a.verdicts.windows(2) {
                let apart = pair[0].range.end() <= pair[1].range.start();
                let whole = pair.iter().all(|v| v.range == pair[0].range);
                prop_assert!(apart || whole, "{:?}", pair);
            }
        }
        let summary = summarise(&[(&p, &accounts)]);
        let lines: Bytes = summary.lines.iter().map(|l| l.bytes).sum();
        prop_assert_eq!(lines + summary.huge + summary.too_small, summary.resident);
    }
}
