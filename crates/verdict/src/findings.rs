//! Findings about a whole host: defects, waste and ineffective settings, each with the command that changes it or
//! examines it further.
//!
//! A rule is a function from a [`Host`](hugeleaf_host::Host) to findings, in the module of its subject. The test of each
//! rule has a host with the finding and one that nearly has it.

mod cgroups;
mod ineffective_settings;
mod memory;
mod pools;
mod rules;
pub(crate) mod thp;
mod unreadable;
mod virtual_machine;

pub use memory::{MemoryByName, by_name};
pub use pools::{boot_pools, left_over, short as pool_short};
pub use rules::findings;

pub use crate::advice::AdvisedCommand;
pub use crate::shell_word;

use crate::advice::{self, FeasibleChange};

hugeleaf_units::named! {
    /// Severity of a finding. The worst is the smallest, so that it sorts first.
    pub enum Severity {
        Problem = "problem",
        Warning = "warning",
        Note = "note",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The name of the rule. It does not change between versions.
    pub id: &'static str,
    pub severity: Severity,
    pub text: String,
    pub command: String,
    /// The change of the host that the command makes, if any.
    #[serde(rename = "change", skip_serializing_if = "Option::is_none")]
    pub advice: Option<FeasibleChange>,
}

impl Finding {
    pub fn new(
        severity: Severity,
        id: &'static str,
        text: impl Into<String>,
        next: impl Into<AdvisedCommand>,
    ) -> Finding {
        let AdvisedCommand { command, changes } = next.into();
        Finding {
            id,
            severity,
            text: text.into(),
            command,
            advice: changes.into_iter().next(),
        }
    }

    pub fn problem(
        id: &'static str,
        text: impl Into<String>,
        next: impl Into<AdvisedCommand>,
    ) -> Finding {
        Finding::new(Severity::Problem, id, text, next)
    }

    pub fn warning(
        id: &'static str,
        text: impl Into<String>,
        next: impl Into<AdvisedCommand>,
    ) -> Finding {
        Finding::new(Severity::Warning, id, text, next)
    }

    pub fn note(
        id: &'static str,
        text: impl Into<String>,
        next: impl Into<AdvisedCommand>,
    ) -> Finding {
        Finding::new(Severity::Note, id, text, next)
    }
}

/// Sorts the findings of one screen, the worst first, and removes contradictory commands; a plan weighs those demands.
pub fn on_one_screen(mut all: Vec<Finding>) -> Vec<Finding> {
    all.sort_by_key(|finding| finding.severity);
    without_contradictions(all, &[], ("a plan decides", advice::PLAN))
}

/// Removes commands that contradict the wants of running programs. `check` weighs all wants.
pub fn without_contradicting_wants(
    all: Vec<Finding>,
    wants: &[advice::SettingRequirement],
) -> Vec<Finding> {
    let instead = ("see hugeleaf check", "hugeleaf check");
    without_contradictions(all, wants, instead)
}

fn without_contradictions(
    mut all: Vec<Finding>,
    wants: &[advice::SettingRequirement],
    (way, command): (&str, &str),
) -> Vec<Finding> {
    let changes: Vec<Vec<&FeasibleChange>> =
        all.iter().map(|f| f.advice.iter().collect()).collect();
    let against = advice::agree_commands(&changes, wants);
    for (finding, why) in all.iter_mut().zip(against) {
        if let Some(why) = why {
            finding.text = format!("{} ({why}: {way}.)", finding.text);
            command.clone_into(&mut finding.command);
            finding.advice = None;
        }
    }
    all
}

#[cfg(test)]
pub(crate) mod tests {
    pub mod testing;

    use super::*;
    use hugeleaf_host::Fact;

    #[test]
    fn a_healthy_host_has_no_findings() {
        assert_eq!(findings(&testing::healthy()), []);
    }

    #[test]
    fn no_name_becomes_a_command() {
        assert_eq!(
            shell_word("/sys/fs/cgroup/a.slice"),
            "/sys/fs/cgroup/a.slice"
        );
        assert_eq!(shell_word("a b'; :"), "'a b'\\''; :'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn the_worst_comes_first_and_every_finding_has_a_command() {
        let mut host = testing::healthy();
        host.memory.page_tables = testing::gib(8);
        testing::thp(&mut host).defrag = testing::word("always");
        testing::thp(&mut host).enabled = testing::word("never");
        host.pools[0].free = Fact::Known(hugeleaf_units::Pages(10));
        let all = findings(&host);
        assert_eq!(all[0].id, "page-tables");
        assert!(
            all.is_sorted_by_key(|f| f.severity) && all.len() >= 3,
            "{all:?}"
        );
        assert!(
            all.iter()
                .all(|f| !f.command.is_empty() && !f.text.is_empty())
        );
    }
}
