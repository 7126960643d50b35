//! Observations of a process tree's memory at run time.

use std::time::{Duration, Instant};

use hugeleaf_host::{
    Host, PageUsage, ReadDetail, ResolvedTarget, Root, Target, memory_totals, read_process,
};
use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_workload::PageArm;

use crate::bench::page_tables;

/// Interval between scans: a scan of gigabytes on base pages takes tens of milliseconds.
const EVERY: Duration = Duration::from_secs(2);

/// A process tree at its largest observed size.
#[derive(Debug, Default)]
pub(super) struct PeakMemory {
    at: Option<Instant>,
    pub(super) pages: Vec<PageUsage>,
    pub(super) resident: Bytes,
    pub(super) page_tables: Bytes,
}

impl PeakMemory {
    pub(super) fn sample(&mut self, root: &Root, host: &Host, pid: u32) {
        if self.at.is_none_or(|at| at.elapsed() >= EVERY) {
            self.look_now(root, host, pid);
        }
    }

    pub(super) fn look_now(&mut self, root: &Root, host: &Host, pid: u32) {
        let kernel = Kernel::new();
        let pids = Target::Tree(Pid(pid))
            .resolve(root)
            .map_or_else(|_| Vec::new(), ResolvedTarget::all);
        let read = |pid: &Pid| read_process(root, &kernel, host, *pid, ReadDetail::Segments).ok();
        let processes: Vec<_> = pids.iter().filter_map(read).collect();
        self.at = Some(Instant::now());
        let pages = memory_totals::process_memory(&processes);
        let resident: Bytes = pages.iter().map(|held| held.bytes).sum();
        if resident >= self.resident {
            (self.pages, self.resident) = (pages, resident);
            let pids: Vec<u32> = pids.iter().map(|pid| pid.0).collect();
            self.page_tables = page_tables(root, &pids).unwrap_or_default();
        }
    }

    /// Returns the share of its memory on the requested size and kind, or on any huge pages.
    pub(super) fn part(&self, asked: Option<PageArm>) -> Option<f64> {
        let is_on = |held: &&PageUsage| match asked {
            Some(arm) if arm.kind != PageKind::Base => {
                held.size == arm.size && held.kind == arm.kind
            }
            _ => held.kind != PageKind::Base,
        };
        let on: Bytes = self.pages.iter().filter(is_on).map(|held| held.bytes).sum();
        (!self.resident.is_zero()).then(|| on.as_f64() / self.resident.as_f64())
    }
}
