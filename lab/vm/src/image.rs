//! A userland as a disk: Debian's packages in a file system of their own.
//!
//! An *installed* userland has run the packages' scripts, which requires this machine's own
//! architecture. An *unpacked* one can be of any architecture.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::architecture::Architecture;
use crate::cache::{ArtifactCache, hex};
use crate::debian::DebianMirror;
use crate::guest_config::MemorySize;
use crate::missing_precondition::missing;
use crate::process::{need, output, program};

/// A userland, as described by `lab/vm/userlands.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Userland {
    pub suite: String,
    /// Its packages; their dependencies are added.
    pub packages: Vec<String>,
    #[serde(default)]
    pub installed: bool,
    /// Free space on its disk besides the installed packages.
    pub free: MemorySize,
}

/// Reads all userlands, by name.
///
/// # Errors
/// If the file cannot be read or has an unknown key.
pub fn userlands(path: &Path) -> anyhow::Result<BTreeMap<String, Userland>> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("{shown}"))?;
    toml::from_str(&text).with_context(|| format!("{shown}"))
}

/// Returns the disk of a userland from the cache, or makes it.
///
/// # Errors
/// [`MissingPrecondition`](crate::missing_precondition::MissingPrecondition) if a package, a program or a right is missing.
pub fn disk(
    cache: &ArtifactCache,
    name: &str,
    userland: &Userland,
    architecture: Architecture,
) -> anyhow::Result<PathBuf> {
    let key = format!("{name}-{}-{}", architecture.debian(), version_of(userland));
    let folder = cache.kept("userlands", &key, |folder| {
        eprintln!("building the userland {name} for {}", architecture.debian());
        let tree = tempfile::tempdir_in(folder)?;
        let root = tree.path().join("root");
        bootstrap(userland, architecture, &root)?;
        if !userland.installed {
            accounts(&root)?;
        }
        file_system(&root, &folder.join("disk"), "root", userland.free)
    })?;
    Ok(folder.join("disk"))
}

fn version_of(userland: &Userland) -> String {
    hex(&Sha256::digest(format!("{userland:?}{}", ACCOUNTS.0))[..6])
}

fn bootstrap(userland: &Userland, architecture: Architecture, root: &Path) -> anyhow::Result<()> {
    if userland.installed && Architecture::own() != Some(architecture) {
        return Err(missing(
            format!("packages' scripts of {architecture:?} cannot run here"),
            "use a userland that is unpacked only",
        ));
    }
    let tool = need("mmdebstrap", "mmdebstrap")?;
    let variant = if userland.installed {
        "minbase"
    } else {
        "extract"
    };
    let sources = DebianMirror::find()?.sources(&userland.suite);
    let mut command = program::<&str>(tool, &["--quiet", "--mode=root"]);
    command
        .arg(format!("--variant={variant}"))
        .arg(format!("--architectures={}", architecture.debian()))
        .arg(format!("--include={}", userland.packages.join(",")))
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .arg(&userland.suite)
        .arg(root);
    for line in sources.lines() {
        command.arg(line);
    }
    output(&mut command).map(|_| ()).map_err(|e| {
        missing(
            format!("a userland of Debian's {} cannot be built", userland.suite),
            format!("run as root, and see mmdebstrap's error: {e:#}"),
        )
    })
}

/// Accounts that the scripts of base-passwd would write: root, and the user that owns nothing.
const ACCOUNTS: (&str, &str) = (
    "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "root:x:0:\nnogroup:x:65534:\n",
);

fn accounts(root: &Path) -> anyhow::Result<()> {
    fs::write(root.join("etc/passwd"), ACCOUNTS.0)?;
    fs::write(root.join("etc/group"), ACCOUNTS.1)?;
    Ok(())
}

/// Makes a file system of a folder, with room to spare. It needs no loop device and no mount.
///
/// # Errors
/// If there is no room.
pub fn file_system(tree: &Path, image: &Path, label: &str, free: MemorySize) -> anyhow::Result<()> {
    let used = output(program("du", &["-sk", "--apparent-size"]).arg(tree))?;
    let used: u64 = used
        .split_ascii_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .context("du printed no size")?;
    // Inodes and the ends of files need space too.
    let size = used + used / 4 + 16 * 1024 + free.0.get() / 1024;
    let arguments = ["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0"];
    output(
        program(need("mke2fs", "e2fsprogs")?, &arguments)
            .args(["-L", label, "-d"])
            .arg(tree)
            .arg(image)
            .arg(format!("{size}k")),
    )?;
    Ok(())
}
