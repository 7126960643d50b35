//! Commands are guests in the cgroup that they are started in: a database may be in it, and near its limit.

use hugeleaf_host::Root;
use hugeleaf_host::limits::guest::{Guest, read_guest};
use hugeleaf_units::Bytes;

use crate::Command;
use crate::context::Failure;

/// Memory of most commands, all that they map included (docs/internals/kernel-notes.md).
const USUAL: Bytes = Bytes::from_mib(8);
/// Memory of any command where all processes end together: an estimate must not be wrong there.
const TOGETHER: Bytes = Bytes::from_mib(64);

/// Returns the memory that a command may take; `None` of one that must not fail for that: it starts a program, or does nothing that takes
/// memory.
const fn need(command: Option<&Command>) -> Option<Bytes> {
    match command {
        Some(
            Command::Run(_) | Command::Completions(_) | Command::Manpages(_) | Command::Workload(_),
        ) => None,
        _ => Some(USUAL),
    }
}

/// Refuses a command that the kernel would end a process of this cgroup for.
pub fn admit(command: Option<&Command>) -> Result<(), Failure> {
    let guest = need(command).and_then(|need| Some((need, read_guest(&Root::live())?)));
    guest.map_or(Ok(()), |(need, guest)| judge(need, &guest))
}

fn judge(need: Bytes, guest: &Guest) -> Result<(), Failure> {
    let need = match guest.all_end_together {
        true => need.max(TOGETHER),
        false => need,
    };
    let (room, limit) = (guest.room(), &guest.limit);
    if room >= need {
        return Ok(());
    }
    let who = match guest.all_end_together {
        true => "all processes of this cgroup together (memory.oom.group)",
        false => "a process of this cgroup",
    };
    Err(Failure::missing(
        format!(
            "{room} of {} are left in cgroup {}, and this command may need {need}: the kernel would end {who}",
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
    use hugeleaf_host::MemoryLimit;

    #[test]
    fn a_command_is_refused_where_a_process_would_end_for_it() {
        let guest = |room, all_end_together| Guest {
            limit: MemoryLimit {
                only_throttles: false,
                version: 2,
                path: "/db".into(),
                file: "/sys/fs/cgroup/db/memory.max".into(),
                limit: Bytes::from_mib(512),
                usage: Bytes::from_mib(512) - room,
                unused_cache: Bytes::ZERO,
                used_cache: Bytes::ZERO,
            },
            all_end_together,
        };
        for (need, room, together, good) in [
            (USUAL, 8, false, true),
            (USUAL, 7, false, false),
            (USUAL, 20, true, false),
            (USUAL, 64, true, true),
        ] {
            let judged = judge(need, &guest(Bytes::from_mib(room), together));
            assert_eq!(judged.is_ok(), good, "{need} {room} {together}");
        }
        let refused = judge(USUAL, &guest(Bytes::from_mib(3), true)).unwrap_err();
        assert_eq!(refused.status(), 3);
        assert!(
            refused
                .lines
                .what
                .contains("3M of 512M are left in cgroup /db")
        );
        assert!(refused.lines.next.ends_with("/sys/fs/cgroup/db/memory.max"));
    }
}
