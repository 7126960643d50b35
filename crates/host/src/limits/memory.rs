//! Limits of memory cgroups, versions 1 and 2, and the room below them (Documentation/admin-guide/cgroup-v2.rst,
//! cgroup-v1/memory.rst).

use hugeleaf_units::Bytes;

use super::cgroup_paths::{CgroupMount, below, shown};
use crate::model::MemoryLimit;
use crate::parse_helpers::{ParseError, number};
use crate::root::Root;

/// Returns the limits of one cgroup: the hard one, and the one above which the kernel throttles. Empty if it has none,
/// or if its files cannot be read.
pub(super) fn of_cgroup(root: &Root, mount: &CgroupMount, path: &str) -> Vec<MemoryLimit> {
    let (limits, usage, caches): (&[&str], _, _) = match mount.version {
        2 => (
            &["memory.max", "memory.high"],
            "memory.current",
            ["inactive_file ", "active_file "],
        ),
        _ => (
            &["memory.limit_in_bytes"],
            "memory.usage_in_bytes",
            ["total_inactive_file ", "total_active_file "],
        ),
    };
    let file = |name: &str| below(&mount.at, path, name);
    let set =
        |name: &&'static str| Some((*name, root.parse(file(name), limit_of).get().flatten()?));
    let limits: Vec<(&str, Bytes)> = limits.iter().filter_map(set).collect();
    if limits.is_empty() {
        return Vec::new();
    }
    let Some(usage) = root.parse(file(usage), number).get() else {
        return Vec::new();
    };
    let stat = root.read(file("memory.stat"));
    let [inactive_cache, active_cache] = caches.map(|name| {
        let bytes = stat.known().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        });
        Bytes(bytes.unwrap_or(0))
    });
    let limit = |(name, limit): (&str, Bytes)| MemoryLimit {
        version: mount.version,
        path: shown(path),
        file: format!("{}{path}/{name}", mount.at),
        limit,
        usage: Bytes(usage),
        inactive_cache,
        active_cache,
        only_throttles: name == "memory.high",
    };
    limits.into_iter().map(limit).collect()
}

/// Parses a limit. Unlimited is `max`, or version 1's largest number, which exceeds the memory of any machine.
fn limit_of(text: &str) -> Result<Option<Bytes>, ParseError> {
    const NO_MACHINE: u64 = 1 << 60;
    match text.trim() {
        "max" => Ok(None),
        _ => Ok(Some(Bytes(number(text)?)).filter(|b| b.get() < NO_MACHINE)),
    }
}
