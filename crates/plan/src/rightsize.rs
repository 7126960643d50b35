//! The published procedure for pools: configure more than enough, observe, and reduce to the
//! maximum use. Pure: samples come in as values.

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_host::Host;
use hugeleaf_units::{Failure, PageSize, Pages};

use super::PlanOptions;
use super::model::{PageCount, Plan};
use super::notes::{command_line, contradicted};
use super::numa_layout::{NodeDemand, PoolDemand};
use super::page_counts::{all_pages_text, pages_text};
use super::page_promises::open_promises;
use super::plan_input::PlanFacts;
use super::planner::{bare, boot};
use hugeleaf_verdict::reservation::{Margin, used};

use super::budget::{CurrentPool, pools_now};

/// The pages in use or reserved in each pool at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSample(BTreeMap<PageSize, u64>);

/// Returns the pages in use or reserved in each pool of a host.
pub fn sample(host: &Host) -> Result<PoolSample, Failure> {
    let now = pools_now(host)?;
    let taken = now.into_iter().map(|(size, now)| (size, now.taken));
    Ok(PoolSample(taken.collect()))
}

/// Reserve above the observed maximum, as a fraction, because samples miss short peaks: 2 %.
const KEPT: u64 = 50;

/// Returns a smaller plan for the pools that have pages now, by the maximum use in any sample.
///
/// # Errors
/// [`Failure`] if there is no sample, or all pools are empty.
pub fn tighten(
    facts: &PlanFacts<'_>,
    samples: &[PoolSample],
    watched: Duration,
    wishes: &PlanOptions,
) -> Result<Plan, Failure> {
    let host = facts.host;
    let now = pools_now(host)?;
    possible(facts, &now)?;
    let (total, used) = used(host)?;
    let margin = wishes
        .margin
        .map_or(Margin::usual(total), |m| m.resolve(total));
    let mut pools = Vec::new();
    let mut notes = Vec::new();
    for (size, pool) in now.iter().rev().filter(|(_, pool)| pool.total > 0) {
        let most = samples.iter().filter_map(|s| s.0.get(size)).max().copied();
        let most = most.unwrap_or(0).max(pool.taken);
        let waiting = waiting(facts, *size);
        let wanted = wanted(host, *size, pool, most, waiting);
        let keep = wanted.wants.free;
        pools.extend(wanted.layout(host));
        notes.push(line(*size, pool.total, most, keep, samples.len(), watched));
        if waiting > 0 {
            let pages = pages_text(PageCount::new(*size, Pages(waiting)));
            notes.push(format!(
                "{pages} of them are for stopped services of earlier plans"
            ));
        }
    }
    let mut plan = bare(facts, total, used, margin);
    (plan.notes, plan.pools) = (notes, pools);
    plan.boot = boot(facts, &plan);
    let more = contradicted(&plan, host)
        .into_iter()
        .chain(command_line(&plan));
    plan.notes.extend(more.collect::<Vec<_>>());
    Ok(plan)
}

fn possible(facts: &PlanFacts<'_>, now: &BTreeMap<PageSize, CurrentPool>) -> Result<(), Failure> {
    if now.values().all(|pool| pool.total == 0) {
        return Err(Failure::missing(
            "all pools are empty: there is nothing to tighten",
            "hugeleaf plan    # plans pools for the services that could use them",
        ));
    }
    if let Some(one) = facts.in_force.iter().find(|one| one.plan.is_err()) {
        return Err(Failure::missing(
            format!(
                "the plan of apply {} is in force but cannot be read: it may have promised the \
                 idle pages",
                one.id
            ),
            "hugeleaf verify    # shows the error",
        ));
    }
    Ok(())
}

/// Returns the new size of a pool: the maximum use with a small reserve, and the pages that stopped
/// services need.
fn wanted(host: &Host, size: PageSize, pool: &CurrentPool, most: u64, waiting: u64) -> PoolDemand {
    let left_over = host.leftover_pages(size).get().min(pool.taken);
    let keep = most
        .saturating_add(most.div_ceil(KEPT))
        .saturating_add(waiting)
        .min(pool.total);
    PoolDemand {
        size,
        others: pool.taken - left_over,
        left_over,
        promised: waiting.min(keep.saturating_sub(pool.taken)),
        services: Vec::new(),
        wants: NodeDemand {
            free: keep,
            ..NodeDemand::default()
        },
        configured: 0,
        may_shrink: true,
    }
}

/// Returns the pages that plans in force promise to stopped services, whose needs no sample shows.
/// A service known only by a demand in bytes may run, and counts as running.
fn waiting(facts: &PlanFacts<'_>, size: PageSize) -> u64 {
    let standing = open_promises(facts, &[]);
    let stopped = standing.iter().filter(|one| !one.may_run());
    stopped.map(|one| one.wants(size)).sum()
}

fn line(
    page: PageSize,
    total: u64,
    most: u64,
    keep: u64,
    samples: usize,
    watched: Duration,
) -> String {
    let of = |pages| PageCount::new(page, Pages(pages));
    let seen = format!(
        "at most {most} of {} were in use in {samples} samples over {} s",
        pages_text(of(total)),
        watched.as_secs()
    );
    match total - keep {
        0 => format!("{seen}: the pool does not change"),
        less => format!(
            "{seen}: {keep} are enough with {} to spare, {} return to the kernel",
            keep - most,
            all_pages_text(&[of(less)])
        ),
    }
}
