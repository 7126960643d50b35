//! A cache in memory that a caller has, and that never changes.
#![allow(unsafe_code)]
//! # Safety
//! The caller vouches for the range; nothing in here can check it.

use std::any::Any;
use std::sync::atomic::AtomicUsize;

use hugeleaf::{Bytes, Range};

use crate::ffi::Api;
use crate::store::{Origin, PagesOf};
use crate::{InstallError, Installed, prepare};

/// Replaces the cache of a SQLite by one in a range of memory that never changes, for connections that keep to the size
/// that SQLite asks for. Memory is taken from it in parts of `part` bytes, and what is less than a part at the end is not
/// used. `keep` is kept as long as the process lives.
///
/// # Safety
/// The range is mapped, can be written to, is used by nobody else, and stays so as long as `keep` lives.
///
/// # Errors
/// [`InstallError::Again`], [`InstallError::Refused`].
pub unsafe fn install_on(
    api: &Api,
    range: Range,
    part: Bytes,
    pages_of: PagesOf,
    keep: Box<dyn Any + Send + Sync>,
) -> Result<Installed, InstallError> {
    let store = prepare(api, pages_of)?;
    Box::leak(keep);
    let number = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let granule = number(part.get()).max(1);
    store.set_source(Origin::Fixed {
        start: number(range.start()),
        granule,
        granules: number(range.len().get()) / granule,
        next: AtomicUsize::new(0),
    });
    Ok(Installed(store))
}
