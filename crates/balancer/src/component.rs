//! One component of a target: the server's state, its size, and the benefit of memory to it. Pure: reports come in with
//! their times.

use std::collections::VecDeque;
use std::time::Duration;

use hugeleaf_balance::{
    Benefit, Component, Estimate, Granule, MissRateModel, OperationKind, OrderResult,
};
use hugeleaf_units::Bytes;

use crate::config::BalancedServer;
use crate::process::ProcessSeen;
use crate::server::{CacheCounts, ServerState};
use hugeleaf_ask::QueryError;
use hugeleaf_host::ForkTreeId;

/// Time without an answer, at least three scans, after which a server is unreachable.
const SILENCE: Duration = Duration::from_secs(10);
/// Time after which a sudden growth of a process by more than a granule counts as overhead, and no longer as memory that it
/// did not return.
const JUMP: Duration = Duration::from_secs(60);
/// Time for the size to change after the server reports a resize as complete.
const GRACE: Duration = Duration::from_secs(5);
/// Divisor of the size for the growth in use between two scans above which a cache is filling.
const FILLS_PART: u64 = 200;
/// Longest time after a reduction in which a filling server is assumed to read lost data again.
const REFILL: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Time for which a whole granule must be unused before it has no benefit.
const UNUSED: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Default)]
pub struct WorkerReport {
    pub seen: Option<(Duration, ServerState, Option<ProcessSeen>)>,
    pub trouble: Option<String>,
    /// Result of an order's call.
    pub answer: Option<(u64, Result<(), QueryError>)>,
}

#[derive(Debug, Clone)]
pub(crate) struct PendingResize {
    pub id: u64,
    pub kind: OperationKind,
    pub before: Bytes,
    pub goal: Bytes,
    pub since: Duration,
    /// Memory of its process, and the part of its size certainly in use, if reported.
    pub held: Option<(Bytes, Bytes)>,
    /// The size that it was given again because its memory was not returned, and the time.
    pub back: Option<(Bytes, Duration)>,
}

/// Next action after an observation of an order.
#[derive(Debug, PartialEq)]
pub(crate) enum ResizeFollowUp {
    Wait,
    Over(OrderResult),
    /// Its memory was not returned, so it may use this size again.
    SetBack(Bytes),
}

pub(crate) struct ServerComponent {
    pub member: BalancedServer,
    pub granule: Granule,
    every: Duration,
    counters: MissRateModel,
    counted: Option<(Duration, CacheCounts)>,
    pub seen: Option<(Duration, ServerState)>,
    pub process: Option<ProcessSeen>,
    /// True if its process was found at the last observation.
    located: bool,
    pub trouble: Option<String>,
    pub overhead: Bytes,
    /// Upper bound of `overhead`, from the memory in use.
    overhead_most: Option<Bytes>,
    jumped: Option<Duration>,
    pub order: Option<PendingResize>,
    used: Bytes,
    fills: bool,
    /// True if less than a granule of it is unused, or if it does not report its use.
    is_full: bool,
    unused_since: Option<Duration>,
    shrunk: Option<Duration>,
    /// Data that resizes may have evicted, and the times.
    evicted: VecDeque<(Duration, Bytes)>,
}

impl ServerComponent {
    pub fn new(member: BalancedServer, granule: Granule, every: Duration) -> ServerComponent {
        let counters = MissRateModel::new(granule, member.miss.as_secs_f64());
        ServerComponent {
            member,
            granule,
            every,
            counters,
            counted: None,
            seen: None,
            process: None,
            located: false,
            trouble: None,
            overhead: Bytes::ZERO,
            overhead_most: None,
            jumped: None,
            order: None,
            used: Bytes::ZERO,
            fills: false,
            is_full: true,
            unused_since: None,
            shrunk: None,
            evicted: VecDeque::new(),
        }
    }

    /// Applies a report of its thread. Returns the new process's id if the process changed.
    pub fn observe(&mut self, report: &WorkerReport, now: Duration) -> Option<ForkTreeId> {
        self.trouble.clone_from(&report.trouble);
        let (at, look, process) = report.seen.as_ref()?;
        if self.seen.as_ref().is_some_and(|(last, _)| last == at) {
            return None;
        }
        let was = self.process.as_ref().map(|process| process.id);
        let is = process.as_ref().map(|process| process.id);
        let restarted = is.filter(|id| was.is_some_and(|was| was != *id));
        if restarted.is_some() {
            let evicted = std::mem::take(&mut self.evicted);
            *self = ServerComponent::new(self.member.clone(), self.granule, self.every);
            self.evicted = evicted;
        }
        // The process's last state is kept while no process is found.
        self.process = process.clone().or_else(|| self.process.take());
        self.located = process.is_some();
        self.granule = self.fit(look.granule);
        self.fill(look, *at);
        self.count(look, *at);
        self.seen = Some((*at, look.clone()));
        if self.located {
            self.weigh(now);
        }
        restarted
    }

