//! Limits: cgroups on reservations, on faults and on memory; memlock; threads; nodes.

use std::sync::Mutex;

use crate::{Bytes, MemoryError, NodePolicy, PageKind, Region, RegionOptions, Sharing};
use hugeleaf_testkit::cgroup::ControllerCgroup;
use hugeleaf_units::PageSize;

use super::child::{Part, Words, hear, say};
use super::support::{HostGuard, assert_whole, host, huge, options, pages, pool, use_all};

/// Returns the path under which the limit of a cgroup is reported.
fn path(cgroup: &ControllerCgroup) -> String {
    format!(
        "/{}",
        cgroup.folder().file_name().unwrap().to_str().unwrap()
    )
}

/// Starts a child and lets it continue inside the cgroup.
fn start(cgroup: &ControllerCgroup, words: &[&str]) -> Part {
    let mut part = Part::start("within_cgroup", words);
    cgroup.set("cgroup.procs", part.pid().into());
    part.tell("go");
    part
}

/// Returns the size as in the names of the controller's files.
fn name_of(size: PageSize) -> String {
    hugeleaf_host::limits::hugetlb::name_of(size)
}

/// Requests memory and uses all of it, or reports the limit.
pub fn within_cgroup(words: &Words) {
    let (length, ladder) = (Bytes(words.number(0)), words.get(1));
    let sharing = match words.get(2) {
        "shared" => Sharing::Shared,
        _ => Sharing::Private,
    };
    assert_eq!(hear(), "go");
    let asked = RegionOptions {
        sharing,
        ..options(length, ladder)
    };
    let mut reported = Vec::new();
    match Region::with_progress(&asked, &mut |done, _| reported.push(done)) {
        Ok(region) => {
            use_all(&region);
            assert_whole(&region);
            // A second attempt populates the same memory again, which is no progress.
            assert!(
                reported.is_sorted() && reported.last() == Some(&length),
                "{reported:?}"
            );
            let extents = region.extents().unwrap();
            let from_pool = extents.iter().filter(|e| e.kind == PageKind::Hugetlb);
            let from_pool: Bytes = from_pool.map(|e| e.range.len()).sum();
            let why = extents.last().unwrap().why.as_ref();
            say(&format!("{from_pool:#} of it; {why:?}"));
        }
        Err(MemoryError::TooLarge {
            available,
            limited_by,
            ..
        }) => say(&format!("{available:#} at most by {limited_by}")),
        Err(error) => say(&format!("error {error}; {}", error.next())),
    }
}

/// Tests a pool of 16 pages with a limit of 5 on one of the two counters, and a request for 12.
fn a_hugetlb_limit(test: &str, file: &str) {
    let Some((_guard, size)) = HostGuard::with_pool(test, 16) else {
        return;
    };
    let Some(cgroup) = ControllerCgroup::new(test, "hugetlb") else {
        return;
    };
    let before = pool(size);
    cgroup.set(
        &format!("hugetlb.{}.{file}", name_of(size)),
        pages(size, 5).get(),
    );
    let length = pages(size, 12).get().to_string();
    let by = format!("cgroup {}", path(&cgroup));
    for sharing in ["private", "shared"] {
        let ladder = format!("hugetlb:{size}");
        let mut part = start(&cgroup, &[&length, &ladder, sharing]);
        let answer = part.next_line().expect("killed");
        let got = format!("{:#} of it", pages(size, 5));
        assert!(answer.starts_with(&got) && answer.contains(&by), "{answer}");
        part.succeed();

        let mandatory = format!("hugetlb:{size}!");
        let mut part = start(&cgroup, &[&length, &mandatory, sharing]);
        let answer = part.next_line().expect("killed");
        assert!(
            answer.contains("7 missing") && answer.contains(&by),
            "{answer}"
        );
        part.succeed();
        assert_eq!(pool(size), before);
    }
}

#[test]
fn a_limit_on_reservations_gives_a_mosaic() {
    let test = "a_limit_on_reservations_gives_a_mosaic";
    a_hugetlb_limit(test, "rsvd.limit_in_bytes");
}

