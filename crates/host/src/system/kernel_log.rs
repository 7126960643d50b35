//! Lines of the kernel's log about pools and failed allocations.

use std::path::PathBuf;

use hugeleaf_sys::Errno;

use crate::fact::{Fact, ReadError};
use crate::root::Root;

/// Maximum number of lines kept. The last ones are kept, because they describe the present.
const MOST_LINES: usize = 20;

/// Returns the relevant lines, oldest first. On a captured host they come from `var/log/dmesg`.
pub fn read(root: &Root) -> Fact<Vec<String>> {
    let text = if root.is_live() {
        ring_buffer()
    } else {
        root.read("var/log/dmesg")
    };
    text.map(|text| parse(&text))
}

fn ring_buffer() -> Fact<String> {
    match hugeleaf_sys::kernel_log() {
        Ok(text) => Fact::Known(text),
        Err(e) if e.errno == Errno::NOSYS => Fact::Absent,
        Err(e) => Fact::Unreadable(ReadError {
            path: PathBuf::from("kernel log"),
            denied: e.errno == Errno::PERM,
            reason: e.to_string(),
        }),
    }
}

/// Returns the lines about unavailable huge pages, without their level (`<6>`), at most the last
/// 20.
pub fn parse(text: &str) -> Vec<String> {
    let lines = text.lines().map(without_level).filter(|l| matters(l));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.drain(..lines.len().saturating_sub(MOST_LINES));
    lines
}

fn without_level(line: &str) -> &str {
    match line.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((level, rest)) if level.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => line,
    }
}

/// True for messages of mm/hugetlb.c, mm/huge_memory.c, mm/page_alloc.c and init. They report pools
/// that came out too small, unsupported page sizes, ignored settings, missing contiguous memory,
/// and shared memory that was allowed by memlock alone.
fn matters(line: &str) -> bool {
    let says = |text: &str| line.contains(text);
    let ignored = says("gnoring") || says("gnored");
    (says("HugeTLB") && says("Only allocated"))
        || ((says("HugeTLB") || says("hugepagesz")) && says("nsupported"))
        || (says("page allocation failure: order:") && !says("order:0"))
        || (ignored && (says("HugeTLB") || says("transparent_hugepage") || says("thp_")))
        || (says("Unknown kernel command line parameters") && says("huge"))
        || says("Using mlock ulimits for SHM_HUGETLB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shortfalls_and_nothing_else() {
        let text = "<6>[    0.278690] HugeTLB: registered 1.00 GiB page size, pre-allocated 0 pages\n\
            <4>[    0.5] HugeTLB: allocating 16 of page size 1.00 GiB failed.  Only allocated 11 hugepages.\n\
            [   9.1] kworker/0: page allocation failure: order:0, mode:0x1\n\
            [   9.2] postgres: page allocation failure: order:9, mode:0x1\n\
            [   9.3] HugeTLB: unsupported hugepagesz=16G\n<x> y\n<\n\
            [   9.4] thp_anon=64K:x: error parsing string, ignoring setting\n\
            [   9.5] Kernel command line: hugepages=4\n\
            [   9.6] Unknown kernel command line parameters \"hugepages=4\", will be passed on";
        let lines = parse(text);
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(lines[0].starts_with("[    0.5]"));
    }

    #[test]
    fn a_flood_keeps_its_end() {
        let text: String = (0..100)
            .map(|i| format!("[{i}] x: page allocation failure: order:9\n"))
            .collect();
        let lines = parse(&text);
        assert_eq!((lines.len(), lines[19].starts_with("[99]")), (20, true));
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = parse(&text);
        }
    }
}
