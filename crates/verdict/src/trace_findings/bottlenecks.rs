//! Costs in the CPU profile and at locks.

use hugeleaf_trace::model::Lock;
use hugeleaf_trace::tables::{interval_totals, io_and_pins, locks, share};
use hugeleaf_units::Bytes;

use super::kernel_work::{KernelWork, area_of_stack};
use super::{PageSizeEffect, TraceFinding, TraceStats, percent};
use crate::findings::Severity;

/// Minimum ratio of kernel time to user time. The published case has 5 to 8; a server that reads and writes has 1
/// to 2. From 3 on, kernel work dominates.
const SYSTEM_OVER_USER: f64 = 3.0;
/// Minimum share of the target's samples that justifies a change of its memory.
const PIN_SHARE: f64 = 0.2;
/// Minimum share for the segments of requests. Huge pages do not remove all of this work.
const PIECES_SHARE: f64 = 0.1;
const FAULT_SHARE: f64 = 0.1;
/// Minimum share of faults on base pages.
const FAULTS_ON_BASE: f64 = 0.9;
/// Minimum share of page-table walks in all cycles, at which published gains of huge pages begin.
const WALK_SHARE: f64 = 0.1;
/// Average number of threads that wait for locks. A tenth of a CPU justifies a finding.
const WAITING: f64 = 0.1;
/// Minimum share of a lock in all lock waits to be the cause.
const LOCK_SHARE: f64 = 0.25;

/// Finds kernel time far above user time, most of it in handling pages one by one.
pub fn pin_locking(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let cpu = seen.cpu?;
    let pin = seen.area_share(KernelWork::Pin)?;
    let times = match cpu.system_over_user() {
        Some(times) => times,
        // Kernel time without any user time is an infinite ratio.
        None if cpu.system > 0.0 => f64::INFINITY,
        None => return None,
    };
    if times < SYSTEM_OVER_USER || pin < PIN_SHARE {
        return None;
    }
    let times = match times.is_finite() {
        true if times >= 20.0 => format!("System time is {times:.0} times user time"),
        true => format!("System time is {times:.1} times user time"),
        false => "All CPU time is system time".to_owned(),
    };
    let mut evidence = vec![
        format!("user {:.2} s, system {:.2} s", cpu.user, cpu.system),
        format!(
            "{} of {}'s samples in {}",
            percent(pin),
            seen.who(),
            KernelWork::Pin.name()
        ),
    ];
    if let Some((name, part)) = seen.hottest(KernelWork::Pin) {
        evidence.push(format!("most of that in {name}: {}", percent(part)));
    }
    evidence.extend(units(seen));
    evidence.extend(on_large(seen));
    evidence.extend(top_lock(seen, KernelWork::Pin));
    Some(TraceFinding {
        id: "pin-locking",
        severity: Severity::Warning,
        effects: vec![PageSizeEffect::Unit],
        text: format!(
            "{times}, and {} of the samples of {} are in finding, pinning and releasing pages one \
             by one. With huge pages, there are fewer pages to handle.",
            percent(pin),
            seen.who()
        ),
        evidence,
        command: seen.command("why", "hugeleaf mem"),
    })
}

/// Explains a cost that remains although most of the target's memory is on huge pages.
fn on_large(seen: &TraceStats<'_>) -> Option<String> {
    let part = seen.coverage().filter(|part| *part >= 0.5)?;
    Some(format!(
        "{} of its memory is already on huge pages",
        percent(part)
    ))
}

/// Returns the number of pages per pinning call, on base pages and on huge pages.
fn units(seen: &TraceStats<'_>) -> Option<String> {
    let rows = io_and_pins::pins(seen.trace);
    let row = rows
        .iter()
        .find(|row| row.calls > 0 && row.bytes.is_some_and(|b| b > 0))?;
    let base = seen.trace.host.base_page_bytes;
    let large = seen.large_page()?.get();
    if base == 0 || large == 0 {
        return None;
    }
    let each = row.bytes? / row.calls;
    // Scaled counts are inexact, so round to the nearest whole number of pages.
    let pages = |size: u64| ((each + size / 2) / size).max(1);
    Some(format!(
        "{} {} of {} each: {} base pages a call, {} on pages of {}",
        row.calls,
        row.call,
        Bytes(each),
        pages(base),
        pages(large),
        Bytes(large)
    ))
}

fn top_lock(seen: &TraceStats<'_>, area: KernelWork) -> Option<String> {
    let table = locks::table(seen.trace);
    let row = table
        .rows
        .iter()
        .find(|row| lock_area(seen, row.lock) == Some(area))?;
    Some(format!(
        "lock {}{}: {} waits, {} of all wait time",
        locks::label(row.lock),
        row.function
            .map(|f| format!(", taken by {f}"))
            .unwrap_or_default(),
        row.lock.totals.contentions,
        percent(row.share?)
    ))
}

pub(super) fn lock_area(seen: &TraceStats<'_>, lock: &Lock) -> Option<KernelWork> {
    let caller = lock
        .by_caller
        .iter()
        .max_by_key(|c| c.totals.waited_nanos)?;
    area_of_stack(seen.kernel(caller.stack))
}

