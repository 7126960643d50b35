//! Progress on stderr: a line that changes on a terminal, nothing in a pipe or on a terminal that
//! cannot go back to the start of a line.

use std::ffi::OsStr;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar, where somebody looks; gone when dropped.
pub struct Bar(Option<ProgressBar>);

impl Bar {
    /// One of that length.
    pub fn new(length: u64) -> Bar {
        if !is_drawable() {
            return Bar(None);
        }
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Bar(Some(bar))
    }

    /// What to draw on, where there is a terminal.
    pub fn drawn(&self) -> Option<&ProgressBar> {
        self.0.as_ref()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
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

const TEMPLATE: &str = "{wide_bar} {percent:>3} %  {msg}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }

    #[test]
    fn no_bar_where_term_is_unset_or_dumb() {
        let on = |name: &str| moves_its_cursor(Some(OsStr::new(name)));
        assert!(on("xterm-256color") && on("linux") && on("vt220"));
        assert!(!on("dumb") && !on("") && !moves_its_cursor(None));
    }
}
