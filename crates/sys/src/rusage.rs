//! Processor usage of this process or this thread.
#![allow(unsafe_code)]
//! # Safety
//! getrusage(2) writes into a structure of ours that outlives the call.

use std::time::Duration;

/// Processor time and related counters since the start (getrusage(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceUsage {
    pub user: Duration,
    /// Time in the kernel on its behalf, without that of kernel threads.
    pub system: Duration,
    /// Number of voluntary context switches.
    pub waits: u64,
    pub preemptions: u64,
    /// Number of page faults that needed no I/O.
    pub minor_faults: u64,
}

impl ResourceUsage {
    /// Returns the usage since `earlier`.
    #[must_use]
    pub fn since(self, earlier: ResourceUsage) -> ResourceUsage {
        ResourceUsage {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            waits: self.waits.saturating_sub(earlier.waits),
            preemptions: self.preemptions.saturating_sub(earlier.preemptions),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
        }
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn and(self, other: ResourceUsage) -> ResourceUsage {
        ResourceUsage {
            user: self.user + other.user,
            system: self.system + other.system,
            waits: self.waits + other.waits,
            preemptions: self.preemptions + other.preemptions,
            minor_faults: self.minor_faults + other.minor_faults,
        }
    }

    pub fn processor(self) -> Duration {
        self.user + self.system
    }
}

/// Returns the usage of all threads of this process, including those that have ended.
pub fn process_usage() -> ResourceUsage {
    usage(libc::RUSAGE_SELF)
}

/// Returns the usage of child programs that have ended and were waited for.
pub fn children_usage() -> ResourceUsage {
    usage(libc::RUSAGE_CHILDREN)
}

pub fn thread_usage() -> ResourceUsage {
    usage(libc::RUSAGE_THREAD)
}

fn usage(whose: libc::c_int) -> ResourceUsage {
    // SAFETY: a structure of integers, for which all zeroes are valid.
    let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours and outlives the call.
    if unsafe { libc::getrusage(whose, &raw mut raw) } != 0 {
        return ResourceUsage::default();
    }
    let time = |t: libc::timeval| {
        let micros = u64::try_from(t.tv_usec).unwrap_or(0);
        Duration::from_secs(u64::try_from(t.tv_sec).unwrap_or(0)) + Duration::from_micros(micros)
    };
    let count = |n: libc::c_long| u64::try_from(n).unwrap_or(0);
    ResourceUsage {
        user: time(raw.ru_utime),
        system: time(raw.ru_stime),
        waits: count(raw.ru_nvcsw),
        preemptions: count(raw.ru_nivcsw),
        minor_faults: count(raw.ru_minflt),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_and_waiting_is() {
        let before = (process_usage(), thread_usage());
        hugeleaf_testkit::pause(Duration::from_millis(1), "a wait is what is counted");
        let mut sum = 0u64;
        while thread_usage().since(before.1).user < Duration::from_millis(2) {
            sum = std::hint::black_box(sum.wrapping_mul(3) + 1);
        }
        let thread = thread_usage().since(before.1);
        let process = process_usage().since(before.0);
        assert!(thread.waits >= 1, "{thread:?}");
        assert!(process.processor() >= thread.user, "{process:?} {thread:?}");
    }
}
