//! Sums over processes. Memory that several processes map, or that one maps several times (as a Java heap under ZGC does), counts
//! once. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};

use hugeleaf_host::MappingRole;
use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, Range};
use hugeleaf_verdict::eligible;
use hugeleaf_verdict::partial_blocks::PartialBlocks;
use serde::Serialize;

use crate::block_plan::{BackingObjectId, Block, BlockKey};
use crate::debugfs_split::can_split_shared;
use crate::job::{MoverContext, ProcessWork};
use crate::outcome::{BlockResult, BytesByReason, ProcessOutcome, RoleOutcome, UnchangedReason};
use crate::readback;
use crate::split_refusals::SplitRefusal;

/// Sums over processes, each page once. `asked` = `done` + all of `failed`, except in a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct OutcomeTotals {
    #[serde(rename = "asked_bytes")]
    pub requested: Bytes,
    #[serde(rename = "already_bytes")]
    pub already: Bytes,
    /// Memory that was promoted or demoted in every process that maps it, as read back.
    #[serde(rename = "done_bytes")]
    pub done: Bytes,
    /// Requested memory that failed, or is not mapped in every requested place.
    pub failed: Vec<BytesByReason>,
    /// Memory that was not requested, by reason. Memory shared with other processes counts by its proportional share.
    pub left_out: Vec<BytesByReason>,
    #[serde(rename = "grown_bytes")]
    pub grown: Bytes,
    /// Memory that was promoted (or would be in a dry run) and cannot be demoted, by reason.
    pub one_way: Vec<BytesByReason>,
    #[serde(rename = "roles")]
    pub by_role: Vec<RoleOutcome>,
    #[serde(skip)]
    pub holes: BTreeMap<eligible::Reason, PartialBlocks>,
}

/// Returns the part of a planned promotion that cannot be demoted, for the reason with most bytes. If some of it is shared, checks
/// whether this host can split shared memory.
pub(crate) fn one_way(
    context: &MoverContext<'_>,
    works: &mut [ProcessWork],
) -> Option<BytesByReason> {
    let asks = |block: &Block| {
        block.one_way(None).is_none() && block.one_way(Some(SplitRefusal::NoFile)).is_some()
    };
    if works.iter().any(|work| work.plan.blocks.iter().any(asks)) {
        let pids: Vec<Pid> = works.iter().map(|work| work.identity.pid()).collect();
        let no_split = can_split_shared(context.kernel, context.root, &pids).err();
        works.iter_mut().for_each(|work| work.no_split = no_split);
    }
    let planned: Vec<_> = works.iter().map(readback::planned).collect();
    let parts = sum_totals(works, &planned).one_way;
    parts.into_iter().max_by_key(|part| part.bytes)
}

struct CombinedBlockResult {
    fate: BlockResult,
    role: MappingRole,
    bytes: Bytes,
    missing: Bytes,
    one_way: Option<UnchangedReason>,
}

/// Returns the totals of `works`; `processes` are their outcomes in the same order.
pub(crate) fn sum_totals(works: &[ProcessWork], processes: &[ProcessOutcome]) -> OutcomeTotals {
    let mut totals = OutcomeTotals::default();
    let mut entries: Vec<CombinedBlockResult> = Vec::new();
    let mut seen: HashMap<BlockKey, usize> = HashMap::new();
    let mut guessed = HashSet::new();
    for (work, outcome) in works.iter().zip(processes) {
        for (reason, holes) in &work.plan.holes {
            totals.holes.entry(*reason).or_default().join(holes);
        }
        for part in &work.plan.left_out_share {
            BytesByReason::add(&mut totals.left_out, part.reason, part.bytes);
        }
        if work.plan.huge_unknown {
            totals.add_unknown(work, outcome, &mut guessed);
            continue;
        }
        for (n, block) in work.plan.blocks.iter().enumerate() {
            let fate = work.fates.get(n).copied().unwrap_or(BlockResult::Planned);
            let at = block.key().and_then(|key| seen.get(&key).copied());
            if let Some(known) = at.and_then(|at| entries.get_mut(at)) {
                known.fate = known.fate.worse(fate);
                known.missing = known.missing.max(block.missing);
                known.one_way = known.one_way.or(block.one_way(work.no_split));
                continue;
            }
            seen.extend(block.key().map(|key| (key, entries.len())));
            entries.push(CombinedBlockResult {
                fate,
                role: block.role,
                bytes: block.share,
                missing: block.missing,
                one_way: block.one_way(work.no_split),
            });
        }
    }
    for entry in &entries {
        totals.add(entry);
    }
    let pools = works.iter().flat_map(|work| &work.plan.pool_shared);
    let pools = union_len(pools.copied().collect());
    BytesByReason::add(
        &mut totals.left_out,
        eligible::Reason::Hugetlb.into(),
        pools,
    );
    // Memory that is huge in one process and to be mapped in another counts as requested.
    let mut there: HashSet<BlockKey> = seen.into_keys().collect();
    for plan in works.iter().map(|work| &work.plan) {
        totals.already += plan.already_private;
        let shared = plan.already_shared.iter();
        let new = shared.filter(|(key, _)| there.insert(*key));
        totals.already += new.map(|(_, bytes)| *bytes).sum();
    }
    totals
}

