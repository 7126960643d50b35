//! Selects the blocks of processes to promote or demote, and names the reason for each other block. Pure: turns
//! facts into a plan. [`hugeleaf_verdict::eligible`] knows what the kernel puts on huge pages. This module adds the
//! view over several processes.
//!
//! A block has the length and alignment of a huge page. Promotion must not grow a process. By default it takes a
//! block only if all of it is resident and either private to the process or shared memory proper. Shared memory is
//! judged over all processes of the plan: one of them may have touched pages that another has not. Such a block is
//! promoted once and then only mapped into the other processes.

use std::collections::{BTreeMap, HashMap};

use hugeleaf_host::{Host, MappingRole, PageUsage, Process, ProcessMapping};
use hugeleaf_sys::{PageRun, PageState, Pid};
use hugeleaf_units::{Bytes, PageKind, PageSize, Range};
use hugeleaf_verdict::eligible::{self, MappingPart, PageStateBytes, is_resident};
use hugeleaf_verdict::partial_blocks::PartialBlocks;

use crate::options::Percent;
use crate::outcome::{BytesByReason, UnchangedReason};
use crate::process_memory::{BlockLocation, HeldBeforeSplit};
use crate::split_refusals::SplitRefusal;

pub use crate::process_memory::BackingObjectId;
pub use hugeleaf_verdict::eligible::MappingKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub pid: Pid,
    /// The block's range; length and alignment of a huge page.
    pub range: Range,
    pub role: MappingRole,
    pub kind: MappingKind,
    /// The object that backs it; (0, 0, 0, false) for private anonymous memory.
    pub object: BackingObjectId,
    /// Offset in the object, in bytes.
    pub offset: u64,
    /// True if another process of the plan promotes it; here it only has to be mapped.
    pub map_only: bool,
    /// Memory that is not resident and that promotion would fill up.
    pub missing: Bytes,
    /// Zero pages that an earlier split returned to the kernel. The block was a huge page then, so filling them
    /// makes the process no larger than before.
    pub restores: Bytes,
    pub locked: bool,
    /// True if no other process maps any of it, according to the page map.
    pub exclusive: bool,
    /// Proportional share if other processes map it copy-on-write; otherwise all of it.
    pub share: Bytes,
}

/// Identifies a block of shared memory or a file in every process.
pub type BlockKey = (BackingObjectId, u64);

impl Block {
    /// Returns the key that is the same in every process and at every address that maps the block; `None` for
    /// private memory.
    pub fn key(&self) -> Option<BlockKey> {
        (self.kind != MappingKind::Private).then_some((self.object, self.offset))
    }

    pub(crate) fn spot(&self) -> BlockLocation {
        match self.key() {
            Some((object, offset)) => (Pid(0), offset, object),
            None => (self.pid, self.range.start(), BackingObjectId::default()),
        }
    }

