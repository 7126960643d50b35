//! Protects the cgroup in which a command is started; a database in it may be near its limit.

use hugeleaf_host::Root;
use hugeleaf_host::limits::guest::{Guest, read_guest};
use hugeleaf_units::Bytes;

use crate::Command;
use crate::context::Failure;

/// Peak memory of most commands, including all mappings (docs/internals/kernel-notes.md).
const USUAL: Bytes = Bytes::from_mib(8);
/// Assumed memory of any command if the OOM killer ends all processes together, because an underestimate is fatal.
const OOM_GROUP_NEED: Bytes = Bytes::from_mib(64);

/// Returns the memory that a command may take. `None` exempts commands that start a program or take almost no memory.
const fn need(command: Option<&Command>) -> Option<Bytes> {
    match command {
        Some(
            Command::Run(_) | Command::Completions(_) | Command::Manpages(_) | Command::Workload(_),
        ) => None,
        _ => Some(USUAL),
    }
}

/// Refuses a command that could make the OOM killer end a process of this cgroup.
pub fn admit(command: Option<&Command>) -> Result<(), Failure> {
    let guest = need(command).and_then(|need| Some((need, read_guest(&Root::live())?)));
    guest.map_or(Ok(()), |(need, guest)| judge(need, &guest))
}

fn judge(need: Bytes, guest: &Guest) -> Result<(), Failure> {
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
    use hugeleaf_host::MemoryLimit;

    #[test]
    fn a_command_is_refused_where_a_process_would_end_for_it() {
        let guest = |room, oom_group| Guest {
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
                .contains("3M of 512M is left in cgroup /db")
        );
        assert!(refused.lines.next.ends_with("/sys/fs/cgroup/db/memory.max"));
    }
}
