//! How good the stopping rule and the interval are: experiments on recorded noise.
//!
//! A recording is the rate of some load, sampled at fixed intervals while nothing was changed. An
//! experiment is played on it as the engine would do it on a server: a block of consecutive
//! samples from a random start, pairs in an order drawn at random, time lost at every change of
//! page size, the same [`Rule`], the same [`stats::judge`]. The samples that fall to large pages
//! are multiplied by the effect to be injected. So what is true is known, and what the experiment
//! says of it can be counted.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::rule::{MIN_PAIRS, Rule};
use crate::stats::{self, Better, LogInterval, Verdict};

/// A recording of a load that nothing was done to. The file format of `record_noise`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// What machine, in words.
    pub host: String,
    /// Its kernel.
    pub kernel: String,
    /// What was running and how it was read.
    pub command: String,
    /// Length of one sample.
    pub interval_seconds: f64,
    /// The rates, in the order they were taken; all above 0.
    pub samples: Vec<f64>,
}

/// A recording that no experiment can be played on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoiseError {
    /// Not the JSON of a recording.
    #[error("not a recording: {0}")]
    Malformed(String),
    /// A sample that is no rate.
    #[error("sample {index} is {value}: a rate is above 0")]
    NotARate {
        /// Which, from 0.
        index: usize,
        /// What it is.
        value: f64,
    },
    /// Too little of it.
    #[error("{samples} samples of {interval_seconds} s are too few; record at least 20")]
    TooShort {
        /// How many there are.
        samples: usize,
        /// Their length.
        interval_seconds: f64,
    },
}

impl Noise {
    /// Reads a recording.
    ///
    /// # Errors
    /// See [`NoiseError`].
    pub fn parse(text: &str) -> Result<Noise, NoiseError> {
        let noise: Noise =
            serde_json::from_str(text).map_err(|e| NoiseError::Malformed(e.to_string()))?;
        if let Some((index, &value)) =
            (noise.samples.iter().enumerate()).find(|(_, v)| !(v.is_finite() && **v > 0.0))
        {
            return Err(NoiseError::NotARate { index, value });
        }
        if noise.samples.len() < 20
            || noise.interval_seconds.is_nan()
            || noise.interval_seconds <= 0.0
        {
            return Err(NoiseError::TooShort {
                samples: noise.samples.len(),
                interval_seconds: noise.interval_seconds,
            });
        }
        Ok(noise)
    }
}

/// How experiments are played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Play {
    /// Length of one interval of an arm; whole samples of the recording.
    pub interval_seconds: f64,
    /// Time lost at each change of page size.
    pub transition_seconds: f64,
    /// When time is over.
    pub for_seconds: f64,
    /// When enough was seen.
    pub rule: Rule,
    /// What counts as equal, a log ratio.
    pub equal: f64,
}

impl Default for Play {
    fn default() -> Play {
        Play {
            interval_seconds: 2.0,
            transition_seconds: 1.0,
            for_seconds: 180.0,
            rule: Rule::default(),
            equal: 1.02f64.ln(),
        }
    }
}

/// What one experiment said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Played {
    /// Its verdict.
    pub verdict: Verdict,
    /// Its interval.
    pub interval: Option<LogInterval>,
    /// Its pairs.
    pub pairs: usize,
}

/// A place in a recording; past its end it goes on at another place drawn at random.
struct Tape<'a> {
    noise: &'a Noise,
    at: usize,
}

impl Tape<'_> {
    fn next(&mut self, rng: &mut Rng) -> f64 {
        if self.at >= self.noise.samples.len() {
            self.at = rng.usize(..self.noise.samples.len());
        }
        self.at += 1;
        self.noise.samples[self.at - 1]
    }

    /// How many samples a time is.
    fn samples(&self, seconds: f64) -> usize {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let n = (seconds / self.noise.interval_seconds).round().max(0.0) as usize;
        n
    }
}

