//! Implements `hugeleaf top`.

use std::path::PathBuf;
use std::sync::Arc;

use hugeleaf_guard::GuardPaths;
use hugeleaf_report::promote::HostCommands;
use hugeleaf_sys::Kernel;
use hugeleaf_top::{ActionContext, AppConfig, TopSettings};

use crate::cmd::promote::{own_path, scheduler};
use crate::context::{CommandStatus, Context, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: arrows select a process tree, w explains why its memory is not on huge pages, p promotes it
and d demotes it (both show the expected effect and ask first), / filters, < and > sort, ? shows all
keys, q quits. A click selects a process tree or sorts by a column.

A scan reads one small file per process. Page tables are read within 0.5 % of one processor, those
of visible process trees first. With many processes, scans are less frequent than once per second,
so that the total stays below 3 % of one processor.

Examples:
  hugeleaf top                        this host, live
  hugeleaf top --record today.jsonl   also record every scan, up to 256M
  hugeleaf top --replay today.jsonl   replay: space pauses, arrows step, + and - set the speed

Exit status: 0 quit by the user; 2 wrong usage; 3 no terminal, or a file cannot be read or created.")]
pub struct Args {
    /// Record every scan in a new file, for --replay
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<PathBuf>,
    /// Replay a recording instead of this host
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Disable promotion and demotion
    #[arg(long)]
    read_only: bool,
    /// Guard socket, to also show what the guard promotes [default: /run/hugeleaf/guard.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub fn run(args: Args, context: &Context) -> Result<CommandStatus, Failure> {
    if context.json {
        return Err(Failure::usage(
            "top draws a screen and has no JSON",
            "hugeleaf mem --json; for several scans: hugeleaf top --record FILE",
        ));
    }
    let host = context.with_wants(context.host()?);
    let why_not = match (&args.replay, context.root.is_live(), args.read_only) {
        (Some(_), _, _) => "a recording cannot be promoted or demoted",
        (None, false, _) => "a captured host cannot be promoted or demoted",
        (None, true, true) => "--read-only was given: nothing is promoted or demoted",
        (None, true, false) => "",
    };
    let commands = HostCommands::new(&host, own_path(), scheduler(context));
    let is_live = context.root.is_live();
    let socket = || {
        args.socket
            .unwrap_or_else(|| GuardPaths::default().socket())
    };
    let settings = TopSettings {
        tools: ActionContext {
            root: context.root.clone(),
            kernel: Arc::new(Kernel::new()),
            host,
            guard: is_live.then(socket),
            commands: commands.clone(),
        },
        config: AppConfig {
            can_move: why_not.is_empty(),
            why_not,
            colour: Context::view(false).colour,
            commands,
        },
        record: args.record,
        replay: args.replay,
    };
    hugeleaf_top::run(settings)?;
    Ok(CommandStatus::Good)
}
