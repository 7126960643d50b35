//! `hugeleaf-lab amm`: the gain of moving memory between two servers, and its cost in huge pages.
//!
//! Two MariaDB servers share a target. The arms differ in who divides it, and in the pages of the buffer
//! pools. Under `manual`, the division stays as at the start; under `amm`, `hugeleaf balance` changes it.
//! The loads differ in the work of the two servers, phase by phase.

mod arm;
mod balance_process;
mod experiment;
mod load;
mod rows;
mod run;
mod tenant;

use std::path::PathBuf;
use std::time::Duration;

use crate::kits::tpcc::Durability;
use hugeleaf_units::Bytes;

pub use arm::{AmmArm, AmmPages};
pub use experiment::measure;
pub use load::AmmLoad;

#[derive(Debug, Clone)]
pub struct AmmSettings {
    /// The arms; the first is the baseline of the others.
    pub arms: Vec<AmmArm>,
    /// The loads, in order.
    pub loads: Vec<AmmLoad>,
    /// Maximum size of both buffer pools together.
    pub target: Bytes,
    /// Minimum size of each buffer pool.
    pub least: Bytes,
    pub phase: Duration,
    /// Time from the start of a phase after which memory has had time to move.
    pub settle: Duration,
    /// Interval between the scans of `hugeleaf balance`.
    pub every: Duration,
    pub connections: usize,
    /// Warehouses of each server; `None` for the number that fits a busy server's part of the target.
    pub warehouses: Option<i32>,
    /// Divisor of the rows of a warehouse.
    pub shrink: i32,
    /// Time at which commits must be on the disk.
    pub durability: Durability,
    pub rounds: usize,
    /// Parent folder of the servers' folders.
    pub parent_folder: PathBuf,
    /// Seed of the order of arms, and of the requests.
    pub seed: u64,
}
