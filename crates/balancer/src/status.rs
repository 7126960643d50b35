//! Status of targets, for `guard status`, screens and metrics.

use hugeleaf_balance::OracleViews;
use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::config::{BalanceAction, PagePreference};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BalanceStatus {
    pub name: String,
    pub action: BalanceAction,
    pub pages: PagePreference,
    pub target_bytes: Bytes,
    /// The part of the target that is divided: without process overhead, and limited by host and cgroups.
    pub usable_bytes: Bytes,
    pub held_bytes: Bytes,
    pub resident_bytes: Bytes,
    pub every_seconds: f64,
    pub problems: Vec<String>,
    pub would: Vec<String>,
    pub components: Vec<ComponentStatus>,
    /// Layout of Oracle's views; only the newest operations.
    pub view: OracleViews,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComponentStatus {
    pub name: String,
    pub kind: String,
    pub address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its configured size; missing if the server was never reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<Bytes>,
    pub least_bytes: Bytes,
    pub most_bytes: Bytes,
    pub granule_bytes: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<Bytes>,
    pub overhead_bytes: Bytes,
    /// Saving by one granule more; missing if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_seconds_per_second: Option<f64>,
    /// Cost of one granule less; missing if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_seconds_per_second: Option<f64>,
    pub pressure_seconds_per_second: f64,
    /// Data that resizes may still evict in this hour; missing if they evict nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_evict_bytes: Option<Bytes>,
    pub promoted_bytes: Bytes,
    pub standing: String,
}
