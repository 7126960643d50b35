//! The finding that huge pages would not help, with the reasons.

use hugeleaf_units::Bytes;

use super::kernel_work::KernelWork;
use super::memory::{CPU_LITTLE, WALKS_LITTLE};
use super::{PageSizeEffect, TraceFinding, TraceStats, percent, quality};
use crate::findings::Severity;

/// Reports no gain if no rule favours huge pages. Reports nothing if the trace has too little data.
pub fn no_gain(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    if !quality::is_enough(seen) {
        return None;
    }
    let evidence = reasons(seen);
    let first = evidence.first()?.clone();
    Some(TraceFinding {
        id: "no-gain",
        severity: Severity::Note,
        effects: vec![
            PageSizeEffect::Translation,
            PageSizeEffect::Contiguity,
            PageSizeEffect::Unit,
        ],
        text: format!("Huge pages would not help here, because {first}."),
        evidence,
        command: match seen.trace.target {
            Some(_) => "hugeleaf trace --for 10s".to_owned(),
            None => "hugeleaf status".to_owned(),
        },
    })
}

/// Returns the reasons, strongest first.
fn reasons(seen: &TraceStats<'_>) -> Vec<String> {
    let mut reasons = Vec::new();
    let who = seen.who();
    if let Some(used) = seen.cpus_used().filter(|used| *used < CPU_LITTLE) {
        reasons.push(format!(
            "{who} used {} of one CPU: it waits for something other than memory",
            percent(used)
        ));
    }
    let coverage = seen.coverage();
    let on_base = seen.on_base();
    match (coverage, on_base, seen.memory()) {
        (Some(coverage), Some(on_base), Some(memory)) if memory > Bytes::ZERO => {
            reasons.push(match coverage >= 0.5 {
                true => format!(
                    "{} of its memory ({memory}) is already on huge pages",
                    percent(coverage)
                ),
                false => format!("only {on_base} of its {memory} is on base pages"),
            });
        }
        _ => {}
    }
    if let Some(walks) = seen.walks() {
        let how = if walks < WALKS_LITTLE { "only " } else { "" };
        reasons.push(format!(
            "page-table walks take {how}{} of all cycles",
            percent(walks)
        ));
    }
    let parts: Vec<String> = [KernelWork::Pin, KernelWork::Segments, KernelWork::Fault]
        .into_iter()
        .filter_map(|area| {
            Some(format!(
                "{} {}",
                percent(seen.area_share(area)?),
                area.name()
            ))
        })
        .collect();
    if !parts.is_empty() {
        reasons.push(format!("{who}'s samples contain {}", parts.join(", ")));
    }
    if let (None, false) = (seen.walks(), reasons.is_empty()) {
        reasons.push(seen.walks_in_words());
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing::{self, finds};

    #[test]
    fn it_says_why() {
        let quiet = testing::quiet();
        let finding = finds(&quiet, "no-gain").unwrap();
        assert!(
            finding
                .text
                .contains("90 % of its memory (1000M) is already on huge pages"),
            "{finding:?}"
        );
        assert!(
            finding
                .evidence
                .iter()
                .any(|e| e.starts_with("page-table walks cannot"))
        );
        let mut idle = testing::quiet();
        testing::cpu(&mut idle, 0.1, 0.1);
        assert!(
            finds(&idle, "no-gain")
                .unwrap()
                .text
                .contains("waits for something other")
        );
        let walks = finds(&testing::walks(0.01), "no-gain").unwrap();
        assert!(
            walks
                .evidence
                .iter()
                .any(|e| e.contains("only 1.0 % of all cycles"))
        );
    }

    #[test]
    fn it_is_not_said_beside_a_reason_for_them_nor_without_evidence() {
        assert_eq!(finds(&testing::walks(0.2), "no-gain"), None);
        let mut few = testing::quiet();
        few.samples.clear();
        assert_eq!(finds(&few, "no-gain"), None);
        let mut lost = testing::quiet();
        testing::lose(&mut lost, 50);
        assert_eq!(finds(&lost, "no-gain"), None);
    }
}
