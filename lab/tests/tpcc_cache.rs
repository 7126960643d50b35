//! SQLite's page cache in private memory: it holds the written data even if it is much too small,
//! and its memory has the requested size. A test program of its own: SQLite takes a cache once.

// A panic is how a test fails, also in its helpers.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hugeleaf_host::{Root, read_host};
use hugeleaf_lab::kits::tpcc::{
    DatasetSpec, DriverSettings, Durability, SqliteSettings, SqliteStore, TableCardinality,
    TpccError, TpccStore, TransactionPace, check, drive, install_cache, load,
};
use hugeleaf_sys::Kernel;
use hugeleaf_units::Bytes;
use hugeleaf_workload::PageArm;

fn run(connections: usize) -> DriverSettings {
    DriverSettings {
        connections,
        ramp_up: Duration::from_millis(50),
        time: Duration::from_millis(700),
        pace: TransactionPace::Full,
        touched: None,
        seed: 5,
    }
}

/// Fills, drives and checks with the given cache for each connection.
fn whole(cache: Bytes, files: i32, connections: usize, alone: bool) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(SqliteSettings {
        directory: folder.path().to_owned(),
        files,
        cache,
        durability: Durability::Never,
        alone,
        warm: true,
        touched: None,
        stop: Arc::default(),
    })
    .unwrap();
    let origin = DatasetSpec {
        warehouses: 3,
        shards: files,
        scale: TableCardinality::shrunk(20),
        seed: 11,
        filled_at: 1,
    };
    let never = AtomicBool::new(false);
    load(&store, &origin, true, &mut |_| {}, &never).unwrap();
    let outcome = drive(
        &store,
        &origin,
        run(connections),
        &mut (),
        &mut |_, _| {},
        &never,
    )
    .unwrap();
    let found = check(&store, &origin, &mut |_, _| {}, &never).unwrap();
    assert!(found.is_empty(), "{found:?}");
    for shard in 0..files {
        let sql = "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'";
        let damaged = store.loader(shard).unwrap().ask(sql).unwrap();
        assert_eq!(damaged, [[Some(0)]]);
    }
    outcome.counters.physical_reads.unwrap()
}

#[test]
fn a_cache_of_ours_holds_what_is_written_at_any_size() {
    let host = read_host(&Root::live(), &Kernel::new()).unwrap();
    let base = PageArm::base(&host);
    let length = Bytes::from_mib(32);
    let cache = install_cache(base, length, false, &host).unwrap();
    // SQLite needs additional memory for each page.
    assert!(cache.length() > length && cache.length().get() < length.get() * 11 / 10);
    if let Some(pages) = cache.pages().unwrap() {
        let on_base: u64 = pages
            .iter()
            .filter(|held| held.size == host.base_page)
            .map(|held| held.bytes.get())
            .sum();
        assert_eq!(on_base, cache.length().get(), "{pages:?}");
    }
    let again = install_cache(base, length, false, &host).unwrap_err();
    assert!(matches!(again, TpccError::Cache(_)), "{again:?}");
    // All of it fits: after the initial scan almost nothing is read from the file.
    let fitting = whole(Bytes::from_mib(30), 1, 1, true);
    // A tenth fits, so pages are reused all the time.
    let scarce = whole(Bytes::from_mib(2), 1, 1, true);
    assert!(scarce > 10 * fitting.max(1), "{scarce} and {fitting}");
    assert_eq!(cache.heap_pages(), 0);
    // Several connections on a file, and on files of their own.
    whole(Bytes::from_mib(6), 1, 3, false);
    whole(Bytes::from_mib(10), 3, 3, true);
    assert_eq!(cache.heap_pages(), 0);
    // Together they want more than there is. The available memory must suffice, without any loss.
    whole(Bytes::from_mib(64), 3, 3, true);
}
