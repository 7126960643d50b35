//! All rules about a trace, and their findings.

use hugeleaf_trace::Trace;

use super::{Seen, TraceFinding, cost, honest, memory, quality};

/// Rules in favour of huge pages, and rules about defects of existing huge pages.
const FOR: &[fn(&Seen<'_>) -> Option<TraceFinding>] = &[
    cost::pin_locking,
    cost::page_locks,
    cost::io_pieces,
    cost::base_faults,
    cost::page_walks,
    memory::page_tables,
    memory::compaction_stalls,
    memory::khugepaged_busy,
    memory::splits,
    memory::mixed_sizes,
    memory::on_base_pages,
];

/// Rules about the limits of the trace.
const ABOUT: &[fn(&Seen<'_>) -> Option<TraceFinding>] = &[
    cost::other_locks,
    quality::lost,
    quality::few_samples,
    quality::skew,
];

pub fn findings(trace: &Trace) -> Vec<TraceFinding> {
    let seen = Seen::of(trace);
    let mut all: Vec<TraceFinding> = FOR.iter().filter_map(|rule| rule(&seen)).collect();
    if all.is_empty() {
        all.extend(honest::no_gain(&seen));
    }
    all.extend(ABOUT.iter().filter_map(|rule| rule(&seen)));
    all.sort_by_key(|finding| finding.severity);
    all
}
