//! Parses arbitrary requests to the guard. Only the Unix socket may give orders, and only known host names are
//! answered.
#![no_main]

use hugeleaf_guard::serve::parse_request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (bool, &[u8])| {
    let (trusted, bytes) = data;
    let hosts = ["127.0.0.1:9646".to_owned()];
    match parse_request(bytes, trusted, (!trusted).then_some(&hosts[..])) {
        Ok(Some(request)) => {
            assert!(request.method == "GET" || (trusted && request.method == "POST"));
            assert_eq!(request.trusted, trusted);
            let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
            assert!(trusted || text.contains("127.0.0.1:9646"));
        }
        Ok(None) => {}
        Err(refused) => assert!(refused.status >= 400),
    }
});
