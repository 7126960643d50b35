//! Workloads: what an experiment measures, without arms, results or judgement.
//!
//! [`tpcc`] is an order-entry load on SQLite, PostgreSQL and MariaDB; [`keyed`] reads by key on a MariaDB server;
//! [`mover`] the data path of a backup server; [`pin`] the cost of pinning a buffer; [`pagetables`] processes that attach
//! one region.

pub mod keyed;
pub mod mover;
pub mod pagetables;
pub mod pin;
pub mod tpcc;

use std::thread::ScopedJoinHandle;

/// Returns the results of threads, or the first error of any, once all have ended. A panic goes on here.
fn joined<T, E>(workers: Vec<ScopedJoinHandle<'_, Result<T, E>>>) -> Result<Vec<T>, E> {
    let ended = workers.into_iter().map(|worker| match worker.join() {
        Ok(ended) => ended,
        Err(panic) => std::panic::resume_unwind(panic),
    });
    // All of them, and only then the first error.
    let ended: Vec<Result<T, E>> = ended.collect();
    ended.into_iter().collect()
}
