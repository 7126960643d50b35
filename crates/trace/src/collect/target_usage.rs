//! Work of processes between two scans: CPU time, faults, and I/O of the target's threads.

use std::collections::HashMap;

use hugeleaf_host::Root;
use hugeleaf_host::process::proc_parsers::parse_status;
use hugeleaf_perf::monotonic_nanos;
use hugeleaf_sys::ticks_per_second;
use hugeleaf_units::Bytes;

use super::processes::ProcessTable;
use crate::model::{EventSource, SourceState, TargetInterval, ThreadIo};
use crate::tables::not_measured::TraceDataKind;

/// Minor and major faults, user and system time in clock ticks.
type TaskCounters = [u64; 4];

fn since(now: TaskCounters, before: TaskCounters) -> TaskCounters {
    std::array::from_fn(|at| now[at].saturating_sub(before[at]))
}

/// Parses `/proc/PID/stat`, fields 10, 12, 14 and 15 of proc(5).
fn parse_done(text: &str) -> Option<TaskCounters> {
    let rest = &text[text.rfind(')')? + 1..];
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse().ok();
    Some([number(10)?, number(12)?, number(14)?, number(15)?])
}

fn seconds([_, _, user, system]: TaskCounters) -> [f64; 2] {
    [user, system].map(|ticks| ticks as f64 / ticks_per_second().max(1) as f64)
}

/// Parses `/proc/PID/task/TID/io`.
fn parse_io(text: &str) -> Option<ThreadIo> {
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name == key).then(|| value.trim().parse::<u64>().ok())?
        })
    };
    Some(ThreadIo {
        read_calls: value("syscr")?,
        write_calls: value("syscw")?,
        read_bytes: value("rchar")?,
        write_bytes: value("wchar")?,
        device_read_bytes: value("read_bytes")?,
        device_write_bytes: value("write_bytes")?,
    })
}

fn io_since(now: &ThreadIo, before: &ThreadIo) -> ThreadIo {
    let less = u64::saturating_sub;
    ThreadIo {
        read_calls: less(now.read_calls, before.read_calls),
        write_calls: less(now.write_calls, before.write_calls),
        read_bytes: less(now.read_bytes, before.read_bytes),
        write_bytes: less(now.write_bytes, before.write_bytes),
        device_read_bytes: less(now.device_read_bytes, before.device_read_bytes),
        device_write_bytes: less(now.device_write_bytes, before.device_write_bytes),
    }
}

/// Maximum number of threads whose I/O is read per scan; more would disturb the measurement.
const THREADS_A_LOOK: usize = 600;

const PROCESSES_A_LOOK: usize = 2_000;

#[derive(Debug)]
pub struct TargetUsage {
    root: Root,
    /// By process index: at the start, and as last seen.
    done: HashMap<u32, (TaskCounters, TaskCounters)>,
    /// By process index and thread: at the start, and as last seen.
    io: HashMap<(u32, u32), (ThreadIo, ThreadIo)>,
    /// By process index: descriptors open with O_DIRECT.
    direct: HashMap<u32, u64>,
    /// True if a scan skipped processes or threads because there were too many.
    left_out: bool,
}

impl TargetUsage {
    pub fn new(root: &Root) -> TargetUsage {
        TargetUsage {
            root: root.clone(),
            done: HashMap::new(),
            io: HashMap::new(),
            direct: HashMap::new(),
            left_out: false,
        }
    }

    /// Returns the source of the target's I/O; `None` without a target.
    pub fn source(&self, has_target: bool) -> Option<EventSource> {
        let state = match self.io.is_empty() {
            false => SourceState::Used,
            true => SourceState::refused(
                "the I/O of the target's threads (task/TID/io) could not be read",
                "run as root: reading it requires ptrace access",
            ),
        };
        has_target.then(|| EventSource::new(TraceDataKind::Io.name(), state))
    }

    /// Scans the target. Returns its work since the last scan, or `None` if no process was readable.
    pub fn scan(&mut self, processes: &mut ProcessTable) -> Option<TargetInterval> {
        let pids = processes.target();
        let mut interval = TargetInterval {
            processes: pids.len() as u64,
            ..TargetInterval::default()
        };
        let mut grown = TaskCounters::default();
        let (mut threads, mut were_read) = (0, pids.is_empty());
        let mut gone = Vec::new();
        self.left_out |= pids.len() > PROCESSES_A_LOOK;
        for pid in pids.into_iter().take(PROCESSES_A_LOOK) {
            let place = processes.find(pid);
            let begun_here = processes.process(place).started_seconds.is_some();
            let stat = self.root.read(format!("proc/{pid}/stat"));
            if stat.is_absent() {
                gone.push(pid);
            }
            if let Some(now) = stat.known().and_then(|text| parse_done(text)) {
                were_read = true;
                let first = if begun_here {
                    TaskCounters::default()
                } else {
                    now
                };
                let (_, last) = self.done.entry(place).or_insert((first, first));
                let more = since(now, *last);
                *last = now;
                grown.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
            }
            let status = self.root.parse(format!("proc/{pid}/status"), parse_status);
            // A kernel thread has none of these values.
            if let Some(status) = status.known() {
                let bytes = |held: Option<Bytes>| held.map_or(0, Bytes::get);
                interval.page_tables_bytes += bytes(status.page_tables);
                interval.locked_bytes += bytes(status.locked);
                interval.pinned_bytes += bytes(status.pinned);
            }
            threads += self.look_at_io(pid, place, begun_here, threads, &mut interval);
        }
        processes.end_missing(gone, monotonic_nanos());
        [interval.faults_minor, interval.faults_major, _, _] = grown;
        [interval.user_seconds, interval.system_seconds] = seconds(grown);
        were_read.then_some(interval)
    }

