//! Blocks of hugeleaf's lines in files that belong to others. Pure.
//!
//! A block starts and ends with a marker line that contains its name. So a file can hold several
//! blocks, and each can be removed alone.

use super::OWNED;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigBlockError {
    /// A block has an opening line, but no closing line.
    #[error("line {0} opens a hugeleaf block that no line closes")]
    NotClosed(usize),
    /// The same block occurs twice.
    #[error("line {0} opens a hugeleaf block that exists already")]
    Twice(usize),
}

fn opens(name: &str) -> String {
    format!("{OWNED}: block {name}; undone by: hugeleaf undo")
}

fn closes(name: &str) -> String {
    format!("# end of hugeleaf's block {name}")
}

/// Returns the block as written to a file, including its markers and last newline.
pub fn whole(name: &str, text: &str) -> Vec<u8> {
    let mut block = format!("{}\n{text}", opens(name));
    if !text.is_empty() && !text.ends_with('\n') {
        block.push('\n');
    }
    block.push_str(&closes(name));
    block.push('\n');
    block.into_bytes()
}

/// Returns the position of the block, including its last newline.
pub fn find(file: &[u8], name: &str) -> Result<Option<std::ops::Range<usize>>, ConfigBlockError> {
    let (open, close) = (opens(name), closes(name));
    let (mut found, mut start): (Option<std::ops::Range<usize>>, Option<(usize, usize)>) =
        (None, None);
    let mut at = 0;
    for (number, line) in file.split_inclusive(|b| *b == b'\n').enumerate() {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if text == open.as_bytes() {
            if start.is_some() || found.is_some() {
                return Err(ConfigBlockError::Twice(number + 1));
            }
            start = Some((at, number + 1));
        } else if text == close.as_bytes()
            && let Some((from, _)) = start.take()
        {
            found = Some(from..at + line.len());
        }
        at += line.len();
    }
    match start {
        Some((_, line)) => Err(ConfigBlockError::NotClosed(line)),
        None => Ok(found),
    }
}

/// Returns the file with the block in it, at its previous position or at the end.
pub fn put(file: &[u8], name: &str, text: &str) -> Result<Vec<u8>, ConfigBlockError> {
    let block = whole(name, text);
    let mut out = Vec::with_capacity(file.len() + block.len() + 1);
    match find(file, name)? {
        Some(range) => {
            out.extend_from_slice(&file[..range.start]);
            out.extend_from_slice(&block);
            out.extend_from_slice(&file[range.end..]);
        }
        None => {
            out.extend_from_slice(file);
            if !file.is_empty() && !file.ends_with(b"\n") {
                out.push(b'\n');
            }
            out.extend_from_slice(&block);
        }
    }
    Ok(out)
}

/// Returns the file without the block; `None` if the block is not there exactly as it was written.
pub fn cut(file: &[u8], name: &str, written: &[u8]) -> Option<Vec<u8>> {
    let range = find(file, name).ok()??;
    if &file[range.clone()] != written {
        return None;
    }
    Some([&file[..range.start], &file[range.end..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn put_again_replaces_and_cut_takes_out() {
        let file = b"one\ntwo\n";
        let once = put(file, "a", "x\n").unwrap();
        let with_b = put(&once, "b", "z").unwrap();
        let again = put(&with_b, "a", "y\n").unwrap();
        let text = String::from_utf8(again.clone()).unwrap();
        assert!(text.starts_with("one\ntwo\n# written by hugeleaf: block a"));
        assert!(text.contains("\ny\n") && !text.contains("\nx\n"), "{text}");
        let without_a = cut(&again, "a", &whole("a", "y\n")).unwrap();
        let without = cut(&without_a, "b", &whole("b", "z")).unwrap();
        assert_eq!(without, file);
    }

    #[test]
    fn a_block_that_was_changed_is_not_cut() {
        let file = put(b"", "a", "x\n").unwrap();
        assert_eq!(cut(&file, "a", &whole("a", "other\n")), None);
        assert_eq!(cut(&file, "b", &whole("b", "x\n")), None);
    }

    #[test]
    fn broken_markers_are_told() {
        let file = put(b"first\n", "a", "x\n").unwrap();
        let text = String::from_utf8(file.clone()).unwrap();
        let cut_off = text.replace("# end of hugeleaf's block a\n", "");
        assert_eq!(
            find(cut_off.as_bytes(), "a"),
            Err(ConfigBlockError::NotClosed(2))
        );
        let twice = [&file[..], &file[..]].concat();
        assert!(matches!(find(&twice, "a"), Err(ConfigBlockError::Twice(_))));
        // The closing line is valid without its newline.
        let bare = text.trim_end().as_bytes();
        assert_eq!(find(bare, "a").unwrap().unwrap().end, bare.len());
    }

    proptest! {
        #[test]
        fn what_is_put_is_found(file in proptest::collection::vec(any::<u8>(), 0..200), text in "[a-z\n]{0,40}") {
            let with = put(&file, "n", &text).unwrap();
            let range = find(&with, "n").unwrap().unwrap();
            let block = whole("n", &text);
            prop_assert_eq!(&with[range], &block[..]);
            let without = cut(&with, "n", &block).unwrap();
            prop_assert!(without == file || without[..without.len() - 1] == file[..]);
        }
    }
}
