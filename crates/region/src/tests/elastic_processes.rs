//! Elastic memory in several processes: concurrent, killed at any moment, forked.

use std::collections::HashSet;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{
    Component, Elastic, ElasticError, ElasticOptions, Granule, Handle, PageSize, Recovered,
};
use hugeleaf_sys::{Errno, MemoryCall, MemorySyscalls, SyscallGate};

use super::child::{Part, Words, hear, say};
use super::elastic::{asked, assert_written, assert_zeroed, in_use, pooled, write_all};
use super::fork::{ended, forked};
use super::support::{HostGuard, pages, pool};

/// Starts a child that attaches an elastic.
struct Door {
    _dir: tempfile::TempDir,
    path: String,
    listener: UnixListener,
}

impl Door {
    fn open() -> Door {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        Door {
            listener: UnixListener::bind(&path).unwrap(),
            path: path.to_str().unwrap().to_owned(),
            _dir: dir,
        }
    }

    fn start(&self, elastic: &Elastic, what: &str, word: &str) -> Part {
        let part = Part::start("elastic", &[&self.path, what, word]);
        let (socket, _) = self.listener.accept().unwrap();
        elastic.handle().unwrap().send(&socket).unwrap();
        part
    }
}

/// Runs the part of a child.
pub fn part(words: &Words) {
    let socket = UnixStream::connect(words.get(0)).unwrap();
    let handle = Handle::receive(&socket).unwrap();
    match words.get(1) {
        "take_all" => take_all(&Elastic::attach(&handle).unwrap()),
        "recover" => say(&format!(
            "{}",
            Elastic::attach(&handle).unwrap().recover().unwrap().bytes
        )),
        "hold" => hold(&Elastic::attach(&handle).unwrap(), words.get(2)),
        "abort" => abort_at(&handle, words.get(2)),
        "churn" => churn(&Elastic::attach(&handle).unwrap()),
        other => panic!("no part {other}"),
    }
}

/// Takes granules one at a time until none is left, and reports their names.
fn take_all(elastic: &Elastic) {
    let cache = elastic.component("cache", true).unwrap();
    say("ready");
    hear();
    let mut taken = Vec::new();
    while let Ok(granule) = elastic.take(cache) {
        assert_zeroed(elastic, granule);
        write_all(elastic, granule, u64::from(std::process::id()));
        taken.push(granule);
    }
    let names = taken.iter().map(|g| g.to_number().to_string());
    say(&names.collect::<Vec<_>>().join(" "));
    hear();
    for granule in &taken {
        assert_written(elastic, *granule, u64::from(std::process::id()));
    }
    elastic.give_back(cache, &taken).unwrap();
}

#[test]
fn two_processes_take_and_no_granule_is_had_twice() {
    let test = "two_processes_take_and_no_granule_is_had_twice";
    let Some((_guard, size)) = HostGuard::with_pool(test, 60) else {
        return;
    };
    let before = pool(size);
    let elastic = pooled(size, 64);
    let door = Door::open();
    let mut parts = [
        door.start(&elastic, "take_all", "-"),
        door.start(&elastic, "take_all", "-"),
    ];
    for part in &mut parts {
        assert_eq!(part.next_line().unwrap(), "ready");
    }
    parts.iter_mut().for_each(|part| part.tell("go"));
    let mut indices = HashSet::new();
    for part in &mut parts {
        for name in part.next_line().unwrap().split_ascii_whitespace() {
            let granule = Granule::from_number(name.parse().unwrap());
            assert!(indices.insert(granule.index()), "{granule} twice");
        }
    }
    assert_eq!((indices.len(), in_use(size)), (60, 60));
    assert_eq!(elastic.held(), pages(size, 60));
    for mut part in parts {
        part.tell("return");
        part.succeed();
    }
    assert_eq!(elastic.held(), pages(size, 0));
    assert_eq!(pool(size), before);
    assert_eq!(elastic.info().unwrap().processes, 1);
}

/// Takes `count` granules, reports their names, and waits.
fn hold(elastic: &Elastic, count: &str) {
    let cache = elastic.component("cache", true).unwrap();
    let taken = elastic.take_many(cache, count.parse().unwrap()).unwrap();
    taken.iter().for_each(|g| write_all(elastic, *g, 7));
    let names = taken.iter().map(|g| g.to_number().to_string());
    say(&names.collect::<Vec<_>>().join(" "));
    hear();
}

