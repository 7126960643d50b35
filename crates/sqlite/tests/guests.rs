//! The cache in programs with typical behaviour: they fork with open connections, end while SQLite is in use, filter
//! their own system calls, set SQLite's options, and open a hundred connections. The cache never makes them fail.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::support::{fill, integrity, read, share};
use hugeleaf::Bytes;
use hugeleaf_sqlite::Api;
use hugeleaf_testkit::{RepeatingThread, until};
use libsqlite3_sys as sqlite;
use rusqlite::Connection;

/// Ends a forked child without exit handlers.
fn end(ok: bool) -> ! {
    // SAFETY: it takes a number.
    #[allow(unsafe_code)]
    unsafe {
        libc::_exit(i32::from(!ok))
    }
}

/// Returns the status of a child that has ended; one that hangs is killed, and the test fails.
fn ended(child: i32) {
    let mut status = 0;
    // SAFETY: the status is an int.
    #[allow(unsafe_code)]
    until("the child has ended", || unsafe {
        libc::waitpid(child, &raw mut status, libc::WNOHANG) == child
    });
    assert_eq!(status, 0, "the child's status");
}

/// Forks; the child ends with the result of `child`.
fn forked(child: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child works with what it inherited, as programs do that fork workers, and ends without returning.
    #[allow(unsafe_code)]
    let number = unsafe { libc::fork() };
    if number == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        end(done.unwrap_or(false));
    }
    assert!(number > 0, "fork: {}", std::io::Error::last_os_error());
    number
}

/// A child has its parent's locks as at the fork, without the threads that held them: it would wait forever.
#[test]
fn children_with_inherited_connections_end() {
    if !hugeleaf_testkit::in_own_process("guests::children_with_inherited_connections_end") {
        return;
    }
    let forks = hugeleaf_testkit::size_or_soak(60, 3_000, 100_000);
    let cache = crate::support::cache(Bytes::from_mib(4));
    let folder = tempfile::tempdir().unwrap();
    // Together larger than the cache, so that memory moves.
    let mut open: Vec<Connection> = (0..3)
        .map(|n| fill(&folder.path().join(format!("inherited-{n}")), 4000))
        .collect();
    let mut random = fastrand::Rng::with_seed(1);
    std::thread::scope(|scope| {
        // Holds every lock of the cache nearly all the time; the manager does so now and then.
        let _holder = RepeatingThread::start(scope, || drop(cache.shares()));
        for round in 0..forks {
            let busy = &open[round / 20 % 3];
            read(busy, (0..20).map(|_| random.i64(0..4000)));
            let child = forked(|| {
                for connection in open.drain(..) {
                    read(&connection, (0..5).map(|_| random.i64(0..4000)));
                    drop(connection);
                }
                // A connection of its own, and a child of its own.
                let own = Connection::open(folder.path().join("inherited-0")).unwrap();
                read(&own, 0..5);
                if round % 16 == 0 {
                    ended(forked(|| {
                        read(&own, 5..10);
                        true
                    }));
                }
                true
            });
            ended(child);
        }
    });
    for connection in &open {
        assert_eq!(integrity(connection), "ok");
    }
}

/// Installs a filter: from here on this system call ends the process.
fn refuse_in_this_thread(call: libc::c_long) {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    let number = u32::try_from(call).unwrap();
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_KILL_PROCESS,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: 4,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the filter and its steps live until the calls return; both act on this thread only.
    #[allow(unsafe_code)]
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        let done = libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter);
        assert_eq!(done, 0);
    }
}

/// A thread's filter applies to the cache too: it makes no barrier, populates and returns no memory, and starts no
/// thread.
#[test]
fn a_filter_of_system_calls_that_comes_later_ends_nothing() {
    if !hugeleaf_testkit::in_own_process(
        "guests::a_filter_of_system_calls_that_comes_later_ends_nothing",
    ) {
        return;
    }
    crate::support::cache(Bytes::from_mib(8));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work_under_filters(&path);
        done.send(()).unwrap();
        // The end of a thread makes some of these calls too.
        loop {
            std::thread::park();
        }
    });
    is_done.recv().unwrap();
}

fn work_under_filters(folder: &std::path::Path) {
    let first = fill(&folder.join("first"), 30_000);
    let idle = Connection::open(folder.join("first")).unwrap();
    read(&idle, 0..5000);
    for call in [
        libc::SYS_membarrier,
        libc::SYS_fallocate,
        libc::SYS_madvise,
        libc::SYS_clone3,
        libc::SYS_mbind,
        // The last filter: it forbids adding others.
        libc::SYS_prctl,
    ] {
        refuse_in_this_thread(call);
    }
    // Connections of one database take pages from each other, and databases ask for memory.
    let second = fill(&folder.join("second"), 30_000);
    let again = Connection::open(folder.join("first")).unwrap();
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..4 {
        for connection in [&first, &second, &again, &idle] {
            read(connection, (0..4000).map(|_| random.i64(0..5000)));
        }
    }
    second.execute_batch("UPDATE t SET n = 1").unwrap();
    assert_eq!(integrity(&second), "ok");
    assert_eq!(integrity(&first), "ok");
}

