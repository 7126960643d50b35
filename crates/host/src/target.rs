//! Resolves a target on the command line to processes.

use std::collections::BTreeMap;

use hugeleaf_sys::{Pid, own_pid, setcap_advice};
use hugeleaf_units::Failure;

use crate::limits::cgroup_paths::in_hierarchy;
use crate::model::{Process, ProcessKind};
use crate::process::proc_parsers::{unit_of, units_in};
use crate::process::{self, ProcessError};
use crate::root::Root;
use crate::system::unit_files;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Pid(Pid),
    /// A process and all its descendants: `tree:PID`.
    Tree(Pid),
    /// All processes of that name (`comm`, or the last part of the first argument).
    Name(String),
    /// All processes of a systemd unit, as in `postgresql.service`: the system's, or else a user's own.
    Unit(String),
    /// All processes of a cgroup and those below it, given by its path (with a `/`).
    Cgroup(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The text is not a valid target.
    #[error("'{text}' is not a PID, a name, a unit, a cgroup or tree:PID")]
    Malformed { text: String },
    #[error("no process matches '{text}'")]
    NoMatch {
        text: String,
        /// True if `/proc` hides the processes of other users.
        hidden_possible: bool,
    },
    /// The name matches several unrelated process trees, or the units of several users.
    #[error("'{text}' matches {} unrelated process trees: {}", trees.len(), in_words(trees))]
    Ambiguous {
        text: String,
        trees: Vec<ProcessTree>,
    },
    #[error("{0}")]
    Process(#[from] ProcessError),
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Failure {
        let text = error.to_string();
        match error {
            TargetError::Malformed { .. } => Failure::usage(
                text,
                "name a PID, a process, a unit or tree:PID, as in: hugeleaf mem postgres",
            ),
            TargetError::Ambiguous { trees, .. } => {
                let first = trees.first().map_or(Pid(0), |tree| tree.first);
                Failure::usage(
                    text,
                    format!(
                        "name one as tree:{first}, by its unit or by its cgroup; promote and \
                         demote take --all"
                    ),
                )
            }
            TargetError::NoMatch {
                hidden_possible: true,
                ..
            }
            | TargetError::Process(ProcessError::Gone {
                hidden_possible: true,
                ..
            }) => Failure::missing(
                format!("{text} (or /proc hides it: it is mounted with hidepid)"),
                "run as root to see the processes of other users",
            ),
            TargetError::NoMatch { .. } | TargetError::Process(ProcessError::Gone { .. }) => {
                Failure::missing(text, "hugeleaf mem    # lists the processes")
            }
            TargetError::Process(ProcessError::Denied { uid, .. }) => Failure::missing(
                text,
                format!(
                    "run as root, or as uid {uid}, or: sudo {}",
                    setcap_advice(&["cap_sys_ptrace"])
                ),
            ),
            TargetError::Process(ProcessError::KernelThread { .. }) => Failure::missing(
                text,
                "hugeleaf mem    # lists the processes with memory of their own",
            ),
            TargetError::Process(ProcessError::Zombie { .. }) => {
                Failure::missing(text, "name its parent, or a running process: hugeleaf mem")
            }
            TargetError::Process(ProcessError::Read(error)) => Failure::from(error),
        }
    }
}

/// The matching processes that descend from the first of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessTree {
    pub first: Pid,
    pub uid: u32,
    pub unit: Option<String>,
    pub command_line: String,
    pub pids: Vec<Pid>,
}

impl ProcessTree {
    /// Returns the tree that begins with a process, without the ids of its processes.
    fn beginning_with(first: &Process) -> ProcessTree {
        ProcessTree {
            first: first.pid,
            uid: first.uid,
            unit: first.unit.clone(),
            command_line: first.command_line.clone(),
            pids: Vec::new(),
        }
    }
}

/// Maximum number of characters of a command line in a message.
const BEGINNING: usize = 60;

fn in_words(trees: &[ProcessTree]) -> String {
    let each = trees.iter().map(|tree| {
        let command: String = tree.command_line.chars().take(BEGINNING).collect();
        let (first, uid, count) = (tree.first, tree.uid, tree.pids.len());
        let unit = tree
            .unit
            .as_ref()
            .map_or_else(String::new, |unit| format!(", {unit}"));
        format!(
            "tree:{first} ({}, uid {uid}{unit}, processes: {count})",
            command.trim()
        )
    });
    each.collect::<Vec<_>>().join("; ")
}

