//! Implements `hugeleaf workload oltp`, which `try` starts and controls. It is not for interactive
//! use.

use crate::context::{CommandStatus, Context, Failure};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Workload to run
    #[arg(value_enum)]
    name: EmbeddedWorkload,
}

/// The embedded workloads.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum EmbeddedWorkload {
    /// SQLite entirely in its page cache, with reads and updates by random keys
    Oltp,
}

/// Runs the workload until the parent exits. Its settings arrive on standard input.
pub fn run(args: &Args, _context: &Context) -> Result<CommandStatus, Failure> {
    match args.name {
        EmbeddedWorkload::Oltp => {
            let Err(error) = hugeleaf_workload::serve();
            Err(Failure::usage(
                format!("workload oltp: {error} (standard input has to be its parent's socket)"),
                "hugeleaf try",
            ))
        }
    }
}