    /// Returns the policy's granule: a multiple of the server's resize step.
    fn fit(&mut self, server: Bytes) -> Granule {
        let Ok(server) = Granule::new(server) else {
            return self.granule;
        };
        let fits = Granule::new(server.round_up(self.granule.bytes())).unwrap_or(self.granule);
        if fits != self.granule {
            self.counters = MissRateModel::new(fits, self.member.miss.as_secs_f64());
            self.counted = None;
        }
        fits
    }

    /// Determines if the memory in use still grows, and since when a granule is unused.
    fn fill(&mut self, look: &ServerState, at: Duration) {
        let Some(used) = look.used else { return };
        let grown = used - self.used;
        self.fills = grown > Bytes(look.size.get() / FILLS_PART) && used < look.size;
        self.used = used;
        self.is_full = used + self.granule.bytes() > look.size;
        let has_room = !self.is_full && !self.fills;
        self.unused_since = has_room.then(|| self.unused_since.unwrap_or(at));
    }

    fn count(&mut self, look: &ServerState, at: Duration) {
        let Some(counts) = look.counts else { return };
        let before = self.counted.replace((at, counts));
        let Some((then, before)) = before else { return };
        let elapsed = at.saturating_sub(then);
        let is_same = self.size() == Some(look.size);
        // Counters that fell were reset.
        let operations = counts.operations.checked_sub(before.operations);
        let misses = counts.misses.checked_sub(before.misses);
        match operations.zip(misses).filter(|_| self.order.is_none()) {
            // A cache that is not full misses data that it never held, independent of its size.
            Some((operations, misses)) if self.fills || !self.is_full => {
                (self.counters).observe_unfilled(operations, misses, elapsed);
            }
            Some((operations, misses)) if is_same => {
                (self.counters).observe(look.size, operations, misses, elapsed);
            }
            _ => self.counters.skip(elapsed),
        }
    }

    /// Determines the overhead: resident memory independent of the size.
    fn weigh(&mut self, now: Duration) {
        let Some((size, resident)) = self.size().zip(self.resident()) else {
            return;
        };
        let lower = resident - size;
        if let Some((_, look)) = &self.seen
            && let Some(used) = look.used
        {
            let upper = resident - used.min(size);
            let most = self.overhead_most.map_or(upper, |most| most.min(upper));
            self.overhead_most = Some(most);
        }
        if self.order.is_some() {
            return;
        }
        let found = self.overhead_most.unwrap_or(lower).max(lower);
        let is_known = !self.overhead.is_zero();
        let jumps = is_known && lower > self.overhead + self.granule.bytes();
        let since = *self.jumped.get_or_insert(now);
        if !jumps || now.saturating_sub(since) >= JUMP {
            self.overhead = found;
            self.jumped = None;
        }
    }

    pub fn size(&self) -> Option<Bytes> {
        self.seen.as_ref().map(|(_, look)| look.size)
    }

    pub fn resident(&self) -> Option<Bytes> {
        self.process.as_ref().map(|process| process.resident)
    }

    /// Returns its maximum memory; for an unknown component its minimum.
    pub fn reserved(&self) -> Bytes {
        match self.size() {
            Some(size) => size.max(self.measured().unwrap_or_default()) + self.overhead,
            None => self.member.least,
        }
    }

    /// Returns the measured memory for its size: the size plus whole granules above it.
    fn measured(&self) -> Option<Bytes> {
        let (size, resident) = self.size().zip(self.resident())?;
        let above = resident - self.overhead - size;
        Some(size + self.granule.round_down(above))
    }

    pub fn unfilled(&self) -> Bytes {
        self.reserved() - self.resident().unwrap_or_default()
    }

    pub fn limits(&self) -> &[(String, Bytes)] {
        self.process.as_ref().map_or(&[], |process| &process.limits)
    }

    pub fn is_new(&self, now: Duration) -> bool {
        self.seen.is_none() && self.trouble.is_none() && now < SILENCE
    }

