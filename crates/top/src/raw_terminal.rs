//! Takes over the terminal, and always restores it.
//!
//! It is restored when the program ends, at every signal that ends it, before a panic is printed and while the program
//! is suspended. SIGKILL cannot be caught and leaves it as it is. `reset` repairs it then.

#![expect(clippy::disallowed_methods, reason = "the screen itself")]

use std::fmt;
use std::io::{BufWriter, Stdout, Write, stdout};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{Command, execute};

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Reports clicks and the wheel, without movements, which would wake the program needlessly. Uses the form without a
/// limit on columns (1006).
struct MouseReporting(bool);

impl Command for MouseReporting {
    fn write_ansi(&self, f: &mut impl fmt::Write) -> fmt::Result {
        f.write_str(match self.0 {
            true => "\x1b[?1000h\x1b[?1006h",
            false => "\x1b[?1006l\x1b[?1000l",
        })
    }
}

/// The terminal, taken over until this is dropped.
pub(crate) struct RawTerminal {
    // Never dropped. Its drop would show the cursor and, if the terminal is gone, print an error, which panics then.
    // The cursor is shown here.
    pub(crate) terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

impl RawTerminal {
    /// Takes over the terminal. From here on a panic restores it before it is printed, and ends the program.
    pub(crate) fn take() -> std::io::Result<RawTerminal> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
            std::process::exit(101);
        }));
        enter()?;
        // The buffer exceeds a screen, so that one write draws it without flicker.
        let out = BufWriter::with_capacity(1 << 16, stdout());
        let terminal = Terminal::new(CrosstermBackend::new(out));
        let terminal = terminal.inspect_err(|_| give_back())?;
        Ok(RawTerminal {
            terminal: ManuallyDrop::new(terminal),
        })
    }

    /// Takes it again after another program had it.
    pub(crate) fn take_again(&mut self) -> std::io::Result<()> {
        // The present settings of the terminal are those to restore.
        give_back();
        enter()?;
        self.clear()
    }

    pub(crate) fn clear(&mut self) -> std::io::Result<()> {
        // Not `Terminal::clear`, which asks the terminal for its cursor position. The thread that reads keys may take
        // the answer.
        self.terminal.backend_mut().clear()?;
        // Discards the last picture, so that all cells are drawn again.
        self.terminal.swap_buffers();
        Ok(())
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> std::io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    let entered = execute!(
        stdout(),
        EnterAlternateScreen,
        MouseReporting(true),
        EnableBracketedPaste,
        Hide
    );
    entered.inspect_err(|_| give_back())
}

/// Restores the terminal, once. Errors of a terminal that is gone are ignored.
pub(crate) fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = execute!(
        stdout(),
        MouseReporting(false),
        DisableBracketedPaste,
        Show,
        LeaveAlternateScreen
    );
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANICS: &str = "HUGELEAF_TEST_PANICS";

    /// Does nothing except in a process of its own, which the test below starts in a terminal.
    #[test]
    fn panics_where_it_is_asked_to() {
        match std::env::var(PANICS).as_deref() {
            Ok("main") => {
                let _screen = RawTerminal::take().unwrap();
                panic!("on purpose");
            }
            Ok("thread") => {
                let _screen = RawTerminal::take().unwrap();
                let _ = std::thread::spawn(|| panic!("on purpose")).join();
                unreachable!("a panic of any thread ends the program");
            }
            _ => {}
        }
    }

    #[test]
    fn a_panic_is_printed_on_a_terminal_that_was_given_back() {
        let script = |command: &str, what: &str| {
            std::process::Command::new("script")
                .args(["-qec", command, "/dev/null"])
                .env(PANICS, what)
                .env("TERM", "xterm")
                .stdin(std::process::Stdio::null())
                .output()
        };
        if !script("true", "").is_ok_and(|output| output.status.success()) {
            println!("not run: a_panic_is_printed_on_a_terminal_that_was_given_back: no script(1)");
            return;
        }
        let own = std::env::current_exe().unwrap();
        let command = format!(
            "{} --exact raw_terminal::tests::panics_where_it_is_asked_to --nocapture; stty -a",
            own.display()
        );
        for what in ["main", "thread"] {
            let output = script(&command, what).unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let at = |part: &str| {
                text.rfind(part)
                    .unwrap_or_else(|| panic!("no {part:?} in {text}"))
            };
            assert!(at("\x1b[?1049h") < at("\x1b[?1049l") && at("\x1b[?1049l") < at("on purpose"));
            assert!(at("\x1b[?1000l") > at("\x1b[?1000h") && at("\x1b[?25h") > at("\x1b[?25l"));
            assert!(
                at(" icanon") > at("on purpose") && at(" echo ") > 0,
                "{text}"
            );
        }
    }
}
