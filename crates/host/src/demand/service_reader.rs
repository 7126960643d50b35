//! Services among the running processes, with the helpers that every reader of a service needs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hugeleaf_sys::{Kernel, Pid, UserCredentials};
use hugeleaf_units::{Bytes, Failure, PageKind};

use super::{Demand, EqualMappings, PageSource, Service, ServiceKind, user_account};
use crate::fact::Fact;
use crate::limits;
use crate::model::{Host, MappingRole, PageUsage, Process, ProcessMapping};
use crate::process::proc_parsers::is_service;
use crate::process::{ProcessError, ReadDetail, identity, read_process};
use crate::root::{Root, UntrustedFiles, relative_to_root};
use crate::system::{boot_time, unit_files};
use crate::target::living;

pub(super) struct ServiceReader<'a> {
    pub root: &'a Root,
    pub kernel: &'a Kernel,
    pub host: &'a Host,
}

impl ServiceReader<'_> {
    /// Returns the path of a folder of this host without links. `None` if it does not exist.
    pub fn canonical(&self, path: &Path) -> Option<PathBuf> {
        self.root.canonical(relative_to_root(path)).ok()
    }

    /// Returns a typed path as the kernel names it: absolute, without links. On a captured host it stays
    /// as typed.
    pub fn resolved(&self, path: &Path) -> PathBuf {
        match std::path::absolute(path) {
            Ok(path) if self.root.is_live() => self.root.canonical(&path).unwrap_or(path),
            _ => path.to_owned(),
        }
    }

    /// True if a path is a regular file, links followed.
    pub fn is_file(&self, path: &Path) -> bool {
        let meta = self.root.metadata(relative_to_root(path));
        meta.is_ok_and(|meta| meta.is_file())
    }

    /// Opens files that configure a running process, as it sees them and with its rights.
    pub fn files_of(&self, process: &Process) -> Option<UntrustedFiles> {
        let rights = UserCredentials::of_ids(process.uid, &process.groups);
        self.root.files_of_process(process.pid, rights).ok()
    }

    /// Opens files that the owner of a folder controls, with that user's rights. Also returns the owner.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn files_of_owner(&self, folder: &Path) -> std::io::Result<(UntrustedFiles, (u32, u32))> {
        let meta = self.root.metadata(relative_to_root(folder))?;
        let user = user_account::of_uid(self.root, meta.uid());
        let rights = UserCredentials {
            uid: user.uid,
            gid: meta.gid(),
            groups: user.groups,
        };
        let theirs = self.root.files_of_user(rights)?;
        Ok((theirs, (meta.uid(), meta.gid())))
    }

    /// Returns the target of a link of a process, as in `cwd`.
    pub fn link(&self, pid: Pid, name: &str) -> Option<PathBuf> {
        std::fs::read_link(self.root.path(format!("proc/{pid}/{name}"))).ok()
    }

    /// Returns the program of a process, to be run again for a query.
    ///
    /// # Errors
    /// If it sees other files than this process does (a container), since this path then has another
    /// program.
    pub fn program_to_query(&self, pid: Pid) -> Result<PathBuf, Failure> {
        let own = std::fs::read_link(self.root.path("proc/self/ns/mnt")).ok();
        let is_same = own.is_some()
            && self.link(pid, "ns/mnt") == own
            && self.link(pid, "root").as_deref() == Some(Path::new("/"))
            && self.is_one_user(pid);
        let program = self.link(pid, "exe").filter(|_| is_same).ok_or_else(|| {
            Failure::missing(
                format!("process {pid}: its program cannot be run to report sizes: the process has another mount namespace, the rights of two users, or unreadable files"),
                "run hugeleaf as root, or inside that container",
            )
        })?;
        // An upgrade replaced it. The new one will be started next time.
        let text = program.to_string_lossy();
        Ok(PathBuf::from(text.trim_end_matches(" (deleted)")))
    }

    /// True if all user ids of a process are equal. If they differ, the program has more rights than the
    /// user who started it, so it is not run again with that user's arguments.
    fn is_one_user(&self, pid: Pid) -> bool {
        let ids = self.status(pid, "Uid:").unwrap_or_default();
        let mut ids = ids.split_ascii_whitespace();
        let first = ids.next();
        first.is_some() && ids.all(|id| Some(id) == first)
    }

    fn status(&self, pid: Pid, name: &str) -> Option<String> {
        let text = self.root.read(format!("proc/{pid}/status")).or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim().to_owned())
    }

    /// True if a process has ended, or become another program, since it was read.
    pub fn has_ended(&self, process: &Process) -> bool {
        let read = (process.start_ticks, process.image);
        identity(self.root, process.pid).ok() != Some(read)
    }

    /// Makes a service with the facts of its first process, without demands.
    pub fn service(&self, process: &Process, kind: ServiceKind, name: &str) -> Service {
        let unit = process.unit.clone().filter(|unit| is_service(unit));
        let name = unit
            .as_deref()
            .and_then(|u| u.strip_suffix(".service"))
            .unwrap_or(name);
        let mut service = Service::new(name, kind);
        let file = unit
            .as_ref()
            .and_then(|unit| unit_files::read(self.root, unit));
        service.exec_start = file.and_then(|file| file.only_command());
        service.unit = unit;
        service.user = Some(user_account::of_process(self.root, process));
        service.pids = vec![process.pid];
        service.since = self.since(process);
        service.limits = limits::read_limits(self.root, process.pid);
        service.node = self.bound_to(process.pid);
        service
    }

    /// Returns the start time of a process, in seconds since 1970.
    fn since(&self, process: &Process) -> Fact<u64> {
        // Start times count 100 ticks a second on every supported architecture.
        let ticks = hugeleaf_sys::ticks_per_second().max(1);
        let boot = boot_time::read(self.root);
        boot.map(|boot| boot + process.start_ticks / ticks)
    }

    /// Returns the one node that a process may take memory from, on a host of several.
    fn bound_to(&self, pid: Pid) -> Option<u32> {
        let nodes = self.status(pid, "Mems_allowed_list:")?.parse().ok();
        nodes.filter(|_| self.host.nodes.len() > 1)
    }

    /// Returns a process with its segments.
    ///
    /// # Errors
    /// The reason why it could not be read.
    pub fn segments(&self, pid: Pid) -> Result<Process, Failure> {
        read_process(self.root, self.kernel, self.host, pid, ReadDetail::Segments).map_err(
            |error| {
                let next = match error {
                    ProcessError::Denied { .. } => {
                        "run hugeleaf as root, or as the owner of the process"
                    }
                    _ => "hugeleaf mem    # lists the processes",
                };
                Failure::missing(error.to_string(), next)
            },
        )
    }

    /// Returns every process with memory of its own, without this one.
    pub fn processes(&self) -> Vec<Process> {
        living(self.root).collect()
    }
}

