//! Compares the estimate with exact least-recently-used lists, and checks its cost.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const CAPACITY: u64 = 4000;
const STEP: u64 = 250;
const SAMPLES: usize = 2048;

/// Returns hits by depth, from one list of all keys in the order of their last touch.
fn exact(trace: &[u64]) -> Vec<u64> {
    let mut list: Vec<u64> = Vec::new();
    let mut known = std::collections::HashSet::new();
    let mut hits = vec![0; 30_000];
    for key in trace {
        // The newest is last, so a search from the end is short for frequent keys.
        if !known.insert(*key)
            && let Some(depth) = list.iter().rev().position(|k| k == key)
        {
            hits[depth.min(29_999)] += 1;
            list.remove(list.len() - 1 - depth);
        }
        list.push(*key);
    }
    hits
}

fn ratio(hits: &[u64], items: u64, touches: usize) -> f64 {
    let items = usize::try_from(items).unwrap();
    hits[..items].iter().sum::<u64>() as f64 / touches as f64
}

fn ghost_of(trace: &[u64]) -> GhostList {
    let mut ghost = GhostList::new(CAPACITY, STEP, SAMPLES).half_life(Duration::from_secs(1 << 40));
    trace.iter().for_each(|key| {
        ghost.touch(*key);
    });
    ghost.pass(SECOND);
    ghost
}

/// Draws keys below n, the k-th with a frequency of 1 / k^skew.
fn zipf(n: u64, skew: f64, touches: usize, random: &mut fastrand::Rng) -> Vec<u64> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=n)
        .map(|k| {
            sum += (k as f64).powf(-skew);
            sum
        })
        .collect();
    let draw = |_| {
        let at = random.f64() * sum;
        sums.partition_point(|s| *s < at) as u64
    };
    (0..touches).map(draw).collect()
}

fn traces() -> Vec<(&'static str, Vec<u64>)> {
    let mut random = fastrand::Rng::with_seed(7);
    let touches = 60_000;
    let skewed = zipf(20_000, 0.9, touches, &mut random);
    let mixed = zipf(12_000, 0.8, touches, &mut random);
    let mixed = mixed.into_iter().enumerate().map(|(i, key)| match i % 5 {
        // A fifth is a loop over 1,000 keys, and a fifth never repeats.
        0 => 100_000 + (i as u64 / 5) % 1000,
        1 => 1_000_000 + i as u64,
        _ => key,
    });
    vec![
        ("zipf 0.9", skewed),
        ("zipf 0.6", zipf(20_000, 0.6, touches, &mut random)),
        ("scan", (0..touches as u64).collect()),
        ("loop", (0..touches as u64).map(|i| i % 5000).collect()),
        ("mixed", mixed.collect()),
    ]
}

/// Returns the number of samples of the keys, each a different one.
fn draws() -> u64 {
    hugeleaf_testkit::size(3, 6)
}

/// Relative uncertainty of a size, with one key in four sampled.
const SIZE_PART: f64 = 0.07;

/// Returns the exact hits between two depths: minimum and maximum for an uncertain size.
fn around(hits: &[u64], from: u64, to: u64) -> (f64, f64) {
    let near = |part: f64| {
        #[allow(clippy::cast_possible_truncation)]
        let at = |items: u64| (items as f64 * part) as usize;
        hits[at(from)..at(to)].iter().sum::<u64>() as f64
    };
    let parts = (-7..=7).map(|n| 1.0 + f64::from(n) / 7.0 * SIZE_PART);
    let sums: Vec<f64> = parts.map(near).collect();
    let least = sums.iter().copied().fold(f64::INFINITY, f64::min);
    (least, sums.into_iter().fold(0.0, f64::max))
}

/// Returns the distance of a value from the interval.
fn outside(value: f64, (least, most): (f64, f64)) -> f64 {
    (value - most).max(least - value).max(0.0)
}

/// Checks the error stated by [`GhostList`], over several samples of the same keys. A granule more or less must match the exact
/// hits within a quarter and two standard errors.
#[test]
fn hit_ratios_and_benefits_are_those_of_exact_lists() {
    for (name, trace) in traces() {
        let (hits, touches) = (exact(&trace), trace.len() as f64);
        let (mut sum, mut worst) = (0.0, 0.0f64);
        let sizes = (1..=14u64).map(|n| n * 500);
        let wanted = [around(&hits, 4000, 4250), around(&hits, 3750, 4000)];
        for draw in 0..draws() {
            let ghost = ghost_of(&redrawn(&trace, draw));
            for size in sizes.clone() {
                let wanted = around(&hits, 0, size);
                let estimate = ghost.hit_ratio(size).unwrap();
                let off = outside(estimate, (wanted.0 / touches, wanted.1 / touches));
                (sum, worst) = (sum + off, worst.max(off));
            }
            let benefit = ghost.benefit(STEP, 1.0);
            for (estimate, (least, most)) in [benefit.more, benefit.less].into_iter().zip(wanted) {
                let estimate = estimate.unwrap();
                let off = outside(estimate.value, (least * 0.75, most * 1.25));
                assert!(
                    off <= 2.0 * estimate.error,
                    "{name}: {least} to {most}, {estimate:?}"
                );
            }
        }
        let mean = sum / (draws() * 14) as f64;
        println!("{name}: hit ratio off by {mean:.4} in the mean, {worst:.4} at worst");
        assert!(mean < 0.015 && worst < 0.07, "{name}: {mean} {worst}");
    }
}

