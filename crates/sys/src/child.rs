//! Starts another program: in place of this one, or as its only child with signals forwarded.
//!
//! The program starts in the state in which this one was started: the same ignored signals, the same blocked signals and the same OOM score
//! adjustment. This module must not choose the program.
#![allow(unsafe_code)]
//! # Safety
//! Code between fork and exec makes async-signal-safe calls only (signal-safety(7)): it allocates nothing and takes no lock.
//! [`return_unused`] discards memory below the stack pointer, which no frame uses. Nothing else is mapped there, because the kernel keeps a
//! larger gap than it discards. [`remember_ignored`] runs before Rust's runtime is set up and touches one atomic. Signal sets are plain
//! values that sigemptyset(3) initialises.

use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs::{AtFlags, StatVfsMountFlags};

use crate::address_space::{mask_and_bits, node_mask};
use crate::{Errno, Pid, PidFd, SysError, last_errno};

/// Signals whose ignored state this program loses. Rust's runtime ignores SIGPIPE from its start, and its `Command` resets it in
/// child programs. The C library catches the other two for itself once there is a second thread (nptl(7)), and execve(2) resets
/// caught signals. If a service manager had ignored SIGPIPE, a closed connection would kill the service.
const LOST: [libc::c_int; 3] = [libc::SIGPIPE, 32, 33];

/// Signals of [`LOST`] that were ignored at the start, one bit each.
static WERE_IGNORED: AtomicU8 = AtomicU8::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = remember_ignored;

extern "C" fn remember_ignored() {
    let mut ignored = 0;
    for (n, signal) in LOST.into_iter().enumerate() {
        let mut found = KernelAction::default();
        if signal_action(signal, std::ptr::null(), &raw mut found) && found.0[0] == libc::SIG_IGN {
            ignored |= 1 << n;
        }
    }
    WERE_IGNORED.store(ignored, Ordering::Relaxed);
}

/// `struct sigaction` of the kernel, whose first word is the handler, with room for all its other fields.
#[repr(C)]
#[derive(Default)]
struct KernelAction([usize; 8]);

/// Calls rt_sigaction(2), because the C library's wrapper refuses the signals that it keeps for itself. Returns true on success.
fn signal_action(signal: libc::c_int, new: *const KernelAction, old: *mut KernelAction) -> bool {
    /// Bytes of the kernel's signal mask. A kernel with another size refuses the call.
    const MASK: usize = 8;
    // SAFETY: the kernel reads `new` and writes `old`, each null or an action that is larger than the kernel's.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, MASK) == 0 }
}

/// The OOM score adjustment of this process (proc_pid_oom_score_adj(5)).
const OOM: &CStr = c"/proc/self/oom_score_adj";

/// Value of [`OOM`] before [`prefer_oom_kill`] changed it.
static OOM_FOUND: OnceLock<Vec<u8>> = OnceLock::new();

/// Makes this process the OOM killer's first choice, on the host and in a cgroup, because it is only a guest there.
/// Programs started by this module are not affected.
pub fn prefer_oom_kill() {
    let path = Path::new(OsStr::from_bytes(OOM.to_bytes()));
    if let Ok(found) = std::fs::read(path)
        && OOM_FOUND.set(found).is_ok()
    {
        // Every process may raise its own value. Without /proc, the setting is skipped.
        write_oom(b"1000");
    }
}

