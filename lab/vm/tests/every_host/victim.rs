//! A process whose memory the tests observe and promote. It is another instance of this test program,
//! controlled over its standard input.
#![allow(unsafe_code)]
//! # Safety
//! Memory is mapped by libc's calls and written through pointers into it; each mapping lives until the
//! process ends. The forked child makes only calls that are safe after a fork.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use hugeleaf_units::Range;

use crate::program;

/// Marks a process as the victim in its environment.
const MARK: &str = "HUGELEAF_TEST_VICTIM";

/// The test's handle of a victim. The victim and its children are ended when it is dropped.
pub struct Victim {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

/// A range as a pair, as in the kernel's files.
pub type Addresses = (u64, u64);

impl Victim {
    /// Starts a victim without any wrapper.
    pub fn start() -> Victim {
        Victim::from(Command::new(std::env::current_exe().unwrap()))
    }

    /// Starts a victim under `hugeleaf run` with these flags.
    pub fn under_run(flags: &[&str]) -> Victim {
        Victim::from_shell("", flags)
    }

    /// Starts a victim under `hugeleaf run`, in a shell that has run a line before.
    pub fn from_shell(line: &str, flags: &[&str]) -> Victim {
        let own = std::env::current_exe().unwrap();
        let mut command = Command::new("/bin/sh");
        let script = format!("{line}\nexec \"$@\"");
        command.args(["-c", &script, "sh"]).arg(program());
        command.arg("run").args(flags).arg("--").arg(own);
        Victim::from(command)
    }

    /// Starts a victim without `hugeleaf run`, in a shell that has run a line before.
    pub fn after(line: &str) -> Victim {
        let mut command = Command::new("/bin/sh");
        let script = format!("{line}\nexec \"$@\"");
        command.args(["-c", &script, "sh"]);
        command.arg(std::env::current_exe().unwrap());
        Victim::from(command)
    }

