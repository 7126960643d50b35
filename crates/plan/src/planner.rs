//! Makes a plan from demand and a host. Pure: facts come in as values.

use std::collections::BTreeMap;

use hugeleaf_host::demand::{Demand, PageSource, Service, ServiceKind};
use hugeleaf_host::{Fact, Host};
use hugeleaf_units::{Bytes, Failure, PageKind, PageSize, Pages};

use super::budget::{MemoryBudget, PoolBudget, pools_now};
use super::model::{
    BaseMemory, BootPools, DemandPlan, PageCount, Plan, PoolPlan, ServicePlan, TargetHost,
};
use super::numa_layout::{NodePool, PoolDemand, by_node};
use super::page_counts::{PageSizePolicy, add, bytes_of, pages_of_all};
use super::page_promises::{self, listed, open_promises};
use super::plan_input::{PlanFacts, PlanOptions, held_of, unit_entry};
use super::{knobs, notes, service_hints, shm_permissions};
use hugeleaf_verdict::reservation::{Margin, most_by_commit, sizes, used};
use hugeleaf_verdict::{clean, free_name, list, pool_programs};

/// Makes a plan for these services, in order of priority.
pub fn build_plan(
    facts: &PlanFacts<'_>,
    services: &[Service],
    wishes: &PlanOptions,
) -> Result<Plan, Failure> {
    let host = facts.host;
    let had = sizes(host);
    possible_sizes(services, wishes, &had)?;
    let (total, used) = used(host)?;
    let margin = wishes
        .margin
        .map_or(Margin::usual(total), |m| m.resolve(total));
    let configured = configured(facts);
    let books = pools_now(host)?.into_iter().map(|(size, now)| {
        let book = PoolBudget {
            now,
            nodes: by_node(host, size).into_iter().map(NodePool::of).collect(),
            configured: configured.get(&size).copied().unwrap_or_default(),
            left_over: host.leftover_pages(size).get().min(now.taken),
            ..PoolBudget::default()
        };
        (size, book)
    });
    let mut ledger = MemoryBudget {
        total,
        used,
        margin,
        moves: Bytes::ZERO,
        by_commit: most_by_commit(host)?,
        sizes: books.collect(),
        forced: wishes.force.is_some(),
    };
    let standing = open_promises(facts, services);
    page_promises::add_to_budget(&mut ledger, services, &standing, facts.in_force);
    let chooser = PageSizeChooser::new(host, &had, wishes);
    let taken = standing
        .iter()
        .map(|one| one.promised.service.name.as_str());
    let planned: Vec<ServicePlan> = named(services, &taken.collect::<Vec<_>>())
        .into_iter()
        .map(|(name, service)| self::service(&mut ledger, &chooser, name, service))
        .collect();
    let mut plan = bare(facts, total, ledger.used, margin);
    plan.base.moves = ledger.moves;
    let others = ledger.sizes.iter().filter(|(_, book)| book.planned == 0);
    let others = others.map(|(size, book)| Pages(book.now.total).in_bytes(*size));
    plan.base.other_pools = others.sum();
    plan.force = wishes.force.as_deref().map(clean);
    plan.services = planned;
    plan.mounts.clone_from(&wishes.mounts);
    plan.promises = listed(&standing, facts.in_force);
    plan.pools = pools(host, &ledger, &plan);
    plan.boot = boot(facts, &plan);
    let unwanted = settings(&mut plan, facts, services, wishes);
    plan.notes = notes::notes(&plan, facts, services, &ledger, wishes);
    plan.notes.extend(unwanted);
    Ok(plan)
}

