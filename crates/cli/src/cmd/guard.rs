//! Implements `hugeleaf guard`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hugeleaf_guard::client::{ask, ask_status};
use hugeleaf_guard::one_shot::once;
use hugeleaf_guard::status::GuardStatus;
use hugeleaf_guard::{ConfigFiles, ControlCommand, Guard, GuardPaths, GuardState, StatusRenderer};
use hugeleaf_report::document::listed;
use hugeleaf_report::exposition::{OPEN_METRICS, TEXT, open_metrics, text};
use hugeleaf_report::guard as views;
use hugeleaf_report::json::answer;
use serde_json::json;

use crate::context::{CommandStatus, Context, Failure};
use crate::progress::Bar;

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  hugeleaf guard --once --dry-run       planned promotions, and reasons against the others
  hugeleaf guard --check                check the rules for errors
  hugeleaf guard                        watch, and promote by the rules, until stopped
  hugeleaf guard --read-only            watch and serve metrics
  hugeleaf guard status                 state of the running guard

Without rules the guard changes nothing, and reports what it would do. To let it act, write this
line into /etc/hugeleaf/guard.toml, after \"schema = 1\": default.action = \"promote\". It then
promotes process trees with at least 256M on base pages, 30 s of age and 10 % of a processor.
Specific rules override these defaults. SIGHUP reloads the rules; SIGTERM stops the guard.

Exit status: 0 done; 1 with --once: a promotion is incomplete; 2 wrong usage, or errors in the
rules; 3 a precondition is missing."
)]
pub struct Args {
    /// Rules file [default: /etc/hugeleaf/guard.toml and guard.d/*.toml next to it]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Scan once, act by the rules, and exit
    #[arg(long)]
    once: bool,
    /// Print the planned changes; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Watch and serve metrics; change nothing, and keep no state
    #[arg(long, conflicts_with_all = ["once", "dry_run"])]
    read_only: bool,
    /// Check the rules for errors, and exit
    #[arg(long, conflicts_with_all = ["once", "dry_run", "read_only"])]
    check: bool,
    #[command(subcommand)]
    request: Option<GuardSubcommand>,
}

/// Requests to a running guard.
#[derive(Debug, clap::Subcommand)]
enum GuardSubcommand {
    /// Show the state of the running guard and of each process tree
    Status(SocketArg),
    /// Show the guard's decisions and their results
    Log(LogArgs),
    /// Stop all promotions and demotions until resume
    Pause(SocketArg),
    /// Continue after pause
    Resume(SocketArg),
    /// Reload the rules
    Reload(SocketArg),
}

#[derive(Debug, clap::Args)]
struct SocketArg {
    /// Guard socket [default: /run/hugeleaf/guard.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct LogArgs {
    #[command(flatten)]
    socket_arg: SocketArg,
    /// Maximum number of entries; the newest are shown
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    lines: usize,
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    match &args.request {
        Some(GuardSubcommand::Status(whom)) => {
            let status = ask_status(&socket(whom))?;
            let page = || views::status(&status);
            context.answer(Context::view(false), || answer(&status), page)?;
            Ok(CommandStatus::Good)
        }
        Some(GuardSubcommand::Log(log)) => {
            let mut entries = ask_status(&socket(&log.socket_arg))?.log;
            entries.drain(..entries.len().saturating_sub(log.lines));
            let json = || answer(&json!({ "log": entries }));
            context.answer(Context::view(false), json, || views::log(&entries))?;
            Ok(CommandStatus::Good)
        }
        Some(GuardSubcommand::Pause(whom)) => order(whom, "/pause"),
        Some(GuardSubcommand::Resume(whom)) => order(whom, "/resume"),
        Some(GuardSubcommand::Reload(whom)) => order(whom, "/reload"),
        None if args.check => check(&files_of(args.config.as_ref(), false), context),
        None if args.once => pass(args, context),
        None => guard(args, context),
    }
}

fn socket(whom: &SocketArg) -> PathBuf {
    whom.socket
        .clone()
        .unwrap_or_else(|| GuardPaths::default().socket())
}

