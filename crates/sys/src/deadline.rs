//! The gate of every question to a server, a command or a file.
//! It has one deadline, and ends when this process is asked to stop.
//!
//! A question waits for a descriptor ([`Deadline::wait`]). A call that cannot be interrupted runs on a thread that can be
//! left behind ([`Deadline::run_detached`]). `clippy.toml` forbids the calls that would wait in another way.

use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hugeleaf_units::panic_containment::FAULT;
use rustix::event::{PollFd, Timespec, poll};

/// Interval at which the stop flags are read.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of calls left behind. Each holds a thread until the kernel returns.
const MAX_DETACHED_CALLS: usize = 32;

static ENDING: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static DETACHED_CALLS: AtomicUsize = AtomicUsize::new(0);

/// Sets the flag that ends every question of this process. Only the first call counts, and `main` makes it.
pub fn set_stop_flag(flag: &Arc<AtomicBool>) {
    let _ = ENDING.set(Arc::clone(flag));
}

/// The limits of one question: its deadline and its stop flag.
#[derive(Debug, Clone, Copy)]
pub struct Deadline<'a> {
    until: Instant,
    time: Duration,
    stop: Option<&'a AtomicBool>,
}

impl<'a> Deadline<'a> {
    /// Starts a question that ends within `time`, or when this process is asked to end.
    pub fn new(time: Duration) -> Deadline<'static> {
        Deadline {
            until: Instant::now() + time,
            time,
            stop: None,
        }
    }

    /// Returns the same question, which `stop` ends as well.
    #[must_use]
    pub const fn with_stop(self, stop: &'a AtomicBool) -> Deadline<'a> {
        Deadline {
            stop: Some(stop),
            ..self
        }
    }

    /// Returns the total time that the question had at its start.
    pub const fn time(&self) -> Duration {
        self.time
    }

    /// Returns the remaining time.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] after the deadline, [`ErrorKind::Interrupted`] if it was stopped.
    pub fn remaining(&self) -> Result<Duration, Error> {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if self.stop.is_some_and(is_set) || ENDING.get().is_some_and(|flag| is_set(flag)) {
            return Err(Error::new(ErrorKind::Interrupted, "stopped"));
        }
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }

    /// Returns the question for the first of `count` attempts that share the remaining time equally.
    #[must_use]
    pub fn share_for(self, count: usize) -> Deadline<'a> {
        let left = self.until.saturating_duration_since(Instant::now());
        let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
        Deadline {
            until: Instant::now() + left / count,
            ..self
        }
    }

    /// Waits at most `moment` until one of the descriptors is ready. Check [`PollFd::revents`], or try again.
    ///
    /// # Errors
    /// The errors of [`Deadline::remaining`].
    pub fn wait(&self, fds: &mut [PollFd<'_>], moment: Duration) -> Result<(), Error> {
        let time = self.remaining()?.min(moment).min(POLL_INTERVAL);
        let timeout = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        // If the wait is interrupted, no descriptor is reported as ready.
        let _ = poll(fds, Some(&timeout));
        Ok(())
    }

    /// Waits until one descriptor is ready.
    ///
    /// # Errors
    /// The errors of [`Deadline::remaining`].
    pub fn until_ready(&self, mut fd: PollFd<'_>) -> Result<(), Error> {
        while fd.revents().is_empty() {
            self.wait(std::slice::from_mut(&mut fd), POLL_INTERVAL)?;
        }
        Ok(())
    }

    /// Makes a call that cannot be interrupted (resolving a name, reading a file of a server that is gone) on a separate
    /// thread. The thread is left behind if the question ends first.
    ///
    /// # Errors
    /// The errors of [`Deadline::remaining`]. Too many threads were left behind, or none can be started.
    pub fn run_detached<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let counted = DetachedCallGuard::new()?;
        let (send, receive) = sync_channel(1);
        std::thread::Builder::new().spawn(move || {
            let _counted = counted;
            let _ = send.send(act());
        })?;
        loop {
            match receive.recv_timeout(self.remaining()?.min(POLL_INTERVAL)) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::other(FAULT));
                }
            }
        }
    }
}

/// A counted thread that may be left behind.
struct DetachedCallGuard;

impl DetachedCallGuard {
    fn new() -> Result<DetachedCallGuard, Error> {
        match DETACHED_CALLS.fetch_add(1, Ordering::Relaxed) < MAX_DETACHED_CALLS {
            true => Ok(DetachedCallGuard),
            false => {
                drop(DetachedCallGuard);
                Err(Error::other(format!(
                    "{MAX_DETACHED_CALLS} earlier requests have no answer yet"
                )))
            }
        }
    }
}

impl Drop for DetachedCallGuard {
    fn drop(&mut self) {
        DETACHED_CALLS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn a_flag_ends_a_question_and_so_does_its_deadline() {
        let (reader, _writer) = std::os::unix::net::UnixStream::pair().unwrap();
        let ready = |question: Deadline<'_>| {
            let fd = PollFd::new(&reader, rustix::event::PollFlags::IN);
            question.until_ready(fd).unwrap_err().kind()
        };
        assert_eq!(ready(Deadline::new(SHORT)), ErrorKind::TimedOut);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| stop.store(true, Ordering::Relaxed));
            let question = Deadline::new(LONG).with_stop(&stop);
            assert_eq!(ready(question), ErrorKind::Interrupted);
        });
    }

    #[test]
    fn tries_share_the_time() {
        let first = Deadline::new(LONG).share_for(2);
        assert!(first.remaining().unwrap() <= LONG / 2);
        assert_eq!(first.time(), LONG);
        assert!(
            Deadline::new(Duration::ZERO)
                .share_for(0)
                .remaining()
                .is_err()
        );
    }

    /// A single test in a process of its own, because the counter is global.
    #[test]
    fn calls_that_do_not_end_are_left_behind_and_bounded() {
        let test = "deadline::tests::calls_that_do_not_end_are_left_behind_and_bounded";
        if !hugeleaf_testkit::in_own_process(test) {
            return;
        }
        assert_eq!(Deadline::new(LONG).run_detached(|| 7).unwrap(), 7);
        assert!(
            Deadline::new(LONG)
                .run_detached(|| panic!("expected by a test"))
                .is_err()
        );
        let (hold, held) = channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        let hang = || {
            let held = Arc::clone(&held);
            let question = Deadline::new(Duration::from_millis(1));
            question.run_detached(move || held.lock().unwrap().recv().is_ok())
        };
        for _ in 0..MAX_DETACHED_CALLS {
            assert_eq!(hang().unwrap_err().kind(), ErrorKind::TimedOut);
        }
        let refused = hang().unwrap_err();
        assert!(refused.to_string().contains("no answer yet"), "{refused}");
        drop(hold);
        while DETACHED_CALLS.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert!(Deadline::new(LONG).run_detached(|| ()).is_ok());
    }
}
