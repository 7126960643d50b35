//! Findings about the hypervisor below this host.

use hugeleaf_host::Host;
use hugeleaf_host::system::virtual_machine::Balloon;
use hugeleaf_units::Bytes;

use super::Finding;

/// Reports that a guest does not know the page sizes of its hypervisor, and what it knows of the balloon, which changes them.
/// Nothing is reported if it is unknown whether this is a guest.
pub fn guest_pages(host: &Host) -> Option<Finding> {
    let machine = &host.virtual_machine;
    if machine.is_guest.get() != Some(true) {
        return None;
    }
    let names = [&machine.vendor, &machine.product];
    let names: Vec<&str> = names.into_iter().filter_map(|name| name.text()).collect();
    let names = match names.is_empty() {
        true => String::new(),
        false => format!(" ({})", names.join(" ")),
    };
    Some(Finding::note(
        "guest-pages",
        format!(
            "This host is a virtual machine{names}. A huge page here saves full page walks only if the hypervisor \
             maps its memory on huge pages too, which no file of a guest shows.{}",
            balloon(host)
        ),
        "# on the hypervisor, if it is Linux: hugeleaf mem qemu-system-x86_64",
    ))
}

fn balloon(host: &Host) -> String {
    let machine = &host.virtual_machine;
    match machine.balloon.get() {
        None => " It is unknown whether it has a balloon device.".to_owned(),
        Some(Balloon::None) => String::new(),
        Some(Balloon::Plain) => {
            " Its balloon device gives back single base pages, which splits huge pages of the hypervisor.".to_owned()
        }
        Some(Balloon::ReportsFreePages) => {
            let block = machine.page_reporting_order.get();
            let block = block.and_then(|order| block_of(order, host.base_page.bytes()));
            let size = block.map_or(String::new(), |block| format!(" in blocks of {block} and more"));
            let pmd = host.pmd_page.get().map(|pmd| pmd.bytes());
            let end = match block.zip(pmd) {
                Some((block, pmd)) if block < pmd => {
                    "; blocks smaller than a huge page split huge pages of the hypervisor."
                }
                _ => "; memory that was free may come back on base pages of the hypervisor.",
            };
            format!(" It reports free memory to the hypervisor{size}{end}")
        }
    }
}

fn block_of(order: u64, base: Bytes) -> Option<Bytes> {
    let pages = 1u64.checked_shl(u32::try_from(order).ok()?)?;
    let block = pages.checked_mul(base.get())?;
    Some(Bytes(block))
}

#[cfg(test)]
mod tests {
    use hugeleaf_host::Fact;

    use super::*;
    use crate::findings::tests::testing::{healthy, word};

    fn guest(balloon: Fact<Balloon>, order: Fact<u64>) -> Host {
        let mut host = healthy();
        host.virtual_machine.is_guest = Fact::Known(true);
        host.virtual_machine.balloon = balloon;
        host.virtual_machine.page_reporting_order = order;
        host
    }

    #[test]
    fn a_guest_does_not_know_the_pages_of_its_hypervisor() {
        let mut host = guest(Fact::Known(Balloon::None), Fact::Absent);
        host.virtual_machine.vendor = word("QEMU");
        let finding = guest_pages(&host).unwrap();
        assert!(
            finding.text.contains("a virtual machine (QEMU). "),
            "{}",
            finding.text
        );
        assert!(
            finding.text.ends_with("no file of a guest shows."),
            "{}",
            finding.text
        );
        for other in [Fact::Known(false), Fact::Absent] {
            host.virtual_machine.is_guest = other;
            assert_eq!(guest_pages(&host), None);
        }
    }

    #[test]
    fn the_balloon_is_described_as_far_as_it_is_known() {
        for (balloon, order, end) in [
            (
                Fact::Absent,
                Fact::Absent,
                "unknown whether it has a balloon device.",
            ),
            (
                Fact::Known(Balloon::Plain),
                Fact::Known(9),
                "splits huge pages of the hypervisor.",
            ),
            (
                Fact::Known(Balloon::ReportsFreePages),
                Fact::Known(9),
                "in blocks of 2M and more; memory that was free may come back on base pages of the hypervisor.",
            ),
            (
                Fact::Known(Balloon::ReportsFreePages),
                Fact::Known(4),
                "in blocks of 64K and more; blocks smaller than a huge page split huge pages of the hypervisor.",
            ),
            (
                Fact::Known(Balloon::ReportsFreePages),
                Fact::Known(u64::MAX),
                "to the hypervisor; memory that was free may come back on base pages of the hypervisor.",
            ),
        ] {
            let text = guest_pages(&guest(balloon, order)).unwrap().text;
            assert!(text.ends_with(end), "{text}");
        }
    }
}
