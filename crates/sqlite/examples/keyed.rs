//! Keyed reads of one database: on SQLite's own cache, or on this crate's, with the same bytes of pages.
//!
//! `keyed stock|large|base FILE MIB ROWS SECONDS [THREADS]` prints reads a second. FILE is made where it is not there.

use std::path::Path;
use std::time::{Duration, Instant};

use hugeleaf::Bytes;
use hugeleaf_sqlite::{Api, Options};
use rusqlite::{Connection, OpenFlags};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let [mode, file, mib, rows, seconds, ..] = &all[..] else {
        return Err("keyed stock|large|base FILE MIB ROWS SECONDS [THREADS]".into());
    };
    let (mib, rows, seconds): (u64, u64, u64) = (mib.parse()?, rows.parse()?, seconds.parse()?);
    let threads: u64 = all.get(5).map_or(Ok(1), |threads| threads.parse())?;
    let ladder = match mode.as_str() {
        "stock" => None,
        "large" => Some("thp:2M"),
        _ => Some("4K"),
    };
    let installed = match ladder {
        Some(ladder) => Some(hugeleaf_sqlite::install(
            &Api::linked(),
            &Options::new(Bytes::from_mib(mib), ladder.parse()?),
        )?),
        None => None,
    };
    fill(Path::new(file), rows)?;
    let reads: u64 = std::thread::scope(|scope| {
        let each = (0..threads).map(|thread| {
            let file = file.clone();
            scope.spawn(move || read(&file, mib / threads, rows, seconds, thread).unwrap_or(0))
        });
        let running: Vec<_> = each.collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or(0))
            .sum()
    });
    println!("{}", reads / seconds);
    if let Some(installed) = installed {
        eprintln!("{:?} {:?}", installed.held(), installed.shares());
        if let Some(info) = installed.info() {
            eprintln!("{}", info?);
        }
    }
    Ok(())
}

fn fill(file: &Path, rows: u64) -> rusqlite::Result<()> {
    if file.exists() {
        return Ok(());
    }
    let mut connection = Connection::open(file)?;
    connection.execute_batch(
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;
         CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);",
    )?;
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare("INSERT INTO item VALUES (?1, ?2, ?3)")?;
        for id in 0..rows {
            let name = format!("item {id:>92}");
            insert.execute((id as i64, name, id as f64 / 100.0))?;
        }
    }
    transaction.commit()
}

fn read(file: &str, mib: u64, rows: u64, seconds: u64, thread: u64) -> rusqlite::Result<u64> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.pragma_update(None, "cache_size", -((mib * 1024) as i64))?;
    let _: i64 =
        connection.query_row("SELECT sum(length(name)) FROM item", [], |row| row.get(0))?;
    let _: i64 =
        connection.query_row("SELECT sum(length(name)) FROM item", [], |row| row.get(0))?;
    let mut statement = connection.prepare("SELECT price FROM item WHERE id = ?1")?;
    // Without a transaction each read takes and releases a lock on the file.
    connection.execute_batch("BEGIN")?;
    let mut random = fastrand::Rng::with_seed(thread + 1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut reads = 0;
    while Instant::now() < end {
        for _ in 0..1000 {
            let id = random.u64(0..rows) as i64;
            let _: f64 = statement.query_row([id], |row| row.get(0))?;
        }
        reads += 1000;
    }
    Ok(reads)
}
