//! Notes of a plan beyond its numbers: reductions and their reasons, contradicting settings in /etc, and services to stop
//! before the pages are available.

use hugeleaf_host::Host;
use hugeleaf_host::demand::{Demand, PageSource, Service, ServiceKind};
use hugeleaf_units::{Bytes, Pages};

use super::budget::{MemoryBudget, PoolBudget};
use super::model::{PageCount, Plan, PoolPlan, ServicePlan};
use super::page_counts::{all_pages_text, wastes_little};
use super::plan_input::{PlanFacts, PlanOptions, lacks};
use super::plan_steps::boot_arguments;
use hugeleaf_verdict::reservation::{commit_bound, fits};
use hugeleaf_verdict::{clean, list};

pub(super) fn notes(
    plan: &Plan,
    facts: &PlanFacts<'_>,
    services: &[Service],
    ledger: &MemoryBudget,
    wishes: &PlanOptions,
) -> Vec<String> {
    let mut lines = cut(plan, facts.host, ledger);
    lines.extend(stop_first(plan, facts.host, ledger));
    lines.extend(promised(plan));
    lines.extend(left_over(facts.host));
    lines.extend(idle(plan, facts.host, ledger));
    lines.extend(reserved_anywhere(plan, facts.host));
    lines.extend(contradicted(plan, facts.host));
    lines.extend(not_in_kernel(plan, services, wishes));
    lines.extend(
        services
            .iter()
            .zip(&plan.services)
            .flat_map(|(asked, planned)| {
                let lines = [
                    lacks_size(plan, asked, planned),
                    wasteful(plan, asked, planned),
                    unfilled(asked, planned),
                    takes_idle(asked, planned, ledger),
                    not_started(plan, asked, planned, wishes),
                ];
                lines.into_iter().flatten().collect::<Vec<_>>()
            }),
    );
    lines.extend(not_lasting(plan, facts));
    lines.extend(command_line(plan));
    lines.iter().map(|line| clean(line)).collect()
}

/// Returns the kernel command line for the user, if no drop-in file can set it.
pub(super) fn command_line(plan: &Plan) -> Option<String> {
    let boot = plan.boot.as_ref().filter(|boot| !boot.grub_drop_in)?;
    Some(format!(
        "pages of {} are guaranteed only at boot; add to the kernel command line: {}",
        list(&boot.pages),
        boot_arguments(plan).join(" ")
    ))
}

fn cut(plan: &Plan, host: &Host, ledger: &MemoryBudget) -> Vec<String> {
    let used = plan.base.used - plan.base.moves;
    let by_commit = ledger.is_bound_by_commit().then(|| commit_bound(host));
    let line = |service: &ServicePlan| {
        let missing = lacks(service)?;
        if let Some(why) = &by_commit {
            return Some(format!(
                "cut: {} lacks {missing}, because {why}",
                service.name
            ));
        }
        let free = match &plan.force {
            None => format!(
                "a margin of {} (--margin changes it, --force REASON overrides it)",
                plan.base.margin
            ),
            Some(_) => "the minimum that stays free even with --force".to_owned(),
        };
        Some(format!(
            "cut: {} lacks {missing}, because base pages keep the {used} in use and {free}",
            service.name
        ))
    };
    plan.services.iter().filter_map(line).collect()
}

/// Names services to stop first: pools can grow only into available memory, and running services use some of it.
fn stop_first(plan: &Plan, host: &Host, ledger: &MemoryBudget) -> Option<String> {
    let available = host.memory.available.get()?;
    let grows = ledger.grows_by();
    if grows <= available || plan.base.moves.is_zero() {
        return None;
    }
    let waiting = plan.services.iter().filter(|s| s.restart);
    let running = list(waiting.map(ServicePlan::known_as));
    Some(format!(
        "the pools grow by {grows}, but only {available} is available: stop {running} before \
         `hugeleaf apply`, because the pools need the memory in use there"
    ))
}

fn promised(plan: &Plan) -> impl Iterator<Item = String> {
    plan.promises.iter().map(|promise| {
        let apply = promise.apply;
        match &promise.name {
            Some(name) => format!(
                "{} are promised to {name} by apply {apply}, even while it is stopped; if it was \
                 removed: hugeleaf undo {apply}",
                all_pages_text(&promise.pages)
            ),
            None => format!(
                "the plan of apply {apply} cannot be read, so all idle pages count as promised by \
                 it; to see the error: hugeleaf verify"
            ),
        }
    })
}

/// Describes pages that no running process holds. No service gets them, and no file requests them again.
fn left_over(host: &Host) -> Option<String> {
    let (text, command) = hugeleaf_verdict::findings::left_over(host)?;
    Some(format!(
        "{text} The plan makes none of them permanent; to free them: {command}"
    ))
}

