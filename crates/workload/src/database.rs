//! Defines the table, its rows, and the two statements of the load.

use rusqlite::{Connection, OpenFlags, Statement, params};

use crate::sqlite_cache::{CacheError, DATABASE_PAGE};

/// Length of a record in 8-byte words, beside key and stamp. A row takes about 300 bytes, and a page holds 13 rows.
const WORDS: usize = 35;
const RECORD: usize = WORDS * 8;

#[derive(Debug)]
pub struct Database {
    connection: Connection,
    seed: u64,
}

#[derive(Debug)]
pub struct RowStatements<'c> {
    read: Statement<'c>,
    update: Statement<'c>,
    seed: u64,
}

impl Database {
    /// Opens an empty database whose rows are generated from `seed`.
    pub fn open(seed: u64) -> Result<Database, CacheError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_in_memory_with_flags(flags)?;
        connection.pragma_update(None, "page_size", to_sql(DATABASE_PAGE as u64))?;
        // Sets the default of in-memory databases explicitly. Each update saves its page first, as a server's log would.
        let _: String = connection.query_row("PRAGMA journal_mode=MEMORY", [], |r| r.get(0))?;
        connection.execute_batch(
            "CREATE TABLE account (
                 id INTEGER PRIMARY KEY, stamp BLOB NOT NULL, record BLOB NOT NULL)",
        )?;
        Ok(Database { connection, seed })
    }

    /// Inserts rows with keys from 1 in key order, so that pages are filled up and written once. Stops when `go_on` returns false; it is
    /// called at intervals with the row count. Returns the rows.
    pub fn fill(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<u64, CacheError> {
        const ROWS_BETWEEN_LOOKS: u64 = 1024;
        let transaction = self.connection.unchecked_transaction()?;
        let mut rows = 0;
        {
            let mut insert = transaction
                .prepare("INSERT INTO account (id, stamp, record) VALUES (?1, ?2, ?3)")?;
            let stamp = 0u64.to_le_bytes();
            while go_on(rows) {
                for key in rows + 1..=rows + ROWS_BETWEEN_LOOKS {
                    insert.execute(params![to_sql(key), stamp, record(self.seed, key)])?;
                }
                rows += ROWS_BETWEEN_LOOKS;
            }
        }
        transaction.commit()?;
        Ok(rows)
    }

    pub fn count(&self) -> Result<u64, CacheError> {
        let count: i64 = self
            .connection
            .query_row("SELECT count(*) FROM account", [], |r| r.get(0))?;
        Ok(count.cast_unsigned())
    }

    pub fn row(&self) -> Result<RowStatements<'_>, CacheError> {
        Ok(RowStatements {
            read: self
                .connection
                .prepare("SELECT stamp, record FROM account WHERE id = ?1")?,
            update: self
                .connection
                .prepare("UPDATE account SET stamp = ?2 WHERE id = ?1")?,
            seed: self.seed,
        })
    }
}

impl RowStatements<'_> {
    /// Reads and checks a whole row. Returns its stamp.
    pub fn read(&mut self, key: u64) -> Result<u64, CacheError> {
        let damaged = CacheError::Damaged(key);
        let mut rows = self.read.query(params![to_sql(key)])?;
        let row = rows.next()?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        let stamp = row
            .get_ref(0)?
            .as_blob()
            .ok()
            .and_then(|b| b.try_into().ok());
        let sum = row.get_ref(1)?.as_blob().ok().and_then(sum);
        match (stamp, sum) {
            (Some(stamp), Some(sum)) if sum == mix(self.seed ^ key) => {
                Ok(u64::from_le_bytes(stamp))
            }
            _ => Err(damaged),
        }
    }

    /// Writes a new stamp of the same length, so that the database never grows.
    pub fn update(&mut self, key: u64, stamp: u64) -> Result<(), CacheError> {
        match self
            .update
            .execute(params![to_sql(key), stamp.to_le_bytes()])?
        {
            1 => Ok(()),
            _ => Err(CacheError::Damaged(key)),
        }
    }
}

/// Generates a row's record from seed and key. The XOR of its words is `mix(seed ^ key)`.
fn record(seed: u64, key: u64) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    let mut state = mix(seed ^ key);
    let mut left = state;
    let (last, words) = bytes
        .as_chunks_mut::<8>()
        .0
        .split_last_mut()
        .expect("not empty");
    for word in words {
        state = mix(state);
        left ^= state;
        *word = state.to_le_bytes();
    }
    *last = left.to_le_bytes();
    bytes
}

/// Returns the XOR of all words of a record; `None` for a wrong length.
fn sum(bytes: &[u8]) -> Option<u64> {
    let bytes: &[u8; RECORD] = bytes.try_into().ok()?;
    let words = bytes.as_chunks::<8>().0;
    Some(
        words
            .iter()
            .fold(0, |sum, word| sum ^ u64::from_le_bytes(*word)),
    )
}

/// One step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); distinct inputs give distinct outputs.
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Converts a key, which is far below 2^63.
fn to_sql(key: u64) -> i64 {
    key.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(seed: u64, rows: u64) -> Database {
        let database = Database::open(seed).unwrap();
        let got = database.fill(&mut |so_far| so_far < rows).unwrap();
        assert!(got >= rows);
        assert_eq!(database.count().unwrap(), got);
        database
    }

    #[test]
    fn reads_return_what_was_written() {
        let database = filled(7, 3000);
        let rows = database.count().unwrap();
        let mut row = database.row().unwrap();
        for key in 1..=rows {
            assert_eq!(row.read(key).unwrap(), 0);
        }
        row.update(17, 4711).unwrap();
        assert_eq!(row.read(17).unwrap(), 4711);
        assert_eq!(row.read(18).unwrap(), 0);
        assert!(row.read(rows + 1).is_err());
        assert!(row.update(rows + 1, 1).is_err());
    }

    #[test]
    fn a_damaged_row_is_noticed() {
        let database = filled(7, 100);
        database
            .connection
            .execute(
                "UPDATE account SET record = (SELECT record FROM account WHERE id = 2) WHERE id = 1",
                [],
            )
            .unwrap();
        let mut row = database.row().unwrap();
        assert!(matches!(row.read(1), Err(CacheError::Damaged(1))));
        row.read(2).unwrap();
    }

    #[test]
    fn the_seed_decides_the_contents() {
        assert_eq!(record(1, 5), record(1, 5));
        assert_ne!(record(1, 5), record(2, 5));
        assert_ne!(record(1, 5), record(1, 6));
        assert_eq!(sum(&record(1, 5)), Some(mix(1 ^ 5)));
        assert_eq!(sum(&[0; RECORD - 1]), None);
    }

    #[test]
    fn updates_do_not_grow_the_database() {
        let database = filled(1, 5000);
        let pages = |d: &Database| -> i64 {
            d.connection
                .query_row("PRAGMA page_count", [], |r| r.get(0))
                .unwrap()
        };
        let before = pages(&database);
        let mut row = database.row().unwrap();
        for n in 0..20_000u64 {
            row.update(n % 5000 + 1, n << 40).unwrap();
        }
        assert_eq!(pages(&database), before);
    }
}
