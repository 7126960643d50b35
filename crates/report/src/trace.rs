//! `hugeleaf trace`: a trace as text, JSON and one page; and two traces side by side.
//!
//! The same tables ([`parts`]) feed terminal and page. Nothing here looks at the host: a trace is shown alike on any
//! machine.

mod charts;
mod diff;
mod diff_html;
mod diff_json;
mod diff_rates;
mod flame;
mod html;
mod json;
mod lock;
pub mod parts;
mod screen;
#[cfg(test)]
mod unmeasured;
mod words;

#[cfg(test)]
mod testing;

use hugeleaf_trace::Trace;
use hugeleaf_verdict::findings::shell_word;
use hugeleaf_verdict::trace::TraceFinding;

pub use diff::{Compared, Side};
pub use diff_html::diff_html;
pub use diff_json::diff_json;
pub use flame::flame_graph;
pub use html::html;
pub use json::{callers_json, json};
pub use lock::{callers_text, lock_text};
pub use parts::Section;
pub use screen::{screen, sections};

/// What is shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// What was found in it.
    pub findings: &'a [TraceFinding],
    /// The file it came from, as typed; commands name it.
    pub file: &'a str,
}

impl Shown<'_> {
    /// A finding's command, with this trace's file in it.
    fn command(&self, finding: &TraceFinding) -> String {
        let words = finding.command.split(' ').map(|word| match word {
            "FILE" => shell_word(self.file),
            word => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }
}
