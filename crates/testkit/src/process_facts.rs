//! Facts about a process from the kernel, parsed independently of hugeleaf and more simply. The
//! tests therefore do not rely on the code under test.

use hugeleaf_sys::{Kernel, PageScanDetail, PageState};
use hugeleaf_units::Range;

/// Returns true if this host has a pool of reserved pages.
pub fn has_pool() -> bool {
    let folders = std::fs::read_dir("/sys/kernel/mm/hugepages");
    let pages = |folder: &std::path::Path| std::fs::read_to_string(folder.join("nr_hugepages"));
    let mut pools = folders.into_iter().flatten().flatten();
    pools.any(|folder| pages(&folder.path()).is_ok_and(|text| text.trim() != "0"))
}

/// A mapping as in `/proc/PID/smaps`; sizes in kB as the kernel prints them.
#[derive(Debug, Default, Clone)]
pub struct SmapsMapping {
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// File or bracketed name; empty without one.
    pub name: String,
    fields: Vec<(String, u64)>,
}

impl SmapsMapping {
    /// Returns the field in kB; 0 if the kernel does not print it.
    pub fn kb(&self, field: &str) -> u64 {
        let found = self.fields.iter().find(|(name, _)| name == field);
        found.map_or(0, |(_, kb)| *kb)
    }
}

pub fn mappings(pid: u32) -> Vec<SmapsMapping> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut all: Vec<SmapsMapping> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some(field) = first.strip_suffix(':') {
            if let (Some(last), Some(Ok(kb))) = (all.last_mut(), words.next().map(str::parse)) {
                last.fields.push((field.to_owned(), kb));
            }
        } else if let Some((start, end)) = first.split_once('-') {
            all.push(SmapsMapping {
                start: u64::from_str_radix(start, 16).unwrap(),
                end: u64::from_str_radix(end, 16).unwrap(),
                name: words.nth(4).unwrap_or_default().to_owned(),
                fields: Vec::new(),
            });
        }
    }
    all
}

/// Sum of the large private mappings, which hold a server's data, in kB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateMemory {
    pub resident_kb: u64,
    /// Resident memory on huge pages, in kB.
    pub huge_kb: u64,
}

/// Sums the anonymous memory of mappings that hold at least `least_kb` of it.
pub fn private_memory(pid: u32, least_kb: u64) -> PrivateMemory {
    let mut sum = PrivateMemory {
        resident_kb: 0,
        huge_kb: 0,
    };
    for mapping in mappings(pid) {
        if mapping.kb("Anonymous") >= least_kb {
            sum.resident_kb += mapping.kb("Anonymous");
            sum.huge_kb += mapping.kb("AnonHugePages");
        }
    }
    sum
}

/// Returns the private memory that can be promoted without growing the process, in kB: aligned
/// blocks of unnamed mappings that are wholly resident and exclusive to the process.
pub fn promotable_kb(pid: u32) -> u64 {
    let huge = huge_page_kb().unwrap() * 1024;
    let pagemap = std::fs::File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let nameless = |m: &SmapsMapping| m.name.is_empty() || m.name == "[heap]";
    let mut movable = 0;
    for mapping in mappings(pid).into_iter().filter(nameless) {
        let (first, end) = (mapping.start.next_multiple_of(huge), mapping.end);
        for start in (first..end.saturating_sub(huge - 1)).step_by(usize::try_from(huge).unwrap()) {
            let block = Range::new(start, start + huge).unwrap();
            let pages = Kernel::new()
                .page_map(&pagemap, block, PageScanDetail::Exclusive)
                .unwrap();
            let own = PageState::PRESENT.with(PageState::EXCLUSIVE);
            let held = pages.runs.iter().filter(|run| run.state.has(own));
            if held.map(|run| run.range.len().get()).sum::<u64>() == huge {
                movable += huge;
            }
        }
    }
    movable / 1024
}

/// Returns the largest shared mapping.
pub fn largest_shared(pid: u32) -> SmapsMapping {
    mappings(pid)
        .into_iter()
        .filter(|m| m.name.starts_with("/dev/zero") || m.name.starts_with("/SYSV"))
        .max_by_key(|m| m.kb("Size"))
        .expect("a shared mapping")
}

/// Returns a field of `/proc/PID/status` in kB.
pub fn status_kb(pid: u32, field: &str) -> u64 {
    number(&format!("/proc/{pid}/status"), field)
}

/// Returns true unless the process has disabled THP (prctl(2), PR_SET_THP_DISABLE).
pub fn thp_enabled(pid: u32) -> bool {
    number(&format!("/proc/{pid}/status"), "THP_enabled") != 0
}

/// Returns the proportional set size in kB. In a sum over all sharers nothing counts twice.
pub fn pss_kb(pid: u32) -> u64 {
    number(&format!("/proc/{pid}/smaps_rollup"), "Pss")
}

/// Returns the number after a field's name.
fn number(path: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or_else(|| panic!("{path}: no {field}"))
}

pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect()
}

pub fn tree(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while at < all.len() {
        all.extend(children(all[at]));
        at += 1;
    }
    all
}

/// Returns the size of a PMD-mapped huge page; `None` without THP.
pub fn huge_page_kb() -> Option<u64> {
    let text =
        std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").ok()?;
    Some(text.trim().parse::<u64>().ok()? / 1024)
}
