//! Checks whether a process of the table still lives and is still the same program.
//!
//! If in doubt it counts as alive, because memory of a live process must never be given away. A
//! process is identified by its id, its start time and its image addresses. Ids are reused, and
//! execve(2) keeps id and start time but drops the memory. The kernel reports start times by the
//! clock of the reader's time namespace, so they are compared within one namespace only.

use std::os::unix::fs::MetadataExt;

use hugeleaf_host::process::proc_parsers::parse_stat;
use hugeleaf_host::{Pid, ReadError, Root};
use hugeleaf_sys::{Errno, Kernel, own_pid};

use crate::elastic::ElasticError;
use crate::error::MemoryError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerIdentity {
    pub(crate) pid: Pid,
    /// Start time in clock ticks since boot.
    pub(crate) start: u64,
    /// Start addresses of its code and stack; less than 2 if the kernel does not report them.
    pub(crate) image: [u64; 2],
    /// Time namespace in which its start time was read; 0 if unsupported or unreadable.
    pub(crate) clock: u64,
}

impl OwnerIdentity {
    pub(crate) fn own() -> Result<OwnerIdentity, ElasticError> {
        let pid = own_pid();
        read(pid).ok_or_else(|| {
            let path = Root::live().path(format!("proc/{pid}/stat"));
            let reason = "it does not say when this process started";
            MemoryError::Unreadable(ReadError::new(path, reason)).into()
        })
    }

    /// True if the process has ended or has become another program.
    pub(crate) fn has_ended(&self) -> bool {
        // An unreadable process (hidepid, other users) is not known to have ended.
        self.has_exited()
            || read(self.pid)
                .is_some_and(|now| self.started_otherwise(&now) || self.is_other_image(&now))
    }

    fn started_otherwise(&self, now: &OwnerIdentity) -> bool {
        now.clock == self.clock && now.start != self.start
    }

    /// True if no process has this id any more.
    pub(crate) fn has_exited(&self) -> bool {
        let kernel = Kernel::new();
        match kernel.pidfd_open(self.pid) {
            Err(e) => e.errno == Errno::SRCH,
            // A zombie has released its memory.
            Ok(process) => kernel.has_exited(&process) == Ok(true),
        }
    }

    fn is_other_image(&self, now: &OwnerIdentity) -> bool {
        let pairs = self.image.iter().zip(&now.image);
        let mut known = pairs.filter(|(before, now)| **before > 1 && **now > 1);
        known.any(|(before, now)| before != now)
    }
}

/// Reads the identity of a process. Ignores `arg_start`, which a program may set to rename itself.
fn read(pid: Pid) -> Option<OwnerIdentity> {
    let stat = Root::live().parse(format!("proc/{pid}/stat"), parse_stat);
    let stat = stat.known()?;
    let [code, _, stack, _] = stat.image;
    Some(OwnerIdentity {
        pid,
        start: stat.start_ticks,
        image: [code, stack],
        clock: namespace("time"),
    })
}

/// Returns this process's namespace of a kind, as in `/proc/self/ns`; 0 if it is unknown.
pub(crate) fn namespace(kind: &str) -> u64 {
    let path = Root::live().path(format!("proc/self/ns/{kind}"));
    std::fs::metadata(path).map_or(0, |data| data.ino())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn this_process_lives_and_its_forerunner_does_not() {
        let own = OwnerIdentity::own().unwrap();
        assert!(!own.has_ended());
        let earlier = OwnerIdentity {
            start: own.start - 1,
            ..own
        };
        assert!(earlier.has_ended());
        let before_exec = OwnerIdentity {
            image: [own.image[0] + 64, own.image[1]],
            ..own
        };
        assert!(before_exec.has_ended());
        let of_somebody_else = OwnerIdentity {
            image: [1, 0],
            ..own
        };
        assert!(!of_somebody_else.has_ended());
        assert!(namespace("pid") > 0);
        let by_another_clock = OwnerIdentity {
            clock: own.clock + 1,
            ..earlier
        };
        assert!(!by_another_clock.has_ended());
    }

    #[test]
    fn an_ended_child_has_ended_before_it_is_waited_for() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // spawn() returns before the kernel has laid out the new program, and until then it has another image. A
        // program that answers is laid out.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let out = child.stdout.as_mut().unwrap();
        out.read_exact(&mut [0]).unwrap();
        let identity = read(Pid(child.id())).unwrap();
        assert!(!identity.has_ended());
        child.kill().unwrap();
        hugeleaf_testkit::until("the child has ended", || identity.has_ended());
        child.wait().unwrap();
        assert!(identity.has_ended());
    }
}
