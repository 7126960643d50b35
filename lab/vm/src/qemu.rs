//! A guest under QEMU: started, watched, and ended at its limit.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::architecture::Architecture;
use crate::guest_config::{GuestConfig, GuestSwap};
use crate::kernel::BootFiles;
use crate::process::{last_lines, need, output, program};

/// Size of the disk for the files that a guest returns, in bytes.
const FILES: u64 = 256 << 20;

/// The accelerator that works on all machines, with one thread for all processors of a guest. With one
/// thread each, a processor may still run a breakpoint that another has removed from the kernel's text.
/// 6.12 panicked for this reason when `trace` began (`exceptions:page_fault_user` is a static key).
const EMULATED: &str = "tcg,thread=single";

/// Maximum output of a guest in bytes, on its console or elsewhere, before it is ended.
const PRINTED: u64 = 64 << 20;

const PANIC: &str = "Kernel panic - not syncing";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReason {
    /// All phases ran to their end, with these exit statuses.
    Done(Vec<i32>),
    TimedOut,
    Panicked,
    TooMuchOutput,
    /// It shut down before the end.
    ShutDownEarly,
    Interrupted,
}

#[derive(Debug)]
pub struct GuestExit {
    pub how: EndReason,
    pub output: String,
    pub console: String,
    /// Seconds until the first program ran, and in total.
    pub seconds: (f64, f64),
}

impl GuestExit {
    /// Returns the exit status of the run: that of the first phase that failed.
    ///
    /// # Errors
    /// If it did not run to its end; the error contains the last lines of the console.
    pub fn status(&self) -> anyhow::Result<i32> {
        let why = match &self.how {
            EndReason::Done(statuses) => {
                return Ok(statuses.iter().copied().find(|s| *s != 0).unwrap_or(0));
            }
            EndReason::TimedOut => "did not end within its limit",
            EndReason::Panicked => "its kernel panicked",
            EndReason::TooMuchOutput => "printed too much",
            EndReason::ShutDownEarly => "shut down before the end",
            EndReason::Interrupted => "interrupted",
        };
        bail!("{why}; its console's last lines:\n{}", self.console)
    }
}

#[derive(Debug)]
pub struct Machine<'a> {
    pub host: &'a GuestConfig,
    pub kernel: &'a BootFiles,
    /// Disk of its userland; it is not written to.
    pub root: &'a Path,
    /// Disk with the files of the run.
    pub payload: &'a Path,
    /// Folder for the files that the run makes.
    pub folder: &'a Path,
}

