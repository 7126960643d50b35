//! SQLite accepts no cache once it is in use, and continues with its own. Runs in its own process.

use hugeleaf::Bytes;
use hugeleaf_sqlite::{Api, InstallError, Options};
use rusqlite::Connection;

#[test]
fn a_sqlite_that_is_in_use_keeps_its_cache() {
    if !hugeleaf_testkit::in_own_process("in_use::a_sqlite_that_is_in_use_keeps_its_cache") {
        return;
    }
    let connection = Connection::open_in_memory().unwrap();
    let options = Options::new(Bytes::from_mib(32), crate::support::base());
    let refused = hugeleaf_sqlite::install(&Api::linked(), &options);
    assert!(
        matches!(refused, Err(InstallError::Refused(_))),
        "{refused:?}"
    );
    let small = Options::new(Bytes(1), crate::support::base());
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