/// Returns the rules of `--config`, or the host's default rules. With `watching`, no rule acts.
pub(super) fn files_of(config: Option<&PathBuf>, watching: bool) -> ConfigFiles {
    let files = config.map_or_else(ConfigFiles::usual, ConfigFiles::named);
    if watching { files.watching() } else { files }
}

fn order(whom: &SocketArg, what: &str) -> Result<CommandStatus, Failure> {
    ask(&socket(whom), "POST", what)?;
    Ok(CommandStatus::Good)
}

fn check(files: &ConfigFiles, context: &Context) -> Result<CommandStatus, Failure> {
    let config = files.read()?;
    let found = files.found();
    let found: Vec<String> = found.iter().map(|f| f.display().to_string()).collect();
    let rules: Vec<&str> = config.rules.iter().map(|rule| &*rule.label).collect();
    let targets: Vec<&str> = config.targets.iter().map(|t| &*t.name).collect();
    let from = match found.is_empty() {
        true => "no file: all processes are watched".to_owned(),
        false => format!(
            "{}: rules: {}{}",
            found.join(", "),
            rules.len() - 1,
            listed(", memory targets: ", &targets)
        ),
    };
    let acts = match config.acts() {
        true => "the guard acts",
        false => "the guard watches, and changes nothing",
    };
    let beyond = config.metrics.filter(|at| !at.ip().is_loopback());
    let beyond = beyond.map_or_else(String::new, |at| {
        format!("other hosts may read the metrics at {at}, without authentication\n")
    });
    Context::print(&match context.json {
        true => answer(
            &json!({ "files": found, "rules": rules, "targets": targets, "acts": config.acts(),
                "listen": config.listen, "metrics": config.metrics, "old_names": config.old_names }),
        ),
        false => {
            let old = config
                .old_names
                .iter()
                .map(|name| format!("warning: {name}\n"));
            format!("{from}; {acts}\n{beyond}{}", old.collect::<String>())
        }
    })?;
    Ok(CommandStatus::Good)
}

fn pass(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    context.need_live("guard")?;
    let config = files_of(args.config.as_ref(), false).read()?;
    let host = context.host()?;
    context.stop_on_signals()?;
    let mut state = GuardState::default();
    let (root, kernel, stop) = (&context.root, &context.kernel, &context.stop);
    let bar = Bar::spinner(match args.dry_run {
        true => "scanning the processes",
        false => "scanning the processes, and promoting by the rules",
    });
    let pass = once(root, kernel, &host, &config, &mut state, args.dry_run, stop)?;
    drop(bar);
    let page = || views::once(&pass);
    context.answer(Context::view(false), || answer(&pass), page)?;
    Ok(pass.done.iter().all(|done| done.good).into())
}

struct HttpViews;

impl StatusRenderer for HttpViews {
    fn page(&self, path: &str, status: &GuardStatus) -> Option<(&'static str, Vec<u8>)> {
        let metrics = || views::metrics(status, status.series);
        match path {
            "/metrics" => return Some((TEXT, text(metrics()).into_bytes())),
            "/metrics/openmetrics" => {
                return Some((OPEN_METRICS, open_metrics(metrics()).into_bytes()));
            }
            _ => {}
        }
        let page = views::answer(path, status)?;
        Some(("text/html; charset=utf-8", page.into_bytes()))
    }

    fn textfile(&self, status: &GuardStatus) -> String {
        text(views::textfile_metrics(status, status.series))
    }
}

fn guard(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    context.need_live("guard")?;
    let host = context.host()?;
    let places = match args.read_only {
        true => GuardPaths::default().read_only(),
        false => GuardPaths::default(),
    };
    let files = files_of(args.config.as_ref(), args.dry_run || args.read_only);
    let guard = Guard::new(&context.root, &context.kernel, &host, files, places)?;
    let orders = guard.orders();
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])
        .map_err(|e| Failure::missing(format!("signals: {e}"), "try again"))?;
    let stop = Arc::clone(&context.stop);
    std::thread::spawn(move || {
        for signal in signals.forever() {
            orders.send(match signal {
                SIGHUP => ControlCommand::Reload,
                _ => {
                    stop.store(true, Ordering::Relaxed);
                    ControlCommand::Stop
                }
            });
        }
    });
    guard.run(&HttpViews)?;
    Ok(CommandStatus::Good)
}
