//! Limits that bind a process: those of its cgroups, versions 1 and 2, and its own
//! (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/hugetlb.rst, cgroup-v1/memory.rst).
//!
//! [`read_limits`] is the only source of the limits of a process. It maps the path in `/proc/PID/cgroup` to the folder where
//! this reader sees its files. Inside a container, both the path and the mount begin at the container's own cgroup.
//! Its limits are at the mount itself, and the limits above it are not visible. Where the container mounts the host's
//! hierarchy, the module `namespace_root` finds the container's cgroup in it, and with that the cgroups of all other processes.

pub(crate) mod cgroup_paths;
pub mod hugetlb;
mod memory;
mod namespace_root;
pub(crate) mod placement;
#[cfg(feature = "full")]
pub mod shared_limit;

use std::collections::VecDeque;
use std::fmt::Display;

use hugeleaf_units::PageSize;

use crate::fact::Fact;
use crate::model::{HugetlbCgroup, MemoryLimit, ProcessMemoryLimits};
use crate::process::proc_parsers::{parse_address_space_limit, parse_memlock, parse_status};
use crate::root::Root;
use crate::system::file_readers;

pub use cgroup_paths::{CgroupMount, cgroup_in, mounts_in};
use cgroup_paths::{MOST_CGROUPS, below, folders, mount_lines, mounts};
use placement::{own_and_above, path_below};

/// Maximum depth of cgroups. Real ones do not nest deeper, but a loop of bind mounts would.
const DEEPEST: usize = 32;

/// Returns the limits that bind a process. `process` is its PID, or `self`.
pub fn read_limits(root: &Root, process: impl Display) -> ProcessMemoryLimits {
    let of_process = format!("proc/{process}/limits");
    let memlock = root.parse(&of_process, parse_memlock);
    let address_space = root.parse(&of_process, parse_address_space_limit);
    let text = root.read(format!("proc/{process}/cgroup")).or_default();
    let (lines, sizes) = (mount_lines(root).or_default(), sizes(root));
    let mut limits = ProcessMemoryLimits {
        memlock: memlock.and_then(|(soft, _)| soft.into()),
        address_space: address_space.and_then(Fact::from),
        ..ProcessMemoryLimits::default()
    };
    for mount in mounts_in(&lines, "hugetlb") {
        let of_path = |path: String| hugetlb::of_cgroup(root, &mount, &path, &sizes);
        let own = own_and_above(root, &mount, &text, "hugetlb").into_iter();
        limits.hugetlb.extend(own.filter_map(of_path));
        limits.is_in_container |= is_container(root, &mount, &text, "hugetlb", &sizes);
    }
    for mount in mounts_in(&lines, "memory") {
        let of_path = |path: String| memory::of_cgroup(root, &mount, &path);
        let own = own_and_above(root, &mount, &text, "memory").into_iter();
        limits.memory.extend(own.flat_map(of_path));
        limits.memory_counts_pools |= mount.counts_pools;
        limits.is_in_container |= is_container(root, &mount, &text, "memory", &sizes);
    }
    limits
}

/// CAP_IPC_LOCK (capabilities(7)): the memlock limit does not bind.
pub const CAP_IPC_LOCK: u32 = 14;

/// Returns true if a process has CAP_IPC_LOCK. `process` is its PID, or `self`.
pub fn has_ipc_lock(root: &Root, process: impl Display) -> Fact<bool> {
    let status = root.parse(format!("proc/{process}/status"), parse_status);
    status.map(|status| status.capabilities & (1 << CAP_IPC_LOCK) != 0)
}

