//! Tests that every printed command does what it claims. The real program prints each kind in its situation, a shell runs it unchanged, and
//! the test checks the effect. A command in the sources without a kind fails here. No command contains a relative number where the kernel
//! takes only absolute ones.

mod captured;
mod host;
mod kinds;
mod sources;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::common::{hugeleaf, stdout};
use kinds::{Held, kind, programs};
use sources::{documents, printed};

/// Returns true if the first word of a command is a program: a known one, or one of this host that is followed by arguments typical of a
/// command.
fn is_program(word: &str, after: &str) -> bool {
    // Words of sentences that are also programs on some hosts.
    const PROSE: [&str; 14] = [
        "make", "free", "mount", "file", "id", "env", "see", "test", "find", "watch", "who",
        "look", "read", "time",
    ];
    let is_argument = ["-", "/", "$", "'", "*", ">"]
        .iter()
        .any(|s| after.starts_with(s));
    const NEVER: [&str; 4] = ["debugfs", "service", "w", "write"];
    if PROSE.contains(&word) || NEVER.contains(&word) {
        return after.starts_with('-') && !NEVER.contains(&word);
    }
    if programs().contains(&word) {
        return !after.is_empty() || matches!(word, "update-grub" | "hugeleaf");
    }
    let plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    plain && is_argument && is_installed(word)
}

fn is_installed(word: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(word).is_file())
}

/// Returns true if a shell can parse it, with a word for each value.
fn parses(script: &str) -> bool {
    let shell = Command::new("sh")
        .args(["-n", "-c", &script.replace('*', "X")])
        .stderr(Stdio::null())
        .status();
    shell.unwrap().success()
}

#[test]
fn every_command_in_the_sources_is_of_a_kind_that_is_held() {
    let all = printed(&is_program);
    assert!(all.len() > 200, "only {} commands were found", all.len());
    let unknown: Vec<_> = all.iter().filter(|p| kind(&p.command).is_none()).collect();
    assert!(unknown.is_empty(), "of no kind: {unknown:#?}");
    let unread: Vec<_> = all.iter().filter(|p| !parses(&p.command)).collect();
    assert!(unread.is_empty(), "no shell reads these: {unread:#?}");
}

#[test]
fn every_kind_that_is_said_to_be_run_is_run_by_a_test() {
    let here = [include_str!("advice.rs"), include_str!("advice/host.rs")].concat();
    for (kind, held) in kinds::KINDS {
        match held {
            Held::Run(test) => {
                let is_there = here.contains(&format!("#[test]\nfn {test}()"));
                assert!(is_there, "{kind}: there is no test {test}");
            }
            Held::NotHere(why) => assert!(!why.is_empty()),
            Held::Asks => {}
        }
    }
}

/// The kernel takes no relative number: `+7` sets a pool to 7.
#[test]
fn nothing_relative_is_printed_or_written_down() {
    let relative = |text: &str| text.contains("echo +") || text.contains("echo -");
    let all = printed(&is_program);
    let found: Vec<_> = all.iter().filter(|p| relative(&p.command)).collect();
    assert!(found.is_empty(), "{found:#?}");
    for (file, blocks) in documents() {
        let block = blocks.iter().find(|block| relative(block));
        assert!(block.is_none(), "{}: {block:?}", file.display());
    }
}

#[test]
fn what_only_shows_something_shows_it() {
    let all = printed(&is_program);
    let asks = all.iter().filter(|p| {
        let held = kind(&p.command).map(|(_, held)| *held);
        held == Some(Held::Asks) && !p.command.contains('*') && !p.command.contains("PID")
    });
    let mut run = 0;
    for one in asks {
        let program = one.command.split(' ').next().unwrap();
        // Runs only installed programs, and systemctl only if systemd is running.
        if !is_installed(program) || program == "systemctl" {
            continue;
        }
        run += 1;
        let out = Command::new("sh")
            .args(["-c", &one.command])
            .output()
            .unwrap();
        // grep and ls exit with 1 and 2 if they find nothing.
        let said = String::from_utf8_lossy(&out.stderr);
        let is_wrong = [
            "usage",
            "Usage",
            "invalid option",
            "unrecognized",
            "not found",
        ]
        .iter()
        .any(|word| said.contains(word));
        assert!(!is_wrong, "{}: {}: {said}", one.file, one.command);
    }
    assert!(run > 2, "only {run} commands were run");
}

/// Returns the long flags of a hugeleaf command, and the subcommand words before them.
fn flags_of(command: &str) -> Option<(Vec<String>, Vec<String>)> {
    let end = ["#", ";", "|", "&&", " > ", " -- "]
        .iter()
        .filter_map(|s| command.find(s))
        .min();
    let words = command[..end.unwrap_or(command.len())]
        .split_whitespace()
        .skip(1);
    let words: Vec<&str> = words
        .map(|w| w.trim_matches(['\'', '"', '`', '(', ')', ',', '.', '[', ']']))
        .collect();
    let named = words
        .iter()
        .take_while(|w| w.chars().all(|c| c.is_ascii_lowercase()) && !w.is_empty());
    let named: Vec<String> = named.map(|w| (*w).to_owned()).collect();
    let flags = words.iter().filter_map(|w| w.strip_prefix("--"));
    let flags = flags.map(|w| w.split(['=', '*']).next().unwrap_or_default().to_owned());
    let flags: Vec<String> = flags.filter(|w| !w.is_empty()).collect();
    (!named.is_empty()).then_some((named, flags))
}

