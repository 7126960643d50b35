//! Where a program stands: moved, about to be, or not, and why not.

use std::fmt;
use std::time::Duration;

use hugeleaf_proof::Verdict;
use hugeleaf_units::{Bytes, time::age as whole};
use serde::{Deserialize, Serialize};

use crate::config::{Hours, Share};

/// Why a program is not moved now.
#[derive(Debug, Clone, PartialEq)]
pub enum WhyNot {
    /// It is the guard.
    Own,
    /// It is the first process of the host.
    Init,
    /// A rule says so.
    Never,
    /// It holds too little on small pages.
    Small(Bytes, Bytes),
    /// It runs for too short a time.
    Young(Duration, Duration),
    /// It uses too little of a processor.
    Idle(f64, Share),
    /// It was not fit for long enough.
    Looks(u32, u32),
    /// Its memory could not be looked at.
    Unreadable(String),
    /// It asked for small pages by prctl, or its unit did.
    Disabled,
    /// It is not the time of day.
    Hours(Vec<Hours>),
    /// It saves itself by a fork.
    Saving,
    /// Its cgroup is at its memory limit.
    CgroupLimit(Bytes),
    /// Tasks stall for memory.
    MemoryPressure(f64),
    /// Less memory is available than is to stay.
    LowMemory,
    /// Tasks wait for processors.
    CpuPressure(f64),
    /// Memory is fragmented.
    Fragmented(Duration),
    /// Earlier attempts got nothing.
    BackOff(Duration),
    /// Other programs are moved.
    Full,
    /// A test goes on.
    TestElsewhere,
    /// A person said so.
    Paused,
    /// A test said `slower`, or not `faster`.
    Slower {
        /// In a word.
        verdict: Verdict,
        /// Large over base.
        ratio: f64,
    },
    /// This host cannot.
    Unable(String),
}

impl WhyNot {
    /// A name for JSON and metrics.
    pub const fn id(&self) -> &'static str {
        match self {
            WhyNot::Own => "own",
            WhyNot::Init => "init",
            WhyNot::Never => "rule-says-never",
            WhyNot::Small(..) => "too-small",
            WhyNot::Young(..) => "too-young",
            WhyNot::Idle(..) => "too-idle",
            WhyNot::Looks(..) => "not-long-enough",
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

/// A time as people write it: `45 s`, `12 min`, `3 h`.
fn time(time: &Duration) -> String {
    let (number, unit) = whole(time.as_secs());
    format!("{number} {unit}")
}

/// In a sentence.
impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: f64| (part * 100.0).round();
        match self {
            WhyNot::Own => f.write_str("it is the guard itself"),
            WhyNot::Init => f.write_str("it is the first process of this host"),
            WhyNot::Never => f.write_str("its rule says never"),
            WhyNot::Small(has, least) => {
                write!(f, "{has} on small pages; the rule begins at {least}")
            }
            WhyNot::Young(age, least) => {
                write!(
                    f,
                    "runs for {}; the rule begins at {}",
                    time(age),
                    time(least)
                )
            }
            WhyNot::Idle(cpu, least) => write!(
                f,
                "uses {} % of a processor; the rule begins at {least}",
                percent(*cpu)
            ),
            WhyNot::Looks(looks, least) => {
                write!(f, "fit at {looks} of {least} looks in a row")
            }
            WhyNot::Unreadable(error) => write!(f, "cannot be looked at: {error}"),
            WhyNot::Disabled => f.write_str(
                "switched THP off for itself, or its unit did (prctl, MemoryTHP=); a rule with \
                 override = true goes over that",
            ),
            WhyNot::Hours(hours) => {
                let hours: Vec<String> = hours.iter().map(Hours::to_string).collect();
                write!(f, "the rule moves it at {}", hours.join(", "))
            }
            WhyNot::Saving => f.write_str(
                "a process forked from it writes its memory out: moving \
                 would copy what the two share",
            ),
            WhyNot::CgroupLimit(room) => {
                write!(f, "its cgroup's memory limit leaves {room}")
            }
            WhyNot::MemoryPressure(part) => {
                write!(f, "tasks stall for memory {} % of the time", percent(*part))
            }
            WhyNot::LowMemory => f.write_str("less memory is available than is to stay"),
            WhyNot::CpuPressure(part) => write!(
                f,
                "tasks wait for a processor {} % of the time; it is moved slowly in a minute at \
                 the latest",
                percent(*part)
            ),
            WhyNot::Fragmented(left) => {
                write!(f, "no contiguous memory was found; again in {}", time(left))
            }
            WhyNot::BackOff(left) => {
                write!(f, "the last attempt got nothing; again in {}", time(left))
            }
            WhyNot::Full => f.write_str("others are moved first"),
            WhyNot::TestElsewhere => f.write_str("a test goes on, which a move would disturb"),
            WhyNot::Paused => f.write_str("paused: hugeleaf guard resume"),
            WhyNot::Slower { verdict, ratio } => {
                write!(f, "a test said {verdict} on large pages, ×{ratio:.3}")
            }
            WhyNot::Unable(why) => f.write_str(why),
        }
    }
}

/// Where a program stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// In a word: `moved`, `moving`, `testing`, `large`, `next`, `would`, `no`.
    pub state: Stand,
    /// Why it is not moved: [`WhyNot::id`]; empty where it is.
    pub reason: String,
    /// In a sentence.
    pub text: String,
    /// Its rule.
    pub rule: String,
}

/// Where a program stands, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stand {
    /// It is being moved to huge pages.
    Moving,
    /// It is being moved back.
    Reverting,
    /// It is tested.
    Testing,
    /// It will be moved.
    Next,
    /// It would be moved if its rule let it.
    Would,
    /// It was moved, and is kept there.
    Kept,
    /// It has next to nothing on small pages.
    Large,
    /// It is not moved.
    No,
}

impl Stand {
    /// All of them, in the order of lists.
    pub const ALL: [Stand; 8] = [
        Stand::Moving,
        Stand::Reverting,
        Stand::Testing,
        Stand::Next,
        Stand::Would,
        Stand::Kept,
        Stand::Large,
        Stand::No,
    ];

    /// Its name on screens and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Stand::Moving => "moving",
            Stand::Reverting => "reverting",
            Stand::Testing => "testing",
            Stand::Next => "next",
            Stand::Would => "would",
            Stand::Kept => "kept",
            Stand::Large => "large",
            Stand::No => "no",
        }
    }
}