/// Returns unused stack of this thread and free parts of the heap to the kernel.
/// Parsing the command line needs more of both than most commands do. From here on, threads share one heap, because separate heaps would
/// each keep freed memory. For the main thread only, because other threads' stacks have a fixed end.
pub fn return_unused() {
    /// Stack kept for this call and signals, and maximum depth discarded below it. The gap below a stack is a megabyte.
    const KEPT: usize = 16 << 10;
    const MOST: usize = 768 << 10;
    let page = rustix::param::page_size();
    let here = 0u8;
    let end = (&raw const here as usize).saturating_sub(KEPT) / page * page;
    // SAFETY: see the header; parts that are not mapped are skipped with an error that changes nothing.
    unsafe {
        libc::madvise((end - MOST) as *mut libc::c_void, MOST, libc::MADV_DONTNEED);
        #[cfg(target_env = "gnu")]
        {
            libc::malloc_trim(0);
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

/// Writes the OOM score adjustment with async-signal-safe calls only.
fn write_oom(value: &[u8]) {
    // SAFETY: the path ends in a zero byte, and the bytes live until after the calls.
    unsafe {
        let file = libc::open(OOM.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, value.as_ptr().cast(), value.len());
            libc::close(file);
        }
    }
}

/// Replaces this process by the program of `command`, with the same id, terminal and parent.
/// Returns only if that fails, with the error (execvp(3)).
pub fn exec(command: &mut Command) -> std::io::Error {
    give_back(command, None);
    command.exec()
}

/// Restores the state for the program: ignored signals and [`OOM`] as this program found them, and `mask` blocked.
fn give_back(command: &mut Command, mask: Option<libc::sigset_t>) {
    let ignored = WERE_IGNORED.load(Ordering::Relaxed);
    let oom = OOM_FOUND.get();
    let before_exec = move || {
        if let Some(found) = oom {
            write_oom(found);
        }
        let mut ignore = KernelAction::default();
        ignore.0[0] = libc::SIG_IGN;
        for (n, signal) in LOST.into_iter().enumerate() {
            if ignored & (1 << n) != 0 {
                signal_action(signal, &raw const ignore, std::ptr::null_mut());
            }
        }
        if let Some(mask) = &mask {
            // SAFETY: the call is async-signal-safe and is given a value of this closure.
            unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing, takes no lock and never panics.
    unsafe { command.pre_exec(before_exec) };
}

/// NUMA policy of this process and its child programs (set_mempolicy(2)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumaTaskPolicy {
    /// Memory from these nodes only.
    Bind(Vec<u32>),
    Prefer(u32),
    Interleave(Vec<u32>),
    /// Memory from the node of the processor that touches it.
    Local,
}

/// Sets the memory policy of this thread. Child programs inherit it.
///
/// # Errors
/// EINVAL for a node that does not exist, has no memory, or is forbidden by a cpuset. ENOSYS on a kernel without NUMA.
pub fn set_task_policy(policy: &NumaTaskPolicy) -> Result<(), SysError> {
    // linux/mempolicy.h; libc has MPOL_LOCAL for some targets only.
    const MPOL_LOCAL: i32 = 4;
    let (mode, nodes): (i32, &[u32]) = match policy {
        NumaTaskPolicy::Bind(nodes) => (libc::MPOL_BIND, nodes),
        NumaTaskPolicy::Prefer(node) => (libc::MPOL_PREFERRED, std::slice::from_ref(node)),
        NumaTaskPolicy::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes),
        NumaTaskPolicy::Local => (MPOL_LOCAL, &[]),
    };
    let fail = |errno| SysError::new("set_mempolicy", format!("to nodes {nodes:?}"), errno);
    let mask = node_mask(nodes).ok_or_else(|| fail(Errno::INVAL))?;
    let (mask, bits) = mask_and_bits(&mask, nodes);
    // SAFETY: the mask outlives the call and its length goes with it.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) };
    match done {
        0 => Ok(()),
        _ => Err(fail(last_errno())),
    }
}

/// Returns the real user and group of this process (getuid(2), getgid(2)).
pub fn real_ids() -> (u32, u32) {
    (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    )
}

/// Returns true if a file gives capabilities to its users (capabilities(7)). Returns false if the attribute is unreadable for this user.
pub fn has_file_capabilities(path: &Path) -> bool {
    let mut none: [u8; 0] = [];
    rustix::fs::getxattr(path, "security.capability", &mut none).is_ok_and(|length| length > 0)
}

/// Returns true if the file system of `path` is mounted noexec: no file in it can be executed or mapped as code.
///
/// # Errors
/// The errors of statvfs(3).
pub fn is_mounted_noexec(path: &Path) -> Result<bool, SysError> {
    let stat = rustix::fs::statvfs(path)
        .map_err(|errno| SysError::new("statvfs", path.display().to_string(), errno))?;
    Ok(stat.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// Returns true if the effective user of this process may execute a file (faccessat(2)).
pub fn may_run(path: &Path) -> bool {
    let access = rustix::fs::Access::EXEC_OK;
    rustix::fs::accessat(rustix::fs::CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// Returns the process that connected the other end of a socket (`SO_PEERCRED`, unix(7)). `None` if it has no id in this PID namespace.
pub fn peer_pid(socket: &std::os::unix::net::UnixStream) -> Option<Pid> {
    let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok().map(Pid)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildExit {
    Status(u8),
    Signal(i32),
}

/// Signals that a launcher forwards to its program. The others concern only the launcher or cannot be caught.
const HANDED_ON: [i32; 9] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// A program that runs as a child of this process.
#[derive(Debug)]
pub struct ChildProgram {
    pid: Pid,
    handle: PidFd,
}

/// Blocks the signals to forward. Returns their set and the previous mask.
fn hold_signals() -> Result<(libc::sigset_t, libc::sigset_t), SysError> {
    let (mut ours, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigemptyset(3) initialises the set that sigaddset(3) adds to; sigprocmask(2) writes
    // the old mask, and is called while this program has one thread.
    unsafe {
        libc::sigemptyset(ours.as_mut_ptr());
        for signal in HANDED_ON {
            libc::sigaddset(ours.as_mut_ptr(), signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, ours.as_ptr(), before.as_mut_ptr()) != 0 {
            return Err(SysError::new("sigprocmask", "", last_errno()));
        }
        Ok((ours.assume_init(), before.assume_init()))
    }
}

/// Calls `act` with all signals blocked in this thread. A thread that it starts inherits that, so it takes no signal of
/// the process.
pub(crate) fn with_signals_blocked<T>(act: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigfillset(3) initialises the set; pthread_sigmask(3) writes the old mask.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let result = act();
    // SAFETY: the mask was written above: the call fails for no valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

impl ChildProgram {
    /// Starts `command` as a child and forwards the signals of this process to it.
    /// A thread forwards them: call this before starting other threads, so that all inherit the blocked signals. Helpers of
    /// `watchdog` take none.
    ///
    /// # Errors
    /// The errors of fork(2) and execvp(3), as [`std::io::Error`].
    #[expect(clippy::disallowed_methods, reason = "starts the user's program")]
    pub fn start(command: &mut Command) -> std::io::Result<ChildProgram> {
        let (ours, before) = hold_signals().map_err(|e| std::io::Error::from(e.errno))?;
        give_back(command, Some(before));
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                // SAFETY: restores the previous mask.
                unsafe { libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
                return Err(error);
            }
        };
        let pid = Pid(child.id());
        // Only this process waits for the child, so its id cannot be reused until then.
        let open = || PidFd::open(pid);
        let (handle, other) = match (open(), open()) {
            (Ok(handle), Ok(other)) => (handle, other),
            (Err(e), _) | (_, Err(e)) => return Err(std::io::Error::from(e.errno)),
        };
        std::thread::spawn(move || forward_signals(ours, &other));
        Ok(ChildProgram { pid, handle })
    }

    /// Closes standard input and output, which belong to the program.
    /// A reader of its output must see the end when the program closes it, even if this process lives longer.
    ///
    /// # Errors
    /// The errors of opening `/dev/null` and of dup2(2).
    pub fn leave_streams(&self) -> std::io::Result<()> {
        let null = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        Ok(())
    }

    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until the program ends (waitpid(2)). If the program is stopped, for example by Ctrl-Z, this process stops too, so that a shell
    /// sees a stopped job. When this process continues, so does the program.
    ///
    /// # Errors
    /// ECHILD if other code waited for it.
    pub fn wait(&self) -> Result<ChildExit, SysError> {
        let fail = |errno| SysError::new("waitpid", self.pid.to_string(), errno);
        let pid = libc::pid_t::try_from(self.pid.0).map_err(|_| fail(Errno::SRCH))?;
        loop {
            let mut status = 0;
            // SAFETY: the kernel writes the status into an int of ours.
            let got = unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) };
            if got < 0 {
                match last_errno() {
                    Errno::INTR => continue,
                    errno => return Err(fail(errno)),
                }
            }
            if libc::WIFSTOPPED(status) {
                // SAFETY: raise(3) takes a number.
                unsafe { libc::raise(libc::SIGSTOP) };
                send(&self.handle, libc::SIGCONT);
            } else if libc::WIFSIGNALED(status) {
                return Ok(ChildExit::Signal(libc::WTERMSIG(status)));
            } else if libc::WIFEXITED(status) {
                let status = u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX);
                return Ok(ChildExit::Status(status));
            }
        }
    }
}

/// Forwards signals until this process ends.
/// Signals from the terminal are not forwarded, because the kernel sends them to the program as well, as a member of the process group.
fn forward_signals(set: libc::sigset_t, to: &PidFd) {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialised, and the kernel writes into a siginfo_t of ours.
        let signal = unsafe { libc::sigwaitinfo(&set, info.as_mut_ptr()) };
        if signal < 0 {
            continue;
        }
        // SAFETY: a zeroed siginfo_t is valid, and sigwaitinfo(2) has filled it.
        let info = unsafe { info.assume_init() };
        if info.si_code != libc::SI_KERNEL {
            send(to, signal);
        }
    }
}

/// Sends a signal. Errors are ignored, because the program may have ended.
fn send(to: &PidFd, signal: i32) {
    // SAFETY: pidfd_send_signal(2) takes numbers and no siginfo.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            to.number(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0u32,
        )
    };
}

/// Ends this process by the signal that ended its program, so that its parent sees the same status.
/// It writes no core dump, because only the program's own is useful.
#[expect(clippy::disallowed_methods, reason = "the process ends by a signal")]
pub fn end_by(signal: i32) -> ! {
    // SAFETY: numbers only, and a set that sigemptyset(3) initialises.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::raise(signal);
    }
    // This signal does not end a process by default: exit with a shell's status for it.
    std::process::exit(128 + signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let nowhere = NumaTaskPolicy::Bind(vec![1000]);
        let error = set_task_policy(&nowhere).unwrap_err();
        assert!(
            matches!(error.errno, Errno::INVAL | Errno::NOSYS),
            "{error}"
        );
        assert!(error.to_string().contains("1000"), "{error}");
    }

    #[test]
    fn exec_says_why_not() {
        let error = exec(&mut Command::new("/no/such/program"));
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }

    #[test]
    fn plain_files_have_no_capabilities() {
        let exe = std::env::current_exe().unwrap();
        assert!(!has_file_capabilities(&exe));
        assert!(may_run(&exe));
        assert!(!may_run(Path::new("/no/such/file")));
    }
}
