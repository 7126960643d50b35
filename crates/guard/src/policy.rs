//! Decides from rules, stored state and a scan. Pure: no clock, no input, no output, so that days are simulated in milliseconds
//! (`tests`).
//!
//! A scan has two parts. The first reads one small file per process. [`needs_detail`] selects the process trees that justify the
//! second, a walk over page tables. [`decide`] then returns the work to do, and records the state and reason of each process
//! tree. [`learn`] receives the results.

use std::time::Duration;

use hugeleaf_mover::{Percent, ProcessRanges, StallLimits, pacer};
use hugeleaf_proof::long_holds::{self, HoldResult};
use hugeleaf_proof::stats::{BetterDirection, LogRatioInterval};
use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;
use hugeleaf_units::panic_containment::{FAULT, caught};

use crate::config::{Config, RuleAction};
use crate::evidence::{CompletedTest, Evidence};
use crate::observation::{HostSnapshot, Now, Observation, ObservedTree, TreeDetail};
use crate::rule::{Rule, rule_of};
use crate::rule_settings::TestSettings;
use crate::state::{
    GuardState, JobKind, PromotedMemory, Proof, RememberedVerdict, TestProgress, TreeRecord,
};
use crate::tree_state::{SkipReason, TreeState, TreeStatus};
use hugeleaf_host::ForkTreeId;

/// Change of resident memory, or a hundredth of it, that triggers a detailed scan.
const CHANGED: Bytes = Bytes::from_mib(16);
/// Interval of detailed scans of an unchanged process tree; doubles from the first to the last.
const CLOSER_FIRST: Duration = Duration::from_secs(60);
const CLOSER_LAST: Duration = Duration::from_secs(600);
/// Number of huge pages, or a hundredth of its memory, that must be on base pages again before another promotion.
const GROWN_PAGES: u64 = 8;
/// Time between a promotion and its test.
const SETTLE: Duration = Duration::from_secs(60);
/// Number of pairs per session of a test.
pub const PAIRS_AT_A_TIME: usize = 4;
/// Time that a promotion waits for less processor pressure.
const WAIT_FOR_PROCESSORS: Duration = Duration::from_secs(60);
/// Time without promotion after a memory shortage.
const SHORT: Duration = Duration::from_secs(30);
/// Room below a cgroup's limit, in huge pages, under which its processes are skipped.
const ROOM_PAGES: u64 = 16;
/// Pages in direct reclaim between two scans that count as memory pressure, on kernels without PSI.
const RECLAIMED: u64 = 1000;
/// Wait after an abandoned test before the next one, doubled each time.
const TEST_AGAIN: Duration = Duration::from_secs(3600);
/// Interval between samples of a process tree's accesses.
const SAMPLE_AGAIN: Duration = Duration::from_secs(1800);
/// Extra time for some pairs of a test besides intervals and promotions, during which no other promotion runs on the host.
const READINGS: Duration = Duration::from_secs(60);
/// Interval length that a metric may need.
const LEAST_INTERVAL: Duration = Duration::from_secs(5);
/// Number of attempts to hold both arms before a demotion. If none can be completed, the pairs decide.
const MOST_HOLDS: u32 = 3;
const SAMPLE: Duration = Duration::from_secs(1);
/// Maximum number of remembered verdicts.
const REMEMBERED: usize = 1000;

#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub id: ForkTreeId,
    pub pids: Vec<Pid>,
    pub name: String,
    pub group: String,
    pub rule: String,
    pub job: Job,
    pub why: String,
}

impl Decision {
    fn new(seen: &ObservedTree, rule: &Rule, job: Job, why: String) -> Decision {
        Decision {
            id: seen.id,
            pids: seen.pids.clone(),
            name: seen.name.clone(),
            group: group_of(seen),
            rule: rule.label.clone(),
            job,
            why,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    Promote {
        pace: StallLimits,
        min_resident: Percent,
        /// True to switch THP on first if the process has disabled it.
        switch_thp_on: bool,
    },
    Demote {
        pace: StallLimits,
        memory: Vec<ProcessRanges>,
    },
    Test {
        /// The metric, as in `prove --metric`.
        metric: String,
        session: TestSessionWork,
        interval: Duration,
        pace: StallLimits,
        /// Longest duration of the job.
        limit: Duration,
    },
    Sample {
        time: Duration,
    },
}

/// Work of one session of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TestSessionWork {
    Pairs(usize),
    /// Holds both arms, to find effects that need longer than an interval, before the memory is demoted.
    Hold {
        /// Interval of the test's pairs.
        against: LogRatioInterval,
        time: Duration,
    },
}

/// Result of one session of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct TestSessionResult {
    /// Log ratios of its pairs; none of a hold.
    pub logs: Vec<f64>,
    /// `None` for pairs, and for a hold that could not be completed.
    pub holds: Option<HoldResult>,
    pub better: BetterDirection,
    pub metric: String,
}

