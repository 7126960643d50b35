//! How hugeleaf is measured: benchmark kits and the experiments made with them. Nothing here is part of the product.
//!
//! [`kits`] are the workloads, [`experiments`] measure them on pages of each size, and the program `hugeleaf-lab` ([`run`])
//! answers, draws and keeps results as `hugeleaf bench` does. [`simulate`] plays `hugeleaf prove` on recorded noise,
//! [`years`] the guard's tests.

mod cmd;
pub mod experiments;
pub mod kits;
pub mod simulate;
pub mod years;

pub use cmd::run;