    fn from(mut command: Command) -> Victim {
        let mut child = command
            .args([
                "--exact",
                "victim::does_as_it_is_told",
                "--ignored",
                "--nocapture",
            ])
            .env(MARK, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Victim {
            input: child.stdin.take(),
            child,
            lines,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its id as an argument.
    pub fn id(&self) -> String {
        self.pid().to_string()
    }

    /// Sends it a command and returns its answer; an error says how it ended.
    pub fn try_tell(&mut self, command: &str) -> Result<String, String> {
        let input = self.input.as_mut().unwrap();
        if writeln!(input, "{command}").is_ok() {
            for line in &mut self.lines {
                // The test harness may have begun the line.
                if let Some((_, answer)) = line.unwrap().split_once("@ ") {
                    return match answer.strip_prefix("error ") {
                        Some(error) => Err(error.to_owned()),
                        None => Ok(answer.to_owned()),
                    };
                }
            }
        }
        Err(format!("ended: {:?}", self.child.wait()))
    }

    /// Sends it a command, and waits for the completion.
    #[track_caller]
    pub fn tell(&mut self, command: &str) -> String {
        let answer = self.try_tell(command);
        answer.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Maps memory at a multiple of `huge`.
    #[track_caller]
    pub fn map(&mut self, name: &str, kind: &str, length: u64, huge: u64) -> Addresses {
        let answer = self.tell(&format!("map {name} {kind} {length} {huge}"));
        let (start, end) = answer.split_once(' ').unwrap();
        (start.parse().unwrap(), end.parse().unwrap())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It ends with its input, together with its children.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Not a test, and so no row in the table of hosts: the victim's own program.
#[test]
#[ignore]
fn does_as_it_is_told() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    let mut memory = Memory::default();
    let mut lines = std::io::stdin().lines();
    while let Some(line) = lines.next() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            // Memory that stays pinned while the ring exists.
            ["pin", name, bytes] => pinned(&memory, name, bytes, &mut lines),
            words => say(memory.obey(words)),
        }
    }
    std::process::exit(0);
}

fn say(answer: Result<String, Failed>) {
    println!("@ {}", answer.unwrap_or_else(|e| format!("error {e}")));
}

type Failed = Box<dyn std::error::Error>;

/// Registers the first bytes of a mapping with an io_uring, and ignores commands until the input ends.
fn pinned(memory: &Memory, name: &str, bytes: &str, lines: &mut Lines<std::io::StdinLock<'_>>) {
    let (start, _) = memory.0[name];
    let part = Range::new(start, start + bytes.parse::<u64>().unwrap()).unwrap();
    let done = hugeleaf_io::with_ring(4, |ring| {
        say(match ring.register(&[part]) {
            Ok(()) => Ok("done".to_owned()),
            Err(error) => Err(error.into()),
        });
        lines.for_each(drop);
    });
    if let Err(error) = done {
        say(Err(error.into()));
    }
}

#[derive(Default)]
struct Memory(HashMap<String, Addresses>);

fn check(result: i64) -> Result<i64, Failed> {
    match result {
        -1 => Err(std::io::Error::last_os_error().into()),
        other => Ok(other),
    }
}

impl Memory {
    fn obey(&mut self, words: &[&str]) -> Result<String, Failed> {
        match words {
            ["map", name, kind, length, huge] => {
                let range = map(kind, length.parse()?, huge.parse()?)?;
                self.0.insert((*name).to_owned(), range);
                return Ok(format!("{} {}", range.0, range.1));
            }
            ["grow", bytes, chunk] => grow(bytes.parse()?, chunk.parse()?),
            ["fork", rest @ ..] => {
                let name = rest.first().map(|name| self.0[*name]);
                return fork(name.map_or(Task::Idle, Task::Reads));
            }
            // Children that write to consecutive parts of this many bytes.
            ["forks", count, name, bytes] => {
                let (start, end) = self.0[*name];
                let bytes: u64 = bytes.parse()?;
                for n in 0..count.parse()? {
                    let at = start + n * bytes % (end - start);
                    fork(Task::Writes((at, (at + bytes).min(end))))?;
                }
            }
            [verb, name] => self.on(verb, self.0[*name])?,
            _ => return Err("no such command".into()),
        }
        Ok("done".to_owned())
    }

    fn on(&self, verb: &str, range: Addresses) -> Result<(), Failed> {
        match verb {
            "touch" => touch(range),
            // On base pages under any setting: THP is disabled for the process meanwhile.
            "small" => {
                thp_disabled(true)?;
                touch(range);
                thp_disabled(false)?;
            }
            "half" => {
                thp_disabled(true)?;
                touch((range.0, range.0 + (range.1 - range.0) / 2));
                thp_disabled(false)?;
            }
            "huge" => advise(range, libc::MADV_HUGEPAGE)?,
            "nohuge" => advise(range, libc::MADV_NOHUGEPAGE)?,
            "empty" => advise(range, libc::MADV_DONTNEED)?,
            "pageout" => advise(range, libc::MADV_PAGEOUT)?,
            // One page of four.
            "pageout-some" => {
                let step = usize::try_from(4 * base_page())?;
                for at in (range.0..range.1).step_by(step) {
                    advise((at, at + base_page()), libc::MADV_PAGEOUT)?;
                }
            }
            "merge" => advise(range, libc::MADV_MERGEABLE)?,
            "watch" => watch(range)?,
            "advised-only" => thp_for_advised_only()?,
            "check" => untouched(range)?,
            _ => return Err("no such command".into()),
        }
        Ok(())
    }
}

fn pointer(at: u64) -> *mut c_void {
    at as *mut c_void
}

fn size(range: Addresses) -> usize {
    usize::try_from(range.1 - range.0).unwrap()
}

fn advise(range: Addresses, advice: i32) -> Result<(), Failed> {
    // SAFETY: the mapping is this process's own, and the data lost by MADV_DONTNEED is not needed.
    check(unsafe { libc::madvise(pointer(range.0), size(range), advice) }.into())?;
    Ok(())
}

fn thp_disabled(disabled: bool) -> Result<(), Failed> {
    // SAFETY: sets a flag of this process.
    check(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, i32::from(disabled), 0, 0, 0) }.into())?;
    Ok(())
}

/// PR_THP_DISABLE_EXCEPT_ADVISED (prctl(2), Linux 6.18).
fn thp_for_advised_only() -> Result<(), Failed> {
    const EXCEPT_ADVISED: i32 = 2;
    // SAFETY: sets a flag of this process.
    check(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, EXCEPT_ADVISED, 0, 0) }.into())?;
    Ok(())
}

fn base_page() -> u64 {
    // SAFETY: takes only a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap()
}

/// Writes one byte per base page. Not zero: splitting a huge page frees pages of zeros.
fn touch(range: Addresses) {
    for at in (range.0..range.1).step_by(usize::try_from(base_page()).unwrap()) {
        // SAFETY: inside a mapping that can be written.
        unsafe { pointer(at).cast::<u8>().write_volatile(1) };
    }
}

/// Checks that the touched bytes are unchanged.
fn untouched(range: Addresses) -> Result<(), Failed> {
    for at in (range.0..range.1).step_by(usize::try_from(base_page()).unwrap()) {
        // SAFETY: inside a mapping that can be read.
        if unsafe { pointer(at).cast::<u8>().read_volatile() } != 1 {
            return Err(format!("{at:#x} was changed").into());
        }
    }
    Ok(())
}

/// Allocates memory of malloc, in chunks that stay.
fn grow(bytes: usize, chunk: usize) {
    for _ in 0..bytes / chunk {
        std::mem::forget(vec![1_u8; chunk]);
    }
}

/// Reserves address space at a multiple of `huge` for `length` bytes, with no mapping before it: memory
/// after a guard looks like the stack of a thread.
fn space(length: u64, huge: u64) -> Result<u64, Failed> {
    let whole = usize::try_from(length + 3 * huge)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), whole, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    let start = (at as u64 + huge).next_multiple_of(huge);
    // SAFETY: a part of what was just mapped.
    check(unsafe { libc::munmap(at, usize::try_from(start - at as u64)?) }.into())?;
    Ok(start)
}

