//! Protection against two experiments on the same memory.
//!
//! An experiment marks `smaps` of each of its processes with a shared lock, which requires the
//! right to inspect the process. It then looks in `/proc/locks` for other marks. Marks do not
//! exclude each other, so holding one locks out nobody. Only marks of root and of the requesting
//! user count, by the kernel's report on the holder. Other marks (such as those of the owner of a
//! process that root experiments on) are reported without effect. A mark ends with its holder in
//! any case, and involves no folder that others could fill beforehand.
//!
//! Two experiments that begin at the same moment may see each other and both refuse; they never
//! both continue. Experiments in other containers mark another `/proc` and are invisible.

use hugeleaf_host::Root;
use hugeleaf_sys::{Pid, SharedFlock};
use hugeleaf_units::Failure;

use crate::subject::SubjectError;

#[derive(Debug, Default)]
pub struct ExperimentLock {
    marks: Vec<(Pid, SharedFlock)>,
}

/// A line of `/proc/locks` about a lock on a whole file (flock).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcLocksEntry {
    pub holder: Pid,
    pub device: (u32, u32),
    pub inode: u64,
}

/// Parses the flock locks in `/proc/locks` (proc(5)). Waiters (`->`), other kinds of locks and
/// malformed lines are skipped.
pub fn flocks(text: &str) -> Vec<ProcLocksEntry> {
    text.lines().filter_map(flock).collect()
}

fn flock(line: &str) -> Option<ProcLocksEntry> {
    // 1: FLOCK  ADVISORY  READ 1896 00:15:749440 0 EOF
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let mut words = words.skip(2);
    let holder = Pid(words.next()?.parse().ok()?);
    let mut file = words.next()?.split(':');
    let device = |text: &str| u32::from_str_radix(text, 16).ok();
    let device = (device(file.next()?)?, device(file.next()?)?);
    Some(ProcLocksEntry {
        holder,
        device,
        inode: file.next()?.parse().ok()?,
    })
}

/// Marks these processes. `me` is the requesting process and its effective user. Marks without
/// effect are added to `notes`.
///
/// # Errors
/// [`SubjectError::Failed`] if root or the same user has one of them in an experiment.
pub fn claim(
    root: &Root,
    pids: &[Pid],
    me: (Pid, u32),
    notes: &mut Vec<String>,
) -> Result<ExperimentLock, SubjectError> {
    let mut claim = ExperimentLock::default();
    for pid in pids {
        // A process that cannot be marked cannot be inspected either; the reader reports that.
        if let Ok(mark) = hugeleaf_sys::mark(&root.path(format!("proc/{pid}/smaps"))) {
            claim.marks.push((*pid, mark));
        }
    }
    // After marking: of two that begin at once, at least one sees the other.
    let locks = root.read("proc/locks");
    let locks = flocks(locks.known().map_or("", String::as_str));
    for (pid, mark) in &claim.marks {
        let others = locks
            .iter()
            .filter(|l| (l.device, l.inode) == (mark.device, mark.inode) && l.holder != me.0);
        for other in others {
            let Some((user, name)) = holder(root, other.holder) else {
                continue;
            };
            if user == 0 || user == me.1 {
                let holder = other.holder;
                return Err(SubjectError::Failed(Failure::missing(
                    format!(
                        "process {pid} is in an experiment of another hugeleaf: process {holder} ({name})"
                    ),
                    format!(
                        "wait until it ends, or stop it: kill -INT {holder} restores the memory first"
                    ),
                )));
            }
            notes.push(format!(
                "Process {} ({name}) of user {user} has marked process {pid} for an experiment. \
                 If it runs one, the two disturb each other.",
                other.holder
            ));
        }
    }
    Ok(claim)
}

