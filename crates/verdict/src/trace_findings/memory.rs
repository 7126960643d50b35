//! Findings about memory: page tables, compaction, huge pages created and split, segments of mixed sizes.

use hugeleaf_trace::model::{MemoryState, PageSizeUsage, SegmentMemory};
use hugeleaf_trace::tables::memory::{SegmentRow, held, newest, segments, total};
use hugeleaf_trace::tables::{TableScope, profile, share};
use hugeleaf_units::Bytes;

use super::{PageSizeEffect, TraceFinding, TraceStats, percent};
use crate::findings::Severity;

/// Shares of page tables in memory that are a warning and a problem, as in `status`.
const TABLES_MUCH: f64 = 0.01;
const TABLES_TOO_MUCH: f64 = 0.05;
/// Minimum compaction stalls per second. In each, a program waited while the kernel migrated other memory.
const STALLS_A_SECOND: f64 = 1.0;
/// Maximum share of one CPU for khugepaged. At its default scan rate it uses less than 1 %.
const KHUGEPAGED_SHARE: f64 = 0.05;
/// Minimum huge-page splits per second.
const SPLITS_A_SECOND: f64 = 1.0;
/// Maximum share of other page sizes in a segment of one size.
const MIXED: f64 = 0.05;
/// Minimum memory, in units of huge pages. The gain of a smaller amount cannot be measured.
const WORTH_LARGE_PAGES: u64 = 16;
/// Coverage from which memory counts as mostly huge.
const COVERED: f64 = 0.5;
/// Share of walks in all cycles below which a change is not worthwhile.
pub(super) const WALKS_LITTLE: f64 = 0.02;
/// Share of one CPU below which a target waits for something other than memory.
pub(super) const CPU_LITTLE: f64 = 0.05;

/// Finds page tables that take a large share of memory.
pub fn page_tables(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let memory = Bytes(seen.trace.host.memory_bytes?);
    let at_ends = seen
        .trace
        .intervals
        .iter()
        .filter_map(|i| i.page_tables_bytes);
    let state = newest(seen.trace).and_then(|m| m.page_tables_bytes);
    let tables = Bytes(at_ends.chain(state).max()?);
    let part = tables
        .share_of(memory)
        .filter(|part| *part >= TABLES_MUCH)?;
    let processes = newest(seen.trace).map_or(&[][..], |m| &m.processes);
    let most = processes.iter().max_by_key(|p| p.page_tables_bytes);
    let mut evidence = vec![format!("{tables} of {memory}: {}", percent(part))];
    evidence.extend(most.filter(|p| p.page_tables_bytes > 0).map(|p| {
        format!(
            "the largest: {} of {} ({})",
            Bytes(p.page_tables_bytes),
            p.name,
            p.pid
        )
    }));
    Some(TraceFinding {
        id: "page-tables",
        severity: match part < TABLES_TOO_MUCH {
            true => Severity::Warning,
            false => Severity::Problem,
        },
        effects: vec![PageSizeEffect::Translation],
        text: format!(
            "Page tables take up to {tables}, {} of memory. Shared memory on huge pages needs \
             almost none.",
            percent(part)
        ),
        evidence,
        command: seen.command("why", "hugeleaf status"),
    })
}

/// Finds programs that waited for memory compaction.
pub fn compaction_stalls(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let stalls = seen.counter("compact_stall")?;
    let rate = seen.a_second(stalls);
    if rate < STALLS_A_SECOND {
        return None;
    }
    let mut evidence = vec![format!("{stalls} stalls, {rate:.1} a second")];
    if let (Some(failed), Some(_)) = (seen.counter("compact_fail"), share(1, stalls)) {
        evidence.push(format!("{failed} of them got no huge page"));
    }
    let events = seen.trace.memory_events.iter();
    let nanos: u64 = events
        .filter(|e| e.name.starts_with("compaction"))
        .filter_map(|e| e.nanos)
        .sum();
    if nanos > 0 {
        evidence.push(format!("{:.2} s waited", nanos as f64 / 1e9));
    }
    Some(TraceFinding {
        id: "compaction-stalls",
        severity: Severity::Warning,
        effects: vec![PageSizeEffect::Contiguity],
        text: format!(
            "Programs waited {rate:.1} times a second while the kernel compacted memory for huge \
             pages. Reserved pages, or promotion at a chosen time, avoid these waits."
        ),
        evidence,
        command: "hugeleaf status".to_owned(),
    })
}

