//! A region of the library, exported through the buffer protocol.
#![allow(unsafe_code)]
//! # Safety
//! A [`Memory`] exports the bytes of its region. The region neither moves nor shrinks, and it is unmapped when the last
//! reference to the `Memory` is gone; each exported view holds such a reference. Python's buffer protocol leaves it
//! to its users to prevent data races.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use hugeleaf::{Bytes, Ladder, MemoryError, NodePolicy, Range, Region, RegionOptions, Rung};
use hugeleaf_sys::Kernel;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::{PyErr, ffi};

use crate::error;
use crate::page_sizes;

/// A region, and the page sizes that were requested for it.
pub(crate) struct RequestedRegion {
    pub(crate) region: Region,
    pub(crate) requested: Ladder,
}

/// The regions of this process by address, so that a view that another library made of one is recognised. It is only
/// locked while the interpreter's lock is held, which a thread that forks holds too. So no child finds it locked.
static LIVE: Mutex<BTreeMap<u64, Arc<RequestedRegion>>> = Mutex::new(BTreeMap::new());

fn live<T>(use_them: impl FnOnce(&mut BTreeMap<u64, Arc<RequestedRegion>>) -> T) -> T {
    use_them(&mut LIVE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the region that contains all of a range. The caller holds the interpreter's lock.
pub(crate) fn region_of(range: Range) -> Option<Arc<RequestedRegion>> {
    live(|regions| {
        let (_, found) = regions.range(..=range.start()).next_back()?;
        let is_inside = found.region.range().intersect(range) == Some(range);
        is_inside.then(|| Arc::clone(found))
    })
}

/// Populated memory on huge pages. Supports the buffer protocol, so memoryview(), NumPy, PyArrow and others can use it
/// without a copy. It is returned to the system with its last view.
#[pyclass(frozen, module = "hugeleaf")]
pub(crate) struct Memory {
    memory: Arc<RequestedRegion>,
    length: usize,
}

/// The end of an allocation by an exception from a signal handler.
struct Interrupted(PyErr);

#[pymethods]
impl Memory {
    #[new]
    #[pyo3(signature = (length, pages = "1G,2M", nodes = None, strict = false))]
    fn new(
        py: Python<'_>,
        length: u64,
        pages: &str,
        nodes: Option<Vec<u32>>,
        strict: bool,
    ) -> PyResult<Memory> {
        let ladder: Ladder = pages.parse().map_err(|e| error::of_ladder(&e))?;
        let ladder = Ladder::new(ladder.rungs().to_vec(), ladder.is_mandatory() || strict);
        let length = Bytes(length);
        let subject = format!("{length} on {ladder}");
        let fail = |e| error::of_memory(&subject, &e);
        if length.is_zero() {
            return Err(fail(MemoryError::Empty));
        }
        let length_of_pages = rounded(length, &ladder).map_err(fail)?;
        let mut options = match page_sizes::names_pool(&ladder) {
            // The child of a fork has no copy of private pages of a pool, and would die at an access.
            true => RegionOptions::new(length_of_pages, ladder.clone()).shared(),
            false => RegionOptions::new(length_of_pages, possible(&ladder).map_err(fail)?),
        };
        if let Some(nodes) = nodes {
            options = options.nodes(NodePolicy::Bind(nodes));
        }
        let made = py.detach(|| {
            catch_unwind(AssertUnwindSafe(|| {
                Region::with_progress(&options, &mut |_, _| check_signals())
            }))
        });
        let region = match made {
            Ok(region) => region.map_err(fail)?,
            Err(panic) => match panic.downcast::<Interrupted>() {
                Ok(interrupted) => return Err(interrupted.0),
                Err(panic) => resume_unwind(panic),
            },
        };
        let start = region.range().start();
        let memory = Arc::new(RequestedRegion {
            region,
            requested: ladder,
        });
        live(|regions| regions.insert(start, Arc::clone(&memory)));
        let length = usize::try_from(length.get()).unwrap_or(usize::MAX);
        Ok(Memory { memory, length })
    }

    /// Address of the first byte.
    #[getter]
    fn address(&self) -> u64 {
        self.memory.region.range().start()
    }

    /// Length in bytes, as requested.
    #[getter]
    const fn nbytes(&self) -> usize {
        self.length
    }

    /// Length in bytes of whole pages.
    #[getter]
    fn allocated_bytes(&self) -> u64 {
        self.memory.region.len().get()
    }

    /// Page sizes as requested. A `!` at the end means that no others were acceptable.
    #[getter]
    fn requested(&self) -> String {
        self.memory.requested.to_string()
    }

    const fn __len__(&self) -> usize {
        self.length
    }

    fn __repr__(&self) -> String {
        let length = Bytes(self.length as u64);
        format!(
            "<hugeleaf.Memory of {length}, requested {}>",
            self.requested()
        )
    }

    /// # Safety
    /// As CPython calls it: `view` is a `Py_buffer` to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let memory = slf.get();
        let start = memory.memory.region.as_ptr().cast();
        let length = ffi::Py_ssize_t::try_from(memory.length)
            .map_err(|_| PyBufferError::new_err("longer than a view can be"))?;
        // SAFETY: `view` is valid by the contract of this slot. The region is writable over `length` bytes as long as
        // `slf` lives, to which the view takes a reference.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        live(|regions| regions.remove(&self.memory.region.range().start()));
    }
}

/// Ends an allocation if a signal handler raises an exception, as Ctrl-C does. Memory of hundreds of gigabytes takes
/// minutes to populate.
fn check_signals() {
    if let Err(raised) = Python::attach(|py| py.check_signals()) {
        // The library stops its threads and returns the memory. This does not call the panic hook.
        resume_unwind(Box::new(Interrupted(raised)));
    }
}

/// Returns a ladder without the sizes that this host never has for private memory, as 1G, if others remain. The library
/// gives the reason for the first size of a ladder, and the reason for the next one would stay unknown.
fn possible(ladder: &Ladder) -> Result<Ladder, MemoryError> {
    let rungs = ladder.rungs();
    if rungs.windows(2).any(|pair| pair[0].size < pair[1].size) {
        return Err(MemoryError::Unordered(ladder.clone()));
    }
    let thp = page_sizes::thp_sizes()?;
    let base = Kernel::new().base_page();
    let is_possible = |rung: &&Rung| rung.size <= base || thp.contains(&rung.size);
    let left: Vec<Rung> = rungs.iter().filter(is_possible).copied().collect();
    Ok(match left.is_empty() {
        true => ladder.clone(),
        false => Ladder::new(left, ladder.is_mandatory()),
    })
}

/// Returns the length in whole pages. Mandatory memory consists of whole pages of its smallest size.
fn rounded(length: Bytes, ladder: &Ladder) -> Result<Bytes, MemoryError> {
    let base = Kernel::new().base_page();
    let sizes = ladder.rungs().iter().map(|rung| rung.size);
    let smallest = sizes.min().unwrap_or(base);
    let rounded = match ladder.is_mandatory() {
        true => page_sizes::rounded_to(smallest, length.get()),
        false => page_sizes::rounded(smallest, base, length.get()),
    };
    rounded.map(Bytes).ok_or_else(|| MemoryError::TooLarge {
        asked: length,
        available: Bytes(isize::MAX as u64),
        limited_by: "addresses".to_owned(),
    })
}
