//! fork(2) with live regions of every kind, while the pool is empty.

use crate::{Bytes, FallbackReason, MemoryError, PageKind, PageSize, Region, RegionOptions};

use super::child::{Part, Words};
use super::support::{
    HostGuard, assert_whole, assert_written, huge, options, pages, pool, words, write_all,
};

/// Forks a child, which runs `what` and ends.
pub fn forked(what: impl FnOnce()) -> i32 {
    // SAFETY: the child reads and writes memory, calls mmap(2) and ends without running exit
    // handlers of this process. The other thread of the harness only waits, and holds no lock.
    match unsafe { libc::fork() } {
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what));
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        child => {
            assert!(child > 0);
            child
        }
    }
}

/// Waits for a child and returns 0, or the signal that ended it.
pub fn ended(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process; the status is a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    match libc::WIFSIGNALED(status) {
        true => libc::WTERMSIG(status),
        false => {
            assert_eq!(libc::WEXITSTATUS(status), 0);
            0
        }
    }
}

/// Tests every kind, in a process of its own.
pub fn part(given: &Words) {
    let size: PageSize = given.get(0).parse().unwrap();
    let mosaic = pages(size, 5) + Bytes(size.bytes().get() / 2);
    let make = |asked: &RegionOptions| Region::new(asked).unwrap();
    let thp = make(&options(pages(size, 4), &format!("thp:{size}")));
    let private = make(&options(pages(size, 3), &format!("hugetlb:{size}!")));
    let shared = make(&options(mosaic, &size.to_string()).shared());
    let shared_thp = make(&options(mosaic, &format!("thp:{size}")).shared());
    let mixed = make(&options(pages(size, 2), &format!("hugetlb:{size}")));
    assert_eq!((pool(size).free, pool(size).reserved), (0, 0));
    let all = [&thp, &private, &shared, &shared_thp, &mixed];
    all.iter().for_each(|region| write_all(region, 1));

    children_write_what_they_may(&thp, &[&shared, &shared_thp]);
    assert_written(&private, 1);
    assert_written(&mixed, 1);
    for gap in [&private, &mixed] {
        let first = words(gap).next().unwrap();
        // SAFETY: a gap: the access ends the child, which is what is tested.
        let child = forked(|| unsafe { first.write_volatile(0) });
        assert_eq!(ended(child), libc::SIGSEGV);
        assert_written(gap, 1);
    }
    a_gap_belongs_to_the_child(&private);
    copying_splits(&thp);
    pages_go_back_while_a_child_lives(private, size);
}

fn children_write_what_they_may(private: &Region, shared: &[&Region]) {
    let child = forked(|| {
        write_all(private, 2);
        assert_written(private, 2);
        for region in shared {
            assert_written(region, 1);
            write_all(region, 2);
            assert_whole(region);
        }
    });
    assert_eq!(ended(child), 0);
    assert_written(private, 1);
    for region in shared {
        assert_written(region, 2);
        assert_whole(region);
    }
}

/// Mappings that the child creates in the gap are not unmapped with its copy of the region.
fn a_gap_belongs_to_the_child(region: &Region) {
    let child = forked(|| {
        assert_eq!(region.extents().unwrap_err(), MemoryError::NotInherited);
        let (at, len) = (region.as_ptr(), region.len().get());
        let len = usize::try_from(len).unwrap();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: maps where nothing is mapped; a bitwise copy of the region is dropped in its
        // place, and the process ends without dropping the region itself.
        unsafe {
            let got = libc::mmap(at.cast(), len, access, flags, -1, 0);
            assert_eq!(got, at.cast());
            at.write_volatile(7);
            drop(std::ptr::read(region));
            assert_eq!(at.read_volatile(), 7);
        }
    });
    assert_eq!(ended(child), 0);
    assert_written(region, 1);
}

/// A copied page is no longer part of a huge page, and `extents` reports that.
fn copying_splits(region: &Region) {
    // SAFETY: takes no pointer.
    let child = forked(|| unsafe {
        libc::pause();
    });
    let first = words(region).next().unwrap();
    // SAFETY: inside the region.
    unsafe { first.write_volatile(1) };
    let extents = region.extents().unwrap();
    // SAFETY: ends a child of this process.
    unsafe { libc::kill(child, libc::SIGKILL) };
    assert_eq!(ended(child), libc::SIGKILL);
    let size = extents[0].requested.size;
    assert_eq!(extents.len(), 2, "{extents:#?}");
    assert_eq!(extents[0].kind, PageKind::Base);
    assert_eq!(extents[0].range.len(), size.bytes());
    assert_eq!(extents[0].why, Some(FallbackReason::Split { size }));
    assert_eq!(extents[1].page, size);
    assert_whole(region);
    assert_written(region, 1);
}

fn pages_go_back_while_a_child_lives(region: Region, size: PageSize) {
    // SAFETY: takes no pointer.
    let child = forked(|| unsafe {
        libc::pause();
    });
    drop(region);
    let now = pool(size);
    // SAFETY: ends a child of this process.
    unsafe { libc::kill(child, libc::SIGKILL) };
    ended(child);
    assert_eq!((now.free, now.reserved), (3, 0));
}

#[test]
fn children_change_nothing_of_their_parent() {
    let test = "children_change_nothing_of_their_parent";
    if huge(test).is_none() {
        return;
    }
    // 3 for private regions, 4 of a mosaic of 5, 0 left: a copy would find no page.
    let Some((_guard, size)) = HostGuard::with_pool(test, 7) else {
        return;
    };
    Part::start("fork", &[&size.to_string()]).succeed();
    assert_eq!((pool(size).free, pool(size).reserved), (7, 0));
}
