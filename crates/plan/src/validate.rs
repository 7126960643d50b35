//! Finds contradictions in a plan with well-formed values: two pools of one size and node, pages of
//! a size that the host lacks, more memory than exists.
//!
//! Pure, and about the plan alone. [`super::preflight`] compares it with the running host.

use std::collections::BTreeSet;
use std::fmt::Display;

use hugeleaf_units::{Bytes, PageSize, Pages};

use super::allowlist;
use super::model::{Plan, PoolPlan};
use hugeleaf_verdict::list;
use hugeleaf_verdict::reservation::Margin;

/// A contradiction and its place: the keys and indices that lead to it, as in `pool.0.node`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contradiction {
    pub at: String,
    pub what: String,
}

#[derive(Default)]
struct Contradictions(Vec<Contradiction>);

impl Contradictions {
    fn add(&mut self, at: impl Into<String>, what: impl Into<String>) {
        let (at, what) = (at.into(), what.into());
        self.0.push(Contradiction { at, what });
    }
}

pub(super) fn contradictions(plan: &Plan) -> Vec<Contradiction> {
    let mut found = Contradictions::default();
    host(plan, &mut found);
    pools(plan, &mut found);
    idle(plan, &mut found);
    twice(plan, &mut found);
    knobs(plan, &mut found);
    kept(plan, &mut found);
    sizes(plan, &mut found);
    memory(plan, &mut found);
    found.0
}

fn host(plan: &Plan, found: &mut Contradictions) {
    if plan.host.nodes.is_empty() {
        found.add("host.nodes", "no node; expected at least one, as in [0]");
    }
    let (moves, used) = (plan.base.moves, plan.base.used);
    if moves > used {
        let what = format!("to_pools_bytes ({moves}) exceeds used_bytes ({used})");
        found.add("base.to_pools_bytes", what);
    }
    for (i, service) in plan.services.iter().enumerate() {
        if service.name.is_empty() {
            found.add(format!("service.{i}.name"), "a service without a name");
        }
    }
}

fn pools(plan: &Plan, found: &mut Contradictions) {
    for (i, pool) in plan.pools.iter().enumerate() {
        if let Some(node) = pool.node
            && !plan.host.nodes.contains(&node)
        {
            let nodes = list(&plan.host.nodes);
            let what = format!("the host has no node {node}; expected one of {nodes}");
            found.add(format!("pool.{i}.node"), what);
        }
        let (pages, theirs) = (pool.pages, pool.others + pool.promised);
        if pool.others > pages {
            let what = format!(
                "{pages} pages, but others hold {} pages of the pool; expected at least as many",
                pool.others
            );
            found.add(format!("pool.{i}.pages"), what);
        } else if theirs > pages {
            let what = format!(
                "{pages} pages, but {theirs} pages of the pool are held by or promised to others; \
                 expected at least as many"
            );
            found.add(format!("pool.{i}.pages"), what);
        }
        for (j, name) in pool.services.iter().enumerate() {
            if !plan.services.iter().any(|s| s.name == *name) {
                let what = format!("the plan has no service named '{name}'");
                found.add(format!("pool.{i}.for.{j}"), what);
            }
        }
    }
}

/// Finds an idle count above the unwanted pages, as files would request too few at the next boot.
fn idle(plan: &Plan, found: &mut Contradictions) {
    for (i, pool) in plan.pools.iter().enumerate() {
        let sum = |of: fn(&PoolPlan) -> Pages| -> Pages { plan.of_size(pool.page).map(of).sum() };
        let for_services: Pages = plan.services.iter().map(|s| s.pages_of(pool.page)).sum();
        let wanted = for_services + sum(|p| p.others + p.promised);
        let most = sum(|p| p.pages) - wanted;
        let idle = sum(|p| p.idle);
        let is_first = !plan.pools[..i].iter().any(|p| p.page == pool.page);
        if is_first && idle > most {
            let what = format!(
                "{idle} idle pages, but only {most} pages have no user; expected at most {most}"
            );
            found.add(format!("pool.{i}.idle"), what);
        }
    }
}

fn twice(plan: &Plan, found: &mut Contradictions) {
    let pool = |p: &PoolPlan| {
        let node = p.node.map_or(String::new(), |n| format!(" on node {n}"));
        format!("pool of {}{node}", p.page)
    };
    let services = plan.services.iter().map(|s| format!("service {}", s.name));
    repeated("service", "name", services, found);
    repeated("pool", "page", plan.pools.iter().map(pool), found);
    let knobs = plan.knobs.iter().map(|k| k.path.display());
    let knobs = knobs.map(|path| format!("setting of {path}"));
    repeated("knob", "path", knobs, found);
    let limits = plan.limits.iter().map(|l| format!("limit of {}", l.user));
    repeated("limit", "user", limits, found);
    let mounts = plan.mounts.iter().map(|m| m.path.display());
    let mounts = mounts.map(|path| format!("mount at {path}"));
    repeated("mount", "path", mounts, found);
    let units = plan.units.iter().map(|u| format!("unit {}", u.unit));
    repeated("unit", "unit", units, found);
    // A pool for all nodes and one for a node would overwrite each other.
    for (i, one) in plan.pools.iter().enumerate() {
        if one.node.is_some() && plan.of_size(one.page).any(|pool| pool.node.is_none()) {
            let what = format!(
                "the plan also has a pool of {} for all nodes; expected one or the other",
                one.page
            );
            found.add(format!("pool.{i}.node"), what);
        }
    }
}

