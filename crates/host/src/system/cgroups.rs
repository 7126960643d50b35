//! cgroups that limit hugetlb pages, versions 1 and 2
//! (Documentation/admin-guide/cgroup-v1/hugetlb.rst, cgroup-v2.rst).

use std::path::Path;

use hugeleaf_units::{Bytes, PageSize};

use super::files;
use crate::fact::Fact;
pub use crate::model::name_of;
use crate::model::{Cgroup, HugetlbLimit};
use crate::parse::{self, ParseError};
use crate::root::Root;

/// cgroups nest no deeper than this in practice; a loop of bind mounts would.
const DEEPEST: usize = 32;

/// A mounted hierarchy that may have the hugetlb controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// 1 or 2.
    pub version: u8,
    /// Where it is mounted, as in `/sys/fs/cgroup`.
    pub at: String,
}

/// Every cgroup that limits hugetlb pages. Absent where no hierarchy has the hugetlb controller.
pub fn read(root: &Root) -> Fact<Vec<Cgroup>> {
    read_of(root, None)
}

/// The same of the cgroups that this process is in and of those above them: a host may have
/// thousands of others.
pub fn read_own(root: &Root) -> Fact<Vec<Cgroup>> {
    read_of(root, Some(&own(root)))
}

/// The paths in a hierarchy of the cgroups `own`, by version, and of those above them.
pub(super) fn own_and_above(mount: &Mount, own: &[(u8, String)]) -> impl Iterator<Item = String> {
    let mine = own.iter().filter(|(version, _)| *version == mount.version);
    let all = mine.flat_map(|(_, path)| Path::new(path).ancestors());
    all.map(|path| path.to_string_lossy().trim_end_matches('/').to_owned())
}

/// Those of all cgroups, or of `own` and those above them, that limit hugetlb pages.
fn read_of(root: &Root, own: Option<&[(u8, String)]>) -> Fact<Vec<Cgroup>> {
    let mounts = match root.read("proc/self/mounts") {
        Fact::Absent => root.read("proc/mounts"),
        fact => fact,
    };
    mounts.and_then(|text| {
        let mounts: Vec<Mount> = mounts_in(&text)
            .into_iter()
            .filter(|m| has_controller(root, m))
            .collect();
        if mounts.is_empty() {
            return Fact::Absent;
        }
        let sizes = files::sizes_in(root, "sys/kernel/mm/hugepages").or_default();
        let sizes: Vec<PageSize> = sizes.into_iter().map(|(size, _)| size).collect();
        let mut cgroups = Vec::new();
        for mount in &mounts {
            let mut add = |path: &str| cgroups.extend(limited(root, mount, path, &sizes));
            match own {
                Some(own) => own_and_above(mount, own).for_each(|path| add(&path)),
                None => each_below(root, mount, "hugetlb", &mut add),
            }
        }
        cgroups.sort_by(|a, b| a.path.cmp(&b.path));
        Fact::Known(cgroups)
    })
}

/// The mounts of cgroup2, and of cgroup v1 with the hugetlb controller, in a `mounts` file.
pub fn mounts_in(mounts: &str) -> Vec<Mount> {
    mounts_with(mounts, "hugetlb")
}

/// The mounts of cgroup2, and of cgroup v1 with a controller, in a `mounts` file.
pub(super) fn mounts_with(mounts: &str, controller: &str) -> Vec<Mount> {
    let parse = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
        let version = match kind {
            "cgroup2" => 2,
            "cgroup" if options.split(',').any(|o| o == controller) => 1,
            _ => return None,
        };
        Some(Mount {
            version,
            at: unescape(at),
        })
    };
    mounts.lines().filter_map(parse).collect()
}

/// `\040` and the like as proc(5) writes blanks in paths.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

fn has_controller(root: &Root, mount: &Mount) -> bool {
    mount.version == 1 || lists(root, mount, "", "cgroup.controllers", "hugetlb")
}