/// Start times use the clock of the reader's time namespace. A process in another one used to
/// consider all others ended, and freed their granules.
#[test]
fn a_process_in_another_time_namespace_frees_nothing_of_who_lives() {
    let test = "a_process_in_another_time_namespace_frees_nothing_of_who_lives";
    let by = || {
        let mut command = Command::new("unshare");
        command.args(["--time", "--boottime", "100000"]);
        command
    };
    if !{ by().arg("true").output() }.is_ok_and(|output| output.status.success()) {
        return hugeleaf_testkit::not_run(test, "no time namespaces here, or no right to one");
    }
    let base = hugeleaf_sys::Kernel::new().base_page();
    let ladder = base.to_string().parse().unwrap();
    let options = ElasticOptions::new(pages(base, 4), ladder).shared();
    let elastic = Elastic::new(&options).unwrap();
    let cache = elastic.component("cache", true).unwrap();
    let mine = elastic.take(cache).unwrap();
    write_all(&elastic, mine, 7);
    let door = Door::open();
    let program = std::fs::read_link("/proc/self/exe").unwrap();
    let mut part = Part::start_by(by().arg(program), "elastic", &[&door.path, "recover", "-"]);
    let (socket, _) = door.listener.accept().unwrap();
    elastic.handle().unwrap().send(&socket).unwrap();
    assert_eq!(part.next_line().unwrap(), "0");
    assert_eq!(elastic.held(), pages(base, 1));
    assert_written(&elastic, mine, 7);
}

#[test]
fn what_a_killed_process_held_comes_back() {
    let test = "what_a_killed_process_held_comes_back";
    let Some((_guard, size)) = HostGuard::with_pool(test, 10) else {
        return;
    };
    let before = pool(size);
    let elastic = pooled(size, 10);
    let cache = elastic.component("cache", true).unwrap();
    let mine = elastic.take_many(cache, 2).unwrap();
    mine.iter().for_each(|g| write_all(&elastic, *g, 1));
    let door = Door::open();
    let mut part = door.start(&elastic, "hold", "6");
    let names = part.next_line().unwrap();
    let theirs: Vec<Granule> = names
        .split_ascii_whitespace()
        .map(|name| Granule::from_number(name.parse().unwrap()))
        .collect();
    assert_eq!(elastic.recover().unwrap().bytes.get(), 0, "it lives");
    // Adopted granules outlive their first owner.
    let kept = elastic.transfer(cache, cache, &theirs[..2]).unwrap();
    part.kill();
    assert_eq!((in_use(size), elastic.held()), (8, pages(size, 8)));
    let recovered = elastic.recover().unwrap();
    assert_eq!((recovered.processes, recovered.bytes), (1, pages(size, 4)));
    assert_eq!((in_use(size), elastic.held()), (4, pages(size, 4)));
    kept.iter().for_each(|g| assert_written(&elastic, *g, 7));
    mine.iter().for_each(|g| assert_written(&elastic, *g, 1));
    assert!(elastic.address(theirs[5]).is_err());
    assert_eq!(elastic.take_many(cache, 6).unwrap().len(), 6);
    drop(elastic);
    assert_eq!(pool(size), before);
}

/// Kills the process at the call with a given number.
#[derive(Debug)]
struct Abort {
    at: usize,
    calls: AtomicUsize,
}

