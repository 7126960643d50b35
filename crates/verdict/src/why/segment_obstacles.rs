//! Finds the obstacles of one segment: first those of the whole segment, then those of its pages.

use hugeleaf_host::{Fact, MappingRole, PageUsage, ProcessMapping};
use hugeleaf_units::{Bytes, PageKind, Range};

use crate::eligible::{self, MappingKind, MappingPart};
use crate::partial_blocks::PartialBlocks;

use super::{ProcessContext, Reason, Remedy, TightestMemoryLimit, hugetlb, thp_settings};

/// A range, its obstacle, and its resident bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeObstacle {
    pub reason: Reason,
    pub range: Range,
    pub bytes: Bytes,
    pub missing: Bytes,
    pub swapped: Bytes,
    /// The partly resident blocks of the range.
    pub holes: PartialBlocks,
}

/// The classified bytes of a segment, before they are described in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentObstacles {
    pub resident: Bytes,
    pub huge: Bytes,
    pub too_small: Bytes,
    pub findings: Vec<RangeObstacle>,
}

enum SegmentClass {
    /// The segment is on the pool, or is empty.
    Done,
    Stopped(Reason),
    /// No page of PMD size fits, or none of any size.
    ShortOfPmd,
    /// The pages decide. The reason applies to fully resident blocks.
    ByPages(Reason),
}

pub fn examine(case: &ProcessContext<'_>, segment: &ProcessMapping) -> SegmentObstacles {
    let held = &segment.by_page_size;
    let large = PageUsage::total(held) - PageUsage::on_base(held);
    let mut found = SegmentObstacles {
        resident: segment.resident,
        huge: large.min(segment.resident),
        too_small: Bytes::ZERO,
        findings: Vec::new(),
    };
    match whole(case, segment) {
        SegmentClass::Done => found.huge = found.resident,
        SegmentClass::Stopped(reason) => found.put_rest(segment, reason),
        SegmentClass::ShortOfPmd => match short_of_pmd(case, segment, segment.range) {
            Some(reason) => found.put_rest(segment, reason),
            None => found.too_small = found.resident - found.huge,
        },
        SegmentClass::ByPages(decides) => by_pages(case, segment, decides, &mut found),
    }
    found
}

fn holes(reason: Reason, there: Bytes, range: Range) -> PartialBlocks {
    let mut holes = PartialBlocks::default();
    holes.add(reason, there, range.len() - there);
    holes
}

impl SegmentObstacles {
    fn put_rest(&mut self, segment: &ProcessMapping, reason: Reason) {
        let bytes = self.resident - self.huge - self.too_small;
        if bytes.is_zero() {
            return;
        }
        self.findings.push(RangeObstacle {
            reason,
            range: segment.range,
            bytes,
            missing: segment.range.len() - self.resident - segment.swapped,
            swapped: segment.swapped,
            holes: holes(reason, bytes, segment.range),
        });
    }

    /// Merges a finding into the previous one if both have the same reason. Fully swapped ranges cannot be
    /// promoted, so they stay separate.
    fn push(&mut self, finding: RangeObstacle) {
        if let Some(last) = self.findings.last_mut()
            && last.reason == finding.reason
            && last.bytes.is_zero() == finding.bytes.is_zero()
            && last.range.end() == finding.range.start()
            && let Ok(range) = Range::new(last.range.start(), finding.range.end())
        {
            last.range = range;
            last.bytes += finding.bytes;
            last.missing += finding.missing;
            last.swapped += finding.swapped;
            last.holes.join(&finding.holes);
            return;
        }
        self.findings.push(finding);
    }