fn pools(host: &Host, ledger: &MemoryBudget, plan: &Plan) -> Vec<PoolPlan> {
    let mut found = Vec::new();
    for (size, book) in ledger
        .sizes
        .iter()
        .rev()
        .filter(|(_, book)| book.planned > 0)
    {
        let takes = |s: &&ServicePlan| s.pages().any(|p| p.page == *size);
        let whom = plan.services.iter().filter(takes);
        let wanted = PoolDemand {
            size: *size,
            others: book.others,
            left_over: book.left_over,
            promised: book.promised,
            services: whom.map(|s| s.name.clone()).collect(),
            wants: book.wants(),
            configured: book.configured,
            may_shrink: false,
        };
        found.extend(wanted.layout(host));
    }
    found
}

/// Checks that this kernel has the named sizes and those that services require.
fn possible_sizes(
    services: &[Service],
    wishes: &PlanOptions,
    had: &[PageSize],
) -> Result<(), Failure> {
    let mut named = wishes.sizes.iter().flatten();
    if let Some(size) = named.find(|size| !had.contains(size)) {
        let next = "hugeleaf status    # lists the sizes of this kernel";
        let what = format!("this kernel cannot reserve pages of {size}");
        return Err(Failure::missing(what, next));
    }
    let wrong = services.iter().find_map(|s| wrong_size(s, had));
    wrong.map_or(Ok(()), Err)
}

/// Finds a page size that a PostgreSQL server is configured for but this kernel lacks. With
/// `huge_pages = on` it does not start, and with `try` it falls back to base pages even if pages are
/// reserved. A JVM uses the default size then, with a warning.
fn wrong_size(service: &Service, had: &[PageSize]) -> Option<Failure> {
    let is_asked = service.kind == ServiceKind::PostgreSql && !had.is_empty();
    let sizes = service
        .demands
        .iter()
        .filter(|d| d.place == PageSource::Pool);
    let mut sizes = sizes.filter_map(|d| d.page);
    let size = sizes.find(|size| is_asked && !had.contains(size))?;
    let (name, names) = (clean(&service.name), list(had));
    let of = service.configured_by.as_ref();
    let of = of.map_or(String::new(), |path| {
        format!(" of {}", clean(&path.to_string_lossy()))
    });
    Some(Failure::missing(
        format!(
            "{name} is configured for pages of {size} (huge_page_size), which this kernel cannot \
             reserve"
        ),
        format!(
            "set huge_page_size{of} to 0, or to one of {names}: psql -c \"ALTER SYSTEM SET \
             huge_page_size = 0\", then restart it"
        ),
    ))
}

/// Adds the settings besides pools. Returns a note on each omitted setting.
fn settings(
    plan: &mut Plan,
    facts: &PlanFacts<'_>,
    services: &[Service],
    wishes: &PlanOptions,
) -> Vec<String> {
    let host = facts.host;
    for (service, index) in services.iter().zip(0..) {
        started_through(plan, facts, wishes, service, index);
    }
    plan.knobs = knobs::thp_knobs(host, plan);
    plan.knobs.extend(knobs::shm_knobs(host, services));
    for (service, planned) in services.iter().zip(&plan.services) {
        for knob in knobs::cgroup_knobs(service, planned) {
            match plan.knobs.iter_mut().find(|k| k.path == knob.path) {
                // Two services in one cgroup: the larger need is the minimum.
                Some(same) if number(&same.now) < number(&knob.now) => *same = knob,
                Some(_) => {}
                None => plan.knobs.push(knob),
            }
        }
    }
    let unwanted = knobs::without_unwanted(host, plan);
    for (service, index) in services.iter().zip(0..) {
        shm_permissions::rights(plan, host, service, index);
    }
    for (service, index) in services.iter().zip(0..) {
        plan.services[index].ways =
            service_hints::manual_steps(plan, facts, service, &plan.services[index]);
    }
    unwanted
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

/// Gives each service a unique name. Several instances of a program may share a name, also with
/// services of plans in force (`others`).
fn named<'s>(services: &'s [Service], others: &[&str]) -> Vec<(String, &'s Service)> {
    let mut found: Vec<(String, &Service)> = Vec::new();
    for service in services {
        let name = match clean(&service.name) {
            name if name.is_empty() => "service".to_owned(),
            name => name,
        };
        let own = free_name(&name, |name| {
            others.contains(&name) || found.iter().any(|(other, _)| other == name)
        });
        found.push((own, service));
    }
    found
}