fn repeated(
    table: &str,
    key: &str,
    names: impl Iterator<Item = String>,
    found: &mut Contradictions,
) {
    let mut seen = BTreeSet::new();
    for (i, name) in names.enumerate() {
        if !seen.insert(name.clone()) {
            let what = format!("a second {name}; expected one");
            found.add(format!("{table}.{i}.{key}"), what);
        }
    }
}

/// Finds settings with their own table, settings that no plan makes, and invalid values.
fn knobs(plan: &Plan, found: &mut Contradictions) {
    for (i, knob) in plan.knobs.iter().enumerate() {
        let path = knob.path.display();
        let name = knob.path.file_name().unwrap_or_default();
        let instead = match name.to_str().unwrap_or_default() {
            "nr_hugepages" | "nr_hugepages_mempolicy" => Some("[[pool]]"),
            "hugetlb_shm_group" => Some("[group]"),
            _ => None,
        };
        let (key, what) = match (instead, allowlist::setting(&knob.path)) {
            (Some(table), _) => ("path", format!("{path} is set by {table}, not by [[knob]]")),
            (None, None) => (
                "path",
                format!(
                    "a plan cannot set {path}; expected a setting of transparent huge pages, \
                     kernel.shmmax, kernel.shmall, or a cgroup limit on hugetlb pages"
                ),
            ),
            (None, Some(takes)) => match takes.refuses(&knob.now) {
                Some(why) => ("now", why),
                None => continue,
            },
        };
        found.add(format!("knob.{i}.{key}"), what);
    }
}

fn kept(plan: &Plan, found: &mut Contradictions) {
    for (i, kept) in plan.kept.iter().enumerate() {
        for (j, line) in kept.lines.iter().enumerate() {
            if !allowlist::is_line(&kept.path, line) {
                let what = format!("'{line}' is not a line that a plan writes to that file");
                found.add(format!("keep.{i}.lines.{j}"), what);
            }
        }
    }
}

fn sizes(plan: &Plan, found: &mut Contradictions) {
    let at_boot = plan.boot.iter().flat_map(|b| &b.pages).enumerate();
    for (i, size) in at_boot.clone() {
        if plan.of_size(*size).next().is_none() && plan.host.pages.contains(size) {
            let what = format!("the plan has no pool of {size}; expected a [[pool]] of that size");
            found.add(format!("boot.pages.{i}"), what);
        }
    }
    let had = list(&plan.host.pages);
    let mut named = |at: &dyn Display, size: PageSize| {
        let expected = match had.as_str() {
            "" => "it cannot reserve huge pages".to_owned(),
            had => format!("expected one of {had}"),
        };
        if !plan.host.pages.contains(&size) {
            let what = format!("the host has no pages of {size}; {expected}");
            found.add(at.to_string(), what);
        }
    };
    for (i, pool) in plan.pools.iter().enumerate() {
        named(&format_args!("pool.{i}.page"), pool.page);
    }
    for (i, mount) in plan.mounts.iter().enumerate() {
        named(&format_args!("mount.{i}.page"), mount.page);
    }
    for (i, size) in at_boot {
        named(&format_args!("boot.pages.{i}"), *size);
    }
    for (i, service) in plan.services.iter().enumerate() {
        for (j, demand) in service.demands.iter().enumerate() {
            for (k, pages) in demand.pages.iter().enumerate() {
                let at = format_args!("service.{i}.demand.{j}.pages.{k}.page");
                named(&at, pages.page);
            }
        }
    }
}

/// Finds pools larger than memory, or base-page memory below the plan's own needs.
fn memory(plan: &Plan, found: &mut Contradictions) {
    // Report the largest pool.
    let pools = plan.pools.iter().enumerate();
    let Some((largest, _)) = pools.max_by_key(|(_, p)| p.pages.in_bytes(p.page)) else {
        return;
    };
    let (pools, total) = (plan.in_pools(), plan.host.memory);
    let were = plan.pools.iter();
    let were: Bytes = were
        .map(|p| p.was.unwrap_or_default().in_bytes(p.page))
        .sum();
    let floor = Margin::floor(total);
    let (used, margin) = (plan.base.used - plan.base.moves, plan.base.margin);
    let what = if pools > total {
        format!("the pools take {pools}, but the host has {total} of memory")
    } else if pools <= were + plan.base.other_pools {
        // The plan does not shrink pages that are already in the pools.
        return;
    } else if total - pools < floor {
        format!(
            "the pools take {pools} of {total}, but {floor} must stay outside them, even with \
             force; expected fewer pages"
        )
    } else if plan.force.is_some() || plan.left().is_some_and(|left| left >= margin) {
        return;
    } else {
        format!(
            "the pools take {pools} of {total}, but base pages need {used} and a margin of \
             {margin}; expected fewer pages, or force = \"REASON\""
        )
    };
    found.add(format!("pool.{largest}.pages"), what);
}
