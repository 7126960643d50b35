//! SQLite takes no cache once it is in use, and goes on with its own. Alone in its process.

// A panic is how a test fails, also in its helpers.
#![allow(clippy::unwrap_used)]

mod support;

use hugeleaf::Bytes;
use hugeleaf_sqlite::{Api, InstallError, Options};
use rusqlite::Connection;

#[test]
fn a_sqlite_that_is_in_use_keeps_its_cache() {
    let connection = Connection::open_in_memory().unwrap();
    let options = Options::new(Bytes::from_mib(32), support::base());
    let refused = hugeleaf_sqlite::install(&Api::linked(), &options);
    assert!(
        matches!(refused, Err(InstallError::Refused(_))),
        "{refused:?}"
    );
    let small = Options::new(Bytes(1), support::base());
    let refused = hugeleaf_sqlite::install(&Api::linked(), &small);
    assert!(
        matches!(refused, Err(InstallError::TooSmall { .. })),
        "{refused:?}"
    );
    let one: i64 = connection
        .query_row("SELECT 1", [], |row| row.get(0))
        .unwrap();
    assert_eq!(one, 1);
}
