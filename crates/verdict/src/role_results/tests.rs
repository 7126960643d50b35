use hugeleaf_host::process::parse_run_settings;
use hugeleaf_host::{Host, MappingRole, PageState, Pid, Process, ProcessMapping, RunSettings};
use hugeleaf_units::{Bytes, PageKind};
use proptest::prelude::*;

use super::*;
use crate::why::account;
use crate::why::tests::testing::{
    G, M, OWN, anon, file, flagged, host, pool, process, range, set_pages, shm,
};

const AUTO: &str = "v=1;base=4096;pmd=2097152;data=thp;shm=hugetlb:2097152,thp;stack=thp;\
    text=base;data_after=33554432;shm_after=2097152;stack_after=33554432;touch=1;\
    asked_data=auto;asked_shm=auto;asked_stack=auto;asked_text=auto";

fn settings(text: &str) -> RunSettings {
    parse_run_settings(text).unwrap()
}

/// Returns the program's own code, and that of the library.
fn code() -> [ProcessMapping; 2] {
    let mut library = file(0x100_0000, M, MappingRole::Text);
    library.name = "/var/cache/hugeleaf/libhugeleaf_run-1.so".to_owned();
    library.object.2 = 4712;
    [file(0x10_0000, M, MappingRole::Text), library]
}

/// Returns a process with these segments, its code and the library.
fn with_library(segments: Vec<ProcessMapping>) -> Process {
    process(code().into_iter().chain(segments).collect())
}

/// Returns private memory on huge pages.
fn large(start: u64, len: u64) -> ProcessMapping {
    let mut segment = anon(start, len);
    set_pages(
        &mut segment,
        vec![(range(start, len), OWN.with(PageState::HUGE))],
    );
    segment
}

fn judged(host: &Host, process: &Process, text: &str) -> ProcessRoleResults {
    let accounts = account(host, process, "100");
    judge_roles(host, process, &settings(text), &accounts)
}

fn state(host: &Host, process: &Process, text: &str, role: RunMemoryKind) -> RoleResult {
    let roles = judged(host, process, text);
    roles.states.into_iter().find(|s| s.role == role).unwrap()
}

#[test]
fn all_that_was_asked_for_was_got() {
    let mut heap = large(0x4000_0000, 64 * M);
    heap.role = MappingRole::Heap;
    let process = with_library(vec![heap, anon(0x8000_0000, M)]);
    let data = state(&host(), &process, AUTO, RunMemoryKind::Data);
    assert_eq!(data.asked, "auto");
    assert_eq!((data.missing, data.too_small), (Bytes::ZERO, Bytes(M)));
    assert_eq!((data.reason, data.command), (None, None));
    assert_eq!(PageUsage::total(&data.got), Bytes(65 * M));
    let text = state(&host(), &process, AUTO, RunMemoryKind::Text);
    assert_eq!(
        PageUsage::total(&text.got),
        Bytes(M),
        "libraries are not the program"
    );
    assert_eq!(text.reason.as_deref(), Some("unchanged unless requested"));
}

#[test]
fn what_is_missing_has_the_reason_of_its_largest_part() {
    let process = with_library(vec![
        large(0x4000_0000, 64 * M),
        anon(0x8000_0000, 16 * M),
        flagged(anon(0xc000_0000, 4 * M), b"nh"),
    ]);
    let data = state(&host(), &process, AUTO, RunMemoryKind::Data);
    assert_eq!(data.missing, Bytes(20 * M));
    assert!(data.reason.unwrap().contains("did not advise"));
    assert_eq!(data.command.as_deref(), Some("hugeleaf promote 100"));
}

#[test]
fn a_program_that_has_not_grown_is_left_alone() {
    let process = with_library(vec![anon(0x4000_0000, 8 * M)]);
    let data = state(&host(), &process, AUTO, RunMemoryKind::Data);
    assert_eq!(data.missing, Bytes(8 * M));
    let reason = data.reason.unwrap();
    assert_eq!(reason, "run skips data below 32M");
    assert_eq!(data.command, None);
    let mut stack = flagged(anon(0x4000_0000, 8 * M), b"nh");
    stack.role = MappingRole::ThreadStack;
    let stack = state(
        &host(),
        &with_library(vec![stack]),
        AUTO,
        RunMemoryKind::Stack,
    );
    assert_eq!(
        stack.reason.as_deref(),
        Some("run skips thread stacks below 32M")
    );
}

#[test]
fn without_the_library_promotion_is_the_way() {
    let process = process(vec![
        file(0x10_0000, M, MappingRole::Text),
        anon(0x4000_0000, 64 * M),
    ]);
    let data = state(&host(), &process, AUTO, RunMemoryKind::Data);
    assert!(
        data.reason
            .unwrap()
            .starts_with("the library is not loaded")
    );
    assert_eq!(data.command.as_deref(), Some("hugeleaf promote 100"));
}

#[test]
fn only_leaves_other_programs_out() {
    let process = with_library(vec![anon(0x4000_0000, 64 * M)]);
    let others = format!("{AUTO};only=postgres:initdb");
    let data = state(&host(), &process, &others, RunMemoryKind::Data);
    let reason = data.reason.unwrap();
    assert_eq!(reason, "--only names other programs: postgres, initdb");
    let this = format!("{AUTO};only=postgres:server");
    let data = state(&host(), &process, &this, RunMemoryKind::Data);
    assert!(data.reason.unwrap().contains("did not advise"));
}

