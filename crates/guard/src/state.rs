//! State from earlier scans. A value that the policy changes and the daemon writes to a file, so that a restart continues
//! with it.

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_mover::{ProcessRanges, StallStats};
use hugeleaf_proof::Verdict;
use hugeleaf_units::{Bytes, Range};
use serde::{Deserialize, Serialize};

use crate::evidence::{Evidence, TestVerdict};
use crate::observation::{FileId, TreeDetail};
use crate::pool_policy::PoolsState;
use crate::tree_state::TreeStatus;
use hugeleaf_host::ForkTreeId;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GuardState {
    #[serde(with = "as_list")]
    pub tracks: BTreeMap<ForkTreeId, TreeRecord>,
    /// Verdicts of tests, for later processes of the same name.
    pub remembered: Vec<RememberedVerdict>,
    /// Time when a user paused the guard, in seconds since 1970.
    pub paused_since: Option<i64>,
    pub fragmented: BackOff,
    /// End of the pause in promotion after a memory shortage, since boot.
    pub short_until: Duration,
    pub counts: GuardCounters,
    #[serde(default)]
    pub pools: PoolsState,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TreeRecord {
    pub name: String,
    pub group: String,
    /// Number of consecutive scans that found it eligible.
    #[serde(alias = "looks")]
    pub scans: u32,
    pub closer: TreeDetail,
    /// Time of the last detailed scan, since boot; `None` before the first.
    pub closer_at: Option<Duration>,
    pub closer_resident: Bytes,
    /// Interval until the next detailed scan while it seems unchanged.
    pub closer_every: Duration,
    pub job: Option<JobKind>,
    /// Journal of a running promotion: the memory to promote, written before its first call.
    #[serde(default)]
    pub intended: Vec<ProcessRanges>,
    pub moved: Option<PromotedMemory>,
    pub back_off: BackOff,
    /// Time since when its promotion waits for less processor pressure.
    pub waits_since: Option<Duration>,
    pub proof: Proof,
    #[serde(skip)]
    pub standing: Option<TreeStatus>,
    /// Time of the last sample of its accesses, since boot.
    pub sampled_at: Option<Duration>,
    pub moves: u64,
    /// Coverage at detailed scans, newest last.
    #[serde(skip)]
    pub history: Vec<CoverageAt>,
}

/// The coverage of a process tree at one time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CoverageAt {
    /// Time of the scan, since boot.
    pub at_seconds: f64,
    /// Share of resident memory on huge pages, 0 to 1.
    pub coverage: f64,
}

impl TreeRecord {
    /// Maximum number of points of its history.
    const HISTORY: usize = 120;

