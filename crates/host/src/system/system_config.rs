//! Host settings other than page sizes: kernel settings, disks, file systems, network devices, limits.
//!
//! Every value is kept as the kernel writes it, by its file. Judging it is left to other crates.

use std::collections::BTreeMap;

pub use hugeleaf_sys::FileSystemFeatures;
use hugeleaf_sys::{Errno, file_system_at};
use serde::Serialize;

use super::file_readers;
use crate::fact::{Fact, ReadError};
use crate::parse_helpers::MountLine;
use crate::root::{Root, answered};

/// Settings in files of one or two lines each. [`SINCE`] lists those that some kernels lack.
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

/// The first kernel version with a setting. Older kernels do not have it, regardless of the capture.
const SINCE: &[(&str, (u32, u32))] = &[
    ("proc/sys/kernel/io_uring_disabled", (6, 6)),
    ("proc/sys/vm/hugetlb_optimize_vmemmap", (5, 19)),
];

const VULNERABILITIES: &str = "sys/devices/system/cpu/vulnerabilities";

#[derive(Debug, Clone, Default, Serialize)]
pub struct SystemConfig {
    /// True for a captured host, which has only the captured files.
    pub is_captured: bool,
    pub settings: BTreeMap<String, Fact<String>>,
    /// Mitigations of CPU vulnerabilities, by their name.
    pub weaknesses: Fact<BTreeMap<String, String>>,
    /// Frequency governors, each with its number of processors. Absent if the host does not set frequencies.
    pub governors: Fact<BTreeMap<String, usize>>,
    /// Disks, without partitions.
    pub disks: Fact<Vec<Disk>>,
    pub mounts: Fact<Vec<DiskMount>>,
    pub network: Fact<Vec<NetworkDevice>>,
}

