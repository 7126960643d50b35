//! Locations of cgroup files: the mounts of hierarchies, and the path of a process below them.

use std::path::{Component, Path};

use crate::fact::Fact;
use crate::parse_helpers::MountLine;
use crate::root::Root;

/// Maximum number of cgroups read. The owner of a subtree may create any number.
pub(super) const MOST_CGROUPS: usize = 1 << 16;

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
    let mut found: Vec<CgroupMount> = Vec::new();
    for mount in lines.lines().filter_map(parse) {
        // A later mount covers an earlier one at the same place.
        found.retain(|covered| covered.at != mount.at);
        found.push(mount);
    }
    found
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
        Some((mount, rest)) if mount.is_above_namespace() => Path::new("/").join(rest),
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

/// A cgroup's path as the kernel shows it to a reader in a cgroup namespace (cgroup_namespaces(7)): `up` steps up from the
/// root of that namespace, then these names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShownPath {
    pub(super) up: usize,
    pub(super) names: Vec<String>,
}

impl ShownPath {
    /// Parses a path. `None` if it steps up below a name, which the kernel never shows.
    pub(super) fn parse(path: &str) -> Option<ShownPath> {
        let mut parts = Path::new(path).components().peekable();
        parts.next_if_eq(&Component::RootDir);
        let mut up = 0;
        while parts.next_if_eq(&Component::ParentDir).is_some() {
            up += 1;
        }
        let name = |part: Component<'_>| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        };
        let names = parts.map(name).collect::<Option<Vec<String>>>()?;
        Some(ShownPath { up, names })
    }
}

impl CgroupMount {
    /// True if the mount shows a hierarchy from above the root of the reader's cgroup namespace, as where a pod mounts the
    /// host's `/sys/fs/cgroup`.
    pub(super) fn is_above_namespace(&self) -> bool {
        ShownPath::parse(&self.top).is_some_and(|top| top.up > 0 && top.names.is_empty())
    }
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

/// Returns the sorted names of the folders in a folder. Empty if it cannot be read, because cgroups come and go.
#[expect(clippy::disallowed_methods, reason = "folders of the kernel")]
pub(super) fn folders(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .take(MOST_CGROUPS)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