/// Finds khugepaged using a large share of a CPU.
pub fn khugepaged_busy(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let rows = profile::by_process(seen.trace);
    let row = rows.iter().find(|row| row.name == "khugepaged")?;
    let possible = seen.trace.samples_a_second * seen.trace.seconds;
    if possible <= 0.0 {
        return None;
    }
    let part = row.modes.total() as f64 / possible;
    if part < KHUGEPAGED_SHARE {
        return None;
    }
    let mut evidence = vec![format!("{} of one CPU", percent(part))];
    evidence.extend(
        seen.counter("thp_collapse_alloc")
            .map(|made| format!("{made} huge pages made of base pages")),
    );
    Some(TraceFinding {
        id: "khugepaged-busy",
        severity: Severity::Warning,
        effects: vec![PageSizeEffect::Translation],
        text: format!(
            "khugepaged uses {} of a CPU to make huge pages of base pages while programs run. A \
             promotion does that once, at a time that you choose.",
            percent(part)
        ),
        evidence,
        command: seen.command("promote --dry-run", "hugeleaf status"),
    })
}

/// Finds huge pages that are split during use. The kernel counts splits for the whole host. For a target, only its own loss
/// is reported.
pub fn splits(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let split = ["thp_split_pmd", "thp_split_page"];
    let count = split.iter().filter_map(|name| seen.counter(name)).max()?;
    let rate = seen.a_second(count);
    if rate < SPLITS_A_SECOND {
        return None;
    }
    let mut evidence = vec![format!(
        "{count} huge pages split on this host, {rate:.1} a second"
    )];
    let lost = lost_by_target(seen);
    let whole_host = seen.trace.target.is_none();
    let locks = (seen.trace.pins.iter()).filter(|p| p.call.starts_with("mlock"));
    let locks: u64 = locks.map(|p| p.calls).sum();
    if locks > 0 && (whole_host || lost.is_some()) {
        evidence.push(format!(
            "{locks} calls of mlock: locking a part of a huge page splits its mapping"
        ));
    }
    let (severity, text) = match lost {
        _ if whole_host => (
            Severity::Warning,
            format!(
                "Transparent huge pages are split {rate:.1} times a second, so their gain is \
                 lost. Pages of a pool (hugetlb) are never split."
            ),
        ),
        Some(lost) => (
            Severity::Warning,
            format!(
                "{lost} of the target went from transparent huge pages to base pages, so their \
                 gain is lost. Pages of a pool (hugetlb) are never split."
            ),
        ),
        None => (
            Severity::Note,
            format!(
                "Transparent huge pages are split {rate:.1} times a second on this host, with no \
                 sign that they are the target's. The kernel does not count splits by process."
            ),
        ),
    };
    let command = match lost {
        Some(_) => seen.command("why", "hugeleaf status"),
        None => "hugeleaf status".to_owned(),
    };
    Some(TraceFinding {
        id: "splits",
        severity,
        effects: vec![PageSizeEffect::Translation],
        text,
        evidence,
        command,
    })
}

/// Returns the target's memory that changed from transparent huge pages to base pages. `None` if the amount is zero or
/// unknown.
fn lost_by_target(seen: &TraceStats<'_>) -> Option<Bytes> {
    let at = |state: Option<&MemoryState>, kind: &str| {
        let held = held(state?, TableScope::Target)?;
        let of_kind = held.iter().filter(|held| held.kind == kind);
        Some(of_kind.map(|held| held.bytes).sum::<u64>())
    };
    let (before, after) = (
        seen.trace.memory_before.as_ref(),
        seen.trace.memory_after.as_ref(),
    );
    let fewer = at(before, "thp")?.saturating_sub(at(after, "thp")?);
    let more = at(after, "base")?.saturating_sub(at(before, "base")?);
    // Freed memory was not split.
    Some(Bytes(fewer.min(more))).filter(|lost| !lost.is_zero())
}

