//! Tests the plan on small synthetic processes: each reason, and a near miss for it.

use super::*;
use std::sync::LazyLock;

use std::collections::BTreeMap;

use hugeleaf_host::{Fact, KernelLimits, MappingSettings, Memory, Thp, VmFlags};
use hugeleaf_sys::{PageMap, Pid};
use hugeleaf_verdict::eligible::Reason as Not;
use hugeleaf_verdict::why;

const M: u64 = 1 << 20;
const START: u64 = 1 << 30;

fn size(text: &str) -> PageSize {
    text.parse().unwrap()
}

fn span(start: u64, len: u64) -> Range {
    Range::new(start, start + len).unwrap()
}

/// Returns a host with huge pages of 2M and no known settings.
fn host() -> Host {
    Host {
        kernel: Fact::Absent,
        arch: Fact::Absent,
        base_page: size("4K"),
        pmd_page: Fact::Known(size("2M")),
        memory: Memory::default(),
        page_sizes: Vec::new(),
        pools: Vec::new(),
        thp: Fact::Known(Thp::default()),
        buddy: Fact::Absent,
        limits: KernelLimits::default(),
        cgroups: Fact::Absent,
        is_in_container: false,
        unseen_by_kubelet: Vec::new(),
        owners: Vec::new(),
        wants: Vec::new(),
        leftovers: Fact::Absent,
        memory_limits: Vec::new(),
        kernel_log: Fact::Absent,
        nodes: vec![0],
        compaction: hugeleaf_host::CompactionStalls::default(),
        virtual_machine: hugeleaf_host::system::virtual_machine::VirtualMachine::default(),
    }
}

static HOST: LazyLock<Host> = LazyLock::new(host);

fn rules() -> SelectionRules<'static> {
    SelectionRules {
        held: None,
        host: &HOST,
        huge: size("2M"),
        base: size("4K"),
        min_resident: Percent::ALL,
        only: Vec::new(),
    }
}

fn present() -> PageState {
    PageState::PRESENT
}

fn own() -> PageState {
    present().with(PageState::EXCLUSIVE)
}

fn of_file() -> PageState {
    present().with(PageState::FILE)
}

/// Returns private anonymous memory with these pages.
fn anon(range: Range, runs: &[(Range, PageState)]) -> ProcessMapping {
    let mut by_page_size = Vec::new();
    for (run, state) in runs.iter().filter(|(_, s)| is_resident(*s)) {
        let (page, kind) = match state.has(PageState::HUGE) {
            true => (size("2M"), PageKind::Thp),
            false => (size("4K"), PageKind::Base),
        };
        PageUsage::add(&mut by_page_size, page, kind, run.len());
    }
    let runs = runs.iter().map(|(range, state)| PageRun {
        range: *range,
        state: *state,
    });
    ProcessMapping {
        range,
        role: MappingRole::Anon,
        name: String::new(),
        permissions: [true, true, false],
        shared: false,
        offset: 0,
        object: (0, 0, 0),
        request: MappingSettings::default(),
        flags: VmFlags::default(),
        thp_eligible: Fact::Absent,
        collapses: Fact::Absent,
        resident: by_page_size.iter().map(|h: &PageUsage| h.bytes).sum(),
        pss: Bytes(0),
        anonymous: Bytes(0),
        shared_with_others: Bytes(0),
        locked: Bytes(0),
        swapped: Bytes(0),
        swapped_pss: Bytes(0),
        merged: Bytes(0),
        by_page_size,
        pages: Fact::Known(PageMap {
            runs: runs.collect(),
            huge_known: true,
            exclusive_known: true,
        }),
        file_system: None,
        mount_huge: None,
    }
}

fn shm(range: Range, runs: &[(Range, PageState)]) -> ProcessMapping {
    ProcessMapping {
        role: MappingRole::Shm,
        shared: true,
        name: "/dev/zero (deleted)".to_owned(),
        object: (0, 1, 77),
        ..anon(range, runs)
    }
}

fn process(segments: Vec<ProcessMapping>) -> Process {
    Process {
        pid: Pid(100),
        parent: Pid(1),
        name: "server".to_owned(),
        start_ticks: 1,
        threads: 1,
        thp_disabled: Fact::Known(false),
        segments,
        ..Process::default()
    }
}