    pub fn reason(&self, now: Duration) -> Option<String> {
        let Some((at, look)) = &self.seen else {
            let why = self.trouble.as_deref().unwrap_or("no answer yet");
            return Some(format!(
                "not reached yet ({why}); its minimum stays reserved, and unused memory is not distributed"
            ));
        };
        let silent = now.saturating_sub(*at);
        if silent > SILENCE.max(self.every * 3) {
            let why = self
                .trouble
                .as_deref()
                .unwrap_or("the call has not returned");
            return Some(format!(
                "no answer for {:.0} s ({why}); its memory stays reserved",
                silent.as_secs_f64()
            ));
        }
        if let Some(fixed) = &look.fixed {
            return Some(fixed.clone());
        }
        if !self.located {
            let names = self.member.kind.processes.join(" or ");
            return Some(format!(
                "its process ({names}) was not found on this host, so its memory cannot be measured; run as root on the server's host"
            ));
        }
        look.busy.clone()
    }

    /// Returns the policy's view; `None` if it was never seen. Under memory pressure no component may grow.
    pub fn component(&self, is_short: bool, now: Duration) -> Option<Component> {
        let (_, look) = self.seen.as_ref()?;
        let size = look.size;
        let least = (self.member.least)
            .max(look.floor.min(self.member.most))
            .max(self.least_evicted(now));
        let most = self
            .member
            .most
            .min(look.ceiling.unwrap_or(self.member.most));
        let room = self.limits().iter().map(|(_, room)| *room).min();
        let most = room.map_or(most, |room| most.min(size + (room - self.unfilled())));
        Some(Component {
            name: self.member.name.clone(),
            min: least,
            max: if is_short { size.min(most) } else { most },
            size,
            measured: self.measured(),
            granule: self.granule,
            resizable: self.order.is_some() || self.reason(now).is_none(),
            benefit: match is_short {
                true => Benefit::default(),
                false => self.benefit(now),
            },
        })
    }

    pub fn benefit(&self, now: Duration) -> Benefit {
        if self.seen.is_none() {
            return Benefit::default();
        }
        let sure = |value| {
            Some(Estimate {
                value,
                error: 0.0,
                samples: 1.0,
            })
        };
        let unused = self.unused_since;
        if unused.is_some_and(|since| now.saturating_sub(since) >= UNUSED) {
            return Benefit {
                more: sure(0.0),
                less: sure(0.0),
                pressure: 0.0,
            };
        }
        let benefit = self.counters.benefit();
        let shrunk = self
            .shrunk
            .is_some_and(|at| now.saturating_sub(at) < REFILL);
        if !(shrunk && self.fills) {
            return benefit;
        }
        // It lost more than was removed, and reads it again. A further loss could be all that it holds.
        let held = self
            .granule
            .count(self.granule.round_up(self.used))
            .max(1.0);
        Benefit {
            less: sure(self.counters.loss_of_all() / held),
            ..benefit
        }
    }

    /// Returns the data that may be evicted now within its hourly limit.
    pub fn may_evict(&self, now: Duration) -> Bytes {
        let recent = self.evicted.iter();
        let recent = recent.filter(|(at, _)| now.saturating_sub(*at) < HOUR);
        self.member.evict_per_hour - recent.map(|(_, bytes)| *bytes).sum()
    }

    /// Returns true if a resize can evict some of its data.
    pub fn is_evicting(&self) -> bool {
        let look = self.seen.as_ref().map(|(_, look)| look);
        self.member.kind.evicts && look.is_some_and(|look| look.floor.is_zero())
    }

    /// Returns the maximum data that it evicts when set to a size.
    pub fn evicts(&self, to: Bytes) -> Bytes {
        let used = self.seen.as_ref().and_then(|(_, look)| look.used);
        match self.is_evicting() {
            true => used.unwrap_or_default() - to,
            false => Bytes::ZERO,
        }
    }

    /// Returns the size below which it would evict more than allowed.
    fn least_evicted(&self, now: Duration) -> Bytes {
        let size = self.size().unwrap_or_default();
        (self.evicts(Bytes::ZERO) - self.may_evict(now)).min(size)
    }

    /// Records the beginning of an order.
    pub fn begin(&mut self, order: PendingResize, now: Duration) {
        let evicts = self.evicts(order.goal);
        if order.kind == OperationKind::Shrink && !evicts.is_zero() {
            self.evicted
                .retain(|(at, _)| now.saturating_sub(*at) < HOUR);
            self.evicted.push_back((now, evicts));
        }
        let look = self.seen.as_ref().map(|(_, look)| look);
        let used = look.and_then(|look| look.used);
        self.order = Some(PendingResize {
            held: self.resident().zip(used),
            ..order
        });
    }