/// Finds a segment of the target on several page sizes, although no mix was requested.
pub fn mixed_sizes(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let state = newest(seen.trace)?;
    let least = seen.large_page()?.get().saturating_mul(WORTH_LARGE_PAGES);
    let mixed: Vec<SegmentRow<'_>> = segments(state)
        .into_iter()
        .filter(|row| row.segment.resident_bytes >= least && is_mixed(row.segment))
        .collect();
    let first = mixed.first()?;
    let row = |row: &SegmentRow<'_>| {
        let sizes = row.segment.by_page_size.iter().filter(|h| h.bytes > 0);
        let sizes: Vec<String> = sizes.map(size).collect();
        format!(
            "{} ({}), {} at {:#x}: {}",
            row.process,
            row.pid,
            row.segment.role,
            row.segment.start,
            sizes.join(", ")
        )
    };
    Some(TraceFinding {
        id: "mixed-sizes",
        severity: Severity::Note,
        effects: vec![PageSizeEffect::Translation, PageSizeEffect::Unit],
        text: match mixed.len() {
            1 => format!(
                "A segment of {} is on several page sizes, although no mix was requested.",
                first.process
            ),
            n => format!("{n} segments are on several page sizes, although no mix was requested."),
        },
        evidence: mixed.iter().take(3).map(row).collect(),
        command: format!("hugeleaf why {}", first.pid),
    })
}

fn size(held: &PageSizeUsage) -> String {
    format!(
        "{} on {} {}",
        Bytes(held.bytes),
        held.kind,
        Bytes(held.page_bytes)
    )
}

/// True if no page size holds nearly all of the segment. A mix of a pool and its next rung was requested.
fn is_mixed(segment: &SegmentMemory) -> bool {
    let largest = segment.by_page_size.iter().map(|h| h.bytes).max();
    let most = share(largest.unwrap_or(0), total(&segment.by_page_size));
    let planned = segment.asked.contains("hugetlb");
    // Code and files become resident as they are read, in single pages.
    let is_data = !matches!(segment.role.as_str(), "text" | "file" | "vdso");
    is_data && !planned && most.is_some_and(|most| most < 1.0 - MIXED)
}

