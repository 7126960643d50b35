//! The settings, values, lines and mount points that a plan may set. A plan is applied as root, so
//! an edited or received file must not be able to write any other kernel setting or configuration
//! line.
//!
//! Pure. These lists must match the output of [`super::build_plan`]: a new setting there needs a line
//! here.

use std::path::{Component, Path};

use super::managed_files::{GRUB, LIMITS, SYSCTL, TMPFILES};
use super::name_syntax::{is, is_user, is_variable, need};

/// Settings in plans, and their allowed values (Documentation/admin-guide/mm/transhuge.rst,
/// cgroup-v2.rst and cgroup-v1/hugetlb.rst).
const SETTINGS: [(&str, ValueKind); 7] = [
    ("/proc/sys/kernel/shm(max|all)", ValueKind::Number),
    (
        r"/sys/fs/cgroup/(.*/)?hugetlb\.[0-9]+[KMG]B\.(rsvd\.)?(max|limit_in_bytes)",
        ValueKind::Limit,
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/enabled",
        ValueKind::Words(&["always", "madvise", "never"]),
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        ValueKind::Words(&["always", "within_size", "advise", "never", "deny", "force"]),
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs",
        ValueKind::Number,
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/hugepages-[0-9]+kB/enabled",
        ValueKind::Words(&["always", "inherit", "madvise", "never"]),
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/hugepages-[0-9]+kB/shmem_enabled",
        ValueKind::Words(&["always", "inherit", "within_size", "advise", "never"]),
    ),
];

/// The file of a pool, for all nodes or for one.
const POOL: &str =
    "/sys/(kernel/mm|devices/system/node/node[0-9]+)/hugepages/hugepages-[0-9]+kB/nr_hugepages";

const SYSCTL_LINE: &str = "[ \t]*(vm[./](nr_hugepages|hugetlb_shm_group)|kernel[./]shm(max|all))[ \t]*=[ \t]*[0-9]+[ \t]*";

/// A line of the boot loader's drop-in, which a shell reads. Page counts are one number, or one per
/// node.
const ARGUMENT_LINE: &str = r#"GRUB_CMDLINE_LINUX="\$GRUB_CMDLINE_LINUX hugepagesz=[0-9]+[KMG] hugepages=[0-9]+(:[0-9]+)?(,[0-9]+(:[0-9]+)?)*""#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    Words(&'static [&'static str]),
    Number,
    Limit,
}

impl ValueKind {
    /// Returns why a value is not allowed; `None` if it is.
    pub fn refuses(self, value: &str) -> Option<String> {
        let is_number = value.parse::<u64>().is_ok() && value.bytes().all(|b| b.is_ascii_digit());
        let (is_good, expected) = match self {
            ValueKind::Words(words) => (
                words.contains(&value),
                format!("expected one of {}", words.join(", ")),
            ),
            ValueKind::Number => (is_number, "expected a number".to_owned()),
            ValueKind::Limit => (
                is_number || value == "max",
                "expected a number, or max".to_owned(),
            ),
        };
        (!is_good).then(|| format!("'{value}' is not a value of this setting; {expected}"))
    }
}

/// Returns the allowed values of a setting; `None` for a setting that plans do not make.
pub(super) fn setting(path: &Path) -> Option<ValueKind> {
    let path = path.to_str()?;
    let one = SETTINGS.iter().find(|(pattern, _)| is(path, pattern));
    one.map(|(_, takes)| *takes)
}

/// True if plans write such a line into this hugeleaf file.
pub(super) fn is_line(path: &Path, line: &str) -> bool {
    match path.to_str() {
        Some(SYSCTL) => is(line, SYSCTL_LINE),
        Some(TMPFILES) => is_tmpfile(line),
        Some(LIMITS) => is_limit(line),
        Some(GRUB) => is(line, ARGUMENT_LINE),
        _ => is_of_unit(line),
    }
}

fn is_tmpfile(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let ["w", path, "-", "-", "-", "-", value] = words[..] else {
        return false;
    };
    let takes = match is(path, POOL) {
        true => Some(ValueKind::Number),
        false => setting(Path::new(path)).filter(|_| is_plain(Path::new(path))),
    };
    takes.is_some_and(|takes| takes.refuses(value).is_none())
}

