//! How far `try` is: a bar on a terminal, a plain line a step in a pipe. On stderr, so that the
//! answer on stdout stays clean.

use indicatif::{ProgressBar, ProgressStyle};

use crate::context::tell;
use crate::progress::is_drawable;
use hugeleaf_report::screen::clean;

/// The steps, one after the other.
pub struct Steps {
    bar: Option<ProgressBar>,
    is_drawable: bool,
    number: usize,
    of: usize,
    total: u64,
}

impl Steps {
    /// Nothing is shown yet. `of` is how many steps there will be.
    pub fn new(of: usize) -> Steps {
        Steps {
            bar: None,
            is_drawable: is_drawable(),
            number: 0,
            of,
            total: 0,
        }
    }

    /// Begins the next step, which is done when `total` is reached.
    pub fn begin(&mut self, what: &str, total: u64) {
        self.clear();
        self.number += 1;
        self.total = total;
        let (number, of) = (self.number, self.of);
        if self.is_drawable {
            let bar = ProgressBar::new(total);
            bar.set_style(style());
            bar.set_prefix(clean(&format!("[{number}/{of}] {what}")));
            self.bar = Some(bar);
        } else {
            tell(&format!("[{number}/{of}] {what}"));
        }
    }

    /// How far the step is.
    pub fn at(&self, done: u64, note: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_position(done.min(self.total));
            bar.set_message(clean(&note.into()));
        }
    }

    /// Takes the bar away.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.clear();
    }
}

fn style() -> ProgressStyle {
    // A template that does not parse is seen by the test below; a bar is not worth a failure.
    ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar())
}

const TEMPLATE: &str = "{prefix:<40} {bar:30} {percent:>3} %  {msg}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
