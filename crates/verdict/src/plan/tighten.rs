//! The published procedure for pools: configure more than enough, watch, and reduce to the most
//! that was ever in use. Pure: samples come in as values.

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_host::Host;
use hugeleaf_units::{Bytes, PageSize, Pages};

use super::arithmetic::{all_pages_text, pages_text};
use super::layout::Wanted;
use super::make::{Facts, boot, for_host};
use super::model::{BasePages, PagesOf, Plan, SCHEMA};
use super::notes::{command_line, contradicted};
use super::room::{Margin, pools_now, sizes, used};
use super::{Refusal, Wishes};

/// What was in use or promised of each pool at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample(BTreeMap<PageSize, u64>);

/// What is in use or promised of each pool of a host.
///
/// # Errors
/// Where a count could not be read.
pub fn sample(host: &Host) -> Result<Sample, Refusal> {
    let now = pools_now(host)?;
    let taken = now.into_iter().map(|(size, now)| (size, now.taken));
    Ok(Sample(taken.collect()))
}

/// One page in so many is kept above the most that was seen, since samples miss short peaks: 2 %.
const KEPT: u64 = 50;

/// The smaller plan for the pools that have pages now, by the most that was in use in any sample.
///
/// # Errors
/// [`Refusal`] where nothing was sampled, or all pools are empty.
pub fn tighten(
    facts: &Facts<'_>,
    samples: &[Sample],
    watched: Duration,
    wishes: &Wishes,
) -> Result<Plan, Refusal> {
    let host = facts.host;
    let now = pools_now(host)?;
    if now.values().all(|pool| pool.total == 0) {
        return Err(Refusal::new(
            "all pools are empty: there is nothing to tighten",
            "hugeleaf plan    # plans pools for the services that could use them",
        ));
    }
    let (total, used) = used(host)?;
    let margin = wishes.margin.map_or(Margin::usual(total), |m| m.of(total));
    let mut pools = Vec::new();
    let mut notes = Vec::new();
    for (size, pool) in now.iter().rev().filter(|(_, pool)| pool.total > 0) {
        let most = samples.iter().filter_map(|s| s.0.get(size)).max().copied();
        let most = most.unwrap_or(0).max(pool.taken);
        let keep = most.saturating_add(most.div_ceil(KEPT)).min(pool.total);
        let wanted = Wanted {
            size: *size,
            target: keep,
            needed: keep,
            others: pool.taken,
            whom: Vec::new(),
            bound: BTreeMap::new(),
        };
        pools.extend(wanted.layout(host));
        notes.push(line(*size, pool.total, most, keep, samples.len(), watched));
    }
    let mut plan = Plan {
        schema: SCHEMA,
        made: facts.made.map(str::to_owned),
        force: None,
        notes,
        host: for_host(facts, total, sizes(host)),
        base: BasePages {
            used,
            moves: Bytes::ZERO,
            other_pools: Bytes::ZERO,
            margin,
        },
        services: Vec::new(),
        pools,
        knobs: Vec::new(),
        limits: Vec::new(),
        group: None,
        mounts: Vec::new(),
        units: Vec::new(),
        boot: None,
        kept: Vec::new(),
    };
    plan.boot = boot(facts, &plan);
    let more = contradicted(&plan, host)
        .into_iter()
        .chain(command_line(&plan));
    plan.notes.extend(more.collect::<Vec<_>>());
    Ok(plan)
}

fn line(
    page: PageSize,
    total: u64,
    most: u64,
    keep: u64,
    samples: usize,
    watched: Duration,
) -> String {
    let of = |pages| PagesOf {
        page,
        pages: Pages(pages),
    };
    let seen = format!(
        "at most {most} of {} were in use in {samples} samples over {} s",
        pages_text(of(total)),
        watched.as_secs()
    );
    match total - keep {
        0 => format!("{seen}: the pool stays as it is"),
        less => format!(
            "{seen}: {keep} are enough with {} to spare, {} go back",
            keep - most,
            all_pages_text(&[of(less)])
        ),
    }
}
