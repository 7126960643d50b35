//! The cache in one process: reads return what was written, memory goes to demand, and the target is never exceeded.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::support::{fill, integrity, read, share, text_of};
use hugeleaf::Bytes;
use hugeleaf_sqlite::{Api, InstallError, Installed, Options};
use hugeleaf_testkit::{RepeatingThread, until};
use rusqlite::Connection;

/// Target for all tests of this file: less than one of their databases.
fn cache() -> Installed {
    crate::support::cache(Bytes::from_mib(32))
}

/// Runs one test at a time, because tests would take each other's memory.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn what_is_written_is_read_while_memory_moves() {
    let _alone = alone();
    let cache = cache();
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                // Two threads have one database each, two share one.
                let file = folder.path().join(format!("moving-{}", worker.min(2)));
                scope.spawn(move || work(&file, worker))
            })
            .collect();
        let mut random = fastrand::Rng::with_seed(7);
        let _resizer = RepeatingThread::start(scope, move || {
            let target = Bytes::from_mib(random.u64(12..=32));
            cache.set_target(target).unwrap().unwrap();
            let rate = Duration::from_millis(30);
            hugeleaf_testkit::pause(rate, "the rate at which the target changes");
        });
        for worker in workers {
            worker.join().unwrap();
        }
    });
    cache.set_target(Bytes::from_mib(32)).unwrap().unwrap();
    for file in 0..3 {
        let connection = Connection::open(folder.path().join(format!("moving-{file}"))).unwrap();
        assert_eq!(integrity(&connection), "ok");
    }
}

/// Inserts, updates, deletes and reads its own rows, and tracks their contents.
fn work(file: &std::path::Path, worker: i64) {
    let mut connection = Connection::open(file).unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    let _: String = connection
        .query_row("PRAGMA journal_mode=WAL", [], |r| r.get(0))
        .unwrap();
    connection.execute_batch("PRAGMA synchronous=OFF").unwrap();
    let table = format!("t{worker}");
    let create = format!("CREATE TABLE {table} (id INTEGER PRIMARY KEY, text TEXT)");
    connection.execute_batch(&create).unwrap();
    let mut random = fastrand::Rng::with_seed(worker as u64);
    let mut known = std::collections::BTreeMap::new();
    for round in 0..60 {
        let transaction = connection.transaction().unwrap();
        for _ in 0..300 {
            let id = random.i64(0..20_000);
            let text = format!("{round} {}", text_of(id));
            if random.u8(0..5) == 0 {
                let delete = format!("DELETE FROM {table} WHERE id = ?1");
                transaction
                    .prepare_cached(&delete)
                    .unwrap()
                    .execute([id])
                    .unwrap();
                known.remove(&id);
            } else {
                let insert = format!("INSERT OR REPLACE INTO {table} VALUES (?1, ?2)");
                transaction
                    .prepare_cached(&insert)
                    .unwrap()
                    .execute((id, &text))
                    .unwrap();
                known.insert(id, text);
            }
        }
        transaction.commit().unwrap();
        let select = format!("SELECT text FROM {table} WHERE id = ?1");
        let mut select = connection.prepare_cached(&select).unwrap();
        for _ in 0..300 {
            let id = random.i64(0..20_000);
            let text: Option<String> = select.query_row([id], |row| row.get(0)).ok();
            assert_eq!(text.as_ref(), known.get(&id), "{table} {id}");
        }
    }
    let count = format!("SELECT count(*) FROM {table}");
    let rows: i64 = connection.query_row(&count, [], |row| row.get(0)).unwrap();
    assert_eq!(rows, known.len() as i64);
}

#[test]
fn memory_goes_to_the_database_that_is_read() {
    let _alone = alone();
    let cache = cache();
    let folder = tempfile::tempdir().unwrap();
    // Each is larger than all the memory.
    let [first, second] = ["first-read", "then-read"].map(|name| {
        let connection = fill(&folder.path().join(name), 120_000);
        (name, connection)
    });
    let slots = |name: &str| share(&cache, name).slots;
    let mut random = fastrand::Rng::with_seed(1);
    let mut load = |connection: &Connection| {
        read(connection, (0..3000).map(|_| random.i64(0..120_000)));
    };
    for ((busy, connection), (other, _)) in [(&first, &second), (&second, &first)] {
        let began = Instant::now();
        while slots(busy) < slots(other) * 2 {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{:?}",
                cache.shares()
            );
            load(connection);
        }
        let (held, target) = cache.held();
        assert!(held <= target, "{held} {target}");
    }
    let view = cache.view().unwrap();
    let moved = view
        .operations
        .iter()
        .filter(|op| op.component == "then-read");
    assert!(moved.count() > 0);
}

#[test]
fn a_database_that_is_closed_leaves_its_memory_to_others() {
    let _alone = alone();
    let cache = cache();
    let folder = tempfile::tempdir().unwrap();
    let closed = fill(&folder.path().join("closed"), 60_000);
    let most = share(&cache, "closed").slots;
    assert!(most > 300, "{most}");
    drop(closed);
    // Each keeps one granule.
    until("it keeps its memory", || {
        share(&cache, "closed").slots < most / 4
    });
    let again = Connection::open(folder.path().join("closed")).unwrap();
    read(&again, 0..60_000);
}

