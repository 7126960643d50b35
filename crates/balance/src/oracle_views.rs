//! Sizes and resizes in the form of Oracle's views: `v$sgainfo`, `v$memory_dynamic_components` and
//! `v$memory_resize_ops`.

use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::component::Component;
use crate::history::{OperationKind, ResizeMode, ResizeOperation};
use crate::state::State;

/// The three views together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OracleViews {
    /// Lines of `v$sgainfo`.
    pub info: Vec<SgaInfo>,
    /// Lines of `v$memory_dynamic_components`.
    pub components: Vec<DynamicComponent>,
    /// The newest lines of `v$memory_resize_ops`, oldest first.
    pub operations: Vec<ResizeOperation>,
    /// Total number of resizes.
    pub operations_total: u64,
    /// Number of moves that missed their expected gain and were reverted.
    pub taken_back: u64,
    /// Problem of all components together, as text; missing without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A line of `v$sgainfo`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SgaInfo {
    /// A component, or `Free Memory Available`, or `Maximum Size` (the target).
    pub name: String,
    /// Memory that it counts as.
    pub bytes: Bytes,
    /// True if it is resized.
    pub resizable: bool,
}

/// A line of `v$memory_dynamic_components`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DynamicComponent {
    /// Name of the component.
    pub component: String,
    /// Current size.
    pub current_size_bytes: Bytes,
    /// Smallest size since the start.
    pub min_size_bytes: Bytes,
    /// Largest size since the start.
    pub max_size_bytes: Bytes,
    /// Minimum size, set by the user.
    pub user_specified_size_bytes: Bytes,
    /// Maximum size.
    pub most_bytes: Bytes,
    /// Resize step.
    pub granule_bytes: Bytes,
    /// Number of resizes.
    pub oper_count: u64,
    /// Direction of the last resize; missing before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_oper_type: Option<OperationKind>,
    /// Origin of the last resize.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_oper_mode: Option<ResizeMode>,
    /// Start of the last resize.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_oper_seconds: Option<f64>,
    /// Saving by one granule more, in seconds per second; missing if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_seconds_per_second: Option<f64>,
    /// Cost of one granule less, in seconds per second; missing if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_seconds_per_second: Option<f64>,
    /// State of the component, as text.
    pub standing: String,
}

/// Returns the view of the components as last seen by [`crate::decide`].
pub fn view(state: &State, components: &[Component]) -> OracleViews {
    let row = |name: &str, bytes, resizable| SgaInfo {
        name: name.to_owned(),
        bytes,
        resizable,
    };
    let of_components = components.iter();
    let of_components = of_components.map(|c| row(&c.name, c.held(), c.resizable));
    let mut info: Vec<SgaInfo> = of_components.collect();
    info.push(row("Free Memory Available", state.free(), false));
    info.push(row("Maximum Size", state.target, false));
    OracleViews {
        info,
        components: components.iter().map(|c| dynamic(state, c)).collect(),
        operations: state.history.operations().cloned().collect(),
        operations_total: state.history.total,
        taken_back: state.taken_back,
        problem: state.problem.as_ref().map(ToString::to_string),
    }
}

fn dynamic(state: &State, component: &Component) -> DynamicComponent {
    let track = state.tracks.get(&component.name);
    let newest_first = state.history.operations().rev();
    let last = { newest_first }.find(|o| o.component == component.name);
    DynamicComponent {
        component: component.name.clone(),
        current_size_bytes: component.size,
        min_size_bytes: track.map_or(component.size, |t| t.smallest),
        max_size_bytes: track.map_or(component.size, |t| t.largest),
        user_specified_size_bytes: component.min,
        most_bytes: component.max,
        granule_bytes: component.granule.bytes(),
        oper_count: track.map_or(0, |t| t.operations),
        last_oper_type: last.map(|o| o.kind),
        last_oper_mode: last.map(|o| o.mode),
        last_oper_seconds: last.map(|o| o.start_seconds),
        gain_seconds_per_second: component.benefit.more.map(|e| e.value),
        loss_seconds_per_second: component.benefit.less.map(|e| e.value),
        standing: track.map_or_else(String::new, |t| t.standing.to_string()),
    }
}
