//! Components under one target. Memory goes to the component that benefits, contents are never lost, and a faulty
//! component harms no other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hugeleaf_balance::{Benefit, GhostList, OperationKind, Settings};
use hugeleaf_units::Pages;

use super::elastic::{asked, assert_written, write_all};
use super::support::{host, huge};
use crate::{Bytes, Elastic, ElasticError, Granule, Managed, Manager, PageSize};

/// Number of items in a granule.
const ITEMS: u64 = 64;
/// Number of granules in total.
const ALL: u64 = 64;
/// Number of keys of a cache that could use more than all memory, and of one that can use a tenth of it.
const MANY: u64 = ITEMS * ALL * 2;
const FEW: u64 = ITEMS * 6;

/// Reaction of a component to a request to shrink.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    Willing,
    /// Keeps everything.
    Refuses,
    /// Names granules that it returned before.
    Lies,
}

/// A cache whose keys the test requests.
struct Cache {
    elastic: Arc<Elastic>,
    seed: u64,
    held: Vec<Granule>,
    returned: Vec<Granule>,
    manner: Manner,
    ghost: GhostList,
    /// Number of different keys requested; 0 requests each key once.
    keys: u64,
    next: u64,
    is_unused: bool,
}

/// The manager and the test each have a reference.
#[derive(Clone)]
struct Shared(Arc<Mutex<Cache>>);

impl Shared {
    fn new(elastic: &Arc<Elastic>, seed: u64, keys: u64) -> Shared {
        Shared(Arc::new(Mutex::new(Cache {
            elastic: Arc::clone(elastic),
            seed,
            held: Vec::new(),
            returned: Vec::new(),
            manner: Manner::Willing,
            ghost: GhostList::new(0, ITEMS, 2000),
            keys,
            next: seed << 32,
            is_unused: false,
        })))
    }

    fn set(&self, change: impl FnOnce(&mut Cache)) {
        change(&mut self.0.lock().unwrap());
    }

    fn granules(&self) -> u64 {
        self.0.lock().unwrap().held.len() as u64
    }
}

impl Managed for Shared {
    fn benefit(&mut self, elapsed: Duration) -> Benefit {
        let cache = &mut *self.0.lock().unwrap();
        let capacity = cache.held.len() as u64 * ITEMS;
        cache.ghost.set_capacity(capacity);
        // The load of one second, regardless of the elapsed time. Random order spreads the requests over all keys.
        let mut random = fastrand::Rng::with_seed(cache.next);
        for _ in 0..4000 {
            let key = match cache.keys {
                0 => cache.next,
                // Small keys are more frequent than large ones.
                keys => {
                    let most = random.u64(0..keys);
                    random.u64(0..=most)
                }
            };
            cache.next += 1;
            cache.ghost.touch(key ^ (cache.seed << 48));
        }
        cache.ghost.pass(elapsed);
        cache.ghost.benefit(ITEMS, 1e-3)
    }

    fn grow(&mut self, granules: &[Granule]) {
        let cache = &mut *self.0.lock().unwrap();
        for granule in granules {
            assert!(!cache.held.contains(granule));
            write_all(&cache.elastic, *granule, cache.seed);
        }
        cache.held.extend(granules);
    }

    fn shrink(&mut self, count: usize) -> Vec<Granule> {
        let cache = &mut *self.0.lock().unwrap();
        match cache.manner {
            Manner::Willing => {}
            Manner::Refuses => return Vec::new(),
            Manner::Lies => return cache.returned.iter().copied().take(count).collect(),
        }
        let keep = cache.held.len() - count.min(cache.held.len());
        let freed = cache.held.split_off(keep);
        // No other code has written to these granules.
        for granule in &freed {
            assert_written(&cache.elastic, *granule, cache.seed);
        }
        cache.returned.extend(&freed);
        freed
    }

    fn is_unused(&self) -> bool {
        self.0.lock().unwrap().is_unused
    }
}

/// Returns an elastic of base pages, which needs no root. Its target is half of its addresses.
fn elastic() -> Arc<Elastic> {
    let base = host().base_page;
    let granule = PageSize::new(Bytes(base.bytes().get() * 4)).unwrap();
    let max = Pages(2 * ALL).in_bytes(granule);
    let options = asked(max, &base.to_string()).granule(granule);
    let options = options.target(Pages(ALL).in_bytes(granule));
    Arc::new(Elastic::new(&options).unwrap())
}

fn manager(elastic: &Arc<Elastic>) -> Manager {
    Manager::new(Arc::clone(elastic), Settings::in_process()).unwrap()
}

