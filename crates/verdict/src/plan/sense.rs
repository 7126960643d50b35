//! What a plan may not say, although each of its values is well formed: two pools of one size and
//! node, pages of a size that the host lacks, more memory than there is.
//!
//! Pure, and about the plan alone: what it does not agree with on the running host is for
//! [`super::check`].

use std::collections::BTreeSet;

use hugeleaf_units::{Bytes, PageSize};

use super::allowed;
use super::model::Plan;
use super::room::Margin;

/// A step on the way to a value in a plan's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Key(&'static str),
    Index(usize),
}

/// What makes no sense, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nonsense {
    pub at: Vec<At>,
    pub what: String,
}

fn nonsense(at: &[At], what: impl Into<String>) -> Nonsense {
    Nonsense {
        at: at.to_vec(),
        what: what.into(),
    }
}

use At::{Index, Key};

/// All that makes no sense.
pub(super) fn sense(plan: &Plan) -> Vec<Nonsense> {
    let mut found = host(plan);
    found.extend(services(plan));
    found.extend(pools(plan));
    found.extend(idle(plan));
    found.extend(twice(plan));
    found.extend(knobs(plan));
    found.extend(kept(plan));
    found.extend(sizes(plan));
    found.extend(memory(plan));
    found
}

fn host(plan: &Plan) -> Vec<Nonsense> {
    let mut found = Vec::new();
    if plan.host.nodes.is_empty() {
        found.push(nonsense(
            &[Key("host"), Key("nodes")],
            "no node; expected at least one, as in [0]",
        ));
    }
    if plan.base.moves > plan.base.used {
        found.push(nonsense(
            &[Key("base"), Key("moves_bytes")],
            format!(
                "more moves ({}) than is used ({})",
                plan.base.moves, plan.base.used
            ),
        ));
    }
    found
}

fn services(plan: &Plan) -> Vec<Nonsense> {
    let mut found = Vec::new();
    for (i, service) in plan.services.iter().enumerate() {
        if service.name.is_empty() {
            let at = [Key("service"), Index(i), Key("name")];
            found.push(nonsense(&at, "a service without a name"));
        }
    }
    found
}

fn pools(plan: &Plan) -> Vec<Nonsense> {
    let mut found = Vec::new();
    for (i, pool) in plan.pools.iter().enumerate() {
        let of = |key| [Key("pool"), Index(i), Key(key)];
        if let Some(node) = pool.node
            && !plan.host.nodes.contains(&node)
        {
            let what = format!(
                "the host has no node {node}; expected one of {}",
                list(&plan.host.nodes)
            );
            found.push(nonsense(&of("node"), what));
        }
        if pool.others > pool.pages {
            let what = format!(
                "{} pages, and others hold {} of the pool; expected at least as many",
                pool.pages, pool.others
            );
            found.push(nonsense(&of("pages"), what));
        }
        let theirs = pool.others.get().saturating_add(pool.promised.get());
        if pool.others <= pool.pages && theirs > pool.pages.get() {
            let what = format!(
                "{} pages, and {theirs} of the pool are held by others or promised to others; \
                 expected at least as many",
                pool.pages
            );
            found.push(nonsense(&of("pages"), what));
        }
        for (j, name) in pool.services.iter().enumerate() {
            if !plan.services.iter().any(|s| s.name == *name) {
                let at = [Key("pool"), Index(i), Key("for"), Index(j)];
                found.push(nonsense(
                    &at,
                    format!("the plan has no service named '{name}'"),
                ));
            }
        }
    }
    found
}

/// More idle pages than nobody wants: the files would ask for too few at the next boot.
fn idle(plan: &Plan) -> Vec<Nonsense> {
    let mut found = Vec::new();
    for (i, pool) in plan.pools.iter().enumerate() {
        let sum = |of: fn(&super::ForPool) -> u64| -> u64 {
            let of_size = plan.pools.iter().filter(|p| p.page == pool.page);
            of_size.fold(0, |sum, p| sum.saturating_add(of(p)))
        };
        let for_services = plan.services.iter().flat_map(|s| &s.demands);
        let for_services = for_services
            .flat_map(|d| &d.pages)
            .filter(|p| p.page == pool.page)
            .fold(0_u64, |sum, p| sum.saturating_add(p.pages.get()));
        let beside = sum(|p| p.others.get().saturating_add(p.promised.get()));
        let wanted = for_services.saturating_add(beside);
        let most = sum(|p| p.pages.get()).saturating_sub(wanted);
        let idle = sum(|p| p.idle.get());
        let is_first = !plan.pools[..i].iter().any(|p| p.page == pool.page);
        if is_first && idle > most {
            let at = [Key("pool"), Index(i), Key("idle")];
            found.push(nonsense(
                &at,
                format!("{idle} idle, and all but {most} are wanted; expected no more than that"),
            ));
        }
    }
    found
}

