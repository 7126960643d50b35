//! A workload's requirements, and a check of the unmet ones. Pure except [`Needs::unmet_here`], which reads the host.

use std::path::{Path, PathBuf};

use hugeleaf_host::Root;
use hugeleaf_host::executable::find_program;
use hugeleaf_units::deserialize::some;
use hugeleaf_units::{Bytes, Failure};
use serde::Deserialize;
use toml::Spanned;

use super::size::SizeSpec;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Needs {
    pub memory: Option<SizeSpec>,
    /// Part of the memory that an arm needs from a pool; all of it if unset.
    pub large: Option<SizeSpec>,
    #[serde(deserialize_with = "some")]
    pub disk: Option<Bytes>,
    /// Required programs by name; `a|b` needs one of them.
    pub programs: Vec<String>,
    /// Debian packages that contain the programs.
    pub packages: Vec<String>,
    /// Files that must exist, such as those of the kernel.
    pub files: Vec<Spanned<PathBuf>>,
    /// The commands run as root. Otherwise they run as nobody if hugeleaf runs as root.
    pub root: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct AvailableResources {
    pub memory: Bytes,
    pub disk: Option<Bytes>,
    pub is_root: bool,
}

/// Returns the search path for commands: PATH, and the usual folders of administrators.
pub(super) fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

impl Needs {
    /// Returns the first unmet requirement on this host. `memory` is the usable memory; the stage's folder is below `below`.
    pub fn unmet_here(&self, memory: Bytes, below: &Path) -> Option<Failure> {
        let disk = rustix::fs::statvfs(below).ok();
        let place = AvailableResources {
            memory,
            disk: disk.map(|s| Bytes(s.f_bavail.saturating_mul(s.f_frsize))),
            is_root: hugeleaf_sys::effective_uid() == 0,
        };
        let (root, search) = (Root::live(), search_path());
        let has = |name: &str| find_program(Path::new(name), &search).is_ok();
        let is_there = |file: &Path| root.path(file.strip_prefix("/").unwrap_or(file)).exists();
        self.unmet(&place, &has, &is_there)
    }

    fn install(&self, name: &str) -> String {
        match self.packages.is_empty() {
            true => format!("the workload file names no package for {name}: install it"),
            false => format!("apt-get install {}", self.packages.join(" ")),
        }
    }

    /// Returns the first unmet requirement; `has` looks up programs, and `is_there` looks up files.
    fn unmet(
        &self,
        place: &AvailableResources,
        has: &dyn Fn(&str) -> bool,
        is_there: &dyn Fn(&Path) -> bool,
    ) -> Option<Failure> {
        let unmet = |what: String, next: String| Some(Failure::missing(what, next));
        let missing = self
            .programs
            .iter()
            .find(|names| !names.split('|').any(has));
        if let Some(name) = missing {
            let name = name.replace('|', " or ");
            return unmet(format!("{name} is not installed"), self.install(&name));
        }
        let mut files = self.files.iter().map(Spanned::get_ref);
        if let Some(file) = files.find(|file| !is_there(file)) {
            let name = file.display();
            // No package contains the kernel's own files.
            let folder = file.iter().nth(1).unwrap_or_default();
            let is_kernels = ["proc", "sys", "dev"].iter().any(|own| folder == *own);
            let next = match is_kernels {
                true => "hugeleaf check    # lists features of this host".into(),
                false => self.install(&name.to_string()),
            };
            return unmet(format!("{name} does not exist"), next);
        }
        if self.root && !place.is_root {
            return unmet(
                "the workload requires root".into(),
                "run the command as root".into(),
            );
        }
        if let Some(size) = self.memory {
            let asked = size.resolve(place.memory);
            if asked > place.memory {
                let what = format!(
                    "the workload needs {asked} of memory, and {} are usable (half of available memory)",
                    place.memory
                );
                return unmet(what, "hugeleaf mem    # lists memory by process".into());
            }
        }
        match (self.disk, place.disk) {
            (Some(asked), Some(free)) if asked > free => unmet(
                format!("the workload needs {asked} of disk, and {free} are free"),
                "--below DIR    # a folder with more free space".into(),
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let needs = Needs {
            memory: Some(SizeSpec::Bytes(Bytes::from_mib(100))),
            disk: Some(Bytes::from_mib(10)),
            programs: vec!["cc|gcc".into(), "wrk".into()],
            packages: vec!["wrk".into()],
            files: vec![Spanned::new(0..0, "/proc/x".into())],
            root: true,
            large: None,
        };
        let mut place = AvailableResources {
            memory: Bytes::from_mib(100),
            disk: Some(Bytes::from_mib(10)),
            is_root: true,
        };
        let unmet = |place: &AvailableResources, programs: &[&str], there: bool| {
            let has = |name: &str| programs.contains(&name);
            let missing = needs.unmet(place, &has, &|_| there);
            missing.map(|missing| format!("{}; {}", missing.message, missing.remedy))
        };
        assert_eq!(unmet(&place, &["gcc", "wrk"], true), None);
        let found = unmet(&place, &["gcc"], true).unwrap();
        assert_eq!(found, "wrk is not installed; apt-get install wrk");
        assert!(unmet(&place, &["wrk"], true).unwrap().contains("cc or gcc"));
        assert!(
            unmet(&place, &["cc", "wrk"], false)
                .unwrap()
                .contains("/proc/x")
        );
        let header = Needs {
            packages: vec!["lib".into()],
            files: vec![Spanned::new(0..0, "/usr/include/x.h".into())],
            ..Needs::default()
        };
        let missing = header.unmet(&place, &|_| true, &|_| false).unwrap();
        assert_eq!(missing.message, "/usr/include/x.h does not exist");
        assert_eq!(missing.remedy, "apt-get install lib");
        place.disk = Some(Bytes::from_mib(9));
        assert!(
            unmet(&place, &["cc", "wrk"], true)
                .unwrap()
                .contains("disk")
        );
        place.memory = Bytes::from_mib(99);
        assert!(
            unmet(&place, &["cc", "wrk"], true)
                .unwrap()
                .contains("memory")
        );
        place.is_root = false;
        assert!(
            unmet(&place, &["cc", "wrk"], true)
                .unwrap()
                .contains("root")
        );
    }
}