    /// Returns why the block cannot be demoted from outside once it is on a huge page. `no_split`: why this host
    /// cannot split memory that several processes map. MADV_COLD refuses locked memory (`can_madv_lru_vma`,
    /// mm/internal.h) and skips memory that several processes map (`madvise_cold_or_pageout_pte_range`,
    /// mm/madvise.c). A file is only unmapped by it.
    pub fn one_way(&self, no_split: Option<SplitRefusal>) -> Option<UnchangedReason> {
        match self.kind {
            MappingKind::File => Some(eligible::Reason::FileStays.into()),
            _ if self.locked => Some(UnchangedReason::Locked),
            MappingKind::Shared if self.map_only || !self.exclusive => {
                no_split.map(|why| UnchangedReason::SharedByOthers(Some(why)))
            }
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockPlan {
    /// Sorted by address.
    pub blocks: Vec<Block>,
    pub already: Bytes,
    pub already_private: Bytes,
    pub already_shared: Vec<(BlockKey, Bytes)>,
    pub left_out: Vec<BytesByReason>,
    /// The same by proportional share, so that each page counts once over all processes that map it.
    pub left_out_share: Vec<BytesByReason>,
    /// Hugetlb pages that other processes may map too: the object and the range in it.
    pub pool_shared: Vec<(BackingObjectId, Range)>,
    /// Blocks that are left out because parts of them are not resident.
    pub holes: BTreeMap<eligible::Reason, PartialBlocks>,
    /// Blocks of which every page is private to the process or the zero page, as after a split of a huge page. They
    /// are neither selected nor left out before [`BlockPlan::settle`] is called.
    pub split_candidates: Vec<SplitCandidate>,
    /// True if the page map does not report which blocks are huge (Linux before 6.7).
    pub huge_unknown: bool,
    /// Memory of `blocks` that is already on the target page size, by smaps; nonzero only with `huge_unknown`.
    pub overlap: Bytes,
}

impl BlockPlan {
    pub fn requested(&self) -> Bytes {
        let blocks: Bytes = self.blocks.iter().map(|b| b.range.len()).sum();
        blocks - self.overlap
    }

    /// Selects the torn blocks that were huge pages before, and leaves out the others.
    pub fn settle(&mut self, huge: PageSize, was_huge: impl Fn(&SplitCandidate) -> bool) {
        for torn in std::mem::take(&mut self.split_candidates) {
            let block = torn.block;
            if was_huge(&torn) {
                self.blocks.push(Block {
                    missing: Bytes::ZERO,
                    restores: block.missing,
                    ..block
                });
                continue;
            }
            let own = huge.bytes() - block.missing;
            self.leave_out(torn.reason, own, own);
            self.hole(torn.reason, own, block.missing);
        }
        self.blocks
            .sort_unstable_by_key(|block| block.range.start());
    }

    fn hole(&mut self, reason: eligible::Reason, there: Bytes, missing: Bytes) {
        let holes = self.holes.entry(reason).or_default();
        holes.add(reason, there, missing);
    }

    fn leave_out(&mut self, reason: impl Into<UnchangedReason>, bytes: Bytes, share: Bytes) {
        let reason = reason.into();
        BytesByReason::add(&mut self.left_out, reason, bytes);
        BytesByReason::add(&mut self.left_out_share, reason, share);
    }
}

/// A block that may have been a huge page; `missing` of the block counts its zero pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitCandidate {
    pub block: Block,
    pub own: u64,
    /// The reason for leaving it out if it was not a huge page.
    pub reason: eligible::Reason,
}

/// Minimum number of pages in place to recognise a split huge page. A page has the expected place by chance once in
/// as many cases as a huge page has base pages.
const WITNESSES: u64 = 8;

impl SplitCandidate {
    /// Returns true if the block was one huge page, by the frames of its base pages. A split moves no data:
    /// remaining pages keep their frames, and all others are the one zero page.
    pub fn was_one_page(&self, frames: &[Option<u64>]) -> bool {
        let pages = frames.len() as u64;
        let place = |(n, frame): (u64, &Option<u64>)| {
            let base = (*frame)?.checked_sub(n)?;
            (base % pages == 0).then_some(base)
        };
        let mut bases: HashMap<u64, u64> = HashMap::new();
        for base in (0..pages).zip(frames).filter_map(place) {
            *bases.entry(base).or_default() += 1;
        }
        let Some((base, count)) = bases.into_iter().max_by_key(|(_, count)| *count) else {
            return false;
        };
        let is_there = |(n, frame): &(u64, &Option<u64>)| **frame == Some(base + n);
        let mut others = (0..pages).zip(frames).filter(|page| !is_there(page));
        let zero = others.next().and_then(|(_, frame)| *frame);
        count == self.own
            && count >= WITNESSES
            && zero.is_some()
            && others.all(|(_, frame)| *frame == zero)
    }
}

/// Weight of a segment's pages that several processes map. With `n` processes each counts a page as 1/`n`, the
/// kernel's proportional share (PSS).
struct SharedWeight {
    /// Weight of a page that other processes map too; 0.0 to 1.0.
    others: f64,
    /// Weight of any page; 0.0 to 1.0.
    any: f64,
}

impl SharedWeight {
    fn from_segment(segment: &ProcessMapping) -> SharedWeight {
        let ratio = |part: Bytes, all: Bytes| match all.is_zero() {
            true => 1.0,
            false => (part.as_f64() / all.as_f64()).min(1.0),
        };
        let runs = segment.pages.known().map(|pages| pages.runs.iter());
        let own: Bytes = runs
            .into_iter()
            .flatten()
            .filter(|run| is_resident(run.state) && run.state.has(PageState::EXCLUSIVE))
            .map(|run| run.range.len())
            .sum();
        SharedWeight {
            others: ratio(segment.pss - own, segment.resident - own),
            any: ratio(segment.pss, segment.resident),
        }
    }

    #[allow(clippy::cast_possible_truncation)]
    fn part(bytes: Bytes, ratio: f64) -> Bytes {
        Bytes((bytes.as_f64() * ratio) as u64)
    }

    fn of_any(&self, bytes: Bytes) -> Bytes {
        SharedWeight::part(bytes, self.any)
    }

    fn of_base(&self, tally: &PageStateBytes) -> Bytes {
        tally.exclusive_base
            + SharedWeight::part(tally.on_base() - tally.exclusive_base, self.others)
    }

    fn of_huge(&self, tally: &PageStateBytes) -> Bytes {
        let own = tally.exclusive - tally.exclusive_base;
        own + SharedWeight::part(tally.huge - own, self.others)
    }
}

#[derive(Debug, Clone)]
pub struct SelectionRules<'a> {
    pub host: &'a Host,
    pub huge: PageSize,
    pub base: PageSize,
    pub min_resident: Percent,
    /// Memory that blocks held when they were split, used instead of `min_resident`; `None` if unknown.
    pub held: Option<&'a HeldBeforeSplit>,
    /// Ranges to restrict the plan to, one list per process in their order; `None` for no limit.
    pub only: Vec<Option<Vec<Range>>>,
}

impl SelectionRules<'_> {
    /// Counts missing memory as restored, because a block that held it before does not grow by it.
    fn counted(&self, block: Block) -> Block {
        match self.held {
            Some(_) => Block {
                missing: Bytes::ZERO,
                restores: block.missing,
                ..block
            },
            None => block,
        }
    }

