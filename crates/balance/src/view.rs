//! Who has how much and what was resized, as Oracle's views show it: `v$sgainfo`, `v$memory_dynamic_components` and
//! `v$memory_resize_ops`.

use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::component::Component;
use crate::history::{Mode, OperationKind, ResizeOperation};
use crate::state::State;

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// `v$sgainfo`.
    pub info: Vec<SgaInfo>,
    /// `v$memory_dynamic_components`.
    pub components: Vec<DynamicComponent>,
    /// `v$memory_resize_ops`: the newest, oldest first.
    pub operations: Vec<ResizeOperation>,
    /// How many of those there ever were.
    pub operations_total: u64,
    /// Moves that did not bring what was expected, and were taken back.
    pub taken_back: u64,
    /// What is wrong with all of them together, in words; missing where nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A line of `v$sgainfo`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SgaInfo {
    /// A component, or `Free Memory Available`, or `Maximum Size` (the target).
    pub name: String,
    /// How much it counts as.
    pub bytes: Bytes,
    /// Whether it is resized.
    pub resizable: bool,
}

/// A line of `v$memory_dynamic_components`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DynamicComponent {
    /// Which.
    pub component: String,
    /// Its size now.
    pub current_size_bytes: Bytes,
    /// The smallest it was since this began.
    pub min_size_bytes: Bytes,
    /// The largest.
    pub max_size_bytes: Bytes,
    /// What its user set: the least that it may have.
    pub user_specified_size_bytes: Bytes,
    /// The most that it may have.
    pub most_bytes: Bytes,
    /// What it is resized by.
    pub granule_bytes: Bytes,
    /// How often it was resized.
    pub oper_count: u64,
    /// The last time: which way; missing before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_oper_type: Option<OperationKind>,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_oper_mode: Option<Mode>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_oper_seconds: Option<f64>,
    /// What a granule more would save, in seconds a second; missing where it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_seconds_per_second: Option<f64>,
    /// What a granule less would cost; missing where it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_seconds_per_second: Option<f64>,
    /// Where it stands, in words.
    pub standing: String,
}

/// What the components, as [`crate::decide`] saw them last, look like.
pub fn view(state: &State, components: &[Component]) -> View {
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
    View {
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
        current_size_bytes: component.now,
        min_size_bytes: track.map_or(component.now, |t| t.smallest),
        max_size_bytes: track.map_or(component.now, |t| t.largest),
        user_specified_size_bytes: component.least,
        most_bytes: component.most,
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
