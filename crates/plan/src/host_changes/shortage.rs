//! Finds the users of the memory that a pool did not get. Read-only.

use std::path::Path;

use hugeleaf_host::system::{buddy, meminfo};
use hugeleaf_host::{Fact, Root};
use hugeleaf_units::{Bytes, PageSize, Pages};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shortage {
    #[serde(rename = "page_bytes")]
    pub size: PageSize,
    pub node: u32,
    pub wanted: Pages,
    pub got: Pages,
    pub missing: Pages,
    pub attempts: u32,
    #[serde(rename = "memory_bytes")]
    pub total: Fact<Bytes>,
    #[serde(rename = "free_bytes")]
    pub free: Fact<Bytes>,
    /// Free memory in blocks that hold a page of this size. Absent if such a page is larger than
    /// any block in the kernel's free lists.
    #[serde(rename = "free_in_blocks_bytes")]
    pub free_in_blocks: Fact<Bytes>,
    #[serde(rename = "cache_bytes")]
    pub cache: Fact<Bytes>,
    #[serde(rename = "anon_bytes")]
    pub anon: Fact<Bytes>,
    #[serde(rename = "shmem_bytes")]
    pub shmem: Fact<Bytes>,
    /// Kernel memory that can be reclaimed (dentries and inodes).
    #[serde(rename = "kernel_reclaimable_bytes")]
    pub kernel_reclaimable: Fact<Bytes>,
    /// Kernel memory that cannot be reclaimed or moved: slab, stacks, page tables.
    #[serde(rename = "kernel_fixed_bytes")]
    pub kernel_fixed: Fact<Bytes>,
    #[serde(rename = "locked_bytes")]
    pub locked: Fact<Bytes>,
    /// Number of blocks, about a huge page each, with unmovable pages (`/proc/pagetypeinfo`).
    pub unmovable_blocks: Fact<u64>,
}

pub fn shortage(
    root: &Root,
    (size, node): (PageSize, u32),
    (wanted, got): (u64, u64),
    attempts: u32,
    base: PageSize,
) -> Shortage {
    let of_node = format!("sys/devices/system/node/node{node}/meminfo");
    let text = match root.read(&of_node) {
        Fact::Known(text) => Fact::Known(without_prefix(&text)),
        // A kernel without nodes has one file for all memory.
        _ => root.read("proc/meminfo"),
    };
    let get = |name: &str| field(&text, name);
    let fixed = ["SUnreclaim", "KernelStack", "PageTables"];
    let kernel_fixed = fixed
        .iter()
        .filter_map(|name| get(name).known().copied())
        .reduce(|a, b| a + b);
    let cache = match (get("FilePages"), get("Cached")) {
        (Fact::Absent, whole) | (whole, _) => less(whole, &get("Shmem")),
    };
    Shortage {
        size,
        node,
        wanted: Pages(wanted),
        got: Pages(got),
        missing: Pages(wanted.saturating_sub(got)),
        attempts,
        total: get("MemTotal"),
        free: get("MemFree"),
        free_in_blocks: free_in_blocks(root, node, size, base),
        cache,
        anon: get("AnonPages"),
        shmem: get("Shmem"),
        kernel_reclaimable: get("SReclaimable"),
        kernel_fixed: kernel_fixed.into(),
        locked: get("Mlocked"),
        unmovable_blocks: root
            .read("proc/pagetypeinfo")
            .and_then(|text| unmovable_blocks(&text, node).into()),
    }
}

