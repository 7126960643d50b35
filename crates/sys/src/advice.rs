//! The memory advice that hugeleaf gives to the kernel.

/// Advice (madvise(2)). No variant changes the content of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// `MADV_COLLAPSE` (Linux 6.1): copy the range to PMD-sized huge pages now.
    Collapse,
    /// `MADV_COLD` (Linux 5.4): age the range. On a part of a huge page, it splits that page.
    Cold,
    /// `MADV_HUGEPAGE`: allow huge pages at page faults and by khugepaged. Own process only.
    HugePage,
    /// `MADV_NOHUGEPAGE`: forbid huge pages. Own process only.
    NoHugePage,
    /// `MADV_POPULATE_WRITE` (Linux 5.14): fault the range in. Own process only.
    PopulateWrite,
}

impl Advice {
    pub(crate) const fn number(self) -> i32 {
        // Not every libc has MADV_COLLAPSE. The number is the same on all architectures
        // (include/uapi/asm-generic/mman-common.h).
        const MADV_COLLAPSE: i32 = 25;
        const MADV_POPULATE_WRITE: i32 = 23;
        match self {
            Advice::Collapse => MADV_COLLAPSE,
            Advice::Cold => libc::MADV_COLD,
            Advice::HugePage => libc::MADV_HUGEPAGE,
            Advice::NoHugePage => libc::MADV_NOHUGEPAGE,
            Advice::PopulateWrite => MADV_POPULATE_WRITE,
        }
    }

    /// Returns the name of the call for error messages.
    pub const fn call_name(self) -> &'static str {
        match self {
            Advice::Collapse => "process_madvise(MADV_COLLAPSE)",
            Advice::Cold => "process_madvise(MADV_COLD)",
            Advice::HugePage => "madvise(MADV_HUGEPAGE)",
            Advice::NoHugePage => "madvise(MADV_NOHUGEPAGE)",
            Advice::PopulateWrite => "madvise(MADV_POPULATE_WRITE)",
        }
    }
}
