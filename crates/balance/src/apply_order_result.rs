//! Applies the results of orders.

use std::time::Duration;

use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::component_state::OrderFailure;
use crate::history::{OperationKind, ResizeMode, ResizeOperation, ResizeStatus};
use crate::settings::Settings;
use crate::state::{
    BackOff, LastResize, MoveCause, OpenOrder, PendingMoveCheck, ReservedGrant, State,
    TrackedComponent,
};

/// Result of an [`crate::Order`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "came", rename_all = "snake_case")]
pub enum OrderResult {
    /// The component has this size now, which may differ from the ordered one.
    Resized {
        /// Its reported size.
        now_bytes: Bytes,
        /// Its measured memory, as [`crate::Component::measured`].
        measured_bytes: Option<Bytes>,
    },
    /// Nothing changed.
    Refused {
        /// The component's own reason.
        why: String,
    },
}

/// Applies the result of an order. An unknown or already answered order is ignored.
pub fn learn(settings: &Settings, state: &mut State, id: u64, came: &OrderResult, now: Duration) {
    let is_of =
        |track: &TrackedComponent| track.flight.as_ref().is_some_and(|flight| flight.id == id);
    let mut tracks = state.tracks.values_mut();
    let Some(track) = tracks.find(|track| is_of(track)) else {
        return;
    };
    let Some(flight) = track.flight.take() else {
        return;
    };
    match came {
        OrderResult::Refused { why } => {
            let why = why.clone();
            track.trouble = Some(OrderFailure::Refused { why });
            track.failed_to_grow = flight.order.kind == OperationKind::Grow;
            track.back_off.failed(now, settings.retry);
            let size = Some(flight.order.before);
            state.history.end(id, size, ResizeStatus::Error, now);
        }
        OrderResult::Resized {
            now_bytes,
            measured_bytes,
        } => {
            let done = resized(settings, track, &flight, (*now_bytes, *measured_bytes), now);
            let status = match (done.is_zero(), done == flight.order.by()) {
                (true, _) => ResizeStatus::Error,
                (_, true) => ResizeStatus::Complete,
                _ => ResizeStatus::Partial,
            };
            state.history.end(id, Some(*now_bytes), status, now);
            follow(settings, state, flight, done, now);
        }
    }
}

/// Records an immediate change of size by the executor, which took free memory or made room for a new component. It
/// counts neither as an order nor as a change by hand. An unknown component is ignored.
pub fn changed(state: &mut State, component: &str, now_bytes: Bytes, why: &str, now: Duration) {
    let Some(track) = state.tracks.get_mut(component) else {
        return;
    };
    let before = track.expected;
    track.expected = now_bytes;
    track.held = now_bytes;
    track.smallest = track.smallest.min(now_bytes);
    track.largest = track.largest.max(now_bytes);
    track.operations += 1;
    state.history.add(ResizeOperation {
        id: 0,
        component: component.to_owned(),
        kind: match now_bytes > before {
            true => OperationKind::Grow,
            false => OperationKind::Shrink,
        },
        mode: ResizeMode::Immediate,
        initial: before,
        target: now_bytes,
        end_size: Some(now_bytes),
        status: ResizeStatus::Complete,
        start_seconds: now.as_secs_f64(),
        end_seconds: Some(now.as_secs_f64()),
        why: why.to_owned(),
    });
}

/// Returns the change in response to an order. The larger of the reported and the measured size counts.
fn resized(
    settings: &Settings,
    track: &mut TrackedComponent,
    flight: &OpenOrder,
    (said, measured): (Bytes, Option<Bytes>),
    now: Duration,
) -> Bytes {
    let (asked, goal) = (flight.order.by(), flight.order.goal);
    let after = said.max(measured.unwrap_or(Bytes::ZERO));
    let done = match flight.order.kind {
        OperationKind::Grow => said - flight.order.before,
        OperationKind::Shrink => flight.held - after,
    };
    track.held = after;
    track.expected = said;
    let trouble = if done < asked && said == goal {
        Some(OrderFailure::Lies {
            said_bytes: said,
            measured_bytes: after,
        })
    } else if done < asked {
        Some(OrderFailure::Short {
            asked_bytes: asked,
            done_bytes: done,
        })
    } else if flight.order.kind == OperationKind::Grow && said > goal {
        Some(OrderFailure::TookMore {
            allowed_bytes: goal,
            bytes: said,
        })
    } else {
        None
    };
    let growing = flight.order.kind == OperationKind::Grow;
    match trouble {
        Some(trouble) => {
            track.back_off.failed(now, settings.retry);
            track.trouble = Some(trouble);
            track.failed_to_grow = growing;
        }
        None if !growing || track.failed_to_grow => {
            track.back_off = BackOff::default();
            track.trouble = None;
        }
        // A component that received memory may still owe memory.
        None => {}
    }
    let done = done.min(asked);
    if matches!(
        flight.plan.cause,
        MoveCause::Benefit | MoveCause::Try | MoveCause::TakenBack
    ) && !done.is_zero()
    {
        track.stride = Some(LastResize {
            kind: flight.order.kind,
            bytes: done,
            at: now,
        });
    }
    done
}

/// Starts the follow-up: freed memory is given, and given memory is judged.
fn follow(settings: &Settings, state: &mut State, flight: OpenOrder, done: Bytes, now: Duration) {
    let OpenOrder { plan, order, .. } = flight;
    if done.is_zero() || flight.abandoned {
        return;
    }
    match (order.kind, plan.cause) {
        (OperationKind::Shrink, _) if plan.to.is_some() => {
            state.grants.push(ReservedGrant { plan, bytes: done });
        }
        (OperationKind::Grow, MoveCause::Benefit | MoveCause::Try) => {
            state.checks.push(PendingMoveCheck {
                plan,
                given: done,
                due: now.saturating_add(settings.check_after),
            })
        }
        _ => {}
    }
}
