//! Converts MariaDB's answers to errors of this kit, and names its database.

use ::mysql::{Error, ServerError};

use crate::kits::tpcc::error::TpccError;

/// This kit makes everything in this database and does not touch others.
pub(super) const DATABASE: &str = "hugeleaf_tpcc";

/// A row that was read has changed meanwhile (`innodb_snapshot_isolation`).
const CHANGED_SINCE: u16 = 1020;

/// Returns true after a conflict with another transaction that left nothing of this one.
pub(super) fn is_conflict(error: &Error) -> bool {
    const ALL: [u16; 3] = [
        ServerError::ER_LOCK_DEADLOCK as u16,
        ServerError::ER_LOCK_WAIT_TIMEOUT as u16,
        CHANGED_SINCE,
    ];
    matches!(error, Error::MySqlError(answer) if ALL.contains(&answer.code))
}

/// Converts MariaDB's answer to an error of this kit.
pub(crate) fn explain(place: &str, error: &Error) -> TpccError {
    /// No space left on the device, for a table and for a temporary file.
    const FULL: [u16; 3] = [1021, 1026, 1114];
    const DENIED: [u16; 5] = [1044, 1045, 1142, 1227, 1370];
    /// The server is being shut down, or has closed the connection.
    const AWAY: [u16; 3] = [1053, 1927, 1152];
    let place = place.to_owned();
    let Error::MySqlError(answer) = error else {
        // Without an answer, the connection is lost.
        let reason = error.to_string().replace('\n', " ");
        return TpccError::ConnectionLost { place, reason };
    };
    let reason = answer.message.replace('\n', " ");
    match answer.code {
        code if FULL.contains(&code) => TpccError::Full { place, reason },
        code if DENIED.contains(&code) => TpccError::Denied { place, reason },
        code if AWAY.contains(&code) => TpccError::ConnectionLost { place, reason },
        _ => TpccError::Database { place, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16) -> Error {
        Error::MySqlError(::mysql::MySqlError {
            state: "HY000".to_owned(),
            message: "one\ntwo".to_owned(),
            code,
        })
    }

    #[test]
    fn answers_are_told_apart() {
        for code in [1020, 1205, 1213] {
            assert!(is_conflict(&answer(code)), "{code}");
        }
        assert!(!is_conflict(&answer(1064)));
        let of = |code| explain("here", &answer(code));
        assert!(matches!(of(1114), TpccError::Full { .. }));
        assert!(matches!(of(1045), TpccError::Denied { .. }));
        assert!(matches!(of(1053), TpccError::ConnectionLost { .. }));
        let other = of(1064);
        assert!(matches!(other, TpccError::Database { .. }));
        assert_eq!(other.to_string(), "here: one two");
    }
}
