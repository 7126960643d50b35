//! Converts SQLite's answers to errors of this kit.

use rusqlite::ErrorCode;

use super::super::error::TpccError;

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// Converts SQLite's answer to an error of this kit.
pub(super) fn explain(place: &str, error: rusqlite::Error) -> TpccError {
    let (place, reason) = (place.to_owned(), error.to_string());
    match error.sqlite_error_code() {
        // Only `stop` interrupts a statement.
        Some(ErrorCode::OperationInterrupted) => TpccError::Stopped,
        Some(ErrorCode::DiskFull) => TpccError::Full { place, reason },
        Some(ErrorCode::NotADatabase) => TpccError::ForeignData {
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
