//! Counts the CPU time and faults of processes, and kernel events, between two moments.

use std::collections::BTreeMap;

use hugeleaf_host::system::counters::parse_vmstat;
use hugeleaf_host::{ResolvedTarget, Root, Target};
use hugeleaf_sys::{Pid, children_usage, ticks_per_second};

#[derive(Debug, Clone, Default)]
pub(super) struct UsageCounters {
    /// CPU time in seconds, and page faults without disk access (minor faults).
    used: [f64; 2],
    vmstat: BTreeMap<String, u64>,
}

impl UsageCounters {
    /// Reads the counters of a server's process tree, if there is one, and of this process's ended children.
    pub(super) fn now(root: &Root, server: Option<u32>) -> UsageCounters {
        let ended = children_usage();
        let own = [ended.processor().as_secs_f64(), ended.minor_faults as f64];
        let tree = server.and_then(|pid| Target::Tree(Pid(pid)).resolve(root).ok());
        let of_server = tree
            .map(ResolvedTarget::all)
            .unwrap_or_default()
            .into_iter();
        let all = of_server.filter_map(|pid| used(root, pid.0));
        let used = all.fold(own, |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
        let text = root.read("proc/vmstat").or_default();
        let vmstat = parse_vmstat(&text).map(|(name, count)| (name.to_owned(), count));
        UsageCounters {
            used,
            vmstat: vmstat.collect(),
        }
    }

    /// Returns the differences since `before`, by the names that a workload file uses.
    pub(super) fn since(&self, before: &UsageCounters) -> BTreeMap<String, f64> {
        let used = ["cpu", "faults"]
            .into_iter()
            .zip(self.used)
            .zip(before.used);
        let mut all: BTreeMap<String, f64> = used
            .map(|((name, now), then)| (name.to_owned(), (now - then).max(0.0)))
            .collect();
        for (name, now) in &self.vmstat {
            let then = before.vmstat.get(name).copied().unwrap_or(0);
            all.insert(format!("vmstat:{name}"), now.saturating_sub(then) as f64);
        }
        all
    }
}

/// Returns CPU time in seconds and minor faults of a process and the children that it has waited for (`/proc/PID/stat`, proc(5): fields 10,
/// 11, 14 to 17).
fn used(root: &Root, pid: u32) -> Option<[f64; 2]> {
    let text = root.read(format!("proc/{pid}/stat"));
    let text = text.known()?;
    // The process name may contain any character, so fields start after the last parenthesis, with the third.
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    let field = |n: usize| fields.get(n - 3)?.parse::<f64>().ok();
    let ticks = field(14)? + field(15)? + field(16)? + field(17)?;
    let a_second = ticks_per_second() as f64;
    Some([ticks / a_second, field(10)? + field(11)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_a_child_is_counted_when_it_has_ended() {
        let root = Root::live();
        let before = UsageCounters::now(&root, None);
        let loops = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let mut command = std::process::Command::new("sh");
        assert!(command.args(["-c", loops]).status().unwrap().success());
        let counted = UsageCounters::now(&root, None).since(&before);
        assert!(
            counted["cpu"] > 0.0 && counted["faults"] > 0.0,
            "{counted:?}"
        );
        assert!(counted.contains_key("vmstat:pgfault"));
    }
}
