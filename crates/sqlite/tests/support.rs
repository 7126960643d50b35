//! Shared helpers for tests of the cache. The cache is installed once per process, on base pages, so that it needs no
//! privilege and no page of a pool.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use hugeleaf::{Bytes, Ladder, PageSize};
use hugeleaf_host::{Root, read_host};
use hugeleaf_sqlite::{Api, Installed, Options, ShareView};
use hugeleaf_sys::Kernel;
use rusqlite::Connection;

/// Returns the host's base page as a ladder.
pub fn base() -> Ladder {
    let host = read_host(&Root::live(), &Kernel::new()).unwrap();
    host.base_page.to_string().parse().unwrap()
}

/// Returns options for a cache of that size, checked often.
pub fn cache(target: Bytes) -> Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let mut options = Options::new(target, base());
        options.every = Duration::from_millis(100);
        // Small, so that little memory has many of them.
        let base = options.ladder.rungs()[0].size;
        let granule = base.pages_for(Bytes::from_kib(128)).in_bytes(base);
        options.granule = Some(PageSize::new(granule).unwrap());
        hugeleaf_sqlite::install(&Api::linked(), &options).unwrap()
    })
}

/// Returns the share of a database.
pub fn share(cache: &Installed, name: &str) -> ShareView {
    let shares = cache.shares();
    let found = shares.iter().find(|share| share.name == name);
    found
        .unwrap_or_else(|| panic!("{name} is not in {shares:?}"))
        .clone()
}

/// Creates a database with a table of rows of about a tenth of a page each.
pub fn fill(file: &Path, rows: i64) -> Connection {
    let mut connection = Connection::open(file).unwrap();
    let setup =
        "PRAGMA synchronous=OFF; CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT, n INTEGER);";
    connection.execute_batch(setup).unwrap();
    let transaction = connection.transaction().unwrap();
    {
        let mut insert = transaction
            .prepare("INSERT INTO t VALUES (?1, ?2, 0)")
            .unwrap();
        for id in 0..rows {
            insert.execute((id, text_of(id))).unwrap();
        }
    }
    transaction.commit().unwrap();
    connection
}

/// Returns the contents of a row.
pub fn text_of(id: i64) -> String {
    format!("{id:>400}")
}

/// Reads rows by key and checks them.
pub fn read(connection: &Connection, ids: impl Iterator<Item = i64>) {
    let mut select = connection
        .prepare_cached("SELECT text FROM t WHERE id = ?1")
        .unwrap();
    for id in ids {
        let text: String = select.query_row([id], |row| row.get(0)).unwrap();
        assert_eq!(text, text_of(id));
    }
}

/// Returns the result of `PRAGMA integrity_check`.
pub fn integrity(connection: &Connection) -> String {
    connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap()
}

/// Returns a command that runs `child_of_the_other_test` of a module alone; a variable tells it what to do.
pub fn child(module: &str, variable: &str, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        &format!("{module}::child_of_the_other_test"),
        "--nocapture",
    ]);
    command.env(variable, what);
    command
}
