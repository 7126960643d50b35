//! The engine: moves a [`Subject`] between its arms, samples a [`Metric`], and stops in time.
//!
//! One sample is one interval on one arm. Before it the memory is moved, and for a settling time
//! nothing is counted. At both ends of it the coverage is read: where khugepaged collapsed base
//! pages behind our back, or large ones were split, the whole pair is thrown away and made again.
//!
//! Whatever happens (Ctrl-C, a metric that fails, a rule that has seen enough), the memory is put
//! back as it was found, unless the caller wants to keep what helped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use hugeleaf_sys::Kernel;
use hugeleaf_units::Bytes;

use crate::metric::{self, Kind, Metric, MetricError, Reading};
use crate::result::{
    ArmSamples, BesideArm, Design, Effect, Ending, Experiment, HostFingerprint, Knob, PageSizes,
    Pair, Rejected, ResultFile, SettingsInForce,
};
use crate::rule::{MIN_PAIRS, Rule};
use crate::stats::{self, LogInterval, Verdict};
use crate::subject::{Arm, Beside, Prepared, Subject, SubjectError};

/// How often a gauge is read within an interval.
const GAUGE_READINGS: u32 = 4;
/// So many pairs in a row may be thrown away before the experiment is given up.
const MOST_REJECTED: usize = 5;
/// The arms must differ in coverage by at least this, or there is nothing to compare.
const LEAST_SEPARATION: f64 = 0.01;
/// Coverage may stray by this part of the arms' difference within an interval.
const STRAY: f64 = 0.1;

/// How long to look whether memory is mapped again, and how often at most.
const MAPPING_LOOK: Duration = Duration::from_millis(250);
const MOST_MAPPING_LOOKS: u32 = 40;

/// What to do with the memory at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// Put it back as it was found.
    #[default]
    AsFound,
    /// Leave it on large pages where the verdict is `faster`.
    IfFaster,
}

/// How to experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Length of an interval; a metric may need a longer one.
    pub interval: Duration,
    /// Time discarded after every change; a metric may need a longer one.
    pub settle: Duration,
    /// No pair is begun after this, once there are [`MIN_PAIRS`].
    pub limit: Duration,
    /// When enough was seen.
    pub rule: Rule,
    /// What counts as equal, a log ratio.
    pub equal: f64,
    /// What to do at the end.
    pub keep: Keep,
    /// Seed of the random orders.
    pub seed: u64,
    /// Measure before and after even where the memory could be moved back.
    pub before_after: bool,
    /// Move the memory there and back before every interval, and measure both arms on the pages
    /// that were found (A/A): what comes out is the noise of the method.
    pub same_pages: bool,
}

impl Default for Settings {
    /// Two seconds, three minutes, ±3 %, 2 % equal, 95 %.
    fn default() -> Settings {
        Settings {
            interval: Duration::from_secs(2),
            settle: Duration::from_millis(500),
            limit: Duration::from_secs(180),
            rule: Rule::default(),
            equal: 1.02f64.ln(),
            keep: Keep::AsFound,
            seed: Rng::new().u64(..),
            before_after: false,
            same_pages: false,
        }
    }
}

/// What goes into the result beside what is measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Circumstances {
    /// The machine.
    pub host: HostFingerprint,
    /// Knobs in force.
    pub knobs: Vec<Knob>,
    /// The exact command, passwords left out.
    pub command: Vec<String>,
    /// When it began (RFC 3339, UTC).
    pub started: String,
}

