//! Handles: from dead processes, of other versions, forged, inherited.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use crate::{Bytes, Handle, MemoryError, PageKind, PageSize, Range, Region};
use hugeleaf_sys::{Errno, MemoryCall, MemoryFile, MemorySyscalls, SyscallGate, duplicate_raw};
use rustix::fs::SealFlags;

use super::child::{Part, Words, hear, say};
use super::support::{
    HostGuard, assert_whole, assert_written, host, huge, options, pages, pool, use_all, write_all,
};

/// Creates a region and sends it to the listening process.
pub fn send(words: &Words) {
    let socket = UnixStream::connect(words.get(0)).unwrap();
    let size: PageSize = words.get(1).parse().unwrap();
    let region = Region::new(&options(pages(size, 5), &size.to_string()).shared()).unwrap();
    write_all(&region, 3);
    if words.get(2) == "send" {
        region.handle().unwrap().send(&socket).unwrap();
    }
    say("ready");
    hear();
}

#[test]
fn a_handle_of_a_dead_process_is_good_and_none_is_told() {
    let test = "a_handle_of_a_dead_process_is_good_and_none_is_told";
    let Some((_guard, size)) = HostGuard::with_pool(test, 3) else {
        return;
    };
    let before = pool(size);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let start = |what: &str| {
        let words = [path.to_str().unwrap(), &size.to_string(), what];
        let mut part = Part::start("send", &words);
        let (socket, _) = listener.accept().unwrap();
        assert_eq!(part.next_line().unwrap(), "ready");
        part.kill();
        socket
    };
    let handle = Handle::receive(&start("send")).unwrap();
    let region = Region::attach(&handle).unwrap();
    assert_written(&region, 3);
    assert_whole_but_for_why(&region);
    drop((handle, region));
    assert_eq!(pool(size), before);
    let error = Handle::receive(&start("nothing")).unwrap_err();
    assert!(is_bad(&error), "{error}");
}

fn is_bad(error: &MemoryError) -> bool {
    matches!(error, MemoryError::BadHandle(_))
}

fn assert_whole_but_for_why(region: &Region) {
    let extents = region.extents().unwrap();
    let whole: Bytes = extents.iter().map(|e| e.resident).sum();
    assert_eq!(whole, region.len(), "{extents:#?}");
}

/// Attaches an inherited region, by the line that it receives.
pub fn inherit(_: &Words) {
    let handle = Handle::from_inherited(&hear()).unwrap();
    let region = Region::attach(&handle).unwrap();
    assert_written(&region, 4);
    write_all(&region, 5);
    assert!(Handle::from_inherited("fds 199;hugeleaf-region 1;").is_err_and(|e| is_bad(&e)));
}

#[test]
fn children_attach_what_they_inherit_over_exec() {
    let test = "children_attach_what_they_inherit_over_exec";
    let Some((_guard, size)) = HostGuard::with_pool(test, 3) else {
        return;
    };
    let region = Region::new(&options(pages(size, 5), &size.to_string()).shared()).unwrap();
    write_all(&region, 4);
    let handle = region.handle().unwrap();
    let line = handle.inheritable().unwrap();
    let mut part = Part::start("inherit", &[]);
    part.tell(&line);
    part.succeed();
    assert_written(&region, 5);
    drop((handle, region));
    assert_eq!((pool(size).free, pool(size).reserved), (3, 0));
}

#[test]
fn a_socket_brings_handles_one_by_one_and_rubbish_is_told() {
    let base = host().base_page;
    let make = |n| Region::new(&options(pages(base, n), &base.to_string()).shared()).unwrap();
    let (one, two) = (make(3), make(5));
    let (mut here, there) = UnixStream::pair().unwrap();
    one.handle().unwrap().send(&here).unwrap();
    two.handle().unwrap().send(&here).unwrap();
    for region in [&one, &two] {
        let handle = Handle::receive(&there).unwrap();
        let other = Region::attach(&handle).unwrap();
        assert_eq!(other.len(), region.len());
        write_all(region, 6);
        assert_written(&other, 6);
    }
    for rubbish in [&b"hugeleaf-region 1\nladder 4K\n"[..], b"\xff\xfe", b"\n"] {
        here.write_all(rubbish).unwrap();
        let made = Handle::receive(&there).and_then(|handle| Region::attach(&handle));
        assert!(is_bad(&made.unwrap_err()));
    }
    drop(here);
    assert!(is_bad(&Handle::receive(&there).unwrap_err()));
}

