//! Sources of services: those that a person names, or the whole host.

use std::ffi::OsString;

use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_units::{Bytes, Failure};

use super::service_reader::{ServiceReader, held_of, shared_objects};
use super::source_kind::{DemandSourceKind, FlagArity, ProgramRule, ServiceResult};
use super::{
    Demand, EqualMappings, PageSource, Service, ServiceKind, host_cache, jvm, mariadb, postgres,
    resident, synthetic, sysv, user_account,
};
use crate::fact::Fact;
use crate::limits::{self, cgroup_paths::in_hierarchy};
use crate::model::{Host, Process};
use crate::process::proc_parsers::is_service;
use crate::root::Root;
use crate::system::unit_files::{self, UnitFile};

/// Programs with their own demand rules. The first match counts. The demand of all others is measured
/// by their memory in use.
static PROGRAMS: &[ProgramRule] = &[
    postgres::PROGRAM,
    mariadb::PROGRAM,
    jvm::PROGRAM,
    resident::REDIS,
];

/// The sources that a flag of `plan` names, in the order of its help.
pub static SOURCES: &[DemandSourceKind] = &[
    postgres::SOURCE,
    mariadb::SOURCE,
    jvm::SOURCE,
    CONTAINER,
    synthetic::BYTES,
    synthetic::MOVER,
    host_cache::HOST_CACHE,
];

/// The source of a demand, as named by a person.
#[derive(Debug, Clone)]
pub enum ServiceSelector {
    Pids(Vec<Pid>),
    /// A systemd unit, running or not.
    Unit(String),
    /// A source with a flag of its own, and its value.
    Flag(&'static DemandSourceKind, OsString),
}

impl ServiceSelector {
    /// Returns the source of a target that is more than its processes: a unit, which may be stopped,
    /// or a cgroup with limits of its own.
    pub fn of_target(target: &str, host: &Host) -> Option<ServiceSelector> {
        if target.ends_with(".service") {
            return Some(ServiceSelector::Unit(target.to_owned()));
        }
        let limited = host.cgroups.known()?;
        let is_limited = limited.iter().any(|group| group.path == target);
        is_limited.then_some(ServiceSelector::Flag(&CONTAINER, target.into()))
    }
}

pub(super) const CONTAINER: DemandSourceKind = DemandSourceKind {
    flag: "container",
    value: "CGROUP",
    help: "Container or pod by its cgroup path; also prints the lines for the pod",
    arity: FlagArity::Often,
    check: None,
    is_synthetic: false,
    read: |reader, path| Ok(vec![of_container(reader, &path.to_string_lossy())?]),
};

/// Services that were read, and errors of the others.
#[derive(Debug, Clone, Default)]
pub struct Services {
    pub services: Vec<Service>,
    /// Errors of services that could not be read.
    pub unread: Vec<Failure>,
}

impl Services {
    fn add(&mut self, results: Vec<ServiceResult>) {
        for result in results {
            match result {
                Ok(service) => self.services.push(service),
                Err(error) => self.unread.push(error),
            }
        }
    }
}

/// Minimum memory, in PMD-sized huge pages, of an unknown program that is reported.
const WORTH_A_LOOK: u64 = 64;

/// Returns the services of a source.
///
/// # Errors
/// If there are none, or one cannot be read.
pub fn read_source(
    root: &Root,
    kernel: &Kernel,
    host: &Host,
    source: &ServiceSelector,
) -> Result<Vec<Service>, Failure> {
    let reader = ServiceReader { root, kernel, host };
    let mut services = match source {
        ServiceSelector::Pids(pids) => of_pids(&reader, pids),
        ServiceSelector::Unit(unit) => of_unit(&reader, unit),
        ServiceSelector::Flag(kind, value) => (kind.read)(&reader, value),
    }?;
    // Connections need the user's consent, so only a service that a person named is connected to, not
    // every server found on the host.
    for service in services.iter_mut().filter(|s| !s.pids.is_empty()) {
        let mut programs = PROGRAMS.iter();
        let program = programs.find(|program| program.kind == service.kind);
        if let Some(ask) = program.and_then(|program| program.query) {
            ask(&reader, service);
        }
    }
    Ok(services)
}

/// Returns every service of the host that could use huge pages: running ones, and stopped ones that
/// are started at boot.
pub fn read_services(root: &Root, kernel: &Kernel, host: &Host) -> Services {
    let reader = ServiceReader { root, kernel, host };
    let all = reader.processes();
    let worth = host.pmd_page.get().map_or(Bytes(u64::MAX), |pmd| {
        Bytes(pmd.bytes().get().saturating_mul(WORTH_A_LOOK))
    });
    let mut found = Services::default();
    found.add(of_processes(&reader, &all, &all, Some(worth)));
    let stopped = stopped(&reader, &found.services);
    found.add(stopped);
    found.services.retain(|service| !service.demands.is_empty());
    found
}

/// Returns the services of some processes. A backend of PostgreSQL, or a saving child of Redis,
/// belongs to its parent. Unknown programs are reported by their memory in use. For the whole host,
/// they are reported only from `worth` on.
fn of_processes(
    reader: &ServiceReader<'_>,
    some: &[Process],
    all: &[Process],
    worth: Option<Bytes>,
) -> Vec<ServiceResult> {
    let mut services = Vec::new();
    // In a scan of the whole host, a program may exit before it is queried.
    let mut add = |of: &[&Process], asked: ServiceResult| {
        let ended = || worth.is_some() && of.iter().all(|p| reader.has_ended(p));
        if asked.is_ok() || !ended() {
            services.push(asked);
        }
    };
    let mut taken: Vec<Pid> = Vec::new();
    for process in some {
        let name = process.name.as_str();
        let Some(program) = PROGRAMS.iter().find(|program| (program.is)(name)) else {
            continue;
        };
        let is_child = |p: &Process| p.pid == process.parent && p.name == name;
        taken.push(process.pid);
        if !(program.forks && some.iter().any(is_child)) {
            add(&[process], (program.running)(reader, process, all));
        }
    }
    let others = |taken: &[Pid]| -> Vec<&Process> {
        some.iter().filter(|p| !taken.contains(&p.pid)).collect()
    };
    // For the whole host, segments without attachments are included.
    for service in sysv_services(reader, &others(&taken), &taken, worth.is_some()) {
        taken.extend(&service.pids);
        add(&[], Ok(service));
    }
    let mut rest = others(&taken);
    rest.retain(|p| {
        let held = p.resident_anon + p.resident_shmem + p.hugetlb;
        worth.is_none_or(|worth| held >= worth)
    });
    for group in groups(&rest) {
        add(&group, resident::group(reader, &group));
    }
    services
}

/// Groups related processes: those of one service's unit, else those of one name that descend from
/// each other.
fn groups<'a>(processes: &[&'a Process]) -> Vec<Vec<&'a Process>> {
    let mut groups: Vec<Vec<&Process>> = Vec::new();
    for process in processes {
        let unit = process.unit.as_deref();
        let unit = unit.filter(|unit| is_service(unit));
        let belongs = |group: &&mut Vec<&Process>| {
            group.iter().any(|other| {
                let is_same_unit = unit.is_some() && other.unit.as_deref() == unit;
                let is_kin = other.pid == process.parent || other.parent == process.parent;
                is_same_unit || (is_kin && other.name == process.name)
            })
        };
        match groups.iter_mut().find(belongs) {
            Some(group) => group.push(process),
            None => groups.push(vec![process]),
        }
    }
    groups
}

