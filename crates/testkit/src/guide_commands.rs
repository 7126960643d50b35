//! Runs the commands of the guide, so that guide and tests stay consistent. A block that opens with ```` ```sh test=PAGE:STEP ```` runs as
//! written. `exit=0,1` after it names the promised exit statuses; the default is 0.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::CommandOutput;

/// A block of commands in a page of the guide.
#[derive(Debug, Clone)]
pub struct CodeBlock {
    /// The label `PAGE:STEP`.
    pub label: String,
    pub statuses: Vec<i32>,
    pub commands: String,
}

fn folder() -> PathBuf {
    crate::repository().join("docs/guide")
}

/// Returns all runnable blocks of all pages, in order.
pub fn blocks() -> Vec<CodeBlock> {
    let mut pages: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect();
    pages.sort();
    pages
        .iter()
        .flat_map(|page| blocks_of(&std::fs::read_to_string(page).unwrap()))
        .collect()
}

pub fn blocks_of(text: &str) -> Vec<CodeBlock> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```").filter(|info| !info.is_empty()) else {
            continue;
        };
        let commands: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
        let Some(label) = info.split(' ').find_map(|word| word.strip_prefix("test=")) else {
            continue;
        };
        let statuses = info
            .split(' ')
            .find_map(|word| word.strip_prefix("exit="))
            .unwrap_or("0");
        blocks.push(CodeBlock {
            label: label.to_owned(),
            statuses: statuses.split(',').map(|s| s.parse().unwrap()).collect(),
            commands: commands.join("\n"),
        });
    }
    blocks
}

/// A page of the guide with the values of its variables.
pub struct GuidePage {
    name: &'static str,
    program: PathBuf,
    variables: Vec<(&'static str, String)>,
    blocks: Vec<CodeBlock>,
    /// Working folder of the commands, with their result files.
    folder: TempDir,
}

impl GuidePage {
    /// Opens a page whose commands find this program on PATH. `variables` holds the variables that the page asks the reader to set.
    pub fn open(
        name: &'static str,
        program: &Path,
        variables: Vec<(&'static str, String)>,
    ) -> GuidePage {
        GuidePage {
            name,
            program: program.to_owned(),
            variables,
            blocks: blocks(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Runs a step, and fails on an exit status that the page does not promise.
    #[track_caller]
    pub fn run(&self, step: &str) -> CommandOutput {
        let block = self.block(step);
        self.run_expecting(step, &block.statuses)
    }

    fn block(&self, step: &str) -> &CodeBlock {
        let label = format!("{}:{step}", self.name);
        self.blocks
            .iter()
            .find(|block| block.label == label)
            .unwrap_or_else(|| panic!("no block of the guide is marked test={label}"))
    }

    /// Runs a step whose exit status is promised by the page's text instead of the block's mark.
    #[track_caller]
    pub fn run_expecting(&self, step: &str, statuses: &[i32]) -> CommandOutput {
        let block = self.block(step);
        let label = &block.label;
        let mut path = self.program.parent().unwrap().as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell
            .args(["-euc", &block.commands])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        let answer = CommandOutput::run(&mut shell).ends_in(statuses);
        println!("== {label}\n{}{}", answer.stdout, answer.stderr);
        answer
    }
}
