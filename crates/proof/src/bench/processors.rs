//! What the processors of the host did meanwhile: work that the kernel's own threads do for
//! somebody is in no process's account.

use hugeleaf_host::Root;
use hugeleaf_sys::ticks_per_second;
use serde::{Deserialize, Serialize};

/// Time of all processors together, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ProcessorTimes {
    /// Programs, those of lower priority too.
    pub user_seconds: f64,
    /// The kernel, interrupts included.
    pub system_seconds: f64,
    /// Nothing to do.
    pub idle_seconds: f64,
    /// Nothing to do, while somebody waited for a device.
    pub wait_seconds: f64,
    /// Taken by the machine below.
    pub steal_seconds: f64,
}

impl ProcessorTimes {
    /// As `/proc/stat` has them now; `None` where it cannot be read.
    pub fn read(root: &Root) -> Option<ProcessorTimes> {
        let text = root.read("proc/stat");
        parse(text.known()?, ticks_per_second())
    }

    /// What came since `earlier`.
    #[must_use]
    pub fn since(self, earlier: ProcessorTimes) -> ProcessorTimes {
        // Idle and waiting times of the kernel can go back a little.
        let less = |now: f64, then: f64| (now - then).max(0.0);
        ProcessorTimes {
            user_seconds: less(self.user_seconds, earlier.user_seconds),
            system_seconds: less(self.system_seconds, earlier.system_seconds),
            idle_seconds: less(self.idle_seconds, earlier.idle_seconds),
            wait_seconds: less(self.wait_seconds, earlier.wait_seconds),
            steal_seconds: less(self.steal_seconds, earlier.steal_seconds),
        }
    }

    /// Time that was worked.
    pub fn busy_seconds(self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    /// All of it.
    pub fn all_seconds(self) -> f64 {
        self.busy_seconds() + self.idle_seconds + self.wait_seconds + self.steal_seconds
    }
}

/// The line `cpu` (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal, in ticks.
#[allow(clippy::cast_precision_loss)]
fn parse(text: &str, ticks: u64) -> Option<ProcessorTimes> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<f64> = line
        .split_ascii_whitespace()
        .map(|word| word.parse::<u64>().ok())
        .map_while(|n| Some(n? as f64 / ticks.max(1) as f64))
        .collect();
    let at = |n: usize| numbers.get(n).copied();
    Some(ProcessorTimes {
        user_seconds: at(0)? + at(1)?,
        system_seconds: at(2)? + at(5).unwrap_or(0.0) + at(6).unwrap_or(0.0),
        idle_seconds: at(3)?,
        wait_seconds: at(4).unwrap_or(0.0),
        steal_seconds: at(7).unwrap_or(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_line_is_all_processors() {
        let text = "cpu  100 20 300 4000 50 6 7 8 0 0\ncpu0 1 1 1 1\n";
        let times = parse(text, 10).unwrap();
        assert!((times.user_seconds - 12.0).abs() < 1e-9);
        assert!((times.system_seconds - 31.3).abs() < 1e-9);
        assert!((times.idle_seconds - 400.0).abs() < 1e-9);
        assert!((times.wait_seconds - 5.0).abs() < 1e-9);
        assert!((times.steal_seconds - 0.8).abs() < 1e-9);
        assert_eq!(parse("cpu0 1 2 3 4\n", 100), None);
        assert_eq!(parse("cpu  1 2\n", 100), None);
        let before = ProcessorTimes {
            idle_seconds: 401.0,
            ..times
        };
        assert_eq!(times.since(before).idle_seconds, 0.0);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(cpu [0-9 ]{0,60}\n?)|.{0,80}", ticks in 0u64..200) {
            let _ = parse(&text, ticks);
        }
    }
}
