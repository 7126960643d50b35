//! Processes of known programs, with the host settings that affect them.

use std::io::{BufRead, Read};
use std::path::Path;

use hugeleaf_sys::{Pid, UserCredentials};

use super::file_readers;
use super::system_config::{ResourceLimit, captured, parse_limits};
use crate::fact::Fact;
use crate::process::proc_parsers::{parse_stat, parse_status};
use crate::root::Root;

/// Maximum length in bytes of a name in `comm` (TASK_COMM_LEN, without the terminating zero).
pub const NAME_LENGTH: usize = 15;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunningProcess {
    pub pid: Pid,
    pub parent: Pid,
    /// `comm`: its first 15 bytes.
    pub name: String,
    /// The path of its executable. Absent if its link cannot be read.
    pub executable: Option<String>,
    pub arguments: Vec<String>,
    /// True if it or its unit disabled THP for it (`THP_enabled: 0`).
    pub thp_disabled: Fact<bool>,
    /// True if it is in the network namespace of this process, whose `net.*` settings are read.
    pub shares_network: Fact<bool>,
    pub limits: Fact<Vec<ResourceLimit>>,
    /// First number of its version, from its path or from its Debian or RPM package.
    pub version: Option<u32>,
}

/// Returns the processes of known programs. `packages` returns the packages of a program by name and path. Unreadable if a
/// capture holds no process.
pub fn read_running<'a>(
    root: &Root,
    packages: impl Fn(&str, Option<&str>) -> Option<&'a [String]>,
) -> Fact<Vec<RunningProcess>> {
    let pids = crate::target::all_pids(root);
    let pids = captured(root, "proc", Fact::from((!pids.is_empty()).then_some(pids)));
    pids.map(|pids| {
        let one = |pid| {
            let (name, executable) = (name_of(root, pid)?, link(root, pid, "exe"));
            let packages = packages(&name, executable.as_deref())?;
            Some(read_one(root, pid, name, executable, packages))
        };
        pids.into_iter().filter_map(one).collect()
    })
}

/// Returns `comm`, or the name in `stat` if a capture has only that.
fn name_of(root: &Root, pid: Pid) -> Option<String> {
    let comm = file_readers::line(root, format!("proc/{pid}/comm"))
        .known()
        .cloned();
    comm.or_else(|| {
        let stat = root.parse(format!("proc/{pid}/stat"), parse_stat);
        Some(stat.known()?.name.clone())
    })
}

fn link(root: &Root, pid: impl std::fmt::Display, of: &str) -> Option<String> {
    let to = std::fs::read_link(root.path(format!("proc/{pid}/{of}"))).ok()?;
    let to = to.to_string_lossy();
    // An upgrade replaced the file.
    Some(to.trim_end_matches(" (deleted)").to_owned())
}

fn read_one(
    root: &Root,
    pid: Pid,
    name: String,
    executable: Option<String>,
    packages: &[String],
) -> RunningProcess {
    let stat = root.parse(format!("proc/{pid}/stat"), parse_stat);
    let status = root.parse(format!("proc/{pid}/status"), parse_status);
    let arguments = root.read(format!("proc/{pid}/cmdline")).or_default();
    let arguments = arguments.split_terminator('\0').map(str::to_owned);
    let networks = link(root, "self", "ns/net").zip(link(root, pid, "ns/net"));
    let rights = (status.known()).map(|status| UserCredentials::of_ids(status.uid, &status.groups));
    let by_path = executable.as_deref().and_then(version_in_path);
    let by_package = || version_of_package(root, pid, rights?, packages);
    RunningProcess {
        pid,
        parent: Pid(stat.known().map_or(0, |stat| stat.parent)),
        name,
        arguments: arguments.collect(),
        thp_disabled: status.and_then(|status| status.thp_enabled.map(|on| !on).into()),
        shares_network: networks.map(|(own, its)| own == its).into(),
        limits: captured(
            root,
            "proc/PID/limits",
            root.read(format!("proc/{pid}/limits")),
        )
        .map(|text| parse_limits(&text)),
        version: by_path.or_else(by_package),
        executable,
    }
}