/// Returns a line in the format of [`Handle::inheritable`].
fn line(numbers: &[RawFd], text: &str) -> String {
    let numbers: Vec<String> = numbers.iter().map(|n| format!(" {n}")).collect();
    format!("fds{};{}", numbers.concat(), text.replace('\n', ";"))
}

/// Returns the text of a region with this one allocation.
fn text_of(kind: PageKind, page: PageSize, length: Bytes) -> String {
    let (page, length) = (page.bytes().get(), length.get());
    format!("hugeleaf-region 1\nladder {page}\nalign {page}\npiece {kind} {page} {length}\nend\n")
}

fn attach(descriptors: &[&dyn AsRawFd], text: &str) -> Result<Region, MemoryError> {
    let numbers: Vec<RawFd> = descriptors.iter().map(|d| d.as_raw_fd()).collect();
    Region::attach(&Handle::from_inherited(&line(&numbers, text))?)
}

fn memory_of(length: Bytes, hugetlb: Option<PageSize>) -> MemoryFile {
    MemorySyscalls::new()
        .create_file("forged", length, hugetlb)
        .unwrap()
}

fn fill(file: &MemoryFile, length: Bytes) {
    MemorySyscalls::new()
        .allocate(file, Range::new(0, length.get()).unwrap())
        .unwrap();
}

/// Returns a file that passes for an allocation of a region: fully allocated and sealed.
fn good(length: Bytes, hugetlb: Option<PageSize>) -> MemoryFile {
    let file = memory_of(length, hugetlb);
    fill(&file, length);
    MemorySyscalls::new().seal_length(&file).unwrap();
    file
}

fn refused(what: &str, made: Result<Region, MemoryError>) {
    match made {
        Ok(region) => panic!("{what}: attached {:?}", region.extents()),
        Err(error) => assert!(is_bad(&error), "{what}: {error}"),
    }
}

#[test]
fn forged_files_are_refused() {
    let base = host().base_page;
    let length = pages(base, 4);
    let text = text_of(PageKind::Base, base, length);
    let whole = good(length, None);
    use_all(&attach(&[whole.file()], &text).unwrap());
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let _ = files();

    let unsealed = memory_of(length, None);
    fill(&unsealed, length);
    refused("unsealed", attach(&[unsealed.file()], &text));
    refused(
        "too short",
        attach(&[good(pages(base, 3), None).file()], &text),
    );
    refused(
        "too long",
        attach(&[good(pages(base, 5), None).file()], &text),
    );
    let holed = good(length, None);
    let hole = Range::new(base.bytes().get(), 2 * base.bytes().get()).unwrap();
    MemorySyscalls::new().punch(&holed, hole).unwrap();
    refused("a hole", attach(&[holed.file()], &text));
    let ordinary = tempfile::tempfile().unwrap();
    ordinary.set_len(length.get()).unwrap();
    refused("an ordinary file", attach(&[&ordinary], &text));
    refused(
        "a device",
        attach(&[&File::open("/dev/zero").unwrap()], &text),
    );
    refused("a socket", attach(&[&UnixStream::pair().unwrap().0], &text));
    let path = format!("/proc/self/fd/{}", whole.file().as_raw_fd());
    refused("for reading", attach(&[&File::open(path).unwrap()], &text));
    let sealed = memory_of(length, None);
    fill(&sealed, length);
    let seals = SealFlags::SHRINK | SealFlags::FUTURE_WRITE;
    rustix::fs::fcntl_add_seals(sealed.file(), seals).unwrap();
    refused("sealed against writing", attach(&[sealed.file()], &text));
    refused(
        "closed",
        Handle::from_inherited(&line(&[199], &text)).and_then(|h| Region::attach(&h)),
    );
}

#[test]
fn forged_texts_are_refused() {
    let base = host().base_page;
    let page = base.bytes().get();
    let length = pages(base, 4);
    let text = text_of(PageKind::Base, base, length);
    let whole = good(length, None);
    let file = whole.file();
    let twice = text.replace("end\n", &format!("piece base {page} {length:#}\nend\n"));
    assert!(attach(&[file, file], &twice).is_ok());
    refused("a descriptor too many", attach(&[file, file], &text));
    refused("a descriptor too few", attach(&[file], &twice));
    refused("no descriptor", attach(&[], &text));
    refused(
        "another version",
        attach(&[file], &text.replace("region 1", "region 2")),
    );
    refused(
        "another thing",
        attach(&[file], &text.replace("region", "elastic")),
    );
    let forged = |from: String, to: String| attach(&[file], &text.replace(&from, &to));
    let wider = 1u64 << 60;
    refused(
        "aligned",
        forged(format!("align {page}"), format!("align {wider}")),
    );
    let (allocation, pool) = (
        format!("piece base {page}"),
        format!("piece hugetlb {page}"),
    );
    refused("a pool", forged(allocation.clone(), pool));
    refused(
        "thp",
        forged(allocation.clone(), format!("piece thp {page}")),
    );
    let halves = text.replace(&page.to_string(), &(page / 2).to_string());
    refused("pages smaller than there are", attach(&[file], &halves));
    let growing = text.replace(
        "end\n",
        &format!("piece thp {} {}\nend\n", page * 2, page * 4),
    );
    refused("pages that grow", attach(&[file, file], &growing));
    let many = text.replace("end\n", &format!("{allocation} {length:#}\n").repeat(70)) + "end\n";
    refused("pieces", attach(&vec![file as &dyn AsRawFd; 71], &many));
}

