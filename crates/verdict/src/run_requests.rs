//! The requests of `hugeleaf run`, and the part that this host can satisfy.
//!
//! [`RunFlags`] holds the flags, [`ldr_cntrl`] translates AIX variables. [`resolve`] resolves a policy on
//! a host. It returns the settings of the library that is loaded into the program, and the unavailable
//! parts. [`obstacle`] says why the library cannot be loaded into a program file.
//!
//! This module starts nothing and does not read the host: facts come in as values.

pub mod ldr_cntrl;
mod policy;
mod preload_obstacle;
mod resolve;
pub(crate) mod rung_availability;
#[cfg(test)]
mod tests;

pub use hugeleaf_host::RunMemoryKind;
pub use policy::{NumaPolicy, PagePolicy, RunFlags};
pub use preload_obstacle::{PreloadObstacle, SANITIZER_OPTION, obstacle};
pub use resolve::{ResolvedPolicy, UnavailableRequest, resolve};
