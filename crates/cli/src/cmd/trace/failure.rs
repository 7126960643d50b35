//! What to say of a trace that cannot be read or written.

use hugeleaf_trace::TraceFileError;

use crate::context::Failure;

/// A file that could not be read or written.
pub fn file_failure(error: &TraceFileError) -> Failure {
    Failure::missing(error.to_string(), error.next())
}