#[test]
fn a_scan_does_not_drop_what_is_asked_for_again() {
    let _alone = alone();
    let cache = cache();
    let folder = tempfile::tempdir().unwrap();
    let connection = fill(&folder.path().join("scanned"), 200_000);
    // A few hundred pages, repeatedly.
    let hot = || (0..4000).map(|n| n * 7 % 4000);
    for _ in 0..5 {
        read(&connection, hot());
    }
    let _: i64 =
        { connection.query_row("SELECT sum(length(text)) FROM t", [], |row| row.get(0)) }.unwrap();
    let before = share(&cache, "scanned").misses;
    read(&connection, hot());
    let misses = share(&cache, "scanned").misses - before;
    // The table has about 450 pages; an LRU list would have lost all.
    assert!(misses < 100, "{misses}");
}

#[test]
fn a_database_is_known_by_its_file_also_attached_and_with_other_pages() {
    let _alone = alone();
    let cache = cache();
    let folder = tempfile::tempdir().unwrap();
    let attached = folder.path().join("attached");
    drop(fill(&attached, 2000));
    let large = folder.path().join("large-pages");
    let connection = Connection::open(&large).unwrap();
    connection
        .execute_batch(
            "PRAGMA page_size=16384; CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT, n INTEGER)",
        )
        .unwrap();
    drop(connection);
    let connection = Connection::open(&large).unwrap();
    for id in 0..10_000i64 {
        connection
            .prepare_cached("INSERT INTO t VALUES (?1, ?2, 0)")
            .unwrap()
            .execute((id, text_of(id)))
            .unwrap();
        if id == 0 {
            connection.execute_batch("BEGIN").unwrap();
        }
    }
    connection.execute_batch("COMMIT").unwrap();
    read(&connection, 0..10_000);
    connection
        .execute("ATTACH ?1 AS other", [attached.to_str().unwrap()])
        .unwrap();
    let rows: i64 = connection
        .query_row("SELECT count(*) FROM other.t WHERE text > ''", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(rows, 2000);
    assert!(share(&cache, "large-pages").used > 100);
    assert!(share(&cache, "attached").used > 100);
}

#[test]
fn an_idle_connection_gives_its_pages_to_one_that_is_used() {
    let _alone = alone();
    let cache = cache();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("idle");
    let idle = fill(&file, 100_000);
    read(&idle, 0..100_000);
    let busy = Connection::open(&file).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let began = Instant::now();
    loop {
        let before = share(&cache, "idle").misses;
        read(&busy, (0..2000).map(|_| random.i64(0..12_000)));
        // A working set that fits: no misses once it has the memory.
        if share(&cache, "idle").misses == before {
            break;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{:?}",
            cache.shares()
        );
    }
    read(&idle, 0..1000);
}

#[test]
fn databases_in_memory_temporary_tables_and_all_page_sizes() {
    let _alone = alone();
    cache();
    let folder = tempfile::tempdir().unwrap();
    let memory = Connection::open_in_memory().unwrap();
    memory
        .execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT, n INTEGER); BEGIN")
        .unwrap();
    for id in 0..20_000i64 {
        memory
            .prepare_cached("INSERT INTO t VALUES (?1, ?2, 0)")
            .unwrap()
            .execute((id, text_of(id)))
            .unwrap();
    }
    memory
        .execute_batch(
            "COMMIT; CREATE TEMP TABLE u AS SELECT * FROM t; CREATE INDEX temp.i ON u (text)",
        )
        .unwrap();
    read(&memory, 0..20_000);
    for size in [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536] {
        let file = folder.path().join(format!("pages-{size}"));
        let copy = format!("PRAGMA page_size={size}; VACUUM INTO '{}'", file.display());
        memory.execute_batch(&copy).unwrap();
        let connection = Connection::open(&file).unwrap();
        read(&connection, 0..20_000);
        assert_eq!(integrity(&connection), "ok");
        // A transaction larger than the cache of its connection, rolled back.
        connection
            .execute_batch(
                "PRAGMA cache_size=10; BEGIN; UPDATE t SET text = 'x' || text; ROLLBACK; VACUUM",
            )
            .unwrap();
        read(&connection, 0..20_000);
    }
}

#[test]
fn connections_come_and_go() {
    let _alone = alone();
    let cache = cache();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("come-and-go");
    drop(fill(&file, 5000));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..hugeleaf_testkit::size(10, 50) {
                    let connection = Connection::open(file).unwrap();
                    read(&connection, (0..5000).skip(worker + round).step_by(7));
                }
            });
        }
    });
    until("connections left", || {
        let share = share(&cache, "come-and-go");
        (share.connections, share.used) == (0, 0)
    });
}

#[test]
fn a_process_has_one_cache() {
    let _alone = alone();
    cache();
    let options = Options::new(Bytes::from_mib(32), crate::support::base());
    let again = hugeleaf_sqlite::install(&Api::linked(), &options);
    assert!(
        matches!(again, Err(InstallError::AlreadyInstalled)),
        "{again:?}"
    );
}

#[test]
fn a_forked_child_works_with_memory_of_its_own() {
    let _alone = alone();
    cache();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("forked");
    drop(fill(&file, 5000));
    // SAFETY: the child opens a database, as programs do that fork workers, and ends without returning.
    #[allow(unsafe_code)]
    let child = unsafe { libc::fork() };
    if child == 0 {
        let read = std::panic::catch_unwind(|| {
            let connection = Connection::open(&file).unwrap();
            read(&connection, 0..5000);
            connection.execute_batch("UPDATE t SET n = 1").unwrap();
        });
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            libc::_exit(i32::from(read.is_err()))
        }
    }
    let mut status = 0;
    // SAFETY: the status is an int.
    #[allow(unsafe_code)]
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0));
    let connection = Connection::open(&file).unwrap();
    let rows: i64 = connection
        .query_row("SELECT sum(n) FROM t", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 5000);
}
