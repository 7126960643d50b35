//! A process whose memory the tests promote: this test program started again, controlled over its
//! standard input.
#![allow(unsafe_code)]
//! # Safety
//! fork(2) has no safe wrapper. The child calls only prctl(2) and pause(2), which are safe after a
//! fork of a program with threads. Mappings made here by mmap(2) are new ones, and only their own
//! addresses are changed or removed; memory whose rights are taken away is not touched afterwards.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use hugeleaf_sys::{
    Advice, HugetlbReservation, Kernel, MemoryFile, MemorySyscalls, Pid, ReservedAddresses,
};
use hugeleaf_units::{Bytes, PageSize, Range};

/// Marks the victim in its environment.
const MARK: &str = "HUGELEAF_TEST_VICTIM";

/// The test's side of a victim. Killed on drop, with its forked children.
pub struct Victim {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Victim {
    pub fn start() -> Victim {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "processes::victim::does_as_it_is_told",
                "--nocapture",
            ])
            .env(MARK, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Victim {
            child,
            input,
            lines,
        }
    }

    pub fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Sends a command, and waits for its completion.
    pub fn tell(&mut self, command: &str) -> String {
        self.say(command);
        for line in &mut self.lines {
            // The test harness may have begun the line.
            if let Some((_, answer)) = line.unwrap().split_once("@ ") {
                assert!(!answer.starts_with("error"), "{command}: {answer}");
                return answer.to_owned();
            }
        }
        panic!("the victim ended at '{command}'");
    }

    /// Sends a command that this kernel may not support; returns true if it does.
    pub fn tries(&mut self, command: &str) -> bool {
        self.say(command);
        let answer = self.lines.find_map(|line| {
            let line = line.unwrap();
            Some(line.split_once("@ ")?.1.to_owned())
        });
        answer.is_some_and(|answer| !answer.starts_with("error"))
    }

