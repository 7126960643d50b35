//! Pools of reserved pages: finds pages unused for a day. Returns unused pages to the kernel while memory is short
//! and takes them again later, if a plan allows it. Pure: no clock, no input, no output.

use std::time::Duration;

use hugeleaf_host::Pool;
use hugeleaf_plan::Plan;
use hugeleaf_plan::verify::{ReleasedPages, slack};
use hugeleaf_units::{PageSize, Pages};
use hugeleaf_verdict::findings::{Finding, Severity};
use serde::{Deserialize, Serialize};

const HOUR: Duration = Duration::from_secs(3600);
/// Hours of disuse after which pages are reported.
const DAY: u64 = 24;
/// Divisor for the part of the unused pages that is returned at a time.
const PART: u64 = 4;
const GIVE_EVERY: Duration = Duration::from_secs(30);
/// Time without memory shortage before pages are taken again.
const CALM: Duration = Duration::from_secs(600);
/// Longest wait after the kernel had fewer pages than requested; the wait doubles from [`CALM`] on.
const LONGEST: Duration = Duration::from_secs(6 * 3600);

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolsState {
    pub unused: Vec<UnusedPages>,
    pub given: Vec<ReturnedPages>,
    pub findings: Vec<PoolFinding>,
    /// Time since when memory is not short, since boot; unknown at the guard's start.
    #[serde(skip)]
    pub calm_since: Option<Duration>,
}

impl PoolsState {
    /// Forgets what a reboot invalidates: pools are as the configuration files set them, and times since boot have no
    /// meaning.
    pub fn forget_boot(&mut self) {
        self.unused.clear();
        self.given.clear();
    }

    /// Returns the pages currently given back, for `verify`.
    pub fn given_back(&self) -> Vec<ReleasedPages> {
        let given = self.given.iter().filter(|given| given.missing() > Pages(0));
        given
            .map(|given| ReleasedPages {
                page: given.page,
                node: given.node,
                pages: given.missing(),
            })
            .collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFinding {
    /// Name of the rule, as in `verify`.
    pub id: String,
    /// Severity: `problem` or `warning`.
    pub severity: String,
    pub text: String,
    pub command: String,
}

impl PoolFinding {
    /// True if both have the same text, except for numbers, which change all the time.
    fn is_like(&self, other: &PoolFinding) -> bool {
        let words = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        self.id == other.id && words(&self.text) == words(&other.text)
    }
}

/// Returns the findings of `verify` that the guard keeps. Notes are dropped, and so is the kernel log, which never
/// clears. Pages unused now are dropped too, because a restarting service causes them: [`UnusedPages`] waits for a day.
pub fn kept(all: &[Finding]) -> Vec<PoolFinding> {
    let is_kept = |finding: &&Finding| {
        finding.severity != Severity::Note && !matches!(finding.id, "kernel-log" | "pool-unused")
    };
    all.iter()
        .filter(is_kept)
        .map(|finding| PoolFinding {
            id: finding.id.to_owned(),
            severity: finding.severity.name().to_owned(),
            text: finding.text.clone(),
            command: finding.command.clone(),
        })
        .collect()
}

pub fn changes(
    before: &[PoolFinding],
    now: &[PoolFinding],
) -> (Vec<PoolFinding>, Vec<PoolFinding>) {
    let mut gone = before.to_vec();
    let mut new = Vec::new();
    for finding in now {
        match gone.iter().position(|old| old.is_like(finding)) {
            Some(at) => drop(gone.remove(at)),
            None => new.push(finding.clone()),
        }
    }
    (new, gone)
}

/// Unused pages of one size. Only each hour's minimum is stored, so that the state rarely changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusedPages {
    #[serde(rename = "page_bytes")]
    pub page: PageSize,
    pub total: Pages,
    /// Start of the uninterrupted observation, since boot.
    pub since: Duration,
    /// Minimum of unused pages in each hour since boot, oldest first.
    pub hours: Vec<(u64, Pages)>,
}

impl UnusedPages {
    fn see(&mut self, pages: Pages, now: Duration) {
        let hour = now.as_secs() / HOUR.as_secs();
        let last = self.hours.last().map_or(hour, |(hour, _)| *hour);
        // An hour without a scan, or another clock: the time in between is unknown.
        if hour < last || hour > last + 1 {
            self.hours.clear();
            self.since = now;
        }
        match self.hours.last_mut() {
            Some((last, least)) if *last == hour => *least = (*least).min(pages),
            _ => self.hours.push((hour, pages)),
        }
        self.hours.retain(|(of, _)| of + DAY >= hour);
    }

