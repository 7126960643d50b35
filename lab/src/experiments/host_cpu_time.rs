//! Use of the host's processors during a run. Work of kernel threads on behalf of a process is in no
//! process's account.

use hugeleaf_host::Root;
use hugeleaf_sys::ticks_per_second;

/// Uses of a processor. `user` includes programs of lower priority, `system` includes interrupts. `I/O
/// wait` is idle time while a task waits for a device. The hypervisor took `stolen` time.
pub(super) const DOING: [&str; 5] = ["user", "system", "idle", "I/O wait", "stolen"];

/// Seconds of all processors together, by use ([`DOING`]).
pub(super) type HostCpuSeconds = [f64; 5];

/// Reads the current values from `/proc/stat`; `None` if it cannot be read.
pub(super) fn processors(root: &Root) -> Option<HostCpuSeconds> {
    let text = root.read("proc/stat");
    parse(text.known()?, ticks_per_second())
}

/// Returns the difference to `earlier`. The kernel's idle and wait times can go back a little.
pub(super) fn since(now: HostCpuSeconds, earlier: HostCpuSeconds) -> HostCpuSeconds {
    std::array::from_fn(|at| (now[at] - earlier[at]).max(0.0))
}

/// Parses the line `cpu` (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal, in ticks.
fn parse(text: &str, ticks: u64) -> Option<HostCpuSeconds> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers: Vec<f64> = line
        .split_ascii_whitespace()
        .map(|word| word.parse::<u64>().ok())
        .map_while(|n| Some(n? as f64 / ticks.max(1) as f64))
        .collect();
    let at = |n: usize| numbers.get(n).copied();
    let or_none = |n: usize| at(n).unwrap_or(0.0);
    Some([
        at(0)? + at(1)?,
        at(2)? + or_none(5) + or_none(6),
        at(3)?,
        or_none(4),
        or_none(7),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_line_is_all_processors() {
        let text = "cpu  100 20 300 4000 50 6 7 8 0 0\ncpu0 1 1 1 1\n";
        let times = parse(text, 10).unwrap();
        for (time, want) in times.iter().zip([12.0, 31.3, 400.0, 5.0, 0.8]) {
            assert!((time - want).abs() < 1e-9, "{times:?}");
        }
        assert_eq!(parse("cpu0 1 2 3 4\n", 100), None);
        assert_eq!(parse("cpu  1 2\n", 100), None);
        let before = [0.0, 0.0, 401.0, 0.0, 0.0];
        assert_eq!(since(times, before)[2], 0.0);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(cpu [0-9 ]{0,60}\n?)|.{0,80}", ticks in 0u64..200) {
            let _ = parse(&text, ticks);
        }
    }
}
