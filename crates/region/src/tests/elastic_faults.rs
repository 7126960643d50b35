//! Every call of elastic memory fails at every step with each errno. The error is typed, held
//! granules stay held, reports stay true, and nothing is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{
    Component, Elastic, ElasticError, ElasticOptions, Granule, MemoryError, PageKind, PageSize,
    Sharing,
};
use hugeleaf_sys::{Errno, MemoryCall, MemorySyscalls, SyscallGate};

use super::child::{Part, Words};
use super::elastic::{asked, assert_written, in_use, on, pooled, write_all};
use super::support::{Holdings, HostGuard, host, huge, pages, pool};

const ERRNOS: [Errno; 8] = [
    Errno::NOMEM,
    Errno::AGAIN,
    Errno::INTR,
    Errno::INVAL,
    Errno::FAULT,
    Errno::NOSPC,
    Errno::PERM,
    Errno::MFILE,
];
/// Number of leading errors that the code retries or works around.
const RETRIED: usize = 3;

/// Refuses the call with a given number, or all from it on; none while it is open.
#[derive(Debug)]
struct Refuse {
    at: usize,
    ever_after: bool,
    errno: Errno,
    calls: AtomicUsize,
    open: AtomicBool,
}

impl Refuse {
    fn reached(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > self.at
    }

    /// Runs `what` with all calls allowed.
    fn without<T>(&self, what: impl FnOnce() -> T) -> T {
        self.open.store(true, Ordering::Relaxed);
        let done = what();
        self.open.store(false, Ordering::Relaxed);
        done
    }
}

impl SyscallGate for Refuse {
    fn pass(&self, _: MemoryCall) -> Result<(), Errno> {
        if self.open.load(Ordering::Relaxed) {
            return Ok(());
        }
        let n = self.calls.fetch_add(1, Ordering::Relaxed);
        match n == self.at || (self.ever_after && n > self.at) {
            true => Err(self.errno),
            false => Ok(()),
        }
    }
}

/// Returns the options of a kind of elastic, by name; the pool has 4 pages.
fn options(kind: &str, size: PageSize, memory: MemorySyscalls) -> ElasticOptions {
    let max = pages(size, 12);
    let pool = format!("hugetlb:{size}");
    let options = match kind {
        "pool" => asked(max, &pool).shared(),
        "mandatory" => asked(max, &format!("{pool}!")).shared(),
        "private-pool" => asked(max, &pool),
        "private" => asked(max, &size.to_string()),
        "shared-thp" => asked(max, &format!("thp:{size}")).shared(),
        other => panic!("no kind {other}"),
    };
    ElasticOptions { memory, ..options }
}

/// Expected state: the component of each held granule.
struct Scene<'a> {
    elastic: &'a Elastic,
    size: PageSize,
    gate: &'a Refuse,
    held: BTreeMap<Granule, Component>,
    what: &'a str,
}

