//! Files that are expensive to make, stored outside the tree.
//!
//! Each entry is made next to its place, gets checksums, and is renamed into its place in one step.
//! An entry that no longer matches its checksums is made anew.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hugeleaf_sys::{HostLock, lock_host};
use sha2::{Digest, Sha256};

const SUMS: &str = "SHA256SUMS";

/// The folder of all stored entries.
#[derive(Debug, Clone)]
pub struct ArtifactCache {
    folder: PathBuf,
}

impl ArtifactCache {
    /// Opens the cache in `HUGELEAF_VM_CACHE`, or in the user's cache folder.
    ///
    /// # Errors
    /// If neither is defined, or the folder cannot be made.
    pub fn open() -> anyhow::Result<ArtifactCache> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let folder = variable("HUGELEAF_VM_CACHE")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(variable("XDG_CACHE_HOME")?).join("hugeleaf-vm")))
            .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache/hugeleaf-vm")))
            .context("set HUGELEAF_VM_CACHE to a folder: HOME is not set")?;
        ArtifactCache::at(folder)
    }

    /// Opens the cache in a folder.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn at(folder: PathBuf) -> anyhow::Result<ArtifactCache> {
        fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
        Ok(ArtifactCache { folder })
    }

    /// Returns a folder in the cache for files that another program manages.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
        Ok(folder)
    }

    /// Locks a name while its entry is made, so that a second program waits for the entry instead
    /// of making it too.
    ///
    /// # Errors
    /// If the lock cannot be taken.
    pub fn lock(&self, name: &str) -> anyhow::Result<HostLock> {
        let file = format!("{}.lock", name.replace('/', "-"));
        Ok(lock_host(&self.folder("locks")?.join(file), true)?)
    }

    /// Returns the folder of an entry. If it is incomplete, `make` fills an empty folder.
    ///
    /// # Errors
    /// Those of `make`; nothing remains under `key` then.
    pub fn kept(
        &self,
        kind: &str,
        key: &str,
        make: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        let folder = self.folder(kind)?.join(key);
        let _lock = self.lock(&format!("{kind}/{key}"))?;
        match check(&folder) {
            Ok(()) => return Ok(folder),
            Err(CacheMissReason::Absent) => {}
            Err(CacheMissReason::Differs(what)) => {
                eprintln!("{}: {what}; rebuilt", folder.display());
            }
        }
        remove(&folder)?;
        let partial = folder.with_extension("partial");
        remove(&partial)?;
        fs::create_dir_all(&partial)?;
        let made = make(&partial).and_then(|()| write_sums(&partial));
        if let Err(error) = made {
            remove(&partial)?;
            return Err(error);
        }
        fs::rename(&partial, &folder).with_context(|| format!("{}", folder.display()))?;
        Ok(folder)
    }
}

enum CacheMissReason {
    Absent,
    Differs(String),
}

fn check(folder: &Path) -> Result<(), CacheMissReason> {
    if !folder.exists() {
        return Err(CacheMissReason::Absent);
    }
    let differs = |what: &str| CacheMissReason::Differs(what.to_owned());
    let text = fs::read_to_string(folder.join(SUMS)).map_err(|_| differs("has no checksums"))?;
    for line in text.lines() {
        let (sum, name) = line
            .split_once("  ")
            .ok_or_else(|| differs("checksums damaged"))?;
        let is = sum_of(&folder.join(name)).map_err(|e| differs(&format!("{e:#}")))?;
        if is != sum {
            return Err(differs(&format!("{name} is damaged")));
        }
    }
    Ok(())
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            bail!("{}: {e}", folder.display())
        }
        _ => Ok(()),
    }
}

fn write_sums(folder: &Path) -> anyhow::Result<()> {
    let mut names: Vec<String> = fs::read_dir(folder)?
        .map(|e| Ok(e?.file_name().to_string_lossy().into_owned()))
        .collect::<anyhow::Result<_>>()?;
    names.sort();
    let mut text = String::new();
    for name in names {
        writeln!(text, "{}  {name}", sum_of(&folder.join(&name))?)?;
    }
    fs::write(folder.join(SUMS), text)?;
    Ok(())
}

/// Returns the SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// If the file cannot be read.
pub fn sum_of(path: &Path) -> anyhow::Result<String> {
    let mut file = File::open(path).with_context(|| format!("{}", path.display()))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        let got = file.read(&mut buffer)?;
        if got == 0 {
            break;
        }
        digest.update(&buffer[..got]);
    }
    Ok(hex(&digest.finalize()))
}

/// Formats bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(cache: &ArtifactCache, content: &str) -> String {
        let folder = cache
            .kept("things", "a", |folder| {
                Ok(fs::write(folder.join("file"), content)?)
            })
            .unwrap();
        fs::read_to_string(folder.join("file")).unwrap()
    }

    #[test]
    fn what_is_whole_is_kept_and_what_is_damaged_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ArtifactCache::at(folder.path().join("cache")).unwrap();
        assert_eq!(keep(&cache, "one"), "one");
        assert_eq!(keep(&cache, "two"), "one");
        let file = folder.path().join("cache/things/a/file");
        fs::write(&file, "onx").unwrap();
        assert_eq!(keep(&cache, "three"), "three");
        fs::remove_file(&file).unwrap();
        assert_eq!(keep(&cache, "four"), "four");
        fs::remove_file(folder.path().join("cache/things/a/SHA256SUMS")).unwrap();
        assert_eq!(keep(&cache, "five"), "five");
    }

    #[test]
    fn what_could_not_be_made_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ArtifactCache::at(folder.path().to_owned()).unwrap();
        let failed = cache.kept("things", "a", |folder| {
            fs::write(folder.join("half"), "x")?;
            bail!("no room")
        });
        assert!(failed.unwrap_err().to_string().contains("no room"));
        assert_eq!(
            fs::read_dir(folder.path().join("things")).unwrap().count(),
            0
        );
        assert_eq!(keep(&cache, "one"), "one");
    }
}
