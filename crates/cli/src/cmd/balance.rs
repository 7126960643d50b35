//! Implements `hugeleaf balance`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hugeleaf_balancer::{BalanceStatus, Controller, KINDS, LogEvent, RunContext, run as balance};
use hugeleaf_guard::{GuardPaths, balance_lock};
use hugeleaf_report::balance as views;
use hugeleaf_report::json::answer;
use serde_json::json;

use super::guard::files_of;
use crate::context::{CommandStatus, Context, Failure, print_stderr};
use crate::progress::Bar;

/// Maximum duration of a single pass, which waits for moves in progress.
const PASS: Duration = Duration::from_secs(120);
/// Minimum number of scans in a pass. Counters need several, and a move must look worthwhile for
/// two seconds.
const MIN_SCANS: u32 = 4;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hugeleaf balance --once --dry-run     value of memory to each server, and planned transfers
  hugeleaf balance --config FILE        balance by these rules until stopped
  hugeleaf guard                        balances too, by the same rules
  hugeleaf guard status                 state of the targets if the guard runs

A [[balance]] section in /etc/hugeleaf/guard.toml names a target and its servers (mariadb, redis,
memcached, jvm, postgresql); see docs/guide/balance.md. Memory is transferred in small measured
steps from the server that loses least to the one that gains most. A server gets memory only after
the other has released it, and the new memory is promoted to huge pages. When balance ends, for
whatever reason, the servers keep their sizes.

Exit status: 0 done; 1 with --once: a server did not answer, a resize failed or was still in
progress after two minutes, or the pass was stopped; 2 wrong usage, or errors in the rules; 3 a
precondition is missing: no rule names a target, or another balancer runs.")]
pub struct Args {
    /// Rules file [default: /etc/hugeleaf/guard.toml and guard.d/*.toml next to it]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Make one pass: transfer memory where it pays off now, and exit
    #[arg(long)]
    once: bool,
    /// Print the planned changes; change nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    context.need_live("balance")?;
    let config = files_of(args.config.as_ref(), args.dry_run).read()?;
    if config.targets.is_empty() {
        let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name()).collect();
        return Err(Failure::missing(
            "no rule names a memory target",
            format!(
                "add a [[balance]] to /etc/hugeleaf/guard.toml ({}): docs/guide/balance.md",
                kinds.join(", ")
            ),
        ));
    }
    let host = context.host()?;
    let folder = GuardPaths::default().run;
    // A dry run changes nothing, so it needs no lock.
    let _lock = match args.dry_run {
        true => None,
        false => Some(lock(&folder)?),
    };
    context.stop_on_signals()?;
    let statuses = Mutex::new(Vec::new());
    let is_shown = !args.once && !context.json;
    let bar = args.once.then(|| Bar::spinner("measuring the servers"));
    let pass = BalancePassResult::default();
    let say = |said: LogEvent| {
        let has_failed = said.what == "failed";
        pass.has_failed.fetch_or(has_failed, Ordering::Relaxed);
        if is_shown || has_failed {
            let line = format!("{}: {}: {}", said.what, said.name, said.text);
            match &bar {
                Some(bar) => bar.say(&line),
                None => print_stderr(&line),
            }
        }
    };
    let enough = |core: &Controller, now: Duration| args.once && pass.ends(core, now);
    let all = RunContext {
        root: &context.root,
        kernel: &context.kernel,
        host: &host,
        folder: &folder,
        pause_memory: config.pause_memory,
        stop: &context.stop,
        paused: &AtomicBool::new(false),
        say: &say,
        shared: &statuses,
        enough: &enough,
    };
    balance(all, &config.targets);
    drop(bar);
    let statuses = statuses
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let statuses: Vec<BalanceStatus> = statuses.into_iter().flatten().collect();
    let json = || answer(&json!({ "balance": statuses }));
    context.answer(Context::view(false), json, || views::page(&statuses))?;
    Ok(CommandStatus::from(
        !args.once || pass.is_good(config.targets.len()),
    ))
}

/// The result of a single pass over all targets.
#[derive(Default)]
struct BalancePassResult {
    has_failed: AtomicBool,
    /// Number of targets whose servers all answered, and whose resizes are complete.
    settled: AtomicUsize,
}

impl BalancePassResult {
    /// Returns true if the pass over this target has made enough scans, and waits for no first answer and no resize.
    fn ends(&self, core: &Controller, now: Duration) -> bool {
        let is_waiting = core.is_moving() || core.is_waiting(now);
        let ends = now >= PASS || (core.scans() >= MIN_SCANS && !is_waiting);
        if ends && core.is_settled() {
            self.settled.fetch_add(1, Ordering::Relaxed);
        }
        ends
    }

    fn is_good(&self, targets: usize) -> bool {
        !self.has_failed.load(Ordering::Relaxed) && self.settled.load(Ordering::Relaxed) == targets
    }
}

fn lock(folder: &Path) -> Result<hugeleaf_sys::HostLock, Failure> {
    let made = std::fs::create_dir_all(folder);
    made.map_err(|e| {
        Failure::missing(
            format!("{}: {e}", folder.display()),
            "run as root, or: hugeleaf balance --once --dry-run",
        )
    })?;
    balance_lock(folder).map_err(|error| {
        let next = match error.is_held {
            true => "hugeleaf guard status, or: hugeleaf balance --once --dry-run",
            false => "run as root, or: hugeleaf balance --once --dry-run",
        };
        Failure::missing(error.to_string(), next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_good_if_all_targets_settled_and_nothing_failed() {
        let pass = BalancePassResult::default();
        pass.settled.store(1, Ordering::Relaxed);
        assert!(pass.is_good(1) && !pass.is_good(2));
        pass.has_failed.store(true, Ordering::Relaxed);
        assert!(!pass.is_good(1));
    }
}
