//! Implements `hugeleaf why`.

use hugeleaf_host::{Process, ReadDetail};
use hugeleaf_report::why::WhyView;
use hugeleaf_sys::Pid;
use hugeleaf_verdict::findings::shell_word;
use hugeleaf_verdict::why::{SegmentAccount, account};

use crate::context::{AmbiguityPolicy, CommandStatus, Context, Failure};
use crate::progress::Bar;

#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Each address range that is not on huge pages gets a verdict: the reason, its size, and the next
step. In a command, # marks a comment.

Exit status: 0 all memory that can be on huge pages is; 1 some is not, and promotion, a setting or a
restart would change that; 2 wrong usage; 3 the process cannot be read. Not counted: memory that
would have to grow first, smaller THP sizes that are off, and memory that cannot be, or is not worth
being, on huge pages.

Examples:
  hugeleaf why 1234            one process
  hugeleaf why postgres        all processes of that name; shared memory counts once
  hugeleaf why tree:1234       a process and its descendants
  hugeleaf why 1234 && echo all on huge pages")]
pub struct Args {
    /// Processes: PID, name, systemd unit, cgroup path, or tree:PID
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// Show all reasons, ranges and processes, ungrouped
    #[arg(long)]
    all: bool,
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    let bar = Bar::spinner("reading the memory of the processes");
    let host = context.with_wants(context.host()?);
    let pids = context.targets(&args.targets, AmbiguityPolicy::All)?;
    let (processes, unread) = context.read_targets(&host, &pids, ReadDetail::Pages)?;
    let accounts: Vec<Vec<SegmentAccount>> = processes
        .iter()
        .map(|p| account(&host, p, &name_in_commands(args, &pids, p)))
        .collect();
    drop(bar);
    let judged: Vec<(&Process, &[SegmentAccount])> = processes
        .iter()
        .zip(&accounts)
        .map(|(p, a)| (p, a.as_slice()))
        .collect();
    let why = WhyView {
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
