//! Which component should give to which, and how much: from what a granule more or less brings each. It decides
//! nothing: what of it is done is [`crate::policy`]'s business.

use std::time::Duration;

use hugeleaf_units::Bytes;

use crate::component::{Component, Estimate};
use crate::history::OperationKind;
use crate::settings::Settings;
use crate::state::{State, Stride, Track};

/// A step the same way as the last one is so many times as long at most.
const LONGER: u64 = 4;
/// After a step that was too long others are so many times shorter for a while: whatever was in its way is near.
const SHORTER: u64 = 8;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bid<'a> {
    /// `None`: memory that nobody has.
    pub from: Option<&'a Component>,
    pub to: &'a Component,
    pub taken: Bytes,
    pub given: Bytes,
    /// At least, in seconds a second.
    pub gain: f64,
    /// At most, in seconds a second.
    pub loss: f64,
}

impl Bid<'_> {
    /// What it brings for each byte that is given.
    pub fn score(&self) -> f64 {
        (self.gain - self.loss) / self.given.as_f64()
    }

    pub fn why(&self) -> String {
        let Bid { to, given, .. } = self;
        let gains = format!("{} gains {:.6} s/s by {given} more", to.name, self.gain);
        match self.from {
            None => format!("{gains}, of memory that nobody has"),
            Some(from) => format!(
                "{gains}, {} loses {:.6} s/s by {} less",
                from.name, self.loss, self.taken
            ),
        }
    }
}

/// All moves that look worth it, best first: of memory that nobody has before others.
pub(crate) fn bids<'a>(
    settings: &Settings,
    state: &State,
    components: &'a [Component],
    now: Duration,
) -> Vec<Bid<'a>> {
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

fn is_worth_it(settings: &Settings, bid: &Bid<'_>) -> bool {
    let net = bid.gain - bid.loss;
    net >= settings.least_worth && bid.gain > bid.loss * (1.0 + settings.margin.max(0.0))
}

fn gain_of(component: &Component) -> f64 {
    let more = component.benefit.more;
    more.as_ref().map_or(0.0, Estimate::low)
}

/// What so much more saves at least: never more than all that is lost, where that is known. A slope holds for the next
/// granules; drawn on over many it promises misses that there are not.
fn gain_by(to: &Component, given: Bytes) -> f64 {
    let gain = gain_of(to) * to.granule.count(given);
    let pressure = to.benefit.pressure;
    if pressure > 0.0 {
        gain.min(pressure)
    } else {
        gain
    }
}

/// What losing so much costs at most; nothing where it is unknown (then only a granule is tried).
pub(crate) fn loss_of(component: &Component, taken: Bytes) -> f64 {
    let less = component.benefit.less;
    less.as_ref().map_or(0.0, Estimate::high) * component.granule.count(taken)
}

/// Of memory that nobody has.
fn of_free(to: &Component, most: Bytes) -> Option<Bid<'_>> {
    let given = to.granule.round_down(most.min(to.room()));
    (!given.is_zero()).then(|| Bid {
        from: None,
        to,
        taken: given,
        given,
        gain: gain_by(to, given),
        loss: 0.0,
    })
}

/// From one to another. Where granules differ, so much is taken that a granule can be given, and all that was taken is
/// given that the other one can have.
fn between<'a>(
    from: &'a Component,
    to: &'a Component,
    most: Bytes,
    least: Bytes,
) -> Option<Bid<'a>> {
    let wanted = to
        .granule
        .round_down(most.min(least))
        .max(to.granule.bytes());
    let taken = from.granule.round_up(wanted).min(from.surplus());
    let given = to.granule.round_down(taken).min(to.room());
    (!given.is_zero() && !taken.is_zero()).then(|| Bid {
        from: Some(from),
        to,
        taken,
        given,
        gain: gain_by(to, given),
        loss: loss_of(from, taken),
    })
}

/// A first step is one granule. Further ones the same way are longer and longer, because how far it is to the best size
/// is unknown; one the other way is half as long as the last, because the best size is between.
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

/// The most that may be taken at a time: a part of what it has, and half of what it just got. Where it is unknown
/// what that costs, one granule, and that not often.
fn most_taken(
    settings: &Settings,
    track: &Track,
    from: &Component,
    now: Duration,
) -> Option<Bytes> {
    let granule = from.granule.bytes();
    if from.benefit.less.is_none() {
        let may = !track.tries.waits(now) && !from.surplus().is_zero();
        return may.then_some(granule);
    }
    let part = Bytes(from.now.get() / settings.largest_part.max(1));
    let most = match recent(settings, track, now) {
        Some(last) if last.kind == OperationKind::Grow => part.min(Bytes(last.bytes.get() / 2)),
        _ => part,
    };
    Some(most.max(granule).min(from.surplus())).filter(|most| !most.is_zero())
}

/// The most that may be moved between two of which a move was wrong just now.
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

/// The last step, as long as it says something of the next.
fn recent(settings: &Settings, track: &Track, now: Duration) -> Option<Stride> {
    let is_recent = |s: &Stride| now.saturating_sub(s.at) <= settings.reversal;
    track.stride.filter(is_recent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::{Benefit, Granule};

    /// As two MariaDBs had it: the slope at 248M, drawn on over 360M, promised three times all its misses. Judged
    /// by that, a move that was right was taken back.
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
            least: Bytes::from_mib(120),
            most: Bytes::from_mib(888),
            now: Bytes::from_mib(now),
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
        // A slope alone, of whoever counts nothing else.
        assert!((gain(0.0) - 1.5).abs() < 1e-9);
    }
}
