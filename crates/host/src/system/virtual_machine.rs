//! Facts about the virtual machine that a host is, as far as its guest kernel knows them.

use serde::Serialize;

use super::file_readers::{line, number};
use crate::fact::Fact;
use crate::root::Root;

/// Facts about the hypervisor below a host. All are absent unless [`super::read_host`] read them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct VirtualMachine {
    /// True if a hypervisor runs this kernel: `hypervisor` in the flags of `/proc/cpuinfo`, or `/sys/hypervisor/type`. Absent if
    /// that is not known: processors other than x86 have no such flag, and a captured host may lack the file.
    #[serde(rename = "is_guest")]
    pub is_guest: Fact<bool>,
    /// `/sys/class/dmi/id/sys_vendor`, as in `QEMU`. Physical machines have one too.
    pub vendor: Fact<String>,
    /// `/sys/class/dmi/id/product_name`.
    pub product: Fact<String>,
    /// The device by which a hypervisor takes memory back. Absent if that is not known.
    pub balloon: Fact<Balloon>,
    /// `/sys/module/page_reporting/parameters/page_reporting_order`: the smallest free block that the guest reports, as a power of
    /// two of base pages. Absent without CONFIG_PAGE_REPORTING, and before a driver has set it (-1).
    pub page_reporting_order: Fact<u64>,
}

hugeleaf_units::named! {
    /// The virtio balloon device (`/sys/bus/virtio/devices/*/device` is 0x0005).
    pub enum Balloon {
        None = "none",
        /// Without free page reporting: it gives back only what the hypervisor asks for.
        Plain = "plain",
        /// It reports free memory to the hypervisor (VIRTIO_BALLOON_F_REPORTING, bit 5 of `features`).
        ReportsFreePages = "reports-free-pages",
    }
}

const PAGE_REPORTING_ORDER: &str = "sys/module/page_reporting/parameters/page_reporting_order";
const DEVICES: &str = "sys/bus/virtio/devices";
const BALLOON_DEVICE: &str = "0x0005";
const FREE_PAGE_REPORTING: usize = 5;

pub(super) fn read(root: &Root) -> VirtualMachine {
    let dmi = |name: &str| line(root, format!("sys/class/dmi/id/{name}"));
    VirtualMachine {
        is_guest: is_guest(root),
        vendor: dmi("sys_vendor"),
        product: dmi("product_name"),
        balloon: balloon(root),
        page_reporting_order: match line(root, PAGE_REPORTING_ORDER) {
            Fact::Known(text) if text == "-1" => Fact::Absent,
            _ => number(root, PAGE_REPORTING_ORDER),
        },
    }
}

fn is_guest(root: &Root) -> Fact<bool> {
    // Xen has this file on x86 and arm64.
    match line(root, "sys/hypervisor/type") {
        Fact::Known(_) => Fact::Known(true),
        _ => root
            .read("proc/cpuinfo")
            .and_then(|text| parse_hypervisor_flag(&text).into()),
    }
}

/// Returns whether the processor flags of `/proc/cpuinfo` contain `hypervisor`. `None` without such a line, as on arm64.
pub fn parse_hypervisor_flag(cpuinfo: &str) -> Option<bool> {
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut flags = lines.filter(|(name, _)| name.trim_end() == "flags");
    let (_, flags) = flags.next()?;
    Some(
        flags
            .split_ascii_whitespace()
            .any(|flag| flag == "hypervisor"),
    )
}

fn balloon(root: &Root) -> Fact<Balloon> {
    let names = match root.list(DEVICES) {
        // A running kernel without virtio has no such folder. A captured host may lack it.
        Fact::Absent if root.is_live() => return Fact::Known(Balloon::None),
        Fact::Known(names) => names,
        absent => return absent.map(|_| Balloon::None),
    };
    for name in names {
        let file = |file: &str| line(root, format!("{DEVICES}/{name}/{file}"));
        match file("device") {
            Fact::Known(device) if device == BALLOON_DEVICE => {
                return file("features").map(|features| parse_balloon_features(&features));
            }
            Fact::Unreadable(error) => return Fact::Unreadable(error),
            _ => {}
        }
    }
    Fact::Known(Balloon::None)
}

/// Parses the features of a balloon device: one digit a bit, bit 0 first (`features_show`, drivers/virtio/virtio.c).
pub fn parse_balloon_features(features: &str) -> Balloon {
    match features.as_bytes().get(FREE_PAGE_REPORTING) {
        Some(b'1') => Balloon::ReportsFreePages,
        _ => Balloon::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &str = "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n";

    fn host(files: &[(&str, &str)]) -> VirtualMachine {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        read(&Root::at(folder.path()))
    }

    #[test]
    fn a_flag_of_the_processor_tells_a_guest() {
        assert_eq!(parse_hypervisor_flag(FLAGS), Some(true));
        assert_eq!(
            parse_hypervisor_flag("flags : fpu vme\nbugs : hypervisor\n"),
            Some(false)
        );
        assert_eq!(parse_hypervisor_flag("flags : hypervisors\n"), Some(false));
        assert_eq!(parse_hypervisor_flag("Features : fp asimd\n"), None);
        assert_eq!(parse_hypervisor_flag(""), None);
    }

    #[test]
    fn what_a_capture_lacks_is_absent() {
        assert_eq!(host(&[]), VirtualMachine::default());
        // As Linux 6.12 writes it in a guest without a balloon.
        assert!(
            host(&[(PAGE_REPORTING_ORDER, "-1\n")])
                .page_reporting_order
                .is_absent()
        );
        let no_devices = host(&[("proc/cpuinfo", FLAGS)]);
        assert_eq!(
            (no_devices.is_guest, no_devices.balloon),
            (Fact::Known(true), Fact::Absent)
        );
        let xen = host(&[("sys/hypervisor/type", "xen\n")]);
        assert_eq!(xen.is_guest, Fact::Known(true));
    }

    #[test]
    fn the_balloon_says_whether_it_reports_free_pages() {
        let disk = ("sys/bus/virtio/devices/virtio0/device", "0x0002\n");
        let balloon = ("sys/bus/virtio/devices/virtio1/device", "0x0005\n");
        let features = |text| ("sys/bus/virtio/devices/virtio1/features", text);
        assert_eq!(host(&[disk]).balloon, Fact::Known(Balloon::None));
        for (text, expected) in [
            ("0110010100\n", Balloon::ReportsFreePages),
            ("0110000100\n", Balloon::Plain),
            ("01\n", Balloon::Plain),
        ] {
            let read = host(&[disk, balloon, features(text)]);
            assert_eq!(read.balloon, Fact::Known(expected), "{text}");
        }
        assert_eq!(host(&[disk, balloon]).balloon, Fact::Absent);
    }
}
