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
        "THP is off on this host; promotion works all the same";
    NotAdvised = "not-advised", Promote, SETTING,
        "THP is for advised memory only, and the program did not advise this; promotion works all the same";
    ProcessUnlessAdvised = "process-unless-advised", Promote, DISABLED,
        "THP is on, and the kernel finds this memory not eligible: the program asked for THP in advised memory only (prctl PR_SET_THP_DISABLE with PR_THP_DISABLE_EXCEPT_ADVISED), and did not advise this";
    SmallSteps = "small-steps", Promote, "thp_vma_suitable_order (include/linux/huge_mm.h), at the fault",
        "THP is on, but this memory came in steps smaller than a huge page or was split since, and khugepaged has not been here";
    ShmemNever = "shmem-never", Promote, SHMEM_SETTING,
        "large pages for shared memory are off; the address fits, so promotion can move it";
    ShmemNotAdvised = "shmem-not-advised", Promote, SHMEM_SETTING,
        "large pages for shared memory are for advised memory only, and the program did not advise this; the address fits, so promotion can move it";
    TextNotCollapsed = "text-not-collapsed", Promote, FILE,
        "this kernel puts program text on large pages, and has not done so here";
    FileNotCollapsed = "file-not-collapsed", Promote, FILE,
        "this kernel puts files of this file system on large pages, and has not done so here";
    Unknown = "unknown", Promote, "hugeleaf: a file could not be read",
        "a setting could not be read";
    PartlyResident = "partly-resident", PromoteAndGrow, GROWS,
        "not wholly in memory: filling it up would grow the process";
    Swapped = "swapped", PromoteAndGrow, GROWS,
        "partly in swap: bringing it back would grow the process";
    PartlyMapped = "partly-mapped", PromoteAndGrow, "hugeleaf: hpage_collapse_scan_file (mm/khugepaged.c) would fill it up",
        "shared memory that these processes have touched in part only: filling it up would take memory";
    ProcessDisabled = "process-disabled", Change, DISABLED,
        "the program switched transparent huge pages off for itself (prctl PR_SET_THP_DISABLE)";
    NoHugeAdvised = "no-huge-advised", Change, DISABLED,
        "the program said madvise(MADV_NOHUGEPAGE) here (nh in VmFlags), which cannot be undone from outside";
    Misaligned = "misaligned", Change, ALIGNMENT,
        "shared memory mapped at an address that does not agree with its offset: nothing from outside can mend that";
    ShmemSizeOff = "shmem-size-off", Change, SHMEM,
        "the shmem_enabled of the huge page's own size forbids large pages here, and promotion of shared memory goes by that one";
    ShmemDeny = "shmem-deny", Change, "shmem_huge_global_enabled (mm/shmem.c)",
        "shmem_enabled is deny, which forbids large pages in shared memory altogether";
    ShmGroup = "hugetlb-shm-group", Change, POOL_RIGHT,
        "SysV memory on a pool's pages is for the group in vm.hugetlb_shm_group, which this process is not in";
    Memlock = "memlock", Change, POOL_RIGHT,
        "SysV memory on a pool's pages counts against the memlock limit, which is too low";
    CgroupReservation = "cgroup-reservation", Change, "hugetlb_reserve_pages (mm/hugetlb.c)",
        "a cgroup limits what may be reserved of the pool: mapping it on the pool's pages fails";
    PoolShort = "pool-short", Change, "hugetlb_acct_memory (mm/hugetlb.c)",
        "the pool has fewer free pages than this memory needs";
    CgroupFault = "cgroup-fault", Change, "alloc_hugetlb_folio (mm/hugetlb.c)",
        "a cgroup limits what may be touched of the pool: mapping it on the pool's pages succeeds, and touching it ends in SIGBUS";
    PoolUnused = "pool-unused", Change, "hugeleaf: the program must ask for them",
        "the pool has enough free pages, and the program did not take them";
    Userfaultfd = "userfaultfd", Change, PAGES,
        "userfaultfd watches this memory, and a large page could fill up pages that its handler waits for";
    CopyOnWrite = "copy-on-write", Change, "hugeleaf: collapse_huge_page (mm/khugepaged.c) would copy it",
        "shared copy-on-write with another process (a forked child): moving it would double it";
    Locked = "locked", Change, ALIGNMENT,
        "mlock of a part cut the mapping here, in the middle of a huge page, which cannot lie in two mappings";
    Pinned = "pinned", Change, PAGES,
        "pinned for device I/O (io_uring registered buffers, RDMA, vfio): pinned pages cannot move";
    CgroupMemory = "cgroup-memory", Change, NEW_PAGE,
        "a cgroup's limit on memory leaves no room for a large page, which counts before the small ones are freed";
    NoContiguous = "no-contiguous", Change, NEW_PAGE,
        "no free block of a huge page's size is left";
    ExclusiveUnknown = "exclusive-unknown", Change, "hugeleaf: /proc/PID/pagemap could not be read",
        "the page map does not tell which pages are the process's own (it could not be read)";
    SmallFolios = "small-folios", Change, "page_cache_ra_order (mm/readahead.c), when it is read",
        "the file was written or read in parts smaller than a huge page, and stays so in the page cache";
    Hugetlb = "hugetlb", Nothing, MAPPING,
        "hugetlb pages: not transparent, so neither promote nor demote reaches them";
    NoThp = "no-thp", Nothing, "CONFIG_TRANSPARENT_HUGEPAGE",
        "this kernel has no transparent huge pages, and private memory has no other way";
    OrdersOff = "smaller-sizes-off", Nothing, FIRST_TOUCH,
        "no whole huge page fits here; a smaller size would fit, and is off on this host";
    OrderAtFault = "smaller-sizes-at-fault", Nothing, FIRST_TOUCH,
        "no whole huge page fits here; a smaller size is on, and given at the first touch only";
    TooSmall = "too-small", Nothing, ALIGNMENT,
        "smaller than a huge page, or the unaligned ends of a mapping";
    Sparse = "sparse", Nothing, "hugeleaf: not worth the memory",
        "fewer than half of the pages are in memory: large pages would cost more than they hold";
    MainStack = "stack", Nothing, "hugeleaf: it comes and goes",
        "the stack of the main thread: promotion leaves it alone, since it grows and shrinks with the program";
    ThreadStack = "thread-stack", Nothing, DISABLED,
        "the stack of a thread: the kernel keeps it off large pages (MAP_STACK, nh in VmFlags), and only the program can undo that";
    Special = "special", Nothing, MAPPING,
        "memory of a device or of the kernel itself, which is mapped as it is";
    Merged = "ksm-merged", Nothing, PAGES,
        "merged with equal pages (KSM), which works on single pages";
    Guarded = "guard-region", Nothing, "__collapse_huge_page_swapin (mm/khugepaged.c)",
        "guard pages (MADV_GUARD_INSTALL) are among these, and a huge page has no hole for them";
    FileStays = "file-stays", Nothing, "hugeleaf: madvise_cold_or_pageout_pte_range (mm/madvise.c) would unmap it",
        "a file: its huge pages are those of the page cache, which no call splits from outside";
    TextUnsupported = "text-unsupported", Nothing, FILE,
        "program text: this kernel collapses none (CONFIG_READ_ONLY_THP_FOR_FS), and no file system here has shown large folios";
    FileMisaligned = "file-misaligned", Nothing, ALIGNMENT,
        "a file mapped at an address that does not agree with its offset";
    NoLargeFolios = "no-large-folios", Nothing, FILE,
        "the page cache of this file is in base pages: no large folios";
    PrivateFile = "private-file", Nothing, "hpage_collapse_scan_file (mm/khugepaged.c): the page cache, not copies of it",
        "private copies of pages of a file (a program's initialised data), which the kernel makes one by one";
}
