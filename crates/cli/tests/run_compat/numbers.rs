//! Extracts numbers from the output of programs.

use std::process::Output;

use crate::common::stdout;

/// Returns the number after the `n`th occurrence of a word.
#[track_caller]
pub fn nth_number(output: &Output, word: &str, n: usize) -> u64 {
    let text = stdout(output);
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .windows(2)
        .filter(|pair| pair[0] == word)
        .nth(n)
        .and_then(|pair| pair[1].parse().ok())
        .unwrap_or_else(|| panic!("no number {n} behind {word} in:\n{text}"))
}

/// Returns the number after a word.
#[track_caller]
pub fn number(output: &Output, word: &str) -> u64 {
    nth_number(output, word, 0)
}

/// Returns the size of a huge page in bytes.
pub fn huge() -> u64 {
    hugeleaf_testkit::process_facts::huge_page_kb().unwrap() * 1024
}

/// Allows `percent` above bare, and `pages` huge pages that are not yet full.
#[track_caller]
pub fn no_more(what: &str, bare: u64, under: u64, percent: u64, pages: u64) {
    println!("{what}: bare {bare}, under run {under}");
    let most = bare + bare / 100 * percent + pages * huge();
    assert!(
        under <= most,
        "{what}: {under}, bare {bare}, allowed {most}"
    );
}