fn plan_of(segment: ProcessMapping, rules: &SelectionRules<'_>) -> BlockPlan {
    plan(&[&process(vec![segment])], rules).remove(0)
}

#[track_caller]
fn left_out(segment: ProcessMapping, reason: impl Into<UnchangedReason>) {
    let mut plan = plan_of(segment, &rules());
    plan.settle(size("2M"), |_| false);
    assert_eq!(plan.requested(), Bytes::ZERO, "{plan:#?}");
    let reasons: Vec<UnchangedReason> = plan.left_out.iter().map(|p| p.reason).collect();
    assert_eq!(reasons, [reason.into()], "{plan:#?}");
}

#[test]
fn whole_own_blocks_are_taken_and_the_ends_are_not() {
    let all = span(START - M, 6 * M);
    let plan = plan_of(anon(all, &[(all, own())]), &rules());
    let blocks: Vec<Range> = plan.blocks.iter().map(|b| b.range).collect();
    assert_eq!(blocks, [span(START, 2 * M), span(START + 2 * M, 2 * M)]);
    let ends = BytesByReason {
        reason: Not::TooSmall.into(),
        bytes: Bytes(2 * M),
    };
    assert_eq!(plan.left_out, [ends]);
}

#[test]
fn what_is_huge_is_already_there() {
    let (one, two) = (span(START, 2 * M), span(START + 2 * M, 2 * M));
    let runs = [(one, own().with(PageState::HUGE)), (two, own())];
    let plan = plan_of(anon(span(START, 4 * M), &runs), &rules());
    assert_eq!(
        (plan.already, plan.requested()),
        (Bytes(2 * M), Bytes(2 * M))
    );
}

#[test]
fn one_page_short_is_not_whole() {
    let block = span(START, 2 * M);
    let most = span(START, 2 * M - 4096);
    let hole = span(most.end(), 4096);
    left_out(anon(block, &[(most, own())]), Not::PartlyResident);
    let zero = own().with(PageState::ZERO);
    left_out(
        anon(block, &[(most, own()), (hole, zero)]),
        Not::PartlyResident,
    );
    let shared = anon(block, &[(most, own()), (hole, present())]);
    left_out(shared, Not::CopyOnWrite);
    let out = ProcessMapping {
        swapped: Bytes(4096),
        ..anon(block, &[(most, own()), (hole, PageState::SWAPPED)])
    };
    left_out(out, Not::Swapped);
    // If smaps reports no swap, the page is only being migrated.
    let moving = anon(block, &[(most, own()), (hole, PageState::SWAPPED)]);
    assert_eq!(plan_of(moving, &rules()).requested(), Bytes(2 * M));
}

#[test]
fn a_lower_share_takes_more_and_counts_what_is_missing() {
    let block = span(START, 2 * M);
    let nine_tenths = anon(block, &[(span(START, 1_888_256), own())]);
    let rules = |percent| SelectionRules {
        min_resident: Percent::new(percent).unwrap(),
        ..rules()
    };
    assert_eq!(
        plan_of(nine_tenths.clone(), &rules(91)).requested(),
        Bytes::ZERO
    );
    let plan = plan_of(nine_tenths, &rules(90));
    assert_eq!(plan.blocks[0].missing, Bytes(2 * M - 1_888_256));
}

