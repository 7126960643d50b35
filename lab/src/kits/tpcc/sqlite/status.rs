//! SQLite's counters of one connection.
#![allow(unsafe_code)]
//! # Safety
//! sqlite3_db_status reads counters of a connection that the caller holds, and writes two integers
//! of this code.

use std::ffi::c_int;

use rusqlite::{Connection, ffi};

use crate::kits::tpcc::counters::DatabaseCounters;

/// Returns the counters of a connection's page cache since it was opened.
pub(super) fn counters(connection: &Connection) -> DatabaseCounters {
    let hits = read(connection, ffi::SQLITE_DBSTATUS_CACHE_HIT);
    let misses = read(connection, ffi::SQLITE_DBSTATUS_CACHE_MISS);
    let writes = read(connection, ffi::SQLITE_DBSTATUS_CACHE_WRITE);
    DatabaseCounters {
        logical_reads: hits.zip(misses).map(|(hits, misses)| hits + misses),
        physical_reads: misses,
        physical_writes: writes,
        // With a log, a changed page is written once per transaction, at its commit.
        block_changes: writes,
        server_cpu_micros: None,
    }
}

fn read(connection: &Connection, what: c_int) -> Option<u64> {
    let (mut now, mut high): (i64, i64) = (0, 0);
    // SAFETY: the handle belongs to a connection that is open while it is borrowed here; both
    // pointers are to integers of the type that is written.
    let result = unsafe {
        ffi::sqlite3_db_status64(connection.handle(), what, &raw mut now, &raw mut high, 0)
    };
    (result == ffi::SQLITE_OK)
        .then(|| u64::try_from(now).ok())
        .flatten()
}
