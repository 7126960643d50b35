//! Implements `hugeleaf status`.

use hugeleaf_host::limits;
use hugeleaf_host::read_owners;
use hugeleaf_plan::applied_plans::servers_here;
use hugeleaf_report::status::{status, status_json};
use hugeleaf_verdict::check::wants;
use hugeleaf_verdict::findings::{findings, without_contradicting_wants};

use crate::context::{CommandStatus, Context, Failure};
use crate::progress::Bar;

#[derive(Debug, Default, clap::Args)]
pub struct Args {}

/// Runs the command. Findings are the answer, not a failure.
pub fn run(_args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    let bar = Bar::spinner("reading the host");
    let mut host = context.host_and_leftovers()?;
    host.owners = read_owners(&context.root).or_default();
    host.memory_limits = limits::all_memory(&context.root);
    let wants = wants(&host, &servers_here(&context.root));
    let findings = without_contradicting_wants(findings(&host), &wants);
    drop(bar);
    context.answer(
        Context::view(false),
        || status_json(&host, &findings),
        || status(&host, &findings),
    )?;
    Ok(CommandStatus::Good)
}
