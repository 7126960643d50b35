//! The report of `hugeleaf run --report`: the memory of each process of the process tree, by role.

use std::path::Path;

use hugeleaf_launcher::{ProcessPeak, WatchReport};
use hugeleaf_proof::prove_result::{HostFingerprint, Knob};
use hugeleaf_units::Bytes;
use hugeleaf_verdict::role_results::RoleResult;
use serde::Serialize;

use crate::document::Document;
use crate::run_roles;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramExit {
    Status(u8),
    Signal(i32),
}

/// Formats the memory at the scan, and the peak if it is over 5 % larger.
fn sizes(of: &ProcessPeak) -> String {
    let (seen, peak) = (of.resident, of.peak);
    match of.at_exit {
        false => format!("{peak} resident at most"),
        true if peak.get() - seen.get() <= peak.get() / 20 => format!("{seen} resident at exit"),
        true => format!("{seen} resident at exit, {peak} at most"),
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct RecordedSettings {
    pub version: String,
    pub knobs: Vec<Knob>,
}

#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// The command as typed, without passwords.
    pub command: Vec<String>,
    /// Start time (RFC 3339, UTC).
    pub started: String,
    #[serde(rename = "duration_seconds")]
    pub seconds: f64,
    pub exit: ProgramExit,
    pub host: HostFingerprint,
    pub settings: RecordedSettings,
    #[serde(flatten)]
    pub found: WatchReport,
}

impl RunReport {
    pub fn page(&self) -> Document {
        let (mut page, found) = (Document::default(), &self.found);
        match found.processes.len() + found.left_out {
            0 => {
                page.add("hugeleaf: run: the program exited before its first scan");
            }
            1 => {}
            n => {
                let together = format!(
                    "hugeleaf: run: {n} processes, {} resident together at most, shared memory once",
                    found.peak
                );
                add(&mut page, together, &found.roles);
            }
        }
        // Only the largest of many processes are shown.
        const ROWS: usize = 8;
        let least = Bytes(found.peak.get() / 20);
        let most = found.processes.iter().take(ROWS);
        let shown: Vec<&ProcessPeak> = most.filter(|seen| seen.peak >= least).collect();
        for seen in &shown {
            let name = format!(
                "hugeleaf: run: {} ({}): {}",
                seen.name,
                seen.pid,
                sizes(seen)
            );
            add(&mut page, name, &seen.roles);
        }
        let others = match found.processes.len() - shown.len() + found.left_out {
            0 => String::new(),
            1 => "… and one smaller process: --report FILE lists all".to_owned(),
            n => format!("… and {n} smaller processes: --report FILE lists all"),
        };
        page.add(others);
        for path in &found.hidden_sqlite {
            page.add(hidden_sqlite_line(path));
        }
        page
    }
}

/// Formats the note on a copy of SQLite that `run --sqlite` cannot reach.
pub fn hidden_sqlite_line(path: &Path) -> String {
    let path = path.display();
    format!(
        "hugeleaf: run: --sqlite: {path} contains SQLite with hidden functions, which keeps its own cache"
    )
}

fn add(page: &mut Document, who: String, roles: &[RoleResult]) {
    page.add(who);
    for block in run_roles::blocks(roles) {
        page.add(block);
    }
}
