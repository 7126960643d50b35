//! The reasons: one id each.

/// What can be done about a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// `hugeleaf promote` takes it as it is.
    Promote,
    /// `hugeleaf promote --min-resident` takes it, and memory grows.
    PromoteAndGrow,
    /// Something must change first: a knob, the program, or what else uses the memory.
    Change,
    /// Nothing can be done from outside, or it is not worth doing.
    Nothing,
}

impl Remedy {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Remedy::Promote => "promote",
            Remedy::PromoteAndGrow => "promote-and-grow",
            Remedy::Change => "change",
            Remedy::Nothing => "nothing",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $way:ident;)*) => {
        /// What keeps memory from a larger page.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// Every one of them.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// Its id on screens and in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Reason::$name => $id,)*
                }
            }

            /// What can be done about it.
            pub const fn remedy(self) -> Remedy {
                match self {
                    $(Reason::$name => Remedy::$way,)*
                }
            }
        }
    };
}

reasons! {
    /// The host's THP is `never`.
    ThpNever = "thp-never", Promote;
    /// The host's THP is `madvise`, and the program did not advise.
    NotAdvised = "not-advised", Promote;
    /// The process asked for THP in advised memory only (PR_THP_DISABLE_EXCEPT_ADVISED).
    ProcessUnlessAdvised = "process-unless-advised", Promote;
    /// THP is on; the memory grew in steps smaller than a large page and khugepaged has not come.
    SmallSteps = "small-steps", Promote;
    /// Shared memory, in the right place, and the host's shmem knob is `never`.
    ShmemNever = "shmem-never", Promote;
    /// Shared memory, in the right place; the knob is `advise` and the program did not.
    ShmemNotAdvised = "shmem-not-advised", Promote;
    /// Text that this kernel would collapse.
    TextNotCollapsed = "text-not-collapsed", Promote;
    /// Another file that this kernel would collapse.
    FileNotCollapsed = "file-not-collapsed", Promote;
    /// A setting could not be read.
    Unknown = "unknown", Promote;
    /// Some pages are missing, most are there.
    PartlyResident = "partly-resident", PromoteAndGrow;
    /// Some pages are in swap.
    Swapped = "swapped", PromoteAndGrow;
    /// Shared memory that this process has touched in part only.
    PartlyMapped = "partly-mapped", PromoteAndGrow;
    /// The process switched THP off for itself.
    ProcessDisabled = "process-disabled", Change;
    /// The program said MADV_NOHUGEPAGE.
    NoHugeAdvised = "no-huge-advised", Change;
    /// Address and offset differ modulo the large page.
    Misaligned = "misaligned", Change;
    /// The shmem knob of the size itself is off, which MADV_COLLAPSE does go by.
    ShmemSizeOff = "shmem-size-off", Change;
    /// The shmem knob is `deny`.
    ShmemDeny = "shmem-deny", Change;
    /// SHM_HUGETLB is for a group that the process is not in.
    ShmGroup = "hugetlb-shm-group", Change;
    /// SHM_HUGETLB is accounted to the memlock limit, and that is too low.
    Memlock = "memlock", Change;
    /// A cgroup limits hugetlb reservations.
    CgroupReservation = "cgroup-reservation", Change;
    /// The pool has too few free pages.
    PoolShort = "pool-short", Change;
    /// A cgroup limits hugetlb faults: SIGBUS.
    CgroupFault = "cgroup-fault", Change;
    /// The pool has enough, and the program did not take from it.
    PoolUnused = "pool-unused", Change;
    /// userfaultfd watches the range.
    Userfaultfd = "userfaultfd", Change;
    /// Pages are shared copy-on-write with another process.
    CopyOnWrite = "copy-on-write", Change;
    /// mlock of a piece cut the mapping in the middle of a large page.
    Locked = "locked", Change;
    /// Pages are pinned for device I/O.
    Pinned = "pinned", Change;
    /// A cgroup's limit on memory leaves no room for a large page.
    CgroupMemory = "cgroup-memory", Change;
    /// No free block is large enough.
    NoContiguous = "no-contiguous", Change;
    /// The kernel has no THP, and private memory has no other way.
    NoThp = "no-thp", Nothing;
    /// A smaller THP size would fit, and is off.
    OrdersOff = "smaller-sizes-off", Nothing;
    /// A smaller THP size fits and is on: it is given at first touch only.
    OrderAtFault = "smaller-sizes-at-fault", Nothing;
    /// It holds no whole large page.
    TooSmall = "too-small", Nothing;
    /// Fewer than half of the pages are there.
    Sparse = "sparse", Nothing;
    /// The stack of the main thread, which `promote` leaves alone.
    MainStack = "stack", Nothing;
    /// The stack of a thread, which the kernel excludes.
    ThreadStack = "thread-stack", Nothing;
    /// A mapping of a device or of the kernel's own pages.
    Special = "special", Nothing;
    /// KSM merged equal pages.
    Merged = "ksm-merged", Nothing;
    /// Program text, and neither kernel nor file system offer large pages for it.
    TextUnsupported = "text-unsupported", Nothing;
    /// A file mapped where its offset does not fit the address.
    FileMisaligned = "file-misaligned", Nothing;
    /// The file system has no large folios.
    NoLargeFolios = "no-large-folios", Nothing;
    /// The file system has large folios; these pages were read in smaller pieces.
    SmallFolios = "small-folios", Nothing;
    /// Private copies of pages of a file.
    PrivateFile = "private-file", Nothing;
}
