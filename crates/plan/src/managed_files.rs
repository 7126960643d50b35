//! The files that hugeleaf writes below /etc.

use std::path::Path;

use super::name_syntax::is_unit;

/// The first line of every file that belongs to hugeleaf.
pub const OURS: &str = "# written by hugeleaf; undone by: hugeleaf undo";

pub(super) const SYSCTL: &str = "/etc/sysctl.d/60-hugeleaf.conf";

pub(super) const TMPFILES: &str = "/etc/tmpfiles.d/hugeleaf.conf";

pub(super) const LIMITS: &str = "/etc/security/limits.d/60-hugeleaf.conf";

/// The drop-in of the boot loader, if it reads drop-ins.
pub const GRUB: &str = "/etc/default/grub.d/60-hugeleaf.cfg";

/// The hugeleaf files that exist once per host. Each unit may have one more.
pub const FILES: [&str; 4] = [SYSCTL, TMPFILES, LIMITS, GRUB];

pub(super) const UNITS: &str = "/etc/systemd/system";

pub(super) const UNIT_FILE: &str = "60-hugeleaf.conf";

pub(super) const FSTAB: &str = "/etc/fstab";

pub(super) fn is_ours(path: &Path) -> bool {
    let of_unit = || {
        let rest = path.strip_prefix(UNITS).ok()?.to_str()?;
        rest.strip_suffix(UNIT_FILE)?.strip_suffix(".d/")
    };
    FILES.iter().any(|ours| path == Path::new(ours))
        || of_unit().is_some_and(|unit| is_unit(unit).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_testkit::healthy_host_fixture::healthy;
    use hugeleaf_verdict::advice::{BootTaskRunner, shmem_at_boot};

    /// A plan's files hold its settings after a boot, and `undo` expects them unchanged.
    #[test]
    fn no_advice_writes_a_file_of_a_plan() {
        for by in [
            BootTaskRunner::Systemd,
            BootTaskRunner::Cron,
            BootTaskRunner::Unknown,
        ] {
            let command = shmem_at_boot(&healthy(), by).command;
            assert!(
                !FILES.iter().any(|ours| command.contains(ours)),
                "{command}"
            );
            assert!(!command.contains(UNIT_FILE), "{command}");
        }
    }
}
