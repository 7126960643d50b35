//! Progress on stderr: a line that changes on a terminal, nothing in a pipe or on a terminal that
//! cannot go back to the start of a line.

#![expect(clippy::disallowed_methods, reason = "bars; their texts are cleaned")]

use std::ffi::OsStr;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

pub const PERCENT: &str = "{wide_bar} {percent:>3} %  {msg}";
pub const SECONDS: &str = "{msg} {bar:30} {pos}/{len} s; Ctrl-C ends it early";
pub const BYTES: &str = "{prefix:14} {wide_bar} {binary_bytes:>11} / {binary_total_bytes} {eta:>4}";
pub const STEP: &str = "{prefix:<40} {bar:30} {percent:>3} %  {msg}";
pub const PAIRS: &str = "{wide_bar} {pos:>4}/{len} s  {msg}";
pub const SPINNER: &str = "{spinner} {msg}";

/// A bar of that length where somebody looks, else a hidden one, on which nothing is drawn; gone when dropped.
pub fn bar(template: &str, length: u64) -> ProgressBar {
    if !is_drawable() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    // A template that does not parse is seen by the test below; a bar is not worth a failure.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Whether stderr is a terminal on which a bar can be drawn.
pub fn is_drawable() -> bool {
    std::io::stderr().is_terminal() && moves_its_cursor(std::env::var_os("TERM").as_deref())
}

/// Whether a terminal of that kind (`TERM`) can draw over a line. A serial console that nobody named,
/// or that is `dumb`, would be sent each state of the bar as one more line.
fn moves_its_cursor(terminal: Option<&OsStr>) -> bool {
    terminal.is_some_and(|name| !name.is_empty() && name != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_some() {
        for template in [PERCENT, SECONDS, BYTES, STEP, PAIRS, SPINNER] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }

    #[test]
    fn no_bar_where_term_is_unset_or_dumb() {
        let on = |name: &str| moves_its_cursor(Some(OsStr::new(name)));
        assert!(on("xterm-256color") && on("linux") && on("vt220"));
        assert!(!on("dumb") && !on("") && !moves_its_cursor(None));
    }
}
