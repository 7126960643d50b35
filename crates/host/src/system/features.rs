//! What a host has switched on beside page sizes: settings of the kernel, disks, file systems, network devices, limits.
//!
//! Everything is kept as the kernel writes it, by its file: what it means is a judge's to say.

use std::collections::{BTreeMap, BTreeSet};

pub use hugeleaf_sys::FileSystem as Abilities;
use hugeleaf_sys::{Errno, file_system_at};
use serde::Serialize;

use super::files;
use crate::fact::{Fact, ReadError};
use crate::root::Root;

/// Settings that are a file of one line or two each.
const SETTINGS: &[&str] = &[
    "proc/sys/fs/aio-max-nr",
    "proc/sys/fs/aio-nr",
    "proc/sys/kernel/io_uring_disabled",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/kernel/pid_max",
    "proc/sys/kernel/shmmax",
    "proc/sys/kernel/threads-max",
    "proc/sys/net/core/busy_poll",
    "proc/sys/net/core/busy_read",
    "proc/sys/net/core/somaxconn",
    "proc/sys/vm/dirty_background_bytes",
    "proc/sys/vm/dirty_background_ratio",
    "proc/sys/vm/hugetlb_optimize_vmemmap",
    "proc/sys/vm/max_map_count",
    "proc/sys/vm/overcommit_memory",
    "proc/sys/vm/swappiness",
    "proc/sys/vm/zone_reclaim_mode",
    "proc/version",
    "sys/devices/system/clocksource/clocksource0/available_clocksource",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/kernel/debug/sched/preempt",
];

const WEAKNESSES: &str = "sys/devices/system/cpu/vulnerabilities";

