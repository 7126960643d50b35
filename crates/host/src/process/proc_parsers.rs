//! `/proc/PID/stat` and `/proc/PID/status` (proc(5)).

use hugeleaf_units::Bytes;

use crate::Root;
use crate::parse_helpers::{ParseError, fields, kib};

/// The used fields of `/proc/PID/stat`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessStat {
    /// Name of the command, which may hold spaces and parentheses. A newline in it is written `\n`, as
    /// the kernel does in `status`, because lists have one line per process.
    pub name: String,
    /// State, as in `R`, `S`, `Z`.
    pub state: char,
    pub parent: u32,
    /// Bit mask of the kernel's `PF_` flags.
    pub flags: u64,
    /// Page faults that needed no disk (minflt).
    pub minor_faults: u64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub threads: u64,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// Resident memory, in base pages.
    pub resident_pages: u64,
    /// startcode, endcode, startstack and arg_start, which change on execve. Zeroes if the reader lacks
    /// ptrace access.
    pub image: [u64; 4],
}

/// `PF_KTHREAD` (include/linux/sched.h): the process is a kernel thread.
const PF_KTHREAD: u64 = 0x0020_0000;

impl ProcessStat {
    pub const fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }
}

/// The last field of `/proc/PID/stat` that is used: arg_start.
const LAST: usize = 48;

/// Parses `/proc/PID/stat`. Old kernels may have fewer fields than those used, and new ones more.
///
/// # Errors
/// If the name is not in parentheses, or a field up to the start time is not a number.
pub fn parse_stat(text: &str) -> Result<ProcessStat, ParseError> {
    // The name may hold anything, even `) R 1`, so it ends at the last parenthesis.
    let error = |what| ParseError::new(1, what, text);
    let open = text
        .find('(')
        .ok_or_else(|| error("expected a name in parentheses"))?;
    let close = text.rfind(')').filter(|c| *c > open);
    let close = close.ok_or_else(|| error("expected a name in parentheses"))?;
    let mut state = None;
    let mut numbers = [None; LAST + 1];
    for (field, word) in (3..=LAST).zip(text[close + 1..].split_ascii_whitespace()) {
        match field {
            3 => state = word.chars().next(),
            4 | 9 | 10 | 14 | 15 | 20 | 22 | 24 | 26..=28 | LAST => {
                numbers[field] = word.parse::<u64>().ok();
            }
            _ => {}
        }
    }
    let needed = |field: usize| numbers[field].ok_or_else(|| error("expected a number"));
    Ok(ProcessStat {
        name: text[open + 1..close].replace('\n', "\\n"),
        state: state.ok_or_else(|| error("expected a state"))?,
        parent: u32::try_from(needed(4)?).map_err(|_| error("expected a process id"))?,
        flags: needed(9)?,
        minor_faults: needed(10)?,
        user_ticks: needed(14)?,
        system_ticks: needed(15)?,
        threads: needed(20)?,
        start_ticks: needed(22)?,
        resident_pages: numbers[24].unwrap_or(0),
        image: [26, 27, 28, LAST].map(|field| numbers[field].unwrap_or(0)),
    })
}

/// The used lines of `/proc/PID/status`. Sizes are `None` if the line is missing, as for a kernel
/// thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessStatus {
    pub uid: u32,
    /// Effective group id and the supplementary groups.
    pub groups: Vec<u64>,
    /// `VmHWM`: peak resident memory since the program was executed or forked.
    pub peak: Option<Bytes>,
    /// `VmRSS`.
    pub resident: Option<Bytes>,
    /// `RssAnon`.
    pub resident_anon: Option<Bytes>,
    /// `RssFile`.
    pub resident_file: Option<Bytes>,
    /// `RssShmem`.
    pub resident_shmem: Option<Bytes>,
    /// `VmLck`.
    pub locked: Option<Bytes>,
    /// `VmPin`.
    pub pinned: Option<Bytes>,
    /// `VmPTE`.
    pub page_tables: Option<Bytes>,
    /// `VmSwap`.
    pub swapped: Option<Bytes>,
    /// `HugetlbPages`.
    pub hugetlb: Option<Bytes>,
    /// `THP_enabled`.
    pub thp_enabled: Option<bool>,
    /// `CapEff`.
    pub capabilities: u64,
    /// `Seccomp`: 0 for no filter, 1 for strict mode with four permitted system calls, 2 for a filter
    /// program. `None` on kernels without seccomp.
    pub seccomp: Option<u32>,
}

