//! Pages that services request and have, and pages that pools can provide.

use hugeleaf_host::demand::{Demand, HugePageRequirement, PageSource, Service, ServiceKind};
use hugeleaf_host::{Fact, PageUsage, Pool};
use hugeleaf_units::{Bytes, PageKind, PageSize, Pages};

use super::{PLAN, PoolRow, ServiceRow, VerifyFacts, pages_text, service_limits};
use crate::{PageCount, ServicePlan, can_be_found, is_same, is_same_place, pages_of, promised};
use hugeleaf_verdict::advice::{Setting, SettingChange};
use hugeleaf_verdict::findings::{AdvisedCommand, Finding};
use hugeleaf_verdict::pod_limits::below_pool;
use hugeleaf_verdict::pool_programs::PoolProgram;
use hugeleaf_verdict::{each_its_own, pool_programs};

/// Tolerated excess of a pool over its use, in pages and as a fraction of the pool. Plans use the same limits.
const SLACK_PAGES: u64 = 2;
const SLACK_PART: u64 = 50;

/// Returns the number of unused pages that is negligible in a pool of that size.
pub fn slack(total: Pages) -> Pages {
    Pages(SLACK_PAGES.max(total.get() / SLACK_PART))
}

/// A row and its service. A planned service that was not found has none.
pub(super) struct CheckedService<'a> {
    pub row: ServiceRow,
    pub service: Option<&'a Service>,
    pub is_planned: bool,
}

/// Returns a row for each service that requests pool pages in its configuration or in a plan.
pub(super) fn rows<'a>(facts: &VerifyFacts<'a>) -> Vec<CheckedService<'a>> {
    let (pairs, not_found) = pairs(facts);
    let found = pairs.into_iter().map(|(service, planned)| CheckedService {
        row: row(facts, service, planned),
        service: Some(service),
        is_planned: planned.is_some(),
    });
    let not_found = not_found.into_iter().map(|planned| CheckedService {
        row: row_of_plan(planned),
        service: None,
        is_planned: true,
    });
    let all = found.chain(not_found);
    let mut all: Vec<CheckedService<'a>> = all.filter(|l| !l.row.asked.is_empty()).collect();
    // Several instances of a program may share a name, but metrics need distinct ones.
    each_its_own(all.iter_mut().map(|checked| &mut checked.row.name));
    all
}

type MatchedService<'a> = (&'a Service, Option<&'a ServicePlan>);

/// Pairs each service with its plan entry, and returns the plan entries without a service. Matches by unit, path or name
/// first, then the remaining ones by kind. A service that was planned before it had a unit has another name now.
fn pairs<'a>(facts: &VerifyFacts<'a>) -> (Vec<MatchedService<'a>>, Vec<&'a ServicePlan>) {
    let plans = facts.applied.iter();
    let plans = plans.filter_map(|one| Some((one.id, one.plan.as_ref().ok()?)));
    let mut planned: Vec<&ServicePlan> = promised(plans).iter().map(|p| p.service).collect();
    let mut pairs: Vec<MatchedService<'_>> = facts
        .services
        .iter()
        .map(|service| (service, None))
        .collect();
    for fits in [is_same_place, is_same, is_same_kind] {
        for (service, plan) in pairs.iter_mut().filter(|(_, plan)| plan.is_none()) {
            if let Some(at) = planned.iter().position(|planned| fits(service, planned)) {
                *plan = Some(planned.remove(at));
            }
        }
    }
    (pairs, planned)
}

/// True as a last resort for a service that was planned before it had a unit, and so under another name. Their
/// configurations must not differ.
fn is_same_kind(service: &Service, planned: &ServicePlan) -> bool {
    let files = (&service.configured_by, &planned.configured_by);
    let differ = matches!(files, (Some(a), Some(b)) if a != b);
    service.kind == planned.kind && can_be_found(planned.kind) && !differ
}

/// Returns the row of a planned service that was not found.
fn row_of_plan(planned: &ServicePlan) -> ServiceRow {
    ServiceRow {
        name: planned.name.clone(),
        kind: planned.kind,
        unit: planned.unit.clone(),
        is_found: false,
        pids: Vec::new(),
        since: Fact::Absent,
        asked: pages_of(planned),
        got: Vec::new(),
        short: Pages(0),
        reason: None,
    }
}

