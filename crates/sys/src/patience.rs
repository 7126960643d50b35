//! Reads that could wait for ever for somebody else: what `/proc` says of a process's memory takes the
//! lock on that memory, and a program can be made to stand still while it holds it (its memory is a
//! file of a file system that does not answer).
//!
//! Such a read is made on a helper thread. A large process takes long, and then the thread works; one that
//! neither works nor is about to is left behind. It goes when the process does, or with this one: waits
//! of that kind end at SIGKILL.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that waits for the next job, and its id.
struct Helper {
    jobs: Sender<Job>,
    thread: u32,
}

static IDLE: Mutex<Vec<Helper>> = Mutex::new(Vec::new());

/// How often a helper is looked at, in milliseconds.
const LOOK: u64 = 50;

/// How long the next helper may stand still, in milliseconds: half as long each time that one was left
/// behind. However many processes stand still, all of them together cost less than twice the first.
static PATIENCE: AtomicU64 = AtomicU64::new(1600);

/// Does something that may wait for somebody else for ever, and gives what came of it; `None` where
/// it stood still. Where no thread can be started it is done in this one, and waited for.
pub fn unless_stuck<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
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
        // Its channel goes with it, and it ends once its job does.
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

/// What shows how much a thread that waits has run; `None` while it runs or is to run.
fn worked(thread: u32) -> Option<String> {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{name}"));
    let stat = file("stat").ok()?;
    let fields = stat[stat.rfind(')')? + 1..].trim_start();
    if !fields.starts_with(['D', 'S']) {
        return None;
    }
    // In nanoseconds, where the kernel counts them; the other file has times in ticks.
    Some(file("schedstat").unwrap_or_else(|_| fields.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Each of these blocks until the test is over. One test alone: patience is this process's.
    #[test]
    fn what_stands_still_is_left_behind_and_what_works_is_not() {
        assert_eq!(unless_stuck(|| 1), Some(1));
        assert_eq!(unless_stuck(|| 2), Some(2));
        let (hold, held) = channel::<()>();
        let held = std::sync::Arc::new(Mutex::new(held));
        for _ in 0..40 {
            let held = std::sync::Arc::clone(&held);
            let stuck = unless_stuck(move || held.lock().unwrap().recv().is_ok());
            assert_eq!(stuck, None);
        }
        // No patience is left, and work needs none.
        let busy = unless_stuck(|| {
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