/// Returns the average number of threads that wait for locks.
fn waiting(seen: &TraceStats<'_>, nanos: u64) -> f64 {
    seen.a_second(nanos) / 1e9
}

/// Finds waits for a lock that is held while pages are handled.
pub fn page_locks(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let table = locks::table(seen.trace);
    let (row, area) = table.rows.iter().find_map(|row| {
        let area = lock_area(seen, row.lock)?;
        (row.share? >= LOCK_SHARE).then_some((row, area))
    })?;
    let waiting = waiting(seen, row.lock.totals.waited_nanos);
    if waiting < WAITING {
        return None;
    }
    let turns = locks::turns(row.lock);
    let mut evidence = vec![format!(
        "{} waits, {waiting:.2} threads waiting on average, {} of all wait time",
        row.lock.totals.contentions,
        percent(row.share?)
    )];
    if let Some(part) = share(turns.changed, turns.got.saturating_sub(1)) {
        evidence.push(format!(
            "{} threads; after {} of its last {} waits, another thread took it",
            turns.threads,
            percent(part),
            turns.got
        ));
    }
    evidence.extend(on_large(seen));
    let by = row.function.unwrap_or("a function without a name");
    Some(TraceFinding {
        id: "page-locks",
        severity: Severity::Warning,
        effects: vec![effect_of(area)],
        text: format!(
            "Threads wait for each other at the {} {}, which {by} takes for {}. With huge pages \
             it is taken less often and held for less time.",
            row.lock.kind.name(),
            locks::label(row.lock),
            area.name()
        ),
        evidence,
        command: format!("hugeleaf trace show FILE --lock {}", locks::label(row.lock)),
    })
}

const fn effect_of(area: KernelWork) -> PageSizeEffect {
    match area {
        KernelWork::Pin => PageSizeEffect::Unit,
        KernelWork::Segments | KernelWork::Compaction => PageSizeEffect::Contiguity,
        KernelWork::Fault | KernelWork::PageTables | KernelWork::Collapse | KernelWork::Flush => {
            PageSizeEffect::Translation
        }
    }
}

/// Finds waits for a lock unrelated to pages, which huge pages do not shorten.
pub fn other_locks(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let table = locks::table(seen.trace);
    let row = table.rows.first()?;
    let waiting = waiting(seen, row.lock.totals.waited_nanos);
    if waiting < WAITING || row.share? < LOCK_SHARE || lock_area(seen, row.lock).is_some() {
        return None;
    }
    let by = row.function.unwrap_or("a function without a name");
    Some(TraceFinding {
        id: "other-locks",
        severity: Severity::Note,
        effects: Vec::new(),
        text: format!(
            "The {} with the longest wait time, {} in {by}, does not belong to memory management: \
             huge pages do not shorten its waits.",
            row.lock.kind.name(),
            locks::label(row.lock)
        ),
        evidence: vec![format!(
            "{} waits, {waiting:.2} threads waiting on average, {} of all wait time",
            row.lock.totals.contentions,
            percent(row.share?)
        )],
        command: format!("hugeleaf trace show FILE --lock {}", locks::label(row.lock)),
    })
}

/// Finds I/O requests that consist of many small memory segments.
pub fn io_pieces(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    // Any task may complete I/O: a kernel worker, or an interrupted process.
    let part = seen.host_area_share(KernelWork::Segments)?;
    if part < PIECES_SHARE {
        return None;
    }
    let mut evidence = vec![format!(
        "{} of all samples in {}",
        percent(part),
        KernelWork::Segments.name()
    )];
    if let Some(work) = io_and_pins::work(seen.trace) {
        let calls = work.read_calls + work.write_calls;
        if let Some(each) = work.moved_bytes().checked_div(calls) {
            evidence.push(format!("{calls} reads and writes, mean {}", Bytes(each)));
        }
    }
    Some(TraceFinding {
        id: "io-pieces",
        severity: Severity::Warning,
        effects: vec![PageSizeEffect::Contiguity],
        text: format!(
            "{} of all time is spent on building I/O requests from memory segments. Each \
             scattered base page is a segment; a huge page is a single one.",
            percent(part)
        ),
        evidence,
        command: "hugeleaf-lab mover".to_owned(),
    })
}

