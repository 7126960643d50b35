//! What is known from earlier looks, and what is under way. A value that [`crate::decide`] and [`crate::learn`] change.

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_units::Bytes;
use serde::Serialize;

use crate::component::{Component, Granule};
use crate::history::{History, OperationKind};
use crate::standing::{Problem, Standing, Trouble};

/// Memory on its way. It is two orders, one after the other, where one component gives and another gets: the second
/// one is made only once [`crate::learn`] has heard how much the first one freed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Move {
    /// The order's number, for [`crate::learn`].
    pub id: u64,
    /// Who gives; `None`: memory that nobody has.
    pub from: Option<String>,
    /// Who gets; `None`: nobody, the target has fallen.
    pub to: Option<String>,
    /// What is to be done now.
    pub order: Order,
    /// Why, with the numbers.
    pub why: String,
}

/// One component is to be resized.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Order {
    /// Which.
    pub component: String,
    /// Which way.
    pub kind: OperationKind,
    /// From this size.
    #[serde(rename = "before_bytes")]
    pub before: Bytes,
    /// To this one.
    #[serde(rename = "goal_bytes")]
    pub goal: Bytes,
}

impl Order {
    /// By how much the component is to change.
    pub fn by(&self) -> Bytes {
        let (smaller, larger) = self.bounds();
        larger - smaller
    }

    /// The smaller and the larger of both sizes.
    pub(crate) fn bounds(&self) -> (Bytes, Bytes) {
        (self.before.min(self.goal), self.before.max(self.goal))
    }
}

/// What a move is made for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Cause {
    /// It brings more than it costs.
    Benefit,
    /// What it brings is unknown.
    Try,
    /// It did not bring what was expected.
    TakenBack,
    /// The target has fallen.
    Target,
    /// Somebody has less than its least.
    Need,
}

/// A move from its first order until it is judged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub from: Option<String>,
    pub to: Option<String>,
    pub cause: Cause,
    /// What is taken.
    pub taken: Bytes,
    /// What it should bring, in seconds a second per byte that is given.
    pub expected: f64,
    pub why: String,
}

impl Plan {
    pub fn concerns(&self, name: &str) -> bool {
        [&self.from, &self.to]
            .into_iter()
            .flatten()
            .any(|n| n == name)
    }
}

/// An order that was not answered yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Flight {
    pub id: u64,
    pub plan: Plan,
    pub order: Order,
    /// What the component counted as before.
    pub held: Bytes,
    pub since: Duration,
    /// There was no answer in time: nobody waits for it any more.
    pub abandoned: bool,
}

impl Flight {
    /// What the component has to be counted as until it answers: what it may hold at most.
    pub fn committed(&self, held: Bytes) -> Bytes {
        match (self.order.kind, self.abandoned) {
            (OperationKind::Grow, _) => held.max(self.held + self.order.by()),
            (OperationKind::Shrink, false) => held.max(self.held),
            (OperationKind::Shrink, true) => held,
        }
    }

    /// What it will be if it does as it is asked.
    pub fn planned(&self, held: Bytes) -> Bytes {
        match (self.order.kind, self.abandoned) {
            (OperationKind::Shrink, false) => self.held - self.order.by(),
            _ => self.committed(held),
        }
    }
}

/// Memory that was freed for somebody.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grant {
    pub plan: Plan,
    pub bytes: Bytes,
}

/// A move that is to be judged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Check {
    pub plan: Plan,
    pub given: Bytes,
    pub due: Duration,
}

/// Waits longer after each failure; failures are forgotten when there was none for a long while.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct BackOff {
    pub failures: u32,
    pub until: Duration,
    wait: Duration,
}

impl BackOff {
    /// After so many waits, and so many of the first wait, without a failure half of them are forgotten: whoever makes
    /// moves fail on purpose would otherwise do so again and again after a short wait.
    const FORGIVEN: (u32, u32) = (4, 32);

    pub fn failed(&mut self, now: Duration, (first, longest): (Duration, Duration)) {
        let quiet = now.saturating_sub(self.until);
        let (waits, firsts) = BackOff::FORGIVEN;
        if quiet > self.wait.saturating_mul(waits) && quiet > first.saturating_mul(firsts) {
            self.failures /= 2;
        }
        let wait = first.saturating_mul(2u32.saturating_pow(self.failures.min(20)));
        self.wait = wait.min(longest);
        self.failures = self.failures.saturating_add(1);
        self.until = now.saturating_add(self.wait);
    }

    /// Waits as long as the last time.
    pub fn again(&mut self, now: Duration) {
        self.until = now.saturating_add(self.wait);
    }