/// Describes idle pool pages that no service of a plan needs.
fn idle(plan: &Plan, host: &Host, ledger: &MemoryBudget) -> Vec<String> {
    let mut lines = Vec::new();
    for size in &plan.host.pages {
        let until_boot: u64 = plan.of_size(*size).map(|p| p.idle.get()).sum();
        let idle = ledger.sizes.get(size).map_or(0, PoolBudget::idle);
        let until_boot = until_boot.saturating_sub(host.leftover_pages(*size).get());
        let configured = idle.saturating_sub(until_boot);
        let text = |pages| all_pages_text(&[PageCount::new(*size, Pages(pages))]);
        // A pool outside the plan does not change.
        if until_boot > 0 {
            lines.push(format!(
                "{} in the pool are neither in use nor planned for a service; they stay until \
                 the next boot, but no file requests them after it. To free them earlier: \
                 hugeleaf plan --tighten",
                text(until_boot)
            ));
        }
        if configured > 0 {
            let by = match plan.of_size(*size).next() {
                Some(_) => "they stay, because a file on this host requests them at each boot",
                None => "they stay",
            };
            lines.push(format!(
                "{} in the pool are neither in use nor planned for a service; {by}. To check \
                 whether they are needed: hugeleaf plan --tighten",
                text(configured)
            ));
        }
    }
    lines
}

/// Warns that others may take the pages of a node that they have reserved and not touched. The plan counts such pages
/// once, on a node with room for them.
fn reserved_anywhere(plan: &Plan, host: &Host) -> Option<String> {
    let is_bound = |s: &ServicePlan| s.kind == ServiceKind::HostCache && s.node.is_some();
    if host.nodes.len() < 2 || !plan.services.iter().any(is_bound) {
        return None;
    }
    let reserved = plan.host.pages.iter().filter_map(|size| {
        let pages = host.pool(*size)?.reserved.get()?;
        (plan.of_size(*size).next().is_some() && pages > Pages(0))
            .then(|| PageCount::new(*size, pages))
    });
    let reserved: Vec<PageCount> = reserved.collect();
    (!reserved.is_empty()).then(|| {
        format!(
            "other programs have reserved {} and not touched them; they may take them from any \
             node, so `hugeleaf verify --can-take` counts them on each until then",
            all_pages_text(&reserved)
        )
    })
}

/// Finds contradicting settings in /etc that are applied after hugeleaf's.
pub(super) fn contradicted(plan: &Plan, host: &Host) -> Vec<String> {
    const OURS: &str = "60-hugeleaf.conf";
    let default = plan.host.default_page;
    let mut pools = default
        .into_iter()
        .flat_map(|page| plan.of_size(page))
        .peekable();
    let mut wanted: Vec<(String, String)> = Vec::new();
    if pools.peek().is_some() {
        let pages: Pages = pools.map(PoolPlan::lasting).sum();
        wanted.push(("vm.nr_hugepages".to_owned(), pages.to_string()));
    }
    if let Some(group) = &plan.group {
        wanted.push(("vm.hugetlb_shm_group".to_owned(), group.gid.to_string()));
    }
    let later = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        path == "/etc/sysctl.conf" || name > OURS
    };
    let line = |s: &hugeleaf_host::SysctlLine| {
        let (key, ours) = wanted.iter().find(|(key, _)| *key == s.key)?;
        // More pages than the plan needs do no harm.
        let pages = |text: &str| {
            text.parse::<u64>()
                .ok()
                .filter(|_| *key == "vm.nr_hugepages")
        };
        let suffices = matches!((pages(&s.value), pages(ours)), (Some(a), Some(b)) if a >= b);
        let fits = default
            .zip(s.value.parse().ok())
            .filter(|_| *key == "vm.nr_hugepages")
            .map_or(Ok(()), |(size, asked)| fits(host, size, None, Pages(asked)));
        if let (true, Err(why)) = (later(&s.path), fits) {
            return Some(format!(
                "{} sets {key} = {} and is read after hugeleaf's own file, which sets {ours}; \
                 {why}: remove that line",
                s.path, s.value
            ));
        }
        (later(&s.path) && s.value != *ours && !suffices).then(|| {
            format!(
                "{} sets {key} = {} and is read after hugeleaf's own file, which sets {ours}: \
                 remove that line",
                s.path, s.value
            )
        })
    };
    host.limits
        .sysctl
        .entries()
        .iter()
        .filter_map(line)
        .collect()
}

fn lacks_size(plan: &Plan, asked: &Service, planned: &ServicePlan) -> Option<String> {
    let wanted = asked.demands.iter().filter_map(|d| d.page);
    let size = wanted.into_iter().find(|s| !plan.host.pages.contains(s))?;
    (!plan.host.pages.is_empty()).then(|| {
        format!(
            "{} is configured for pages of {size}, which this kernel cannot reserve",
            planned.name
        )
    })
}

