//! Watches the pools: reads the plans in force, checks services and pools as `verify` does, and sets a pool as decided
//! by [`crate::pool_policy`].

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hugeleaf_host::{Host, Pool, Root, pool_file, read_host, read_memory_facts};
use hugeleaf_plan::applied_plans::{in_force, unseen_by_kubelet, verify};
use hugeleaf_plan::host_changes::{ChangeContext, PoolResizeResult, resize_pool};
use hugeleaf_plan::verify::ReleasedPages;
use hugeleaf_sys::{Kernel, children_usage};
use hugeleaf_units::Pages;
use hugeleaf_verdict::reservation::{commit_bound, most_by_commit};

use crate::pool_policy::{self, PoolFinding, PoolResize, PoolsState, ReturnablePool};
use crate::serve::processor_without_answers;
use hugeleaf_units::Share;

/// Minimum time between readings of plans, and between checks of pools.
const EVERY: Duration = Duration::from_secs(60);

pub struct PoolWatch<'a> {
    root: &'a Root,
    kernel: &'a Kernel,
    pub may: Vec<ReturnablePool>,
    has_plans: bool,
    plans_read: Option<Duration>,
    checked: Option<Duration>,
    /// True while a check runs, which hides the cost of a scan.
    pub is_checking: bool,
    cost: Duration,
    wait: Duration,
}

/// A check of pools, services and plans. It asks programs for their settings, which may take long, so it runs in a
/// thread of its own.
pub struct PoolCheckTask<'a> {
    root: &'a Root,
    kernel: &'a Kernel,
    is_idle: bool,
    given: Vec<ReleasedPages>,
    unused: Vec<PoolFinding>,
}

impl PoolCheckTask<'_> {
    /// Returns the current findings, or why they are unknown, and the processor time used.
    pub fn run(self) -> (Result<Vec<PoolFinding>, String>, Duration) {
        if self.is_idle {
            return (Ok(Vec::new()), Duration::ZERO);
        }
        // This thread's helpers read as well. A concurrent scan is charged twice.
        let used = || processor_without_answers() + children_usage().processor();
        let before = used();
        let found = read_host(self.root, self.kernel).map(|mut host| {
            host.unseen_by_kubelet = unseen_by_kubelet(self.root);
            let report = verify(self.root, self.kernel, &host, None, &self.given);
            let mut found = pool_policy::kept(&report.findings);
            found.extend(self.unused);
            found
        });
        let found = found.map_err(|error| format!("pools are not checked: {error}"));
        (found, used().saturating_sub(before))
    }
}