/// True for a path without `..`.
pub(super) fn is_plain(path: &Path) -> bool {
    let down = |c: Component<'_>| matches!(c, Component::RootDir | Component::Normal(_));
    path.components().all(down)
}

fn is_limit(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        [user, "soft" | "hard", "memlock", kib] => is_user(user).is_ok() && is(kib, "[0-9]+"),
        _ => false,
    }
}

fn is_of_unit(line: &str) -> bool {
    let variable = line
        .strip_prefix("Environment=\"")
        .and_then(|rest| rest.strip_suffix('"'));
    let memlock = line.strip_prefix("LimitMEMLOCK=");
    let command = line.strip_prefix("ExecStart=");
    matches!(line, "[Service]" | "ExecStart=")
        || memlock.is_some_and(|limit| is(limit, "[0-9]+"))
        || variable.is_some_and(|v| is_variable(v).is_ok())
        || command.is_some_and(|c| is_command(c).is_ok())
}

/// Checks the command of a unit started through `hugeleaf run`, in the form that plans create.
pub(super) fn is_command(text: &str) -> Result<(), String> {
    let mut words = text.split(' ');
    let program = words.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let is_ours = program.starts_with('/') && name.starts_with("hugeleaf");
    let is_run = is_ours && words.next() == Some("run") && words.any(|word| word == "--");
    // A separate word `;` ends a command, and another one follows (systemd.service(5)).
    let is_one = !text.split_whitespace().any(|word| word == ";") && !text.ends_with('\\');
    need(is_run && is_one, || {
        format!(
            "'{text}' is not a valid command; expected an absolute path to hugeleaf, then \
             'run --', then the unit's own command"
        )
    })
}

/// Directories at or below which no mount is allowed. Without them the host does not work, and
/// nothing could be undone.
const HIDE_NOTHING_IN: [&str; 12] = [
    "/bin", "/boot", "/efi", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin",
    "/sys", "/usr",
];

/// Directories that must not be hidden themselves. An empty directory below them may be a mount
/// point.
const HIDE_NOT: [&str; 17] = [
    "/dev",
    "/dev/pts",
    "/dev/shm",
    "/home",
    "/media",
    "/opt",
    "/root",
    "/run",
    "/run/lock",
    "/srv",
    "/tmp",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/run",
    "/var/tmp",
];

