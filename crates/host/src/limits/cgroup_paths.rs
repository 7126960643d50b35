//! Locations of cgroup files: the mounts of hierarchies, and the path of a process below them.

use std::path::{Component, Path};

use crate::fact::Fact;
use crate::parse_helpers::MountLine;
use crate::root::Root;

/// A mounted hierarchy that may have a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMount {
    /// Version of the hierarchy, 1 or 2.
    pub version: u8,
    /// The mount point, as in `/sys/fs/cgroup`.
    pub at: String,
    /// The cgroup mounted there. It is not the top in a container without a cgroup namespace.
    pub top: String,
    /// True if its memory controller counts pool pages too.
    pub counts_pools: bool,
}

/// Returns `mountinfo`, which names the cgroup at each mount, or else `mounts`.
pub(super) fn mount_lines(root: &Root) -> Fact<String> {
    let names = ["proc/self/mountinfo", "proc/self/mounts", "proc/mounts"];
    let mut facts = names.into_iter().map(|name| root.read(name));
    facts.find(|fact| !fact.is_absent()).unwrap_or(Fact::Absent)
}

pub(super) fn mounts(root: &Root, controller: &str) -> Vec<CgroupMount> {
    let lines = mount_lines(root);
    lines
        .map(|lines| mounts_in(&lines, controller))
        .or_default()
}

/// Returns the mounts of cgroup2, and of cgroup v1 with a controller, in a `mountinfo` or `mounts` file (proc(5)).
pub fn mounts_in(lines: &str, controller: &str) -> Vec<CgroupMount> {
    let parse = |line: &str| {
        let (top, at, kind, options) = match MountLine::parse(line) {
            Some(line) => (
                line.top,
                line.at,
                line.file_system,
                line.file_system_options,
            ),
            None => {
                let mut words = line.split(' ').skip(1);
                ("/", words.next()?, words.next()?, words.next()?)
            }
        };
        let version = match kind {
            "cgroup2" => 2,
            "cgroup" if options.split(',').any(|o| o == controller) => 1,
            _ => return None,
        };
        Some(CgroupMount {
            version,
            at: unescape(at),
            top: unescape(top),
            counts_pools: version == 2
                && options.split(',').any(|o| o == "memory_hugetlb_accounting"),
        })
    };
    lines.lines().filter_map(parse).collect()
}

/// Returns a cgroup's path in its hierarchy, given that path or the path of its folder. Removes nothing but the mount
/// point of a hierarchy: the path of a cgroup in a container may end with that of one of the host.
#[cfg(feature = "full")]
pub(crate) fn in_hierarchy(root: &Root, path: &str) -> std::path::PathBuf {
    let path = Path::new(path);
    let lines = mount_lines(root).or_default();
    // The first two give a process its cgroup (`parse_cgroup`); `status` prints folders of the third.
    let mounts = ["memory", "name=systemd", "hugetlb"].map(|name| mounts_in(&lines, name));
    let inside = mounts
        .iter()
        .flatten()
        .filter_map(|mount| Some((mount, path.strip_prefix(&mount.at).ok()?)));
    match inside.max_by_key(|(mount, _)| mount.at.len()) {
        Some((mount, rest)) => Path::new(&mount.top).join(rest),
        None => path.to_owned(),
    }
}

/// Decodes `\040` and the other escapes that proc(5) uses for blanks in paths.
pub fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// Returns the cgroup of a process in a hierarchy, from a unified or a controller's line (cgroups(7)).
pub fn cgroup_in(text: &str, version: u8, controller: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = match version {
            2 => controllers.is_empty(),
            _ => controllers.split(',').any(|c| c == controller),
        };
        is_it.then(|| path.to_owned())
    })
}

/// Returns the paths below a mount of the cgroup in a `cgroup` file and of those above it, its own first. A cgroup
/// outside the reader's cgroup namespace (`/../…`) has no path here.
pub(super) fn own_and_above(
    mount: &CgroupMount,
    text: &str,
    controller: &str,
) -> impl Iterator<Item = String> {
    let own = cgroup_in(text, mount.version, controller);
    let own = own.filter(|path| {
        !Path::new(path)
            .components()
            .any(|c| c == Component::ParentDir)
    });
    let own = own.map(|path| {
        let top = mount.top.trim_end_matches('/');
        let rest = path.strip_prefix(top);
        let below = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
        below.map_or(path.clone(), |rest| {
            format!("/{}", rest.trim_start_matches('/'))
        })
    });
    let above = own.map(|path| {
        let all = Path::new(&path)
            .ancestors()
            .map(|above| above.to_string_lossy());
        all.map(|path| path.trim_end_matches('/').to_owned())
            .collect()
    });
    let above: Vec<String> = above.unwrap_or_default();
    above.into_iter()
}

/// Joins a path below the root, without the leading slash, which would leave it.
pub(super) fn below(mount: &str, cgroup: &str, file: &str) -> String {
    let path = format!("{mount}{cgroup}/{file}");
    path.trim_start_matches('/').to_owned()
}

/// Returns the display name of a cgroup. The top of a mount is `/`.
pub(super) fn shown(path: &str) -> String {
    if path.is_empty() { "/" } else { path }.to_owned()
}