impl<'a> PoolWatch<'a> {
    pub fn new(root: &'a Root, kernel: &'a Kernel) -> PoolWatch<'a> {
        PoolWatch {
            root,
            kernel,
            may: Vec::new(),
            has_plans: false,
            plans_read: None,
            checked: None,
            is_checking: false,
            cost: Duration::ZERO,
            wait: Duration::ZERO,
        }
    }

    /// Reads the plans in force once a minute; with `at_once` immediately, before acting on them.
    pub fn read_plans(&mut self, at_once: bool, now: Duration) {
        if !at_once && self.plans_read.is_some_and(|at| now < at + EVERY) {
            return;
        }
        self.plans_read = Some(now);
        let plans = in_force(self.root);
        self.has_plans = !plans.is_empty();
        // An unreadable plan may be the newest for a pool, so nothing is given back then.
        let known: Result<Vec<_>, _> = plans.iter().map(|one| one.plan.as_ref()).collect();
        self.may = known.map_or_else(|_| Vec::new(), pool_policy::may_give);
    }

    pub fn look_again(&mut self) {
        (self.checked, self.plans_read) = (None, None);
    }

    /// Returns the check that is due; `None` if none is, or one is running. Without plans and pools nothing is read.
    pub fn due(
        &mut self,
        state: &PoolsState,
        pools: &[Pool],
        now: Duration,
    ) -> Option<PoolCheckTask<'a>> {
        let is_idle = !self.has_plans && pools.iter().all(|pool| pool.all() == Pages(0));
        if is_idle {
            (self.cost, self.wait) = (Duration::ZERO, Duration::ZERO);
        }
        let is_due = match is_idle {
            true => !state.findings.is_empty(),
            false => self.checked.is_none_or(|at| now >= at + self.wait),
        };
        if self.is_checking || !is_due {
            return None;
        }
        (self.is_checking, self.checked) = (true, (!is_idle).then_some(now));
        Some(PoolCheckTask {
            root: self.root,
            kernel: self.kernel,
            is_idle,
            given: state.given_back(),
            unused: pool_policy::unused_for_a_day(state, now),
        })
    }

    /// Records the cost of a check. Checks may use half of `budget`, in processors.
    pub fn checked(&mut self, cost: Duration, budget: Share) {
        self.is_checking = false;
        if self.checked.is_some() {
            self.cost = cost;
            let least = cost.as_secs_f64() / (budget.0 / 2.0).max(0.0001);
            self.wait = Duration::try_from_secs_f64(least)
                .unwrap_or(EVERY)
                .max(EVERY);
        }
    }

    /// Returns the processor time of a check, and the time until the next.
    pub fn cost(&self) -> (Duration, Duration) {
        (self.cost, self.wait)
    }

    /// Returns the part of `budget` that checks leave for scans.
    pub fn left(&self, budget: Share) -> Share {
        let wait = self.wait.as_secs_f64();
        let part = if wait > 0.0 {
            self.cost.as_secs_f64() / wait
        } else {
            0.0
        };
        Share((budget.0 - part).max(budget.0 / 2.0))
    }

    pub fn resize(&self, resize: &PoolResize) -> Result<Pages, String> {
        let which = pool_policy::name(resize.page, resize.node);
        if !resize.gives() {
            let host = read_memory_facts(self.root, self.kernel);
            let may = host.map_err(|error| error.to_string());
            may.and_then(|host| may_take(&host, resize))
                .map_err(|why| format!("cannot enlarge the {which}: {why}"))?;
        }
        let file = pool_file(resize.page, resize.node, "nr_hugepages");
        let mut context = ChangeContext {
            root: self.root,
            kernel: self.kernel,
            stop: &AtomicBool::new(false),
            progress: &mut |_| {},
        };
        let (from, to) = (resize.from.get(), resize.to.get());
        match resize_pool(&mut context, file.as_ref(), from, to) {
            Ok(PoolResizeResult::Has(pages)) => Ok(Pages(pages)),
            Ok(PoolResizeResult::ChangedSince(pages)) => Err(format!(
                "{which} changed meanwhile: {pages} pages, {from} before"
            )),
            Err(error) => Err(format!("cannot resize the {which}: {error}")),
        }
    }
}

/// Refuses pages that would let allocations of programs fail, even if a plan has them.
fn may_take(host: &Host, resize: &PoolResize) -> Result<(), String> {
    let then = host.in_pools() + (resize.to - resize.from).in_bytes(resize.page);
    match most_by_commit(host).map_err(|failure| failure.to_string())? {
        Some(most) if then > most => Err(commit_bound(host)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::Fact;
    use hugeleaf_testkit::healthy_host_fixture::{gib, healthy, size};

    #[test]
    fn pages_are_not_taken_again_where_allocations_would_fail() {
        let resize = PoolResize {
            page: size("2M"),
            node: None,
            from: Pages(4096),
            to: Pages(5120),
            why: String::new(),
        };
        let mut host = healthy();
        assert_eq!(may_take(&host, &resize), Ok(()));
        host.limits.overcommit_memory = Fact::Known(2);
        host.limits.overcommit_ratio = Fact::Known(50);
        host.memory.commit_limit = gib(28);
        // 2 G more in pools lower the limit by 1 G.
        host.memory.committed = gib(24);
        assert_eq!(may_take(&host, &resize), Ok(()));
        host.memory.committed = gib(25);
        let why = may_take(&host, &resize).unwrap_err();
        assert!(why.contains("lowers CommitLimit (28G)"), "{why}");
    }

    /// A check may wait for the programs that it asks. The loop continues, and starts no second check.
    #[test]
    fn one_check_goes_on_at_a_time_and_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let (root, kernel) = (Root::at(folder.path()), Kernel::new());
        let mut watch = PoolWatch::new(&root, &kernel);
        let gone = PoolFinding {
            id: "pool-short".into(),
            severity: "problem".into(),
            text: String::new(),
            command: String::new(),
        };
        let state = PoolsState {
            findings: vec![gone],
            ..PoolsState::default()
        };
        let now = Duration::ZERO;
        let check = watch.due(&state, &[], now).unwrap();
        assert!(watch.is_checking && watch.due(&state, &[], now).is_none());
        let (found, cost) = std::thread::scope(|scope| scope.spawn(|| check.run()).join().unwrap());
        assert_eq!(found, Ok(Vec::new()));
        watch.checked(cost, Share(0.01));
        assert!(!watch.is_checking && watch.due(&state, &[], now).is_some());
    }
}
