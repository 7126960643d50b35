//! State of a process tree, and the reason why it is not promoted.

use std::time::Duration;

use hugeleaf_proof::Verdict;
use hugeleaf_units::{Bytes, time::age as whole};
use serde::{Deserialize, Serialize};

use crate::config::Hours;
use hugeleaf_units::Share;

#[derive(Debug, Clone, PartialEq)]
pub enum WhyNot {
    Own,
    Init,
    Never,
    Small(Bytes, Bytes),
    Young(Duration, Duration),
    Idle(f64, Share),
    /// Not yet eligible in enough consecutive scans.
    Scans(u32, u32),
    Unreadable(String),
    /// The process or its unit disabled THP by prctl.
    Disabled,
    Hours(Vec<Hours>),
    Saving,
    CgroupLimit(Bytes),
    MemoryPressure(f64),
    LowMemory,
    CpuPressure(f64),
    Fragmented(Duration),
    BackOff(Duration),
    Full,
    TestElsewhere,
    Paused,
    /// Tests gave the verdict `slower`, or not `faster`.
    Slower {
        verdict: Verdict,
        ratio: f64,
        /// Time until the next attempt.
        again: Duration,
    },
    Unable(String),
}

impl WhyNot {
    pub const fn id(&self) -> &'static str {
        match self {
            WhyNot::Own => "own",
            WhyNot::Init => "init",
            WhyNot::Never => "rule-says-never",
            WhyNot::Small(..) => "too-small",
            WhyNot::Young(..) => "too-young",
            WhyNot::Idle(..) => "too-idle",
            WhyNot::Scans(..) => "not-long-enough",
            WhyNot::Unreadable(_) => "unreadable",
            WhyNot::Disabled => "thp-disabled",
            WhyNot::Hours(_) => "time-of-day",
            WhyNot::Saving => "saving",
            WhyNot::CgroupLimit(_) => "cgroup-limit",
            WhyNot::MemoryPressure(_) => "memory-pressure",
            WhyNot::LowMemory => "low-memory",
            WhyNot::CpuPressure(_) => "cpu-pressure",
            WhyNot::Fragmented(_) => "fragmented",
            WhyNot::BackOff(_) => "backing-off",
            WhyNot::Full => "others-first",
            WhyNot::TestElsewhere => "test-goes-on",
            WhyNot::Paused => "paused",
            WhyNot::Slower { .. } => "no-gain",
            WhyNot::Unable(_) => "host-cannot",
        }
    }
}

/// Formats a time in one unit: `45 s`, `12 min`, `3 h`.
fn time(time: &Duration) -> String {
    let (number, unit) = whole(time.as_secs());
    format!("{number} {unit}")
}

impl WhyNot {
    pub(crate) fn text(&self) -> String {
        let percent = |part: &f64| (part * 100.0).round();
        let text = match self {
            WhyNot::Own => "the guard's own process",
            WhyNot::Init => "the first process of this host",
            WhyNot::Never => "excluded by its rule (action = \"never\")",
            WhyNot::Disabled => {
                "the process or its unit disabled THP (prctl, MemoryTHP=); a rule with \
                 override = true overrides that"
            }
            WhyNot::Saving => {
                "a process forked from it saves its data: promotion would copy memory that the \
                 two share"
            }
            WhyNot::LowMemory => "less memory is available than must stay free",
            WhyNot::Full => "others are promoted first",
            WhyNot::TestElsewhere => "a test is running, and promotion would disturb it",
            WhyNot::Paused => "paused: hugeleaf guard resume",
            WhyNot::Unable(why) => why,
            WhyNot::Small(has, least) => {
                return format!("{has} on base pages; the rule requires {least}");
            }
            WhyNot::Young(age, least) => {
                let (age, least) = (time(age), time(least));
                return format!("has run for {age}; the rule requires {least}");
            }
            WhyNot::Idle(cpu, least) => {
                let cpu = percent(cpu);
                return format!("uses {cpu} % of a processor; the rule requires {least}");
            }
            WhyNot::Scans(scans, least) => {
                return format!("eligible in {scans} of {least} consecutive scans");
            }
            WhyNot::Unreadable(error) => return format!("cannot be read: {error}"),
            WhyNot::Hours(hours) => {
                let hours: Vec<String> = hours.iter().map(Hours::to_string).collect();
                return format!("the rule allows promotion at {}", hours.join(", "));
            }
            WhyNot::CgroupLimit(room) => return format!("its cgroup's memory limit leaves {room}"),
            WhyNot::MemoryPressure(part) => {
                return format!("tasks stall for memory {} % of the time", percent(part));
            }
            WhyNot::CpuPressure(part) => {
                return format!(
                    "tasks wait for a processor {} % of the time; promotion starts within a \
                     minute, with a quarter of its budget",
                    percent(part)
                );
            }
            WhyNot::Fragmented(left) => {
                return format!("no contiguous memory found; next try in {}", time(left));
            }
            WhyNot::BackOff(left) => {
                return format!("last attempt promoted nothing; next try in {}", time(left));
            }
            WhyNot::Slower {
                verdict,
                ratio,
                again,
            } => {
                let days = again.as_secs().div_ceil(24 * 3600);
                let plural = if days == 1 { "" } else { "s" };
                return format!(
                    "test result: {verdict}, ×{ratio:.3}; next try in {days} day{plural}"
                );
            }
        };
        text.to_owned()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TreeStatus {
    /// Earlier builds wrote other names, which are still read.
    pub state: TreeState,
    /// Reason why it is not promoted, by `WhyNot::id`; empty if it is.
    pub reason: String,
    pub text: String,
    pub rule: String,
}

impl TreeStatus {
    pub(crate) fn new(state: TreeState, text: impl Into<String>, rule: &str) -> TreeStatus {
        TreeStatus {
            state,
            reason: String::new(),
            text: text.into(),
            rule: rule.to_owned(),
        }
    }

    pub(crate) fn not(why: &WhyNot, rule: &str) -> TreeStatus {
        TreeStatus {
            reason: why.id().to_owned(),
            ..TreeStatus::new(TreeState::Skipped, why.text(), rule)
        }
    }
}

hugeleaf_units::named! {
    #[derive(Deserialize)]
    pub enum TreeState {
        #[serde(alias = "moving")]
        Promoting = "promoting",
        Reverting = "reverting",
        Testing = "testing",
        #[serde(alias = "next")]
        Queued = "queued",
        /// It would be promoted if its rule allowed it.
        #[serde(alias = "would")]
        Candidate = "candidate",
        #[serde(alias = "kept")]
        Managed = "managed",
        /// Almost none of its memory is on base pages.
        #[serde(alias = "large")]
        AlreadyHuge = "already huge",
        #[serde(alias = "no")]
        Skipped = "skipped",
    }
}
