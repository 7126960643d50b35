//! Tests each rule on a mapping or a block that shows it, and on one that nearly does. The distinctions of `why` are in
//! its tests.

use hugeleaf_host::Fact;
use hugeleaf_host::PageState;

use super::*;
use crate::why::tests::testing::{
    G, K, M, OWN, anon, file, flagged, host, process, range, set_pages, shm, size, with_thp, word,
};

const AT: u64 = 64 * G;

#[track_caller]
fn is(host: &Host, segment: ProcessMapping, expected: Result<MappingKind, Reason>) {
    let process = process(vec![segment]);
    assert_eq!(mapping(host, &process, &process.segments[0]), expected);
}

fn on_tmpfs(mut segment: ProcessMapping) -> ProcessMapping {
    segment.file_system = Some("tmpfs".to_owned());
    segment.name = "/tmp/file".to_owned();
    segment
}

#[test]
fn where_no_huge_page_fits_nothing_else_matters() {
    let host = host();
    is(&host, anon(AT, 2 * M), Ok(MappingKind::Private));
    is(&host, anon(AT + 4 * K, 2 * M), Err(Reason::TooSmall));
    is(&host, flagged(anon(AT, M), b"nh"), Err(Reason::TooSmall));
    is(
        &host,
        flagged(anon(AT, 2 * M), b"nh"),
        Err(Reason::NoHugeAdvised),
    );
    // Shared memory of this size could fit at another address.
    is(&host, shm(AT + 4 * K, M), Err(Reason::TooSmall));
    is(&host, shm(AT + 4 * K, 2 * M), Err(Reason::Misaligned));
    is(
        &host,
        file(AT + 4 * K, 2 * M, MappingRole::Text),
        Err(Reason::FileMisaligned),
    );
}

#[test]
fn flags_that_the_kernel_refuses_and_flags_that_it_does_not() {
    let host = host();
    for flag in [b"io", b"pf", b"mm", b"de"] {
        is(&host, flagged(shm(AT, 4 * M), flag), Err(Reason::Special));
    }
    // Sealed, droppable, wiped on fork, growing down, locked, not dumped: tested, all collapse.
    for flag in [b"sl", b"dp", b"wf", b"gd", b"lo", b"dd"] {
        is(
            &host,
            flagged(anon(AT, 4 * M), flag),
            Ok(MappingKind::Private),
        );
    }
    let mut secret = flagged(shm(AT, 4 * M), b"lo");
    secret.name = "/secretmem (deleted)".to_owned();
    is(&host, secret, Err(Reason::Special));
    is(&host, flagged(shm(AT, 4 * M), b"ht"), Err(Reason::Hugetlb));
}

#[test]
fn merging_is_of_anonymous_memory() {
    let host = host();
    // Mergeable memory can be promoted, but merged memory cannot.
    is(
        &host,
        flagged(anon(AT, 4 * M), b"mg"),
        Ok(MappingKind::Private),
    );
    let mut merged = flagged(anon(AT, 2 * M), b"mg");
    merged.merged = Bytes(64 * K);
    let (own, shared) = (
        range(AT, 2 * M - 64 * K),
        range(AT + 2 * M - 64 * K, 64 * K),
    );
    set_pages(&mut merged, vec![(own, OWN), (shared, PageState::PRESENT)]);
    let runs = &merged.pages.known().unwrap().runs;
    let tally = cut(&merged, size("2M"), runs)[0].tally;
    let huge = size("2M").bytes();
    let judged = |tally| block(MappingKind::Private, huge, tally, huge);
    assert_eq!(judged(&tally), Err(Reason::Merged));
    let forked = PageStateBytes {
        merged: Bytes::ZERO,
        ..tally
    };
    assert_eq!(judged(&forked), Err(Reason::CopyOnWrite));
}

