//! The pool that a program requests, and the settings for that. `why`, `plan` and `verify` share this logic.

use hugeleaf_host::Host;
use hugeleaf_units::PageSize;

/// A program that can place shared memory in a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolProgram {
    /// The prefix of its process names.
    begins: &'static str,
    /// The setting that enables hugetlb pages.
    pub on: &'static str,
    /// The setting that disables hugetlb pages.
    pub off: &'static str,
    size: PoolPageSizeRule,
}

#[derive(Debug, Clone, Copy)]
enum PoolPageSizeRule {
    /// The kernel's default size, regardless of the pools.
    Default,
    /// The default size, unless its configuration names another.
    Named(fn(PageSize) -> String),
    /// The largest size that has pages and fits.
    Any,
}

const fn program(
    begins: &'static str,
    on: &'static str,
    off: &'static str,
    size: PoolPageSizeRule,
) -> PoolProgram {
    PoolProgram {
        begins,
        on,
        off,
        size,
    }
}

const POSTGRES: PoolPageSizeRule =
    PoolPageSizeRule::Named(|size| format!("huge_page_size = {size}B").replace("KB", "kB"));
const JAVA: PoolPageSizeRule =
    PoolPageSizeRule::Named(|size| format!("-XX:LargePageSizeInBytes={size}"));
const ORACLE_ON: &str = "use_large_pages = only";
const ORACLE_OFF: &str = "use_large_pages = false";

const ALL: [PoolProgram; 7] = [
    program("postgres", "huge_pages = on", "huge_pages = off", POSTGRES),
    program(
        "mysqld",
        "large-pages",
        "skip-large-pages",
        PoolPageSizeRule::Default,
    ),
    program(
        "mariadbd",
        "large-pages",
        "skip-large-pages",
        PoolPageSizeRule::Any,
    ),
    program("java", "-XX:+UseLargePages", "-XX:-UseLargePages", JAVA),
    program("oracle", ORACLE_ON, ORACLE_OFF, PoolPageSizeRule::Any),
    program("ora_", ORACLE_ON, ORACLE_OFF, PoolPageSizeRule::Any),
    program(
        "db2sysc",
        "DB2_LARGE_PAGE_MEM=DB",
        "DB2_LARGE_PAGE_MEM=",
        PoolPageSizeRule::Default,
    ),
];

impl PoolProgram {
    /// Returns the program of a process name.
    pub fn of(name: &str) -> Option<PoolProgram> {
        ALL.into_iter()
            .find(|program| name.starts_with(program.begins))
    }

    /// Returns the setting that makes it request pages of a non-default size.
    pub fn size_setting(&self, size: PageSize) -> Option<String> {
        match self.size {
            PoolPageSizeRule::Named(setting) => Some(setting(size)),
            PoolPageSizeRule::Default | PoolPageSizeRule::Any => None,
        }
    }

    pub fn takes_any_size(&self) -> bool {
        matches!(self.size, PoolPageSizeRule::Any)
    }
}

/// Returns the page size that a program requests: the configured one, or the kernel's default. A program without a
/// configured size uses the default, and pages of other sizes stay idle.
pub fn requested_page_size(host: &Host, named: Option<PageSize>) -> Option<PageSize> {
    let has = |size: &PageSize| host.pool(*size).is_some();
    let default = host.memory.default_hugetlb_page.get().filter(has);
    let smallest = || host.totals().map(|pool| pool.size).min();
    named.or(default).or_else(smallest)
}
