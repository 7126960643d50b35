//! SQLite accepts no cache once it is in use, and continues with its own. Runs in its own process.

use hugeleaf::{Bytes, ElasticError};
use hugeleaf_host::{Root, read_memory_facts};
use hugeleaf_sqlite::{Api, InstallError, Options};
use hugeleaf_sys::Kernel;
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

/// The cache takes memory as it needs it, so nothing else would report such a target.
#[test]
fn a_target_beyond_memory_is_refused() {
    if !hugeleaf_testkit::in_own_process("in_use::a_target_beyond_memory_is_refused") {
        return;
    }
    let host = read_memory_facts(&Root::live(), &Kernel::new()).unwrap();
    let total = host.memory.total.get().unwrap();
    let over = total + total;
    let mut options = Options::new(over, crate::support::base());
    options.most = over;
    let refused = hugeleaf_sqlite::install(&Api::linked(), &options).unwrap_err();
    let InstallError::Elastic(ElasticError::OverMemory { target, most }) = &refused else {
        panic!("{refused:?}");
    };
    assert!(*target > total && *most <= total, "{refused}");
    assert!(refused.to_string().contains(&most.to_string()), "{refused}");
    // SQLite was not touched, so a cache can still be installed.
    options.target = Bytes::from_mib(32);
    let cache = hugeleaf_sqlite::install(&Api::linked(), &options).unwrap();
    let refused = cache.set_target(over).unwrap();
    let is_over = |error: &ElasticError| matches!(error, ElasticError::OverMemory { .. });
    assert!(refused.as_ref().is_err_and(is_over), "{refused:?}");
    assert_eq!(cache.held().1, Bytes::from_mib(32));
    cache.set_target(Bytes::from_mib(64)).unwrap().unwrap();
}
