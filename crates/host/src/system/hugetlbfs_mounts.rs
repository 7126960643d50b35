//! Mounts of hugetlbfs, which may limit their files.

use hugeleaf_sys::file_system_used;
use hugeleaf_units::{Bytes, PageSize};

use crate::fact::{Fact, ReadError};
use crate::limits::cgroup_paths::unescape;
use crate::model::HugetlbfsMount;
use crate::parse_helpers::MountLine;
use crate::root::Root;

/// Returns the mounts of hugetlbfs in this mount namespace. Only a live host has the usage of a limit.
pub fn read_hugetlbfs_mounts(root: &Root) -> Fact<Vec<HugetlbfsMount>> {
    let text = root.read("proc/self/mountinfo");
    text.map(|text| {
        let mut mounts = mounts_in(&text);
        for mount in mounts.iter_mut().filter(|mount| mount.limit.is_some()) {
            mount.usage = usage(root, &mount.path);
        }
        mounts
    })
}

fn usage(root: &Root, at: &str) -> Fact<Bytes> {
    if !root.is_live() {
        return Fact::Absent;
    }
    match file_system_used(at.as_ref()) {
        Ok(used) => Fact::Known(used),
        Err(error) => Fact::Unreadable(ReadError::new(at.into(), error)),
    }
}

/// Parses the mounts of hugetlbfs in a `mountinfo` file, with the size of their pages and the limit of their files.
pub fn mounts_in(mountinfo: &str) -> Vec<HugetlbfsMount> {
    let parse = |line: &str| {
        let mount = MountLine::parse(line).filter(|mount| mount.file_system == "hugetlbfs")?;
        let option = |name: &str| {
            let mut options = mount.file_system_options.split(',');
            options.find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
        };
        let page: PageSize = option("pagesize")?.parse().ok()?;
        Some(HugetlbfsMount {
            path: unescape(mount.at),
            page,
            limit: option("size").and_then(|size| size.parse().ok()),
            usage: Fact::Absent,
        })
    };
    mountinfo.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mounts_have_a_page_size_and_may_have_a_limit() {
        let lines = "40 27 0:39 / /dev/huge\\040pages rw,relatime shared:2 - hugetlbfs none rw,pagesize=2M,size=4194304\n\
                     41 27 0:40 / /tmp rw - tmpfs tmpfs rw\n42 27 0:41 / /h rw - hugetlbfs none rw\n\
                     43 27 0:42 / /g rw - hugetlbfs none rw,pagesize=1024M,min_size=1073741824\n";
        let mount = |path: &str, page: &str, limit| HugetlbfsMount {
            path: path.to_owned(),
            page: page.parse().unwrap(),
            limit,
            usage: Fact::Absent,
        };
        let expected = [
            mount("/dev/huge pages", "2M", Some(Bytes(4 << 20))),
            mount("/g", "1G", None),
        ];
        assert_eq!(mounts_in(lines), expected);
    }

    proptest! {
        #[test]
        fn never_panics(text in "([a-z0-9:/=, -]*\n?)*") {
            let _ = mounts_in(&text);
        }
    }
}
