//! Checks if a plan fits this host in its current state. Pure: facts come in as values.

use hugeleaf_host::{Host, HostIdentity};
use hugeleaf_units::{Bytes, Failure, Pages};

use super::knobs::knob_now;
use super::model::{Plan, PoolPlan};
use super::page_promises::unknown_to;
use super::plan_input::PlanInForce;
use hugeleaf_verdict::list;
use hugeleaf_verdict::reservation::{self, Margin};

#[derive(Debug, Clone, Copy)]
pub struct CurrentHost<'a> {
    pub host: &'a Host,
    pub identity: &'a HostIdentity,
    /// Applied plans that are not undone, newest first.
    pub in_force: &'a [PlanInForce],
}

/// Compares a plan with the host to which it will be applied. Returns warnings as lines.
///
/// # Errors
/// All reasons why it must not be applied.
pub fn check(plan: &Plan, now: &CurrentHost<'_>) -> Result<Vec<String>, Vec<Failure>> {
    let mut refusals = identity(plan, now.identity);
    refusals.extend(machine(plan, now.host));
    // On another machine all the rest differs too, so its messages are useless.
    if refusals.is_empty() {
        refusals.extend(changed(plan, now.host));
        let next = "plan again: hugeleaf plan --output FILE";
        let unknown = unknown_to(plan, now.in_force).into_iter();
        refusals.extend(unknown.map(|what| Failure::missing(what, next)));
        refusals.extend(memory(plan, now.host));
    }
    match refusals.is_empty() {
        true => Ok(warnings(plan, now.host)),
        false => Err(refusals),
    }
}

const PLAN_HERE: &str = "make a plan for this host: hugeleaf plan --output FILE";

fn identity(plan: &Plan, now: &HostIdentity) -> Vec<Failure> {
    let (id, name) = (now.id.known(), now.name.known());
    let other_id = matches!((&plan.host.id, id), (Some(a), Some(b)) if a != b);
    let other_name = matches!((&plan.host.name, name), (Some(a), Some(b)) if a != b);
    // A host may be renamed; without an id, only the name identifies it.
    let neither_id = plan.host.id.is_none() || id.is_none();
    let is_other = other_id || (neither_id && other_name);
    if !is_other {
        return Vec::new();
    }
    let named = |name: Option<&String>| name.cloned().unwrap_or_else(|| "without a name".into());
    let (theirs, ours) = (named(plan.host.name.as_ref()), named(name));
    let what = match theirs == ours {
        true => format!(
            "the plan is for another host named {ours}: machine id {} (hashed), here {}",
            plan.host.id.as_deref().unwrap_or("-"),
            id.map_or("-", String::as_str)
        ),
        false => format!("the plan is for the host {theirs}, but this host is {ours}"),
    };
    vec![Failure::missing(what, PLAN_HERE)]
}

fn machine(plan: &Plan, host: &Host) -> Vec<Failure> {
    let mut found = Vec::new();
    let mut refuse = |what: String| found.push(Failure::missing(what, PLAN_HERE));
    if let (Some(theirs), Some(ours)) = (&plan.host.arch, host.arch.known())
        && theirs != ours
    {
        refuse(format!("the plan is for {theirs}, but this host is {ours}"));
    }
    if plan.host.base_page != host.base_page {
        refuse(format!(
            "the plan is for base pages of {}, but this kernel has {}",
            plan.host.base_page, host.base_page
        ));
    }
    let sizes = reservation::sizes(host);
    for pool in &plan.pools {
        if !sizes.contains(&pool.page) {
            refuse(format!("this kernel cannot reserve pages of {}", pool.page));
        }
    }
    let nodes = plan.pools.iter().filter_map(|p| p.node);
    let gone = list(nodes.filter(|node| !host.nodes.contains(node)));
    if !gone.is_empty() {
        refuse(format!(
            "the plan reserves pages on node {gone}, but this host has memory on only {} nodes",
            host.nodes.len()
        ));
    }
    found
}

fn pages_now(host: &Host, pool: &PoolPlan) -> Option<Pages> {
    let same = |p: &&hugeleaf_host::Pool| p.size == pool.page && p.node == pool.node;
    let pool = host.pools.iter().find(same)?;
    pool.total.get().map(|_| pool.persistent())
}

