//! Proposes moves between components and their sizes, from the benefit of a granule to each. [`crate::policy`] decides
//! which of them are made.

use std::time::Duration;

use hugeleaf_units::Bytes;

use crate::component::{Component, Estimate};
use crate::history::OperationKind;
use crate::settings::Settings;
use crate::state::{LastResize, State, TrackedComponent};

/// Maximum growth of a step relative to the previous one in the same direction.
const LONGER: u64 = 4;
/// Divisor for steps after one that was too long, for a while, because the limit is near.
const SHORTER: u64 = 8;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProposedMove<'a> {
    /// The giver; `None` for free memory.
    pub from: Option<&'a Component>,
    pub to: &'a Component,
    pub taken: Bytes,
    pub given: Bytes,
    /// Lower bound of the gain, in seconds per second.
    pub gain: f64,
    /// Upper bound of the loss, in seconds per second.
    pub loss: f64,
}

impl ProposedMove<'_> {
    /// Returns the net gain per byte given.
    pub fn score(&self) -> f64 {
        (self.gain - self.loss) / self.given.as_f64()
    }

    pub fn why(&self) -> String {
        let ProposedMove { to, given, .. } = self;
        let gains = format!("{} gains {:.6} s/s from {given} more", to.name, self.gain);
        match self.from {
            None => format!("{gains}, taken from free memory"),
            Some(from) => format!(
                "{gains}, {} loses {:.6} s/s from {} less",
                from.name, self.loss, self.taken
            ),
        }
    }
}

/// Returns all worthwhile moves, best first; those of free memory precede the others.
pub(crate) fn bids<'a>(
    settings: &Settings,
    state: &State,
    components: &'a [Component],
    now: Duration,
) -> Vec<ProposedMove<'a>> {
    let free = state.free();
    let mut all = Vec::new();
    for to in components.iter().filter(|to| gain_of(to) > 0.0) {
        let Some(most) = most_given(settings, state, to, now) else {
            continue;
        };
        all.extend(of_free(to, most.min(free)));
        let others = components.iter().filter(|from| from.name != to.name);
        all.extend(others.filter_map(|from| {
            let tracked = state.tracks.get(&from.name)?;
            let least = most_taken(settings, tracked, from, now)?;
            let most = most.min(after_failure(settings, state, (from, to), now));
            between(from, to, most, least)
        }));
    }
    all.retain(|bid| is_worth_it(settings, bid));
    all.sort_by(|a, b| {
        let free_first = a.from.is_some().cmp(&b.from.is_some());
        free_first.then(b.score().total_cmp(&a.score()))
    });
    all
}

fn is_worth_it(settings: &Settings, bid: &ProposedMove<'_>) -> bool {
    let net = bid.gain - bid.loss;
    net >= settings.least_worth && bid.gain > bid.loss * (1.0 + settings.margin.max(0.0))
}

fn gain_of(component: &Component) -> f64 {
    let more = component.benefit.more;
    more.as_ref().map_or(0.0, Estimate::low)
}

/// Returns a lower bound of the gain by growth, limited to the total loss if known. A slope holds for a few granules.
/// Over many it predicts more saved misses than exist.
fn gain_by(to: &Component, given: Bytes) -> f64 {
    let gain = gain_of(to) * to.granule.count(given);
    let pressure = to.benefit.pressure;
    if pressure > 0.0 {
        gain.min(pressure)
    } else {
        gain
    }
}

/// Returns an upper bound of the loss; 0 if it is unknown (then only one granule is tried).
pub(crate) fn loss_of(component: &Component, taken: Bytes) -> f64 {
    let less = component.benefit.less;
    less.as_ref().map_or(0.0, Estimate::high) * component.granule.count(taken)
}

/// Returns a move of free memory.
fn of_free(to: &Component, most: Bytes) -> Option<ProposedMove<'_>> {
    let given = to.granule.round_down(most.min(to.room()));
    (!given.is_zero()).then(|| ProposedMove {
        from: None,
        to,
        taken: given,
        given,
        gain: gain_by(to, given),
        loss: 0.0,
    })
}