/// A limit of a process, as `/proc/PID/limits` writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceLimit {
    pub name: String,
    pub soft: String,
    pub hard: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// As in `/sys/block`.
    pub name: String,
    /// Available schedulers, the one in use in brackets.
    pub scheduler: Fact<String>,
    /// Maximum number of queued requests.
    pub requests: Fact<u64>,
    pub read_ahead_kib: Fact<u64>,
    /// Absent for a virtual disk, which reports the kernel's default and not the storage of the host.
    pub rotates: Fact<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskMount {
    pub at: String,
    pub kind: String,
    /// Options of the mount and of the file system.
    pub options: String,
    /// Known properties of the file system. Absent on a captured host.
    pub can: Fact<FileSystemFeatures>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NetworkDevice {
    pub name: String,
    #[serde(rename = "mtu_bytes")]
    pub mtu: Fact<u64>,
    pub queues: Fact<usize>,
    /// Nanoseconds for which received packets are merged (`gro_flush_timeout`).
    pub gro_flush_timeout: Fact<u64>,
    /// NIC offloads, on or off by name (`ethtool -k`). Absent on a captured host, and for a device without hardware.
    pub offloads: Fact<BTreeMap<&'static str, bool>>,
}

impl SystemConfig {
    pub fn setting(&self, file: &str) -> &Fact<String> {
        const ABSENT: &Fact<String> = &Fact::Absent;
        self.settings.get(file).unwrap_or(ABSENT)
    }

    pub fn number(&self, file: &str) -> Option<u64> {
        let text = self.setting(file).known()?;
        text.split_whitespace().next()?.parse().ok()
    }
}

pub fn read_features(root: &Root) -> SystemConfig {
    let kernel = file_readers::line(root, "proc/sys/kernel/osrelease");
    let kernel = kernel.text().and_then(release);
    let one = |file: &&str| {
        let since = SINCE.iter().find(|(name, _)| name == file);
        let is_older = since
            .zip(kernel)
            .is_some_and(|((_, since), is)| is < *since);
        let fact = match is_older {
            true => Fact::Absent,
            false => captured(root, file, file_readers::line(root, file)),
        };
        ((*file).to_owned(), fact)
    };
    SystemConfig {
        is_captured: !root.is_live(),
        settings: SETTINGS.iter().map(one).collect(),
        weaknesses: captured(root, VULNERABILITIES, vulnerabilities(root)),
        governors: governors(root),
        disks: disks(root),
        mounts: mounts(root),
        network: network(root),
    }
}

/// Marks a fact missing from a capture as unknown, since only a running host can lack the thing itself.
pub(super) fn captured<T>(root: &Root, path: &str, fact: Fact<T>) -> Fact<T> {
    match fact {
        Fact::Absent if !root.is_live() => {
            let reason = "it is not part of this capture";
            Fact::Unreadable(ReadError::new(root.path(path), reason))
        }
        fact => fact,
    }
}

/// Parses the first two numbers of a release such as `6.18.5-generic`.
pub fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn vulnerabilities(root: &Root) -> Fact<BTreeMap<String, String>> {
    root.list(VULNERABILITIES).map(|names| {
        let one = |name: String| {
            let text = file_readers::line(root, format!("{VULNERABILITIES}/{name}"));
            Some((name, text.known()?.clone()))
        };
        names.into_iter().filter_map(one).collect()
    })
}

fn governors(root: &Root) -> Fact<BTreeMap<String, usize>> {
    const FOLDER: &str = "sys/devices/system/cpu/cpufreq";
    captured(root, FOLDER, root.list(FOLDER)).and_then(|names| {
        let mut all = BTreeMap::new();
        for name in names.iter().filter(|name| name.starts_with("policy")) {
            let governor = file_readers::line(root, format!("{FOLDER}/{name}/scaling_governor"));
            let processors = file_readers::line(root, format!("{FOLDER}/{name}/affected_cpus"));
            let count = processors
                .known()
                .map_or(1, |text| text.split_whitespace().count());
            if let Some(governor) = governor.known() {
                *all.entry(governor.clone()).or_default() += count;
            }
        }
        Fact::from((!all.is_empty()).then_some(all))
    })
}

/// False for devices backed by memory or by files of another file system.
fn is_a_disk(name: &str) -> bool {
    let made_up = ["loop", "ram", "zram", "fd", "sr", "nbd"];
    !made_up.iter().any(|start| name.starts_with(start))
}

fn disks(root: &Root) -> Fact<Vec<Disk>> {
    const FOLDER: &str = "sys/block";
    let one = |name: String| {
        let file = |of: &str| format!("{FOLDER}/{name}/queue/{of}");
        let rotates = file_readers::number(root, file("rotational")).map(|n| n != 0);
        Disk {
            scheduler: file_readers::line(root, file("scheduler")),
            requests: file_readers::number(root, file("nr_requests")),
            read_ahead_kib: file_readers::number(root, file("read_ahead_kb")),
            rotates: match is_virtual(root, &name) {
                true => Fact::Absent,
                false => rotates,
            },
            name,
        }
    };
    let names = captured(root, FOLDER, root.list(FOLDER));
    names.map(|names| {
        let disks = names.into_iter().filter(|name| is_a_disk(name));
        disks.map(one).collect()
    })
}

/// Returns true if a hypervisor provides the disk, or one below it. Disks of virtio and Xen have their own names, and emulated
/// SCSI disks have the hypervisor's vendor name. A volume may be on a partition, as on `sda2`.
fn is_virtual(root: &Root, name: &str) -> bool {
    const MAKERS: [&str; 6] = ["QEMU", "VMware", "Msft", "VBOX", "Google", "Amazon"];
    let of_one = |name: &str| {
        let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let maker = file_readers::line(root, format!("sys/block/{disk}/device/vendor"));
        let is_known = maker.text().is_some_and(|maker| MAKERS.contains(&maker));
        is_known || name.starts_with("vd") || name.starts_with("xvd")
    };
    let below = root.list(format!("sys/block/{name}/slaves")).or_default();
    of_one(name) || below.iter().any(|part| of_one(part))
}

fn mounts(root: &Root) -> Fact<Vec<DiskMount>> {
    const FILE: &str = "proc/self/mountinfo";
    captured(root, FILE, root.read(FILE)).map(|text| {
        let mut all = parse_disk_mounts(&text);
        if root.is_live() {
            for mount in &mut all {
                mount.can = abilities(&mount.at);
            }
        }
        all
    })
}

/// Queries the running kernel, because no file has it.
fn abilities(at: &str) -> Fact<FileSystemFeatures> {
    let can = answered(at.as_ref(), |at| {
        file_system_at(at).map_err(|error| std::io::Error::from(error.errno))
    });
    match can {
        Ok(can) => Fact::Known(can),
        Err(error) => Fact::Unreadable(ReadError::io(at.into(), &error)),
    }
}

/// Parses the mounts of disks, each mount point once (proc_pid_mountinfo(5)).
fn parse_disk_mounts(text: &str) -> Vec<DiskMount> {
    let mut all: Vec<DiskMount> = Vec::new();
    for line in text.lines() {
        let Some(mount) = MountLine::parse(line) else {
            continue;
        };
        let is_on_disk =
            mount.source.starts_with("/dev/") && !mount.source.starts_with("/dev/loop");
        if is_on_disk && all.iter().all(|known| known.at != mount.at) {
            all.push(DiskMount {
                at: mount.at.to_owned(),
                kind: mount.file_system.to_owned(),
                options: format!("{},{}", mount.options, mount.file_system_options),
                can: Fact::Absent,
            });
        }
    }
    all
}

fn network(root: &Root) -> Fact<Vec<NetworkDevice>> {
    const FOLDER: &str = "sys/class/net";
    let one = |name: String| {
        let file = |of: &str| format!("{FOLDER}/{name}/{of}");
        let queues = root.list(file("queues"));
        NetworkDevice {
            mtu: file_readers::number(root, file("mtu")),
            queues: queues.map(|all| all.iter().filter(|queue| queue.starts_with("rx-")).count()),
            gro_flush_timeout: file_readers::number(root, file("gro_flush_timeout")),
            offloads: offloads(root, &name),
            name,
        }
    };
    let names = captured(root, FOLDER, root.list(FOLDER));
    names.map(|names| {
        let devices = names.into_iter().filter(|name| name != "lo");
        devices.map(one).collect()
    })
}

/// Queries the running kernel, because no file has it.
fn offloads(root: &Root, device: &str) -> Fact<BTreeMap<&'static str, bool>> {
    // A device without hardware, as in a container, uses the offloads of the underlying one.
    let has_hardware = root.list(format!("sys/class/net/{device}/device"));
    if !root.is_live() || has_hardware.known().is_none() {
        return Fact::Absent;
    }
    match hugeleaf_sys::offloads(device) {
        Ok(known) => Fact::Known(known.into_iter().collect()),
        Err(error) if error.errno == Errno::OPNOTSUPP => Fact::Absent,
        Err(error) => Fact::Unreadable(ReadError::io(
            root.path(format!("sys/class/net/{device}")),
            &std::io::Error::from(error.errno),
        )),
    }
}

