//! Bounds against hostile traces whose sums of counts would wrap. All counts together must fit a
//! sum; then any subset does.

use crate::model::{
    Interval, Lock, LockTotals, MemoryState, PageSizeCount, PageSizeUsage, ProcessMemory, Trace,
    TracedProcess,
};

/// Upper bound of all counts, times and bytes together. A day's trace of a host with 12 TiB reaches
/// an eighth of it.
const MOST: u128 = i64::MAX as u128;

/// Checks that any sum of counts of this trace fits 64 bits.
pub(super) fn check(trace: &Trace) -> Result<(), String> {
    let sum = of_parts(trace)
        + sum_by(trace.intervals.iter(), interval)
        + sum_by(trace.processes.iter(), process)
        + sum_by(trace.locks.iter(), lock)
        + sum_by(
            [&trace.memory_before, &trace.memory_after]
                .into_iter()
                .flatten(),
            state,
        );
    match sum <= MOST {
        true => Ok(()),
        false => Err("its counts are impossibly large".to_owned()),
    }
}

fn sum_by<'a, T: 'a>(all: impl Iterator<Item = &'a T>, each: impl Fn(&T) -> u128) -> u128 {
    all.map(each).sum()
}

fn add(counts: &[u64]) -> u128 {
    counts.iter().map(|c| u128::from(*c)).sum()
}

fn add_known(counts: &[Option<u64>]) -> u128 {
    counts.iter().flatten().map(|c| u128::from(*c)).sum()
}

/// Pages are shown as bytes too. The product needs 128 bits and is capped, because a sum of few such
/// products could wrap itself.
fn pages(count: u64, page_bytes: u64) -> u128 {
    (u128::from(count) * u128::from(page_bytes.max(1))).min(MOST + 1)
}

fn of_parts(trace: &Trace) -> u128 {
    let base = trace.host.base_page_bytes;
    sum_by(trace.sources.iter(), |s| add(&[s.events, s.lost]))
        + sum_by(trace.samples.iter().chain(&trace.faults), |s| {
            u128::from(s.count)
        })
        + totals(&trace.other_locks)
        + u128::from(trace.other_locks_count)
        + sum_by(trace.memory_events.iter(), |e| {
            add(&[e.count]) + add_known(&[e.nanos]) + pages(e.pages.unwrap_or(0), base)
        })
        + sum_by(trace.memory_counters.iter(), |c| {
            let page = c.page_bytes.unwrap_or(1);
            pages(c.total, page) + sum_by(c.by_interval.iter(), |n| pages(*n, page))
        })
        + sum_by(trace.pins.iter(), |p| {
            add(&[p.calls]) + add_known(&[p.bytes, p.failed])
        })
}

fn interval(i: &Interval) -> u128 {
    let target = i.target.as_ref().map_or(0, |t| {
        add(&[
            t.processes,
            t.faults_minor,
            t.faults_major,
            t.page_tables_bytes,
            t.locked_bytes,
            t.pinned_bytes,
            t.read_bytes,
            t.write_bytes,
        ]) + held(&t.by_size)
    });
    let counts = [
        i.runnable,
        i.blocked,
        i.faults,
        i.faults_major,
        i.context_switches,
        i.forks,
        i.page_in_bytes,
        i.page_out_bytes,
        i.swap_in_bytes,
        i.swap_out_bytes,
    ];
    let by_size = |s: &PageSizeCount| pages(s.count, s.page_bytes);
    add(&counts)
        + sum_by(i.faults_by_size.iter(), by_size)
        + held(&i.host_by_size)
        + add_known(&[i.page_tables_bytes])
        + target
}

fn process(process: &TracedProcess) -> u128 {
    let known = [
        process.faults_minor,
        process.faults_major,
        process.direct_files,
    ];
    add_known(&known)
        + sum_by(process.threads.iter().filter_map(|t| t.io.as_ref()), |io| {
            add(&[
                io.read_calls,
                io.write_calls,
                io.read_bytes,
                io.write_bytes,
                io.device_read_bytes,
                io.device_write_bytes,
            ])
        })
}

fn totals(totals: &LockTotals) -> u128 {
    add(&[totals.contentions, totals.waited_nanos])
}

fn lock(lock: &Lock) -> u128 {
    totals(&lock.totals)
        + add(&[lock.failed, lock.events_left_out])
        + sum_by(lock.by_caller.iter(), |c| totals(&c.totals))
        + sum_by(lock.by_thread.iter(), |t| totals(&t.totals))
        + sum_by(lock.events.iter(), |e| u128::from(e.waited_nanos))
}

fn held(all: &[PageSizeUsage]) -> u128 {
    sum_by(all.iter(), |h| u128::from(h.bytes))
}

fn state(state: &MemoryState) -> u128 {
    held(&state.by_page_size)
        + add_known(&[state.page_tables_bytes])
        + sum_by(state.pools.iter(), |p| {
            pages(p.total, p.page_bytes)
                + pages(p.free, p.page_bytes)
                + pages(p.reserved, p.page_bytes)
        })
        + sum_by(state.processes.iter(), memory)
}

fn memory(process: &ProcessMemory) -> u128 {
    let counts = [
        process.resident_bytes,
        process.locked_bytes,
        process.pinned_bytes,
        process.page_tables_bytes,
    ];
    add(&counts)
        + held(process.by_page_size.as_deref().unwrap_or_default())
        + sum_by(process.segments.iter(), |s| {
            add(&[s.resident_bytes, s.locked_bytes]) + held(&s.by_page_size)
        })
}