    /// Adds a point to the history. A full one is thinned out: it goes back to the first scan, with fewer points.
    pub fn add_coverage(&mut self, at: Duration, coverage: f64) {
        if self.history.len() >= TreeRecord::HISTORY {
            let mut number = 0;
            self.history.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        let at_seconds = at.as_secs_f64();
        self.history.push(CoverageAt {
            at_seconds,
            coverage,
        });
    }

    /// Counts the memory of a promotion without a result as promoted, because any of it may have been.
    pub fn keep_intended(&mut self, now: Duration) {
        let intended = std::mem::take(&mut self.intended);
        if !intended.is_empty() {
            let moved = self.moved.get_or_insert_default();
            moved.add_intended(&intended, now);
        }
    }
}

hugeleaf_units::named! {
    #[derive(Deserialize)]
    pub enum JobKind {
        Promote = "promote",
        Demote = "demote",
        Test = "test",
        Sample = "sample",
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PromotedMemory {
    /// Time of the last promotion, since boot.
    pub at: Duration,
    /// Promoted memory, at most the memory that is still on huge pages.
    pub bytes: Bytes,
    /// Growth by promotion; 0 unless a rule promotes blocks that are partly resident.
    pub grown: Bytes,
    /// Base-page memory that remained after the last promotion.
    pub left: Option<Bytes>,
    /// Time of the next attempt on the remaining memory, since boot; `None` if nothing failed.
    pub again: Option<Duration>,
    /// Promoted memory by process; only this is demoted. A detailed scan removes memory that is no longer mapped.
    #[serde(default)]
    pub memory: Vec<ProcessRanges>,
}

impl PromotedMemory {
    /// Adds memory, and merges neighbours.
    pub fn add(&mut self, more: &ProcessRanges) {
        let Some(known) = self.memory.iter_mut().find(|known| known.who == more.who) else {
            return self.memory.push(more.clone());
        };
        known.ranges.extend(&more.ranges);
        known.ranges.sort_unstable();
        let mut joined: Vec<Range> = Vec::with_capacity(known.ranges.len());
        for range in &known.ranges {
            match joined.last_mut() {
                Some(last) if range.start() <= last.end() => {
                    *last = Range::new(last.start(), last.end().max(range.end())).unwrap_or(*last);
                }
                _ => joined.push(*range),
            }
        }
        known.ranges = joined;
    }

    /// Applies a scan that succeeded: the promoted memory that is still mapped, if known, and the amounts by page size.
    pub fn seen(&mut self, memory: Option<Vec<ProcessRanges>>, closer: &TreeDetail) {
        if let Some(memory) = memory {
            self.memory = memory;
            self.bytes = self.bytes.min(self.mapped()).min(closer.large);
        }
        // Memory that was freed no longer counts as remaining.
        self.left = self.left.map(|left| left.min(closer.small));
    }

    fn mapped(&self) -> Bytes {
        let ranges = self.memory.iter().flat_map(|memory| &memory.ranges);
        ranges.map(|range| range.len()).sum()
    }

    /// Adds the plan of a promotion without a result.
    fn add_intended(&mut self, intended: &[ProcessRanges], now: Duration) {
        self.at = now;
        intended.iter().for_each(|memory| self.add(memory));
        self.bytes = self.mapped();
        self.left = Some(Bytes::ZERO);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BackOff {
    /// Number of consecutive attempts without success.
    pub failures: u32,
    /// End of the wait, since boot.
    pub until: Duration,
}

impl BackOff {
    /// The first wait, which each failure doubles, and the longest.
    const FIRST: Duration = Duration::from_secs(60);
    const LONGEST: Duration = Duration::from_secs(3600);

    pub fn failed(&mut self, now: Duration) {
        let wait = BackOff::FIRST * 2u32.saturating_pow(self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        self.until = now + wait.min(BackOff::LONGEST);
    }

    pub fn worked(&mut self) {
        *self = BackOff::default();
    }

    pub fn waits(&self, now: Duration) -> bool {
        now < self.until
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Proof {
    /// No result: it has no metric, or was not tested yet.
    #[default]
    Unproven,
    Testing(TestProgress),
    Proven(TestVerdict),
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TestProgress {
    /// Log ratios of the pairs so far, huge over base.
    pub logs: Vec<f64>,
    /// Direction of the metric; known after the first pairs.
    pub better: Option<String>,
    /// Time of the next pairs, since boot.
    pub next: Duration,
    pub failures: u32,
    /// Verdict of all pairs that would demote, until a hold of both arms confirms it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<TestVerdict>,
    /// Number of attempts to hold both arms.
    #[serde(default)]
    pub holds: u32,
}

/// Verdict of the tests, kept for later processes of the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RememberedVerdict {
    pub group: String,
    pub name: String,
    pub file: Option<FileId>,
    #[serde(rename = "held_bytes")]
    pub held: Bytes,
    pub kernel: String,
    pub proven: TestVerdict,
    pub reverted: bool,
    #[serde(default)]
    pub evidence: Evidence,
}

impl RememberedVerdict {
    /// Returns the time until a demoted program is tried again; zero once it is due. A clock that was set back prolongs it,
    /// at most to the whole time.
    pub fn again_in(&self, wall: i64) -> Duration {
        let gone = u64::try_from(wall.saturating_sub(self.proven.at)).unwrap_or(0);
        self.evidence
            .again_after()
            .saturating_sub(Duration::from_secs(gone))
    }

    /// Returns a copy for the guard's clients, without the pairs.
    pub fn shown(&self) -> RememberedVerdict {
        RememberedVerdict {
            evidence: self.evidence.without_pairs(),
            ..self.clone()
        }
    }

    /// Returns the pairs and the verdict with which a test continues. Pairs of another metric are dropped. After a demotion
    /// they are dropped once the program is tried again.
    pub fn so_far(&self, metric: &str, holds: bool, wall: i64) -> (Evidence, Option<&TestVerdict>) {
        let is_over = self.reverted && (!holds || self.again_in(wall).is_zero());
        match self.proven.metric == metric && !is_over {
            true => (self.evidence.clone(), Some(&self.proven)),
            false => (self.evidence.without_pairs(), None),
        }
    }

    /// True if it applies to this program: same file, size within a factor of two, same kernel.
    pub fn holds_for(&self, group: &str, name: &str, closer: &TreeDetail, kernel: &str) -> bool {
        let (then, now) = (self.held.get().max(1), closer.held().get().max(1));
        self.group == group
            && self.name == name
            && self.file == closer.file
            && self.kernel == kernel
            && now < then.saturating_mul(2)
            && then < now.saturating_mul(2)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GuardCounters {
    pub promotions: u64,
    #[serde(rename = "promoted_bytes")]
    pub promoted: Bytes,
    pub demotions: u64,
    #[serde(rename = "grown_bytes")]
    pub grown: Bytes,
    /// Upper bound of the time for which processes were stalled by promotions and demotions.
    #[serde(rename = "stalled_seconds", with = "hugeleaf_units::time::seconds")]
    pub stalled: Duration,
    /// The longest call of a promotion, demotion or test.
    #[serde(
        rename = "longest_stall_seconds",
        with = "hugeleaf_units::time::seconds"
    )]
    pub longest_stall: Duration,
    pub short: u64,
    pub samples: u64,
    #[serde(rename = "sampling_seconds", with = "hugeleaf_units::time::seconds")]
    pub sampling: Duration,
    pub faster: u64,
    pub slower: u64,
    pub same: u64,
    pub unclear: u64,
    pub dropped: u64,
}

impl GuardCounters {
    /// Adds the calls of any work on a process: a promotion, a demotion, or a test.
    pub fn stall(&mut self, stalls: &StallStats) {
        self.stalled += stalls.total;
        self.longest_stall = self.longest_stall.max(stalls.longest);
    }

    pub fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Faster => &mut self.faster,
            Verdict::Slower => &mut self.slower,
            Verdict::Same => &mut self.same,
            Verdict::Unclear => &mut self.unclear,
        } += 1;
    }
}

/// Serialises a map with keys that are not strings as a list of pairs.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{ForkTreeId, TreeRecord};

    pub fn serialize<S: Serializer>(
        map: &BTreeMap<ForkTreeId, TreeRecord>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<ForkTreeId, TreeRecord>, D::Error> {
        Ok(Vec::deserialize(from)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_an_hour() {
        let mut back_off = BackOff::default();
        let now = Duration::from_secs(1000);
        assert!(!back_off.waits(now));
        let mut waits = Vec::new();
        for _ in 0..8 {
            back_off.failed(now);
            waits.push((back_off.until - now).as_secs());
        }
        assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600]);
        assert!(back_off.waits(now) && !back_off.waits(now + BackOff::LONGEST));
        back_off.worked();
        assert!(!back_off.waits(now));
    }

    fn memory(who: u32, ranges: &[(u64, u64)]) -> ProcessRanges {
        let ranges = ranges.iter().map(|(a, b)| Range::new(*a, *b).unwrap());
        ProcessRanges {
            who: crate::tests::who(who),
            ranges: ranges.collect(),
        }
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let mut moved = PromotedMemory::default();
        moved.add(&memory(1, &[(0, 10), (30, 40)]));
        moved.add(&memory(1, &[(10, 20), (35, 50)]));
        moved.add(&memory(2, &[(0, 1)]));
        assert_eq!(
            moved.memory,
            [memory(1, &[(0, 20), (30, 50)]), memory(2, &[(0, 1)])]
        );
    }

    #[test]
    fn memory_that_is_gone_does_not_count_as_moved() {
        let mut moved = PromotedMemory::default();
        moved.add_intended(
            &[memory(1, &[(0, 100)]), memory(2, &[(0, 50)])],
            Duration::ZERO,
        );
        assert_eq!(moved.bytes, Bytes(150));
        let large = |bytes| TreeDetail {
            large: Bytes(bytes),
            ..TreeDetail::default()
        };
        moved.seen(Some(vec![memory(1, &[(0, 80)])]), &large(1000));
        assert_eq!((moved.bytes, moved.memory.len()), (Bytes(80), 1));
        moved.seen(Some(vec![memory(1, &[(0, 80)])]), &large(30));
        assert_eq!(moved.bytes, Bytes(30), "the program split the rest itself");
    }

    #[test]
    fn what_was_said_holds_while_nothing_changed() {
        let closer = |bytes, inode| TreeDetail {
            small: Bytes(bytes),
            file: Some(FileId {
                device: 1,
                inode,
                changed: 5,
            }),
            ..TreeDetail::default()
        };
        let remembered = RememberedVerdict {
            group: "redis.service".into(),
            name: "redis-server".into(),
            file: closer(0, 7).file,
            held: Bytes(1000),
            kernel: "6.18".into(),
            proven: TestVerdict {
                verdict: Verdict::Slower,
                ratio: 0.9,
                low: 0.88,
                high: 0.92,
                pairs: 12,
                metric: "redis:…".into(),
                better: None,
                at: 0,
            },
            reverted: true,
            evidence: Evidence::default(),
        };
        let holds = |group: &str, bytes, inode, kernel: &str| {
            remembered.holds_for(group, "redis-server", &closer(bytes, inode), kernel)
        };
        assert!(holds("redis.service", 1900, 7, "6.18"));
        assert!(holds("redis.service", 501, 7, "6.18"));
        assert!(!holds("redis.service", 2000, 7, "6.18"), "it has grown");
        assert!(!holds("redis.service", 500, 7, "6.18"), "it has shrunk");
        assert!(!holds("redis.service", 1000, 8, "6.18"), "another program");
        assert!(!holds("redis.service", 1000, 7, "6.19"), "another kernel");
        assert!(!holds("other.service", 1000, 7, "6.18"));
    }
}
