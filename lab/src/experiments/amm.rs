//! `hugeleaf-lab amm`: does memory that moves between two servers pay, and does it have to cost large pages?
//!
//! Two MariaDB servers share a target. The arms differ in who divides it (`manual`: it stays as it was
//! divided at the start; `amm`: `hugeleaf balance` moves it) and in the pages that the buffer pools
//! are on. The loads differ in what the two servers do, phase by phase.

mod arm;
mod balancer;
mod load;
mod measure;
mod rows;
mod run;
mod tenant;

use std::path::PathBuf;
use std::time::Duration;

use crate::kits::tpcc::Durability;
use hugeleaf_units::Bytes;

pub use arm::{AmmArm, AmmPages};
pub use load::AmmLoad;
pub use measure::measure;

#[derive(Debug, Clone)]
pub struct AmmSettings {
    /// The arms; the first is what the others are compared with.
    pub arms: Vec<AmmArm>,
    /// The loads, one after the other.
    pub loads: Vec<AmmLoad>,
    /// What both buffer pools may take together.
    pub target: Bytes,
    /// What each of them keeps at least.
    pub least: Bytes,
    pub phase: Duration,
    /// After so long in a phase memory has had time to move.
    pub settle: Duration,
    /// How often `hugeleaf balance` looks.
    pub every: Duration,
    pub connections: usize,
    /// Warehouses of each server; `None` for as many as a busy one's part of the target holds.
    pub warehouses: Option<i32>,
    /// Rows of a warehouse are divided by this.
    pub shrink: i32,
    /// When commits have to be on the disk.
    pub durability: Durability,
    pub rounds: usize,
    /// Below which folder those of the servers are made.
    pub below: PathBuf,
    /// Seed of the order of arms, and of what is asked for.
    pub seed: u64,
}
