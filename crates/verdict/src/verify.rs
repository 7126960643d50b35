//! Does every service have what it asked for, will it have that after its next restart, and are
//! files, kernel and plan of one mind? Pure: facts in, a report out.
//!
//! A rule is a function from [`Facts`] and the rows of the services to findings. Each has a test
//! with a host that shows it; a healthy host shows none.

mod drift;
mod needs;
mod rights;
mod rules;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use hugeleaf_host::demand::{Service, ServiceKind};
use hugeleaf_host::system::settings::Settings;
use hugeleaf_host::{Fact, Host, Pid};
use hugeleaf_units::{Bytes, PageSize, Pages};
use serde::{Serialize, Serializer};

use crate::findings::{Finding, Severity};
use crate::plan::{PagesOf, Plan};

pub use needs::slack;
pub use rules::verify;

use crate::advice::{PLAN, Want};

#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub host: &'a Host,
    pub services: &'a [Service],
    /// What could not be looked at and why, a sentence each.
    pub unread: &'a [String],
    /// What was applied and is not undone, the newest first.
    pub applied: &'a [Applied],
    pub settings: &'a Settings,
    /// When the host was booted, in seconds since 1970: the kernel's log counts from there.
    pub booted: Option<u64>,
    /// Lines of the kernel's log before this time, in seconds since 1970, are of the past.
    pub log_since: Option<u64>,
    pub given: &'a [GivenBack],
    /// Settings that running programs want of the host.
    pub wants: &'a [Want],
}

/// Pages of a pool that the guard gave back while memory was short, and takes again: the pool is not short of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenBack {
    pub page: PageSize,
    /// The node; `None` where the host counts all nodes together.
    pub node: Option<u32>,
    pub pages: Pages,
}

#[derive(Debug, Clone)]
pub struct Applied {
    /// What `undo` knows it by.
    pub id: u32,
    pub time: String,
    pub plan_copy: PathBuf,
    pub plan: Result<Plan, String>,
    pub is_complete: bool,
    pub damage: Vec<String>,
    pub places: Vec<Place>,
}

/// A step that was applied, and how its place looks now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    pub id: String,
    pub what: Did,
    pub path: PathBuf,
    /// What stood there before; nothing where nothing did.
    pub before: Option<String>,
    /// What it set: of files too long to be shown, nothing.
    #[serde(rename = "after")]
    pub wanted: Option<String>,
    pub now: Option<String>,
    #[serde(rename = "state")]
    pub stands: Stands,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Did {
    Knob,
    Pool,
    File,
    Folder,
    Mount,
}

impl Did {
    /// What a step of this name did (see `What::name`): a block goes into a file.
    pub fn of_step(name: &str) -> Did {
        match name {
            "knob" => Did::Knob,
            "pool" => Did::Pool,
            "folder" => Did::Folder,
            "mount" => Did::Mount,
            _ => Did::File,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stands {
    AsApplied,
    Changed,
    Gone,
    NotApplicable,
    Unread(String),
}

impl Serialize for Stands {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Stands::AsApplied => "as-applied",
            Stands::Changed => "changed",
            Stands::Gone => "gone",
            Stands::NotApplicable => "not-applicable",
            Stands::Unread(_) => "unread",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Newest {
    /// What `undo` knows it by.
    pub id: u32,
    pub time: String,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    pub services: Vec<Row>,
    pub pools: Vec<PoolRow>,
    pub steps: Vec<Place>,
    /// The newest plan in force: its number and time.
    #[serde(rename = "applied")]
    pub plan: Option<Newest>,
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing fell short: notes are no shortfall.
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|f| f.severity == Severity::Note)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    pub name: String,
    pub kind: ServiceKind,
    pub unit: Option<String>,
    /// Whether it is there; otherwise a plan alone speaks of it.
    #[serde(skip)]
    pub is_found: bool,
    /// Its processes; none where it does not run.
    pub pids: Vec<Pid>,
    /// Since when it runs, in seconds since 1970.
    #[serde(serialize_with = "utc")]
    pub since: Fact<u64>,
    pub asked: Vec<PagesOf>,
    pub got: Vec<PagesOf>,
    /// How many pages it is short of, of the first size it asked for; none where it does not run.
    #[serde(rename = "short_pages")]
    pub short: Pages,
    pub reason: Option<String>,
}

impl Row {
    pub fn page(&self) -> Option<PageSize> {
        self.asked.first().map(|pages| pages.page)
    }

    pub fn is_running(&self) -> bool {
        !self.pids.is_empty()
    }

    fn bytes(pages: &[PagesOf]) -> Bytes {
        pages.iter().map(|pages| pages.bytes()).sum()
    }
}

/// Seconds since 1970 as a time, as in `2026-09-21T14:13:20Z`.
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
    /// Pages that are in nobody's hands, reserved ones included.
    pub free: Pages,
    /// Pages that are promised and not touched yet.
    pub reserved: Pages,
    /// Pages beyond the pool's size, which go when they are freed.
    pub surplus: Pages,
    /// Free, promised to nobody, and asked for by no service that was found.
    pub unused: Pages,
}

impl PoolRow {
    pub fn available(&self) -> Pages {
        self.free - self.reserved
    }
}

/// `4200 pages of 2M`.
fn pages_text(pages: Pages, size: PageSize) -> String {
    crate::plan::all_pages_text(&[PagesOf::new(size, pages)])
}