/// Returns SysV segments of at least a page, by owner and creator, without those of the processes
/// `taken` (PostgreSQL makes a small one in addition to its mapping).
fn sysv_services(
    reader: &ServiceReader<'_>,
    others: &[&Process],
    taken: &[Pid],
    is_host: bool,
) -> Vec<Service> {
    let Some(page) = reader.host.memory.default_hugetlb_page.get() else {
        return Vec::new();
    };
    let mut segments = sysv::read(reader.root).or_default();
    segments.retain(|s| s.bytes >= page.bytes() && !taken.contains(&s.creator));
    segments.sort_by_key(|segment| (segment.uid, segment.creator));
    if segments.is_empty() {
        return Vec::new();
    }
    let attached = attached_to(reader, others);
    segments.retain(|s| is_host || attached.iter().any(|(_, id)| *id == s.id));
    let of_one =
        |a: &sysv::SysvSegment, b: &sysv::SysvSegment| (a.uid, a.creator) == (b.uid, b.creator);
    segments
        .chunk_by(of_one)
        .filter_map(|group| sysv_service(reader, group, &attached, others))
        .collect()
}

/// Returns the processes that attach SysV segments, with the segments' inodes, which are their ids.
fn attached_to(reader: &ServiceReader<'_>, processes: &[&Process]) -> Vec<(Pid, u64)> {
    let of = |process: &&Process| {
        let maps = crate::process::maps::mappings(reader.root, process.pid).or_default();
        let pid = process.pid;
        let sysv = maps.into_iter().filter(|map| map.name.starts_with("/SYSV"));
        sysv.map(move |map| (pid, map.object.2)).collect::<Vec<_>>()
    };
    processes.iter().flat_map(of).collect()
}

