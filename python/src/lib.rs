//! The native part of the Python package `hugeleaf`, imported as `hugeleaf._native`.
//!
//! `memory` exports a region of the library as a buffer, `pages` reads the page sizes of any buffer, and
//! `numpy_handler` allocates the data of NumPy's arrays. Both allocators use `page_sizes`. Python code (`hugeleaf/`)
//! checks arguments and makes the results readable. This module must not import NumPy: a caller passes the table of
//! NumPy's C functions.
//!
//! Unsafe code has its rules under the `# Safety` header of its file.

mod error;
mod memory;
mod numpy_handler;
mod page_sizes;
mod pages;

#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::memory::Memory;
    #[pymodule_export]
    use crate::numpy_handler::{new_handler, set_handler};
    #[pymodule_export]
    use crate::pages::{extents_at, range_of, size_text};
}
