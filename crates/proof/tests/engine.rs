//! The engine with a simulated subject, metric and clock: every way in which an experiment can end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hugeleaf_host::PageUsage;
use hugeleaf_proof::metric::{Metric, MetricError, Reading, ReadingKind};
use hugeleaf_proof::prove_result::DiscardCause;
use hugeleaf_proof::result_format::Results;
use hugeleaf_proof::stats::{BetterDirection, LogRatioInterval, StatisticalTest};
use hugeleaf_proof::{
    Arm, ExperimentDesign, ExperimentEnd, ExperimentEvent, ExperimentSettings, FinalPages,
    ProveError, ProveResult, Provenance, SelectedMemory, SideMetrics, Subject, SubjectError,
    Verdict, run,
};
use hugeleaf_sys::{Deadline, Errno, GateReply, Kernel, Pid, ProcessCall, SyscallGate};
use hugeleaf_units::{Bytes, PageKind};

/// A clock that only sleeping advances.
#[derive(Debug, Default)]
struct Clock(Mutex<Duration>);

impl SyscallGate for Clock {
    fn process(&self, call: ProcessCall<'_>) -> Result<Option<GateReply>, Errno> {
        let ProcessCall::Sleep(time) = call else {
            return Ok(None);
        };
        *self.0.lock().unwrap() += time;
        Ok(Some(GateReply::Done))
    }

    fn now(&self, _: Duration) -> Duration {
        *self.0.lock().unwrap()
    }
}

/// Memory that changes as requested, except as the fields specify.
struct Fake {
    arm: Arc<Mutex<Arm>>,
    began: Arm,
    one_way: bool,
    /// Cannot be demoted, without announcing it.
    sticks: bool,
    /// No change has an effect.
    stays: bool,
    /// Number of coverage readings so far, and the readings at which khugepaged has collapsed half
    /// of it.
    readings: usize,
    collapsed_at: Vec<usize>,
    always_collapsed: bool,
    /// Difference of coverage between consecutive readings.
    jitter: f64,
    /// Ends at this change.
    ends_at_move: Option<usize>,
    /// A split returns a quarter of it.
    loses: bool,
    lost: bool,
    moves: Vec<Arm>,
    /// Mapped memory at each scan after a change; the last value repeats.
    mapping: Vec<Bytes>,
    looks: usize,
}

impl Fake {
    fn new(began: Arm) -> Fake {
        Fake {
            arm: Arc::new(Mutex::new(began)),
            began,
            one_way: false,
            sticks: false,
            stays: false,
            readings: 0,
            collapsed_at: Vec::new(),
            always_collapsed: false,
            jitter: 0.0,
            ends_at_move: None,
            loses: false,
            lost: false,
            moves: Vec::new(),
            mapping: Vec::new(),
            looks: 0,
        }
    }
}

impl Subject for Fake {
    fn name(&self) -> String {
        "fake".into()
    }
    fn prepare(&mut self) -> Result<SelectedMemory, SubjectError> {
        Ok(SelectedMemory {
            began: self.began,
            bytes: Bytes(1 << 30),
            one_way: self.one_way.then(|| "it is locked".to_owned()),
            notes: vec!["a note".into()],
        })
    }
    fn apply_arm(&mut self, arm: Arm, _: &AtomicBool) -> Result<(), SubjectError> {
        self.moves.push(arm);
        self.looks = 0;
        if self.ends_at_move.is_some_and(|n| self.moves.len() >= n) {
            return Err(SubjectError::Ended { pid: Pid(7) });
        }
        self.lost |= self.loses && arm == Arm::Base;
        if !(self.stays || self.sticks && arm == Arm::Base) {
            *self.arm.lock().unwrap() = arm;
        }
        Ok(())
    }
    fn coverage(&mut self) -> Result<f64, SubjectError> {
        self.readings += 1;
        let collapsed = self.collapsed_at.contains(&self.readings)
            || self.always_collapsed && self.readings.is_multiple_of(2);
        let arm = *self.arm.lock().unwrap();
        let jitter = self.jitter * f64::from(u8::from(self.readings.is_multiple_of(3)));
        Ok(jitter
            + match arm {
                Arm::Large => 0.95,
                Arm::Base if collapsed => 0.5,
                Arm::Base => 0.02,
            })
    }
    fn page_sizes(&mut self) -> Result<Vec<PageUsage>, SubjectError> {
        let on_large = *self.arm.lock().unwrap() == Arm::Large;
        Ok(vec![PageUsage {
            size: if on_large { "2M" } else { "4K" }.parse().unwrap(),
            kind: PageKind::Thp,
            bytes: Bytes(if self.lost { 3 << 28 } else { 1 << 30 }),
        }])
    }
    fn mapped(&mut self) -> Option<Bytes> {
        let at = self.looks.min(self.mapping.len().saturating_sub(1));
        self.looks += 1;
        self.mapping.get(at).copied()
    }
    fn side_metrics(&mut self) -> SideMetrics {
        SideMetrics {
            resident: Some(Bytes(1 << 30)),
            page_tables: Some(Bytes(
                if *self.arm.lock().unwrap() == Arm::Large {
                    1
                } else {
                    2
                } << 20,
            )),
            ..SideMetrics::default()
        }
    }
}

