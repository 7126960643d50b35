//! Invariants for any components, answers and target.

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_balance::{
    Benefit, Component, Estimate, Granule, Move, OperationKind, OrderResult, Settings, State,
    decide, learn, view,
};
use hugeleaf_units::Bytes;
use proptest::prelude::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn estimate() -> impl Strategy<Value = Option<Estimate>> {
    let number = prop_oneof![0.0..1.0f64, any::<f64>()];
    let estimate = (number.clone(), number).prop_map(|(value, error)| Estimate {
        value,
        error,
        samples: 1.0,
    });
    proptest::option::of(estimate)
}

fn benefit() -> impl Strategy<Value = Benefit> {
    (estimate(), estimate(), 0.0..1.0f64).prop_map(|(more, less, pressure)| Benefit {
        more,
        less,
        pressure,
    })
}

fn component(name: &'static str) -> impl Strategy<Value = Component> {
    let sizes = (0u64..20, 0u64..60, 0u64..90);
    let strategy = (sizes, benefit(), proptest::bool::weighted(0.9));
    strategy.prop_map(move |((least, more, most), benefit, resizable)| Component {
        name: name.to_owned(),
        min: Bytes(least),
        max: Bytes(most),
        size: Bytes(least + more),
        measured: None,
        granule: Granule::new(Bytes(1 + more % 7)).unwrap(),
        resizable,
        benefit,
    })
}

/// Events of a second: changed benefits, answers to orders, a target, a change by hand.
#[derive(Debug, Clone)]
struct Second {
    benefits: Vec<Benefit>,
    /// 0: refused; 1: not answered; 2: half of it; otherwise done.
    answer: u8,
    target: Option<u64>,
    hand: Option<(usize, u64)>,
}

fn second() -> impl Strategy<Value = Second> {
    (
        proptest::collection::vec(benefit(), NAMES.len()),
        0u8..12,
        proptest::option::weighted(0.05, 0u64..300),
        proptest::option::weighted(0.05, (0..NAMES.len(), 0u64..80)),
    )
        .prop_map(|(benefits, answer, target, hand)| Second {
            benefits,
            answer,
            target,
            hand,
        })
}

/// Returns the answer to an order, and the component's size.
fn answer(order: &Move, how: u8) -> (Bytes, Option<OrderResult>) {
    let (before, goal) = (order.order.before, order.order.goal);
    let now_bytes = match how {
        0 | 1 => before,
        2 => Bytes((before.get() + goal.get()) / 2),
        _ => goal,
    };
    let came = match how {
        0 => Some(OrderResult::Refused { why: "no".into() }),
        1 => None,
        _ => Some(OrderResult::Resized {
            now_bytes,
            measured_bytes: None,
        }),
    };
    (now_bytes, came)
}

/// Orders are within bounds, and take no missing memory. All memory held, and all allowed but unanswered growth, is
/// within the target, or within the memory held above it before.
fn check(order: &Move, component: &Component, allowed: Bytes, target: Bytes) {
    let order = &order.order;
    assert_eq!(order.before, component.size);
    match order.kind {
        OperationKind::Shrink => {
            assert!(order.goal < order.before && order.goal >= component.min);
        }
        OperationKind::Grow => {
            assert!(order.goal > order.before && order.goal <= component.max);
            assert!(allowed <= target, "{allowed:#} of {target:#}");
        }
    }
    let by = order.goal.max(order.before) - order.goal.min(order.before);
    assert_eq!(component.granule.round_down(by), by);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_comes_the_bounds_hold(
        all in (component("a"), component("b"), component("c"), component("d")),
        seconds in proptest::collection::vec(second(), 1..60),
    ) {
        let mut settings = Settings::in_process();
        // All of it happens within a minute.
        settings.retry.0 = Duration::from_secs(3);
        settings.by_hand = Duration::from_secs(5);
        let mut all = vec![all.0, all.1, all.2, all.3];
        let mut target: Bytes = all.iter().map(|c| c.size).sum();
        let mut state = State::default();
        // Allowed but unanswered growth.
        let mut open: BTreeMap<String, Bytes> = BTreeMap::new();
        for (at, second) in (1..).zip(seconds) {
            let now = Duration::from_secs(at);
            target = second.target.map_or(target, Bytes);
            if let Some((index, size)) = second.hand {
                all[index].size = Bytes(size);
            }
            for (component, benefit) in all.iter_mut().zip(second.benefits) {
                component.benefit = benefit;
            }
            for _ in 0..4 {
                let moves = decide(&settings, &mut state, target, &all, now);
                for order in &moves {
                    if order.order.kind == OperationKind::Grow {
                        open.insert(order.order.component.clone(), order.order.goal);
                    }
                }
                let most = |c: &Component| c.size.max(open.get(&c.name).copied().unwrap_or_default());
                let allowed: Bytes = all.iter().map(most).sum();
                for order in &moves {
                    let component = all.iter_mut().find(|c| c.name == order.order.component).unwrap();
                    check(order, component, allowed, target);
                }
                for order in &moves {
                    let component = all.iter_mut().find(|c| c.name == order.order.component).unwrap();
                    let (size, came) = answer(order, second.answer);
                    component.size = size;
                    if let Some(came) = came {
                        open.remove(&order.order.component);
                        learn(&settings, &mut state, order.id, &came, now);
                    }
                }
            }
            let view = view(&state, &all);
            prop_assert!(serde_json::to_string(&view).is_ok());
        }
    }

    #[test]
    fn never_panics(
        numbers in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()), 0..5),
        benefits in proptest::collection::vec(benefit(), 5),
        (target, times) in (any::<u64>(), proptest::collection::vec(any::<u64>(), 1..8)),
        size in any::<u64>(),
    ) {
        let all: Vec<Component> = (numbers.iter().zip(benefits).enumerate())
            .map(|(index, ((least, most, now, granule), benefit))| Component {
                // The last two have the same name.
                name: NAMES[index.min(3)].to_owned(),
                min: Bytes(*least),
                max: Bytes(*most),
                size: Bytes(*now),
                measured: Some(Bytes(least ^ most)),
                granule: Granule::new(Bytes((*granule).max(1))).unwrap(),
                resizable: true,
                benefit,
            })
            .collect();
        let settings = Settings::servers();
        let mut state = State::default();
        for time in times {
            let now = Duration::from_secs(time);
            for order in decide(&settings, &mut state, Bytes(target), &all, now) {
                let came = OrderResult::Resized { now_bytes: Bytes(size), measured_bytes: None };
                learn(&settings, &mut state, order.id, &came, now);
            }
            learn(&settings, &mut state, time, &OrderResult::Refused { why: String::new() }, now);
        }
    }
}