/// Programs use SQLite even at the end of a thread, when Rust has dropped the thread's values.
#[test]
fn sqlite_is_used_at_the_end_of_a_thread() {
    if !hugeleaf_testkit::in_own_process("guests::sqlite_is_used_at_the_end_of_a_thread") {
        return;
    }
    static ROWS: AtomicI32 = AtomicI32::new(0);
    extern "C" fn last(file: *mut libc::c_void) {
        // SAFETY: the key's value is the name that the thread was given.
        #[allow(unsafe_code)]
        let file = unsafe { Box::from_raw(file.cast::<std::path::PathBuf>()) };
        let connection = Connection::open(file.as_path()).unwrap();
        read(&connection, 0..1000);
        ROWS.store(1000, Ordering::Relaxed);
    }
    crate::support::cache(Bytes::from_mib(8));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("last");
    drop(fill(&file, 1000));
    let name = file.clone();
    std::thread::spawn(move || {
        // The thread has used the cache, so that its thread-local state exists.
        read(&Connection::open(&name).unwrap(), 0..1000);
        let mut key = 0;
        // SAFETY: the key is an integer, its value a box that the function above takes.
        #[allow(unsafe_code)]
        unsafe {
            assert_eq!(libc::pthread_key_create(&raw mut key, Some(last)), 0);
            let name = Box::into_raw(Box::new(name));
            assert_eq!(libc::pthread_setspecific(key, name.cast()), 0);
        }
    })
    .join()
    .unwrap();
    until("the thread has ended", || {
        ROWS.load(Ordering::Relaxed) == 1000
    });
}

/// Returns the private resident memory of this process.
fn resident() -> Bytes {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.unwrap().split_ascii_whitespace().nth(1).unwrap();
    Bytes::from_kib(kib.parse().unwrap())
}

/// First pages of a connection are on the heap. A hundred connections with the largest pages took 400M.
#[test]
fn many_connections_stay_within_the_size() {
    if !hugeleaf_testkit::in_own_process("guests::many_connections_stay_within_the_size") {
        return;
    }
    let size = Bytes::from_mib(16);
    let cache = crate::support::cache(size);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many");
    let setup = Connection::open(&file).unwrap();
    setup
        .execute_batch("PRAGMA page_size=65536; PRAGMA synchronous=OFF; CREATE TABLE u (a)")
        .unwrap();
    drop(setup);
    drop(fill_existing(&file));
    let before = resident();
    let open: Vec<Connection> = (0..100)
        .map(|_| {
            let connection = Connection::open(&file).unwrap();
            read(&connection, (0..20_000).step_by(100));
            connection
        })
        .collect();
    let grown = resident() - before;
    // The target, a sixteenth of it, and SQLite's own memory per connection: 0.1M.
    let most = size + Bytes::from_mib(1) + Bytes::from_mib(12);
    assert!(grown < most, "{grown} of {most}: {:?}", cache.shares());
    read(&open[7], 0..100);
}

fn fill_existing(file: &std::path::Path) -> Connection {
    let mut connection = Connection::open(file).unwrap();
    let transaction = connection.transaction().unwrap();
    transaction
        .execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT, n INTEGER)")
        .unwrap();
    for id in 0..20_000i64 {
        transaction
            .prepare_cached("INSERT INTO t VALUES (?1, ?2, 0)")
            .unwrap()
            .execute((id, crate::support::text_of(id)))
            .unwrap();
    }
    transaction.commit().unwrap();
    connection
}

/// Three databases of one size: each gets the memory that it requests repeatedly, regardless of the order.
#[test]
fn three_databases_get_what_each_asks_for_again() {
    if !hugeleaf_testkit::in_own_process("guests::three_databases_get_what_each_asks_for_again") {
        return;
    }
    let cache = crate::support::cache(Bytes::from_mib(6));
    let folder = tempfile::tempdir().unwrap();
    let names = ["one", "two", "three"];
    let open = names.map(|name| fill(&folder.path().join(name), 20_000));
    // The first one takes all memory before the others start.
    read(&open[0], 0..20_000);
    let mut random = fastrand::Rng::with_seed(3);
    let missed = || names.map(|name| share(&cache, name).misses);
    until("all three have what they ask for", || {
        let before = missed();
        for connection in &open {
            // A quarter of all memory.
            read(connection, (0..3000).map(|_| random.i64(0..3000)));
        }
        let after = missed();
        { before.iter().zip(&after) }.all(|(before, after)| after - before < 100)
    });
}

