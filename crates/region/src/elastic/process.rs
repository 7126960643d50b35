//! Whether a process that stands in the table is still there, and still the same program.
//!
//! On any doubt it is: memory of a process that lives must never be given away. A process is known
//! by its id, its start time and where its image is, since ids are used again, and since execve(2)
//! keeps id and start time and loses the memory. The kernel reports start times by the clock of the
//! reader's time namespace, so they are compared within one only.

use std::os::unix::fs::MetadataExt;

use hugeleaf_host::process::stat::parse_stat;
use hugeleaf_host::{Pid, ReadError, Root};
use hugeleaf_sys::{Errno, Kernel, own_pid};

use crate::elastic::ElasticError;
use crate::error::MemoryError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: Pid,
    /// In clock ticks since boot.
    pub(crate) start: u64,
    /// Where its code and its stack begin; less than 2 where the kernel does not report it.
    pub(crate) image: [u64; 2],
    /// The time namespace in which its start was read; 0 where the kernel has none or does not say.
    pub(crate) clock: u64,
}

impl Identity {
    pub(crate) fn own() -> Result<Identity, ElasticError> {
        let pid = own_pid();
        read(pid).ok_or_else(|| {
            let path = Root::live().path(format!("proc/{pid}/stat"));
            let reason = "it does not say when this process started";
            MemoryError::Unreadable(ReadError::new(path, reason)).into()
        })
    }

    /// Whether it has ended, or become another program.
    pub(crate) fn has_ended(&self) -> bool {
        // What cannot be read (hidepid, other users) does not say that it has ended.
        self.is_nobody()
            || read(self.pid)
                .is_some_and(|now| self.started_otherwise(&now) || self.is_other_image(&now))
    }

    fn started_otherwise(&self, now: &Identity) -> bool {
        now.clock == self.clock && now.start != self.start
    }

    /// Whether no process has this id any more.
    pub(crate) fn is_nobody(&self) -> bool {
        let kernel = Kernel::new();
        match kernel.pidfd_open(self.pid) {
            Err(e) => e.errno == Errno::SRCH,
            // A zombie has given its memory up.
            Ok(process) => kernel.has_exited(&process) == Ok(true),
        }
    }

    fn is_other_image(&self, now: &Identity) -> bool {
        let pairs = self.image.iter().zip(&now.image);
        let mut known = pairs.filter(|(before, now)| **before > 1 && **now > 1);
        known.any(|(before, now)| before != now)
    }
}

/// `arg_start` is left out: a program may set it when it renames itself.
fn read(pid: Pid) -> Option<Identity> {
    let stat = Root::live().parse(format!("proc/{pid}/stat"), parse_stat);
    let stat = stat.known()?;
    let [code, _, stack, _] = stat.image;
    Some(Identity {
        pid,
        start: stat.start_ticks,
        image: [code, stack],
        clock: namespace("time"),
    })
}

/// The namespace of this process of a kind, as in `/proc/self/ns`; 0 where it cannot be determined.
pub(crate) fn namespace(kind: &str) -> u64 {
    let path = Root::live().path(format!("proc/self/ns/{kind}"));
    std::fs::metadata(path).map_or(0, |data| data.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_its_forerunner_does_not() {
        let own = Identity::own().unwrap();
        assert!(!own.has_ended());
        let earlier = Identity {
            start: own.start - 1,
            ..own
        };
        assert!(earlier.has_ended());
        let before_exec = Identity {
            image: [own.image[0] + 64, own.image[1]],
            ..own
        };
        assert!(before_exec.has_ended());
        let of_somebody_else = Identity {
            image: [1, 0],
            ..own
        };
        assert!(!of_somebody_else.has_ended());
        assert!(namespace("pid") > 0);
        let by_another_clock = Identity {
            clock: own.clock + 1,
            ..earlier
        };
        assert!(!by_another_clock.has_ended());
    }

    #[test]
    fn an_ended_child_has_ended_before_it_is_waited_for() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        // The kernel lets spawn() go on before it has laid out the new program: until then each
        // look finds another one.
        let identity = std::iter::repeat_with(|| read(Pid(child.id())).unwrap())
            .find(|identity| {
                std::thread::sleep(std::time::Duration::from_millis(20));
                !identity.has_ended()
            })
            .unwrap();
        child.kill().unwrap();
        while !identity.has_ended() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(identity.has_ended());
    }
}
