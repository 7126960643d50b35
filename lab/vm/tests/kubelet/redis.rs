//! The victim: a pod with a real Redis server and its data.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::until;

const PORT: u16 = 6379;
/// Its keys have values of 1 KiB.
pub const KEYS: u64 = 250_000;

/// Returns a pod with Redis, as another user than root. `resources` are requests and limits.
pub fn pod(resources: &Value) -> Value {
    let words = [
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--enable-debug-command",
        "local",
    ];
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "redis", "namespace": "databases"},
        "spec": {
            "hostNetwork": true,
            "containers": [{
                "name": "redis",
                "image": "hugeleaf.test/redis:1",
                "imagePullPolicy": "Never",
                "command": ["/usr/bin/redis-server"],
                "args": words,
                "workingDir": "/tmp",
                "securityContext": {"runAsUser": 65534, "runAsGroup": 65534},
                "resources": resources,
            }],
        },
    })
}

/// Sends a command, and returns the first line of the answer.
pub fn ask(command: &str) -> Result<String, String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", PORT))?;
        write!(stream, "{command}\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    };
    ask().map_err(|error| error.to_string())
}

/// Writes the keys.
pub fn fill() {
    until("redis", || ask("PING"));
    assert_eq!(
        ask(&format!("DEBUG POPULATE {KEYS} key 1024")).unwrap(),
        "+OK"
    );
    assert_whole();
}

#[track_caller]
pub fn assert_whole() {
    assert_eq!(ask("DBSIZE").unwrap(), format!(":{KEYS}"));
    assert_eq!(ask("STRLEN key:7").unwrap(), ":1024");
}