    fn allows(&self, process: usize, block: Range) -> bool {
        match self.only.get(process) {
            Some(Some(ranges)) => ranges.iter().any(|r| r.intersect(block) == Some(block)),
            _ => true,
        }
    }

    /// Returns how much of a block must be resident.
    fn needs(&self, block: &Block) -> Bytes {
        if let Some(held) = self.held {
            return held.of(block.spot()).unwrap_or(self.huge.bytes());
        }
        let needed = u128::from(self.huge.bytes().get()) * u128::from(self.min_resident.get());
        Bytes(u64::try_from(needed.div_ceil(100)).unwrap_or(u64::MAX))
    }
}

/// Plans the blocks of each process, in the order of the processes.
pub fn plan(processes: &[&Process], rules: &SelectionRules<'_>) -> Vec<BlockPlan> {
    let shared = shared_blocks(processes, rules);
    let each = processes.iter().enumerate();
    each.map(|(index, process)| plan_process(index, process, rules, &shared))
        .collect()
}

fn plan_process(
    index: usize,
    process: &Process,
    rules: &SelectionRules<'_>,
    shared: &SharedBlocks,
) -> BlockPlan {
    let mut plan = BlockPlan::default();
    for segment in &process.segments {
        // Not the program's memory, or already on huge pages.
        if segment.role == MappingRole::Vdso || eligible::is_on_pool(segment) {
            continue;
        }
        let base_bytes = PageUsage::on_base(&segment.by_page_size);
        let share = SharedWeight::from_segment(segment);
        let kind = match eligible::mapping(rules.host, process, segment) {
            Ok(kind) => kind,
            Err(reason) => {
                plan.leave_out(reason, base_bytes, share.of_any(base_bytes));
                continue;
            }
        };
        let Some(pages) = segment.pages.known().filter(|p| p.exclusive_known) else {
            let part = share.of_any(base_bytes);
            plan.leave_out(eligible::Reason::ExclusiveUnknown, base_bytes, part);
            continue;
        };
        if !pages.huge_known {
            plan.huge_unknown = true;
            plan.already += thp_bytes(segment);
            plan.already_private += share.of_any(thp_bytes(segment));
            plan.overlap += thp_bytes(segment);
        }
        let place = SegmentContext {
            process,
            index,
            segment,
            kind,
            share,
        };
        for slot in eligible::cut(segment, rules.huge, &pages.runs) {
            plan_slot(&mut plan, &place, &slot, rules, shared);
        }
    }
    plan
}