/// What is happening, for whoever watches.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// Something a person should know now.
    Note(&'a str),
    /// The memory is on its way to an arm.
    Moving(Arm),
    /// An interval has begun.
    Measuring {
        /// On which arm.
        arm: Arm,
        /// Pairs so far.
        pairs: usize,
        /// Since the beginning.
        elapsed: Duration,
        /// When time is over.
        limit: Duration,
    },
    /// A pair is there.
    Paired {
        /// Pairs so far.
        pairs: usize,
        /// The interval so far.
        interval: Option<LogInterval>,
        /// Since the beginning.
        elapsed: Duration,
    },
    /// A pair was thrown away.
    Rejected(&'a Rejected),
    /// The memory is being put back.
    Restoring,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProveError {
    /// The metric failed.
    #[error("{0}")]
    Metric(#[from] MetricError),
    /// The subject failed.
    #[error("{0}")]
    Subject(#[from] SubjectError),
    /// The arms do not differ.
    #[error(
        "coverage is {:.1} % on large pages and {:.1} % on base pages: nothing to compare",
        large * 100.0, base * 100.0
    )]
    NoDifference {
        /// Coverage in the base arm.
        base: f64,
        /// In the large arm.
        large: f64,
    },
    /// It went to large pages, and does not come back.
    #[error(
        "memory that went to large pages does not go back: coverage {:.1} % before, {:.1} % on \
         large pages, {:.1} % after moving back",
        before * 100.0, large * 100.0, after * 100.0
    )]
    OneWay {
        /// Coverage as found.
        before: f64,
        /// On large pages.
        large: f64,
        /// After the attempt to move it back.
        after: f64,
    },
    /// Too many pairs in a row were thrown away.
    #[error("{count} pairs in a row had to be thrown away: {reason}")]
    Unsteady {
        /// How many.
        count: usize,
        /// Why the last one was.
        reason: String,
    },
    /// The experiment worked, and its subject could not be put back as it was.
    #[error("the memory could not be put back as it was: {0}")]
    NotRestored(SubjectError),
}

impl ProveError {
    /// What to do about it.
    pub fn next(&self) -> String {
        match self {
            ProveError::Metric(e) => e.next(),
            ProveError::Subject(e) => e.next(),
            ProveError::NoDifference { .. } => {
                "hugeleaf why TARGET    # says why its memory does not move".into()
            }
            ProveError::OneWay { .. } => "restart the server to have base pages again, then \
                 measure before and after: hugeleaf prove --before-after TARGET --metric …"
                .into(),
            ProveError::Unsteady { .. } => "keep khugepaged away meanwhile, and put the old \
                 value back afterwards: echo 600000 > \
                 /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs"
                .into(),
            ProveError::NotRestored(_) => {
                "hugeleaf demote TARGET (or promote, where it was on large pages)".into()
            }
        }
    }
}

