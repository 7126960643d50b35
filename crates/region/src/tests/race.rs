//! Other processes take pages at the worst moment.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::{MemoryError, PageKind, PageSize, Region, RegionOptions, Sharing};
use hugeleaf_sys::{Errno, MemoryCall, MemorySyscalls, SyscallGate};

use super::child::{Part, Words, hear, say};
use super::support::{HostGuard, assert_whole, options, pages, pool, use_all};

/// Takes all free pages right before the call with a given number.
#[derive(Debug)]
struct Thief {
    at: usize,
    calls: AtomicUsize,
    size: PageSize,
    loot: Mutex<Option<Region>>,
}

impl SyscallGate for Thief {
    fn pass(&self, _: MemoryCall) -> Result<(), Errno> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.at {
            let now = pool(self.size);
            let free = now.free - now.reserved;
            if free > 0 {
                let all = options(pages(self.size, free), &format!("hugetlb:{}!", self.size));
                *self.loot.lock().unwrap() = Some(Region::new(&all).unwrap());
            }
        }
        Ok(())
    }
}

fn in_pool(region: &Region) -> u64 {
    let extents = region.extents().unwrap();
    let pool = extents.iter().filter(|e| e.kind == PageKind::Hugetlb);
    pool.map(|e| e.range.len().get() / e.page.bytes().get())
        .sum()
}

/// Creates one region while a thief acts before the call `at`; true if that call was reached.
fn rob(asked: &RegionOptions, size: PageSize, at: usize) -> bool {
    let total = pool(size).total;
    let thief = Arc::new(Thief {
        at,
        calls: AtomicUsize::new(0),
        size,
        loot: Mutex::new(None),
    });
    let made = Region::new(&RegionOptions {
        memory: MemorySyscalls::behind(thief.clone()),
        ..asked.clone()
    });
    // Reading the extents makes calls too.
    if let Ok(region) = &made {
        assert_whole(region);
    }
    let loot = thief.loot.lock().unwrap().take();
    let stolen = loot.as_ref().map_or(0, in_pool);
    match &made {
        Ok(region) => {
            assert!(in_pool(region) + stolen <= total);
            use_all(region);
        }
        Err(MemoryError::Short { why, .. }) => {
            assert!(asked.ladder.is_mandatory() && stolen > 0);
            assert!(why.to_string().contains("taken meanwhile"), "{why}");
        }
        Err(other) => panic!("call {at}: {other}"),
    }
    if let Some(loot) = &loot {
        use_all(loot);
    }
    let struck = thief.calls.load(Ordering::Relaxed) > at;
    drop((made, loot, thief));
    let after = pool(size);
    assert_eq!((after.free, after.reserved), (total, 0), "call {at}");
    struck
}

#[test]
fn pages_that_are_taken_between_two_calls_are_missed_not_lost() {
    let test = "pages_that_are_taken_between_two_calls_are_missed_not_lost";
    let Some((_guard, size)) = HostGuard::with_pool(test, 9) else {
        return;
    };
    for ladder in [format!("hugetlb:{size}"), format!("hugetlb:{size}!")] {
        for sharing in [Sharing::Private, Sharing::Shared] {
            let asked = RegionOptions {
                sharing,
                // The counters that the thief reads are then stable.
                threads: Some(1),
                ..options(pages(size, 7), &ladder)
            };
            let calls = (0..).take_while(|at| rob(&asked, size, *at)).count();
            assert!(calls > 3, "only {calls} calls");
        }
    }
}

/// Takes pages from a pool whenever it is told to.
pub fn grow(words: &Words) {
    let size: PageSize = words.get(0).parse().unwrap();
    let asked = options(pages(size, words.number(1)), &format!("hugetlb:{size}")).shared();
    while hear() == "grow" {
        let region = Region::new(&asked).unwrap();
        say(&in_pool(&region).to_string());
        assert_eq!(hear(), "use");
        assert_whole(&region);
        use_all(&region);
        say("used");
    }
}

#[test]
fn two_that_grow_at_once_share_what_there_is() {
    let test = "two_that_grow_at_once_share_what_there_is";
    let Some((_guard, size)) = HostGuard::with_pool(test, 16) else {
        return;
    };
    let words = [size.to_string(), "12".to_owned()];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut two = [Part::start("grow", &words), Part::start("grow", &words)];
    for _ in 0..20 {
        for part in &mut two {
            part.tell("grow");
        }
        let got: Vec<u64> = two
            .iter_mut()
            .map(|part| part.next_line().unwrap().parse().unwrap())
            .collect();
        assert_eq!(got.iter().sum::<u64>(), 16, "{got:?}");
        for part in &mut two {
            part.tell("use");
        }
        for part in &mut two {
            assert_eq!(part.next_line().unwrap(), "used");
        }
    }
    for mut part in two {
        part.tell("end");
        part.succeed();
    }
    assert_eq!((pool(size).free, pool(size).reserved), (16, 0));
}

#[test]
fn one_that_is_killed_gives_all_back() {
    let test = "one_that_is_killed_gives_all_back";
    let Some((_guard, size)) = HostGuard::with_pool(test, 16) else {
        return;
    };
    let size_word = size.to_string();
    let mut part = Part::start("grow", &[&size_word, "12"]);
    part.tell("grow");
    assert_eq!(part.next_line().unwrap(), "12");
    part.kill();
    assert_eq!((pool(size).free, pool(size).reserved), (16, 0));
}