#[test]
fn each_refusal_of_a_mapping_has_its_reason() {
    let block = span(START, 2 * M);
    let whole = || anon(block, &[(block, own())]);
    for (flag, reason) in [
        ("nh", Not::NoHugeAdvised),
        ("io", Not::Special),
        ("pf", Not::Special),
        ("mm", Not::Special),
        ("um", Not::Userfaultfd),
        ("uw", Not::Userfaultfd),
        ("ui", Not::Userfaultfd),
    ] {
        let letters = <[u8; 2]>::try_from(flag.as_bytes()).unwrap();
        let flags = VmFlags(vec![letters]);
        left_out(ProcessMapping { flags, ..whole() }, reason);
    }
    let stack = |role| ProcessMapping { role, ..whole() };
    left_out(stack(MappingRole::Stack), Not::MainStack);
    // A thread's stack is judged by its flag, which is absent once it was put on huge pages.
    let flags = VmFlags(vec![*b"nh"]);
    left_out(
        ProcessMapping {
            flags,
            ..stack(MappingRole::ThreadStack)
        },
        Not::ThreadStack,
    );
    assert_eq!(
        plan_of(stack(MappingRole::ThreadStack), &rules()).requested(),
        Bytes(2 * M)
    );
    let file = |write, shared| ProcessMapping {
        permissions: [true, write, false],
        object: (8, 1, 11),
        role: MappingRole::File,
        shared,
        ..anon(block, &[(block, of_file())])
    };
    left_out(file(true, false), Not::PrivateFile);
    left_out(file(true, true), Not::NoLargeFolios);
    left_out(file(false, false), Not::NoLargeFolios);
    for (write, shared) in [(true, true), (false, false)] {
        let eligible = ProcessMapping {
            collapses: Fact::Known(true),
            ..file(write, shared)
        };
        assert_eq!(
            plan_of(eligible, &rules()).blocks[0].kind,
            MappingKind::File
        );
    }
    let mut disabled = process(vec![whole()]);
    disabled.thp_disabled = Fact::Known(true);
    let plan = plan(&[&disabled], &rules()).remove(0);
    assert_eq!(plan.left_out[0].reason, Not::ProcessDisabled.into());
    let pages = Fact::Absent;
    left_out(ProcessMapping { pages, ..whole() }, Not::ExclusiveUnknown);
}

/// The page map is not read for mappings too small for any huge page, which is not an error.
#[test]
fn a_mapping_smaller_than_any_large_page_is_too_small_and_not_unread() {
    let page = span(START, 4096);
    let pages = Fact::Absent;
    left_out(
        ProcessMapping {
            pages,
            ..anon(page, &[(page, own())])
        },
        Not::TooSmall,
    );
    // Large enough, and across the boundary of a huge page.
    let across = span(START + M, 2 * M);
    let pages = Fact::Absent;
    left_out(
        ProcessMapping {
            pages,
            ..anon(across, &[(across, own())])
        },
        Not::TooSmall,
    );
}

#[test]
fn hugetlb_and_the_vdso_are_no_matter_of_promotion() {
    let block = span(START, 2 * M);
    let mut pool = anon(block, &[(block, own().with(PageState::HUGE))]);
    pool.request.hugetlb = Some(size("2M"));
    let vdso = ProcessMapping {
        role: MappingRole::Vdso,
        ..anon(block, &[(block, present())])
    };
    for segment in [pool, vdso] {
        let plan = plan_of(segment, &rules());
        assert_eq!((plan.already, plan.left_out.len()), (Bytes::ZERO, 0));
    }
}

#[test]
fn shared_memory_must_agree_with_its_offset() {
    let block = span(START, 2 * M);
    let aligned = shm(block, &[(block, of_file())]);
    assert_eq!(plan_of(aligned.clone(), &rules()).requested(), Bytes(2 * M));
    let shifted = ProcessMapping {
        offset: 4096,
        ..aligned.clone()
    };
    left_out(shifted, Not::Misaligned);
    let also_aligned = ProcessMapping {
        offset: 6 * M,
        ..aligned
    };
    assert_eq!(plan_of(also_aligned, &rules()).requested(), Bytes(2 * M));
}

#[test]
fn shared_memory_is_whole_when_all_processes_together_have_it() {
    let block = span(START, 2 * M);
    let half = |from| shm(block, &[(span(START + from, M), of_file())]);
    let (one, two) = (process(vec![half(0)]), process(vec![half(M)]));
    assert_eq!(plan(&[&one], &rules())[0].requested(), Bytes::ZERO);
    let plans = plan(&[&one, &two], &rules());
    let blocks: Vec<&Block> = plans.iter().flat_map(|p| &p.blocks).collect();
    assert_eq!(blocks.len(), 2);
    assert!(!blocks[0].map_only && blocks[1].map_only);
    assert!(blocks.iter().all(|b| b.missing.is_zero()));
    // Another object with the same inode is different: SysV segments have their own numbers.
    let mut sysv = half(M);
    sysv.name = "/SYSV00000000 (deleted)".to_owned();
    let three = process(vec![sysv]);
    let plans = plan(&[&one, &three], &rules());
    assert!(plans.iter().all(|p| p.blocks.is_empty()), "{plans:#?}");
}