/// The kernel's own answer takes precedence. Without it, only certain results are promised.
#[test]
fn a_file_is_collapsed_where_the_kernel_says_so() {
    let with = |file_system: &str, eligible, answer| {
        let mut file = file(AT, 4 * M, MappingRole::File);
        file.file_system = Some(file_system.to_owned());
        file.thp_eligible = Fact::Known(eligible);
        file.collapses = answer;
        file
    };
    let (older, mut newer) = (
        host(),
        with_thp(|t| t.khugepaged.collapses_small_orders = true),
    );
    newer.memory.file_huge = Fact::Known(Bytes(2 * M));
    let (yes, no, unasked) = (Fact::Known(true), Fact::Known(false), Fact::Absent);
    let none = Err(Reason::NoLargeFolios);
    for (host, file, expected) in [
        (
            &older,
            with("ext4", false, yes.clone()),
            Ok(MappingKind::File),
        ),
        (&older, with("ext4", true, no.clone()), none),
        (
            &older,
            with("ext4", true, unasked.clone()),
            Ok(MappingKind::File),
        ),
        (&older, with("ext4", false, unasked.clone()), none),
        // XFS answers for faults, regardless of a collapse.
        (&older, with("xfs", true, unasked.clone()), none),
        (&newer, with("xfs", false, unasked), Ok(MappingKind::File)),
        (&newer, with("xfs", true, no), Err(Reason::SmallFolios)),
    ] {
        is(host, file, expected);
    }
}

#[test]
fn a_thread_stack_goes_by_its_flag_and_the_main_stack_is_left_alone() {
    let stack = |role| {
        let mut segment = anon(AT, 8 * M);
        segment.role = role;
        segment
    };
    let host = host();
    is(
        &host,
        stack(MappingRole::ThreadStack),
        Ok(MappingKind::Private),
    );
    let refused = flagged(stack(MappingRole::ThreadStack), b"nh");
    is(&host, refused, Err(Reason::ThreadStack));
    is(&host, stack(MappingRole::Stack), Err(Reason::MainStack));
}

/// A tmpfs file is shared memory, writable or not. A file of another file system is not.
#[test]
fn a_file_of_a_tmpfs_is_shared_memory() {
    let mut written = file(AT, 4 * M, MappingRole::File);
    written.permissions[1] = true;
    let text = file(AT, 4 * M, MappingRole::Text);
    let (never, deny) = (host(), with_thp(|t| t.shmem_enabled = word("deny")));
    is(&never, written.clone(), Err(Reason::NoLargeFolios));
    is(&never, on_tmpfs(written.clone()), Ok(MappingKind::Shared));
    is(&never, on_tmpfs(text.clone()), Ok(MappingKind::File));
    is(&deny, on_tmpfs(written.clone()), Err(Reason::ShmemDeny));
    is(&deny, on_tmpfs(text.clone()), Err(Reason::ShmemDeny));
    is(&deny, text, Err(Reason::TextUnsupported));
    // A kernel that collapses writable files reports it.
    written.thp_eligible = Fact::Known(true);
    is(&never, written, Ok(MappingKind::File));
    is(
        &never,
        on_tmpfs(file(AT, 4 * M, MappingRole::Data)),
        Err(Reason::PrivateFile),
    );
}

#[test]
fn shared_memory_goes_by_deny_and_by_the_knob_of_its_size() {
    let eight = || shm(AT, 8 * M);
    let deny = with_thp(|t| t.shmem_enabled = word("deny"));
    is(&deny, eight(), Err(Reason::ShmemDeny));
    is(&host(), eight(), Ok(MappingKind::Shared));
    let of_size = |value: &str| with_thp(|t| t.orders[3].shmem = word(value));
    is(&of_size("never"), eight(), Err(Reason::ShmemSizeOff));
    is(&of_size("advise"), eight(), Err(Reason::ShmemSizeOff));
    is(
        &of_size("advise"),
        flagged(eight(), b"hg"),
        Ok(MappingKind::Shared),
    );
    is(&of_size("within_size"), eight(), Ok(MappingKind::Shared));
    let mut sysv = eight();
    sysv.name = "/SYSV00000000 (deleted)".to_owned();
    is(&of_size("never"), sysv, Ok(MappingKind::Shared));
    let mut linked = eight();
    linked.name = "/dev/shm/a".to_owned();
    is(&of_size("never"), linked, Ok(MappingKind::Shared));
}