struct SegmentContext<'a> {
    process: &'a Process,
    index: usize,
    segment: &'a ProcessMapping,
    kind: MappingKind,
    share: SharedWeight,
}

fn plan_slot(
    plan: &mut BlockPlan,
    place: &SegmentContext<'_>,
    slot: &MappingPart,
    rules: &SelectionRules<'_>,
    shared: &SharedBlocks,
) {
    let (range, tally) = (slot.range, &slot.tally);
    let share = place.share.of_base(tally);
    if !slot.whole {
        return plan.leave_out(eligible::Reason::TooSmall, tally.on_base(), share);
    }
    let block = place.block(range, tally, rules.huge.bytes() - tally.present);
    if !tally.huge.is_zero() {
        plan.already += tally.huge;
        match block.key() {
            Some(key) => plan.already_shared.push((key, tally.huge)),
            None => plan.already_private += place.share.of_huge(tally),
        }
        return;
    }
    if !rules.allows(place.index, range) {
        return;
    }
    let union = shared.get(&(block.object, block.offset));
    match judge(block, tally, rules, union, place.index) {
        Ok(block) if place.process.is_registered(range) && !block.map_only => {
            plan.leave_out(eligible::Reason::Pinned, tally.on_base(), share);
        }
        Ok(block) => plan.blocks.push(block),
        Err(reason) if rules.held.is_none() && is_torn(&block, tally) => {
            plan.split_candidates.push(SplitCandidate {
                block,
                own: rules.base.pages_for(tally.present).get(),
                reason,
            })
        }
        Err(reason) => {
            // KSM maps one page many times, and each mapping of it is memory on base pages.
            let share = match reason {
                eligible::Reason::Merged => tally.on_base(),
                _ => share,
            };
            plan.leave_out(reason, tally.on_base(), share);
            let missing = match (block.kind, union) {
                (MappingKind::Shared, Some(union))
                    if union.first != (place.index, range.start()) =>
                {
                    None
                }
                (MappingKind::Shared, Some(union)) => Some(union.missing(rules)),
                _ => Some(block.missing),
            };
            if let Some(missing) = missing {
                plan.hole(reason, rules.huge.bytes() - missing, missing);
            }
        }
    }
}

/// Returns true if every page of a block of private memory is its own or the zero page.
fn is_torn(block: &Block, tally: &PageStateBytes) -> bool {
    let whole = tally.present + tally.zero == block.range.len() && !tally.present.is_zero();
    block.kind == MappingKind::Private && block.exclusive && !tally.zero.is_zero() && whole
}

impl SegmentContext<'_> {
    fn block(&self, range: Range, tally: &PageStateBytes, missing: Bytes) -> Block {
        let segment = self.segment;
        let exclusive = tally.exclusive == tally.present;
        let share = match self.kind == MappingKind::Private && !exclusive {
            true => self.share.of_base(tally) + self.share.of_huge(tally),
            false => range.len(),
        };
        Block {
            pid: self.process.pid,
            range,
            role: segment.role,
            kind: self.kind,
            object: object_of(segment),
            offset: offset_of(segment, range),
            map_only: false,
            missing,
            restores: Bytes::ZERO,
            locked: !segment.locked.is_zero() || segment.flags.has("lo"),
            exclusive,
            share,
        }
    }
}

fn judge(
    block: Block,
    tally: &PageStateBytes,
    rules: &SelectionRules<'_>,
    union: Option<&CombinedBlock>,
    process: usize,
) -> Result<Block, eligible::Reason> {
    let len = block.range.len();
    let (MappingKind::Shared, Some(union)) = (block.kind, union) else {
        eligible::block(block.kind, len, tally, rules.needs(&block))?;
        return Ok(rules.counted(block));
    };
    // Memory that is huge in another process needs no copy. It is only mapped here.
    let attach = union.huge || union.first != (process, block.range.start());
    let missing = match union.huge {
        true => Bytes::ZERO,
        false => union.missing(rules),
    };
    let together = PageStateBytes {
        present: rules.huge.bytes() - missing,
        swapped: tally.swapped,
        guard: tally.guard,
        ..PageStateBytes::default()
    };
    eligible::block(block.kind, len, &together, rules.needs(&block))?;
    Ok(rules.counted(Block {
        map_only: attach,
        missing: if attach { Bytes::ZERO } else { missing },
        ..block
    }))
}

