//! Debian's packages, by apt with lists and folders of its own: this machine's installed packages are
//! neither read nor changed. apt checks the signature of each list and the checksum of each package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::cache::ArtifactCache;
use crate::missing_precondition::missing;
use crate::process::{need, output, program};

/// Age of lists after which they are fetched again, if possible.
const LISTS_LAST: Duration = Duration::from_secs(24 * 60 * 60);

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebianMirror {
    pub archive: String,
    pub security: Option<String>,
}

impl DebianMirror {
    /// Returns the mirror in `HUGELEAF_VM_MIRROR`, or the one of this machine's own apt.
    ///
    /// # Errors
    /// [`MissingPrecondition`](crate::missing_precondition::MissingPrecondition) if there is neither.
    pub fn find() -> anyhow::Result<DebianMirror> {
        if let Some(archive) = std::env::var("HUGELEAF_VM_MIRROR")
            .ok()
            .filter(|address| !address.is_empty())
        {
            return Ok(DebianMirror {
                archive,
                security: None,
            });
        }
        let format = "$(LABEL)\t$(REPO_URI)";
        let arguments = ["indextargets", "--format", format, "Created-By: Packages"];
        let targets = output(&mut program(need("apt-get", "apt")?, &arguments))?;
        DebianMirror::from_targets(&targets).ok_or_else(|| {
            missing(
                "apt on this machine has no Debian archive",
                "set HUGELEAF_VM_MIRROR to the address of a mirror",
            )
        })
    }

    fn from_targets(targets: &str) -> Option<DebianMirror> {
        let labelled = |wanted: &str| {
            targets
                .lines()
                .filter_map(|line| line.split_once('\t'))
                .find(|(label, _)| *label == wanted)
                .map(|(_, address)| address.to_owned())
        };
        Some(DebianMirror {
            archive: labelled("Debian")?,
            security: labelled("Debian-Security"),
        })
    }

    /// Returns the lines of a sources.list for a suite and the suite that it builds on.
    pub fn sources(&self, suite: &str) -> String {
        let signed = if Path::new(KEYS).exists() {
            format!(" [signed-by={KEYS}]")
        } else {
            String::new()
        };
        let stable = suite.split('-').next().unwrap_or(suite);
        let mut lines = vec![format!("deb{signed} {} {stable} main", self.archive)];
        if let Some(security) = &self.security {
            lines.push(format!("deb{signed} {security} {stable}-security main"));
        }
        if suite != stable {
            lines.push(format!("deb{signed} {} {suite} main", self.archive));
        }
        lines.join("\n") + "\n"
    }
}

/// The packages of one suite for one architecture.
#[derive(Debug)]
pub struct DebianSuite {
    folder: PathBuf,
    name: String,
    architecture: String,
}

impl DebianSuite {
    /// Opens a suite for an architecture by Debian's name. Lists that are missing or a day old are
    /// fetched. If fetching fails, older lists are used.
    ///
    /// # Errors
    /// If there is no list, and none can be fetched.
    pub fn open(
        cache: &ArtifactCache,
        name: &str,
        architecture: &str,
    ) -> anyhow::Result<DebianSuite> {
        let lists = format!("apt/{name}-{architecture}");
        let folder = cache.folder(&lists)?;
        let suite = DebianSuite {
            folder,
            name: name.to_owned(),
            architecture: architecture.to_owned(),
        };
        let _lock = cache.lock(&lists)?;
        let mark = suite.folder.join("fetched");
        let age = fs::metadata(&mark)
            .and_then(|m| m.modified())
            .ok()
            .and_then(|at| at.elapsed().ok());
        if age.is_none_or(|age| age > LISTS_LAST) {
            match suite.update() {
                Ok(()) => fs::write(&mark, "")?,
                Err(e) if age.is_some() => eprintln!("using older lists of {name}: {e:#}"),
                Err(e) => return Err(e),
            }
        }
        Ok(suite)
    }

