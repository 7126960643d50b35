//! The target's work: calls and bytes of its I/O, pinned memory, and the cost.

use std::collections::BTreeMap;

use serde::Serialize;

use super::interval_totals::target_cpu;
use super::profile::thread_name;
use crate::model::{ThreadIo, Trace};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IoRow {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    #[serde(flatten)]
    pub io: ThreadIo,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct IoTotals {
    pub read_calls: u64,
    pub write_calls: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    /// Bytes moved a second, in and out together.
    pub bytes_a_second: f64,
    /// CPU time for each gigabyte (2^30) moved. `None` if nothing was moved or the time is unknown.
    pub cpu_seconds_a_gigabyte: Option<f64>,
}

impl IoTotals {
    pub const fn moved_bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.write_bytes)
    }

    /// True if the target mainly moves data. For a server that reads a file now and then, rate and cost of a
    /// gigabyte are meaningless.
    pub fn moves_data(&self) -> bool {
        /// Bytes a second.
        const LITTLE: u32 = 1 << 20; // not a page size
        self.bytes_a_second >= f64::from(LITTLE)
    }
}

/// Calls that pin, by kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PinRow {
    /// `mlock`, `direct read`, …
    pub call: String,
    pub calls: u64,
    /// Number of bytes; `None` if no call reported it.
    pub bytes: Option<u64>,
    /// Number of failed calls; `None` if no result was observed.
    pub failed: Option<u64>,
    /// True if counted for part of the time and scaled up.
    pub estimated: bool,
    pub threads: usize,
}

/// Returns bytes in and out of a thread. I/O through io_uring is visible at the device only, page-cache I/O at
/// the calls only, so the larger number counts.
pub const fn moved(io: &ThreadIo) -> (u64, u64) {
    const fn larger(a: u64, b: u64) -> u64 {
        if a > b { a } else { b }
    }
    (
        larger(io.read_bytes, io.device_read_bytes),
        larger(io.write_bytes, io.device_write_bytes),
    )
}

/// Returns I/O by thread, most bytes first. Threads without I/O are omitted.
pub fn io_by_thread(trace: &Trace) -> Vec<IoRow> {
    let mut rows = Vec::new();
    for (process, place) in trace.processes.iter().zip(0u32..) {
        for thread in &process.threads {
            let Some(io) = thread.io.filter(|io| *io != ThreadIo::default()) else {
                continue;
            };
            rows.push(IoRow {
                pid: process.pid,
                tid: thread.tid,
                name: thread_name(trace, place, thread.tid).to_owned(),
                io,
            });
        }
    }
    rows.sort_by_key(|row| {
        let (read, written) = moved(&row.io);
        std::cmp::Reverse(read.saturating_add(written))
    });
    rows
}

/// Returns the target's work; `None` if its I/O was not read.
pub fn work(trace: &Trace) -> Option<IoTotals> {
    let members = trace.processes.iter().filter(|p| p.in_target);
    let ios = members.flat_map(|p| p.threads.iter().filter_map(|t| t.io));
    let mut sum: Option<IoTotals> = None;
    for io in ios {
        let sum = sum.get_or_insert_default();
        let (read, written) = moved(&io);
        sum.read_calls += io.read_calls;
        sum.write_calls += io.write_calls;
        sum.read_bytes += read;
        sum.write_bytes += written;
    }
    let mut work = sum?;
    let moved = work.moved_bytes() as f64;
    if trace.seconds > 0.0 {
        work.bytes_a_second = moved / trace.seconds;
    }
    let cpu = target_cpu(trace).filter(|_| moved > 0.0);
    work.cpu_seconds_a_gigabyte =
        cpu.map(|cpu| (cpu.user + cpu.system) / (moved / f64::from(1u32 << 30)));
    Some(work)
}

/// Returns calls that pin, most bytes first: those of the target, or all without a target.
pub fn pins(trace: &Trace) -> Vec<PinRow> {
    let mut rows: BTreeMap<&str, PinRow> = BTreeMap::new();
    for pin in &trace.pins {
        let process = &trace.processes[pin.process as usize];
        if trace.target.is_some() && !process.in_target {
            continue;
        }
        let row = rows.entry(&pin.call).or_insert_with(|| PinRow {
            call: pin.call.clone(),
            ..PinRow::default()
        });
        let join = |sum: Option<u64>, more: Option<u64>| match (sum, more) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
        };
        row.calls += pin.calls;
        row.bytes = join(row.bytes, pin.bytes);
        row.failed = join(row.failed, pin.failed);
        row.estimated |= pin.estimated;
        row.threads += 1;
    }
    let mut rows: Vec<PinRow> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.bytes, row.calls)));
    rows
}

#[cfg(test)]
mod tests {
    use super::super::testing::Maker;
    use super::*;
    use crate::model::{PinningCalls, Thread};

    #[test]
    fn work_is_what_was_moved_and_what_it_cost() {
        let mut maker = Maker::new();
        let mover = maker.process(10, "mover", true) as usize;
        let other = maker.process(20, "other", false) as usize;
        assert_eq!(work(&maker.trace), None);
        let io = ThreadIo {
            read_calls: 4,
            read_bytes: 0,
            device_read_bytes: 1 << 30,
            ..ThreadIo::default()
        };
        let thread = |tid, io| Thread {
            tid,
            name: String::new(),
            io,
        };
        maker.trace.processes[mover].threads = vec![thread(11, Some(io)), thread(12, None)];
        maker.trace.processes[other].threads = vec![thread(20, Some(io))];
        maker.trace.processes[mover].user_seconds = Some(0.5);
        maker.trace.processes[mover].system_seconds = Some(1.5);
        let work = work(&maker.trace).unwrap();
        assert_eq!((work.read_calls, work.moved_bytes()), (4, 1 << 30));
        assert_eq!(work.cpu_seconds_a_gigabyte, Some(2.0));
        assert_eq!(io_by_thread(&maker.trace).len(), 2);
    }

    #[test]
    fn pins_are_the_targets_by_call() {
        let mut maker = Maker::new();
        let mover = maker.process(10, "mover", true);
        let other = maker.process(20, "other", false);
        let pin = |process, call: &str, calls, bytes| PinningCalls {
            process,
            call: call.to_owned(),
            calls,
            bytes,
            ..PinningCalls::default()
        };
        maker.trace.pins = vec![
            pin(mover, "mlock", 2, Some(8)),
            pin(mover, "mlock", 3, None),
            pin(mover, "mlockall", 1, None),
            pin(other, "mlock", 100, Some(100)),
        ];
        let rows = pins(&maker.trace);
        assert_eq!(
            (rows[0].calls, rows[0].bytes, rows[0].threads),
            (5, Some(8), 2)
        );
        assert_eq!((rows[1].call.as_str(), rows[1].bytes), ("mlockall", None));
    }
}