/// The processes of a target. Only [`Target::resolve`] creates one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedTarget {
    text: String,
    /// Has more than one entry only for a name, and for a unit that several users have.
    trees: Vec<ProcessTree>,
}

impl ResolvedTarget {
    /// Returns all processes, ids ascending, for callers that only read.
    pub fn all(self) -> Vec<Pid> {
        let mut pids: Vec<Pid> = self.trees.into_iter().flat_map(|tree| tree.pids).collect();
        pids.sort_unstable();
        pids
    }

    /// Returns all processes if they are one process tree, for callers that change something.
    ///
    /// # Errors
    /// [`TargetError::Ambiguous`], which lists the trees.
    pub fn single_tree(self) -> Result<Vec<Pid>, TargetError> {
        match self.trees.len() {
            0 | 1 => Ok(self.all()),
            _ => Err(TargetError::Ambiguous {
                text: self.text,
                trees: self.trees,
            }),
        }
    }
}

impl std::str::FromStr for Target {
    type Err = TargetError;

    /// Parses `1234`, `postgres`, `postgresql.service`, `/system.slice/x.service` or `tree:1234`.
    fn from_str(text: &str) -> Result<Target, TargetError> {
        let malformed = || TargetError::Malformed {
            text: text.to_owned(),
        };
        let pid = |digits: &str| match digits.parse() {
            Ok(0) | Err(_) => Err(malformed()),
            Ok(pid) => Ok(Pid(pid)),
        };
        if let Some(root) = text.strip_prefix("tree:") {
            return Ok(Target::Tree(pid(root)?));
        }
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(malformed());
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(Target::Pid(pid(text)?));
        }
        Ok(if text.starts_with('/') {
            Target::Cgroup(text.to_owned())
        } else if unit_of(text).is_some() || text.ends_with(".slice") {
            Target::Unit(text.to_owned())
        } else {
            Target::Name(text.to_owned())
        })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Pid(pid) => write!(f, "{pid}"),
            Target::Tree(pid) => write!(f, "tree:{pid}"),
            Target::Name(text) | Target::Unit(text) | Target::Cgroup(text) => f.write_str(text),
        }
    }
}

impl Target {
    /// Returns the matching processes, without this program itself. A zombie or a kernel thread is found only by its
    /// id.
    ///
    /// # Errors
    /// [`TargetError`] if no process matches.
    pub fn resolve(&self, root: &Root) -> Result<ResolvedTarget, TargetError> {
        let matching = |wanted: &dyn Fn(&Process) -> bool| living(root).filter(wanted).collect();
        let found: Vec<Process> = match self {
            Target::Pid(pid) | Target::Tree(pid) => {
                // The error must refer to the one requested process.
                process::identity(root, *pid)?;
                let pids = match self {
                    Target::Tree(_) => descendants(root, *pid),
                    _ => vec![*pid],
                };
                return Ok(self.as_one(*pid, pids));
            }
            Target::Name(name) => matching(&|p| is_named(p, name)),
            Target::Unit(unit) => in_unit(root, unit),
            Target::Cgroup(path) => {
                let path = in_hierarchy(root, path);
                matching(&|p| p.is_in_cgroup(&path))
            }
        };
        let Some(first) = found.first() else {
            return Err(TargetError::NoMatch {
                text: self.to_string(),
                hidden_possible: hides_processes(root),
            });
        };
        Ok(match self {
            Target::Name(text) => ResolvedTarget {
                text: text.clone(),
                trees: trees(&found, &living(root).collect::<Vec<_>>()),
            },
            Target::Unit(unit) => ResolvedTarget {
                text: unit.clone(),
                trees: by_manager(&found, unit),
            },
            _ => self.as_one(first.pid, found.iter().map(|p| p.pid).collect()),
        })
    }

    fn as_one(&self, first: Pid, pids: Vec<Pid>) -> ResolvedTarget {
        let tree = ProcessTree {
            first,
            uid: 0,
            unit: None,
            command_line: String::new(),
            pids,
        };
        ResolvedTarget {
            text: self.to_string(),
            trees: vec![tree],
        }
    }
}