/// Returns sizes from four granules to all.
fn sizes(elastic: &Elastic) -> (Bytes, Bytes) {
    let of = |granules| Pages(granules).in_bytes(elastic.granule());
    (of(4), of(ALL))
}

/// Adds two caches of these names. The first could use more than all memory, the second a tenth of it.
fn busy_and_idle(manager: &mut Manager, elastic: &Arc<Elastic>, names: [&str; 2]) -> [Shared; 2] {
    let caches = [Shared::new(elastic, 1, MANY), Shared::new(elastic, 2, FEW)];
    for (name, cache) in names.into_iter().zip(&caches) {
        let added = manager.add(name, sizes(elastic), Box::new(cache.clone()));
        added.unwrap();
    }
    caches
}

/// Performs one step per second; the target is never exceeded.
fn run(manager: &mut Manager, elastic: &Elastic, seconds: std::ops::Range<u64>) -> usize {
    let mut orders = 0;
    for second in seconds {
        orders += manager.step_at(Duration::from_secs(second)).unwrap();
        assert!(elastic.held() <= elastic.target());
    }
    orders
}

#[test]
fn memory_goes_where_it_is_used_and_follows_the_load() {
    let elastic = elastic();
    let mut manager = manager(&elastic);
    let [busy, idle] = busy_and_idle(&mut manager, &elastic, ["busy", "idle"]);
    run(&mut manager, &elastic, 0..40);
    assert!(
        busy.granules() > 48 && (4..16).contains(&idle.granules()),
        "{manager:?}"
    );
    // The two loads are exchanged.
    busy.set(|cache| cache.keys = FEW);
    idle.set(|cache| cache.keys = MANY);
    run(&mut manager, &elastic, 40..100);
    assert!(
        idle.granules() > 48 && (4..16).contains(&busy.granules()),
        "{manager:?}"
    );
    // The decisions are readable, with numbers.
    let view = manager.view();
    assert!(view.operations_total > 4);
    assert!(
        view.operations
            .iter()
            .all(|operation| !operation.why.is_empty())
    );
    let named: Vec<&str> = view
        .components
        .iter()
        .map(|c| c.component.as_str())
        .collect();
    assert_eq!(named, ["busy", "idle"]);
}

#[test]
fn what_nobody_uses_is_free_at_the_next_look() {
    let elastic = elastic();
    let mut manager = manager(&elastic);
    let [busy, other] = busy_and_idle(&mut manager, &elastic, ["busy", "other"]);
    run(&mut manager, &elastic, 0..40);
    busy.set(|cache| cache.is_unused = true);
    run(&mut manager, &elastic, 40..41);
    assert_eq!(busy.granules(), 4);
    assert!(elastic.target() - elastic.held() > Pages(32).in_bytes(elastic.granule()));
    let view = manager.view();
    assert!(view.operations.iter().any(|o| o.why == "unused"));
    // In use again, it is a component like any other.
    busy.set(|cache| cache.is_unused = false);
    run(&mut manager, &elastic, 41..80);
    assert!(busy.granules() > 48 && other.granules() < 16, "{manager:?}");
}

#[test]
fn what_never_repeats_earns_nothing() {
    let elastic = elastic();
    let mut manager = manager(&elastic);
    let (cache, flood) = (Shared::new(&elastic, 1, MANY), Shared::new(&elastic, 2, 0));
    manager
        .add("statements", sizes(&elastic), Box::new(flood.clone()))
        .unwrap();
    manager
        .add("buffers", sizes(&elastic), Box::new(cache.clone()))
        .unwrap();
    run(&mut manager, &elastic, 0..60);
    assert_eq!(flood.granules(), 4);
    assert!(cache.granules() > 48, "{manager:?}");
}

#[test]
fn a_target_that_falls_is_kept() {
    let elastic = elastic();
    let mut manager = manager(&elastic);
    let cache = Shared::new(&elastic, 1, MANY);
    let added = manager.add("cache", sizes(&elastic), Box::new(cache.clone()));
    added.unwrap();
    run(&mut manager, &elastic, 0..40);
    let before = cache.granules();
    let target = Pages(16).in_bytes(elastic.granule());
    let above = manager.set_target(target).unwrap();
    assert_eq!(above, Pages(before - 16).in_bytes(elastic.granule()));
    for second in 40..80 {
        manager.step_at(Duration::from_secs(second)).unwrap();
    }
    assert!(elastic.held() <= target, "{manager:?}");
    // All memory that it does not hold was returned to the system.
    let info = elastic.info().unwrap();
    assert_eq!((info.held, info.unclean), (elastic.held(), Bytes::ZERO));
}