    /// Reads the I/O of a process's threads, and returns their number.
    fn look_at_io(
        &mut self,
        pid: u32,
        place: u32,
        begun_here: bool,
        before: usize,
        interval: &mut TargetInterval,
    ) -> usize {
        let tids = self.root.list(format!("proc/{pid}/task")).or_default();
        let tids: Vec<u32> = tids.iter().filter_map(|name| name.parse().ok()).collect();
        let first_look = !self.io.keys().any(|(p, _)| *p == place);
        for (n, tid) in tids.iter().enumerate() {
            if before + n >= THREADS_A_LOOK {
                self.left_out = true;
                break;
            }
            let text = self.root.read(format!("proc/{pid}/task/{tid}/io"));
            let Some(now) = text.known().and_then(|t| parse_io(t)) else {
                continue;
            };
            // A thread that did not exist at the last scan started at zero.
            let first = match first_look && !begun_here {
                true => now,
                false => ThreadIo::default(),
            };
            let (_, last) = self.io.entry((place, *tid)).or_insert((first, first));
            let more = io_since(&now, last);
            *last = now;
            interval.read_bytes += more.read_bytes;
            interval.write_bytes += more.write_bytes;
        }
        tids.len()
    }

    /// Counts the descriptors of the target's processes that are open with O_DIRECT.
    pub fn look_at_files(&mut self, processes: &mut ProcessTable) {
        for pid in processes.target().into_iter().take(PROCESSES_A_LOOK) {
            let folder = format!("proc/{pid}/fdinfo");
            let Some(names) = self.root.list(&folder).known().cloned() else {
                continue;
            };
            let direct = names
                .iter()
                .take(PROCESSES_A_LOOK)
                .filter(|fd| {
                    let info = self.root.read(format!("{folder}/{fd}"));
                    info.known().is_some_and(|text| is_direct(text))
                })
                .count();
            let place = processes.find(pid);
            let known = self.direct.entry(place).or_default();
            *known = (*known).max(direct as u64);
        }
    }

    pub fn finish(&self, processes: &mut ProcessTable) -> Vec<(u32, u32)> {
        for (place, (first, last)) in &self.done {
            let done = since(*last, *first);
            let process = processes.process(*place);
            [process.faults_minor, process.faults_major, _, _] = done.map(Some);
            [process.user_seconds, process.system_seconds] = seconds(done).map(Some);
        }
        for (place, files) in &self.direct {
            processes.process(*place).direct_files = Some(*files);
        }
        self.io.keys().copied().collect()
    }

    pub fn io_of(&self, place: u32, tid: u32) -> Option<ThreadIo> {
        let (first, last) = self.io.get(&(place, tid))?;
        Some(io_since(last, first))
    }

    pub fn note(&self) -> Option<String> {
        self.left_out.then(|| {
            format!(
                "The target has too many processes or threads: only {PROCESSES_A_LOOK} \
                 processes and the I/O of {THREADS_A_LOOK} threads were read each second."
            )
        })
    }
}

/// Parses `flags` of a file of `/proc/PID/fdinfo` (octal), and returns true for O_DIRECT.
fn is_direct(text: &str) -> bool {
    let flags = text
        .lines()
        .find_map(|line| line.strip_prefix("flags:"))
        .and_then(|word| u32::from_str_radix(word.trim(), 8).ok());
    flags.is_some_and(|flags| flags & hugeleaf_sys::DIRECT_FLAG != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 11 12 13 14 15 16 17 18 20 0";
        let done = parse_done(stat).unwrap();
        assert_eq!(done, [11, 13, 15, 16]);
        let io =
            parse_io("rchar: 5\nwchar: 6\nsyscr: 1\nsyscw: 2\nread_bytes: 3\nwrite_bytes: 4\n");
        assert_eq!(io.unwrap().device_read_bytes, 3);
        assert_eq!(parse_io("rchar: 5\n"), None);
        let flags = format!("pos:\t0\nflags:\t{:o}\n", hugeleaf_sys::DIRECT_FLAG | 2);
        assert!(is_direct(&flags) && !is_direct("flags:\t02\n"));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*") {
            let _ = parse_done(&text);
            let _ = parse_io(&text);
            let _ = is_direct(&text);
        }
    }
}
