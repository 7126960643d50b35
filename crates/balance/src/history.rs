//! History of resizes with their numbers: `v$memory_resize_ops`.

use std::collections::VecDeque;
use std::time::Duration;

use hugeleaf_units::{Bytes, named};
use serde::{Deserialize, Serialize};

named! {
    /// Direction of a resize: `OPER_TYPE`.
    #[derive(Deserialize)]
    pub enum OperationKind {
        /// The component grew.
        Grow = "GROW",
        /// The component shrank.
        Shrink = "SHRINK",
    }
}

named! {
    /// Origin of a resize: `OPER_MODE`.
    #[derive(Deserialize)]
    pub enum ResizeMode {
        /// Set by hand, outside the policy.
        Manual = "MANUAL",
        /// Ordered by the policy for its benefit.
        Deferred = "DEFERRED",
        /// Immediate: the target fell, a component took free memory, or a new one needed room.
        Immediate = "IMMEDIATE",
    }
}

named! {
    /// Result of a resize: `STATUS`.
    #[derive(Deserialize)]
    pub enum ResizeStatus {
        /// Not known yet.
        Pending = "PENDING",
        /// Complete change.
        Complete = "COMPLETE",
        /// Partial change.
        Partial = "PARTIAL",
        /// Refused, or without any change.
        Error = "ERROR",
        /// No answer in time; it may still come.
        Inactive = "INACTIVE",
    }
}

/// A resize of a component. Times use the clock of [`crate::decide`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResizeOperation {
    /// The order's id; 0 for a resize by hand.
    #[serde(skip)]
    pub id: u64,
    /// Name of the component.
    pub component: String,
    /// Direction of the resize.
    #[serde(rename = "oper_type")]
    pub kind: OperationKind,
    /// Origin of the resize.
    #[serde(rename = "oper_mode")]
    pub mode: ResizeMode,
    /// Size before the resize.
    #[serde(rename = "initial_size_bytes")]
    pub initial: Bytes,
    /// The ordered size.
    #[serde(rename = "target_size_bytes")]
    pub target: Bytes,
    /// Size after the resize; missing until known.
    #[serde(
        rename = "final_size_bytes",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub end_size: Option<Bytes>,
    /// Result of the resize.
    pub status: ResizeStatus,
    /// Start of the resize.
    pub start_seconds: f64,
    /// End of the resize; missing until it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_seconds: Option<f64>,
    /// Reason with its numbers.
    pub why: String,
}

/// The newest resizes, oldest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResizeHistory {
    operations: VecDeque<ResizeOperation>,
    /// Total number of resizes.
    pub total: u64,
}

impl ResizeHistory {
    /// Number of resizes kept, as in Oracle's view.
    pub const KEPT: usize = 800;

    /// Returns the kept resizes, oldest first.
    pub fn operations(&self) -> impl DoubleEndedIterator<Item = &ResizeOperation> {
        self.operations.iter()
    }

    pub(crate) fn add(&mut self, operation: ResizeOperation) {
        if self.operations.len() >= ResizeHistory::KEPT {
            self.operations.pop_front();
        }
        self.operations.push_back(operation);
        self.total = self.total.saturating_add(1);
    }

    /// Records the result of an order, unless it is no longer kept.
    pub(crate) fn end(
        &mut self,
        id: u64,
        size: Option<Bytes>,
        status: ResizeStatus,
        now: Duration,
    ) {
        let mut newest_first = self.operations.iter_mut().rev();
        if let Some(operation) = newest_first.find(|o| o.id == id && id != 0) {
            operation.status = status;
            if status != ResizeStatus::Inactive {
                operation.end_size = size;
                operation.end_seconds = Some(now.as_secs_f64());
            }
        }
    }
}
