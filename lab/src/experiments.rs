//! Experiments: they measure kits on pages of each size and return rows of a result.

pub mod amm;
mod cpu_time;
mod io_spaces;
mod layout;
pub mod mover;
pub mod oltp;
pub mod pagetables;
pub mod pin;
