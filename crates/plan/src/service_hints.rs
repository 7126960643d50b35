//! Manual changes that make a service use its planned pages, as lines of its own configuration,
//! which hugeleaf does not edit.

use hugeleaf_host::demand::{HugePageRequirement, PageSource, Service, ServiceKind};
use hugeleaf_units::{Bytes, PageSize};

use super::can_take::REGISTRATION;
use super::model::{Plan, ServicePlan};
use super::page_counts::wastes_little;
use super::plan_input::PlanFacts;
use hugeleaf_verdict::advice::pod_line;
use hugeleaf_verdict::clean;

pub(super) fn manual_steps(
    plan: &Plan,
    facts: &PlanFacts<'_>,
    service: &Service,
    planned: &ServicePlan,
) -> Vec<String> {
    let mut lines = match service.kind {
        ServiceKind::PostgreSql => postgres(plan, service, planned),
        ServiceKind::MariaDb => mariadb(service),
        ServiceKind::Jvm => java(plan, service, planned),
        ServiceKind::Redis => private(plan, planned, true),
        ServiceKind::SysV => sysv(service),
        ServiceKind::Container => pod(planned),
        ServiceKind::HostCache => host_cache(plan, service, planned),
        ServiceKind::Mover => mover(plan, planned),
        ServiceKind::Other => other(plan, service, planned),
    };
    if service.limits.is_in_container && service.kind != ServiceKind::Container {
        lines.extend(pod(planned));
    }
    lines.extend(larger(facts, service, planned));
    lines.iter().map(|line| clean(line)).collect()
}

fn sizes(planned: &ServicePlan) -> Vec<PageSize> {
    let mut sizes: Vec<PageSize> = planned.pages().map(|p| p.page).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    sizes
}

/// Formats its current setting, as in ` (now huge_pages = try)`.
fn format_current_setting(service: &Service) -> String {
    match service.huge_page_setting.text.as_str() {
        "" => String::new(),
        said => format!(" (now {said})"),
    }
}

/// Returns the planned size if it is not the default and the program's configuration names none.
fn unusual(plan: &Plan, service: &Service, planned: &ServicePlan) -> Option<PageSize> {
    let configured = service.demands.iter().any(|d| d.page.is_some());
    let largest = sizes(planned).first().copied()?;
    (!configured && Some(largest) != plan.host.default_page).then_some(largest)
}

fn postgres(plan: &Plan, service: &Service, planned: &ServicePlan) -> Vec<String> {
    let now = format_current_setting(service);
    let mut lines = Vec::new();
    if let Some(size) = unusual(plan, service, planned) {
        lines.push(format!("postgresql.conf: huge_page_size = '{size}B'"));
    }
    lines.push(match service.huge_page_setting.requirement {
        HugePageRequirement::Always => return lines,
        HugePageRequirement::Cannot => format!(
            "postgresql.conf: shared_memory_type = mmap and huge_pages = on: PostgreSQL uses a \
             pool for no other type{now}"
        ),
        HugePageRequirement::Never => format!("postgresql.conf: huge_pages = on{now}"),
        HugePageRequirement::IfAvailable | HugePageRequirement::Unknown => {
            format!("postgresql.conf: huge_pages = on, so that it does not fall back silently{now}")
        }
    });
    lines
}

fn mariadb(service: &Service) -> Vec<String> {
    match service.huge_page_setting.requirement {
        HugePageRequirement::IfAvailable | HugePageRequirement::Always => Vec::new(),
        HugePageRequirement::Never | HugePageRequirement::Cannot | HugePageRequirement::Unknown => {
            let now = format_current_setting(service);
            vec![format!("its option file, [mysqld]: large_pages = ON{now}")]
        }
    }
}

fn java(plan: &Plan, service: &Service, planned: &ServicePlan) -> Vec<String> {
    let mut flags = Vec::new();
    if service.huge_page_setting.requirement.is_off()
        || service.huge_page_setting.requirement == HugePageRequirement::Unknown
    {
        flags.push("-XX:+UseLargePages".to_owned());
    }
    if let Some(size) = unusual(plan, service, planned) {
        flags.push(format!("-XX:LargePageSizeInBytes={size}"));
    }
    match flags.is_empty() {
        true => Vec::new(),
        false => vec![format!("JVM flags: {}", flags.join(" "))],
    }
}

/// Describes private memory, for which nothing is reserved.
fn private(plan: &Plan, planned: &ServicePlan, saves: bool) -> Vec<String> {
    let mut units = plan.units.iter().filter(|u| u.exec_start.is_some());
    if units.any(|u| Some(&u.unit) == planned.unit.as_ref()) {
        return Vec::new();
    }
    let target = hugeleaf_verdict::findings::shell_word(planned.known_as());
    let why = match saves {
        true => "nothing is reserved: its memory is private, and it forks to save; ",
        false => "",
    };
    let live = match planned.runs {
        true => format!("to promote it while it runs: hugeleaf promote {target}; "),
        false => String::new(),
    };
    vec![format!(
        "{why}{live}to start it on huge pages: hugeleaf run -- COMMAND"
    )]
}

