//! Processes that hold page tables and hugetlb pages, from one file per process,
//! `/proc/PID/status`.

use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;

use crate::fact::Fact;
use crate::model::ProcessMemoryUse;
use crate::parse_helpers::{fields, kib};
use crate::process::in_parallel;
use crate::root::Root;

/// Returns every process that holds page tables, the largest page tables first. Skips processes
/// that ended meanwhile or that are hidden. Kernel threads have none.
pub fn read_owners(root: &Root) -> Fact<Vec<ProcessMemoryUse>> {
    // Nearly all the time is spent in the kernel, which writes the files.
    const WORTH_A_THREAD: usize = 128;
    root.list("proc").map(|names| {
        let pids = names.iter().filter_map(|name| name.parse().ok().map(Pid));
        let read = |pid: &Pid| owner(*pid, root.read(format!("proc/{pid}/status")).known()?);
        let pids: Vec<Pid> = pids.collect();
        let owners = in_parallel(&pids, WORTH_A_THREAD, read);
        let mut owners: Vec<ProcessMemoryUse> = owners.into_iter().flatten().collect();
        owners.sort_by_key(|o| (std::cmp::Reverse(o.page_tables + o.hugetlb), o.pid));
        owners
    })
}

/// Parses one `status` file. `None` for a kernel thread or a zombie, which have no memory.
fn owner(pid: Pid, text: &str) -> Option<ProcessMemoryUse> {
    let mut name = "";
    let (mut resident, mut page_tables, mut hugetlb) = (Bytes::ZERO, None, Bytes::ZERO);
    for (line, field, value) in fields(text) {
        let bytes = || kib(line, value).unwrap_or_default();
        match field {
            "Name" => name = value,
            "VmRSS" => resident = bytes(),
            "VmPTE" => page_tables = Some(bytes()),
            "HugetlbPages" => hugetlb = bytes(),
            // All used lines precede this one.
            "Threads" => break,
            _ => {}
        }
    }
    Some(ProcessMemoryUse {
        pid,
        name: name.to_owned(),
        page_tables: page_tables?,
        hugetlb,
        resident: resident + hugetlb,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_a_kernel_thread_and_a_cut_file() {
        let text = "Name:\tpostgres: a: b\nVmRSS:\t  100 kB\nNew:\tx\nVmPTE:\t 89 kB\n\
                    HugetlbPages:\t 2048 kB\nThreads:\t1\nVmPTE:\t 7 kB\n";
        let found = owner(Pid(9), text).unwrap();
        assert_eq!(found.name, "postgres: a: b");
        assert_eq!(found.page_tables, Bytes::from_kib(89));
        assert_eq!(found.resident, Bytes::from_kib(2148));
        assert_eq!(owner(Pid(2), "Name:\tkthreadd\nThreads:\t1\n"), None);
        assert_eq!(
            owner(Pid(9), "Name:\tx\nVmPTE:").unwrap().page_tables,
            Bytes::ZERO
        );
        assert_eq!(owner(Pid(9), ""), None);
    }

    #[test]
    fn many_are_all_read_once() {
        let dir = tempfile::tempdir().unwrap();
        for pid in 1..=400 {
            let folder = dir.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("status"), "Name:\tx\nVmPTE:\t 4 kB\n").unwrap();
        }
        let owners = read_owners(&Root::at(dir.path()));
        let mut pids: Vec<u32> = owners.known().unwrap().iter().map(|o| o.pid.0).collect();
        pids.sort_unstable();
        assert_eq!(pids, (1..=400).collect::<Vec<u32>>());
    }

    #[test]
    fn this_process_is_found_on_the_live_host() {
        let owners = read_owners(&Root::live());
        let own = hugeleaf_sys::own_pid();
        assert!(
            owners
                .known()
                .unwrap()
                .iter()
                .any(|o| o.pid == own && !o.page_tables.is_zero())
        );
    }
}