impl OutcomeTotals {
    fn add(&mut self, entry: &CombinedBlockResult) {
        self.requested += entry.bytes;
        self.role(entry.role).requested += entry.bytes;
        match entry.fate {
            BlockResult::Done => {
                self.done += entry.bytes;
                self.role(entry.role).done += entry.bytes;
                self.grown += entry.missing;
            }
            BlockResult::Failed(reason) => {
                BytesByReason::add(&mut self.failed, reason, entry.bytes)
            }
            BlockResult::Planned => self.grown += entry.missing,
        }
        if let (BlockResult::Done | BlockResult::Planned, Some(reason)) =
            (entry.fate, entry.one_way)
        {
            BytesByReason::add(&mut self.one_way, reason, entry.bytes);
        }
    }

    /// Adds a process for which the page map does not report huge blocks (Linux before 6.7). It has only sums by role, of which the
    /// part counts that no earlier process maps.
    fn add_unknown(
        &mut self,
        work: &ProcessWork,
        outcome: &ProcessOutcome,
        seen: &mut HashSet<(BlockKey, MappingRole)>,
    ) {
        let (mut all, mut left) = (Bytes::ZERO, Bytes::ZERO);
        for role in &outcome.by_role {
            let blocks = work.plan.blocks.iter().filter(|b| b.role == role.role);
            let (mut mapped, mut new) = (Bytes::ZERO, Bytes::ZERO);
            for block in blocks {
                mapped += block.range.len();
                if block.key().is_none_or(|key| seen.insert((key, block.role))) {
                    new += block.share;
                }
            }
            let asked = role.requested.scaled(new, mapped);
            let done = role.done.scaled(new, mapped);
            self.requested += asked;
            self.done += done;
            let sum = self.role(role.role);
            sum.requested += asked;
            sum.done += done;
            all += role.requested - role.done;
            left += asked - done;
        }
        self.grown += outcome.grown;
        for part in &outcome.one_way {
            BytesByReason::add(&mut self.one_way, part.reason, part.bytes);
        }
        let mut rest = left;
        for (n, part) in outcome.failed.iter().enumerate() {
            let is_last = n + 1 == outcome.failed.len();
            let bytes = match is_last {
                true => rest,
                false => part.bytes.scaled(left, all).min(rest),
            };
            rest = rest - bytes;
            BytesByReason::add(&mut self.failed, part.reason, bytes);
        }
    }

    fn role(&mut self, role: MappingRole) -> &mut RoleOutcome {
        RoleOutcome::entry(&mut self.by_role, role)
    }
}

/// Returns the total length of ranges of objects, overlaps counted once.
fn union_len(mut ranges: Vec<(BackingObjectId, Range)>) -> Bytes {
    ranges.sort_unstable_by_key(|(object, _)| *object);
    let each = ranges.chunk_by(|a, b| a.0 == b.0);
    let each = each.map(|of| of.iter().map(|(_, range)| *range).collect());
    each.map(hugeleaf_host::memory_totals::union_len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_one_object_count_once() {
        let (one, two) = ((0, 1, 7, false), (0, 1, 8, false));
        let range = |start, end| Range::new(start, end).unwrap();
        let ranges = vec![
            (one, range(10, 30)),
            (two, range(0, 5)),
            (one, range(0, 20)),
            (one, range(12, 15)),
            (one, range(40, 50)),
        ];
        assert_eq!(union_len(ranges), Bytes(30 + 10 + 5));
        assert_eq!(union_len(Vec::new()), Bytes::ZERO);
    }

    #[test]
    fn what_one_place_did_not_get_was_not_got() {
        let busy = BlockResult::Failed(UnchangedReason::Busy);
        let ended = BlockResult::Failed(UnchangedReason::ProcessEnded);
        for (one, other, both) in [
            (BlockResult::Done, busy, busy),
            (busy, BlockResult::Done, busy),
            (BlockResult::Done, ended, BlockResult::Done),
            (ended, BlockResult::Done, BlockResult::Done),
            (ended, busy, busy),
            (BlockResult::Done, BlockResult::Done, BlockResult::Done),
        ] {
            assert_eq!(one.worse(other), both);
        }
    }
}
