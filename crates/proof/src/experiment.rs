//! The engine: promotes and demotes a [`Subject`] between its arms, samples a [`Metric`], and stops in time.
//!
//! One sample is one interval on one arm. The memory is promoted or demoted before it. Then nothing is
//! counted for a settling time and half an interval more, until effects of the pages before (caches, queues)
//! are gone. The coverage is read at both ends. If khugepaged collapsed base pages meanwhile, or huge pages
//! were split, the whole pair is discarded and repeated. The same holds if the metric is unreadable or a
//! counter falls, up to a limit fixed in advance ([`BadReadings::most`]).
//!
//! The memory is restored in any case (Ctrl-C, a failing metric, a satisfied rule, a panic), unless the
//! caller wants to keep what helped.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use hugeleaf_host::{PageUsage, TargetError};
use hugeleaf_sys::Kernel;
use hugeleaf_units::{Bytes, Failure};

use crate::arm_order::{BLOCK, PermutedBlocks};
use crate::effective_sample::{self, ArmMeasurement, PairAnalysis, PairLogRatios};
use crate::long_holds::{self, HoldResult};
use crate::metric::{self, MeasuredValue, Metric, MetricError, Reading, ReadingKind};
use crate::prove_result::{
    AssignedPair, BadReadings, BeforeAfterMemory, BucketedQuantile, DiscardCause,
    DiscardedInterval, Effect, Equivalence, ExperimentDesign, ExperimentEnd, HostFingerprint,
    IndependenceChecks, IntentionToTreat, Knob, PageUsageStages, Pair, ProveExperimentInfo,
    ProveResult, ProveResultSettings,
};
use crate::result_format::{self, ArmInfo, Chart, Quantity, ResultRow};
use crate::stats::{self, LogRatioInterval, Verdict};
use crate::stopping_rule::{MIN_PAIRS, StoppingRule};
use crate::subject::{Arm, SelectedMemory, SideMetrics, Subject, SubjectError};

/// Number of gauge readings in an interval; even, so that it has two halves.
const GAUGE_READINGS: u32 = 4;
/// Maximum relative difference of the base arm's resident memory without a caveat.
const RESIDENT_STRAY: f64 = 0.01;
/// Maximum number of pairs discarded in a row before the experiment is given up.
const MOST_REJECTED: usize = 5;
/// Minimum difference in coverage between the arms; with less there is nothing to compare.
pub(crate) const LEAST_SEPARATION: f64 = 0.01;
/// Maximum deviation of coverage within an interval, as a part of the arms' difference.
const STRAY: f64 = 0.1;

