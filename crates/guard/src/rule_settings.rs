//! Limits of a rule, and the syntax of its values.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hugeleaf_mover::{Percent, StallLimits};
use hugeleaf_units::deserialize::{checked, time};
use hugeleaf_units::{Bytes, Share, parse_time};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    Promote,
    #[default]
    Watch,
    Never,
}

/// Condition for keeping promoted memory after a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeepCondition {
    /// Only if the verdict is `faster`.
    IfFaster,
    /// Unless the verdict is `slower`.
    #[default]
    UnlessSlower,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TestSettings {
    /// Number of pairs per test; at least 8.
    #[serde(deserialize_with = "pairs")]
    pub pairs: usize,
    #[serde(deserialize_with = "time")]
    pub every: Duration,
    /// Time over which the pairs of one test are spread, four at a time.
    #[serde(deserialize_with = "any_time")]
    pub over: Duration,
    /// Length of an interval; a metric may need a longer one.
    #[serde(deserialize_with = "time")]
    pub interval: Duration,
    /// Time for which each arm is held before a demotion, at least four intervals; zero skips the hold.
    #[serde(deserialize_with = "any_time")]
    pub hold: Duration,
}

impl Default for TestSettings {
    /// Twelve pairs of five seconds over six hours, once a week; arms held for 40 s, as in `prove`.
    fn default() -> TestSettings {
        const HOUR: Duration = Duration::from_secs(3600);
        TestSettings {
            pairs: 12,
            every: HOUR * 24 * 7,
            over: HOUR * 6,
            interval: Duration::from_secs(5),
            hold: Duration::from_secs(40),
        }
    }
}

/// Conditions for promoting a process tree, and limits of the promotion.
#[derive(Debug, Clone, PartialEq)]
pub struct PromotionLimits {
    pub pace: StallLimits,
    pub min_age: Duration,
    /// Minimum processor usage, in processors.
    pub min_cpu: Share,
    /// Minimum memory on pages smaller than a huge page.
    pub min_bytes: Bytes,
    /// Minimum resident part of a block for its promotion; below 100% memory grows.
    pub min_resident: Percent,
    /// Number of consecutive scans that must find these conditions met.
    pub scans: u32,
    pub at_once: u32,
    /// Times of promotion, in local time; empty for always.
    pub hours: Vec<DailyWindow>,
}

impl Default for PromotionLimits {
    /// The limits of AIX's Active System Optimizer, and a tenth of a process's time.
    fn default() -> PromotionLimits {
        PromotionLimits {
            pace: StallLimits::default(),
            min_age: Duration::from_secs(30),
            min_cpu: Share(0.1),
            min_bytes: Bytes::from_mib(256),
            min_resident: Percent::ALL,
            scans: 4,
            at_once: 1,
            hours: Vec::new(),
        }
    }
}

/// A part of the day, from one minute to another, which may be past midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DailyWindow {
    pub(crate) from: u16,
    pub(crate) to: u16,
}

impl DailyWindow {
    pub const fn has(self, minute: u16) -> bool {
        match self.from <= self.to {
            true => self.from <= minute && minute < self.to,
            false => self.from <= minute || minute < self.to,
        }
    }
}

impl fmt::Display for DailyWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DailyWindow { from, to } = self;
        write!(
            f,
            "{:02}:{:02}-{:02}:{:02}",
            from / 60,
            from % 60,
            to / 60,
            to % 60
        )
    }
}

impl FromStr for DailyWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<DailyWindow, String> {
        let bad = || format!("'{text}' is not a time range, as in 22:00-06:00");
        let minute = |text: &str| -> Option<u16> {
            let (hour, minute) = text.trim().split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour * 60 + minute <= 24 * 60 && minute < 60).then_some(hour * 60 + minute)
        };
        let (from, to) = text.split_once('-').ok_or_else(bad)?;
        let hours = DailyWindow {
            from: minute(from).ok_or_else(bad)?,
            to: minute(to).ok_or_else(bad)?,
        };
        if hours.from == hours.to {
            return Err(format!(
                "'{text}' is an empty time range: its start is its end"
            ));
        }
        Ok(hours)
    }
}

fn pairs<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let number = i64::deserialize(from)?;
    let least = hugeleaf_proof::stopping_rule::MIN_PAIRS;
    match usize::try_from(number)
        .ok()
        .filter(|n| (least..=1000).contains(n))
    {
        Some(number) => Ok(number),
        None => Err(D::Error::custom(format!(
            "{number} pairs: the number must be from {least} to 1000"
        ))),
    }
}

/// Parses a time that may be zero.
pub(crate) fn any_time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    checked(from, |text| match text.trim() {
        "0" | "0s" => Ok(Duration::ZERO),
        text => parse_time(text),
    })
}