    pub fn outcome(&mut self, report: &WorkerReport, now: Duration) -> ResizeFollowUp {
        let (Some(order), Some((at, look))) = (self.order.clone(), self.seen.clone()) else {
            return ResizeFollowUp::Wait;
        };
        let said = report.answer.as_ref().filter(|(id, _)| *id == order.id);
        let Some((_, answer)) = said.filter(|_| at > order.since) else {
            return ResizeFollowUp::Wait;
        };
        if let Some((size, since)) = order.back {
            return self.came_back(&order, size, &look, now.saturating_sub(since));
        }
        match answer {
            Err(error) if !error.timed_out => {
                return ResizeFollowUp::Over(OrderResult::Refused {
                    why: error.what.clone(),
                });
            }
            // Without an answer it may still make the change.
            Err(_) if look.size == order.before => return ResizeFollowUp::Wait,
            _ => {}
        }
        let waited = now.saturating_sub(order.since);
        let has_changed = match order.kind {
            OperationKind::Grow => look.size >= order.goal,
            OperationKind::Shrink => look.size <= order.goal,
        };
        if look.busy.is_some() || (!has_changed && waited < GRACE) {
            return ResizeFollowUp::Wait;
        }
        if order.kind == OperationKind::Grow {
            return self.over(look.size);
        }
        if look.unmaps || self.has_returned(&order, look.size) {
            self.shrunk = Some(now);
            // Its process's memory above that size never belonged to the cache.
            let above = self.resident().unwrap_or_default() - look.size;
            self.overhead = self.overhead.max(above);
            return self.over(look.size);
        }
        match waited < self.member.kind.returns {
            true => ResizeFollowUp::Wait,
            false => ResizeFollowUp::SetBack(self.still_held(&order)),
        }
    }

    fn over(&self, size: Bytes) -> ResizeFollowUp {
        ResizeFollowUp::Over(OrderResult::Resized {
            now_bytes: size,
            measured_bytes: self.measured(),
        })
    }

    /// Returns true if memory above a size was returned, with less than half a granule left. For a server that reports its
    /// use, a fall of its process's memory by that amount suffices.
    fn has_returned(&self, order: &PendingResize, size: Bytes) -> bool {
        let left = Bytes(self.granule.bytes().get() / 2);
        let resident = self.resident().filter(|_| self.located);
        let is_small = resident.is_some_and(|r| r <= size + self.overhead + left);
        is_small || (self.located && self.unreturned(order).is_some_and(|owed| owed <= left))
    }

    /// Returns the memory in use above the goal of an order, less the fall of its process since; `None` for a server that
    /// does not report its use.
    fn unreturned(&self, order: &PendingResize) -> Option<Bytes> {
        let (held, used) = order.held?;
        Some((used - order.goal) - (held - self.resident()?))
    }

    /// Returns the size, in granules of the order, that covers the memory it still holds.
    fn still_held(&self, order: &PendingResize) -> Bytes {
        let held = self.resident().unwrap_or_default() - self.overhead;
        let kept = self.unreturned(order).unwrap_or(held - order.goal);
        let kept = self.granule.round_up(kept);
        (order.goal + kept).min(order.before)
    }

    fn came_back(
        &self,
        order: &PendingResize,
        size: Bytes,
        look: &ServerState,
        waited: Duration,
    ) -> ResizeFollowUp {
        if look.size != size && waited < GRACE {
            return ResizeFollowUp::Wait;
        }
        if look.size < order.before {
            return self.over(look.size);
        }
        let held = self.resident().unwrap_or_default() - self.overhead;
        ResizeFollowUp::Over(OrderResult::Refused {
            why: format!(
                "it was set to {} but still held {held} after {:.0} s, and was set back to {}",
                order.goal,
                self.member.kind.returns.as_secs_f64(),
                order.before
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::member;

    /// An idle server of 512M misses data that it never held, at any size. If these misses counted, memory would seem
    /// useless to it when its load comes.
    #[test]
    fn misses_of_a_cache_that_is_not_full_say_nothing_of_its_size() {
        let mib = Bytes::from_mib;
        let member = member("b", "memcached");
        let slope = |used: fn(Bytes) -> Bytes| {
            let granule = Granule::new(mib(8)).unwrap();
            let mut part = ServerComponent::new(member.clone(), granule, Duration::from_secs(1));
            let mut counts = CacheCounts::default();
            for second in 0..60 {
                counts.operations += 1000;
                counts.misses += 500;
                let size = if second < 30 { mib(512) } else { mib(256) };
                let look = ServerState {
                    size,
                    used: Some(used(size)),
                    counts: Some(counts),
                    ..ServerState::default()
                };
                let report = WorkerReport {
                    seen: Some((Duration::from_secs(second), look, None)),
                    ..WorkerReport::default()
                };
                part.observe(&report, Duration::from_secs(second));
            }
            part.counters.benefit().more
        };
        assert!(slope(|size| size).is_some());
        assert!(slope(|_| Bytes::from_mib(100)).is_none());
        // Full at one size only.
        assert!(slope(|size| size.min(Bytes::from_mib(256))).is_none());
    }
}