/// A rate that depends on the arm, with noise in the order of readings.
struct Rate {
    clock: Kernel,
    arm: Arc<Mutex<Arm>>,
    large: f64,
    noise: f64,
    better: BetterDirection,
    kind: ReadingKind,
    total: f64,
    last: Duration,
    rng: fastrand::Rng,
    /// Time until the effect of huge pages has arrived in full after promotion, and the time of that promotion.
    warms: Duration,
    moved: Option<Duration>,
    /// The result that replaces all readings from this one on.
    instead: Option<(usize, Result<Reading, MetricError>)>,
    readings: usize,
    /// The reading that fails once, or whose count changes by this once.
    bad_once: Option<(usize, Result<Reading, MetricError>)>,
    /// For a histogram with edges at 0.01, 0.02, 0.05 and none: the cumulative shares in both arms.
    buckets: Option<([f64; 4], [f64; 4])>,
    counts: [f64; 4],
    /// Sets this flag at a reading, like Ctrl-C.
    interrupts: Option<(usize, Arc<AtomicBool>)>,
    /// From this reading on the server hangs until the flag is set.
    hangs: Option<(usize, Arc<AtomicBool>)>,
}

impl Rate {
    fn new(clock: Kernel, subject: &Fake, large: f64, noise: f64) -> Rate {
        Rate {
            clock,
            arm: Arc::clone(&subject.arm),
            large,
            noise,
            better: BetterDirection::Higher,
            kind: ReadingKind::Counter,
            total: 0.0,
            last: Duration::ZERO,
            rng: fastrand::Rng::with_seed(3),
            warms: Duration::ZERO,
            moved: None,
            instead: None,
            readings: 0,
            bad_once: None,
            buckets: None,
            counts: [0.0; 4],
            interrupts: None,
            hangs: None,
        }
    }
}

impl Rate {
    fn metric(mut self) -> Metric {
        Metric {
            better: self.better,
            kind: self.kind,
            instead_of_quantile: Some("http://h/#mean(x)".into()),
            ..Metric::counter("rate", "1/s", move |question| self.read(question))
        }
    }

    fn read(&mut self, question: Deadline<'_>) -> Result<Reading, MetricError> {
        self.readings += 1;
        if let Some((at, flag)) = &self.hangs
            && self.readings > *at
        {
            flag.store(true, Ordering::Relaxed);
            while question.wait(&mut [], Duration::from_millis(1)).is_ok() {}
            return Err(MetricError::Unreachable {
                metric: "rate".into(),
                reason: "stopped".into(),
                next: "wait".into(),
            });
        }
        if let Some((at, flag)) = &self.interrupts
            && self.readings >= *at
        {
            flag.store(true, Ordering::Relaxed);
        }
        if let Some((at, instead)) = &self.instead
            && self.readings >= *at
        {
            return instead.clone();
        }
        if let Some((at, bad)) = &self.bad_once
            && self.readings == *at
        {
            self.last = self.clock.now();
            if let Ok(Reading::Counter(by)) = bad {
                self.total += by;
                return Ok(Reading::Counter(self.total));
            }
            return bad.clone();
        }
        let arm = *self.arm.lock().unwrap();
        if let Some((base, large)) = &self.buckets {
            let shares = if arm == Arm::Large { large } else { base };
            for (count, share) in self.counts.iter_mut().zip(shares) {
                *count += 1000.0 * share;
            }
            let edges = [0.01, 0.02, 0.05, f64::INFINITY];
            return Ok(Reading::Buckets {
                quantile: 0.5,
                counts: edges.into_iter().zip(self.counts).collect(),
            });
        }
        let effect = match arm {
            Arm::Large => {
                let since = self.clock.now() - *self.moved.get_or_insert(self.last);
                let part = since.as_secs_f64() / self.warms.as_secs_f64().max(f64::MIN_POSITIVE);
                1.0 + (self.large - 1.0) * part.min(1.0)
            }
            Arm::Base => {
                self.moved = None;
                1.0
            }
        };
        let rate = 1000.0 * effect * (self.noise * (self.rng.f64() - 0.5)).exp();
        let now = self.clock.now();
        self.total += rate * (now - self.last).as_secs_f64();
        self.last = now;
        Ok(match self.kind {
            ReadingKind::Gauge => Reading::Gauge(rate),
            _ => Reading::Counter(self.total),
        })
    }
}

fn settings() -> ExperimentSettings {
    ExperimentSettings {
        seed: 1,
        ..ExperimentSettings::default()
    }
}

struct Outcome {
    result: Result<ProveResult, ProveError>,
    left: Arm,
    moves: Vec<Arm>,
}

