//! Verifies that every service has its huge pages, will have them after its next restart, and that files, kernel
//! and plan agree. Pure: facts in, a report out.
//!
//! A rule is a function from [`VerifyFacts`] and the rows of the services to findings. Each rule has a test with a host
//! that has the finding. A healthy host has none.

mod demand;
mod drift;
mod evaluate_rules;
mod service_limits;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use hugeleaf_host::demand::{Service, ServiceKind};
use hugeleaf_host::system::settings_files::SettingsFiles;
use hugeleaf_host::{Fact, Host, Pid};
use hugeleaf_units::{Bytes, PageSize, Pages};
use serde::{Serialize, Serializer};

use crate::{PageCount, Plan};
use hugeleaf_verdict::findings::{Finding, Severity};

pub use demand::slack;
pub use evaluate_rules::verify;

use hugeleaf_verdict::advice::{PLAN, SettingRequirement};

#[derive(Debug, Clone, Copy)]
pub struct VerifyFacts<'a> {
    pub host: &'a Host,
    pub services: &'a [Service],
    /// Facts that could not be read, with the reason; one sentence each.
    pub unread: &'a [String],
    /// Applied plans that are not undone, newest first.
    pub applied: &'a [AppliedPlan],
    pub settings: &'a SettingsFiles,
    /// Boot time in seconds since 1970. The kernel log counts from then.
    pub booted: Option<u64>,
    /// Start of the relevant kernel log, in seconds since 1970. Older lines are ignored.
    pub log_since: Option<u64>,
    pub given: &'a [ReleasedPages],
    /// Settings of the host that running programs want.
    pub wants: &'a [SettingRequirement],
}

/// Pool pages that the guard gave back while memory was short and will reclaim. The pool is not short of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleasedPages {
    pub page: PageSize,
    /// The NUMA node; `None` if the host has only totals of all nodes.
    pub node: Option<u32>,
    pub pages: Pages,
}

#[derive(Debug, Clone)]
pub struct AppliedPlan {
    /// The number for `undo`.
    pub id: u32,
    pub time: String,
    pub plan_copy: PathBuf,
    pub plan: Result<Plan, String>,
    pub is_complete: bool,
    pub damage: Vec<String>,
    pub places: Vec<AppliedStepState>,
}

/// An applied step and the current state of its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedStepState {
    pub id: String,
    pub what: StepKind,
    pub path: PathBuf,
    /// The previous content; `None` if nothing existed.
    pub before: Option<String>,
    /// The applied content; `None` for files too long to show.
    #[serde(rename = "after")]
    pub wanted: Option<String>,
    pub now: Option<String>,
    #[serde(rename = "state")]
    pub state: PathDrift,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    Knob,
    Pool,
    File,
    Folder,
    Mount,
}

impl StepKind {
    /// Maps a step name to its kind (see `StepAction::name`). A block is part of a file.
    pub fn of_step(name: &str) -> StepKind {
        match name {
            "knob" => StepKind::Knob,
            "pool" => StepKind::Pool,
            "folder" => StepKind::Folder,
            "mount" => StepKind::Mount,
            _ => StepKind::File,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathDrift {
    AsApplied,
    Changed,
    Gone,
    NotApplicable,
    Unread(String),
}

impl Serialize for PathDrift {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            PathDrift::AsApplied => "as-applied",
            PathDrift::Changed => "changed",
            PathDrift::Gone => "gone",
            PathDrift::NotApplicable => "not-applicable",
            PathDrift::Unread(_) => "unread",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewestApply {
    /// The number for `undo`.
    pub id: u32,
    pub time: String,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct VerifyReport {
    pub services: Vec<ServiceRow>,
    pub pools: Vec<PoolRow>,
    pub steps: Vec<AppliedStepState>,
    /// The newest plan in force: its number and time.
    #[serde(rename = "applied")]
    pub plan: Option<NewestApply>,
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// True if there is no shortfall. Notes are not shortfalls.
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|f| f.severity == Severity::Note)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceRow {
    pub name: String,
    pub kind: ServiceKind,
    pub unit: Option<String>,
    /// True if the service exists. Otherwise only a plan names it.
    #[serde(skip)]
    pub is_found: bool,
    /// Process ids; empty if the service does not run.
    pub pids: Vec<Pid>,
    /// Start time in seconds since 1970.
    #[serde(serialize_with = "utc")]
    pub since: Fact<u64>,
    pub asked: Vec<PageCount>,
    pub got: Vec<PageCount>,
    /// Number of missing pages of the first requested size; zero if the service does not run.
    #[serde(rename = "short_pages")]
    pub short: Pages,
    pub reason: Option<String>,
}

impl ServiceRow {
    pub fn page(&self) -> Option<PageSize> {
        self.asked.first().map(|pages| pages.page)
    }

    pub fn is_running(&self) -> bool {
        !self.pids.is_empty()
    }

    fn bytes(pages: &[PageCount]) -> Bytes {
        pages.iter().map(|pages| pages.bytes()).sum()
    }
}

/// Converts seconds since 1970 to a timestamp, as in `2026-09-21T14:13:20Z`.
pub fn time(seconds: u64) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
}

fn utc<S: Serializer>(seconds: &Fact<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = |seconds: u64| time(seconds).map(|time| time.to_string());
    seconds.clone().map(text).serialize(serializer)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolRow {
    #[serde(rename = "page_bytes")]
    pub page: PageSize,
    pub total: Pages,
    /// Free pages, including reserved ones.
    pub free: Pages,
    /// Reserved pages that are not yet touched.
    pub reserved: Pages,
    /// Pages beyond the pool's size, which disappear when freed.
    pub surplus: Pages,
    /// Free pages that are neither reserved nor requested by a known service.
    pub unused: Pages,
}

impl PoolRow {
    pub fn available(&self) -> Pages {
        self.free - self.reserved
    }
}

/// Formats `4200 pages of 2M`.
fn pages_text(pages: Pages, size: PageSize) -> String {
    crate::all_pages_text(&[PageCount::new(size, pages)])
}
