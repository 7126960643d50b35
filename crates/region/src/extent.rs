//! What was asked for and what was got.

use std::fmt;

use hugeleaf_units::{Bytes, PageKind, PageSize, Pages, Range, Rung};

/// A range of memory on pages of one size and kind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Where.
    pub range: Range,
    /// The first rung of the ladder.
    pub asked: Rung,
    /// The size of the pages it is on.
    pub page: PageSize,
    /// Where those pages come from.
    pub kind: PageKind,
    /// How much of it is in memory now; less than all only where the kernel has swapped it out or
    /// taken zeroes back (THP's `shrink_underused`), or another process that shares it has punched
    /// a hole.
    pub resident: Bytes,
    /// Why it is not on what was asked for; `None` where it is, or on larger pages than that.
    pub why: Option<Why>,
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} on {} {}",
            self.range,
            self.range.len(),
            self.page,
            self.kind
        )?;
        match &self.why {
            Some(why) => write!(f, ", asked {}: {why}", self.asked.size),
            None => Ok(()),
        }
    }
}

/// Why memory is not on the first rung of its ladder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// This host has no pages of that size.
    #[error("this host has no pages of {size}")]
    NoSuchSize {
        /// The size.
        size: PageSize,
    },
    /// The rest of a length that is no multiple of the page size.
    #[error("the rest that holds no whole {size} page")]
    Rest {
        /// The page size.
        size: PageSize,
    },
    /// Fewer reserved pages were available than were wanted.
    #[error("got {got} of {wanted} pages of {size} ({limited_by}); {} missing", missing(*.wanted, *.got))]
    PoolShort {
        /// Their size.
        size: PageSize,
        /// How many were wanted.
        wanted: Pages,
        /// How many were got.
        got: Pages,
        /// What limits it: `pool`, `cgroup PATH`, `nodes` (by the policy), `taken meanwhile`.
        limited_by: String,
    },
    /// The kernel found no contiguous memory for a transparent huge page, or none that it could
    /// take.
    #[error("no contiguous {size} of memory was found")]
    NotContiguous {
        /// The page size.
        size: PageSize,
    },
    /// Transparent huge pages are off for this process (prctl PR_SET_THP_DISABLE) or for the host.
    #[error("transparent huge pages are off here")]
    ThpOff,
    /// A knob of this host keeps pages of that size away: its value is `never`.
    #[error("pages of {size} are off ({path})")]
    KnobOff {
        /// The page size.
        size: PageSize,
        /// The knob.
        path: String,
    },
    /// The kernel chooses sizes below a full huge page by itself, and does not tell an ordinary
    /// program which one it chose.
    #[error("the kernel does not say whether it is on {size}")]
    NotTold {
        /// The page size.
        size: PageSize,
    },
    /// It was on a huge page once, and is not any more: a child was forked, or a part of it was
    /// returned or locked.
    #[error("its {size} pages were split since")]
    Split {
        /// The page size.
        size: PageSize,
    },
    /// Another process made it; that one knows.
    #[error("as the process that made it got it")]
    Attached,
}

impl Why {
    /// What would change it: a command, or what to ask for instead.
    pub fn next(&self) -> String {
        match self {
            Why::NoSuchSize { .. } => "hugeleaf status    # the sizes that there are".to_owned(),
            Why::Rest { size } => format!("ask for a multiple of {size}"),
            Why::PoolShort {
                size,
                wanted,
                got,
                limited_by,
            } => more_pages(*wanted, missing(*wanted, *got), *size, limited_by),
            Why::NotContiguous { .. } => {
                "hugeleaf status    # how much free memory is contiguous".to_owned()
            }
            Why::ThpOff => "hugeleaf status    # says which setting it is".to_owned(),
            // The two kinds of knob have two words for the same.
            Why::KnobOff { path, .. } => {
                let word = match path.ends_with("shmem_enabled") {
                    true => "advise",
                    false => "madvise",
                };
                format!("hugeleaf check    # who else wants {path}; {word} is enough here")
            }
            Why::NotTold { .. } => "hugeleaf mem --orders PID    # as root".to_owned(),
            Why::Split { .. } => "hugeleaf promote PID".to_owned(),
            Why::Attached => "ask the process that made it".to_owned(),
        }
    }
}

/// The command that says whether the host can give these pages, and that makes the plan which gives them.
fn more_pages(wanted: Pages, missing: Pages, size: PageSize, limited_by: &str) -> String {
    let wanted = wanted.of(size);
    let rounded = wanted.to_string();
    let bytes = match rounded.parse() == Ok(wanted) {
        true => rounded,
        false => format!("{wanted:#}"),
    };
    let plan = format!("hugeleaf plan --bytes {bytes} --sizes {size}");
    match limited_by {
        "nodes" => format!("{plan} --node N    # a node of the policy"),
        by if by.starts_with("cgroup") => {
            format!("raise the limit of {by} by {}", missing.of(size))
        }
        _ => plan,
    }
}

fn missing(wanted: Pages, got: Pages) -> Pages {
    Pages(wanted.get().saturating_sub(got.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_fits_what_limits() {
        let next = |limited_by: &str| {
            let why = Why::PoolShort {
                size: "2M".parse().unwrap(),
                wanted: Pages(12),
                got: Pages(5),
                limited_by: limited_by.to_owned(),
            };
            why.next()
        };
        let plan = "hugeleaf plan --bytes 24M --sizes 2M";
        assert_eq!(next("pool"), plan);
        assert_eq!(
            next("cgroup /db"),
            "raise the limit of cgroup /db by 14M".to_owned()
        );
        assert!(next("nodes").starts_with(&format!("{plan} --node")));
    }
}
