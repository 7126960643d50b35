//! Whose memory is looked at closely, and when: page tables are expensive, so that is bounded by time, and those go
//! first that somebody looks at. Pure.

use std::time::Duration;

use hugeleaf_guard::Allowance;
use hugeleaf_units::Bytes;

use crate::model::Id;

/// So much of a processor's time closer looks may take.
const SHARE: f64 = 0.005;
/// Bound on the time that is saved up.
const MOST: Duration = Duration::from_millis(20);
/// Maximum debt, the earnings of 30 seconds: figures must not be minutes old for one look at much memory. A look
/// that takes longer than that has the next sample come later ([`crate::look`]).
const DEBT: Duration = Duration::from_millis(150);

/// Processor time of closer looks.
pub fn allowance() -> Allowance {
    Allowance::new(SHARE, MOST, DEBT)
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    pub selected: Option<Id>,
    pub visible: Vec<Id>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    pub id: Id,
    pub resident: Bytes,
    /// How long ago it was looked at; `None` for never.
    pub since: Option<Duration>,
}

/// All of them, the most urgent first: who waited longest, the one that is marked counting 16 times, those in sight
/// eightfold; of those that were never looked at, the largest in sight.
pub fn order(mut waiting: Vec<Waiting>, wanted: &Wanted) -> Vec<Waiting> {
    let weight = |id: Id| match wanted.visible.contains(&id) {
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

    fn id(pid: u32) -> Id {
        Id {
            pid,
            start_ticks: 0,
        }
    }

    #[test]
    fn who_is_looked_at_first() {
        let waiting = |pid, mib, since: Option<u64>| Waiting {
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
        let wanted = Wanted {
            selected: Some(id(3)),
            visible: vec![id(2), id(3), id(5)],
        };
        let order: Vec<u32> = order(all, &wanted).iter().map(|w| w.id.pid).collect();
        assert_eq!(order, [5, 4, 2, 3, 1, 6]);
    }

    /// Nobody waits for ever: with ten thousand of them and thirty in sight all have had a turn after a while.
    #[test]
    fn everybody_has_a_turn() {
        const ALL: u32 = 400;
        let wanted = Wanted {
            selected: Some(id(0)),
            visible: (0..30).map(id).collect(),
        };
        let mut last: Vec<Option<u64>> = vec![None; ALL as usize];
        for now in 0..120 {
            let waiting = (0..ALL).map(|pid| Waiting {
                id: id(pid),
                resident: Bytes::from_mib(1),
                since: last[pid as usize].map(|at| Duration::from_secs(now - at)),
            });
            for one in order(waiting.collect(), &wanted).iter().take(20) {
                last[one.id.pid as usize] = Some(now);
            }
        }
        let oldest = last.iter().map(|at| 119 - at.unwrap()).max().unwrap();
        assert!(oldest < 40, "{oldest}");
    }
}
