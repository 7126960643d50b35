//! A program with only small databases stays single-threaded. Runs in its own process.

use crate::support::{fill, share};
use hugeleaf::Bytes;
use rusqlite::Connection;

/// True if this process has the manager's thread. The kernel keeps 15 bytes of a name.
fn is_managed() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap());
    names
        .into_iter()
        .any(|name| name.starts_with("hugeleaf-man"))
}

#[test]
fn the_first_database_that_takes_part_starts_the_manager() {
    if !hugeleaf_testkit::in_own_process(
        "small::the_first_database_that_takes_part_starts_the_manager",
    ) {
        return;
    }
    let cache = crate::support::cache(Bytes::from_mib(32));
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let connection = Connection::open(folder.path().join("small")).unwrap();
        connection
            .execute_batch("CREATE TABLE IF NOT EXISTS t (a); INSERT INTO t VALUES (1)")
            .unwrap();
    }
    assert!(!is_managed());
    let _open = fill(&folder.path().join("large"), 2_000);
    assert!(share(&cache, "large").used > 0);
    // A new thread sets its own name.
    hugeleaf_testkit::until("the manager has its name", is_managed);
}