/// Whether a file of a cgroup that lists controllers has one.
fn lists(root: &Root, mount: &Mount, path: &str, file: &str, controller: &str) -> bool {
    let listed = root.read(below(&mount.at, path, file)).or_default();
    listed
        .split_ascii_whitespace()
        .any(|name| name == controller)
}

/// A path below the root, without the leading slash that would leave it.
pub(super) fn below(mount: &str, cgroup: &str, file: &str) -> String {
    let path = format!("{mount}{cgroup}/{file}");
    path.trim_start_matches('/').to_owned()
}

/// Calls `each` with the path of every cgroup of a hierarchy that has a controller's files.
pub(super) fn each_below(root: &Root, mount: &Mount, controller: &str, each: &mut dyn FnMut(&str)) {
    walk(
        root,
        mount,
        controller,
        ("", 0),
        &mut { MOST_CGROUPS },
        each,
    );
}

/// So many cgroups are looked at: whoever has a part of the tree may make any number there.
const MOST_CGROUPS: usize = 1 << 16;

fn walk(
    root: &Root,
    mount: &Mount,
    controller: &str,
    (path, depth): (&str, usize),
    left: &mut usize,
    each: &mut dyn FnMut(&str),
) {
    each(path);
    // In version 2 only children of a cgroup that hands the controller down have its files.
    let hands_down =
        mount.version == 1 || lists(root, mount, path, "cgroup.subtree_control", controller);
    if depth < DEEPEST && hands_down {
        for name in folders(&root.path(below(&mount.at, path, ""))) {
            if *left == 0 {
                return;
            }
            *left -= 1;
            let child = format!("{path}/{name}");
            walk(root, mount, controller, (&child, depth + 1), left, each);
        }
    }
}

/// A cgroup that limits one of the sizes; `None` of one that limits none.
fn limited(root: &Root, mount: &Mount, path: &str, sizes: &[PageSize]) -> Option<Cgroup> {
    let hugetlb: Vec<HugetlbLimit> = sizes
        .iter()
        .filter_map(|size| limit(root, mount, path, *size))
        .collect();
    let name = if path.is_empty() { "/" } else { path };
    (!hugetlb.is_empty()).then(|| Cgroup {
        version: mount.version,
        path: name.to_owned(),
        folder: format!("{}{path}", mount.at),
        hugetlb,
    })
}

