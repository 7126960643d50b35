//! A terminal: a pair of pseudo-terminals with the program at one end, and at the other what a person sees and types.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::PATIENCE;

/// A terminal and the program in it.
pub struct Terminal {
    end: Option<File>,
    /// The program; its id is that of the session's first process.
    pub child: Child,
    screen: vt100::Parser,
    pub written: Vec<u8>,
}

impl Terminal {
    /// Starts a command in a terminal of that size, as its own session: `setsid --ctty` gives it the terminal.
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
            end: Some(end.into()),
            child,
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

    /// Takes what was written, waiting so long for something; false once the program's end is closed.
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
        // EIO: nobody has the other end open.
        let Ok(length @ 1..) = end.read(&mut bytes) else {
            return false;
        };
        self.screen.process(&bytes[..length]);
        self.written.extend_from_slice(&bytes[..length]);
        true
    }

    /// The screen as a person reads it, trailing blanks left out.
    pub fn shown(&self) -> String {
        let (_, columns) = self.screen.screen().size();
        let rows = self.screen.screen().rows(0, columns.get());
        rows.map(|row| row.trim_end().to_owned() + "\n").collect()
    }

    /// Waits until the screen is as it should be.
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

    /// Waits until the screen has a text.
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

    /// Whether lines are edited and echoed, as before a program took the terminal.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(self.end.as_ref().unwrap()).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Whether the screen is the program's: the alternate one, or no cursor, or clicks.
    pub fn is_taken(&self) -> bool {
        let screen = self.screen.screen();
        screen.alternate_screen()
            || screen.hide_cursor()
            || screen.bracketed_paste()
            || screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None
    }

    /// Waits for the end, and takes what was written until then.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if !self.take(Duration::from_millis(50)) {
                crate::pause(Duration::from_millis(10));
            }
            if let Some(status) = self.child.try_wait().unwrap() {
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

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A screen has one cell at least.
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
