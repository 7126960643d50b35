//! Runs in guests: a user's command, and the tests of a host.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;

use crate::cache::ArtifactCache;
use crate::guest_config::{GuestConfig, GuestConfigFile};
use crate::guest_payload::GuestPayload;
use crate::image::{self, userlands};
use crate::kernel::{self, BootFiles};
use crate::process::{output, program};
use crate::programs::{GuestPrograms, TestProgram, scratch};
use crate::qemu::{GuestExit, Machine, to_stdout};
use crate::results::{ANNOUNCED, GuestTestResults, parse};

/// The repository, the cache, and the flag that ends a run early.
#[derive(Debug)]
pub struct GuestRunner {
    pub repository: PathBuf,
    pub cache: ArtifactCache,
    /// Set when this program was asked to end.
    pub stop: Arc<AtomicBool>,
}

/// A user's command to run in a guest.
#[derive(Debug)]
pub struct GuestCommand {
    /// The command, as lines of a shell.
    pub line: String,
    /// Files of this machine to put on the path inside.
    pub add: Vec<PathBuf>,
    /// Time after which the guest is ended.
    pub limit: Duration,
    /// Destination of the files left in `/out`.
    pub files: Option<PathBuf>,
}

#[derive(Debug)]
pub struct GuestImages {
    pub kernel: BootFiles,
    pub root: PathBuf,
    /// A 32-bit program, if one could be fetched.
    pub busybox_32: Option<PathBuf>,
}

impl GuestImages {
    fn machine<'a>(
        &'a self,
        host: &'a GuestConfig,
        payload: &'a Path,
        guest: &'a GuestPayload,
    ) -> Machine<'a> {
        Machine {
            host,
            kernel: &self.kernel,
            root: &self.root,
            payload,
            folder: guest.folder(),
        }
    }
}

impl GuestRunner {
    /// Returns all hosts: those of the repository, or of the folder in `HUGELEAF_VM_HOSTS`.
    ///
    /// # Errors
    /// If the file of a host is invalid.
    pub fn hosts(&self) -> anyhow::Result<Vec<GuestConfigFile>> {
        let folder = std::env::var_os("HUGELEAF_VM_HOSTS").map(PathBuf::from);
        GuestConfigFile::all(&folder.unwrap_or_else(|| self.repository.join("lab/vm/hosts")))
    }

    /// Fetches the kernel and userland of a host, or returns the cached ones.
    ///
    /// # Errors
    /// [`MissingPrecondition`](crate::missing_precondition::MissingPrecondition) if something is unavailable here.
    pub fn prepare(&self, host: &GuestConfigFile) -> anyhow::Result<GuestImages> {
        let d = &host.description;
        let all = userlands(&self.repository.join("lab/vm/userlands.toml"))?;
        let userland = all
            .get(&d.userland)
            .with_context(|| format!("there is no userland {}", d.userland))?;
        Ok(GuestImages {
            kernel: kernel::bootable(&self.cache, &d.kernel, d.architecture)?,
            root: image::disk(&self.cache, &d.userland, userland, d.architecture)?,
            busybox_32: kernel::busybox_32(&self.cache, &userland.suite, d.architecture)
                .inspect_err(|error| eprintln!("no program of 32 bits: {error:#}"))
                .ok(),
        })
    }

    fn guest(
        &self,
        host: &GuestConfigFile,
        programs: &GuestPrograms,
        prepared: &GuestImages,
    ) -> anyhow::Result<GuestPayload> {
        let guest = GuestPayload::new(host, &self.repository)?;
        programs.add_to(&guest, &self.repository)?;
        if let Some(program) = &prepared.busybox_32 {
            guest.add(program, "bin")?;
        }
        if let Some(script) = &host.description.files {
            guest.files_by(script, &programs.hugeleaf)?;
        }
        Ok(guest)
    }

