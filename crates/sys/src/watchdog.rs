//! Reads that may block forever because of another process.
//! `/proc` takes the memory lock of a process to read about its memory, and a program can be made to block
//! while it holds that lock (with memory from a file on a file system that does not answer).
//!
//! Such a read runs on a helper thread. A large process takes long, but its thread then works. A thread
//! that is neither running nor runnable is left behind. It ends with the process it reads or with this
//! one, because such waits end at SIGKILL.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that waits for its next job, and its id.
struct Helper {
    jobs: Sender<Job>,
    thread: u32,
}

static IDLE: Mutex<Vec<Helper>> = Mutex::new(Vec::new());

/// Interval of the checks of a helper, in milliseconds.
const LOOK: u64 = 50;

/// Time that the next helper may be blocked, in milliseconds, halved for each helper left behind.
/// All blocked processes together thus cost less than twice the first.
static PATIENCE: AtomicU64 = AtomicU64::new(1600);

/// Runs a job that may block forever and returns its result, or `None` if it was blocked for too long.
/// If no thread can be started, it runs in this thread.
pub fn with_stall_limit<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let idle = || IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = idle().pop();
    let Some(helper) = waiting.or_else(start) else {
        return Some(act());
    };
    let (send, receive) = sync_channel(1);
    let job: Job = Box::new(move || {
        let _ = send.send(act());
    });
    helper.jobs.send(job).ok()?;
    let answer = wait(&receive, helper.thread);
    match answer {
        Some(_) => idle().push(helper),
        // The helper's channel is dropped with it, so it ends after its job.
        None => {
            let halved = |patience: u64| Some((patience / 2).max(1));
            let _ = PATIENCE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, halved);
        }
    }
    answer
}

fn start() -> Option<Helper> {
    let (jobs, todo) = channel::<Job>();
    let (say, hear) = sync_channel(1);
    let work = move || {
        let _ = say.send(
            rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned(),
        );
        for job in todo {
            job();
        }
    };
    std::thread::Builder::new().spawn(work).ok()?;
    let thread = hear.recv().ok()?;
    Some(Helper { jobs, thread })
}

fn wait<T>(answer: &Receiver<T>, thread: u32) -> Option<T> {
    let mut patience = PATIENCE.load(Ordering::Relaxed);
    let mut before = None;
    loop {
        let step = patience.clamp(1, LOOK);
        match answer.recv_timeout(Duration::from_millis(step)) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = worked(thread);
        if now.is_none() || now != before {
            patience = PATIENCE.load(Ordering::Relaxed);
        } else if patience <= step {
            return None;
        } else {
            patience -= step;
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

    /// Each job blocks until the end of the test. A single test, because the patience is global.
    #[test]
    fn what_stands_still_is_left_behind_and_what_works_is_not() {
        assert_eq!(with_stall_limit(|| 1), Some(1));
        assert_eq!(with_stall_limit(|| 2), Some(2));
        let (hold, held) = channel::<()>();
        let held = std::sync::Arc::new(Mutex::new(held));
        for _ in 0..40 {
            let held = std::sync::Arc::clone(&held);
            let stuck = with_stall_limit(move || held.lock().unwrap().recv().is_ok());
            assert_eq!(stuck, None);
        }
        // No patience is left, and a working thread needs none.
        let busy = with_stall_limit(|| {
            let start = Instant::now();
            let mut n = 0u64;
            while start.elapsed() < Duration::from_millis(300) {
                n = n.wrapping_add(1);
            }
            n > 0
        });
        assert_eq!(busy, Some(true));
        drop(hold);
    }
}
