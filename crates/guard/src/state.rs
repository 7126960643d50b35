//! What the guard knows from earlier looks. A value: the policy changes it, the daemon writes it to a file, so that a
//! restart goes on where it was.

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_change::{Memory, Stalls};
use hugeleaf_proof::Verdict;
use hugeleaf_units::{Bytes, Range};
use serde::{Deserialize, Serialize};

use crate::evidence::{Evidence, Proven};
use crate::pools::PoolsState;
use crate::seen::{Closer, FileId, ProgramId};
use crate::why::Standing;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    #[serde(with = "as_list")]
    pub tracks: BTreeMap<ProgramId, Track>,
    /// What tests said, for programs of the same name that start later.
    pub remembered: Vec<Remembered>,
    /// Whether a person has stopped all moves, and when (seconds since 1970).
    pub paused_since: Option<i64>,
    pub fragmented: BackOff,
    /// Until when nothing is moved because the host was short of memory, since boot.
    pub short_until: Duration,
    pub counts: Counts,
    #[serde(default)]
    pub pools: PoolsState,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Track {
    pub name: String,
    pub group: String,
    /// So many looks in a row found it fit to be moved.
    pub looks: u32,
    pub closer: Closer,
    /// When that was, since boot; `None` before the first.
    pub closer_at: Option<Duration>,
    pub closer_resident: Bytes,
    /// How long until it is looked at closely again although it seems unchanged.
    pub closer_every: Duration,
    pub job: Option<JobKind>,
    /// The journal of a promotion that goes on: what it is about to move, written before its first call.
    #[serde(default)]
    pub intended: Vec<Memory>,
    pub moved: Option<Moved>,
    pub back_off: BackOff,
    /// Since when it waits for other tasks to need the processors less.
    pub waits_since: Option<Duration>,
    pub proof: Proof,
    #[serde(skip)]
    pub standing: Option<Standing>,
    /// When what it touches was sampled last, since boot.
    pub sampled_at: Option<Duration>,
    pub moves: u64,
    /// Coverage over time, newest last; at most [`Track::HISTORY`].
    #[serde(skip)]
    pub history: Vec<f64>,
}

