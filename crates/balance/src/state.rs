//! Knowledge from earlier scans, and running orders. A value that [`crate::decide`] and [`crate::learn`] change.

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_units::Bytes;
use serde::Serialize;

use crate::component::Component;
use crate::component_state::{ComponentState, OrderFailure, TargetProblem};
use crate::history::{OperationKind, ResizeHistory};

/// A move of memory. Between two components it consists of two successive orders. The second follows only when
/// [`crate::learn`] has received the amount that the first one freed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Move {
    /// The order's number, for [`crate::learn`].
    pub id: u64,
    /// The giver; `None` for free memory.
    pub from: Option<String>,
    /// The receiver; `None` if the target has fallen.
    pub to: Option<String>,
    /// The order to execute now.
    pub order: Order,
    /// Reason with its numbers.
    pub why: String,
}

/// An order to resize one component.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Order {
    /// Name of the component.
    pub component: String,
    /// Direction of the resize.
    pub kind: OperationKind,
    /// Size before the resize.
    #[serde(rename = "before_bytes")]
    pub before: Bytes,
    /// Size after the resize.
    #[serde(rename = "goal_bytes")]
    pub goal: Bytes,
}

impl Order {
    /// Returns the amount of the change.
    pub fn by(&self) -> Bytes {
        let (smaller, larger) = self.bounds();
        larger - smaller
    }

    /// Returns the smaller and the larger of both sizes.
    pub(crate) fn bounds(&self) -> (Bytes, Bytes) {
        (self.before.min(self.goal), self.before.max(self.goal))
    }
}

/// Reason of a move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MoveCause {
    /// Its gain exceeds its loss.
    Benefit,
    /// Its gain is unknown.
    Try,
    /// An earlier move missed its expected gain.
    TakenBack,
    /// The target has fallen.
    Target,
    /// A component has less than its minimum.
    Need,
}

/// A move from its first order until its judgement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannedMove {
    pub from: Option<String>,
    pub to: Option<String>,
    pub cause: MoveCause,
    /// Memory taken from the giver.
    pub taken: Bytes,
    /// Expected gain, in seconds per second and byte given.
    pub expected: f64,
    pub why: String,
}

impl PlannedMove {
    pub fn concerns(&self, name: &str) -> bool {
        [&self.from, &self.to]
            .into_iter()
            .flatten()
            .any(|n| n == name)
    }
}

/// An order without an answer so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpenOrder {
    pub id: u64,
    pub plan: PlannedMove,
    pub order: Order,
    /// Memory that the component counted as before.
    pub held: Bytes,
    pub since: Duration,
    /// True after a missing answer, which nothing waits for any more.
    pub abandoned: bool,
}

impl OpenOrder {
    /// Returns the maximum memory of the component, which it counts as until its answer.
    pub fn committed(&self, held: Bytes) -> Bytes {
        match (self.order.kind, self.abandoned) {
            (OperationKind::Grow, _) => held.max(self.held + self.order.by()),
            (OperationKind::Shrink, false) => held.max(self.held),
            (OperationKind::Shrink, true) => held,
        }
    }

    /// Returns its memory if it obeys the order.
    pub fn planned(&self, held: Bytes) -> Bytes {
        match (self.order.kind, self.abandoned) {
            (OperationKind::Shrink, false) => self.held - self.order.by(),
            _ => self.committed(held),
        }
    }
}

/// Freed memory, reserved for a receiver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReservedGrant {
    pub plan: PlannedMove,
    pub bytes: Bytes,
}

/// A move to be judged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PendingMoveCheck {
    pub plan: PlannedMove,
    pub given: Bytes,
    pub due: Duration,
}

/// A wait that grows with each failure; failures are gradually forgotten after a long time without one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct BackOff {
    pub failures: u32,
    pub until: Duration,
    wait: Duration,
}

impl BackOff {
    /// Multiples of the current and of the first wait without a failure after which half of the failures are forgotten.
    /// A complete reset would let a load provoke failures at short intervals.
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

