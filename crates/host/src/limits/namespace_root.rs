//! The root of the reader's cgroup namespace in a hierarchy that is mounted above it.
//!
//! In a pod with its own cgroup namespace, `/proc/PID/cgroup` shows the cgroups of other pods relative to the reader's
//! (`/../../POD/CONTAINER`, cgroup_namespaces(7)), and hides the names above it. If the host's hierarchy is mounted there too,
//! one cgroup in it lists the reader in `cgroup.procs`. A process is in a single cgroup of a hierarchy, so that one is the
//! reader's own.

use std::collections::VecDeque;

use super::cgroup_paths::{CgroupMount, MOST_CGROUPS, ShownPath, below, cgroup_in, folders};
use crate::root::Root;

/// Returns the names from the top of a mount down to the root of the reader's cgroup namespace, the last ones missing if the
/// reader itself is outside that namespace. `None` if the reader's cgroup is not below the mount or cannot be found.
///
/// The search reads many folders, so [`Root`] keeps its result. A kept cgroup still has to list the reader.
pub(super) fn names_above(
    root: &Root,
    mount: &CgroupMount,
    controller: &str,
) -> Option<Vec<String>> {
    let text = root.read("proc/self/cgroup").text()?.to_owned();
    let shown = cgroup_in(&text, mount.version, controller)?;
    let own = ShownPath::parse(&shown)?;
    let depth = ShownPath::parse(&mount.top)?.up.checked_sub(own.up)?;
    let key = format!("{}:{shown}", mount.at);
    let reader = own_pid(root)?;
    let found = match root.kept_cgroup(&key) {
        Some(None) => None,
        Some(Some(kept)) if lists(root, mount, &kept, &reader) => Some(kept),
        _ => {
            let found = search(root, mount, &own, depth, &reader);
            root.keep_cgroup(key, found.clone());
            found
        }
    };
    let names = found?;
    let names = names.split('/').skip(1).take(depth);
    Some(names.map(str::to_owned).collect())
}

/// Returns the reader's PID as `cgroup.procs` shows it: in the reader's own PID namespace, which is the innermost one.
fn own_pid(root: &Root) -> Option<String> {
    let status = root.read("proc/self/status");
    let status = status.text()?;
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let pids = line("NSpid:").or_else(|| line("Pid:"))?;
    pids.split_ascii_whitespace().last().map(str::to_owned)
}

fn lists(root: &Root, mount: &CgroupMount, path: &str, reader: &str) -> bool {
    let processes = root.read(below(&mount.at, path, "cgroup.procs"));
    processes
        .text()
        .is_some_and(|text| text.lines().any(|pid| pid == reader))
}

/// Returns the cgroup that lists the reader. It is `own.names` below a cgroup at `depth`.
fn search(
    root: &Root,
    mount: &CgroupMount,
    own: &ShownPath,
    depth: usize,
    reader: &str,
) -> Option<String> {
    let (mut left, mut open) = (MOST_CGROUPS, VecDeque::from([(String::new(), 0)]));
    while let Some((path, at)) = open.pop_front() {
        if at == depth {
            let candidate = own
                .names
                .iter()
                .fold(path, |path, name| format!("{path}/{name}"));
            if lists(root, mount, &candidate, reader) {
                return Some(candidate);
            }
            continue;
        }
        let names = folders(&root.path(below(&mount.at, &path, "")));
        open.extend(
            names
                .iter()
                .take(left)
                .map(|name| (format!("{path}/{name}"), at + 1)),
        );
        left = left.saturating_sub(names.len());
    }
    None
}
