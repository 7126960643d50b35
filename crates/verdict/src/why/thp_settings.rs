//! Judges the host's settings, which decide if a range becomes huge without promotion.

use hugeleaf_host::{Fact, ProcessMapping, Thp, ThpAdvice, ThpMemoryKind, ThpSizeSettings};
use hugeleaf_units::{Bytes, PageSize, Range};

use crate::unaligned_ends::ends;

use crate::eligible::{MappingKind, tmpfs_mount};

use super::{DisabledThpSize, ProcessContext, Reason};
use crate::advice::{Setting, SettingChange};

/// Returns why fully resident private anonymous memory is not huge yet.
pub fn of_private(case: &ProcessContext<'_>, segment: &ProcessMapping) -> Reason {
    let advised = segment.request.advised == ThpAdvice::Huge;
    match (
        case.host.thp_setting(ThpMemoryKind::Private).1.text(),
        advised,
    ) {
        (None, _) => Reason::Unknown,
        (Some("never"), _) => Reason::ThpNever,
        (Some("madvise"), false) => Reason::NotAdvised,
        _ if segment.thp_eligible == Fact::Known(false) && !advised => Reason::ProcessUnlessAdvised,
        _ => Reason::SmallSteps,
    }
}

/// Returns why fully resident, aligned shared memory is not huge yet.
pub fn of_shared(case: &ProcessContext<'_>, segment: &ProcessMapping) -> Reason {
    let advised = segment.request.advised == ThpAdvice::Huge;
    if tmpfs_mount(segment).is_some() {
        // The mount option decides for files of a mounted tmpfs. If it is unknown, THPeligible
        // decides.
        return match (segment.mount_huge.as_deref(), segment.thp_eligible.get()) {
            (Some("advise"), _) if !advised => Reason::ShmemNotAdvised,
            (Some("advise" | "within_size" | "always"), _) | (_, Some(true)) => Reason::SmallSteps,
            _ => Reason::ShmemNever,
        };
    }
    match (
        case.host.thp_setting(ThpMemoryKind::Shared).1.text(),
        advised,
    ) {
        (None, _) => Reason::Unknown,
        (Some("never"), _) => Reason::ShmemNever,
        (Some("advise"), false) => Reason::ShmemNotAdvised,
        _ => Reason::SmallSteps,
    }
}

/// Returns the host-wide shmem setting, which decides the placement of new mappings.
pub fn shmem_top<'a>(case: &ProcessContext<'a>) -> Option<&'a str> {
    let thp = case.host.thp.known()?;
    thp.shmem_enabled.text()
}

/// True if the kernel aligns new shared memory so that huge pages fit. For files on a mounted
/// tmpfs, the mount option decides.
pub fn shmem_places_well(case: &ProcessContext<'_>, segment: &ProcessMapping) -> bool {
    let word = match tmpfs_mount(segment) {
        Some(_) if shmem_top(case) != Some("force") => segment.mount_huge.as_deref(),
        _ => shmem_top(case),
    };
    matches!(word, Some("force" | "advise" | "within_size" | "always"))
}

/// A THP size below the PMD size whose whole pages fit into a range.
struct FittingThpSize<'a> {
    order: &'a ThpSizeSettings,
    is_on: bool,
    is_translated_as_one: bool,
}

fn thp_use(segment: &ProcessMapping) -> ThpMemoryKind {
    match MappingKind::from_segment(segment) {
        MappingKind::Shared => ThpMemoryKind::Shared,
        _ => ThpMemoryKind::Private,
    }
}

fn fitting<'a>(
    case: &ProcessContext<'_>,
    thp: &'a Thp,
    segment: &ProcessMapping,
    range: Range,
) -> Vec<FittingThpSize<'a>> {
    let of = thp_use(segment);
    if of == ThpMemoryKind::Private && segment.object != (0, 0, 0) {
        return Vec::new(); // A file: the file system decides.
    }
    let advised = segment.request.advised == ThpAdvice::Huge;
    let ends = ends(case.host).map(|ends| ends.size);
    let fits = |order: &&ThpSizeSettings| {
        let below = case.pmd.is_none_or(|pmd| order.size < pmd);
        let inside = range.aligned_inside(order.size).is_some();
        below && inside && segment.is_aligned_to(order.size) && !order.own_setting(of).is_absent()
    };
    let is_on = |order: &ThpSizeSettings| match order.effective(thp, of) {
        Some("always" | "within_size" | "force") => true,
        Some("madvise" | "advise") => advised,
        _ => false,
    };
    let orders = thp.orders.iter().filter(fits);
    orders
        .map(|order| FittingThpSize {
            order,
            is_on: is_on(order),
            is_translated_as_one: Some(order.size) == ends,
        })
        .collect()
}

/// Returns the largest THP size below the PMD size that fits into the range, and true if it is on.
pub fn largest_that_fits(
    case: &ProcessContext<'_>,
    thp: &Thp,
    segment: &ProcessMapping,
    range: Range,
) -> Option<(PageSize, bool)> {
    // An enabled size ranks above a larger disabled one. A size that the processor translates with
    // one entry ranks above a larger one without.
    let rank = |f: &FittingThpSize<'_>| (f.is_on, f.is_translated_as_one, f.order.size);
    let best = fitting(case, thp, segment, range)
        .into_iter()
        .max_by_key(rank);
    best.map(|f| (f.order.size, f.is_on))
}

/// Returns the disabled sizes whose whole pages fit into a range, each with the share of `bytes` in
/// those pages.
pub fn off_sizes(
    case: &ProcessContext<'_>,
    segment: &ProcessMapping,
    range: Range,
    bytes: Bytes,
) -> Vec<DisabledThpSize> {
    let Some(thp) = case.host.thp.known() else {
        return Vec::new();
    };
    let sizes = fitting(case, thp, segment, range).into_iter();
    sizes
        .filter(|f| !f.is_on)
        .map(|f| {
            let inside = range.aligned_inside(f.order.size);
            DisabledThpSize {
                size: f.order.size,
                turn_on: SettingChange::new(
                    Setting::file(f.order.file(thp_use(segment))),
                    "always",
                )
                .next(case.host),
                knob: f.order.file(thp_use(segment)),
                is_translated_as_one: f.is_translated_as_one,
                bytes: inside.map_or(Bytes::ZERO, |r| bytes.scaled(r.len(), range.len())),
            }
        })
        .collect()
}
