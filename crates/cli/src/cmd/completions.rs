//! Completion scripts and manual pages, made from the same definition as the flags.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::context::{Context, Failure, Status};

/// Flags of `completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

/// Flags of `manpages`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// The folder to write them into
    folder: PathBuf,
}

/// Prints the completion script.
pub fn run(args: &Args, _context: &Context) -> Result<Status, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::Cli::command(),
        "hugeleaf",
        &mut script,
    );
    Context::print(&String::from_utf8_lossy(&script))?;
    Ok(Status::Good)
}

/// Writes one manual page a command.
pub fn write_man_pages(args: &ManArgs, _context: &Context) -> Result<Status, Failure> {
    std::fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(crate::Cli::command(), &args.folder))
        .map_err(|e| {
            Failure::missing(
                format!("{}: {e}", args.folder.display()),
                "name a folder that can be written",
            )
        })?;
    Ok(Status::Good)
}