/// Suggests a PostgreSQL setting that fills the planned pages. The overhead of a buffer is less than 1/32 of it.
fn unfilled(asked: &Service, planned: &ServicePlan) -> Option<String> {
    const GOES_WITH: u64 = 32;
    if asked.kind != ServiceKind::PostgreSql {
        return None;
    }
    let pages: Bytes = planned.pages().map(|p| p.bytes()).sum();
    let page = planned.pages().map(|p| p.page).max()?;
    let mapped: Bytes = asked
        .demands
        .iter()
        .filter(|d| d.place == PageSource::Pool)
        .map(Demand::bytes)
        .sum();
    let left = pages - mapped;
    let more = left - Bytes(left.get() / GOES_WITH);
    // A configured value may await a restart, and then says nothing about the mapped memory.
    let buffers = asked.demands.iter().find_map(|d| d.buffers);
    let buffers = buffers.filter(|buffers| *buffers < mapped && *buffers * 2 > mapped);
    let setting = match buffers {
        Some(buffers) => format!("shared_buffers = {}MB", (buffers + more).get() >> 20),
        None => format!("shared_buffers larger by {}MB", more.get() >> 20),
    };
    // Less than a tenth does not justify another setting.
    (left * 10 >= mapped).then(|| {
        format!(
            "{} uses {mapped} of its {pages} on pages of {page}: {setting} would fill them",
            planned.name
        )
    })
}

fn wasteful(plan: &Plan, asked: &Service, planned: &ServicePlan) -> Option<String> {
    let default = plan.host.default_page?;
    let found = asked.demands.iter().find_map(|d| {
        let size = d.page.filter(|size| *size > default)?;
        let mapping = d.mappings.iter().find(|p| !wastes_little(p.bytes, size))?;
        Some((
            size,
            size.pages_for(mapping.bytes).in_bytes(size) - mapping.bytes,
            mapping.bytes,
        ))
    });
    let (size, waste, bytes) = found?;
    Some(format!(
        "{} is configured for pages of {size}, which waste {waste} on {bytes} of memory",
        planned.name
    ))
}

/// Warns that MariaDB first tries the largest pages that fit a mapping, even if they are for others.
fn takes_idle(asked: &Service, planned: &ServicePlan, ledger: &MemoryBudget) -> Option<String> {
    if asked.kind != ServiceKind::MariaDb {
        return None;
    }
    let largest = planned.pages().map(|p| p.page).max()?;
    let mappings = asked.demands.iter().flat_map(|d| &d.mappings);
    let mapping = mappings.map(|p| p.bytes).max()?;
    let mut larger = ledger.sizes.iter().filter(|(size, _)| **size > largest);
    let idle =
        larger.find(|(size, book)| size.bytes() <= mapping && book.now.total > book.now.taken);
    idle.map(|(size, _)| {
        format!(
            "{} tries pages of {size} first, and may take idle ones from that pool",
            planned.name
        )
    })
}

/// Reports a request for a unit that is missing, or that cannot be started through `hugeleaf run`.
fn not_started(
    plan: &Plan,
    asked: &Service,
    planned: &ServicePlan,
    wishes: &PlanOptions,
) -> Option<String> {
    let entry = plan
        .units
        .iter()
        .find(|u| Some(&u.unit) == planned.unit.as_ref());
    let name = &planned.name;
    match (&planned.unit, entry) {
        (None, _) if wishes.run.is_some() || !wishes.environment.is_empty() => Some(format!(
            "{name} has no systemd unit: --run and --env have no effect on it"
        )),
        (Some(unit), entry) if wishes.run.is_some() => {
            let started = entry.is_some_and(|u| u.exec_start.is_some());
            let why = match asked.exec_start {
                None => "it does not have exactly one plain ExecStart=",
                Some(_) => {
                    "its command or the path of hugeleaf has characters that systemd interprets"
                }
            };
            (!started).then(|| format!("{unit} is not started through hugeleaf run: {why}"))
        }
        _ => None,
    }
}

fn not_lasting(plan: &Plan, facts: &PlanFacts<'_>) -> Option<String> {
    let written = super::steps(plan);
    let tmpfiles = written.iter().find(|step| step.id == "tmpfiles")?;
    (!facts.tmpfiles).then(|| {
        format!(
            "systemd does not run here, and nothing else reads {}: add its settings to the host's \
             own start scripts",
            tmpfiles.path.display()
        )
    })
}

fn not_in_kernel(plan: &Plan, services: &[Service], wishes: &PlanOptions) -> Option<String> {
    if wishes.sizes.as_ref().is_some_and(Vec::is_empty) {
        return None;
    }
    let wants = services.iter().flat_map(|s| &s.demands);
    let mut wants = wants.filter(|d| d.place == PageSource::Pool);
    (plan.host.pages.is_empty() && wants.next().is_some()).then(|| {
        "this kernel has no hugetlb: it cannot reserve pages, and the plan uses transparent huge \
         pages only"
            .to_owned()
    })
}
