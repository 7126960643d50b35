//! The content of the screen at one moment. The view, recordings and replays share this type.

use std::time::Duration;

use hugeleaf_guard::status::{JobProgress, PoolStatus};
use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

/// A host and its programs at one time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostSample {
    /// Local time, in RFC 3339.
    pub at: String,
    /// Time of the sample since boot, the base of all ages.
    pub since_boot_seconds: f64,
    pub host: HostStats,
    /// The guard, if one runs and may be queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardSummary>,
    pub programs: Vec<TreeSample>,
    /// Promotions and demotions in progress, of this program and of the guard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<OperationProgress>,
    pub cost: ScanCost,
    /// Errors of the scan, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostStats {
    pub kernel: String,
    /// The huge page size. Missing if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_page_bytes: Option<Bytes>,
    /// `MemTotal`.
    pub memory_bytes: Bytes,
    /// `MemAvailable`.
    pub available_bytes: Bytes,
    /// Private memory (`AnonPages`), and the part on huge pages.
    pub private_bytes: Bytes,
    pub private_huge_bytes: Bytes,
    /// Shared memory (`Shmem`), and the part on huge pages.
    pub shared_bytes: Bytes,
    pub shared_huge_bytes: Bytes,
    pub page_tables_bytes: Bytes,
    pub pools: Vec<PoolStatus>,
    /// Values of `transparent_hugepage/enabled` and `shmem_enabled`. Missing without THP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thp: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thp_shared: Option<String>,
    /// Kernel events on huge pages per second. Missing in the first sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<KernelEventRates>,
    /// Share of the time in which tasks stalled for memory since the previous sample. Missing if the kernel does
    /// not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_memory: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_processors: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_io: Option<f64>,
}

impl HostStats {
    pub fn pooled(&self) -> Bytes {
        let used = |p: &PoolStatus| {
            p.page_bytes
                .get()
                .saturating_mul(p.total - p.free.min(p.total))
        };
        Bytes(self.pools.iter().map(used).sum())
    }

    /// Returns the huge-page coverage of private, shared and hugetlb memory.
    pub fn coverage(&self) -> Option<f64> {
        let pooled = self.pooled();
        let large = self.private_huge_bytes + self.shared_huge_bytes + pooled;
        large.share_of(self.private_bytes + self.shared_bytes + pooled)
    }
}

/// Kernel events per second (`/proc/vmstat`).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct KernelEventRates {
    /// Huge pages at first touch (`thp_fault_alloc`).
    pub faults: f64,
    /// Faults that got base pages because no huge page was available (`thp_fault_fallback`).
    pub fallbacks: f64,
    /// Collapses to huge pages, by khugepaged or by a promotion (`thp_collapse_alloc`).
    pub collapses: f64,
    /// Tasks that had to compact memory themselves (`compact_stall`).
    pub compactions: f64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GuardSummary {
    pub acts: bool,
    pub paused: bool,
    pub rules: usize,
    pub kept: usize,
    /// Candidates and queued programs.
    pub next: usize,
}

/// A program: processes that were forked from one another.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TreeSample {
    pub pid: u32,
    /// Start time of its first process, in clock ticks since boot.
    pub start_ticks: u64,
    pub processes: usize,
    #[serde(skip)]
    pub pids: Vec<u32>,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub resident_bytes: Bytes,
    pub threads: u64,
    /// Share of one processor used since the previous sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Start time, since boot.
    pub started_seconds: f64,
    /// Memory by page size, from a page-table walk. Missing before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<ProcessTreeMemory>,
    /// Time of that walk, since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_at_seconds: Option<f64>,
    /// The reason why the memory could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// Its state in the guard, as a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
}

/// Identifies a program while it runs, because a PID may be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TreeId {
    pub pid: u32,
    pub start_ticks: u64,
}

impl TreeSample {
    pub const fn id(&self) -> TreeId {
        TreeId {
            pid: self.pid,
            start_ticks: self.start_ticks,
        }
    }

    /// Returns the age of `held` if it is too old to be shown as live.
    pub fn old(&self, since_boot: f64) -> Option<Duration> {
        const OLD: Duration = Duration::from_secs(20);
        let age = since_boot - self.held_at_seconds?;
        Duration::try_from_secs_f64(age)
            .ok()
            .filter(|age| *age >= OLD)
    }

    /// Returns the huge-page coverage of the memory that could be on huge pages.
    pub fn coverage(&self) -> Option<f64> {
        let held = self.held?;
        held.huge_bytes.share_of(held.huge_bytes + held.base_bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessTreeMemory {
    /// Memory on base pages that could be on huge ones.
    #[serde(alias = "small_bytes")]
    pub base_bytes: Bytes,
    #[serde(alias = "large_bytes")]
    pub huge_bytes: Bytes,
    pub page_tables_bytes: Bytes,
    /// True if THP is disabled for it (`THP_enabled: 0`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thp_disabled: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OperationProgress {
    pub pid: u32,
    pub name: String,
    /// `promote` or `demote`, and for the guard also `test`.
    pub what: String,
    /// `top` or `guard`.
    pub by: String,
    #[serde(flatten)]
    pub status: JobProgress,
    /// The budget for calls, in percent of the time.
    pub budget_percent: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ScanCost {
    pub every_seconds: f64,
    /// Share of one processor that this program used since the previous sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_memory_has_no_coverage() {
        assert_eq!(HostStats::default().coverage(), None);
        let host = HostStats {
            private_bytes: Bytes(60),
            private_huge_bytes: Bytes(30),
            pools: vec![PoolStatus {
                page_bytes: Bytes(10),
                total: 6,
                free: 2,
                ..PoolStatus::default()
            }],
            ..HostStats::default()
        };
        assert_eq!(host.coverage(), Some(0.7));
    }

    #[test]
    fn a_sample_is_read_as_it_was_written() {
        let sample = crate::tests::sample();
        let text = serde_json::to_string(&sample).unwrap();
        let mut back: HostSample = serde_json::from_str(&text).unwrap();
        assert!(!text.contains("null"), "{text}");
        for (program, before) in back.programs.iter_mut().zip(&sample.programs) {
            program.pids = before.pids.clone();
        }
        assert_eq!(back, sample);
    }
}
