//! The settings of the host, and whether they let a range be large by itself.

use hugeleaf_host::{Advised, Fact, Segment, Thp, ThpOrder};
use hugeleaf_units::{Bytes, PageSize, Range};

use crate::ends::ends;

use crate::eligible::{Kind, tmpfs_mount};

use super::{Case, OffSize, Reason};

/// The folder of the THP settings.
pub const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

/// A knob: the setting in force and the file that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    pub path: String,
    /// `None` where it could not be read.
    pub value: Option<String>,
    /// Whether it is the knob of one size alone.
    pub of_size: bool,
}

/// The knob that decides on private anonymous memory at PMD size: that of the size, unless it
/// inherits, then the one for all.
pub fn private_knob(case: &Case<'_>) -> Knob {
    knob(case, "enabled", |o| &o.anon, |t| &t.enabled)
}

/// The knob that decides on shared memory at PMD size.
pub fn shmem_knob(case: &Case<'_>) -> Knob {
    knob(case, "shmem_enabled", |o| &o.shmem, |t| &t.shmem_enabled)
}

fn knob(
    case: &Case<'_>,
    file: &str,
    own: impl Fn(&ThpOrder) -> &Fact<String>,
    top: impl Fn(&Thp) -> &Fact<String>,
) -> Knob {
    let thp = case.host.thp.known();
    let order = thp.and_then(|t| t.orders.iter().find(|o| Some(o.size) == case.pmd));
    if let Some(order) = order
        && let Some(value) = own(order).known().filter(|v| *v != "inherit")
    {
        return Knob {
            path: of_size(order.size, file),
            value: Some(value.clone()),
            of_size: true,
        };
    }
    Knob {
        path: format!("{FOLDER}/{file}"),
        value: thp.and_then(|t| top(t).known().cloned()),
        of_size: false,
    }
}

/// The file of a size's own knob; the kernel names the size in kB of 1024 bytes.
pub fn of_size(size: PageSize, file: &str) -> String {
    format!("{FOLDER}/hugepages-{}kB/{file}", size.bytes().get() / 1024)
}

/// Why private anonymous memory that is all there is not large yet.
pub fn of_private(case: &Case<'_>, segment: &Segment) -> Reason {
    let advised = segment.asked.advised == Advised::Huge;
    match (private_knob(case).value.as_deref(), advised) {
        (None, _) => Reason::Unknown,
        (Some("never"), _) => Reason::ThpNever,
        (Some("madvise"), false) => Reason::NotAdvised,
        _ if segment.thp_eligible == Fact::Known(false) && !advised => Reason::ProcessUnlessAdvised,
        _ => Reason::SmallSteps,
    }
}

/// Why shared memory in the right place that is all there is not large yet.
pub fn of_shared(case: &Case<'_>, segment: &Segment) -> Reason {
    let advised = segment.asked.advised == Advised::Huge;
    if tmpfs_mount(segment).is_some() {
        // Files of a mounted tmpfs go by its own option; where that is not known, THPeligible
        // answers for it.
        return match (segment.mount_huge.as_deref(), segment.thp_eligible.get()) {
            (Some("advise"), _) if !advised => Reason::ShmemNotAdvised,
            (Some("advise" | "within_size" | "always"), _) | (_, Some(true)) => Reason::SmallSteps,
            _ => Reason::ShmemNever,
        };
    }
    let knob = shmem_knob(case);
    match (knob.value.as_deref(), advised) {
        (None, _) => Reason::Unknown,
        (Some("never"), _) => Reason::ShmemNever,
        (Some("advise"), false) => Reason::ShmemNotAdvised,
        _ => Reason::SmallSteps,
    }
}

/// The host-wide shmem knob: where the kernel places memory when it is mapped goes by this one.
pub fn shmem_top<'a>(case: &Case<'a>) -> Option<&'a str> {
    let thp = case.host.thp.known()?;
    thp.shmem_enabled.known().map(String::as_str)
}

/// Whether the kernel now places new shared memory so that large pages fit. Files on a mounted
/// tmpfs go by its mount option.
pub fn shmem_places_well(case: &Case<'_>, segment: &Segment) -> bool {
    let word = match tmpfs_mount(segment) {
        Some(_) if shmem_top(case) != Some("force") => segment.mount_huge.as_deref(),
        _ => shmem_top(case),
    };
    matches!(word, Some("force" | "advise" | "within_size" | "always"))
}

/// A THP size below the PMD's of which whole pages fit into a range.
struct Fitting<'a> {
    order: &'a ThpOrder,
    is_on: bool,
    is_translated_as_one: bool,
}

fn fitting<'a>(case: &Case<'_>, thp: &'a Thp, segment: &Segment, range: Range) -> Vec<Fitting<'a>> {
    let shared = Kind::of(segment) == Kind::Shared;
    if !shared && segment.object != (0, 0, 0) {
        return Vec::new(); // A file: its file system chooses.
    }
    let advised = segment.asked.advised == Advised::Huge;
    let ends = ends(case.host).map(|ends| ends.size);
    let fits = |order: &&ThpOrder| {
        let own = if shared { &order.shmem } else { &order.anon };
        let below = case.pmd.is_none_or(|pmd| order.size < pmd);
        let inside = range.aligned_inside(order.size).is_some();
        below && inside && segment.is_aligned_to(order.size) && !own.is_absent()
    };
    let is_on = |order: &ThpOrder| {
        let in_force = match shared {
            true => order.shmem_in_force(thp),
            false => order.anon_in_force(thp),
        };
        match in_force {
            Some("always" | "within_size" | "force") => true,
            Some("madvise" | "advise") => advised,
            _ => false,
        }
    };
    let orders = thp.orders.iter().filter(fits);
    orders
        .map(|order| Fitting {
            order,
            is_on: is_on(order),
            is_translated_as_one: Some(order.size) == ends,
        })
        .collect()
}

/// The largest THP size below the PMD's that fits the range whole, and whether it is on.
pub fn largest_that_fits(
    case: &Case<'_>,
    thp: &Thp,
    segment: &Segment,
    range: Range,
) -> Option<(PageSize, bool)> {
    // One that is on says more than a larger one that is off, and one that the processor
    // translates as one more than a larger one that it does not.
    let rank = |f: &Fitting<'_>| (f.is_on, f.is_translated_as_one, f.order.size);
    let best = fitting(case, thp, segment, range)
        .into_iter()
        .max_by_key(rank);
    best.map(|f| (f.order.size, f.is_on))
}

/// The sizes that are off and of which whole pages fit into a range, with how many of its `bytes`
/// lie in those.
pub fn off_sizes(case: &Case<'_>, segment: &Segment, range: Range, bytes: Bytes) -> Vec<OffSize> {
    let Some(thp) = case.host.thp.known() else {
        return Vec::new();
    };
    let file = match Kind::of(segment) == Kind::Shared {
        true => "shmem_enabled",
        false => "enabled",
    };
    let sizes = fitting(case, thp, segment, range).into_iter();
    sizes
        .filter(|f| !f.is_on)
        .map(|f| {
            let inside = range.aligned_inside(f.order.size);
            OffSize {
                size: f.order.size,
                knob: of_size(f.order.size, file),
                is_translated_as_one: f.is_translated_as_one,
                bytes: inside.map_or(Bytes::ZERO, |r| bytes.scaled(r.len(), range.len())),
            }
        })
        .collect()
}
