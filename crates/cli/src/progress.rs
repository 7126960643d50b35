//! Progress of commands on stderr: a bar on a terminal, otherwise a line every ten seconds. Shorter commands print nothing in a pipe.
//!
//! A bar is drawn only on a terminal that can return to the start of a line.

#![expect(clippy::disallowed_methods, reason = "bars; their texts are cleaned")]

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use hugeleaf_report::terminal_escape::clean;
use hugeleaf_units::{Bytes, parse_time, time};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::context::print_stderr;

/// Time between two lines where there is no terminal.
const PERIOD: Duration = Duration::from_secs(10);
/// Environment variable with another period, which only tests set.
const TEST_PERIOD: &str = "HUGELEAF_TEST_PROGRESS";
/// Time until a spinner is drawn, so that it does not flash in short commands.
const PATIENCE: Duration = Duration::from_secs(2);
const REDRAW: Duration = Duration::from_millis(100);
/// Longer estimates of the time left are not printed.
const LONGEST: u64 = 7 * 86_400;

/// Layout of a bar, and the unit of its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarLayout {
    /// Any unit, shown as a percentage.
    Percent,
    /// Seconds; Ctrl-C ends them early.
    Seconds,
    Bytes,
    /// A numbered step, in any unit.
    Step,
    /// Pairs of an experiment. Its message has all figures.
    Pairs,
    /// Work of unknown length.
    Spinner,
}

impl BarLayout {
    const fn template(self) -> &'static str {
        match self {
            BarLayout::Percent => "{wide_bar} {percent:>3} %  {msg}",
            BarLayout::Seconds => "{msg} {bar:30} {pos}/{len} s; Ctrl-C ends it early",
            BarLayout::Bytes => {
                "{prefix:14} {wide_bar} {binary_bytes:>11} / {binary_total_bytes} {eta:>4}"
            }
            BarLayout::Step => "{prefix:<40} {bar:30} {percent:>3} %  {msg}",
            BarLayout::Pairs => "{bar:20}  {msg}",
            BarLayout::Spinner => "{spinner} {msg}",
        }
    }
}

/// Progress of one piece of work. It ends, and a bar is removed, when it is dropped.
pub struct Bar {
    bar: ProgressBar,
    is_drawn: bool,
    ticker: Option<Ticker>,
    /// Milliseconds from the start to the last change of the position.
    moved_after: Arc<AtomicU64>,
}

impl Bar {
    pub fn new(layout: BarLayout, length: u64) -> Bar {
        let is_drawn = is_drawable();
        let is_at_once = is_drawn && layout != BarLayout::Spinner;
        let target = match is_at_once {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(length), target);
        // The test below finds an invalid template, so it must not fail a command.
        if let Ok(style) = ProgressStyle::with_template(layout.template()) {
            bar.set_style(style);
        }
        let shared = bar.clone();
        let moved_after = Arc::new(AtomicU64::new(0));
        let ticker = match is_drawn {
            true if is_at_once => None,
            true => Ticker::start(PATIENCE, REDRAW, move || {
                if shared.is_hidden() {
                    shared.set_draw_target(ProgressDrawTarget::stderr());
                }
                shared.tick();
            }),
            false => {
                let period = period();
                let moved_after = Arc::clone(&moved_after);
                Ticker::start(period, period, move || {
                    if has_room() {
                        let moved_after = Duration::from_millis(moved_after.load(Relaxed));
                        print_stderr(&line(layout, &shared, moved_after));
                    }
                })
            }
        };
        Bar {
            bar,
            is_drawn,
            ticker,
            moved_after,
        }
    }

    /// Starts the progress of work of unknown length.
    pub fn spinner(message: &str) -> Bar {
        let bar = Bar::new(BarLayout::Spinner, 0);
        bar.set_message(message);
        bar
    }

    /// True if stderr is a terminal that can draw a bar.
    pub const fn is_drawn(&self) -> bool {
        self.is_drawn
    }

