//! SQLite's answers as errors of ours.

use rusqlite::ErrorCode;

use super::super::error::TpccError;

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// SQLite's answer as an error of ours.
pub(super) fn explain(place: &str, error: rusqlite::Error) -> TpccError {
    let (place, reason) = (place.to_owned(), error.to_string());
    match error.sqlite_error_code() {
        // Nobody interrupts a statement but by `stop`.
        Some(ErrorCode::OperationInterrupted) => TpccError::Stopped,
        Some(ErrorCode::DiskFull) => TpccError::Full { place, reason },
        Some(ErrorCode::NotADatabase) => TpccError::Foreign {
            place,
            what: reason,
        },
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
            TpccError::File {
                path: place,
                source: std::io::Error::other(reason),
            }
        }
        _ => TpccError::Database { place, reason },
    }
}

/// Of a database without a place: the one in memory.
impl From<rusqlite::Error> for TpccError {
    fn from(error: rusqlite::Error) -> TpccError {
        explain("sqlite", error)
    }
}
