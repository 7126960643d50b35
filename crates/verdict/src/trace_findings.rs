//! Findings of a trace: time that depends on page sizes, with the numbers and the next command. One finding says as plainly that huge
//! pages would not help.
//!
//! A rule is a function from a [`Trace`](hugeleaf_trace::Trace) and a few of its sums (`TraceStats`) to findings. The test of each rule has a
//! trace with the finding and one that nearly has it. The limits are constants with their reasons, below and next to the rules;
//! `docs/guide/trace.md` lists them.
//!
//! Three effects are distinguished, because a huge page can have one without the others: translation, contiguity, and the unit of
//! pinning ([`PageSizeEffect`]).

mod bottlenecks;
pub mod kernel_work;
mod memory;
mod no_gain;
mod quality;
mod rules;
mod stats;

pub use rules::findings;
pub use stats::TraceStats;

use crate::findings::Severity;

hugeleaf_units::named! {
    /// The property of a huge page that would change the cost.
    pub enum PageSizeEffect {
        /// One page-table or TLB entry maps more, so there are fewer faults, walks and page tables.
        Translation = "translation",
        /// Memory is contiguous, so a request or a device needs fewer segments.
        Contiguity = "contiguity",
        /// The unit of counting, locking and pinning is larger.
        Unit = "unit of pinning",
    }
}

impl PageSizeEffect {
    pub const fn meaning(self) -> &'static str {
        match self {
            PageSizeEffect::Translation => "memory mapped by one page-table or TLB entry",
            PageSizeEffect::Contiguity => "contiguous memory, independent of its mapping",
            PageSizeEffect::Unit => "memory that the kernel counts, locks and pins in one step",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFinding {
    /// The name of the rule. It does not change between versions.
    pub id: &'static str,
    pub severity: Severity,
    /// The effects of huge pages that the finding concerns; may be empty.
    pub effects: Vec<PageSizeEffect>,
    pub text: String,
    pub evidence: Vec<String>,
    pub command: String,
}

/// Formats `12.3 %`, or `under 0.1 %` for small shares.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        p if p >= 9.95 => format!("{percent:.0} %"),
        p if p >= 0.095 || p == 0.0 => format!("{percent:.1} %"),
        _ => "under 0.1 %".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    pub mod testing;

    use super::*;
    use hugeleaf_trace::Trace;

    #[test]
    fn the_worst_comes_first_and_every_finding_has_evidence_and_a_command() {
        let trace = testing::everything();
        let all = findings(&trace);
        assert!(all.is_sorted_by_key(|f| f.severity) && all.len() >= 8);
        for finding in &all {
            assert!(!finding.text.is_empty() && !finding.command.is_empty());
            assert!(!finding.evidence.is_empty(), "{}", finding.id);
        }
    }

    #[test]
    fn a_quiet_trace_has_only_the_honest_finding() {
        let ids: Vec<&str> = findings(&testing::quiet()).iter().map(|f| f.id).collect();
        assert_eq!(ids, ["no-gain"]);
    }

    #[test]
    fn an_empty_trace_is_judged_as_one() {
        let ids: Vec<&str> = findings(&Trace::default()).iter().map(|f| f.id).collect();
        assert!(ids.is_empty(), "{ids:?}");
    }

    #[test]
    fn parts() {
        assert_eq!(percent(0.5988), "60 %");
        assert_eq!(percent(0.0123), "1.2 %");
        assert_eq!(percent(0.0), "0.0 %");
        assert_eq!(percent(0.0001), "under 0.1 %");
    }
}
