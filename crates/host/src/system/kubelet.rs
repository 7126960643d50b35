//! Start of the Kubernetes agent of this host. It reads the pools of huge pages only then (kubernetes #72307).

use std::time::Duration;

use hugeleaf_sys::ticks_per_second;

use super::{boot_time, file_readers};
use crate::fact::Fact;
use crate::process::proc_parsers::{parse_stat, parse_status};
use crate::root::Root;

/// Returns when the newest kubelet of root was started, in seconds since 1970. Absent if none runs.
pub fn start_time(root: &Root) -> Fact<u64> {
    let pids = crate::target::all_pids(root);
    let starts = pids.iter().filter_map(|pid| {
        let file = |name: &str| format!("proc/{pid}/{name}");
        let name = file_readers::line(root, file("comm"));
        let is_kubelet = name.known().is_some_and(|name| name == "kubelet");
        let status = is_kubelet.then(|| root.parse(file("status"), parse_status))?;
        // Any user may name a program so.
        status.known().filter(|status| status.uid == 0)?;
        let stat = root.parse(file("stat"), parse_stat);
        stat.known().map(|stat| stat.start_ticks)
    });
    let Some(ticks) = starts.max() else {
        return Fact::Absent;
    };
    let after_boot = Duration::from_secs(ticks / ticks_per_second().max(1));
    boot_time::read(root).map(|booted| booted + after_boot.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kubelet_of_root_counts() {
        let dir = tempfile::tempdir().unwrap();
        let add = |pid: u32, name: &str, uid: u32, ticks: u64| {
            let folder = dir.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            let zeros = ["0"; 18].join(" ");
            let rest = ["0"; 30].join(" ");
            let stat = format!("{pid} ({name}) S {zeros} {ticks} {rest}\n");
            let status = format!("Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
            for (file, text) in [("comm", name), ("stat", &stat), ("status", &status)] {
                std::fs::write(folder.join(file), text).unwrap();
            }
        };
        let root = Root::at(dir.path());
        add(7, "kubelet", 1000, 900 * ticks_per_second());
        assert!(start_time(&root).is_absent());
        std::fs::write(dir.path().join("proc/stat"), "btime 1000\n").unwrap();
        add(8, "kubelet", 0, 200 * ticks_per_second());
        add(9, "kubelet2", 0, 300 * ticks_per_second());
        assert_eq!(start_time(&root), Fact::Known(1200));
    }
}
