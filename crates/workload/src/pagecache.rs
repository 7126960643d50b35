//! SQLite's page cache in one mapping of ours.
#![allow(unsafe_code)]
//! # Safety
//! `sqlite3_config` is variadic and must run before SQLite initialises itself. The memory it is
//! given here is never unmapped: [`PageCache`] is leaked once SQLite has it.

use std::ffi::c_int;

use hugeleaf_sys::{Advice, Errno, Mapping, Placement, Sharing, name_own};
use hugeleaf_units::{Bytes, PageSize, Range};
use rusqlite::ffi;

use crate::OltpError;
use crate::protocol::{Progress, Stage};

/// What SQLite keeps in one page of a database by default; not a page size of the host.
pub(crate) const DATABASE_PAGE: Bytes = Bytes(4096);

/// How much is populated between two words on progress.
const POPULATE_STEP: Bytes = Bytes::from_mib(16);

/// The mapping that holds every page of this process's SQLite databases.
#[derive(Debug)]
pub(crate) struct PageCache {
    segment: Range,
    slots: u64,
    slot: Bytes,
}

impl PageCache {
    /// Maps `size` bytes, rounded down to whole pages of `align`, populates them on base pages
    /// and gives them to SQLite for the rest of this process's life. Works once per process and
    /// only before SQLite is first used.
    ///
    /// # Errors
    /// [`OltpError::PageCache`] where SQLite is initialised already; those of mmap(2).
    pub(crate) fn install(
        size: Bytes,
        align: PageSize,
        base: PageSize,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PageCache, OltpError> {
        let size = Bytes(align.round_down(size.get()));
        let place = Placement::Past(align, Bytes::ZERO);
        let mapping = Mapping::placed(size, Sharing::Private, place)?;
        let segment = mapping.range();
        // Optional: few kernels are built with it.
        let _ = name_own(segment, c"hugeleaf oltp page cache");
        populate(&mapping, base, progress)?;
        let cache = configure(segment)?;
        // SQLite keeps pages in it until the process ends.
        std::mem::forget(mapping);
        Ok(cache)
    }

    /// Where it is.
    pub(crate) const fn segment(&self) -> Range {
        self.segment
    }

    /// The pages it has room for.
    pub(crate) const fn slots(&self) -> u64 {
        self.slots
    }

    /// What a page takes up, with SQLite's header.
    pub(crate) const fn slot(&self) -> Bytes {
        self.slot
    }

    /// The pages in use now.
    pub(crate) fn used(&self) -> u64 {
        status(ffi::SQLITE_STATUS_PAGECACHE_USED)
    }

    /// Bytes of page memory that did not fit and came from malloc.
    pub(crate) fn outside(&self) -> Bytes {
        Bytes(status(ffi::SQLITE_STATUS_PAGECACHE_OVERFLOW))
    }
}

/// Makes every page resident, on base pages also where the host would give huge ones: the
/// experiment begins with what an untuned server has.
fn populate(
    mapping: &Mapping,
    base: PageSize,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), OltpError> {
    let segment = mapping.range();
    let step = PageSize::new(POPULATE_STEP).unwrap_or(base);
    // Where the kernel has no transparent huge pages there is nothing to switch off.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let mut done = Ok(());
    for piece in segment.chunks(step) {
        done = match mapping.advise(piece, Advice::PopulateWrite) {
            // Linux before 5.14.
            Err(e) if e.errno == Errno::INVAL => mapping.touch(base.bytes()),
            other => other,
        };
        if done.is_err() {
            break;
        }
        progress(Progress {
            stage: Stage::Populate,
            done: piece.end() - segment.start(),
            total: segment.len().get(),
        });
    }
    // Off, not "as before": the flag would also forbid the promotion this memory is here for.
    let _ = rustix::thread::disable_transparent_huge_pages(false);
    Ok(done?)
}

/// Hands the segment to SQLite.
fn configure(segment: Range) -> Result<PageCache, OltpError> {
    let mut header: c_int = 0;
    // SAFETY: this option takes one pointer to an int, which it fills in.
    check(unsafe {
        ffi::sqlite3_config(
            ffi::SQLITE_CONFIG_PCACHE_HDRSZ,
            std::ptr::from_mut(&mut header),
        )
    })?;
    let header = u64::try_from(header).map_err(|_| OltpError::PageCache(header))?;
    let slot = Bytes((DATABASE_PAGE.get() + header).next_multiple_of(8));
    let slots = segment.len().get() / slot.get();
    let too_large = |_| OltpError::PageCache(ffi::SQLITE_TOOBIG);
    let (slot_int, slots_int) = (
        c_int::try_from(slot.get()).map_err(too_large)?,
        c_int::try_from(slots).map_err(too_large)?,
    );
    // One thread uses SQLite, so neither connections nor the allocator's statistics need locks.
    // SAFETY: this option takes nothing; the next takes an int.
    check(unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MULTITHREAD) })?;
    // SAFETY: as above.
    check(unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MEMSTATUS, 0 as c_int) })?;
    // SAFETY: the segment is writable, 8-byte aligned, holds slots × slot bytes, and is never
    // unmapped nor used for anything else, as SQLITE_CONFIG_PAGECACHE asks.
    check(unsafe {
        ffi::sqlite3_config(
            ffi::SQLITE_CONFIG_PAGECACHE,
            segment.start() as *mut std::ffi::c_void,
            slot_int,
            slots_int,
        )
    })?;
    Ok(PageCache {
        segment,
        slots,
        slot,
    })
}

fn check(result: c_int) -> Result<(), OltpError> {
    match result {
        ffi::SQLITE_OK => Ok(()),
        other => Err(OltpError::PageCache(other)),
    }
}

fn status(what: c_int) -> u64 {
    let (mut now, mut high) = (0i64, 0i64);
    // SAFETY: both pointers are to integers of the type the function fills in.
    let result = unsafe { ffi::sqlite3_status64(what, &raw mut now, &raw mut high, 0) };
    match result {
        ffi::SQLITE_OK => u64::try_from(now).unwrap_or(0),
        _ => 0,
    }
}