/// Parses the version in a path such as `/opt/mongodb-linux-x86_64-8.0.4/bin/mongod`: the number before the first point.
fn version_in_path(path: &str) -> Option<u32> {
    let folders = path.rsplit('/').skip(1);
    let mut last = folders.filter_map(|folder| folder.rsplit_once('-'));
    last.find_map(|(_, version)| version.split_once('.')?.0.parse().ok())
}

fn version_of_package(
    root: &Root,
    pid: Pid,
    rights: UserCredentials,
    packages: &[String],
) -> Option<u32> {
    if packages.is_empty() {
        return None;
    }
    let theirs = root.files_of_process(pid, rights).ok()?;
    let status = theirs.lines(Path::new("/var/lib/dpkg/status"));
    if let Some(version) = status.and_then(|status| parse_packages(status, packages)) {
        return Some(version);
    }
    RPM.iter().find_map(|path| {
        let packages = packages.to_vec();
        let version = theirs.with_file(Path::new(path), move |base| {
            Ok(version_in_rpm(base.take(RPM_MOST), &packages))
        });
        version.ok().flatten()
    })
}

/// Databases of RPM (`rpm --eval %_dbpath`): SQLite, Berkeley DB and ndb.
const RPM: [&str; 6] = [
    "/var/lib/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/var/lib/rpm/Packages.db",
    "/usr/lib/sysimage/rpm/Packages.db",
    "/var/lib/rpm/Packages",
    "/usr/lib/sysimage/rpm/Packages",
];
const RPM_MOST: u64 = 1 << 29;

/// Returns the first number of the version of one of these packages. Each format contains package headers as in package
/// files: the table of languages, which begins with `C`, then name, version and release, each followed by a zero. Removed
/// packages may still be in there. If versions differ, the result is unknown.
fn version_in_rpm(mut base: impl Read, packages: &[String]) -> Option<u32> {
    /// Longer than a name with its version.
    const OVERLAP: usize = 256;
    let mut window = vec![0; 1 << 16];
    let (mut held, mut found) = (0, None);
    loop {
        let read = base.read(window.get_mut(held..)?).ok()?;
        let end = held + read;
        for version in versions(window.get(..end)?, packages) {
            if found.is_some_and(|other| other != version) {
                return None;
            }
            found = Some(version);
        }
        if read == 0 {
            return found;
        }
        held = end.min(OVERLAP);
        window.copy_within(end - held..end, 0);
    }
}

fn versions<'a>(text: &'a [u8], packages: &'a [String]) -> impl Iterator<Item = u32> + 'a {
    let of_package = |rest: &[u8], name: &String| {
        first_number(rest.strip_prefix(name.as_bytes())?.strip_prefix(b"\0")?)
    };
    let windows = text.windows(2).enumerate();
    windows.filter_map(move |(at, two)| match two {
        b"C\0" => {
            let rest = text.get(at + 2..)?;
            packages.iter().find_map(|name| of_package(rest, name))
        }
        _ => None,
    })
}

/// Parses `8` from `8.0.4` followed by a zero.
fn first_number(text: &[u8]) -> Option<u32> {
    let version = text.split(|byte| *byte == 0).next()?;
    let is_whole = version.len() < text.len();
    let version = std::str::from_utf8(version).ok().filter(|_| is_whole)?;
    version.split_once('.')?.0.parse().ok()
}

