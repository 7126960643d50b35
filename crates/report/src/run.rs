//! The report of `hugeleaf run --report`: what a program and those it started got, role by role.

use hugeleaf_host::Pid;
use hugeleaf_proof::result::{HostFingerprint, Knob};
use hugeleaf_units::Bytes;
use hugeleaf_verdict::roles::RoleState;
use serde_json::Value;

use crate::json::Object;
use crate::roles;
use crate::table::clean;

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this status.
    Status(u8),
    /// By this signal.
    Signal(i32),
}

/// A process, as it was when it held most.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its id.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// When it was looked at, since the program's start.
    pub seconds: f64,
    /// What was resident then.
    pub resident: Bytes,
    /// The most that was ever resident, as the kernel has it; at least `resident`.
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

/// All of it.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// The command as it was typed, passwords left out.
    pub command: Vec<String>,
    /// When it began (RFC 3339, UTC).
    pub started: String,
    /// How long the program ran.
    pub seconds: f64,
    /// How it ended.
    pub exit: Exit,
    /// The machine.
    pub host: HostFingerprint,
    /// The knobs of the kernel as they were.
    pub knobs: Vec<Knob>,
    /// Version of hugeleaf.
    pub version: String,
    /// The processes, those that held most first.
    pub processes: Vec<Seen>,
    /// Processes that are not listed: they held less than all that are.
    pub left_out: usize,
    /// Resident in all processes together when that was most, as their sizes add up.
    pub peak: Bytes,
    /// The roles of all processes that lived then, shared memory counted once.
    pub roles: Vec<RoleState>,
}

impl RunReport {
    /// As the file has it.
    pub fn json(&self) -> String {
        let mut exit = Object::new();
        match self.exit {
            Exit::Status(status) => exit.put("status", status),
            Exit::Signal(signal) => exit.put("signal", signal),
        };
        // These are plain values: serialising them cannot fail.
        let host = serde_json::to_value(&self.host).unwrap_or_default();
        let knobs = serde_json::to_value(&self.knobs).unwrap_or_default();
        let mut settings = Object::new();
        settings
            .put("version", self.version.clone())
            .put("knobs", knobs);
        let mut report = Object::answer();
        report
            .put("command", self.command.clone())
            .put("started", self.started.clone())
            .put("duration_seconds", self.seconds)
            .put("exit", exit.build())
            .put_bytes("peak_resident_bytes", self.peak)
            .put("roles", roles::json(&self.roles))
            .put(
                "processes",
                self.processes.iter().map(seen_json).collect::<Value>(),
            )
            .put("processes_left_out", self.left_out)
            .put("host", host)
            .put("settings", settings.build());
        report.render()
    }

    /// As a person reads it.
    pub fn text(&self, width: usize) -> String {
        let mut text = match self.processes.len() + self.left_out {
            0 => "hugeleaf: run: it ended before anything was seen of it\n".to_owned(),
            1 => String::new(),
            n => format!(
                "hugeleaf: run: {n} processes, {} resident together at most, shared memory once\n{}",
                self.peak,
                roles::text(&self.roles, width)
            ),
        };
        // Of many, those that matter.
        const ROWS: usize = 8;
        let least = Bytes(self.peak.get() / 20);
        let shown: Vec<&Seen> = self
            .processes
            .iter()
            .take(ROWS)
            .filter(|seen| seen.peak >= least)
            .collect();
        for seen in &shown {
            text.push_str(&format!(
                "hugeleaf: run: {} ({}): {}\n{}",
                clean(&seen.name),
                seen.pid,
                seen.sizes(),
                roles::text(&seen.roles, width)
            ));
        }
        let more = self.processes.len() - shown.len() + self.left_out;
        match more {
            0 => {}
            1 => text.push_str("… and one that held less: --report FILE lists all\n"),
            n => text.push_str(&format!(
                "… and {n} that held less: --report FILE lists all\n"
            )),
        }
        text
    }
}

fn seen_json(seen: &Seen) -> Value {
    let mut object = Object::new();
    object
        .put("pid", seen.pid.0)
        .put("name", seen.name.clone())
        .put("seen_at_seconds", seen.seconds)
        .put_bytes("peak_resident_bytes", seen.peak)
        .put_bytes("seen_resident_bytes", seen.resident)
        .put("at_exit", seen.at_exit)
        .put("roles", roles::json(&seen.roles));
    object.build()
}
