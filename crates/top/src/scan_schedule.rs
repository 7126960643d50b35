//! Chooses the programs whose page tables are walked, and when. A walk is expensive, so its time is limited, and
//! programs that the user sees come first. Pure.

use std::time::Duration;

use hugeleaf_guard::CpuTokenBucket;
use hugeleaf_units::Bytes;

use crate::model::TreeId;

/// Budget for page-table walks, as a share of one processor.
const SHARE: f64 = 0.005;
/// Maximum time that is saved up.
const MOST: Duration = Duration::from_millis(20);
/// Maximum debt, the earnings of 30 seconds, so that one long walk does not delay figures by minutes. After a walk
/// that takes longer, the next sample is delayed ([`crate::scanner`]).
const DEBT: Duration = Duration::from_millis(150);

/// Returns the budget of processor time for page-table walks.
pub fn allowance() -> CpuTokenBucket {
    CpuTokenBucket::new(SHARE, MOST, DEBT)
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VisibleTrees {
    pub selected: Option<TreeId>,
    pub visible: Vec<TreeId>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WalkCandidate {
    pub id: TreeId,
    pub resident: Bytes,
    /// Time since the last walk. `None` if there was none.
    pub since: Option<Duration>,
}

/// Sorts by urgency. The longest waiting comes first. The time counts 16 times for the selected program and 8 times
/// for visible ones. Of programs without a walk, the largest visible one comes first.
pub fn schedule(mut waiting: Vec<WalkCandidate>, wanted: &VisibleTrees) -> Vec<WalkCandidate> {
    let weight = |id: TreeId| match wanted.visible.contains(&id) {
        _ if wanted.selected == Some(id) => 16,
        true => 8,
        false => 1,
    };
    waiting.sort_by_cached_key(|one| {
        let urgency = match one.since {
            None => (1, u128::from(one.resident.get()) + 1),
            Some(since) => (0, since.as_millis()),
        };
        std::cmp::Reverse((urgency.0, urgency.1.saturating_mul(weight(one.id))))
    });
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(pid: u32) -> TreeId {
        TreeId {
            pid,
            start_ticks: 0,
        }
    }

    #[test]
    fn who_is_looked_at_first() {
        let waiting = |pid, mib, since: Option<u64>| WalkCandidate {
            id: id(pid),
            resident: Bytes::from_mib(mib),
            since: since.map(Duration::from_secs),
        };
        let all = vec![
            waiting(1, 10, Some(30)),
            waiting(2, 10, Some(5)),
            waiting(3, 10, Some(2)),
            waiting(4, 99, None),
            waiting(5, 20, None),
            waiting(6, 10, Some(1)),
        ];
        let wanted = VisibleTrees {
            selected: Some(id(3)),
            visible: vec![id(2), id(3), id(5)],
        };
        let order: Vec<u32> = schedule(all, &wanted).iter().map(|w| w.id.pid).collect();
        assert_eq!(order, [5, 4, 2, 3, 1, 6]);
    }

    /// Checks that with many programs and thirty visible, all are walked after a while.
    #[test]
    fn everybody_has_a_turn() {
        const ALL: u32 = 400;
        let wanted = VisibleTrees {
            selected: Some(id(0)),
            visible: (0..30).map(id).collect(),
        };
        let mut last: Vec<Option<u64>> = vec![None; ALL as usize];
        for now in 0..120 {
            let waiting = (0..ALL).map(|pid| WalkCandidate {
                id: id(pid),
                resident: Bytes::from_mib(1),
                since: last[pid as usize].map(|at| Duration::from_secs(now - at)),
            });
            for one in schedule(waiting.collect(), &wanted).iter().take(20) {
                last[one.id.pid as usize] = Some(now);
            }
        }
        let oldest = last.iter().map(|at| 119 - at.unwrap()).max().unwrap();
        assert!(oldest < 40, "{oldest}");
    }
}
