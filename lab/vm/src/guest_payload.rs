//! The payload of a guest: the disk with the files of a run, and the scripts that run it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hugeleaf_units::Bytes;

use crate::guest_config::{GuestConfig, GuestConfigFile, GuestSwap, MemorySize};
use crate::image::file_system;
use crate::kernel::set_executable;
use crate::missing_precondition::missing;
use crate::process::{last_lines, program};

const START: &str = include_str!("../guest/start");
const UNIT: &str = include_str!("../guest/hugeleaf-vm.service");

#[derive(Debug)]
pub struct GuestPayload {
    folder: tempfile::TempDir,
    /// The repository on this machine; its files have the same paths inside.
    repository: PathBuf,
}

impl GuestPayload {
    /// Makes an empty payload for a host.
    ///
    /// # Errors
    /// If there is no room.
    pub fn new(host: &GuestConfigFile, repository: &Path) -> anyhow::Result<GuestPayload> {
        let guest = GuestPayload {
            folder: tempfile::tempdir()?,
            repository: repository.to_owned(),
        };
        for part in ["bin", "repository"] {
            fs::create_dir_all(guest.tree().join(part))?;
        }
        let path = repository.display().to_string();
        guest.write("repository-path", &format!("{path}\n"))?;
        guest.write("hugeleaf-vm.service", UNIT)?;
        guest.write("host-name", &host.name)?;
        guest.write("settings", &settings(&host.description))?;
        let files = host.description.settings.iter();
        let lines = files.map(|(file, value)| format!("{file}={value}\n"));
        guest.write("kernel-settings", &lines.collect::<String>())?;
        guest.program("start", START)?;
        Ok(guest)
    }

    fn tree(&self) -> PathBuf {
        self.folder.path().join("payload")
    }

    /// Returns the folder for the files that a run makes.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of the payload.
    ///
    /// # Errors
    /// If there is no room.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.tree().join(name);
        fs::write(&path, text).with_context(|| format!("{}", path.display()))
    }

    fn program(&self, name: &str, text: &str) -> anyhow::Result<()> {
        self.write(name, text)?;
        set_executable(&self.tree().join(name))
    }

    /// Sets the shell lines of the boot with this number (from 1).
    ///
    /// # Errors
    /// If there is no room.
    pub fn phase(&self, boot: usize, lines: &str) -> anyhow::Result<()> {
        self.program(&format!("phase-{boot}"), &format!("#!/bin/sh\n{lines}\n"))
    }

    /// Starts a shell on the console instead.
    ///
    /// # Errors
    /// If there is no room.
    pub fn shell(&self) -> anyhow::Result<()> {
        let console = "#!/bin/sh\nexec setsid -c -w /bin/bash </dev/console >/dev/console 2>&1\n";
        self.program("shell", console)
    }

    /// Adds a program or file of this machine to a folder of the payload.
    ///
    /// # Errors
    /// If it cannot be read, or there is no room.
    pub fn add(&self, file: &Path, folder: &str) -> anyhow::Result<()> {
        let to = self.tree().join(folder);
        fs::create_dir_all(&to)?;
        let name = file.file_name().context("a file has a name")?;
        fs::copy(file, to.join(name)).with_context(|| format!("{}", file.display()))?;
        Ok(())
    }

    /// Adds an empty folder of the repository, at the same path.
    ///
    /// # Errors
    /// As [`GuestPayload::add_of_repository`].
    pub fn folder_of_repository(&self, path: &Path) -> anyhow::Result<()> {
        let to = self.of_repository(path)?;
        fs::create_dir_all(&to).with_context(|| to.display().to_string())
    }

    /// Adds a file or folder of the repository, at the same path.
    ///
    /// # Errors
    /// If it is outside the repository, cannot be read, or there is no room.
    pub fn add_of_repository(&self, path: &Path) -> anyhow::Result<PathBuf> {
        let to = self.of_repository(path)?;
        copy_tree(path, &to).with_context(|| format!("{}", path.display()))?;
        Ok(to)
    }

    /// Returns the place of a repository path in the tree of the disk.
    fn of_repository(&self, path: &Path) -> anyhow::Result<PathBuf> {
        let inside = path
            .strip_prefix(&self.repository)
            .with_context(|| format!("{} is not in the repository", path.display()))?;
        Ok(self.tree().join("repository").join(inside))
    }

    /// Runs a script of the repository that makes further files. Its arguments are their folder and the program hugeleaf.
    ///
    /// # Errors
    /// [`MissingPrecondition`](crate::missing_precondition::MissingPrecondition) with the last line that it printed, if it
    /// ended with status 3; otherwise if it failed.
    pub fn files_by(&self, script: &str, hugeleaf: &Path) -> anyhow::Result<()> {
        let folder = self.tree().join("files");
        fs::create_dir_all(&folder)?;
        let mut command = program(self.repository.join(script), &[&*folder, hugeleaf]);
        let out = command
            .current_dir(&self.repository)
            .output()
            .with_context(|| script.to_owned())?;
        let said = String::from_utf8_lossy(&out.stderr);
        match out.status.code() {
            Some(0) => Ok(()),
            Some(3) => {
                let reason = last_lines(&said, 1);
                let (what, remedy) = reason.split_once("; ").unwrap_or((&reason, "see above"));
                Err(missing(what, remedy))
            }
            _ => bail!("{script}: {}\n{}", out.status, last_lines(&said, 15)),
        }
    }

    /// Makes the disk of the payload.
    ///
    /// # Errors
    /// If there is no room.
    pub fn disk(&self) -> anyhow::Result<PathBuf> {
        let image = self.folder.path().join("payload.disk");
        file_system(&self.tree(), &image, "payload", MemorySize(Bytes(0)))?;
        Ok(image)
    }
}

fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    if !from.is_dir() {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(from, to)?;
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_tree(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Returns the settings of the host that `start` reads.
fn settings(host: &GuestConfig) -> String {
    let zram = match host.swap {
        Some(GuestSwap::Zram(size)) => size.0.get().to_string(),
        _ => String::new(),
    };
    format!(
        "CGROUP={}\nDEBUGFS={}\nZRAM={zram}\n",
        host.cgroup,
        if host.debugfs { "yes" } else { "no" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_repository_keep_their_path() {
        let repository = tempfile::tempdir().unwrap();
        let deep = repository.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("c"), "text").unwrap();
        let text = "title = 'x'\narchitecture = 'arm64'\nuserland = 'small'\nmemory = '1G'\n\
            kernel = { suite = 'a', package = 'b' }\nswap = { zram = '64M' }\ndebugfs = false\n\
            settings = { '/sys/a' = 'never' }\n";
        let host = GuestConfigFile::parse("h", text).unwrap();
        let guest = GuestPayload::new(&host, repository.path()).unwrap();
        guest
            .add_of_repository(&repository.path().join("a"))
            .unwrap();
        let copy = guest.tree().join("repository/a/b/c");
        assert_eq!(fs::read_to_string(copy).unwrap(), "text");
        assert!(
            guest
                .add_of_repository(Path::new("/elsewhere/file"))
                .is_err()
        );
        let settings = fs::read_to_string(guest.tree().join("settings")).unwrap();
        assert_eq!(settings, "CGROUP=2\nDEBUGFS=no\nZRAM=67108864\n");
        let written = fs::read_to_string(guest.tree().join("kernel-settings")).unwrap();
        assert_eq!(written, "/sys/a=never\n");
    }

    #[test]
    fn a_script_adds_files_or_says_what_is_missing() {
        let repository = tempfile::tempdir().unwrap();
        let text = "title = 'x'\narchitecture = 'x86-64'\nuserland = 'small'\nmemory = '1G'\n\
            kernel = { suite = 'a', package = 'b' }\n";
        let host = GuestConfigFile::parse("h", text).unwrap();
        let guest = GuestPayload::new(&host, repository.path()).unwrap();
        let run = |lines: &str| {
            let script = repository.path().join("make");
            fs::write(&script, format!("#!/bin/sh\n{lines}\n")).unwrap();
            set_executable(&script).unwrap();
            guest.files_by("make", Path::new("/bin/true"))
        };
        run("echo text >$1/made && [ -x $2 ]").unwrap();
        let made = fs::read_to_string(guest.tree().join("files/made")).unwrap();
        assert_eq!(made, "text\n");
        let error = run("echo 'no kubelet; build it' >&2; exit 3").unwrap_err();
        let missing = error
            .downcast::<crate::missing_precondition::MissingPrecondition>()
            .unwrap();
        assert_eq!(
            (missing.what.as_str(), missing.remedy.as_str()),
            ("no kubelet", "build it")
        );
        let error = run("echo broken >&2; exit 1").unwrap_err();
        assert!(error.to_string().contains("broken"), "{error:#}");
    }
}
