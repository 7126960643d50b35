//! What `/etc/sysctl.conf` and `/etc/sysctl.d` ask for (sysctl.conf(5), sysctl.d(5)).

use super::files;
use crate::fact::Fact;
use crate::model::Sysctl;
use crate::root::Root;

const KEYS: [&str; 5] = [
    "vm.nr_hugepages",
    "vm.nr_overcommit_hugepages",
    "vm.hugetlb_shm_group",
    "kernel.shmmax",
    "kernel.shmall",
];

/// The settings in the order in which they are applied; unreadable where one of the files is.
pub fn read(root: &Root) -> Fact<Vec<Sysctl>> {
    files::paths_in(root, "etc/sysctl.d", ".conf").and_then(|mut paths| {
        // systemd-sysctl reads /etc/sysctl.conf as 99-sysctl.conf, `sysctl --system` last.
        paths.push("etc/sysctl.conf".to_owned());
        files::parse_each(root, paths, parse)
    })
}

/// The settings of one file that bear on large pages. Comments and lines of another shape are
/// passed over, as sysctl(8) does; a key may be written with slashes and after a `-`.
pub fn parse(text: &str, path: &str) -> Vec<Sysctl> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']))
        .filter_map(|line| {
            let (key, value) = line.split_once('=')?;
            let key = key.trim().trim_start_matches('-').replace('/', ".");
            let (path, value) = (path.to_owned(), value.trim().to_owned());
            KEYS.contains(&key.as_str())
                .then_some(Sysctl { path, key, value })
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
