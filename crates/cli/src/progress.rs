//! Progress on stderr: a line that changes on a terminal, nothing in a pipe.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar, where somebody looks; gone when dropped.
pub struct Bar(Option<ProgressBar>);

impl Bar {
    /// One of that length.
    pub fn new(length: u64) -> Bar {
        if !std::io::stderr().is_terminal() {
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

const TEMPLATE: &str = "{wide_bar} {percent:>3} %  {msg}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
