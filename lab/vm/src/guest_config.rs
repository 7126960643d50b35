//! A host, as described by its file in `lab/vm/hosts`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use hugeleaf_units::Bytes;
use serde::Deserialize;

use crate::architecture::Architecture;

/// A host: the name of its file, and the contents.
#[derive(Debug, Clone)]
pub struct GuestConfigFile {
    /// File name, without its extension.
    pub name: String,
    pub description: GuestConfig,
}

/// The contents of a file in `lab/vm/hosts`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GuestConfig {
    pub title: String,
    pub architecture: Architecture,
    pub kernel: KernelPackage,
    /// Name of the userland in `lab/vm/userlands.toml`.
    pub userland: String,
    pub memory: MemorySize,
    #[serde(default = "two")]
    pub processors: u32,
    /// Memory of each node, if there is more than one.
    #[serde(default)]
    pub nodes: Vec<MemorySize>,
    #[serde(default)]
    pub command_line: Vec<String>,
    #[serde(default)]
    pub swap: Option<GuestSwap>,
    /// Version of control groups: 1 or 2.
    #[serde(default = "two")]
    pub cgroup: u32,
    #[serde(default = "yes")]
    pub debugfs: bool,
    /// Further kernel modules to load at boot.
    #[serde(default)]
    pub modules: Vec<String>,
    /// Kernel files to write at boot, with their values.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// True if the emulated processor counts instructions. Its clock then follows them, and all of its
    /// processors run in turn.
    #[serde(default)]
    pub counts_instructions: bool,
    /// A script of the repository that makes further files for the guest, in the folder that is its first argument. In the
    /// guest the folder is `/payload/files`. Status 3 says that this machine lacks something.
    #[serde(default)]
    pub files: Option<String>,
    /// True if systemd is the first process; otherwise it is a script.
    #[serde(default)]
    pub systemd: bool,
    /// The tests that run in it: for each boot a list of `CRATE/PROGRAM FILTER…`.
    #[serde(default)]
    pub tests: Vec<Vec<String>>,
    /// The tests that `make test` runs, in one boot; empty if it skips this host.
    #[serde(default)]
    pub quick: Vec<String>,
    /// Time limit of a run of its tests, in seconds.
    #[serde(default = "ten_minutes")]
    pub time_limit_seconds: u64,
}

fn two() -> u32 {
    2
}

fn yes() -> bool {
    true
}

fn ten_minutes() -> u64 {
    600
}

/// A kernel, as a package of a Debian suite.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelPackage {
    /// The suite, such as `trixie` or `trixie-backports`.
    pub suite: String,
    /// The package that depends on the newest kernel of that suite.
    pub package: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum GuestSwap {
    Disk(MemorySize),
    Zram(MemorySize),
}

/// A number of bytes, written as `512M` or `2G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySize(pub Bytes);

impl<'de> Deserialize<'de> for MemorySize {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<MemorySize, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map(MemorySize)
            .map_err(serde::de::Error::custom)
    }
}

impl GuestConfigFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is not TOML, has an unknown key, or contradicts itself.
    pub fn read(path: &Path) -> anyhow::Result<GuestConfigFile> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("{shown}"))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        GuestConfigFile::parse(&name, &text).with_context(|| format!("{shown}"))
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// As [`GuestConfigFile::read`].
    pub fn parse(name: &str, text: &str) -> anyhow::Result<GuestConfigFile> {
        let description: GuestConfig = toml::from_str(text)?;
        description.check()?;
        Ok(GuestConfigFile {
            name: name.to_owned(),
            description,
        })
    }

    /// Keeps only the tests that `make test` runs; returns false if there are none.
    pub fn only_quick(&mut self) -> bool {
        self.description.tests = vec![self.description.quick.clone()];
        !self.description.quick.is_empty()
    }

    /// Reads all hosts of a folder, by name.
    ///
    /// # Errors
    /// As [`GuestConfigFile::read`].
    pub fn all(folder: &Path) -> anyhow::Result<Vec<GuestConfigFile>> {
        let shown = folder.display();
        let entries = std::fs::read_dir(folder).with_context(|| format!("{shown}"))?;
        let mut hosts = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "toml") {
                hosts.push(GuestConfigFile::read(&path)?);
            }
        }
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(hosts)
    }
}

impl GuestConfig {
    fn check(&self) -> anyhow::Result<()> {
        let sum: Bytes = self.nodes.iter().map(|size| size.0).sum();
        if !self.nodes.is_empty() && sum != self.memory.0 {
            bail!("nodes have {sum} together, memory is {}", self.memory.0);
        }
        if !matches!(self.cgroup, 1 | 2) {
            bail!("cgroup is 1 or 2, not {}", self.cgroup);
        }
        if self.tests.len() > 1 && !self.systemd {
            bail!("only a host with systemd can be rebooted: one list of tests");
        }
        if self.processors == 0 {
            bail!("a host has at least one processor");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str = "title = 'a host'\narchitecture = 'x86-64'\nuserland = 'small'\n\
        memory = '2G'\nkernel = { suite = 'trixie', package = 'linux-image-cloud-amd64' }\n";

    #[test]
    fn the_smallest_file_has_defaults() {
        let host = GuestConfigFile::parse("x", SMALLEST).unwrap().description;
        assert_eq!((host.processors, host.cgroup), (2, 2));
        assert!(host.debugfs && host.quick.is_empty() && host.nodes.is_empty());
        assert_eq!(host.memory.0, Bytes::from_mib(2048));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (more, word) in [
            ("nodes = ['1G', '512M']", "together"),
            ("cgroup = 3", "cgroup"),
            ("tests = [['a'], ['b']]", "systemd"),
            ("processors = 0", "processor"),
            ("colour = 'red'", "colour"),
            ("swap = { disk = 'much' }", "much"),
        ] {
            let error = GuestConfigFile::parse("x", &format!("{SMALLEST}{more}\n")).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(word), "{more}: {text}");
        }
    }
}