/// Runs an experiment on `subject` with a rate that huge pages multiply by `large`; `change` may
/// modify the metric first.
fn experiment(
    mut subject: Fake,
    (large, noise): (f64, f64),
    settings: &ExperimentSettings,
    change: impl FnOnce(&mut Rate, &Arc<AtomicBool>),
) -> Outcome {
    let clock = Kernel::behind(Arc::new(Clock::default()));
    let stop = Arc::new(AtomicBool::new(false));
    let mut rate = Rate::new(clock.clone(), &subject, large, noise);
    change(&mut rate, &stop);
    let mut pairs_told = 0;
    let result = run(
        &mut subject,
        &mut rate.metric(),
        &clock,
        settings,
        &Provenance::default(),
        &mut |event| {
            if let ExperimentEvent::Paired { pairs, .. } = event {
                assert_eq!(pairs, pairs_told + 1);
                pairs_told = pairs;
            }
        },
        &stop,
    );
    let left = *subject.arm.lock().unwrap();
    Outcome {
        result,
        left,
        moves: subject.moves,
    }
}

fn unspoilt(_: &mut Rate, _: &Arc<AtomicBool>) {}

#[test]
fn a_clear_gain_is_found_and_memory_put_back() {
    let got = experiment(Fake::new(Arm::Base), (1.2, 0.02), &settings(), unspoilt);
    let result = got.result.unwrap();
    assert_eq!(result.verdict, Verdict::Faster);
    assert_eq!(result.experiment.ending, ExperimentEnd::Narrow);
    assert_eq!(result.experiment.design, ExperimentDesign::RandomPairs);
    assert_eq!(result.pairs.len(), 8);
    let effect = result.effect.unwrap();
    assert_eq!(effect.method, StatisticalTest::SignedRank);
    assert!(effect.low <= 1.2 && 1.2 <= effect.high, "{effect:?}");
    assert_eq!(got.left, Arm::Base);
    assert_eq!(result.experiment.left_on, Some(Arm::Base));
    assert_eq!(result.page_sizes.before, result.page_sizes.after);
    assert_ne!(result.page_sizes.base, result.page_sizes.large);
    assert!(result.caveats.iter().any(|c| c.contains("contiguous")));
    assert!(result.caveats.iter().any(|c| c == "a note"));
    for (arm, tables) in [(Arm::Base, 2 << 20), (Arm::Large, 1 << 20)] {
        let row = result.row(arm, "page tables").unwrap();
        assert_eq!(row.values(), [f64::from(tables)]);
        let samples = &result.samples(arm).unwrap().samples;
        assert_eq!(samples.len(), 8);
        for (pair, sample) in samples.iter().enumerate() {
            assert_eq!(sample.round, Some(pair));
            assert!(sample.at_seconds.is_some() && sample.coverage.is_some());
        }
    }
}

fn with_hold() -> ExperimentSettings {
    ExperimentSettings {
        hold: Duration::from_secs(40),
        ..settings()
    }
}

#[test]
fn an_effect_that_needs_time_is_not_settled() {
    let warms = |rate: &mut Rate, _: &Arc<AtomicBool>| rate.warms = Duration::from_secs(30);
    let got = experiment(Fake::new(Arm::Base), (1.2, 0.01), &settings(), warms);
    let short = got.result.unwrap().effect.unwrap();
    assert!(short.high < 1.1, "{short:?}");
    let got = experiment(Fake::new(Arm::Base), (1.1, 0.01), &with_hold(), warms);
    let result = got.result.unwrap();
    let holds = result.holds.as_ref().unwrap();
    assert!(!holds.settled && holds.rounds.len() == 2, "{holds:?}");
    assert!(
        holds
            .late_ratio()
            .is_some_and(|r| (1.08..1.12).contains(&r)),
        "{holds:?}"
    );
    assert!(result.caveats.iter().any(|c| c.contains("Held for 40 s")));
    assert_eq!(
        (got.left, result.experiment.left_on),
        (Arm::Base, Some(Arm::Base))
    );
    // The verdict of the pairs alone is `same`.
    assert_eq!(result.verdict, Verdict::Unclear);
    let pairs = result.equivalence.unwrap();
    assert!(pairs.not_below && pairs.not_above, "{pairs:?}");
}

#[test]
fn a_settled_effect_is_held_once() {
    let got = experiment(Fake::new(Arm::Base), (1.2, 0.01), &with_hold(), unspoilt);
    let result = got.result.unwrap();
    assert_eq!(result.verdict, Verdict::Faster);
    let holds = result.holds.unwrap();
    assert!(holds.settled && holds.rounds.len() == 1, "{holds:?}");
    assert_eq!(got.left, Arm::Base);
}

#[test]
fn a_result_without_holds_says_so() {
    let is_said = |settings: &ExperimentSettings| {
        let got = experiment(Fake::new(Arm::Base), (1.2, 0.01), settings, unspoilt);
        let caveats = got.result.unwrap().caveats;
        let said = caveats.iter().filter(|c| c.contains("were not held"));
        said.count()
    };
    let mut pairs = settings();
    pairs.rule.fixed_pairs = Some(12);
    // Too long for two samples in the later half of a hold.
    let long = ExperimentSettings {
        interval: Duration::from_secs(60),
        ..with_hold()
    };
    assert_eq!((is_said(&pairs), is_said(&long)), (1, 1));
    assert_eq!(is_said(&with_hold()), 0);
}

