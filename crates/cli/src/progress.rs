//! Progress bars on stderr. They are drawn only on a terminal that can return to the start of a line.

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

/// Returns a bar of the given length; hidden if stderr cannot draw it. The bar is removed when dropped.
pub fn bar(template: &str, length: u64) -> ProgressBar {
    if !is_drawable() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    // The test below finds an invalid template, so it must not fail a command.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Returns true if stderr is a terminal that can draw a bar.
pub fn is_drawable() -> bool {
    std::io::stderr().is_terminal() && moves_its_cursor(std::env::var_os("TERM").as_deref())
}

/// Returns true if a terminal of this type (`TERM`) can overwrite a line. An unnamed or `dumb` terminal, such as a serial console, would
/// print each state of the bar on a new line.
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
