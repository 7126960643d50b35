//! Captured hosts: a healthy one, and variants with one fault each.

use std::path::{Path, PathBuf};

use super::{answer, ids};
use crate::common::{good, refused, repository, run};

/// A modifiable copy of a captured host.
struct Captured {
    folder: tempfile::TempDir,
}

const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
const UNIT: &str = "postgresql@15-main.service";

impl Captured {
    /// Returns a host with PostgreSQL on 257 pages of 2M and a pool of that size. Its mapping is
    /// that of the fixture, changed to huge pages.
    fn healthy() -> Captured {
        let folder = tempfile::tempdir().unwrap();
        let from = repository().join("fixtures/why/postgres-pool-short");
        copy(&from, folder.path());
        let host = Captured { folder };
        let smaps = host.read("proc/1000/smaps");
        host.write("proc/1000/smaps", &on_large_pages(&smaps));
        host.write("proc/stat", "btime 1790000000\n");
        host.pool("257", "0", "0");
        host
    }

    /// Returns the host with the fixture's mapping on base pages.
    fn on_base_pages() -> Captured {
        let host = Captured::healthy();
        let from = repository().join("fixtures/why/postgres-pool-short/proc/1000/smaps");
        std::fs::copy(from, host.path("proc/1000/smaps")).unwrap();
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn pool(&self, total: &str, free: &str, surplus: &str) {
        for (file, value) in [
            ("nr_hugepages", total),
            ("free_hugepages", free),
            ("surplus_hugepages", surplus),
            ("resv_hugepages", "0"),
        ] {
            self.write(&format!("{POOL}/{file}"), &format!("{value}\n"));
        }
    }

    fn run(&self, flags: &[&str]) -> std::process::Output {
        let root = self.folder.path().display().to_string();
        run(&[&["verify", "--root", &root], flags].concat())
    }

    /// Fails unless exactly these findings are reported, with this exit status.
    #[track_caller]
    fn finds(&self, expected: &[&str], status: i32) -> serde_json::Value {
        let (answer, ended) = answer(&self.run(&["--json"]));
        assert_eq!(ids(&answer), expected, "{:#}", answer["findings"]);
        assert_eq!(ended, status);
        assert_eq!(answer["good"], status == 0);
        answer
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => {
                std::fs::copy(entry.path(), target).unwrap();
            }
        }
    }
}

