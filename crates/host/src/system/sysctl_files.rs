//! Settings in files that are applied at boot, as systemd reads them (sysctl.d(5)). All folders are merged by file name,
//! and a file hides those of its name in later folders. `/etc/sysctl.conf` is read if a link names it, or if systemd does
//! not apply the files.

use std::path::Path;

use hugeleaf_units::Bytes;

use super::file_readers;
use crate::fact::Fact;
use crate::model::SysctlLine;
use crate::root::Root;

const KEYS: [&str; 5] = [
    "vm.nr_hugepages",
    "vm.nr_overcommit_hugepages",
    "vm.hugetlb_shm_group",
    "kernel.shmmax",
    "kernel.shmall",
];

/// A file hides those of its name in later folders.
const FOLDERS: [&str; 5] = [
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
    "lib/sysctl.d",
];

/// Returns the settings in the order in which they are applied. Of two with one key, the later wins. Unreadable if one of
/// the files is.
pub fn read(root: &Root) -> Fact<Vec<SysctlLine>> {
    file_readers::merged(root, &FOLDERS).and_then(|mut paths| {
        paths.retain(|path| !is_masked(root, path));
        if !is_systemd(root) {
            paths.push("etc/sysctl.conf".to_owned());
        }
        file_readers::parse_each(root, paths, parse)
    })
}

/// True for a link to /dev/null, which masks a file.
fn is_masked(root: &Root, path: &str) -> bool {
    std::fs::read_link(root.path(path)).is_ok_and(|to| to == Path::new("/dev/null"))
}

/// True if systemd's program that applies the files exists. Others (sysctl(8) `--system`, OpenRC) read `/etc/sysctl.conf`
/// last.
fn is_systemd(root: &Root) -> bool {
    let is_there = |folder: &str| {
        let program = format!("{folder}/systemd/systemd-sysctl");
        !root.beginning(program, Bytes(1)).is_absent()
    };
    is_there("usr/lib") || is_there("lib")
}

/// Parses the huge-page settings of one file. Skips comments and lines of another shape, as sysctl(8) does. A key may use
/// slashes and follow a `-`.
pub fn parse(text: &str, path: &str) -> Vec<SysctlLine> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']))
        .filter_map(|line| {
            let (key, value) = line.split_once('=')?;
            let key = key.trim().trim_start_matches('-').replace('/', ".");
            let (path, value) = (path.to_owned(), value.trim().to_owned());
            KEYS.contains(&key.as_str())
                .then_some(SysctlLine { path, key, value })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::ErrorKind;

    #[test]
    fn only_what_bears_on_large_pages() {
        let text = "# vm.nr_hugepages = 1\n;x\n vm/nr_hugepages=  4096 \nnet.core.somaxconn = 5\n\
                    -vm.hugetlb_shm_group = 5\nvm.nr_huge";
        let found = parse(text, "/etc/sysctl.conf");
        let pairs: Vec<_> = found
            .iter()
            .map(|s| (s.key.as_str(), s.value.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [("vm.nr_hugepages", "4096"), ("vm.hugetlb_shm_group", "5")]
        );
    }

    /// Returns the paths whose value of `vm.nr_hugepages` is applied, in order.
    fn applied(root: &Root) -> Vec<String> {
        let settings = read(root);
        settings
            .known()
            .unwrap()
            .iter()
            .map(|s| s.path.clone())
            .collect()
    }

    #[test]
    fn folders_by_name_and_a_file_hides_its_namesakes() {
        const LINE: &str = "vm.nr_hugepages = 1\n";
        let (dir, root) = crate::testing::host(&[
            ("usr/lib/sysctl.d/50-a.conf", LINE),
            ("usr/lib/sysctl.d/70-hidden.conf", LINE),
            ("usr/local/lib/sysctl.d/60-b.conf", LINE),
            ("run/sysctl.d/70-hidden.conf", "kernel.shmmax = 1\n"),
            ("run/sysctl.d/80-masked.conf", LINE),
            ("etc/sysctl.d/40-c.conf", LINE),
            ("etc/sysctl.d/x.txt", LINE),
            ("etc/sysctl.conf", LINE),
        ]);
        let at = |name: &str| dir.path().join(name);
        std::os::unix::fs::symlink("/dev/null", at("etc/sysctl.d/80-masked.conf")).unwrap();
        let mut expected = vec![
            "/etc/sysctl.d/40-c.conf",
            "/usr/lib/sysctl.d/50-a.conf",
            "/usr/local/lib/sysctl.d/60-b.conf",
            "/run/sysctl.d/70-hidden.conf",
            "/etc/sysctl.conf",
        ];
        assert_eq!(applied(&root), expected);
        // systemd reads it through a link, which Debian up to 12 and Fedora have, and Debian 13 does not.
        std::fs::create_dir_all(at("usr/lib/systemd")).unwrap();
        std::fs::write(at("usr/lib/systemd/systemd-sysctl"), "").unwrap();
        expected.pop();
        assert_eq!(applied(&root), expected);
        std::os::unix::fs::symlink("../sysctl.conf", at("etc/sysctl.d/99-sysctl.conf")).unwrap();
        expected.push("/etc/sysctl.d/99-sysctl.conf");
        assert_eq!(applied(&root), expected);
    }

    #[test]
    fn no_files_are_no_settings_and_an_unreadable_one_is_said() {
        let root = Root::at("/nowhere");
        assert_eq!(read(&root), Fact::Known(Vec::new()));
        let root = root.failing("etc/sysctl.conf", ErrorKind::PermissionDenied);
        assert!(read(&root).error().unwrap().denied);
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = parse(&text, "");
        }
    }
}