fn sysv(service: &Service) -> Vec<String> {
    let on_hugetlb = service.demands.iter().all(|d| d.page.is_some());
    if on_hugetlb {
        return Vec::new();
    }
    vec![
        "it must request its segments with SHM_HUGETLB; Oracle: use_large_pages = only, without \
         memory_target; DB2: db2set DB2_LARGE_PAGE_MEM=DB"
            .to_owned(),
    ]
}

fn pod(planned: &ServicePlan) -> Vec<String> {
    let line = |size: PageSize| {
        let line = pod_line(size, planned.pages_of(size).in_bytes(size));
        format!("pod, resources.limits and resources.requests: {line}")
    };
    sizes(planned).into_iter().map(line).collect()
}

fn ladder(planned: &ServicePlan) -> String {
    let sizes = sizes(planned).into_iter();
    let rungs: Vec<String> = sizes.map(|size| format!("hugetlb:{size}")).collect();
    rungs.join(",")
}

fn mover(plan: &Plan, planned: &ServicePlan) -> Vec<String> {
    let stack = plan.knobs.iter().find_map(|k| {
        let name = k.path.parent()?.file_name()?.to_str()?;
        name.strip_prefix("hugepages-")?
            .strip_suffix("kB")?
            .parse()
            .ok()
    });
    let stack = stack.map_or(String::new(), |kib| {
        format!(" --stack {}", Bytes::from_kib(kib))
    });
    match ladder(planned) {
        none if none.is_empty() => vec!["start it with: hugeleaf run -- COMMAND".to_owned()],
        ladder => vec![format!(
            "start it with: hugeleaf run --data {ladder}{stack} -- COMMAND    # in its own start \
             script, not in /etc/environment"
        )],
    }
}

/// Lists the settings that the processes of a cache need, and that no file of the host holds.
fn host_cache(plan: &Plan, service: &Service, planned: &ServicePlan) -> Vec<String> {
    let mut lines = Vec::new();
    let mappings = service.demands.iter().flat_map(|d| &d.mappings);
    let rank = mappings
        .map(|mapping| mapping.bytes)
        .max()
        .unwrap_or_default();
    let smallest = sizes(planned).last().copied();
    let rank = smallest.map_or(rank, |size| size.pages_for(rank).in_bytes(size));
    lines.push(format!(
        "if it pins its memory, each rank needs CAP_IPC_LOCK or LimitMEMLOCK={rank:#} in its unit \
         (docker: --ulimit memlock=-1)"
    ));
    if rank >= REGISTRATION {
        lines.push(format!(
            "a rank of {rank} cannot be registered with NVIDIA's driver in one call \
             ({REGISTRATION} or more): register it in pieces"
        ));
    }
    if let Some(size) = unusual(plan, service, planned) {
        lines.push(format!(
            "name the page size in the program: pages of {size} are not the default ({})",
            plan.host
                .default_page
                .map_or("none".to_owned(), |size| size.to_string())
        ));
    }
    lines.extend(pod(planned));
    lines
}

fn other(plan: &Plan, service: &Service, planned: &ServicePlan) -> Vec<String> {
    let configured = service.demands.iter().any(|d| d.page.is_some());
    let from_pool = planned.demands.iter().any(|d| d.from == PageSource::Pool);
    let ladder = ladder(planned);
    match () {
        () if configured => Vec::new(),
        () if !from_pool => private(plan, planned, false),
        () if ladder.is_empty() => Vec::new(),
        () => vec![format!(
            "unless the program asks for them itself: hugeleaf run --shm {ladder} -- COMMAND"
        )],
    }
}

/// Suggests a larger size that would fit too, for programs that use it only if configured.
fn larger(facts: &PlanFacts<'_>, service: &Service, planned: &ServicePlan) -> Option<String> {
    let setting = match service.kind {
        ServiceKind::PostgreSql => "huge_page_size in postgresql.conf",
        ServiceKind::Jvm => "-XX:LargePageSizeInBytes",
        _ => return None,
    };
    let now = sizes(planned).first().copied()?;
    let largest = hugeleaf_verdict::reservation::sizes(facts.host)
        .first()
        .copied()?;
    let mappings = || service.demands.iter().flat_map(|d| &d.mappings);
    let fits = mappings().any(|p| p.bytes >= largest.bytes() && wastes_little(p.bytes, largest));
    (largest > now && fits).then(|| {
        format!("pages of {largest} would fit with little waste: set {setting}, then plan again")
    })
}