impl Scene<'_> {
    fn judge<T>(&self, outcome: Result<T, ElasticError>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                assert!(!error.next().is_empty() && !error.to_string().is_empty());
                let is_short = matches!(error, ElasticError::Memory(MemoryError::Short { .. }));
                let by_the_gate = self.gate.reached() || is_short;
                assert!(by_the_gate, "{}: fails by itself: {error}", self.what);
                None
            }
        }
    }

    fn take(&mut self, component: Component, count: usize) {
        let taken = self.judge(self.elastic.take_many(component, count));
        for granule in taken.into_iter().flatten() {
            self.held.insert(granule, component);
            let write = || write_all(self.elastic, granule, granule.to_number());
            self.gate.without(write);
        }
        self.check();
    }

    fn some_of(&self, component: Component, count: usize) -> Vec<Granule> {
        let its = self.held.iter().filter(|(_, holder)| **holder == component);
        its.map(|(granule, _)| *granule).take(count).collect()
    }

    fn give_back(&mut self, component: Component, count: usize) {
        let given = self.some_of(component, count);
        let outcome = self.elastic.give_back(component, &given);
        let gone = matches!(outcome, Ok(()) | Err(ElasticError::ReturnPending { .. }));
        self.judge(outcome);
        if gone {
            given.iter().for_each(|granule| {
                self.held.remove(granule);
            });
        }
        self.check();
    }

    fn transfer(&mut self, from: Component, to: Component, count: usize) {
        let given = self.some_of(from, count);
        let renamed = self.judge(self.elastic.transfer(from, to, &given));
        for (old, new) in given.iter().zip(renamed.into_iter().flatten()) {
            self.held.remove(old);
            self.held.insert(new, to);
            let write = || write_all(self.elastic, new, new.to_number());
            self.gate.without(write);
        }
        self.check();
    }

    fn check(&self) {
        self.gate.without(|| {
            let info = self.elastic.info().unwrap();
            let held = pages(self.size, self.held.len() as u64);
            assert_eq!(info.held, held, "{}", self.what);
            for listed in &info.components {
                let its = self.held.values().filter(|c| **c == listed.component);
                assert_eq!(listed.bytes, pages(self.size, its.count() as u64));
            }
            let extents = self.elastic.extents().unwrap();
            let on_pool = on(&extents, PageKind::Hugetlb);
            let used = pages(self.size, in_use(self.size));
            let most = on_pool + info.unclean;
            assert!(
                on_pool <= used && used <= most,
                "{}: {used}\n{info}",
                self.what
            );
            for granule in self.held.keys() {
                assert_written(self.elastic, *granule, granule.to_number());
            }
        });
    }
}

/// Runs all operations with one call refused. Returns true if that call was reached.
fn refuse_one(kind: &str, size: PageSize, at: usize, ever_after: bool, errno: Errno) -> bool {
    let what = format!("{kind}, call {at}, {errno:?}, ever after: {ever_after}");
    let gate = Arc::new(Refuse {
        at,
        ever_after,
        errno,
        calls: AtomicUsize::new(0),
        open: AtomicBool::new(false),
    });
    let before = (Holdings::now(), pool(size));
    let made = Elastic::new(&options(kind, size, MemorySyscalls::behind(gate.clone())));
    let Ok(elastic) = made else {
        assert!(gate.reached(), "{what}: {made:?}");
        assert_eq!((Holdings::now(), pool(size)), before, "{what}");
        return true;
    };
    let one = elastic.component("one", true).unwrap();
    let two = elastic.component("two", true).unwrap();
    let mut scene = Scene {
        elastic: &elastic,
        size,
        gate: &gate,
        held: BTreeMap::new(),
        what: &what,
    };
    scene.take(one, 3);
    scene.take(two, 2);
    scene.give_back(one, 2);
    scene.transfer(two, one, 1);
    scene.take(two, 3);
    scene.give_back(two, 4);
    // Memory that was on the second rung may come back on the first.
    scene.take(one, 3);
    scene.take(two, 4);
    scene.judge(elastic.extents());
    scene.judge(elastic.info());
    scene.judge(elastic.recover());
    scene.check();
    if elastic.sharing() == Sharing::Shared {
        scene.judge(elastic.handle());
        let handle = gate.without(|| elastic.handle().unwrap());
        let attached = Elastic::attach_with(&handle, &MemorySyscalls::behind(gate.clone()));
        if let Some(other) = scene.judge(attached) {
            for granule in scene.held.keys() {
                scene.judge(other.address(*granule));
            }
            scene.judge(other.take(one));
            // The granule is returned here, or found by the recovery below.
        }
    }
    scene.check_recovered();
    drop(elastic);
    assert_eq!((Holdings::now(), pool(size)), before, "{what}");
    gate.reached()
}

impl Scene<'_> {
    fn check_recovered(&self) {
        self.gate.without(|| self.elastic.recover().unwrap());
        self.check();
        let info = self.gate.without(|| self.elastic.info().unwrap());
        assert!(info.unclean.is_zero(), "{}", self.what);
        assert_eq!(info.processes, 1, "{}", self.what);
    }
}