#[test]
fn holds_alone_are_compared_with_earlier_pairs() {
    let against = ExperimentSettings {
        against: Some(LogRatioInterval {
            center: 0.0,
            low: -0.02,
            high: 0.02,
            method: StatisticalTest::SignedRank,
        }),
        ..with_hold()
    };
    for (effect, settled) in [(1.1, false), (1.0, true)] {
        let warms = |rate: &mut Rate, _: &Arc<AtomicBool>| rate.warms = Duration::from_secs(30);
        let got = experiment(Fake::new(Arm::Base), (effect, 0.01), &against, warms);
        let result = got.result.unwrap();
        assert_eq!((result.pairs.len(), got.left), (0, Arm::Base));
        assert_eq!(result.holds.unwrap().settled, settled, "{effect}");
    }
    let interrupts =
        |rate: &mut Rate, stop: &Arc<AtomicBool>| rate.interrupts = Some((9, Arc::clone(stop)));
    let got = experiment(Fake::new(Arm::Base), (1.1, 0.01), &against, interrupts);
    assert_eq!((got.result.unwrap().holds, got.left), (None, Arm::Base));
}

#[test]
fn pairs_stand_where_the_hold_is_interrupted() {
    let whole = experiment(Fake::new(Arm::Base), (1.2, 0.01), &settings(), unspoilt);
    let pairs = whole.result.unwrap().pairs.len();
    // One reading first, then three per sample and two samples per pair. The following readings belong to the hold.
    let at = 1 + pairs * 6 + 9;
    let interrupts =
        |rate: &mut Rate, stop: &Arc<AtomicBool>| rate.interrupts = Some((at, Arc::clone(stop)));
    let got = experiment(Fake::new(Arm::Base), (1.2, 0.01), &with_hold(), interrupts);
    let result = got.result.unwrap();
    assert_eq!(
        (result.verdict, result.pairs.len()),
        (Verdict::Faster, pairs)
    );
    assert_eq!((&result.holds, got.left), (&None, Arm::Base));
    let fails = |rate: &mut Rate, _: &Arc<AtomicBool>| {
        let error = MetricError::StoodStill {
            metric: "rate".into(),
            seconds: 0.0,
        };
        rate.instead = Some((at, Err(error)));
    };
    let got = experiment(Fake::new(Arm::Base), (1.2, 0.01), &with_hold(), fails);
    let result = got.result.unwrap();
    assert_eq!(
        (result.verdict, &result.holds, got.left),
        (Verdict::Faster, &None, Arm::Base)
    );
}

#[test]
fn the_order_is_drawn_and_the_seed_repeats_it() {
    let orders = |seed| {
        let mut settings = ExperimentSettings { seed, ..settings() };
        settings.rule.fixed_pairs = Some(20);
        let got = experiment(Fake::new(Arm::Base), (1.0, 0.1), &settings, unspoilt);
        let result = got.result.unwrap();
        assert_eq!(result.settings.seed, seed);
        assert_eq!(result.experiment.ending, ExperimentEnd::Pairs);
        result.pairs.iter().map(|p| p.first).collect::<Vec<_>>()
    };
    assert_eq!(orders(5), orders(5));
    assert_ne!(orders(5), orders(6));
    // In balanced blocks no run is lopsided, wherever it ends.
    for seed in 0..20 {
        let orders = orders(seed);
        for end in 0..=orders.len() {
            let large = orders[..end].iter().filter(|a| **a == Arm::Large).count();
            assert!(large.abs_diff(end - large) <= 2, "{orders:?}");
        }
    }
}

#[test]
fn a_loss_no_difference_and_noise_are_told_apart() {
    for (large, noise, better, verdict) in [
        (0.8, 0.02, BetterDirection::Higher, Verdict::Slower),
        (0.8, 0.02, BetterDirection::Lower, Verdict::Faster),
        (1.0, 0.005, BetterDirection::Higher, Verdict::Same),
        (1.0, 2.0, BetterDirection::Higher, Verdict::Unclear),
    ] {
        let got = experiment(
            Fake::new(Arm::Base),
            (large, noise),
            &settings(),
            |rate, _| {
                rate.better = better;
            },
        );
        assert_eq!(got.result.unwrap().verdict, verdict, "{large} {noise}");
    }
}

#[test]
fn noise_runs_into_the_limit_but_never_under_eight_pairs() {
    let got = experiment(Fake::new(Arm::Base), (1.0, 2.0), &settings(), unspoilt);
    let result = got.result.unwrap();
    assert_eq!(result.experiment.ending, ExperimentEnd::Time);
    assert!(result.pairs.len() > 8);
    assert!(result.experiment.duration_seconds >= 180.0);
    let short = ExperimentSettings {
        limit: Duration::from_secs(1),
        ..settings()
    };
    let got = experiment(Fake::new(Arm::Base), (1.0, 2.0), &short, unspoilt);
    assert_eq!(got.result.unwrap().pairs.len(), 8);
}

