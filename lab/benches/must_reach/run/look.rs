//! Private and shared memory of a process by the kind of page, from `smaps`.

use std::collections::BTreeMap;

use crate::Failed;
use hugeleaf_testkit::process_facts;

/// Resident memory of one kind, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Total.
    pub resident: u64,
    /// Part mapped by transparent huge pages.
    pub thp: u64,
    /// Part from a pool.
    pub hugetlb: u64,
}

impl Held {
    /// Returns the coverage; `None` without resident memory.
    pub fn coverage(self) -> Option<f64> {
        let large = (self.thp + self.hugetlb) as f64;
        (self.resident > 0).then(|| large / self.resident as f64)
    }
}

/// Memory of a process at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Private memory: written by the process and invisible to others.
    pub private: Held,
    /// Memory that it shares with others by intent, without files on a disk.
    pub shared: Held,
}

/// A mapping as `smaps` shows it.
#[derive(Debug, Default)]
struct Mapping {
    shared: bool,
    inode: u64,
    name: String,
    fields: BTreeMap<String, u64>,
}

impl Mapping {
    fn bytes(&self, field: &str) -> u64 {
        self.fields.get(field).copied().unwrap_or(0) * 1024
    }

    /// Returns the bytes of pool pages, which are in no other field.
    fn hugetlb(&self) -> u64 {
        self.bytes("Private_Hugetlb") + self.bytes("Shared_Hugetlb")
    }

    /// Returns true for shared memory, as opposed to a mapped file.
    fn is_shared_memory(&self) -> bool {
        const NAMES: [&str; 6] = [
            "/dev/zero",
            "/SYSV",
            "/memfd:",
            "/dev/shm/",
            "/anon_hugepage",
            "/hugeleaf",
        ];
        self.shared && (NAMES.iter().any(|n| self.name.starts_with(n)) || self.hugetlb() > 0)
    }
}

fn mappings(pid: u32) -> Result<Vec<Mapping>, Failed> {
    let path = format!("/proc/{pid}/smaps");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let mut all: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [field, kb, "kB"] => {
                let value = kb.parse().unwrap_or(0);
                if let Some(last) = all.last_mut() {
                    let field = field.trim_end_matches(':').to_owned();
                    last.fields.insert(field, value);
                }
            }
            [range, flags, _, _, inode, name @ ..] if range.contains('-') => {
                all.push(Mapping {
                    shared: flags.ends_with('s'),
                    inode: inode.parse().unwrap_or(0),
                    name: name.join(" "),
                    fields: BTreeMap::new(),
                });
            }
            _ => {}
        }
    }
    Ok(all)
}

/// Reads the memory of one process.
pub fn look(pid: u32) -> Result<Look, Failed> {
    let mut look = Look::default();
    for mapping in mappings(pid)? {
        let hugetlb = mapping.hugetlb();
        if mapping.is_shared_memory() {
            look.shared.resident += mapping.bytes("Rss") + hugetlb;
            look.shared.thp += mapping.bytes("ShmemPmdMapped");
            look.shared.hugetlb += hugetlb;
        } else {
            look.private.resident += mapping.bytes("Anonymous") + hugetlb;
            look.private.thp += mapping.bytes("AnonHugePages");
            look.private.hugetlb += hugetlb;
        }
    }
    Ok(look)
}

/// Returns the bytes of a process and all its descendants; each page counts once.
pub fn resident(pid: u32) -> Result<u64, Failed> {
    let mut sum = 0;
    // Pool pages have no proportional share, so a segment counts where it is largest.
    let mut segments: BTreeMap<u64, u64> = BTreeMap::new();
    for pid in process_facts::tree(pid) {
        for mapping in mappings(pid)? {
            sum += mapping.bytes("Pss");
            match mapping.shared {
                true => {
                    let most = segments.entry(mapping.inode).or_default();
                    *most = mapping.hugetlb().max(*most);
                }
                false => sum += mapping.hugetlb(),
            }
        }
    }
    Ok(sum + segments.values().sum::<u64>())
}
