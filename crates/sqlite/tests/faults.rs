//! A device that is full, fails, or writes only a part, at each write in turn. The transaction fails, and the database
//! keeps its previous state and continues to work.
#![allow(unsafe_code)]
//! # Safety
//! A VFS is placed before the default one (`sqlite3_vfs`). A file's methods get the file for which they were
//! registered; the default VFS's file follows it in memory.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use hugeleaf::Bytes;
use libsqlite3_sys as sqlite;
use rusqlite::{Connection, OpenFlags};

/// Number of writes that still succeed; negative for all.
static LEFT: AtomicI64 = AtomicI64::new(-1);
static KIND: AtomicU8 = AtomicU8::new(0);

/// A file, followed by the file of the default VFS.
#[repr(C)]
struct File {
    methods: *const sqlite::sqlite3_io_methods,
    below: *mut sqlite::sqlite3_file,
    own: sqlite::sqlite3_io_methods,
}

unsafe fn below(file: *mut sqlite::sqlite3_file) -> *mut sqlite::sqlite3_file {
    // SAFETY: SQLite passes a file that `open` set up.
    unsafe { (*file.cast::<File>()).below }
}

unsafe fn of(file: *mut sqlite::sqlite3_file) -> &'static sqlite::sqlite3_io_methods {
    // SAFETY: as above; the default VFS's methods live as long as it.
    unsafe { &*(*below(file)).pMethods }
}

macro_rules! pass {
    ($($name:ident as $field:ident ($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        unsafe extern "C" fn $name(file: *mut sqlite::sqlite3_file $(, $argument: $type)*) -> $answer {
            // SAFETY: SQLite's arguments are passed on, with the file to which they belong.
            unsafe { of(file).$field.unwrap()(below(file) $(, $argument)*) }
        }
    )*};
}

pass! {
    close as xClose() -> c_int;
    read as xRead(to: *mut c_void, count: c_int, at: i64) -> c_int;
    truncate as xTruncate(size: i64) -> c_int;
    size as xFileSize(size: *mut i64) -> c_int;
    lock as xLock(kind: c_int) -> c_int;
    unlock as xUnlock(kind: c_int) -> c_int;
    reserved as xCheckReservedLock(is: *mut c_int) -> c_int;
    control as xFileControl(what: c_int, with: *mut c_void) -> c_int;
    sector as xSectorSize() -> c_int;
    device as xDeviceCharacteristics() -> c_int;
    shm_map as xShmMap(part: c_int, size: c_int, extend: c_int, got: *mut *mut c_void) -> c_int;
    shm_lock as xShmLock(at: c_int, count: c_int, flags: c_int) -> c_int;
    shm_barrier as xShmBarrier() -> ();
    shm_unmap as xShmUnmap(delete: c_int) -> c_int;
}

/// Returns true if this write fails.
fn fails() -> bool {
    let left = |left: i64| (left >= 0).then(|| left - 1);
    // 0 is the last that succeeds; from then on all fail, as on a full device.
    match LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
        left(n).filter(|n| *n >= 0)
    }) {
        Ok(_) => false,
        Err(now) => now >= 0,
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite::sqlite3_file,
    from: *const c_void,
    count: c_int,
    at: i64,
) -> c_int {
    // SAFETY: SQLite's arguments are passed on, with all of the data or its first part.
    unsafe {
        let write = of(file).xWrite.unwrap();
        if !fails() {
            return write(below(file), from, count, at);
        }
        match KIND.load(Ordering::Relaxed) {
            0 => sqlite::SQLITE_FULL,
            1 => sqlite::SQLITE_IOERR_WRITE,
            _ => {
                // A part is written.
                write(below(file), from, count / 2, at);
                sqlite::SQLITE_FULL
            }
        }
    }
}

