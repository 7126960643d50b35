//! A server's process: identity, resident memory, and room in its cgroups. Read below a [`Root`].

use hugeleaf_host::limits;
use hugeleaf_host::process::maps::read_smaps_lines;
use hugeleaf_host::process::proc_parsers::{parse_stat, parse_status};
use hugeleaf_host::{ForkTreeId, Root};
use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSeen {
    /// Identity of the process; differs after a restart.
    pub id: ForkTreeId,
    /// Resident memory, reserved huge pages included.
    pub resident: Bytes,
    /// The limits of its cgroups: path, and memory left below the limit.
    pub limits: Vec<(String, Bytes)>,
}

fn candidates(root: &Root, names: &[&str]) -> Vec<Pid> {
    let entries = root.list("proc").known().cloned().unwrap_or_default();
    let pids = entries.iter().filter_map(|name| name.parse().ok().map(Pid));
    pids.filter(|pid| {
        let name = root.read(format!("proc/{pid}/comm"));
        name.known()
            .is_some_and(|name| names.contains(&name.trim()))
    })
    .collect()
}

pub(crate) fn named(root: &Root, names: &[&str], word: &str) -> Vec<Pid> {
    let mut found = candidates(root, names);
    found.retain(|pid| {
        let line = root.read(format!("proc/{pid}/cmdline"));
        line.known()
            .is_some_and(|line| line.split('\0').any(|part| part.contains(word)))
    });
    found
}

/// Finds the process with the reported id, which may be an id inside a container. `None` if none or several match.
pub(crate) fn find(root: &Root, names: &[&str], said: Option<Pid>) -> Option<Pid> {
    let all = candidates(root, names);
    let Some(said) = said else {
        // Without a reported id only one process may match.
        return match all.as_slice() {
            [one] => Some(*one),
            _ => None,
        };
    };
    if all.contains(&said) {
        return Some(said);
    }
    let inside = |pid: &Pid| {
        let status = root.read(format!("proc/{pid}/status"));
        let text = status.known()?;
        let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        line.split_ascii_whitespace().last()?.parse().ok().map(Pid)
    };
    let mut matching = all.into_iter().filter(|pid| inside(pid) == Some(said));
    let one = matching.next();
    one.filter(|_| matching.next().is_none())
}

/// Returns its current state; `None` if it has ended.
pub(crate) fn see(root: &Root, pid: Pid, is_shared: bool) -> Option<ProcessSeen> {
    let stat = root.parse(format!("proc/{pid}/stat"), parse_stat);
    let status = root.parse(format!("proc/{pid}/status"), parse_status);
    let (stat, status) = (stat.known()?, status.known()?);
    let shares = is_shared.then(|| proportional(root, pid)).flatten();
    let resident = shares.or(status.resident).unwrap_or_default();
    let limits = limits::read_limits(root, pid).memory;
    Some(ProcessSeen {
        id: ForkTreeId {
            pid: pid.0,
            start_ticks: stat.start_ticks,
        },
        resident: resident + status.hugetlb.unwrap_or_default(),
        limits: (limits.iter())
            .map(|limit| (limit.path.clone(), limit.room_at_most()))
            .collect(),
    })
}

/// Returns its proportional share (`Pss`), in which a page that it maps twice counts once.
fn proportional(root: &Root, pid: Pid) -> Option<Bytes> {
    let rollup = root.parse_lines(format!("proc/{pid}/smaps_rollup"), read_smaps_lines);
    rollup.known()?.first().map(|sum| sum.counts.pss)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(processes: &[(u32, &str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, name, inside) in processes {
            let folder = dir.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            let status = format!(
                "Name:\t{name}\nNSpid:\t{pid}\t{inside}\nVmRSS:\t 8 kB\nHugetlbPages:\t 4 kB\n"
            );
            std::fs::write(folder.join("status"), status).unwrap();
            let stat = format!(
                "{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 77 1 1 1 1 1 1 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
            );
            std::fs::write(folder.join("stat"), stat).unwrap();
            std::fs::write(
                folder.join("cmdline"),
                format!("{name}\0-jar\0shop{pid}.jar"),
            )
            .unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn a_process_is_found_by_its_number_inside_a_container() {
        let (_dir, root) = host(&[
            (70, "redis-server", "1"),
            (80, "redis-server", "9"),
            (90, "bash", "1"),
        ]);
        let names = ["redis-server"];
        assert_eq!(find(&root, &names, Some(Pid(70))), Some(Pid(70)));
        assert_eq!(find(&root, &names, Some(Pid(1))), Some(Pid(70)));
        // Two processes, and no reported id.
        assert_eq!(find(&root, &names, None), None);
        assert_eq!(find(&root, &names, Some(Pid(5))), None);
        assert_eq!(find(&root, &["bash"], None), Some(Pid(90)));
        assert_eq!(named(&root, &names, "shop80"), vec![Pid(80)]);
    }

    #[test]
    fn reserved_pages_count() {
        let (_dir, root) = host(&[(70, "mariadbd", "70")]);
        let seen = see(&root, Pid(70), false).unwrap();
        assert_eq!(
            (seen.resident, seen.id.start_ticks),
            (Bytes::from_kib(12), 77)
        );
        assert_eq!(see(&root, Pid(71), false), None);
    }
}