/// Returns every cgroup that limits hugetlb pages. Absent if no hierarchy has the hugetlb controller.
pub fn all_hugetlb(root: &Root) -> Fact<Vec<HugetlbCgroup>> {
    mount_lines(root).and_then(|lines| {
        let mut mounts = mounts_in(&lines, "hugetlb");
        mounts.retain(|mount| {
            mount.version == 1 || lists(root, mount, "", "cgroup.controllers", "hugetlb")
        });
        if mounts.is_empty() {
            return Fact::Absent;
        }
        let (sizes, mut found) = (sizes(root), Vec::new());
        for mount in &mounts {
            each_below(root, mount, "hugetlb", MOST_CGROUPS, |path| {
                found.extend(hugetlb::of_cgroup(root, mount, path, &sizes));
            });
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Fact::Known(found)
    })
}

/// Returns every cgroup of the host that limits memory, sorted by path.
pub fn all_memory(root: &Root) -> Vec<MemoryLimit> {
    let mut found = Vec::new();
    for mount in mounts(root, "memory") {
        each_below(root, &mount, "memory", MOST_CGROUPS, |path| {
            found.extend(memory::of_cgroup(root, &mount, path));
        });
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn sizes(root: &Root) -> Vec<PageSize> {
    let sizes = file_readers::sizes_in(root, "sys/kernel/mm/hugepages").or_default();
    sizes.into_iter().map(|(size, _)| size).collect()
}

/// True if a process is in a container's cgroup: one created by a container manager, or the reader's own. The reader
/// is in a container if its mount is not the top of a hierarchy, or has files that only cgroups below the top have.
fn is_container(
    root: &Root,
    mount: &CgroupMount,
    text: &str,
    controller: &str,
    sizes: &[PageSize],
) -> bool {
    const MANAGERS: [&str; 5] = ["kubepods", "docker", "libpod", "crio", "lxc"];
    let is_limited = || {
        !root.read(below(&mount.at, "", "cgroup.events")).is_absent()
            || hugetlb::of_cgroup(root, mount, "", sizes).is_some()
            || !memory::of_cgroup(root, mount, "").is_empty()
    };
    let is_top = match (mount.is_above_namespace(), mount.version) {
        (true, 1) => !root.read(below(&mount.at, "", "release_agent")).is_absent(),
        (false, _) if mount.top != "/" => false,
        (false, 1) => true,
        _ => !is_limited(),
    };
    let path = cgroup_in(text, mount.version, controller).unwrap_or_default();
    let placed = path_below(root, mount, &path, controller);
    if placed.is_none() && mount.is_above_namespace() {
        return true;
    }
    let is_its = |part: &str| {
        let of_manager = MANAGERS.iter().any(|name| part.starts_with(name));
        (of_manager || part.contains("-kubepods")) && !part.ends_with(".service")
    };
    !is_top || placed.unwrap_or(path).split('/').any(is_its)
}

/// Returns true if the file of a cgroup lists the controller.
fn lists(root: &Root, mount: &CgroupMount, path: &str, file: &str, controller: &str) -> bool {
    let listed = root.read(below(&mount.at, path, file)).or_default();
    listed
        .split_ascii_whitespace()
        .any(|name| name == controller)
}

/// Calls `each` with the path of every cgroup of a hierarchy that has a controller's files, at most `most` of them. Those near
/// the top come first: the owner of a subtree below cannot hide the host's services behind many cgroups.
fn each_below(
    root: &Root,
    mount: &CgroupMount,
    controller: &str,
    most: usize,
    mut each: impl FnMut(&str),
) {
    let (mut left, mut open) = (most, VecDeque::from([(String::new(), 0)]));
    while let Some((path, depth)) = open.pop_front() {
        each(&path);
        // In version 2, the children of a cgroup have these files only if it delegates the controller.
        let hands_down =
            mount.version == 1 || lists(root, mount, &path, "cgroup.subtree_control", controller);
        if depth < DEEPEST && hands_down {
            let names = folders(&root.path(below(&mount.at, &path, "")));
            let children = names.iter().take(left);
            open.extend(children.map(|name| (format!("{path}/{name}"), depth + 1)));
            left = left.saturating_sub(names.len());
        }
    }
}

#[cfg(test)]
mod tests;
