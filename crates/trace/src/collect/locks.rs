//! Lock contention while collecting: exact totals per lock, per caller and per thread, and the
//! newest events of each lock. Events are in order of time. Names come at the end.

use std::collections::{HashMap, VecDeque};

use crate::model::{LockAction, LockKind, LockTotals};

/// Newest events that are kept of one lock.
const EVENTS_A_LOCK: usize = 400;

/// Locks whose events are kept; those beyond have totals only.
const LOCKS_WITH_EVENTS: usize = 4_000;

/// What is known of a lock.
#[derive(Debug, Default)]
pub struct Waits {
    /// In all.
    pub totals: LockTotals,
    /// Ended without the lock.
    pub failed: u64,
    /// By (stack, kind).
    pub by_caller: HashMap<(u32, LockKind), LockTotals>,
    /// By (process, thread).
    pub by_thread: HashMap<(u32, u32), LockTotals>,
    /// The newest events.
    pub events: VecDeque<Event>,
    /// Events in all.
    pub events_seen: u64,
}

/// An event of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When (CLOCK_MONOTONIC).
    pub nanos: u64,
    /// Place of the process.
    pub process: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
    /// What.
    pub what: LockAction,
    /// Of the end of a wait: how long it was.
    pub waited: u64,
    /// The stack of the start of a wait.
    pub stack: u32,
}

/// A wait that has not ended.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    since: u64,
    stack: u32,
    kind: LockKind,
}

/// All locks.
#[derive(Debug, Default)]
pub struct Locks {
    all: HashMap<u64, Waits>,
    /// By (thread, address); the idle threads of all CPUs have one id and are told apart by CPU.
    waiting: HashMap<(u32, u32, u64), Waiting>,
    with_events: usize,
}

/// Who did something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who {
    /// When.
    pub nanos: u64,
    /// Place of the process.
    pub process: u32,
    /// The thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
}

impl Who {
    fn key(&self, address: u64) -> (u32, u32, u64) {
        let cpu = if self.tid == 0 { self.cpu } else { 0 };
        (self.tid, cpu, address)
    }
}

/// `LCB_F_*` (include/trace/events/lock.h) as a kind.
pub fn kind_of(flags: u32) -> LockKind {
    const SPIN: u32 = 1;
    const READ: u32 = 2;
    const WRITE: u32 = 4;
    const RT: u32 = 8;
    const PERCPU: u32 = 16;
    const MUTEX: u32 = 32;
    let has = |flag| flags & flag != 0;
    // A mutex spins for a while, hoping that its holder is about to let go, and says so.
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
    /// A thread found a lock taken.
    pub fn begin(&mut self, who: Who, address: u64, flags: u32, stack: u32) {
        let kind = kind_of(flags);
        // A mutex that spun in vain says so once more before it sleeps: the wait began before.
        if self.waiting.contains_key(&who.key(address)) {
            return;
        }
        let since = who.nanos;
        self.waiting
            .insert(who.key(address), Waiting { since, stack, kind });
        self.note(who, address, LockAction::Waits, 0, stack);
    }

    /// A wait ended.
    pub fn end(&mut self, who: Who, address: u64, result: i32) {
        // Begun before the start, or its begin was lost.
        let Some(begun) = self.waiting.remove(&who.key(address)) else {
            return;
        };
        let waited = who.nanos.saturating_sub(begun.since);
        let waits = self.all.entry(address).or_default();
        waits.totals.add(waited);
        let caller = waits.by_caller.entry((begun.stack, begun.kind));
        caller.or_default().add(waited);
        let thread = waits.by_thread.entry((who.process, who.tid));
        thread.or_default().add(waited);
        let what = match result {
            0 => LockAction::Got,
            _ => {
                waits.failed += 1;
                LockAction::GaveUp
            }
        };
        self.note(who, address, what, waited, begun.stack);
    }

    /// Events were lost: what seems to wait may have gone on long ago.
    pub fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    fn note(&mut self, who: Who, address: u64, what: LockAction, waited: u64, stack: u32) {
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
        waits.events.push_back(Event {
            nanos: who.nanos,
            process: who.process,
            tid: who.tid,
            cpu: who.cpu,
            what,
            waited,
            stack,
        });
    }

    /// All that were waited for to the end, longest first.
    pub fn finish(self) -> Vec<(u64, Waits)> {
        let mut all: Vec<(u64, Waits)> = self
            .all
            .into_iter()
            .filter(|(_, waits)| waits.totals.contentions > 0)
            .collect();
        all.sort_by_key(|(address, w)| (std::cmp::Reverse(w.totals.waited_nanos), *address));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(nanos: u64, tid: u32) -> Who {
        Who {
            nanos,
            process: 0,
            tid,
            cpu: 1,
        }
    }

    #[test]
    fn waits_are_added_up() {
        let mut locks = Locks::default();
        locks.begin(who(100, 1), 0xa, 1, 7);
        locks.begin(who(110, 2), 0xa, 1, 8);
        locks.end(who(150, 1), 0xa, 0);
        locks.end(who(310, 2), 0xa, -4);
        locks.end(who(400, 3), 0xa, 0); // begun before the start
        locks.begin(who(500, 1), 0xb, 32, 9); // never ends
        let all = locks.finish();
        assert_eq!(all.len(), 1);
        let (address, waits) = &all[0];
        assert_eq!((*address, waits.failed), (0xa, 1));
        assert_eq!(waits.totals.contentions, 2);
        assert_eq!(waits.totals.waited_nanos, 250);
        assert_eq!(waits.totals.longest_nanos, 200);
        assert_eq!(waits.by_caller[&(8, LockKind::Spin)].waited_nanos, 200);
        assert_eq!(waits.by_thread[&(0, 1)].waited_nanos, 50);
        let actions: Vec<_> = waits.events.iter().map(|e| (e.tid, e.what)).collect();
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

    /// A mutex spins first and sleeps then: one wait, from the first of the two.
    #[test]
    fn a_mutex_that_spun_in_vain() {
        let mut locks = Locks::default();
        locks.begin(who(100, 1), 0xa, 32 | 1, 7);
        locks.begin(who(200, 1), 0xa, 32, 7);
        locks.end(who(300, 1), 0xa, 0);
        let all = locks.finish();
        assert_eq!(all[0].1.totals.waited_nanos, 200);
        assert_eq!(all[0].1.totals.contentions, 1);
        assert!(all[0].1.by_caller.contains_key(&(7, LockKind::Mutex)));
    }

    #[test]
    fn events_are_bounded_and_totals_are_not() {
        let mut locks = Locks::default();
        for n in 0..10_000 {
            locks.begin(who(n * 10, 1), 0xa, 1, 7);
            locks.end(who(n * 10 + 5, 1), 0xa, 0);
        }
        let all = locks.finish();
        assert_eq!(all[0].1.totals.contentions, 10_000);
        assert_eq!(all[0].1.events.len(), EVENTS_A_LOCK);
        assert_eq!(all[0].1.events_seen, 20_000);
        assert_eq!(all[0].1.events.back().unwrap().nanos, 99_995);
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