/// Finds page faults that take much of the time, each for one base page.
pub fn base_faults(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let part = seen.area_share(KernelWork::Fault)?;
    if part < FAULT_SHARE {
        return None;
    }
    let sizes = interval_totals::faults_by_size(seen.trace);
    let all: u64 = sizes.iter().map(|s| s.count).sum();
    let base = seen.trace.host.base_page_bytes;
    let on_base = sizes.iter().filter(|s| s.page_bytes == base);
    let on_base = share(on_base.map(|s| s.count).sum(), all)?;
    if on_base < FAULTS_ON_BASE {
        return None;
    }
    let mut evidence = vec![
        format!(
            "{} of {}'s samples in {}",
            percent(part),
            seen.who(),
            KernelWork::Fault.name()
        ),
        format!(
            "{:.0} faults a second, {} of them on base pages",
            seen.a_second(all),
            percent(on_base)
        ),
    ];
    if let Some(large) = seen.large_page().filter(|_| base > 0) {
        evidence.push(format!(
            "one fault on a {large} page replaces {}",
            large.get() / base
        ));
    }
    Some(TraceFinding {
        id: "base-faults",
        severity: Severity::Warning,
        effects: vec![PageSizeEffect::Translation],
        text: format!(
            "Page faults take {} of the time, and nearly all of them map one base page.",
            percent(part)
        ),
        evidence,
        command: seen.command("why", "hugeleaf status"),
    })
}

/// Finds page-table walks that take a large share of all cycles.
pub fn page_walks(seen: &TraceStats<'_>) -> Option<TraceFinding> {
    let part = seen.walks().filter(|part| *part >= WALK_SHARE)?;
    let mut evidence = vec![format!("{} of all cycles of this host", percent(part))];
    evidence.extend(seen.coverage().map(|coverage| {
        format!(
            "{} of {}'s memory is on huge pages",
            percent(coverage),
            seen.who()
        )
    }));
    let misses = seen.cpu_counter("dtlb_load_misses");
    evidence.extend(misses.map(|misses| {
        format!(
            "{:.1} million data TLB misses a second",
            seen.a_second(misses) / 1e6
        )
    }));
    Some(TraceFinding {
        id: "page-walks",
        severity: Severity::Warning,
        effects: vec![PageSizeEffect::Translation],
        text: format!(
            "{} of all cycles are spent in page-table walks. A TLB entry for a huge page covers \
             more memory.",
            percent(part)
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
    fn pin_locking_needs_both_the_ratio_and_the_profile() {
        let shows = testing::pinning(4.0, 30);
        let finding = finds(&shows, "pin-locking").unwrap();
        assert_eq!(finding.effects, [PageSizeEffect::Unit]);
        let all = finding.evidence.join("\n");
        for part in ["mlock_pte_range", "64 base pages a call, 1 on pages of 2M"] {
            assert!(all.contains(part), "{part} in {all}");
        }
        assert_eq!(finding.command, "hugeleaf why mover");
        assert_eq!(finds(&testing::pinning(2.9, 30), "pin-locking"), None);
        assert_eq!(finds(&testing::pinning(4.0, 19), "pin-locking"), None);
        // No user time at all.
        assert!(finds(&testing::pinning(f64::INFINITY, 30), "pin-locking").is_some());
    }

    #[test]
    fn locks_are_about_pages_or_not() {
        let lock = |nanos, function| testing::with_lock(testing::quiet(), nanos, function);
        let second = 1_000_000_000;
        let pages = lock(2 * second, "mlock_pte_range");
        let finding = finds(&pages, "page-locks").unwrap();
        assert!(
            finding.text.contains("mlock_pte_range") && finding.effects == [PageSizeEffect::Unit]
        );
        assert!(finding.evidence[1].contains("2 threads"), "{finding:?}");
        assert_eq!(finds(&pages, "other-locks"), None);
        assert_eq!(
            finds(&lock(second / 2, "mlock_pte_range"), "page-locks"),
            None
        );
        let other = lock(2 * second, "tcp_sendmsg");
        assert!(finds(&other, "other-locks").unwrap().effects.is_empty());
        assert_eq!(finds(&other, "page-locks"), None);
        assert_eq!(finds(&lock(second / 2, "tcp_sendmsg"), "other-locks"), None);
    }

    #[test]
    fn pieces_of_requests() {
        let shows = testing::busy_in(testing::quiet(), "__blk_rq_map_sg", 12);
        assert_eq!(
            finds(&shows, "io-pieces").unwrap().effects,
            [PageSizeEffect::Contiguity]
        );
        let nearly = testing::busy_in(testing::quiet(), "__blk_rq_map_sg", 9);
        assert_eq!(finds(&nearly, "io-pieces"), None);
    }

    #[test]
    fn faults_count_where_they_take_time_and_are_on_base_pages() {
        let with = |share, on_base| {
            let mut trace = testing::busy_in(testing::quiet(), "clear_page_erms", share);
            testing::faults(&mut trace, on_base);
            trace
        };
        let shows = with(12, 95);
        assert!(finds(&shows, "base-faults").unwrap().evidence[2].contains("512"));
        assert_eq!(finds(&with(9, 95), "base-faults"), None);
        assert_eq!(finds(&with(12, 80), "base-faults"), None);
        let unknown: Trace = testing::busy_in(testing::quiet(), "clear_page_erms", 12);
        assert_eq!(finds(&unknown, "base-faults"), None);
    }

    #[test]
    fn walks_are_counted_or_not_spoken_of() {
        assert!(finds(&testing::walks(0.11), "page-walks").is_some());
        assert_eq!(finds(&testing::walks(0.09), "page-walks"), None);
        assert_eq!(finds(&testing::quiet(), "page-walks"), None);
    }
}
