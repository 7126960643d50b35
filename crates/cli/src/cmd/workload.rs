//! `hugeleaf workload oltp`: what `try` starts and steers; nothing for a person to type.

use crate::context::{Context, Failure, Status};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which workload
    #[arg(value_enum)]
    name: Name,
}

/// The embedded workloads.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Name {
    /// SQLite wholly in its page cache, read and updated by random keys
    Oltp,
}

/// Runs it until the parent is gone; how it is to be built comes over standard input.
pub fn run(args: &Args, _context: &Context) -> Result<Status, Failure> {
    match args.name {
        Name::Oltp => {
            let Err(error) = hugeleaf_workload::serve();
            Err(Failure::usage(
                format!("workload oltp: {error} (standard input has to be its parent's socket)"),
                "hugeleaf try",
            ))
        }
    }
}
