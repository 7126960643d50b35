//! Values of the kernel, read in the simplest way.

use std::collections::BTreeMap;
use std::path::Path;

/// Reads a file of the kernel; empty if it does not exist.
pub fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Reads the lines `NAME: N kB` of a file, in bytes; numbers without a unit as they are.
pub fn fields(path: impl AsRef<Path>) -> BTreeMap<String, u64> {
    let text = text(path);
    let lines = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let mut words = rest.split_ascii_whitespace();
        let number: u64 = words.next()?.parse().ok()?;
        let unit = if words.next() == Some("kB") { 1024 } else { 1 };
        Some((name.to_owned(), number * unit))
    });
    lines.collect()
}

/// Reads a file that consists of a number.
pub fn number(path: impl AsRef<Path>) -> Option<u64> {
    text(path).trim().parse().ok()
}

/// Reads the word in brackets of a setting, or all of it.
pub fn chosen(path: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let word = text.split(['[', ']']).nth(1).unwrap_or(text.trim());
    Some(word.to_owned())
}

/// A mapping as `smaps` shows it; sizes in bytes.
#[derive(Debug, Default, Clone)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub flags: String,
    fields: BTreeMap<String, u64>,
}

impl Mapping {
    /// Returns a field; 0 if the kernel does not print it.
    pub fn get(&self, field: &str) -> u64 {
        self.fields.get(field).copied().unwrap_or(0)
    }

    /// Returns the bytes mapped by huge entries of the page table.
    pub fn huge(&self) -> u64 {
        self.get("AnonHugePages") + self.get("ShmemPmdMapped") + self.get("FilePmdMapped")
    }

    pub fn hugetlb(&self) -> u64 {
        self.get("Private_Hugetlb") + self.get("Shared_Hugetlb")
    }
}

/// Returns all mappings of a process.
pub fn smaps(pid: u32) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = Vec::new();
    for line in text(format!("/proc/{pid}/smaps")).lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            all.push(Mapping {
                start: u64::from_str_radix(start, 16).unwrap(),
                end: u64::from_str_radix(end, 16).unwrap(),
                ..Mapping::default()
            });
        } else if let (Some(last), Some((name, rest))) = (all.last_mut(), line.split_once(':')) {
            let kib = |rest: &str| {
                rest.strip_suffix(" kB")?
                    .parse()
                    .ok()
                    .map(|n: u64| 1024 * n)
            };
            let number = match name {
                "THPeligible" => rest.trim().parse().ok(),
                _ => kib(rest.trim()),
            };
            match number {
                Some(number) => drop(last.fields.insert(name.to_owned(), number)),
                None => last.flags.push_str(rest),
            }
        }
    }
    all
}

/// Sums a value of the mappings inside a range.
pub fn inside(pid: u32, range: (u64, u64), of: impl Fn(&Mapping) -> u64) -> u64 {
    let mappings = smaps(pid);
    let within = |m: &&Mapping| m.start >= range.0 && m.end <= range.1;
    mappings.iter().filter(within).map(of).sum()
}

/// Returns the existing nodes.
pub fn nodes() -> Vec<u32> {
    let mut nodes: Vec<u32> = names("/sys/devices/system/node", "node");
    if nodes.is_empty() {
        nodes.push(0);
    }
    nodes
}

/// Returns a line of a node's `meminfo`, in bytes.
pub fn node_memory(node: u32, name: &str) -> Option<u64> {
    let meminfo = text(format!("/sys/devices/system/node/node{node}/meminfo"));
    let name = format!(" {name}:");
    let line = meminfo.lines().find(|line| line.contains(&name))?;
    let kib: u64 = line.split_ascii_whitespace().nth(3)?.parse().ok()?;
    Some(kib * 1024)
}

/// Returns the sizes of hugetlb pages, in bytes, smallest first.
pub fn pool_sizes() -> Vec<u64> {
    let mut sizes: Vec<u64> = std::fs::read_dir("/sys/kernel/mm/hugepages")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().to_string_lossy().into_owned();
            let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            kib.parse::<u64>().ok()
        })
        .map(|kib| kib * 1024)
        .collect();
    sizes.sort_unstable();
    sizes
}

/// Returns the path of a pool's file: of all nodes, or of one.
pub fn pool_file(size: u64, node: Option<u32>, name: &str) -> String {
    let folder = match node {
        Some(node) => format!("/sys/devices/system/node/node{node}/hugepages"),
        None => "/sys/kernel/mm/hugepages".to_owned(),
    };
    format!("{folder}/hugepages-{}kB/{name}", size / 1024)
}

/// Returns the numbers after a word in the names of a folder.
fn names(folder: &str, word: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().to_string_lossy().into_owned();
            name.strip_prefix(word)?.parse().ok()
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Formats a size for hugeleaf's flags.
pub fn flag(bytes: u64) -> String {
    for (unit, letter) in [(1_u64 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{letter}", bytes / unit);
        }
    }
    bytes.to_string()
}
