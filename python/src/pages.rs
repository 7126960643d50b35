//! Page sizes of any buffer of this process.
#![allow(unsafe_code)]
//! # Safety
//! [`range_of`] asks an object for its buffer and releases it again. Only the address and the length are used, and they
//! are never dereferenced.

use hugeleaf::{Bytes, Extent, FallbackReason, Range};
use pyo3::prelude::*;
use pyo3::{PyErr, ffi};

use crate::error;
use crate::memory;

/// Start, length, page size, kind, resident bytes, reason for smaller pages than requested, and its remedy.
type ExtentFields = (
    u64,
    u64,
    u64,
    &'static str,
    u64,
    Option<String>,
    Option<String>,
);

/// Returns the page sizes that were requested if the memory is a [`memory::Memory`], and the extents of a range.
#[pyfunction]
pub(crate) fn extents_at(
    py: Python<'_>,
    address: u64,
    length: u64,
) -> PyResult<(Option<String>, Vec<ExtentFields>)> {
    let range = address
        .checked_add(length)
        .and_then(|end| Range::new(address, end).ok());
    let Some(range) = range else {
        return Ok((None, Vec::new()));
    };
    let found = memory::region_of(range);
    let extents = py.detach(|| match &found {
        Some(found) => found.region.extents(),
        None => hugeleaf::extents_of(range),
    });
    let extents = extents.map_err(|e| error::of_pages(&e))?;
    let fields = extents.iter().filter_map(|extent| fields_of(extent, range));
    let fields = fields.collect();
    Ok((found.map(|found| found.requested.to_string()), fields))
}

fn fields_of(extent: &Extent, range: Range) -> Option<ExtentFields> {
    let part = extent.range.intersect(range)?;
    // The location of missing pages within an extent is unknown.
    let outside: Bytes = extent.range.len() - part.len();
    let resident = match extent.resident == extent.range.len() {
        true => part.len(),
        false => (extent.resident - outside).min(part.len()),
    };
    Some((
        part.start(),
        part.len().get(),
        extent.page.bytes().get(),
        extent.kind.name(),
        resident.get(),
        extent.why.as_ref().map(ToString::to_string),
        extent.why.as_ref().map(FallbackReason::next),
    ))
}

/// Formats bytes as the program does: `64M`, `1.5G`.
#[pyfunction]
pub(crate) fn size_text(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// Returns address and length of an object that exports a contiguous buffer.
#[pyfunction]
pub(crate) fn range_of(object: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    let mut view = ffi::Py_buffer::new();
    // SAFETY: `view` is writable and outlives the call. It is released below, and only if it was filled.
    if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut view, ffi::PyBUF_SIMPLE) } != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    let found = (view.buf as usize, usize::try_from(view.len).unwrap_or(0));
    // SAFETY: the view was filled above.
    unsafe { ffi::PyBuffer_Release(&mut view) };
    Ok(found)
}
