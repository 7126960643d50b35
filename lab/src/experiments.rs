//! Experiments: they measure kits on pages of each size and return rows of a result.

pub mod amm;
pub mod data_mover;
mod host_cpu_time;
mod io_arms;
mod layout;
pub mod oltp;
pub mod pagetables;
pub mod pin;
