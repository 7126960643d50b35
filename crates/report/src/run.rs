//! The report of `hugeleaf run --report`: what a program and those it started got, role by role.

use hugeleaf_host::Pid;
use hugeleaf_proof::result::{HostFingerprint, Knob};
use hugeleaf_units::Bytes;
use hugeleaf_verdict::roles::RoleState;
use serde::Serialize;

use crate::json::answer;
use crate::page::Page;
use crate::roles;

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// With this status.
    Status(u8),
    /// By this signal.
    Signal(i32),
}

/// A process, as it was when it held most.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Seen {
    /// Its id.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// When it was looked at, since the program's start.
    #[serde(rename = "seen_at_seconds")]
    pub seconds: f64,
    /// What was resident then.
    #[serde(rename = "seen_resident_bytes")]
    pub resident: Bytes,
    /// The most that was ever resident, as the kernel has it; at least `resident`.
    #[serde(rename = "peak_resident_bytes")]
    pub peak: Bytes,
    /// Whether that was the look at its end, for which the library makes it wait.
    pub at_exit: bool,
    /// Its roles.
    pub roles: Vec<RoleState>,
}

impl Seen {
    /// What it held at the look, and at most where that is more by a twentieth.
    fn sizes(&self) -> String {
        let (seen, peak) = (self.resident, self.peak);
        match self.at_exit {
            false => format!("{peak} resident at most"),
            true if peak.get() - seen.get() <= peak.get() / 20 => {
                format!("{seen} resident at its end")
            }
            true => format!("{seen} resident at its end, {peak} at most"),
        }
    }
}

/// What a run depends on besides the machine.
#[derive(Debug, Clone, Serialize)]
pub struct RunSettings {
    /// Version of hugeleaf.
    pub version: String,
    /// The knobs of the kernel as they were.
    pub knobs: Vec<Knob>,
}

/// All of it.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// The command as it was typed, passwords left out.
    pub command: Vec<String>,
    /// When it began (RFC 3339, UTC).
    pub started: String,
    /// How long the program ran.
    #[serde(rename = "duration_seconds")]
    pub seconds: f64,
    /// How it ended.
    pub exit: Exit,
    /// The machine.
    pub host: HostFingerprint,
    /// What else it depends on.
    pub settings: RunSettings,
    /// The processes, those that held most first.
    pub processes: Vec<Seen>,
    /// Processes that are not listed: they held less than all that are.
    #[serde(rename = "processes_left_out")]
    pub left_out: usize,
    /// Resident in all processes together when that was most, as their sizes add up.
    #[serde(rename = "peak_resident_bytes")]
    pub peak: Bytes,
    /// The roles of all processes that lived then, shared memory counted once.
    pub roles: Vec<RoleState>,
}

impl RunReport {
    /// As the file has it.
    pub fn json(&self) -> String {
        answer(self)
    }

    /// As a person reads it.
    pub fn page(&self) -> Page {
        let mut page = Page::default();
        match self.processes.len() + self.left_out {
            0 => {
                page.add("hugeleaf: run: it ended before anything was seen of it");
            }
            1 => {}
            n => {
                let together = format!(
                    "hugeleaf: run: {n} processes, {} resident together at most, shared memory once",
                    self.peak
                );
                add(&mut page, together, &self.roles);
            }
        }
        // Of many, those that matter.
        const ROWS: usize = 8;
        let least = Bytes(self.peak.get() / 20);
        let most = self.processes.iter().take(ROWS);
        let shown: Vec<&Seen> = most.filter(|seen| seen.peak >= least).collect();
        for seen in &shown {
            let name = format!(
                "hugeleaf: run: {} ({}): {}",
                seen.name,
                seen.pid,
                seen.sizes()
            );
            add(&mut page, name, &seen.roles);
        }
        let others = match self.processes.len() - shown.len() + self.left_out {
            0 => String::new(),
            1 => "… and one that held less: --report FILE lists all".to_owned(),
            n => format!("… and {n} that held less: --report FILE lists all"),
        };
        page.add(others);
        page
    }
}

/// Who, and below it what its roles got.
fn add(page: &mut Page, who: String, roles: &[RoleState]) {
    page.add(who);
    for block in roles::blocks(roles) {
        page.add(block);
    }
}
