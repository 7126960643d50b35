//! Loads of SQLite on its own cache and on ours, with a process each, since SQLite is configured once.
//!
//! ```text
//! sqlite LOAD CACHE FOLDER MIB SECONDS
//! ```
//!
//! LOAD: `keyed`, `threads`, `scan`, `write`, `small`, `tpcc`, `swap`. CACHE: `stock` (SQLite's own), `large` and
//! `base` (ours, on huge and on base pages), `half` and `uneven` (fixed shares on huge pages: equal, and 13 of 16 parts
//! for the first database). MIB: pages of all databases together. Prints operations a second; for `swap` those of each
//! second, and the longest operation in seconds, of all operations and of those during a move of memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hugeleaf::balance::ResizeOperation;
use hugeleaf_host::{Host, Root, read_host};
use hugeleaf_lab::kits::tpcc::{
    DatasetSpec, DriverSettings, Durability, SqliteSettings, SqliteStore, TableCardinality,
    TransactionPace, drive, install_cache, load,
};
use hugeleaf_sqlite::{Api, Installed, Options, install};
use hugeleaf_sys::Kernel;
use hugeleaf_units::Bytes;
use hugeleaf_workload::{AskedPages, PageArm};
use rusqlite::{Connection, OpenFlags};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Approximate bytes of a row in a database.
const ROW_BYTES: u64 = 117;
/// Minimum duration of operations that are stored; the longest is stored in any case.
const SLOW: Duration = Duration::from_millis(1);
/// Length of a phase of `swap`.
const PHASE: Duration = Duration::from_secs(30);

struct Asked {
    folder: PathBuf,
    cache: Bytes,
    /// Size of each database's cache, as set in SQLite.
    each: [Bytes; 2],
    time: Duration,
    /// Time at which the cache was made.
    began: Instant,
    installed: Option<Installed>,
}

fn main() -> Result<(), Failed> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let [load, cache, folder, mib, seconds] = &all[..] else {
        return Err("sqlite LOAD CACHE FOLDER MIB SECONDS".into());
    };
    let size = Bytes::from_mib(mib.parse()?);
    let host = read_host(&Root::live(), &Kernel::new())?;
    let asked = Asked {
        folder: PathBuf::from(folder),
        cache: size,
        each: shares(load, cache, size),
        time: Duration::from_secs(seconds.parse()?),
        began: Instant::now(),
        installed: installed(cache, size, &host)?,
    };
    std::fs::create_dir_all(&asked.folder)?;
    match load.as_str() {
        "keyed" => println!("{}", keyed(&asked, 1)?),
        "threads" => println!("{}", keyed(&asked, 4)?),
        "scan" => println!("{}", scan(&asked)?),
        "write" => println!("{}", write(&asked)?),
        "small" => println!("{}", small(&asked)?),
        "tpcc" => println!("{}", tpcc(&asked)?),
        "swap" => swap(&asked)?,
        other => return Err(format!("no load is named {other}").into()),
    }
    Ok(())
}

/// Returns the part of the cache for each database.
fn shares(load: &str, cache: &str, size: Bytes) -> [Bytes; 2] {
    let part = |of_16: u64| Bytes(size.get() / 16 * of_16);
    match (load, cache) {
        ("swap", "uneven") => [part(13), part(3)],
        ("swap", _) => [part(8), part(8)],
        _ => [size, size],
    }
}

fn installed(cache: &str, size: Bytes, host: &Host) -> Result<Option<Installed>, Failed> {
    let huge = host
        .pmd_page
        .get()
        .ok_or("no transparent huge pages here")?;
    let managed = |ladder: String| {
        install(&Api::linked(), &Options::new(size, ladder.parse()?)).map_err(Failed::from)
    };
    match cache {
        "stock" => Ok(None),
        "large" => managed(format!("thp:{huge}")).map(Some),
        "base" => managed(host.base_page.to_string()).map(Some),
        "half" | "uneven" => {
            // Connections keep to the size set in SQLite.
            let more = Bytes(size.get() / 16 * 17);
            install_cache(
                PageArm::resolve(format!("thp:{huge}").parse::<AskedPages>()?, host),
                more,
                false,
                host,
            )?;
            Ok(None)
        }
        other => Err(format!("no cache is named {other}").into()),
    }
}

/// Makes a database with `rows` rows if it does not exist.
fn database(file: &Path, rows: u64) -> rusqlite::Result<()> {
    if file.exists() {
        return Ok(());
    }
    let part = file.with_extension("part");
    let mut connection = Connection::open(&part)?;
    connection.execute_batch(
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;
         CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);",
    )?;
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare("INSERT INTO item VALUES (?1, ?2, ?3)")?;
        for id in 0..rows.cast_signed() {
            insert.execute((id, format!("item {id:>92}"), 0.01))?;
        }
    }
    transaction.commit()?;
    drop(connection);
    std::fs::rename(part, file).map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))
}

fn open(file: &Path, cache: Bytes) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.pragma_update(None, "cache_size", -(cache.get() / 1024).cast_signed())?;
    Ok(connection)
}