/// The limit that Kubernetes sets: mmap(2) succeeds, and an access beyond it raises SIGBUS.
#[test]
fn a_limit_on_faults_gives_a_mosaic() {
    a_hugetlb_limit("a_limit_on_faults_gives_a_mosaic", "limit_in_bytes");
}

#[test]
fn a_limit_on_memory_refuses_and_kills_nobody() {
    let test = "a_limit_on_memory_refuses_and_kills_nobody";
    let (Some(_guard), Some(huge)) = (HostGuard::lock(test), huge(test)) else {
        return;
    };
    let Some(cgroup) = ControllerCgroup::new(test, "memory") else {
        return;
    };
    let limit = Bytes::from_mib(256);
    cgroup.set("memory.limit_in_bytes", limit.get());
    let base = host().base_page;
    for ladder in [base.to_string(), format!("thp:{huge}")] {
        for sharing in ["private", "shared"] {
            let what = format!("{ladder} {sharing}");
            let more = (limit.get() * 2).to_string();
            let ask = |bytes: &str| {
                let mut part = start(&cgroup, &[bytes, &ladder, sharing]);
                let answer = part.next_line().expect(&what);
                part.succeed();
                answer
            };
            let mut answer = ask(&more);
            // A request just below the reported size succeeds. If the program itself is read from
            // disk meanwhile, its pages count in the cgroup, and less is available.
            for _ in 0..5 {
                let (most, by) = answer.split_once(" at most by ").expect(&answer);
                assert_eq!(by, "the memory cgroup", "{what}");
                let below = base.round_down(most.parse::<u64>().unwrap() - (1 << 20));
                answer = ask(&below.to_string());
                if answer.contains("of it") {
                    break;
                }
            }
            assert!(answer.contains("of it"), "{what}: {answer}");
        }
    }
    let control = cgroup.read("memory.oom_control");
    assert!(control.contains("oom_kill 0"), "{control}");
}

/// Sets the soft limit and keeps the hard one.
fn set_memlock(limit: Bytes) {
    let memlock = rustix::process::Resource::Memlock;
    let limit = rustix::process::Rlimit {
        current: Some(limit.get()),
        ..rustix::process::getrlimit(memlock)
    };
    rustix::process::setrlimit(memlock, limit).unwrap();
}

fn drop_capability(capability: rustix::thread::CapabilitySet) {
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective.remove(capability);
    rustix::thread::set_capabilities(None, sets).unwrap();
}

/// Runs as a process that may lock four huge pages.
pub fn locked(words: &Words) {
    let size: PageSize = words.get(0).parse().unwrap();
    let lock = |length, ladder: &str| {
        Region::new(&RegionOptions {
            locked: true,
            ..options(length, ladder)
        })
    };
    set_memlock(pages(size, 4));
    drop_capability(rustix::thread::CapabilitySet::IPC_LOCK);
    let limited = |made: Result<Region, MemoryError>| {
        let error = made.unwrap_err();
        let is_limit = matches!(error, MemoryError::MemlockLimit { .. });
        assert!(is_limit, "{error}");
        assert!(
            error.next().starts_with("raise the limit: ulimit -l"),
            "{error}"
        );
    };
    limited(lock(pages(size, 5), &format!("thp:{size}")));
    let thp = lock(pages(size, 3), &format!("thp:{size}")).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = pages(size, 3).get() / 1024;
    let line = status.lines().find(|l| l.starts_with("VmLck:")).unwrap();
    assert!(line.contains(&format!(" {kib} kB")), "{line}");
    use_all(&thp);
    assert_whole(&thp);
    // Within the limit on its own, but not in addition to the first.
    limited(lock(pages(size, 2), &format!("thp:{size}")));
    let from_pool = lock(pages(size, 8), &format!("hugetlb:{size}!")).unwrap();
    use_all(&from_pool);
    drop(thp);
    drop(lock(pages(size, 4), &format!("thp:{size}")).unwrap());
}

#[test]
fn a_limit_on_locking_is_told_and_reserved_pages_have_none() {
    let test = "a_limit_on_locking_is_told_and_reserved_pages_have_none";
    if huge(test).is_none() {
        return;
    }
    let Some((_guard, size)) = HostGuard::with_pool(test, 8) else {
        return;
    };
    let hard = rustix::process::getrlimit(rustix::process::Resource::Memlock).maximum;
    if hard.is_some_and(|hard| hard < pages(size, 4).get()) {
        println!("not run: {test}: needs a memlock limit of four pages of {size}");
        return;
    }
    Part::start("locked", &[&size.to_string()]).succeed();
}

