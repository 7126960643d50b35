//! All rules about a trace, and their findings.

use hugeleaf_trace::Trace;

use super::{TraceFinding, TraceStats, bottlenecks, memory, no_gain, quality};

/// Rules in favour of huge pages, and rules about defects of existing huge pages.
const GAIN_RULES: &[fn(&TraceStats<'_>) -> Option<TraceFinding>] = &[
    bottlenecks::pin_locking,
    bottlenecks::page_locks,
    bottlenecks::io_pieces,
    bottlenecks::base_faults,
    bottlenecks::page_walks,
    memory::page_tables,
    memory::compaction_stalls,
    memory::khugepaged_busy,
    memory::splits,
    memory::mixed_sizes,
    memory::on_base_pages,
];

/// Rules about the limits of the trace.
const LIMIT_RULES: &[fn(&TraceStats<'_>) -> Option<TraceFinding>] = &[
    bottlenecks::other_locks,
    quality::lost,
    quality::few_samples,
    quality::skew,
];

pub fn findings(trace: &Trace) -> Vec<TraceFinding> {
    let seen = TraceStats::of(trace);
    let mut all: Vec<TraceFinding> = GAIN_RULES.iter().filter_map(|rule| rule(&seen)).collect();
    if all.is_empty() {
        all.extend(no_gain::no_gain(&seen));
    }
    all.extend(LIMIT_RULES.iter().filter_map(|rule| rule(&seen)));
    all.sort_by_key(|finding| finding.severity);
    all
}
