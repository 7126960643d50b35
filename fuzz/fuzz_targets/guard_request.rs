//! Requests of any bytes: nobody but who comes over the Unix socket orders anything, and no other name is answered.
#![no_main]

use std::cell::Cell;

use hugeleaf_guard::serve::{Response, respond};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (bool, &[u8])| {
    let (trusted, bytes) = data;
    let asked = Cell::new(false);
    let hosts = ["127.0.0.1:9646".to_owned()];
    let response = respond(bytes, trusted, &hosts, &|request| {
        asked.set(true);
        assert!(request.method == "GET" || (trusted && request.method == "POST"));
        assert_eq!(request.trusted, trusted);
        Response::ok("text/plain", request.path)
    });
    let Some(response) = response else {
        assert!(!asked.get());
        return;
    };
    assert_eq!(response.status == 200, asked.get());
    if !trusted && asked.get() {
        assert!(
            String::from_utf8_lossy(bytes)
                .to_ascii_lowercase()
                .contains("127.0.0.1:9646")
        );
    }
});