pub(super) fn bare(facts: &PlanFacts<'_>, memory: Bytes, used: Bytes, margin: Bytes) -> Plan {
    let known = |fact: &Fact<String>| fact.text().map(clean);
    let host = TargetHost {
        name: known(&facts.identity.name),
        id: known(&facts.identity.id),
        kernel: known(&facts.host.kernel),
        arch: known(&facts.host.arch),
        memory,
        base_page: facts.host.base_page,
        default_page: facts.host.memory.default_hugetlb_page.get(),
        pages: sizes(facts.host),
        nodes: facts.host.nodes.clone(),
    };
    let base = BaseMemory {
        used,
        moves: Bytes::ZERO,
        other_pools: Bytes::ZERO,
        margin,
    };
    Plan {
        schema: super::SCHEMA,
        made: facts.created_at.map(str::to_owned),
        force: None,
        notes: Vec::new(),
        host,
        base,
        services: Vec::new(),
        pools: Vec::new(),
        knobs: Vec::new(),
        limits: Vec::new(),
        group: None,
        mounts: Vec::new(),
        units: Vec::new(),
        boot: None,
        promises: Vec::new(),
        kept: Vec::new(),
    }
}

/// Returns the pages of each size that files of other owners request at boot. sysctl files take
/// precedence over the kernel command line, because they are read later.
fn configured(facts: &PlanFacts<'_>) -> BTreeMap<PageSize, u64> {
    /// hugeleaf's file there, whose request is in plans.
    const OURS: &str = "/60-hugeleaf.conf";
    let host = facts.host;
    let default = host.memory.default_hugetlb_page.get();
    let boot = host.limits.boot.text().unwrap_or_default();
    let is_ours = |size: &PageSize| facts.grub_text.contains(&format!("hugepagesz={size} "));
    let mut found: BTreeMap<PageSize, u64> = hugeleaf_verdict::findings::boot_pools(boot, default)
        .into_iter()
        .filter(|(size, _)| !is_ours(size))
        .collect();
    for setting in host.limits.sysctl.entries() {
        let is_pool = setting.key == "vm.nr_hugepages" && !setting.path.ends_with(OURS);
        if let (true, Some(size), Ok(pages)) = (is_pool, default, setting.value.parse()) {
            found.insert(size, pages);
        }
    }
    found
}

pub(super) struct PageSizeChooser {
    /// All sizes that can be reserved, largest first.
    available_sizes: Vec<PageSize>,
    default: Option<PageSize>,
    named: Option<Vec<PageSize>>,
}

impl PageSizeChooser {
    fn new(host: &Host, had: &[PageSize], wishes: &PlanOptions) -> PageSizeChooser {
        PageSizeChooser {
            available_sizes: had.to_vec(),
            default: pool_programs::requested_page_size(host, None),
            named: wishes.sizes.clone(),
        }
    }

    /// Returns the page sizes that the service will request: the size in its configuration or on the
    /// command line, or else the kernel's default. A program without a configured size uses the
    /// default, and pages of other sizes would stay idle. MariaDB searches for larger sizes
    /// automatically, and uses the default size if there are no others.
    pub(super) fn takes(&self, kind: ServiceKind, demand: &Demand) -> Option<PageSizePolicy> {
        use ServiceKind::{HostCache, Mover, Other};
        if self.named.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        if let Some(size) = demand
            .page
            .filter(|size| self.available_sizes.contains(size))
        {
            return Some(PageSizePolicy::Only(size));
        }
        let mixes = matches!(kind, HostCache | Mover | Other);
        Some(match &self.named {
            Some(named) if mixes => PageSizePolicy::Mix(named.clone()),
            Some(named) => PageSizePolicy::OneOf(named.clone()),
            None => PageSizePolicy::Only(self.default?),
        })
        .filter(|_| !self.available_sizes.is_empty())
    }
}