#[test]
fn a_gauge_is_averaged_over_the_interval() {
    let got = experiment(Fake::new(Arm::Base), (0.5, 0.01), &settings(), |rate, _| {
        rate.kind = ReadingKind::Gauge;
        rate.better = BetterDirection::Lower;
    });
    let result = got.result.unwrap();
    assert_eq!(result.verdict, Verdict::Faster);
    let large = result.samples(Arm::Large).unwrap();
    assert!((large.samples[0].value - 500.0).abs() < 5.0);
}

#[test]
fn what_helped_is_kept_only_where_asked() {
    let keep = ExperimentSettings {
        keep: FinalPages::IfFaster,
        ..settings()
    };
    let got = experiment(Fake::new(Arm::Base), (1.2, 0.02), &keep, unspoilt);
    assert_eq!(
        (got.left, got.result.unwrap().experiment.left_on),
        (Arm::Large, Some(Arm::Large))
    );
    let got = experiment(Fake::new(Arm::Base), (0.8, 0.02), &keep, unspoilt);
    assert_eq!(got.left, Arm::Base);
    let got = experiment(Fake::new(Arm::Large), (0.8, 0.02), &settings(), unspoilt);
    assert_eq!(got.left, Arm::Large);
    assert_eq!(got.result.unwrap().experiment.began_on, Arm::Large);
}

#[test]
fn khugepaged_behind_our_back_costs_a_pair_not_the_result() {
    let mut subject = Fake::new(Arm::Base);
    subject.collapsed_at = vec![5, 9, 20];
    let got = experiment(subject, (1.2, 0.02), &settings(), unspoilt);
    let result = got.result.unwrap();
    assert_eq!(result.verdict, Verdict::Faster);
    assert!(!result.rejected.is_empty());
    assert!(
        result
            .rejected
            .iter()
            .any(|r| r.reason.contains("khugepaged"))
    );
    assert!(result.caveats.iter().any(|c| c.contains("discarded")));
    assert_eq!(result.pairs.len(), 8);
    let mut subject = Fake::new(Arm::Base);
    subject.always_collapsed = true;
    let got = experiment(subject, (1.2, 0.02), &settings(), unspoilt);
    let e = got.result.unwrap_err();
    assert!(
        matches!(
            e,
            ProveError::Unsteady { .. }
                | ProveError::NoDifference { .. }
                | ProveError::OneWay { .. }
        ),
        "{e}"
    );
    assert_eq!(got.left, Arm::Base);
}

#[test]
fn memory_that_cannot_go_back_is_measured_before_and_after() {
    let mut subject = Fake::new(Arm::Base);
    subject.one_way = true;
    let got = experiment(subject, (1.2, 0.02), &settings(), unspoilt);
    let result = got.result.unwrap();
    assert_eq!(result.experiment.design, ExperimentDesign::BeforeAfter);
    assert_eq!(result.verdict, Verdict::Faster);
    assert_eq!(result.effect.unwrap().method, StatisticalTest::Welch);
    assert!(result.caveats.iter().any(|c| c.contains("weaker")));
    assert!(result.caveats.iter().any(|c| c.contains("restarted")));
    assert_eq!(
        (got.left, result.experiment.left_on),
        (Arm::Large, Some(Arm::Large))
    );
    assert_eq!(got.moves, [Arm::Large]);
    // Before/after on request, and then the memory is demoted.
    let asked = ExperimentSettings {
        before_after: true,
        ..settings()
    };
    let got = experiment(Fake::new(Arm::Base), (1.2, 0.02), &asked, unspoilt);
    assert_eq!(
        got.result.unwrap().experiment.design,
        ExperimentDesign::BeforeAfter
    );
    assert_eq!(got.left, Arm::Base);
}

#[test]
fn the_same_pages_in_both_arms_make_no_difference() {
    for began in [Arm::Base, Arm::Large] {
        let same = ExperimentSettings {
            same_pages: true,
            ..settings()
        };
        let mut subject = Fake::new(began);
        subject.jitter = 0.004;
        let got = experiment(subject, (1.5, 0.01), &same, unspoilt);
        let result = got.result.unwrap();
        assert_eq!(result.verdict, Verdict::Same, "{result:#?}");
        assert!(result.caveats.iter().any(|c| c.starts_with("A/A")));
        assert_eq!(got.left, began);
        // There and back before every interval: two changes each time.
        assert!(got.moves.chunks(2).all(|two| two == [began.other(), began]));
    }
    let mut subject = Fake::new(Arm::Base);
    subject.one_way = true;
    let same = ExperimentSettings {
        same_pages: true,
        ..settings()
    };
    let got = experiment(subject, (1.0, 0.01), &same, unspoilt);
    let e = got.result.unwrap_err();
    assert!(e.to_string().contains("it is locked"), "{e}");
    assert!(got.moves.is_empty());
}

