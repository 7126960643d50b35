//! Makes one system call on behalf of another process: prctl(PR_SET_THP_DISABLE, 0), by ptrace(2).
//!
//! If a process has disabled THP for itself, no other process can promote its memory, and only it
//! can enable THP again. A debugger's `call prctl(…)` is too invasive: it stops every thread, calls
//! a library function on the program's stack, and saves and restores every register. (Tested: gdb
//! 13 on a processor with AMX fails halfway through that, and a sleeping program wakes up with
//! "Unknown error 516".) This code stops one thread, uses no stack, and touches the general
//! registers only.
//!
//! A thread in state D stops only when the kernel has its answer, possibly never. Until then ptrace(2) cannot release it
//! either, except by the end of the tracing thread. So a thread of its own traces it, and is left behind after a deadline.
//! The kernel then resumes the target with its own registers, whether this thread or this whole process ends.
//!
//! From the change of the registers on, there is no safe way out but the end of the call: whoever lets go earlier resumes
//! the target with the registers of the call, which ends it. The call itself waits for the lock on the target's address
//! space. Another thread of the target can hold that lock for as long as a file system does not answer. This wait
//! therefore has no deadline.
#![allow(unsafe_code)]
//! # Safety
//! ptrace(2) acts on one thread of another process, between its stop and its release.
//! The general registers and the signal mask are restored on every way out. This program must not
//! be killed within that time (some tens of microseconds): the kernel would then release the thread
//! with the registers of the call.

use crate::process::PidFd;
use crate::{Errno, SysError};

/// Clears PR_SET_THP_DISABLE in a process (see [`crate::Kernel::switch_thp_on`]).
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn switch_thp_on(process: &PidFd) -> Result<(), SysError> {
    // Tested on x86-64 only. Wrong register handling would damage the other process.
    Err(failed(process.pid(), Errno::NOSYS))
}

