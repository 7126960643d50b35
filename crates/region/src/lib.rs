//! Memory on huge pages for programs that link this crate: databases, caches, backup servers.
//!
//! A [`Region`] is one contiguous address range. It uses the best page sizes that its [`Ladder`]
//! names and the host provides. An [`Elastic`] is a range from which components take whole huge
//! pages and return them at run time. Callers can always compare the request with the result
//! ([`Region::extents`], [`Elastic::info`]). Memory is populated and checked against every limit
//! before it is handed out, so a later access cannot raise SIGBUS.
//!
//! ```
//! use hugeleaf::{Bytes, Region, RegionOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = RegionOptions::new(Bytes::from_mib(8), "2M".parse()?);
//! let region = Region::new(&options)?;
//! for extent in region.extents()? {
//!     println!("{extent}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! This crate must not change the host: no pool, no knob, no file outside memory. Errors name the
//! missing resource and the command that provides it.
//!
//! Main types: [`Region`], [`RegionOptions`], [`Extent`], [`FallbackReason`], [`Elastic`], [`Granule`],
//! [`MemoryError`].

#![warn(missing_docs)] // public API
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

// `ladder_steps` resolves a ladder (pure), `hugetlb` and `thp` take extents, `populate` fills them, `region` lays them out, `handle` hands them
// to other processes. `elastic` lends whole huge pages to components, and `manager` moves them as `balance` decides. `warm` populates files and trials by node. Facts of memory come
// from `hugeleaf-host`, so that pools, limits and settings are read in one place. The tests (`tests/`) put a gate before each call.
pub mod balance;
mod elastic;
mod error;
mod extent;
mod host_memory;
mod hugetlb;
mod ladder_steps;
mod manager;
mod options;
mod own_memory;
mod populate;
mod reexports;
mod region;
mod shared_handle;
mod thp;
pub mod warm;

pub use elastic::{
    Component, ComponentInfo, Elastic, ElasticError, ElasticInfo, ElasticOptions, Granule,
    PageSizeTotal, Recovered,
};
pub use error::MemoryError;
pub use extent::{Extent, FallbackReason};
pub use manager::{Managed, Manager, ManagerThread};
pub use options::RegionOptions;
pub use own_memory::extents_of;
pub use reexports::{
    Bytes, Errno, Ladder, NodePolicy, PageKind, PageSize, Pages, ParseError, Range, ReadError,
    Rung, Sharing, SysError,
};
pub use region::Region;
pub use shared_handle::Handle;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/library.md")]
struct Guide;

#[cfg(test)]
mod tests;
