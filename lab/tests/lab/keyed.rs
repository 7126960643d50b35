//! Reads by key on a real MariaDB: the effect of each work, and the detection of a wrong row.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hugeleaf_lab::kits::keyed_reads::{ClientCounters, ClientLoad, KeyedTable};
use hugeleaf_lab::kits::tpcc::{
    Durability, MariadbServer, MariadbStore, MariadbWatch, ServerSettings, TpccError, TpccStore,
};
use hugeleaf_testkit::server::ServerError;
use hugeleaf_testkit::until;
use hugeleaf_units::Bytes;

/// Starts a server whose cache is a quarter of the table; `None`, with a note, without MariaDB.
fn mariadb(test: &str) -> Option<MariadbServer> {
    let started = MariadbServer::start(&ServerSettings {
        below: std::env::temp_dir(),
        cache: Bytes::from_mib(8),
        huge_pages: false,
        durability: Durability::Never,
        connections: 4,
        more: Vec::new(),
        start_with: Vec::new(),
    });
    match started {
        Ok(server) => Some(server),
        Err(ServerError::NotInstalled { .. }) => {
            println!("not run: {test}: MariaDB is not installed");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const TABLE: Bytes = Bytes::from_mib(32);

/// Runs enough statements of a work to show its effect on the cache.
fn done(table: &KeyedTable, work: ClientLoad) -> Result<(u64, u64), TpccError> {
    let least = match work {
        ClientLoad::Busy(_) => 5000,
        ClientLoad::Light(_) => 20,
        ClientLoad::Report => 3,
        ClientLoad::Flood => 2000,
    };
    let (done, stop) = (ClientCounters::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let working = scope.spawn(|| table.work(work, 1, &done, &stop));
        let stops = Stops(&stop);
        until("the statements are done", || {
            done.reads() + done.others() >= least || working.is_finished()
        });
        drop(stops);
        working.join().unwrap()
    })?;
    Ok((done.reads(), done.others()))
}

/// Stops a work when dropped, also if the test fails: the scope would wait for it.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_cache_helps_what_is_read_often_and_not_a_flood() {
    let Some(server) = mariadb("a_cache_helps_what_is_read_often_and_not_a_flood") else {
        return;
    };
    let never = AtomicBool::new(false);
    let table = KeyedTable::new(&server.socket(), TABLE);
    let mut told = 0;
    table.fill(&mut |rows, _| told = rows, &never).unwrap();
    assert_eq!(told, TABLE.get() / KeyedTable::ROW.get());
    let mut watch = MariadbWatch::open(&server.socket()).unwrap();
    assert_eq!(watch.sample().unwrap().pool, Bytes::from_mib(8));
    // Returns the pages read per statement of a work.
    let mut misses = |work| {
        let before = watch.sample().unwrap().counters.physical_reads.unwrap();
        let (reads, others) = done(&table, work).unwrap();
        let after = watch.sample().unwrap().counters.physical_reads.unwrap();
        let each = (after - before) as f64 / (reads + others) as f64;
        (each, reads, others)
    };
    table.warm(Bytes::from_mib(2)).unwrap();
    // The first reads still fetch pages that the fill has evicted.
    misses(ClientLoad::Busy(Bytes::from_mib(2)));
    let (each, reads, others) = misses(ClientLoad::Busy(Bytes::from_mib(2)));
    assert!(each < 0.2 && reads > 100 && others == 0, "{each}, {reads}");
    let (each, reads, others) = misses(ClientLoad::Flood);
    assert!(each > 0.8 && others > 100 && reads == 0, "{each}, {others}");
    let (each, ..) = misses(ClientLoad::Busy(TABLE));
    assert!(each > 0.4, "three of four are not in the cache: {each}");
    // A statement of a report covers two thousand rows: more than a hundred pages.
    let (each, reads, others) = misses(ClientLoad::Report);
    assert!(each > 50.0 && reads == 0 && others > 0, "{each}");
    let began = Instant::now();
    let (_, reads, _) = misses(ClientLoad::Light(Bytes::from_mib(2)));
    // A pause of 10 ms follows each read.
    let least = Duration::from_millis(10) * u32::try_from(reads).unwrap();
    assert!(began.elapsed() >= least, "{reads} reads");
}

#[test]
fn a_row_that_holds_something_else_is_found() {
    let Some(server) = mariadb("a_row_that_holds_something_else_is_found") else {
        return;
    };
    let table = KeyedTable::new(&server.socket(), Bytes::from_kib(4));
    table.fill(&mut |_, _| {}, &AtomicBool::new(false)).unwrap();
    assert!(done(&table, ClientLoad::Busy(TABLE)).unwrap().0 > 0);
    let store = MariadbStore::new(&server.socket());
    let wrong = "UPDATE hugeleaf_keyed.rows SET text = '7....' WHERE id = 3";
    store.loader(0).unwrap().execute(wrong).unwrap();
    let error = done(&table, ClientLoad::Busy(TABLE)).unwrap_err();
    assert!(matches!(error, TpccError::Damaged(3)), "{error:?}");
    let stopped = AtomicBool::new(true);
    let error = table.fill(&mut |_, _| {}, &stopped).unwrap_err();
    assert!(matches!(error, TpccError::Stopped), "{error:?}");
}
