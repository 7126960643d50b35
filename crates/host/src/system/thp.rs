//! Transparent huge pages (Documentation/admin-guide/mm/transhuge.rst).

use hugeleaf_units::{Bytes, PageSize, Pages};

use super::file_readers;
use crate::fact::Fact;
use crate::model::{Khugepaged, Thp, ThpSizeSettings};
use crate::parse_helpers::{self, ParseError};
use crate::root::Root;

const FOLDER: &str = "sys/kernel/mm/transparent_hugepage";

pub fn pmd_page(root: &Root) -> Fact<PageSize> {
    root.parse(format!("{FOLDER}/hpage_pmd_size"), |text| {
        let bytes = Bytes(parse_helpers::number(text)?);
        PageSize::new(bytes).map_err(|_| ParseError::new(1, "expected a page size", text.trim()))
    })
}

/// Reads all settings. Absent if the kernel has no THP.
pub fn read(root: &Root, pmd: Option<PageSize>) -> Fact<Thp> {
    file_readers::sizes_in(root, FOLDER).map(|folders| Thp {
        enabled: knob(root, "enabled"),
        defrag: knob(root, "defrag"),
        shmem_enabled: knob(root, "shmem_enabled"),
        use_zero_page: switch(root, "use_zero_page"),
        shrink_underused: switch(root, "shrink_underused"),
        khugepaged: Khugepaged {
            collapses_small_orders: collapses_small_orders(root, &folders, pmd),
            ..khugepaged(root)
        },
        orders: orders(root, folders, pmd),
    })
}

fn knob(root: &Root, name: &str) -> Fact<String> {
    root.parse(format!("{FOLDER}/{name}"), parse_helpers::chosen)
}

fn switch(root: &Root, name: &str) -> Fact<bool> {
    file_readers::number(root, format!("{FOLDER}/{name}")).map(|n| n != 0)
}

fn khugepaged(root: &Root) -> Khugepaged {
    let number = |name: &str| file_readers::number(root, format!("{FOLDER}/khugepaged/{name}"));
    Khugepaged {
        defrag: switch(root, "khugepaged/defrag"),
        pages_to_scan: number("pages_to_scan").map(Pages),
        scan_sleep_millis: number("scan_sleep_millisecs"),
        alloc_sleep_millis: number("alloc_sleep_millisecs"),
        max_ptes_none: number("max_ptes_none").map(Pages),
        max_ptes_swap: number("max_ptes_swap").map(Pages),
        max_ptes_shared: number("max_ptes_shared").map(Pages),
        pages_collapsed: number("pages_collapsed"),
        full_scans: number("full_scans"),
        collapses_small_orders: false,
    }
}

/// True if the kernel counts khugepaged's collapses to sizes below the PMD's.
fn collapses_small_orders(
    root: &Root,
    folders: &[(PageSize, String)],
    pmd: Option<PageSize>,
) -> bool {
    let counts = |folder: &str| {
        let counter = root.read(format!("{folder}/stats/collapse_alloc"));
        !counter.is_absent()
    };
    let mut smaller = folders.iter().filter(|(size, _)| Some(*size) < pmd);
    smaller.any(|(_, folder)| counts(folder))
}

/// Returns the sizes with their own settings. Those for anonymous memory exist since Linux 6.8, and
/// for shared memory since 6.11. Before that, the PMD size follows the settings above, which is the
/// meaning of `inherit`.
fn orders(
    root: &Root,
    folders: Vec<(PageSize, String)>,
    pmd: Option<PageSize>,
) -> Vec<ThpSizeSettings> {
    let own =
        |folder: &str, name: &str| root.parse(format!("{folder}/{name}"), parse_helpers::chosen);
    let mut orders: Vec<ThpSizeSettings> = folders
        .into_iter()
        .map(|(size, folder)| ThpSizeSettings {
            size,
            anon: own(&folder, "enabled"),
            shmem: own(&folder, "shmem_enabled"),
        })
        .collect();
    let Some(pmd) = pmd else {
        return orders;
    };
    let inherit = || Fact::Known("inherit".to_owned());
    let no_shmem_knobs = orders.iter().all(|order| order.shmem.is_absent());
    if orders.is_empty() {
        orders.push(ThpSizeSettings {
            size: pmd,
            anon: inherit(),
            shmem: inherit(),
        });
    } else if no_shmem_knobs && let Some(order) = orders.iter_mut().find(|o| o.size == pmd) {
        order.shmem = inherit();
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ThpMemoryKind;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(FOLDER).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn an_old_kernel_has_one_size_that_follows_the_knobs_above() {
        let (_dir, root) = host(&[
            ("hpage_pmd_size", "2097152\n"),
            ("enabled", "[always] madvise never\n"),
            (
                "shmem_enabled",
                "always within_size advise [never] deny force\n",
            ),
        ]);
        let thp = read(&root, pmd_page(&root).get());
        let thp = thp.known().unwrap();
        assert_eq!(thp.orders.len(), 1);
        assert_eq!(
            thp.orders[0].effective(thp, ThpMemoryKind::Private),
            Some("always")
        );
        assert_eq!(
            thp.orders[0].effective(thp, ThpMemoryKind::Shared),
            Some("never")
        );
    }

    #[test]
    fn a_cut_knob_is_unreadable_and_the_others_are_known() {
        let (_dir, root) = host(&[
            ("hpage_pmd_size", "3\n"),
            ("enabled", "always [madv"),
            ("hugepages-64kB/enabled", "always inherit [madvise] never\n"),
        ]);
        assert!(pmd_page(&root).error().is_some());
        let thp = read(&root, None);
        let thp = thp.known().unwrap();
        assert!(thp.enabled.error().is_some());
        assert!(thp.defrag.is_absent());
        assert_eq!(
            thp.orders[0].effective(thp, ThpMemoryKind::Private),
            Some("madvise")
        );
        assert!(thp.orders[0].shmem.is_absent());
    }

    #[test]
    fn the_sizes_that_khugepaged_makes() {
        let files = [
            ("hpage_pmd_size", "2097152\n"),
            ("enabled", "[always] madvise never\n"),
            ("hugepages-64kB/enabled", "always [inherit] madvise never\n"),
            (
                "hugepages-1024kB/enabled",
                "always inherit madvise [never]\n",
            ),
            (
                "hugepages-2048kB/enabled",
                "always [inherit] madvise never\n",
            ),
            ("hugepages-64kB/stats/anon_fault_alloc", "0\n"),
        ];
        let sizes = |files: &[(&str, &str)]| {
            let (_dir, root) = host(files);
            let pmd = pmd_page(&root).get();
            let thp = read(&root, pmd);
            let sizes = thp.known().unwrap().khugepaged_sizes(pmd);
            sizes.iter().map(PageSize::to_string).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&files), ["2M"]);
        let counted = [("hugepages-64kB/stats/collapse_alloc", "0\n")];
        assert_eq!(sizes(&[&files[..], &counted].concat()), ["64K", "2M"]);
        // The PMD's own counter does not indicate it.
        let own = [("hugepages-2048kB/stats/collapse_alloc", "0\n")];
        assert_eq!(sizes(&[&files[..], &own].concat()), ["2M"]);
    }

    #[test]
    fn a_kernel_without_thp_says_absent() {
        assert!(read(&Root::at("/nowhere"), None).is_absent());
    }
}