/// Returns a move between two components. If granules differ, enough is taken for one granule of the receiver. Of the
/// taken memory as much is given as the receiver may have.
fn between<'a>(
    from: &'a Component,
    to: &'a Component,
    most: Bytes,
    least: Bytes,
) -> Option<ProposedMove<'a>> {
    let wanted = to
        .granule
        .round_down(most.min(least))
        .max(to.granule.bytes());
    let taken = from.granule.round_up(wanted).min(from.surplus());
    let given = to.granule.round_down(taken).min(to.room());
    (!given.is_zero() && !taken.is_zero()).then(|| ProposedMove {
        from: Some(from),
        to,
        taken,
        given,
        gain: gain_by(to, given),
        loss: loss_of(from, taken),
    })
}

/// Returns the maximum growth. A first step is one granule. Steps in the same direction grow, because the distance to
/// the best size is unknown. A step in the other direction is half as long as the last, because the best size lies
/// between.
fn most_given(settings: &Settings, state: &State, to: &Component, now: Duration) -> Option<Bytes> {
    let track = state.tracks.get(&to.name)?;
    let granule = to.granule.bytes();
    let most = match recent(settings, track, now) {
        None => granule,
        Some(last) if last.kind == OperationKind::Grow => last.bytes * LONGER,
        Some(last) => Bytes(last.bytes.get() / 2),
    };
    Some(most.max(granule).min(to.room())).filter(|most| !most.is_zero())
}

/// Returns the maximum to take at once: a part of its size, and half of its last growth. If the cost is unknown, it is
/// one granule, and only rarely.
fn most_taken(
    settings: &Settings,
    track: &TrackedComponent,
    from: &Component,
    now: Duration,
) -> Option<Bytes> {
    let granule = from.granule.bytes();
    if from.benefit.less.is_none() {
        let may = !track.tries.waits(now) && !from.surplus().is_zero();
        return may.then_some(granule);
    }
    let part = Bytes(from.size.get() / settings.largest_part.max(1));
    let most = match recent(settings, track, now) {
        Some(last) if last.kind == OperationKind::Grow => part.min(Bytes(last.bytes.get() / 2)),
        _ => part,
    };
    Some(most.max(granule).min(from.surplus())).filter(|most| !most.is_zero())
}

/// Returns the maximum move between two components after a recent wrong move.
fn after_failure(
    settings: &Settings,
    state: &State,
    (from, to): (&Component, &Component),
    now: Duration,
) -> Bytes {
    let name = (Some(from.name.clone()), to.name.clone());
    let pair = state.pairs.get(&name).filter(|pair| {
        let quiet = now.saturating_sub(pair.back_off.until);
        !pair.failed.is_zero() && quiet <= settings.reversal
    });
    pair.map_or(Bytes(u64::MAX), |pair| Bytes(pair.failed.get() / SHORTER))
}

/// Returns the last step, while it is relevant for the next.
fn recent(settings: &Settings, track: &TrackedComponent, now: Duration) -> Option<LastResize> {
    let is_recent = |s: &LastResize| now.saturating_sub(s.at) <= settings.reversal;
    track.stride.filter(is_recent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::{Benefit, Granule};

    /// Seen with two MariaDBs: the slope at 248M, extrapolated over 360M, predicted three times all its misses. Judged
    /// by that, a correct move was reverted.
    #[test]
    fn no_more_is_promised_than_all_that_is_lost() {
        let granule = Granule::new(Bytes::from_mib(24)).unwrap();
        let worth = |value| {
            Some(Estimate {
                value,
                error: 0.0,
                samples: 1e4,
            })
        };
        let component = |name: &str, now, more, pressure| Component {
            name: name.into(),
            min: Bytes::from_mib(120),
            max: Bytes::from_mib(888),
            size: Bytes::from_mib(now),
            measured: None,
            granule,
            resizable: true,
            benefit: Benefit {
                more: worth(more),
                less: worth(0.02),
                pressure,
            },
        };
        let from = component("a", 744, 0.02, 0.3);
        let gain = |pressure| {
            let to = component("b", 240, 0.1, pressure);
            let bid = between(&from, &to, Bytes::from_mib(360), Bytes::from_mib(360)).unwrap();
            assert_eq!(bid.given, Bytes::from_mib(360));
            bid.gain
        };
        assert!((gain(0.65) - 0.65).abs() < 1e-9);
        // The slope alone, if the component reports no pressure.
        assert!((gain(0.0) - 1.5).abs() < 1e-9);
    }
}
