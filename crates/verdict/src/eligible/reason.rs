//! The reasons: one row each, with its sentence, its remedy, and the kernel function that decides.
//! `docs/reference/reasons.md` is this table, and a test compares the two.

use serde::Serialize;

hugeleaf_units::named! {
    pub enum Remedy {
        /// `hugeleaf promote` promotes it as it is.
        Promote = "promote",
        /// `hugeleaf promote --min-resident` promotes it, and memory grows.
        PromoteAndGrow = "promote-and-grow",
        /// A knob, the program, or another use of the memory must change first.
        Change = "change",
        /// There is no remedy from outside, or it is not worthwhile.
        Nothing = "nothing",
    }
}

macro_rules! reasons {
    ($($name:ident = $id:literal, $remedy:ident, $kernel:expr, $says:literal;)*) => {
        /// The reason why memory is not on a huge page, or may not be promoted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Reason {
            $(#[doc = $says] #[serde(rename = $id)] $name,)*
        }

        impl Reason {
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Reason::$name => $id,)*
                }
            }

            pub const fn remedy(self) -> Remedy {
                match self {
                    $(Reason::$name => Remedy::$remedy,)*
                }
            }

            /// Returns true if memory with this reason counts as eligible. Other memory, another setting or
            /// another state of its pages would let the kernel promote it. Files do not count unless the
            /// kernel can collapse them, and neither does memory where no whole huge page fits.
            pub const fn counts_as_eligible(self) -> bool {
                match self {
                    Reason::Sparse | Reason::Merged => true,
                    Reason::SmallFolios => false,
                    _ => !matches!(self.remedy(), Remedy::Nothing),
                }
            }

            /// Returns the kernel function that decides, with its file. If the kernel would allow it,
            /// returns who decides instead. As of Linux 6.18; docs/internals/kernel-notes.md has the
            /// tests.
            pub const fn decided_by(self) -> &'static str {
                match self {
                    $(Reason::$name => $kernel,)*
                }
            }

            /// Returns the reason in a general sentence. `why` has longer ones with the values of the
            /// case.
            pub const fn says(self) -> &'static str {
                match self {
                    $(Reason::$name => $says,)*
                }
            }
        }
    };
}

/// Settings apply to faults and khugepaged; MADV_COLLAPSE ignores them.
const SETTING: &str =
    "__thp_vma_allowable_orders (mm/huge_memory.c), at faults and for khugepaged only";
const MAPPING: &str = "__thp_vma_allowable_orders (mm/huge_memory.c)";
const DISABLED: &str = "vma_thp_disabled (include/linux/huge_mm.h)";
const ALIGNMENT: &str = "thp_vma_suitable_order (include/linux/huge_mm.h)";
const SHMEM: &str = "shmem_allowable_huge_orders (mm/shmem.c)";
const SHMEM_SETTING: &str =
    "shmem_allowable_huge_orders (mm/shmem.c), at faults and for khugepaged only";
const FILE: &str = "file_thp_enabled (mm/huge_memory.c)";
const PAGES: &str = "hpage_collapse_scan_pmd (mm/khugepaged.c)";
const NEW_PAGE: &str = "alloc_charge_folio (mm/khugepaged.c)";
const FIRST_TOUCH: &str = "alloc_anon_folio (mm/memory.c), at the first touch";
const POOL_RIGHT: &str = "can_do_hugetlb_shm (fs/hugetlbfs/inode.c)";
const GROWS: &str = "hugeleaf: hpage_collapse_scan_pmd (mm/khugepaged.c) would fill it up";