/// Parses names, soft and hard limits, in columns of fixed width (fs/proc/base.c, proc_pid_limits).
pub(super) fn parse_limits(text: &str) -> Vec<ResourceLimit> {
    const NAME: usize = 26;
    let lines = text.lines().skip(1);
    let parsed = lines.filter_map(|line| {
        let (name, rest) = line.split_at_checked(NAME)?;
        let mut words = rest.split_whitespace();
        Some(ResourceLimit {
            name: name.trim().to_owned(),
            soft: words.next()?.to_owned(),
            hard: words.next()?.to_owned(),
        })
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
        let triple = |of: &ResourceLimit| format!("{}: {}, {}", of.name, of.soft, of.hard);
        assert_eq!(triple(&limits[0]), "Max open files: 1024, 524288");
        assert_eq!(
            triple(&limits[1]),
            "Max locked memory: unlimited, unlimited"
        );
    }

    #[test]
    fn a_capture_that_lacks_a_file_does_not_say_that_the_host_does() {
        let features = read_features(&Root::at("/nowhere"));
        assert!(features.disks.error().is_some() && features.governors.error().is_some());
        assert!(features.setting("proc/sys/vm/swappiness").error().is_some());
        // Before 6.6 there was no switch for io_uring.
        let (_dir, root) = crate::testing::host(&[("proc/sys/kernel/osrelease", "6.1.0-13\n")]);
        let features = read_features(&root);
        let io_uring = features.setting("proc/sys/kernel/io_uring_disabled");
        assert!(io_uring.is_absent() && features.mounts.error().is_some());
    }

    #[test]
    fn releases_as_they_are_written() {
        assert_eq!(release("6.18.5-generic"), Some((6, 18)));
        assert_eq!(release("7.0-rc1"), Some((7, 0)));
        assert_eq!(release("none"), None);
    }

    #[test]
    fn virtual_disks_do_not_say_whether_they_rotate() {
        let rotational = |name: &str| format!("sys/block/{name}/queue/rotational");
        let files = ["vda", "sda", "sdb", "dm-0", "dm-1"].map(rotational);
        let mut all: Vec<(&str, &str)> = files.iter().map(|file| (&**file, "1\n")).collect();
        all.push(("sys/block/sdb/device/vendor", "QEMU    \n"));
        all.push(("sys/block/dm-0/slaves/sdb2/dev", "8:18\n"));
        all.push(("sys/block/dm-1/slaves/sda1/dev", "8:1\n"));
        let (_dir, root) = crate::testing::host(&all);
        let disks = disks(&root).known().cloned().unwrap();
        let turn = disks.iter().filter(|disk| disk.rotates.get() == Some(true));
        assert_eq!(
            turn.map(|disk| &*disk.name).collect::<Vec<_>>(),
            ["dm-1", "sda"]
        );
    }

    #[test]
    fn this_host_is_read() {
        let features = read_features(&Root::live());
        assert!(features.number("proc/sys/vm/swappiness").is_some());
        assert!(features.disks.known().is_some() && features.mounts.known().is_some());
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