    fn update(&self) -> anyhow::Result<()> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(self.folder.join(part))?;
        }
        let mirror = DebianMirror::find()?;
        let Err(error) = self.update_from(&mirror) else {
            return Ok(());
        };
        // The archive of security updates may be in the middle of a change, and is optional.
        let without = DebianMirror {
            security: None,
            ..mirror
        };
        self.update_from(&without).map_err(|_| {
            missing(
                format!("the lists of Debian's {} cannot be fetched", self.name),
                format!("see apt's error: {error:#}"),
            )
        })
    }

    fn update_from(&self, mirror: &DebianMirror) -> anyhow::Result<()> {
        let sources = mirror.sources(&self.name);
        fs::write(self.folder.join("sources.list"), sources)?;
        output(self.apt(&["-qq", "update"])?.env("LC_ALL", "C"))?;
        Ok(())
    }

    fn apt(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let at = |part: &str| self.folder.join(part).display().to_string();
        let options = [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            format!("Dir::State::Lists={}", at("lists")),
            "Dir::State::status=/dev/null".to_owned(),
            format!("Dir::Cache={}", at("cache")),
            format!("APT::Architecture={}", self.architecture),
            format!("APT::Architectures={}", self.architecture),
            "APT::Install-Recommends=false".to_owned(),
            "APT::Sandbox::User=root".to_owned(),
        ];
        let mut command = program::<&str>(need("apt-get", "apt")?, &[]);
        for option in options {
            command.args(["-o", &option]);
        }
        // Backports have lower priority than the suite they belong to, unless requested.
        if self.name.contains('-') {
            command.args(["-t", &self.name]);
        }
        command.args(arguments);
        Ok(command)
    }

    /// Returns a package and all its dependencies, with the names and sizes of their files.
    ///
    /// # Errors
    /// If the suite has no such package.
    pub fn closure(&self, package: &str) -> anyhow::Result<Vec<PackageEntry>> {
        let arguments = ["-qq", "--print-uris", "-y", "install", package];
        let text = output(&mut self.apt(&arguments)?)
            .with_context(|| format!("{package} of {}", self.name))?;
        Ok(text.lines().filter_map(PackageEntry::parse).collect())
    }

    /// Fetches a package and unpacks it into a folder.
    ///
    /// # Errors
    /// If it cannot be fetched, its checksum is wrong, or there is no room.
    pub fn unpack(&self, package: &str, into: &Path) -> anyhow::Result<()> {
        let folder = tempfile::tempdir_in(&self.folder)?;
        output(
            self.apt(&["-qq", "download", package])?
                .current_dir(folder.path()),
        )
        .map_err(|e| {
            missing(
                format!(
                    "package {package} of Debian's {} cannot be fetched",
                    self.name
                ),
                format!("see apt's error: {e:#}"),
            )
        })?;
        for entry in fs::read_dir(folder.path())? {
            let file = entry?.path();
            output(program(need("dpkg", "dpkg")?, &["-x"]).arg(file).arg(into))?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageEntry {
    pub name: String,
    pub version: String,
    /// Size of its file in bytes.
    pub size: u64,
}

impl PackageEntry {
    /// Parses a line of `apt-get --print-uris`: quoted address, file name, size and checksum.
    fn parse(line: &str) -> Option<PackageEntry> {
        let mut words = line.strip_prefix('\'')?.split_once("' ")?.1.split(' ');
        let (file, size) = (words.next()?, words.next()?.parse().ok()?);
        let mut parts = file.strip_suffix(".deb")?.split('_');
        Some(PackageEntry {
            name: parts.next()?.to_owned(),
            version: parts.next()?.to_owned(),
            size,
        })
    }
}

/// Returns the largest package whose name has one of these prefixes.
///
/// # Errors
/// If there is none.
pub fn named<'a>(
    listed: &'a [PackageEntry],
    beginnings: &[&str],
) -> anyhow::Result<&'a PackageEntry> {
    // Among packages with the prefix, those that only depend on others are small.
    let found = listed
        .iter()
        .filter(|p| beginnings.iter().any(|b| p.name.starts_with(b)))
        .max_by_key(|p| p.size);
    match found {
        Some(package) => Ok(package),
        None => bail!("no package begins with any of {beginnings:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_apt_are_read() {
        let line = "'http://a/pool/linux-image-6.1.0-50-cloud-amd64_6.1.176-1_amd64.deb' \
            linux-image-6.1.0-50-cloud-amd64_6.1.176-1_amd64.deb 23456 SHA256:ab";
        let listed = PackageEntry::parse(line).unwrap();
        assert_eq!(listed.name, "linux-image-6.1.0-50-cloud-amd64");
        assert_eq!((listed.version.as_str(), listed.size), ("6.1.176-1", 23456));
        for damaged in ["", "'", "'a' b", "'a' b.deb 1", "'a' b_1.deb x"] {
            assert_eq!(PackageEntry::parse(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn the_kernel_itself_is_the_largest_of_its_names() {
        let listed = |name: &str, size| PackageEntry {
            name: name.to_owned(),
            version: "1".to_owned(),
            size,
        };
        let all = [
            listed("linux-image-cloud-amd64", 1),
            listed("linux-image-6.1.0-50-cloud-amd64", 1000),
            listed("linux-base", 2000),
        ];
        let found = named(&all, &["linux-binary-", "linux-image-"]).unwrap();
        assert_eq!(found.name, "linux-image-6.1.0-50-cloud-amd64");
        assert!(named(&all, &["grub-"]).is_err());
    }

    #[test]
    fn the_mirror_is_the_machines_own() {
        let targets = "Node Source\thttp://c/\nDebian-Security\thttp://b/\nDebian\thttp://a/\n";
        let mirror = DebianMirror::from_targets(targets).unwrap();
        let text = mirror.sources("trixie-backports");
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split(' ').collect()).collect();
        let ends: Vec<&[&str]> = lines.iter().map(|l| &l[l.len() - 3..]).collect();
        assert_eq!(ends[0], ["http://a/", "trixie", "main"]);
        assert_eq!(ends[1], ["http://b/", "trixie-security", "main"]);
        assert_eq!(ends[2], ["http://a/", "trixie-backports", "main"]);
        assert_eq!(DebianMirror::from_targets("Ubuntu\thttp://a/\n"), None);
    }
}