/// Finds a busy target with mostly base-page memory on a host that could provide huge pages.
pub fn on_base_pages(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let (coverage, on_base) = (seen.coverage()?, seen.on_base()?);
    let large = seen.large_page()?;
    let worth = Bytes(large.get().saturating_mul(WORTH_LARGE_PAGES));
    if coverage >= COVERED || on_base < worth {
        return None;
    }
    // Base pages cost nothing if counted walks are few, or the target hardly runs.
    let walks_little = seen.walks().is_some_and(|walks| walks < WALKS_LITTLE);
    if walks_little || seen.cpus_used()? < CPU_LITTLE {
        return None;
    }
    let mut evidence = vec![format!(
        "{on_base} of {} on base pages; {} on huge pages",
        seen.memory()?,
        percent(coverage)
    )];
    evidence.push(seen.walks_in_words());
    Some(TraceFinding {
        id: "on-base-pages",
        severity: Severity::Note,
        effects: vec![PageSizeEffect::Translation],
        text: format!(
            "{on_base} of {}'s memory is on base pages, and this host has {large} pages. An \
             experiment measures their gain; a trace does not.",
            seen.who()
        ),
        evidence,
        command: seen.command("why", "hugeleaf mem"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing::{self, finds};
    use super::*;
    use hugeleaf_trace::Trace;

    #[test]
    fn page_tables_as_status_counts_them() {
        let with = |part: f64| {
            let mut trace = testing::quiet();
            testing::page_tables(&mut trace, part);
            trace
        };
        assert_eq!(
            finds(&with(0.012), "page-tables").unwrap().severity,
            Severity::Warning
        );
        assert_eq!(
            finds(&with(0.06), "page-tables").unwrap().severity,
            Severity::Problem
        );
        assert_eq!(finds(&with(0.009), "page-tables"), None);
    }

    #[test]
    fn stalls_and_splits_by_rate() {
        let with = |name, total| testing::with_counter(testing::quiet(), name, total);
        let stalls = finds(&with("compact_stall", 11), "compaction-stalls").unwrap();
        assert_eq!(stalls.effects, [PageSizeEffect::Contiguity]);
        assert_eq!(finds(&with("compact_stall", 9), "compaction-stalls"), None);
        let mut host = with("thp_split_page", 11);
        host.target = None;
        assert_eq!(finds(&host, "splits").unwrap().severity, Severity::Warning);
        assert_eq!(finds(&with("thp_split_page", 9), "splits"), None);
    }

    /// The host's counter does not describe the target.
    #[test]
    fn splits_are_the_targets_where_it_lost_huge_pages() {
        let of_target = |before: (u64, u64), after: (u64, u64)| {
            let trace = testing::with_counter(testing::quiet(), "thp_split_page", 100);
            let at = |(base, huge)| testing::with_memory(trace.clone(), base, huge).memory_after;
            let (before, after) = (at(before), at(after));
            let trace = Trace {
                memory_before: before,
                memory_after: after,
                ..trace
            };
            finds(&trace, "splits").unwrap()
        };
        let others = of_target((10, 90), (10, 90));
        assert_eq!(others.severity, Severity::Note);
        assert!(others.text.contains("on this host"), "{}", others.text);
        assert_eq!(others.command, "hugeleaf status");
        let its = of_target((10, 90), (30, 70));
        assert_eq!(its.severity, Severity::Warning);
        assert!(its.text.starts_with("20M of the target"), "{}", its.text);
        assert!(its.command.contains("why"), "{}", its.command);
        let freed = of_target((10, 90), (10, 50));
        assert_eq!(freed.severity, Severity::Note);
        // Without data there is no statement.
        let unknown = testing::with_counter(testing::quiet(), "thp_split_page", 100);
        assert_eq!(finds(&unknown, "splits").unwrap().severity, Severity::Note);
    }

    #[test]
    fn khugepaged_by_its_part_of_a_cpu() {
        assert!(finds(&testing::khugepaged(55), "khugepaged-busy").is_some());
        assert_eq!(finds(&testing::khugepaged(45), "khugepaged-busy"), None);
    }

    #[test]
    fn mixed_segments_are_large_and_unplanned() {
        let segment =
            |base, huge, asked| testing::with_segment(testing::quiet(), base, huge, asked);
        let finding = finds(&segment(20, 44, ""), "mixed-sizes").unwrap();
        assert!(
            finding.evidence[0].contains("20M on base 4K, 44M on thp 2M"),
            "{finding:?}"
        );
        assert_eq!(finds(&segment(1, 63, ""), "mixed-sizes"), None);
        assert_eq!(finds(&segment(10, 20, ""), "mixed-sizes"), None);
        assert_eq!(finds(&segment(20, 44, "hugetlb 2M"), "mixed-sizes"), None);
    }

    #[test]
    fn base_pages_matter_where_there_is_work_and_memory() {
        let on_base = |base, huge| testing::with_memory(testing::quiet(), base, huge);
        assert!(finds(&on_base(640, 360), "on-base-pages").is_some());
        assert_eq!(finds(&on_base(490, 510), "on-base-pages"), None);
        assert_eq!(finds(&on_base(31, 0), "on-base-pages"), None);
        let mut idle = on_base(640, 360);
        testing::cpu(&mut idle, 0.2, 0.2);
        assert_eq!(finds(&idle, "on-base-pages"), None);
        let walks = |part| testing::with_memory(testing::walks(part), 640, 360);
        assert_eq!(finds(&walks(0.01), "on-base-pages"), None);
        assert!(finds(&walks(0.03), "on-base-pages").is_some());
    }
}
