//! What a process has: its private and its shared memory by the kind of page, from `smaps`.

use std::collections::BTreeMap;

use crate::Failed;
use hugeleaf_testkit::facts;

/// Memory of one sort that is resident; bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// All of it.
    pub resident: u64,
    /// The part that transparent huge pages map.
    pub thp: u64,
    /// The part that comes from a pool.
    pub hugetlb: u64,
}

impl Held {
    /// The part that is on large pages; `None` of nothing.
    pub fn coverage(self) -> Option<f64> {
        let large = super::number(self.thp + self.hugetlb);
        (self.resident > 0).then(|| large / super::number(self.resident))
    }
}

/// One look at a process.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Private memory: what the process has written to and nobody else sees.
    pub private: Held,
    /// Memory that it shares with others by intent, and no file on a disk.
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

    /// Pages of a pool are in no other field.
    fn hugetlb(&self) -> u64 {
        self.bytes("Private_Hugetlb") + self.bytes("Shared_Hugetlb")
    }

    /// Whether it is memory that is shared, as opposed to a file that is mapped.
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

/// Looks at one process.
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

/// The memory of a process and all its descendants, each page counted once; bytes.
pub fn resident(pid: u32) -> Result<u64, Failed> {
    let mut sum = 0;
    // Pages of a pool have no share of their own: the same segment counts where it is largest.
    let mut segments: BTreeMap<u64, u64> = BTreeMap::new();
    for pid in facts::tree(pid) {
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