/// Returns the rows of a database that fits into the cache with room to spare.
fn fitting(cache: Bytes) -> u64 {
    cache.get() / ROW_BYTES / 10 * 8
}

fn warm(connection: &Connection) -> rusqlite::Result<()> {
    for _ in 0..2 {
        let _: i64 =
            connection.query_row("SELECT sum(length(name)) FROM item", [], |r| r.get(0))?;
    }
    Ok(())
}

/// A slow operation.
#[derive(Clone, Copy)]
struct Slow {
    began: Instant,
    took: Duration,
}

/// Reads rows at random until `end`, and counts them; returns the slow reads.
fn read(
    connection: &Connection,
    rows: u64,
    seed: u64,
    end: impl Fn() -> bool,
    count: &AtomicU64,
) -> rusqlite::Result<Vec<Slow>> {
    let mut select = connection.prepare("SELECT price FROM item WHERE id = ?1")?;
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut slow, mut longest) = (Vec::new(), Duration::ZERO);
    while !end() {
        // One transaction, so that a read takes no lock on the file.
        connection.execute_batch("BEGIN")?;
        for _ in 0..200 {
            let began = Instant::now();
            let _: f64 = select.query_row([random.u64(0..rows).cast_signed()], |row| row.get(0))?;
            let took = began.elapsed();
            if took > longest.min(SLOW) {
                slow.push(Slow { began, took });
                longest = longest.max(took);
            }
        }
        connection.execute_batch("COMMIT")?;
        count.fetch_add(200, Ordering::Relaxed);
    }
    Ok(slow)
}

fn keyed(asked: &Asked, threads: u64) -> Result<f64, Failed> {
    let each = Bytes(asked.cache.get() / threads);
    let (file, rows) = (asked.folder.join("keyed.db"), fitting(each));
    let file = file.with_file_name(format!("keyed-{rows}.db"));
    database(&file, rows)?;
    let count = AtomicU64::new(0);
    let ready = std::sync::Barrier::new(usize::try_from(threads)? + 1);
    let seconds = std::thread::scope(|scope| -> Result<f64, Failed> {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (file, count, ready) = (&file, &count, &ready);
                scope.spawn(move || -> Result<(), Failed> {
                    let connection = open(file, each)?;
                    warm(&connection)?;
                    ready.wait();
                    let began = Instant::now();
                    read(
                        &connection,
                        rows,
                        thread,
                        || began.elapsed() >= asked.time,
                        count,
                    )?;
                    Ok(())
                })
            })
            .collect();
        ready.wait();
        let began = Instant::now();
        for worker in workers {
            worker.join().map_err(|_| "a reader panicked")??;
        }
        Ok(began.elapsed().as_secs_f64())
    })?;
    Ok(count.load(Ordering::Relaxed) as f64 / seconds)
}

/// Scans a table that is about three times as large as the cache.
fn scan(asked: &Asked) -> Result<f64, Failed> {
    let rows = fitting(asked.cache) * 4;
    let file = asked.folder.join(format!("scan-{rows}.db"));
    database(&file, rows)?;
    let connection = open(&file, asked.cache)?;
    let (began, mut scans) = (Instant::now(), 0.0);
    while began.elapsed() < asked.time {
        let _: i64 =
            connection.query_row("SELECT sum(length(name)) FROM item", [], |r| r.get(0))?;
        scans += 1.0;
    }
    Ok(scans / began.elapsed().as_secs_f64())
}

/// Runs transactions of 20 changes by key.
fn write(asked: &Asked) -> Result<f64, Failed> {
    let rows = fitting(asked.cache) / 2;
    let source = asked.folder.join(format!("write-{rows}.db"));
    database(&source, rows)?;
    let file = asked.folder.join("written.db");
    std::fs::copy(&source, &file)?;
    let mut connection = open(&file, asked.cache)?;
    let _: String = connection.query_row("PRAGMA journal_mode=WAL", [], |r| r.get(0))?;
    connection.execute_batch("PRAGMA synchronous=OFF")?;
    warm(&connection)?;
    let mut random = fastrand::Rng::with_seed(1);
    let (began, mut done) = (Instant::now(), 0.0);
    while began.elapsed() < asked.time {
        let transaction = connection.transaction()?;
        for _ in 0..20 {
            let id = random.u64(0..rows).cast_signed();
            let mut update =
                transaction.prepare_cached("UPDATE item SET price = price + 1 WHERE id = ?1")?;
            update.execute([id])?;
        }
        transaction.commit()?;
        done += 1.0;
    }
    Ok(done / began.elapsed().as_secs_f64())
}

/// Repeatedly opens a small database, queries it, and closes it.
fn small(asked: &Asked) -> Result<f64, Failed> {
    let file = asked.folder.join("small.db");
    database(&file, 200)?;
    let (began, mut done) = (Instant::now(), 0.0);
    while began.elapsed() < asked.time {
        let connection = Connection::open(&file)?;
        let _: f64 =
            connection.query_row("SELECT sum(price) FROM item WHERE id < 100", [], |r| {
                r.get(0)
            })?;
        done += 1.0;
    }
    Ok(done / began.elapsed().as_secs_f64())
}