#[derive(Debug, Clone, Default, Serialize)]
pub struct Features {
    pub settings: BTreeMap<String, Fact<String>>,
    /// What the kernel does about weaknesses of this processor, by their name.
    pub weaknesses: Fact<BTreeMap<String, String>>,
    /// Frequency governors, each with how many processors have it; empty where the host sets no frequencies.
    pub governors: BTreeMap<String, usize>,
    /// Disks, without those that are parts of others.
    pub disks: Vec<Disk>,
    pub mounts: Vec<DiskMount>,
    pub network: Vec<Network>,
    /// Limits of this process, which its children have: name, soft, hard (`/proc/self/limits`).
    pub limits: Fact<Vec<(String, String, String)>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// As in `/sys/block`.
    pub name: String,
    /// Schedulers that it offers, the one in use in brackets.
    pub scheduler: Fact<String>,
    /// Requests that wait at most.
    pub requests: Fact<u64>,
    pub read_ahead_kib: Fact<u64>,
    pub rotates: Fact<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskMount {
    pub at: String,
    pub kind: String,
    /// Its options, of the mount and of the file system.
    pub options: String,
    /// What it can do; absent on a captured host.
    pub can: Fact<Abilities>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Network {
    pub name: String,
    #[serde(rename = "mtu_bytes")]
    pub mtu: Fact<u64>,
    pub queues: Fact<usize>,
    /// Whether several packets are given up as one for so many nanoseconds (`gro_flush_timeout`).
    pub gro_flush_timeout: Fact<u64>,
    /// What it does by itself, on or off by name (`ethtool -k`); absent on a captured host, and of a device
    /// without hardware.
    pub offloads: Fact<BTreeMap<String, bool>>,
}

impl Features {
    pub fn setting(&self, file: &str) -> &Fact<String> {
        const ABSENT: &Fact<String> = &Fact::Absent;
        self.settings.get(file).unwrap_or(ABSENT)
    }

    pub fn number(&self, file: &str) -> Option<u64> {
        self.setting(file)
            .known()?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    }
}

pub fn read_features(root: &Root) -> Features {
    let one = |file: &&str| ((*file).to_owned(), files::line(root, file));
    Features {
        settings: SETTINGS.iter().map(one).collect(),
        weaknesses: weaknesses(root),
        governors: governors(root),
        disks: disks(root),
        mounts: mounts(root),
        network: network(root),
        limits: root
            .read("proc/self/limits")
            .map(|text| parse_limits(&text)),
    }
}

/// The names of all processes, as the kernel has them (cut to 15 characters).
pub fn names_of_processes(root: &Root) -> BTreeSet<String> {
    let pids = crate::snapshot::all_pids(root).into_iter();
    let names = pids.filter_map(|pid| {
        files::line(root, format!("proc/{pid}/comm"))
            .known()
            .cloned()
    });
    names.collect()
}

fn weaknesses(root: &Root) -> Fact<BTreeMap<String, String>> {
    root.list(WEAKNESSES).map(|names| {
        let one = |name: String| {
            let text = files::line(root, format!("{WEAKNESSES}/{name}"));
            Some((name, text.known()?.clone()))
        };
        names.into_iter().filter_map(one).collect()
    })
}

fn governors(root: &Root) -> BTreeMap<String, usize> {
    const FOLDER: &str = "sys/devices/system/cpu/cpufreq";
    let mut all = BTreeMap::new();
    let names = root.list(FOLDER).or_default();
    for name in names.iter().filter(|name| name.starts_with("policy")) {
        let governor = files::line(root, format!("{FOLDER}/{name}/scaling_governor"));
        let processors = files::line(root, format!("{FOLDER}/{name}/affected_cpus"));
        let count = processors
            .known()
            .map_or(1, |text| text.split_whitespace().count());
        if let Some(governor) = governor.known() {
            *all.entry(governor.clone()).or_default() += count;
        }
    }
    all
}

/// Devices that are memory, or files of another file system.
fn is_a_disk(name: &str) -> bool {
    let made_up = ["loop", "ram", "zram", "fd", "sr", "nbd"];
    !made_up.iter().any(|start| name.starts_with(start))
}

fn disks(root: &Root) -> Vec<Disk> {
    let names = root.list("sys/block").or_default();
    let one = |name: String| {
        let file = |of: &str| format!("sys/block/{name}/queue/{of}");
        Disk {
            scheduler: files::line(root, file("scheduler")),
            requests: files::number(root, file("nr_requests")),
            read_ahead_kib: files::number(root, file("read_ahead_kb")),
            rotates: files::number(root, file("rotational")).map(|n| n != 0),
            name,
        }
    };
    names
        .into_iter()
        .filter(|name| is_a_disk(name))
        .map(one)
        .collect()
}

fn mounts(root: &Root) -> Vec<DiskMount> {
    let text = root.read("proc/self/mountinfo");
    let mut all = parse_disk_mounts(text.known().map_or("", String::as_str));
    if root.is_live() {
        for mount in &mut all {
            mount.can = abilities(&mount.at);
        }
    }
    all
}

/// Asked of the running kernel: no file has it.
fn abilities(at: &str) -> Fact<Abilities> {
    match file_system_at(at.as_ref()) {
        Ok(can) => Fact::Known(can),
        Err(error) => {
            Fact::Unreadable(ReadError::io(at.into(), &std::io::Error::from(error.errno)))
        }
    }
}

/// Those of disks, each place once (proc_pid_mountinfo(5)).
fn parse_disk_mounts(text: &str) -> Vec<DiskMount> {
    let mut all: Vec<DiskMount> = Vec::new();
    for line in text.lines() {
        let Some((mount, source)) = line.split_once(" - ") else {
            continue;
        };
        let (mount, source): (Vec<&str>, Vec<&str>) =
            (mount.split(' ').collect(), source.split(' ').collect());
        let (Some(at), Some(own)) = (mount.get(4), mount.get(5)) else {
            continue;
        };
        let (Some(kind), Some(device)) = (source.first(), source.get(1)) else {
            continue;
        };
        let is_on_disk = device.starts_with("/dev/") && !device.starts_with("/dev/loop");
        if is_on_disk && all.iter().all(|known| known.at != *at) {
            let more = source.last().copied().unwrap_or_default();
            all.push(DiskMount {
                at: (*at).to_owned(),
                kind: (*kind).to_owned(),
                options: format!("{own},{more}"),
                can: Fact::Absent,
            });
        }
    }
    all
}

fn network(root: &Root) -> Vec<Network> {
    const FOLDER: &str = "sys/class/net";
    let names = root.list(FOLDER).or_default();
    let one = |name: String| {
        let file = |of: &str| format!("{FOLDER}/{name}/{of}");
        let queues = root.list(file("queues"));
        Network {
            mtu: files::number(root, file("mtu")),
            queues: queues.map(|all| all.iter().filter(|queue| queue.starts_with("rx-")).count()),
            gro_flush_timeout: files::number(root, file("gro_flush_timeout")),
            offloads: offloads(root, &name),
            name,
        }
    };
    names
        .into_iter()
        .filter(|name| name != "lo")
        .map(one)
        .collect()
}

/// Asked of the running kernel: no file has it.
fn offloads(root: &Root, device: &str) -> Fact<BTreeMap<String, bool>> {
    // A device without hardware beneath, as of a container, leaves it all to that one's.
    let has_hardware = root.list(format!("sys/class/net/{device}/device"));
    if !root.is_live() || has_hardware.known().is_none() {
        return Fact::Absent;
    }
    match hugeleaf_sys::offloads(device) {
        Ok(known) => Fact::Known(
            known
                .into_iter()
                .map(|(name, on)| (name.to_owned(), on))
                .collect(),
        ),
        Err(error) if error.errno == Errno::OPNOTSUPP => Fact::Absent,
        Err(error) => Fact::Unreadable(ReadError::io(
            root.path(format!("sys/class/net/{device}")),
            &std::io::Error::from(error.errno),
        )),
    }
}

/// Names, soft and hard limits: columns of a fixed width (fs/proc/base.c, proc_pid_limits).
fn parse_limits(text: &str) -> Vec<(String, String, String)> {
    const NAME: usize = 26;
    let lines = text.lines().skip(1);
    let parsed = lines.filter_map(|line| {
        let (name, rest) = line.split_at_checked(NAME)?;
        let mut words = rest.split_whitespace();
        Some((
            name.trim().to_owned(),
            words.next()?.to_owned(),
            words.next()?.to_owned(),
        ))
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_have_names_of_several_words() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 524288               files     \n\
                    Max locked memory         unlimited            unlimited            bytes     \n";
        let limits = parse_limits(text);
        let triple = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(limits[0], triple("Max open files", "1024", "524288"));
        assert_eq!(
            limits[1],
            triple("Max locked memory", "unlimited", "unlimited")
        );
    }

    #[test]
    fn a_host_without_any_of_it_has_none() {
        let features = read_features(&Root::at("/nowhere"));
        assert!(
            features.disks.is_empty()
                && features.mounts.is_empty()
                && features.governors.is_empty()
        );
        assert_eq!(features.number("proc/sys/vm/swappiness"), None);
        assert!(features.limits.is_absent());
    }

    #[test]
    fn this_host_is_read() {
        let features = read_features(&Root::live());
        assert!(features.number("proc/sys/vm/swappiness").is_some());
        assert!(features.limits.known().is_some_and(|all| all.len() > 10));
    }

    #[test]
    fn mounts_of_disks_are_told_from_others() {
        let text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro\n\
                    23 22 0:5 / /proc rw - proc proc rw\n\
                    24 22 254:0 /a / rw - ext4 /dev/vda rw\n\
                    25 22 7:0 / /snap ro - squashfs /dev/loop0 ro\nshort - x";
        let mounts = parse_disk_mounts(text);
        assert_eq!(mounts.len(), 1);
        assert_eq!(
            (mounts[0].kind.as_str(), mounts[0].at.as_str()),
            ("ext4", "/")
        );
        assert_eq!(mounts[0].options, "rw,relatime,rw,errors=remount-ro");
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = parse_limits(&text);
            let _ = parse_disk_mounts(&text);
        }
    }
}