/// Plays one experiment in which large pages multiply the rate by `effect` (1.0 for A/A).
pub fn play(noise: &Noise, effect: f64, play: &Play, rng: &mut Rng) -> Played {
    let mut tape = Tape { noise, at: 0 };
    let whole = tape.samples(play.for_seconds);
    let starts = noise.samples.len().saturating_sub(whole).max(1);
    tape.at = rng.usize(..starts);
    let (interval, transition) = (
        tape.samples(play.interval_seconds).max(1),
        tape.samples(play.transition_seconds),
    );
    let mut logs = Vec::new();
    let (mut used, mut on_large) = (0, false);
    // As the engine has it: time ends nothing before the fewest pairs are there.
    while used < whole || logs.len() < MIN_PAIRS || play.rule.fixed_pairs.is_some() {
        let large_first = rng.bool();
        let mut rates = [0.0; 2];
        for large in [large_first, !large_first] {
            if large != on_large {
                (0..transition).for_each(|_| {
                    tape.next(rng);
                });
                used += transition;
                on_large = large;
            }
            let sum: f64 = (0..interval).map(|_| tape.next(rng)).sum();
            used += interval;
            rates[usize::from(large)] = sum * if large { effect } else { 1.0 };
        }
        logs.extend(stats::log_ratio(rates[0], rates[1]));
        if play.rule.enough(&logs) {
            break;
        }
    }
    let interval = play.rule.interval(&logs);
    Played {
        verdict: interval.map_or(Verdict::Unclear, |i| {
            stats::judge(&i, play.equal, Better::Higher)
        }),
        interval,
        pairs: logs.len(),
    }
}

/// What many experiments said, as shares of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The injected effect as a ratio.
    pub effect: f64,
    /// How many experiments.
    pub experiments: usize,
    /// Said `faster`.
    pub faster: f64,
    /// Said `slower`.
    pub slower: f64,
    /// Said `same`.
    pub same: f64,
    /// Intervals that hold the injected effect.
    pub covered: f64,
    /// Pairs, on average.
    pub pairs: f64,
    /// Half width of the interval, on average, as a log ratio.
    pub half_width: f64,
}

/// Plays `experiments` of them, each on one of `noises` in turn.
#[allow(clippy::cast_precision_loss)]
pub fn play_many(
    noises: &[Noise],
    effect: f64,
    settings: &Play,
    experiments: usize,
    rng: &mut Rng,
) -> Summary {
    let played: Vec<Played> = (0..experiments)
        .map(|i| play(&noises[i % noises.len()], effect, settings, rng))
        .collect();
    let all = experiments.max(1) as f64;
    let share = |f: &dyn Fn(&Played) -> bool| played.iter().filter(|p| f(p)).count() as f64 / all;
    let intervals: Vec<LogInterval> = played.iter().filter_map(|p| p.interval).collect();
    Summary {
        effect,
        experiments,
        faster: share(&|p| p.verdict == Verdict::Faster),
        slower: share(&|p| p.verdict == Verdict::Slower),
        same: share(&|p| p.verdict == Verdict::Same),
        covered: share(&|p| p.interval.is_some_and(|i| i.covers(effect.ln()))),
        pairs: stats::mean(&played.iter().map(|p| p.pairs as f64).collect::<Vec<_>>()),
        half_width: stats::mean(
            &intervals
                .iter()
                .map(LogInterval::half_width)
                .collect::<Vec<_>>(),
        ),
    }
}