    /// Repeats the last wait.
    pub fn again(&mut self, now: Duration) {
        self.until = now.saturating_add(self.wait);
    }

    pub fn waits(&self, now: Duration) -> bool {
        now < self.until
    }
}

/// A size set by hand, outside the policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ManualSize {
    pub from: Bytes,
    pub to: Bytes,
    pub until: Duration,
}

/// The last resize of a component for its benefit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LastResize {
    pub kind: OperationKind,
    pub bytes: Bytes,
    pub at: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrackedComponent {
    /// Memory that it counts as.
    pub held: Bytes,
    /// The size by its last order; another size was set by hand.
    pub expected: Bytes,
    pub flight: Option<OpenOrder>,
    pub by_hand: Option<ManualSize>,
    pub trouble: Option<OrderFailure>,
    /// True if the trouble came from growth. Otherwise it came from shrinking, and the component may still grow.
    pub failed_to_grow: bool,
    pub back_off: BackOff,
    /// Wait between tries with unknown gain.
    pub tries: BackOff,
    /// Its total loss at the last try.
    pub tried_at: f64,
    pub stride: Option<LastResize>,
    pub standing: ComponentState,
    /// The smallest and the largest size seen.
    pub smallest: Bytes,
    pub largest: Bytes,
    pub operations: u64,
}

impl TrackedComponent {
    pub fn new(component: &Component) -> TrackedComponent {
        TrackedComponent {
            held: component.held(),
            expected: component.size,
            flight: None,
            by_hand: None,
            trouble: None,
            failed_to_grow: false,
            back_off: BackOff::default(),
            tries: BackOff::default(),
            tried_at: 0.0,
            stride: None,
            standing: ComponentState::Ready,
            smallest: component.size,
            largest: component.size,
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

pub(crate) type ComponentPair = (Option<String>, String);

/// History of moves from one component to another.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct MoveHistory {
    /// Time since when a move looks worthwhile.
    pub since: Option<Duration>,
    /// Wait after wrong moves.
    pub back_off: BackOff,
    /// Start of the last move.
    pub last: Option<Duration>,
    /// Size of the last reverted move; doubled after each correct one.
    pub failed: Bytes,
}

/// Knowledge from earlier scans. Start with [`State::default`], and pass the same value in each scan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    pub(crate) tracks: BTreeMap<String, TrackedComponent>,
    pub(crate) pairs: BTreeMap<ComponentPair, MoveHistory>,
    pub(crate) grants: Vec<ReservedGrant>,
    pub(crate) checks: Vec<PendingMoveCheck>,
    pub(crate) target: Bytes,
    pub(crate) allowed: f64,
    pub(crate) last_look: Option<Duration>,
    pub(crate) last_id: u64,
    pub(crate) history: ResizeHistory,
    pub(crate) problem: Option<TargetProblem>,
    pub(crate) taken_back: u64,
}

impl State {
    /// Returns the history of resizes.
    pub fn history(&self) -> &ResizeHistory {
        &self.history
    }

    /// Returns the problem of all components together, as of the last scan.
    pub fn problem(&self) -> Option<&TargetProblem> {
        self.problem.as_ref()
    }

    /// Returns the state of each component, as of the last scan.
    pub fn standings(&self) -> impl Iterator<Item = (&str, &ComponentState)> {
        let tracks = self.tracks.iter();
        tracks.map(|(name, track)| (name.as_str(), &track.standing))
    }

    /// Returns the number of reverted moves.
    pub fn taken_back(&self) -> u64 {
        self.taken_back
    }

    /// Returns free memory, including freed memory that the next scan will give.
    pub fn free(&self) -> Bytes {
        let committed: Bytes = self.tracks.values().map(TrackedComponent::committed).sum();
        self.target - committed
    }

    pub(crate) fn pair(&mut self, from: Option<&str>, to: &str) -> &mut MoveHistory {
        let name = (from.map(str::to_owned), to.to_owned());
        self.pairs.entry(name).or_default()
    }

    /// Cancels follow-up work of this component's moves.
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
