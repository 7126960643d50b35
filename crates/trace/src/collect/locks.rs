//! Lock contention during collection: exact totals per lock and per thread, totals per caller from
//! waits with sampled stacks, and the newest events of each lock. Events are ordered by time. Names
//! are resolved at the end.

use std::collections::{HashMap, VecDeque};

use crate::model::{LockAction, LockKind, LockTotals};

const EVENTS_A_LOCK: usize = 400;

/// Maximum number of locks whose events are kept; others have totals only.
const LOCKS_WITH_EVENTS: usize = 4_000;

#[derive(Debug, Default)]
pub struct LockStats {
    pub totals: LockTotals,
    pub failed: u64,
    by_kind: HashMap<LockKind, LockTotals>,
    /// By (stack, kind): waits with sampled stacks, each weighted by the waits that it represents.
    sampled: HashMap<(u32, LockKind), LockTotals>,
    pub unsampled: u64,
    /// By (process, thread).
    pub by_thread: HashMap<(u32, u32), LockTotals>,
    pub events: VecDeque<LockRecord>,
    pub events_seen: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRecord {
    pub who: EventOrigin,
    pub what: LockAction,
    /// Duration of the wait, at its end.
    pub waited: u64,
    /// The stack at the start of a wait, if it was sampled.
    pub stack: Option<u32>,
}

/// A sampled stack, and the number of waits that it represents.
#[derive(Debug, Clone, Copy)]
struct SampledStack {
    stack: u32,
    stands_for: u64,
}

#[derive(Debug, Clone, Copy)]
struct PendingWait {
    since: u64,
    taken: Option<SampledStack>,
    kind: LockKind,
}

#[derive(Debug, Default)]
pub struct Locks {
    all: HashMap<u64, LockStats>,
    /// By (thread, address); the idle threads share one ID and are distinguished by CPU.
    waiting: HashMap<(u32, u32, u64), PendingWait>,
    /// Stacks of waits not yet seen: the two events of a wait come in either order.
    taken: HashMap<(u32, u32, u64), SampledStack>,
    with_events: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventOrigin {
    pub nanos: u64,
    pub process: u32,
    pub tid: u32,
    pub cpu: u32,
}

impl EventOrigin {
    fn key(&self, address: u64) -> (u32, u32, u64) {
        let cpu = if self.tid == 0 { self.cpu } else { 0 };
        (self.tid, cpu, address)
    }
}

/// Converts `LCB_F_*` (include/trace/events/lock.h) to a kind.
pub fn kind_of(flags: u32) -> LockKind {
    const SPIN: u32 = 1;
    const READ: u32 = 2;
    const WRITE: u32 = 4;
    const RT: u32 = 8;
    const PERCPU: u32 = 16;
    const MUTEX: u32 = 32;
    let has = |flag| flags & flag != 0;
    // A mutex first spins in case its holder releases it soon, and sets a flag for that.
    match flags {
        _ if has(MUTEX) => LockKind::Mutex,
        _ if has(PERCPU) && has(WRITE) => LockKind::PerCpuRwSemWrite,
        _ if has(PERCPU) => LockKind::PerCpuRwSemRead,
        _ if has(RT) => LockKind::RtMutex,
        _ if has(SPIN) && has(READ) => LockKind::RwLockRead,
        _ if has(SPIN) && has(WRITE) => LockKind::RwLockWrite,
        _ if has(SPIN) => LockKind::Spin,
        _ if has(READ) => LockKind::RwSemRead,
        _ if has(WRITE) => LockKind::RwSemWrite,
        _ => LockKind::Other,
    }
}

impl Locks {
    pub fn begin(&mut self, who: EventOrigin, address: u64, flags: u32) {
        let kind = kind_of(flags);
        let key = who.key(address);
        // A mutex reports a second begin when it sleeps after spinning: the wait began before.
        if self.waiting.contains_key(&key) {
            return;
        }
        let taken = self.taken.remove(&key);
        let since = who.nanos;
        self.waiting.insert(key, PendingWait { since, taken, kind });
        let stack = taken.map(|t| t.stack);
        self.note(who, address, LockAction::Waits, 0, stack);
    }

    /// Records the stack of a beginning wait, and the number of waits that it represents.
    pub fn record_stack(&mut self, who: EventOrigin, address: u64, stack: u32, stands_for: u64) {
        let stands_for = stands_for.max(1);
        let taken = SampledStack { stack, stands_for };
        let Some(waiting) = self.waiting.get_mut(&who.key(address)) else {
            self.taken.insert(who.key(address), taken);
            return;
        };
        if waiting.taken.is_some() {
            return;
        }
        waiting.taken = Some(taken);
        let events = self.all.get_mut(&address).map(|waits| &mut waits.events);
        let last = events.and_then(VecDeque::back_mut);
        if let Some(event) = last.filter(|e| e.who.tid == who.tid && e.what == LockAction::Waits) {
            event.stack = Some(stack);
        }
    }

