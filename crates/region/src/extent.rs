//! The result of a memory request, extent by extent.

use std::fmt;

use hugeleaf_units::{Bytes, PageKind, PageSize, Pages, Range, Rung};

/// A range of memory on pages of one size and kind.
///
/// ```
/// use hugeleaf::{Bytes, Region, RegionOptions};
///
/// let region = Region::new(&RegionOptions::new(Bytes::from_mib(4), "2M".parse()?))?;
/// for extent in region.extents()? {
///     println!("{} on {} {} pages", extent.range.len(), extent.page, extent.kind);
///     if extent.resident < extent.range.len() {
///         println!("  {} resident", extent.resident);
///     }
///     if let Some(why) = extent.why {
///         println!("  {} requested: {why}\n  next: {}", extent.requested.size, why.next());
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Address range.
    pub range: Range,
    /// The first rung of the ladder.
    pub requested: Rung,
    /// Size of the pages.
    pub page: PageSize,
    /// Source of the pages.
    pub kind: PageKind,
    /// Resident memory. Less than the whole range only if the kernel swapped part of it out or
    /// reclaimed zero pages (THP's `shrink_underused`), or another process punched a hole in it.
    pub resident: Bytes,
    /// Reason for smaller pages than requested; `None` if they are as requested or larger.
    pub why: Option<FallbackReason>,
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
            Some(why) => write!(f, ", requested {}: {why}", self.requested.size),
            None => Ok(()),
        }
    }
}

/// Reason why memory is not on the first rung of its ladder.
///
/// ```
/// use hugeleaf::{Pages, FallbackReason};
///
/// // An extent, or a MemoryError::Short, has such a reason.
/// let why = FallbackReason::PoolShort {
///     size: "2M".parse()?,
///     wanted: Pages(12),
///     got: Pages(7),
///     limited_by: "pool".into(),
/// };
/// assert_eq!(why.to_string(), "got 7 of 12 pages of 2M (pool); 5 missing");
/// assert_eq!(why.next(), "hugeleaf plan --bytes 24M --sizes 2M");
/// # Ok::<(), hugeleaf::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FallbackReason {
    /// This host has no pages of that size.
    #[error("this host has no pages of {size}")]
    NoSuchSize {
        /// The size.
        size: PageSize,
    },
    /// The rest of a length that is no multiple of the page size.
    #[error("the rest is smaller than a {size} page")]
    Remainder {
        /// The page size.
        size: PageSize,
    },
    /// The pool provided fewer pages than requested.
    #[error("got {got} of {wanted} pages of {size} ({limited_by}); {} missing", missing(*.wanted, *.got))]
    PoolShort {
        /// Page size.
        size: PageSize,
        /// Number of pages requested.
        wanted: Pages,
        /// Number of pages obtained.
        got: Pages,
        /// Limit that applies: `pool`, `cgroup PATH`, `nodes` (the policy), `taken meanwhile`.
        limited_by: String,
    },
    /// The kernel found no contiguous memory for a transparent huge page, or none that it could
    /// use.
    #[error("no contiguous {size} of memory was found")]
    NotContiguous {
        /// The page size.
        size: PageSize,
    },
    /// Transparent huge pages are off for this process (prctl PR_SET_THP_DISABLE) or for the host.
    #[error("transparent huge pages are off for the process or the host")]
    ThpOff,
    /// A knob of this host disables pages of that size: its value is `never`.
    #[error("pages of {size} are off ({path})")]
    KnobOff {
        /// The page size.
        size: PageSize,
        /// The knob.
        path: String,
    },
    /// The kernel chooses THP sizes below the PMD size itself. It does not tell an unprivileged
    /// process which size it chose.
    #[error("the kernel does not report whether it is on {size} pages")]
    NotReported {
        /// The page size.
        size: PageSize,
    },
    /// A huge page was split later: a child was forked, or a part of the page was returned or
    /// locked.
    #[error("its {size} pages were split later")]
    Split {
        /// The page size.
        size: PageSize,
    },
    /// Another process made the region and knows the reason.
    #[error("attached; the process that created it has the reason")]
    Attached,
}

impl FallbackReason {
    /// Returns the remedy: a command, or a different request.
    pub fn next(&self) -> String {
        match self {
            FallbackReason::NoSuchSize { .. } => {
                "hugeleaf status    # lists the page sizes".to_owned()
            }
            FallbackReason::Remainder { size } => format!("request a multiple of {size}"),
            FallbackReason::PoolShort {
                size,
                wanted,
                got,
                limited_by,
            } => more_pages(*wanted, missing(*wanted, *got), *size, limited_by),
            FallbackReason::NotContiguous { .. } => {
                "hugeleaf status    # shows contiguous free memory".to_owned()
            }
            FallbackReason::ThpOff => "hugeleaf status    # names the setting".to_owned(),
            // The two kinds of knob use different words for the same value.
            FallbackReason::KnobOff { path, .. } => {
                let word = match path.ends_with("shmem_enabled") {
                    true => "advise",
                    false => "madvise",
                };
                format!("hugeleaf check    # other users of {path}; {word} suffices here")
            }
            FallbackReason::NotReported { .. } => {
                "hugeleaf mem --orders PID    # as root".to_owned()
            }
            FallbackReason::Split { .. } => "hugeleaf promote PID".to_owned(),
            FallbackReason::Attached => "ask the process that created it".to_owned(),
        }
    }
}

/// Returns the command that plans these pages, or the limit to raise.
fn more_pages(wanted: Pages, missing: Pages, size: PageSize, limited_by: &str) -> String {
    let wanted = wanted.in_bytes(size);
    let rounded = wanted.to_string();
    let bytes = match rounded.parse() == Ok(wanted) {
        true => rounded,
        false => format!("{wanted:#}"),
    };
    let plan = format!("hugeleaf plan --bytes {bytes} --sizes {size}");
    match limited_by {
        "nodes" => format!("{plan} --node N    # a node of the policy"),
        by if by.starts_with("cgroup") => {
            format!("raise the limit of {by} by {}", missing.in_bytes(size))
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
            let why = FallbackReason::PoolShort {
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
