//! Counters of reads and writes, as reported by a database.

use std::ops::{Add, Sub};

/// Counts since some moment, so only differences have a meaning. `None` for a value that the
/// database does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatabaseCounters {
    /// Pages requested from its cache, hits and misses.
    pub logical_reads: Option<u64>,
    /// Misses among them, read from a file.
    pub physical_reads: Option<u64>,
    /// Pages written to a file. SQLite: to its log. PostgreSQL: by checkpoints, its background
    /// writer and its backends. MariaDB: from its buffer pool.
    pub physical_writes: Option<u64>,
    /// Changes of pages. SQLite: pages changed by a transaction. PostgreSQL: records of its log.
    /// MariaDB: requests to change a page of its buffer pool.
    pub block_changes: Option<u64>,
    /// Microseconds of processor time of the database's own processes, in user mode and in the
    /// kernel; `None` if it runs in this process.
    pub server_cpu_micros: Option<(u64, u64)>,
}

/// Error for a counter that went down: it was reset, or the database was restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the database's own counters decreased during the measurement")]
pub struct CounterResetError;

impl Add for DatabaseCounters {
    type Output = DatabaseCounters;

    fn add(self, other: DatabaseCounters) -> DatabaseCounters {
        let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        DatabaseCounters {
            logical_reads: add(self.logical_reads, other.logical_reads),
            physical_reads: add(self.physical_reads, other.physical_reads),
            physical_writes: add(self.physical_writes, other.physical_writes),
            block_changes: add(self.block_changes, other.block_changes),
            server_cpu_micros: match (self.server_cpu_micros, other.server_cpu_micros) {
                (Some(a), Some(b)) => Some((a.0 + b.0, a.1 + b.1)),
                (a, b) => a.or(b),
            },
        }
    }
}

impl Sub for DatabaseCounters {
    type Output = Result<DatabaseCounters, CounterResetError>;

    fn sub(self, earlier: DatabaseCounters) -> Result<DatabaseCounters, CounterResetError> {
        let less = |now: Option<u64>, then: Option<u64>| match (now, then) {
            (Some(now), Some(then)) => now.checked_sub(then).map(Some).ok_or(CounterResetError),
            _ => Ok(None),
        };
        Ok(DatabaseCounters {
            logical_reads: less(self.logical_reads, earlier.logical_reads)?,
            physical_reads: less(self.physical_reads, earlier.physical_reads)?,
            physical_writes: less(self.physical_writes, earlier.physical_writes)?,
            block_changes: less(self.block_changes, earlier.block_changes)?,
            server_cpu_micros: match (self.server_cpu_micros, earlier.server_cpu_micros) {
                // The time of a backend that has ended is no longer in the sum.
                (Some(now), Some(then)) => {
                    Some((now.0.saturating_sub(then.0), now.1.saturating_sub(then.1)))
                }
                _ => None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_counted_stays_unknown() {
        let some = DatabaseCounters {
            logical_reads: Some(5),
            ..DatabaseCounters::default()
        };
        let more = DatabaseCounters {
            logical_reads: Some(7),
            physical_reads: Some(1),
            ..DatabaseCounters::default()
        };
        assert_eq!((some + more).logical_reads, Some(12));
        assert_eq!((some + more).physical_reads, Some(1));
        let difference = (more - some).unwrap();
        assert_eq!(difference.logical_reads, Some(2));
        assert_eq!(difference.physical_reads, None);
        assert_eq!(some - more, Err(CounterResetError));
    }
}