/// Returns `CapEff` of this program; `None` if it cannot be read.
pub fn own_capabilities(root: &Root) -> Option<u64> {
    let status = root.parse("proc/self/status", parse_status);
    status.known().map(|status| status.capabilities)
}

/// Parses `/proc/PID/status`. Missing lines stay `None`, unknown ones are skipped.
///
/// # Errors
/// If a line that is used has unexpected content.
pub fn parse_status(text: &str) -> Result<ProcessStatus, ParseError> {
    let mut status = ProcessStatus::default();
    for (line, name, value) in fields(text) {
        let numbers = || value.split_ascii_whitespace().map(str::parse::<u64>);
        let bad = |what| ParseError::new(line, what, value);
        match name {
            "Uid" => {
                let effective = numbers().nth(1).and_then(Result::ok);
                status.uid = effective
                    .and_then(|uid| u32::try_from(uid).ok())
                    .ok_or_else(|| bad("expected four user ids"))?;
            }
            "Gid" => status.groups.extend(numbers().nth(1).and_then(Result::ok)),
            "Groups" => status.groups.extend(numbers().filter_map(Result::ok)),
            "VmRSS" => status.resident = Some(kib(line, value)?),
            "VmHWM" => status.peak = Some(kib(line, value)?),
            "RssAnon" => status.resident_anon = Some(kib(line, value)?),
            "RssFile" => status.resident_file = Some(kib(line, value)?),
            "RssShmem" => status.resident_shmem = Some(kib(line, value)?),
            "VmLck" => status.locked = Some(kib(line, value)?),
            "VmPin" => status.pinned = Some(kib(line, value)?),
            "VmPTE" => status.page_tables = Some(kib(line, value)?),
            "VmSwap" => status.swapped = Some(kib(line, value)?),
            "HugetlbPages" => status.hugetlb = Some(kib(line, value)?),
            "THP_enabled" => {
                status.thp_enabled = Some(match value {
                    "0" => false,
                    "1" => true,
                    _ => return Err(bad("expected 0 or 1")),
                });
            }
            "Seccomp" => {
                let mode = value.parse();
                status.seccomp = Some(mode.map_err(|_| bad("expected a mode"))?);
            }
            "CapEff" => {
                status.capabilities = u64::from_str_radix(value, 16)
                    .map_err(|_| bad("expected a hexadecimal mask"))?;
            }
            _ => {}
        }
    }
    Ok(status)
}

/// Parses the soft and the hard memlock limit of `/proc/PID/limits`. `None` if the line is missing,
/// `u64::MAX` if it is unlimited.
///
/// # Errors
/// If the line exists but holds no limits.
pub fn parse_memlock(text: &str) -> Result<(Option<Bytes>, Option<Bytes>), ParseError> {
    parse_limit(text, "Max locked memory")
}

/// Parses the soft limit of the address space (RLIMIT_AS) in `/proc/PID/limits`. `u64::MAX` is unlimited.
///
/// # Errors
/// If the line exists but holds no limits.
pub fn parse_address_space_limit(text: &str) -> Result<Option<Bytes>, ParseError> {
    parse_limit(text, "Max address space").map(|(soft, _)| soft)
}

/// Parses the soft and the hard limit of one line, in bytes.
fn parse_limit(text: &str, name: &str) -> Result<(Option<Bytes>, Option<Bytes>), ParseError> {
    for (i, line) in text.lines().enumerate() {
        let Some(rest) = line.strip_prefix(name) else {
            continue;
        };
        let mut words = rest.split_ascii_whitespace();
        let mut limit = || match words.next() {
            Some("unlimited") => Ok(Some(Bytes(u64::MAX))),
            word => word
                .and_then(|word| word.parse().ok())
                .map(|n| Some(Bytes(n)))
                .ok_or_else(|| ParseError::new(i + 1, "expected a limit in bytes", line)),
        };
        return Ok((limit()?, limit()?));
    }
    Ok((None, None))
}

