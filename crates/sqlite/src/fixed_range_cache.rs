//! A cache in a fixed range of memory that the caller provides.
#![allow(unsafe_code)]
//! # Safety
//! The caller vouches for the range; this module cannot check it.

use std::any::Any;
use std::sync::atomic::AtomicUsize;

use hugeleaf::{Bytes, Range};

use crate::ffi::Api;
use crate::page_store::{DatabaseKind, StoreMemory};
use crate::{InstallError, Installed, prepare};

/// Replaces the cache of a SQLite by one in a fixed range of memory.
///
/// Connections then keep to the size that SQLite requests. Memory is taken in parts of `part` bytes; a smaller rest at
/// the end is unused. `keep` is kept until the process ends.
///
/// # Safety
/// The range is mapped, writable and used by no other code for as long as `keep` lives.
///
/// # Errors
/// [`InstallError::AlreadyInstalled`], [`InstallError::Refused`].
pub unsafe fn install_on(
    api: &Api,
    range: Range,
    part: Bytes,
    pages_of: DatabaseKind,
    keep: Box<dyn Any + Send + Sync>,
) -> Result<Installed, InstallError> {
    let store = prepare(api, pages_of)?;
    Box::leak(keep);
    let number = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let granule = number(part.get()).max(1);
    store.set_source(StoreMemory::Fixed {
        start: number(range.start()),
        granule,
        granules: number(range.len().get()) / granule,
        next: AtomicUsize::new(0),
    });
    Ok(Installed(store))
}
