//! What the screen shows of one moment: one value behind the screen, recordings and what is played again.

use std::time::Duration;

use hugeleaf_guard::status::{MoveStatus, PoolStatus};
use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

/// A host and its programs at one time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// When: RFC 3339, in the time of the place.
    pub at: String,
    /// The same since the host was started: what ages are counted from.
    pub since_boot_seconds: f64,
    pub host: HostLine,
    /// The guard, where one runs and may be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardLine>,
    pub programs: Vec<Program>,
    /// Moves that go on, of this program and of the guard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<Move>,
    pub cost: Cost,
    /// What could not be looked at, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostLine {
    pub kernel: String,
    /// The size of a huge page; missing where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_page_bytes: Option<Bytes>,
    /// `MemTotal`.
    pub memory_bytes: Bytes,
    /// `MemAvailable`.
    pub available_bytes: Bytes,
    /// Private memory (`AnonPages`), and that of it on huge pages.
    pub private_bytes: Bytes,
    pub private_huge_bytes: Bytes,
    /// Shared memory (`Shmem`), and that of it on huge pages.
    pub shared_bytes: Bytes,
    pub shared_huge_bytes: Bytes,
    pub page_tables_bytes: Bytes,
    pub pools: Vec<PoolStatus>,
    /// What `transparent_hugepage/enabled` says, and `shmem_enabled`; missing without THP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thp: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thp_shared: Option<String>,
    /// What the kernel did about huge pages, a second; missing at the first look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    /// The part of the time in which tasks stalled for memory since the look before; missing where the kernel does
    /// not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_memory: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_processors: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_io: Option<f64>,
}

impl HostLine {
    pub fn pooled(&self) -> Bytes {
        let used = |p: &PoolStatus| {
            p.page_bytes
                .get()
                .saturating_mul(p.total - p.free.min(p.total))
        };
        Bytes(self.pools.iter().map(used).sum())
    }

    /// The part of private, shared and hugetlb memory that is on huge pages.
    pub fn coverage(&self) -> Option<f64> {
        let pooled = self.pooled();
        let large = self.private_huge_bytes + self.shared_huge_bytes + pooled;
        large.share_of(self.private_bytes + self.shared_bytes + pooled)
    }
}

/// What the kernel did, a second (`/proc/vmstat`).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Huge pages at first touch (`thp_fault_alloc`).
    pub faults: f64,
    /// Touches that got base pages because no huge one was there (`thp_fault_fallback`).
    pub fallbacks: f64,
    /// Huge pages that were made of base pages, by khugepaged or by a promotion (`thp_collapse_alloc`).
    pub collapses: f64,
    /// Tasks that had to compact memory themselves (`compact_stall`).
    pub compactions: f64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GuardLine {
    pub acts: bool,
    pub paused: bool,
    pub rules: usize,
    pub kept: usize,
    /// Programs that it would move if a rule let it, or will.
    pub next: usize,
}

/// A program: processes that were forked from one another.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Program {
    pub pid: u32,
    /// When that one started, in clock ticks since boot.
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
    /// How much of one processor it used since the look before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// When it started, since boot.
    pub started_seconds: f64,
    /// What a closer look found; missing before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// When that was, since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_at_seconds: Option<f64>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// Where it stands with the guard, in a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
}

/// A program, for as long as it runs: a number may come to mean another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Id {
    pub pid: u32,
    pub start_ticks: u64,
}

impl Program {
    pub const fn id(&self) -> Id {
        Id {
            pid: self.pid,
            start_ticks: self.start_ticks,
        }
    }

    /// The age of what a closer look found, where that is no longer what one sees live.
    pub fn old(&self, since_boot: f64) -> Option<Duration> {
        const OLD: Duration = Duration::from_secs(20);
        let age = since_boot - self.held_at_seconds?;
        Duration::try_from_secs_f64(age)
            .ok()
            .filter(|age| *age >= OLD)
    }

    /// The part of what could be on huge pages that is.
    pub fn coverage(&self) -> Option<f64> {
        let held = self.held?;
        held.large_bytes
            .share_of(held.large_bytes + held.small_bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Held {
    /// Memory on pages smaller than a huge page that could be on huge ones.
    pub small_bytes: Bytes,
    pub large_bytes: Bytes,
    pub page_tables_bytes: Bytes,
    /// Whether THP is switched off for it (`THP_enabled: 0`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thp_disabled: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Move {
    pub pid: u32,
    pub name: String,
    /// `promote` or `demote`; of the guard also `test`.
    pub what: String,
    /// `top` or `guard`.
    pub by: String,
    #[serde(flatten)]
    pub going: MoveStatus,
    /// The part of the time that calls may take, in percent.
    pub budget_percent: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    pub every_seconds: f64,
    /// The part of one processor that this program used since the look before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_memory_has_no_coverage() {
        assert_eq!(HostLine::default().coverage(), None);
        let host = HostLine {
            private_bytes: Bytes(60),
            private_huge_bytes: Bytes(30),
            pools: vec![PoolStatus {
                page_bytes: Bytes(10),
                total: 6,
                free: 2,
                ..PoolStatus::default()
            }],
            ..HostLine::default()
        };
        assert_eq!(host.coverage(), Some(0.7));
    }

    #[test]
    fn a_sample_is_read_as_it_was_written() {
        let sample = crate::tests::sample();
        let text = serde_json::to_string(&sample).unwrap();
        let mut back: Sample = serde_json::from_str(&text).unwrap();
        assert!(!text.contains("null"), "{text}");
        for (program, before) in back.programs.iter_mut().zip(&sample.programs) {
            program.pids = before.pids.clone();
        }
        assert_eq!(back, sample);
    }
}
