//! Classifies kernel work by function names.
//!
//! Names differ between kernels. The lists hold the names of many versions, and an unknown name counts as
//! "something else". A reported share is therefore a lower bound.

hugeleaf_units::named! {
    /// A kind of kernel work that depends on page sizes.
    pub enum KernelWork {
        /// Finding, pinning, locking and releasing pages one by one: the unit of pinning.
        Pin = "page pinning and locking",
        /// Building I/O requests from memory segments and passing each to a device: contiguity.
        Segments = "segments of I/O requests",
        /// Page faults, including the zeroing of new pages: one entry at a time.
        Fault = "page faults",
        PageTables = "making and freeing page tables",
        /// Migrating pages to create larger free blocks.
        Compaction = "compaction",
        /// Collapsing base pages into huge pages in the background, and splitting huge pages.
        Collapse = "collapsing and splitting huge pages",
        /// Invalidating translations on other processors.
        Flush = "TLB flushes",
    }
}

/// Name prefixes. The first matching list decides, so a name of two areas is in the list of the narrower one.
const AREAS: &[(KernelWork, &[&str])] = &[
    (
        KernelWork::Pin,
        &[
            "pin_user_pages",
            "pin_user_page",
            "unpin_user_",
            "unpin_folio",
            "get_user_pages",
            "__get_user_pages",
            "internal_get_user_pages",
            "gup_",
            "__gup_",
            "try_grab_",
            "lockless_pages_from_mm",
            "follow_page_",
            "faultin_page",
            "mlock_",
            "__mlock",
            "munlock_",
            "__munlock",
            "do_mlock",
            "__do_sys_mlock",
            "__do_sys_munlock",
            "__x64_sys_mlock",
            "__x64_sys_munlock",
            "__arm64_sys_mlock",
            "__arm64_sys_munlock",
            "apply_vma_lock_flags",
            "__mm_populate",
            "populate_vma_page_range",
            "io_sqe_buffer",
            "io_pin_pages",
            "bio_iov_iter_get_pages",
            "iov_iter_extract_pages",
            "iov_iter_get_pages",
            "bio_release_pages",
            "__bio_release_pages",
            "bio_set_pages_dirty",
            "bio_check_pages_dirty",
        ],
    ),
    (
        KernelWork::Segments,
        &[
            "blk_rq_map_sg",
            "__blk_rq_map_sg",
            "blk_map_iter_next",
            "blk_rq_map_iter",
            "blk_rq_dma_map",
            "blk_bio_map_sg",
            "bio_split",
            "__bio_split",
            "bio_add_page",
            "bio_add_folio",
            "bio_add_hw_page",
            "__bio_add_page",
            "bvec_",
            "dma_map_sg",
            "__dma_map_sg",
            "dma_unmap_sg",
            "dma_direct_map_sg",
            "iommu_dma_map_sg",
            "iommu_map_sg",
            "virtqueue_add",
            "nvme_map_data",
            "nvme_setup_prp",
            "nvme_pci_setup_",
            "sg_alloc_table",
            "sg_next",
        ],
    ),
    (
        KernelWork::Compaction,
        &[
            "compact_zone",
            "__alloc_pages_direct_compact",
            "try_to_compact",
            "compaction_alloc",
            "isolate_migratepages",
            "kcompactd",
        ],
    ),
    (
        KernelWork::Collapse,
        &[
            "khugepaged",
            "collapse_huge_page",
            "collapse_file",
            "collapse_scan",
            "hpage_collapse_scan",
            "madvise_collapse",
            "split_huge_",
            "__split_huge_",
            "__split_folio",
            "split_folio",
            "deferred_split_",
        ],
    ),
    (
        KernelWork::Flush,
        &[
            "flush_tlb_",
            "native_flush_tlb",
            "smp_call_function_many",
            "on_each_cpu_cond",
            "arch_tlbbatch",
        ],
    ),
    (
        KernelWork::PageTables,
        &[
            "copy_page_range",
            "copy_pte_range",
            "dup_mmap",
            "free_pgtables",
            "free_pgd_range",
            "pte_alloc_one",
            "__pte_alloc",
            "unmap_page_range",
            "unmap_vmas",
            "exit_mmap",
        ],
    ),
    (
        KernelWork::Fault,
        &[
            "handle_mm_fault",
            "__handle_mm_fault",
            "handle_pte_fault",
            "exc_page_fault",
            "asm_exc_page_fault",
            "do_user_addr_fault",
            "do_page_fault",
            "do_anonymous_page",
            "do_huge_pmd_",
            "do_fault",
            "do_translation_fault",
            "el0_da",
            "hugetlb_fault",
            "clear_page",
            "clear_huge_page",
            "clear_subpage",
            "folio_zero_user",
        ],
    ),
];

pub fn area_of(function: &str) -> Option<KernelWork> {
    let fits = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
    AREAS
        .iter()
        .find(|(_, names)| fits(names))
        .map(|(area, _)| *area)
}

/// Returns the area of a stack, leaf first: the area of the innermost classified function.
pub fn area_of_stack<'a>(functions: impl IntoIterator<Item = &'a str>) -> Option<KernelWork> {
    functions.into_iter().find_map(area_of)
}

/// True if interrupts are re-enabled at the end of the function. A clock sample cannot land while they are off, so
/// the time of the preceding work is counted here.
pub fn is_release(function: &str) -> bool {
    const RELEASES: &[&str] = &[
        "_raw_spin_unlock_irq",
        "_raw_read_unlock_irq",
        "_raw_write_unlock_irq",
        "finish_task_switch",
        "__local_bh_enable",
        "local_irq_enable",
        "handle_softirqs",
        "__do_softirq",
        "pv_native_safe_halt",
        "native_safe_halt",
        "default_idle",
        "acpi_safe_halt",
        "__raw_spin_unlock_irq",
    ];
    RELEASES.iter().any(|name| function.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_function_with_an_area_decides() {
        let direct = [
            "_raw_spin_lock",
            "gup_fast_fallback",
            "bio_iov_iter_get_pages",
            "blkdev_read_iter",
        ];
        assert_eq!(area_of_stack(direct), Some(KernelWork::Pin));
        let fault = [
            "clear_page_erms",
            "folio_zero_user",
            "handle_mm_fault",
            "main",
        ];
        assert_eq!(area_of_stack(fault), Some(KernelWork::Fault));
        // A fault caused by pinning counts as a fault.
        let both = ["do_anonymous_page", "handle_mm_fault", "__get_user_pages"];
        assert_eq!(area_of_stack(both), Some(KernelWork::Fault));
        assert_eq!(area_of_stack(["tcp_sendmsg", "main"]), None);
        assert_eq!(area_of_stack([]), None);
    }

    #[test]
    fn releases_are_known_by_name() {
        assert!(
            is_release("_raw_spin_unlock_irqrestore") && is_release("finish_task_switch.isra.0")
        );
        assert!(!is_release("_raw_spin_lock"));
    }
}
