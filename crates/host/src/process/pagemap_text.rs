//! A page map as text, which replaces the kernel's binary page map in a captured host.
//!
//! `proc/PID/pages` has a line for each range of pages with equal state, `start-end LETTERS`, the addresses in
//! hexadecimal as in `maps`. Letters: `p` present, `s` swapped, `f` file or shared, `h` mapped huge, `z` zero
//! page, `x` exclusive to the process, `g` a guard page. Pages in no line were never populated.

use hugeleaf_sys::{PageMap, PageRun, PageState};
use hugeleaf_units::Range;

use crate::parse_helpers::ParseError;

const LETTERS: [(char, PageState); 7] = [
    ('p', PageState::PRESENT),
    ('s', PageState::SWAPPED),
    ('f', PageState::FILE),
    ('h', PageState::HUGE),
    ('z', PageState::ZERO),
    ('x', PageState::EXCLUSIVE),
    ('g', PageState::GUARD),
];

/// Parses the text form.
///
/// # Errors
/// A line of another form, or one that is not above the line before it.
pub fn parse_pages(text: &str) -> Result<Vec<PageRun>, ParseError> {
    let mut runs: Vec<PageRun> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let error = |what| ParseError::new(i + 1, what, line);
        let run =
            parse_run(line).ok_or_else(|| error("expected start-end and letters of psfhzxg"))?;
        if runs
            .last()
            .is_some_and(|last| last.range.end() > run.range.start())
        {
            return Err(error("expected addresses in order"));
        }
        runs.push(run);
    }
    Ok(runs)
}

fn parse_run(line: &str) -> Option<PageRun> {
    let (addresses, letters) = line.trim().split_once(' ')?;
    let range = addresses.parse().ok()?;
    let state = letters
        .trim()
        .chars()
        .try_fold(PageState::default(), |state, letter| {
            LETTERS
                .iter()
                .find(|(l, _)| *l == letter)
                .map(|(_, fact)| state.with(*fact))
        })?;
    Some(PageRun { range, state })
}

/// Writes the text form, which [`parse_pages`] reads.
pub fn write_pages(runs: &[PageRun]) -> String {
    runs.iter()
        .map(|run| {
            let letters: String = LETTERS
                .iter()
                .filter(|(_, fact)| run.state.has(*fact))
                .map(|(l, _)| *l)
                .collect();
            format!("{} {letters}\n", run.range)
        })
        .collect()
}

/// Returns the part of `runs` inside `range`.
pub fn part_of(runs: &[PageRun], range: Range) -> PageMap {
    let runs = runs
        .iter()
        .filter_map(|run| {
            Some(PageRun {
                range: run.range.intersect(range)?,
                state: run.state,
            })
        })
        .collect();
    PageMap {
        runs,
        huge_known: true,
        exclusive_known: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_it_writes() {
        let text = "1000-3000 px\n3000-200000 phx\n400000-401000 s\n";
        let runs = parse_pages(text).unwrap();
        assert_eq!(runs.len(), 3);
        assert!(
            runs[1]
                .state
                .has(PageState::HUGE.with(PageState::EXCLUSIVE))
        );
        assert_eq!(write_pages(&runs), text);
        let part = part_of(&runs, Range::new(0x2000, 0x4000).unwrap());
        assert_eq!(part.runs.len(), 2);
        assert!(parse_pages("1000-2000 q\n").is_err());
        assert!(parse_pages("2000-3000 p\n1000-2000 p\n").is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*") {
            let _ = parse_pages(&text);
        }
    }
}
