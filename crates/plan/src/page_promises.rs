//! Promises of plans in force. A planned service owns its pages even while it is stopped, so the next
//! plan must not use the pages that it left idle. Pure.

use std::collections::BTreeSet;
use std::path::Path;

use hugeleaf_host::Pid;
use hugeleaf_host::demand::{PageSource, Service, ServiceKind};
use hugeleaf_units::PageSize;

use super::budget::MemoryBudget;
use super::model::{PageCount, Plan, PromisedPages, ServicePlan};
use super::page_counts::sum_pages;
use super::plan_input::{PlanFacts, PlanInForce, held};
use hugeleaf_verdict::clean;

#[derive(Debug, Clone)]
pub struct PromisedService<'a> {
    pub apply: u32,
    pub service: &'a ServicePlan,
    /// Sizes whose pool a later plan reduced to the pages in use. Of these a running service needs what
    /// it has.
    tightened: BTreeSet<PageSize>,
}

/// Returns the services of plans in force, each once. `plans` has the newest first, which takes
/// precedence.
pub fn promised<'a>(plans: impl IntoIterator<Item = (u32, &'a Plan)>) -> Vec<PromisedService<'a>> {
    let mut found: Vec<PromisedService<'a>> = Vec::new();
    let mut tightened = BTreeSet::new();
    for (apply, plan) in plans {
        for service in &plan.services {
            let same = |seen: &PromisedService<'_>| {
                ServiceKey::of_plan(seen.service).is(&ServiceKey::of_plan(service))
            };
            if !found.iter().any(same) {
                found.push(PromisedService {
                    apply,
                    service,
                    tightened: tightened.clone(),
                });
            }
        }
        if plan.services.is_empty() {
            tightened.extend(plan.pools.iter().map(|pool| pool.page));
        }
    }
    found
}

#[derive(Debug, Clone, Copy)]
struct ServiceKey<'a> {
    name: &'a str,
    kind: ServiceKind,
    unit: Option<&'a str>,
    configured_by: Option<&'a Path>,
}

impl<'a> ServiceKey<'a> {
    fn of_plan(service: &'a ServicePlan) -> ServiceKey<'a> {
        ServiceKey {
            name: &service.name,
            kind: service.kind,
            unit: service.unit.as_deref(),
            configured_by: service.configured_by.as_deref(),
        }
    }

    fn from_service(service: &'a Service) -> ServiceKey<'a> {
        ServiceKey {
            name: &service.name,
            kind: service.kind,
            unit: service.unit.as_deref(),
            configured_by: service.configured_by.as_deref(),
        }
    }

    /// Compares the unit or the configuration file; `None` if neither is known of both.
    fn by_place(&self, other: &ServiceKey<'_>) -> Option<bool> {
        let same = |a: Option<&Path>, b: Option<&Path>| Some(a? == b?);
        let is_unit = same(self.unit.map(Path::new), other.unit.map(Path::new));
        is_unit.or_else(|| {
            let is_place = same(self.configured_by, other.configured_by)?;
            Some(is_place && self.kind == other.kind)
        })
    }

    /// Compares the names if nothing distinguishes the services.
    fn is(&self, other: &ServiceKey<'_>) -> bool {
        let by_name = self.kind == other.kind && clean(self.name) == clean(other.name);
        self.by_place(other).unwrap_or(by_name)
    }
}

/// True if a service is the planned one, by its unit or its configuration file.
pub fn is_same_place(service: &Service, planned: &ServicePlan) -> bool {
    ServiceKey::from_service(service).by_place(&ServiceKey::of_plan(planned)) == Some(true)
}

/// True if a service is the planned one. Compares the names if nothing distinguishes them.
pub fn is_same(service: &Service, planned: &ServicePlan) -> bool {
    ServiceKey::from_service(service).is(&ServiceKey::of_plan(planned))
}

/// True if services of this kind can be recognised. A container appears as the programs in it, and the
/// user of a demand in bytes is unknown.
pub const fn can_be_found(kind: ServiceKind) -> bool {
    !matches!(
        kind,
        ServiceKind::Container | ServiceKind::HostCache | ServiceKind::Mover | ServiceKind::Other
    )
}

pub fn pages_of(planned: &ServicePlan) -> Vec<PageCount> {
    let from_pool = planned
        .demands
        .iter()
        .filter(|d| d.from == PageSource::Pool);
    sum_pages(from_pool.flat_map(|demand| &demand.pages).copied())
}

/// A promise to a service outside the new plan, and the service if it was found.
#[derive(Debug, Clone)]
pub(super) struct OpenPromise<'a> {
    pub promised: PromisedService<'a>,
    pub found: Option<&'a Service>,
}

impl OpenPromise<'_> {
    /// Returns its pages of a size: the promised ones, and those that it holds beyond.
    pub fn wants(&self, size: PageSize) -> u64 {
        let pages = pages_of(self.promised.service);
        let of_size = pages.iter().filter(|p| p.page == size);
        let promised: u64 = of_size.map(|p| p.pages.get()).sum();
        match self.found.filter(|service| service.is_running()) {
            Some(_) if self.promised.tightened.contains(&size) => self.holds(size),
            Some(_) => promised.max(self.holds(size)),
            None => promised,
        }
    }