fn sysv_service(
    reader: &ServiceReader<'_>,
    segments: &[sysv::SysvSegment],
    attached: &[(Pid, u64)],
    processes: &[&Process],
) -> Option<Service> {
    let owner = segments.first()?;
    let ids: Vec<u64> = segments.iter().map(|segment| segment.id).collect();
    let mut pids: Vec<Pid> = attached
        .iter()
        .filter(|(_, id)| ids.contains(id))
        .map(|(pid, _)| *pid)
        .collect();
    pids.sort_unstable();
    pids.dedup();
    let first = processes
        .iter()
        .find(|p| pids.contains(&owner.creator) && p.pid == owner.creator)
        .or_else(|| processes.iter().find(|p| pids.first() == Some(&p.pid)));
    let mut service = match first {
        Some(process) => reader.service(process, ServiceKind::SysV, &process.name),
        None => {
            let user = user_account::of_uid(reader.root, owner.uid);
            let name = user.name.clone();
            let name = name.unwrap_or_else(|| format!("uid {}", owner.uid));
            let mut service = Service::new(format!("segments of {name}"), ServiceKind::SysV);
            service.user = Some(user);
            service
        }
    };
    service.pids = pids;
    let process = first.and_then(|process| reader.segments(process.pid).ok());
    service.demands = segments
        .iter()
        .map(|segment| sysv_demand(segment, process.as_ref()))
        .collect();
    Some(service)
}

fn sysv_demand(segment: &sysv::SysvSegment, attached: Option<&Process>) -> Demand {
    let mapping = attached.and_then(|process| {
        let mut objects = shared_objects(process);
        objects.find(|s| s.object.2 == segment.id && s.name.starts_with("/SYSV"))
    });
    let what = format!("SysV segment {}", segment.id);
    let mappings = vec![EqualMappings::single(segment.bytes)];
    Demand {
        page: mapping.and_then(|mapping| mapping.request.hugetlb),
        held: mapping.map(held_of),
        ..Demand::new(what, mappings, PageSource::Pool, "ipcs -m")
    }
}

fn of_pids(reader: &ServiceReader<'_>, pids: &[Pid]) -> Result<Vec<Service>, Failure> {
    let mut named: Vec<Process> = Vec::new();
    let all = reader.processes();
    for pid in pids {
        let mut process = all.iter().find(|p| p.pid == *pid).ok_or_else(|| {
            Failure::missing(
                format!("process {pid}: has ended, or has no memory of its own"),
                "hugeleaf mem    # lists the processes",
            )
        })?;
        while let Some(parent) = all.iter().find(|p| p.pid == process.parent)
            && PROGRAMS
                .iter()
                .any(|known| known.forks && (known.is)(&process.name) && (known.is)(&parent.name))
        {
            process = parent;
        }
        if !named.iter().any(|p| p.pid == process.pid) {
            named.push(process.clone());
        }
    }
    of_processes(reader, &named, &all, None)
        .into_iter()
        .collect()
}

/// Reads a unit, by its processes or by its files.
fn of_unit(reader: &ServiceReader<'_>, unit: &str) -> Result<Vec<Service>, Failure> {
    let unit = match unit.contains('.') {
        true => unit.to_owned(),
        false => format!("{unit}.service"),
    };
    let all = reader.processes();
    let is_of = |p: &&Process| p.is_in_unit(&unit);
    let own: Vec<Process> = all.iter().filter(is_of).cloned().collect();
    if !own.is_empty() {
        return of_processes(reader, &own, &all, None).into_iter().collect();
    }
    let file = unit_files::read(reader.root, &unit).ok_or_else(|| {
        Failure::usage(
            format!("{unit}: has no process and no unit file"),
            "systemctl list-units --type=service --all",
        )
    })?;
    match of_unit_file(reader, &file) {
        Some(service) => service.map(|service| vec![service]),
        None => Err(Failure::missing(
            format!(
                "{unit}: not running, and its program cannot report its sizes before it is started"
            ),
            format!("systemctl start {unit}; hugeleaf plan {unit}"),
        )),
    }
}

/// Reads the demand of a stopped unit, if its command is of a program that can be queried.
fn of_unit_file(reader: &ServiceReader<'_>, file: &UnitFile) -> Option<Result<Service, Failure>> {
    let command = file
        .exec_start
        .first()?
        .trim_start_matches(['-', '@', ':', '+', '!']);
    let words: Vec<&str> = command.split_ascii_whitespace().collect();
    let program = words.first()?.rsplit('/').next()?;
    let mut programs = PROGRAMS.iter();
    let service = programs.find_map(|known| (known.stopped)(reader, program, &words))?;
    Some(service.map(|service| with_unit(reader, service, file)))
}

