//! Asks a guard that runs, over its socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use hugeleaf_units::Failure;

use crate::status::Status;

const PATIENCE: Duration = Duration::from_secs(10);
/// No answer is longer.
const LONGEST: u64 = 64 << 20;
const START: &str = "systemctl start hugeleaf-guard, or: hugeleaf guard";

/// The body of the answer to `METHOD PATH`.
pub fn ask(socket: &Path, method: &str, path: &str) -> Result<Vec<u8>, Failure> {
    let nobody = |why: std::io::Error| {
        let next = match why.kind() {
            ErrorKind::PermissionDenied => {
                "run as root, or as a member of the group that the rules name (group = \"…\")"
            }
            _ => START,
        };
        let at = socket.display();
        Failure::new(format!("no guard listens at {at}: {why}"), next)
    };
    let wrong = |why: &dyn std::fmt::Display| wrong(socket, why);
    let mut stream = UnixStream::connect(socket).map_err(nobody)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(nobody)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(nobody)?;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: guard\r\n\r\n");
    (stream.write_all(request.as_bytes())).map_err(|e| wrong(&e))?;
    let mut answer = Vec::new();
    (stream.take(LONGEST).read_to_end(&mut answer)).map_err(|e| wrong(&e))?;
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(head)) = response.parse(&answer) else {
        return Err(wrong(&"its answer is none"));
    };
    let body = answer.split_off(head);
    match response_code(&answer) {
        Some(200) => Ok(body),
        _ => Err(wrong(&String::from_utf8_lossy(&body).trim())),
    }
}

fn wrong(socket: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("the guard at {}: {why}", socket.display()), START)
}

fn response_code(head: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(head).ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

pub fn ask_status(socket: &Path) -> Result<Status, Failure> {
    let body = ask(socket, "GET", "/status.json")?;
    serde_json::from_slice(&body)
        .map_err(|e| wrong(socket, &format!("{e}; is it of another version?")))
}