#[test]
fn a_process_and_a_host_that_have_none() {
    let mut p = process(vec![anon(AT, 8 * M)]);
    let of = |host: &Host, p: &Process| mapping(host, p, &p.segments[0]);
    p.thp_disabled = Fact::Known(true);
    assert_eq!(of(&host(), &p), Err(Reason::ProcessDisabled));
    p.thp_disabled = Fact::Absent;
    assert_eq!(of(&host(), &p), Ok(MappingKind::Private));
    let mut without = host();
    without.thp = Fact::Absent;
    assert_eq!(of(&without, &p), Err(Reason::NoThp));
}

#[test]
fn a_block_must_be_whole_and_the_process_s_own() {
    let huge = size("2M").bytes();
    let judged = |kind, runs: Vec<(u64, PageState)>| {
        let mut segment = anon(AT, 2 * M);
        let mut at = AT;
        let runs = runs.into_iter().map(|(len, state)| {
            at += len;
            (range(at - len, len), state)
        });
        set_pages(&mut segment, runs.collect());
        let runs = &segment.pages.known().unwrap().runs;
        block(kind, huge, &cut(&segment, size("2M"), runs)[0].tally, huge)
    };
    let (cow, zero, rest) = (PageState::PRESENT, OWN.with(PageState::ZERO), 2 * M - 4 * K);
    let of_file = OWN.with(PageState::FILE);
    let private = |runs| judged(MappingKind::Private, runs);
    assert_eq!(private(vec![(2 * M, OWN)]), Ok(()));
    assert_eq!(
        private(vec![(rest, OWN), (4 * K, cow)]),
        Err(Reason::CopyOnWrite)
    );
    assert_eq!(judged(MappingKind::Shared, vec![(2 * M, cow)]), Ok(()));
    assert_eq!(private(vec![(rest, OWN)]), Err(Reason::PartlyResident));
    assert_eq!(private(vec![(4 * K, OWN)]), Err(Reason::Sparse));
    let guarded = || vec![(rest, OWN), (4 * K, PageState::GUARD)];
    assert_eq!(private(guarded()), Err(Reason::Guarded));
    assert_eq!(judged(MappingKind::Shared, guarded()), Err(Reason::Guarded));
    assert_eq!(
        private(vec![(rest, OWN), (4 * K, zero)]),
        Err(Reason::PartlyResident)
    );
    assert_eq!(
        judged(MappingKind::Shared, vec![(rest, cow)]),
        Err(Reason::PartlyMapped)
    );
    let swapped = vec![(rest, OWN), (4 * K, PageState::SWAPPED)];
    assert_eq!(private(swapped), Err(Reason::Swapped));
    assert_eq!(
        private(vec![(rest, OWN), (4 * K, of_file)]),
        Err(Reason::PrivateFile)
    );
}

/// If smaps reports no swap, a page that reads as swapped is under migration.
#[test]
fn a_page_that_is_being_moved_is_there() {
    let mut segment = anon(AT, 2 * M);
    let moving = PageState::SWAPPED;
    set_pages(
        &mut segment,
        vec![(range(AT, M), OWN), (range(AT + M, M), moving)],
    );
    let tally = |segment: &ProcessMapping| {
        let runs = &segment.pages.known().unwrap().runs;
        cut(segment, size("2M"), runs)[0].tally
    };
    assert_eq!(tally(&segment).swapped, Bytes(M));
    segment.swapped = Bytes::ZERO;
    assert_eq!(tally(&segment).present, Bytes(2 * M));
    assert_eq!(tally(&segment).exclusive, Bytes(2 * M));
}

/// Compares the table in `docs/reference/reasons.md` with the code.
#[test]
fn the_document_has_every_reason() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/reasons.md"
    );
    let document = std::fs::read_to_string(path).unwrap();
    let mut table = String::from("| id | why | helps | decides |\n|---|---|---|---|\n");
    for reason in Reason::ALL {
        table.push_str(&format!(
            "| `{}` | {} | {} | {} |\n",
            reason.name(),
            reason.says(),
            reason.remedy().name(),
            reason.decided_by()
        ));
    }
    assert!(document.contains(&table), "{path} must hold:\n{table}");
}
