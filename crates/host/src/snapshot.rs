//! From a target on the command line to the processes it means.

use hugeleaf_sys::{Pid, own_pid};

use crate::model::{Process, ProcessKind};
use crate::process::stat::unit_of;
use crate::process::{self, ProcessError};
use crate::root::Root;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Pid(Pid),
    /// A process and all its descendants: `tree:PID`.
    Tree(Pid),
    /// All processes of that name (`comm`, or the last part of the first argument).
    Name(String),
    /// All processes of a systemd unit, as in `postgresql.service`.
    Unit(String),
    /// All processes of a cgroup and those below it, given by its path (with a `/`).
    Cgroup(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not a target at all.
    #[error("'{text}' is not a PID, a name, a unit, a cgroup or tree:PID")]
    Malformed { text: String },
    #[error("no process matches '{text}'")]
    Nobody {
        text: String,
        /// Whether `/proc` hides the processes of other users.
        hidden_possible: bool,
    },
    #[error("{0}")]
    Process(#[from] ProcessError),
}

impl std::str::FromStr for Target {
    type Err = TargetError;

    /// Reads `1234`, `postgres`, `postgresql.service`, `/system.slice/x.service` or `tree:1234`.
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

/// The processes that a target means, ids ascending, this program itself left out. A zombie or a
/// kernel thread is found only when named by its id.
///
/// # Errors
/// [`TargetError`] where nobody answers to it.
pub fn find_targets(root: &Root, target: &Target) -> Result<Vec<Pid>, TargetError> {
    let pids = |wanted: &dyn Fn(&Process) -> bool| {
        let living = living(root).filter(wanted);
        living.map(|p| p.pid).collect::<Vec<Pid>>()
    };
    let found = match target {
        Target::Pid(pid) | Target::Tree(pid) => {
            // One process is asked for: say what is wrong with that one.
            process::identity(root, *pid)?;
            match target {
                Target::Tree(_) => descendants(root, *pid),
                _ => vec![*pid],
            }
        }
        Target::Name(name) => pids(&|p| is_named(p, name)),
        Target::Unit(unit) => pids(&|p| p.is_in_unit(unit)),
        Target::Cgroup(path) => {
            // Written with or without the mount point of the hierarchy.
            let path = path.trim_end_matches('/');
            pids(&|p| {
                p.cgroup.as_deref().is_some_and(|c| {
                    let below = c.strip_prefix(path);
                    path.ends_with(c) || below.is_some_and(|rest| rest.starts_with('/'))
                })
            })
        }
    };
    if found.is_empty() {
        let hidden_possible = hides_processes(root);
        return Err(TargetError::Nobody {
            text: target.to_string(),
            hidden_possible,
        });
    }
    Ok(found)
}

/// By the kernel's name (cut to 15 characters), or by the last part of the program's path.
fn is_named(process: &Process, name: &str) -> bool {
    let program = process.command_line.split(' ').next().unwrap_or("");
    process.name == name || program.rsplit('/').next() == Some(name)
}

/// Every process with memory of its own but this program itself, ids ascending.
pub(crate) fn living(root: &Root) -> impl Iterator<Item = Process> {
    let own = root.is_live().then(own_pid);
    all_pids(root)
        .into_iter()
        .filter(move |pid| Some(*pid) != own)
        .filter_map(|pid| process::read_basics(root, pid).ok())
        .filter(|p| p.kind == ProcessKind::User)
}

/// A process and all that descend from it and have memory of their own, ids ascending.
fn descendants(root: &Root, top: Pid) -> Vec<Pid> {
    let all: Vec<Process> = all_pids(root)
        .into_iter()
        .filter_map(|pid| process::read_basics(root, pid).ok())
        .collect();
    let mut tree = vec![top];
    let mut at = 0;
    while at < tree.len() {
        let parent = tree[at];
        // A chain of parents cannot loop, but ids read at different times may: take each once.
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

/// The ids of all processes that `/proc` shows, ascending.
pub(crate) fn all_pids(root: &Root) -> Vec<Pid> {
    let names = root.list("proc").or_default();
    let mut pids: Vec<Pid> = names
        .iter()
        .filter_map(|name| name.parse().ok().map(Pid))
        .collect();
    pids.sort_unstable();
    pids
}

/// Whether `/proc` is mounted so that it hides processes of other users (proc(5), hidepid).
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
        // This process is left out; its parent is in the tree of its parent.
        let parent = process::read_basics(&root, own_pid()).unwrap().parent;
        if parent.0 > 0 {
            let tree = find_targets(&root, &Target::Tree(parent)).unwrap();
            assert!(tree.contains(&parent) && !tree.contains(&own_pid()));
        }
        let nobody = find_targets(&root, &Target::Name("no such program".into()));
        assert!(matches!(nobody, Err(TargetError::Nobody { .. })));
    }

    #[test]
    fn hidepid() {
        assert!(hides("proc /proc proc rw,nosuid,hidepid=2 0 0"));
        assert!(hides("proc /proc proc rw,hidepid=invisible 0 0"));
        assert!(!hides("proc /proc proc rw,relatime 0 0"));
        assert!(!hides("proc /proc proc rw,hidepid=off 0 0"));
        assert!(!hides(""));
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
