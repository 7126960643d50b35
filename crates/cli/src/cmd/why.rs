//! Implements `hugeleaf why`.

use hugeleaf_host::{Looking, Process};
use hugeleaf_report::why::Why;
use hugeleaf_sys::Pid;
use hugeleaf_verdict::findings::shell_word;
use hugeleaf_verdict::why::{Account, account};

use crate::context::{Context, Failure, Several, Status};

#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Every range of memory that is not on large pages gets a verdict: what keeps it from them, how many
bytes, and the one thing to do next. A command that begins with # is nothing to type.

Exit status: 0 all that can be on large pages is; 1 some is not, and something can be done about it
(promotion, a setting, a restart); 2 wrong usage; 3 the process cannot be read. Memory that could
be on large pages only if it grew does not count, nor do smaller THP sizes that are off, nor what
cannot be or is not worth being on large pages.

Examples:
  hugeleaf why 1234            one process
  hugeleaf why postgres        all processes of that name; what they share counts once
  hugeleaf why tree:1234       a process and its descendants
  hugeleaf why 1234 && echo all on large pages")]
pub struct Args {
    /// Processes: a PID, a name, a systemd unit, a cgroup's path, or tree:PID
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// All reasons, ranges and processes, nothing grouped
    #[arg(long)]
    all: bool,
}

pub fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let host = context.host()?;
    let pids = context.targets(&args.targets, Several::All)?;
    let (processes, unread) = context.read_targets(&host, &pids, Looking::Pages)?;
    let accounts: Vec<Vec<Account>> = processes
        .iter()
        .map(|p| account(&host, p, &name_in_commands(args, &pids, p)))
        .collect();
    let judged: Vec<(&Process, &[Account])> = processes
        .iter()
        .zip(&accounts)
        .map(|(p, a)| (p, a.as_slice()))
        .collect();
    let why = Why {
        judged: &judged,
        unread: &unread,
    };
    let view = Context::view(args.all);
    context.answer(view, || why.json(), || why.page(args.all))?;
    Ok(why.summary().is_good().into())
}

/// Returns the process's name for suggested commands. Several processes keep the typed target,
/// because shared memory is promoted once for all.
fn name_in_commands(args: &Args, pids: &[Pid], process: &Process) -> String {
    match pids {
        [_] => process.pid.to_string(),
        _ => {
            let words: Vec<String> = args.targets.iter().map(|t| shell_word(t)).collect();
            words.join(" ")
        }
    }
}