/// Runs the order-entry load of `hugeleaf-lab oltp`; returns new orders a second.
fn tpcc(asked: &Asked) -> Result<f64, Failed> {
    let warehouses =
        i32::try_from(asked.cache.get() / SqliteStore::WAREHOUSE.get() / 5 * 4)?.max(1);
    let store = SqliteStore::open(SqliteSettings {
        directory: asked.folder.join("tpcc"),
        files: 1,
        cache: asked.cache,
        durability: Durability::Never,
        alone: true,
        warm: true,
        touched: None,
        stop: Arc::default(),
    })?;
    let never = AtomicBool::new(false);
    let origin = DatasetSpec {
        warehouses,
        shards: 1,
        scale: TableCardinality::shrunk(1),
        seed: 1,
        filled_at: 1,
    };
    if store.files().is_empty() {
        load(&store, &origin, true, &mut |_| {}, &never)?;
    }
    let run = DriverSettings {
        connections: 1,
        ramp_up: Duration::from_secs(2),
        time: asked.time,
        pace: TransactionPace::Full,
        touched: None,
        seed: 1,
    };
    let outcome = drive(&store, &origin, run, &mut (), &mut |_, _| {}, &never)?;
    Ok(outcome.notpm() / 60.0)
}

/// Two databases, each slightly smaller than the cache; one is read at full speed, the other little, in turns.
#[expect(clippy::too_many_lines, reason = "one run")]
fn swap(asked: &Asked) -> Result<(), Failed> {
    let rows = asked.cache.get() / ROW_BYTES / 10 * 7;
    let files = ["a", "b"].map(|name| asked.folder.join(format!("swap-{name}-{rows}.db")));
    for file in &files {
        database(file, rows)?;
    }
    let counts = [AtomicU64::new(0), AtomicU64::new(0)];
    let (busy, end) = (AtomicUsize::new(0), AtomicBool::new(false));
    let slow = std::thread::scope(|scope| -> Result<Vec<Slow>, Failed> {
        let workers: Vec<_> = (0..2usize)
            .map(|at| {
                let (file, count, busy, end) = (&files[at], &counts[at], &busy, &end);
                scope.spawn(move || -> Result<Vec<Slow>, Failed> {
                    let connection = open(file, asked.each[at])?;
                    let mut slow = Vec::new();
                    while !end.load(Ordering::Relaxed) {
                        let is_busy = busy.load(Ordering::Relaxed) == at;
                        let one = std::cell::Cell::new(false);
                        let stop = || {
                            is_busy
                                && (busy.load(Ordering::Relaxed) != at
                                    || end.load(Ordering::Relaxed))
                                || !is_busy && one.replace(true)
                        };
                        let seed = count.load(Ordering::Relaxed);
                        slow.extend(read(&connection, rows, seed, stop, count)?);
                        if !is_busy {
                            std::thread::sleep(Duration::from_millis(20));
                        }
                    }
                    Ok(slow)
                })
            })
            .collect();
        let began = Instant::now();
        let mut last = 0;
        while began.elapsed() < asked.time {
            std::thread::sleep(Duration::from_secs(1));
            let all = counts
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .sum::<u64>();
            let sizes = asked.installed.map(|installed| installed.shares());
            let sizes: Vec<u64> = sizes
                .into_iter()
                .flatten()
                .map(|share| share.slots)
                .collect();
            println!("second {} {sizes:?}", all - last);
            last = all;
            let phase = began.elapsed().as_secs() / PHASE.as_secs();
            busy.store(usize::from(phase % 2 == 1), Ordering::Relaxed);
        }
        end.store(true, Ordering::Relaxed);
        let mut slow = Vec::new();
        for worker in workers {
            slow.extend(worker.join().map_err(|_| "a reader panicked")??);
        }
        Ok(slow)
    })?;
    let moves = moves(asked);
    let in_a_move = |slow: &&Slow| {
        let (from, to) = (slow.began, slow.began + slow.took);
        moves
            .iter()
            .any(|(began, ended)| from < *ended && *began < to)
    };
    let longest = |slow: Option<Duration>| slow.unwrap_or_default().as_secs_f64();
    println!("longest {}", longest(slow.iter().map(|s| s.took).max()));
    let moved = slow.iter().filter(in_a_move);
    println!("longest-in-a-move {}", longest(moved.map(|s| s.took).max()));
    Ok(())
}

/// Returns the intervals in which memory was moved. The manager's clock began a moment after this program's.
fn moves(asked: &Asked) -> Vec<(Instant, Instant)> {
    let view = asked.installed.and_then(|installed| installed.view());
    let operations = view.map_or_else(Vec::new, |view| view.operations);
    let at = |seconds| asked.began + Duration::from_secs_f64(seconds);
    let is_over = |o: &ResizeOperation| Some((at(o.start_seconds), at(o.end_seconds?)));
    operations.iter().filter_map(is_over).collect()
}
