//! The policy on simulated loads: what it does, how fast, and how little where nothing is to be gained.

// A panic is how a test fails, also in its helpers.
#![allow(clippy::unwrap_used)]

mod any;
mod world;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use hugeleaf_balance::{Ghost, Granule, Mode, view};
use hugeleaf_units::Bytes;
use world::{Known, Manner, Part, World};

/// What is asked of a split: a part of the best one.
const GOOD: f64 = 0.97;

/// Two caches of 512M each; what each touches is twice that, and more.
fn two(a: impl Fn(f64) -> f64 + 'static, b: impl Fn(f64) -> f64 + 'static) -> World {
    World::new(vec![
        Part::new("a", 256, 600.0, a),
        Part::new("b", 256, 600.0, b),
    ])
}

fn steady(rate: f64) -> impl Fn(f64) -> f64 {
    move |_| rate
}

#[test]
fn a_steady_load_is_settled_in_20_seconds_and_stays() {
    let mut world = two(steady(9000.0), steady(1000.0));
    let settled = world.settles(GOOD);
    let worst = world.worst(600);
    let moves = world.run(3600);
    println!(
        "steady: settled after {settled} s, worst after that {worst:.4}, {moves} orders an hour"
    );
    assert!(settled <= 20 && worst >= GOOD && moves <= 20);
}

#[test]
fn a_step_is_settled_in_20_seconds_each_time() {
    let swap = |first: bool| {
        move |t: f64| {
            if ((t / 120.0) as u64).is_multiple_of(2) == first {
                9000.0
            } else {
                1000.0
            }
        }
    };
    let mut world = two(swap(true), swap(false));
    world.run(120);
    for phase in 0..10 {
        let before = world.orders;
        world.run(20);
        let worst = world.worst(99);
        world.second();
        println!(
            "step {phase}: from 20 s on worst {worst:.4}, {} orders",
            world.orders - before
        );
        assert!(worst >= GOOD, "{worst}");
    }
}

#[test]
fn a_ramp_is_followed() {
    let up = |t: f64| 1000.0 + 8000.0 * (t / 300.0).min(1.0);
    let mut world = two(up, move |t| 10_000.0 - up(t));
    world.run(20);
    let worst = world.worst(400);
    println!("ramp: worst {worst:.4}, {} orders", world.orders);
    assert!(worst >= GOOD && world.orders < 300);
}

#[test]
fn a_day_is_followed() {
    const DAY: f64 = 86_400.0;
    let wave = |shift: f64| {
        move |t: f64| 5500.0 + 4500.0 * ((t / DAY + shift) * std::f64::consts::TAU).sin()
    };
    let mut world = two(wave(0.0), wave(0.5));
    world.parts.push(Part::new("c", 64, 200.0, steady(500.0)));
    world.target = world.total();
    world.run(20);
    let mut worst = f64::INFINITY;
    for _ in 0..86_380 / 60 {
        world.run(60);
        worst = worst.min(world.quality());
    }
    println!("day: worst {worst:.4}, {} orders", world.orders);
    assert!(worst >= GOOD && world.orders < 3000);
}

/// The load changes sides right after each move: the worst that it can do.
#[test]
fn whoever_flips_the_load_after_each_move_makes_it_stand_still() {
    let side = Rc::new(Cell::new(false));
    let load = |first: bool| {
        let side = Rc::clone(&side);
        move |_: f64| if side.get() == first { 9000.0 } else { 1000.0 }
    };
    let mut world = two(load(true), load(false));
    let mut by_hour = Vec::new();
    for _ in 0..4 {
        let before = world.orders;
        for _ in 0..3600 {
            if world.second() > 0 {
                side.set(!side.get());
            }
        }
        by_hour.push(world.orders - before);
    }
    println!("flips after each move: orders by hour {by_hour:?}");
    // Two orders a move, and as many to take it back.
    assert!(by_hour[0] <= 200 && by_hour[3] <= 16);
}

#[test]
fn those_that_tie_do_not_move() {
    let mut world = two(steady(5000.0), steady(5000.0));
    world.parts[0].size = world.parts[0].size + Bytes::from_mib(200);
    world.parts[0].held = world.parts[0].size;
    world.target = world.total();
    world.run(60);
    let moves = world.run(7200);
    println!(
        "tie: {moves} orders in two hours, at {} and {}",
        world.size("a"),
        world.size("b")
    );
    assert_eq!(moves, 0);
}