#[test]
fn forged_pools_are_refused() {
    let test = "forged_pools_are_refused";
    let Some((_guard, size)) = HostGuard::with_pool(test, 4) else {
        return;
    };
    let before = pool(size);
    let length = pages(size, 4);
    let text = text_of(PageKind::Hugetlb, size, length);
    let empty = memory_of(length, Some(size));
    MemorySyscalls::new().seal_length(&empty).unwrap();
    refused("nothing in it", attach(&[empty.file()], &text));
    let base = host().base_page;
    let as_base = text_of(PageKind::Base, base, length);
    refused(
        "no base pages",
        attach(&[good(length, Some(size)).file()], &as_base),
    );
    refused("no pool", attach(&[good(length, None).file()], &text));
    use_all(&attach(&[good(length, Some(size)).file()], &text).unwrap());
    assert_eq!(pool(size), before);
}

/// Punches a hole into a file right before it is mapped, and takes the page.
#[derive(Debug)]
struct Puncher {
    file: OwnedFd,
    size: PageSize,
    loot: Mutex<Option<MemoryFile>>,
}

impl SyscallGate for Puncher {
    fn pass(&self, call: MemoryCall) -> Result<(), Errno> {
        if call == MemoryCall::MapFile {
            let file = MemoryFile::from_fd(self.file.try_clone().unwrap());
            let first = Range::new(0, self.size.bytes().get()).unwrap();
            MemorySyscalls::new().punch(&file, first).unwrap();
            let now = pool(self.size);
            let left = now.free - now.reserved;
            let loot = good(pages(self.size, left), Some(self.size));
            *self.loot.lock().unwrap() = Some(loot);
        }
        Ok(())
    }
}

/// A peer that cheats after the check: the pages are populated before they are handed out.
#[test]
fn a_hole_that_comes_late_is_an_error_and_no_signal() {
    let test = "a_hole_that_comes_late_is_an_error_and_no_signal";
    let Some((_guard, size)) = HostGuard::with_pool(test, 4) else {
        return;
    };
    let length = pages(size, 4);
    let file = good(length, Some(size));
    let text = text_of(PageKind::Hugetlb, size, length);
    let handle = Handle::from_inherited(&line(&[file.file().as_raw_fd()], &text)).unwrap();
    let puncher = Arc::new(Puncher {
        file: duplicate_raw(file.file().as_raw_fd()).unwrap(),
        size,
        loot: Mutex::new(None),
    });
    let error = Region::attach_with(&handle, &MemorySyscalls::behind(puncher)).unwrap_err();
    assert!(matches!(error, MemoryError::Sys(_)), "{error}");
}

/// A process that shares a region can remove pages; `extents` reports that.
#[test]
fn pages_that_are_punched_out_are_told() {
    let test = "pages_that_are_punched_out_are_told";
    if huge(test).is_none() {
        return;
    }
    let Some((_guard, size)) = HostGuard::with_pool(test, 3) else {
        return;
    };
    let region = Region::new(&options(pages(size, 5), &size.to_string()).shared()).unwrap();
    assert_whole(&region);
    let first = Range::new(0, size.bytes().get()).unwrap();
    let handle = region.handle().unwrap();
    let line = handle.inheritable().unwrap();
    let numbers = line.split(';').next().unwrap().split(' ').skip(1);
    for number in numbers {
        let file = MemoryFile::from_fd(duplicate_raw(number.parse().unwrap()).unwrap());
        MemorySyscalls::new().punch(&file, first).unwrap();
    }
    let extents = region.extents().unwrap();
    let resident: Bytes = extents.iter().map(|e| e.resident).sum();
    assert_eq!(resident, pages(size, 3), "{extents:#?}");
    assert_eq!(extents[0].resident, pages(size, 2));
}
