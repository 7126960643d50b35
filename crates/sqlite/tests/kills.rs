//! A process that is killed during its commits: reported commits persist, and the file is intact.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use hugeleaf::Bytes;
use rusqlite::Connection;

const CHILD: &str = "HUGELEAF_KILLED";

#[test]
fn no_row_is_lost_by_a_kill() {
    if !hugeleaf_testkit::in_own_process("kills::no_row_is_lost_by_a_kill") {
        return;
    }
    let kills = hugeleaf_testkit::size_or_soak(8, 25, 500);
    let mut random = fastrand::Rng::with_seed(1);
    let folder = tempfile::tempdir().unwrap();
    for mode in ["WAL", "DELETE"] {
        let file = folder.path().join(mode);
        let mut last = 0;
        for kill in 0..kills / 2 {
            let told = killed(&file, mode, Duration::from_millis(random.u64(30..250)));
            let connection = Connection::open(&file).unwrap();
            assert_eq!(crate::support::integrity(&connection), "ok", "kill {kill}");
            let (rows, most): (i64, i64) = connection
                .query_row("SELECT count(*), ifnull(max(id), 0) FROM r", [], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .unwrap_or_default();
            assert_eq!(rows, most, "kill {kill}: rows between are gone");
            let known = told.unwrap_or(last);
            assert!(rows >= known, "kill {kill}: told {known}, found {rows}");
            last = rows;
        }
        assert!(last > 100, "{mode}: nothing was committed: {last}");
    }
}

/// Last row that was reported to the child as committed.
fn killed(file: &Path, mode: &str, after: Duration) -> Option<i64> {
    let mut child = crate::support::child("kills", CHILD, &format!("{mode} {}", file.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    hugeleaf_testkit::pause(after, "the kill is at a random moment");
    child.kill().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let told = out.lines().map_while(Result::ok);
    let told = told.filter_map(|line| {
        line.strip_prefix("committed ")?
            .strip_suffix('.')?
            .parse()
            .ok()
    });
    let told = told.last();
    child.wait().unwrap();
    told
}

#[test]
fn child_of_the_other_test() {
    let Ok(what) = std::env::var(CHILD) else {
        return;
    };
    let (mode, file) = what.split_once(' ').unwrap();
    let cache = crate::support::cache(Bytes::from_mib(4));
    let mut connection = Connection::open(file).unwrap();
    let setup = format!(
        "PRAGMA journal_mode={mode}; PRAGMA synchronous=FULL; PRAGMA cache_spill=20;
         CREATE TABLE IF NOT EXISTS r (id INTEGER PRIMARY KEY, text TEXT);"
    );
    connection.execute_batch(&setup).unwrap();
    let mut next: i64 = connection
        .query_row("SELECT ifnull(max(id), 0) + 1 FROM r", [], |row| row.get(0))
        .unwrap();
    loop {
        let transaction = connection.transaction().unwrap();
        // Some transactions are larger than the cache.
        let rows = if next % 7 == 0 { 2000 } else { 20 };
        for _ in 0..rows {
            transaction
                .prepare_cached("INSERT INTO r VALUES (?1, ?2)")
                .unwrap()
                .execute((next, crate::support::text_of(next)))
                .unwrap();
            next += 1;
        }
        transaction.commit().unwrap();
        println!("committed {}.", next - 1);
        let _ = cache.set_target(Bytes::from_mib(2 + next.unsigned_abs() % 3));
    }
}