    pub fn end(&mut self, who: EventOrigin, address: u64, result: i32) {
        // The wait began before the trace, or its begin was lost.
        let Some(begun) = self.waiting.remove(&who.key(address)) else {
            return;
        };
        let waited = who.nanos.saturating_sub(begun.since);
        let waits = self.all.entry(address).or_default();
        waits.totals.add(waited);
        waits.by_kind.entry(begun.kind).or_default().add(waited);
        match begun.taken {
            Some(taken) => {
                let caller = waits.sampled.entry((taken.stack, begun.kind));
                caller.or_default().join(&LockTotals {
                    contentions: taken.stands_for,
                    waited_nanos: waited.saturating_mul(taken.stands_for),
                    longest_nanos: waited,
                });
            }
            None => waits.unsampled += 1,
        }
        let thread = waits.by_thread.entry((who.process, who.tid));
        thread.or_default().add(waited);
        let what = match result {
            0 => LockAction::Got,
            _ => {
                waits.failed += 1;
                LockAction::GaveUp
            }
        };
        let stack = begun.taken.map(|t| t.stack);
        self.note(who, address, what, waited, stack);
    }

    /// Drops pending waits after a loss of events, because they may have ended long ago.
    pub fn drop_pending(&mut self) {
        self.waiting.clear();
        self.taken.clear();
    }

    fn note(
        &mut self,
        who: EventOrigin,
        address: u64,
        what: LockAction,
        waited: u64,
        stack: Option<u32>,
    ) {
        let waits = self.all.entry(address).or_default();
        waits.events_seen += 1;
        if waits.events.is_empty() {
            if self.with_events >= LOCKS_WITH_EVENTS {
                return;
            }
            self.with_events += 1;
        }
        if waits.events.len() >= EVENTS_A_LOCK {
            waits.events.pop_front();
        }
        waits.events.push_back(LockRecord {
            who,
            what,
            waited,
            stack,
        });
    }