fn failed(thread: impl std::fmt::Display, errno: Errno) -> SysError {
    SysError::new("ptrace", format!("of {thread}"), errno)
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::switch_thp_on;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::fs::File;
    use std::io::ErrorKind;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::*;
    use crate::priority::RealTimePriority;
    use crate::{Deadline, errno_of, last_errno};

    /// The `syscall` instruction.
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    /// More bytes than the vDSO has. A read ends at the end of the mapping.
    const VDSO_ROOM: usize = 64 << 10;
    /// The code segment of 64-bit programs (arch/x86/include/asm/segment.h, __USER_CS).
    const CODE_64: u64 = 0x33;

    /// Maximum time until the target has stopped.
    const MOST_WAIT: Duration = Duration::from_secs(2);

    pub(crate) fn switch_thp_on(process: &PidFd) -> Result<(), SysError> {
        switch_within(process, MOST_WAIT)
    }

    fn switch_within(process: &PidFd, time: Duration) -> Result<(), SysError> {
        let own = process.try_clone()?;
        // Whoever sets it first decides: this thread leaves the target as it is, or the tracing thread makes the call.
        let decided = Arc::new(AtomicBool::new(false));
        let of_tracer = Arc::clone(&decided);
        let (send, answer) = sync_channel(1);
        let asked = Deadline::new(time).run_detached(move || {
            let _ = send.send(switch(&own, &of_tracer));
        });
        match asked {
            Err(error) if !decided.swap(true, Ordering::Relaxed) => {
                let errno = match error.kind() {
                    ErrorKind::TimedOut => Errno::TIMEDOUT,
                    ErrorKind::Interrupted => Errno::INTR,
                    _ => errno_of(&error),
                };
                Err(not_stopped(process, errno))
            }
            // The answer is here, or the registers of the target are those of the call.
            _ => answer
                .recv()
                .unwrap_or_else(|_| Err(not_stopped(process, Errno::IO))),
        }
    }

    fn not_stopped(process: &PidFd, errno: Errno) -> SysError {
        let subject = format!("of {}, which did not stop", process.pid());
        SysError::new("ptrace", subject, errno)
    }

    /// Makes the call, unless it is decided meanwhile to leave the target as it is.
    fn switch(process: &PidFd, decided: &AtomicBool) -> Result<(), SysError> {
        // While the target is stopped, this thread should not wait for a processor.
        let _first = RealTimePriority::new().ok();
        let instruction = find_instruction(process)?;
        if decided.load(Ordering::Relaxed) {
            return Err(not_stopped(process, Errno::TIMEDOUT));
        }
        let thread = StoppedThread::stop(process)?;
        // Before the stop, the id could have been reused for another process. Now it cannot,
        // because a traced process is not reaped.
        if process.has_exited()? {
            return Err(failed(process.pid(), Errno::SRCH));
        }
        if decided.swap(true, Ordering::Relaxed) {
            thread.release()?;
            return Err(not_stopped(process, Errno::TIMEDOUT));
        }
        let answer = thread.call(instruction, libc::SYS_prctl, libc::PR_SET_THP_DISABLE);
        thread.release()?;
        match answer? {
            0 => Ok(()),
            error => {
                let errno = i32::try_from(-error).unwrap_or(libc::EIO);
                let subject = format!("in {}", process.pid());
                let errno = Errno::from_raw_os_error(errno);
                Err(SysError::new("prctl(PR_SET_THP_DISABLE)", subject, errno))
            }
        }
    }

    /// Returns the address of a `syscall` instruction in the vDSO, which every program maps
    /// (vdso(7)).
    fn find_instruction(process: &PidFd) -> Result<u64, SysError> {
        let path = |name: &str| format!("/proc/{}/{name}", process.pid());
        let fail = |name, errno| SysError::new("read", path(name), errno);
        let auxv = std::fs::read(path("auxv")).map_err(|e| fail("auxv", errno_of(&e)))?;
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        let mut pairs = auxv.chunks_exact(16).map(|pair| pair.split_at(8));
        let vdso = pairs.find(|(kind, _)| word(kind) == libc::AT_SYSINFO_EHDR);
        let (_, start) = vdso.ok_or_else(|| fail("auxv", Errno::NOEXEC))?;
        let (start, mut code) = (word(start), vec![0; VDSO_ROOM]);
        let length = File::open(path("mem"))
            .and_then(|file| file.read_at(&mut code, start))
            .map_err(|e| fail("mem", errno_of(&e)))?;
        let at = code[..length]
            .windows(SYSCALL.len())
            .position(|bytes| bytes == SYSCALL)
            .ok_or_else(|| fail("mem", Errno::NOEXEC))?;
        Ok(start + at as u64)
    }

    struct StoppedThread {
        thread: libc::pid_t,
    }

    impl StoppedThread {
        fn stop(process: &PidFd) -> Result<StoppedThread, SysError> {
            let thread = libc::pid_t::try_from(process.pid().0).unwrap_or(0);
            request(libc::PTRACE_SEIZE, thread, 0, 0)?;
            let stopped = StoppedThread { thread };
            request(libc::PTRACE_INTERRUPT, thread, 0, 0)?;
            loop {
                let (signal, event) = stopped.wait()?;
                match event {
                    // Requested above.
                    libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => return Ok(stopped),
                    // Stopped by job control. It would not run a call either.
                    libc::PTRACE_EVENT_STOP => return Err(failed(thread, Errno::BUSY)),
                    // A signal was pending. The thread receives it and is interrupted again.
                    _ => {
                        let signal = usize::try_from(signal).unwrap_or(0);
                        request(libc::PTRACE_CONT, thread, 0, signal)?;
                    }
                }
            }
        }

        /// Returns the stop signal and the ptrace event.
        fn wait(&self) -> Result<(i32, i32), SysError> {
            let fail = |errno| SysError::new("waitpid", self.thread.to_string(), errno);
            loop {
                let mut status = 0;
                // SAFETY: `status` is an int that outlives the call.
                let got = unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL) };
                if got < 0 && last_errno() == Errno::INTR {
                    continue;
                }
                if got < 0 {
                    return Err(fail(last_errno()));
                }
                return match libc::WIFSTOPPED(status) {
                    true => Ok((libc::WSTOPSIG(status), status >> 16)),
                    false => Err(fail(Errno::SRCH)),
                };
            }
        }

        fn call(&self, instruction: u64, number: i64, argument: i32) -> Result<i64, SysError> {
            let registers = self.registers()?;
            if registers.cs != CODE_64 {
                return Err(SysError::new("ptrace", "of a 32-bit program", Errno::NOSYS));
            }
            let mask = self.signals()?;
            // No signal may arrive now: its handler would run with the call's registers.
            self.set_signals(u64::MAX)?;
            let call = libc::user_regs_struct {
                rip: instruction,
                rax: number.cast_unsigned(),
                // Outside a system call, so that the kernel restarts none.
                orig_rax: u64::MAX,
                rdi: u64::try_from(argument).unwrap_or(0),
                rsi: 0,
                rdx: 0,
                r10: 0,
                r8: 0,
                ..registers
            };
            let answer = self
                .set_registers(call)
                .and_then(|()| self.step(instruction));
            let restored = self.set_registers(registers);
            let unblocked = self.set_signals(mask);
            let answer = answer?;
            restored.and(unblocked)?;
            Ok(answer)
        }

        fn step(&self, instruction: u64) -> Result<i64, SysError> {
            request(libc::PTRACE_SINGLESTEP, self.thread, 0, 0)?;
            let (signal, event) = self.wait()?;
            let after = self.registers()?;
            let done = after.rip == instruction + SYSCALL.len() as u64;
            match signal == libc::SIGTRAP && event == 0 && done {
                true => Ok(after.rax.cast_signed()),
                false => Err(SysError::new(
                    "ptrace(PTRACE_SINGLESTEP)",
                    format!("of {}", self.thread),
                    Errno::BUSY,
                )),
            }
        }

        fn registers(&self) -> Result<libc::user_regs_struct, SysError> {
            // SAFETY: a structure of integers, for which all zeroes are valid.
            let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
            let at = &raw mut registers as usize;
            request(libc::PTRACE_GETREGS, self.thread, 0, at)?;
            Ok(registers)
        }

        fn set_registers(&self, registers: libc::user_regs_struct) -> Result<(), SysError> {
            let at = &raw const registers as usize;
            request(libc::PTRACE_SETREGS, self.thread, 0, at)
        }

        fn signals(&self) -> Result<u64, SysError> {
            let mut mask = 0u64;
            let at = &raw mut mask as usize;
            request(PTRACE_GETSIGMASK, self.thread, size_of::<u64>(), at)?;
            Ok(mask)
        }

        fn set_signals(&self, mask: u64) -> Result<(), SysError> {
            let at = &raw const mask as usize;
            request(PTRACE_SETSIGMASK, self.thread, size_of::<u64>(), at)
        }

        fn release(self) -> Result<(), SysError> {
            let thread = self.thread;
            std::mem::forget(self);
            request(libc::PTRACE_DETACH, thread, 0, 0)
        }
    }

    impl Drop for StoppedThread {
        fn drop(&mut self) {
            let _ = request(libc::PTRACE_DETACH, self.thread, 0, 0);
        }
    }

    // From linux/ptrace.h. libc defines them for some targets only.
    const PTRACE_GETSIGMASK: Request = 0x420a;
    const PTRACE_SETSIGMASK: Request = 0x420b;

    /// The type of a ptrace(2) request, as the C library declares it.
    #[cfg(not(target_env = "musl"))]
    type Request = libc::c_uint;
    #[cfg(target_env = "musl")]
    type Request = libc::c_int;

    fn request(what: Request, thread: libc::pid_t, at: usize, data: usize) -> Result<(), SysError> {
        // SAFETY: the requests here take integers, or write to (read from) a structure of the size
        // that the request names, which the caller keeps for the length of the call.
        let done = unsafe { libc::ptrace(what, thread, at, data) };
        match done {
            0 => Ok(()),
            _ => Err(failed(thread, last_errno())),
        }
    }

    #[cfg(test)]
    mod tests {
        use std::io::{BufRead, BufReader, Write};
        use std::os::fd::AsRawFd;
        use std::process::{Command, Stdio};

        use super::*;
        use crate::{Kernel, Pid};

        /// Waits in state D for a child that ends at the first byte, then ends at the second one.
        fn wait_in_the_kernel(bytes: libc::c_int) -> ! {
            let flags = libc::c_long::from(libc::CLONE_VFORK | libc::SIGCHLD);
            // SAFETY: runs after fork, and makes system calls only. Without CLONE_VM the child has memory of its own.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let child = libc::syscall(libc::SYS_clone, flags, 0_u64, 0_u64, 0_u64, 0_u64);
                if child == 0 {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                }
                let mut byte = 0_u8;
                libc::read(bytes, (&raw mut byte).cast(), 1);
                libc::_exit(0)
            }
        }

        /// A target in state D cannot be stopped. It must neither hold the caller nor be stopped when it goes on.
        #[test]
        fn one_that_waits_in_the_kernel_is_left_as_it_was() {
            let (reader, mut writer) = std::io::pipe().unwrap();
            // SAFETY: the child makes system calls only.
            let child = match unsafe { libc::fork() } {
                0 => wait_in_the_kernel(reader.as_raw_fd()),
                child => child,
            };
            let pid = Pid(u32::try_from(child).unwrap());
            let is = |state: &str| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                let (_, fields) = stat.rsplit_once(") ").unwrap();
                fields.starts_with(state)
            };
            hugeleaf_testkit::until("it waits in the kernel", || is("D"));
            let process = Kernel::new().pidfd_open(pid).unwrap();
            let error = switch_within(&process, Duration::from_secs(1)).unwrap_err();
            if error.errno == Errno::PERM {
                println!(
                    "not run: one_that_waits_in_the_kernel_is_left_as_it_was: ptrace is not allowed here: {error}"
                );
            } else {
                assert_eq!(error.errno, Errno::TIMEDOUT, "{error}");
                assert!(is("D"));
            }
            // Its child ends by the first byte. It can end by the second one only if it was released.
            writer.write_all(&[0, 0]).unwrap();
            hugeleaf_testkit::until("it has ended", || is("Z"));
            let mut status = 0;
            // SAFETY: `status` is an int that outlives the call.
            let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!((ended, status), (child, 0));
        }

        fn thp_enabled(pid: u32) -> bool {
            std::fs::read_to_string(format!("/proc/{pid}/status"))
                .unwrap()
                .contains("THP_enabled:\t1")
        }

        /// A helper of the test below. Disables THP for itself and sleeps.
        #[test]
        #[ignore = "a helper of a_sleeper_sleeps_on"]
        fn sleeper() {
            // SAFETY: sets a flag of this process.
            unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
            println!("ready");
            let start = std::time::Instant::now();
            let time = rustix::thread::Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            let end = rustix::thread::nanosleep(&time);
            let slept = start.elapsed() >= std::time::Duration::from_secs(1);
            println!("slept {slept} {end:?}");
        }

        /// The remote call interrupts another system call, which must not be affected.
        #[test]
        fn a_sleeper_sleeps_on() {
            let program = std::env::current_exe().unwrap();
            let test = "remote_syscall::x86_64::tests::sleeper";
            let mut child = Command::new(program)
                .args([
                    "--exact",
                    test,
                    "--ignored",
                    "--nocapture",
                    "--test-threads=1",
                ])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut line = |word: &str| {
                lines
                    .by_ref()
                    .map(Result::unwrap)
                    .find(|line| line.contains(word))
                    .unwrap()
            };
            line("ready");
            assert!(!thp_enabled(child.id()));
            let kernel = Kernel::new();
            let process = kernel.pidfd_open(Pid(child.id())).unwrap();
            match kernel.switch_thp_on(&process) {
                Ok(()) => assert!(thp_enabled(child.id())),
                Err(e) if e.errno == Errno::PERM => {
                    println!(
                        "not run: the part of a_sleeper_sleeps_on that disturbs it: ptrace is not allowed here: {e}"
                    );
                }
                Err(e) => panic!("{e}"),
            }
            assert!(line("slept").contains("slept true Ok"));
            assert!(child.wait().unwrap().success());
        }

        #[test]
        fn what_has_ended_is_left_alone() {
            let mut child = Command::new("true").spawn().unwrap();
            let kernel = Kernel::new();
            let process = kernel.pidfd_open(Pid(child.id())).unwrap();
            child.wait().unwrap();
            assert!(kernel.switch_thp_on(&process).is_err());
        }
    }
}
