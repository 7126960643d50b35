//! The pool that a program asks for pages, and the settings for that. One reading for `why`, `plan` and `verify`.

use hugeleaf_host::Host;
use hugeleaf_units::PageSize;

/// A program that can take shared memory from a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking {
    /// The beginning of its processes' names.
    begins: &'static str,
    /// The setting that makes it ask.
    pub on: &'static str,
    /// The setting by which it does not.
    pub off: &'static str,
    size: Size,
}

#[derive(Debug, Clone, Copy)]
enum Size {
    /// The kernel's default size, whatever pools there are.
    Default,
    /// The same, unless its configuration names another.
    Named(fn(PageSize) -> String),
    /// It looks for the largest that has pages and fits.
    Any,
}

const fn program(begins: &'static str, on: &'static str, off: &'static str, size: Size) -> Asking {
    Asking {
        begins,
        on,
        off,
        size,
    }
}

const POSTGRES: Size = Size::Named(|size| format!("huge_page_size = {size}B").replace("KB", "kB"));
const JAVA: Size = Size::Named(|size| format!("-XX:LargePageSizeInBytes={size}"));

const ALL: [Asking; 7] = [
    program("postgres", "huge_pages = on", "huge_pages = off", POSTGRES),
    program("mysqld", "large-pages", "skip-large-pages", Size::Default),
    program("mariadbd", "large-pages", "skip-large-pages", Size::Any),
    program("java", "-XX:+UseLargePages", "-XX:-UseLargePages", JAVA),
    program(
        "oracle",
        "use_large_pages = only",
        "use_large_pages = false",
        Size::Any,
    ),
    program(
        "ora_",
        "use_large_pages = only",
        "use_large_pages = false",
        Size::Any,
    ),
    program(
        "db2sysc",
        "DB2_LARGE_PAGE_MEM=DB",
        "DB2_LARGE_PAGE_MEM=",
        Size::Default,
    ),
];

impl Asking {
    /// The program of a process of this name.
    pub fn of(name: &str) -> Option<Asking> {
        ALL.into_iter()
            .find(|program| name.starts_with(program.begins))
    }

    /// The setting by which it asks for pages of a size that is not the default one.
    pub fn size_setting(&self, size: PageSize) -> Option<String> {
        match self.size {
            Size::Named(setting) => Some(setting(size)),
            Size::Default | Size::Any => None,
        }
    }

    pub fn takes_any_size(&self) -> bool {
        matches!(self.size, Size::Any)
    }
}

/// The size of the pages that a program asks for: that which its configuration names, and the kernel's default one where
/// it names none. A program that is given no size takes that, and pages of another size stand idle.
pub(crate) fn page(host: &Host, named: Option<PageSize>) -> Option<PageSize> {
    let has = |size: &PageSize| host.pool(*size).is_some();
    let default = host.memory.default_hugetlb_page.get().filter(has);
    let smallest = || host.totals().map(|pool| pool.size).min();
    named.or(default).or_else(smallest)
}