const POOL: &str = "v=1;base=4096;pmd=2097152;data=base;shm=hugetlb:2097152;stack=base;text=base;\
    asked_data=base;asked_shm=hugetlb:2M;asked_stack=base;asked_text=base";

#[test]
fn a_pool_that_is_short_says_by_how_much() {
    let mut host = host();
    host.pools = vec![pool("2M", 10, 0, 0)];
    let process = with_library(vec![shm(0x4000_0000, 64 * M)]);
    let shm = state(&host, &process, POOL, RunMemoryKind::Shm);
    assert_eq!(shm.missing, Bytes(64 * M));
    let reason = shm.reason.unwrap();
    assert!(
        reason.contains("0 free pages of 2M, 32 too few"),
        "{reason}"
    );
    let command = shm.command.unwrap();
    assert!(command.starts_with("echo 42 > /sys/"), "{command}");
    let data = state(&host, &process, POOL, RunMemoryKind::Data);
    assert_eq!(data.reason.as_deref(), Some("base pages, as requested"));
}

#[test]
fn thp_is_not_what_a_pool_was_asked_for() {
    let mut segment = shm(0x4000_0000, 64 * M);
    let state_of = PageState::PRESENT
        .with(PageState::FILE)
        .with(PageState::HUGE);
    let whole = segment.range;
    set_pages(&mut segment, vec![(whole, state_of)]);
    let process = with_library(vec![segment]);
    let by_pool = state(&host(), &process, POOL, RunMemoryKind::Shm);
    assert_eq!(by_pool.missing, Bytes(64 * M));
    let by_any = state(&host(), &process, AUTO, RunMemoryKind::Shm);
    assert_eq!(by_any.missing, Bytes::ZERO);
}

#[test]
fn a_size_that_the_host_has_not_got_is_missing_although_nothing_was_tried() {
    let asked = "v=1;base=4096;pmd=2097152;data=base;asked_data=64K;shm=base;asked_shm=1G";
    let process = with_library(vec![anon(0x4000_0000, 64 * M), shm(0x1_0000_0000, 2 * G)]);
    let data = state(&host(), &process, asked, RunMemoryKind::Data);
    assert_eq!(data.missing, Bytes(64 * M));
    let reason = data.reason.unwrap();
    assert_eq!(reason, "64K pages: hugepages-64kB/enabled is never");
    assert!(data.command.unwrap().contains("hugepages-64kB/enabled"));
    let shm = state(&host(), &process, asked, RunMemoryKind::Shm);
    assert_eq!(shm.missing, Bytes(2 * G));
    assert!(shm.reason.unwrap().contains("no pool of 1G"));
}

#[test]
fn what_processes_share_counts_once_in_their_sum() {
    let mut other = with_library(vec![shm(0x5000_0000, 32 * M), large(0x4000_0000, 64 * M)]);
    other.pid = Pid(101);
    let one = with_library(vec![shm(0x4000_0000, 64 * M), large(0x9000_0000, 64 * M)]);
    let (one, other) = (judged(&host(), &one, AUTO), judged(&host(), &other, AUTO));
    let together = sum_of(&[&one, &other]);
    let of = |role| together.iter().find(|s| s.role == role).unwrap();
    assert_eq!(of(RunMemoryKind::Shm).missing, Bytes(64 * M));
    assert_eq!(
        PageUsage::total(&of(RunMemoryKind::Data).got),
        Bytes(128 * M)
    );
    assert_eq!(sum_of(&[]), []);
}

proptest! {
    /// Resident bytes are on requested pages, missing, or in small ranges, but never counted twice.
    #[test]
    fn nothing_is_counted_twice(
        parts in prop::collection::vec((1u64..64, 0u64..4, any::<bool>()), 0..8),
        asked in prop::sample::select(vec![
            "auto", "base", "2M", "64K", "hugetlb:2M", "1G,2M", "thp:2M!", "",
        ]),
        ways in prop::sample::select(vec!["thp", "base", "hugetlb:2097152,thp", "thp,!"]),
    ) {
        let mut at = 0x4000_0000;
        let mut segments = Vec::new();
        for (pages, offset, huge) in parts {
            let len = pages * M / 2;
            let start = at + offset * M / 2;
            segments.push(if huge { large(start, len) } else { anon(start, len) });
            at = start + len + M;
        }
        let resident: Bytes = segments.iter().map(|s| s.resident).sum();
        let text = format!("v=1;base=4096;pmd=2097152;data={ways};asked_data={asked}");
        let data = state(&host(), &with_library(segments), &text, RunMemoryKind::Data);
        prop_assert_eq!(PageUsage::total(&data.got), resident);
        let had: Bytes = data.got.iter().filter(|h| h.kind == PageKind::Thp).map(|h| h.bytes).sum();
        prop_assert!(data.missing + data.too_small <= resident);
        if asked == "auto" && ways == "thp" {
            prop_assert_eq!(data.missing + data.too_small + had, resident);
        }
        prop_assert!(data.missing.is_zero() || data.reason.is_some());
    }
}