/// The folders in a folder, sorted; none where it cannot be read: cgroups come and go.
#[expect(
    clippy::disallowed_methods,
    reason = "folders of the kernel, a limited number"
)]
fn folders(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .take(MOST_CGROUPS)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// What a cgroup allows of one size; `None` where it limits neither faults nor reservations.
fn limit(root: &Root, mount: &Mount, path: &str, size: PageSize) -> Option<HugetlbLimit> {
    let (max, current) = match mount.version {
        1 => ("limit_in_bytes", "usage_in_bytes"),
        _ => ("max", "current"),
    };
    let prefix = format!("hugetlb.{}", name_of(size));
    let file = |name: &str| below(&mount.at, path, &format!("{prefix}.{name}"));
    let limit = |name: &str| root.parse(file(name), |text| limit_of(text, size));
    let usage = |name: &str| root.parse(file(name), parse::number).map(Bytes);
    let fault_limit = limit(max);
    let reservation_limit = limit(&format!("rsvd.{max}"));
    let is_open = |limit: &Fact<Option<Bytes>>| matches!(limit, Fact::Absent | Fact::Known(None));
    if is_open(&fault_limit) && is_open(&reservation_limit) {
        return None;
    }
    Some(HugetlbLimit {
        size,
        fault_limit,
        fault_usage: usage(current),
        reservation_limit,
        reservation_usage: usage(&format!("rsvd.{current}")),
        hits: match mount.version {
            1 => root.parse(file("failcnt"), parse::number),
            _ => root.parse(file("events"), hits_of),
        },
    })
}

/// A limit: `max` (version 2), or a number that version 1 writes as the most a counter of pages
/// holds, are both unlimited.
pub fn limit_of(text: &str, size: PageSize) -> Result<Option<Bytes>, ParseError> {
    const MOST: u64 = i64::MAX.unsigned_abs();
    if text.trim() == "max" {
        return Ok(None);
    }
    let bytes = parse::number(text)?;
    Ok((bytes < size.round_down(MOST)).then_some(Bytes(bytes)))
}

/// The `max` line of an `events` file.
pub fn hits_of(text: &str) -> Result<u64, ParseError> {
    let hits = text.lines().find_map(|line| line.strip_prefix("max "));
    let hits = hits.and_then(|n| n.trim().parse().ok());
    hits.ok_or_else(|| ParseError::new(1, "expected a line 'max NUMBER'", text.trim()))
}

/// The cgroups that this very process is in, by version, as `proc/self/cgroup` has them.
pub fn own(root: &Root) -> Vec<(u8, String)> {
    let text = root.read("proc/self/cgroup");
    text.map(|text| own_in(&text)).or_default()
}

/// The hugetlb controller's line and the unified one of a `cgroup` file (cgroups(7)).
pub fn own_in(text: &str) -> Vec<(u8, String)> {
    own_with(text, "hugetlb")
}

/// A controller's line and the unified one of a `cgroup` file.
pub(super) fn own_with(text: &str, controller: &str) -> Vec<(u8, String)> {
    let parse = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        match controllers {
            "" => Some((2, path.to_owned())),
            list if list.split(',').any(|c| c == controller) => Some((1, path.to_owned())),
            _ => None,
        }
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::ErrorKind;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let (dir, root) = crate::testing::host(files);
        std::fs::create_dir_all(dir.path().join("sys/kernel/mm/hugepages/hugepages-2048kB"))
            .unwrap();
        (dir, root)
    }

    #[test]
    fn ones_own_and_those_above() {
        let files = [
            ("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n"),
            ("proc/self/cgroup", "0::/a/b\n"),
            ("cg/cgroup.controllers", "hugetlb\n"),
            ("cg/cgroup.subtree_control", "hugetlb\n"),
            ("cg/a/cgroup.subtree_control", "hugetlb\n"),
            ("cg/a/hugetlb.2MB.max", "2097152\n"),
            ("cg/a/b/hugetlb.2MB.max", "4194304\n"),
            ("cg/a/c/hugetlb.2MB.max", "6291456\n"),
        ];
        let (_dir, root) = host(&files);
        let paths = |cgroups: Fact<Vec<Cgroup>>| -> Vec<String> {
            let cgroups = cgroups.known().unwrap();
            cgroups.iter().map(|cgroup| cgroup.path.clone()).collect()
        };
        assert_eq!(paths(read_own(&root)), ["/a", "/a/b"]);
        assert_eq!(paths(read(&root)), ["/a", "/a/b", "/a/c"]);
        assert_eq!(read_own(&host(&files[1..]).1), Fact::Absent);
    }

    #[test]
    fn version_2_tells_fault_and_reservation_limits_apart() {
        let (_dir, root) = host(&[
            (
                "proc/self/mounts",
                "x / ext4 rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\nx",
            ),
            ("sys/fs/cgroup/cgroup.controllers", "cpu hugetlb\n"),
            ("sys/fs/cgroup/cgroup.subtree_control", "hugetlb\n"),
            ("sys/fs/cgroup/db.slice/hugetlb.2MB.max", "1073741824\n"),
            ("sys/fs/cgroup/db.slice/hugetlb.2MB.current", "2097152\n"),
            ("sys/fs/cgroup/db.slice/hugetlb.2MB.rsvd.max", "max\n"),
            (
                "sys/fs/cgroup/db.slice/hugetlb.2MB.rsvd.current",
                "4194304\n",
            ),
            ("sys/fs/cgroup/db.slice/hugetlb.2MB.events", "max 3\n"),
            ("sys/fs/cgroup/free.slice/hugetlb.2MB.max", "max\n"),
            // Nobody handed the controller down to this one: its file is left over.
            ("sys/fs/cgroup/free.slice/child/hugetlb.2MB.max", "0\n"),
        ]);
        let cgroups = read(&root);
        let cgroups = cgroups.known().unwrap();
        assert_eq!(cgroups.len(), 1);
        assert_eq!(cgroups[0].path, "/db.slice");
        assert_eq!(cgroups[0].folder, "/sys/fs/cgroup/db.slice");
        let limit = &cgroups[0].hugetlb[0];
        assert_eq!(limit.fault_limit, Fact::Known(Some(Bytes(1 << 30))));
        assert_eq!(limit.reservation_limit, Fact::Known(None));
        assert_eq!(limit.reservation_usage, Fact::Known(Bytes(4 << 20)));
        assert_eq!(limit.hits, Fact::Known(3));

        // This process is in none of them, so none is its own.
        assert_eq!(read_own(&root), Fact::Known(Vec::new()));

        let denied = root.failing(
            "sys/fs/cgroup/db.slice/hugetlb.2MB.max",
            ErrorKind::PermissionDenied,
        );
        let cgroups = read(&denied);
        let limit = &cgroups.known().unwrap()[0].hugetlb[0];
        assert!(limit.fault_limit.error().unwrap().denied);
    }

    #[test]
    fn version_1_unlimited_is_a_number() {
        let folder = "mnt/huge tlb/docker/abc";
        let (_dir, root) = host(&[
            (
                "proc/mounts",
                "cgroup /mnt/huge\\040tlb cgroup rw,hugetlb 0 0\n",
            ),
            (
                &format!("{folder}/hugetlb.2MB.limit_in_bytes"),
                "9223372036852678656\n",
            ),
            (
                &format!("{folder}/hugetlb.2MB.rsvd.limit_in_bytes"),
                "2097152\n",
            ),
            (&format!("{folder}/hugetlb.2MB.failcnt"), "0\n"),
        ]);
        let cgroups = read(&root);
        let cgroups = cgroups.known().unwrap();
        assert_eq!(
            (cgroups[0].version, cgroups[0].path.as_str()),
            (1, "/docker/abc")
        );
        let limit = &cgroups[0].hugetlb[0];
        assert_eq!(limit.fault_limit, Fact::Known(None));
        assert_eq!(limit.reservation_limit, Fact::Known(Some(Bytes(2 << 20))));
        assert!(limit.fault_usage.is_absent());
    }

    #[test]
    fn no_controller_is_absent() {
        let (_dir, root) = host(&[
            (
                "proc/self/mounts",
                "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            ),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
        ]);
        assert!(read(&root).is_absent());
        assert!(
            read(&root.failing("proc/self/mounts", ErrorKind::PermissionDenied))
                .error()
                .is_some()
        );
    }

    #[test]
    fn names_and_own_lines() {
        let name = |text: &str| name_of(text.parse().unwrap());
        assert_eq!(
            [name("64K"), name("32M"), name("16G")],
            ["64KB", "32MB", "16GB"]
        );
        assert_eq!(
            own_in("4:memory,hugetlb:/a:b\n3:cpu:/x\n0::/c\njunk"),
            [(1, "/a:b".to_owned()), (2, "/c".to_owned())]
        );
        assert!(limit_of("ma", "2M".parse().unwrap()).is_err());
        assert!(hits_of("low 0\n").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in "([a-z0-9:/, \\\\]*\n?)*") {
            let _ = (mounts_in(&text), own_in(&text), hits_of(&text));
            let _ = limit_of(&text, "2M".parse().unwrap());
        }
    }
}