/// A line of `/proc/PID/cgroup` (cgroups(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgroupLine<'a> {
    /// Version of the hierarchy, 1 or 2.
    pub version: u8,
    /// A controller of the hierarchy; empty in version 2.
    pub controller: &'static str,
    pub path: &'a str,
}

/// Returns the line of the cgroup that accounts a process: the memory controller's, else systemd's own, else the unified
/// hierarchy's.
pub fn parse_cgroup(text: &str) -> Option<CgroupLine<'_>> {
    const MEMORY: &str = "memory";
    const SYSTEMD: &str = "name=systemd";
    let mut best: Option<(u8, CgroupLine<'_>)> = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        // A hybrid host mounts an empty unified hierarchy next to the real ones, so its path has the
        // lowest rank. `/` is never taken.
        let (rank, version, controller) = match (id, controllers) {
            ("0", "") => (1, 2, ""),
            (_, SYSTEMD) => (2, 1, SYSTEMD),
            (_, list) if list.split(',').any(|c| c == MEMORY) => (3, 1, MEMORY),
            _ => continue,
        };
        if path != "/" && best.is_none_or(|(r, _)| rank > r) {
            let line = CgroupLine {
                version,
                controller,
                path,
            };
            best = Some((rank, line));
        }
    }
    best.map(|(_, line)| line)
}

/// Iterates over the units of the system's manager in a cgroup's path: slices, then at most one service or scope.
///
/// The cgroups below a service or a scope belong to it: a user's manager, a container or the service names them as it
/// likes. The same holds below any other part, as in `/lxc.payload.x`.
pub(crate) fn units_in(cgroup: &str) -> impl Iterator<Item = &str> {
    let mut is_in_slice = true;
    cgroup
        .split('/')
        .filter(|part| !part.is_empty())
        .take_while(move |part| std::mem::replace(&mut is_in_slice, part.ends_with(".slice")))
        .filter(|part| {
            [".slice", ".service", ".scope"]
                .iter()
                .any(|kind| part.ends_with(*kind))
        })
}

/// Returns the service or scope of the system's manager in a cgroup's path. It is `user@1000.service` for a unit of a
/// user, and the container's own unit for a unit in a container.
pub fn unit_of(cgroup: &str) -> Option<String> {
    units_in(cgroup)
        .find(|unit| !unit.ends_with(".slice"))
        .map(str::to_owned)
}