#[test]
fn nothing_is_measured_while_memory_is_mapped_again() {
    let length = |mapping: Vec<u64>| {
        let mut subject = Fake::new(Arm::Base);
        subject.mapping = mapping.into_iter().map(Bytes).collect();
        let mut settings = settings();
        settings.rule.fixed_pairs = Some(8);
        let got = experiment(subject, (1.2, 0.02), &settings, unspoilt);
        got.result.unwrap().experiment.duration_seconds
    };
    let nothing = length(Vec::new());
    let settled = length(vec![1000, 1000]);
    let growing = length(vec![1000, 2000, 3000, 3001]);
    let endless = length((1..200).map(|n| n * 1000).collect());
    assert!(nothing < settled && settled < growing && growing < endless);
    // Bounded: at most ten seconds per change, of which there are at most 18.
    assert!(endless - nothing <= 18.0 * 10.0 + 1.0, "{endless}");
}

#[test]
fn memory_that_sticks_is_found_out() {
    let mut subject = Fake::new(Arm::Base);
    subject.sticks = true;
    let got = experiment(subject, (1.2, 0.02), &settings(), unspoilt);
    let e = got.result.unwrap_err();
    assert!(matches!(e, ProveError::OneWay { .. }), "{e}");
    assert!(e.next().contains("--before-after"));
}

#[test]
fn a_failing_metric_leaves_memory_as_it_was() {
    let unreachable = || MetricError::Unreachable {
        metric: "rate".into(),
        reason: "refused".into(),
        next: "start it".into(),
    };
    // At the first reading nothing has been changed yet.
    let got = experiment(Fake::new(Arm::Base), (1.2, 0.02), &settings(), |rate, _| {
        rate.instead = Some((1, Err(unreachable())));
    });
    assert_eq!(got.result.unwrap_err(), ProveError::Metric(unreachable()));
    assert!(got.moves.is_empty());
    for at in 2..12 {
        let got = experiment(Fake::new(Arm::Base), (1.2, 0.02), &settings(), |rate, _| {
            rate.instead = Some((at, Err(unreachable())));
        });
        let e = got.result.unwrap_err();
        // Two bad readings are allowed, the third ends it.
        let ProveError::BadReadings { error, count, .. } = &e else {
            panic!("{e}");
        };
        assert_eq!((error, *count), (&unreachable(), 3));
        assert_eq!(e.next(), "start it");
        assert_eq!(got.left, Arm::Base, "{at}");
    }
}

#[test]
fn one_bad_reading_costs_a_pair_not_the_experiment() {
    let once = [
        Err(MetricError::Unreachable {
            metric: "rate".into(),
            reason: "refused".into(),
            next: "start it".into(),
        }),
        // By one: at the end of the interval it is above its start again.
        Ok(Reading::Counter(-1.0)),
    ];
    // In the middle of an interval, and at its end.
    for (at, bad) in [21, 76]
        .into_iter()
        .flat_map(|at| once.iter().map(move |b| (at, b)))
    {
        let mut settings = settings();
        settings.rule.fixed_pairs = Some(16);
        let got = experiment(Fake::new(Arm::Base), (1.2, 0.02), &settings, |rate, _| {
            rate.bad_once = Some((at, bad.clone()));
        });
        let result = got.result.unwrap();
        assert_eq!(result.verdict, Verdict::Faster, "{at}");
        assert_eq!(result.pairs.len(), 16);
        assert_eq!(result.bad_readings.count(), 1, "{at} {bad:?}");
        let readings: Vec<_> = (result.rejected.iter())
            .filter(|r| r.cause == DiscardCause::Reading)
            .collect();
        assert_eq!(readings.len(), 1);
        assert!(
            result
                .caveats
                .iter()
                .any(|c| c.starts_with("1 bad reading"))
        );
        assert_eq!(got.left, Arm::Base);
    }
}

#[test]
fn a_panic_puts_memory_back_and_goes_on() {
    for at in [1, 5, 30] {
        let clock = Kernel::behind(Arc::new(Clock::default()));
        let mut subject = Fake::new(Arm::Base);
        let arm = Arc::clone(&subject.arm);
        let mut metric = Rate::new(clock.clone(), &subject, 1.2, 0.02).metric();
        let mut events = 0;
        let run = std::panic::AssertUnwindSafe(|| {
            run(
                &mut subject,
                &mut metric,
                &clock,
                &settings(),
                &Provenance::default(),
                &mut |event| {
                    events += 1;
                    let on_large = *arm.lock().unwrap() == Arm::Large;
                    // The progress callback panics permanently once memory is on huge pages.
                    assert!(events < at || !on_large, "stderr is gone: {event:?}");
                },
                &AtomicBool::new(false),
            )
        });
        assert!(std::panic::catch_unwind(run).is_err(), "{at}");
        assert_eq!(*arm.lock().unwrap(), Arm::Base, "{at}");
    }
}