/// Returns the first number of the version of the first of these packages that is installed (dpkg-query(1)). The file is
/// long, so only one paragraph at a time is in memory.
fn parse_packages(status: impl BufRead, packages: &[String]) -> Option<u32> {
    let (mut is_it, mut is_installed, mut version) = (false, false, None);
    for line in status.lines().map_while(Result::ok).chain([String::new()]) {
        match line.split_once(": ") {
            Some(("Package", name)) => is_it = packages.iter().any(|package| package == name),
            Some(("Status", status)) => is_installed = status.ends_with(" installed"),
            Some(("Version", of)) => version = Some(of.to_owned()),
            _ if line.is_empty() && is_it && is_installed => {
                let version = version.take()?;
                let upstream = version.split_once(':').map_or(&*version, |(_, rest)| rest);
                return upstream
                    .split(|c: char| !c.is_ascii_digit())
                    .next()?
                    .parse()
                    .ok();
            }
            _ if line.is_empty() => (is_it, is_installed, version) = (false, false, None),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PACKAGES: &str = "Package: mongodb-org-server\nStatus: deinstall ok config-files\nVersion: 7.0.1\n\n\
                            Package: mongodb-org-server\nStatus: install ok installed\nVersion: 1:8.0.4\n";

    #[test]
    fn versions_are_those_of_paths_and_installed_packages() {
        let path = "/opt/mongodb-linux-x86_64-ubuntu2204-8.0.4/bin/mongod";
        assert_eq!(version_in_path(path), Some(8));
        assert_eq!(version_in_path("/usr/bin/mongod"), None);
        assert_eq!(version_in_path("/opt/7.0/mongod"), None);
        let packages = ["mongodb-org-server".to_owned()];
        assert_eq!(parse_packages(PACKAGES.as_bytes(), &packages), Some(8));
        assert_eq!(
            parse_packages(PACKAGES.as_bytes(), &["mongodb".to_owned()]),
            None
        );
    }

    #[test]
    fn one_paragraph_at_a_time_is_read() {
        // Reading on would not end.
        let rest = std::io::BufReader::new(std::io::repeat(b'\n'));
        let packages = ["mongodb-org-server".to_owned()];
        let status = format!("{PACKAGES}\n");
        let endless = Read::chain(status.as_bytes(), rest);
        assert_eq!(parse_packages(endless, &packages), Some(8));
    }

    /// Bytes of a database that rpm 4.18 made for a package, without the copies in each index.
    #[test]
    fn a_database_of_rpm_tells_a_version_unless_it_has_several() {
        let header =
            |version: &str| format!("\0\x01C\0mongodb-org-server\0{version}\x001.el9\0x\0");
        let packages = ["mongodb-org-server".to_owned()];
        let version = |base: &str| version_in_rpm(base.as_bytes(), &packages);
        let source = "mongodb-org-server-7.0.4-1.el9.src.rpm\0mongodb-org-server\0";
        assert_eq!(version(&format!("{}{source}", header("8.0.4"))), Some(8));
        assert_eq!(version(source), None);
        let (old, new) = (header("7.0.1"), header("8.0.4"));
        assert_eq!(version(&format!("{old}{new}")), None);
        // The result must not depend on where a read ends.
        for at in (1 << 16) - 80..=(1 << 16) + 8 {
            let base = " ".repeat(at) + &new + &" ".repeat(300);
            assert_eq!(version(&base), Some(8), "{at}");
        }
    }

    #[test]
    fn a_process_is_read_with_its_parent_and_switches() {
        let (_dir, root) = crate::testing::host(&[
            (
                "proc/12/stat",
                "12 (redis-server) S 7 12 12 0 -1 0 1 2 3 4 5 6 7 8 20 0 4 0 99 1 1",
            ),
            ("proc/12/status", "Uid:\t1\t1\t1\t1\nTHP_enabled:\t0\n"),
            ("proc/12/cmdline", "redis-server\0*:6379\0"),
            ("proc/13/comm", "bash\n"),
        ]);
        let all = read_running(&root, |name, _| (name == "redis-server").then_some(&[][..]));
        let all = all.known().unwrap();
        let one = &all[..1][0];
        assert_eq!((all.len(), one.parent), (1, Pid(7)));
        assert_eq!(one.arguments, ["redis-server", "*:6379"]);
        assert_eq!(one.thp_disabled, Fact::Known(true));
        assert!(one.limits.error().is_some(), "a capture without the file");
        let nobody = Root::at("/nowhere");
        assert!(read_running(&nobody, |_, _| None).error().is_some());
    }

    proptest! {
        #[test]
        fn never_panics(text in "(?s).*", path in ".*") {
            let _ = parse_packages(text.as_bytes(), &[String::new()]);
            let _ = version_in_path(&path);
            let _ = version_in_rpm(text.as_bytes(), &["a".to_owned()]);
        }
    }
}