    /// Returns the pages that were unused over the whole last day; `None` before a full day of observation.
    pub fn for_a_day(&self, now: Duration) -> Option<Pages> {
        let day = HOUR * u32::try_from(DAY).unwrap_or(u32::MAX);
        let is_whole = now >= self.since + day;
        let least = self.hours.iter().map(|(_, least)| *least).min();
        least.filter(|_| is_whole)
    }

    fn finding(&self, now: Duration) -> Option<PoolFinding> {
        let pages = self.for_a_day(now).filter(|n| *n > slack(self.total))?;
        Some(PoolFinding {
            id: "pool-unused-for-a-day".into(),
            severity: Severity::Warning.name().into(),
            text: format!(
                "{pages} pages of {} in the pool ({}) were neither used nor reserved for a day; \
                 nothing else can use that memory.",
                self.page,
                pages.in_bytes(self.page)
            ),
            command: "hugeleaf plan --tighten".into(),
        })
    }
}

pub fn record_unused(state: &mut PoolsState, pools: &[Pool], now: Duration) {
    let totals = || pools.iter().filter(|pool| pool.node.is_none());
    state
        .unused
        .retain(|unused| totals().any(|pool| pool.size == unused.page && pool.all() > Pages(0)));
    for pool in totals().filter(|pool| pool.all() > Pages(0)) {
        // An unreadable number is not 0.
        let (Some(free), Some(reserved)) = (pool.free.get(), pool.reserved.get()) else {
            continue;
        };
        let at = state.unused.iter().position(|u| u.page == pool.size);
        let at = at.unwrap_or_else(|| {
            state.unused.push(UnusedPages {
                page: pool.size,
                total: pool.all(),
                since: now,
                hours: Vec::new(),
            });
            state.unused.len() - 1
        });
        state.unused[at].total = pool.all();
        state.unused[at].see((free - reserved).min(pool.persistent()), now);
    }
}

pub fn unused_for_a_day(state: &PoolsState, now: Duration) -> Vec<PoolFinding> {
    let all = state.unused.iter();
    all.filter_map(|unused| unused.finding(now)).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnablePool {
    pub page: PageSize,
    /// The node; `None` if the host counts all nodes together.
    pub node: Option<u32>,
    pub pages: Pages,
    /// Pages that exist again after a boot.
    pub lasting: Pages,
}

/// Returns the pools that may give pages back, by the plans in force, newest first. For each pool the newest plan
/// that names it counts.
pub fn may_give<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> Vec<ReturnablePool> {
    let mut seen = Vec::new();
    let mut may = Vec::new();
    for pool in plans.into_iter().flat_map(|plan| &plan.pools) {
        let which = (pool.page, pool.node);
        if seen.contains(&which) {
            continue;
        }
        seen.push(which);
        if pool.give_back {
            may.push(ReturnablePool {
                page: pool.page,
                node: pool.node,
                pages: pool.pages,
                lasting: pool.lasting(),
            });
        }
    }
    may
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnedPages {
    #[serde(rename = "page_bytes")]
    pub page: PageSize,
    pub node: Option<u32>,
    /// Pages of the pool before the first were given back.
    pub had: Pages,
    pub pages: Pages,
    /// Target of a change in progress, recorded before the change, so that a kill loses nothing.
    pub to: Option<Pages>,
    /// Time of the last change, since boot.
    pub at: Duration,
    pub took: bool,
    /// Number of consecutive times in which pages could not be taken again, or were soon given back.
    pub failures: u32,
}

impl ReturnedPages {
    pub fn missing(&self) -> Pages {
        self.had - self.pages
    }

    /// Returns how long to wait after the last attempt before taking pages again.
    fn wait(&self) -> Duration {
        match self.failures {
            0 => Duration::ZERO,
            n => (CALM * 2_u32.saturating_pow((n - 1).min(16))).min(LONGEST),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolResize {
    pub page: PageSize,
    pub node: Option<u32>,
    pub from: Pages,
    /// Target size: fewer pages to give back, more to take again.
    pub to: Pages,
    pub why: String,
}

impl PoolResize {
    pub fn gives(&self) -> bool {
        self.to < self.from
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolDecision {
    pub resizes: Vec<PoolResize>,
    pub forgotten: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct PoolInputs<'a> {
    pub pools: &'a [Pool],
    pub may: &'a [ReturnablePool],
    pub short: Option<&'a str>,
    pub paused: bool,
    /// Time since boot.
    pub now: Duration,
}

/// Decides the changes of the pools, and records them in the state as in progress.
pub fn decide(look: PoolInputs<'_>, state: &mut PoolsState) -> PoolDecision {
    match look.short {
        Some(_) => state.calm_since = None,
        None => drop(state.calm_since.get_or_insert(look.now)),
    }
    let forgotten = forget(look, state);
    let mut resizes = Vec::new();
    // The node of reserved pages is unknown, so all nodes of a size share the remainder.
    let mut left: Vec<(PageSize, Pages)> = totals(look.pools).collect();
    for may in look.may.iter().filter(|_| !look.paused) {
        let Some(pool) = pool_of(look.pools, may.page, may.node) else {
            continue;
        };
        let next = match look.short {
            Some(why) => give(look, state, may, pool, &mut left, why),
            None => take(look.now, state, may, pool),
        };
        resizes.extend(next);
    }
    PoolDecision { resizes, forgotten }
}

/// Returns free pages of each size that are not reserved; none for a pool that cannot be read.
fn totals(pools: &[Pool]) -> impl Iterator<Item = (PageSize, Pages)> {
    let totals = pools.iter().filter(|pool| pool.node.is_none());
    totals.filter_map(|pool| Some((pool.size, pool.free.get()? - pool.reserved.get()?)))
}

fn pool_of(pools: &[Pool], page: PageSize, node: Option<u32>) -> Option<&Pool> {
    let mut pools = pools.iter();
    let pool = pools.find(|pool| pool.size == page && pool.node == node)?;
    // Without one of these numbers the pool is unknown.
    (pool.total.get().is_some() && pool.surplus.get().is_some()).then_some(pool)
}

/// Forgets given pages that the guard may no longer take: another program set the pool, or no plan allows it any
/// more.
fn forget(look: PoolInputs<'_>, state: &mut PoolsState) -> Vec<String> {
    let mut forgotten = Vec::new();
    state.given.retain_mut(|given| {
        let Some(pool) = pool_of(look.pools, given.page, given.node) else {
            return true;
        };
        let has = pool.persistent();
        if let Some(to) = given.to.take() {
            // The guard was killed during the change.
            if (given.pages.min(to)..=given.pages.max(to)).contains(&has) {
                given.pages = has;
            }
        }
        let may = look.may.iter();
        let is_planned = may.clone().any(|may| is_it(may, given));
        let why = match (has == given.pages, is_planned) {
            (true, true) if given.missing() == Pages(0) => return look.now < given.at + LONGEST,
            (true, true) => return true,
            (false, _) => format!(
                "the guard set it to {} pages, but it has {has}: another program changed it",
                given.pages
            ),
            (true, false) => "no plan in force has give_back = true for it any more".to_owned(),
        };
        if given.missing() > Pages(0) {
            forgotten.push(format!(
                "{}: {why}; {} pages given back are not taken again. To restore the plan: \
                 hugeleaf apply PLAN",
                name(given.page, given.node),
                given.missing()
            ));
        }
        false
    });
    forgotten
}

fn is_it(may: &ReturnablePool, given: &ReturnedPages) -> bool {
    (may.page, may.node) == (given.page, given.node)
}

/// Returns e.g. `pool of 2M on node 0`.
pub fn name(page: PageSize, node: Option<u32>) -> String {
    match node {
        Some(node) => format!("pool of {page} on node {node}"),
        None => format!("pool of {page}"),
    }
}

fn give(
    look: PoolInputs<'_>,
    state: &mut PoolsState,
    may: &ReturnablePool,
    pool: &Pool,
    left: &mut [(PageSize, Pages)],
    why: &str,
) -> Option<PoolResize> {
    let (now, has) = (look.now, pool.persistent());
    let at = state.given.iter().position(|given| is_it(may, given));
    let is_ours = at.is_some() || has == may.pages || has == may.lasting;
    let waits = at.is_some_and(|at| now < state.given[at].at + GIVE_EVERY);
    // Surplus pages show that programs need more than the pool has.
    if !is_ours || waits || pool.surplus.get() != Some(Pages(0)) {
        return None;
    }
    let (_, left) = left.iter_mut().find(|(page, _)| *page == may.page)?;
    let unused = pool.free.get()?.min(*left).min(has);
    if unused == Pages(0) {
        return None;
    }
    let pages = Pages((unused.get() / PART).max(1));
    *left = *left - pages;
    let to = has - pages;
    let at = at.unwrap_or_else(|| {
        state.given.push(ReturnedPages {
            page: may.page,
            node: may.node,
            had: has,
            pages: has,
            to: None,
            at: now,
            took: false,
            failures: 0,
        });
        state.given.len() - 1
    });
    let given = &mut state.given[at];
    if given.took {
        // Taking the pages may have caused the memory shortage.
        let soon = now < given.at + CALM;
        given.failures = if soon {
            given.failures.saturating_add(1)
        } else {
            0
        };
    }
    given.to = Some(to);
    Some(PoolResize {
        page: may.page,
        node: may.node,
        from: has,
        to,
        why: format!("{pages} of {unused} unused pages: {why}"),
    })
}

fn take(
    now: Duration,
    state: &mut PoolsState,
    may: &ReturnablePool,
    pool: &Pool,
) -> Option<PoolResize> {
    let calm = state.calm_since?;
    let given = state.given.iter_mut().find(|given| is_it(may, given))?;
    let to = given.had.min(may.pages);
    if now < calm + CALM || now < given.at + given.wait() || to <= given.pages {
        return None;
    }
    given.to = Some(to);
    let from = pool.persistent();
    Some(PoolResize {
        page: may.page,
        node: may.node,
        from,
        to,
        why: format!(
            "{} pages given back earlier: memory is no longer short",
            to - from
        ),
    })
}

/// Records the result: the pool's current pages, or `None` if it could not be set.
pub fn learn(state: &mut PoolsState, resize: &PoolResize, got: Option<Pages>, now: Duration) {
    let mut all = state.given.iter_mut();
    let Some(given) = all.find(|g| (g.page, g.node) == (resize.page, resize.node)) else {
        return;
    };
    given.to = None;
    given.at = now;
    given.took = !resize.gives();
    if given.took && got.is_none_or(|got| got < resize.to) {
        given.failures = given.failures.saturating_add(1);
    }
    given.pages = got.unwrap_or(given.pages);
}

/// Describes the change for each pool that may give pages back, without making it.
pub fn outlook(look: PoolInputs<'_>) -> Vec<String> {
    let mut state = PoolsState::default();
    let decided = decide(look, &mut state);
    let one = |may: &ReturnablePool| {
        let which = name(may.page, may.node);
        let mut resizes = decided.resizes.iter();
        match resizes.find(|r| (r.page, r.node) == (may.page, may.node)) {
            Some(resize) => format!("{which}: would give back {}", resize.why),
            None if look.short.is_some() => format!("{which}: nothing to give back"),
            None => format!("{which}: keeps its pages, memory is not short"),
        }
    };
    look.may.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
