//! Hugetlb limits of cgroups, versions 1 and 2 (Documentation/admin-guide/cgroup-v1/hugetlb.rst,
//! cgroup-v2.rst).

use hugeleaf_units::{Bytes, PageSize};

use super::cgroup_paths::{CgroupMount, below, shown};
use crate::fact::Fact;
pub use crate::model::name_of;
use crate::model::{HugetlbCgroup, HugetlbLimit};
use crate::parse_helpers::{self, ParseError};
use crate::root::Root;

/// Returns a cgroup with its limits on these sizes. `None` if it limits none of them.
pub(super) fn of_cgroup(
    root: &Root,
    mount: &CgroupMount,
    path: &str,
    sizes: &[PageSize],
) -> Option<HugetlbCgroup> {
    let hugetlb: Vec<HugetlbLimit> = sizes
        .iter()
        .filter_map(|size| limit(root, mount, path, *size))
        .collect();
    (!hugetlb.is_empty()).then(|| HugetlbCgroup {
        version: mount.version,
        path: shown(path),
        folder: format!("{}{path}", mount.at),
        hugetlb,
    })
}

/// Reads the limits of a cgroup on one size. `None` if it limits neither faults nor reservations.
fn limit(root: &Root, mount: &CgroupMount, path: &str, size: PageSize) -> Option<HugetlbLimit> {
    let (max, current) = match mount.version {
        1 => ("limit_in_bytes", "usage_in_bytes"),
        _ => ("max", "current"),
    };
    let prefix = format!("hugetlb.{}", name_of(size));
    let file = |name: &str| below(&mount.at, path, &format!("{prefix}.{name}"));
    let limit = |name: &str| root.parse(file(name), |text| limit_of(text, size));
    let usage = |name: &str| root.parse(file(name), parse_helpers::number).map(Bytes);
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
            1 => root.parse(file("failcnt"), parse_helpers::number),
            _ => root.parse(file("events"), hits_of),
        },
    })
}

/// Parses a limit. Unlimited is `max` in version 2. Version 1 writes it as the maximum of a page counter, in bytes, and the
/// kubelet as 2^62 for the cgroups above pods (its `setHugePagesUnbounded`). No computer has that much memory.
pub fn limit_of(text: &str, size: PageSize) -> Result<Option<Bytes>, ParseError> {
    const MOST: u64 = 1 << 62;
    if text.trim() == "max" {
        return Ok(None);
    }
    let bytes = parse_helpers::number(text)?;
    Ok((bytes < size.round_down(MOST)).then_some(Bytes(bytes)))
}

/// Parses the `max` line of an `events` file.
pub fn hits_of(text: &str) -> Result<u64, ParseError> {
    let hits = text.lines().find_map(|line| line.strip_prefix("max "));
    let hits = hits.and_then(|n| n.trim().parse().ok());
    hits.ok_or_else(|| ParseError::new(1, "expected a line 'max NUMBER'", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_and_lines() {
        let name = |text: &str| name_of(text.parse().unwrap());
        assert_eq!(
            [name("64K"), name("32M"), name("16G")],
            ["64KB", "32MB", "16GB"]
        );
        assert!(limit_of("ma", "2M".parse().unwrap()).is_err());
        assert!(hits_of("low 0\n").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in "([a-z0-9:/, \\\\]*\n?)*") {
            let _ = (hits_of(&text), limit_of(&text, "2M".parse().unwrap()));
        }
    }
}
