//! Applies a scan: new and ended components, missing answers, and sizes set by hand.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::apply_order_result::{OrderResult, learn};
use crate::component::Component;
use crate::component_state::OrderFailure;
use crate::history::{OperationKind, ResizeMode, ResizeOperation, ResizeStatus};
use crate::settings::Settings;
use crate::state::{BackOff, ManualSize, State, TrackedComponent};

/// Growth of the loss since a failed try after which a component is tried again.
const ANOTHER_LOAD: f64 = 2.0;

/// Applies a scan: new and ended components, missing answers, and sizes set by hand.
pub(crate) fn sample(
    settings: &Settings,
    state: &mut State,
    components: &[Component],
    now: Duration,
) {
    let live: BTreeSet<&str> = components.iter().map(|c| c.name.as_str()).collect();
    let gone: Vec<String> = (state.tracks.keys())
        .filter(|name| !live.contains(name.as_str()))
        .cloned()
        .collect();
    for name in gone {
        state.tracks.remove(&name);
        state.drop_moves_of(&name);
        (state.pairs).retain(|(from, to), _| *to != name && from.as_ref() != Some(&name));
    }
    for component in components {
        let name = &component.name;
        let new = || TrackedComponent::new(component);
        let track = state.tracks.entry(name.clone()).or_insert_with(new);
        track.held = component.held();
        track.smallest = track.smallest.min(component.size);
        track.largest = track.largest.max(component.size);
        let is_other = component.benefit.pressure > track.tried_at * ANOTHER_LOAD;
        if (track.tries.failures > 0 || track.tries.waits(now)) && is_other {
            // A failed try, or memory taken, under another load is no evidence now. The same load does not get here again.
            track.tries = BackOff::default();
        }
        unanswered(settings, state, component, now);
        set_by_hand(settings, state, component, now);
    }
}

/// Handles an order without an answer in time. A component with the ordered size has answered.
fn unanswered(settings: &Settings, state: &mut State, component: &Component, now: Duration) {
    let Some(track) = state.tracks.get_mut(&component.name) else {
        return;
    };
    let Some(flight) = &mut track.flight else {
        return;
    };
    if now.saturating_sub(flight.since) < settings.patience {
        return;
    }
    let id = flight.id;
    if component.size == flight.order.goal {
        let came = OrderResult::Resized {
            now_bytes: component.size,
            measured_bytes: component.measured,
        };
        return learn(settings, state, id, &came, now);
    }
    if !flight.abandoned {
        flight.abandoned = true;
        track.trouble = Some(OrderFailure::NoAnswer);
        track.failed_to_grow = flight.order.kind == OperationKind::Grow;
        track.back_off.failed(now, settings.retry);
        state.history.end(id, None, ResizeStatus::Inactive, now);
    }
}

/// Detects a size that was not ordered, and so was set by hand. It takes precedence.
fn set_by_hand(settings: &Settings, state: &mut State, component: &Component, now: Duration) {
    let Some(track) = state.tracks.get_mut(&component.name) else {
        return;
    };
    let size = component.size;
    track.by_hand = track.by_hand.filter(|hand| now < hand.until);
    let (low, high) = match &track.flight {
        None => (track.expected, track.expected),
        Some(flight) => flight.order.bounds(),
    };
    let by = (size - high).max(low - size);
    let is_known = track.by_hand.is_some_and(|hand| hand.to == size);
    if by < component.granule.bytes() || is_known {
        if track.flight.is_none() {
            // A difference below a granule is due to the component's rounding.
            track.expected = size;
        }
        return;
    }
    let from = track.expected;
    track.by_hand = Some(ManualSize {
        from,
        to: size,
        until: now.saturating_add(settings.by_hand),
    });
    track.expected = size;
    track.stride = None;
    track.operations += 1;
    state.drop_moves_of(&component.name);
    state.history.add(ResizeOperation {
        id: 0,
        component: component.name.clone(),
        kind: match size > from {
            true => OperationKind::Grow,
            false => OperationKind::Shrink,
        },
        mode: ResizeMode::Manual,
        initial: from,
        target: size,
        end_size: Some(size),
        status: ResizeStatus::Complete,
        start_seconds: now.as_secs_f64(),
        end_seconds: Some(now.as_secs_f64()),
        why: "resized by hand".to_owned(),
    });
}
