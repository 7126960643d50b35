//! Sends requests to a running guard, over its socket.

use std::path::Path;
use std::time::Duration;

use hugeleaf_ask::{Endpoint, QueryError, Transport};
use hugeleaf_sys::Deadline;
use hugeleaf_units::Failure;

use crate::status::GuardStatus;

const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of an answer, in bytes.
const LONGEST: usize = 64 << 20;
const START: &str = "systemctl start hugeleaf-guard, or: hugeleaf guard";

/// Returns the body of the answer to `METHOD PATH`.
pub fn ask(socket: &Path, method: &str, path: &str) -> Result<Vec<u8>, Failure> {
    let question = Deadline::new(PATIENCE);
    let nobody = |why: QueryError| {
        let next = match why.what.contains("Permission denied") {
            true => "run as root, or as a member of the group set in guard.toml (group = \"…\")",
            false => START,
        };
        Failure::missing(format!("no guard listens at {why}"), next)
    };
    let wrong = |why: &dyn std::fmt::Display| wrong(socket, why);
    let place = Endpoint::Unix(socket.display().to_string());
    let mut wire = Transport::connect(&place, question).map_err(nobody)?;
    let mut exchange = wire.begin_exchange(question);
    exchange.max_bytes = LONGEST;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: guard\r\n\r\n");
    (exchange.send(request.as_bytes())).map_err(|e| wrong(&e))?;
    let mut answer = exchange.rest().map_err(|e| wrong(&e))?;
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(head)) = response.parse(&answer) else {
        return Err(wrong(&"its answer is not HTTP"));
    };
    let code = response.code;
    let body = answer.split_off(head);
    match code {
        Some(200) => Ok(body),
        _ => Err(wrong(&String::from_utf8_lossy(&body).trim())),
    }
}

fn wrong(socket: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::missing(format!("the guard at {}: {why}", socket.display()), START)
}

pub fn ask_status(socket: &Path) -> Result<GuardStatus, Failure> {
    let body = ask(socket, "GET", "/status.json")?;
    serde_json::from_slice(&body)
        .map_err(|e| wrong(socket, &format!("{e}; it may be another version")))
}