fn row(facts: &VerifyFacts<'_>, service: &Service, planned: Option<&ServicePlan>) -> ServiceRow {
    let of_plan = planned.map(pages_of).unwrap_or_default();
    let asked = match of_plan.is_empty() {
        false => of_plan,
        true => requested_by_config(facts, service),
    };
    let got = got(service);
    let missing = ServiceRow::bytes(&asked) - ServiceRow::bytes(&got);
    let short = match asked.first() {
        Some(first) if service.is_running() => first.page.pages_for(missing),
        _ => Pages(0),
    };
    let short = match asked.first() {
        Some(first) if service.grows && !got.is_empty() => short - available(facts, first.page),
        _ => short,
    };
    // The figure is only exact to this tolerance, so a smaller difference is no shortfall.
    let all: u64 = asked.iter().map(|pages| pages.pages.get()).sum();
    let is_short = short.get() > SLACK_PAGES.max(all / (2 * SLACK_PART)) || got.is_empty();
    ServiceRow {
        name: service.name.clone(),
        kind: service.kind,
        unit: service.unit.clone(),
        is_found: true,
        pids: service.pids.clone(),
        since: service.since.clone(),
        asked,
        got,
        short: if is_short { short } else { Pages(0) },
        reason: None,
    }
}

fn add(all: &mut Vec<PageCount>, pages: PageCount) {
    if pages.pages.get() == 0 {
        return;
    }
    match all.iter_mut().find(|seen| seen.page == pages.page) {
        Some(seen) => seen.pages += pages.pages,
        None => all.push(pages),
    }
}

fn requested_by_config(facts: &VerifyFacts<'_>, service: &Service) -> Vec<PageCount> {
    let asks = match service.huge_page_setting.requirement {
        // A setting outside known files may be in effect. A service with hugetlb pages requested them.
        HugePageRequirement::Never | HugePageRequirement::Cannot => {
            service.demands.iter().any(has_hugetlb)
        }
        HugePageRequirement::Always => true,
        // By default the server uses huge pages if available. It requested none if no pool exists, or a plan made the pool
        // for others.
        HugePageRequirement::IfAvailable => {
            !service.huge_page_setting.text.is_empty()
                || (has_pool(facts) && facts.applied.is_empty())
        }
        // A program without such a setting requested the pages that it has.
        HugePageRequirement::Unknown => true,
    };
    let mut all = Vec::new();
    let from_pool = service
        .demands
        .iter()
        .filter(|demand| demand.place == PageSource::Pool);
    for demand in from_pool.filter(|_| asks) {
        let is_known = service.huge_page_setting.requirement != HugePageRequirement::Unknown
            || has_hugetlb(demand);
        if let Some(page) =
            pool_programs::requested_page_size(facts.host, demand.page).filter(|_| is_known)
        {
            let mappings = demand.mappings.iter();
            let pages = mappings.map(|mapping| page.pages_for(mapping.bytes) * mapping.count);
            add(&mut all, PageCount::new(page, pages.sum()));
        }
    }
    all
}

fn available(facts: &VerifyFacts<'_>, page: PageSize) -> Pages {
    facts.host.pool(page).map_or(Pages(0), Pool::available)
}

fn has_pool(facts: &VerifyFacts<'_>) -> bool {
    facts.host.totals().any(|pool| pool.all() > Pages(0))
}

fn on_pool(demand: &Demand) -> impl Iterator<Item = &PageUsage> {
    let held = demand.held.iter().flatten();
    held.filter(|held| held.kind == PageKind::Hugetlb)
}

fn has_hugetlb(demand: &Demand) -> bool {
    on_pool(demand).next().is_some()
}

fn got(service: &Service) -> Vec<PageCount> {
    let mut all = Vec::new();
    for held in service.demands.iter().flat_map(on_pool) {
        add(
            &mut all,
            PageCount::new(held.size, held.size.pages_for(held.bytes)),
        );
    }
    all
}