fn with_unit(reader: &ServiceReader<'_>, mut service: Service, file: &UnitFile) -> Service {
    if service.is_running() {
        return service;
    }
    service.name = file.unit.trim_end_matches(".service").to_owned();
    service.unit = Some(file.unit.clone());
    service.exec_start = file.only_command();
    if let Some(name) = &file.user {
        let user = user_account::read_user(reader.root, name);
        service.user = user.known().cloned().or(service.user);
    }
    // A service gets the limits of its unit. Those of PAM apply to logins.
    if let Some(user) = &mut service.user {
        let limit = |of: fn(&(Bytes, Bytes)) -> Bytes| Fact::from(file.memlock.as_ref().map(of));
        user.memlock = limit(|limits| limits.0);
        user.memlock_hard = limit(|limits| limits.1);
    }
    service
}

/// Returns services that are started at boot and do not run now, if they can be queried.
fn stopped(reader: &ServiceReader<'_>, running: &[Service]) -> Vec<ServiceResult> {
    let runs = |service: &Service| {
        running.iter().any(|r| {
            let is_same_unit = r.unit.is_some() && r.unit == service.unit;
            is_same_unit || (r.kind == service.kind && r.configured_by == service.configured_by)
        })
    };
    unit_files::enabled(reader.root)
        .iter()
        .filter(|unit| !running.iter().any(|r| r.unit.as_ref() == Some(unit)))
        .filter_map(|unit| of_unit_file(reader, &unit_files::read(reader.root, unit)?))
        .filter(|result| !matches!(result, Ok(service) if service.is_running() || runs(service)))
        .collect()
}

/// Reads a container, by its cgroup's path, with everything that runs in it.
fn of_container(reader: &ServiceReader<'_>, path: &str) -> Result<Service, Failure> {
    let path = format!("/{}", path.trim_matches('/'));
    let all = reader.processes();
    let cgroup = in_hierarchy(reader.root, &path);
    let is_in = |p: &&Process| p.is_in_cgroup(&cgroup);
    let inside: Vec<Process> = all.iter().filter(is_in).cloned().collect();
    let first = inside.first().ok_or_else(|| {
        Failure::usage(
            format!("{path}: no process in a cgroup with this path"),
            "cat /proc/PID/cgroup    # of a process in the container",
        )
    })?;
    let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
    let mut service = Service::new(name, ServiceKind::Container);
    service.limits = limits::read_limits(reader.root, first.pid);
    for part in inside_of(reader, &inside, &all) {
        service.pids.extend(part.pids);
        service.demands.extend(part.demands);
        service.user = service.user.or(part.user);
        service.node = service.node.or(part.node);
        if service.since.is_absent() {
            service.since = part.since;
        }
    }
    Ok(service)
}

/// Returns the services in a container. Programs with their own files cannot be queried from outside,
/// so they are reported by their memory in use.
fn inside_of(reader: &ServiceReader<'_>, inside: &[Process], all: &[Process]) -> Vec<Service> {
    let mut found = Services::default();
    found.add(of_processes(reader, inside, all, None));
    let mut services = found.services;
    if !found.unread.is_empty() {
        let pids: Vec<Pid> = services.iter().flat_map(|s| s.pids.clone()).collect();
        let rest: Vec<&Process> = inside.iter().filter(|p| !pids.contains(&p.pid)).collect();
        let read = |group: &Vec<&Process>| resident::group(reader, group).ok();
        services.extend(groups(&rest).iter().filter_map(read));
    }
    services
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_program_that_ends_while_it_is_asked_is_no_finding() {
        let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/why");
        let root = Root::at(hosts.join("postgres-pool-short"));
        let kernel = Kernel::new();
        let host = crate::read_memory_facts(&root, &kernel).unwrap();
        let reader = ServiceReader {
            root: &root,
            kernel: &kernel,
            host: &host,
        };
        let mut all = reader.processes();
        let lives = all.iter_mut().find(|p| p.name == "postgres").unwrap();
        assert!(!reader.has_ended(lives));
        let ended = Process {
            pid: Pid(999_999),
            ..lives.clone()
        };
        assert!(reader.has_ended(&ended));
        lives.start_ticks += 1;
        assert!(reader.has_ended(lives), "another process has its number");
        let asked = |worth| of_processes(&reader, std::slice::from_ref(&ended), &all, worth);
        // An error for a named process, and no result in a scan of the host.
        assert!(asked(None).iter().any(Result::is_err));
        assert!(asked(Some(Bytes(1))).is_empty());
    }
}