/// Tests each call of a kind with each errno, in its own process, since it counts resources.
pub fn part(words: &Words) {
    let (kind, size) = (words.get(0), words.get(1).parse().unwrap());
    for _ in 0..2 {
        // Allocates buffers and files of the first use.
        refuse_one(kind, size, usize::MAX, false, Errno::INVAL);
    }
    let mut at = 0;
    loop {
        let mut reached = false;
        // The short form tests the errors that are retried, and one of the others in turn.
        let others = &ERRNOS[RETRIED..];
        let turn = at % others.len();
        let others = hugeleaf_testkit::size(&others[turn..=turn], others);
        for errno in ERRNOS[..RETRIED].iter().chain(others).copied() {
            reached |= refuse_one(kind, size, at, false, errno);
            // The kernel never interrupts a call forever.
            let is_its_turn = hugeleaf_testkit::all() || others.contains(&errno);
            if errno != Errno::INTR && is_its_turn {
                reached |= refuse_one(kind, size, at, true, errno);
            }
        }
        if !reached {
            break;
        }
        at += 1;
    }
    assert!(at > 20, "{kind}: only {at} calls");
}

fn each_call_fails(test: &str, kind: &str) {
    if huge(test).is_none() {
        return;
    }
    let Some((_guard, size)) = HostGuard::with_pool(test, 4) else {
        return;
    };
    let before = pool(size);
    Part::start("elastic_faults", &[kind, &size.to_string()]).succeed();
    assert_eq!(pool(size), before);
}

#[test]
fn each_call_of_pool_memory_fails() {
    each_call_fails("each_call_of_pool_memory_fails", "pool");
}

#[test]
fn each_call_of_mandatory_memory_fails() {
    each_call_fails("each_call_of_mandatory_memory_fails", "mandatory");
}

#[test]
fn each_call_of_private_pool_memory_fails() {
    each_call_fails("each_call_of_private_pool_memory_fails", "private-pool");
}

#[test]
fn each_call_of_private_memory_fails() {
    each_call_fails("each_call_of_private_memory_fails", "private");
}

#[test]
fn each_call_of_shared_thp_memory_fails() {
    each_call_fails("each_call_of_shared_thp_memory_fails", "shared-thp");
}

/// Takes all free pages right before the call with a given number.
#[derive(Debug)]
struct Thief {
    at: usize,
    calls: AtomicUsize,
    loot: Elastic,
}

impl SyscallGate for Thief {
    fn pass(&self, _: MemoryCall) -> Result<(), Errno> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.at {
            let thief = self.loot.component("thief", true).unwrap();
            while self.loot.take(thief).is_ok() {}
        }
        Ok(())
    }
}

#[test]
fn a_pool_that_is_drained_at_any_call_is_no_sigbus() {
    let test = "a_pool_that_is_drained_at_any_call_is_no_sigbus";
    let Some((_guard, size)) = HostGuard::with_pool(test, 6) else {
        return;
    };
    let before = pool(size);
    for at in 0.. {
        let thief = Arc::new(Thief {
            at,
            calls: AtomicUsize::new(0),
            loot: pooled(size, 8),
        });
        let memory = MemorySyscalls::behind(thief.clone());
        let elastic = Elastic::new(&options("pool", size, memory)).unwrap();
        let one = elastic.component("one", true).unwrap();
        let taken = elastic.take_many(one, 4).unwrap();
        taken.iter().for_each(|g| write_all(&elastic, *g, 2));
        taken.iter().for_each(|g| assert_written(&elastic, *g, 2));
        let mine = on(&elastic.extents().unwrap(), PageKind::Hugetlb);
        let theirs = thief.loot.held();
        assert_eq!(mine + theirs, pages(size, in_use(size)), "call {at}");
        let reached = thief.calls.load(Ordering::Relaxed) > at;
        drop((elastic, thief));
        assert_eq!(pool(size), before, "call {at}");
        if !reached {
            assert!(at > 10, "only {at} calls");
            break;
        }
    }
}