/// Interval of the scans for memory that is mapped again, and their maximum number.
const MAPPING_LOOK: Duration = Duration::from_millis(250);
const MOST_MAPPING_LOOKS: u32 = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FinalPages {
    #[default]
    AsFound,
    /// Leave the memory on huge pages if the verdict is `faster`.
    IfFaster,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentSettings {
    /// Length of an interval; a metric may need a longer one.
    pub interval: Duration,
    /// Time discarded after every change, in addition to half an interval; a metric may need a longer one.
    pub settle: Duration,
    /// Time for which each arm is held after the pairs, to detect slow effects ([`crate::long_holds`]). Zero skips the hold.
    pub hold: Duration,
    /// The interval of earlier pairs. With it no pairs are measured: both arms are held, and compared with it.
    pub against: Option<LogRatioInterval>,
    /// No pair begins after this time, once there are [`MIN_PAIRS`].
    pub limit: Duration,
    /// Time after which it ends as if interrupted, with any number of pairs.
    pub at_most: Option<Duration>,
    pub rule: StoppingRule,
    pub equal: f64,
    pub keep: FinalPages,
    pub seed: u64,
    /// True to measure before and after even if the memory could be demoted.
    pub before_after: bool,
    /// True for an A/A: change the pages there and back before every interval, and measure both arms on the
    /// initial pages. The result is the noise of the method.
    pub same_pages: bool,
    /// True to continue measuring if memory was not on the intended pages, and to report the effect over all
    /// pairs as assigned as well.
    pub intention_to_treat: bool,
}

impl Default for ExperimentSettings {
    /// Two seconds, three minutes, ±3 %, 2 % equal, 95 %, arms not held.
    fn default() -> ExperimentSettings {
        ExperimentSettings {
            interval: Duration::from_secs(2),
            settle: Duration::from_millis(500),
            hold: Duration::ZERO,
            against: None,
            limit: Duration::from_secs(180),
            at_most: None,
            rule: StoppingRule::default(),
            equal: 1.02f64.ln(),
            keep: FinalPages::AsFound,
            seed: Rng::new().u64(..),
            before_after: false,
            same_pages: false,
            intention_to_treat: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Provenance {
    pub host: HostFingerprint,
    pub knobs: Vec<Knob>,
    pub command: Vec<String>,
    /// Start time (RFC 3339, UTC).
    pub started: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ExperimentEvent<'a> {
    Note(&'a str),
    Moving(Arm),
    Measuring {
        arm: Arm,
        pairs: usize,
        elapsed: Duration,
        limit: Duration,
    },
    Paired {
        pairs: usize,
        interval: Option<LogRatioInterval>,
        elapsed: Duration,
    },
    Rejected(&'a DiscardedInterval),
    Holding {
        arm: Arm,
        time: Duration,
    },
    Restoring,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProveError {
    #[error("{0}")]
    Metric(#[from] MetricError),
    #[error("{0}")]
    Subject(#[from] SubjectError),
    #[error(
        "coverage is {:.1} % on huge pages and {:.1} % on base pages: nothing to compare; {left}",
        large * 100.0, base * 100.0
    )]
    NoDifference {
        base: f64,
        large: f64,
        /// The final state of the memory, and the reason.
        left: String,
    },
    #[error(
        "demotion had no effect: coverage {:.1} % before, {:.1} % after promotion, {:.1} % after \
         demotion",
        before * 100.0, large * 100.0, after * 100.0
    )]
    OneWay { before: f64, large: f64, after: f64 },
    #[error("{count} pairs in a row were discarded: {reason}")]
    Unsteady { count: usize, reason: String },
    #[error(
        "{error} ({count} bad readings in {pairs} pairs; at most {} are allowed)",
        BadReadings::most(*pairs)
    )]
    BadReadings {
        /// The first error of the last series.
        error: MetricError,
        count: usize,
        pairs: usize,
    },
    #[error(
        "the memory could not be restored: {error}{}",
        after.as_ref().map_or(String::new(), |e| format!(" (after: {e})"))
    )]
    NotRestored {
        error: SubjectError,
        after: Option<Box<ProveError>>,
    },
}

impl ProveError {
    /// Adds the final state of the memory, if the error reports it.
    fn and_left(mut self, text: String) -> ProveError {
        if let ProveError::NoDifference { left, .. } = &mut self {
            *left = text;
        }
        self
    }

    pub fn next(&self) -> String {
        match self {
            ProveError::Metric(e) | ProveError::BadReadings { error: e, .. } => e.next(),
            ProveError::Subject(e) => e.next(),
            ProveError::NoDifference { .. } => {
                "hugeleaf why TARGET    # shows why its memory cannot be promoted".into()
            }
            ProveError::OneWay { .. } => "restart the server, which returns it to base pages, and \
                 measure before and after: hugeleaf prove --before-after TARGET --metric …"
                .into(),
            ProveError::Unsteady { .. } => {
                "run it while the process's size is steady; pause khugepaged \
                 meanwhile, and restore the old value afterwards: echo 600000 > \
                 /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs"
                    .into()
            }
            ProveError::NotRestored { .. } => {
                "hugeleaf demote TARGET (or promote, if it was on huge pages)".into()
            }
        }
    }
}

impl From<ProveError> for Failure {
    fn from(error: ProveError) -> Failure {
        match error {
            ProveError::Subject(SubjectError::Change(e)) => e.into(),
            ProveError::Subject(SubjectError::Process(e)) => TargetError::from(e).into(),
            error => Failure::missing(error.to_string(), error.next()),
        }
    }
}

/// Chooses the design for the prepared memory, for an experiment and for its announcement.
///
/// # Errors
/// [`SubjectError::Failed`]: this memory cannot be measured in the requested way.
pub fn design(
    prepared: &SelectedMemory,
    settings: &ExperimentSettings,
) -> Result<ExperimentDesign, ProveError> {
    let refused = |what: String, next: &str| {
        Err(ProveError::Subject(SubjectError::Failed(Failure::missing(
            what, next,
        ))))
    };
    match (&prepared.one_way, settings.before_after) {
        (Some(why), _) if settings.same_pages => refused(
            format!("an A/A test promotes and demotes: {why}"),
            "use hugeleaf prove --before-after, or a host that can split such memory",
        ),
        (_, true) if prepared.began == Arm::Large => refused(
            format!(
                "{} are already on huge pages: there is no state before to measure",
                prepared.bytes
            ),
            "run it without --before-after    # demotes the memory and promotes it again",
        ),
        (None, false) => Ok(ExperimentDesign::RandomPairs),
        _ => Ok(ExperimentDesign::BeforeAfter),
    }
}

/// Runs an experiment. `stop` (Ctrl-C) ends it early with the data so far; `progress` receives its events.
/// The subject is restored, unless `settings.keep` is set otherwise.
///
/// # Errors
/// [`ProveError`]; the subject is restored first if still possible.
pub fn run(
    subject: &mut dyn Subject,
    metric: &mut Metric,
    kernel: &Kernel,
    settings: &ExperimentSettings,
    circumstances: &Provenance,
    progress: &mut dyn FnMut(ExperimentEvent<'_>),
    stop: &AtomicBool,
) -> Result<ProveResult, ProveError> {
    let prepared = subject.prepare()?;
    let design = design(&prepared, settings)?;
    let interval = settings.interval.max(metric.least_interval);
    let mut engine = ExperimentEngine {
        began: kernel.now(),
        interval,
        settle: settings.settle.max(metric.lag) + interval / 2,
        name: metric.name.clone(),
        subject,
        metric,
        kernel,
        settings,
        progress,
        stop,
        at: None,
        is_fresh: false,
        same: settings.same_pages.then_some(prepared.began),
        expected: [0.0, 0.0],
        full: 0.0,
        taken: [Vec::new(), Vec::new()],
        made: Vec::new(),
        rejected: Vec::new(),
        bad: BadReadings::default(),
        bad_in_a_row: None,
        holds: None,
        page_sizes: PageUsageStages::default(),
        touched: false,
    };
    // A panic must not leave the memory changed.
    let done = catch_unwind(AssertUnwindSafe(|| {
        let measured = engine.measure(&prepared, design);
        let judged = match measured {
            Ok(_) => engine.judge(design),
            Err(_) => FinalAnalysis::default(),
        };
        (measured, judged)
    }));
    let verdict = done.as_ref().map_or(Verdict::Unclear, |d| d.1.verdict);
    let left = engine.apply_final_arm(&prepared, verdict);
    let (measured, judged) = done.unwrap_or_else(|panic| resume_unwind(panic));
    let (ending, left_on) = match (measured, left) {
        (Ok(ending), Ok(left_on)) => (ending, left_on),
        (Err(error), Ok(left_on)) => {
            let left = engine.left_in_words(&prepared, left_on);
            return Err(error.and_left(left));
        }
        (measured, Err(error)) => {
            let after = measured.err().map(Box::new);
            return Err(ProveError::NotRestored { error, after });
        }
    };
    Ok(engine.result(&prepared, design, ending, judged, left_on, circumstances))
}

#[derive(Debug, Clone, Copy)]
struct ArmSample {
    part: ArmMeasurement,
    at: Duration,
    coverage: [f64; 2],
    side_metrics: [SideMetrics; 2],
    elapsed: Duration,
}

#[derive(Debug, Clone, Copy)]
struct MeasuredPair {
    pair: Pair,
    logs: PairLogRatios,
    /// True if both of its intervals were on the intended pages.
    on_intended_pages: bool,
}

impl MeasuredPair {
    /// Creates a pair; `None` if a value is not positive, which does not occur for samples.
    fn new(
        base: &ArmMeasurement,
        large: &ArmMeasurement,
        first: Arm,
        at: Duration,
    ) -> Option<MeasuredPair> {
        Some(MeasuredPair {
            pair: Pair {
                base: base.value,
                large: large.value,
                ratio: large.value / base.value,
                first,
                at_seconds: at.as_secs_f64(),
            },
            logs: effective_sample::pair(base, large)?,
            on_intended_pages: true,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
struct FinalAnalysis {
    interval: Option<LogRatioInterval>,
    verdict: Verdict,
    weighed: Option<PairAnalysis>,
    buckets: Option<BucketedQuantile>,
}

impl FinalAnalysis {
    /// True if both arms are in one bucket, so that no claim is possible.
    fn is_refused(&self) -> bool {
        self.buckets.as_ref().is_some_and(|b| b.shared.is_some())
    }
}

struct ExperimentEngine<'a> {
    began: Duration,
    interval: Duration,
    settle: Duration,
    name: String,
    subject: &'a mut dyn Subject,
    metric: &'a mut Metric,
    kernel: &'a Kernel,
    settings: &'a ExperimentSettings,
    progress: &'a mut dyn FnMut(ExperimentEvent<'_>),
    stop: &'a AtomicBool,
    /// The current arm of the memory; `None` before the first change and after a rejection.
    at: Option<Arm>,
    /// True if the pages changed and nothing was measured since.
    is_fresh: bool,
    /// For an A/A: the pages on which both arms are measured.
    same: Option<Arm>,
    /// Coverage after the last change to each arm, base first.
    expected: [f64; 2],
    /// The initial difference in coverage between the arms.
    full: f64,
    taken: [Vec<ArmSample>; 2],
    made: Vec<MeasuredPair>,
    rejected: Vec<DiscardedInterval>,
    bad: BadReadings,
    /// The first bad reading since the last good one.
    bad_in_a_row: Option<MetricError>,
    /// Result of holding both arms, if requested and not interrupted.
    holds: Option<HoldResult>,
    page_sizes: PageUsageStages,
    touched: bool,
}

enum SampleOutcome {
    Taken(Box<ArmSample>),
    /// The memory was not on the intended pages. The sample is there if all pairs count as assigned.
    WrongPages(Option<Box<ArmSample>>),
    Rejected,
    Interrupted,
}

struct MeteredInterval {
    measured: MeasuredValue,
    halves: Option<[f64; 2]>,
    from: Duration,
    elapsed: Duration,
}

impl ExperimentEngine<'_> {
    fn elapsed(&self) -> Duration {
        self.kernel.now().saturating_sub(self.began)
    }

    fn is_stopped(&self) -> bool {
        let is_over = |most| self.elapsed() >= most;
        self.stop.load(Ordering::Relaxed) || self.settings.at_most.is_some_and(is_over)
    }

    /// Waits; returns `false` if stopped or out of time.
    fn wait(&self, time: Duration) -> bool {
        let most = self.settings.at_most;
        let left = most.map_or(time, |most| most.saturating_sub(self.elapsed()).min(time));
        self.kernel.wait(left, self.stop) && left == time
    }

    /// Waits at most ten seconds until processes have mapped nearly all memory again that a change unmapped;
    /// returns `false` if stopped.
    fn wait_for_mapping(&mut self) -> bool {
        let Some(mut mapped) = self.subject.mapped() else {
            return true;
        };
        for _ in 0..MOST_MAPPING_LOOKS {
            if !self.wait(MAPPING_LOOK) {
                return false;
            }
            let now = self.subject.mapped().unwrap_or_default();
            if now <= mapped + Bytes(mapped.get() / 200) {
                break;
            }
            mapped = now;
        }
        !self.is_stopped()
    }

    fn measure(
        &mut self,
        prepared: &SelectedMemory,
        design: ExperimentDesign,
    ) -> Result<ExperimentEnd, ProveError> {
        for note in &prepared.notes {
            (self.progress)(ExperimentEvent::Note(note));
        }
        // Read the metric before any change, because most failures show here.
        match self.metric.read(self.stop) {
            Err(_) if self.is_stopped() => return Ok(ExperimentEnd::Interrupted),
            read => read?,
        };
        self.page_sizes.before = self.subject.page_sizes()?;
        match design {
            ExperimentDesign::RandomPairs => {
                let ending = if self.settings.against.is_none() {
                    self.random_pairs(prepared)?
                } else if self.calibrate(prepared)? {
                    ExperimentEnd::Pairs
                } else {
                    ExperimentEnd::Interrupted
                };
                if ending.allows_hold() {
                    self.holds = self.hold()?;
                }
                Ok(ending)
            }
            ExperimentDesign::BeforeAfter => self.before_after(),
        }
    }

    /// Changes the memory to an arm and lets it settle; returns `false` if stopped.
    fn go_to(&mut self, arm: Arm) -> Result<bool, ProveError> {
        if self.at == Some(arm) {
            return Ok(!self.is_stopped());
        }
        (self.progress)(ExperimentEvent::Moving(arm));
        self.touched = true;
        self.at = None;
        if let Some(began) = self.same {
            // Both arms are on the initial pages, after the same two changes.
            self.subject.apply_arm(began.other(), self.stop)?;
            self.subject.apply_arm(began, self.stop)?;
        } else {
            self.subject.apply_arm(arm, self.stop)?;
        }
        if self.is_stopped() {
            return Ok(false);
        }
        self.at = Some(arm);
        self.is_fresh = true;
        let settled = self.wait(self.settle) && self.wait_for_mapping();
        self.expected[arm as usize] = self.subject.coverage()?;
        Ok(settled)
    }

    fn separation(&self) -> f64 {
        self.expected[1] - self.expected[0]
    }

    /// Changes to both arms once and checks that they differ; returns `false` if stopped.
    fn calibrate(&mut self, prepared: &SelectedMemory) -> Result<bool, ProveError> {
        let found = self.subject.coverage()?;
        for arm in [prepared.began.other(), prepared.began] {
            if !self.go_to(arm)? {
                return Ok(false);
            }
            let sizes = self.subject.page_sizes()?;
            match arm {
                Arm::Base => self.page_sizes.base = sizes,
                Arm::Large => self.page_sizes.large = sizes,
            }
        }
        if self.same.is_some() {
            return Ok(true);
        }
        let [base, large] = self.expected;
        let moved = large - found;
        if prepared.began == Arm::Base && moved >= LEAST_SEPARATION && base > found + moved / 2.0 {
            return Err(ProveError::OneWay {
                before: found,
                large,
                after: base,
            });
        }
        if self.separation() < LEAST_SEPARATION {
            return Err(no_difference(base, large));
        }
        self.full = self.separation();
        Ok(true)
    }

    fn random_pairs(&mut self, prepared: &SelectedMemory) -> Result<ExperimentEnd, ProveError> {
        if !self.calibrate(prepared)? {
            return Ok(ExperimentEnd::Interrupted);
        }
        let rule = self.settings.rule;
        let mut orders = PermutedBlocks::new(self.settings.seed, rule.fixed_pairs);
        loop {
            let made = self.pairs_on_intended_pages().count();
            let is_over = self.elapsed() >= self.settings.limit;
            if is_over && made >= MIN_PAIRS && rule.fixed_pairs.is_none() {
                return Ok(ExperimentEnd::Time);
            }
            if !self.pair(orders.draw())? {
                return Ok(ExperimentEnd::Interrupted);
            }
            let logs: Vec<PairLogRatios> = self.pairs_on_intended_pages().map(|m| m.logs).collect();
            let interval = effective_sample::analyse(&rule, &logs).map(|w| w.interval);
            let event = ExperimentEvent::Paired {
                pairs: logs.len(),
                interval,
                elapsed: self.elapsed(),
            };
            (self.progress)(event);
            if rule.is_interim(logs.len()) && self.is_all_in_one_bucket() {
                return Ok(ExperimentEnd::OneBucket);
            }
            if rule.enough(logs.len(), interval.as_ref()) {
                return Ok(match rule.fixed_pairs {
                    Some(_) => ExperimentEnd::Pairs,
                    None => ExperimentEnd::Narrow,
                });
            }
        }
    }

    /// Holds both arms ([`long_holds::hold_both`]). `None` if no hold was requested, in an A/A, or if it was interrupted.
    fn hold(&mut self) -> Result<Option<HoldResult>, ProveError> {
        if self.settings.hold.is_zero() || self.same.is_some() {
            return Ok(None);
        }
        let pairs = self.settings.against.or_else(|| {
            let logs: Vec<PairLogRatios> = self.pairs_on_intended_pages().map(|m| m.logs).collect();
            self.judge_pairs(&logs).1
        });
        let Some(pairs) = pairs.filter(is_closed) else {
            return Ok(None);
        };
        let seconds = self.settings.hold.as_secs_f64();
        long_holds::hold_both(&pairs, seconds, |arm| self.hold_on(arm))
    }

    /// Samples one arm for the time of a hold. `None` if it was interrupted or its coverage deviates.
    fn hold_on(&mut self, arm: Arm) -> Result<Option<Vec<f64>>, ProveError> {
        if !self.go_to(arm)? {
            return Ok(None);
        }
        let time = self.settings.hold;
        (self.progress)(ExperimentEvent::Holding { arm, time });
        let from = self.elapsed();
        let mut samples = Vec::new();
        while self.elapsed().saturating_sub(from) < time {
            // A bad reading during a hold must not discard the finished pairs.
            let attempt = match self.sample(arm) {
                Err(ProveError::BadReadings { .. }) => return Ok(None),
                attempt => attempt?,
            };
            match attempt {
                SampleOutcome::Taken(sample) | SampleOutcome::WrongPages(Some(sample)) => {
                    samples.push(sample.part.value)
                }
                SampleOutcome::Rejected => {}
                SampleOutcome::WrongPages(None) | SampleOutcome::Interrupted => return Ok(None),
            }
        }
        Ok(Some(samples))
    }

    fn pairs_on_intended_pages(&self) -> impl Iterator<Item = &MeasuredPair> {
        self.made.iter().filter(|m| m.on_intended_pages)
    }

    /// Returns the buckets of an arm's samples, without those that have none.
    fn buckets_of(&self, arm: Arm) -> Vec<[f64; 2]> {
        let samples = self.taken[arm as usize].iter();
        samples.filter_map(|s| s.part.bucket).collect()
    }

    fn is_all_in_one_bucket(&self) -> bool {
        let all = Arm::ALL.map(|arm| self.buckets_of(arm)).concat();
        all.first()
            .is_some_and(|first| all.iter().all(|b| b == first))
    }

    /// Makes one pair, repeated while it is discarded; returns `false` if stopped.
    fn pair(&mut self, first: Arm) -> Result<bool, ProveError> {
        let mut astray = 0;
        'again: loop {
            if astray >= MOST_REJECTED {
                return Err(self.unsteady(astray));
            }
            let at = self.elapsed();
            let mut samples = Vec::with_capacity(2);
            let mut as_asked = true;
            for arm in [first, first.other()] {
                if !self.go_to(arm)? {
                    return Ok(false);
                }
                match self.sample(arm)? {
                    SampleOutcome::Taken(sample) => samples.push((arm, sample)),
                    SampleOutcome::WrongPages(Some(sample)) => {
                        as_asked = false;
                        samples.push((arm, sample));
                    }
                    SampleOutcome::WrongPages(None) => {
                        astray += 1;
                        continue 'again;
                    }
                    SampleOutcome::Rejected => continue 'again,
                    SampleOutcome::Interrupted => return Ok(false),
                }
            }
            self.keep(first, at, &samples, as_asked);
            if as_asked {
                return Ok(true);
            }
            astray += 1;
        }
    }

    fn unsteady(&self, count: usize) -> ProveError {
        let mut latest = self.rejected.iter().rev();
        let pages = latest.find(|r| r.cause == DiscardCause::Pages);
        let reason = pages.map(|r| r.reason.clone()).unwrap_or_default();
        ProveError::Unsteady { count, reason }
    }

    /// Stores a pair; one that was not on the intended pages counts for the pairs as assigned only.
    fn keep(
        &mut self,
        first: Arm,
        at: Duration,
        samples: &[(Arm, Box<ArmSample>)],
        as_asked: bool,
    ) {
        let part = |arm| {
            let sample = samples.iter().find(|s| s.0 == arm);
            sample.map_or(ArmMeasurement::default(), |s| s.1.part)
        };
        let Some(made) = MeasuredPair::new(&part(Arm::Base), &part(Arm::Large), first, at) else {
            return;
        };
        if as_asked {
            for (arm, sample) in samples {
                self.taken[*arm as usize].push(**sample);
            }
        }
        self.made.push(MeasuredPair {
            on_intended_pages: as_asked,
            ..made
        });
    }

    /// Takes all base samples, then all huge-page samples: the requested number, or as many as fit the time.
    fn before_after(&mut self) -> Result<ExperimentEnd, ProveError> {
        let fixed = self.settings.rule.fixed_pairs;
        let half = self.settings.limit / 2;
        self.at = Some(Arm::Base);
        self.expected[0] = self.subject.coverage()?;
        self.page_sizes.base = self.page_sizes.before.clone();
        for arm in Arm::ALL {
            if !self.go_to(arm)? {
                return Ok(ExperimentEnd::Interrupted);
            }
            if arm == Arm::Large {
                self.page_sizes.large = self.subject.page_sizes()?;
                let [base, large] = self.expected;
                if self.separation() < LEAST_SEPARATION {
                    return Err(no_difference(base, large));
                }
            }
            let begun = self.kernel.now();
            let mut astray = 0;
            loop {
                let count = self.taken[arm as usize].len();
                let time_over = self.kernel.now().saturating_sub(begun) >= half;
                if fixed.map_or(time_over && count >= MIN_PAIRS, |n| count >= n) {
                    break;
                }
                match self.sample(arm)? {
                    SampleOutcome::Taken(sample) => self.taken[arm as usize].push(*sample),
                    SampleOutcome::Interrupted => return Ok(ExperimentEnd::Interrupted),
                    SampleOutcome::Rejected => {}
                    SampleOutcome::WrongPages(_) => {
                        astray += 1;
                        if astray >= MOST_REJECTED {
                            return Err(self.unsteady(astray));
                        }
                    }
                }
            }
        }
        // Pairs for display; the interval does not use them.
        let made = self.taken[0].iter().zip(&self.taken[1]);
        let made = made.filter_map(|(b, l)| MeasuredPair::new(&b.part, &l.part, Arm::Base, b.at));
        self.made = made.collect();
        Ok(match fixed {
            Some(_) => ExperimentEnd::Pairs,
            None => ExperimentEnd::Time,
        })
    }

    fn sample(&mut self, arm: Arm) -> Result<SampleOutcome, ProveError> {
        let event = ExperimentEvent::Measuring {
            arm,
            pairs: self.pairs_on_intended_pages().count(),
            elapsed: self.elapsed(),
            limit: self.settings.limit,
        };
        (self.progress)(event);
        let goes_on = self.settings.intention_to_treat;
        let start = self.subject.coverage()?;
        let mut astray = (self.arms_too_close(arm))
            .or_else(|| self.coverage_deviation(arm, start, "at the start"));
        if let (Some(reason), false) = (&astray, goes_on) {
            self.reject(arm, DiscardCause::Pages, reason.clone());
            return Ok(SampleOutcome::WrongPages(None));
        }
        let mut before = self.subject.side_metrics();
        before.resident = self.subject.resident().or(before.resident);
        let metered = match self.meter() {
            Ok(Some(metered)) => metered,
            Ok(None) => return Ok(SampleOutcome::Interrupted),
            Err(e) => return self.bad_reading(arm, e),
        };
        let mut after = self.subject.side_metrics();
        let end = self.subject.coverage()?;
        after.resident = self.subject.resident().or(after.resident);
        let followed_a_move = std::mem::take(&mut self.is_fresh);
        self.bad_in_a_row = None;
        let sample = Box::new(ArmSample {
            part: ArmMeasurement {
                value: metered.measured.value,
                halves: metered.halves,
                bucket: metered.measured.bucket,
                followed_a_move,
            },
            at: (metered.from + metered.elapsed / 2).saturating_sub(self.began),
            coverage: [start, end],
            side_metrics: [before, after],
            elapsed: metered.elapsed,
        });
        astray = astray.or_else(|| self.coverage_deviation(arm, end, "at the end"));
        if let Some(reason) = astray {
            self.reject(arm, DiscardCause::Pages, reason);
            return Ok(SampleOutcome::WrongPages(goes_on.then_some(sample)));
        }
        Ok(SampleOutcome::Taken(sample))
    }

    /// Reads the metric at both ends of an interval and between; `None` if stopped.
    fn meter(&mut self) -> Result<Option<MeteredInterval>, MetricError> {
        let steps = match self.metric.kind {
            ReadingKind::Gauge => GAUGE_READINGS,
            // The middle reading detects carry-over from the pages before.
            ReadingKind::Counter | ReadingKind::Ratio => 2,
            ReadingKind::Quantile => 1,
        };
        let mut read = vec![self.read()?];
        for _ in 0..steps {
            if !self.wait(self.interval / steps) {
                return Ok(None);
            }
            read.push(self.read()?);
        }
        let sample = |readings: &[(Reading, Duration)]| -> Result<MeasuredValue, MetricError> {
            let [(before, from), .., (after, to)] = readings else {
                return Err(MetricError::StoodStill {
                    metric: self.name.clone(),
                    seconds: 0.0,
                });
            };
            let gauges: Vec<f64> = (readings[1..].iter())
                .filter_map(|(reading, _)| match reading {
                    Reading::Gauge(value) => Some(*value),
                    _ => None,
                })
                .collect();
            let after = match gauges.is_empty() {
                true => after.clone(),
                false => Reading::Gauge(stats::mean(&gauges)),
            };
            metric::measured(&self.name, before, &after, to.saturating_sub(*from))
        };
        let middle = read.len() / 2;
        let halves = match steps {
            1 => None,
            _ => {
                let halves = [sample(&read[..=middle]), sample(&read[middle..])];
                // A counter that fell in between may be above its start again.
                if let Some(fell) = halves.iter().find_map(|half| match half {
                    Err(e @ MetricError::Fell { .. }) => Some(e.clone()),
                    _ => None,
                }) {
                    return Err(fell);
                }
                let [first, second] = halves.map(|half| half.ok().map(|half| half.value));
                first.zip(second).map(|(first, second)| [first, second])
            }
        };
        let (from, to) = (read[0].1, read[read.len() - 1].1);
        Ok(Some(MeteredInterval {
            measured: sample(&read)?,
            halves,
            from,
            elapsed: to.saturating_sub(from),
        }))
    }

    /// Handles a reading that failed or gives no sample. Its pair is repeated, unless there were too many or
    /// the target has exited.
    fn bad_reading(&mut self, arm: Arm, error: MetricError) -> Result<SampleOutcome, ProveError> {
        if self.is_stopped() {
            return Ok(SampleOutcome::Interrupted);
        }
        self.subject.coverage()?;
        match arm {
            Arm::Base => self.bad.base += 1,
            Arm::Large => self.bad.large += 1,
        }
        self.reject(arm, DiscardCause::Reading, error.to_string());
        let first = self.bad_in_a_row.get_or_insert(error).clone();
        let (count, pairs) = (self.bad.count(), self.pairs_on_intended_pages().count());
        if count > BadReadings::most(pairs) {
            return Err(ProveError::BadReadings {
                error: first,
                count,
                pairs,
            });
        }
        Ok(SampleOutcome::Rejected)
    }

    /// Reads the metric, and returns the middle of the time that the reading took.
    fn read(&mut self) -> Result<(Reading, Duration), MetricError> {
        let from = self.kernel.now();
        let reading = self.metric.read(self.stop)?;
        let to = self.kernel.now();
        Ok((reading, from + to.saturating_sub(from) / 2))
    }

    /// Returns a message if the arms are too similar after the last change.
    fn arms_too_close(&self, arm: Arm) -> Option<String> {
        let [base, large] = self.expected;
        let is_near = self.full > 0.0 && self.separation() < self.full / 2.0;
        if is_near && large < self.full / 2.0 {
            return Some(format!(
                "coverage is {:.1} % after promotion, {:.1} % before: the process freed parts of \
                 blocks, which are not filled again, or contiguous memory ran out",
                large * 100.0,
                self.full * 100.0
            ));
        }
        is_near.then(|| {
            format!(
                "the change to {} pages had no effect: coverage {:.1} % on base, {:.1} % on huge pages",
                arm.pages(),
                base * 100.0,
                large * 100.0
            )
        })
    }

    /// Returns a message if coverage deviates from that after the change to this arm.
    fn coverage_deviation(&self, arm: Arm, coverage: f64, when: &str) -> Option<String> {
        let expected = self.expected[arm as usize];
        let known = match self.separation() {
            s if s > 0.0 && self.same.is_none() => s,
            _ => 1.0,
        };
        let stray = (coverage - expected).abs();
        (stray > STRAY * known).then(|| {
            let by_whom = match arm {
                Arm::Base if coverage > expected => "promoted meanwhile, perhaps by khugepaged",
                Arm::Large if coverage < expected => "split meanwhile, or the process grew",
                _ => "its memory changed",
            };
            format!(
                "coverage on {} pages was {:.1} % {when}, {:.1} % expected: {by_whom}",
                arm.pages(),
                coverage * 100.0,
                expected * 100.0
            )
        })
    }

    fn reject(&mut self, arm: Arm, cause: DiscardCause, reason: String) {
        let rejected = DiscardedInterval {
            arm,
            at_seconds: self.elapsed().as_secs_f64(),
            reason,
            cause,
        };
        (self.progress)(ExperimentEvent::Rejected(&rejected));
        self.rejected.push(rejected);
        if cause == DiscardCause::Pages {
            // Change the pages again, whatever their state.
            self.at = None;
        }
    }

    fn judge(&self, design: ExperimentDesign) -> FinalAnalysis {
        let (weighed, interval) = match design {
            ExperimentDesign::RandomPairs => {
                let logs: Vec<PairLogRatios> =
                    self.pairs_on_intended_pages().map(|m| m.logs).collect();
                self.judge_pairs(&logs)
            }
            ExperimentDesign::BeforeAfter => (None, self.judge_before_after()),
        };
        let mut judged = FinalAnalysis {
            buckets: self.judge_buckets(weighed.as_ref()),
            interval: interval.filter(is_closed),
            weighed,
            ..FinalAnalysis::default()
        };
        if let (Some(interval), false) = (&judged.interval, judged.is_refused()) {
            judged.verdict =
                long_holds::verdict(self.verdict(interval), interval, self.holds.as_ref());
        }
        judged
    }

    fn judge_pairs(
        &self,
        logs: &[PairLogRatios],
    ) -> (Option<PairAnalysis>, Option<LogRatioInterval>) {
        let rule = &self.settings.rule;
        let weighed = effective_sample::analyse(rule, logs);
        let interval =
            weighed.map(|w| effective_sample::bounded(rule, logs, &w).unwrap_or(w.interval));
        (weighed, interval)
    }

    fn verdict(&self, interval: &LogRatioInterval) -> Verdict {
        stats::judge(interval, self.settings.equal, self.metric.better)
    }

    /// For quantiles, takes the widest of the intervals from interpolation and from either end of the
    /// buckets.
    fn judge_before_after(&self) -> Option<LogRatioInterval> {
        type ValueExtractor = fn(&ArmMeasurement) -> f64;
        let welch = |base: ValueExtractor, large: ValueExtractor| {
            let logs = |arm: usize, of: ValueExtractor| -> Vec<f64> {
                let samples = self.taken[arm].iter();
                samples.map(|s| of(&s.part).ln()).collect()
            };
            let confidence = self.settings.rule.confidence;
            stats::welch_interval(&logs(0, base), &logs(1, large), confidence)
        };
        let mut interval = welch(|p| p.value, |p| p.value)?;
        if self.metric.kind == ReadingKind::Quantile {
            let low: ValueExtractor = |p| p.bucket.map_or(p.value, |b| b[0].max(0.0));
            let high: ValueExtractor = |p| p.bucket.map_or(p.value, |b| b[1]);
            let end = |i: Option<LogRatioInterval>, end: fn(LogRatioInterval) -> f64, open: f64| {
                i.map(end).filter(|end| !end.is_nan()).unwrap_or(open)
            };
            let least = end(welch(high, low), |i| i.low, f64::NEG_INFINITY);
            let most = end(welch(low, high), |i| i.high, f64::INFINITY);
            interval.low = interval.low.min(least);
            interval.high = interval.high.max(most);
        }
        Some(interval)
    }

    fn judge_buckets(&self, weighed: Option<&PairAnalysis>) -> Option<BucketedQuantile> {
        if self.metric.kind != ReadingKind::Quantile {
            return None;
        }
        let closed = |edge: f64| edge.is_finite().then_some(edge);
        let shared = effective_sample::shared_bucket(
            &self.buckets_of(Arm::Base),
            &self.buckets_of(Arm::Large),
        );
        Some(BucketedQuantile {
            shared: shared.map(|edges| edges.map(closed)),
            interpolated: weighed.map(|w| w.interval.center.exp()),
            instead: self.metric.instead_of_quantile.clone(),
        })
    }

    /// Returns the effect over all pairs as assigned, if requested.
    fn as_assigned(
        &self,
        design: ExperimentDesign,
        judged: &FinalAnalysis,
    ) -> Option<IntentionToTreat> {
        if !self.settings.intention_to_treat || design != ExperimentDesign::RandomPairs {
            return None;
        }
        let logs: Vec<PairLogRatios> = self.made.iter().map(|m| m.logs).collect();
        let (_, interval) = self.judge_pairs(&logs);
        let interval = interval.filter(is_closed);
        let says = interval.filter(|_| !judged.is_refused());
        Some(IntentionToTreat {
            pairs: (self.made.iter())
                .map(|m| AssignedPair {
                    pair: m.pair,
                    as_asked: m.on_intended_pages,
                })
                .collect(),
            astray: self.made.iter().filter(|m| !m.on_intended_pages).count(),
            effect: interval.map(|i| Effect::from_interval(&i, self.settings.rule.confidence)),
            verdict: says.map_or(Verdict::Unclear, |i| self.verdict(&i)),
        })
    }

    /// Brings the memory to its final state, even after Ctrl-C.
    fn apply_final_arm(
        &mut self,
        prepared: &SelectedMemory,
        verdict: Verdict,
    ) -> Result<Option<Arm>, SubjectError> {
        let keep = self.settings.keep == FinalPages::IfFaster && verdict == Verdict::Faster;
        let one_way = prepared.one_way.is_some() && self.touched;
        let to = match keep || one_way {
            true => Arm::Large,
            false => prepared.began,
        };
        let can_move = keep || !one_way;
        let is_there = match self.same {
            Some(_) => self.at.is_some(),
            None => self.at == Some(to),
        };
        if self.touched && can_move && !is_there {
            // The progress callback may be what panicked.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                (self.progress)(ExperimentEvent::Restoring)
            }));
            if self.stop.load(Ordering::Relaxed) {
                self.subject.use_full_budget();
            }
            match self.subject.apply_arm(to, &AtomicBool::new(false)) {
                Ok(()) => {}
                // The memory is gone with the process, so there is nothing to restore.
                Err(SubjectError::Ended { .. }) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        self.page_sizes.after = self.subject.page_sizes().unwrap_or_default();
        Ok(Some(to))
    }

    /// Describes the state of the memory after [`ExperimentEngine::apply_final_arm`], by its page tables.
    fn left_in_words(&self, prepared: &SelectedMemory, left_on: Option<Arm>) -> String {
        let (before, after) = (&self.page_sizes.before, &self.page_sizes.after);
        let Some(left) = left_on.and_then(|_| BeforeAfterMemory::compare(before, after)) else {
            return "its processes have ended".to_owned();
        };
        if left.as_found {
            return format!(
                "its memory is as it was found, {} on huge pages",
                left.large_after_bytes
            );
        }
        let why = prepared.one_way.as_deref();
        format!(
            "its memory was left with {} on huge pages, {} before: {}",
            left.large_after_bytes,
            left.large_before_bytes,
            why.unwrap_or("restoring it had no effect")
        )
    }

    fn result(
        &self,
        prepared: &SelectedMemory,
        design: ExperimentDesign,
        ending: ExperimentEnd,
        judged: FinalAnalysis,
        left_on: Option<Arm>,
        circumstances: &Provenance,
    ) -> ProveResult {
        let rule = &self.settings.rule;
        ProveResult {
            schema: result_format::SCHEMA,
            experiment: ProveExperimentInfo {
                name: self.name.clone(),
                unit: self.metric.unit.clone(),
                better: self.metric.better,
                target: self.subject.name(),
                process: self.subject.process_name(),
                design,
                started: circumstances.started.clone(),
                duration_seconds: self.elapsed().as_secs_f64(),
                ending,
                began_on: prepared.began,
                left_on,
                moved_bytes: prepared.bytes,
                stalls: self.subject.stalls(),
            },
            arms: Arm::ALL.map(|arm| ArmInfo::named(arm.name())).into(),
            rows: self.rows(design),
            charts: vec![Chart::bars(&self.name, "The arms")],
            pairs: self.pairs_on_intended_pages().map(|m| m.pair).collect(),
            effect: judged
                .interval
                .map(|i| Effect::from_interval(&i, rule.confidence)),
            verdict: judged.verdict,
            equivalence: judged.interval.map(|i| self.equivalence(&i)),
            pairs_looked_at: judged.weighed.map(|w| IndependenceChecks {
                lag_one_correlation: w.correlation,
                stretched: w.stretched,
                carried_over: w.carry_over.map(f64::exp),
            }),
            holds: self.holds.clone(),
            intention_to_treat: self.as_assigned(design, &judged),
            left: left_on.and_then(|_| {
                BeforeAfterMemory::compare(&self.page_sizes.before, &self.page_sizes.after)
            }),
            bad_readings: self.bad,
            caveats: self.caveats(prepared, design, ending, &judged),
            buckets: judged.buckets,
            page_sizes: self.page_sizes.clone(),
            rejected: self.rejected.clone(),
            host: circumstances.host.clone(),
            settings: ProveResultSettings {
                interval_seconds: self.interval.as_secs_f64(),
                settle_seconds: self.settle.as_secs_f64(),
                until: rule.until.exp() - 1.0,
                for_seconds: self.settings.limit.as_secs_f64(),
                pairs: rule.fixed_pairs,
                equal: self.settings.equal.exp() - 1.0,
                seed: self.settings.seed,
                block_pairs: (design == ExperimentDesign::RandomPairs).then_some(BLOCK),
                same_pages: self.settings.same_pages,
                knobs: circumstances.knobs.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            command: circumstances.command.clone(),
        }
    }

    fn equivalence(&self, interval: &LogRatioInterval) -> Equivalence {
        let equal = self.settings.equal;
        Equivalence {
            margin: equal.exp() - 1.0,
            alpha: (1.0 - self.settings.rule.confidence) / 2.0,
            not_below: interval.low >= -equal,
            not_above: interval.high <= equal,
        }
    }

    /// Returns the samples of both arms, then the secondary quantities.
    fn rows(&self, design: ExperimentDesign) -> Vec<ResultRow> {
        let row =
            |arm: Arm, quantity, samples| ResultRow::new(arm.name(), Vec::new(), quantity, samples);
        let main = |arm| row(arm, self.quantity(), self.samples(arm, design));
        let also = |arm| {
            let all = self.secondary_quantities(arm).into_iter();
            all.filter_map(move |(quantity, value)| {
                Some(row(
                    arm,
                    quantity.counted(),
                    result_format::Sample::alone([value?]),
                ))
            })
        };
        Arm::ALL
            .into_iter()
            .map(main)
            .chain(Arm::ALL.into_iter().flat_map(also))
            .collect()
    }

    fn quantity(&self) -> Quantity {
        Quantity {
            better: self.metric.better,
            kind: match self.metric.kind {
                ReadingKind::Quantile => result_format::QuantityKind::InBuckets,
                ReadingKind::Counter | ReadingKind::Gauge | ReadingKind::Ratio => {
                    result_format::QuantityKind::Speed
                }
            },
            ..Quantity::rate(&self.name, &self.metric.unit).main()
        }
    }

    /// Returns the samples of an arm; the numbers of pairs are the rounds.
    fn samples(&self, arm: Arm, design: ExperimentDesign) -> Vec<result_format::Sample> {
        let closed = |edge: f64| edge.is_finite().then_some(edge);
        let sample = |(pair, sample): (usize, &ArmSample)| result_format::Sample {
            round: (design == ExperimentDesign::RandomPairs).then_some(pair),
            value: sample.part.value,
            at_seconds: Some(sample.at.as_secs_f64()),
            coverage: Some(sample.coverage),
            bucket: sample.part.bucket.map(|edges| edges.map(closed)),
        };
        let taken = self.taken[arm as usize].iter().enumerate();
        taken.map(sample).collect()
    }

    /// Returns secondary quantities of an arm: resident memory and page tables as means over the ends of
    /// intervals, busy CPUs, and the total of waits for compaction on this host.
    fn secondary_quantities(&self, arm: Arm) -> [(Quantity, Option<f64>); 5] {
        let samples = &self.taken[arm as usize];
        let mean = |of: fn(&SideMetrics) -> Option<Bytes>| {
            let all = samples.iter().flat_map(|s| &s.side_metrics);
            let all: Vec<f64> = all.filter_map(of).map(Bytes::as_f64).collect();
            (!all.is_empty()).then(|| stats::mean(&all).floor())
        };
        let cpus = |of: fn(&SideMetrics) -> Option<f64>| {
            let (mut busy, mut time) = (0.0, 0.0);
            for s in samples {
                busy += (of(&s.side_metrics[1])? - of(&s.side_metrics[0])?).max(0.0);
                time += s.elapsed.as_secs_f64();
            }
            (time > 0.0).then(|| busy / time)
        };
        let stalls = samples.iter().map(|s| {
            let [before, after] = s.side_metrics.map(|b| b.compaction_stalls);
            Some(after?.saturating_sub(before?))
        });
        let stalls = stalls.sum::<Option<u64>>().map(|stalls| stalls as f64);
        let amount = Quantity::amount;
        [
            (amount("resident", "bytes"), mean(|b| b.resident)),
            (amount("page tables", "bytes"), mean(|b| b.page_tables)),
            (amount("user CPUs", ""), cpus(|b| b.user_seconds)),
            (amount("system CPUs", ""), cpus(|b| b.system_seconds)),
            (amount("compaction stalls", ""), stalls),
        ]
    }

    fn caveats(
        &self,
        prepared: &SelectedMemory,
        design: ExperimentDesign,
        ending: ExperimentEnd,
        judged: &FinalAnalysis,
    ) -> Vec<String> {
        let mut caveats = Vec::new();
        match design {
            ExperimentDesign::RandomPairs => caveats.push(
                "The base arm is memory whose huge pages were split, so it is still contiguous. \
                 For direct I/O, and on CPUs that coalesce base pages in the TLB, the gain over \
                 memory that was never on huge pages can be larger."
                    .to_owned(),
            ),
            ExperimentDesign::BeforeAfter => {
                let why = match &prepared.one_way {
                    Some(why) => format!(" because {why}"),
                    None => String::new(),
                };
                caveats.push(format!(
                    "Measured before and after{why}. This design is weaker: other \
                     changes in between count as the effect."
                ));
                if self.settings.intention_to_treat {
                    caveats.push(
                        "A measurement before and after has no assigned pairs, so there is no \
                         figure of --intention-to-treat."
                            .to_owned(),
                    );
                }
                if self.touched {
                    caveats.push(
                        "The memory stays on huge pages until the server is restarted.".to_owned(),
                    );
                }
            }
        }
        if let Some(arm) = self.same {
            caveats.push(format!(
                "A/A: both arms were measured on {} pages, each after a promotion and a demotion. \
                 The result is the noise of the method, not an effect of page size.",
                arm.pages()
            ));
        }
        if ending == ExperimentEnd::Interrupted {
            caveats.push("Interrupted: the result covers only the time until then.".to_owned());
        }
        if self.interval > self.settings.interval {
            caveats.push(format!(
                "Intervals are {} s long, the shortest that this metric supports.",
                self.interval.as_secs_f64()
            ));
        }
        caveats.extend(self.rejection_caveats());
        caveats.extend(self.resident_caveat());
        caveats.extend(judged.weighed.iter().flat_map(|w| self.pair_caveats(w)));
        caveats.extend(
            self.holds
                .as_ref()
                .and_then(|holds| hold_caveat(holds, judged.verdict)),
        );
        caveats.extend(self.not_held_caveat(design, ending));
        caveats.extend(judged.buckets.as_ref().map(bucket_caveat));
        caveats.extend(prepared.notes.iter().cloned());
        caveats
    }

    /// Returns a caveat if no arm was held, so that only short intervals were compared.
    fn not_held_caveat(&self, design: ExperimentDesign, ending: ExperimentEnd) -> Option<String> {
        let could_be_held =
            design == ExperimentDesign::RandomPairs && self.same.is_none() && ending.allows_hold();
        (could_be_held && self.holds.is_none()).then(|| {
            format!(
                "Effects that need longer than an interval of {} s were not looked for, because \
                 the arms were not held.",
                self.interval.as_secs_f64()
            )
        })
    }

    fn rejection_caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        let pages = self
            .rejected
            .iter()
            .filter(|r| r.cause == DiscardCause::Pages);
        let pages = pages.count();
        if pages > 0 {
            caveats.push(format!(
                "{pages} interval(s) were discarded because page sizes changed meanwhile."
            ));
        }
        let BadReadings { base, large } = self.bad;
        let count = self.bad.count();
        if count > 0 {
            let made = self.pairs_on_intended_pages().count();
            caveats.push(format!(
                "{count} bad reading(s) of the metric were discarded and their pairs repeated \
                 ({base} on base pages, {large} on huge pages). The rule fixed beforehand \
                 allows {} in {made} pairs.",
                BadReadings::most(made)
            ));
        }
        if count > 1 && (base == 0 || large == 0) {
            let arm = if base == 0 { Arm::Large } else { Arm::Base };
            caveats.push(format!(
                "All bad readings were on {} pages, which may have caused them.",
                arm.pages()
            ));
        }
        caveats
    }

    /// Returns a caveat if the base arm holds less or more memory, so that the arms differ in more than page
    /// size.
    fn resident_caveat(&self) -> Option<String> {
        let sizes = &self.page_sizes;
        let base = PageUsage::total(&sizes.base);
        // For equal differences the last is named.
        let other = [("on huge pages", &sizes.large), ("before", &sizes.before)];
        let (when, other) = (other.into_iter())
            .filter(|(_, table)| !table.is_empty() && !sizes.base.is_empty())
            .map(|(when, table)| (when, PageUsage::total(table)))
            .max_by_key(|(_, bytes)| bytes.get().abs_diff(base.get()))?;
        let stray = (other.max(base) - other.min(base))
            .share_of(other)
            .unwrap_or(0.0);
        (stray > RESIDENT_STRAY).then(|| {
            format!(
                "The base arm has {} resident, compared with {} {when}: the arms differ in more \
                 than page size. Splitting a huge page frees its zero pages.",
                base, other
            )
        })
    }

    fn pair_caveats(&self, weighed: &PairAnalysis) -> Vec<String> {
        let mut caveats = Vec::new();
        if weighed.stretched > 1.0 {
            caveats.push(format!(
                "Consecutive pairs are correlated (lag-1 correlation {:.2}), so the interval was \
                 widened by ×{:.2}.",
                weighed.correlation, weighed.stretched
            ));
        }
        if let Some(carried) = weighed.carry_over {
            caveats.push(format!(
                "The second halves of measurements are ×{:.2} further towards their arm than the \
                 first: the previous page size still has an effect. The estimate uses the second \
                 halves, and its interval covers whole measurements too. A --settle longer than \
                 {} s avoids this.",
                carried.exp(),
                self.settings.settle.max(self.metric.lag).as_secs_f64()
            ));
        }
        caveats
    }
}

fn no_difference(base: f64, large: f64) -> ProveError {
    ProveError::NoDifference {
        base,
        large,
        left: String::new(),
    }
}

/// True if the interval is bounded by a bucket; an unbounded one allows no statement.
fn is_closed(interval: &LogRatioInterval) -> bool {
    interval.center.is_finite() && interval.high.is_finite()
}

fn hold_caveat(holds: &HoldResult, verdict: Verdict) -> Option<String> {
    let late = holds.late_ratio()?;
    let consequence = match verdict {
        Verdict::Faster | Verdict::Slower => {
            "the effect changes with time, and the interval covers only its beginning"
        }
        Verdict::Same | Verdict::Unclear => {
            "the effect needs longer than a measurement, so no claim is made"
        }
    };
    Some(format!(
        "Held for {} s on each page size, the ratio was ×{late:.2}, outside the interval of the pairs: {consequence}.",
        holds.seconds
    ))
}

fn bucket_caveat(buckets: &BucketedQuantile) -> String {
    let instead = match &buckets.instead {
        Some(metric) => format!("the mean of the same observations (--metric '{metric}')"),
        None => "a mean".to_owned(),
    };
    let edge = |edge: Option<f64>, open: &str| edge.map_or(open.to_owned(), |e| e.to_string());
    match buckets.shared {
        Some([low, high]) => format!(
            "The quantiles of both arms are in one bucket, from {} to {}. The histogram does not \
             tell their place in it, so no claim is made. Measure {instead}, or give the \
             histogram finer buckets there.",
            edge(low, "below all edges"),
            edge(high, "no upper edge")
        ),
        None => format!(
            "A histogram gives the bucket of a quantile, not its place in it, so the interval is \
             as wide as the buckets. {}, or finer buckets, would be more precise.",
            instead[..1].to_uppercase() + &instead[1..]
        ),
    }
}