/// Returns why a path may not be a mount point; `None` if its name allows it.
pub fn hides(path: &Path) -> Option<String> {
    let is_inside = HIDE_NOTHING_IN
        .iter()
        .any(|folder| path.starts_with(folder));
    let is_one = HIDE_NOT.iter().any(|folder| path == Path::new(folder));
    (is_inside || is_one).then(|| {
        format!(
            "'{}': a mount there would hide files that the host needs; expected a separate empty \
             folder, as in /mnt/huge",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_plans_make_and_no_others() {
        for (path, good, bad) in [
            ("/proc/sys/kernel/shmmax", "68719476736", "max"),
            ("/proc/sys/kernel/shmall", "1", "-1"),
            (
                "/sys/kernel/mm/transparent_hugepage/enabled",
                "madvise",
                "inherit",
            ),
            (
                "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
                "advise",
                "madvise",
            ),
            (
                "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs",
                "1000",
                "+1",
            ),
            (
                "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
                "inherit",
                "force",
            ),
            (
                "/sys/fs/cgroup/system.slice/db.service/hugetlb.2MB.max",
                "max",
                "0 1",
            ),
            (
                "/sys/fs/cgroup/hugetlb/db/hugetlb.1GB.rsvd.limit_in_bytes",
                "1073741824",
                "all",
            ),
        ] {
            let takes = setting(Path::new(path)).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(takes.refuses(good), None, "{path}");
            assert!(takes.refuses(bad).is_some(), "{path} takes {bad}");
        }
        for path in [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/shmmax/x",
            "/proc/sys/vm/overcommit_memory",
            "/sys/kernel/mm/transparent_hugepage/defrag",
            "/sys/kernel/mm/transparent_hugepage/hugepages-/enabled",
            "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/../enabled",
            "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag",
            "/sys/kernel/uevent_helper",
            "/sys/fs/cgroup/db/memory.max",
            "/sys/fs/cgroup/db/hugetlb.2MB.events",
            "/sys/fs/cgroup/db/hugetlb.xMB.max",
        ] {
            assert_eq!(setting(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one list")]
    fn lines_that_plans_write_and_no_others() {
        let unit = "/etc/systemd/system/db.service.d/60-hugeleaf.conf";
        let pool = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
        let (write, thp) = (
            format!("w {pool} - - - - 5"),
            "w /sys/kernel/mm/transparent_hugepage/enabled - - - - madvise",
        );
        for (path, line) in [
            (SYSCTL, "vm.nr_hugepages = 512"),
            (SYSCTL, "kernel/shmmax = 8"),
            (TMPFILES, &*write),
            (TMPFILES, thp),
            (
                TMPFILES,
                "w /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages - - - - 7",
            ),
            (LIMITS, "db2 soft memlock 100"),
            (
                GRUB,
                "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX hugepagesz=1G hugepages=0:2,1:7\"",
            ),
            (unit, "[Service]"),
            (unit, "LimitMEMLOCK=8589934592"),
            (unit, "Environment=\"MALLOC_CONF=thp:always\""),
            (unit, "ExecStart="),
            (
                unit,
                "ExecStart=/usr/bin/hugeleaf run --stack 64K -- /usr/bin/postgres -D /srv/pg",
            ),
        ] {
            assert!(is_line(Path::new(path), line), "{path}: {line}");
        }
        for (path, line) in [
            (SYSCTL, "kernel.core_pattern = |/tmp/x"),
            (SYSCTL, "vm.nr_hugepages = 5 ; x"),
            (SYSCTL, "vm.overcommit_memory = 1"),
            (TMPFILES, "L+ /etc/passwd - - - - /tmp/passwd"),
            (TMPFILES, "f+ /etc/cron.d/x 0644 - - - * * * * * root id"),
            (TMPFILES, "w /proc/sys/kernel/core_pattern - - - - 5"),
            (
                TMPFILES,
                "w /sys/fs/cgroup/../../etc/hugetlb.2MB.max - - - - 5",
            ),
            (
                TMPFILES,
                "w+ /sys/kernel/mm/transparent_hugepage/enabled - - - - never",
            ),
            (LIMITS, "* soft memlock 100"),
            (LIMITS, "db2 soft nproc 1"),
            (
                GRUB,
                "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX init=/bin/sh\"",
            ),
            (
                GRUB,
                "GRUB_CMDLINE_LINUX=\"$(id) hugepagesz=1G hugepages=1\"",
            ),
            (
                GRUB,
                "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX hugepagesz=1G hugepages=1;id\"",
            ),
            (GRUB, "id"),
            (unit, "User=root"),
            (unit, "ExecStartPre=/bin/sh"),
            (unit, "ExecStart=/bin/sh -c id"),
            (
                unit,
                "ExecStart=/usr/bin/hugeleaf run -- /bin/true ; /bin/sh",
            ),
        ] {
            assert!(!is_line(Path::new(path), line), "{path} takes {line}");
        }
    }

    #[test]
    fn mounts_hide_nothing_that_the_host_needs() {
        for path in [
            "/usr",
            "/usr/share/x",
            "/etc",
            "/etc/x",
            "/lib64",
            "/proc/x",
            "/sys/fs",
            "/boot/efi",
            "/dev",
            "/dev/shm",
            "/run",
            "/var",
            "/var/lib",
            "/home",
            "/root",
            "/tmp",
        ] {
            assert!(hides(Path::new(path)).is_some(), "{path}");
        }
        for path in [
            "/mnt",
            "/mnt/huge",
            "/dev/hugepages-1G",
            "/run/huge",
            "/var/lib/x",
            "/huge",
        ] {
            assert_eq!(hides(Path::new(path)), None, "{path}");
        }
    }
}