#[test]
fn what_is_huge_in_another_process_is_only_mapped() {
    let block = span(START, 2 * M);
    let huge = shm(block, &[(block, of_file().with(PageState::HUGE))]);
    let touched = shm(block, &[(span(START, 4096), of_file())]);
    let plans = plan(&[&process(vec![touched]), &process(vec![huge])], &rules());
    assert!(plans[0].blocks[0].map_only);
    assert_eq!(plans[0].blocks[0].missing, Bytes::ZERO);
    assert_eq!((plans[1].already, plans[1].blocks.len()), (Bytes(2 * M), 0));
}

#[test]
fn chunks_are_neighbours_of_one_sort() {
    let (low, high) = (span(START, 6 * M), span(START + 8 * M, 2 * M));
    let process = process(vec![
        anon(low, &[(low, own())]),
        anon(high, &[(high, own())]),
    ]);
    let blocks = plan(&[&process], &rules()).remove(0).blocks;
    let len = |todo: &[usize], most| chunk_len(&blocks, todo, Bytes(most));
    assert_eq!(len(&[0, 1, 2, 3], 64 * M), 3);
    assert_eq!(len(&[0, 1, 2, 3], 4 * M), 2);
    assert_eq!(len(&[0, 1, 2, 3], 1), 1);
    assert_eq!(len(&[0, 2], 64 * M), 1);
    assert_eq!(len(&[], 64 * M), 0);
}

#[test]
fn what_forked_or_shrank_since_is_not_taken() {
    let block = span(START, 2 * M);
    let planned = plan_of(anon(block, &[(block, own())]), &rules()).blocks[0];
    let again = |runs: &[(Range, PageState)]| {
        let runs: Vec<PageRun> = runs
            .iter()
            .map(|(range, state)| PageRun {
                range: *range,
                state: *state,
            })
            .collect();
        judge_again(&planned, &runs, &rules())
    };
    assert_eq!(again(&[(block, own())]), Ok(planned));
    assert_eq!(again(&[(block, own().with(PageState::HUGE))]), Err(None));
    assert_eq!(
        again(&[(block, present())]),
        Err(Some(Not::CopyOnWrite.into()))
    );
    assert_eq!(
        again(&[(span(START, M), own())]),
        Err(Some(Not::PartlyResident.into()))
    );
    assert_eq!(again(&[]), Err(Some(UnchangedReason::Unmapped)));
    assert_eq!(
        again(&[(block, of_file())]),
        Err(Some(Not::PrivateFile.into()))
    );
}

#[test]
fn a_torn_huge_page_is_told_by_its_frames() {
    let torn = |own| {
        let block = span(START, 2 * M);
        let block = plan_of(anon(block, &[(block, self::own())]), &rules()).blocks[0];
        SplitCandidate {
            block,
            own,
            reason: Not::PartlyResident,
        }
    };
    let zero = Some(7);
    // Every fourth page stays where the huge page had it.
    let frames: Vec<Option<u64>> = (0..512)
        .map(|n| if n % 4 == 0 { Some(512 * 9 + n) } else { zero })
        .collect();
    assert!(torn(128).was_one_page(&frames));
    let with = |n: usize, frame| {
        let mut frames = frames.clone();
        frames[n] = frame;
        frames
    };
    // A page from elsewhere, one of another huge page, a hole, a second page like zero.
    assert!(!torn(128).was_one_page(&with(8, Some(77))));
    assert!(!torn(128).was_one_page(&with(8, Some(512 * 10 + 8))));
    assert!(!torn(128).was_one_page(&with(9, None)));
    assert!(!torn(128).was_one_page(&with(9, Some(8))));
    assert!(!torn(127).was_one_page(&frames));
    // Too few pages to recognise a huge page.
    let few: Vec<Option<u64>> = (0..512)
        .map(|n| if n < 7 { Some(512 * 9 + n) } else { zero })
        .collect();
    assert!(!torn(7).was_one_page(&few));
    assert!(!torn(0).was_one_page(&[]));
}