impl Track {
    pub const HISTORY: usize = 120;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    Promote,
    Demote,
    Test,
    Sample,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Moved {
    /// When last, since boot.
    pub at: Duration,
    /// Not more than what is on huge pages still.
    pub bytes: Bytes,
    /// By how much it grew by that: 0 unless a rule takes blocks that are only partly in memory.
    pub grown: Bytes,
    /// What stayed on small pages after the last move.
    pub left: Option<Bytes>,
    /// When what is left is tried again, since boot; `None` where all was got.
    pub again: Option<Duration>,
    /// Memory that was moved, by process: only that is moved back. A closer scan removes memory that is not mapped any more.
    #[serde(default)]
    pub memory: Vec<Memory>,
}

impl Moved {
    /// Adds memory; neighbours become one.
    pub fn add(&mut self, more: &Memory) {
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

    /// Takes over which of its memory is still there, and how much of the program is on huge pages.
    pub fn seen(&mut self, memory: Vec<Memory>, large: Bytes) {
        self.memory = memory;
        self.bytes = self.bytes.min(self.mapped()).min(large);
    }

    fn mapped(&self) -> Bytes {
        let ranges = self.memory.iter().flat_map(|memory| &memory.ranges);
        ranges.map(|range| range.len()).sum()
    }

    /// Adds the plan of a promotion that was killed: it may have moved any of it.
    pub fn add_intended(&mut self, intended: &[Memory], now: Duration) {
        self.at = now;
        intended.iter().for_each(|memory| self.add(memory));
        self.bytes = self.mapped();
        self.left = Some(Bytes::ZERO);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BackOff {
    /// Attempts in a row that got nothing.
    pub failures: u32,
    /// Until when to wait, since boot.
    pub until: Duration,
}

impl BackOff {
    /// The first wait, doubled by each failure, and the longest.
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
    /// Nothing: it has no metric, or was not tested yet.
    #[default]
    Unproven,
    Testing(Test),
    Proven(Proven),
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Test {
    /// Log ratios of the pairs so far, large over base.
    pub logs: Vec<f64>,
    /// Whether more is better; known from the first pairs on.
    pub better: Option<String>,
    /// When the next pairs are due, since boot.
    pub next: Duration,
    pub failures: u32,
}

/// Verdict of the tests, for the next process of that program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    pub group: String,
    pub name: String,
    pub file: Option<FileId>,
    #[serde(rename = "held_bytes")]
    pub held: Bytes,
    pub kernel: String,
    pub proven: Proven,
    pub reverted: bool,
    #[serde(default)]
    pub evidence: Evidence,
}

impl Remembered {
    /// Time until a program that was moved back is tried again; zero once that is due. A clock that was put back makes it
    /// longer, up to the whole time.
    pub fn again_in(&self, wall: i64) -> Duration {
        let gone = u64::try_from(wall.saturating_sub(self.proven.at)).unwrap_or(0);
        self.evidence
            .again_after()
            .saturating_sub(Duration::from_secs(gone))
    }

    /// The same for those who ask the guard: pairs are its own.
    pub fn shown(&self) -> Remembered {
        Remembered {
            evidence: self.evidence.anew(),
            ..self.clone()
        }
    }

    /// Pairs and verdict with which a test goes on. Those of another metric say nothing; those for which it was moved back
    /// say nothing once it is tried again.
    pub fn so_far(&self, metric: &str, holds: bool, wall: i64) -> (Evidence, Option<&Proven>) {
        let is_over = self.reverted && (!holds || self.again_in(wall).is_zero());
        match self.proven.metric == metric && !is_over {
            true => (self.evidence.clone(), Some(&self.proven)),
            false => (self.evidence.anew(), None),
        }
    }

    /// Whether it says something of this program: the same file, within twice or half the size, on this kernel.
    pub fn holds_for(&self, group: &str, name: &str, closer: &Closer, kernel: &str) -> bool {
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
pub struct Counts {
    pub promotions: u64,
    #[serde(rename = "promoted_bytes")]
    pub promoted: Bytes,
    pub demotions: u64,
    #[serde(rename = "grown_bytes")]
    pub grown: Bytes,
    /// Time for which processes were stalled by moves, at most.
    #[serde(rename = "stalled_seconds", with = "hugeleaf_units::time::seconds")]
    pub stalled: Duration,
    /// The longest call of a move or of a test.
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

impl Counts {
    /// Adds the calls of any work on a process: a move, a move back, or a test.
    pub fn stall(&mut self, stalls: &Stalls) {
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

/// A map whose keys are no texts, as a list of pairs.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{ProgramId, Track};

    pub fn serialize<S: Serializer>(
        map: &BTreeMap<ProgramId, Track>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<ProgramId, Track>, D::Error> {
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

    fn memory(who: u32, ranges: &[(u64, u64)]) -> Memory {
        let ranges = ranges.iter().map(|(a, b)| Range::new(*a, *b).unwrap());
        Memory {
            who: crate::tests::who(who),
            ranges: ranges.collect(),
        }
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let mut moved = Moved::default();
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
        let mut moved = Moved::default();
        moved.add_intended(
            &[memory(1, &[(0, 100)]), memory(2, &[(0, 50)])],
            Duration::ZERO,
        );
        assert_eq!(moved.bytes, Bytes(150));
        moved.seen(vec![memory(1, &[(0, 80)])], Bytes(1000));
        assert_eq!((moved.bytes, moved.memory.len()), (Bytes(80), 1));
        moved.seen(vec![memory(1, &[(0, 80)])], Bytes(30));
        assert_eq!(moved.bytes, Bytes(30), "the program split the rest itself");
    }

    #[test]
    fn what_was_said_holds_while_nothing_changed() {
        let closer = |bytes, inode| Closer {
            small: Bytes(bytes),
            file: Some(FileId {
                device: 1,
                inode,
                changed: 5,
            }),
            ..Closer::default()
        };
        let remembered = Remembered {
            group: "redis.service".into(),
            name: "redis-server".into(),
            file: closer(0, 7).file,
            held: Bytes(1000),
            kernel: "6.18".into(),
            proven: Proven {
                verdict: Verdict::Slower,
                ratio: 0.9,
                low: 0.88,
                high: 0.92,
                pairs: 12,
                metric: "redis:…".into(),
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