/// Returns user and name of a process. `None` if it is gone, or if its real and effective users
/// differ: a setuid root program started by a user does not count as root.
fn holder(root: &Root, pid: Pid) -> Option<(u32, String)> {
    let status = root.read(format!("proc/{pid}/status"));
    let status = status.known()?;
    let field = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))
    };
    let mut users = field("Uid")?.split_ascii_whitespace();
    let mut user = || users.next()?.parse::<u32>().ok();
    let (real, effective) = (user()?, user()?);
    let name = field("Name")?.trim().to_owned();
    (real == effective).then_some((effective, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_locks() {
        let text = "1: FLOCK  ADVISORY  READ 1896 00:15:749440 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 7 00:15:749440 0 EOF\n\
                    2: POSIX  ADVISORY  WRITE 1358 fe:00:5711570 0 EOF\n\
                    3: FLOCK  ADVISORY  WRITE 12 fe:1f:5 0 EOF\n\
                    4: LEASE  ACTIVE    READ 12 fe:1f:5 0 EOF\n\
                    5: FLOCK\n";
        let held = |holder, device, inode| ProcLocksEntry {
            holder: Pid(holder),
            device,
            inode,
        };
        assert_eq!(
            flocks(text),
            [held(1896, (0, 0x15), 749_440), held(12, (0xfe, 0x1f), 5)]
        );
    }

    /// A process whose `/proc` is a folder, and the given locks.
    fn captured(locks: &str, users: &[(u32, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let proc_ = dir.path().join("proc");
        std::fs::create_dir_all(proc_.join("7")).unwrap();
        std::fs::write(proc_.join("7/smaps"), "").unwrap();
        for (pid, uids) in users {
            std::fs::create_dir_all(proc_.join(pid.to_string())).unwrap();
            let status = format!("Name:\thugeleaf\nUid:\t{uids}\t0\t0\n");
            std::fs::write(proc_.join(format!("{pid}/status")), status).unwrap();
        }
        let mark = hugeleaf_sys::mark(&proc_.join("7/smaps")).unwrap();
        let file = format!("{:02x}:{:02x}:{}", mark.device.0, mark.device.1, mark.inode);
        std::fs::write(proc_.join("locks"), locks.replace("FILE", &file)).unwrap();
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn whose_mark_counts() {
        let line = |pid: u32| format!("1: FLOCK  ADVISORY  READ {pid} FILE 0 EOF\n");
        let all = line(100) + &line(20);
        // Holder 100 is the requester; 20 is another process.
        for (uids, asks, is_busy, is_told) in [
            ("0\t0", 0, true, false),
            ("0\t0", 1000, true, false),
            ("1000\t1000", 1000, true, false),
            ("1000\t1000", 0, false, true),
            // A user's program with the rights of root.
            ("1000\t0", 0, false, false),
        ] {
            let (_dir, root) = captured(&all, &[(20, uids)]);
            let mut notes = Vec::new();
            let claimed = claim(&root, &[Pid(7)], (Pid(100), asks), &mut notes);
            assert_eq!(claimed.is_err(), is_busy, "{uids} {asks}");
            assert_eq!(!notes.is_empty(), is_told, "{uids} {asks}: {notes:?}");
            if let Err(e) = claimed {
                assert!(e.to_string().contains("process 20 (hugeleaf)"), "{e}");
                assert!(e.next().contains("kill -INT 20"), "{}", e.next());
            }
        }
        // A mark of a dead holder and a lock on another file do not count.
        let (_dir, root) = captured(
            &(line(21) + "2: FLOCK ADVISORY READ 20 00:00:1 0 EOF"),
            &[(20, "0\t0")],
        );
        claim(&root, &[Pid(7)], (Pid(100), 0), &mut Vec::new()).unwrap();
    }

    #[test]
    fn one_held_alone_shuts_nobody_out() {
        let line = "1: FLOCK  ADVISORY  WRITE 20 FILE 0 EOF\n";
        let (dir, root) = captured(line, &[(20, "1000\t1000")]);
        let _alone = hugeleaf_sys::lock_host(&dir.path().join("proc/7/smaps"), false).unwrap();
        let mut notes = Vec::new();
        claim(&root, &[Pid(7)], (Pid(100), 0), &mut notes).unwrap();
        assert_eq!(notes.len(), 1);
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*", line in "[0-9]: FLOCK [A-Z]* [A-Z]* [0-9a-f]* [0-9a-f:]* .*") {
            let _ = flocks(&text);
            let _ = flocks(&line);
        }
    }
}
