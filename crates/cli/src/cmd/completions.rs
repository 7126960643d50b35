//! Generates completion scripts and manual pages from the definition of the flags.

use std::path::{Path, PathBuf};

use clap::Command;
use hugeleaf_sys::{OnExisting, write_whole};

use crate::context::{CommandStatus, Context, Failure};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Shell to generate the script for
    shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Directory to write to
    folder: PathBuf,
}

/// Prints the completion script.
pub fn run(args: &Args, mut command: Command) -> Result<CommandStatus, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "hugeleaf", &mut script);
    Context::print(&String::from_utf8_lossy(&script))?;
    Ok(CommandStatus::Good)
}

pub fn write_man_pages(args: &ManArgs, command: Command) -> Result<CommandStatus, Failure> {
    let failed = |reason: String| {
        Failure::missing(
            format!("{}: {reason}", args.folder.display()),
            "name a folder that can be written",
        )
    };
    std::fs::create_dir_all(&args.folder).map_err(|e| failed(e.to_string()))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_man_page(command, &args.folder).map_err(failed)?;
    Ok(CommandStatus::Good)
}

/// Writes the manual page of a command and those of its subcommands.
fn write_man_page(command: Command, folder: &Path) -> Result<(), String> {
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        write_man_page(below.clone(), folder)?;
    }
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text).map_err(|e| e.to_string())?;
    let file = folder.join(page.get_filename());
    write_whole(&file, &text, OnExisting::Replaced).map_err(|e| e.reason())
}
