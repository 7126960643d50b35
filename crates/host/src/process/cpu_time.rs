//! Processor time used by a process, from `stat` of it and of each of its threads (proc(5)).

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_sys::{Pid, ticks_per_second};

use super::ProcessError;
use super::proc_parsers::parse_stat;
use super::read::{gone_error, read_stat};
use crate::parse_helpers::{ParseError, number};
use crate::root::Root;

/// Processor time and page faults of a process since it started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuUsage {
    /// Processor time in user mode, of all threads, including those that have ended.
    pub user: Duration,
    pub system: Duration,
    /// Time that its living threads were runnable but waited for a processor. `None` if the kernel does not count that
    /// (`schedstat`).
    pub waited: Option<Duration>,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Processor time of each living thread, user mode and kernel, by its id.
    pub threads: BTreeMap<u32, Duration>,
}

impl CpuUsage {
    /// Returns the usage since an earlier reading.
    #[must_use]
    pub fn since(&self, before: &CpuUsage) -> CpuUsage {
        let thread = |(id, now): (&u32, &Duration)| {
            let then = before.threads.get(id).copied().unwrap_or_default();
            (*id, now.saturating_sub(then))
        };
        CpuUsage {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            waited: (self.waited.zip(before.waited))
                .map(|(now, before)| now.saturating_sub(before)),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            threads: self.threads.iter().map(thread).collect(),
        }
    }

    pub fn busiest(&self) -> Duration {
        self.threads.values().max().copied().unwrap_or_default()
    }
}

/// Returns the usage of a process so far.
///
/// # Errors
/// [`ProcessError`] if it ended, or is hidden.
pub fn cpu_usage(root: &Root, pid: Pid) -> Result<CpuUsage, ProcessError> {
    let all = read_stat(root, pid)?;
    let names = root.list(format!("proc/{pid}/task"));
    let names = names.known().ok_or_else(|| gone_error(root, pid))?;
    let thread = |name: &String| {
        let stat = root.parse(format!("proc/{pid}/task/{name}/stat"), parse_stat);
        // Skips a thread that has ended meanwhile.
        let stat = stat.known()?;
        let used = time(stat.user_ticks + stat.system_ticks);
        Some((name.parse().ok()?, used))
    };
    let waited = |name: &String| {
        let file = format!("proc/{pid}/task/{name}/schedstat");
        root.parse(file, parse_schedstat).get()
    };
    let waited: Vec<Duration> = names.iter().filter_map(waited).collect();
    Ok(CpuUsage {
        user: time(all.user_ticks),
        system: time(all.system_ticks),
        waited: (!waited.is_empty()).then(|| waited.iter().sum()),
        minor_faults: all.minor_faults,
        threads: names.iter().filter_map(thread).collect(),
    })
}

/// Parses the second number of `schedstat`: nanoseconds on a run queue (Documentation/scheduler/sched-stats.rst).
pub fn parse_schedstat(text: &str) -> Result<Duration, ParseError> {
    let word = text.split_ascii_whitespace().nth(1).unwrap_or_default();
    number(word).map(Duration::from_nanos)
}

fn time(ticks: u64) -> Duration {
    const NANOS: u64 = 1_000_000_000;
    let nanos = u128::from(ticks) * u128::from(NANOS) / u128::from(ticks_per_second().max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_sys::own_pid;

    #[test]
    fn what_works_has_used_more() {
        let root = Root::live();
        let before = cpu_usage(&root, own_pid()).unwrap();
        let began = std::time::Instant::now();
        let used = loop {
            let memory = vec![1u8; 1 << 20];
            std::hint::black_box(&memory);
            let used = cpu_usage(&root, own_pid()).unwrap().since(&before);
            let all = used.user + used.system;
            if all >= Duration::from_millis(50) || began.elapsed() > Duration::from_secs(60) {
                break used;
            }
        };
        assert!(used.user + used.system >= Duration::from_millis(50));
        assert!(used.busiest() <= used.user + used.system + Duration::from_millis(50));
        assert!(used.busiest() > Duration::ZERO && used.minor_faults > 0);
        assert!(cpu_usage(&root, Pid(u32::MAX / 2)).is_err());
    }

    #[test]
    fn time_on_a_run_queue() {
        let waited = parse_schedstat("250000000 19000000000 41\n");
        assert_eq!(waited, Ok(Duration::from_secs(19)));
        for bad in ["", "1", "1 x 2", "1 -2 3"] {
            assert!(parse_schedstat(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_new_thread_counts_from_its_start() {
        let of = |id: u32, millis| BTreeMap::from([(id, Duration::from_millis(millis))]);
        let at = |threads| CpuUsage {
            threads,
            ..CpuUsage::default()
        };
        let since = at(of(2, 30)).since(&at(of(1, 500)));
        assert_eq!(since.busiest(), Duration::from_millis(30));
    }
}