/// The fewest pairs, fixed beforehand, with which an effect is called in at least `power` of the
/// experiments; looks no further than `most` pairs and answers `None` beyond.
pub fn pairs_needed(
    noises: &[Noise],
    effect: f64,
    settings: &Play,
    power: f64,
    most: usize,
    experiments: usize,
    rng: &mut Rng,
) -> Option<usize> {
    let mut called = |pairs: usize| {
        let mut settings = *settings;
        settings.rule.fixed_pairs = Some(pairs);
        // An effect within the band of equality is found too, even though it is called `same`.
        settings.equal = 0.0;
        play_many(noises, effect, &settings, experiments, rng).faster >= power
    };
    if !called(most) {
        return None;
    }
    let (mut low, mut high) = (MIN_PAIRS - 1, most);
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if called(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(rng: &mut Rng) -> f64 {
        let (u, v) = (1.0 - rng.f64(), rng.f64());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Noise as it was met: a slow drift, spikes, and a sample's own scatter. For tests only;
    /// claims are made from recordings.
    fn synthetic(scatter: f64, drift: f64, seed: u64) -> Noise {
        let mut rng = Rng::with_seed(seed);
        let mut level = 0.0;
        let samples = (0..2000)
            .map(|_| {
                level = 0.98 * level + drift * normal(&mut rng);
                let spike = if rng.f64() < 0.02 { -0.5 } else { 0.0 };
                (level + scatter * normal(&mut rng) + spike).exp() * 1000.0
            })
            .collect();
        Noise {
            host: "none".into(),
            kernel: "none".into(),
            command: "synthetic".into(),
            interval_seconds: 2.0,
            samples,
        }
    }

    #[test]
    fn keeps_its_promises_on_synthetic_noise() {
        // Scatter at which the default rule stops at once, now and then, and never.
        for (scatter, drift) in [(0.01, 0.005), (0.03, 0.01), (0.04, 0.02), (0.08, 0.02)] {
            let noises = [synthetic(scatter, drift, 1), synthetic(scatter, drift, 2)];
            let mut rng = Rng::with_seed(7);
            let null = play_many(&noises, 1.0, &Play::default(), 2000, &mut rng);
            // 6 % promised; 2,000 experiments scatter by half a percent.
            assert!(null.faster + null.slower <= 0.06, "{scatter}: {null:?}");
            let five = play_many(&noises, 1.05, &Play::default(), 2000, &mut rng);
            assert!(five.covered >= 0.94, "{scatter}: {five:?}");
            let ten = play_many(&noises, 1.10, &Play::default(), 500, &mut rng);
            assert!(ten.faster >= 0.80, "{scatter}: {ten:?}");
        }
    }

    #[test]
    fn a_rule_that_forgets_to_pay_for_looking_is_found_out() {
        // The simulator must be able to fail: stop at the first interval that excludes 0.
        let noises = [synthetic(0.06, 0.01, 3)];
        let mut rng = Rng::with_seed(1);
        let mut wrong = 0;
        for _ in 0..500 {
            let settings = |pairs| {
                let mut s = Play::default();
                s.rule.fixed_pairs = Some(pairs);
                s
            };
            let seed = rng.u64(..);
            wrong += usize::from((8..40).any(|pairs| {
                let mut same_draws = Rng::with_seed(seed);
                let p = play(&noises[0], 1.0, &settings(pairs), &mut same_draws);
                p.interval.is_some_and(|i| !i.covers(0.0))
            }));
        }
        assert!(wrong > 50, "{wrong} of 500");
    }

    #[test]
    fn fewer_pairs_find_larger_effects() {
        let noises = [synthetic(0.05, 0.01, 5)];
        let mut rng = Rng::with_seed(2);
        let mut need = |e| pairs_needed(&noises, e, &Play::default(), 0.8, 400, 300, &mut rng);
        let (five, twenty) = (need(1.05).unwrap(), need(1.20).unwrap());
        assert!(five > twenty, "{five} {twenty}");
    }

    #[test]
    fn recordings_are_checked() {
        let good = synthetic(0.05, 0.01, 5);
        let text = serde_json::to_string(&good).unwrap();
        assert_eq!(Noise::parse(&text).unwrap().samples.len(), 2000);
        let mut bad = good.clone();
        bad.samples[3] = 0.0;
        let e = Noise::parse(&serde_json::to_string(&bad).unwrap()).unwrap_err();
        assert_eq!(
            e,
            NoiseError::NotARate {
                index: 3,
                value: 0.0
            }
        );
        bad.samples.truncate(3);
        assert!(matches!(Noise::parse("{"), Err(NoiseError::Malformed(_))));
        let short = Noise {
            samples: vec![1.0; 3],
            ..good
        };
        let e = Noise::parse(&serde_json::to_string(&short).unwrap()).unwrap_err();
        assert!(matches!(e, NoiseError::TooShort { samples: 3, .. }));
    }
}