fn service(
    ledger: &mut MemoryBudget,
    chooser: &PageSizeChooser,
    name: String,
    service: &Service,
) -> ServicePlan {
    let demands: Vec<DemandPlan> = service
        .demands
        .iter()
        .map(|d| demand(ledger, chooser, service, d))
        .collect();
    let lacks = |(asked, got): (&Demand, &DemandPlan)| {
        let lack = |p: &PageCount| held_of(asked, p.page) < p.bytes();
        got.pages.iter().any(lack)
    };
    let user = service.user.as_ref();
    ServicePlan {
        name,
        kind: service.kind,
        unit: service
            .unit
            .clone()
            .filter(|u| super::name_syntax::is_unit(u).is_ok()),
        user: user.map(|u| clean(&u.name.clone().unwrap_or_else(|| u.uid.to_string()))),
        configured_by: service
            .configured_by
            .as_ref()
            .map(|path| clean(&path.to_string_lossy()).into()),
        node: service.node,
        runs: service.is_running(),
        restart: service.is_running() && service.demands.iter().zip(&demands).any(lacks),
        ways: Vec::new(),
        demands,
    }
}

/// True if a part of its demand helps a program. A program that needs whole mappings cannot use
/// pages that hold none.
fn is_divisible(kind: ServiceKind) -> bool {
    use ServiceKind::{Container, HostCache, Mover, Other};
    matches!(kind, Container | HostCache | Mover | Other)
}

fn demand(
    ledger: &mut MemoryBudget,
    chooser: &PageSizeChooser,
    service: &Service,
    demand: &Demand,
) -> DemandPlan {
    let node = service.node;
    let takes = match demand.place {
        PageSource::Pool => chooser.takes(service.kind, demand),
        PageSource::Thp => None,
    };
    let mut planned = DemandPlan {
        what: clean(&demand.what),
        source: clean(&demand.source),
        from: if takes.is_some() {
            PageSource::Pool
        } else {
            PageSource::Thp
        },
        mappings: demand.mappings.clone(),
        pages: Vec::new(),
        missing: Vec::new(),
    };
    let Some(takes) = takes else {
        return planned;
    };
    let all = pages_of_all(&demand.mappings, &takes);
    if ledger.take(&all, node, freed_base_memory(demand)) {
        planned.pages = all;
    } else if is_divisible(service.kind) {
        cut_by_pages((ledger, node), chooser, &mut planned, &takes);
    } else {
        cut_by_mappings((ledger, node), &mut planned, &takes);
    }
    planned
}

/// Returns the base-page memory of a service that moves to the pool at its next start.
fn freed_base_memory(demand: &Demand) -> Bytes {
    let held = demand.held.iter().flatten();
    let elsewhere: Bytes = held
        .filter(|h| h.kind != PageKind::Hugetlb)
        .map(|h| h.bytes)
        .sum();
    elsewhere.min(bytes_of(&demand.mappings))
}

/// Plans as many pages as fit, of the usual size. Often not even one page of the largest size would
/// fit.
fn cut_by_pages(
    (ledger, node): (&mut MemoryBudget, Option<u32>),
    chooser: &PageSizeChooser,
    planned: &mut DemandPlan,
    takes: &PageSizePolicy,
) {
    let takes = match (takes, chooser.default) {
        (PageSizePolicy::Only(size), _) => PageSizePolicy::Only(*size),
        (PageSizePolicy::OneOf(sizes) | PageSizePolicy::Mix(sizes), default) => {
            match sizes.last().copied().or(default) {
                Some(size) => PageSizePolicy::Only(size),
                None => return,
            }
        }
    };
    for all in pages_of_all(&planned.mappings, &takes) {
        let one = PageCount::new(all.page, Pages(1));
        let got = ledger.take_most(one, node, all.pages.get());
        add(&mut planned.pages, one.times(got));
        add(&mut planned.missing, one.times(all.pages.get() - got));
    }
}