/// Changes the shared mapping to pages of the pool.
fn on_large_pages(smaps: &str) -> String {
    let mut is_it = false;
    let line = |line: &str| {
        if line.contains("rw-s") {
            is_it = true;
            return line.replace("/dev/zero (deleted)", "/anon_hugepage (deleted)");
        }
        is_it &= !line.contains("-p ");
        match line.split_once(':').map(|(name, _)| name) {
            Some("KernelPageSize" | "MMUPageSize") if is_it => "KernelPageSize: 2048 kB".to_owned(),
            Some("Rss" | "Pss" | "Shared_Dirty" | "Private_Dirty") if is_it => {
                "Rss: 0 kB".to_owned()
            }
            Some("VmFlags") if is_it => format!("Shared_Hugetlb: 20480 kB\n{line} ht"),
            _ => line.to_owned(),
        }
    };
    smaps.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn a_healthy_host_is_one_line_and_status_0() {
    let host = Captured::healthy();
    let text = good(&host.run(&[]));
    assert!(
        text.starts_with("Everything matches: 1 service has"),
        "{text}"
    );
    let answer = host.finds(&[], 0);
    let service = &answer["services"][0];
    assert_eq!(service["name"], "postgresql@15-main");
    assert_eq!(service["asked"][0]["pages"], 257);
    assert_eq!(service["got"], service["asked"]);
    assert_eq!(service["short_pages"], 0);
    assert_eq!(service["since"], "2026-09-21T14:14:15Z");
}

#[test]
fn a_service_short_of_44_pages() {
    let host = Captured::on_base_pages();
    host.pool("213", "213", "0");
    let answer = host.finds(&["service-short"], 1);
    assert_eq!(answer["services"][0]["short_pages"], 257);
    let reason = answer["services"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("so 44 are missing"), "{reason}");
}

#[test]
fn a_service_that_was_started_before_the_pool_was_filled() {
    let host = Captured::on_base_pages();
    host.pool("257", "257", "0");
    let answer = host.finds(&["started-before-pool"], 1);
    let command = answer["findings"][0]["command"].as_str().unwrap();
    assert_eq!(command, format!("systemctl restart {UNIT}"));
}

#[test]
fn a_pool_that_has_drained_since() {
    let host = Captured::healthy();
    host.pool("257", "0", "44");
    host.finds(&["restart-would-fail"], 1);
}

#[test]
fn pages_that_nobody_uses() {
    let host = Captured::healthy();
    host.pool("900", "643", "0");
    host.finds(&["pool-unused"], 1);
    host.pool("300", "43", "0");
    host.finds(&["pool-unused"], 0);
}

#[test]
fn sysctl_files_that_the_kernel_does_not_follow() {
    let host = Captured::healthy();
    host.write("etc/sysctl.d/90-x.conf", "vm.nr_hugepages = 300\n");
    host.finds(&["pool-short"], 1);
    host.write("etc/sysctl.d/90-x.conf", "vm.nr_hugepages = 200\n");
    host.finds(&["sysctl-drift"], 1);
    host.write("etc/sysctl.d/90-x.conf", "vm.hugetlb_shm_group = 77\n");
    host.finds(&["sysctl-drift"], 1);
    host.write("etc/sysctl.d/90-x.conf", "vm.nr_hugepages = 257\n");
    host.finds(&[], 0);
}

#[test]
fn a_knob_that_somebody_reset() {
    let host = Captured::healthy();
    let knob = "/sys/kernel/mm/transparent_hugepage/enabled";
    let line = |value: &str| format!("w {knob} - - - - {value}\n");
    let now = host.read(knob.trim_start_matches('/'));
    let now = now.split(['[', ']']).nth(1).unwrap();
    host.write("etc/tmpfiles.d/thp.conf", &line(now));
    host.finds(&[], 0);
    host.write("etc/tmpfiles.d/thp.conf", &line("never"));
    host.write("etc/tuned/active_profile", "throughput-performance\n");
    let answer = host.finds(&["knob-reset"], 1);
    let text = answer["findings"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("tuned's profile throughput-performance"),
        "{text}"
    );
}

#[test]
fn a_limit_that_the_running_service_did_not_get() {
    let host = Captured::healthy();
    let file = format!("etc/systemd/system/{UNIT}.d/60-x.conf");
    host.write(
        "lib/systemd/system/postgresql@.service",
        "[Service]\nUser=postgres\n",
    );
    host.write(&file, "[Service]\nLimitMEMLOCK=1M\n");
    host.finds(&[], 0);
    host.write(&file, "[Service]\nLimitMEMLOCK=infinity\n");
    host.finds(&["limit-not-taken"], 1);
}

#[test]
fn a_boot_loader_that_asks_for_pages_that_were_not_made() {
    let host = Captured::healthy();
    host.write("proc/cmdline", "quiet\n");
    let file = "etc/default/grub.d/x.cfg";
    let line = "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX hugepagesz=1G hugepages=4\"\n";
    host.write(file, line);
    host.finds(&["boot-drift"], 1);
    host.write("proc/cmdline", "quiet hugepagesz=1G hugepages=4\n");
    host.finds(&["pool-short"], 1);
}

#[test]
fn a_cgroup_that_allows_less() {
    let host = Captured::healthy();
    let mounts = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
    host.write("proc/self/mounts", mounts);
    let top = "sys/fs/cgroup";
    host.write(&format!("{top}/cgroup.controllers"), "hugetlb\n");
    host.write(&format!("{top}/cgroup.subtree_control"), "hugetlb\n");
    let limit = format!("{top}/system.slice/hugetlb.2MB.max");
    let bytes = |pages: u64| format!("{}\n", pages << 21);
    host.write(&limit, &bytes(257));
    host.finds(&[], 0);
    host.write(&limit, &bytes(256));
    let answer = host.finds(&["cgroup-limit"], 1);
    let text = answer["findings"][0]["text"].as_str().unwrap();
    assert!(text.contains("SIGBUS"), "{text}");
}

#[test]
fn lines_of_the_kernels_log() {
    let host = Captured::healthy();
    let line = "[  100.5] HugeTLB: allocating 16 of page size 1.00 GiB failed.  Only allocated 11 \
        hugepages.\n";
    host.write("var/log/dmesg", line);
    host.finds(&["kernel-log"], 1);
    // 1790000000 is 2026-09-21, 14:13:20; the line is 100 s later.
    let since = |time: &str| host.run(&["--since", time]).status.code();
    assert_eq!(since("2026-09-21T14:15:00Z"), Some(1));
    assert_eq!(since("2026-09-21T14:15:01Z"), Some(0));
}

#[test]
fn what_cannot_be_read_is_not_good() {
    let host = Captured::healthy();
    host.write(&format!("{POOL}/nr_hugepages"), "many\n");
    let (answer, status) = answer(&host.run(&["--json"]));
    assert!(ids(&answer).contains(&"unreadable"), "{answer:#}");
    assert_eq!(status, 1);
}

#[test]
fn metrics_go_to_stdout_or_into_a_file_as_a_whole() {
    let host = Captured::on_base_pages();
    host.pool("213", "213", "0");
    let printed = host.run(&["--prometheus"]);
    assert_eq!(printed.status.code(), Some(1));
    let text = String::from_utf8(printed.stdout).unwrap();
    let service = "{service=\"postgresql@15-main\"}";
    assert!(
        text.contains(&format!("hugeleaf_service_short_pages{service} 257\n")),
        "{text}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hugeleaf.prom");
    std::fs::write(&file, "old\n").unwrap();
    let written = host.run(&["--prometheus", &file.display().to_string()]);
    assert_eq!((written.status.code(), written.stdout.len()), (Some(1), 0));
    let without_time = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|l| !l.starts_with("hugeleaf_verify_time_seconds "));
        lines.map(str::to_owned).collect()
    };
    let in_file = std::fs::read_to_string(&file).unwrap();
    assert_eq!(without_time(&in_file), without_time(&text));
    // No draft is left.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn wrong_usage_and_a_file_that_cannot_be_written() {
    let host = Captured::healthy();
    refused(&host.run(&["--json", "--prometheus"]), 2, &["--prometheus"]);
    refused(
        &host.run(&["--since", "yesterday"]),
        2,
        &["yesterday", "2h"],
    );
    let file = host.path("none/x.prom").display().to_string();
    refused(
        &host.run(&["--prometheus", &file]),
        3,
        &["none/", "No such file"],
    );
}
