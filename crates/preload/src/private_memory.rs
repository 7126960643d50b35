//! Private memory for allocators: from hugetlb pages, from a window, or as a separate mapping that is
//! advised if its kind is used completely.

use crate::state::{growing, is_inactive, round_up, settings};
use crate::syscalls::{self, Advice, failed};
use crate::{density, mandatory, mapping_window, private_hugetlb, process_size_threshold};

#[inline(always)]
pub fn map(length: usize, own: impl Fn() -> isize) -> isize {
    process_size_threshold::note(length);
    let settings = settings();
    if !growing() {
        let is_recorded = density::is_watching() || length >= settings.data_after;
        return if is_recorded && !is_inactive() {
            judged(own(), density::kind_of(length), length)
        } else {
            own()
        };
    }
    let Some(length) = round_up(length, settings.base).filter(|length| *length != 0) else {
        return own();
    };
    if let Some(at) = private_hugetlb::allocate(length) {
        return at as isize;
    }
    let kind = density::kind_of(length);
    if process_size_threshold::windows() && settings.data.thp {
        let large = process_size_threshold::use_huge(kind, length);
        if let Some(at) = mapping_window::allocate(kind, large, length) {
            density::record(kind, at, length, large);
            return at as isize;
        }
        if settings.data.mandatory {
            return mandatory::plain(length);
        }
    }
    // Only hugetlb pages are acceptable, and those belong to the heap. Malloc falls back to mappings
    // of 1M if the heap cannot grow.
    if settings.data.mandatory && !settings.data.thp {
        if length >= settings.data.pools[0] / 2 {
            return mandatory::refused(mandatory::MemoryRole::Data);
        }
        mandatory::small(length);
    }
    judged(own(), kind, length)
}

/// Advises a mapping if its kind is used completely, and records it.
pub fn judged(at: isize, kind: usize, length: usize) -> isize {
    if failed(at) {
        return at;
    }
    let large = length >= settings().pmd && process_size_threshold::use_huge(kind, length);
    density::record(kind, at as usize, length, large);
    if large && settings().touch {
        syscalls::advise(at as usize, length, Advice::HugePage);
    }
    at
}
