//! Checks that `why`, `promote`, `demote` and the kernel agree on memory of each kind.

use std::io::Write;

use hugeleaf_host::process_scanner::walk_pages;
use hugeleaf_host::{MappingRole, PageUsage, Process, ReadDetail, memory_totals, read_process};
use hugeleaf_mover::{BytesByReason, UnchangedReason};
use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_verdict::eligible::{Reason as Not, Remedy};
use hugeleaf_verdict::why;

use super::victim::Victim;
use super::{Bench, bytes_of, fast, fast_demote};

fn read(bench: &Bench, pid: Pid) -> Process {
    read_process(
        &bench.root,
        &bench.kernel,
        &bench.host,
        pid,
        ReadDetail::Pages,
    )
    .unwrap()
}

/// Checks that `why` predicts a dry run, the kernel follows, and demotable memory can be demoted and promoted again.
/// Returns the predicted memory, and the memory that cannot be demoted.
#[track_caller]
fn keeps_its_word(bench: &Bench, pid: Pid) -> (Bytes, Bytes) {
    let verdicts = why::judge(&bench.host, &read(bench, pid));
    let of_host = |v: &why::RangeVerdict| matches!(v.id, Not::NoContiguous | Not::CgroupMemory);
    let promotes = |v: &&why::RangeVerdict| v.id.remedy() == Remedy::Promote || of_host(v);
    let promised: Bytes = verdicts.iter().filter(promotes).map(|v| v.bytes).sum();
    let mut dry = fast();
    dry.dry_run = true;
    let plan = bench.promote(&[pid], &dry);
    assert_eq!(plan.requested(), promised, "{verdicts:#?} {plan:#?}");
    let left_out = &plan.processes[0].left_out;
    let others = verdicts
        .iter()
        .filter(|v| !promotes(v) && v.role != MappingRole::Vdso);
    for verdict in others {
        let short = matches!(
            verdict.id,
            Not::TooSmall | Not::OrdersOff | Not::OrderAtFault | Not::Locked
        );
        let id = if short { Not::TooSmall } else { verdict.id };
        assert!(
            bytes_of(left_out, id) >= verdict.bytes,
            "{verdict:#?} {left_out:#?}"
        );
    }
    let there = bench.promote(&[pid], &fast());
    assert_eq!(there.done(), promised, "{there:#?}");
    assert_eq!(plan.totals.one_way, there.totals.one_way);
    let one_way = BytesByReason::total(&there.totals.one_way);
    let before = there.totals.already;
    let back = bench.demote(&[pid], &fast_demote());
    assert!(back.requested() + one_way >= promised, "{back:#?}");
    assert!(back.requested() <= promised + before, "{back:#?}");
    let again = bench.promote(&[pid], &fast());
    assert_eq!(again.done(), back.done(), "{back:#?} {again:#?}");
    (promised, one_way)
}

#[test]
fn private_memory_of_each_kind_goes_there_and_back() {
    let Some(bench) = Bench::new("private_memory_of_each_kind_goes_there_and_back") else {
        return;
    };
    const MERGEABLE: &str = "advise a 12";
    let lock = "lock a";
    for (how, orders, one_way) in [
        ("private", &[][..], false),
        ("/dev/zero", &[], false),
        ("private", &[MERGEABLE], false),
        ("/dev/zero", &[lock], true),
    ] {
        let mut victim = Victim::start();
        victim.map("a", how, bench.pages(4), bench.huge);
        victim.tell("touch a");
        for order in orders {
            victim.tell(order);
        }
        let (promised, stays) = keeps_its_word(&bench, victim.pid());
        assert!(promised >= bench.pages(4), "{how} {orders:?}: {promised}");
        assert_eq!(stays >= bench.pages(4), one_way, "{how} {orders:?}");
        victim.tell("check a");
    }
}