    /// Deducts huge pages whose location is unknown.
    fn deduct_unlocated(&mut self, mut bytes: Bytes) {
        // Deduct from whole blocks first, because a partly resident block holds no huge page. Memory that
        // could not have been promoted is the least likely to be on one.
        self.findings.sort_by_key(|f| {
            let moved = f.reason.remedy() == Remedy::Promote;
            (!f.missing.is_zero(), !moved, f.range.start())
        });
        for finding in &mut self.findings {
            let taken = finding.bytes.min(bytes);
            finding.bytes = finding.bytes - taken;
            bytes = bytes - taken;
        }
        self.too_small = self.too_small - bytes;
        self.findings
            .retain(|f| !f.bytes.is_zero() || f.reason == Reason::Swapped);
        self.findings.sort_by_key(|f| f.range.start());
    }
}

/// Judges a segment without its pages. Pool pages are already huge. Memory below the smallest huge page is
/// not a candidate for promotion.
fn whole(case: &ProcessContext<'_>, segment: &ProcessMapping) -> SegmentClass {
    if eligible::is_on_pool(segment) || (segment.resident + segment.swapped).is_zero() {
        return SegmentClass::Done;
    }
    let allowed = eligible::mapping(case.host, case.process, segment);
    let len = segment.range.len();
    if case.smallest.is_some_and(|smallest| len < smallest.bytes()) {
        return SegmentClass::ShortOfPmd;
    }
    match (allowed, MappingKind::from_segment(segment)) {
        (Ok(MappingKind::Private), _) => {
            SegmentClass::ByPages(thp_settings::of_private(case, segment))
        }
        (Ok(MappingKind::Shared), _) => {
            SegmentClass::ByPages(thp_settings::of_shared(case, segment))
        }
        (Ok(MappingKind::File), _) => SegmentClass::ByPages(match segment.role {
            MappingRole::Text => Reason::TextNotCollapsed,
            _ => Reason::FileNotCollapsed,
        }),
        (Err(Reason::TooSmall), _) => SegmentClass::ShortOfPmd,
        (Err(reason), MappingKind::Shared) if takes_a_restart(reason) => {
            // A configured pool is then the shorter way.
            SegmentClass::Stopped(hugetlb::reason(case, segment).unwrap_or(reason))
        }
        (Err(reason), _) => SegmentClass::Stopped(reason),
    }
}

const fn takes_a_restart(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Misaligned | Reason::ShmemDeny | Reason::NoThp | Reason::Unknown
    )
}

/// Judges a range without a whole page of PMD size by the smaller THP sizes. `None` if the range cannot
/// hold even the smallest huge page.
fn short_of_pmd(
    case: &ProcessContext<'_>,
    segment: &ProcessMapping,
    range: Range,
) -> Option<Reason> {
    if case.smallest.is_none_or(|s| range.len() < s.bytes()) {
        return None;
    }
    let thp = case.host.thp.known();
    let off = segment.flags.has("nh") || case.process.thp_disabled == Fact::Known(true);
    if is_cut_by_lock(case, segment, range) {
        return Some(Reason::Locked);
    }
    let reason = match thp.and_then(|t| thp_settings::largest_that_fits(case, t, segment, range)) {
        None => Reason::TooSmall,
        Some(_) if off => Reason::TooSmall,
        Some((_, true)) => Reason::OrderAtFault,
        Some((_, false)) => Reason::OrdersOff,
    };
    Some(reason)
}

/// True if the range ends at a locked mapping. mlock splits a mapping, and a huge page cannot span two
/// mappings.
fn is_cut_by_lock(case: &ProcessContext<'_>, segment: &ProcessMapping, range: Range) -> bool {
    let locked = |s: &ProcessMapping| s.flags.has("lo");
    let is_private = |s: &ProcessMapping| MappingKind::from_segment(s) == MappingKind::Private;
    is_private(segment)
        && case.process.segments.iter().any(|s| {
            let touches = s.range.end() == range.start() || s.range.start() == range.end();
            touches && is_private(s) && s.role == segment.role && locked(s) != locked(segment)
        })
}

