//! `/proc/meminfo` (proc(5)).

use std::collections::BTreeMap;

use hugeleaf_units::{Bytes, PageSize};

use crate::fact::{Fact, ReadError};
use crate::model::Memory;
use crate::parse_helpers::{ParseError, fields, kib};
use crate::root::Root;

const PATH: &str = "proc/meminfo";

/// Reads `/proc/meminfo`. A line that cannot be parsed makes only its own fact unreadable.
pub fn read(root: &Root) -> Memory {
    let text = root.read(PATH);
    let lines = text.text().map(parse).unwrap_or_default();
    let get = |name: &str| -> Fact<Bytes> {
        match (&text, lines.get(name)) {
            (Fact::Unreadable(error), _) => Fact::Unreadable(error.clone()),
            (_, None) => Fact::Absent,
            (_, Some(Ok(bytes))) => Fact::Known(*bytes),
            (_, Some(Err(error))) => Fact::Unreadable(ReadError::new(root.path(PATH), error)),
        }
    };
    Memory {
        total: get("MemTotal"),
        free: get("MemFree"),
        available: get("MemAvailable"),
        page_tables: get("PageTables"),
        anon: get("AnonPages"),
        mapped: get("Mapped"),
        anon_huge: get("AnonHugePages"),
        shmem: get("Shmem"),
        shmem_huge: get("ShmemHugePages"),
        shmem_pmd_mapped: get("ShmemPmdMapped"),
        file_huge: get("FileHugePages"),
        file_pmd_mapped: get("FilePmdMapped"),
        locked: get("Mlocked"),
        unevictable: get("Unevictable"),
        cached: get("Cached"),
        hugetlb: get("Hugetlb"),
        default_hugetlb_page: get("Hugepagesize")
            .and_then(|bytes| PageSize::new(bytes).ok().into()),
        swap_total: get("SwapTotal"),
        swap_free: get("SwapFree"),
        commit_limit: get("CommitLimit"),
        committed: get("Committed_AS"),
    }
}

/// Parses every line by its name, with its value in bytes. Lines that count pages instead
/// (`HugePages_*`) cover the default hugetlb size only and are left out. The pools have all sizes.
pub fn parse(text: &str) -> BTreeMap<&str, Result<Bytes, ParseError>> {
    fields(text)
        .filter(|(_, name, _)| !name.starts_with("HugePages_"))
        .map(|(line, name, value)| (name, kib(line, value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::ErrorKind;

    fn read_text(text: &str) -> Memory {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join(PATH), text).unwrap();
        read(&Root::at(dir.path()))
    }

    #[test]
    fn unknown_lines_are_passed_over_and_a_cut_one_is_unreadable_alone() {
        let memory = read_text(
            "MemTotal:       24684092 kB\nNewThing: 7 apples\nPageTables:  0 kB\n\
             HugePages_Total:       3\nHugepagesize:       2048 kB\nMemFree:        233",
        );
        assert_eq!(memory.total, Fact::Known(Bytes::from_kib(24_684_092)));
        assert_eq!(memory.page_tables, Fact::Known(Bytes::ZERO));
        assert_eq!(memory.default_hugetlb_page.get().unwrap().to_string(), "2M");
        assert!(memory.anon.is_absent());
        let error = memory.free.error().unwrap().to_string();
        assert!(
            error.contains("proc/meminfo") && error.contains("line 6"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_neither_absent_nor_zero() {
        let root = Root::at("/nowhere").failing(PATH, ErrorKind::PermissionDenied);
        assert!(read(&root).total.error().unwrap().denied);
        assert!(read(&Root::at("/nowhere")).total.is_absent());
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = parse(&text);
        }
    }
}
