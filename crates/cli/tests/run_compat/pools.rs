//! Insufficient pools, and cgroups that limit them: on faults, as in Kubernetes (mmap succeeds, and a touch past the limit is a SIGBUS),
//! and on reservations.

use std::path::PathBuf;
use std::process::Command;

use hugeleaf_testkit::cgroup::ControllerCgroup;
use hugeleaf_testkit::host_lock::{self, ExclusiveHost};

use super::under::{Line, Mode, can_run, clean, program, same};
use crate::common::{has_pool_in_use, is_root, not_run, stderr};
use hugeleaf_testkit::until as wait_until;

/// The pool of the PMD size; restored when dropped.
pub struct Pool {
    folder: PathBuf,
    huge: u64,
    host: ExclusiveHost,
}

impl Pool {
    /// Sets the pool to this many pages, or prints why it cannot.
    pub fn of(test: &str, pages: u64) -> Option<Pool> {
        let huge = super::numbers::huge();
        let folder = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", huge / 1024);
        let folder = PathBuf::from(folder);
        if !is_root() || !folder.is_dir() {
            not_run(
                test,
                "needs root, and reserved pages of the size of huge pages",
            );
            return None;
        }
        let host = host_lock::exclusive();
        if has_pool_in_use() {
            // Setting and restoring the pool would make surplus pages permanent.
            not_run(test, "somebody else uses pages of a pool");
            return None;
        }
        let pool = Pool { folder, huge, host };
        pool.set(pages);
        if pool.number("nr_hugepages") != pages {
            not_run(
                test,
                &format!("needs {pages} huge pages of contiguous memory"),
            );
            return None;
        }
        Some(pool)
    }

    fn set(&self, pages: u64) {
        self.host.set_pool(self.huge, pages);
    }

    fn number(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(self.folder.join(name)).unwrap();
        text.trim().parse().unwrap()
    }

    /// Fails if an ended program has leaked pages. Readers of that program's files in /proc delay the release of its memory, so this waits.
    #[track_caller]
    pub fn is_whole(&self, what: &str) {
        wait_until(&format!("{what}: all pages are free"), || {
            let (total, free) = (self.number("nr_hugepages"), self.number("free_hugepages"));
            (free, self.number("resv_hugepages")) == (total, 0)
        });
    }
}

/// Returns a cgroup v1 with a limit on pages.
fn page_limit(test: &str, pool: &Pool, file: &str, pages: u64) -> Option<ControllerCgroup> {
    let limit = ControllerCgroup::new(test, "hugetlb")?;
    let name = format!("hugetlb.{}MB.{file}", pool.huge >> 20);
    limit.set(&name, pages * pool.huge);
    Some(limit)
}

/// Flags for reserved pages: each role, and private memory explicitly.
const FLAGS: [&[&str]; 3] = [&["--shm"], &["--data", "--shm"], &["--data"]];
const PROGRAMS: [(&str, &str, i32); 3] = [
    ("sharing", "24", 0),
    ("held", "100", 7),
    ("spawning", "4", 0),
];

/// Runs all of them, in a cgroup if given, and compares them with bare.
fn all_run(pool: &Pool, limit: Option<&ControllerCgroup>, what: &str) {
    let hugeleaf = env!("CARGO_BIN_EXE_hugeleaf");
    let ladder = format!("hugetlb:{}K", pool.huge / 1024);
    for (name, word, status) in PROGRAMS {
        let path = program(name);
        let bare = Mode::Bare.command(&path).arg(word).output().unwrap();
        assert_eq!(bare.status.code(), Some(status), "{}", stderr(&bare));
        for flags in FLAGS {
            let mut command = Command::new("/bin/sh");
            let enter = limit.map_or(String::new(), |limit| {
                format!("echo $$ > {}/cgroup.procs; ", limit.folder().display())
            });
            command
                .arg("-c")
                .arg(format!("{enter}exec \"$@\""))
                .args(["sh", hugeleaf, "run"]);
            for flag in flags {
                command.args([*flag, &ladder]);
            }
            command.arg("--").arg(&path).arg(word);
            clean(&mut command);
            let what = format!("{what}: {name} {flags:?}");
            same(&bare, &command.output().unwrap(), Line::Allowed, &what);
            pool.is_whole(&what);
        }
    }
}

