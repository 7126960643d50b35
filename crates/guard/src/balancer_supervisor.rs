//! Starts, stops and restarts the guard's targets as its rules change; one balancer per host.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use hugeleaf_host::{Host, Root};
use hugeleaf_sys::{HostLock, Kernel};

use crate::instance_lock::{InstanceLockError, lock_instance};
use hugeleaf_balancer::LogEvent;
use hugeleaf_balancer::{BalanceStatus, BalanceTarget, RunContext, run};
use hugeleaf_units::Share;
use hugeleaf_units::panic_containment::{FAULT, caught};

/// Time until the next attempt to take the lock, and to start a balancer after a fault.
const AGAIN: Duration = Duration::from_secs(60);

/// Takes the host-wide balancer lock in the folder `run`. Two balancers would revert each other's moves, and together
/// exceed the available memory.
pub fn balance_lock(run: &Path) -> Result<HostLock, InstanceLockError> {
    lock_instance(&run.join("balance.lock"), "balancer")
}

type SharedBalanceStatuses = Arc<Mutex<Vec<Option<BalanceStatus>>>>;

struct RunningBalancer {
    targets: Vec<BalanceTarget>,
    pause_memory: Share,
    stop: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
    has_failed: Arc<AtomicBool>,
    statuses: SharedBalanceStatuses,
}

#[derive(Default)]
pub(crate) struct BalancerSupervisor {
    going: Option<RunningBalancer>,
    lock: Option<HostLock>,
    tried: Option<Instant>,
    /// Time of the last fault.
    failed: Option<Instant>,
    paused: Arc<AtomicBool>,
}

impl BalancerSupervisor {
    /// Runs these targets from now on. Targets that ran before end first, so none may run for a moment.
    ///
    /// # Errors
    /// There is no balancer; the next attempt follows after a minute.
    pub fn keep<'s, 'a: 's>(
        &mut self,
        scope: &'s Scope<'s, '_>,
        (root, kernel, host): (&'a Root, &'a Kernel, &'a Host),
        (targets, pause_memory): (&[BalanceTarget], Share),
        folder: &Path,
        say: impl Fn(LogEvent) + Send + Sync + 'static,
    ) -> Result<(), InstanceLockError> {
        if let Some(going) = &self.going {
            let is_same = going.targets == targets && going.pause_memory == pause_memory;
            if !is_same {
                going.stop.store(true, Ordering::Relaxed);
            }
        }
        if self.is_going(Instant::now()) {
            return Ok(());
        }
        if targets.is_empty() {
            self.lock = None;
            return Ok(());
        }
        // A fault at each start would otherwise fill the log.
        if is_recent(self.failed, Instant::now()) {
            return Err(InstanceLockError {
                what: format!("memory targets are not balanced: {FAULT}"),
                is_held: false,
            });
        }
        self.need_lock(folder)?;
        let going = RunningBalancer {
            targets: targets.to_vec(),
            pause_memory,
            stop: Arc::default(),
            has_ended: Arc::default(),
            has_failed: Arc::default(),
            statuses: Arc::default(),
        };
        let (stop, ended) = (Arc::clone(&going.stop), Arc::clone(&going.has_ended));
        let failed = Arc::clone(&going.has_failed);
        let (statuses, paused) = (Arc::clone(&going.statuses), Arc::clone(&self.paused));
        let (targets, folder) = (going.targets.clone(), folder.to_owned());
        self.going = Some(going);
        scope.spawn(move || {
            let all = RunContext {
                root,
                kernel,
                host,
                folder: &folder,
                pause_memory,
                stop: &stop,
                paused: &paused,
                say: &say,
                shared: &statuses,
                enough: &|_, _| false,
            };
            if caught(|| run(all, &targets)).is_none() {
                failed.store(true, Ordering::Relaxed);
                say(LogEvent {
                    what: "failed",
                    name: "balance".into(),
                    text: FAULT.into(),
                    bytes: None,
                });
            }
            ended.store(true, Ordering::Release);
        });
        Ok(())
    }

    /// Returns true while a balancer runs. Records a fault that ended it.
    fn is_going(&mut self, now: Instant) -> bool {
        let ended = |going: &mut RunningBalancer| going.has_ended.load(Ordering::Acquire);
        if let Some(ended) = self.going.take_if(ended)
            && ended.has_failed.load(Ordering::Relaxed)
        {
            self.failed = Some(now);
        }
        self.going.is_some()
    }

    fn need_lock(&mut self, folder: &Path) -> Result<(), InstanceLockError> {
        if self.lock.is_some() {
            return Ok(());
        }
        if is_recent(self.tried, Instant::now()) {
            // The earlier message remains valid.
            return Err(InstanceLockError {
                what: String::new(),
                is_held: true,
            });
        }
        self.tried = Some(Instant::now());
        self.lock = Some(balance_lock(folder)?);
        Ok(())
    }

    pub fn set_paused(&self, is_paused: bool) {
        self.paused.store(is_paused, Ordering::Relaxed);
    }

    pub fn stop(&self) {
        if let Some(going) = &self.going {
            going.stop.store(true, Ordering::Relaxed);
        }
    }

    pub fn statuses(&self) -> Vec<BalanceStatus> {
        let Some(going) = &self.going else {
            return Vec::new();
        };
        let statuses = going.statuses.lock();
        let statuses = statuses.unwrap_or_else(PoisonError::into_inner);
        statuses.iter().flatten().cloned().collect()
    }
}

fn is_recent(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_fault_the_balancer_waits_a_minute() {
        let now = Instant::now();
        let ended = |has_failed| BalancerSupervisor {
            going: Some(RunningBalancer {
                targets: Vec::new(),
                pause_memory: Share(0.1),
                stop: Arc::default(),
                has_ended: Arc::new(AtomicBool::new(true)),
                has_failed: Arc::new(AtomicBool::new(has_failed)),
                statuses: Arc::default(),
            }),
            ..BalancerSupervisor::default()
        };
        let mut failed = ended(true);
        assert!(!failed.is_going(now));
        assert!(is_recent(failed.failed, now));
        assert!(is_recent(failed.failed, now + AGAIN / 2));
        assert!(!is_recent(failed.failed, now + AGAIN));
        // One that was stopped, because its targets changed, is followed at once.
        let mut stopped = ended(false);
        assert!(!stopped.is_going(now) && !is_recent(stopped.failed, now));
        let going = ended(false).going.unwrap();
        going.has_ended.store(false, Ordering::Relaxed);
        stopped.going = Some(going);
        assert!(stopped.is_going(now));
    }

    #[test]
    fn there_is_one_balancer_a_host() {
        let dir = tempfile::tempdir().unwrap();
        let first = balance_lock(dir.path()).unwrap();
        let second = balance_lock(dir.path()).unwrap_err();
        let pid = std::process::id().to_string();
        assert!(second.is_held && second.what.contains(&pid), "{second}");
        drop(first);
        balance_lock(dir.path()).unwrap();
        let nowhere = balance_lock(&dir.path().join("no")).unwrap_err();
        assert!(!nowhere.is_held);
    }
}