/// Runs an experiment. `stop` (Ctrl-C) ends it early with what there is; `progress` is told what
/// happens. The subject is left as it was found, unless `settings.keep` says otherwise.
///
/// # Errors
/// [`ProveError`]; the subject is put back before it is returned, where it still can be.
pub fn run(
    subject: &mut dyn Subject,
    metric: &mut dyn Metric,
    kernel: &dyn Kernel,
    settings: &Settings,
    circumstances: &Circumstances,
    progress: &mut dyn FnMut(Event<'_>),
    stop: &AtomicBool,
) -> Result<ResultFile, ProveError> {
    let prepared = subject.prepare()?;
    if let (true, Some(why)) = (settings.same_pages, &prepared.one_way) {
        return Err(ProveError::Subject(SubjectError::Other {
            what: format!("an A/A moves memory there and back: {why}"),
            next: "hugeleaf prove --before-after, or a host that splits such memory".into(),
        }));
    }
    let design = match prepared.one_way.is_some() || settings.before_after {
        true => Design::BeforeAfter,
        false => Design::RandomPairs,
    };
    let mut engine = Engine {
        began: kernel.now(),
        interval: settings.interval.max(metric.least_interval()),
        settle: settings.settle.max(metric.lag()),
        name: metric.name(),
        subject,
        metric,
        kernel,
        settings,
        progress,
        stop,
        at: None,
        same: settings.same_pages.then_some(prepared.began),
        expected: [0.0, 0.0],
        full: 0.0,
        taken: [Taken::default(), Taken::default()],
        pairs: Vec::new(),
        rejected: Vec::new(),
        page_sizes: PageSizes::default(),
        touched: false,
    };
    let measured = engine.measure(&prepared, design);
    let judged = measured
        .as_ref()
        .ok()
        .map(|_| engine.judge(design))
        .unwrap_or((None, Verdict::Unclear));
    let left = engine.leave(&prepared, judged.1);
    let ending = measured?;
    let left_on = left.map_err(ProveError::NotRestored)?;
    Ok(engine.result(&prepared, design, ending, judged, left_on, circumstances))
}

/// One accepted sample.
#[derive(Debug, Clone, Copy)]
struct Sample {
    value: f64,
    at: Duration,
    coverage: [f64; 2],
    beside: [Beside; 2],
    elapsed: Duration,
}

/// What was sampled on one arm.
#[derive(Debug, Default)]
struct Taken(Vec<Sample>);

struct Engine<'a> {
    began: Duration,
    interval: Duration,
    settle: Duration,
    name: String,
    subject: &'a mut dyn Subject,
    metric: &'a mut dyn Metric,
    kernel: &'a dyn Kernel,
    settings: &'a Settings,
    progress: &'a mut dyn FnMut(Event<'_>),
    stop: &'a AtomicBool,
    /// The arm the memory is on; `None` before the first move and after a rejection.
    at: Option<Arm>,
    /// For an A/A: the pages that both arms are measured on.
    same: Option<Arm>,
    /// Coverage after the last move to each arm, base first.
    expected: [f64; 2],
    /// By how much the arms differed at first.
    full: f64,
    taken: [Taken; 2],
    pairs: Vec<Pair>,
    rejected: Vec<Rejected>,
    page_sizes: PageSizes,
    /// Whether anything was moved.
    touched: bool,
}

/// How an attempt at a sample ended.
enum Attempt {
    Taken(Box<Sample>),
    Rejected,
    Interrupted,
}

fn index(arm: Arm) -> usize {
    match arm {
        Arm::Base => 0,
        Arm::Large => 1,
    }
}