#[test]
fn a_torn_block_is_taken_or_left_out() {
    let block = span(START, 2 * M);
    let (half, zeros) = (span(START, M), span(START + M, M));
    let zero = present().with(PageState::ZERO);
    let memory = || anon(block, &[(half, own()), (zeros, zero)]);
    let settled = |was_huge| {
        let mut plan = plan_of(memory(), &rules());
        assert_eq!(
            (plan.split_candidates.len(), plan.requested()),
            (1, Bytes::ZERO)
        );
        assert_eq!(plan.split_candidates[0].own, 256);
        plan.settle(size("2M"), |_| was_huge);
        plan
    };
    let taken = settled(true).blocks[0];
    assert_eq!((taken.missing, taken.restores), (Bytes::ZERO, Bytes(M)));
    let runs: Vec<PageRun> = memory().pages.known().unwrap().runs.clone();
    assert_eq!(judge_again(&taken, &runs, &rules()), Ok(taken));
    assert_eq!(
        judge_again(&taken, &runs[..1], &rules()),
        Err(Some(Not::PartlyResident.into()))
    );
    let left = settled(false);
    assert_eq!(left.left_out[0].reason, Not::PartlyResident.into());
    let growth = left.holes[&Not::PartlyResident].growth().unwrap();
    assert_eq!((growth.percent, growth.adds), (50, Bytes(M)));
}

/// Memory that could not be promoted again is not split.
#[test]
fn what_a_promotion_would_refuse_is_not_split() {
    let block = span(START, 2 * M);
    let huge = |state: PageState| anon(block, &[(block, state.with(PageState::HUGE))]);
    let split = |segment: ProcessMapping| plan_split(0, &process(vec![segment]), &rules());
    for flag in [b"um", b"uw", b"ui", b"nh"] {
        let memory = ProcessMapping {
            flags: VmFlags(vec![*flag]),
            ..huge(own())
        };
        let plan = split(memory);
        assert!(
            plan.blocks.is_empty() && plan.left_out.len() == 1,
            "{flag:?}"
        );
    }
    let stack = ProcessMapping {
        role: MappingRole::Stack,
        ..huge(own())
    };
    assert_eq!(split(stack).left_out[0].reason, Not::MainStack.into());
    let forked = split(huge(present()));
    assert_eq!(forked.left_out[0].reason, Not::CopyOnWrite.into());
    let mergeable = ProcessMapping {
        flags: VmFlags(vec![*b"mg"]),
        ..huge(own())
    };
    assert_eq!(split(mergeable).blocks.len(), 1);
}

#[test]
fn splitting_takes_huge_pages_and_leaves_what_it_cannot() {
    let (one, two) = (span(START, 2 * M), span(START + 2 * M, 2 * M));
    let (three, four) = (span(START + 4 * M, 2 * M), span(START + 6 * M, 2 * M));
    let huge = own().with(PageState::HUGE);
    let memory = anon(span(START, 4 * M), &[(one, huge), (two, own())]);
    let text = ProcessMapping {
        object: (8, 1, 11),
        role: MappingRole::Text,
        permissions: [true, false, true],
        ..anon(three, &[(three, of_file().with(PageState::HUGE))])
    };
    let mut pool = anon(four, &[(four, huge)]);
    pool.by_page_size[0].kind = PageKind::Hugetlb;
    let process = process(vec![memory, text, pool]);
    let plan = plan_split(0, &process, &rules());
    assert_eq!(
        (plan.requested(), plan.already),
        (Bytes(2 * M), Bytes(2 * M))
    );
    assert_eq!(plan.blocks[0].range, one);
    let reasons: Vec<UnchangedReason> = plan.left_out.iter().map(|p| p.reason).collect();
    assert_eq!(reasons, [Not::FileStays.into(), Not::Hugetlb.into()]);
}

#[test]
fn why_and_promote_say_the_same() {
    let block = span(START, 2 * M);
    let (half, rest) = (span(START, M + 4096), span(START + M + 4096, M - 4096));
    let private = |state| anon(block, &[(block, state)]);
    let flag = |segment: ProcessMapping, flag: &[u8; 2]| ProcessMapping {
        flags: VmFlags(vec![*flag]),
        ..segment
    };
    let shared = || shm(block, &[(block, of_file())]);
    let mut cases = vec![
        private(own()),
        private(present()),
        anon(block, &[(half, own())]),
        anon(block, &[(half, own()), (rest, present())]),
        shared(),
        shm(block, &[(half, of_file())]),
        ProcessMapping {
            offset: 4096,
            ..shared()
        },
        ProcessMapping {
            file_system: Some("tmpfs".to_owned()),
            name: "/tmp/a".to_owned(),
            role: MappingRole::File,
            ..shared()
        },
        ProcessMapping {
            role: MappingRole::Stack,
            ..private(own())
        },
        ProcessMapping {
            swapped: Bytes(M),
            ..anon(block, &[(half, own()), (rest, PageState::SWAPPED)])
        },
    ];
    for name in [b"nh", b"io", b"de", b"um", b"mg", b"sl", b"hg", b"lo"] {
        cases.push(flag(private(own()), name));
    }
    for segment in cases {
        let mut process = process(vec![segment]);
        for registered in [Fact::Absent, Fact::Known(vec![span(START, 4096)])] {
            process.registered = registered;
            agree(&HOST, &process);
        }
    }
}

