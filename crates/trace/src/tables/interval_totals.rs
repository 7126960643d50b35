//! Sums over intervals.

use crate::model::{Interval, PageSizeCount, Trace};

/// CPU time over some intervals, in seconds of all CPUs together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuTime {
    pub user: f64,
    pub system: f64,
    pub idle: f64,
    pub wait: f64,
    pub steal: f64,
}

impl CpuTime {
    pub fn total(&self) -> f64 {
        self.user + self.system + self.idle + self.wait + self.steal
    }

    /// Returns a part as a share of the total; `None` if the total is zero.
    pub fn share(&self, part: f64) -> Option<f64> {
        let total = self.total();
        (total > 0.0).then(|| part / total)
    }

    /// Returns the ratio of system time to user time; `None` without user time.
    pub fn system_over_user(&self) -> Option<f64> {
        (self.user > 0.0).then(|| self.system / self.user)
    }

    pub const fn from_interval(interval: &Interval) -> CpuTime {
        CpuTime {
            user: interval.user_seconds,
            system: interval.system_seconds,
            idle: interval.idle_seconds,
            wait: interval.wait_seconds,
            steal: interval.steal_seconds,
        }
    }

    fn add(self, other: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user + other.user,
            system: self.system + other.system,
            idle: self.idle + other.idle,
            wait: self.wait + other.wait,
            steal: self.steal + other.steal,
        }
    }
}

pub fn host_cpu(trace: &Trace) -> CpuTime {
    let each = trace.intervals.iter().map(CpuTime::from_interval);
    each.fold(CpuTime::default(), CpuTime::add)
}

/// Returns user and system time of the target's processes, including ended ones as far as they were observed.
/// Without a target, those of the whole host. `None` if neither is known.
pub fn target_cpu(trace: &Trace) -> Option<CpuTime> {
    if trace.target.is_none() {
        return (!trace.intervals.is_empty()).then(|| host_cpu(trace));
    }
    let targets = trace.intervals.iter().filter_map(|i| i.target.as_ref());
    let by_interval = targets.fold(None, |sum: Option<CpuTime>, t| {
        let mut sum = sum.unwrap_or_default();
        sum.user += t.user_seconds;
        sum.system += t.system_seconds;
        Some(sum)
    });
    let members = trace.processes.iter().filter(|p| p.in_target);
    let by_process = members.fold(None, |sum: Option<CpuTime>, p| {
        let (user, system) = (p.user_seconds?, p.system_seconds?);
        let mut sum = sum.unwrap_or_default();
        sum.user += user;
        sum.system += system;
        Some(sum)
    });
    // Both are lower bounds: intervals miss processes that ended between two of them, and processes miss those
    // unread at their end. The larger one is nearer.
    match (by_interval, by_process) {
        (Some(a), Some(b)) => Some(match a.user + a.system >= b.user + b.system {
            true => a,
            false => b,
        }),
        (a, b) => a.or(b),
    }
}

pub fn sum(trace: &Trace, of: impl Fn(&Interval) -> u64) -> u64 {
    trace.intervals.iter().map(of).sum()
}

/// Returns faults by page size, smallest first.
pub fn faults_by_size(trace: &Trace) -> Vec<PageSizeCount> {
    let mut sizes: Vec<PageSizeCount> = Vec::new();
    for size in trace.intervals.iter().flat_map(|i| &i.faults_by_size) {
        match sizes.iter_mut().find(|s| s.page_bytes == size.page_bytes) {
            Some(known) => known.count += size.count,
            None => sizes.push(*size),
        }
    }
    sizes.sort_by_key(|size| size.page_bytes);
    sizes
}

/// Returns the maximum of the target's locked and of its pinned memory over all interval ends.
pub fn held_in_place(trace: &Trace) -> (u64, u64) {
    let targets = trace.intervals.iter().filter_map(|i| i.target.as_ref());
    targets.fold((0, 0), |(locked, pinned), t| {
        (locked.max(t.locked_bytes), pinned.max(t.pinned_bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{TargetInterval, TracedProcess, TracedTarget};

    #[test]
    fn sums_and_the_larger_of_two_lower_bounds() {
        let interval = Interval {
            seconds: 1.0,
            user_seconds: 0.5,
            system_seconds: 1.0,
            idle_seconds: 0.5,
            faults: 7,
            target: Some(TargetInterval {
                user_seconds: 0.25,
                system_seconds: 1.0,
                ..TargetInterval::default()
            }),
            ..Interval::default()
        };
        let mut trace = Trace {
            intervals: vec![interval.clone(), interval],
            ..Trace::default()
        };
        let host = host_cpu(&trace);
        assert_eq!(
            (host.share(host.system), host.system_over_user()),
            (Some(0.5), Some(2.0))
        );
        assert_eq!(target_cpu(&trace), Some(host));
        trace.target = Some(TracedTarget::default());
        assert_eq!(target_cpu(&trace).unwrap().user, 0.5);
        trace.processes = vec![TracedProcess {
            in_target: true,
            user_seconds: Some(4.0),
            system_seconds: Some(0.0),
            ..TracedProcess::default()
        }];
        assert_eq!(target_cpu(&trace).unwrap().user, 4.0);
        assert_eq!(CpuTime::default().share(0.0), None);
    }

    #[test]
    fn nothing_is_not_zero() {
        let mut trace = Trace::default();
        assert_eq!(target_cpu(&trace), None);
        trace.target = Some(TracedTarget::default());
        assert_eq!(target_cpu(&trace), None);
    }
}