impl Machine<'_> {
    /// Returns the command that starts it, interactive or watched.
    ///
    /// # Errors
    /// [`MissingPrecondition`](crate::missing_precondition::MissingPrecondition) if QEMU is not installed.
    fn command(&self, person: bool) -> anyhow::Result<Command> {
        let architecture = self.host.architecture;
        let emulator = need(architecture.emulator(), architecture.emulator_package())?;
        // QEMU must never outlive this program, even if this program has ended before the signal was
        // requested from the kernel.
        let mut command = program(
            need("setpriv", "util-linux")?,
            &["--pdeathsig", "KILL", "--", "sh", "-c"],
        );
        command.arg("[ \"$PPID\" = \"$0\" ] || exit 1; exec \"$@\"");
        command.arg(std::process::id().to_string()).arg(emulator);
        let accelerator = std::env::var("HUGELEAF_VM_ACCELERATOR");
        command.args(["-accel", accelerator.as_deref().unwrap_or(EMULATED)]);
        match architecture {
            Architecture::X86 => command.args(["-M", "q35", "-cpu", "max"]),
            Architecture::Arm => {
                command.args(["-M", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on"])
            }
        };
        if self.host.counts_instructions {
            command.args(["-icount", "shift=0"]);
        }
        command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
        command.args(["-nic", "none", "-device", "virtio-serial-pci"]);
        // A reboot ends QEMU, and the next boot is another QEMU on the same disk. Kernels of 6.1 hang
        // if an emulated machine of several processors is only reset.
        command.arg("-no-reboot");
        command.args(["-m", &mebibytes(self.host.memory.0.get())]);
        command.args(["-smp", &self.host.processors.to_string()]);
        self.nodes(&mut command);
        command.arg("-kernel").arg(&self.kernel.image);
        command.arg("-initrd").arg(&self.kernel.ram_disk);
        command.args(["-append", &self.kernel_words()]);
        self.disks(&mut command)?;
        if person {
            command
                .args(["-serial", "mon:stdio"])
                .stdin(Stdio::inherit());
        } else {
            command.args(["-serial", "chardev:console"]);
            command.arg("-chardev").arg(self.kept_in("console"));
        }
        for port in ["output", "report"] {
            command.arg("-chardev").arg(self.kept_in(port));
            command.arg("-device");
            command.arg(format!(
                "virtserialport,chardev={port},name=hugeleaf.{port}"
            ));
        }
        Ok(command)
    }

    /// Returns the options for output to a file, appended to the output of earlier boots.
    fn kept_in(&self, name: &str) -> String {
        let path = self.folder.join(name);
        format!("file,id={name},path={},append=on", path.display())
    }

    fn nodes(&self, command: &mut Command) {
        let count = self.host.nodes.len();
        for (node, size) in self.host.nodes.iter().enumerate() {
            let mut description = format!("node,nodeid={node}");
            if size.0.get() != 0 {
                command.arg("-object");
                command.arg(format!(
                    "memory-backend-ram,id=memory{node},size={}",
                    mebibytes(size.0.get())
                ));
                description.push_str(&format!(",memdev=memory{node}"));
            }
            for processor in 0..self.host.processors as usize {
                if processor % count == node {
                    description.push_str(&format!(",cpus={processor}"));
                }
            }
            command.args(["-numa", &description]);
        }
    }

    fn kernel_words(&self) -> String {
        let first = if self.host.systemd {
            "systemd"
        } else {
            "start"
        };
        let mut words = vec![
            format!("console={}", self.host.architecture.console()),
            "quiet".to_owned(),
            "panic=-1".to_owned(),
            format!("hugeleaf.first={first}"),
        ];
        if self.host.architecture == Architecture::X86 {
            // On a busy machine the emulated timer may be too late for the kernel's test of it, which
            // then panics.
            words.push("no_timer_check".to_owned());
        }
        let mut modules = self.host.modules.clone();
        if matches!(self.host.swap, Some(GuestSwap::Zram(_))) {
            // Its default compressor is a module of its own on some kernels.
            modules.extend(["lzo_rle", "zram"].map(str::to_owned));
        }
        if !modules.is_empty() {
            words.push(format!("hugeleaf.modules={}", modules.join(",")));
        }
        words.extend(self.host.command_line.iter().cloned());
        words.join(" ")
    }

    fn disks(&self, command: &mut Command) -> anyhow::Result<()> {
        let files = self.empty_disk("files", FILES)?;
        // Writes are kept for the next boot if there is one, and discarded otherwise.
        let root = match self.host.tests.len() {
            0 | 1 => ("root", self.root.to_owned(), "snapshot=on"),
            _ => ("root", self.own_root()?, "cache=unsafe"),
        };
        let mut disks = vec![
            root,
            ("payload", self.payload.to_owned(), "readonly=on"),
            ("files", files, "cache=writeback"),
        ];
        if let Some(GuestSwap::Disk(size)) = self.host.swap {
            disks.push((
                "swap",
                self.empty_disk("swap", size.0.get())?,
                "cache=unsafe",
            ));
        }
        for (name, file, how) in disks {
            command.arg("-drive");
            command.arg(format!(
                "file={},if=none,id={name},format=raw,{how}",
                file.display()
            ));
            command.arg("-device");
            command.arg(format!("virtio-blk-pci,drive={name},serial={name}"));
        }
        Ok(())
    }

    fn own_root(&self) -> anyhow::Result<PathBuf> {
        let path = self.folder.join("root.disk");
        if !path.exists() {
            let arguments = ["--reflink=auto", "--sparse=always", "--"];
            output(program("cp", &arguments).arg(self.root).arg(&path))?;
        }
        Ok(path)
    }

    fn empty_disk(&self, name: &str, bytes: u64) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(format!("{name}.disk"));
        File::create(&path)?.set_len(bytes)?;
        Ok(path)
    }

    /// Runs a guest interactively on its console.
    ///
    /// # Errors
    /// If QEMU is missing or does not start.
    pub fn with_a_person(&self) -> anyhow::Result<()> {
        let mut command = self.command(true)?;
        // QEMU's own messages belong on the screen.
        let status = command.status().context("QEMU")?;
        if !status.success() {
            bail!("QEMU ended in {status}");
        }
        Ok(())
    }

    /// Runs it to its end, or to its limit. Its output is passed to `each` as it arrives.
    ///
    /// # Errors
    /// If QEMU is missing or does not start.
    pub fn run(
        &self,
        limit: Duration,
        stop: &Arc<AtomicBool>,
        mut each: impl FnMut(&[u8]),
    ) -> anyhow::Result<GuestExit> {
        for name in ["console", "output", "report", "qemu"] {
            fs::write(self.folder.join(name), "")?;
        }
        let mut watch = OutputWatch {
            start: Instant::now(),
            booted: None,
            output: FileFollower::open(&self.folder.join("output"))?,
            console: FileFollower::open(&self.folder.join("console"))?,
            recent: String::new(),
            panicked: false,
        };
        let mut went_down = None;
        let boots = self.host.tests.len().max(1);
        for boot in 1..=boots {
            went_down = self.boot(&mut watch, limit, stop, &mut each)?;
            let report = self.text("report");
            let is_due = report.contains(&format!("ended {boot} ")) && !is_done(&report);
            if went_down.is_some() || !is_due {
                break;
            }
        }
        let report = self.text("report");
        let console = self.text("console") + &self.text("qemu");
        let booted = watch.booted.unwrap_or_default();
        Ok(GuestExit {
            how: went_down.unwrap_or_else(|| how_of(&report, boots)),
            output: self.text("output"),
            console: last_words(&console),
            seconds: (booted.as_secs_f64(), watch.start.elapsed().as_secs_f64()),
        })
    }

    /// Runs one QEMU from its start to its end; returns how it ended, unless it ended regularly.
    fn boot(
        &self,
        watch: &mut OutputWatch,
        limit: Duration,
        stop: &AtomicBool,
        each: &mut impl FnMut(&[u8]),
    ) -> anyhow::Result<Option<EndReason>> {
        let mut command = self.command(false)?;
        command
            .stdout(Stdio::null())
            .stderr(File::create(self.folder.join("qemu"))?);
        let mut qemu = QemuProcess(command.spawn().context("QEMU")?);
        loop {
            let status = qemu.0.try_wait()?;
            watch.read_report(&self.text("report"), each)?;
            if watch.panicked {
                // Time for the rest of its last output.
                std::thread::sleep(Duration::from_millis(500));
                return Ok(Some(EndReason::Panicked));
            }
            if let Some(status) = status {
                return Ok((!status.success()).then_some(EndReason::ShutDownEarly));
            }
            if watch.output.passed.max(watch.console.passed) > PRINTED {
                return Ok(Some(EndReason::TooMuchOutput));
            }
            if watch.start.elapsed() > limit {
                return Ok(Some(EndReason::TimedOut));
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(Some(EndReason::Interrupted));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn text(&self, name: &str) -> String {
        let bytes = fs::read(self.folder.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Unpacks the files that the guest returned; returns false if there were none.
    ///
    /// # Errors
    /// If they are damaged or there is no room.
    pub fn files(&self, into: &Path) -> anyhow::Result<bool> {
        if !self.text("report").lines().any(|line| line == "files") {
            return Ok(false);
        }
        fs::create_dir_all(into)?;
        let arguments = ["--no-same-owner", "--no-same-permissions", "-xf"];
        let disk = self.folder.join("files.disk");
        output(program("tar", &arguments).arg(disk).arg("-C").arg(into))?;
        Ok(true)
    }
}

/// Returns the end of a run by the guest's report: it is done if its last line says so.
fn how_of(report: &str, phases: usize) -> EndReason {
    let statuses: Vec<i32> = report
        .lines()
        .filter_map(|line| line.strip_prefix("ended "))
        .filter_map(|rest| rest.split(' ').nth(1)?.parse().ok())
        .collect();
    if is_done(report) && statuses.len() >= phases {
        EndReason::Done(statuses)
    } else {
        EndReason::ShutDownEarly
    }
}

/// Returns the last lines of a console, with the reason of a panic, which precedes them.
fn last_words(console: &str) -> String {
    let last = last_lines(console, 20);
    match console.lines().find(|line| line.contains(PANIC)) {
        Some(why) if !last.contains(why) => format!("{why}\n…\n{last}"),
        _ => last,
    }
}

fn is_done(report: &str) -> bool {
    report.lines().any(|line| line == "done")
}

fn mebibytes(bytes: u64) -> String {
    format!("{}M", bytes >> 20)
}

/// QEMU, ended and reaped when it is dropped.
struct QemuProcess(Child);

impl Drop for QemuProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct OutputWatch {
    start: Instant,
    booted: Option<Duration>,
    output: FileFollower,
    console: FileFollower,
    recent: String,
    panicked: bool,
}

impl OutputWatch {
    fn read_report(&mut self, report: &str, each: &mut impl FnMut(&[u8])) -> anyhow::Result<()> {
        self.output.pass_on(each)?;
        let (recent, panicked) = (&mut self.recent, &mut self.panicked);
        self.console.pass_on(|new| {
            recent.push_str(&String::from_utf8_lossy(new));
            *panicked |= recent.contains(PANIC);
            // The next output may be the rest of the line.
            *recent = last_lines(recent, 1);
        })?;
        if self.booted.is_none() && report.starts_with("boot ") {
            self.booted = Some(self.start.elapsed());
        }
        Ok(())
    }
}

/// The output added to a file since the last read.
struct FileFollower {
    file: File,
    passed: u64,
}

impl FileFollower {
    fn open(path: &Path) -> anyhow::Result<FileFollower> {
        let file = File::open(path)?;
        Ok(FileFollower { file, passed: 0 })
    }

    fn pass_on(&mut self, mut each: impl FnMut(&[u8])) -> anyhow::Result<()> {
        let mut new = Vec::new();
        // A guest that never stops printing must not fill this program's memory.
        (&self.file).take(PRINTED).read_to_end(&mut new)?;
        if !new.is_empty() {
            self.passed += new.len() as u64;
            each(&new);
        }
        Ok(())
    }
}

/// Writes a guest's output to standard output.
pub fn to_stdout(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_guest_that_says_so_is_done() {
        let report = "boot 1 6.1.0\nended 1 0\nboot 2 6.1.0\nended 2 7\nfiles\ndone\n";
        assert_eq!(how_of(report, 2), EndReason::Done(vec![0, 7]));
        assert_eq!(how_of(report, 3), EndReason::ShutDownEarly);
        assert_eq!(
            how_of("boot 1 6.1.0\nended 1 0\n", 1),
            EndReason::ShutDownEarly
        );
        assert_eq!(how_of("", 1), EndReason::ShutDownEarly);
    }

    #[test]
    fn a_panic_is_shown_with_its_reason() {
        let trace = "[1] trace\n".repeat(30);
        let console = format!("[0] Kernel panic - not syncing: no root\n{trace}[2] end\n");
        let words = last_words(&console);
        assert!(words.starts_with("[0] Kernel panic - not syncing: no root\n…\n"));
        assert!(words.ends_with("[2] end"), "{words}");
        assert_eq!(last_words("a\nb\n"), "a\nb");
    }

    #[test]
    fn a_run_that_did_not_end_shows_its_console() {
        let ended = GuestExit {
            how: EndReason::Panicked,
            output: String::new(),
            console: "last words".to_owned(),
            seconds: (0.0, 0.0),
        };
        let text = format!("{:#}", ended.status().unwrap_err());
        assert!(text.contains("panicked") && text.contains("last words"));
    }
}