    pub fn may_run(&self) -> bool {
        match self.found {
            Some(service) => service.is_running(),
            None => !can_be_found(self.promised.service.kind),
        }
    }

    fn holds(&self, size: PageSize) -> u64 {
        let of = |service| size.pages_for(held(service, size)).get();
        self.found.map_or(0, of)
    }
}

fn readable(in_force: &[PlanInForce]) -> impl Iterator<Item = (u32, &Plan)> {
    let plans = in_force.iter();
    plans.filter_map(|one| Some((one.id, one.plan.as_ref().ok()?)))
}

/// Returns the promises besides a plan for the services `new`. The new plan replaces the promises to its
/// own services.
pub(super) fn open_promises<'a>(facts: &PlanFacts<'a>, new: &[Service]) -> Vec<OpenPromise<'a>> {
    let mut new: Vec<&Service> = new.iter().collect();
    let others = facts.found.iter().filter(|s| !is_one_of(s, &new));
    let mut others: Vec<&Service> = others.collect();
    let mut stand = Vec::new();
    let mut open = Vec::new();
    for promised in promised(readable(facts.in_force)) {
        let is = |service: &&Service| is_same_place(service, promised.service);
        if let Some(at) = new.iter().position(is) {
            new.remove(at);
        } else if let Some(at) = others.iter().position(is) {
            let found = Some(others.remove(at));
            stand.push(OpenPromise { promised, found });
        } else {
            open.push(promised);
        }
    }
    // Match by name only. If a new service and another one share the name, the promise belongs to the
    // other one.
    for promised in open {
        let is = |service: &&Service| is_same(service, promised.service);
        if let Some(at) = others.iter().position(is) {
            let found = Some(others.remove(at));
            stand.push(OpenPromise { promised, found });
        } else if let Some(at) = new.iter().position(|s| !s.is_unnamed && is(s)) {
            new.remove(at);
        } else {
            let found = None;
            stand.push(OpenPromise { promised, found });
        }
    }
    stand
}

fn is_one_of(service: &Service, some: &[&Service]) -> bool {
    let shares = |pids: &[Pid]| pids.iter().any(|pid| service.pids.contains(pid));
    let is = |other: &&Service| {
        shares(&other.pids)
            || ServiceKey::from_service(service).by_place(&ServiceKey::from_service(other))
                == Some(true)
    };
    some.iter().any(is)
}

