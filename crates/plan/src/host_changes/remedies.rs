//! Advice for a refused change of the host.

use std::path::Path;

use hugeleaf_sys::{Errno, PathError, effective_uid};
use hugeleaf_verdict::findings::shell_word;

use super::{HostChangeError, Obstacle};

impl HostChangeError {
    /// Returns the next command to run. `command` is `apply` or `undo`, and `plan` the file as
    /// typed.
    pub fn next(&self, command: &str, plan: &str) -> String {
        match self {
            HostChangeError::Refused(obstacles, _) => way_out(obstacles.first(), command, plan),
            HostChangeError::SameId(_) => format!("$EDITOR {plan}"),
            HostChangeError::Locked { pid: Some(pid), .. } => {
                format!("wait until process {pid} has ended: ps {pid}")
            }
            HostChangeError::Locked { pid: None, path } => {
                format!("wait until it has ended: fuser {}", path.display())
            }
            HostChangeError::State(error) => mend(error.errno, "/var/lib/hugeleaf"),
            HostChangeError::Journal(error) if error.denied => "run as root".into(),
            HostChangeError::Journal(_) => "ls -la /var/lib/hugeleaf/journal".into(),
            HostChangeError::Others(error) => keep_others_out(error),
            HostChangeError::Newer { .. } => "use the newer version of hugeleaf".into(),
            HostChangeError::Overtaken(_) => {
                format!("run it again to compare the plan with that apply: hugeleaf apply {plan}")
            }
            HostChangeError::NoSuch(_) => "hugeleaf undo --list".into(),
            HostChangeError::BuiltUpon { by, .. } => {
                format!("hugeleaf undo {by}    # first; or hugeleaf undo --all")
            }
        }
    }
}

fn way_out(obstacle: Option<&Obstacle>, command: &str, plan: &str) -> String {
    match obstacle {
        Some(Obstacle::Foreign(path)) => {
            let path = path.display();
            format!("mv {path} {path}.before; hugeleaf {command} {plan}")
        }
        Some(Obstacle::Special(path)) => format!("ls -l {}", path.display()),
        Some(Obstacle::Others(error)) => keep_others_out(error),
        Some(Obstacle::NotEmpty(_) | Obstacle::NoMountPoint { .. }) => {
            format!("name a separate empty folder in {plan}, as in /mnt/huge")
        }
        Some(Obstacle::Denied(error)) => mend(error.errno, &error.subject),
        Some(Obstacle::MayNotMount(_)) => {
            "run as root on the host itself, outside containers".into()
        }
        Some(Obstacle::Broken { path, .. }) => {
            format!("correct that line: $EDITOR {}", path.display())
        }
        Some(Obstacle::OtherMount { path, .. }) => {
            format!("umount {}; or name another path in {plan}", path.display())
        }
        Some(Obstacle::Missing(_) | Obstacle::NoChoice { .. }) => {
            "make a plan for this host: hugeleaf plan --output FILE".into()
        }
        _ => format!("hugeleaf apply --dry-run {plan}"),
    }
}

fn keep_others_out(error: &PathError) -> String {
    match error {
        PathError::Others { path, uid: 0, .. } => {
            format!("chmod go-w {}", shell_word(&path.to_string_lossy()))
        }
        PathError::Others { path, .. } | PathError::Link { path, .. } => {
            let word = shell_word(&path.to_string_lossy());
            format!("check its owner, and make root the owner: ls -ld {word}")
        }
        _ => "ls -la /var/lib/hugeleaf".to_owned(),
    }
}

fn mend(errno: Errno, path: &str) -> String {
    let of_kernel = ["proc", "sys"]
        .iter()
        .any(|name| Path::new(path).starts_with(Path::new("/").join(name)));
    match errno {
        Errno::ACCESS | Errno::PERM if effective_uid() != 0 => "run as root".into(),
        Errno::ROFS | Errno::ACCESS | Errno::PERM if of_kernel => {
            "run it on the host itself: a container cannot set this".into()
        }
        Errno::ROFS => {
            format!("make it writable: mount -o remount,rw $(findmnt -nT {path} -o TARGET)")
        }
        Errno::NOSPC | Errno::DQUOT => format!("make room: df {path}"),
        Errno::PERM => format!("check whether it is immutable: lsattr -d {path}"),
        _ => format!("ls -ld {path}"),
    }
}