fn limited(test: &str, file: &str) {
    if !can_run(test) {
        return;
    }
    let Some(pool) = Pool::of(test, 64) else {
        return;
    };
    for pages in [0, 5, 20] {
        let Some(limit) = page_limit(test, &pool, file, pages) else {
            return;
        };
        all_run(&pool, Some(&limit), &format!("{file} {pages} pages"));
    }
}

#[test]
fn a_cgroup_that_limits_faults() {
    limited("a_cgroup_that_limits_faults", "limit_in_bytes");
}

#[test]
fn a_cgroup_that_limits_reservations() {
    limited("a_cgroup_that_limits_reservations", "rsvd.limit_in_bytes");
}

#[test]
fn a_pool_that_is_short() {
    let test = "a_pool_that_is_short";
    if !can_run(test) {
        return;
    }
    let Some(pool) = Pool::of(test, 64) else {
        return;
    };
    for pages in hugeleaf_testkit::size(&[40, 1][..], &[64, 40, 11, 1, 0]) {
        pool.set(*pages);
        all_run(&pool, None, &format!("a pool of {pages}"));
    }
}

/// Python maps memory in units of 1M or 256K, and SQLite allocates by malloc.
#[test]
fn small_mappings_come_from_the_pool() {
    let test = "small_mappings_come_from_the_pool";
    if !can_run(test) {
        return;
    }
    if super::numbers::huge() != 2 << 20 {
        return not_run(test, "needs huge pages of 2M");
    }
    let Some(python) = hugeleaf_testkit::find_program(&["/usr/bin/python3", "python3"]) else {
        return not_run(test, "needs python3");
    };
    // The last line gives the memory on reserved pages and on others, in kilobytes.
    let held = "f = dict(l.split()[:2] for l in open('/proc/self/smaps_rollup') if l.count(':') == 1)\n\
        print(int(f['Private_Hugetlb:']), int(f['Anonymous:']))\n";
    let lists = "d = [{'id': i, 'name': 'n%d' % i} for i in range(800000)]\n";
    let sqlite = "import sqlite3\nd = sqlite3.connect(':memory:')\nd.execute('create table t(v text)')\n\
        d.executemany('insert into t values(?)', (('text %d ' % i * 9,) for i in range(700000)))\n";
    // Pool sizes for all of the memory, and for only part of it.
    for (pages, script) in [(240, lists), (60, lists), (240, sqlite)] {
        let Some(pool) = Pool::of(test, pages) else {
            return;
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_hugeleaf"));
        command.args(["run", "--data", "hugetlb:2M", "--"]);
        command.arg(&python);
        command.args(["-c", &format!("{script}{held}")]);
        clean(&mut command);
        let output = command.output().unwrap();
        let text = crate::common::stdout(&output);
        assert!(output.status.success(), "{text}{}", stderr(&output));
        let last = text.lines().last().unwrap();
        let (on_pool, others) = last.split_once(' ').unwrap();
        let (on_pool, others): (u64, u64) = (on_pool.parse().unwrap(), others.parse().unwrap());
        let could = (on_pool + others).min(pages * 2048);
        println!("a pool of {pages}: {on_pool}K on it, {others}K not");
        assert!(on_pool > 80 << 10, "{text}");
        assert!(on_pool * 100 >= could * 95, "{last}, could be {could}");
        pool.is_whole(test);
    }
}

/// The kernel cannot move this much in one call. For reserved pages `mremap` fails from 4G on. For shared ones it never ends if they fill a
/// page table.
#[test]
fn more_than_the_kernel_moves_at_once() {
    let test = "more_than_the_kernel_moves_at_once";
    if hugeleaf_testkit::left_to_all(test) || !can_run(test) {
        return;
    }
    let Some(python) = hugeleaf_testkit::find_program(&["/usr/bin/python3", "python3"]) else {
        return not_run(test, "needs python3");
    };
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let free = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let free: u64 = free
        .and_then(|text| text.trim().strip_suffix(" kB"))
        .unwrap()
        .parse()
        .unwrap();
    if super::numbers::huge() != 2 << 20 || free < 6 << 20 {
        return not_run(test, "needs huge pages of 2M and 6G of memory that is free");
    }
    // The pool is slightly too small, and must still be used to at least this amount.
    let (pages, least) = (2150, 4 << 20);
    let shared = "import mmap\nm = mmap.mmap(-1, 5 << 30)\nm[0] = m[(5 << 30) - 1] = 1\n";
    // The program moves its memory to an address where it fills page tables.
    let moved = "import ctypes, mmap\nc = ctypes.CDLL(None, use_errno=True)\n\
        call = c.mremap\ncall.restype = ctypes.c_void_p\n\
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]\n\
        m = mmap.mmap(-1, 4 << 30)\nm[5 << 20] = 7\n\
        at = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
        room = mmap.mmap(-1, 5 << 30, mmap.MAP_PRIVATE | mmap.MAP_NORESERVE)\n\
        to = (ctypes.addressof(ctypes.c_char.from_buffer(room)) + (1 << 30) - 1) >> 30 << 30\n\
        assert call(at, 4 << 30, 4 << 30, 3, to) == to, ctypes.get_errno()\n\
        assert ctypes.string_at(to + (5 << 20), 1)[0] == 7\n";
    let private = "b = bytearray(4 << 30)\n";
    let held = "f = dict(l.split()[:2] for l in open('/proc/self/smaps_rollup') if l.count(':') == 1)\n\
        print(int(f['Shared_Hugetlb:']) + int(f['Private_Hugetlb:']), flush=True)\n\
        import os\nos._exit(0)\n";
    let knows_noreserve = Command::new(&python)
        .args(["-c", "import mmap; mmap.MAP_NORESERVE"])
        .output()
        .is_ok_and(|output| output.status.success());
    for (role, script) in [("--shm", shared), ("--shm", moved), ("--data", private)] {
        if script == moved && !knows_noreserve {
            not_run(
                &format!("the part of {test} that moves memory itself"),
                "needs a Python whose mmap has MAP_NORESERVE",
            );
            continue;
        }
        let Some(pool) = Pool::of(test, pages) else {
            return;
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_hugeleaf"));
        command.args(["run", role, "hugetlb:2M", "--"]);
        command
            .arg(&python)
            .args(["-c", &format!("{script}{held}")]);
        clean(&mut command);
        let output = command.output().unwrap();
        let text = crate::common::stdout(&output);
        assert!(output.status.success(), "{script}{text}{}", stderr(&output));
        let on_pool: u64 = text.trim().parse().unwrap();
        assert!(on_pool >= least, "{script}: {on_pool}K on the pool");
        pool.is_whole(test);
    }
}

/// Parts of reserved pages are unmapped, protected, grown, and forked.
#[test]
fn parts_of_reserved_pages_are_used_as_others_are() {
    let test = "parts_of_reserved_pages_are_used_as_others_are";
    if !can_run(test) {
        return;
    }
    let path = program("parts");
    let bare = Mode::Bare.command(&path).output().unwrap();
    assert!(bare.status.success(), "{}", stderr(&bare));
    let Some(pool) = Pool::of(test, 40) else {
        return;
    };
    let ladder = format!("hugetlb:{}K", super::numbers::huge() / 1024);
    for pages in [40, 3, 0] {
        pool.set(pages);
        for ladder in [
            ladder.clone(),
            format!("{ladder},thp:{}K", super::numbers::huge() / 1024),
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_hugeleaf"));
            command.args(["run", "--data", &ladder, "--"]).arg(&path);
            clean(&mut command);
            let what = format!("{ladder}, a pool of {pages}");
            same(&bare, &command.output().unwrap(), Line::Allowed, &what);
            pool.is_whole(&what);
        }
    }
}