fn without_prefix(text: &str) -> String {
    let line = |line: &str| {
        let mut words = line.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("Node"), Some(_), Some(rest)) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

fn field(text: &Fact<String>, name: &str) -> Fact<Bytes> {
    text.clone()
        .and_then(|text| match meminfo::parse(&text).get(name) {
            Some(Ok(bytes)) => Fact::Known(*bytes),
            _ => Fact::Absent,
        })
}

fn less(whole: Fact<Bytes>, part: &Fact<Bytes>) -> Fact<Bytes> {
    let part = part.known().map_or(0, |b| b.get());
    whole.map(|bytes| Bytes(bytes.get().saturating_sub(part)))
}

fn free_in_blocks(root: &Root, node: u32, size: PageSize, base: PageSize) -> Fact<Bytes> {
    root.parse("proc/buddyinfo", buddy::parse)
        .and_then(|mut buddy| {
            buddy.zones.retain(|zone| zone.node == node);
            let order = size.ratio_to(base).max(1).trailing_zeros() as usize;
            let has_list = buddy.zones.iter().any(|zone| zone.counts.len() > order);
            has_list.then(|| buddy.free_for(size, base)).into()
        })
}

/// Reads the column `Unmovable` of the block table, summed over the zones of a node.
fn unmovable_blocks(text: &str, node: u32) -> Option<u64> {
    let mut lines = text
        .lines()
        .skip_while(|line| !line.starts_with("Number of blocks type"));
    let head = lines.next()?.split_ascii_whitespace().skip(4);
    let column = head.into_iter().position(|name| name == "Unmovable")?;
    let prefix = format!("Node {node},");
    let count = |line: &str| -> Option<u64> {
        let rest = line.strip_prefix(&prefix)?.trim().strip_prefix("zone")?;
        rest.split_ascii_whitespace().nth(1 + column)?.parse().ok()
    };
    let counts: Vec<u64> = lines.filter_map(count).collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// Returns the pool's node from the path of its file; 0 on a kernel without nodes.
pub fn node_of(path: &Path) -> u32 {
    path.iter()
        .find_map(|part| part.to_str()?.strip_prefix("node")?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_node() {
        let dir = tempfile::tempdir().unwrap();
        let node = dir.path().join("sys/devices/system/node/node1");
        std::fs::create_dir_all(&node).unwrap();
        std::fs::create_dir_all(dir.path().join("proc")).unwrap();
        let text = "Node 1 MemTotal: 1000 kB\nNode 1 MemFree: 100 kB\nNode 1 FilePages: 300 kB\n\
                    Node 1 Shmem: 50 kB\nNode 1 AnonPages: 200 kB\nNode 1 SUnreclaim: 7 kB\n\
                    Node 1 KernelStack: 1 kB\nNode 1 PageTables: 2 kB\n";
        std::fs::write(node.join("meminfo"), text).unwrap();
        let buddy = "Node 0, zone Normal 9 9 9\nNode 1, zone Normal 1 1 3\n";
        std::fs::write(dir.path().join("proc/buddyinfo"), buddy).unwrap();
        let types = "Page block order: 9\n\nNumber of blocks type Unmovable Movable\n\
                     Node 0, zone Normal 100 1\nNode 1, zone DMA 1 2\nNode 1, zone Normal 4 5\n";
        std::fs::write(dir.path().join("proc/pagetypeinfo"), types).unwrap();
        let size = |text: &str| text.parse::<PageSize>().unwrap();
        let root = Root::at(dir.path());
        let short = shortage(&root, (size("256K"), 1), (10, 3), 2, size("64K"));
        assert_eq!(short.missing, Pages(7));
        let kib = |n| Fact::Known(Bytes::from_kib(n));
        assert_eq!((short.free, short.cache), (kib(100), kib(250)));
        assert_eq!(short.kernel_fixed, kib(10));
        assert_eq!(short.free_in_blocks, kib(3 * 256));
        assert_eq!(short.unmovable_blocks, Fact::Known(5));
        assert_eq!(short.locked, Fact::Absent);
        // No free list holds blocks of this size.
        let giant = shortage(&root, (size("1G"), 1), (1, 0), 1, size("64K"));
        assert_eq!(giant.free_in_blocks, Fact::Absent);
    }

    #[test]
    fn nodes_by_path() {
        let path = "/sys/devices/system/node/node3/hugepages/hugepages-1K/nr_hugepages";
        assert_eq!(node_of(Path::new(path)), 3);
        assert_eq!(
            node_of(Path::new("/sys/kernel/mm/hugepages/nr_hugepages")),
            0
        );
    }
}