/// Maps reasons that only `why` distinguishes to one common reason.
fn coarse(id: Not) -> Not {
    match id {
        Not::OrdersOff | Not::OrderAtFault | Not::Locked => Not::TooSmall,
        Not::ShmGroup | Not::Memlock | Not::CgroupReservation | Not::PoolShort => Not::Misaligned,
        Not::CgroupFault | Not::PoolUnused | Not::ShmemDeny | Not::NoThp => Not::Misaligned,
        // These depend on the current state of the host, or on pins that cannot be located.
        Not::NoContiguous | Not::CgroupMemory | Not::Pinned => Not::SmallSteps,
        id if id.remedy() == eligible::Remedy::Promote => Not::SmallSteps,
        id => id,
    }
}

fn by_reason(parts: impl Iterator<Item = (UnchangedReason, Bytes)>) -> BTreeMap<Not, Bytes> {
    let mut sums = BTreeMap::new();
    for (reason, bytes) in parts {
        let UnchangedReason::Not(reason) = reason else {
            panic!("{reason}: no reason of a plan");
        };
        *sums.entry(coarse(reason)).or_default() += bytes;
    }
    sums
}

/// Checks that `why` and a promotion agree on one reason per range, in both directions. They have the same promotable memory, the same
/// reasons for the rest, and the same promotions that grow a process. Promoted memory can be split again or was known to be one way, and
/// split memory can be promoted.
#[track_caller]
fn agree(host: &Host, process: &Process) {
    let rules = SelectionRules { host, ..rules() };
    let mut planned = plan(&[process], &rules).remove(0);
    planned.settle(rules.huge, |_| false);
    let why = why::judge(host, process);
    let said = by_reason(why.iter().map(|v| (v.id.into(), v.bytes)));
    let taken = (eligible::Reason::SmallSteps.into(), planned.requested());
    let left_out = planned.left_out.iter().map(|p| (p.reason, p.bytes));
    let mut done = by_reason(left_out.chain([taken]));
    // Mappings too small for any huge page do not occur in `why`.
    done.remove(&Not::TooSmall);
    for (reason, bytes) in &done {
        let same = said.get(reason).copied().unwrap_or_default();
        assert_eq!(same, *bytes, "{reason:?}: {why:#?} {planned:#?}");
    }
    for reason in Not::ALL {
        let mut holes = PartialBlocks::default();
        let those = why.iter().filter(|v| v.id == *reason);
        those.for_each(|v| holes.join(&v.figures.holes));
        let growth = planned.holes.get(reason).and_then(PartialBlocks::growth);
        assert_eq!(holes.growth(), growth, "{reason:?}: {why:#?}");
    }
    let there = with_huge(process, &planned, true);
    let split = plan_split(0, &there, &rules);
    let ranges: Vec<Range> = split.blocks.iter().map(|b| b.range).collect();
    for block in &planned.blocks {
        let one_way = block.one_way(Some(SplitRefusal::NoFile)).is_some();
        assert!(
            one_way || ranges.contains(&block.range),
            "{block:#?} {split:#?}"
        );
    }
    let back = plan(&[&with_huge(&there, &split, false)], &rules).remove(0);
    for range in ranges {
        let again = back.blocks.iter().any(|b| b.range == range);
        assert!(again, "{range}: {back:#?}");
    }
}

