//! State of a process tree, and the reason why it is not promoted.

use std::time::Duration;

use hugeleaf_proof::Verdict;
use hugeleaf_units::{Bytes, time::age as whole};
use serde::{Deserialize, Serialize};

use crate::config::DailyWindow;
use hugeleaf_units::Share;

#[derive(Debug, Clone, PartialEq)]
pub enum SkipReason {
    Own,
    Init,
    Never,
    Small(Bytes, Bytes),
    /// Its base-page memory, and the misaligned part of it.
    Misaligned(Bytes, Bytes),
    Young(Duration, Duration),
    Idle(f64, Share),
    /// Not yet eligible in enough consecutive scans.
    Scans(u32, u32),
    Unreadable(String),
    /// The process or its unit disabled THP by prctl.
    Disabled,
    Hours(Vec<DailyWindow>),
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

impl SkipReason {
    pub const fn id(&self) -> &'static str {
        match self {
            SkipReason::Own => "own",
            SkipReason::Init => "init",
            SkipReason::Never => "rule-says-never",
            SkipReason::Small(..) => "too-small",
            SkipReason::Misaligned(..) => "misaligned",
            SkipReason::Young(..) => "too-young",
            SkipReason::Idle(..) => "too-idle",
            SkipReason::Scans(..) => "not-long-enough",
            SkipReason::Unreadable(_) => "unreadable",
            SkipReason::Disabled => "thp-disabled",
            SkipReason::Hours(_) => "time-of-day",
            SkipReason::Saving => "saving",
            SkipReason::CgroupLimit(_) => "cgroup-limit",
            SkipReason::MemoryPressure(_) => "memory-pressure",
            SkipReason::LowMemory => "low-memory",
            SkipReason::CpuPressure(_) => "cpu-pressure",
            SkipReason::Fragmented(_) => "fragmented",
            SkipReason::BackOff(_) => "backing-off",
            SkipReason::Full => "others-first",
            SkipReason::TestElsewhere => "test-goes-on",
            SkipReason::Paused => "paused",
            SkipReason::Slower { .. } => "no-gain",
            SkipReason::Unable(_) => "host-cannot",
        }
    }
}

/// Formats a time in one unit: `45 s`, `12 min`, `3 h`.
fn time(time: &Duration) -> String {
    let (number, unit) = whole(time.as_secs());
    format!("{number} {unit}")
}

fn misaligned_text(base: Bytes, misaligned: Bytes) -> String {
    format!(
        "{misaligned} of {base} on base pages is misaligned shared memory, which only a restart can \
         place better (hugeleaf why names the setting)"
    )
}

impl SkipReason {
    pub(crate) fn text(&self) -> String {
        let percent = |part: &f64| (part * 100.0).round();
        let text = match self {
            SkipReason::Own => "the guard's own process",
            SkipReason::Init => "the first process of this host",
            SkipReason::Never => "excluded by its rule (action = \"never\")",
            SkipReason::Disabled => {
                "the process or its unit disabled THP (prctl, MemoryTHP=); a rule with \
                 override = true overrides that"
            }
            SkipReason::Saving => {
                "a process forked from it saves its data: promotion would copy memory that the \
                 two share"
            }
            SkipReason::LowMemory => "less memory is available than must stay free",
            SkipReason::Full => "others are promoted first",
            SkipReason::TestElsewhere => "a test is running, and promotion would disturb it",
            SkipReason::Paused => "paused: hugeleaf guard resume",
            SkipReason::Unable(why) => why,
            SkipReason::Small(has, least) => {
                return format!("{has} on base pages; the rule requires {least}");
            }
            SkipReason::Misaligned(base, part) => return misaligned_text(*base, *part),
            SkipReason::Young(age, least) => {
                let (age, least) = (time(age), time(least));
                return format!("has run for {age}; the rule requires {least}");
            }
            SkipReason::Idle(cpu, least) => {
                let cpu = percent(cpu);
                return format!("uses {cpu} % of a processor; the rule requires {least}");
            }
            SkipReason::Scans(scans, least) => {
                return format!("eligible in {scans} of {least} consecutive scans");
            }
            SkipReason::Unreadable(error) => return format!("cannot be read: {error}"),
            SkipReason::Hours(hours) => {
                let hours: Vec<String> = hours.iter().map(DailyWindow::to_string).collect();
                return format!("the rule allows promotion at {}", hours.join(", "));
            }
            SkipReason::CgroupLimit(room) => {
                return format!("its cgroup's memory limit leaves {room}");
            }
            SkipReason::MemoryPressure(part) => {
                return format!("tasks stall for memory {} % of the time", percent(part));
            }
            SkipReason::CpuPressure(part) => {
                return format!(
                    "tasks wait for a processor {} % of the time; promotion starts within a \
                     minute, with a quarter of its budget",
                    percent(part)
                );
            }
            SkipReason::Fragmented(left) => {
                return format!("no contiguous memory found; next try in {}", time(left));
            }
            SkipReason::BackOff(left) => {
                return format!("last attempt promoted nothing; next try in {}", time(left));
            }
            SkipReason::Slower {
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
    /// Reason why it is not promoted, by `SkipReason::id`; empty if it is.
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

    pub(crate) fn not(why: &SkipReason, rule: &str) -> TreeStatus {
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