/// Runs as another user, who may start no thread, and whose page map belongs to root.
pub fn few_threads(words: &Words) {
    let size: PageSize = words.get(0).parse().unwrap();
    let none = rustix::process::Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    rustix::process::setrlimit(rustix::process::Resource::Nproc, none).unwrap();
    const NOBODY: u32 = 65534;
    // SAFETY: takes no pointer.
    assert_eq!(unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) }, 0);
    assert!(std::thread::Builder::new().spawn(|| {}).is_err());
    assert!(std::fs::File::open("/proc/self/pagemap").is_err());
    for ladder in [format!("thp:{size}"), format!("thp:{size}!")] {
        for sharing in [Sharing::Private, Sharing::Shared] {
            let region = Region::new(&RegionOptions {
                threads: Some(4),
                sharing,
                ..options(pages(size, 40), &ladder)
            })
            .unwrap();
            use_all(&region);
            assert_whole(&region);
            let extents = region.extents().unwrap();
            assert_eq!((extents.len(), extents[0].page), (1, size), "{extents:#?}");
        }
    }
}

#[test]
fn without_threads_and_without_a_page_map_it_works_too() {
    let test = "without_threads_and_without_a_page_map_it_works_too";
    let (Some(_guard), Some(huge)) = (HostGuard::lock(test), huge(test)) else {
        return;
    };
    Part::start("few_threads", &[&huge.to_string()]).succeed();
}

#[test]
fn any_number_of_threads_fills_it_and_none_stays() {
    let test = "any_number_of_threads_fills_it_and_none_stays";
    let (Some(_guard), Some(huge)) = (HostGuard::lock(test), huge(test)) else {
        return;
    };
    let base = host().base_page;
    for threads in [None, Some(0), Some(1), Some(2), Some(3), Some(4), Some(100)] {
        for length in [base.bytes(), pages(huge, 70) + base.bytes()] {
            let reported = Mutex::new(Vec::new());
            let asked = RegionOptions {
                threads,
                ..options(length, &huge.to_string())
            };
            let region = Region::with_progress(&asked, &mut |done, of| {
                assert_eq!(of, length);
                reported.lock().unwrap().push(done);
            });
            use_all(&region.unwrap());
            let reported = reported.into_inner().unwrap();
            assert!(reported.is_sorted(), "{reported:?}");
            assert_eq!(reported.last(), Some(&length), "{threads:?}");
        }
    }
    let names = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks
            .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
            .filter(|name| name.starts_with("hugeleaf-fill"))
            .count()
    };
    // The kernel removes a thread from the list shortly after it is joined.
    while names() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn nodes_that_are_there_give_and_others_are_told() {
    let test = "nodes_that_are_there_give_and_others_are_told";
    let Some((_guard, size)) = HostGuard::with_pool(test, 3) else {
        return;
    };
    let node = host().nodes[0];
    let before = pool(size);
    let make = |nodes| {
        let asked = options(pages(size, 5), &size.to_string()).shared();
        Region::new(&RegionOptions { nodes, ..asked })
    };
    for policy in [
        NodePolicy::Inherit,
        NodePolicy::Local,
        NodePolicy::Bind(vec![node]),
        NodePolicy::Interleave(vec![node]),
    ] {
        let region = make(policy).unwrap();
        use_all(&region);
        assert_whole(&region);
    }
    assert_eq!(pool(size), before);
    for nodes in [vec![9], vec![node, 9], vec![1 << 20]] {
        let missing = *nodes.last().unwrap();
        for policy in [
            NodePolicy::Bind(nodes.clone()),
            NodePolicy::Interleave(nodes),
        ] {
            let error = make(policy).unwrap_err();
            assert_eq!(error, MemoryError::NoSuchNode { node: missing });
        }
    }
    assert_eq!(
        make(NodePolicy::Bind(Vec::new())).unwrap_err(),
        MemoryError::NoNodes
    );
    assert_eq!(pool(size), before);
}