#[test]
fn who_refuses_or_lies_is_let_be() {
    for manner in [Manner::Refuses, Manner::Lies] {
        let elastic = elastic();
        let mut manager = manager(&elastic);
        let [bad, good] = busy_and_idle(&mut manager, &elastic, ["bad", "good"]);
        run(&mut manager, &elastic, 0..30);
        let had = bad.granules();
        bad.set(|cache| (cache.keys, cache.manner) = (FEW, manner));
        good.set(|cache| cache.keys = MANY);
        let orders = run(&mut manager, &elastic, 30..150);
        assert!(bad.granules() >= had, "{manner:?}");
        // It is not asked repeatedly.
        assert!(orders < 40, "{orders}");
        let standing = manager.view().components[0].standing.clone();
        assert!(!standing.is_empty(), "{manner:?}");
        // Once it complies, it is asked again.
        bad.set(|cache| cache.manner = Manner::Willing);
        run(&mut manager, &elastic, 150..2000);
        assert!(good.granules() > 48, "{manner:?}: {manager:?}");
    }
}

#[test]
fn names_are_taken_once_and_the_least_must_be_there() {
    let elastic = elastic();
    let mut manager = manager(&elastic);
    let cache = Shared::new(&elastic, 1, 0);
    let mut add = |name: &str, least: u64| {
        let least = Pages(least).in_bytes(elastic.granule());
        manager.add(name, (least, least), Box::new(cache.clone()))
    };
    add("a", 8).unwrap();
    let taken = |name: &str| Err(ElasticError::NameTaken { name: name.into() });
    assert_eq!(add("a", 8), taken("a"));
    assert_eq!(add("manager", 8), taken("manager"));
    let over = add("b", ALL);
    assert!(
        matches!(over, Err(ElasticError::OverTarget { .. })),
        "{over:?}"
    );
    assert_eq!(cache.granules(), 8);
}

#[test]
fn a_thread_steps_and_ends() {
    let elastic = elastic();
    let manager = manager(&elastic);
    let cache = Shared::new(&elastic, 1, MANY);
    let running = manager.start(Duration::from_millis(5)).unwrap();
    let added = running.add("cache", sizes(&elastic), Box::new(cache.clone()));
    added.unwrap();
    hugeleaf_testkit::until("the cache has eight granules", || cache.granules() >= 8);
    let (view, failed) = running.view();
    assert_eq!(failed, None);
    assert!(
        view.operations
            .iter()
            .any(|o| o.kind == OperationKind::Grow)
    );
    drop(running);
    let held = cache.granules();
    hugeleaf_testkit::pause(Duration::from_millis(50), "no granule may move");
    assert_eq!(cache.granules(), held);
}

/// Panics on any request except for its least.
struct Panics;

impl Managed for Panics {
    fn benefit(&mut self, _: Duration) -> Benefit {
        panic!("a component of a test")
    }

    fn grow(&mut self, _: &[Granule]) {}

    fn shrink(&mut self, _: usize) -> Vec<Granule> {
        Vec::new()
    }
}

#[test]
fn a_component_that_panics_is_no_silence() {
    let elastic = elastic();
    let mut manager = manager(&elastic);
    manager.add("a", sizes(&elastic), Box::new(Panics)).unwrap();
    let running = manager.start(Duration::from_millis(5)).unwrap();
    let failed = hugeleaf_testkit::eventually(|| running.view().1.ok_or("it has not failed"));
    assert!(failed.contains("panicked"), "{failed}");
}

#[test]
fn what_moves_stays_on_huge_pages() {
    let test = "what_moves_stays_on_huge_pages";
    let Some(huge) = huge(test) else { return };
    let Some(_host) = super::support::HostGuard::lock(test) else {
        return;
    };
    let max = Pages(ALL).in_bytes(huge);
    if max > Bytes::from_mib(1024) {
        println!("not run: {test}: needs {max}");
        return;
    }
    let elastic = Arc::new(Elastic::new(&asked(max, &format!("thp:{huge}"))).unwrap());
    let mut manager = manager(&elastic);
    let [busy, idle] = busy_and_idle(&mut manager, &elastic, ["busy", "idle"]);
    run(&mut manager, &elastic, 0..30);
    busy.set(|cache| cache.keys = FEW);
    idle.set(|cache| cache.keys = MANY);
    run(&mut manager, &elastic, 30..90);
    assert!(idle.granules() > 40, "{manager:?}");
    for part in elastic.info().unwrap().components {
        let on_huge = part.by_page.iter().filter(|share| share.page == huge);
        let on_huge: Bytes = on_huge.map(|share| share.bytes).sum();
        assert_eq!(on_huge, part.bytes, "{part:?}");
    }
}