/// Returns the help of a hugeleaf command; `None` if it does not exist.
fn help(words: &[String], known: &mut BTreeMap<Vec<String>, Option<String>>) -> Option<String> {
    let ask = || {
        let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
        args.push("--help");
        let out = hugeleaf(&args).output().unwrap();
        out.status.success().then(|| stdout(&out))
    };
    known.entry(words.to_vec()).or_insert_with(ask).clone()
}

/// Returns the subcommands that a help text lists.
fn words_of(help: &str) -> Vec<String> {
    let listed = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = listed.lines().take_while(|line| line.starts_with("  "));
    lines
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect()
}

#[test]
fn flags_that_are_printed_are_taken() {
    let mut all: Vec<(String, String)> = printed(&is_program)
        .into_iter()
        .filter(|p| p.command.starts_with("hugeleaf "))
        .map(|p| (p.file, p.command))
        .collect();
    for (file, blocks) in documents() {
        let lines = blocks.iter().flat_map(|block| block.lines());
        let ours = lines.map(|line| line.trim_start_matches("sudo "));
        let ours = ours.filter(|line| line.starts_with("hugeleaf "));
        all.extend(ours.map(|line| (file.display().to_string(), line.to_owned())));
    }
    let commands = stdout(&hugeleaf(&["--help"]).output().unwrap());
    let is_command = |word: &str| {
        let mut lines = commands.lines().map(str::trim_start);
        lines.any(|line| line.split_whitespace().next() == Some(word))
    };
    let (mut known, mut seen) = (BTreeMap::new(), 0);
    for (file, command) in all {
        let Some((named, flags)) = flags_of(&command).filter(|(named, _)| is_command(&named[0]))
        else {
            continue;
        };
        // `hugeleaf-lab oltp` has its own help, and a workload may be meant where none is given. The name of a process is not a subcommand.
        let of_any = command.split_whitespace().nth(2) == Some("*");
        // `bench my.toml` is short for `bench file my.toml`.
        let is_file = named[0] == "bench" && !of_any;
        let word = command
            .split_whitespace()
            .nth(2)
            .filter(|word| word.contains('.'));
        let named = match word.filter(|_| is_file) {
            Some(_) => vec![named[0].clone(), "file".to_owned()],
            None => named,
        };
        let below: Vec<String> = match (of_any, named.get(1)) {
            (true, _) => words_of(&help(&named[..1], &mut known).unwrap_or_default()),
            (false, word) => word.cloned().into_iter().collect(),
        };
        let below = below
            .into_iter()
            .filter_map(|word| help(&[named[0].clone(), word], &mut known));
        let below: String = below.collect();
        let text = help(&named[..1], &mut known).map(|own| own + &below);
        let text = text.unwrap_or_else(|| panic!("{file}: {command}: no such command"));
        for flag in flags {
            let is_there = text.contains(&format!("--{flag}")) || flag == "root" || flag == "json";
            assert!(is_there, "{file}: {command}: there is no --{flag}");
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} flags were found");
}

#[test]
fn documents_have_shell_that_a_shell_reads() {
    for (file, blocks) in documents() {
        for block in blocks {
            // Angle brackets and dots are placeholders.
            let is_sketch = block.contains("...") || block.contains('…') || block.contains('<');
            assert!(is_sketch || parses(&block), "{}:\n{block}", file.display());
        }
    }
}

/// A plan's files hold its settings after a boot, and `undo` expects them unchanged.
#[test]
fn no_command_writes_a_file_of_a_plan() {
    let writes = |text: &str| {
        let mut files = hugeleaf_plan::FILES.iter();
        files.any(|file| text.contains(&format!("> {file}")))
    };
    let all = printed(&is_program);
    let found: Vec<_> = all.iter().filter(|p| writes(&p.command)).collect();
    assert!(found.is_empty(), "{found:#?}");
    for (file, blocks) in documents() {
        let block = blocks.iter().find(|block| writes(block));
        assert!(block.is_none(), "{}: {block:?}", file.display());
    }
}

#[test]
fn no_kind_is_left_that_nothing_prints() {
    let all = printed(&is_program);
    let used: Vec<&str> = all
        .iter()
        .filter_map(|p| Some(kind(&p.command)?.0))
        .collect();
    let unused: Vec<&str> = kinds::KINDS
        .iter()
        .map(|(kind, _)| *kind)
        .filter(|kind| !used.contains(kind))
        .collect();
    assert!(unused.is_empty(), "{unused:#?}");
}