#[test]
fn all_pairs_count_as_they_were_assigned_where_that_is_asked() {
    let settings = |intention_to_treat| ExperimentSettings {
        intention_to_treat,
        ..settings()
    };
    let strays = || {
        let mut subject = Fake::new(Arm::Base);
        subject.collapsed_at = vec![8, 9, 12, 20, 21];
        subject
    };
    let got = experiment(strays(), (1.2, 0.02), &settings(true), unspoilt);
    let result = got.result.unwrap();
    let all = result.intention_to_treat.unwrap();
    assert!(all.astray > 0);
    assert_eq!(all.pairs.len(), result.pairs.len() + all.astray);
    assert_eq!(all.pairs.iter().filter(|p| !p.as_asked).count(), all.astray);
    assert_eq!(all.verdict, Verdict::Faster);
    assert_eq!(result.rejected.len(), all.astray);
    let got = experiment(strays(), (1.2, 0.02), &settings(false), unspoilt);
    assert_eq!(got.result.unwrap().intention_to_treat, None);
}

#[test]
fn what_is_not_as_found_is_said() {
    // Splitting returned a quarter of it.
    let mut subject = Fake::new(Arm::Base);
    subject.loses = true;
    let got = experiment(subject, (1.2, 0.02), &settings(), unspoilt);
    let result = got.result.unwrap();
    let left = result.left.unwrap();
    assert!(!left.as_found);
    assert_eq!(left.resident_before_bytes, Bytes(1 << 30));
    assert_eq!(left.resident_after_bytes, Bytes(3 << 28));
    let says = |c: &String| c.contains("768M resident, compared with 1G before");
    assert!(result.caveats.iter().any(says), "{:?}", result.caveats);
    let got = experiment(Fake::new(Arm::Base), (1.2, 0.02), &settings(), unspoilt);
    let result = got.result.unwrap();
    assert!(result.left.unwrap().as_found);
    assert!(!result.caveats.iter().any(|c| c.contains("resident")));
}

/// 1,000 observations per reading, in the buckets given by the arm's shares.
fn observed(rate: &mut Rate, base: [f64; 4], large: [f64; 4]) {
    rate.kind = ReadingKind::Quantile;
    rate.better = BetterDirection::Lower;
    rate.buckets = Some((base, large));
}

#[test]
fn a_quantile_is_known_to_its_bucket_only() {
    // p50 of both arms is between 0.02 and 0.05, at different places: the true ratio is unknown.
    let got = experiment(Fake::new(Arm::Base), (1.0, 0.0), &settings(), |rate, _| {
        observed(rate, [0.0, 0.1, 0.9, 1.0], [0.0, 0.4, 0.95, 1.0]);
    });
    let result = got.result.unwrap();
    assert_eq!(result.verdict, Verdict::Unclear, "{result:#?}");
    assert_eq!(result.experiment.ending, ExperimentEnd::OneBucket);
    assert_eq!(result.pairs.len(), 8);
    let effect = result.effect.unwrap();
    assert!(
        effect.low <= 0.4 + 1e-9 && effect.high >= 2.5 - 1e-9,
        "{effect:?}"
    );
    let buckets = result.buckets.as_ref().unwrap();
    assert_eq!(buckets.shared, Some([Some(0.02), Some(0.05)]));
    assert_eq!(buckets.instead.as_deref(), Some("http://h/#mean(x)"));
    assert!(result.caveats.iter().any(|c| c.contains("mean(x)")));
    let base = result.samples(Arm::Base).unwrap();
    assert_eq!(base.samples[0].bucket, Some([Some(0.02), Some(0.05)]));
    // Two buckets that do not touch: the arms differ at least by the gap between them.
    let got = experiment(Fake::new(Arm::Base), (1.0, 0.0), &settings(), |rate, _| {
        observed(rate, [0.0, 0.1, 0.2, 1.0], [0.9, 0.9, 0.95, 1.0]);
    });
    let result = got.result.unwrap();
    assert_eq!(result.verdict, Verdict::Faster, "{result:#?}");
    let effect = result.effect.unwrap();
    assert!((effect.high - 0.01 / 0.05).abs() < 1e-9, "{effect:?}");
    assert_eq!(effect.low, 0.0);
    // The last bucket has no end, so no statement is possible.
    let got = experiment(Fake::new(Arm::Base), (1.0, 0.0), &settings(), |rate, _| {
        observed(rate, [0.9, 0.95, 1.0, 1.0], [0.0, 0.0, 0.1, 0.2]);
    });
    let result = got.result.unwrap();
    assert_eq!((result.effect, result.verdict), (None, Verdict::Unclear));
    Results::read(&result.to_json()).unwrap();
}