/// Groups `found` into trees. Each process is in the tree of its highest ancestor in `found`.
fn trees(found: &[Process], all: &[Process]) -> Vec<ProcessTree> {
    let parents: BTreeMap<Pid, Pid> = all.iter().chain(found).map(|p| (p.pid, p.parent)).collect();
    let mut trees: BTreeMap<Pid, ProcessTree> = BTreeMap::new();
    for process in found {
        let (mut first, mut at) = (process, process.pid);
        // Ids that were read at different times could form a circle.
        for _ in 0..parents.len() {
            let Some(parent) = parents.get(&at) else {
                break;
            };
            at = *parent;
            first = found.iter().find(|p| p.pid == at).unwrap_or(first);
        }
        let tree = (trees.entry(first.pid)).or_insert_with(|| ProcessTree::beginning_with(first));
        tree.pids.push(process.pid);
    }
    trees.into_values().collect()
}

/// Returns the processes of a unit of the system. Users' own units of that name count only if the system has none, not
/// even a stopped one, because any user can start a unit of any name.
fn in_unit(root: &Root, unit: &str) -> Vec<Process> {
    let (of_system, others): (Vec<_>, Vec<_>) = living(root).partition(|p| p.is_in_unit(unit));
    if !of_system.is_empty() || unit_files::read(root, unit).is_some() {
        return of_system;
    }
    let of_users = others.into_iter();
    of_users.filter(|p| user_with(p, unit).is_some()).collect()
}

/// Groups the processes of a unit by the manager that runs it: the system's, or one per user.
fn by_manager(found: &[Process], unit: &str) -> Vec<ProcessTree> {
    let mut trees: BTreeMap<Option<&str>, ProcessTree> = BTreeMap::new();
    for process in found {
        let user = user_with(process, unit).filter(|_| !process.is_in_unit(unit));
        let tree = (trees.entry(user)).or_insert_with(|| ProcessTree::beginning_with(process));
        tree.pids.push(process.pid);
    }
    trees.into_values().collect()
}

/// Returns the user, by number, whose own manager put the process in the unit.
fn user_with<'a>(process: &'a Process, unit: &str) -> Option<&'a str> {
    let (slices, rest) = process.cgroup.as_deref()?.split_once("/user@")?;
    let (user, below) = rest.split_once(".service/")?;
    // Only slices may be above it: below a container's cgroup, any name may occur.
    let mut above = slices.split('/').skip(1);
    let is_users = above.all(|part| part.ends_with(".slice"))
        && user.bytes().all(|byte| byte.is_ascii_digit());
    (is_users && units_in(below).any(|own| own == unit)).then_some(user)
}

/// True if the kernel's name (cut to 15 characters) or the last part of the program's path matches.
fn is_named(process: &Process, name: &str) -> bool {
    let program = process.command_line.split(' ').next().unwrap_or("");
    process.name == name || program.rsplit('/').next() == Some(name)
}

/// Iterates over all processes with memory of their own except this program, ids ascending.
pub(crate) fn living(root: &Root) -> impl Iterator<Item = Process> {
    let own = root.is_live().then(own_pid);
    all_pids(root)
        .into_iter()
        .filter(move |pid| Some(*pid) != own)
        .filter_map(|pid| process::read_basics(root, pid).ok())
        .filter(|p| p.kind == ProcessKind::User)
}

/// Returns a process and its descendants that have memory of their own, ids ascending.
fn descendants(root: &Root, top: Pid) -> Vec<Pid> {
    let all: Vec<Process> = all_pids(root)
        .into_iter()
        .filter_map(|pid| process::read_basics(root, pid).ok())
        .collect();
    let mut tree = vec![top];
    let mut at = 0;
    while at < tree.len() {
        let parent = tree[at];
        // A chain of parents cannot loop, but ids read at different times may. Each is taken once.
        for p in all
            .iter()
            .filter(|p| p.parent == parent && p.kind == ProcessKind::User)
        {
            if !tree.contains(&p.pid) {
                tree.push(p.pid);
            }
        }
        at += 1;
    }
    let own = own_pid();
    tree.retain(|pid| !(root.is_live() && *pid == own));
    tree.sort_unstable();
    tree
}

