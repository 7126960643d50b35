//! What a plan is made of, and what several of its parts ask of it.

use std::path::Path;

use hugeleaf_host::demand::{Demand, Service};
use hugeleaf_host::{Host, Identity};
use hugeleaf_units::{Bytes, PageKind, PageSize};

use crate::advice::Want;

use super::arithmetic::{all_pages_text, sum_pages};
use super::model::*;
use super::room::Margin;

#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub host: &'a Host,
    pub identity: &'a Identity,
    pub grub_drop_ins: bool,
    /// What hugeleaf's own drop-in there holds; empty where there is none.
    pub grub_text: &'a str,
    pub tmpfiles: bool,
    pub program: &'a Path,
    /// The time, as in `2026-11-21T17:20:00Z`.
    pub made: Option<&'a str>,
    /// What was applied and is not undone, the newest first.
    pub in_force: &'a [InForce],
    /// All services that were found on the host: who of those that were promised pages has them.
    pub found: &'a [Service],
    /// Settings that running programs want of the host.
    pub wants: &'a [Want],
}

#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// What stays free for base pages; by default the larger of 10 % of memory and 1 GB.
    pub margin: Option<Margin>,
    /// The sizes to choose from, in this order; by default what the programs will ask for. Empty:
    /// nothing is to be reserved.
    pub sizes: Option<Vec<PageSize>>,
    pub force: Option<String>,
    pub mounts: Vec<Mount>,
    /// Flags of `hugeleaf run` for units that are to be started through it.
    pub run: Option<String>,
    /// Variables for the units, as in `NAME=value`.
    pub environment: Vec<String>,
}

/// Pages of each size that a service already has, those promised to it included.
pub(super) fn held(service: &Service, size: PageSize) -> Bytes {
    service.demands.iter().map(|d| held_of(d, size)).sum()
}

pub(super) fn held_of(demand: &Demand, size: PageSize) -> Bytes {
    let held = demand.held.iter().flatten();
    held.filter(|h| h.kind == PageKind::Hugetlb && h.size == size)
        .map(|h| h.bytes)
        .sum()
}

/// The drop-in of a unit, made where there is none yet.
pub(super) fn unit_entry<'a>(plan: &'a mut Plan, unit: &str, service: &str) -> &'a mut Unit {
    let at = match plan.units.iter().position(|u| u.unit == unit) {
        Some(at) => at,
        None => {
            plan.units.push(Unit {
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

/// What a service lacks, in words: `1200 pages of 2M`.
pub(super) fn lacks(service: &ForService) -> Option<String> {
    let missing = service.demands.iter().flat_map(|d| &d.missing);
    let missing = sum_pages(missing.copied());
    (!missing.is_empty()).then(|| all_pages_text(&missing))
}

#[derive(Debug, Clone)]
pub struct InForce {
    /// What `undo` knows it by.
    pub id: u32,
    /// Its plan, or why that cannot be read.
    pub plan: Result<Plan, String>,
}