    /// Returns all locks with completed waits, longest first.
    pub fn finish(self) -> Vec<(u64, LockStats)> {
        let mut all: Vec<(u64, LockStats)> = self
            .all
            .into_iter()
            .filter(|(_, waits)| waits.totals.contentions > 0)
            .collect();
        all.sort_by_key(|(address, w)| (std::cmp::Reverse(w.totals.waited_nanos), *address));
        all
    }
}

impl LockStats {
    /// Returns waits by (stack, kind), exact if every stack was sampled. Otherwise a kind's total is
    /// divided among its sampled stacks in proportion, without a remainder. A kind without samples has
    /// `None` as its stack.
    pub fn by_caller(&self) -> Vec<((Option<u32>, LockKind), LockTotals)> {
        let mut rows = Vec::new();
        for (kind, all) in &self.by_kind {
            let of_kind = || self.sampled.iter().filter(|((_, k), _)| k == kind);
            let mut seen = LockTotals::default();
            of_kind().for_each(|(_, totals)| seen.join(totals));
            if seen.contentions == 0 {
                rows.push(((None, *kind), *all));
            }
            // Each stack gets the difference of cumulative sums, so no rounding is lost.
            let (mut so_far, mut given) = (LockTotals::default(), LockTotals::default());
            for ((stack, _), totals) in of_kind() {
                so_far.join(totals);
                let up_to = LockTotals {
                    contentions: part(all.contentions, so_far.contentions, seen.contentions),
                    waited_nanos: part(all.waited_nanos, so_far.waited_nanos, seen.waited_nanos),
                    longest_nanos: 0,
                };
                let share = LockTotals {
                    contentions: up_to.contentions - given.contentions,
                    waited_nanos: up_to.waited_nanos - given.waited_nanos,
                    longest_nanos: totals.longest_nanos,
                };
                given = up_to;
                rows.push(((Some(*stack), *kind), share));
            }
        }
        rows
    }
}

/// Returns `number * above / below`, rounded down; `below` is at least 1.
fn part(number: u64, above: u64, below: u64) -> u64 {
    let share = u128::from(number) * u128::from(above) / u128::from(below.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(nanos: u64, tid: u32) -> EventOrigin {
        EventOrigin {
            nanos,
            process: 0,
            tid,
            cpu: 1,
        }
    }

    /// A wait begins, and its stack is sampled.
    fn begin(locks: &mut Locks, who: EventOrigin, address: u64, flags: u32, stack: u32) {
        locks.begin(who, address, flags);
        locks.record_stack(who, address, stack, 1);
    }

    fn caller(waits: &LockStats, stack: Option<u32>, kind: LockKind) -> LockTotals {
        let rows = waits.by_caller();
        let row = rows.iter().find(|(key, _)| *key == (stack, kind));
        row.unwrap().1
    }

    #[test]
    fn waits_are_added_up() {
        let mut locks = Locks::default();
        begin(&mut locks, who(100, 1), 0xa, 1, 7);
        begin(&mut locks, who(110, 2), 0xa, 1, 8);
        locks.end(who(150, 1), 0xa, 0);
        locks.end(who(310, 2), 0xa, -4);
        locks.end(who(400, 3), 0xa, 0); // begun before the start
        begin(&mut locks, who(500, 1), 0xb, 32, 9); // never ends
        let all = locks.finish();
        assert_eq!(all.len(), 1);
        let (address, waits) = &all[0];
        assert_eq!((*address, waits.failed), (0xa, 1));
        assert_eq!(waits.totals.contentions, 2);
        assert_eq!(waits.totals.waited_nanos, 250);
        assert_eq!(waits.totals.longest_nanos, 200);
        assert_eq!(caller(waits, Some(8), LockKind::Spin).waited_nanos, 200);
        assert_eq!(waits.by_thread[&(0, 1)].waited_nanos, 50);
        let actions: Vec<_> = waits.events.iter().map(|e| (e.who.tid, e.what)).collect();
        assert_eq!(
            actions,
            [
                (1, LockAction::Waits),
                (2, LockAction::Waits),
                (1, LockAction::Got),
                (2, LockAction::GaveUp)
            ]
        );
    }

    /// A mutex that spins and then sleeps has one wait, from the first of the two begins.
    #[test]
    fn a_mutex_that_spun_in_vain() {
        let mut locks = Locks::default();
        begin(&mut locks, who(100, 1), 0xa, 32 | 1, 7);
        begin(&mut locks, who(200, 1), 0xa, 32, 8);
        locks.end(who(300, 1), 0xa, 0);
        let all = locks.finish();
        assert_eq!(all[0].1.totals.waited_nanos, 200);
        assert_eq!(all[0].1.totals.contentions, 1);
        assert_eq!(
            caller(&all[0].1, Some(7), LockKind::Mutex).waited_nanos,
            200
        );
    }

    /// A stack that represents three of four waits: callers share the counted total exactly.
    #[test]
    fn stacks_of_some_waits_stand_for_all() {
        let mut locks = Locks::default();
        for (n, looked_at) in [(0, Some((7, 3))), (1, None), (2, None), (3, Some((8, 1)))] {
            let at = who(n * 100, 1);
            // Either of the two events may come first.
            match looked_at {
                Some((stack, stands_for)) if n == 0 => {
                    locks.record_stack(at, 0xa, stack, stands_for);
                    locks.begin(at, 0xa, 1);
                }
                Some((stack, stands_for)) => {
                    locks.begin(at, 0xa, 1);
                    locks.record_stack(at, 0xa, stack, stands_for);
                }
                None => locks.begin(at, 0xa, 1),
            }
            locks.end(who(n * 100 + 10, 1), 0xa, 0);
        }
        locks.begin(who(900, 1), 0xa, 4);
        locks.end(who(905, 1), 0xa, 0);
        let all = locks.finish();
        let waits = &all[0].1;
        assert_eq!((waits.totals.contentions, waits.unsampled), (5, 3));
        let of = |stack, kind| {
            let totals = caller(waits, stack, kind);
            (totals.contentions, totals.waited_nanos)
        };
        assert_eq!(of(Some(7), LockKind::Spin), (3, 30));
        assert_eq!(of(Some(8), LockKind::Spin), (1, 10));
        // A kind without samples has no caller.
        assert_eq!(of(None, LockKind::RwSemWrite), (1, 5));
        let begins = waits.events.iter().filter(|e| e.what == LockAction::Waits);
        let stacks: Vec<_> = begins.map(|e| e.stack).collect();
        assert_eq!(stacks, [Some(7), None, None, Some(8), None]);
    }

    #[test]
    fn events_are_bounded_and_totals_are_not() {
        let mut locks = Locks::default();
        for n in 0..10_000 {
            begin(&mut locks, who(n * 10, 1), 0xa, 1, 7);
            locks.end(who(n * 10 + 5, 1), 0xa, 0);
        }
        let all = locks.finish();
        assert_eq!(all[0].1.totals.contentions, 10_000);
        assert_eq!(all[0].1.events.len(), EVENTS_A_LOCK);
        assert_eq!(all[0].1.events_seen, 20_000);
        assert_eq!(all[0].1.events.back().unwrap().who.nanos, 99_995);
    }

    #[test]
    fn kinds() {
        for (flags, kind) in [
            (1, LockKind::Spin),
            (3, LockKind::RwLockRead),
            (5, LockKind::RwLockWrite),
            (2, LockKind::RwSemRead),
            (4, LockKind::RwSemWrite),
            (8, LockKind::RtMutex),
            (18, LockKind::PerCpuRwSemRead),
            (20, LockKind::PerCpuRwSemWrite),
            (32, LockKind::Mutex),
            (33, LockKind::Mutex),
            (0, LockKind::Other),
        ] {
            assert_eq!(kind_of(flags), kind, "{flags}");
        }
    }
}