    pub fn set_message(&self, text: &str) {
        self.bar.set_message(clean(text));
    }

    pub fn set_prefix(&self, text: &str) {
        self.bar.set_prefix(clean(text));
    }

    pub fn set_length(&self, length: u64) {
        self.bar.set_length(length);
    }

    /// Sets the position, at most the length.
    pub fn set_position(&self, position: u64) {
        let position = position.min(self.bar.length().unwrap_or(position));
        if position != self.bar.position() {
            let elapsed = u64::try_from(self.bar.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.moved_after.store(elapsed, Relaxed);
        }
        self.bar.set_position(position);
    }

    /// Prints a line above the bar; without a bar it prints nothing.
    pub fn print_above(&self, line: &str) {
        self.bar.println(clean(line));
    }

    /// Prints a line above the bar, or alone if no bar is drawn.
    pub fn say(&self, line: &str) {
        match self.bar.is_hidden() {
            true => print_stderr(line),
            false => self.print_above(line),
        }
    }

    /// Prints a note for a person.
    pub fn note(&self, note: &str) {
        self.say(&format!("note: {note}"));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // No line may follow the answer.
        if let Some(Ticker { end, thread }) = self.ticker.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

/// A thread that acts at intervals until it is told to end.
struct Ticker {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Ticker {
    /// Returns `None` if no thread can be started: the command then runs without progress.
    fn start(
        first: Duration,
        then: Duration,
        mut act: impl FnMut() + Send + 'static,
    ) -> Option<Ticker> {
        let (end, ended) = mpsc::channel::<()>();
        let run = move || {
            let mut wait = first;
            while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                act();
                wait = then;
            }
        };
        let thread = std::thread::Builder::new().spawn(run).ok()?;
        Some(Ticker { end, thread })
    }
}

/// Returns true if stderr takes a line at once. The answer must not wait for a reader of progress.
fn has_room() -> bool {
    let stderr = std::io::stderr();
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

fn period() -> Duration {
    let named = std::env::var(TEST_PERIOD).ok();
    let named = named.and_then(|text| parse_time(&text).ok());
    named.unwrap_or(PERIOD)
}

fn line(layout: BarLayout, bar: &ProgressBar, moved_after: Duration) -> String {
    let (done, of) = (bar.position(), bar.length().unwrap_or(0));
    let state = BarState {
        layout,
        prefix: bar.prefix(),
        message: bar.message(),
        done,
        of,
        estimate: estimate(done, of, moved_after, bar.elapsed()),
    };
    format!("hugeleaf: {}", state.in_words())
}

/// Estimates the seconds left from the mean rate up to the last change of the position, because the steps of an experiment take minutes
/// each. Returns 0 if unknown.
fn estimate(done: u64, of: u64, moved_after: Duration, elapsed: Duration) -> u64 {
    let remaining = u128::from(of.saturating_sub(done));
    let left_then = moved_after.as_millis() * remaining / u128::from(done.max(1));
    let left = (moved_after.as_millis() + left_then).saturating_sub(elapsed.as_millis());
    (left / 1000).try_into().unwrap_or(u64::MAX)
}

/// Values of a bar as a line of text shows them.
struct BarState {
    layout: BarLayout,
    prefix: String,
    message: String,
    done: u64,
    of: u64,
    /// Time left in seconds by the progress so far; 0 if unknown.
    estimate: u64,
}

impl BarState {
    /// Formats the work, its amount and the time left: `promoting, 1.2G of 3.1G, 20 s left`.
    fn in_words(&self) -> String {
        let (done, of) = (self.done, self.of);
        let amount = match self.layout {
            _ if of == 0 => None,
            BarLayout::Bytes => Some(format!("{} of {}", Bytes(done), Bytes(of))),
            BarLayout::Seconds => Some(format!("{done} of {of} s")),
            BarLayout::Percent | BarLayout::Step => {
                Some(format!("{} %", done.saturating_mul(100) / of))
            }
            BarLayout::Pairs | BarLayout::Spinner => None,
        };
        let left = match self.layout {
            BarLayout::Seconds => of.saturating_sub(done),
            BarLayout::Bytes | BarLayout::Percent | BarLayout::Step => self.estimate,
            BarLayout::Pairs | BarLayout::Spinner => 0,
        };
        let left = (1..LONGEST).contains(&left).then(|| time_left(left));
        let names = [self.prefix.trim(), self.message.trim()].map(str::to_owned);
        let parts = names.into_iter().chain(amount).chain(left);
        let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
        match parts.is_empty() {
            true => "working".to_owned(),
            false => parts.join(", "),
        }
    }
}

/// Formats the time left: `1 min 40 s left`.
pub fn time_left(seconds: u64) -> String {
    format!("{} left", time::exact(seconds))
}

/// Returns true if stderr is a terminal that can draw a bar.
fn is_drawable() -> bool {
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
        for layout in [
            BarLayout::Percent,
            BarLayout::Seconds,
            BarLayout::Bytes,
            BarLayout::Step,
            BarLayout::Pairs,
            BarLayout::Spinner,
        ] {
            let style = ProgressStyle::with_template(layout.template());
            assert!(style.is_ok(), "{layout:?}");
        }
    }

    #[test]
    fn the_time_left_falls_between_two_steps() {
        let s = Duration::from_secs;
        assert_eq!(estimate(1, 10, s(160), s(160)), 1440);
        assert_eq!(estimate(1, 10, s(160), s(300)), 1300);
        assert_eq!(estimate(9, 10, s(90), s(120)), 0, "later than estimated");
        assert_eq!(estimate(0, 10, s(0), s(120)), 0);
        assert_eq!(estimate(10, 10, s(90), s(90)), 0);
    }

    #[test]
    fn no_bar_where_term_is_unset_or_dumb() {
        let on = |name: &str| moves_its_cursor(Some(OsStr::new(name)));
        assert!(on("xterm-256color") && on("linux") && on("vt220"));
        assert!(!on("dumb") && !on("") && !moves_its_cursor(None));
    }

    #[test]
    fn a_line_has_the_work_its_amount_and_the_time_left() {
        let says = |layout, [prefix, message]: [&str; 2], [done, of, estimate]: [u64; 3]| {
            let state = BarState {
                layout,
                prefix: prefix.to_owned(),
                message: message.to_owned(),
                done,
                of,
                estimate,
            };
            state.in_words()
        };
        for (layout, texts, figures, line) in [
            (
                BarLayout::Bytes,
                ["promoting", ""],
                [1 << 30, 3 << 30, 20],
                "promoting, 1G of 3G, 20 s left",
            ),
            (
                BarLayout::Seconds,
                ["", "watching the pools"],
                [500, 600, 0],
                "watching the pools, 500 of 600 s, 1 min 40 s left",
            ),
            (BarLayout::Percent, ["", "chase"], [1, 3, 0], "chase, 33 %"),
            (
                BarLayout::Step,
                ["[5/5] prove", "8 pairs"],
                [30, 60, 30],
                "[5/5] prove, 8 pairs, 50 %, 30 s left",
            ),
            (
                BarLayout::Pairs,
                ["", "8 pairs, 5 s left"],
                [5, 10, 9],
                "8 pairs, 5 s left",
            ),
            (BarLayout::Spinner, ["", "reading"], [0, 0, 0], "reading"),
            (BarLayout::Bytes, ["", ""], [0, 0, 0], "working"),
            (
                BarLayout::Percent,
                ["", "stuck"],
                [1, 100, u64::MAX],
                "stuck, 1 %",
            ),
        ] {
            assert_eq!(says(layout, texts, figures), line);
        }
    }
}