#[test]
fn forged_handles_and_tables_are_refused() {
    let test = "forged_handles_and_tables_are_refused";
    let Some((_guard, size)) = HostGuard::with_pool(test, 2) else {
        return;
    };
    let elastic = pooled(size, 4);
    let other = pooled(size, 8);
    let line = |elastic: &Elastic| {
        let handle = elastic.handle().unwrap();
        let line = handle.inheritable().unwrap();
        (handle, line)
    };
    let (_handle, good) = line(&elastic);
    let (_other, longer) = line(&other);
    let attach = |line: &str| Elastic::attach(&crate::Handle::from_inherited(line)?);
    drop(attach(&good).unwrap());
    let descriptors = |line: &str| line.split_once(';').unwrap().0.to_owned();
    let numbers: Vec<String> = descriptors(&good).split(' ').map(str::to_owned).collect();
    let max = elastic.max().get();
    let swapped = format!("fds {} {}", numbers[2], numbers[1]);
    let page = host().base_page.bytes().get();
    for (from, to) in [
        (
            "hugeleaf-elastic 1".to_owned(),
            "hugeleaf-elastic 9".to_owned(),
        ),
        ("hugeleaf-elastic".to_owned(), "hugeleaf-region".to_owned()),
        (format!("max {max}"), format!("max {}", max * 2)),
        (format!("max {max}"), format!("max {}", u64::MAX)),
        (format!("max {max}"), "max 0".to_owned()),
        ("rung hugetlb".to_owned(), "rung thp".to_owned()),
        ("granule ".to_owned(), "granule 0".to_owned()),
        (
            format!("granule {}", size.bytes().get()),
            format!("granule {page}"),
        ),
        ("nodes inherit".to_owned(), "nodes bind 77".to_owned()),
        (";end;".to_owned(), ";".to_owned()),
        (descriptors(&good), swapped),
        (descriptors(&good), descriptors(&longer)),
        (descriptors(&good), format!("fds {}", numbers[1])),
    ] {
        let forged = good.replacen(&from, &to, 1);
        assert_ne!(forged, good, "{from}");
        let error = attach(&forged).unwrap_err();
        assert!(!error.next().is_empty(), "{from}: {error}");
    }
    assert_eq!(elastic.info().unwrap().processes, 1);
    // A region's handle is not an elastic's, and vice versa.
    let handle = elastic.handle().unwrap();
    assert!(matches!(
        crate::Region::attach(&handle),
        Err(MemoryError::BadHandle(_))
    ));
}

/// With any contents of the table, calls may only be refused.
#[test]
fn a_table_of_rubbish_is_told() {
    use std::os::unix::fs::FileExt;
    let base = host().base_page;
    let options = asked(pages(base, 64), &base.to_string()).shared();
    let elastic = Elastic::new(&options).unwrap();
    let one = elastic.component("one", true).unwrap();
    let taken = elastic.take_many(one, 5).unwrap();
    let handle = elastic.handle().unwrap();
    let inherited = handle.inheritable().unwrap();
    let number = inherited.split([' ', ';']).nth(1).unwrap();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/self/fd/{number}"))
        .unwrap();
    let length = file.metadata().unwrap().len();
    let word = |at: u64| at * 8;
    let sound: Vec<u8> = {
        let mut all = vec![0; usize::try_from(length).unwrap()];
        file.read_exact_at(&mut all, 0).unwrap();
        all
    };
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..300u64 {
        for at in 0..length / 8 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // The lock and the process slots are kept: their damage is detected only after a while.
            let is_lock = at == 6;
            let value = match round % 3 {
                _ if is_lock => 0,
                0 => random,
                1 => u64::MAX,
                _ => random & 0xffff,
            };
            if random.is_multiple_of(4) || round % 3 == 1 {
                file.write_all_at(&value.to_le_bytes(), word(at)).unwrap();
            }
        }
        let _ = elastic.info();
        let _ = elastic.extents();
        let _ = elastic.take_many(one, 2);
        let _ = elastic.give_back(one, &taken);
        let _ = elastic.transfer(one, one, &taken[..1]);
        let _ = elastic.address(taken[0]);
        let _ = elastic.component("two", true);
        let _ = elastic.set_target(base.bytes());
        let _ = elastic.recover();
        let _ = Elastic::attach(&handle);
    }
    file.write_all_at(&sound, 0).unwrap();
    elastic.give_back(one, &taken[1..]).unwrap();
}