fn cut_by_mappings(
    (ledger, node): (&mut MemoryBudget, Option<u32>),
    planned: &mut DemandPlan,
    takes: &PageSizePolicy,
) {
    for mapping in &planned.mappings {
        // One size per mapping, because these programs use no mix.
        for one in takes.pages(mapping.bytes) {
            let got = ledger.take_most(one, node, mapping.count);
            add(&mut planned.pages, one.times(got));
            add(&mut planned.missing, one.times(mapping.count - got));
        }
    }
}

/// Returns the sizes above the largest free block that the kernel tracks. They are guaranteed only
/// at boot.
pub(super) fn boot(facts: &PlanFacts<'_>, plan: &Plan) -> Option<BootPools> {
    let host = facts.host;
    let asked = host.limits.boot.text().unwrap_or_default();
    let default = host.memory.default_hugetlb_page.get();
    let asked = hugeleaf_verdict::findings::boot_pools(asked, default);
    let wants = |size: &PageSize| {
        let pages: u64 = plan.of_size(*size).map(|p| p.lasting().get()).sum();
        let at_boot = asked.iter().rev().find(|(s, _)| s == size);
        let is_ours = facts.grub_text.contains(&format!("hugepagesz={size} "));
        let lasts = at_boot.is_some_and(|(_, had)| *had == pages) && !is_ours;
        is_gigantic(host, *size) && pages > 0 && !lasts
    };
    let pages: Vec<PageSize> = plan.host.pages.iter().copied().filter(wants).collect();
    (!pages.is_empty()).then_some(BootPools {
        pages,
        grub_drop_in: facts.grub_drop_ins,
    })
}

/// True if the kernel cannot allocate a page of this size from its free lists.
fn is_gigantic(host: &Host, size: PageSize) -> bool {
    let orders = host.buddy.known().and_then(|buddy| {
        let zones = buddy.zones.iter();
        zones.map(|zone| zone.counts.len()).max()
    });
    let largest = match orders {
        Some(orders) if orders > 0 => {
            let shift = u32::try_from(orders - 1).unwrap_or(u32::MAX);
            host.base_page.bytes() * 1_u64.checked_shl(shift).unwrap_or(u64::MAX)
        }
        _ => host
            .pmd_page
            .get()
            .map_or(host.base_page.bytes(), PageSize::bytes),
    };
    size.bytes() > largest
}

/// Returns the unit's own command, started through `hugeleaf run`. `None` for a command that systemd
/// would interpret differently from its text.
fn command(facts: &PlanFacts<'_>, wishes: &PlanOptions, service: &Service) -> Option<String> {
    let (flags, command) = (wishes.run.as_ref()?, service.exec_start.as_ref()?);
    let program = facts.program.to_str()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !program.chars().all(plain) || clean(command) != *command {
        return None;
    }
    let flags = match flags.is_empty() {
        true => String::new(),
        false => format!(" {flags}"),
    };
    Some(format!("{program} run{flags} -- {command}"))
}

/// Adds a drop-in for the unit if the user wants to start it through `hugeleaf run` or with
/// additional variables.
fn started_through(
    plan: &mut Plan,
    facts: &PlanFacts<'_>,
    wishes: &PlanOptions,
    service: &Service,
    index: usize,
) {
    let planned = &plan.services[index];
    let Some(unit) = planned.unit.clone() else {
        return;
    };
    let command = command(facts, wishes, service);
    if command.is_none() && wishes.environment.is_empty() {
        return;
    }
    let name = planned.name.clone();
    let entry = unit_entry(plan, &unit, &name);
    entry.exec_start = command;
    entry.environment.clone_from(&wishes.environment);
}
