//! Converts PostgreSQL's answers to errors of this kit, and names its schema.

use std::error::Error as _;

use ::postgres::Error;
use ::postgres::error::SqlState;

use super::super::error::TpccError;

/// This kit makes everything in this schema and touches nothing else in the database.
pub(super) const SCHEMA: &str = "hugeleaf_tpcc";

/// Returns the server's own message, which the library's text omits.
fn reason(error: &Error) -> String {
    let text = match (error.as_db_error(), error.source()) {
        (Some(db), _) => db.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    };
    text.replace('\n', " ")
}

/// Converts PostgreSQL's answer to an error of this kit.
pub(super) fn explain(place: &str, error: &Error) -> TpccError {
    let (place, reason) = (place.to_owned(), reason(error));
    let Some(code) = error.code() else {
        // Without an answer, the connection is lost.
        return TpccError::ConnectionLost { place, reason };
    };
    match code {
        c if *c == SqlState::DISK_FULL => TpccError::Full { place, reason },
        c if *c == SqlState::INSUFFICIENT_PRIVILEGE => TpccError::Denied { place, reason },
        c if *c == SqlState::ADMIN_SHUTDOWN
            || *c == SqlState::CRASH_SHUTDOWN
            || *c == SqlState::CANNOT_CONNECT_NOW
            || c.code().starts_with("08") =>
        {
            TpccError::ConnectionLost { place, reason }
        }
        c if c.code().starts_with("28") || *c == SqlState::UNDEFINED_DATABASE => {
            TpccError::Unreachable { place, reason }
        }
        _ => TpccError::Database { place, reason },
    }
}