impl Engine<'_> {
    fn elapsed(&self) -> Duration {
        self.kernel.now().saturating_sub(self.began)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits; `false` where Ctrl-C came.
    fn wait(&self, time: Duration) -> bool {
        let until = self.kernel.now() + time;
        while !self.is_stopped() {
            let now = self.kernel.now();
            if now >= until {
                return true;
            }
            self.kernel.sleep(until - now);
        }
        false
    }

    /// Where a move unmapped memory: waits until the processes have nearly all of it mapped again,
    /// ten seconds at most; `false` where Ctrl-C came.
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

    fn measure(&mut self, prepared: &Prepared, design: Design) -> Result<Ending, ProveError> {
        for note in &prepared.notes {
            (self.progress)(Event::Note(note));
        }
        // Reads the metric once before anything is touched: most failures show here.
        self.metric.read()?;
        self.page_sizes.before = self.subject.page_sizes()?;
        match design {
            Design::RandomPairs => self.random_pairs(prepared),
            Design::BeforeAfter => self.before_after(),
        }
    }

    /// Moves the memory to an arm and lets it settle; `false` where Ctrl-C came.
    fn go_to(&mut self, arm: Arm) -> Result<bool, ProveError> {
        if self.at == Some(arm) {
            return Ok(!self.is_stopped());
        }
        (self.progress)(Event::Moving(arm));
        self.touched = true;
        self.at = None;
        if let Some(began) = self.same {
            // Both arms are what was found, after the same two moves.
            self.subject.go_to(began.other(), self.stop)?;
            self.subject.go_to(began, self.stop)?;
        } else {
            self.subject.go_to(arm, self.stop)?;
        }
        if self.is_stopped() {
            return Ok(false);
        }
        self.at = Some(arm);
        let settled = self.wait(self.settle) && self.wait_for_mapping();
        self.expected[index(arm)] = self.subject.coverage()?;
        Ok(settled)
    }

    fn separation(&self) -> f64 {
        self.expected[1] - self.expected[0]
    }

    /// Goes to both arms once and makes sure that they differ; `false` where Ctrl-C came.
    fn calibrate(&mut self, prepared: &Prepared) -> Result<bool, ProveError> {
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
            return Err(ProveError::NoDifference { base, large });
        }
        self.full = self.separation();
        Ok(true)
    }

    fn random_pairs(&mut self, prepared: &Prepared) -> Result<Ending, ProveError> {
        if !self.calibrate(prepared)? {
            return Ok(Ending::Interrupted);
        }
        let mut rng = Rng::with_seed(self.settings.seed);
        let mut logs = Vec::new();
        loop {
            let is_over = self.elapsed() >= self.settings.limit;
            if is_over && logs.len() >= MIN_PAIRS && self.settings.rule.fixed_pairs.is_none() {
                return Ok(Ending::Time);
            }
            let first = if rng.bool() { Arm::Large } else { Arm::Base };
            let Some(pair) = self.pair(first)? else {
                return Ok(Ending::Interrupted);
            };
            logs.extend(stats::log_ratio(pair.base, pair.large));
            self.pairs.push(pair);
            let event = Event::Paired {
                pairs: logs.len(),
                interval: self.settings.rule.interval(&logs),
                elapsed: self.elapsed(),
            };
            (self.progress)(event);
            if self.settings.rule.enough(&logs) {
                return Ok(match self.settings.rule.fixed_pairs {
                    Some(_) => Ending::Pairs,
                    None => Ending::Narrow,
                });
            }
        }
    }

    /// One pair, made again while it has to be thrown away; `None` where Ctrl-C came.
    fn pair(&mut self, first: Arm) -> Result<Option<Pair>, ProveError> {
        let begun = self.rejected.len();
        'again: loop {
            let count = self.rejected.len() - begun;
            if count >= MOST_REJECTED {
                let reason = self.rejected.last().map(|r| r.reason.clone());
                let reason = reason.unwrap_or_default();
                return Err(ProveError::Unsteady { count, reason });
            }
            let at = self.elapsed();
            let mut samples = Vec::with_capacity(2);
            for arm in [first, first.other()] {
                if !self.go_to(arm)? {
                    return Ok(None);
                }
                match self.sample(arm)? {
                    Attempt::Taken(sample) => samples.push((arm, sample)),
                    Attempt::Rejected => continue 'again,
                    Attempt::Interrupted => return Ok(None),
                }
            }
            let value = |arm| {
                samples
                    .iter()
                    .find(|s| s.0 == arm)
                    .map_or(0.0, |s| s.1.value)
            };
            let (base, large) = (value(Arm::Base), value(Arm::Large));
            for (arm, sample) in samples {
                self.taken[index(arm)].0.push(*sample);
            }
            return Ok(Some(Pair {
                base,
                large,
                ratio: large / base,
                first,
                at_seconds: at.as_secs_f64(),
            }));
        }
    }

    /// All base samples, then all large ones; as many of each as were asked for or fit the time.
    fn before_after(&mut self) -> Result<Ending, ProveError> {
        let fixed = self.settings.rule.fixed_pairs;
        let half = self.settings.limit / 2;
        self.at = Some(Arm::Base);
        self.expected[0] = self.subject.coverage()?;
        self.page_sizes.base = self.page_sizes.before.clone();
        for arm in [Arm::Base, Arm::Large] {
            if !self.go_to(arm)? {
                return Ok(Ending::Interrupted);
            }
            if arm == Arm::Large {
                self.page_sizes.large = self.subject.page_sizes()?;
                let [base, large] = self.expected;
                if self.separation() < LEAST_SEPARATION {
                    return Err(ProveError::NoDifference { base, large });
                }
            }
            let begun = self.kernel.now();
            let mut rejected = 0;
            loop {
                let count = self.taken[index(arm)].0.len();
                let time_over = self.kernel.now().saturating_sub(begun) >= half;
                if fixed.map_or(time_over && count >= MIN_PAIRS, |n| count >= n) {
                    break;
                }
                match self.sample(arm)? {
                    Attempt::Taken(sample) => self.taken[index(arm)].0.push(*sample),
                    Attempt::Interrupted => return Ok(Ending::Interrupted),
                    Attempt::Rejected => {
                        rejected += 1;
                        if rejected >= MOST_REJECTED {
                            let reason = self.rejected.last().map(|r| r.reason.clone());
                            let reason = reason.unwrap_or_default();
                            return Err(ProveError::Unsteady {
                                count: rejected,
                                reason,
                            });
                        }
                    }
                }
            }
        }
        self.pair_up();
        Ok(match fixed {
            Some(_) => Ending::Pairs,
            None => Ending::Time,
        })
    }

    /// The samples of a before/after design side by side, for the reader; the interval does not
    /// use these pairs.
    fn pair_up(&mut self) {
        let (base, large) = (&self.taken[0].0, &self.taken[1].0);
        let pairs = base.iter().zip(large).map(|(b, l)| Pair {
            base: b.value,
            large: l.value,
            ratio: l.value / b.value,
            first: Arm::Base,
            at_seconds: b.at.as_secs_f64(),
        });
        self.pairs = pairs.collect();
    }

    /// One interval.
    fn sample(&mut self, arm: Arm) -> Result<Attempt, ProveError> {
        let event = Event::Measuring {
            arm,
            pairs: self.pairs.len(),
            elapsed: self.elapsed(),
            limit: self.settings.limit,
        };
        (self.progress)(event);
        if self.full > 0.0 && self.separation() < self.full / 2.0 {
            let [base, large] = self.expected;
            let reason = format!(
                "the move to {} pages did not take: coverage {:.1} % on base pages, {:.1} % on large ones",
                arm.name(),
                base * 100.0,
                large * 100.0
            );
            return Ok(self.reject(arm, reason));
        }
        let start = self.subject.coverage()?;
        if let Some(reason) = self.strays(arm, start, "at the start") {
            return Ok(self.reject(arm, reason));
        }
        let beside = self.subject.beside();
        let (before, from) = self.read()?;
        let mut gauge = Vec::new();
        let steps = match self.metric.kind() {
            Kind::Gauge => GAUGE_READINGS,
            Kind::Counter | Kind::Quantile | Kind::Ratio => 1,
        };
        let (mut after, mut to) = (before.clone(), from);
        for _ in 0..steps {
            if !self.wait(self.interval / steps) {
                return Ok(Attempt::Interrupted);
            }
            (after, to) = self.read()?;
            if let Reading::Gauge(value) = after {
                gauge.push(value);
            }
        }
        if !gauge.is_empty() {
            after = Reading::Gauge(stats::mean(&gauge));
        }
        let elapsed = to.saturating_sub(from);
        let beside = [beside, self.subject.beside()];
        let end = self.subject.coverage()?;
        if let Some(reason) = self.strays(arm, end, "at the end") {
            return Ok(self.reject(arm, reason));
        }
        let value = metric::between(&self.name, &before, &after, elapsed)?;
        Ok(Attempt::Taken(Box::new(Sample {
            value,
            at: (from + elapsed / 2).saturating_sub(self.began),
            coverage: [start, end],
            beside,
            elapsed,
        })))
    }

    /// The metric, and the middle of the time it took to read it.
    fn read(&mut self) -> Result<(Reading, Duration), ProveError> {
        let from = self.kernel.now();
        let reading = self.metric.read()?;
        let to = self.kernel.now();
        Ok((reading, from + to.saturating_sub(from) / 2))
    }

    /// Whether coverage is not what it was after the move to this arm.
    fn strays(&self, arm: Arm, coverage: f64, when: &str) -> Option<String> {
        let expected = self.expected[index(arm)];
        let known = match self.separation() {
            s if s > 0.0 && self.same.is_none() => s,
            _ => 1.0,
        };
        let stray = (coverage - expected).abs();
        (stray > STRAY * known).then(|| {
            let by_whom = match arm {
                Arm::Base if coverage > expected => "something collapsed it, perhaps khugepaged",
                Arm::Large if coverage < expected => "something split it, or it grew",
                _ => "its memory changed",
            };
            format!(
                "coverage on {} pages was {:.1} % {when}, {:.1} % expected: {by_whom}",
                arm.name(),
                coverage * 100.0,
                expected * 100.0
            )
        })
    }

    fn reject(&mut self, arm: Arm, reason: String) -> Attempt {
        let rejected = Rejected {
            arm,
            at_seconds: self.elapsed().as_secs_f64(),
            reason,
        };
        (self.progress)(Event::Rejected(&rejected));
        self.rejected.push(rejected);
        // Move again, wherever it is now.
        self.at = None;
        Attempt::Rejected
    }

    /// The interval and what it says.
    fn judge(&self, design: Design) -> (Option<LogInterval>, Verdict) {
        let interval = match design {
            Design::RandomPairs => {
                let logs: Vec<f64> = (self.pairs.iter())
                    .filter_map(|p| stats::log_ratio(p.base, p.large))
                    .collect();
                self.settings.rule.interval(&logs)
            }
            Design::BeforeAfter => {
                let logs = |arm: usize| -> Vec<f64> {
                    self.taken[arm].0.iter().map(|s| s.value.ln()).collect()
                };
                stats::welch_interval(&logs(0), &logs(1), self.settings.rule.confidence)
            }
        };
        let verdict = interval.map_or(Verdict::Unclear, |i| {
            stats::judge(&i, self.settings.equal, self.metric.better())
        });
        (interval, verdict)
    }

    /// Puts the memory where it should be at the end. Ctrl-C does not keep it from that.
    fn leave(
        &mut self,
        prepared: &Prepared,
        verdict: Verdict,
    ) -> Result<Option<Arm>, SubjectError> {
        let keep = self.settings.keep == Keep::IfFaster && verdict == Verdict::Faster;
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
            (self.progress)(Event::Restoring);
            match self.subject.go_to(to, &AtomicBool::new(false)) {
                Ok(()) => {}
                // Its memory is gone with it: nothing is left to put back.
                Err(SubjectError::Ended { .. }) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
        self.page_sizes.after = self.subject.page_sizes().unwrap_or_default();
        Ok(Some(to))
    }

    fn result(
        &self,
        prepared: &Prepared,
        design: Design,
        ending: Ending,
        (interval, verdict): (Option<LogInterval>, Verdict),
        left_on: Option<Arm>,
        circumstances: &Circumstances,
    ) -> ResultFile {
        let rule = &self.settings.rule;
        ResultFile {
            schema: 1,
            experiment: Experiment {
                name: self.name.clone(),
                unit: self.metric.unit(),
                better: self.metric.better(),
                target: self.subject.name(),
                design,
                started: circumstances.started.clone(),
                duration_seconds: self.elapsed().as_secs_f64(),
                ending,
                began_on: prepared.began,
                left_on,
                moved_bytes: prepared.bytes.get(),
            },
            arms: [Arm::Base, Arm::Large]
                .map(|arm| self.arm_samples(arm))
                .into(),
            pairs: self.pairs.clone(),
            effect: interval.map(|i| Effect::of(&i, rule.confidence)),
            verdict,
            beside: [Arm::Base, Arm::Large].map(|arm| self.beside(arm)).into(),
            page_sizes: self.page_sizes.clone(),
            rejected: self.rejected.clone(),
            caveats: self.caveats(prepared, design, ending),
            host: circumstances.host.clone(),
            settings: SettingsInForce {
                interval_seconds: self.interval.as_secs_f64(),
                settle_seconds: self.settle.as_secs_f64(),
                until: rule.until.exp() - 1.0,
                for_seconds: self.settings.limit.as_secs_f64(),
                pairs: rule.fixed_pairs,
                equal: self.settings.equal.exp() - 1.0,
                seed: self.settings.seed,
                same_pages: self.settings.same_pages,
                knobs: circumstances.knobs.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            command: circumstances.command.clone(),
        }
    }

    fn arm_samples(&self, arm: Arm) -> ArmSamples {
        let samples = &self.taken[index(arm)].0;
        ArmSamples {
            label: arm,
            samples: samples.iter().map(|s| s.value).collect(),
            at_seconds: samples.iter().map(|s| s.at.as_secs_f64()).collect(),
            coverage: samples.iter().map(|s| s.coverage).collect(),
        }
    }

    fn beside(&self, arm: Arm) -> BesideArm {
        let samples = &self.taken[index(arm)].0;
        let mean_bytes = |of: &dyn Fn(&Beside) -> Option<Bytes>| {
            let all: Vec<f64> = (samples.iter().flat_map(|s| &s.beside))
                .filter_map(|b| of(b).map(Bytes::as_f64))
                .collect();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            (!all.is_empty()).then(|| stats::mean(&all) as u64)
        };
        let cpus = |of: &dyn Fn(&Beside) -> Option<f64>| {
            let (mut busy, mut time) = (0.0, 0.0);
            for s in samples {
                busy += (of(&s.beside[1])? - of(&s.beside[0])?).max(0.0);
                time += s.elapsed.as_secs_f64();
            }
            (time > 0.0).then(|| busy / time)
        };
        let stalls = (samples.iter())
            .map(|s| {
                let [a, b] = s.beside.map(|b| b.compaction_stalls);
                Some(b?.saturating_sub(a?))
            })
            .sum();
        BesideArm {
            label: arm,
            resident_bytes: mean_bytes(&|b| b.resident),
            page_tables_bytes: mean_bytes(&|b| b.page_tables),
            user_cpus: cpus(&|b| b.user_seconds),
            system_cpus: cpus(&|b| b.system_seconds),
            compaction_stalls: stalls,
        }
    }

    fn caveats(&self, prepared: &Prepared, design: Design, ending: Ending) -> Vec<String> {
        let mut caveats = Vec::new();
        match design {
            Design::RandomPairs => caveats.push(
                "The base arm is memory whose large pages were split: it is still contiguous. \
                 Where a processor joins neighbouring base pages in its TLB, and for direct I/O, \
                 the gain over memory that never was large can be more than this."
                    .to_owned(),
            ),
            Design::BeforeAfter => {
                let why = match &prepared.one_way {
                    Some(why) => format!(" because {why}"),
                    None => String::new(),
                };
                caveats.push(format!(
                    "Measured before and after{why}: the weaker design. Whatever else changed \
                     between the two counts as the effect."
                ));
                if self.touched {
                    caveats.push(
                        "The memory stays on large pages until the server is restarted.".to_owned(),
                    );
                }
            }
        }
        if let Some(arm) = self.same {
            caveats.push(format!(
                "A/A: both arms were measured on {} pages, each after a move there and back. What \
                 it says is the noise of the method, and nothing about larger pages.",
                arm.name()
            ));
        }
        if ending == Ending::Interrupted {
            caveats.push("Interrupted: it says what was measured until then.".to_owned());
        }
        if self.interval > self.settings.interval {
            caveats.push(format!(
                "Intervals are {} s long: this metric tells nothing over shorter ones.",
                self.interval.as_secs_f64()
            ));
        }
        if !self.rejected.is_empty() {
            caveats.push(format!(
                "{} interval(s) were thrown away because pages changed behind our back.",
                self.rejected.len()
            ));
        }
        caveats.extend(prepared.notes.iter().cloned());
        caveats
    }
}
