//! Errors as exceptions of the package. Each has the remedy in its attribute `next`.

use hugeleaf::{MemoryError, ParseError};
use pyo3::PyErr;

/// The classes are defined in Python, where they inherit from two classes each.
mod python {
    pyo3::import_exception!(hugeleaf._errors, AllocationError);
    pyo3::import_exception!(hugeleaf._errors, InvalidRequest);
}

/// Returns the exception for a failed request for `subject`, for example `64M`.
pub(crate) fn of_memory(subject: &str, error: &MemoryError) -> PyErr {
    use MemoryError as E;
    let arguments = (format!("cannot allocate {subject}: {error}"), error.next());
    match error {
        E::Empty | E::NotAMultiple { .. } | E::Unordered(_) | E::NoSuchNode { .. } | E::NoNodes => {
            python::InvalidRequest::new_err(arguments)
        }
        _ => python::AllocationError::new_err(arguments),
    }
}

/// Returns the exception for page sizes that cannot be read.
pub(crate) fn of_pages(error: &MemoryError) -> PyErr {
    let arguments = (format!("cannot read page sizes: {error}"), error.next());
    python::AllocationError::new_err(arguments)
}

/// Returns the exception for a ladder that cannot be parsed.
pub(crate) fn of_ladder(error: &ParseError) -> PyErr {
    invalid(
        &error.to_string(),
        "name sizes from large to small: \"1G,2M\"",
    )
}

pub(crate) fn invalid(what: &str, next: &str) -> PyErr {
    python::InvalidRequest::new_err((what.to_owned(), next.to_owned()))
}
