//! A terminal for tests: a pair of pseudo-terminals, with the program at one end and the simulated user at the other.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::{ChildGuard, PATIENCE};

/// A terminal and the program in it.
pub struct Terminal {
    /// The program, which is also the leader of its session.
    pub child: ChildGuard,
    end: Option<File>,
    screen: vt100::Parser,
    pub written: Vec<u8>,
}

impl Terminal {
    /// Starts a command in a terminal of this size, as its own session; `setsid --ctty` assigns the terminal.
    pub fn start(program: &Path, args: &[&str], (columns, rows): (u16, u16)) -> Terminal {
        let end = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&end).unwrap();
        unlockpt(&end).unwrap();
        resize(&end, columns, rows);
        let name = ptsname(&end, Vec::new()).unwrap();
        let path = name.to_str().unwrap();
        let open = || File::options().read(true).write(true).open(path).unwrap();
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(program)
            .args(args)
            .env_remove("NO_COLOR")
            .env_remove("COLUMNS")
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C")
            .stdin(Stdio::from(open()))
            .stdout(Stdio::from(open()))
            .stderr(Stdio::from(open()))
            .spawn()
            .unwrap();
        Terminal {
            child: ChildGuard(child),
            end: Some(end.into()),
            screen: vt100::Parser::new(cells(rows), cells(columns), 0),
            written: Vec::new(),
        }
    }

    pub fn types(&mut self, keys: &str) {
        self.end
            .as_mut()
            .unwrap()
            .write_all(keys.as_bytes())
            .unwrap();
    }

    /// Reads the output, waiting at most `wait`; returns false once the program's end is closed.
    pub fn take(&mut self, wait: Duration) -> bool {
        let Some(end) = self.end.as_mut() else {
            return false;
        };
        let wait = rustix::event::Timespec::try_from(wait).unwrap();
        let mut polled = [PollFd::new(end, PollFlags::IN)];
        if poll(&mut polled, Some(&wait)).unwrap() == 0 {
            return true;
        }
        let mut bytes = [0; 1 << 16];
        // EIO means that no process has the other end open.
        let Ok(length @ 1..) = end.read(&mut bytes) else {
            return false;
        };
        self.screen.process(&bytes[..length]);
        self.written.extend_from_slice(&bytes[..length]);
        true
    }

    /// Returns the visible screen without trailing blanks.
    pub fn shown(&self) -> String {
        let (_, columns) = self.screen.screen().size();
        let rows = self.screen.screen().rows(0, columns.get());
        rows.map(|row| row.trim_end().to_owned() + "\n").collect()
    }

    /// Waits until the screen meets a condition.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let shown = self.shown();
            if holds(&shown) {
                return shown;
            }
            let is_open = self.take(Duration::from_millis(200));
            assert!(
                is_open && began.elapsed() < PATIENCE,
                "never: {what}; the screen:\n{}\nwritten: {}",
                self.shown(),
                String::from_utf8_lossy(&self.written)
            );
        }
    }

    /// Waits until the screen contains a text.
    #[track_caller]
    pub fn wait_text(&mut self, text: &str) -> String {
        self.wait_for(text, |shown| shown.contains(text))
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        resize(self.end.as_ref().unwrap(), columns, rows);
        self.screen
            .screen_mut()
            .set_size(cells(rows), cells(columns));
    }

    pub fn close(&mut self) {
        self.end = None;
    }

    /// Returns true if lines are edited and echoed, as before a program took the terminal.
    pub fn is_line_mode(&self) -> bool {
        let modes = tcgetattr(self.end.as_ref().unwrap()).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Returns true if the program controls the screen: alternate screen, hidden cursor, or mouse events.
    pub fn is_full_screen(&self) -> bool {
        let screen = self.screen.screen();
        screen.alternate_screen()
            || screen.hide_cursor()
            || screen.bracketed_paste()
            || screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None
    }

    /// Waits for the end, and reads the output until then.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if !self.take(Duration::from_millis(50)) {
                crate::wait::step(began);
            }
            if let Some(status) = self.child.0.try_wait().unwrap() {
                while self.end.is_some() && self.written_more() {}
                return status;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "it does not end; the screen:\n{}",
                self.shown()
            );
        }
    }

    fn written_more(&mut self) -> bool {
        let before = self.written.len();
        self.take(Duration::from_millis(20)) && self.written.len() > before
    }
}

/// Converts a size in cells, which is at least one.
fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

fn resize(end: impl AsFd, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(end, size).unwrap();
}