/// Maximum length of arguments that are read. A new program gets at most a quarter of 8M.
const LONGEST_ARGUMENTS: Bytes = Bytes(2 << 20); // not a page size

/// Returns the arguments of a process, its program's name first.
pub(super) fn arguments_of(root: &Root, pid: Pid) -> Vec<String> {
    let text = root.beginning(format!("proc/{pid}/cmdline"), LONGEST_ARGUMENTS);
    match text.or_default().trim_end_matches('\0') {
        "" => Vec::new(),
        text => text.split('\0').map(str::to_owned).collect(),
    }
}

/// Returns shared memory of a process, each object once, by the longest mapping of it.
pub(super) fn shared_objects(process: &Process) -> impl Iterator<Item = &ProcessMapping> {
    let mut longest: BTreeMap<(u32, u32, u64), &ProcessMapping> = BTreeMap::new();
    for segment in process.segments.iter().filter(|s| s.shared) {
        let known = longest.entry(segment.object).or_insert(segment);
        // The last one of the greatest length is used.
        if segment.range.len() >= known.range.len() {
            *known = segment;
        }
    }
    process.segments.iter().filter(move |s| {
        let is_shared = s.shared && s.role == MappingRole::Shm;
        let longest = longest.get(&s.object);
        is_shared && longest.is_some_and(|longest| longest.range == s.range)
    })
}

/// Returns the memory of a mapping by page size. A hugetlb mapping has all of its length from the start,
/// because untouched pages are reserved.
pub(super) fn held_of(segment: &ProcessMapping) -> Vec<PageUsage> {
    match segment.request.hugetlb {
        Some(size) => vec![PageUsage {
            size,
            kind: PageKind::Hugetlb,
            bytes: segment.range.len(),
        }],
        None => segment.by_page_size.clone(),
    }
}

/// Returns the mappings of a process on hugetlb pages, each object once.
fn on_pool(process: &Process) -> impl Iterator<Item = &ProcessMapping> {
    // A heap may be mapped at several addresses (ZGC).
    let mut seen = BTreeSet::new();
    process
        .segments
        .iter()
        .filter(|s| s.request.hugetlb.is_some())
        .filter(move |segment| seen.insert((segment.object, segment.offset)))
}

pub(super) fn held_on_pool(process: &Process) -> Vec<PageUsage> {
    let mut table = Vec::new();
    PageUsage::add_all(&mut table, on_pool(process).flat_map(held_of));
    table
}

/// Returns the pool pages and the private memory of a process.
fn private_and_pool(process: &Process) -> Vec<PageUsage> {
    let mut table = held_on_pool(process);
    let private = private_segments(process).flat_map(|s| &s.by_page_size);
    PageUsage::add_all(&mut table, private);
    table
}

/// Returns private memory that is not on the pool: heaps and anonymous mappings.
pub(super) fn private_segments(process: &Process) -> impl Iterator<Item = &ProcessMapping> {
    process.segments.iter().filter(|segment| {
        let is_private = matches!(segment.role, MappingRole::Heap | MappingRole::Anon);
        is_private && !segment.shared && segment.request.hugetlb.is_none()
    })
}

/// Makes a demand for the pool pages of a process, mapping by mapping.
pub(super) fn measured_pool(process: &Process) -> Vec<Demand> {
    let mut by_page: Vec<Demand> = Vec::new();
    for segment in on_pool(process) {
        let mapping = EqualMappings::single(segment.range.len());
        let held = held_of(segment).remove(0);
        let mut known = by_page.iter_mut();
        match known.find(|demand| demand.page == Some(held.size)) {
            Some(demand) => {
                demand.mappings.push(mapping);
                let table = demand.held.get_or_insert_default();
                PageUsage::add(table, held.size, held.kind, held.bytes);
            }
            None => by_page.push(Demand {
                page: Some(held.size),
                held: Some(vec![held]),
                ..Demand::new(
                    "pool pages of the process",
                    vec![mapping],
                    PageSource::Pool,
                    "the lengths of its mappings",
                )
            }),
        }
    }
    by_page
}

/// Returns the demand that a running program reported, with its memory in use. If the query failed, its
/// pool pages are measured instead.
pub(super) fn or_measured(
    process: &Process,
    asked: Result<Demand, Failure>,
) -> Result<Vec<Demand>, Failure> {
    match asked {
        Ok(demand) => Ok(vec![Demand {
            held: Some(private_and_pool(process)),
            ..demand
        }]),
        Err(_) if !held_on_pool(process).is_empty() => Ok(measured_pool(process)),
        Err(error) => Err(error),
    }
}