/// Things of which a plan can have only one.
fn twice(plan: &Plan) -> Vec<Nonsense> {
    let pool = |p: &super::ForPool| {
        let node = p.node.map_or(String::new(), |n| format!(" on node {n}"));
        format!("pool of {}{node}", p.page)
    };
    let mut found = Vec::new();
    let services = plan.services.iter().map(|s| format!("service {}", s.name));
    found.extend(repeated("service", "name", services));
    found.extend(repeated("pool", "page", plan.pools.iter().map(pool)));
    let knobs = plan
        .knobs
        .iter()
        .map(|k| format!("setting of {}", k.path.display()));
    found.extend(repeated("knob", "path", knobs));
    let limits = plan.limits.iter().map(|l| format!("limit of {}", l.user));
    found.extend(repeated("limit", "user", limits));
    let mounts = plan
        .mounts
        .iter()
        .map(|m| format!("mount at {}", m.path.display()));
    found.extend(repeated("mount", "path", mounts));
    let units = plan.units.iter().map(|u| format!("unit {}", u.unit));
    found.extend(repeated("unit", "unit", units));
    // One for all nodes and one for a node of a size would be set one after the other.
    for (i, one) in plan.pools.iter().enumerate() {
        let all = |other: &super::ForPool| other.page == one.page && other.node.is_none();
        if one.node.is_some() && plan.pools.iter().any(all) {
            found.push(nonsense(
                &[Key("pool"), Index(i), Key("node")],
                format!(
                    "a pool of {} for all nodes stands in the plan too",
                    one.page
                ),
            ));
        }
    }
    found
}

fn repeated(
    table: &'static str,
    key: &'static str,
    names: impl Iterator<Item = String>,
) -> Vec<Nonsense> {
    let mut seen = BTreeSet::new();
    let again = |(i, name): (usize, String)| {
        let at = [Key(table), Index(i), Key(key)];
        let first = seen.insert(name.clone());
        (!first).then(|| nonsense(&at, format!("a second {name}; expected one")))
    };
    names.enumerate().filter_map(again).collect()
}

/// Settings that have a table of their own, those that no plan makes, and values that they do not
/// take.
fn knobs(plan: &Plan) -> Vec<Nonsense> {
    let instead = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        match name {
            "nr_hugepages" | "nr_hugepages_mempolicy" => Some("[[pool]]"),
            "hugetlb_shm_group" => Some("[group]"),
            _ => None,
        }
    };
    let wrong = |(i, knob): (usize, &super::Knob)| {
        let at = |key| [Key("knob"), Index(i), Key(key)];
        let path = knob.path.display();
        if let Some(table) = instead(knob.path.to_str().unwrap_or_default()) {
            let what = format!("{path} is set by {table}; expected it there");
            return Some(nonsense(&at("path"), what));
        }
        let Some(takes) = allowed::setting(&knob.path) else {
            let what = format!(
                "{path} is not for plans to set; expected a setting of transparent huge pages, \
                 kernel.shmmax, kernel.shmall, or a limit of a cgroup on reserved pages"
            );
            return Some(nonsense(&at("path"), what));
        };
        let why = takes.refuses(&knob.now)?;
        Some(nonsense(&at("now"), why))
    };
    plan.knobs.iter().enumerate().filter_map(wrong).collect()
}

/// Lines that no plan puts into the file that it would keep them in.
fn kept(plan: &Plan) -> Vec<Nonsense> {
    let mut found = Vec::new();
    for (i, kept) in plan.kept.iter().enumerate() {
        for (j, line) in kept.lines.iter().enumerate() {
            if !allowed::is_line(&kept.path, line) {
                let at = [Key("keep"), Index(i), Key("lines"), Index(j)];
                let what = format!("'{line}' is no line that a plan puts into that file");
                found.push(nonsense(&at, what));
            }
        }
    }
    found
}