/// Judges a block of private memory again with a fresh page map, right before the call. Since the plan was made, the
/// process may have forked or freed memory. The call would then grow it.
///
/// # Errors
/// The reason to leave the block out; `None` if it is already on a huge page.
pub fn judge_again(
    block: &Block,
    runs: &[PageRun],
    rules: &SelectionRules<'_>,
) -> Result<Block, Option<UnchangedReason>> {
    let tally = PageStateBytes::from_runs(block.range, runs);
    if !tally.huge.is_zero() {
        return Err(None);
    }
    if tally.is_empty() {
        return Err(Some(UnchangedReason::Unmapped));
    }
    let tally = match block.restores.is_zero() || rules.held.is_some() {
        true => tally,
        false => tally.with_zeros_as_present(),
    };
    let block = Block {
        missing: rules.huge.bytes() - tally.present,
        exclusive: tally.exclusive == tally.present,
        ..*block
    };
    judge(block, &tally, rules, None, 0).map_err(|reason| Some(reason.into()))
}

pub fn plan_split(index: usize, process: &Process, rules: &SelectionRules<'_>) -> BlockPlan {
    let mut plan = BlockPlan::default();
    for segment in &process.segments {
        let share = SharedWeight::from_segment(segment);
        let base = PageUsage::on_base(&segment.by_page_size);
        plan.already += base;
        plan.already_private += share.of_any(base);
        let pool: Bytes = held_on(segment, PageKind::Hugetlb);
        leave_out_pool(&mut plan, segment, pool);
        let thp = thp_bytes(segment);
        if thp.is_zero() || !pool.is_zero() {
            continue;
        }
        let kind = match eligible::splits(rules.host, process, segment, &PageStateBytes::default())
        {
            Ok(kind) => kind,
            Err(reason) => {
                plan.leave_out(reason, thp, share.of_any(thp));
                continue;
            }
        };
        let Some(pages) = segment.pages.known() else {
            let part = share.of_any(thp);
            plan.leave_out(eligible::Reason::ExclusiveUnknown, thp, part);
            continue;
        };
        plan.huge_unknown |= !pages.huge_known;
        let place = SegmentContext {
            process,
            index,
            segment,
            kind,
            share,
        };
        let mut unknown = Bytes::ZERO;
        let slots = eligible::cut(segment, rules.huge, &pages.runs);
        for MappingPart { range, tally, .. } in slots.into_iter().filter(|slot| slot.whole) {
            let huge = !tally.huge.is_zero() || !pages.huge_known;
            if !huge || !rules.allows(index, range) {
                continue;
            }
            if let Err(reason) = eligible::splits(rules.host, process, segment, &tally) {
                plan.leave_out(reason, tally.huge, place.share.of_huge(&tally));
                continue;
            }
            unknown += range.len();
            plan.blocks.push(place.block(range, &tally, Bytes::ZERO));
        }
        if !pages.huge_known {
            plan.overlap += unknown - thp;
        }
    }
    plan
}

/// Leaves out the hugetlb pages of a segment. The kernel has no proportional share of those. Their backing object
/// tells who shares them, even for private memory of forked processes.
fn leave_out_pool(plan: &mut BlockPlan, segment: &ProcessMapping, pool: Bytes) {
    if pool.is_zero() {
        return;
    }
    let is_own = |run: &PageRun| !segment.shared && run.state.has(PageState::EXCLUSIVE);
    let runs = segment
        .pages
        .known()
        .map_or(&[] as &[PageRun], |pages| &pages.runs);
    let there = runs.iter().filter(|run| is_resident(run.state));
    let (own, others): (Vec<&PageRun>, Vec<&PageRun>) = there.partition(|run| is_own(run));
    let own: Bytes = own.iter().map(|run| run.range.len()).sum();
    plan.leave_out(eligible::Reason::Hugetlb, pool, own.min(pool));
    let whole = (own.is_zero() && others.is_empty()).then_some(segment.range);
    for range in others.iter().map(|run| run.range).chain(whole) {
        let start = offset_of(segment, range);
        let len = if whole.is_some() { pool } else { range.len() };
        let place = Range::new(start, start.saturating_add(len.get()));
        plan.pool_shared
            .extend(place.map(|place| (object_of(segment), place)));
    }
}