unsafe extern "C" fn sync(file: *mut sqlite::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite's arguments are passed on.
    unsafe {
        match fails() {
            true => sqlite::SQLITE_IOERR_FSYNC,
            false => of(file).xSync.unwrap()(below(file), flags),
        }
    }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite::sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite::sqlite3_file,
    flags: c_int,
    got: *mut c_int,
) -> c_int {
    // SAFETY: SQLite provides `szOsFile` bytes: this file, followed by the default one.
    unsafe {
        let default = (*vfs).pAppData.cast::<sqlite::sqlite3_vfs>();
        let ours = file.cast::<File>();
        let theirs = file
            .cast::<u8>()
            .add(size_of::<File>())
            .cast::<sqlite::sqlite3_file>();
        (*ours).methods = null();
        let opened = (*default).xOpen.unwrap()(default, name, theirs, flags, got);
        if (*theirs).pMethods.is_null() {
            return opened;
        }
        let mut own = *(*theirs).pMethods;
        own.iVersion = own.iVersion.min(2);
        own.xClose = Some(close);
        own.xRead = Some(read);
        own.xWrite = Some(write);
        own.xSync = Some(sync);
        own.xTruncate = Some(truncate);
        own.xFileSize = Some(size);
        own.xLock = Some(lock);
        own.xUnlock = Some(unlock);
        own.xCheckReservedLock = Some(reserved);
        own.xFileControl = Some(control);
        own.xSectorSize = Some(sector);
        own.xDeviceCharacteristics = Some(device);
        own.xShmMap = Some(shm_map);
        own.xShmLock = Some(shm_lock);
        own.xShmBarrier = Some(shm_barrier);
        own.xShmUnmap = Some(shm_unmap);
        (*ours).own = own;
        (*ours).below = theirs;
        (*ours).methods = &raw const (*ours).own;
        opened
    }
}

/// Registers a VFS of the name "failing" before the default one.
fn register() {
    // SAFETY: the default VFS exists, and the copy is never freed.
    unsafe {
        let default = sqlite::sqlite3_vfs_find(null());
        let mut vfs = *default;
        vfs.szOsFile += c_int::try_from(size_of::<File>()).unwrap();
        vfs.zName = c"failing".as_ptr();
        vfs.pNext = null_mut();
        vfs.xOpen = Some(open);
        vfs.pAppData = default.cast();
        let vfs = Box::leak(Box::new(vfs));
        assert_eq!(sqlite::sqlite3_vfs_register(vfs, 0), sqlite::SQLITE_OK);
    }
}

/// Changes more pages than the cache has; the sum identifies the result.
fn change(connection: &Connection, round: i64) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "BEGIN; UPDATE t SET n = {round}, text = substr(text, 1, 390) || {round}; DELETE FROM t WHERE id % 97 = {};
         INSERT OR IGNORE INTO t SELECT id + 1, text, {round} FROM t WHERE id % 50 = 7; COMMIT",
        round % 97
    ))
}

fn state(connection: &Connection) -> (i64, i64, i64) {
    let sums = "SELECT count(*), sum(n), sum(length(text)) FROM t";
    connection
        .query_row(sums, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
}

#[test]
fn a_write_that_fails_changes_nothing() {
    if !hugeleaf_testkit::in_own_process("faults::a_write_that_fails_changes_nothing") {
        return;
    }
    crate::support::cache(Bytes::from_mib(4));
    register();
    let folder = tempfile::tempdir().unwrap();
    for mode in ["WAL", "DELETE"] {
        let file = folder.path().join(mode);
        drop(crate::support::fill(&file, 6000));
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let open = || {
            let connection = Connection::open_with_flags_and_vfs(&file, flags, c"failing").unwrap();
            let setup = format!(
                "PRAGMA journal_mode={mode}; PRAGMA synchronous=FULL; PRAGMA cache_spill=50"
            );
            connection.execute_batch(&setup).unwrap();
            connection
        };
        let mut failed = 0;
        for (round, at) in (1..).zip([
            0,
            1,
            2,
            3,
            5,
            8,
            13,
            40,
            100,
            300,
            700,
            1200,
            1900,
            2600,
            1 << 40,
        ]) {
            for kind in 0..3 {
                let connection = open();
                let before = state(&connection);
                KIND.store(kind, Ordering::Relaxed);
                LEFT.store(at, Ordering::Relaxed);
                let changed = change(&connection, round * 3 + i64::from(kind));
                LEFT.store(-1, Ordering::Relaxed);
                let _ = connection.execute_batch("ROLLBACK");
                if changed.is_err() {
                    failed += 1;
                    assert_eq!(state(&connection), before, "{mode} {at} {kind}");
                }
                let after = state(&connection);
                drop(connection);
                // Another process would see the same.
                let connection = Connection::open(&file).unwrap();
                assert_eq!(
                    crate::support::integrity(&connection),
                    "ok",
                    "{mode} {at} {kind}"
                );
                assert_eq!(state(&connection), after, "{mode} {at} {kind}");
            }
        }
        assert!(failed > 20, "{mode}: {failed} of 45 failed");
        let connection = Connection::open(&file).unwrap();
        assert!(state(&connection).1 > 0, "nothing was ever changed");
    }
}
