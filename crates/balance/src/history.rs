//! What was resized, with its numbers: `v$memory_resize_ops`.

use std::collections::VecDeque;
use std::time::Duration;

use hugeleaf_units::{Bytes, named};
use serde::{Deserialize, Serialize};

named! {
    /// Which way a component was resized: `OPER_TYPE`.
    #[derive(Deserialize)]
    pub enum OperationKind {
        /// It got memory.
        Grow = "GROW",
        /// Memory was taken from it.
        Shrink = "SHRINK",
    }
}

named! {
    /// Who resized it: `OPER_MODE`.
    #[derive(Deserialize)]
    pub enum Mode {
        /// Somebody else, by hand.
        Manual = "MANUAL",
        /// The policy, by what it would bring.
        Deferred = "DEFERRED",
        /// At once: the target had fallen, a component took what nobody had, or a new one needed room.
        Immediate = "IMMEDIATE",
    }
}

named! {
    /// What came of it: `STATUS`.
    #[derive(Deserialize)]
    pub enum Status {
        /// Not known yet.
        Pending = "PENDING",
        /// All that was asked for.
        Complete = "COMPLETE",
        /// A part of it.
        Partial = "PARTIAL",
        /// It refused, or nothing changed.
        Error = "ERROR",
        /// There was no answer in time; it may still come.
        Inactive = "INACTIVE",
    }
}

/// A resize of a component. Times are on the clock that [`crate::decide`] is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResizeOperation {
    /// The order; 0 of what was done by hand.
    #[serde(skip)]
    pub id: u64,
    /// Which.
    pub component: String,
    /// Which way.
    #[serde(rename = "oper_type")]
    pub kind: OperationKind,
    /// By whom.
    #[serde(rename = "oper_mode")]
    pub mode: Mode,
    /// Its size before.
    #[serde(rename = "initial_size_bytes")]
    pub initial: Bytes,
    /// The size that was asked for.
    #[serde(rename = "target_size_bytes")]
    pub target: Bytes,
    /// The size that came of it; missing as long as that is not known.
    #[serde(
        rename = "final_size_bytes",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub end_size: Option<Bytes>,
    /// What came of it.
    pub status: Status,
    /// When it began.
    pub start_seconds: f64,
    /// When it was over; missing as long as it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_seconds: Option<f64>,
    /// Why, with the numbers.
    pub why: String,
}

/// The newest resizes, oldest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    operations: VecDeque<ResizeOperation>,
    /// How many there ever were.
    pub total: u64,
}

impl History {
    /// So many are kept: as many as Oracle's view shows.
    pub const KEPT: usize = 800;

    /// Those that are kept, oldest first.
    pub fn operations(&self) -> impl DoubleEndedIterator<Item = &ResizeOperation> {
        self.operations.iter()
    }

    pub(crate) fn add(&mut self, operation: ResizeOperation) {
        if self.operations.len() >= History::KEPT {
            self.operations.pop_front();
        }
        self.operations.push_back(operation);
        self.total = self.total.saturating_add(1);
    }

    /// What came of an order; nothing where it is not kept any more.
    pub(crate) fn end(&mut self, id: u64, size: Option<Bytes>, status: Status, now: Duration) {
        let mut newest_first = self.operations.iter_mut().rev();
        if let Some(operation) = newest_first.find(|o| o.id == id && id != 0) {
            operation.status = status;
            if status != Status::Inactive {
                operation.end_size = size;
                operation.end_seconds = Some(now.as_secs_f64());
            }
        }
    }
}
