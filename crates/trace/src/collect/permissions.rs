//! Reasons why the kernel refuses events, and remedies: the exact setting and the capability. Pure.

use hugeleaf_sys::{Errno, SysError};
use hugeleaf_units::Failure;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerfRestrictions {
    /// `kernel.perf_event_paranoid`.
    pub paranoid: Option<i64>,
    /// The mode in brackets of `/sys/kernel/security/lockdown`.
    pub lockdown: Option<String>,
    pub capabilities: u64,
    /// The command that gives hugeleaf's file the required capabilities.
    pub setcap: String,
    /// True if a system-call filter restricts this process (seccomp(2), `Seccomp: 2` in its status).
    pub is_filtered: bool,
}

const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

impl PerfRestrictions {
    /// True if this process may watch all others regardless of the setting.
    pub const fn may_watch(&self) -> bool {
        self.capabilities & (1 << CAP_SYS_ADMIN | 1 << CAP_PERFMON) != 0
    }
}

/// True if the error means that this machine has no such event.
pub fn is_not_here(errno: Errno) -> bool {
    [
        Errno::NOENT,
        Errno::OPNOTSUPP,
        Errno::NODEV,
        Errno::NXIO,
        Errno::INVAL,
        Errno::NOSYS,
    ]
    .contains(&errno)
}

pub fn refusal(error: &SysError, guards: &PerfRestrictions) -> Failure {
    const CONFIDENTIALITY: &str = "confidentiality";
    let denied = matches!(error.errno, Errno::ACCESS | Errno::PERM);
    if denied && guards.may_watch() && guards.lockdown.as_deref() == Some(CONFIDENTIALITY) {
        return Failure::missing(
            format!("{error}: kernel lockdown is in mode confidentiality"),
            "start the kernel with lockdown=integrity, or trace with --intervals-only",
        );
    }
    if denied && guards.may_watch() && guards.is_filtered {
        return Failure::missing(
            format!("{error}: refused by a system call filter (seccomp), as in containers"),
            "trace from outside the container, or allow perf_event_open in its seccomp profile; \
             or trace with --intervals-only",
        );
    }
    if denied {
        let setting = match guards.paranoid {
            Some(level) => format!("kernel.perf_event_paranoid is {level}"),
            None => "kernel.perf_event_paranoid cannot be read".to_owned(),
        };
        return Failure::missing(
            format!("{error}: {setting}, and CAP_PERFMON is missing"),
            format!(
                "run as root; or {}; or sysctl kernel.perf_event_paranoid=-1; or trace with \
                 --intervals-only",
                guards.setcap
            ),
        );
    }
    let remedy = match error.errno {
        Errno::MFILE => "allow more descriptors: ulimit -n 65536", // not a page size
        Errno::NOSYS => "use a kernel with CONFIG_PERF_EVENTS, or trace with --intervals-only",
        _ => "trace with --intervals-only",
    };
    Failure::missing(error.to_string(), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: Errno, guards: &PerfRestrictions) -> (String, String) {
        let error = SysError::new("perf_event_open", "of all processes on CPU 0", errno);
        let failure = refusal(&error, guards);
        (failure.message, failure.remedy)
    }

    #[test]
    fn the_setting_and_the_capability_are_named() {
        let guards = PerfRestrictions {
            paranoid: Some(2),
            setcap: "setcap cap_perfmon=ep /usr/bin/hugeleaf".to_owned(),
            ..PerfRestrictions::default()
        };
        let (reason, remedy) = refused(Errno::ACCESS, &guards);
        assert!(
            reason.contains("kernel.perf_event_paranoid is 2"),
            "{reason}"
        );
        assert!(reason.contains("CAP_PERFMON"), "{reason}");
        assert!(
            remedy.contains("sysctl kernel.perf_event_paranoid=-1"),
            "{remedy}"
        );
        assert!(remedy.contains("cap_perfmon"), "{remedy}");
    }

    #[test]
    fn lockdown_is_named_where_root_is_refused() {
        let guards = PerfRestrictions {
            paranoid: Some(-1),
            lockdown: Some("confidentiality".into()),
            capabilities: 1 << CAP_SYS_ADMIN,
            ..PerfRestrictions::default()
        };
        let (reason, remedy) = refused(Errno::PERM, &guards);
        assert!(reason.contains("lockdown"), "{reason}");
        assert!(remedy.contains("lockdown=integrity"), "{remedy}");
        // Without the capability, that remedy comes first.
        let user = PerfRestrictions {
            capabilities: 0,
            ..guards
        };
        assert!(refused(Errno::PERM, &user).0.contains("CAP_PERFMON"));
    }

    #[test]
    fn a_filter_is_named_where_root_is_refused() {
        let root = PerfRestrictions {
            capabilities: 1 << CAP_PERFMON,
            is_filtered: true,
            ..PerfRestrictions::default()
        };
        let (reason, remedy) = refused(Errno::PERM, &root);
        assert!(
            reason.contains("seccomp") && !reason.contains("CAP_PERFMON"),
            "{reason}"
        );
        assert!(remedy.contains("--intervals-only"), "{remedy}");
        // Without the capability, that remedy comes first.
        let user = PerfRestrictions {
            capabilities: 0,
            ..root
        };
        let (reason, _) = refused(Errno::PERM, &user);
        assert!(reason.contains("CAP_PERFMON"), "{reason}");
    }

    #[test]
    fn other_reasons() {
        let guards = PerfRestrictions::default();
        let (reason, remedy) = refused(Errno::MFILE, &guards);
        assert!(reason.contains("open files"), "{reason}");
        assert!(remedy.contains("ulimit -n"), "{remedy}");
        assert!(is_not_here(Errno::OPNOTSUPP) && !is_not_here(Errno::PERM));
    }
}
