//! Limits of a trace: too few samples, lost events, misplaced samples.

use hugeleaf_trace::model::EventSource;
use hugeleaf_trace::tables::not_measured::{TraceDataKind, not_measured};
use hugeleaf_trace::tables::share;

use super::{TraceFinding, TraceStats, percent};
use crate::findings::Severity;

/// Minimum number of samples. With fewer, a share of 5 % is known only within 3 percentage points.
const FEW_SAMPLES: u64 = 200;
/// Maximum share of lost events of a source that does not change the findings.
const LOST: f64 = 0.01;
/// Minimum share of the kernel's samples that justifies the explanation.
const SKEWED: f64 = 0.1;

/// True if the trace has enough data to report an absence.
pub(super) fn is_enough(seen: &TraceStats<'_>) -> bool {
    let lost_little = |source: &EventSource| lost_part(source).is_none_or(|part| part < LOST);
    // A target that hardly runs has few samples, and its idleness is the answer.
    let idle = seen
        .cpus_used()
        .is_some_and(|used| used < super::memory::CPU_LITTLE);
    let sampled = seen.samples >= FEW_SAMPLES || (idle && seen.host_samples > 0);
    sampled && seen.trace.sources.iter().all(lost_little)
}

fn lost_part(source: &EventSource) -> Option<f64> {
    share(source.lost, source.events.saturating_add(source.lost)).filter(|part| *part > 0.0)
}

pub fn lost(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let sources = seen.trace.sources.iter();
    let lost: Vec<(&EventSource, f64)> = sources.filter_map(|s| Some((s, lost_part(s)?))).collect();
    let worst = lost.iter().map(|(_, part)| *part).fold(0.0, f64::max);
    if lost.is_empty() {
        return None;
    }
    let evidence = lost.iter().map(|(source, part)| {
        format!(
            "{}: {} of {} lost, {}",
            source.name,
            source.lost,
            source.events + source.lost,
            percent(*part)
        )
    });
    let (severity, text) = match worst >= LOST {
        true => (
            Severity::Warning,
            format!(
                "Up to {} of the events were lost: sums are too small, shares may be wrong, and \
                 an absent event proves nothing.",
                percent(worst)
            ),
        ),
        false => (
            Severity::Note,
            "A few events were lost; shares are still valid.".to_owned(),
        ),
    };
    Some(TraceFinding {
        id: "events-lost",
        severity,
        effects: Vec::new(),
        text,
        evidence: evidence.collect(),
        command: seen.command("trace --buffer 32M", "hugeleaf trace --buffer 32M"),
    })
}

/// Finds too few samples of the target for shares.
pub fn few_samples(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    // If no samples were taken, another finding reports it.
    if not_measured(seen.trace, TraceDataKind::CpuSamples).is_some() {
        return None;
    }
    if seen.samples >= FEW_SAMPLES || is_enough(seen) {
        return None;
    }
    Some(TraceFinding {
        id: "few-samples",
        severity: Severity::Note,
        effects: Vec::new(),
        text: format!(
            "Only {} samples found {} on a CPU: their shares are rough, and an absent function \
             proves nothing.",
            seen.samples,
            seen.who()
        ),
        evidence: vec![format!(
            "{} samples of all processes in {:.1} s",
            seen.host_samples, seen.trace.seconds
        )],
        command: seen.command("trace --for 60s", "hugeleaf trace --for 60s"),
    })
}

/// Explains that clock samples cannot land where interrupts are off.
pub fn skew(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let releases: u64 = seen.releases.values().sum();
    let (most, _) = seen.releases.iter().max_by_key(|(_, count)| **count)?;
    let part = share(releases, seen.in_kernel).filter(|part| *part >= SKEWED)?;
    if seen.trace.sampled_by != "cpu-clock" {
        return None;
    }
    Some(TraceFinding {
        id: "skew",
        severity: Severity::Note,
        effects: Vec::new(),
        text: format!(
            "{} of the kernel's samples are in functions that re-enable interrupts. The sampling \
             clock stops while interrupts are off, so the time of the work before them is counted \
             there. Their callers did that work.",
            percent(part)
        ),
        evidence: vec![format!(
            "{} of {} samples in the kernel",
            releases, seen.in_kernel
        )],
        command: format!("hugeleaf trace show FILE --callers {most}"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing::{self, finds};
    use super::*;

    #[test]
    fn a_few_lost_are_noted_and_many_make_statements_unsafe() {
        let with = |lost| {
            let mut trace = testing::quiet();
            testing::lose(&mut trace, lost);
            trace
        };
        assert_eq!(
            finds(&with(50), "events-lost").unwrap().severity,
            Severity::Warning
        );
        assert_eq!(
            finds(&with(1), "events-lost").unwrap().severity,
            Severity::Note
        );
        assert_eq!(finds(&with(0), "events-lost"), None);
    }

    #[test]
    fn few_samples_are_said() {
        let mut few = testing::quiet();
        few.samples.truncate(1);
        few.samples[0].count = 199;
        assert!(
            finds(&few, "few-samples")
                .unwrap()
                .text
                .contains("Only 199")
        );
        few.samples[0].count = 200;
        assert_eq!(finds(&few, "few-samples"), None);
    }

    #[test]
    fn skew_is_explained_where_it_shows() {
        let with = |percent, by: &str| {
            let mut trace =
                testing::busy_in(testing::quiet(), "_raw_spin_unlock_irqrestore", percent);
            trace.sampled_by = by.to_owned();
            trace
        };
        assert!(finds(&with(10, "cpu-clock"), "skew").is_some());
        assert_eq!(finds(&with(10, "cycles"), "skew"), None);
        assert_eq!(finds(&with(1, "cpu-clock"), "skew"), None);
    }
}
