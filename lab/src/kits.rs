//! Workloads to measure, without arms, results or judgement.
//!
//! [`tpcc`] is an order-entry load on SQLite, PostgreSQL and MariaDB. [`keyed_reads`] reads by key on a MariaDB server.
//! [`backup_io`] is the data path of a backup server. [`memory_pinning`] pins a buffer. In [`pagetables`], processes attach one
//! region.

pub mod backup_io;
pub mod keyed_reads;
pub mod memory_pinning;
pub mod pagetables;
pub mod tpcc;

use std::thread::ScopedJoinHandle;

/// Joins all threads, then returns their results or the first error. A panic of a thread is resumed here.
fn joined<T, E>(workers: Vec<ScopedJoinHandle<'_, Result<T, E>>>) -> Result<Vec<T>, E> {
    let ended = workers.into_iter().map(|worker| match worker.join() {
        Ok(ended) => ended,
        Err(panic) => std::panic::resume_unwind(panic),
    });
    // Every thread is joined before the first error is returned.
    let ended: Vec<Result<T, E>> = ended.collect();
    ended.into_iter().collect()
}