fn map(kind: &str, length: u64, huge: u64) -> Result<Addresses, Failed> {
    // `any`: at the kernel's choice, like a program without knowledge of huge pages.
    let (kind, fixed) = match kind.strip_prefix("any-") {
        Some(kind) => (kind, 0),
        None => (kind, libc::MAP_FIXED),
    };
    let at = if fixed == 0 { 0 } else { space(length, huge)? };
    if kind == "sysv" {
        return segment(at, length);
    }
    let (file, flags) = match kind.split_once(':') {
        None if kind == "private" => (None, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        // From a pool whose page size is its alignment.
        None if kind == "pool" => {
            let size = i32::try_from(huge.trailing_zeros())? << libc::MAP_HUGE_SHIFT;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
            (None, flags | size)
        }
        None if kind == "shared" => (None, libc::MAP_SHARED | libc::MAP_ANONYMOUS),
        None if kind == "memfd" => (Some(memfd()?), libc::MAP_SHARED),
        Some(("file", path)) => {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false);
            (Some(file.open(path)?), libc::MAP_SHARED)
        }
        _ => return Err("no such kind".into()),
    };
    if let Some(file) = &file {
        file.set_len(length)?;
    }
    let descriptor = file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let whole = usize::try_from(length)?;
    // SAFETY: over address space of this process, or anywhere.
    let got = unsafe { libc::mmap(pointer(at), whole, rights, flags | fixed, descriptor, 0) };
    if got == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok((got as u64, got as u64 + length))
}

fn memfd() -> Result<std::fs::File, Failed> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name ends in zero; the descriptor is new and owned here alone.
    unsafe {
        let descriptor = check(libc::memfd_create(c"victim".as_ptr(), 0).into())?;
        Ok(std::fs::File::from_raw_fd(i32::try_from(descriptor)?))
    }
}

/// Attaches a SysV segment, which ends with its last process.
fn segment(at: u64, length: u64) -> Result<Addresses, Failed> {
    // SAFETY: over address space of this process, or anywhere.
    unsafe {
        let flags = libc::IPC_CREAT | 0o600;
        let id = check(libc::shmget(libc::IPC_PRIVATE, usize::try_from(length)?, flags).into())?;
        let id = i32::try_from(id)?;
        let how = if at == 0 { 0 } else { libc::SHM_REMAP };
        let got = libc::shmat(id, pointer(at), how);
        let failed = std::io::Error::last_os_error();
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        if got as isize == -1 {
            return Err(failed.into());
        }
        Ok((got as u64, got as u64 + length))
    }
}

/// Makes userfaultfd watch a range for missing pages (ioctl_userfaultfd(2)).
fn watch(range: Addresses) -> Result<(), Failed> {
    const API: libc::c_ulong = 0xc018_aa3f;
    const REGISTER: libc::c_ulong = 0xc020_aa00;
    const MISSING: u64 = 1;
    // SAFETY: the kernel reads and writes the structures of these requests, three and four words.
    unsafe {
        let descriptor = check(libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC))?;
        let descriptor = i32::try_from(descriptor)?;
        let mut api = [0xaa_u64, 0, 0];
        check(libc::ioctl(descriptor, API as _, &raw mut api).into())?;
        let mut register = [range.0, range.1 - range.0, MISSING, 0];
        check(libc::ioctl(descriptor, REGISTER as _, &raw mut register).into())?;
    }
    Ok(())
}

/// Action of a child before it idles.
enum Task {
    Idle,
    Reads(Addresses),
    Writes(Addresses),
}

/// Forks a child that shares all memory except the pages that it writes.
fn fork(task: Task) -> Result<String, Failed> {
    let (mut read, write) = std::io::pipe()?;
    let page = usize::try_from(base_page())?;
    // SAFETY: the child calls only functions that are safe after a fork of a program with threads.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: takes integers; ends the child with the thread that forked it.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let mut sum = 1_u64;
        match task {
            Task::Idle => {}
            Task::Reads(range) => {
                for at in (range.0..range.1).step_by(page) {
                    // SAFETY: inside a mapping that can be read.
                    sum += u64::from(unsafe { pointer(at).cast::<u8>().read_volatile() });
                }
            }
            Task::Writes(range) => {
                for at in (range.0..range.1).step_by(page) {
                    // SAFETY: inside a mapping that can be written.
                    unsafe { pointer(at).cast::<u8>().write_volatile(2) };
                }
            }
        }
        let byte = [u8::from(sum == 0)];
        // SAFETY: one byte of this function's own.
        unsafe { libc::write(write.as_raw_fd(), byte.as_ptr().cast(), 1) };
        loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        }
    }
    drop(write);
    std::io::Read::read_exact(&mut read, &mut [0])?;
    Ok(check(pid.into())?.to_string())
}
