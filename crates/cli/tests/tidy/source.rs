//! Source files as the checks need them: comments, strings and tests distinguished from code.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/cli is two folders below the root")
        .to_owned()
}

/// Folders that hold what was built or downloaded, never what was written.
const BUILT: [&str; 6] = ["target", ".git", "corpus", "artifacts", ".tmp", "coverage"];

/// All files of the repository, paths relative to its root, sorted.
pub fn all_files() -> Vec<PathBuf> {
    let root = repository();
    let mut folders = vec![root.clone()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !BUILT.contains(&name.as_str()) {
                folders.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path().strip_prefix(&root).unwrap().to_owned());
            }
        }
    }
    files.sort();
    assert!(files.len() > 50, "the repository was not found");
    files
}

/// A Rust source file.
pub struct Source {
    /// Relative to the repository.
    pub path: PathBuf,
    /// As it is.
    pub text: String,
    /// Comments and tests blanked; same length and lines.
    pub code: String,
    /// Strings blanked too.
    pub bare: String,
}

/// The sources of all crates, tests and examples left out.
pub fn sources() -> Vec<Source> {
    all_files()
        .into_iter()
        // The crate of the tests' own helpers is no source of the program.
        .filter(|path| path.starts_with("crates") && !path.starts_with("crates/testkit"))
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .filter(|path| {
            path.components()
                .nth(2)
                .is_some_and(|c| c.as_os_str() == "src")
        })
        .filter(|path| {
            !path.components().skip(3).any(|n| {
                ["tests", "tests.rs", "testing.rs"]
                    .iter()
                    .any(|t| n.as_os_str() == *t)
            })
        })
        .map(|path| {
            let text = std::fs::read_to_string(repository().join(&path)).unwrap();
            let code = without(&text, Blank::Comments);
            let bare = without(&text, Blank::CommentsAndStrings);
            let tests = test_spans(&bare);
            Source {
                path,
                code: blank_spans(&code, &tests),
                bare: blank_spans(&bare, &tests),
                text,
            }
        })
        .collect()
}

/// What to blank.
#[derive(Clone, Copy, PartialEq)]
pub enum Blank {
    Comments,
    CommentsAndStrings,
}

/// The text with comments (and strings) replaced by spaces, line breaks kept.
pub fn without(text: &str, blank: Blank) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (end, is_comment) = match token(bytes, at) {
            None => {
                at += 1;
                continue;
            }
            Some(found) => found,
        };
        if is_comment || blank == Blank::CommentsAndStrings {
            for byte in &mut out[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        at = end;
    }
    String::from_utf8(out).expect("whole characters were blanked")
}

/// The end of the comment, string or character that starts at `at`, and whether it is a comment.
fn token(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let len = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
        return Some((at + len, true));
    }
    if rest.starts_with(b"/*") {
        return Some((block_comment(bytes, at), true));
    }
    let after_word = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest[0] == b'r' && !after_word {
        let hashes = rest[1..].iter().take_while(|b| **b == b'#').count();
        if rest.get(1 + hashes) == Some(&b'"') {
            let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
            let body = at + 2 + hashes;
            let len = bytes[body..]
                .windows(close.len())
                .position(|w| w == close)?;
            return Some((body + len + close.len(), false));
        }
    }
    match rest[0] {
        b'"' => Some((quoted(bytes, at, b'"'), false)),
        // A lifetime has no closing quote right after one character.
        b'\'' if rest.get(1) == Some(&b'\\') || closes_soon(rest) => {
            Some((quoted(bytes, at, b'\''), false))
        }
        _ => None,
    }
}

fn closes_soon(rest: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&rest[..rest.len().min(8)]).into_owned();
    text.chars().nth(2) == Some('\'')
}

fn quoted(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut i = at + 1;
    while i < bytes.len() && bytes[i] != quote {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(bytes.len())
}

fn block_comment(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i < bytes.len() {
        if bytes[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if bytes[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                break;
            }
        } else {
            i += 1;
        }
    }
    i
}

/// Where `{` that opens at or after `at` closes; the position after it.
pub fn block_end(bare: &str, at: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (i, byte) in bare.bytes().enumerate().skip(at) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Items under `#[cfg(test)]`.
fn test_spans(bare: &str) -> Vec<(usize, usize)> {
    bare.match_indices("#[cfg(test)]")
        .filter_map(|(start, _)| {
            let semicolon = bare[start..].find(';').map(|i| start + i + 1);
            let brace = bare[start..].find('{').map(|i| start + i);
            let end = match (semicolon, brace) {
                (Some(s), Some(b)) if s < b => s,
                (_, Some(b)) => block_end(bare, b)?,
                (s, None) => s?,
            };
            Some((start, end))
        })
        .collect()
}

fn blank_spans(text: &str, spans: &[(usize, usize)]) -> String {
    let mut out = text.as_bytes().to_vec();
    for (start, end) in spans {
        for byte in &mut out[*start..*end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    String::from_utf8(out).expect("whole characters were blanked")
}

/// The number of the line, from 1, that holds this position.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Positions where `word` stands by itself.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let before = at.checked_sub(1).and_then(|i| text.as_bytes().get(i));
            !part(before) && !part(text.as_bytes().get(at + word.len()))
        })
}