impl Job {
    pub const fn kind(&self) -> JobKind {
        match self {
            Job::Promote { .. } => JobKind::Promote,
            Job::Demote { .. } => JobKind::Demote,
            Job::Test { .. } => JobKind::Test,
            Job::Sample { .. } => JobKind::Sample,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct PromotionResult {
    pub asked: Bytes,
    pub done: Bytes,
    pub grown: Bytes,
    /// Memory that the promotion put on huge pages.
    pub memory: Vec<ProcessRanges>,
    pub fragmented: bool,
    pub short: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum JobOutcome {
    Promoted(PromotionResult),
    Demoted {
        done: Bytes,
    },
    Tested(TestSessionResult),
    Sampled {
        /// Bytes touched per second.
        touched: f64,
        cost: Duration,
    },
    /// Stopped before any result.
    Stopped,
    Failed {
        why: String,
        ended: bool,
    },
}

impl JobOutcome {
    /// Returns the outcome of a job. A panic is a failure of the job alone.
    pub fn from_job(job: impl FnOnce() -> JobOutcome) -> JobOutcome {
        caught(job).unwrap_or(JobOutcome::Failed {
            why: FAULT.into(),
            ended: false,
        })
    }
}

/// True if this scan should walk the page tables of a process tree.
pub fn needs_detail(config: &Config, state: &GuardState, seen: &ObservedTree, now: Now) -> bool {
    let Some(rule) = rule_of(&config.rules, seen) else {
        return false;
    };
    let track = state.tracks.get(&seen.id);
    let moved = track.and_then(|t| t.moved.as_ref());
    // Managed memory is scanned even if its rule has become `never`. It may be unmapped, and its addresses used again.
    if moved.is_none() && (rule.action == RuleAction::Never || seen.is_own || is_init(seen)) {
        return false;
    }
    let least = match moved {
        Some(_) => Bytes::ZERO,
        None => rule.limits.min_bytes,
    };
    if seen.resident < least || (moved.is_none() && seen.age < rule.limits.min_age) {
        return false;
    }
    let Some((track, at)) = track.and_then(|t| Some((t, t.closer_at?))) else {
        return true;
    };
    if track.job.is_some() {
        return false;
    }
    let enough = CHANGED.max(Bytes(track.closer_resident.get() / 100));
    let by = seen.resident.max(track.closer_resident) - seen.resident.min(track.closer_resident);
    // After a promotion the remaining memory must be scanned once.
    let not_seen_since = moved.is_some_and(|m| m.at >= at);
    by >= enough || not_seen_since || now.since_boot >= at + track.closer_every
}

fn is_init(seen: &ObservedTree) -> bool {
    seen.pids.iter().any(|pid| pid.0 == 1)
}

/// Returns the group for metrics: unit, pod, or name.
pub fn group_of(seen: &ObservedTree) -> String {
    (seen.pod.as_ref().map(|pod| format!("pod {pod}")))
        .or_else(|| seen.unit.clone())
        .unwrap_or_else(|| seen.name.clone())
}

/// Decides the work to do now. Each process tree that a rule does not skip gets a [`TreeStatus`].
pub fn decide(
    config: &Config,
    state: &mut GuardState,
    seen: &Observation,
    now: Now,
) -> Vec<Decision> {
    apply_scan(config, state, seen, now);
    if seen.host.is_short {
        state.short_until = now.since_boot + SHORT;
    }
    let mut fit: Vec<EligibleTree<'_>> = Vec::new();
    let mut decisions = Vec::new();
    for program in &seen.programs {
        let Some(rule) = rule_of(&config.rules, program) else {
            continue;
        };
        match judge(rule, state, program, &seen.host, now) {
            TreeDecision::PlaceState(standing) => stand(state, program, standing),
            TreeDecision::Act(next) => fit.push(EligibleTree {
                rank: rank(state, program),
                rule,
                program,
                next,
            }),
        }
    }
    to_be_sampled(state, &mut fit, now);
    // The most promising first.
    fit.sort_by(|a, b| {
        b.rank
            .total_cmp(&a.rank)
            .then(a.program.id.cmp(&b.program.id))
    });
    for fit in fit {
        let (rule, program) = (fit.rule, fit.program);
        let held_up = hold_up(config, rule, state, &seen.host, &fit.next, program, now);
        let text = fit.next.why.clone();
        let standing = match (held_up, rule.action) {
            (None | Some(SkipReason::Full | SkipReason::TestElsewhere), RuleAction::Watch) => {
                TreeStatus::new(TreeState::Candidate, text, &rule.label)
            }
            (Some(why), _) => TreeStatus::not(&why, &rule.label),
            (None, _) => {
                let decision = start(config, rule, state, program, fit.next, &seen.host, now);
                let doing = match decision.job.kind() {
                    JobKind::Promote => TreeState::Promoting,
                    JobKind::Demote => TreeState::Reverting,
                    JobKind::Test => TreeState::Testing,
                    JobKind::Sample => TreeState::Queued,
                };
                decisions.push(decision);
                TreeStatus::new(doing, text, &rule.label)
            }
        };
        stand(state, program, standing);
    }
    decisions
}

/// If several wait for their first promotion, samples of their accesses decide the order.
fn to_be_sampled(state: &GuardState, fit: &mut [EligibleTree<'_>], now: Now) {
    let waits = |f: &EligibleTree<'_>| {
        let track = state.tracks.get(&f.program.id);
        f.next.kind == JobKind::Promote
            && f.rule.action == RuleAction::Promote
            && track.is_some_and(|t| t.moved.is_none())
    };
    if fit.iter().filter(|f| waits(f)).count() < 2 {
        return;
    }
    for one in fit.iter_mut().filter(|f| waits(f)) {
        let sampled = state.tracks.get(&one.program.id).and_then(|t| t.sampled_at);
        if sampled.is_none_or(|at| now.since_boot >= at + SAMPLE_AGAIN) {
            one.next = NextJob {
                kind: JobKind::Sample,
                why: "several are queued: their accesses are sampled to order them".into(),
            };
        }
    }
}

struct EligibleTree<'a> {
    rank: f64,
    rule: &'a Rule,
    program: &'a ObservedTree,
    next: NextJob,
}

struct NextJob {
    kind: JobKind,
    why: String,
}

enum TreeDecision {
    PlaceState(TreeStatus),
    Act(NextJob),
}

/// Applies a scan: new process trees, detailed scans, and process trees that are gone.
fn apply_scan(config: &Config, state: &mut GuardState, seen: &Observation, now: Now) {
    let live: std::collections::BTreeSet<ForkTreeId> = seen.programs.iter().map(|p| p.id).collect();
    // An ended process tree counts until its job is over, because two tests must never run at once.
    state
        .tracks
        .retain(|id, track| live.contains(id) || track.job.is_some());
    for program in &seen.programs {
        let Some(closer) = &program.closer else {
            continue;
        };
        let track = state.tracks.entry(program.id).or_default();
        track.name.clone_from(&program.name);
        track.group = group_of(program);
        let same = track.closer_at.is_some()
            && track.closer.small == closer.small
            && track.closer.large == closer.large;
        track.closer_every = match same {
            true => (track.closer_every * 2).clamp(CLOSER_FIRST, CLOSER_LAST),
            false => CLOSER_FIRST.max(config.every),
        };
        let touched = closer.touched.or(track.closer.touched);
        track.closer.clone_from(closer);
        let memory = track.closer.moved.take();
        // A scan that failed says nothing about the memory.
        if let (Some(moved), None) = (&mut track.moved, &closer.unreadable) {
            moved.seen(memory, closer);
        }
        track.closer.touched = touched;
        track.closer_at = Some(now.since_boot);
        track.closer_resident = program.resident;
        if let Some(coverage) = closer.large.share_of(closer.held()) {
            track.add_coverage(now.since_boot, coverage);
        }
    }
}

fn stand(state: &mut GuardState, program: &ObservedTree, standing: TreeStatus) {
    // Process trees without a detailed scan are not stored, because there are thousands.
    if let Some(track) = state.tracks.get_mut(&program.id) {
        track.standing = Some(standing);
    }
}

fn judge(
    rule: &Rule,
    state: &mut GuardState,
    seen: &ObservedTree,
    host: &HostSnapshot,
    now: Now,
) -> TreeDecision {
    let no = |why: SkipReason| TreeDecision::PlaceState(TreeStatus::not(&why, &rule.label));
    if let Some(why) = never(rule, seen) {
        return no(why);
    }
    let remembered = remembered(state, seen, host).cloned();
    let Some(track) = state.tracks.get_mut(&seen.id) else {
        return no(not_looked_at(rule, seen));
    };
    if let Some(job) = track.job {
        return TreeDecision::PlaceState(going_on(job, track, rule));
    }
    if let Some(error) = &track.closer.unreadable {
        return no(SkipReason::Unreadable(error.clone()));
    }
    if track.moved.is_some() {
        return kept(rule, seen, track, host, now);
    }
    let again = |known: &RememberedVerdict| known.again_in(now.wall);
    if let Some(known) = remembered.filter(|known| known.reverted && !again(known).is_zero()) {
        let why = SkipReason::Slower {
            verdict: known.proven.verdict,
            ratio: known.proven.ratio,
            again: again(&known),
        };
        track.proof = Proof::Proven(known.proven);
        return no(why);
    }
    // Little base-page memory besides much huge-page memory: another mechanism has promoted it.
    if track.closer.small < rule.limits.min_bytes && track.closer.large > track.closer.small {
        track.scans = 0;
        return TreeDecision::PlaceState(already_huge(track, rule));
    }
    if let Some(why) = unfit(rule, track, seen) {
        track.scans = 0;
        return no(why);
    }
    if track.closer.thp_disabled && !rule.overrides {
        return no(SkipReason::Disabled);
    }
    // Processor usage needs two scans.
    if seen.cpu.is_some() || rule.limits.min_cpu.0 <= 0.0 {
        track.scans = track.scans.saturating_add(1);
    }
    if track.scans < rule.limits.scans {
        return no(SkipReason::Scans(track.scans, rule.limits.scans));
    }
    TreeDecision::Act(NextJob {
        kind: JobKind::Promote,
        why: format!(
            "{} of {} on base pages",
            track.closer.small,
            track.closer.held()
        ),
    })
}

fn unfit(rule: &Rule, track: &TreeRecord, seen: &ObservedTree) -> Option<SkipReason> {
    let limits = &rule.limits;
    if track.closer.small < limits.min_bytes {
        return Some(SkipReason::Small(track.closer.small, limits.min_bytes));
    }
    if let Some(why) = misaligned(rule, track) {
        return Some(why);
    }
    if seen.age < limits.min_age {
        return Some(SkipReason::Young(seen.age, limits.min_age));
    }
    let idle = seen.cpu.filter(|cpu| *cpu < limits.min_cpu.0);
    idle.map(|cpu| SkipReason::Idle(cpu, limits.min_cpu))
}

/// Returns the reason if too little of the base-page memory can be promoted because most of it is misaligned.
fn misaligned(rule: &Rule, track: &TreeRecord) -> Option<SkipReason> {
    let TreeDetail {
        small, misaligned, ..
    } = track.closer;
    let is_most = small - misaligned < rule.limits.min_bytes && !misaligned.is_zero();
    is_most.then_some(SkipReason::Misaligned(small, misaligned))
}

fn not_looked_at(rule: &Rule, seen: &ObservedTree) -> SkipReason {
    let (min_bytes, min_age) = (rule.limits.min_bytes, rule.limits.min_age);
    match seen.resident >= min_bytes && seen.age < min_age {
        true => SkipReason::Young(seen.age, min_age),
        false => SkipReason::Small(seen.resident, min_bytes),
    }
}

pub fn passed_over(config: &Config, seen: &ObservedTree) -> Option<SkipReason> {
    let rule = rule_of(&config.rules, seen)?;
    Some(never(rule, seen).unwrap_or_else(|| not_looked_at(rule, seen)))
}

fn never(rule: &Rule, seen: &ObservedTree) -> Option<SkipReason> {
    if seen.is_own {
        Some(SkipReason::Own)
    } else if is_init(seen) {
        Some(SkipReason::Init)
    } else if rule.action == RuleAction::Never {
        Some(SkipReason::Never)
    } else {
        None
    }
}

fn going_on(job: JobKind, track: &TreeRecord, rule: &Rule) -> TreeStatus {
    let (state, text) = match job {
        JobKind::Promote => (TreeState::Promoting, "promoting to huge pages".to_owned()),
        JobKind::Demote => (TreeState::Reverting, "demoting to base pages".to_owned()),
        JobKind::Test => (TreeState::Testing, progress_of(&track.proof, rule)),
        JobKind::Sample => (TreeState::Queued, "sampling its accesses".to_owned()),
    };
    TreeStatus::new(state, text, &rule.label)
}

fn progress_of(proof: &Proof, rule: &Rule) -> String {
    let of = rule.prove.map_or(0, |prove| prove.pairs);
    match proof {
        Proof::Testing(TestProgress {
            unconfirmed: Some(proven),
            ..
        }) => format!(
            "testing: each page size is held, to confirm {}",
            proven.verdict
        ),
        Proof::Testing(test) => format!("testing: {} of {of} pairs", test.logs.len()),
        _ => format!("testing: 0 of {of} pairs"),
    }
}

fn already_huge(track: &TreeRecord, rule: &Rule) -> TreeStatus {
    let (large, held) = (track.closer.large, track.closer.held());
    let text = format!("{large} of {held} on huge pages");
    TreeStatus::new(TreeState::AlreadyHuge, text, &rule.label)
}

/// Judges a promoted process tree: new base-page memory is promoted too, and a test runs when due.
fn kept(
    rule: &Rule,
    seen: &ObservedTree,
    track: &mut TreeRecord,
    host: &HostSnapshot,
    now: Now,
) -> TreeDecision {
    let held = track.closer.held();
    let enough = Bytes(host.huge.get() * GROWN_PAGES).max(Bytes(held.get() / 100));
    let small = track.closer.small;
    let Some(moved) = &track.moved else {
        return TreeDecision::PlaceState(already_huge(track, rule));
    };
    // An attempt that promoted nothing manages nothing.
    if let Some(why) = misaligned(rule, track).filter(|_| track.closer.large.is_zero()) {
        return TreeDecision::PlaceState(TreeStatus::not(&why, &rule.label));
    }
    let left = moved.left.unwrap_or(small);
    let again = moved.again.is_some_and(|at| now.since_boot >= at);
    if small >= left + enough || (again && small >= enough) {
        let why = match again && small < left + enough {
            true => format!("{small} of {held} could not be promoted before"),
            false => format!(
                "grew by {} (of {held}) on base pages since the last promotion",
                small - left
            ),
        };
        return TreeDecision::Act(NextJob {
            kind: JobKind::Promote,
            why,
        });
    }
    match test_due(rule, seen, track, host, now) {
        Some(why) => TreeDecision::Act(NextJob {
            kind: JobKind::Test,
            why,
        }),
        None => {
            let (large, proof) = (track.closer.large, proof_in_words(&track.proof));
            let text = format!("{large} of {held} on huge pages, {proof}");
            TreeDecision::PlaceState(TreeStatus::new(TreeState::Managed, text, &rule.label))
        }
    }
}

/// Describes the test result for all views; never empty.
pub fn proof_in_words(proof: &Proof) -> String {
    match proof {
        Proof::Unproven => "unproven".into(),
        Proof::Testing(test) => format!("testing ({} pairs so far)", test.logs.len()),
        Proof::Proven(proven) => proven.in_words(),
    }
}

fn test_due(
    rule: &Rule,
    seen: &ObservedTree,
    track: &TreeRecord,
    host: &HostSnapshot,
    now: Now,
) -> Option<String> {
    let prove = rule.prove?;
    metric_of(rule, seen, host)?;
    let moved = track.moved.as_ref()?;
    // If all pairs of a test run at once, its start need not wait either.
    if now.since_boot < moved.at + SETTLE.min(prove.over) {
        return None;
    }
    let every = i64::try_from(prove.every.as_secs()).unwrap_or(i64::MAX);
    match &track.proof {
        Proof::Unproven => Some(format!("unproven: {} pairs to measure", prove.pairs)),
        Proof::Testing(test) if now.since_boot >= test.next => Some(format!(
            "{} of {} pairs measured",
            test.logs.len(),
            prove.pairs
        )),
        // A clock that was set back gives a negative age, and the test waits for it.
        Proof::Proven(proven) if now.wall.saturating_sub(proven.at) >= every => {
            Some("the last test is too old".into())
        }
        _ => None,
    }
}

/// Returns the metric of a process tree: its rule's, or the processor's counters if available.
fn metric_of(rule: &Rule, seen: &ObservedTree, host: &HostSnapshot) -> Option<String> {
    (rule.metric_of(seen).cloned()).or_else(|| host.counts.then(|| "cpi".to_owned()))
}

/// Estimates the gain by huge pages: touched base-page memory, or all base-page memory without a sample, times the processors
/// used.
fn rank(state: &GuardState, seen: &ObservedTree) -> f64 {
    let closer = state.tracks.get(&seen.id).map(|t| &t.closer);
    let bytes = closer.map_or(0.0, |c| c.touched.unwrap_or_else(|| c.small.as_f64()));
    bytes * seen.cpu.unwrap_or(0.0).max(0.01)
}

fn hold_up(
    config: &Config,
    rule: &Rule,
    state: &mut GuardState,
    host: &HostSnapshot,
    next: &NextJob,
    seen: &ObservedTree,
    now: Now,
) -> Option<SkipReason> {
    let at = now.since_boot;
    if let Some(why) = &host.unable {
        return Some(SkipReason::Unable(why.clone()));
    }
    if state.paused_since.is_some() {
        return Some(SkipReason::Paused);
    }
    let hours = &rule.limits.hours;
    if !hours.is_empty() && !hours.iter().any(|hours| hours.has(now.minute)) {
        return Some(SkipReason::Hours(hours.clone()));
    }
    if let Some(why) = pressure(config, state, host, at) {
        return Some(why);
    }
    if let Some(why) = others(config, rule, state, next.kind) {
        return Some(why);
    }
    // Sampling changes nothing.
    if matches!(next.kind, JobKind::Test | JobKind::Sample) {
        return None;
    }
    let fragmented = state.fragmented;
    let track = state.tracks.get_mut(&seen.id)?;
    if fragmented.waits(at) {
        return Some(SkipReason::Fragmented(fragmented.until - at));
    }
    if track.back_off.waits(at) {
        return Some(SkipReason::BackOff(track.back_off.until - at));
    }
    if track.closer.saving {
        return Some(SkipReason::Saving);
    }
    let room = track
        .closer
        .room
        .filter(|r| *r < Bytes(host.huge.get() * ROOM_PAGES));
    if let Some(room) = room {
        return Some(SkipReason::CgroupLimit(room));
    }
    let waiting = host.waiting.filter(|w| *w > config.pause_cpu.0);
    if let Some(waiting) = waiting {
        let since = *track.waits_since.get_or_insert(at);
        if at < since + WAIT_FOR_PROCESSORS {
            return Some(SkipReason::CpuPressure(waiting));
        }
    }
    None
}

fn others(config: &Config, rule: &Rule, state: &GuardState, next: JobKind) -> Option<SkipReason> {
    let jobs = || state.tracks.values().filter_map(|t| Some((t, t.job?)));
    let count = |kind: JobKind| jobs().filter(|(_, job)| *job == kind).count();
    let moves = count(JobKind::Promote) + count(JobKind::Demote);
    if count(JobKind::Test) > 0 {
        return Some(SkipReason::TestElsewhere);
    }
    let of_rule = |(t, job): &(&TreeRecord, JobKind)| {
        *job == JobKind::Promote && t.standing.as_ref().is_some_and(|s| s.rule == rule.label)
    };
    let is_full = match next {
        JobKind::Sample => false,
        JobKind::Test => moves > 0,
        JobKind::Promote | JobKind::Demote => {
            moves >= config.at_once as usize
                || jobs().filter(of_rule).count() >= rule.limits.at_once as usize
        }
    };
    is_full.then_some(SkipReason::Full)
}

pub fn pressure(
    config: &Config,
    state: &GuardState,
    host: &HostSnapshot,
    at: Duration,
) -> Option<SkipReason> {
    if host.is_short || at < state.short_until {
        return Some(SkipReason::LowMemory);
    }
    if let Some(stalled) = host.stalled {
        return (stalled > config.pause_memory.0).then_some(SkipReason::MemoryPressure(stalled));
    }
    let reclaims = host.reclaimed.is_some_and(|pages| pages > RECLAIMED);
    reclaims.then_some(SkipReason::LowMemory)
}

fn start(
    config: &Config,
    rule: &Rule,
    state: &mut GuardState,
    seen: &ObservedTree,
    next: NextJob,
    host: &HostSnapshot,
    now: Now,
) -> Decision {
    let track = state.tracks.entry(seen.id).or_default();
    track.job = Some(next.kind);
    track.waits_since = None;
    if let Some(moved) = &mut track.moved {
        moved.again = None;
    }
    let mut pace = rule.limits.pace;
    if host.waiting.is_some_and(|w| w > config.pause_cpu.0) {
        pace.budget = Percent::new((pace.budget.get() / 4).max(1)).unwrap_or(pace.budget);
    }
    let job = match next.kind {
        JobKind::Test => {
            if !matches!(track.proof, Proof::Testing(_)) {
                track.proof = Proof::Testing(TestProgress {
                    next: now.since_boot,
                    ..TestProgress::default()
                });
            }
            let prove = rule.prove.unwrap_or_default();
            let session = session_of(&prove, &track.proof);
            Job::Test {
                metric: metric_of(rule, seen, host).unwrap_or_default(),
                session,
                interval: prove.interval,
                pace,
                limit: longest_test(track.closer.held(), pace, prove.interval, session),
            }
        }
        JobKind::Sample => {
            track.sampled_at = Some(now.since_boot);
            Job::Sample { time: SAMPLE }
        }
        JobKind::Promote | JobKind::Demote => Job::Promote {
            pace,
            min_resident: rule.limits.min_resident,
            switch_thp_on: rule.overrides && track.closer.thp_disabled,
        },
    };
    Decision::new(seen, rule, job, next.why)
}

/// Returns the next session of a test: the next pairs, or a hold if the pairs would demote.
fn session_of(prove: &TestSettings, proof: &Proof) -> TestSessionWork {
    let (unconfirmed, done) = match proof {
        Proof::Testing(test) => (test.unconfirmed.as_ref(), test.logs.len()),
        _ => (None, 0),
    };
    match unconfirmed {
        Some(proven) => TestSessionWork::Hold {
            against: proven.interval(),
            // With fewer intervals the later half of a hold has no median.
            time: prove.hold.max(prove.interval.saturating_mul(4)),
        },
        None => {
            let left = prove.pairs.saturating_sub(done);
            TestSessionWork::Pairs(left.clamp(1, PAIRS_AT_A_TIME))
        }
    }
}

/// Returns the longest time of a session of a test. A slow metric must not block other work, but promotions get the time that
/// their budget requires.
fn longest_test(
    held: Bytes,
    pace: StallLimits,
    interval: Duration,
    session: TestSessionWork,
) -> Duration {
    // A hold needs no more moves than these pairs.
    let moves = 2.0 * (PAIRS_AT_A_TIME + 1) as f64;
    let holds = match session {
        TestSessionWork::Pairs(_) => 0.0,
        TestSessionWork::Hold { time, .. } => {
            time.as_secs_f64() * 2.0 * long_holds::MOST_ROUNDS as f64
        }
    };
    // Settling takes three quarters of an interval.
    let interval = 2.0 * interval.max(LEAST_INTERVAL).as_secs_f64();
    let one = pacer::estimate_seconds(held, pace.budget);
    let seconds = (one + interval) * moves + holds;
    READINGS + Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn remembered<'a>(
    state: &'a GuardState,
    seen: &ObservedTree,
    host: &HostSnapshot,
) -> Option<&'a RememberedVerdict> {
    let closer = &state.tracks.get(&seen.id)?.closer;
    let group = group_of(seen);
    let mut all = state.remembered.iter().rev();
    all.find(|r| r.holds_for(&group, &seen.name, closer, &host.kernel))
}

/// Records the result of a decision, and returns immediate follow-up work: the demotion of memory without gain.
pub fn learn(
    config: &Config,
    state: &mut GuardState,
    seen: &ObservedTree,
    came: &JobOutcome,
    host: &HostSnapshot,
    now: Now,
) -> Option<Decision> {
    let rule = rule_of(&config.rules, seen)?;
    let track = state.tracks.get_mut(&seen.id)?;
    let kind = track.job.take();
    match came {
        // The result names the memory that was promoted.
        JobOutcome::Promoted(_) => track.intended.clear(),
        _ => track.keep_intended(now.since_boot),
    }
    match came {
        JobOutcome::Promoted(came) => {
            promoted(state, seen, came, now);
            let known = remembered(state, seen, host).filter(|known| !known.reverted);
            if let Some(known) = known.map(|known| known.proven.clone())
                && let Some(track) = state.tracks.get_mut(&seen.id)
                && track.proof == Proof::Unproven
            {
                track.proof = Proof::Proven(known);
            }
            None
        }
        JobOutcome::Demoted { .. } => {
            state.counts.demotions += 1;
            track.moved = None;
            track.scans = 0;
            None
        }
        JobOutcome::Tested(session) => tested(rule, state, seen, session, host, now),
        JobOutcome::Sampled { touched, cost } => {
            track.closer.touched = Some(*touched);
            state.counts.samples += 1;
            state.counts.sampling += *cost;
            None
        }
        JobOutcome::Stopped => None,
        JobOutcome::Failed { ended: true, .. } => {
            state.tracks.remove(&seen.id);
            None
        }
        JobOutcome::Failed { .. } => {
            match kind {
                Some(JobKind::Test) => {
                    state.counts.dropped += 1;
                    let failures = match &track.proof {
                        Proof::Testing(test) => test.failures,
                        _ => 0,
                    };
                    let wait = TEST_AGAIN * 2u32.saturating_pow(failures.min(10));
                    track.proof = Proof::Testing(TestProgress {
                        next: now.since_boot + wait,
                        failures: failures.saturating_add(1),
                        ..TestProgress::default()
                    });
                }
                // Without a sample the rank uses the base-page memory.
                Some(JobKind::Sample) => {}
                _ => track.back_off.failed(now.since_boot),
            }
            None
        }
    }
}

fn promoted(state: &mut GuardState, seen: &ObservedTree, came: &PromotionResult, now: Now) {
    let Some(track) = state.tracks.get_mut(&seen.id) else {
        return;
    };
    let (at, all_got) = (now.since_boot, came.done == came.asked);
    state.counts.promotions += 1;
    state.counts.promoted += came.done;
    state.counts.grown += came.grown;
    state.counts.short += u64::from(!all_got);
    let moved = track.moved.get_or_insert_with(PromotedMemory::default);
    moved.at = at;
    moved.bytes += came.done;
    moved.grown += came.grown;
    // Memory that appeared on base pages meanwhile does not count as remaining, so the next scan finds it.
    moved.left = Some(track.closer.small - came.done);
    for memory in came
        .memory
        .iter()
        .filter(|memory| !memory.ranges.is_empty())
    {
        moved.add(memory);
    }
    track.moves += 1;
    match came.done.is_zero() {
        true => track.back_off.failed(at),
        false => track.back_off.worked(),
    }
    let wait = Duration::from_secs(30).max(track.back_off.until.saturating_sub(at));
    moved.again = (!all_got).then(|| at + wait);
    if came.fragmented {
        state.fragmented.failed(at);
    } else if !came.done.is_zero() {
        state.fragmented.worked();
    }
    if came.short {
        state.short_until = at + SHORT;
    }
}

/// Adds a session to a test. Once complete, stores the verdict of all tests and returns the follow-up work. Memory is demoted
/// only after a hold, because pairs of short intervals miss effects that need time.
fn tested(
    rule: &Rule,
    state: &mut GuardState,
    seen: &ObservedTree,
    session: &TestSessionResult,
    host: &HostSnapshot,
    now: Now,
) -> Option<Decision> {
    let track = state.tracks.get_mut(&seen.id)?;
    let prove = rule.prove?;
    let mut test = match std::mem::take(&mut track.proof) {
        Proof::Testing(test) => test,
        _ => TestProgress::default(),
    };
    test.logs.extend_from_slice(&session.logs);
    test.failures = 0;
    test.unconfirmed = None;
    if test.logs.len() < prove.pairs {
        let sittings = prove.pairs.div_ceil(PAIRS_AT_A_TIME).max(1);
        let gap = prove.over / u32::try_from(sittings).unwrap_or(u32::MAX);
        test.next = now.since_boot + gap;
        track.proof = Proof::Testing(test);
        return None;
    }
    let group = group_of(seen);
    let tests = CompletedTest {
        logs: &test.logs,
        better: session.better,
        metric: &session.metric,
        at: now.wall,
    };
    let known = (state.remembered.iter()).find(|r| r.group == group && r.name == seen.name);
    let holds = known.is_some_and(|r| r.holds_for(&group, &seen.name, &track.closer, &host.kernel));
    let (mut evidence, before) = known.map_or((Evidence::default(), None), |known| {
        known.so_far(&session.metric, holds, now.wall)
    });
    let (mut proven, mut reverts) = evidence.add(&tests, before, rule.keep)?;
    if reverts && !prove.hold.is_zero() {
        match &session.holds {
            Some(holds) => reverts = proven.confirm(holds),
            None if test.holds < MOST_HOLDS => {
                let wait = match test.holds {
                    0 => Duration::ZERO,
                    _ => TEST_AGAIN,
                };
                test.next = now.since_boot + wait;
                test.holds += 1;
                test.unconfirmed = Some(proven);
                track.proof = Proof::Testing(test);
                return None;
            }
            None => {}
        }
    }
    evidence.reverts = evidence.reverts.saturating_add(u32::from(reverts));
    state.counts.add(proven.verdict);
    track.proof = Proof::Proven(proven.clone());
    let remembered = RememberedVerdict {
        group,
        name: seen.name.clone(),
        file: track.closer.file,
        held: track.closer.held(),
        kernel: host.kernel.clone(),
        proven,
        reverted: reverts,
        evidence,
    };
    let decision = reverts.then(|| demotion(rule, track, seen));
    remember(state, remembered);
    decision
}

fn demotion(rule: &Rule, track: &mut TreeRecord, seen: &ObservedTree) -> Decision {
    track.job = Some(JobKind::Demote);
    let moved = track.moved.clone().unwrap_or_default();
    let job = Job::Demote {
        pace: rule.limits.pace,
        memory: moved.memory,
    };
    let why = format!("test result: {}", proof_in_words(&track.proof));
    Decision::new(seen, rule, job, why)
}

/// Keeps one entry per program, newest last, and drops the oldest.
fn remember(state: &mut GuardState, new: RememberedVerdict) {
    let all = &mut state.remembered;
    all.retain(|old| (&old.group, &old.name) != (&new.group, &new.name));
    all.push(new);
    let over = all.len().saturating_sub(REMEMBERED);
    all.drain(..over);
}

#[cfg(test)]
mod tests;