    pub fn waits(&self, now: Duration) -> bool {
        now < self.until
    }
}

/// A size that somebody else set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ByHand {
    pub from: Bytes,
    pub to: Bytes,
    pub until: Duration,
}

/// The last resize that a component got for its benefit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stride {
    pub kind: OperationKind,
    pub bytes: Bytes,
    pub at: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Track {
    pub granule: Granule,
    /// What it counts as.
    pub held: Bytes,
    /// The size that it should have; another one was set by somebody else.
    pub expected: Bytes,
    pub flight: Option<Flight>,
    pub by_hand: Option<ByHand>,
    pub trouble: Option<Trouble>,
    /// It was asked to grow when that came; else to shrink, and it may still grow.
    pub failed_to_grow: bool,
    pub back_off: BackOff,
    /// Of tries of what is unknown of it.
    pub tries: BackOff,
    /// What it lost altogether when it was tried last.
    pub tried_at: f64,
    pub stride: Option<Stride>,
    pub standing: Standing,
    /// The smallest and the largest size that was seen.
    pub smallest: Bytes,
    pub largest: Bytes,
    pub operations: u64,
}

impl Track {
    pub fn new(component: &Component) -> Track {
        Track {
            granule: component.granule,
            held: component.held(),
            expected: component.now,
            flight: None,
            by_hand: None,
            trouble: None,
            failed_to_grow: false,
            back_off: BackOff::default(),
            tries: BackOff::default(),
            tried_at: 0.0,
            stride: None,
            standing: Standing::Ready,
            smallest: component.now,
            largest: component.now,
            operations: 0,
        }
    }

    pub fn committed(&self) -> Bytes {
        let flight = self.flight.as_ref();
        flight.map_or(self.held, |f| f.committed(self.held))
    }

    pub fn planned(&self) -> Bytes {
        let flight = self.flight.as_ref();
        flight.map_or(self.held, |f| f.planned(self.held))
    }
}

pub(crate) type PairName = (Option<String>, String);

/// What is known of moves from one component to another.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Pair {
    /// Since when a move looks worth it.
    pub since: Option<Duration>,
    /// After moves that were wrong.
    pub back_off: BackOff,
    /// When the last one began.
    pub last: Option<Duration>,
    /// What the last one gave that was taken back; twice as much after each one that was right.
    pub failed: Bytes,
}

/// What is known from earlier looks: [`State::default`], then the same one for each look.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    pub(crate) tracks: BTreeMap<String, Track>,
    pub(crate) pairs: BTreeMap<PairName, Pair>,
    pub(crate) grants: Vec<Grant>,
    pub(crate) checks: Vec<Check>,
    pub(crate) target: Bytes,
    pub(crate) allowed: f64,
    pub(crate) last_look: Option<Duration>,
    pub(crate) last_id: u64,
    pub(crate) history: History,
    pub(crate) problem: Option<Problem>,
    pub(crate) taken_back: u64,
}

impl State {
    /// What was resized.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What is wrong with all components together, as of the last look.
    pub fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// Where each component stands, as of the last look.
    pub fn standings(&self) -> impl Iterator<Item = (&str, &Standing)> {
        let tracks = self.tracks.iter();
        tracks.map(|(name, track)| (name.as_str(), &track.standing))
    }

    /// How many moves were taken back so far.
    pub fn taken_back(&self) -> u64 {
        self.taken_back
    }

    /// What nobody has: also what was freed for somebody, until the next look gives it.
    pub fn free(&self) -> Bytes {
        let committed: Bytes = self.tracks.values().map(Track::committed).sum();
        self.target - committed
    }

    pub(crate) fn pair(&mut self, from: Option<&str>, to: &str) -> &mut Pair {
        let name = (from.map(str::to_owned), to.to_owned());
        self.pairs.entry(name).or_default()
    }

    /// Nothing is to follow from moves of this component.
    pub(crate) fn drop_moves_of(&mut self, name: &str) {
        self.grants.retain(|grant| !grant.plan.concerns(name));
        self.checks.retain(|check| !check.plan.concerns(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_are_forgotten_after_a_quiet_while() {
        let times = (Duration::from_secs(10), Duration::from_secs(60));
        let mut back_off = BackOff::default();
        let mut now = Duration::from_secs(100);
        let mut waits = Vec::new();
        for _ in 0..5 {
            back_off.failed(now, times);
            waits.push((back_off.until - now).as_secs());
            now = back_off.until;
        }
        assert_eq!(waits, [10, 20, 40, 60, 60]);
        back_off.failed(now + Duration::from_secs(1000), times);
        assert_eq!(back_off.failures, 3);
    }
}