/// Returns the pools of all sizes, with the pages that no service requests.
pub(super) fn pools(facts: &VerifyFacts<'_>, rows: &[CheckedService<'_>]) -> Vec<PoolRow> {
    let of = |pool: &Pool| {
        let mut row = PoolRow {
            page: pool.size,
            total: pool.total.get()?,
            free: pool.free.get().unwrap_or_default(),
            reserved: pool.reserved.get().unwrap_or_default(),
            surplus: pool.surplus.get().unwrap_or_default(),
            unused: Pages(0),
        };
        let of = |all: &[PageCount]| count_of(all, pool.size);
        let told = |l: &CheckedService<'_>| {
            let (other, pages, _) = other_pool(facts, l.service?, &l.row)?;
            (other.size == pool.size).then_some(pages)
        };
        let waits = |l: &CheckedService<'_>| {
            of(&l.row.asked) - of(&l.row.got) + told(l).unwrap_or_default()
        };
        let waiting = rows.iter().map(waits).sum();
        row.unused = (row.available() - waiting).min(row.total - row.surplus);
        Some(row)
    };
    facts.host.totals().filter_map(of).collect()
}

fn count_of(all: &[PageCount], page: PageSize) -> Pages {
    let of_size = all.iter().filter(|pages| pages.page == page);
    of_size.map(|pages| pages.pages).sum()
}

fn pool_of(pools: &[PoolRow], page: PageSize) -> Option<&PoolRow> {
    pools.iter().find(|pool| pool.page == page)
}

/// Finds running services with fewer pages than requested, each with the reason.
pub(super) fn short(
    facts: &VerifyFacts<'_>,
    rows: &mut [CheckedService<'_>],
    pools: &[PoolRow],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for checked in rows {
        let (Some(service), Some(page)) = (checked.service, checked.row.page()) else {
            continue;
        };
        if checked.row.short.get() == 0 {
            // It has its pages, whatever the permissions. A cgroup limit may still kill it.
            findings.extend(service_limits::cgroup(facts, service, &checked.row));
            continue;
        }
        let rights = service_limits::cgroup(facts, service, &checked.row)
            .or_else(|| service_limits::segments(facts, service, &checked.row));
        let available = pool_of(pools, page).map_or(Pages(0), PoolRow::available);
        let finding = match rights {
            Some(finding) => finding,
            None => match other_pool(facts, service, &checked.row) {
                Some((other, _, settings)) => by_other_pool(&checked.row, page, other, &settings),
                None => by_pool(service, &checked.row, page, available),
            },
        };
        checked.row.reason = Some(finding.text.clone());
        findings.push(finding);
    }
    findings
}

/// Returns a pool of another size with enough pages if the requested size has too few. Includes the number of pages and the
/// settings to use it.
fn other_pool<'a>(
    facts: &VerifyFacts<'a>,
    service: &Service,
    row: &ServiceRow,
) -> Option<(&'a Pool, Pages, String)> {
    let page = row.page()?;
    let demands = || {
        service
            .demands
            .iter()
            .filter(|d| d.place == PageSource::Pool)
    };
    let needs: Bytes = demands().map(Demand::bytes).sum();
    let own = facts.host.pool(page);
    let is_enough = own.is_some_and(|pool| pool.available() >= row.short);
    let is_settled = demands().any(|d| d.page.is_some()) || !facts.applied.is_empty();
    if row.short == Pages(0) || is_enough || is_settled {
        return None;
    }
    let program = PoolProgram::of(service_limits::program(service.kind))?;
    let enough = |pool: &&Pool| pool.available() >= pool.size.pages_for(needs);
    let others = facts.host.totals().filter(|pool| pool.size != page);
    let other = others.filter(enough).max_by_key(|pool| pool.size)?;
    let size = program.size_setting(other.size)?;
    let pages = other.size.pages_for(needs);
    Some((other, pages, format!("{size}, {}", program.on)))
}

fn by_other_pool(row: &ServiceRow, page: PageSize, other: &Pool, settings: &str) -> Finding {
    Finding::problem(
        "service-short",
        format!(
            "{} asked for {} on huge pages and is {} short: it asks for pages of the default size, \
             but the pool of {} has {} free.",
            row.name,
            ServiceRow::bytes(&row.asked),
            pages_text(row.short, page),
            other.size,
            other.available()
        ),
        format!(
            "# make it ask for those ({settings}), then: {}",
            restart_command(row)
        ),
    )
}

