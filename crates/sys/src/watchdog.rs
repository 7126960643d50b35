//! Reads that may block forever because of another process.
//! `/proc` takes the memory lock of a process to read about its memory, and a program can be made to block
//! while it holds that lock (with memory from a file on a file system that does not answer).
//!
//! Files of others may be on such a file system too: the program of a process, or the configuration of a server.
//!
//! Such a call runs on a helper thread. A large process takes long, but its thread then works. A thread
//! that is neither running nor runnable is left behind. It ends with the process it reads, with the answer of
//! the file system, or with this process, because such waits end at SIGKILL.
//! Until then, nothing else is asked about the same file. A file that is read at each scan thus blocks one thread.
#![allow(unsafe_code)]
//! # Safety
//! [`HELPERS`] is null or points to a leaked box, so what it points to lives as long as the process.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::child::with_signals_blocked;

type HelperJob = Box<dyn FnOnce() + Send>;

/// A thread that waits for its next job, and its id.
struct HelperThread {
    jobs: Sender<HelperJob>,
    thread: u32,
}

/// Interval of the checks of a helper, in milliseconds.
const CHECK_INTERVAL_MS: u64 = 50;

/// Time that a helper may be blocked if no other is, in milliseconds.
const PATIENCE: u64 = 1600;

/// A job that was left behind.
struct BlockedJob {
    file: PathBuf,
    /// The job holds the other side until it ends.
    job: Weak<()>,
}

/// The helpers of one process, and the jobs that it left behind.
struct Helpers {
    process: u32,
    idle: Mutex<Vec<HelperThread>>,
    blocked: Mutex<Vec<BlockedJob>>,
}

static HELPERS: AtomicPtr<Helpers> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the helpers of this process. A child of fork(2) starts its own: the threads of its parent do not exist
/// there, and their locks stay held.
fn helpers() -> &'static Helpers {
    let process = std::process::id();
    let found = HELPERS.load(Ordering::Acquire);
    // SAFETY: null, or leaked by this function.
    if let Some(helpers) = unsafe { found.as_ref() }
        && helpers.process == process
    {
        return helpers;
    }
    let new: &'static mut Helpers = Box::leak(Box::new(Helpers {
        process,
        idle: Mutex::default(),
        blocked: Mutex::default(),
    }));
    let new = std::ptr::from_mut(new);
    let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
    let current = match HELPERS.compare_exchange(found, new, done, failed) {
        Ok(_) => new,
        // Another thread of this process was first.
        Err(other) => other,
    };
    // SAFETY: leaked by this function, here or in another thread, and only read.
    unsafe { &*current }
}

/// Runs a job on a file that may block forever. Returns its result, or `None` if it was blocked for too long, or if an
/// earlier job on the same file is still blocked. If no thread can be started, it runs in this thread.
pub fn with_stall_limit<T: Send + 'static>(
    file: &Path,
    act: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let patience = patience_for(file)?;
    let helpers = helpers();
    let idle = || helpers.idle.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = idle().pop();
    let Some(helper) = waiting.or_else(start) else {
        return Some(act());
    };
    let running = Arc::new(());
    let blocked = BlockedJob {
        file: file.to_owned(),
        job: Arc::downgrade(&running),
    };
    let (send, receive) = sync_channel(1);
    let job: HelperJob = Box::new(move || {
        let _ = send.send(act());
        drop(running);
    });
    helper.jobs.send(job).ok()?;
    let answer = wait(&receive, helper.thread, patience);
    match answer {
        Some(_) => idle().push(helper),
        // The helper's channel is dropped with it, so it ends after its job.
        None => blocked_jobs().push(blocked),
    }
    answer
}

fn blocked_jobs() -> MutexGuard<'static, Vec<BlockedJob>> {
    let blocked = &helpers().blocked;
    blocked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time that a job on this file may be blocked, halved for each blocked job. All blocked jobs together
/// thus cost less than twice the first. `None` if one of them is on this file.
fn patience_for(file: &Path) -> Option<u64> {
    let mut blocked = blocked_jobs();
    blocked.retain(|one| one.job.strong_count() > 0);
    let is_blocked = blocked.iter().any(|one| one.file == file);
    (!is_blocked).then(|| (PATIENCE >> blocked.len().min(63)).max(1))
}