#[test]
fn guard_pages_are_named_and_never_promised() {
    let Some(bench) = Bench::new("guard_pages_are_named_and_never_promised") else {
        return;
    };
    let (mut victim, range) = bench.private_victim(8);
    if !victim.tries(&format!("guard a {:#}", bench.huge.bytes())) {
        return println!(
            "not run: guard_pages_are_named_and_never_promised: MADV_GUARD_INSTALL is in Linux 6.13"
        );
    }
    let page = bench.kernel.base_page().bytes();
    let guarded = bench.pages(4) - Bytes(4 * page.get());
    let verdicts = why::judge(&bench.host, &read(&bench, victim.pid()));
    let inside = |v: &&why::RangeVerdict| range.intersect(v.range) == Some(v.range);
    let named = verdicts
        .iter()
        .filter(inside)
        .filter(|v| v.id == Not::Guarded);
    assert_eq!(
        named.map(|v| v.bytes).sum::<Bytes>(),
        guarded,
        "{verdicts:#?}"
    );
    let mut half = fast();
    half.min_resident = "50%".parse().unwrap();
    let there = bench.promote(&[victim.pid()], &half);
    assert!(there.is_complete(), "{there:#?}");
    let p = &there.processes[0];
    assert_eq!(bytes_of(&p.left_out, Not::Guarded), guarded, "{p:#?}");
    assert!(p.done >= bench.pages(4) && p.failed.is_empty(), "{p:#?}");
    keeps_its_word(&bench, victim.pid());
}

/// A file read in small parts, on kernels that collapse files and on others.
#[test]
fn a_file_is_promised_where_the_kernel_takes_it() {
    let Some(bench) = Bench::new("a_file_is_promised_where_the_kernel_takes_it") else {
        return;
    };
    let mut file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    // Small writes, because some file systems put a large write on large folios at once.
    let base = bench.kernel.base_page();
    let block = vec![1; usize::try_from(base.bytes().get()).unwrap()];
    for _ in 0..bench.huge.ratio_to(base) * 2 {
        file.write_all(&block).unwrap();
    }
    file.as_file().sync_all().unwrap();
    let (mut victim, _) = bench.private_victim(2);
    let (path, huge) = (file.path().display(), bench.huge.bytes());
    victim.tell(&format!("text {path} 2 {huge:#}"));
    let (promised, stays) = keeps_its_word(&bench, victim.pid());
    assert!(promised >= bench.pages(2));
    let path = file.path().to_str().unwrap();
    let process = read(&bench, victim.pid());
    let text = process.segments.iter().find(|s| s.name == path).unwrap();
    assert!(!text.collapses.is_absent(), "{text:#?}");
    assert_eq!(text.collapses.get() == Some(true), stays > Bytes::ZERO);
    // Demotion reports memory on huge pages that stays there.
    let on_huge: Bytes = PageUsage::on_base(&text.by_page_size);
    let back = bench.demote(&[victim.pid()], &fast_demote());
    let left = bytes_of(&back.processes[0].left_out, Not::FileStays);
    assert!(left >= text.resident - on_huge, "{back:#?}");
}

/// Memory that cannot be demoted is reported before promotion.
#[test]
fn what_cannot_go_back_is_said_before_it_moves() {
    let Some(bench) = Bench::new("what_cannot_go_back_is_said_before_it_moves") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(2);
    victim.tell("lock a");
    let mut said = Vec::new();
    let outcome = bench.promote_with(&bench.kernel, &[victim.pid()], &fast(), &mut |progress| {
        said.push((progress.stalls.total.is_zero(), progress.one_way));
    });
    assert!(outcome.unwrap().is_complete());
    let part = BytesByReason {
        reason: UnchangedReason::Locked,
        bytes: bench.pages(2),
    };
    assert!(said.contains(&(true, Some(part))), "{said:?}");
}

/// For a server that fills memory and forks its workers, the guard's scan agrees with `mem`.
#[test]
fn a_closer_look_counts_what_workers_share_once() {
    let Some(bench) = Bench::new("a_closer_look_counts_what_workers_share_once") else {
        return;
    };
    let (mut victim, _) = bench.private_victim(40);
    let children = (0..4).map(|_| Pid(victim.tell("fork").parse().unwrap()));
    let mut pids: Vec<Pid> = children.collect();
    pids.insert(0, victim.pid());
    let seen = walk_pages(&bench.root, &bench.kernel, &bench.host, &pids, pids[0]);
    let seen = seen.known().unwrap();
    let read = |pid: &Pid| {
        read_process(
            &bench.root,
            &bench.kernel,
            &bench.host,
            *pid,
            ReadDetail::Segments,
        )
        .unwrap()
    };
    let processes: Vec<Process> = pids.iter().map(read).collect();
    let table = memory_totals::process_memory(&processes);
    let all: Bytes = table.iter().map(|held| held.bytes).sum();
    let (is, small) = (seen.base + seen.huge, bench.pages(40));
    assert!(is >= small && is <= all, "{is}, not {small} to {all}");
    assert!(!seen.saving);
    let on_huge = table.iter().filter(|h| h.kind == PageKind::Thp);
    assert!(
        seen.huge <= on_huge.map(|h| h.bytes).sum(),
        "{seen:?} {table:?}"
    );
}