/// Returns the process with the plan's blocks on huge pages, or on base pages.
fn with_huge(process: &Process, plan: &BlockPlan, huge: bool) -> Process {
    let mut process = process.clone();
    for segment in &mut process.segments {
        let Fact::Known(pages) = &mut segment.pages else {
            continue;
        };
        let inside = |at: u64| plan.blocks.iter().any(|b| b.range.contains(at));
        let mut moved = Bytes::ZERO;
        pages.runs = pages
            .runs
            .iter()
            .flat_map(|run| run.range.chunks(size("4K")).map(|page| (page, run.state)))
            .map(|(range, state)| match inside(range.start()) {
                true => {
                    moved += range.len();
                    let state = [PageState::PRESENT, PageState::EXCLUSIVE, PageState::FILE]
                        .into_iter()
                        .filter(|fact| state.has(*fact))
                        .fold(PageState::default(), PageState::with);
                    let state = if huge {
                        state.with(PageState::HUGE)
                    } else {
                        state
                    };
                    PageRun { range, state }
                }
                false => PageRun { range, state },
            })
            .collect();
        let (to, kind, from) = match huge {
            true => (size("2M"), PageKind::Thp, PageKind::Base),
            false => (size("4K"), PageKind::Base, PageKind::Thp),
        };
        for held in segment.by_page_size.iter_mut().filter(|h| h.kind == from) {
            held.bytes = held.bytes - moved;
        }
        PageUsage::add(&mut segment.by_page_size, to, kind, moved);
    }
    process
}

/// Uses the captured hosts and processes of the fixtures.
#[test]
fn why_and_promote_say_the_same_of_fixtures() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    let kernel = hugeleaf_sys::Kernel::new();
    let mut read = 0;
    let tops = std::fs::read_dir(fixtures).unwrap();
    let below = std::fs::read_dir(format!("{fixtures}/why")).unwrap();
    for folder in tops.chain(below).map(|entry| entry.unwrap().path()) {
        let root = hugeleaf_host::Root::at(&folder);
        let Ok(host) = hugeleaf_host::read_host(&root, &kernel) else {
            continue;
        };
        for pid in root
            .list("proc")
            .or_default()
            .iter()
            .filter_map(|n| n.parse().ok())
        {
            let looking = hugeleaf_host::ReadDetail::Pages;
            let process = hugeleaf_host::read_process(&root, &kernel, &host, Pid(pid), looking);
            let of_2m = host.pmd_page.get() == Some(size("2M"));
            if let (Ok(process), true) = (process, of_2m) {
                agree(&host, &process);
                read += 1;
            }
        }
    }
    assert!(read > 5, "{read}");
}

fn segments() -> impl proptest::strategy::Strategy<Value = ProcessMapping> {
    use proptest::prelude::*;
    let pages = proptest::collection::vec((1u64..700, 0u8..9), 1..12);
    (pages, 0u8..7, 0u8..12, any::<bool>(), any::<bool>()).prop_map(
        |(pages, kind, flag, merged, answer)| {
            let whole = span(START, 6 * M);
            let mut at = START;
            let file = [1, 2, 3, 4, 5].contains(&kind);
            let mut runs = Vec::new();
            for (len, state) in pages {
                let end = (at + len * 4096).min(whole.end());
                let Ok(range) = Range::new(at, end) else {
                    break;
                };
                at = end;
                let state = match state {
                    0 => continue,
                    1 => PageState::SWAPPED,
                    2 => PageState::GUARD,
                    3 if !file => present().with(PageState::ZERO),
                    4 if !file => present(),
                    _ if file => of_file().with(PageState::EXCLUSIVE),
                    _ => own(),
                };
                runs.push((range, state));
            }
            let swapped = runs.iter().filter(|r| r.1 == PageState::SWAPPED);
            let swapped = swapped.map(|r| r.0.len()).sum();
            let mapped = match kind {
                1 | 2 => shm(whole, &runs),
                3..=5 => ProcessMapping {
                    role: MappingRole::File,
                    shared: kind == 3,
                    permissions: [true, kind == 4, false],
                    object: (8, 1, 11),
                    file_system: Some(if kind == 5 { "tmpfs" } else { "ext4" }.to_owned()),
                    collapses: Fact::Known(answer),
                    ..anon(whole, &runs)
                },
                _ => anon(whole, &runs),
            };
            let flags: [&[u8; 2]; 7] = [b"nh", b"um", b"mg", b"lo", b"io", b"gu", b"hg"];
            let flag = flags.get(usize::from(flag));
            ProcessMapping {
                flags: VmFlags(flag.into_iter().map(|flag| **flag).collect()),
                offset: if kind == 2 && answer { 4096 } else { 0 },
                merged: Bytes(if merged && !file { M } else { 0 }),
                swapped,
                ..mapped
            }
        },
    )
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn every_kind_of_memory_has_one_reason(segment in segments()) {
        agree(&HOST, &process(vec![segment]));
    }
}
