//! The place of a cgroup below a mount of its hierarchy, from its path in `/proc/PID/cgroup`.

#[cfg(feature = "full")]
use super::cgroup_paths::mounts;
use super::cgroup_paths::{CgroupMount, ShownPath, cgroup_in};
use super::namespace_root;
#[cfg(feature = "full")]
use crate::process::proc_parsers::parse_cgroup;
use crate::root::Root;

/// Returns the names from the top of a mount down to the cgroup that the kernel shows as `path`. `None` if the mount does not
/// show that cgroup, or if its place is unknown.
fn names_below(
    root: &Root,
    mount: &CgroupMount,
    path: &str,
    controller: &str,
) -> Option<Vec<String>> {
    let (shown, top) = (ShownPath::parse(path)?, ShownPath::parse(&mount.top)?);
    if shown.up == top.up {
        let names = shown.names.strip_prefix(top.names.as_slice());
        return match names {
            Some(names) => Some(names.to_vec()),
            // A `mounts` file, or a container without a cgroup namespace, may name the top differently.
            None => Some(shown.names).filter(|_| shown.up == 0),
        };
    }
    let steps = top.up.checked_sub(shown.up)?;
    if !top.names.is_empty() {
        return None;
    }
    let above = namespace_root::names_above(root, mount, controller)?;
    let mut names = above.get(..steps)?.to_vec();
    names.extend(shown.names);
    Some(names)
}

fn joined(names: &[String]) -> String {
    let each = names.iter().map(|name| format!("/{name}"));
    each.collect()
}

/// Returns the path below a mount of the cgroup that the kernel shows as `path`; empty at the top.
pub(super) fn path_below(
    root: &Root,
    mount: &CgroupMount,
    path: &str,
    controller: &str,
) -> Option<String> {
    names_below(root, mount, path, controller).map(|names| joined(&names))
}

/// Returns the paths below a mount of the cgroup in a `cgroup` file and of those above it, its own first. Empty for a cgroup
/// that the mount does not show.
pub(super) fn own_and_above(
    root: &Root,
    mount: &CgroupMount,
    text: &str,
    controller: &str,
) -> Vec<String> {
    let own = cgroup_in(text, mount.version, controller);
    let names = own.and_then(|path| names_below(root, mount, &path, controller));
    let above = |names: Vec<String>| {
        let lengths = (0..=names.len()).rev();
        lengths.map(|n| joined(&names[..n])).collect()
    };
    names.map_or_else(Vec::new, above)
}

/// Returns a process's cgroup as its path in the hierarchy, from its `cgroup` file. In a cgroup namespace the kernel shows the
/// cgroups outside of it by steps up (`/../POD`), which are resolved if the hierarchy is mounted. Otherwise they stay.
#[cfg(feature = "full")]
pub(crate) fn of_process(root: &Root, text: &str) -> Option<String> {
    let line = parse_cgroup(text)?;
    if !line.path.starts_with("/..") {
        return Some(line.path.to_owned());
    }
    let mounts = mounts(root, line.controller).into_iter();
    let mut mounts =
        mounts.filter(|mount| mount.version == line.version && mount.is_above_namespace());
    let placed = mounts.find_map(|mount| path_below(root, &mount, line.path, line.controller));
    Some(placed.unwrap_or_else(|| line.path.to_owned())).filter(|path| !path.is_empty())
}