fn by_pages(
    case: &ProcessContext<'_>,
    segment: &ProcessMapping,
    decides: Reason,
    found: &mut SegmentObstacles,
) {
    let (Some(map), Some(pmd)) = (segment.pages.known(), case.pmd) else {
        by_counters(case, segment, decides, found);
        return;
    };
    let mut slots = eligible::cut(segment, pmd, &map.runs);
    if !map.exclusive_known {
        for slot in &mut slots {
            slot.tally.exclusive = slot.tally.present;
        }
    }
    found.resident = slots.iter().map(|s| s.tally.present).sum();
    let seen_large: Bytes = slots.iter().map(|s| s.tally.huge).sum();
    found.too_small = Bytes::ZERO;
    // A fully swapped block has no byte on any page, but is reported too.
    let in_swap = |s: &MappingPart| s.whole && s.tally.present.is_zero();
    for slot in slots
        .iter()
        .filter(|s| !s.tally.on_base().is_zero() || in_swap(s))
    {
        let reason = match slot.whole {
            true => Some(of_block(case, segment, slot, decides)),
            false => short_of_pmd(case, segment, slot.range),
        };
        match reason {
            Some(reason) => found.push(RangeObstacle {
                reason,
                range: slot.range,
                bytes: slot.tally.on_base(),
                missing: slot.range.len() - slot.tally.present - slot.tally.swapped,
                swapped: slot.tally.swapped,
                holes: holes(reason, slot.tally.present, slot.range),
            }),
            None => found.too_small += slot.tally.on_base(),
        }
    }
    // The page map does not show smaller THP sizes, nor any huge page before Linux 6.7. The counters know
    // their size but not their location.
    let unseen = segment
        .by_page_size
        .iter()
        .filter(|h| h.kind == PageKind::Thp && (h.size < pmd || !map.huge_known))
        .map(|h| h.bytes)
        .sum::<Bytes>()
        .min(found.resident - seen_large);
    found.huge = seen_large + unseen;
    found.deduct_unlocated(unseen);
}

fn of_block(
    case: &ProcessContext<'_>,
    segment: &ProcessMapping,
    slot: &MappingPart,
    decides: Reason,
) -> Reason {
    let (kind, tally, len) = (
        MappingKind::from_segment(segment),
        &slot.tally,
        slot.range.len(),
    );
    match eligible::block(kind, len, tally, len) {
        _ if tally.present.is_zero() => Reason::Swapped,
        Err(reason) => reason,
        Ok(()) if case.process.is_registered(slot.range) => Reason::Pinned,
        Ok(()) => decides,
    }
}

/// Judges a segment without a page map. The counters are split, and each share applies to the whole range.
/// A missing page anywhere affects all of it.
fn by_counters(
    case: &ProcessContext<'_>,
    segment: &ProcessMapping,
    decides: Reason,
    found: &mut SegmentObstacles,
) {
    let private = MappingKind::from_segment(segment) == MappingKind::Private;
    let mut rest = found.resident - found.huge;
    let swapped = segment.swapped;
    let missing = segment.range.len() - found.resident - swapped;
    let mut carve = |bytes: Bytes, reason: Reason| {
        let bytes = bytes.min(rest);
        rest = rest - bytes;
        if !bytes.is_zero() {
            found.findings.push(RangeObstacle {
                reason,
                range: segment.range,
                bytes,
                missing,
                swapped,
                holes: holes(reason, bytes, segment.range),
            });
        }
    };
    let all = Bytes(u64::MAX);
    let page = case.pmd.map_or(Bytes::ZERO, |p| p.bytes());
    // The ends of a segment are not part of any huge page, so up to two pages may stay empty.
    let complete = missing <= page + page;
    if private {
        carve(segment.merged, Reason::Merged);
        carve(
            segment.shared_with_others - segment.merged,
            Reason::CopyOnWrite,
        );
    }
    if !swapped.is_zero() {
        carve(all, Reason::Swapped);
    }
    let half = Bytes(segment.range.len().get() / 2);
    let reason = match (complete, private, segment.resident < half) {
        (true, _, _) => decides,
        (false, true, true) => Reason::Sparse,
        (false, true, false) => Reason::PartlyResident,
        (false, false, _) => Reason::PartlyMapped,
    };
    carve(all, reason);
}