fn start() -> Option<HelperThread> {
    let (jobs, todo) = channel::<HelperJob>();
    let (say, hear) = sync_channel(1);
    let work = move || {
        let _ = say.send(rustix::thread::gettid().as_raw_pid().cast_unsigned());
        for job in todo {
            job();
        }
    };
    with_signals_blocked(|| std::thread::Builder::new().spawn(work)).ok()?;
    let thread = hear.recv().ok()?;
    Some(HelperThread { jobs, thread })
}

fn wait<T>(answer: &Receiver<T>, thread: u32, patience: u64) -> Option<T> {
    let mut left = patience;
    let mut before = None;
    loop {
        let step = left.clamp(1, CHECK_INTERVAL_MS);
        match answer.recv_timeout(Duration::from_millis(step)) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = worked(thread);
        if now.is_none() || now != before {
            left = patience;
        } else if left <= step {
            return None;
        } else {
            left -= step;
        }
        before = now;
    }
}

/// Returns a measure of the run time of a waiting thread, or `None` if it is running or runnable.
fn worked(thread: u32) -> Option<String> {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{name}"));
    let stat = file("stat").ok()?;
    let fields = stat[stat.rfind(')')? + 1..].trim_start();
    if !fields.starts_with(['D', 'S']) {
        return None;
    }
    // Nanoseconds if the kernel counts them. The times of the other file are ticks.
    Some(file("schedstat").unwrap_or_else(|_| fields.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A child has no helper of its parent, and its parent's lock may be held.
    fn a_child_of_fork_is_answered() {
        let file = PathBuf::from("file of the child");
        assert_eq!(with_stall_limit(&file, || 1), Some(1));
        let held = helpers().idle.lock().unwrap();
        // SAFETY: the child calls only `with_stall_limit` and ends.
        let child = match unsafe { libc::fork() } {
            0 => {
                let answers = [2, 3].map(|n| with_stall_limit(&file, move || n) == Some(n));
                // SAFETY: ends the child without exit handlers.
                unsafe { libc::_exit(i32::from(answers != [true, true])) }
            }
            child => child,
        };
        drop(held);
        assert!(child > 0);
        let mut status = -1;
        hugeleaf_testkit::until("the child has ended", || {
            // SAFETY: asks about a child of this process; the status is a local variable.
            unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) == child }
        });
        assert_eq!(status, 0);
    }

    /// Each job blocks until the end of the test. A single test, because blocked jobs are counted globally.
    #[test]
    fn what_stands_still_is_left_behind_and_what_works_is_not() {
        a_child_of_fork_is_answered();
        let file = |n: u32| PathBuf::from(format!("file-{n}"));
        assert_eq!(with_stall_limit(&file(0), || 1), Some(1));
        assert_eq!(with_stall_limit(&file(0), || 2), Some(2));
        let (hold, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for n in 0..40 {
            let held = Arc::clone(&held);
            let stuck = with_stall_limit(&file(n), move || held.lock().unwrap().recv().is_ok());
            assert_eq!(stuck, None);
        }
        assert_eq!(blocked_jobs().len(), 40);
        // Nothing else is asked about a file on which a job is blocked.
        assert_eq!(with_stall_limit(&file(0), || 3), None);
        assert_eq!(blocked_jobs().len(), 40);
        // No patience is left, and a working thread needs none.
        let busy = with_stall_limit(&file(40), || {
            let start = Instant::now();
            let mut n = 0u64;
            while start.elapsed() < Duration::from_millis(300) {
                n = n.wrapping_add(1);
            }
            n > 0
        });
        assert_eq!(busy, Some(true));
        // The file is asked again once the blocked job has ended, and patience returns.
        drop(hold);
        hugeleaf_testkit::until("the blocked jobs have ended", || {
            blocked_jobs().iter().all(|one| one.job.strong_count() == 0)
        });
        assert_eq!(patience_for(&file(0)), Some(PATIENCE));
        assert_eq!(with_stall_limit(&file(0), || 4), Some(4));
    }
}
