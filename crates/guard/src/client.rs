//! Asks a guard that runs, over its socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::status::Status;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// No answer is longer.
const LONGEST: u64 = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens.
    #[error("no guard listens at {}: {why}", path.display())]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        why: std::io::Error,
    },
    /// It refused, or what it said is no answer.
    #[error("the guard at {}: {why}", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What was wrong.
        why: String,
    },
}

impl AskError {
    /// Whether the socket is there and may not be used.
    pub fn is_denied(&self) -> bool {
        matches!(self, AskError::Nobody { why, .. } if why.kind() == ErrorKind::PermissionDenied)
    }
}

/// The body of the answer to `METHOD PATH`.
///
/// # Errors
/// [`AskError`].
pub fn ask(socket: &Path, method: &str, path: &str) -> Result<Vec<u8>, AskError> {
    let nobody = |why| AskError::Nobody {
        path: socket.to_owned(),
        why,
    };
    let wrong = |why: String| AskError::Answer {
        path: socket.to_owned(),
        why,
    };
    let mut stream = UnixStream::connect(socket).map_err(nobody)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(nobody)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(nobody)?;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: guard\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .map_err(|e| wrong(e.to_string()))?;
    let mut answer = Vec::new();
    stream
        .take(LONGEST)
        .read_to_end(&mut answer)
        .map_err(|e| wrong(e.to_string()))?;
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(head)) = response.parse(&answer) else {
        return Err(wrong("its answer is none".into()));
    };
    let body = answer.split_off(head);
    match response_code(&answer) {
        Some(200) => Ok(body),
        _ => Err(wrong(String::from_utf8_lossy(&body).trim().to_owned())),
    }
}

fn response_code(head: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(head).ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

/// What the guard says of itself.
///
/// # Errors
/// [`AskError`].
pub fn ask_status(socket: &Path) -> Result<Status, AskError> {
    let body = ask(socket, "GET", "/status.json")?;
    serde_json::from_slice(&body).map_err(|e| AskError::Answer {
        path: socket.to_owned(),
        why: format!("{e}; is it of another version?"),
    })
}
