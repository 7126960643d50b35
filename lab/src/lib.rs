//! Benchmark kits and experiments that measure hugeleaf. Nothing here is part of the product.
//!
//! [`kits`] holds the workloads; [`experiments`] measures them on pages of each size. The program `hugeleaf-lab`
//! ([`run`]) prints, draws and stores results as `hugeleaf bench` does. [`prove_simulation`] plays `hugeleaf prove` on recorded
//! noise; [`guard_simulation`] plays the guard's tests.

mod cli;
pub mod experiments;
pub mod guard_simulation;
pub mod kits;
pub mod prove_simulation;

pub use cli::run;