/// Options set by a program stay in force, and a SQLite that is restarted has its cache again.
#[test]
fn options_and_a_new_beginning() {
    if !hugeleaf_testkit::in_own_process("guests::options_and_a_new_beginning") {
        return;
    }
    // SAFETY: the options take what sqlite3.h says, before SQLite is in use.
    #[allow(unsafe_code)]
    let config = |option: i32, value: i32| unsafe { sqlite::sqlite3_config(option, value) };
    assert_eq!(config(sqlite::SQLITE_CONFIG_URI, 1), sqlite::SQLITE_OK);
    assert_eq!(
        config(sqlite::SQLITE_CONFIG_MEMSTATUS, 1),
        sqlite::SQLITE_OK
    );
    let cache = crate::support::cache(Bytes::from_mib(16));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("begun");
    let uri = format!("file:{}?mode=rwc", file.display());
    Connection::open(&uri)
        .unwrap()
        .execute_batch("SELECT 1")
        .unwrap();
    drop(fill(&folder.path().join("limited"), 30_000));
    let limited = Connection::open(folder.path().join("limited")).unwrap();
    // SQLite's limits apply to its own heap, which holds no pages.
    let _: i64 = limited
        .query_row("PRAGMA hard_heap_limit=4000000", [], |row| row.get(0))
        .unwrap();
    read(&limited, 0..30_000);
    assert!(share(&cache, "limited").used > 1500, "{:?}", cache.shares());
    let _: i64 = limited
        .query_row("PRAGMA soft_heap_limit=1000000", [], |row| row.get(0))
        .unwrap();
    read(&limited, 0..30_000);
    drop(limited);
    // SAFETY: no connection is open.
    #[allow(unsafe_code)]
    unsafe {
        assert_eq!(sqlite::sqlite3_shutdown(), sqlite::SQLITE_OK);
        assert_eq!(config(sqlite::SQLITE_CONFIG_URI, 0), sqlite::SQLITE_OK);
        assert_eq!(sqlite::sqlite3_initialize(), sqlite::SQLITE_OK);
        sqlite::sqlite3_hard_heap_limit64(0);
    }
    let again = fill(&folder.path().join("again"), 10_000);
    // The closed database keeps its memory until the manager has seen that it is unused.
    hugeleaf_testkit::until("the new database has more than 500 pages", || {
        read(&again, 0..10_000);
        let used: u64 = cache.shares().iter().map(|share| share.used).sum();
        used > 500
    });
    assert_eq!(integrity(&again), "ok");
}

extern "C" fn no_cache(_: i32, _: i32, _: i32) -> *mut sqlite::sqlite3_pcache {
    std::ptr::null_mut()
}

/// `run --sqlite` keeps the cache that a program has set.
#[test]
fn a_cache_of_the_program_is_seen() {
    if !hugeleaf_testkit::in_own_process("guests::a_cache_of_the_program_is_seen") {
        return;
    }
    let own = no_cache as *const std::ffi::c_void;
    let api = Api::linked();
    assert_ne!(api.cache().unwrap(), own);
    // SAFETY: the option takes a pointer to methods; SQLite is not in use, and makes no cache in this test.
    #[allow(unsafe_code)]
    unsafe {
        let mut methods: sqlite::sqlite3_pcache_methods2 = std::mem::zeroed();
        let get = sqlite::SQLITE_CONFIG_GETPCACHE2;
        assert_eq!(
            sqlite::sqlite3_config(get, &raw mut methods),
            sqlite::SQLITE_OK
        );
        methods.xCreate = Some(no_cache);
        let set = sqlite::SQLITE_CONFIG_PCACHE2;
        assert_eq!(
            sqlite::sqlite3_config(set, &raw const methods),
            sqlite::SQLITE_OK
        );
        assert_eq!(api.cache(), Some(own));
        methods = std::mem::zeroed();
        sqlite::sqlite3_config(set, &raw const methods);
    }
    Connection::open_in_memory().unwrap();
    assert_eq!(api.cache(), None, "it is in use");
}

/// A process without memory gets SQLite's errors, and continues.
#[test]
fn memory_that_is_short_is_an_answer_of_sqlite() {
    if !hugeleaf_testkit::in_own_process("guests::memory_that_is_short_is_an_answer_of_sqlite") {
        return;
    }
    crate::support::cache(Bytes::from_mib(8));
    let folder = tempfile::tempdir().unwrap();
    let connection = fill(&folder.path().join("short"), 10_000);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmData:"));
    let now: u64 = line
        .unwrap()
        .split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let limit = libc::rlimit {
        rlim_cur: (now << 10) + (3 << 20),
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is only read.
    #[allow(unsafe_code)]
    let set = |limit: &libc::rlimit| unsafe { libc::setrlimit(libc::RLIMIT_DATA, limit) };
    assert_eq!(set(&limit), 0);
    // A transaction in memory without room: pages in use and changed are all on the heap.
    let failed = connection.execute_batch(
        "PRAGMA cache_spill=OFF; PRAGMA temp_store=MEMORY; BEGIN; CREATE TEMP TABLE v AS SELECT text || text AS x FROM t;
         UPDATE t SET text = text || text || text; COMMIT",
    );
    let open = set(&libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        ..limit
    });
    assert_eq!(open, 0);
    assert!(failed.is_err(), "there was room for all of it");
    let _ = connection.execute_batch("ROLLBACK");
    assert_eq!(integrity(&connection), "ok");
    read(&connection, 0..10_000);
}