/// Returns how many of `todo` (indices into `blocks`, ascending) one call can take. These are neighbours of the same
/// kind and object, at most `most` bytes, and at least one if `todo` is not empty.
pub fn chunk_len(blocks: &[Block], todo: &[usize], most: Bytes) -> usize {
    let Some(first) = todo.first().map(|i| &blocks[*i]) else {
        return 0;
    };
    let mut end = first.range.end();
    let mut bytes = first.range.len();
    let mut len = 1;
    for block in todo[1..].iter().map(|i| &blocks[*i]) {
        bytes += block.range.len();
        let alike = block.kind == first.kind
            && block.object == first.object
            && block.map_only == first.map_only;
        if block.range.start() != end || !alike || bytes > most {
            break;
        }
        end = block.range.end();
        len += 1;
    }
    len
}

fn object_of(segment: &ProcessMapping) -> BackingObjectId {
    let (major, minor, inode) = segment.object;
    (major, minor, inode, segment.name.starts_with("/SYSV"))
}

fn offset_of(segment: &ProcessMapping, block: Range) -> u64 {
    segment
        .offset
        .wrapping_add(block.start() - segment.range.start())
}

fn held_on(segment: &ProcessMapping, kind: PageKind) -> Bytes {
    let held = segment.by_page_size.iter();
    held.filter(|h| h.kind == kind).map(|h| h.bytes).sum()
}

pub(crate) fn thp_bytes(segment: &ProcessMapping) -> Bytes {
    held_on(segment, PageKind::Thp)
}

/// A block of shared memory, combined over all processes of the plan.
#[derive(Debug, Default)]
struct CombinedBlock {
    /// The first process that maps some of it, and the address. This one promotes it. A process can map it at
    /// several addresses.
    first: (usize, u64),
    huge: bool,
    full: bool,
    /// One bit per base page; not updated once `full`.
    pages: Vec<u64>,
}

impl CombinedBlock {
    fn missing(&self, rules: &SelectionRules<'_>) -> Bytes {
        if self.full {
            return Bytes::ZERO;
        }
        let present: u64 = self
            .pages
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum();
        rules.huge.bytes() - hugeleaf_units::Pages(present).in_bytes(rules.base)
    }

    fn mark(&mut self, block: Range, part: Range, rules: &SelectionRules<'_>) {
        if part == block {
            self.full = true;
        }
        if self.full {
            return;
        }
        let words = rules.huge.ratio_to(rules.base).div_ceil(64);
        self.pages.resize(usize::try_from(words).unwrap_or(0), 0);
        let page = rules.base.bytes().get();
        let first = (part.start() - block.start()) / page;
        let last = (part.end() - block.start()) / page;
        for n in first..last {
            let word = usize::try_from(n / 64).unwrap_or(usize::MAX);
            if let Some(word) = self.pages.get_mut(word) {
                *word |= 1 << (n % 64);
            }
        }
    }
}

type SharedBlocks = HashMap<BlockKey, CombinedBlock>;

fn shared_blocks(processes: &[&Process], rules: &SelectionRules<'_>) -> SharedBlocks {
    let mut all = SharedBlocks::new();
    for (index, process) in processes.iter().enumerate() {
        for segment in &process.segments {
            if eligible::mapping(rules.host, process, segment) == Ok(MappingKind::Shared) {
                add_shared(&mut all, index, segment, rules);
            }
        }
    }
    all
}

fn add_shared(
    all: &mut SharedBlocks,
    index: usize,
    segment: &ProcessMapping,
    rules: &SelectionRules<'_>,
) {
    let runs = segment.pages.known().map_or(&[][..], |pages| &pages.runs);
    let parts = eligible::parts(segment.range, rules.huge, runs);
    for part in parts.filter(|part| part.whole && is_resident(part.state)) {
        let key = (object_of(segment), offset_of(segment, part.slot));
        let union = all.entry(key).or_insert_with(|| CombinedBlock {
            first: (index, part.slot.start()),
            ..CombinedBlock::default()
        });
        union.huge |= part.state.has(PageState::HUGE);
        union.mark(part.slot, part.range, rules);
    }
}

#[cfg(test)]
mod tests;