/// True if a unit of the system is a service of its own. A user's manager is none, because it runs unrelated programs.
pub fn is_service(unit: &str) -> bool {
    unit.ends_with(".service") && !unit.starts_with("user@")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAT: &str = "1234 (my (odd) R 1 name) S 1 1 1 0 -1 4194560 100 0 0 0 7 8 0 0 20 0 3 0 \
        5555 1000 200 18446744073709551615 94000 94100 140000 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 \
        95000 96000 97000 98000 99000 99100 99200 0";

    #[test]
    fn stat_of_an_odd_name() {
        let stat = parse_stat(STAT).unwrap();
        assert_eq!(stat.name, "my (odd) R 1 name");
        assert_eq!(
            (stat.state, stat.parent, stat.threads, stat.start_ticks),
            ('S', 1, 3, 5555)
        );
        assert_eq!((stat.user_ticks, stat.system_ticks), (7, 8));
        assert_eq!(stat.minor_faults, 100);
        assert_eq!(stat.resident_pages, 200);
        assert_eq!(stat.image, [94000, 94100, 140_000, 98000]);
        assert!(!stat.is_kernel_thread());
    }

    #[test]
    fn stat_cut_short() {
        for cut in [0, 5, 20, 40] {
            assert!(parse_stat(&STAT[..cut]).is_err(), "{cut}");
        }
        // Fields after the start time may be missing.
        let short: String = STAT
            .split_inclusive(' ')
            .take(26)
            .collect::<Vec<_>>()
            .concat();
        assert_eq!(parse_stat(&short).unwrap().image, [0; 4]);
    }

    #[test]
    fn status_lines() {
        let text = "Name:\tx\nUid:\t1\t1000\t1\t1\nGid:\t5\t6\t5\t5\nGroups:\t7 8 \nNSpid:\t12\t3\n\
            VmRSS:\t    100 kB\nHugetlbPages:\t 2048 kB\nTHP_enabled:\t0\nCapEff:\t00000000000000ff\n\
            FutureLine:\twhatever\n";
        let status = parse_status(text).unwrap();
        assert_eq!(status.uid, 1000);
        assert_eq!(status.groups, [6, 7, 8]);
        assert_eq!(status.resident, Some(Bytes(102_400)));
        assert_eq!(status.hugetlb, Some(Bytes(2 << 20)));
        assert_eq!(status.swapped, None);
        assert_eq!(status.thp_enabled, Some(false));
        assert_eq!(status.capabilities, 255);
        assert!(parse_status("VmRSS: lots\n").is_err());
    }

    #[test]
    fn memlock() {
        let line = |v| format!("Limit  Soft Limit\nMax locked memory         {v}   8192   bytes\n");
        assert_eq!(parse_memlock(&line("8192")).unwrap().0, Some(Bytes(8192)));
        assert_eq!(
            parse_memlock(&line("unlimited")).unwrap().0,
            Some(Bytes(u64::MAX))
        );
        assert_eq!(parse_memlock("").unwrap(), (None, None));
        let addresses = "Max address space         1024   unlimited   bytes\n";
        assert_eq!(
            parse_address_space_limit(addresses).unwrap(),
            Some(Bytes(1024))
        );
        assert_eq!(parse_address_space_limit(&line("8192")).unwrap(), None);
        assert!(parse_memlock(&line("x")).is_err());
    }

    #[test]
    fn cgroups_and_units() {
        let v2 = "0::/system.slice/system-postgresql.slice/postgresql@15-main.service\n";
        let path = parse_cgroup(v2).unwrap().path;
        assert_eq!(unit_of(path).unwrap(), "postgresql@15-main.service");
        let hybrid = "5:memory:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n";
        assert_eq!(parse_cgroup(hybrid).unwrap().path, "/docker/abc");
        assert_eq!(parse_cgroup("0::/\n"), None);
        assert_eq!(unit_of("/docker/abc"), None);
    }

    /// Users and containers choose the names of their own units.
    #[test]
    fn a_unit_is_one_of_the_systems_manager() {
        for (path, unit) in [
            ("/init.scope", Some("init.scope")),
            ("/system.slice/redis.service", Some("redis.service")),
            (
                "/system.slice/redis.service/init.scope",
                Some("redis.service"),
            ),
            (
                "/db.slice/db-one.slice/redis.service",
                Some("redis.service"),
            ),
            (
                "/user.slice/user-0.slice/session-1.scope",
                Some("session-1.scope"),
            ),
            (
                "/user.slice/user-7.slice/user@7.service/app.slice/redis.service",
                Some("user@7.service"),
            ),
            (
                "/machine.slice/systemd-nspawn@x.service/payload/system.slice/redis.service",
                Some("systemd-nspawn@x.service"),
            ),
            (
                "/system.slice/docker-1.scope/init.scope",
                Some("docker-1.scope"),
            ),
            ("/machine.slice/x/system.slice/redis.service", None),
            ("/lxc.payload.x/system.slice/redis.service", None),
            ("/docker/1/system.slice/redis.service", None),
            ("/../system.slice/redis.service", None),
            ("/system.slice", None),
            ("", None),
        ] {
            assert_eq!(unit_of(path).as_deref(), unit, "{path}");
        }
        assert!(is_service("redis.service"));
        assert!(!is_service("user@1000.service") && !is_service("session-1.scope"));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*") {
            let _ = parse_stat(&text);
            let _ = parse_status(&text);
            let _ = parse_memlock(&text);
            let _ = parse_cgroup(&text);
            let _ = unit_of(&text);
        }
    }
}