/// Places pinned pages. `VmPin` gives their size, but only the location of io_uring buffers is known.
/// The rest, rounded up to whole huge pages, is deducted from the largest promotable ranges.
pub fn place_pinned(case: &ProcessContext<'_>, found: &mut [SegmentObstacles]) {
    let Some(pmd) = case.pmd else { return };
    let buffers = case.process.registered.entries().iter();
    let known: Bytes = buffers.map(|buffer| buffer.len()).sum();
    let mut left = pmd.pages_for(case.process.pinned - known).in_bytes(pmd);
    while !left.is_zero() {
        let largest = found
            .iter_mut()
            .flat_map(|f| {
                let at = (0..f.findings.len())
                    .filter(|i| f.findings[*i].reason.remedy() == Remedy::Promote)
                    .max_by_key(|i| f.findings[*i].bytes);
                at.map(|at| (f, at))
            })
            .max_by_key(|(f, at)| f.findings[*at].bytes);
        let Some((found, at)) = largest else { return };
        let finding = &mut found.findings[at];
        let taken = finding.bytes.min(left);
        left = left - taken;
        finding.bytes = finding.bytes - taken;
        let pinned = RangeObstacle {
            reason: Reason::Pinned,
            bytes: taken,
            ..finding.clone()
        };
        if finding.bytes.is_zero() {
            *finding = pinned;
        } else {
            found.findings.insert(at + 1, pinned);
        }
    }
}

/// Advises to create free blocks if none of the size is free, because promotion would have to compact
/// memory for each page. With some free blocks promotion continues: it frees base pages, and the kernel
/// compacts those.
pub fn check_free_blocks(case: &ProcessContext<'_>, found: &mut [SegmentObstacles]) {
    if let (Some(pmd), Some(buddy)) = (case.pmd, case.host.buddy.known())
        && buddy.free_for(pmd, case.host.base_page) < pmd.bytes()
    {
        none_promotable(found, Reason::NoContiguous);
    }
}

fn none_promotable(found: &mut [SegmentObstacles], reason: Reason) {
    let findings = found.iter_mut().flat_map(|f| &mut f.findings);
    for finding in findings.filter(|f| f.reason.remedy() == Remedy::Promote) {
        finding.reason = reason;
    }
}

/// Checks the memory limit. The kernel charges a huge page to the cgroup before it frees the base pages.
/// If not even one huge page fits below the limit, promotion gets none (tested on cgroup v1 and v2, see
/// docs/internals/kernel-notes.md).
pub fn check_memory_limit(case: &ProcessContext<'_>, found: &mut [SegmentObstacles]) {
    let mut limits = case.process.limits.memory.iter();
    let page = case.pmd.map_or(Bytes::ZERO, |pmd| pmd.bytes());
    if limits.any(|limit| !limit.only_throttles && limit.room_at_most() < page) {
        none_promotable(found, Reason::CgroupMemory);
    }
}

/// Returns the tightest memory limit above the process, with the remaining room.
pub fn tightest_limit(case: &ProcessContext<'_>) -> Option<TightestMemoryLimit> {
    let page = case.pmd?.bytes();
    let limits = case.process.limits.memory.iter();
    let tightest = limits.min_by_key(|l| l.room_at_most())?;
    Some(TightestMemoryLimit {
        cgroup: tightest.path.clone(),
        file: tightest.file.clone(),
        limit: tightest.limit,
        left: tightest.room_at_most(),
        page,
        is_in_container: case.process.limits.is_in_container || case.host.is_in_container,
    })
}
