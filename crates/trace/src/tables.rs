//! Tables of a trace: sums and orders only.
//!
//! Pure functions of a [`Trace`]. Judging belongs to `hugeleaf-verdict`, formatting to
//! `hugeleaf-report`.
//!
//! Shares of CPU samples are relative to busy samples: an idle host would hide everything else.

use crate::Trace;

pub mod interval_totals;
pub mod io_and_pins;
pub mod locks;
pub mod memory;
pub mod not_measured;
pub mod profile;
#[cfg(test)]
pub(crate) mod testing;

pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Returns the distinct names of the target's initial processes; empty without a target.
pub fn target_names(trace: &Trace) -> Vec<&str> {
    let Some(target) = &trace.target else {
        return Vec::new();
    };
    let mut names: Vec<&str> = Vec::new();
    for process in trace.processes.iter().filter(|p| p.in_target) {
        if target.pids.contains(&process.pid) && !names.contains(&process.name.as_str()) {
            names.push(&process.name);
        }
    }
    names
}

/// Returns the target's name for a sentence: as typed, with the process name if that was a PID.
pub fn target_name(trace: &Trace) -> Option<String> {
    let text = &trace.target.as_ref()?.text;
    let is_number = text.trim_start_matches("tree:").parse::<u32>().is_ok();
    Some(match target_names(trace)[..] {
        [name] if is_number => format!("{name} ({text})"),
        _ => text.clone(),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableScope {
    Host,
    /// The processes of the target; all without a target.
    Target,
}

/// Returns the scope of a trace's memory tables: the target if there is one.
pub const fn memory_scope(trace: &Trace) -> TableScope {
    match trace.target {
        Some(_) => TableScope::Target,
        None => TableScope::Host,
    }
}