/// Returns true if this process is in the host's PID namespace. In another one, processes may be invisible. `None` if
/// the link cannot be read.
pub fn is_in_host_pid_namespace(root: &Root) -> Option<bool> {
    /// The first namespace on every kernel (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
    const FIRST: &str = "pid:[4026531836]";
    let own = std::fs::read_link(root.path("proc/self/ns/pid")).ok()?;
    Some(own.as_os_str() == FIRST)
}

/// Returns the ids of all processes that `/proc` shows, ascending.
pub fn all_pids(root: &Root) -> Vec<Pid> {
    let names = root.list("proc").or_default();
    let mut pids: Vec<Pid> = names
        .iter()
        .filter_map(|name| name.parse().ok().map(Pid))
        .collect();
    pids.sort_unstable();
    pids
}

/// True if `/proc` is mounted so that it hides processes of other users (proc(5), hidepid).
pub(crate) fn hides_processes(root: &Root) -> bool {
    let mounts = root.read("proc/self/mounts").or_default();
    mounts.lines().any(hides)
}

fn hides(mount: &str) -> bool {
    let mut words = mount.split_ascii_whitespace().skip(1);
    let (point, kind, options) = (words.next(), words.next(), words.next());
    point.is_some_and(|p| p.ends_with("/proc"))
        && kind == Some("proc")
        && options.is_some_and(|o| {
            o.split(',')
                .filter_map(|o| o.strip_prefix("hidepid="))
                .any(|v| !matches!(v, "0" | "off"))
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn targets_are_read_as_typed() {
        for (text, target) in [
            ("12", Target::Pid(Pid(12))),
            ("tree:12", Target::Tree(Pid(12))),
            ("redis-server", Target::Name("redis-server".into())),
            ("redis.service", Target::Unit("redis.service".into())),
            ("/system.slice/x", Target::Cgroup("/system.slice/x".into())),
        ] {
            assert_eq!(text.parse::<Target>().unwrap(), target);
            assert_eq!(target.to_string(), text);
        }
        for text in ["", "0", "tree:", "tree:x", "99999999999", "a\nb"] {
            assert!(text.parse::<Target>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn this_very_tree_is_found() {
        let root = Root::live();
        // This process is left out. Its parent is in the parent's own tree.
        let parent = process::read_basics(&root, own_pid()).unwrap().parent;
        if parent.0 > 0 {
            let tree = Target::Tree(parent).resolve(&root).unwrap().all();
            assert!(tree.contains(&parent) && !tree.contains(&own_pid()));
        }
        let nobody = Target::Name("no such program".into()).resolve(&root);
        assert!(matches!(nobody, Err(TargetError::NoMatch { .. })));
    }

    fn process(pid: u32, uid: u32, cgroup: &str) -> Process {
        Process {
            pid: Pid(pid),
            parent: Pid(1),
            name: "server".into(),
            uid,
            cgroup: Some(cgroup.into()),
            ..Process::default()
        }
    }

    /// Makes a captured host of these processes and other files.
    fn captured(processes: &[Process], others: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let mut files: Vec<(String, String)> = Vec::new();
        for p in processes {
            let (pid, uid) = (p.pid, p.uid);
            let cgroup = p.cgroup.as_deref().unwrap_or("/");
            let stat = format!(
                "{pid} ({}) S {} 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 99 1 1",
                p.name, p.parent
            );
            let status = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nVmRSS:\t4 kB\n");
            files.push((format!("proc/{pid}/stat"), stat));
            files.push((format!("proc/{pid}/status"), status));
            files.push((format!("proc/{pid}/cgroup"), format!("0::{cgroup}\n")));
        }
        let files = files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()));
        let all: Vec<(&str, &str)> = files.chain(others.iter().copied()).collect();
        crate::testing::host(&all)
    }

    /// Returns what a command that changes something takes. Empty if no process matches.
    fn taken(root: &Root, text: &str) -> Vec<u32> {
        let target: Target = text.parse().unwrap();
        match target.resolve(root).and_then(ResolvedTarget::single_tree) {
            Ok(pids) => pids.iter().map(|pid| pid.0).collect(),
            Err(TargetError::NoMatch { .. }) => Vec::new(),
            Err(error) => panic!("{text}: {error}"),
        }
    }

    const OF_USER: &str = "/user.slice/user-1000.slice/user@1000.service/app.slice/redis.service";

    #[test]
    fn a_unit_of_a_user_or_a_container_is_not_the_systems() {
        let (_dir, root) = captured(
            &[
                process(10, 112, "/system.slice/redis.service"),
                process(11, 112, "/system.slice/redis.service/workers"),
                process(20, 1000, OF_USER),
                process(
                    30,
                    0,
                    "/machine.slice/systemd-nspawn@x.service/payload/system.slice/redis.service",
                ),
                process(31, 0, "/lxc.payload.x/system.slice/redis.service"),
                process(
                    32,
                    0,
                    "/system.slice/docker-1.scope/system.slice/redis.service",
                ),
            ],
            &[],
        );
        for (text, pids) in [
            ("redis.service", vec![10, 11]),
            ("user@1000.service", vec![20]),
            ("docker-1.scope", vec![32]),
            ("system.slice", vec![10, 11, 32]),
            ("machine.slice", vec![30]),
        ] {
            assert_eq!(taken(&root, text), pids, "{text}");
        }
    }

    #[test]
    fn a_cgroup_is_taken_by_its_whole_path() {
        let (_dir, root) = captured(
            &[
                process(1, 0, "/init.scope"),
                process(10, 112, "/system.slice/postgresql.service"),
                process(20, 0, "/machine.slice/x/system.slice/postgresql.service"),
                process(30, 0, "/system.slice/docker-1.scope/init.scope"),
                process(31, 0, "/system.slice/docker-12.scope"),
            ],
            &[(
                "proc/self/mounts",
                "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
            )],
        );
        for (text, pids) in [
            ("/machine.slice/x/system.slice/postgresql.service", vec![20]),
            ("/system.slice/docker-1.scope/init.scope", vec![30]),
            ("/system.slice/docker-1.scope/", vec![30]),
            ("/sys/fs/cgroup/init.scope", vec![1]),
            ("/sys/fs/cgroup/system.slice/", vec![10, 30, 31]),
            ("/sys/fs/cgroup2/init.scope", vec![]),
            ("/mnt/system.slice/postgresql.service", vec![]),
            ("/system.slice/postgresql", vec![]),
            ("/system.slice/postgresql.service/below", vec![]),
        ] {
            assert_eq!(taken(&root, text), pids, "{text}");
        }
    }

    /// A container without a cgroup namespace, on version 1, sees the paths of the host.
    #[test]
    fn a_mount_may_begin_below_the_top() {
        let mounts = "30 25 0:26 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let both = [process(10, 0, "/docker/1/db"), process(11, 0, "/db")];
        let (_dir, root) = captured(&both, &[("proc/self/mountinfo", mounts)]);
        assert_eq!(taken(&root, "/sys/fs/cgroup/memory/db"), [10]);
        assert_eq!(taken(&root, "/db"), [11]);
    }

    #[test]
    fn a_users_unit_counts_where_the_system_has_none() {
        let in_container = process(31, 1000, &format!("/lxc.payload.x{OF_USER}"));
        let of_one = [process(20, 1000, OF_USER), in_container];
        let (_dir, root) = captured(&of_one, &[]);
        assert_eq!(taken(&root, "redis.service"), [20]);
        assert_eq!(taken(&root, "app.slice"), [20]);

        // The system's service is stopped.
        let file = "[Service]\nExecStart=/bin/redis\n";
        let (_dir, root) = captured(&of_one, &[("etc/systemd/system/redis.service", file)]);
        assert!(taken(&root, "redis.service").is_empty());

        let of_other = process(21, 1001, &OF_USER.replace("1000", "1001"));
        let (_dir, root) = captured(&[of_one.as_slice(), &[of_other]].concat(), &[]);
        let found = Target::Unit("redis.service".into()).resolve(&root).unwrap();
        assert_eq!(found.clone().all(), [Pid(20), Pid(21)]);
        let said = found.single_tree().unwrap_err().to_string();
        assert!(
            said.contains("uid 1000, user@1000.service") && said.contains("uid 1001"),
            "{said}"
        );
    }

    /// Tests two servers with workers, one of them started by a shell, a user session, and a circle.
    #[test]
    fn a_name_is_of_as_many_trees_as_have_nothing_to_do_with_one_another() {
        let process = |pid, parent, name: &str| Process {
            pid: Pid(pid),
            parent: Pid(parent),
            name: name.to_owned(),
            command_line: format!("/bin/{name} {pid}"),
            ..Process::default()
        };
        let all = [
            process(1, 0, "init"),
            process(10, 1, "db"),
            process(11, 10, "sh"),
            process(12, 11, "db"),
            process(20, 1, "sh"),
            process(21, 20, "db"),
            process(30, 31, "db"),
            process(31, 30, "db"),
        ];
        let of = |pids: &[u32]| {
            let found = all.iter().filter(|p| pids.contains(&p.pid.0));
            trees(&found.cloned().collect::<Vec<_>>(), &all)
        };
        let pids = |tree: &ProcessTree| tree.pids.iter().map(|p| p.0).collect::<Vec<_>>();
        assert_eq!(
            of(&[10, 12]).iter().map(pids).collect::<Vec<_>>(),
            [[10, 12]]
        );
        let two = of(&[10, 12, 21]);
        assert_eq!(
            two.iter().map(pids).collect::<Vec<_>>(),
            [vec![10, 12], vec![21]]
        );
        assert_eq!(of(&[30, 31]).iter().flat_map(pids).count(), 2);
        let resolved = ResolvedTarget {
            text: "db".into(),
            trees: two,
        };
        assert_eq!(resolved.clone().all(), [Pid(10), Pid(12), Pid(21)]);
        let said = resolved.single_tree().unwrap_err().to_string();
        let names =
            "tree:10 (/bin/db 10, uid 0, processes: 2); tree:21 (/bin/db 21, uid 0, processes: 1)";
        assert!(said.ends_with(names), "{said}");
    }

    #[test]
    fn hidepid() {
        assert!(hides("proc /proc proc rw,nosuid,hidepid=2 0 0"));
        assert!(hides("proc /proc proc rw,hidepid=invisible 0 0"));
        assert!(!hides("proc /proc proc rw,relatime 0 0"));
        assert!(!hides("proc /proc proc rw,hidepid=off 0 0"));
        assert!(!hides(""));
    }

    /// A process of a generated host. Its manager and its tree are known by construction.
    #[derive(Debug, Clone)]
    struct Placed {
        /// Units of the system's manager, from the top.
        system: Vec<String>,
        /// A user, and the units of that user's manager below it.
        user: Option<(u32, Vec<String>)>,
        /// The cgroups below, which a container or a service names as it likes.
        below: Vec<String>,
        /// An earlier process, or none.
        parent: prop::sample::Index,
        name: &'static str,
    }

    impl Placed {
        fn parts(&self) -> Vec<String> {
            let of_user = self.user.iter().flat_map(|(_, units)| units);
            (self.system.iter().chain(of_user).chain(&self.below))
                .cloned()
                .collect()
        }
    }

    /// Unit names that the system, users and containers all use.
    const UNITS: [&str; 5] = [
        "redis.service",
        "init.scope",
        "system.slice",
        "app.slice",
        "user@1000.service",
    ];

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn placed() -> impl Strategy<Value = Placed> {
        let leaf = prop::sample::select(vec!["redis.service", "init.scope", "other.service"]);
        let names = [UNITS.as_slice(), &["x", "user.slice"]].concat();
        let name = prop::sample::select(names);
        let below = prop::collection::vec(name, 0..4);
        let tree = (any::<prop::sample::Index>(), any::<bool>());
        let place = (0..5u8, 1000..1003u32, leaf, below, tree);
        place.prop_map(|(kind, uid, leaf, below, (parent, is_db))| {
            let manager = format!("user@{uid}.service");
            let mut below = owned(&below);
            let (system, user) = match kind {
                0 => (owned(&["system.slice", leaf]), None),
                1 => {
                    let units = owned(&["app.slice", leaf]);
                    (owned(&["user.slice", &manager]), Some((uid, units)))
                }
                2 => (owned(&["machine.slice", "machine-x.scope"]), None),
                3 => (owned(&["system.slice", "docker-1.scope"]), None),
                _ => {
                    below.insert(0, "lxc.payload.x".into());
                    (Vec::new(), None)
                }
            };
            Placed {
                system,
                user,
                below,
                parent,
                name: if is_db { "db" } else { "sh" },
            }
        })
    }

    /// Returns the id of the process at a place in the list.
    fn pid_at(at: usize) -> Pid {
        Pid(10 + u32::try_from(at).unwrap())
    }

    /// Returns the places of a process and of its ancestors.
    fn ancestors(all: &[Placed], at: usize) -> Vec<usize> {
        let parent = |at: &usize| all[*at].parent.index(*at + 1).checked_sub(1);
        std::iter::successors(Some(at), parent).collect()
    }

    /// Makes the host of these processes, with cgroups mounted at `/cg`.
    fn host_of(all: &[Placed]) -> (tempfile::TempDir, Root) {
        let processes = all.iter().enumerate().map(|(at, placed)| {
            let uid = placed.user.as_ref().map_or(0, |(uid, _)| *uid);
            let cgroup = format!("/{}", placed.parts().join("/"));
            let parent = ancestors(all, at).get(1).map_or(Pid(1), |at| pid_at(*at));
            Process {
                parent,
                name: placed.name.to_owned(),
                ..process(pid_at(at).0, uid, &cgroup)
            }
        });
        let mounts = ("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n");
        captured(&processes.collect::<Vec<_>>(), &[mounts])
    }

    /// Returns the ids of the processes that a condition on their places holds for.
    fn those(all: &[Placed], wanted: impl Fn(usize) -> bool) -> Vec<Pid> {
        let places = (0..all.len()).filter(|at| wanted(*at));
        places.map(pid_at).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Each kind of target takes its own processes and no other, or is an error if it means several things.
        #[test]
        fn no_unrelated_process_is_taken(
            all in prop::collection::vec(placed(), 1..8),
            unit in prop::sample::select(UNITS.to_vec()),
            (at, depth) in any::<(prop::sample::Index, prop::sample::Index)>(),
        ) {
            let (_dir, root) = host_of(&all);
            let one = |target: Target| target.resolve(&root).and_then(ResolvedTarget::single_tree).ok();
            let has = |units: &[String]| units.iter().any(|own| own == unit);

            let of_system = those(&all, |at| has(&all[at].system));
            let with_user = |at: usize| all[at].user.as_ref().filter(|(_, units)| has(units));
            let of_users = those(&all, |at| with_user(at).is_some());
            let users = (0..all.len()).filter_map(|at| Some(with_user(at)?.0));
            let users: BTreeSet<u32> = users.collect();
            let expected = match (of_system.is_empty(), users.len()) {
                (false, _) => Some(of_system),
                (true, 1) => Some(of_users),
                (true, _) => None,
            };
            prop_assert_eq!(one(Target::Unit(unit.to_owned())), expected);

            let at = at.index(all.len());
            let parts = all[at].parts();
            let wanted = &parts[..=depth.index(parts.len())];
            let inside = those(&all, |at| all[at].parts().starts_with(wanted));
            for mount in ["", "/cg"] {
                let path = format!("{mount}/{}", wanted.join("/"));
                prop_assert_eq!(one(Target::Cgroup(path)), Some(inside.clone()));
            }

            prop_assert_eq!(one(Target::Pid(pid_at(at))), Some(vec![pid_at(at)]));
            let tree = those(&all, |other| ancestors(&all, other).contains(&at));
            prop_assert_eq!(one(Target::Tree(pid_at(at))), Some(tree));

            let named = those(&all, |at| all[at].name == "db");
            let highest = |at: usize| {
                let mut above = ancestors(&all, at).into_iter();
                above.rfind(|at| all[*at].name == "db")
            };
            let trees: BTreeSet<Option<usize>> = (0..all.len())
                .filter(|at| all[*at].name == "db")
                .map(highest)
                .collect();
            let expected = (trees.len() == 1).then_some(named);
            prop_assert_eq!(one(Target::Name("db".to_owned())), expected);
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*") {
            if let Ok(target) = text.parse::<Target>() {
                let _ = target.to_string();
            }
            let _ = hides(&text);
        }
    }
}