    /// Sends a command without an answer.
    pub fn say(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// Maps memory at a multiple of `huge`: `private`, or shared by the path of its file.
    pub fn map(&mut self, name: &str, how: &str, size: Bytes, huge: PageSize) -> Range {
        let answer = self.tell(&format!("map {name} {how} {size:#} {:#}", huge.bytes()));
        let (start, end) = answer.split_once(' ').unwrap();
        Range::new(start.parse().unwrap(), end.parse().unwrap()).unwrap()
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has executed the program of that name.
    pub fn await_name(&self, name: &str) {
        let path = format!("/proc/{}/comm", self.pid());
        while std::fs::read_to_string(&path).unwrap().trim() != name {
            std::thread::yield_now();
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The victim's own program, not a test. Does nothing unless it was started as one.
#[test]
fn does_as_it_is_told() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    let mut maps: HashMap<String, ReservedAddresses> = HashMap::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = obey(&words, &mut maps);
        println!("@ {}", answer.unwrap_or_else(|e| format!("error {e}")));
    }
    std::process::exit(0);
}

type Failed = Box<dyn std::error::Error>;

/// Installs a filter that kills this process at prctl(2).
fn filter() -> Result<(), Failed> {
    let code = |code: u32| u16::try_from(code);
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let prctl = u32::try_from(libc::SYS_prctl)?;
    let mut program = [
        instruction(code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS)?, 0, 0, 0),
        instruction(
            code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K)?,
            0,
            1,
            prctl,
        ),
        instruction(
            code(libc::BPF_RET | libc::BPF_K)?,
            0,
            0,
            libc::SECCOMP_RET_KILL_PROCESS,
        ),
        instruction(
            code(libc::BPF_RET | libc::BPF_K)?,
            0,
            0,
            libc::SECCOMP_RET_ALLOW,
        ),
    ];
    let whole = libc::sock_fprog {
        len: u16::try_from(program.len())?,
        filter: program.as_mut_ptr(),
    };
    // For all threads, because this is not the first one.
    // SAFETY: the program and its length are those of the array above.
    let answer = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const whole,
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

fn obey(words: &[&str], maps: &mut HashMap<String, ReservedAddresses>) -> Result<String, Failed> {
    match words {
        ["map", name, how, size, huge] => {
            let size: Bytes = size.parse()?;
            let mapping = MemorySyscalls::new().reserve_addresses(size, huge.parse()?)?;
            let range = mapping.range();
            match *how {
                "private" => mapping.map_private(range)?,
                "/dev/zero" => map_zero_device(range)?,
                path => {
                    let file = OpenOptions::new().read(true).write(true).open(path)?;
                    file.set_len(size.get())?;
                    let file = MemoryFile::from_fd(file.into());
                    mapping.map_file(range, &file, 0, HugetlbReservation::All)?;
                }
            }
            maps.insert((*name).to_owned(), mapping);
            return Ok(format!("{} {}", range.start(), range.end()));
        }
        ["unmap", name] => drop(maps.remove(*name)),
        ["refuse"] => {
            // SAFETY: sets a flag of this process.
            unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
        }
        ["filter"] => filter()?,
        ["fork"] => return fork(),
        ["storm", huge] => storm(huge.parse()?),
        ["text", path, pages, huge] => return text(path, pages.parse()?, huge.parse()?),
        ["exec"] => return Err(Command::new("sleep").arg("600").exec().into()),
        ["exit"] => std::process::exit(0),
        [verb, name, rest @ ..] => {
            let mapping = maps.get(*name).ok_or("no such mapping")?;
            match (*verb, rest) {
                // Not zeros, because a split returns zero pages to the kernel.
                ("touch", []) => touch(mapping, 1)?,
                // Resident, and three of four pages contain only zeros.
                ("sparse", []) => {
                    mapping.advise(mapping.range(), Advice::PopulateWrite)?;
                    touch(mapping, 4)?;
                }
                // Every page holds what `touch` wrote.
                ("check", []) => check(mapping)?,
                // Writes every second page and reads the others, which are then the zero page.
                ("half", []) => read_half(mapping)?,
                // One mapping per page.
                ("crumble", []) => crumble(mapping)?,
                // All but the first page of every block of `huge`.
                ("free", [huge]) => {
                    for block in mapping.range().chunks(huge.parse()?) {
                        let page = Kernel::new().base_page().bytes().get();
                        let rest = Range::new(block.start() + page, block.end())?;
                        advise(rest, libc::MADV_DONTNEED)?;
                    }
                }
                ("advise", [advice]) => advise(mapping.range(), advice.parse()?)?,
                // A guard page (MADV_GUARD_INSTALL) in every second block of `huge`.
                ("guard", [huge]) => {
                    let page = Kernel::new().base_page().bytes().get();
                    for block in mapping.range().chunks(huge.parse()?).step_by(2) {
                        advise(Range::new(block.end() - page, block.end())?, 102)?;
                    }
                }
                ("nohuge", []) => mapping.advise(mapping.range(), Advice::NoHugePage)?,
                ("lock", []) => mapping.lock(mapping.range())?,
                // The first `percent` of every block of `huge`.
                ("part", [percent, huge]) => {
                    let percent: u64 = percent.parse()?;
                    for block in mapping.range().chunks(huge.parse()?) {
                        let end = block.start() + block.len().get() / 100 * percent;
                        let part = Range::new(block.start(), end / 65536 * 65536)?;
                        mapping.advise(part, Advice::PopulateWrite)?;
                    }
                }
                _ => return Err("no such command".into()),
            }
        }
        _ => return Err("no such command".into()),
    }
    Ok("done".to_owned())
}

/// Gives any advice, by its number.
fn advise(range: Range, advice: i32) -> Result<(), Failed> {
    let len = usize::try_from(range.len().get())?;
    // SAFETY: the range is of a mapping of this process, with contents that are not used.
    match unsafe { libc::madvise(range.start() as *mut _, len, advice) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

/// Maps `/dev/zero` privately, which the kernel treats as anonymous memory.
fn map_zero_device(range: Range) -> Result<(), Failed> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/zero")?;
    let len = usize::try_from(range.len().get())?;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&device);
    // SAFETY: maps over a range that this process has set aside.
    match unsafe { libc::mmap(range.start() as *mut _, len, rights, flags, fd, 0) } {
        libc::MAP_FAILED => Err(std::io::Error::last_os_error().into()),
        _ => Ok(()),
    }
}

/// Forks a child that shares all memory copy-on-write and does nothing.
fn fork() -> Result<String, Failed> {
    // SAFETY: the child calls only functions that are safe after a fork of a threaded program.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: takes integers; ends the child with the thread that forked it.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        }
    }
    Ok(pid.to_string())
}

/// Maps, touches, moves, empties and unmaps memory until the victim ends.
fn storm(huge: PageSize) {
    let huge = usize::try_from(huge.bytes().get()).unwrap();
    let page = usize::try_from(Kernel::new().base_page().bytes().get()).unwrap();
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    std::thread::spawn(move || {
        for round in 0usize.. {
            let size = huge * (2 + round % 4);
            // SAFETY: the mapping is new, is touched inside its size only, and is gone at the end.
            unsafe {
                let none = std::ptr::null_mut();
                let at = libc::mmap(none, size, rights, flags, -1, 0);
                assert_ne!(at, libc::MAP_FAILED);
                for offset in (0..size).step_by(page) {
                    at.cast::<u8>().add(offset).write_volatile(1);
                }
                if round % 3 == 0 {
                    libc::madvise(at, size / 2, libc::MADV_DONTNEED);
                }
                let moved = libc::mremap(at, size, size + huge, libc::MREMAP_MAYMOVE);
                assert_ne!(moved, libc::MAP_FAILED);
                libc::munmap(moved, size + huge);
            }
        }
    });
}

/// Maps a file like program text: private, readable and executable.
fn text(path: &str, pages: u64, huge: PageSize) -> Result<String, Failed> {
    let size = usize::try_from(hugeleaf_units::Pages(pages).in_bytes(huge).get())?;
    let align = usize::try_from(huge.bytes().get())?;
    let file = OpenOptions::new().read(true).open(path)?;
    let rights = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: reserves addresses, and maps the file over an aligned part of them; both are left there.
    let at = unsafe {
        let none = std::ptr::null_mut();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(none, size + align, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        let at = (at as usize).next_multiple_of(align) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        libc::mmap(
            at,
            size,
            rights,
            flags,
            std::os::fd::AsRawFd::as_raw_fd(&file),
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    let page = usize::try_from(Kernel::new().base_page().bytes().get())?;
    for offset in (0..size).step_by(page) {
        // SAFETY: inside the mapping, which can be read.
        unsafe { at.cast::<u8>().add(offset).read_volatile() };
    }
    Ok("done".to_owned())
}

/// Writes to every `nth` page.
fn touch(mapping: &ReservedAddresses, nth: usize) -> Result<(), Failed> {
    for page in mapping
        .range()
        .chunks(Kernel::new().base_page())
        .step_by(nth)
    {
        // SAFETY: inside the mapping, which is writable.
        unsafe { (page.start() as *mut u8).write_volatile(1) };
    }
    Ok(())
}

fn check(mapping: &ReservedAddresses) -> Result<(), Failed> {
    let page = Kernel::new().base_page().bytes().get();
    for offset in (0..mapping.range().len().get()).step_by(usize::try_from(page)?) {
        // SAFETY: inside the mapping.
        let byte = unsafe {
            mapping
                .as_ptr()
                .add(usize::try_from(offset)?)
                .read_volatile()
        };
        if byte != 1 {
            return Err(format!("{byte} at {offset:#x}").into());
        }
    }
    Ok(())
}

fn crumble(mapping: &ReservedAddresses) -> Result<(), Failed> {
    let page = Kernel::new().base_page();
    let len = usize::try_from(page.bytes().get())?;
    for part in mapping.range().chunks(page).step_by(2) {
        // SAFETY: takes the right to write away from a page of its own mapping.
        let done = unsafe { libc::mprotect(part.start() as *mut _, len, libc::PROT_READ) };
        if done != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
    }
    Ok(())
}

/// Reads backwards, so that frames are not in the order of a huge page by chance.
fn read_half(mapping: &ReservedAddresses) -> Result<(), Failed> {
    let page = Kernel::new().base_page().bytes().get();
    let pages = mapping.range().len().get() / page;
    for n in (0..pages).rev() {
        // SAFETY: inside the mapping, which is writable.
        unsafe {
            let at = mapping.as_ptr().add(usize::try_from(n * page)?);
            match n % 2 {
                0 => at.write_volatile(1),
                _ => drop(at.read_volatile()),
            }
        }
    }
    Ok(())
}