fn redrawn(trace: &[u64], draw: u64) -> Vec<u64> {
    trace.iter().map(|key| mixed(key ^ draw << 40)).collect()
}

#[test]
fn keys_that_never_repeat_earn_nothing() {
    let mut ghost = GhostList::new(1000, 100, 256);
    for key in 0..1_000_000 {
        ghost.touch(key);
    }
    ghost.pass(SECOND);
    let more = ghost.benefit(100, 0.001).more.unwrap();
    assert_eq!((more.value, more.low()), (0.0, 0.0));
    assert!(ghost.curve(4).iter().all(|step| step.hits == 0.0));
}

/// A loop of 1,500 misses in a cache of 1,000 and hits in one of 1,600. It is forgotten when it ends.
#[test]
fn sizes_move_the_place_and_time_forgets() {
    let mut ghost = GhostList::new(1000, 100, 1 << 20);
    assert_eq!(
        ghost.benefit(100, 1.0),
        Benefit::default(),
        "before anything was touched"
    );
    for turn in 0..10 {
        (0..1500).for_each(|key| {
            ghost.touch(key);
        });
        ghost.pass(SECOND / 10);
        assert_eq!(turn > 0, ghost.hit_ratio(1600).unwrap() > 0.4);
    }
    let at = |ghost: &GhostList| {
        ghost
            .curve(6)
            .iter()
            .find(|s| s.hits > 0.0)
            .unwrap()
            .from_items
    };
    assert_eq!(at(&ghost), 1400);
    assert_eq!(ghost.benefit(100, 1.0).less.unwrap().value, 0.0);
    ghost.set_capacity(1500);
    // All 1,500 keys are sampled: 15,000 hits per second, less those of the first round.
    let less = ghost.benefit(100, 0.001).less.unwrap();
    assert!((less.value - 13.5).abs() < 0.7, "{less:?}");
    ghost.pass(SECOND * 60);
    assert!(
        ghost
            .benefit(100, 0.001)
            .less
            .is_none_or(|less| less.low() < 1e-6)
    );
}

/// A cache without requests loses almost nothing. That is known after a time in which requests would have come.
#[test]
fn few_touches_after_a_long_time_are_known_to_be_few() {
    let mut ghost = GhostList::new(1000, 100, 4000);
    ghost.pass(SECOND);
    assert_eq!(ghost.benefit(100, 0.001), Benefit::default());
    for _ in 0..20 {
        ghost.pass(SECOND);
    }
    let less = ghost.benefit(100, 0.001).less.unwrap();
    assert!(less.value == 0.0 && less.high() < 0.001, "{less:?}");
}

#[test]
fn its_memory_is_bounded_whatever_comes() {
    let mut ghost = GhostList::new(1 << 40, 1, 512);
    for key in 0..200_000u64 {
        ghost.touch(key.wrapping_mul(key));
    }
    assert!(ghost.stack.len() <= 512);
    assert!(ghost.stack.keys.len() <= 2 * 513);
    assert!(ghost.bytes().get() < 600_000);
    // 1,024 steps of 512 items; half a percent of a gigabyte is 5 MB.
    assert!(GhostList::new(1 << 18, 512, 4000).bytes().get() < 500_000);
}

proptest! {
    #[test]
    fn never_panics(
        (capacity, step, samples) in (any::<u64>(), any::<u64>(), 0usize..100),
        keys in proptest::collection::vec(0u64..200, 0..300),
        then in any::<u64>(),
    ) {
        let mut ghost = GhostList::new(capacity, step, samples);
        for (index, key) in keys.iter().enumerate() {
            ghost.touch(*key);
            if index == 150 {
                ghost.set_capacity(then);
                ghost.pass(SECOND);
            }
        }
        ghost.pass(Duration::ZERO);
        let _ = (ghost.curve(3), ghost.benefit(step, f64::NAN), ghost.hit_ratio(then));
        prop_assert!(ghost.stack.len() <= samples.max(1));
    }

    /// With all keys sampled it is exact, for any order of touches.
    #[test]
    fn of_all_keys_it_is_exact(keys in proptest::collection::vec(0u64..60, 1..400)) {
        let mut ghost = GhostList::new(100, 1, 1 << 20);
        keys.iter().for_each(|key| {
            ghost.touch(*key);
        });
        let hits = exact(&keys);
        for size in [1, 5, 17, 60] {
            let wanted = ratio(&hits, size, keys.len());
            prop_assert!((ghost.hit_ratio(size).unwrap() - wanted).abs() < 1e-9);
        }
    }
}