/// One that says of every granule that it would save much, and never shows it.
#[test]
fn a_boast_is_found_out() {
    let mut world = World::new(vec![
        Part::new("pool", 400, 600.0, steady(5000.0)),
        Part::new("boaster", 16, 0.0, steady(1.0)),
    ]);
    world.parts[1].known = Known::Boasts(10.0);
    world.run(3600);
    println!(
        "boast: {} orders, {} taken back",
        world.orders,
        world.state.taken_back()
    );
    assert_eq!(world.size("boaster"), 16.0);
    assert!(world.orders <= 60);
}

#[test]
fn who_does_not_do_what_he_is_asked_is_let_be() {
    let cases = [
        (Manner::Refuses, "it refused: no memory is unused"),
        (Manner::Lies, "it says"),
        (Manner::Short, "it changed by"),
        (Manner::Slow(180), "it did not answer in time"),
        (Manner::Silent, "it did not answer in time"),
    ];
    for (manner, words) in cases {
        let mut world = two(steady(9000.0), steady(1000.0));
        world.part("b").manner = manner;
        world.run(30);
        let said = world.standing("b");
        world.run(1800);
        println!("{said}: {} orders in half an hour", world.orders);
        assert!(said.contains(words), "{said}");
        assert!(world.orders <= 60, "{said}: {}", world.orders);
        // What was really freed was given.
        assert!(world.target - world.total() <= Bytes::from_mib(300));
    }
}

/// One that answers after minutes when it was asked to grow: what it may still take is kept for it.
#[test]
fn an_answer_after_minutes_is_within_the_target() {
    let mut world = two(steady(9000.0), steady(1000.0));
    world.part("a").manner = Manner::Slow(180);
    world.parts.push(Part::new("c", 64, 600.0, steady(9000.0)));
    world.target = world.total();
    world.run(1800);
    assert!(world.size("c") > 64.0, "the others go on");
}

#[test]
fn a_size_set_by_hand_wins() {
    let mut world = two(steady(9000.0), steady(1000.0));
    world.run(60);
    let before = world.total();
    let b = world.part("b");
    (b.size, b.held) = (Bytes::from_mib(800), Bytes::from_mib(800));
    world.target = before;
    // More than the target now: the other one makes room, as far as it can.
    world.run_above(120);
    assert_eq!(world.size("b"), 400.0);
    assert!(world.total() <= before);
    let said = world.standing("b");
    assert!(
        said.contains("to 800M by somebody else, which is respected for"),
        "{said}"
    );
    let components = world.components();
    let view = view(&world.state, &components);
    let manual = view.operations.iter().filter(|o| o.mode == Mode::Manual);
    assert_eq!(manual.count(), 1);
    world.run(600);
    assert!(
        world.size("b") < 200.0,
        "after ten minutes it is as all others"
    );
}

/// Real streams of keys through real ghost lists: a skewed one gets the memory, a flood of single keys nothing.
#[test]
fn ghost_lists_steer_it() {
    let granule = Granule::new(Bytes::from_mib(2)).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let mut ghosts = [200u64, 200].map(|granules| Ghost::new(granules * 100, 100, 2048));
    let mut single = 1u64 << 40;
    let mut world = World::new(vec![
        Part::new("pool", 200, 0.0, steady(0.0)),
        Part::new("statements", 200, 0.0, steady(0.0)),
    ]);
    let mut state = hugeleaf_balance::State::default();
    let mut orders = 0;
    for second in 1..=60u64 {
        let now = Duration::from_secs(second);
        for _ in 0..5000 {
            let key = 60_000.0 * random.f64().powf(2.5);
            ghosts[0].touch(key as u64);
            single += 1;
            ghosts[1].touch(single);
        }
        for (ghost, part) in ghosts.iter_mut().zip(&world.parts) {
            ghost.set_capacity(granule.count(part.size) as u64 * 100);
            ghost.pass(Duration::from_secs(1));
        }
        loop {
            let mut components = world.components();
            for (component, ghost) in components.iter_mut().zip(&ghosts) {
                component.benefit = ghost.benefit(100, world::MISS);
            }
            let moves = hugeleaf_balance::decide(
                &world.settings,
                &mut state,
                world.target,
                &components,
                now,
            );
            if moves.is_empty() {
                break;
            }
            orders += moves.len();
            for order in moves {
                let part = world.part(&order.order.component);
                (part.size, part.held) = (order.order.goal, order.order.goal);
                let came = hugeleaf_balance::Came::Resized {
                    now_bytes: part.size,
                    measured_bytes: None,
                };
                hugeleaf_balance::learn(&world.settings, &mut state, order.id, &came, now);
            }
        }
    }
    println!(
        "ghosts: pool {}, statements {}, {orders} orders",
        world.size("pool"),
        world.size("statements")
    );
    assert!(world.size("pool") > 370.0);
}
