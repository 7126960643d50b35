//! PostgreSQL's answers as errors of ours, and where all of it is.

use std::error::Error as _;

use ::postgres::Error;
use ::postgres::error::SqlState;

use super::super::error::TpccError;

/// All that this kit makes is in this schema. What else is in the database is left alone.
pub(super) const SCHEMA: &str = "hugeleaf_tpcc";

/// The server's own words, which the library's text leaves out.
fn reason(error: &Error) -> String {
    let text = match (error.as_db_error(), error.source()) {
        (Some(db), _) => db.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    };
    text.replace('\n', " ")
}

/// PostgreSQL's answer as an error of ours.
pub(super) fn explain(place: &str, error: &Error) -> TpccError {
    let (place, reason) = (place.to_owned(), reason(error));
    let Some(code) = error.code() else {
        // No answer at all: the connection is gone.
        return TpccError::Away { place, reason };
    };
    match code {
        c if *c == SqlState::DISK_FULL => TpccError::Full { place, reason },
        c if *c == SqlState::INSUFFICIENT_PRIVILEGE => TpccError::Denied { place, reason },
        c if *c == SqlState::ADMIN_SHUTDOWN
            || *c == SqlState::CRASH_SHUTDOWN
            || *c == SqlState::CANNOT_CONNECT_NOW
            || c.code().starts_with("08") =>
        {
            TpccError::Away { place, reason }
        }
        c if c.code().starts_with("28") || *c == SqlState::UNDEFINED_DATABASE => {
            TpccError::Unreachable { place, reason }
        }
        _ => TpccError::Database { place, reason },
    }
}
