//! Protects the cgroup in which a command is started; a database in it may be near its limit.

use hugeleaf_host::Root;
use hugeleaf_host::limits::shared_limit::{SharedLimit, read_shared_limit};
use hugeleaf_units::Bytes;

use crate::Command;
use crate::context::Failure;

// Peak memory including all mappings (docs/internals/kernel-notes.md), rounded up, because an underestimate is fatal.

/// Need of a command that reads the host once.
const USUAL_NEED: Bytes = Bytes::from_mib(8);
/// Need of a command that reads processes: 1K more for each mapping of its target, for 10,000 of them.
const PROCESSES: Bytes = Bytes::from_mib(18);
/// Need of a command that scans the host continuously. A guard of 500 programs holds 16M (docs/figures.md).
const SCANS: Bytes = Bytes::from_mib(24);
/// Need of a command that holds whole results or traces, or all symbols of the kernel, 5M of text and more.
const FILES: Bytes = Bytes::from_mib(32);
/// Need of `bench`, which takes at most half of the room for its working sets: as much again as the rest of it.
const BENCH: Bytes = Bytes::from_mib(16);
/// Need of `try`: its smallest database, and the memory that it leaves beside one.
const DATABASE: Bytes = Bytes::from_mib(88);
/// Minimum need assumed of any command if the OOM killer ends all processes together.
const OOM_GROUP_NEED: Bytes = Bytes::from_mib(64);

/// Returns the memory that a command may take. `None` exempts commands that start a program or take almost no memory.
fn need(command: Option<&Command>, root: &Root) -> Option<Bytes> {
    use Command::*;
    Some(match command {
        None | Some(Status(_) | Check(_) | Plan(_) | Apply(_) | Undo(_) | Verify(_)) => USUAL_NEED,
        Some(Balance(_) | Warm(_)) => USUAL_NEED,
        Some(Mem(_) | Why(_) | Predict(_) | Promote(_) | Demote(_)) => PROCESSES,
        Some(Prove(_) | Metrics(_)) => PROCESSES,
        Some(Top(_) | Guard(_)) => SCANS,
        Some(Compare(_)) => FILES,
        Some(Trace(args)) => FILES + args.ring_memory(root),
        Some(Bench(_)) => BENCH,
        Some(Try(_)) => DATABASE,
        Some(Run(_) | Completions(_) | Manpages(_) | Workload(_)) => return None,
    })
}

/// Refuses a command that could make the OOM killer end a process of this cgroup.
pub fn check_memory(command: Option<&Command>) -> Result<(), Failure> {
    let root = Root::live();
    let guest = need(command, &root).and_then(|need| Some((need, read_shared_limit(&root)?)));
    guest.map_or(Ok(()), |(need, guest)| judge(need, &guest))
}

fn judge(need: Bytes, guest: &SharedLimit) -> Result<(), Failure> {
    let need = match guest.oom_group {
        true => need.max(OOM_GROUP_NEED),
        false => need,
    };
    let (room, limit) = (guest.room(), &guest.limit);
    if room >= need {
        return Ok(());
    }
    let who = match guest.oom_group {
        true => "all processes of this cgroup together (memory.oom.group)",
        false => "a process of this cgroup",
    };
    Err(Failure::missing(
        format!(
            "only {room} of {} is left in cgroup {}; this command may need {need}, and the kernel \
             would kill {who}",
            limit.limit, limit.path
        ),
        format!(
            "run it outside of that cgroup, on the host; or raise {}",
            limit.file
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use hugeleaf_host::MemoryLimit;

    #[test]
    fn each_command_has_its_own_need() {
        // Without optimisation, parsing may need more stack than a thread of tests has.
        let thread = std::thread::Builder::new().stack_size(16 << 20);
        thread.spawn(check_needs).unwrap().join().unwrap();
    }

    fn check_needs() {
        let folder = tempfile::tempdir().unwrap();
        let cpus = folder.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&cpus).unwrap();
        std::fs::write(cpus.join("online"), "0-15\n").unwrap();
        let root = Root::at(folder.path());
        let mib = |n| Some(Bytes::from_mib(n));
        for (words, most) in [
            ("hugeleaf", mib(8)),
            ("hugeleaf status", mib(8)),
            // 10,000 mappings take 10M.
            ("hugeleaf why 1", mib(18)),
            ("hugeleaf promote 1", mib(18)),
            ("hugeleaf guard", mib(24)),
            // 16 CPUs, each with a ring of 4M for locks and one of 1M.
            ("hugeleaf trace", mib(32 + 16 * 5)),
            ("hugeleaf trace --no-locks", mib(32 + 16)),
            ("hugeleaf trace --buffer 1G", mib(32 + 16 * (32 + 8))),
            ("hugeleaf trace --intervals-only", mib(32)),
            ("hugeleaf trace show a.trace", mib(32)),
            ("hugeleaf bench chase", mib(16)),
            ("hugeleaf try", mib(88)),
            ("hugeleaf run -- true", None),
        ] {
            let cli = crate::Cli::try_parse_from(words.split(' ')).unwrap();
            assert_eq!(need(cli.command.as_ref(), &root), most, "{words}");
        }
    }

    #[test]
    fn a_command_is_refused_where_a_process_would_end_for_it() {
        let guest = |room, oom_group| SharedLimit {
            limit: MemoryLimit {
                only_throttles: false,
                version: 2,
                path: "/db".into(),
                file: "/sys/fs/cgroup/db/memory.max".into(),
                limit: Bytes::from_mib(512),
                usage: Bytes::from_mib(512) - room,
                inactive_cache: Bytes::ZERO,
                active_cache: Bytes::ZERO,
            },
            oom_group,
        };
        for (need, room, together, good) in [
            (USUAL_NEED, 8, false, true),
            (USUAL_NEED, 7, false, false),
            (USUAL_NEED, 20, true, false),
            (USUAL_NEED, 64, true, true),
        ] {
            let judged = judge(need, &guest(Bytes::from_mib(room), together));
            assert_eq!(judged.is_ok(), good, "{need} {room} {together}");
        }
        let refused = judge(USUAL_NEED, &guest(Bytes::from_mib(3), true)).unwrap_err();
        assert_eq!(refused.status, 3);
        assert!(refused.message.contains("3M of 512M is left in cgroup /db"));
        assert!(refused.remedy.ends_with("/sys/fs/cgroup/db/memory.max"));
    }
}