fn by_pool(service: &Service, row: &ServiceRow, page: PageSize, available: Pages) -> Finding {
    let asked = ServiceRow::bytes(&row.asked);
    let short = pages_text(row.short, page);
    let name = &row.name;
    let restart = restart_command(row);
    if service.huge_page_setting.requirement.is_off() {
        let said = match service.huge_page_setting.text.as_str() {
            "" => "its configuration does not ask for them".to_owned(),
            said => format!("its configuration says {said}"),
        };
        return Finding::problem(
            "service-off",
            format!(
                "{name} is planned to have {asked} on huge pages and is {short} short: {said}."
            ),
            format!("hugeleaf plan    # names the setting; then {restart}"),
        );
    }
    if available >= row.short {
        return Finding::problem(
            "started-before-pool",
            format!(
                "{name} asked for {asked} on huge pages and is {short} short. It started before \
                 they were reserved, and fell back to base pages silently. The pool has {available} \
                 free now."
            ),
            restart,
        );
    }
    let missing = row.short - available;
    Finding::problem(
        "service-short",
        format!(
            "{name} asked for {asked} on huge pages and is {short} short; the pool has {available} \
             free, so {missing} are missing."
        ),
        PLAN,
    )
}

fn restart_command(row: &ServiceRow) -> String {
    match (&row.unit, row.kind) {
        (Some(unit), _) => format!(
            "systemctl restart {}",
            hugeleaf_verdict::findings::shell_word(unit)
        ),
        (None, ServiceKind::PostgreSql) => "pg_ctl restart -D DATA_FOLDER".to_owned(),
        (None, _) => {
            let pid = row
                .pids
                .first()
                .map_or(String::new(), |pid| pid.to_string());
            format!("hugeleaf mem {pid}    # restart it, then check again")
        }
    }
}

/// Finds services that would not get their pages at the next start, although they have them or are stopped. Surplus pages
/// disappear when freed, and other processes may take pages of a pool while the service is down.
pub(super) fn restart(
    rows: &[CheckedService<'_>],
    pools: &[PoolRow],
    facts: &VerifyFacts<'_>,
) -> Vec<Finding> {
    let one = |checked: &CheckedService<'_>| {
        let row = &checked.row;
        // With huge pages off it would start without. A service that was not found may run and have its pages.
        let is_off = checked
            .service
            .is_some_and(|s| s.huge_page_setting.requirement.is_off());
        let is_unknown = !row.is_found && !can_be_found(row.kind);
        if row.short.get() > 0 || is_off && row.got.is_empty() || is_unknown {
            return None;
        }
        let lacking = row.asked.iter().find_map(|asked| {
            let held = count_of(&row.got, asked.page);
            let pool = pool_of(pools, asked.page);
            let after_stop = pool.map_or(Pages(0), |pool| pool.available() + (held - pool.surplus));
            // The plan is only an estimate, so use the number of pages that it has now.
            let needed = match held {
                Pages(0) => asked.pages,
                held => held.min(asked.pages),
            };
            let missing = needed - after_stop;
            (missing > Pages(0)).then_some((asked.page, missing, after_stop))
        });
        let (page, missing, there) = lacking?;
        let insists = checked.service.map_or(HugePageRequirement::Unknown, |s| {
            s.huge_page_setting.requirement
        });
        let (when, falls) = (
            if row.is_running() { "restart" } else { "start" },
            match insists {
                HugePageRequirement::IfAvailable => "would fall back to base pages silently",
                _ => "would fail",
            },
        );
        let drained = match pool_of(pools, page).filter(|pool| pool.surplus > Pages(0)) {
            Some(pool) => format!(
                " ({} of the pool's pages are surplus and leave it when freed)",
                pool.surplus
            ),
            None => String::new(),
        };
        let asks = pages_text(count_of(&row.asked, page), page);
        Some(Finding::problem(
            "restart-would-fail",
            format!(
                "A {when} of {} {falls}: it asks for {asks}, but {there} would be free, {missing} \
                 too few{drained}.",
                row.name
            ),
            grow_command(facts, page, pools, missing),
        ))
    };
    rows.iter().filter_map(one).collect()
}

fn grow_command(
    facts: &VerifyFacts<'_>,
    page: PageSize,
    pools: &[PoolRow],
    missing: Pages,
) -> AdvisedCommand {
    if !facts.applied.is_empty() {
        return PLAN.into();
    }
    let total = pool_of(pools, page).map_or(Pages(0), |pool| pool.total);
    let change = SettingChange::new(Setting::pool(page, None), total + missing).from(total);
    change.check(facts.host).into()
}

