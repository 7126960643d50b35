//! The input of a plan, and helpers that several of its parts use.

use std::path::Path;

use hugeleaf_host::demand::{Demand, Service};
use hugeleaf_host::{Host, HostIdentity};
use hugeleaf_units::{Bytes, PageKind, PageSize};

use super::model::*;
use super::page_counts::{all_pages_text, sum_pages};
use hugeleaf_verdict::reservation::Margin;

#[derive(Debug, Clone, Copy)]
pub struct PlanFacts<'a> {
    pub host: &'a Host,
    pub identity: &'a HostIdentity,
    pub grub_drop_ins: bool,
    /// Content of hugeleaf's own drop-in there; empty if there is none.
    pub grub_text: &'a str,
    pub tmpfiles: bool,
    pub program: &'a Path,
    /// The time, as in `2026-11-21T17:20:00Z`.
    pub created_at: Option<&'a str>,
    /// Applied plans that are not undone, newest first.
    pub in_force: &'a [PlanInForce],
    /// All services found on the host, to match them with promises.
    pub found: &'a [Service],
}

#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// Memory that stays free for base pages. Default: the larger of 10 % of memory and 1 GB.
    pub margin: Option<Margin>,
    /// The page sizes to choose from, in this order. Default: the sizes that the programs will
    /// request. An empty list reserves nothing.
    pub sizes: Option<Vec<PageSize>>,
    pub force: Option<String>,
    pub mounts: Vec<Mount>,
    /// Flags of `hugeleaf run` for units to start through it.
    pub run: Option<String>,
    /// Variables for the units, as in `NAME=value`.
    pub environment: Vec<String>,
}

/// Returns the pool memory of one size that a service has, including reserved pages.
pub(super) fn held(service: &Service, size: PageSize) -> Bytes {
    service.demands.iter().map(|d| held_of(d, size)).sum()
}

pub(super) fn held_of(demand: &Demand, size: PageSize) -> Bytes {
    let held = demand.held.iter().flatten();
    held.filter(|h| h.kind == PageKind::Hugetlb && h.size == size)
        .map(|h| h.bytes)
        .sum()
}

/// Returns the drop-in of a unit, and creates it if necessary.
pub(super) fn unit_entry<'a>(plan: &'a mut Plan, unit: &str, service: &str) -> &'a mut UnitDropIn {
    let at = match plan.units.iter().position(|u| u.unit == unit) {
        Some(at) => at,
        None => {
            plan.units.push(UnitDropIn {
                unit: unit.to_owned(),
                memlock: None,
                environment: Vec::new(),
                exec_start: None,
                why: format!("settings of {service} alone"),
            });
            plan.units.len() - 1
        }
    };
    &mut plan.units[at]
}

/// Describes the missing pages of a service: `1200 pages of 2M`.
pub(super) fn lacks(service: &ServicePlan) -> Option<String> {
    let missing = service.demands.iter().flat_map(|d| &d.missing);
    let missing = sum_pages(missing.copied());
    (!missing.is_empty()).then(|| all_pages_text(&missing))
}

#[derive(Debug, Clone)]
pub struct PlanInForce {
    /// The number for `undo`.
    pub id: u32,
    /// The plan, or why it cannot be read.
    pub plan: Result<Plan, String>,
}