/// Finds values that are neither the old value nor between it and the planned one, so they were
/// changed since the plan was made.
fn changed(plan: &Plan, host: &Host) -> Vec<Failure> {
    let mut found = Vec::new();
    let mut refuse = |what: String| {
        let next = "plan again: hugeleaf plan --output FILE";
        found.push(Failure::missing(what, next));
    };
    for pool in &plan.pools {
        let (Some(was), Some(now)) = (pool.was, pages_now(host, pool)) else {
            continue;
        };
        let between = was.min(pool.pages)..=was.max(pool.pages);
        if !between.contains(&now) {
            let node = pool.node.map_or(String::new(), |n| format!(" on node {n}"));
            refuse(format!(
                "the pool of {}{node} has changed since the plan was made: {was} pages then, {now} \
                 now, {} planned",
                pool.page, pool.pages
            ));
        }
    }
    for knob in &plan.knobs {
        let Some(now) = knob_now(host, &knob.path) else {
            continue;
        };
        if knob.was.as_ref().is_some_and(|was| *was != now) && now != knob.now {
            refuse(format!(
                "{} has changed since the plan was made: {} then, {now} now, {} planned",
                knob.path.display(),
                knob.was.as_deref().unwrap_or_default(),
                knob.now
            ));
        }
    }
    let group = plan.group.as_ref();
    let gid = host.limits.hugetlb_shm_group.get();
    if let (Some(group), Some(now)) = (group, gid)
        && group.was.is_some_and(|was| u64::from(was) != now)
        && u64::from(group.gid) != now
    {
        refuse(format!(
            "vm.hugetlb_shm_group has changed since the plan was made: it is {now} now, {} planned",
            group.gid
        ));
    }
    found
}

/// Finds pool growth that would leave base pages less than half of the margin. Even a forced plan
/// must leave the floor of the host, and must not let allocations fail.
fn memory(plan: &Plan, host: &Host) -> Vec<Failure> {
    let (total, used) = match reservation::used(host) {
        Ok(known) => known,
        Err(refusal) => return vec![refusal],
    };
    let mut in_pools = Bytes::ZERO;
    let mut grows = Bytes::ZERO;
    for pool in host.totals() {
        let now = pool.all().in_bytes(pool.size);
        let of_size = || plan.of_size(pool.size);
        let planned: Bytes = of_size().map(|p| p.pages.in_bytes(p.page)).sum();
        in_pools += match of_size().next() {
            None => now,
            Some(_) => planned,
        };
        grows += planned - now;
    }
    if grows.is_zero() {
        return Vec::new();
    }
    let fewer = "plan fewer pages: hugeleaf plan --output FILE";
    let floor = Margin::floor(total);
    if in_pools + floor > total {
        let what = format!(
            "pools of {in_pools} would leave less than {floor} of {total} for the rest of the \
             host, the minimum even with force"
        );
        return vec![Failure::missing(what, fewer)];
    }
    match reservation::most_by_commit_later(host) {
        Err(unknown) => return vec![unknown],
        Ok(Some(most)) if in_pools > most => {
            let bound = reservation::commit_bound(host);
            let what = format!("pools of {in_pools} would let allocations fail: {bound}");
            return vec![Failure::missing(what, fewer)];
        }
        Ok(_) => {}
    }
    // The reserve may have been used a little since, but if half is gone, the host has changed.
    let least = Bytes(plan.base.margin.get() / 2);
    let needed = in_pools + (used - plan.base.moves) + least;
    if plan.force.is_some() || needed <= total {
        return Vec::new();
    }
    vec![Failure::missing(
        format!(
            "the host now uses {used} outside its pools, {} when the plan was made: pools of \
             {in_pools} would leave too little of {total} for base pages",
            plan.base.used
        ),
        "plan again: hugeleaf plan --output FILE    # or add force = \"REASON\" to the plan",
    )]
}

fn warnings(plan: &Plan, host: &Host) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(theirs), Some(ours)) = (&plan.host.kernel, host.kernel.known())
        && theirs != ours
    {
        lines.push(format!(
            "the plan was made under Linux {theirs}, but this is {ours}: settings may differ"
        ));
    }
    for page in reservation::sizes(host) {
        let not_ours = plan.of_size(page).map(|p| p.others + p.promised);
        let of_services = plan.services.iter().map(|s| s.pages_of(page));
        let wanted: Pages = of_services.chain(not_ours).sum();
        let planned: Pages = plan.of_size(page).map(|p| p.pages).sum();
        if planned < wanted {
            lines.push(format!(
                "the plan has {planned} pages of {page} in pools, but its services and others need \
                 {wanted}"
            ));
        }
    }
    lines
}
