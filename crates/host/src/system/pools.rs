//! hugetlb pools and their nodes.

use hugeleaf_units::{PageSize, Pages};

use super::file_readers;
use crate::fact::Fact;
use crate::model::Pool;
use crate::parse_helpers::ParseError;
use crate::root::Root;

const TOTALS: &str = "sys/kernel/mm/hugepages";
const NODES: &str = "sys/devices/system/node";

pub fn nodes(root: &Root) -> Vec<u32> {
    let named = root.parse(format!("{NODES}/has_memory"), parse_nodes);
    let nodes = match named {
        Fact::Known(nodes) => nodes,
        // A kernel or a capture may lack the list. The folders of the nodes replace it.
        _ => {
            let names = root.list(NODES).or_default();
            let mut nodes: Vec<u32> = names
                .iter()
                .filter_map(|name| name.strip_prefix("node")?.parse().ok())
                .collect();
            nodes.sort_unstable();
            nodes
        }
    };
    if nodes.is_empty() { vec![0] } else { nodes }
}

/// Parses a list such as `0-3,8` (Documentation/admin-guide/cputopology.rst), ascending. Numbers must
/// be below 1024, the maximum number of nodes of a kernel.
///
/// # Errors
/// If it is no such list.
pub fn parse_nodes(text: &str) -> Result<Vec<u32>, ParseError> {
    const MOST: u32 = 1024;
    let error = || ParseError::new(1, "expected a list of numbers as in 0-3,8", text.trim());
    let mut numbers = Vec::new();
    for item in text.trim().split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let first: u32 = first.parse().map_err(|_| error())?;
        let last: u32 = last.parse().map_err(|_| error())?;
        if first > last || last >= MOST {
            return Err(error());
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// Returns the processors of a node. Absent without NUMA.
pub fn node_cpus(root: &Root, node: u32) -> Fact<Vec<u32>> {
    let list = format!("sys/devices/system/node/node{node}/cpulist");
    root.parse(list, parse_nodes)
}

/// Reads the pools: for each size the total first, then its nodes. Empty without hugetlb. If the list
/// of sizes is unreadable, returns one pool of the default size with unknown values.
pub fn read(root: &Root, default: Option<PageSize>) -> Vec<Pool> {
    let sizes = file_readers::sizes_in(root, TOTALS);
    if let (Fact::Unreadable(error), Some(size)) = (&sizes, default) {
        return vec![pool(size, None, |_| Fact::Unreadable(error.clone()))];
    }
    let mut pools = Vec::new();
    for (size, folder) in sizes.entries() {
        let pages = |folder: &str, file: &str| {
            file_readers::number(root, format!("{folder}/{file}")).map(Pages)
        };
        pools.push(pool(*size, None, |file| pages(folder, file)));
        let name = folder.rsplit('/').next().unwrap_or_default();
        for node in nodes(root) {
            let folder = format!("{NODES}/node{node}/hugepages/{name}");
            let of_node = pool(*size, Some(node), |file| pages(&folder, file));
            pools.extend(Some(of_node).filter(|pool| !pool.total.is_absent()));
        }
    }
    pools
}

fn pool(size: PageSize, node: Option<u32>, pages: impl Fn(&str) -> Fact<Pages>) -> Pool {
    Pool {
        size,
        node,
        total: pages("nr_hugepages"),
        free: pages("free_hugepages"),
        reserved: pages("resv_hugepages"),
        surplus: pages("surplus_hugepages"),
        overcommit: pages("nr_overcommit_hugepages"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes() {
        assert_eq!(parse_nodes("0-1,3\n").unwrap(), [0, 1, 3]);
        assert_eq!(parse_nodes("\n").unwrap(), [0u32; 0]);
        for text in ["0-", "a", "3-1", "0-4294967295"] {
            assert!(parse_nodes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_without_node_folders_has_node_0() {
        assert_eq!(nodes(&Root::at("/nowhere")), [0]);
        assert_eq!(read(&Root::at("/nowhere"), None), []);
        let denied = Root::at("/nowhere").failing(TOTALS, std::io::ErrorKind::PermissionDenied);
        let pools = read(&denied, "2M".parse().ok());
        assert!(pools[0].total.error().unwrap().denied);
    }
}
