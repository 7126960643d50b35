//! Status of the guard: one value for `guard status`, the page and the metrics.

use std::collections::BTreeMap;

use hugeleaf_mover::{BytesByReason, Progress, Stage};
use hugeleaf_units::{Bytes, Pages};
use serde::{Deserialize, Serialize};

use crate::config::{Config, RuleAction};
use crate::log::LogEntry;
use crate::observation::{Observation, container_of};
use crate::policy::proof_in_words;
use crate::pool_policy::{PoolFinding, PoolsState};
use crate::rule::rule_of;
use crate::state::{CoverageAt, GuardCounters, GuardState, Proof, RememberedVerdict};
use crate::tree_state::{TreeState, TreeStatus};
use hugeleaf_balancer::BalanceStatus;

/// Version of the answer of `guard status --json`. Schema 1 had other names, which are still read.
pub const SCHEMA: u64 = 2;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GuardStatus {
    pub schema: u64,
    pub version: String,
    pub pid: u32,
    /// Start time: RFC 3339, UTC.
    pub started: String,
    /// Start time in seconds since 1970.
    pub started_seconds: f64,
    pub at: String,
    /// The files with its rules; empty if there is none.
    pub files: Vec<String>,
    pub acts: bool,
    /// True if it was started with `--read-only`: it never acts, and keeps no state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    pub rules: usize,
    /// Time when a user paused it: RFC 3339, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_since: Option<String>,
    pub problems: Vec<String>,
    pub cost: GuardCost,
    pub host: HostStatus,
    #[serde(default)]
    pub pools: PoolCheckStatus,
    pub programs: Vec<ProcessTreeStatus>,
    pub seen: usize,
    pub counts: GuardCounters,
    pub remembered: Vec<RememberedVerdict>,
    pub series: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub balance: Vec<BalanceStatus>,
    pub log: Vec<LogEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct GuardCost {
    #[serde(alias = "look_seconds")]
    pub scan_seconds: f64,
    pub wait_seconds: f64,
    #[serde(alias = "looks")]
    pub scans: u64,
    /// Processor time of the guard so far, including promotion.
    pub cpu_seconds: f64,
    pub resident_bytes: Bytes,
    /// Processor time of a check of the pools, including that of the programs it asks.
    #[serde(default)]
    pub pool_check_seconds: f64,
    /// Time until the next check; 0 if there is nothing to check.
    #[serde(default)]
    pub pool_check_wait_seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostStatus {
    pub kernel: String,
    pub huge_page_bytes: Bytes,
    /// Share of time in which tasks stall for memory; missing if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<f64>,
    /// Share of time in which tasks wait for a processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unable: Option<String>,
    pub counts: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_tables_bytes: Option<Bytes>,
    pub pools: Vec<PoolStatus>,
    /// The kernel's counters of THP and compaction, by their names in `/proc/vmstat`.
    pub events: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PoolStatus {
    pub page_bytes: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    pub total: u64,
    pub free: u64,
    pub reserved: u64,
    pub surplus: u64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PoolCheckStatus {
    /// Time of the last `verify`; missing without plans in force and pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
    pub findings: Vec<PoolFinding>,
    pub given: Vec<ReturnedPagesStatus>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReturnedPagesStatus {
    pub page_bytes: Bytes,
    /// The node; missing if the host counts all nodes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    pub had: u64,
    pub pages: u64,
}

pub fn pools(state: &PoolsState, checked: Option<String>) -> PoolCheckStatus {
    let given = state.given.iter().filter(|g| g.missing() > Pages(0));
    let given = given.map(|given| ReturnedPagesStatus {
        page_bytes: given.page.bytes(),
        node: given.node,
        had: given.had.get(),
        pages: given.pages.get(),
    });
    PoolCheckStatus {
        checked,
        findings: state.findings.clone(),
        given: given.collect(),
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessTreeStatus {
    pub pid: u32,
    pub processes: usize,
    pub name: String,
    pub group: String,
    /// UID of its Kubernetes pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// ID of its container, without the runtime's name; missing outside of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub action: RuleAction,
    /// Share of its time that promotion may use, in percent.
    #[serde(default)]
    pub budget_percent: u8,
    #[serde(flatten)]
    pub standing: TreeStatus,
    /// Base-page memory that could be on huge pages.
    #[serde(alias = "small_bytes")]
    pub base_bytes: Bytes,
    #[serde(alias = "large_bytes")]
    pub huge_bytes: Bytes,
    /// The part of the base-page memory that no promotion can move: misaligned shared memory.
    #[serde(default)]
    pub misaligned_bytes: Bytes,
    /// Share of memory on huge pages; missing without memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<f64>,
    pub page_tables_bytes: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    pub age_seconds: f64,
    #[serde(alias = "moved_bytes")]
    pub promoted_bytes: Bytes,
    pub grown_bytes: Bytes,
    #[serde(alias = "moves")]
    pub promotions: u64,
    /// Result of its tests as text; `unproven` without a result.
    pub proof: String,
    /// The same result with its numbers.
    pub proof_detail: Proof,
    /// Bytes of base-page memory touched per second, if sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touched_bytes_per_second: Option<f64>,
    /// Coverage from the first detailed scan on.
    #[serde(default)]
    pub coverage_history: Vec<CoverageAt>,
    /// Progress of the running promotion or demotion; missing without one, and for a test, which does both.
    #[serde(default, alias = "moving", skip_serializing_if = "Option::is_none")]
    pub job: Option<JobProgress>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JobProgress {
    pub stage: String,
    #[serde(default)]
    pub done_bytes: Bytes,
    /// Bytes to process; 0 if unknown.
    #[serde(default)]
    pub total_bytes: Bytes,
    #[serde(default)]
    pub seconds: f64,
    /// Time of it in promotion and demotion calls, which the budget bounds.
    #[serde(default, alias = "moving_seconds")]
    pub call_seconds: f64,
    #[serde(default)]
    pub longest_stall_seconds: f64,
    /// Memory that cannot be demoted, as text; empty if all of it can.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub one_way: String,
}

impl From<&Progress<'_>> for JobProgress {
    fn from(progress: &Progress<'_>) -> JobProgress {
        JobProgress {
            stage: progress.stage.name().into(),
            done_bytes: progress.done,
            total_bytes: progress.total,
            seconds: progress.elapsed.as_secs_f64(),
            call_seconds: progress.stalls.total.as_secs_f64(),
            longest_stall_seconds: progress.stalls.longest.as_secs_f64(),
            one_way: (progress.one_way).map_or_else(String::new, BytesByReason::one_way_in_words),
        }
    }
}

impl JobProgress {
    /// Estimates the remaining time from the speed so far; `None` if unknown.
    pub fn left_seconds(&self) -> Option<f64> {
        let rest = self.total_bytes - self.done_bytes.min(self.total_bytes);
        let rest = rest.share_of(self.done_bytes)?;
        (self.seconds > 0.5).then_some(self.seconds * rest)
    }

    /// Returns the share of time spent in calls so far.
    pub fn stalled(&self) -> Option<f64> {
        (self.seconds > 0.0).then_some(self.call_seconds / self.seconds)
    }
}

/// Formats e.g. `1.2G of 3G, 19 s left, stall 9.2 %`.
impl std::fmt::Display for JobProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.total_bytes.is_zero() {
            return f.write_str(&self.stage);
        }
        // The usual stage is not shown.
        if self.stage != Stage::Moving.name() {
            write!(f, "{}, ", self.stage)?;
        }
        write!(f, "{} of {}", self.done_bytes, self.total_bytes)?;
        if let Some(seconds) = self.left_seconds() {
            write!(f, ", {seconds:.0} s left")?;
        }
        write!(f, ", stall {:.1} %", self.stalled().unwrap_or(0.0) * 100.0)?;
        match self.one_way.is_empty() {
            true => Ok(()),
            false => write!(f, "; {}", self.one_way),
        }
    }
}

/// Returns the process trees with a detailed scan, the most promising of each state first.
pub fn programs(config: &Config, state: &GuardState, seen: &Observation) -> Vec<ProcessTreeStatus> {
    let mut programs: Vec<ProcessTreeStatus> = (seen.programs.iter())
        .filter_map(|program| {
            let track = state.tracks.get(&program.id)?;
            let rule = rule_of(&config.rules, program)?;
            let standing = track.standing.clone()?;
            let moved = track.moved.clone().unwrap_or_default();
            Some(ProcessTreeStatus {
                pid: program.id.pid,
                processes: program.pids.len(),
                name: program.name.clone(),
                group: track.group.clone(),
                pod_uid: program.pod.clone(),
                container_id: program.cgroup.as_deref().and_then(container_of),
                user: program.user.clone(),
                action: rule.action,
                budget_percent: rule.limits.pace.budget.get(),
                standing,
                base_bytes: track.closer.small,
                huge_bytes: track.closer.large,
                misaligned_bytes: track.closer.misaligned,
                coverage: track.closer.large.share_of(track.closer.held()),
                page_tables_bytes: track.closer.page_tables,
                cpu: program.cpu,
                age_seconds: program.age.as_secs_f64(),
                promoted_bytes: moved.bytes,
                grown_bytes: moved.grown,
                promotions: track.moves,
                proof: proof_in_words(&track.proof),
                proof_detail: track.proof.clone(),
                touched_bytes_per_second: track.closer.touched,
                coverage_history: track.history.clone(),
                job: None,
            })
        })
        .collect();
    programs.sort_by(|a, b| {
        let key = |p: &ProcessTreeStatus| {
            (
                p.standing.state,
                std::cmp::Reverse(p.base_bytes + p.huge_bytes),
                p.pid,
            )
        };
        key(a).cmp(&key(b))
    });
    programs
}

impl GuardStatus {
    pub fn count(&self, state: TreeState) -> usize {
        self.programs
            .iter()
            .filter(|p| p.standing.state == state)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_a_move_goes_on() {
        let mut one = JobProgress {
            done_bytes: Bytes(25),
            total_bytes: Bytes(100),
            seconds: 10.0,
            call_seconds: 1.0,
            ..JobProgress::default()
        };
        assert_eq!((one.left_seconds(), one.stalled()), (Some(30.0), Some(0.1)));
        one.done_bytes = Bytes(200);
        assert_eq!(one.left_seconds(), Some(0.0));
        one.done_bytes = Bytes(0);
        assert_eq!(one.left_seconds(), None);
        assert_eq!(JobProgress::default().stalled(), None);
        one.one_way = "2M stay".into();
        assert_eq!(one.to_string(), ", 0 of 100, stall 10.0 %; 2M stay");
    }
}