#[test]
fn a_counter_that_falls_or_stands_still_is_an_error() {
    let stuck = |value: f64| {
        let got = experiment(Fake::new(Arm::Base), (1.2, 0.02), &settings(), |rate, _| {
            rate.instead = Some((7, Ok(Reading::Counter(value))));
        });
        assert_eq!(got.left, Arm::Base);
        match got.result.unwrap_err() {
            ProveError::BadReadings { error, .. } => error,
            other => panic!("{other}"),
        }
    };
    let fell = stuck(-1.0);
    assert!(matches!(fell, MetricError::Fell { .. }), "{fell}");
    let still = stuck(1e12);
    assert!(matches!(still, MetricError::StoodStill { .. }), "{still}");
}

#[test]
fn a_target_that_ends_is_an_error_at_every_move() {
    for at in 1..8 {
        let mut subject = Fake::new(Arm::Base);
        subject.ends_at_move = Some(at);
        let got = experiment(subject, (1.2, 0.02), &settings(), unspoilt);
        let e = got.result.unwrap_err();
        assert_eq!(
            e,
            ProveError::Subject(SubjectError::Ended { pid: Pid(7) }),
            "{at}"
        );
    }
}

#[test]
fn an_interruption_gives_what_there_is_and_puts_memory_back() {
    for at in 2..80 {
        let mut settings = settings();
        settings.rule.fixed_pairs = Some(30);
        let got = experiment(
            Fake::new(Arm::Base),
            (1.2, 0.02),
            &settings,
            |rate, stop| {
                rate.interrupts = Some((at, Arc::clone(stop)));
            },
        );
        let result = got.result.unwrap();
        assert_eq!(got.left, Arm::Base, "{at}");
        assert_eq!(result.experiment.ending, ExperimentEnd::Interrupted);
        assert!(result.caveats.iter().any(|c| c.contains("Interrupted")));
        match result.pairs.len() {
            0..6 => assert_eq!((result.effect, result.verdict), (None, Verdict::Unclear)),
            _ => assert_eq!(result.verdict, Verdict::Faster),
        }
    }
}

#[test]
fn results_come_back_from_their_file() {
    let got = experiment(Fake::new(Arm::Base), (1.2, 0.02), &settings(), unspoilt);
    let result = got.result.unwrap();
    let text = result.to_json();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    for name in [
        "schema",
        "experiment",
        "arms",
        "pairs",
        "effect",
        "verdict",
        "rows",
        "host",
        "settings",
        "command",
    ] {
        assert!(json.get(name).is_some(), "{name}");
    }
    assert_eq!(json["schema"], 2);
    assert_eq!(json["verdict"], "faster");
    assert_eq!(json["pairs"].as_array().unwrap().len(), result.pairs.len());
    let back = Results::read(&text).unwrap();
    let main = back.main().unwrap().name.clone();
    for arm in [Arm::Base, Arm::Large] {
        let row = back.row(arm.name(), &[], &main).unwrap();
        assert_eq!(row, result.samples(arm).unwrap());
    }
}

/// A stop ends a reading that waits for its server.
#[test]
fn a_stop_ends_a_reading_that_hangs() {
    for readings in 0..4 {
        let got = experiment(
            Fake::new(Arm::Large),
            (1.1, 0.01),
            &settings(),
            |rate, stop| rate.hangs = Some((readings, Arc::clone(stop))),
        );
        let result = got.result.unwrap();
        assert_eq!(result.experiment.ending, ExperimentEnd::Interrupted);
        assert_eq!(got.left, Arm::Large, "as it was found");
    }
}

#[test]
fn an_experiment_ends_at_most_then() {
    let settings = ExperimentSettings {
        at_most: Some(Duration::from_secs(30)),
        rule: hugeleaf_proof::StoppingRule {
            fixed_pairs: Some(100),
            ..hugeleaf_proof::StoppingRule::default()
        },
        ..settings()
    };
    let got = experiment(Fake::new(Arm::Large), (1.1, 0.01), &settings, unspoilt);
    let result = got.result.unwrap();
    assert_eq!(result.experiment.ending, ExperimentEnd::Interrupted);
    assert!((1..8).contains(&result.pairs.len()));
    assert_eq!(got.left, Arm::Large, "as it was found");
}

#[test]
fn what_cannot_be_measured_is_refused_before_it_moves() {
    let before_after = ExperimentSettings {
        before_after: true,
        ..settings()
    };
    let got = experiment(Fake::new(Arm::Large), (1.1, 0.01), &before_after, unspoilt);
    let error = got.result.unwrap_err().to_string();
    assert!(error.contains("already on huge pages"), "{error}");
    assert!(got.moves.is_empty());
}

#[test]
fn no_difference_says_how_memory_was_left() {
    for (loses, says) in [
        (
            false,
            "nothing to compare; its memory is as it was found, 1G on huge pages",
        ),
        (
            true,
            "left with 768M on huge pages, 1G before: restoring it had no effect",
        ),
    ] {
        let subject = Fake {
            stays: true,
            loses,
            ..Fake::new(Arm::Base)
        };
        let got = experiment(subject, (1.1, 0.01), &settings(), unspoilt);
        let error = got.result.unwrap_err();
        assert!(matches!(error, ProveError::NoDifference { .. }), "{error}");
        assert!(error.to_string().ends_with(says), "{error}");
    }
}