    /// Runs a user's command, and copies the files in `/out` back to the host.
    ///
    /// # Errors
    /// If something is missing or the guest did not run to its end.
    pub fn command(
        &self,
        host: &GuestConfigFile,
        programs: &GuestPrograms,
        errand: &GuestCommand,
    ) -> anyhow::Result<i32> {
        let prepared = self.prepare(host)?;
        let guest = self.guest(host, programs, &prepared)?;
        for file in &errand.add {
            guest.add(file, "bin")?;
        }
        guest.phase(1, &errand.line)?;
        let payload = guest.disk()?;
        let mut one_boot = host.description.clone();
        one_boot.tests.truncate(1);
        let machine = prepared.machine(&one_boot, &payload, &guest);
        let ended = machine.run(errand.limit, &self.stop, to_stdout)?;
        if let Some(folder) = &errand.files {
            machine.files(folder)?;
        }
        ended.status()
    }

    /// Starts a shell on the guest's console.
    ///
    /// # Errors
    /// If something is missing.
    pub fn shell(&self, host: &GuestConfigFile, programs: &GuestPrograms) -> anyhow::Result<()> {
        let prepared = self.prepare(host)?;
        let guest = self.guest(host, programs, &prepared)?;
        guest.shell()?;
        let payload = guest.disk()?;
        let machine = prepared.machine(&host.description, &payload, &guest);
        machine.with_a_person()
    }

    /// Runs a host's tests.
    ///
    /// # Errors
    /// If something is missing. A guest that did not run to its end is not an error here; [`GuestExit`]
    /// then says how it ended.
    pub fn tests(
        &self,
        host: &GuestConfigFile,
        programs: &GuestPrograms,
    ) -> anyhow::Result<(GuestTestResults, GuestExit)> {
        let d = &host.description;
        let prepared = self.prepare(host)?;
        let guest = self.guest(host, programs, &prepared)?;
        for (boot, tests) in d.tests.iter().enumerate() {
            guest.phase(boot + 1, &phase(&guest, programs, tests)?)?;
        }
        let payload = guest.disk()?;
        let machine = prepared.machine(d, &payload, &guest);
        let limit = Duration::from_secs(d.time_limit_seconds);
        let ended = machine.run(limit, &self.stop, |_| ())?;
        let files = self.repository.join("target/vm").join(&host.name);
        // Files of an earlier run must not remain among them.
        let _ = std::fs::remove_dir_all(&files);
        machine.files(&files)?;
        let result = GuestTestResults {
            host: host.name.clone(),
            title: d.title.clone(),
            kernel: prepared.kernel.release.clone(),
            date: output(&mut program("date", &["-u", "+%F"]))?
                .trim()
                .to_owned(),
            seconds_to_boot: ended.seconds.0,
            seconds: ended.seconds.1,
            tests: parse(&ended.output),
        };
        Ok((result, ended))
    }
}

/// Returns the test programs of some hosts.
///
/// # Errors
/// If the file of a host names one in another form.
pub fn programs_of<'a>(
    hosts: impl IntoIterator<Item = &'a GuestConfigFile>,
) -> anyhow::Result<Vec<TestProgram>> {
    let mut all = Vec::new();
    for host in hosts {
        for line in host.description.tests.iter().flatten() {
            let name = line.split(' ').next().unwrap_or(line);
            all.push(TestProgram::parse(name).with_context(|| host.name.clone())?);
        }
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// Returns the lines that run the tests of one boot.
fn phase(
    guest: &GuestPayload,
    programs: &GuestPrograms,
    tests: &[String],
) -> anyhow::Result<String> {
    let mut lines =
        "export RUST_TEST_THREADS=1 RUST_BACKTRACE=1 HUGELEAF_CAPTURES=/out/captured\nstatus=0\n"
            .to_owned();
    for line in tests {
        let (name, filter) = line.split_once(' ').unwrap_or((line, ""));
        let path = programs.add_test(guest, &TestProgram::parse(name)?)?;
        let scratch = scratch(&path);
        let (program, scratch) = (path.display(), scratch.display());
        lines.push_str(&format!(
            "grep -q ' {scratch} ' /proc/mounts || mount -t tmpfs scratch {scratch}\n\
             echo '{ANNOUNCED}{name}'\n{program} --show-output {filter} 2>/tmp/stderr || status=1\n\
             cat /tmp/stderr\n"
        ));
    }
    lines.push_str("exit $status\n");
    Ok(lines)
}
