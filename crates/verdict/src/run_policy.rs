//! The requests of `hugeleaf run`, and the part that this host can satisfy.
//!
//! [`RunFlags`] holds the flags, [`ldr_cntrl`] translates AIX variables. [`resolve`] resolves a policy on
//! a host. It returns the settings of the library that is loaded into the program, and the unavailable
//! parts. [`obstacle`] says why the library cannot be loaded into a program file.
//!
//! This module starts nothing and does not read the host: facts come in as values.

pub mod ldr_cntrl;
mod preload_obstacle;
mod resolve;
mod run_flags;
pub(crate) mod rung_availability;
#[cfg(test)]
mod tests;

pub use hugeleaf_host::RunMemoryKind;
pub use preload_obstacle::{PreloadObstacle, SANITIZER_OPTION, obstacle};
pub use resolve::{ResolvedPolicy, UnavailableRequest, resolve};
pub use run_flags::{NumaPolicy, PagePolicy, RunFlags};
