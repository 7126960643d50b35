//! Experiments: they measure kits on pages of each size and return rows of a result.

pub mod amm;
pub mod backup_io;
mod host_cpu_time;
mod io_arms;
pub mod memory_pinning;
pub mod oltp;
mod page_layout;
pub mod pagetables;
