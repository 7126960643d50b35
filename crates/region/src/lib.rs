//! Memory on large pages for programs that link this crate: databases, caches, backup servers.
//!
//! A [`Region`] is one contiguous range of addresses on the best page sizes that a [`Ladder`] asks
//! for and the host has; an [`Elastic`] is a range from which components take whole large pages
//! and return them while the program works. What was asked for and what was got are always two
//! things that can be read ([`Region::extents`], [`Elastic::info`]), and nothing is handed out
//! before it is populated and within every limit, so that a later touch cannot end in SIGBUS.
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
//! This crate must not change the host: no pool, no knob, no file outside memory. It says what is
//! missing and which command mends it.
//!
//! Main types: [`Region`], [`RegionOptions`], [`Extent`], [`Why`], [`Elastic`], [`Granule`],
//! [`MemoryError`].

#![warn(missing_docs)] // people program against it
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod elastic;
mod error;
mod extent;
mod handle;
mod hugetlb;
mod manager;
mod options;
mod populate;
mod region;
mod room;
mod steps;
mod thp;

pub use elastic::{
    Component, ComponentInfo, Elastic, ElasticError, ElasticOptions, Granule, Info, Recovered,
    Share,
};
pub use error::MemoryError;
pub use extent::{Extent, Why};
pub use handle::Handle;
/// What a [`Manager`] decides by: what a component says of its memory, and how it is measured.
pub use hugeleaf_balance as balance;
pub use hugeleaf_host::ReadError;
pub use hugeleaf_sys::{Errno, NodePolicy, Sharing, SysError};
pub use hugeleaf_units::{Bytes, Ladder, PageKind, PageSize, Pages, ParseError, Range, Rung};
pub use manager::{Managed, Manager, Running};
pub use options::RegionOptions;
pub use region::Region;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/library.md")]
struct Guide;

#[cfg(test)]
mod tests;
