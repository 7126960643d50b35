//! A PostgreSQL under systemd: planned, on its pages after a real reboot, and on base pages again after `undo`.

use std::path::PathBuf;
use std::process::Command;

use crate::boots::boot;
use crate::capture::capture;
use crate::kernel::{pool_file, smaps, text};
use crate::{answer, hugeleaf, json, not_run};

/// Memlock limit of the unit after the plan, in MiB; no system has this value by default.
const MEMLOCK: u64 = 61;

/// The cluster that Debian's package makes.
struct Cluster {
    unit: String,
    /// A file of its configuration that belongs to the test.
    settings: PathBuf,
}

impl Cluster {
    fn find(test: &str) -> Option<Cluster> {
        let versions = std::fs::read_dir("/etc/postgresql").ok();
        let version = versions.and_then(|mut folder| folder.next()?.ok());
        let Some(version) = version.filter(|v| v.path().join("main/conf.d").is_dir()) else {
            not_run(test, "needs PostgreSQL from Debian's package");
            return None;
        };
        Some(Cluster {
            unit: format!(
                "postgresql@{}-main.service",
                version.file_name().to_string_lossy()
            ),
            settings: version.path().join("main/conf.d/hugeleaf-test.conf"),
        })
    }

    fn set(&self, huge_pages: &str) {
        self.write(&format!("huge_pages = {huge_pages}\n"));
    }

    /// Leaves huge pages at the default: the server tries them, but requests none that are planned for others.
    fn leave_to_itself(&self) {
        self.write("");
    }

    fn write(&self, huge_pages: &str) {
        let text = format!("shared_buffers = 48MB\nmax_connections = 10\n{huge_pages}");
        std::fs::write(&self.settings, text).unwrap();
    }

    /// Passes a command on the unit to systemd, and waits for its completion.
    fn systemctl(&self, what: &str) {
        systemctl(&[what, &self.unit]);
    }

    /// Returns its first process, and two of its children.
    fn processes(&self) -> Vec<u32> {
        let first: u32 = self.property("MainPID").parse().unwrap();
        let children = text(format!("/proc/{first}/task/{first}/children"));
        let children = children.split_ascii_whitespace().take(2);
        let children = children.map(|pid| pid.parse().unwrap());
        std::iter::once(first).chain(children).collect()
    }

    /// Returns the output of `why` for its first process.
    fn what_keeps_it_small(&self) -> String {
        answer(&["why", &self.property("MainPID")])
    }

    /// Returns a property of the unit in systemd.
    fn property(&self, name: &str) -> String {
        systemctl(&["show", "--property", name, "--value", &self.unit])
    }

    /// Returns true if systemd reports the plan's settings for the unit.
    fn has_its_drop_in(&self) -> bool {
        let limit = (MEMLOCK << 20).to_string();
        self.property("LimitMEMLOCK") == limit
            && self.property("Environment").contains("HUGELEAF_TEST=yes")
    }

    /// Returns the bytes of its memory that are mapped from a pool.
    fn of_the_pool(&self, size: u64) -> u64 {
        let pid = self.property("MainPID").parse().unwrap();
        assert_ne!(pid, 0, "{} does not run", self.unit);
        let mappings = smaps(pid);
        let of_pool = mappings.iter().filter(|m| m.get("KernelPageSize") == size);
        of_pool.map(|m| m.end - m.start).sum()
    }
}

/// Runs a systemctl command that must succeed, and returns its output.
fn systemctl(words: &[&str]) -> String {
    let out = Command::new("systemctl").args(words).output().unwrap();
    assert!(out.status.success(), "{words:?}: {out:?}");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// Reloads systemd, which `apply` leaves to the user because it concerns the whole host.
fn reload() {
    systemctl(&["daemon-reload"]);
}

/// Returns the default size of pools, which a server without a configured size uses.
fn default_size() -> u64 {
    let meminfo = crate::kernel::fields("/proc/meminfo");
    meminfo["Hugepagesize"]
}

/// With Debian's settings, without a pool; then with a pool that is too small, which the server does not report.
#[test]
fn why_explains_base_pages_of_postgresql() {
    let test = "why_explains_base_pages_of_postgresql";
    let (Some(mut host), Some(cluster)) = (boot(test, "1"), Cluster::find(test)) else {
        return;
    };
    cluster.set("try");
    cluster.systemctl("restart");
    capture("postgres-stock", &cluster.processes());
    let stock = cluster.what_keeps_it_small();
    assert!(!stock.contains("pool-short"), "{stock}");
    assert!(stock.contains(&cluster.unit), "{stock}");
    assert_eq!(host.pool(default_size(), None, 8), 8);
    cluster.systemctl("restart");
    capture("postgres-pool-short", &cluster.processes());
    let short = cluster.what_keeps_it_small();
    assert!(short.contains("pool-short"), "{short}");
    assert!(short.contains(&cluster.unit), "{short}");
}

#[test]
fn boot_1_applies_a_plan_for_postgresql() {
    let test = "boot_1_applies_a_plan_for_postgresql";
    let (Some(_host), Some(cluster)) = (boot(test, "1"), Cluster::find(test)) else {
        return;
    };
    let size = default_size();
    cluster.set("try");
    cluster.systemctl("restart");
    assert_eq!(cluster.of_the_pool(size), 0);
    let plan = "/var/lib/hugeleaf-every-host-postgresql.toml";
    let made = [
        "plan",
        &cluster.unit,
        "--margin",
        "0",
        "--env",
        "HUGELEAF_TEST=yes",
    ];
    answer(&[&made[..], &["--output", plan]].concat());
    // Edits the plan as a user would: the unit may lock more as well.
    let unit = format!("[[unit]]\nunit = \"{}\"\n", cluster.unit);
    let edited = text(plan).replace(&unit, &format!("{unit}memlock_bytes = {}\n", MEMLOCK << 20));
    std::fs::write(plan, edited).unwrap();
    answer(&["apply", plan]);
    cluster.set("on");
    reload();
    cluster.systemctl("restart");
    assert!(cluster.of_the_pool(size) >= 48 << 20);
    assert!(cluster.has_its_drop_in());
    let verified = hugeleaf(&["verify"]);
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn boot_2_puts_postgresql_on_the_pool_and_undoes_the_plan() {
    let test = "boot_2_puts_postgresql_on_the_pool_and_undoes_the_plan";
    let (Some(_host), Some(cluster)) = (boot(test, "2"), Cluster::find(test)) else {
        return;
    };
    let size = default_size();
    cluster.systemctl("start");
    assert!(cluster.has_its_drop_in());
    assert!(cluster.of_the_pool(size) >= 48 << 20);
    let verified = json(&["verify"]);
    assert_eq!(verified["good"], true, "{verified:#}");
    cluster.leave_to_itself();
    cluster.systemctl("stop");
    answer(&["undo"]);
    reload();
    cluster.systemctl("start");
    assert_eq!(cluster.of_the_pool(size), 0);
    let drop_in = format!("/etc/systemd/system/{}.d/60-hugeleaf.conf", cluster.unit);
    assert_eq!(text(drop_in), "");
}

#[test]
fn boot_3_puts_postgresql_on_base_pages() {
    let test = "boot_3_puts_postgresql_on_base_pages";
    let (Some(_host), Some(cluster)) = (boot(test, "3"), Cluster::find(test)) else {
        return;
    };
    let size = default_size();
    cluster.systemctl("start");
    assert_eq!(cluster.of_the_pool(size), 0);
    assert!(!cluster.has_its_drop_in());
    assert_eq!(text(pool_file(size, None, "nr_hugepages")).trim(), "0");
}