/// Finds services that would each get their pages alone, but not all together. After a reboot the last one to start would
/// get none. Stopped services count with their planned request.
pub(super) fn combined_shortage(
    facts: &VerifyFacts<'_>,
    rows: &[CheckedService<'_>],
    pools: &[PoolRow],
) -> Vec<Finding> {
    let one = |pool: &PoolRow| {
        let asks =
            |checked: &&CheckedService<'_>| count_of(&checked.row.asked, pool.page) > Pages(0);
        let asking: Vec<&CheckedService<'_>> = rows.iter().filter(asks).collect();
        let needed = needed_together(facts, &asking, pool);
        let there = pool.total - pool.surplus;
        let is_reported = asking.iter().any(|checked| checked.row.short > Pages(0));
        let alone =
            |checked: &&CheckedService<'_>| count_of(&checked.row.asked, pool.page) <= there;
        let missing = needed - there;
        let is_new = asking.len() > 1 && !is_reported && asking.iter().all(alone);
        (missing > Pages(0) && is_new).then(|| {
            Finding::warning(
                "pool-too-small",
                format!(
                    "Together {} services ask for {}, but the pool has {there}: {missing} too few \
                     if all of them run ({}).",
                    asking.len(),
                    pages_text(needed, pool.page),
                    names(&asking)
                ),
                PLAN,
            )
        })
    };
    pools.iter().filter_map(one).collect()
}

fn names(asking: &[&CheckedService<'_>]) -> String {
    const SHOWN: usize = 5;
    let mut names: Vec<&str> = asking.iter().map(|l| &*l.row.name).take(SHOWN).collect();
    if asking.len() > SHOWN {
        names.push("and others");
    }
    names.join(", ")
}

/// Returns the pages of a pool that all services need together.
fn needed_together(
    facts: &VerifyFacts<'_>,
    asking: &[&CheckedService<'_>],
    pool: &PoolRow,
) -> Pages {
    let of = |checked: &&CheckedService<'_>| match count_of(&checked.row.got, pool.page) {
        Pages(0) => count_of(&checked.row.asked, pool.page),
        got => got,
    };
    // Containers, and programs with a user-defined demand, also run under their own names, and must count only once. Pages
    // of services without a plan may therefore belong to them, except for pages that others already used when the plan was
    // made.
    let is_unseen = |l: &&&CheckedService<'_>| !l.row.is_found && !can_be_found(l.row.kind);
    let unseen: Pages = asking.iter().filter(is_unseen).map(of).sum();
    let seen = || asking.iter().filter(|l| !is_unseen(l));
    let known: Pages = seen().filter(|l| l.is_planned).map(of).sum();
    let unplanned: Pages = seen().filter(|l| !l.is_planned).map(of).sum();
    let newest = facts.applied.iter().find_map(|one| one.plan.as_ref().ok());
    let others = newest.into_iter().flat_map(|plan| plan.of_size(pool.page));
    let others: Pages = others.map(|p| p.others).sum();
    known + unplanned.max(unseen + unplanned.min(others))
}

/// Finds pages that are neither used, reserved nor requested.
pub(super) fn unused(facts: &VerifyFacts<'_>, pools: &[PoolRow]) -> Vec<Finding> {
    let one = |pool: &PoolRow| {
        // Pods are barred from these pages, and in a container the host owns the pool.
        let is_not_ours = below_pool(facts.host, pool.page).is_some() || facts.host.is_in_container;
        if pool.unused <= slack(pool.total) || is_not_ours {
            return None;
        }
        let bytes: Bytes = pool.unused.in_bytes(pool.page);
        let total = facts.host.memory.total.get()?;
        // A fiftieth of all memory, the limit of `status` for waste.
        let is_much = bytes.get() >= total.get() / SLACK_PART;
        let of = match is_much {
            true => Finding::warning,
            false => Finding::note,
        };
        Some(of(
            "pool-unused",
            format!(
                "{} ({bytes}) of {} in the pool are neither used nor reserved, and no service \
                 found asks for them; nothing else can use that memory.",
                pages_text(pool.unused, pool.page),
                pool.total
            ),
            "hugeleaf plan --tighten",
        ))
    };
    pools.iter().filter_map(one).collect()
}
