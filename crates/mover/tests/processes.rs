//! Promotion and demotion of real processes by the real kernel, and by one that fails on demand.
//!
//! Acting on another process takes CAP_SYS_NICE. Without it these tests report "not run".

mod eligible;
mod ends;
mod faults;
mod faulty;
mod fetches;
mod moves;
mod once;
mod splits;
mod victim;

use std::sync::atomic::AtomicBool;

use hugeleaf_host::{Host, Root};
use hugeleaf_mover::{
    BytesByReason, DemoteOptions, Outcome, Percent, PreconditionError, ProcessIdentity,
    ProcessRanges, Progress, PromoteOptions, UnchangedReason, demote, promote,
};
use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_testkit::host_lock::{self, HostAccess as Held};
use hugeleaf_units::{Bytes, PageSize, Range};

use victim::Victim;

/// The host under test.
struct Bench {
    kernel: Kernel,
    root: Root,
    host: Host,
    huge: PageSize,
    _held: Held,
}

impl Bench {
    /// Returns the host if these tests can run at all; otherwise reports the test's name.
    fn new(test: &str) -> Option<Bench> {
        Bench::holding(test, host_lock::advised)
    }

    /// Runs without a concurrent test, because sums of shared pages change when programs that map the same
    /// files start and end.
    fn alone(test: &str) -> Option<Bench> {
        Bench::holding(test, || {
            let host = host_lock::exclusive();
            host.choose("enabled", "madvise");
            Held::Exclusive(host)
        })
    }

    fn holding(test: &str, hold: impl FnOnce() -> Held) -> Option<Bench> {
        let (kernel, root) = (Kernel::new(), Root::live());
        let not_run = |why: &str| {
            hugeleaf_testkit::not_run(test, why);
            None
        };
        if hugeleaf_sys::effective_uid() != 0 {
            return not_run("needs root");
        }
        let held = hold();
        let host = hugeleaf_host::read_host(&root, &kernel).unwrap();
        let Some(huge) = host.pmd_page.get() else {
            return not_run("needs transparent huge pages");
        };
        if huge.bytes() > Bytes::from_mib(32) {
            return not_run("huge pages of this host are too large for a small test");
        }
        if !kernel.supports_collapse() || !kernel.supports_process_madvise() {
            return not_run("needs process_madvise(MADV_COLLAPSE), Linux 6.1");
        }
        Some(Bench {
            kernel,
            root,
            host,
            huge,
            _held: held,
        })
    }

    /// Returns the size of `n` huge pages in bytes.
    fn pages(&self, n: u64) -> Bytes {
        hugeleaf_units::Pages(n).in_bytes(self.huge)
    }

    /// Starts a process with private memory of `n` huge pages on base pages.
    fn private_victim(&self, n: u64) -> (Victim, hugeleaf_units::Range) {
        let mut victim = Victim::start();
        let range = victim.map("a", "private", self.pages(n), self.huge);
        victim.tell("touch a");
        (victim, range)
    }

    /// Returns a range of a process.
    fn memory(&self, pid: Pid, range: Range) -> ProcessRanges {
        ProcessRanges {
            who: ProcessIdentity::of(&self.root, pid).unwrap(),
            ranges: vec![range],
        }
    }

    fn promote(&self, pids: &[Pid], options: &PromoteOptions) -> Outcome {
        self.promote_with(&self.kernel, pids, options, &mut |_| {})
            .unwrap()
    }

    fn promote_with(
        &self,
        kernel: &Kernel,
        pids: &[Pid],
        options: &PromoteOptions,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Outcome, PreconditionError> {
        let never = AtomicBool::new(false);
        let outcome = promote(
            kernel, &self.root, &self.host, pids, options, progress, &never,
        )?;
        check_sums(&outcome);
        Ok(outcome)
    }

    fn demote(&self, pids: &[Pid], options: &DemoteOptions) -> Outcome {
        self.demote_with(&self.kernel, pids, options).unwrap()
    }

    fn demote_with(
        &self,
        kernel: &Kernel,
        pids: &[Pid],
        options: &DemoteOptions,
    ) -> Result<Outcome, PreconditionError> {
        let never = AtomicBool::new(false);
        let progress = &mut |_: &Progress<'_>| {};
        let outcome = demote(
            kernel, &self.root, &self.host, pids, options, progress, &never,
        )?;
        check_sums(&outcome);
        Ok(outcome)
    }
}

/// In every outcome, requested memory is either done or failed with a reason.
#[track_caller]
fn check_sums(outcome: &Outcome) {
    for p in &outcome.processes {
        if !outcome.dry_run {
            assert_eq!(
                p.requested,
                p.done + BytesByReason::total(&p.failed),
                "{p:#?}"
            );
        }
        let moved: Bytes = p.moved.iter().map(|r| r.len()).sum();
        assert_eq!(moved, p.done, "{p:#?}");
    }
    let totals = &outcome.totals;
    if !outcome.dry_run {
        let sum = totals.done + BytesByReason::total(&totals.failed);
        assert_eq!(totals.requested, sum, "{totals:#?}");
    }
    let mapped: Bytes = outcome.processes.iter().map(|p| p.requested).sum();
    assert!(totals.requested <= mapped, "{outcome:#?}");
    let of_roles: Bytes = totals.by_role.iter().map(|r| r.requested).sum();
    assert_eq!(totals.requested, of_roles, "{totals:#?}");
}

/// Options for full speed.
fn fast() -> PromoteOptions {
    PromoteOptions {
        pace: Percent::ALL.into(),
        ..PromoteOptions::default()
    }
}

/// Options for full speed.
fn fast_demote() -> DemoteOptions {
    DemoteOptions {
        pace: Percent::ALL.into(),
        record_held: true,
        ..DemoteOptions::default()
    }
}

/// Returns the bytes of a reason in a table.
fn bytes_of(parts: &[BytesByReason], reason: impl Into<UnchangedReason>) -> Bytes {
    let reason = reason.into();
    let those = parts.iter().filter(|p| p.reason == reason);
    those.map(|p| p.bytes).sum()
}
