//! `hugeleaf balance`, started as by a user, with a file that names the two servers.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hugeleaf_units::Bytes;
use hugeleaf_workload::child;
use rustix::process::{Pid, Signal, kill_process};

use super::AmmSettings;
use super::arm::AmmPages;
use super::load::NAMES;
use hugeleaf_proof::bench::BenchError;
use hugeleaf_proof::write_whole;

/// A running `hugeleaf balance`; it is ended when dropped.
pub(super) struct BalanceProcess {
    child: Child,
    log: PathBuf,
}

const BELOW: &str = "name a writable folder with free space: --below DIR";

const PATIENCE: Duration = Duration::from_secs(20);

impl BalanceProcess {
    /// Starts it with its file and its output in a folder. Its target is of whole processes, and that
    /// of an arm is of buffer pools. `programs`, the memory of the servers besides their buffer
    /// pools, is therefore added, so that all arms have the same size of buffer pools.
    pub(super) fn start(
        (settings, program): (&AmmSettings, &Path),
        (pages, programs): (AmmPages, Bytes),
        addresses: [String; 2],
        folder: &Path,
    ) -> Result<BalanceProcess, BenchError> {
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |e: std::io::Error| BenchError::missing(format!("bench amm: {path}: {e}"), BELOW)
        };
        let (config, log) = (folder.join("balance.toml"), folder.join("balance.log"));
        write_whole(&config, &text(settings, (pages, programs), addresses))
            .map_err(|e| BenchError::missing(format!("bench amm: {e}"), BELOW))?;
        let out = File::create_new(&log).map_err(failed(&log))?;
        let err = out.try_clone().map_err(failed(&log))?;
        // setpriv(1), of the same package as mount, ends it together with this process in all cases.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]).arg(program);
        command.arg("balance").arg("--config").arg(&config);
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .map_err(failed(program))?;
        Ok(BalanceProcess { child, log })
    }

    /// Ends it and returns its log.
    pub(super) fn end(self) -> String {
        let log = self.log.clone();
        drop(self);
        std::fs::read_to_string(log).unwrap_or_default()
    }

    /// Returns an error with its last output if it has ended.
    pub(super) fn check(&mut self) -> Result<(), BenchError> {
        let Ok(Some(status)) = self.child.try_wait() else {
            return Ok(());
        };
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        let said = line("hugeleaf: ").or(last).unwrap_or("no output");
        Err(BenchError::missing(
            format!("bench amm: hugeleaf balance ended ({status}): {said}"),
            line("  next: ").unwrap_or("hugeleaf-lab amm --arms manual:large,manual:base"),
        ))
    }
}

impl Drop for BalanceProcess {
    fn drop(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            if let (Some(pid), Ok(None)) = (pid, self.child.try_wait()) {
                let _ = kill_process(pid, signal);
            }
            if child::wait(&mut self.child, PATIENCE).is_some() {
                return;
            }
        }
    }
}

fn text(
    settings: &AmmSettings,
    (pages, programs): (AmmPages, Bytes),
    addresses: [String; 2],
) -> String {
    let pages = match pages {
        AmmPages::Base => "base",
        AmmPages::Large | AmmPages::Hugetlb => "large",
    };
    let (target, least) = (settings.target, settings.least);
    let most = Bytes(target.get() - least.get());
    let every = settings.every.as_millis();
    let mut text = format!(
        "schema = 1\n\n[[balance]]\nname = \"amm\"\ntarget = \"{}\"\naction = \"balance\"\n\
         every = \"{every}ms\"\npages = \"{pages}\"\n",
        (target + programs).get()
    );
    for (name, address) in NAMES.iter().zip(addresses) {
        text.push_str(&format!(
            "\n  [[balance.component]]\n  name = \"{name}\"\n  kind = \"mariadb\"\n  \
             address = \"{address}\"\n  least = \"{}\"\n  most = \"{}\"\n",
            least.get(),
            most.get()
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_file_holds_the_target_and_both_servers() {
        let settings = AmmSettings {
            arms: Vec::new(),
            loads: Vec::new(),
            target: Bytes::from_mib(64),
            least: Bytes::from_mib(8),
            phase: Duration::from_secs(1),
            settle: Duration::from_secs(1),
            every: Duration::from_secs(2),
            connections: 1,
            warehouses: None,
            shrink: 1,
            durability: crate::kits::tpcc::Durability::Soon,
            rounds: 1,
            parent_folder: PathBuf::new(),
            seed: 1,
        };
        let addresses = ["mysql://root@localhost/?socket=/a", "mysql://x"];
        let programs = Bytes::from_mib(1);
        let text = text(
            &settings,
            (AmmPages::Large, programs),
            addresses.map(str::to_owned),
        );
        for line in [
            "schema = 1",
            "target = \"68157440\"",
            "every = \"2000ms\"",
            "pages = \"large\"",
            "  name = \"b\"",
            "  address = \"mysql://root@localhost/?socket=/a\"",
            "  least = \"8388608\"",
            "  most = \"58720256\"",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}: {text}");
        }
        assert_eq!(text.matches("kind = \"mariadb\"").count(), 2);
    }
}