reasons! {
    ThpNever = "thp-never", Promote, SETTING,
        "THP is off on this host; promotion still works";
    NotAdvised = "not-advised", Promote, SETTING,
        "THP is limited to advised memory, and the program did not advise this; promotion still works";
    ProcessUnlessAdvised = "process-unless-advised", Promote, DISABLED,
        "THP is on, but the program limited it to advised memory (prctl PR_SET_THP_DISABLE with PR_THP_DISABLE_EXCEPT_ADVISED), and did not advise this";
    SmallSteps = "small-steps", Promote, "thp_vma_suitable_order (include/linux/huge_mm.h), at the fault",
        "THP is on, but this memory was allocated in steps smaller than a huge page or was split later, and khugepaged has not collapsed it";
    ShmemNever = "shmem-never", Promote, SHMEM_SETTING,
        "huge pages for shared memory are off; the mapping is aligned, so promotion works";
    ShmemNotAdvised = "shmem-not-advised", Promote, SHMEM_SETTING,
        "huge pages for shared memory are limited to advised memory, and the program did not advise this; the mapping is aligned, so promotion works";
    TextNotCollapsed = "text-not-collapsed", Promote, FILE,
        "this kernel can collapse program text to huge pages, and has not done so here";
    FileNotCollapsed = "file-not-collapsed", Promote, FILE,
        "this kernel can collapse files of this file system to huge pages, and has not done so here";
    Unknown = "unknown", Promote, "hugeleaf: a file could not be read",
        "a setting could not be read";
    PartlyResident = "partly-resident", PromoteAndGrow, GROWS,
        "partly resident: promotion would fill it and grow the process";
    Swapped = "swapped", PromoteAndGrow, GROWS,
        "partly in swap: promotion would swap it in and grow the process";
    PartlyMapped = "partly-mapped", PromoteAndGrow, "hugeleaf: hpage_collapse_scan_file (mm/khugepaged.c) would fill it up",
        "shared memory that these processes touched only in part: promotion would fill it and take memory";
    ProcessDisabled = "process-disabled", Change, DISABLED,
        "the program disabled THP for itself (prctl PR_SET_THP_DISABLE)";
    NoHugeAdvised = "no-huge-advised", Change, DISABLED,
        "the program called madvise(MADV_NOHUGEPAGE) here (nh in VmFlags), which no other process can undo";
    Misaligned = "misaligned", Change, ALIGNMENT,
        "misaligned shared memory: address and offset differ modulo the huge page size; needs a restart";
    ShmemSizeOff = "shmem-size-off", Change, SHMEM,
        "the shmem_enabled of this huge page size forbids huge pages here, also for promotion";
    ShmemDeny = "shmem-deny", Change, "shmem_huge_global_enabled (mm/shmem.c)",
        "shmem_enabled is deny, which forbids huge pages in all shared memory";
    ShmGroup = "hugetlb-shm-group", Change, POOL_RIGHT,
        "only the group in vm.hugetlb_shm_group may put SysV memory on pool pages, and this process is not in it";
    Memlock = "memlock", Change, POOL_RIGHT,
        "SysV memory on pool pages counts against the memlock limit, which is too low";
    CgroupReservation = "cgroup-reservation", Change, "hugetlb_reserve_pages (mm/hugetlb.c)",
        "a cgroup limits reservations from the pool, so mmap on pool pages fails";
    PoolShort = "pool-short", Change, "hugetlb_acct_memory (mm/hugetlb.c)",
        "the pool has fewer free pages than this memory needs";
    CgroupFault = "cgroup-fault", Change, "alloc_hugetlb_folio (mm/hugetlb.c)",
        "a cgroup limits faults on the pool: mmap on pool pages would succeed, but the first touch would raise SIGBUS";
    PoolUnused = "pool-unused", Change, "hugeleaf: the program must request them",
        "the pool has enough free pages, but the program did not request them";
    Userfaultfd = "userfaultfd", Change, PAGES,
        "userfaultfd is registered for this memory, and a huge page could fill pages that its handler waits for";
    CopyOnWrite = "copy-on-write", Change, "hugeleaf: collapse_huge_page (mm/khugepaged.c) would copy it",
        "shared copy-on-write with another process (a forked child): promotion would duplicate it";
    Locked = "locked", Change, ALIGNMENT,
        "mlock of a part split the mapping inside a block, and a huge page cannot span two mappings";
    Pinned = "pinned", Change, PAGES,
        "pinned for device I/O (io_uring registered buffers, RDMA, vfio): pinned pages cannot move";
    CgroupMemory = "cgroup-memory", Change, NEW_PAGE,
        "a cgroup's memory limit leaves no room for a huge page, which is charged before its base pages are freed";
    NoContiguous = "no-contiguous", Change, NEW_PAGE,
        "no free block of a huge page's size is left";
    ExclusiveUnknown = "exclusive-unknown", Change, "hugeleaf: /proc/PID/pagemap could not be read",
        "the page map of the process could not be read, so it is unknown which pages it shares with others";
    SmallFolios = "small-folios", Change, "page_cache_ra_order (mm/readahead.c), when it is read",
        "the file was read or written in small parts, so the page cache holds it in folios smaller than a huge page";
    Hugetlb = "hugetlb", Nothing, MAPPING,
        "hugetlb pages: promote and demote do not apply";
    NoThp = "no-thp", Nothing, "CONFIG_TRANSPARENT_HUGEPAGE",
        "this kernel has no transparent huge pages, and private memory has no alternative";
    OrdersOff = "smaller-sizes-off", Nothing, FIRST_TOUCH,
        "no whole huge page fits here; a smaller size would fit, but is off on this host";
    OrderAtFault = "smaller-sizes-at-fault", Nothing, FIRST_TOUCH,
        "no whole huge page fits here; a smaller size is on, but allocated at the first touch only";
    TooSmall = "too-small", Nothing, ALIGNMENT,
        "smaller than a huge page, or the unaligned ends of a mapping";
    Sparse = "sparse", Nothing, "hugeleaf: not worth the memory",
        "fewer than half of the pages are resident: promotion would more than double this memory";
    MainStack = "stack", Nothing, "hugeleaf: its size varies",
        "the stack of the main thread: promotion skips it, because its size varies";
    ThreadStack = "thread-stack", Nothing, DISABLED,
        "the stack of a thread: the kernel keeps it on base pages (MAP_STACK, nh in VmFlags), and only the program can change that";
    Special = "special", Nothing, MAPPING,
        "memory of a device or of the kernel, which is never collapsed";
    Merged = "ksm-merged", Nothing, PAGES,
        "merged with identical pages (KSM), which works on base pages";
    Guarded = "guard-region", Nothing, "__collapse_huge_page_swapin (mm/khugepaged.c)",
        "contains guard pages (MADV_GUARD_INSTALL), which a huge page cannot contain";
    FileStays = "file-stays", Nothing, "hugeleaf: madvise_cold_or_pageout_pte_range (mm/madvise.c) would unmap it",
        "a file: its huge pages belong to the page cache, and no other process can split them";
    TextUnsupported = "text-unsupported", Nothing, FILE,
        "program text: this kernel collapses none (CONFIG_READ_ONLY_THP_FOR_FS), and no file system here has shown large folios";
    FileMisaligned = "file-misaligned", Nothing, ALIGNMENT,
        "misaligned file: address and offset differ modulo the huge page size";
    NoLargeFolios = "no-large-folios", Nothing, FILE,
        "the page cache of this file uses base pages: no large folios";
    PrivateFile = "private-file", Nothing, "hpage_collapse_scan_file (mm/khugepaged.c): the page cache, not copies of it",
        "private copies of file pages (a program's initialised data), which the kernel copies one base page at a time";
}
