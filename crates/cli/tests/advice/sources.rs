//! Collects the commands in the sources and in the documents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::{files_below, repository};

/// A command from a source, with `*` for values of placeholders.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Printed {
    pub file: String,
    pub command: String,
}

/// Returns the files below a folder of the repository.
fn below(folder: &str) -> Vec<PathBuf> {
    let folder = repository().join(folder);
    let files = files_below(&folder).into_iter();
    files.map(|file| folder.join(file)).collect()
}

/// Returns the sources of shipped programs, without tests and without the virtual machine runner.
fn sources() -> Vec<PathBuf> {
    let mut files = below("crates");
    files.retain(|file| {
        let text = file.to_string_lossy();
        let is_test = ["/tests", "/testkit/"]
            .iter()
            .any(|part| text.contains(part))
            || text.ends_with("/testing.rs");
        text.ends_with(".rs") && text.contains("/src/") && !is_test && !text.contains("/vm/src/")
    });
    files
}

/// Returns the strings in a source, without those in comments and in its tests.
fn strings(source: &str) -> Vec<String> {
    let end = source
        .find("\n#[cfg(test)]\nmod tests {")
        .unwrap_or(source.len());
    let mut found = Vec::new();
    let mut chars = source[..end].chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => {
                chars.by_ref().find(|c| *c == '\n');
            }
            '\'' => {
                // A character or a lifetime.
                let mut ahead = chars.clone();
                let (first, second) = (ahead.next(), ahead.next());
                match (first, second) {
                    (Some('\\'), _) => {
                        chars.next();
                        chars.next();
                        chars.by_ref().find(|c| *c == '\'');
                    }
                    (_, Some('\'')) => drop((chars.next(), chars.next())),
                    _ => {}
                }
            }
            '"' => found.push(string(&mut chars)),
            _ => {}
        }
    }
    found
}

/// Returns a string from after its first quote to its last.
fn string(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('"', _) => break,
            ('\\', Some('\n')) => while chars.next_if(|c| c.is_whitespace()).is_some() {},
            ('\\', _) => match chars.next() {
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => {}
            },
            _ => text.push(c),
        }
    }
    text
}

/// Replaces each value between braces by `*`.
fn without_values(text: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in text.replace("{{", "{").replace("}}", "}").chars() {
        match c {
            '{' => inside = true,
            '}' if inside => {
                inside = false;
                out.push('*');
            }
            _ if inside => {}
            _ => out.push(c),
        }
    }
    out
}

/// Text that may precede a command in a sentence.
const BEFORE: [&str; 8] = [": ", "; ", "&& ", "`", " or ", " then ", " by ", "\n"];

/// Returns the commands in a text: those that begin with a known program, and those whose first
/// word satisfies `is_program`.
pub fn commands_in(text: &str, is_program: &dyn Fn(&str, &str) -> bool) -> Vec<String> {
    let mut starts = vec![0];
    for before in BEFORE {
        starts.extend(text.match_indices(before).map(|(at, _)| at + before.len()));
    }
    starts.sort_unstable();
    starts.dedup();
    let mut found = Vec::new();
    for start in starts {
        let rest = text[start..].trim_start().trim_start_matches("sudo ");
        let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let after = after.trim_start();
        if is_program(word, after) {
            found.push(command(rest, is_program));
        }
    }
    found
}

/// Returns a command up to the point where the sentence continues.
fn command(text: &str, is_program: &dyn Fn(&str, &str) -> bool) -> String {
    const STOPS: [&str; 11] = [
        "\n", "`", "    #", ", or ", "; or ", ", then ", ", and ", ", as ", " or: ", " (",
        ", Limit",
    ];
    let ends = STOPS.iter().filter_map(|stop| text.find(stop));
    // After a semicolon comes another command or the rest of the sentence.
    let goes_on = text.match_indices("; ").find(|(at, part)| {
        let rest = &text[at + part.len()..];
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        !is_program(word, after)
    });
    let end = ends.chain(goes_on.map(|(at, _)| at)).min();
    let text = &text[..end.unwrap_or(text.len())];
    text.trim_end_matches([':', '.', ',']).trim().to_owned()
}

/// Returns all commands of the sources.
pub fn printed(is_program: &dyn Fn(&str, &str) -> bool) -> Vec<Printed> {
    let mut all = Vec::new();
    for path in sources() {
        let source = std::fs::read_to_string(&path).unwrap();
        let file = path
            .strip_prefix(repository())
            .unwrap()
            .display()
            .to_string();
        for text in strings(&source) {
            let commands = commands_in(&without_values(&text), is_program);
            all.extend(commands.into_iter().map(|command| Printed {
                file: file.clone(),
                command,
            }));
        }
    }
    all.sort();
    all.dedup();
    all
}

/// Returns the shell blocks in the documents, by file.
pub fn documents() -> BTreeMap<PathBuf, Vec<String>> {
    let mut files = below("docs");
    files.push(repository().join("README.md"));
    files.retain(|file| file.extension().is_some_and(|e| e == "md"));
    let of = |file: &Path| {
        let text = std::fs::read_to_string(file).unwrap();
        let blocks = text.split("```").skip(1).step_by(2);
        let shell = blocks.filter_map(|block| block.strip_prefix("sh\n"));
        shell.map(str::to_owned).collect()
    };
    files.iter().map(|file| (file.clone(), of(file))).collect()
}