impl SyscallGate for Abort {
    fn pass(&self, _: MemoryCall) -> Result<(), Errno> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.at {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
            loop {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

/// Runs all operations until it is killed at a call.
fn abort_at(handle: &Handle, at: &str) {
    let gate = Arc::new(Abort {
        at: at.parse().unwrap(),
        calls: AtomicUsize::new(0),
    });
    let elastic = Elastic::attach_with(handle, &MemorySyscalls::behind(gate)).unwrap();
    let (one, two) = components(&elastic);
    // On both rungs: the pool has fewer pages.
    let mut taken = elastic.take_many(one, 5).unwrap();
    elastic.give_back(one, &taken.split_off(2)).unwrap();
    let moved = elastic.transfer(one, two, &taken).unwrap();
    taken = elastic.take_many(one, 4).unwrap();
    elastic.extents().unwrap();
    elastic.give_back(one, &taken).unwrap();
    elastic.give_back(two, &moved[..1]).unwrap();
    elastic.recover().unwrap();
    for index in 0..2 {
        // Granules of the other process, under their first name.
        let granule = Granule::from_number(index << 32 | 1);
        elastic.address(granule).unwrap();
    }
    drop(elastic);
    say("through");
}

fn components(elastic: &Elastic) -> (Component, Component) {
    let one = elastic.component("one", true).unwrap();
    (one, elastic.component("two", true).unwrap())
}

#[test]
fn a_process_killed_at_any_call_leaves_what_can_be_recovered() {
    let test = "a_process_killed_at_any_call_leaves_what_can_be_recovered";
    let Some((_guard, size)) = HostGuard::with_pool(test, 6) else {
        return;
    };
    let before = pool(size);
    let options = asked(pages(size, 12), &format!("hugetlb:{size}")).shared();
    let elastic = Elastic::new(&options).unwrap();
    let (one, _) = components(&elastic);
    let mine = elastic.take_many(one, 2).unwrap();
    assert_eq!(mine[1].to_number(), 1 << 32 | 1);
    mine.iter().for_each(|g| write_all(&elastic, *g, 4));
    let door = Door::open();
    let mut at = 0;
    loop {
        let mut part = door.start(&elastic, "abort", &at.to_string());
        let through = part.next_line().is_some();
        part.wait();
        elastic.recover().unwrap();
        let rest = elastic.recover().unwrap();
        assert_eq!(
            rest,
            Recovered::default(),
            "call {at}: a second one finds more"
        );
        let info = elastic.info().unwrap();
        assert_eq!(info.processes, 1, "call {at}");
        assert_eq!((info.held, in_use(size)), (pages(size, 2), 2), "call {at}");
        assert!(info.unclean.is_zero());
        assert_eq!(info.components[0].bytes, pages(size, 2), "call {at}");
        mine.iter().for_each(|g| assert_written(&elastic, *g, 4));
        if through {
            break;
        }
        at += 1;
    }
    assert!(at > 30, "only {at} calls");
    let again = elastic.take_many(one, 10).unwrap();
    again.iter().for_each(|g| assert_zeroed(&elastic, *g));
    drop(elastic);
    assert_eq!(pool(size), before);
}

/// Takes and returns granules forever.
fn churn(elastic: &Elastic) {
    let (one, two) = components(elastic);
    say("ready");
    for round in 0usize.. {
        let Ok(taken) = elastic.take_many(one, 1 + round % 3) else {
            continue;
        };
        let Ok(moved) = elastic.transfer(one, two, &taken[..1]) else {
            panic!("a transfer failed");
        };
        elastic.give_back(one, &taken[1..]).unwrap();
        elastic.give_back(two, &moved).unwrap();
    }
}

#[test]
fn processes_killed_at_any_moment_leave_what_can_be_recovered() {
    let test = "processes_killed_at_any_moment_leave_what_can_be_recovered";
    let Some((_guard, size)) = HostGuard::with_pool(test, 6) else {
        return;
    };
    let kills: u64 = match std::env::var("HUGELEAF_STEPS") {
        Ok(steps) => steps.parse::<u64>().unwrap() / 1000,
        Err(_) => 30,
    };
    let before = pool(size);
    let elastic = pooled(size, 8);
    let (one, two) = components(&elastic);
    let mine = elastic.take(one).unwrap();
    write_all(&elastic, mine, 6);
    let door = Door::open();
    for round in 0..kills {
        let mut parts = [
            door.start(&elastic, "churn", "-"),
            door.start(&elastic, "churn", "-"),
        ];
        for part in &mut parts {
            assert_eq!(part.next_line().unwrap(), "ready");
        }
        hugeleaf_testkit::pause(
            std::time::Duration::from_micros(round * 997 % 5000),
            "each kill is at another moment",
        );
        parts[0].kill();
        elastic.recover().unwrap();
        // The other process continues.
        elastic.transfer(two, one, &[]).unwrap();
        parts[1].kill();
        elastic.recover().unwrap();
        let info = elastic.info().unwrap();
        assert_eq!(
            (info.held, info.processes),
            (size.bytes(), 1),
            "round {round}"
        );
        assert_eq!(in_use(size), 1, "round {round}");
        assert_eq!(info.components[0].bytes, size.bytes());
        assert_written(&elastic, mine, 6);
    }
    drop(elastic);
    assert_eq!(pool(size), before);
}

#[test]
fn a_forked_child_is_told_to_attach() {
    let test = "a_forked_child_is_told_to_attach";
    let Some((_guard, size)) = HostGuard::with_pool(test, 4) else {
        return;
    };
    let before = pool(size);
    Part::start("elastic_fork", &[&size.to_string()]).succeed();
    assert_eq!(pool(size), before);
}

pub fn fork(words: &Words) {
    let size: PageSize = words.get(0).parse().unwrap();
    let shared = pooled(size, 4);
    let cache = shared.component("cache", true).unwrap();
    let taken = shared.take(cache).unwrap();
    write_all(&shared, taken, 2);
    let start = shared.address(taken).unwrap();
    let named = asked(pages(size, 2), &format!("hugetlb:{size}"));
    let private = Elastic::new(&named).unwrap();
    let own = private.component("own", true).unwrap();
    let kept = private.take_many(own, 2).unwrap();
    write_all(&private, kept[0], 3);
    let child = forked(|| {
        let forked = |error| matches!(error, ElasticError::Forked { .. });
        assert!(forked(shared.take(cache).unwrap_err()));
        assert!(forked(shared.give_back(cache, &[taken]).unwrap_err()));
        assert!(forked(shared.address(taken).unwrap_err()));
        assert!(forked(private.extents().unwrap_err()));
        // SAFETY: shared memory, which a child may use in place.
        unsafe { start.write_volatile(42) };
        // SAFETY: bitwise copies are dropped in their place; the child ends without dropping them.
        unsafe { drop((std::ptr::read(&shared), std::ptr::read(&private))) };
    });
    assert_eq!(ended(child), 0);
    assert_eq!(in_use(size), 3, "a child gives nothing back");
    // SAFETY: held, and written by the child.
    assert_eq!(unsafe { start.read_volatile() }, 42);
    assert_written(&private, kept[0], 3);
}
