//! Starts, stops and restarts the guard's targets as its rules change; one balancer per host.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use hugeleaf_host::{Host, Root};
use hugeleaf_sys::{HostLock, Kernel};

use crate::instance_lock::{NoLock, alone};
use hugeleaf_balancer::Said;
use hugeleaf_balancer::{BalanceStatus, Run, Target, run};
use hugeleaf_units::Share;
use hugeleaf_units::fault::{FAULT, caught};

/// Interval between attempts to take the lock.
const AGAIN: Duration = Duration::from_secs(60);

/// Takes the host-wide balancer lock in the folder `run`. Two balancers would revert each other's moves, and together
/// exceed the available memory.
pub fn balance_lock(run: &Path) -> Result<HostLock, NoLock> {
    alone(&run.join("balance.lock"), "balancer")
}

type Statuses = Arc<Mutex<Vec<Option<BalanceStatus>>>>;

struct RunningJob {
    targets: Vec<Target>,
    pause_memory: Share,
    stop: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
    statuses: Statuses,
}

#[derive(Default)]
pub(crate) struct Balancing {
    going: Option<RunningJob>,
    lock: Option<HostLock>,
    tried: Option<Instant>,
    paused: Arc<AtomicBool>,
}

#[derive(Clone, Copy)]
pub(crate) struct With<'a> {
    pub root: &'a Root,
    pub kernel: &'a Kernel,
    pub host: &'a Host,
}

impl Balancing {
    /// Runs these targets from now on. Targets that ran before end first, so none may run for a moment.
    ///
    /// # Errors
    /// There is no balancer; the next attempt follows after a minute.
    pub fn keep<'s, 'a: 's>(
        &mut self,
        scope: &'s Scope<'s, '_>,
        with: With<'a>,
        (targets, pause_memory): (&[Target], Share),
        folder: &Path,
        say: impl Fn(Said) + Send + Sync + 'static,
    ) -> Result<(), NoLock> {
        if let Some(going) = &self.going {
            let is_same = going.targets == targets && going.pause_memory == pause_memory;
            if !is_same {
                going.stop.store(true, Ordering::Relaxed);
            }
            // Targets that are still wanted end only by a fault.
            if !going.has_ended.load(Ordering::Acquire) {
                return Ok(());
            }
            self.going = None;
        }
        if targets.is_empty() {
            self.lock = None;
            return Ok(());
        }
        self.need_lock(folder)?;
        let going = RunningJob {
            targets: targets.to_vec(),
            pause_memory,
            stop: Arc::default(),
            has_ended: Arc::default(),
            statuses: Arc::default(),
        };
        let (stop, ended) = (Arc::clone(&going.stop), Arc::clone(&going.has_ended));
        let (statuses, paused) = (Arc::clone(&going.statuses), Arc::clone(&self.paused));
        let (targets, folder) = (going.targets.clone(), folder.to_owned());
        self.going = Some(going);
        scope.spawn(move || {
            let all = Run {
                root: with.root,
                kernel: with.kernel,
                host: with.host,
                folder: &folder,
                pause_memory,
                stop: &stop,
                paused: &paused,
                say: &say,
                shared: &statuses,
                enough: &|_, _| false,
            };
            if caught(|| run(all, &targets)).is_none() {
                say(Said {
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

    fn need_lock(&mut self, folder: &Path) -> Result<(), NoLock> {
        if self.lock.is_some() {
            return Ok(());
        }
        let waits = self.tried.is_some_and(|at| at.elapsed() < AGAIN);
        if waits {
            // The earlier message remains valid.
            return Err(NoLock {
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

#[cfg(test)]
mod tests {
    use super::*;

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