/// Enters promised and used pages into the books: pages of services in the plan, of promised services,
/// and of services without a plan.
pub(super) fn add_to_budget(
    ledger: &mut MemoryBudget,
    new: &[Service],
    standing: &[OpenPromise<'_>],
    in_force: &[PlanInForce],
) {
    let newest = in_force.iter().find_map(|one| one.plan.as_ref().ok());
    let ours = |service: &Service, size: PageSize| size.pages_for(held(service, size)).get();
    for (size, book) in &mut ledger.sizes {
        let size = *size;
        let new_hold: u64 = new.iter().map(|s| ours(s, size)).sum();
        let theirs: u64 = standing.iter().map(|s| s.holds(size)).sum();
        let unknown = book
            .now
            .taken
            .saturating_sub(new_hold)
            .saturating_sub(theirs)
            .saturating_sub(book.left_over);
        // Pages of unknown users: those that were unknown when the newest plan was made still are. The
        // rest may belong to promised services that cannot be recognised.
        let before = newest.iter().flat_map(|plan| plan.of_size(size));
        let before: u64 = before.map(|pool| pool.others.get()).sum();
        let unseen = standing
            .iter()
            .filter(|s| s.found.is_none() && !can_be_found(s.promised.service.kind));
        let unseen: u64 = unseen.map(|s| s.wants(size)).sum();
        let taken_up = unseen.min(unknown.saturating_sub(before));
        book.others = unknown - taken_up;
        book.promised = standing.iter().map(|s| s.wants(size)).sum();
        if in_force.iter().any(|one| one.plan.is_err()) {
            // Its promises are unknown, so all idle pages may be promised.
            let known = book.others + book.left_over + new_hold + book.promised;
            book.promised += book.now.lasting.saturating_sub(known);
        }
        for one in standing {
            if let Some(node) = one.promised.service.node {
                book.bind(node, one.wants(size));
                *book.held.entry(node).or_default() += one.holds(size);
            }
        }
        for service in new {
            if let Some(node) = service.node {
                *book.held.entry(node).or_default() += ours(service, size);
            }
        }
    }
}

pub(super) fn listed(standing: &[OpenPromise<'_>], in_force: &[PlanInForce]) -> Vec<PromisedPages> {
    let known = standing.iter().map(|one| PromisedPages {
        apply: one.promised.apply,
        name: Some(one.promised.service.name.clone()),
        pages: pages_of(one.promised.service),
    });
    let known = known.filter(|promise| !promise.pages.is_empty());
    let unread = in_force.iter().filter(|one| one.plan.is_err());
    let unread = unread.map(|one| PromisedPages {
        apply: one.id,
        name: None,
        pages: Vec::new(),
    });
    known.chain(unread).collect()
}

/// Describes promises of plans in force that the plan does not include. It was made before they were
/// applied, or without access to them.
pub(super) fn unknown_to(plan: &Plan, in_force: &[PlanInForce]) -> Vec<String> {
    let mut lines = Vec::new();
    for promised in promised(readable(in_force)) {
        let who = ServiceKey::of_plan(promised.service);
        if plan
            .services
            .iter()
            .any(|s| ServiceKey::of_plan(s).is(&who))
        {
            continue;
        }
        let listed = plan
            .promises
            .iter()
            .find(|p| p.name.as_ref() == Some(&promised.service.name));
        let pages = pages_of(promised.service);
        let is_in = |one: &PageCount| {
            let mut listed = listed.iter().flat_map(|promise| &promise.pages);
            listed.any(|p| p.page == one.page && p.pages >= one.pages)
        };
        // A plan that does not change the size takes none of its pages.
        let touches = |one: &PageCount| plan.pools.iter().any(|pool| pool.page == one.page);
        let missing: Vec<PageCount> = pages
            .into_iter()
            .filter(|p| touches(p) && !is_in(p))
            .collect();
        if !missing.is_empty() && !plan.services.is_empty() {
            lines.push(format!(
                "apply {} promises {} to {}, which this plan does not include",
                promised.apply,
                super::all_pages_text(&missing),
                clean(&promised.service.name)
            ));
        }
    }
    let unread = in_force.iter().filter(|one| one.plan.is_err());
    for one in unread {
        let is_listed = plan
            .promises
            .iter()
            .any(|p| p.apply == one.id && p.name.is_none());
        if !is_listed && !plan.pools.is_empty() && !plan.services.is_empty() {
            lines.push(format!(
                "the plan of apply {} is in force but cannot be read, and this plan does not \
                 include it",
                one.id
            ));
        }
    }
    lines
}
