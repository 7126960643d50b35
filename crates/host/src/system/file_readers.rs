//! Shared by several readers: a file of one line, of one number, a folder of page sizes.

use std::collections::BTreeMap;
use std::path::Path;

use hugeleaf_units::{Bytes, PageSize};

use crate::fact::Fact;
use crate::parse_helpers;
use crate::root::Root;

/// Reads a file of one line, without the trailing blanks.
pub(super) fn line(root: &Root, path: impl AsRef<Path>) -> Fact<String> {
    root.read(path).map(|text| text.trim_end().to_owned())
}

pub(super) fn number(root: &Root, path: impl AsRef<Path>) -> Fact<u64> {
    root.parse(path, parse_helpers::number)
}

/// Returns the files of a folder whose names end in `end`, sorted by name. Empty if the folder does
/// not exist.
pub(super) fn paths_in(root: &Root, folder: &str, end: &str) -> Fact<Vec<String>> {
    let paths = |names: Vec<String>| {
        let names = names.iter().filter(|name| name.ends_with(end));
        names.map(|name| format!("{folder}/{name}")).collect()
    };
    match root.list(folder) {
        Fact::Absent => Fact::Known(Vec::new()),
        names => names.map(paths),
    }
}

/// Returns the `.conf` files of several folders, sorted by name. Of those with one name, the first counts.
pub(super) fn merged(root: &Root, folders: &[&str]) -> Fact<Vec<String>> {
    let mut by_name = BTreeMap::new();
    for folder in folders {
        let paths = match paths_in(root, folder, ".conf") {
            Fact::Unreadable(error) => return Fact::Unreadable(error),
            paths => paths.or_default(),
        };
        for path in paths {
            by_name.entry(path.replace(folder, "")).or_insert(path);
        }
    }
    Fact::Known(by_name.into_values().collect())
}

/// Parses several files in their order. Skips missing files. If one cannot be read, the result is
/// unreadable. The parser is given text and path.
pub(super) fn parse_each<T>(
    root: &Root,
    paths: impl IntoIterator<Item = String>,
    parse: impl Fn(&str, &str) -> Vec<T>,
) -> Fact<Vec<T>> {
    let mut all = Vec::new();
    for path in paths {
        match root.read(&path) {
            Fact::Known(text) => all.extend(parse(&text, &format!("/{path}"))),
            Fact::Absent => {}
            Fact::Unreadable(error) => return Fact::Unreadable(error),
        }
    }
    Fact::Known(all)
}

/// Parses the size in the name of a folder such as `hugepages-2048kB`.
fn size_of_folder(name: &str) -> Option<PageSize> {
    let kib: u64 = name
        .strip_prefix("hugepages-")?
        .strip_suffix("kB")?
        .parse()
        .ok()?;
    PageSize::new(Bytes::from_kib(kib)).ok()
}

/// Returns the page size in the path of a pool's file, such as `/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`.
#[cfg(feature = "full")]
pub fn size_in_path(path: &Path) -> Option<PageSize> {
    let mut names = path.iter().filter_map(std::ffi::OsStr::to_str);
    names.find_map(size_of_folder)
}

/// Returns the sizes that `folder` has a subfolder for, smallest first, with the subfolder's path.
pub(crate) fn sizes_in(root: &Root, folder: &str) -> Fact<Vec<(PageSize, String)>> {
    root.list(folder).map(|names| {
        let mut sizes: Vec<(PageSize, String)> = names
            .iter()
            .filter_map(|name| Some((size_of_folder(name)?, format!("{folder}/{name}"))))
            .collect();
        sizes.sort();
        sizes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_name_sizes() {
        let size = |name| size_of_folder(name).map(|s| s.to_string());
        assert_eq!(size("hugepages-2048kB").as_deref(), Some("2M"));
        assert_eq!(size("hugepages-16777216kB").as_deref(), Some("16G"));
        for name in [
            "hugepages-kB",
            "hugepages-3kB",
            "hugepages-2048",
            "khugepaged",
            "",
        ] {
            assert_eq!(size(name), None, "{name}");
        }
        // 2^64 KiB saturates to a number that is no power of two.
        assert_eq!(size("hugepages-18446744073709551615kB"), None);
    }
}