/// Sizes that the host of the plan lacks.
fn sizes(plan: &Plan) -> Vec<Nonsense> {
    let mut named: Vec<(Vec<At>, PageSize)> = Vec::new();
    for (i, pool) in plan.pools.iter().enumerate() {
        named.push((vec![Key("pool"), Index(i), Key("page")], pool.page));
    }
    for (i, mount) in plan.mounts.iter().enumerate() {
        named.push((vec![Key("mount"), Index(i), Key("page")], mount.page));
    }
    for (i, size) in plan.boot.iter().flat_map(|b| &b.pages).enumerate() {
        named.push((vec![Key("boot"), Key("pages"), Index(i)], *size));
    }
    for (i, service) in plan.services.iter().enumerate() {
        for (j, demand) in service.demands.iter().enumerate() {
            for (k, pages) in demand.pages.iter().enumerate() {
                let at = [
                    Key("service"),
                    Index(i),
                    Key("demand"),
                    Index(j),
                    Key("pages"),
                    Index(k),
                    Key("page"),
                ];
                named.push((at.to_vec(), pages.page));
            }
        }
    }
    let without_pool = |size: &PageSize| !plan.pools.iter().any(|pool| pool.page == *size);
    let at_boot = plan.boot.iter().flat_map(|b| &b.pages).enumerate();
    let mut found: Vec<Nonsense> = at_boot
        .filter(|(_, size)| without_pool(size) && plan.host.pages.contains(size))
        .map(|(i, size)| {
            let at = [Key("boot"), Key("pages"), Index(i)];
            nonsense(
                &at,
                format!("the plan has no pool of {size}; expected a [[pool]] of it"),
            )
        })
        .collect();
    named.retain(|(_, size)| !plan.host.pages.contains(size));
    let had = list(&plan.host.pages);
    let error = |(at, size): (Vec<At>, PageSize)| {
        let expected = if had.is_empty() {
            "it has none that can be reserved".to_owned()
        } else {
            format!("expected one of {had}")
        };
        nonsense(&at, format!("the host has no pages of {size}; {expected}"))
    };
    found.extend(named.into_iter().map(error));
    found
}

fn list<T: ToString>(items: &[T]) -> String {
    items
        .iter()
        .map(T::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// More memory than there is, or less for base pages than the plan itself says they need.
fn memory(plan: &Plan) -> Vec<Nonsense> {
    let Some(last) = plan.pools.len().checked_sub(1) else {
        return Vec::new();
    };
    // The largest pool is the one to look at.
    let largest = plan
        .pools
        .iter()
        .enumerate()
        .max_by_key(|(_, p)| p.pages.of(p.page));
    let at = [
        Key("pool"),
        Index(largest.map_or(last, |(i, _)| i)),
        Key("pages"),
    ];
    let pools = plan.in_pools();
    let was: Bytes = plan
        .pools
        .iter()
        .map(|p| p.was.unwrap_or_default().of(p.page))
        .chain([plan.base.other_pools])
        .sum();
    let total = plan.host.memory;
    if pools > total {
        let what = format!("the pools come to {pools}, and the host has {total}");
        return vec![nonsense(&at, what)];
    }
    // What stands in the pools already is not for the plan to take away.
    if pools <= was {
        return Vec::new();
    }
    let floor = Margin::floor(total);
    if total - pools < floor {
        let what = format!(
            "the pools come to {pools} of {total}, and {floor} of it stay for all else, whatever \
             the reason; expected fewer pages"
        );
        return vec![nonsense(&at, what)];
    }
    if plan.force.is_some() {
        return Vec::new();
    }
    let (used, margin) = (plan.base.used - plan.base.moves, plan.base.margin);
    match plan.left() {
        Some(left) if left >= margin => Vec::new(),
        _ => vec![nonsense(
            &at,
            format!(
                "the pools come to {pools} of {total}; base pages need {used} and a margin of \
                 {margin}: expected fewer pages, or force = \"REASON\""
            ),
        )],
    }
}
